//! The state of a token bucket; its methods run under the bucket's lock.

use super::pace::{Grant, Level, Pace, Refusal, fixed};
use requeue_core::Instant;

/// The state of a token bucket.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    /// Tokens per second, as given.
    pub(super) per_second: f64,
    /// The pace; of an infinite rate the last finite one.
    pub(super) pace: Pace,
    level: Level,
    /// The promised instant of the latest reservation that was not cancelled, in fixed point.
    latest: i128,
    /// When the rate became infinite, if it is. From then on there is no limit, and after any time the bucket is full.
    unlimited: Option<Instant>,
}

/// A granted reservation, with what is needed to cancel it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    pub(super) n: u32,
    pub(super) grant: Grant,
    /// The pace at the reservation; `None` if there was no limit.
    pace: Option<Pace>,
}

impl Ledger {
    /// A full bucket. `per_second` must not be negative or NaN.
    pub(super) fn new(per_second: f64, burst: u32) -> Self {
        let finite = Pace::new(per_second, burst);
        let pace = finite.unwrap_or(Pace::NONE.with_burst(burst));
        let unlimited = finite.is_none().then_some(Instant::ORIGIN);
        Self { per_second, pace, level: pace.full_level(), latest: 0, unlimited }
    }

    /// Takes `n` tokens. If they could never be had, or only after more than `at_most` nanoseconds, nothing
    /// changes.
    #[inline]
    pub(super) fn take(&mut self, n: u32, now: Instant, at_most: u64) -> Result<Promise, Refusal> {
        let (grant, pace) = if self.unlimited.is_some() {
            self.level.last = now.max(self.level.last);
            (Grant::at(self.level.last), None)
        } else {
            (self.pace.take(&mut self.level, n, now, at_most)?, Some(self.pace))
        };
        self.latest = grant.exact;
        Ok(Promise { n, grant, pace })
    }

    pub(super) fn change(&mut self, per_second: f64, burst: u32, now: Instant) {
        // No clock shows NEVER; were it counted, every later call would count as it.
        let now = if now.is_never() { self.level.last } else { now.max(self.level.last) };
        let balance = self.balance(now);
        let finite = Pace::new(per_second, burst);
        let pace = finite.unwrap_or(self.pace.with_burst(burst));
        // it goes on with the bucket's balance at this instant, debts included
        self.level = pace.with_balance(self.pace.convert(balance, &pace), now);
        self.unlimited = finite.is_none().then_some(now);
        (self.per_second, self.pace) = (per_second, pace);
    }

    /// The balance at `now`, as the time of its tokens.
    fn balance(&self, now: Instant) -> i128 {
        if self.unlimited.is_some_and(|since| now.max(self.level.last) > since) {
            return self.pace.full();
        }
        self.pace.balance(self.level, now)
    }

    /// [`Reservation::cancel`](super::Reservation::cancel).
    pub(super) fn give_back(&mut self, promise: &Promise, now: Instant) {
        let Promise { n, grant, pace: Some(pace) } = promise else { return };
        let now = now.max(self.level.last);
        if self.unlimited.is_some() || grant.ready_at() < now {
            return;
        }
        let unused = pace.unused(*n, self.latest - grant.exact);
        if self.latest == grant.exact {
            // The latest is now what came before, or what has passed anyway.
            self.latest = (grant.exact - unused).max(fixed(now));
        }
        let balance = self.balance(now) + pace.convert(unused, &self.pace);
        self.level = self.pace.with_balance(balance, now);
    }

    /// Number of tokens at `now`.
    pub(super) fn tokens(&self, now: Instant) -> f64 {
        self.balance(now) as f64 / self.pace.token as f64
    }
}
