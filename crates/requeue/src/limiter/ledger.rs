//! The state of a token bucket; its methods run under the bucket's lock.

use super::pace::{Exact, Grant, Level, Pace, Rate, Refusal, convert};
use crate::Instant;

/// The state of a token bucket.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    /// Tokens per second, as given.
    pub(super) per_second: f64,
    pub(super) pace: Pace,
    pub(super) level: Level,
    /// The promised instant of the latest reservation that was not cancelled.
    pub(super) latest: Exact,
    /// The balance when the rate became infinite; `None` while it is finite.
    since_infinite: Option<Held>,
}

/// The balance of a bucket at the instant when its rate became infinite. At any later time it is full.
#[derive(Clone, Copy, Debug)]
struct Held {
    at: Instant,
    /// In units of this rate, the last finite one.
    balance: i128,
    rate: Rate,
}

impl Held {
    /// The balance at `now` for a bucket of `burst` tokens.
    fn balance(&self, burst: u32, now: Instant) -> i128 {
        let full = self.rate.token * i128::from(burst);
        if now > self.at { full } else { self.balance.min(full) }
    }
}

/// A granted reservation, with what is needed to cancel it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    pub(super) n: u32,
    pub(super) grant: Grant,
    /// The rate at the reservation; `None` if there was no limit.
    pub(super) rate: Option<Rate>,
}

impl Ledger {
    /// A full bucket. `per_second` must not be negative or NaN.
    pub(super) fn new(per_second: f64, burst: u32) -> Self {
        let pace = Pace::new(per_second, burst);
        let full = || {
            let rate = Rate::ZERO;
            Held { at: Instant::ORIGIN, balance: rate.token * i128::from(burst), rate }
        };
        Self {
            per_second,
            pace,
            level: pace.full(),
            latest: Exact::ORIGIN,
            since_infinite: pace.rate.is_none().then(full),
        }
    }

    /// Takes `n` tokens. If they could never be had, or only after more than `at_most` nanoseconds, nothing
    /// changes.
    #[inline]
    pub(super) fn take(&mut self, n: u32, now: Instant, at_most: u64) -> Result<Promise, Refusal> {
        let grant = self.pace.take(&mut self.level, n, now, at_most)?;
        self.latest = grant.exact;
        Ok(Promise { n, grant, rate: self.pace.rate })
    }

    pub(super) fn change(&mut self, per_second: f64, burst: u32, now: Instant) {
        // No clock shows NEVER; were it counted, every later call would count as it.
        let now = if now.is_never() { self.level.last } else { now.max(self.level.last) };
        let (rate, balance) = self.holds(now);
        let new = Pace::new(per_second, burst);
        self.per_second = per_second;
        self.pace = new;
        // it goes on with the bucket's balance at this instant, debts included
        self.since_infinite = match new.rate {
            Some(to) => {
                self.level = new.with_balance(to, convert(balance, rate, to), now);
                None
            }
            None => {
                self.level.last = now;
                Some(Held { at: now, balance: balance.min(rate.token * i128::from(burst)), rate })
            }
        };
    }

    /// The balance at `now`, and the rate in whose units it is.
    fn holds(&self, now: Instant) -> (Rate, i128) {
        match (self.pace.rate, &self.since_infinite) {
            (Some(rate), _) => (rate, self.pace.balance(rate, self.level, now)),
            (None, Some(held)) => (held.rate, held.balance(self.pace.burst, now.max(self.level.last))),
            (None, None) => unreachable!("a bucket of an infinite rate knows what it held before"),
        }
    }

    /// [`Reservation::cancel`](super::Reservation::cancel).
    pub(super) fn give_back(&mut self, promise: &Promise, now: Instant) {
        let Promise { n, grant, rate: Some(rate) } = promise else {
            return;
        };
        let now = now.max(self.level.last);
        let Some(current) = self.pace.rate else {
            return;
        };
        if grant.ready_at() < now {
            return;
        }
        let n = rate.token * i128::from(*n);
        let own = grant.exact.units_of(*rate);
        let later = self.latest.units_of(*rate) - own;
        let back = convert((n - later).clamp(0, n), *rate, current);
        if self.latest == grant.exact {
            // The latest is now what came before, or what has passed anyway.
            let before = (own - n).max(rate.units(now));
            self.latest = if rate.per_nano == 0 {
                Exact::at(now, *rate)
            } else {
                Exact { units: before, per_nano: rate.per_nano }
            };
        }
        let balance = self.pace.balance(current, self.level, now);
        self.level = self.pace.with_balance(current, balance + back, now);
    }

    /// Number of tokens at `now`.
    pub(super) fn tokens(&self, now: Instant) -> f64 {
        let (rate, balance) = self.holds(now);
        balance as f64 / rate.token as f64
    }
}
