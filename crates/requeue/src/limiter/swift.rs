//! A token bucket's level in one atomic, for as long as it fits there: the
//! reservations of any number of threads, without a lock.
//!
//! Of what the [`Ledger`] knows a reservation changes three things. The zero (see
//! [`pace`](super::pace)) is the atomic that is compared and swapped: whoever
//! swapped it has the tokens. The latest instant that was counted is an atomic of
//! its own, raised before the swap, so that whoever reads a zero also reads an
//! instant that is no earlier than those of the grants that made it; a caller whose
//! swap fails because somebody else's came first looks at both again. And the
//! instant that the latest reservation was promised follows from these two: it is
//! the zero, or the instant if that is later.
//!
//! Everything else (cancelling, asking for no tokens, looking, changing rate or
//! burst) is done by the ledger under its lock. Meanwhile the zero is [`SHUT`],
//! which sends all others to the lock too. Afterwards it is opened again, unless the
//! pace was changed. Then it stays shut for good: a caller that read the old pace and
//! was then delayed must not swap in a sum of the old pace, and where the zero can
//! never again be what it was, it cannot. To open it anew at another pace would want a
//! version beside the zero, for which there are no bits left, or a pointer to the
//! pace that is freed safely, for which this crate has no means. The ledger is fast
//! enough.
//!
//! A swap that succeeds although the zero was another in between (a reservation came
//! and was cancelled) does no harm: the sums are made of the zero that is there, and
//! the instant is the caller's own or one that was counted.
//!
//! What fits: whole units below 2^62, which with a rate of which a token takes a whole
//! number of nanoseconds are 146 years. A rate that is a fraction with a large
//! numerator fits for less long, or never; that bucket is the ledger's alone. The
//! answers are the same to the nanosecond.

use super::ledger::{Ledger, Promise};
use super::pace::{Exact, Grant, Level, Rate, Refusal};
use crate::Instant;
use crate::sync::atomic::{
    AtomicI64, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// No zero: the ledger has it, for now or for good.
const SHUT: i64 = i64::MAX;

/// Every zero, and every instant in units, is below this; a full bucket is at most
/// half of it. So no sum of the three overflows.
const LIMIT: i64 = 1 << 62;

/// One cache line: what never changes is read with what does.
#[repr(align(64))]
pub(super) struct Swift {
    per_nano: u64,
    token: i64,
    full: i64,
    /// When the balance is zero, in units since the origin, or `SHUT`.
    zero: AtomicI64,
    /// The latest instant that was counted, in nanoseconds. It is raised before a
    /// grant is made, so it may be ahead of the zero, never behind.
    last: AtomicU64,
    burst: u32,
}

/// Tokens that were taken without the lock: [`Grant`], in fewer words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Swiftly {
    /// The instant that counted.
    pub(super) now: Instant,
    /// Nanoseconds from there until the tokens are there.
    pub(super) delay: u64,
    /// When they are there, in units.
    units: i64,
}

impl Swift {
    /// `None` where the pace does not fit.
    pub(super) fn new(ledger: &Ledger) -> Option<Self> {
        let Rate { per_nano, token } = ledger.pace.rate?;
        let full = i64::try_from(ledger.pace.full).ok().filter(|full| *full <= LIMIT / 2)?;
        // no token ever comes: nothing that is worth an atomic
        if per_nano == 0 {
            return None;
        }
        Some(Self {
            per_nano,
            token: i64::try_from(token).ok().filter(|token| *token <= LIMIT / 2)?,
            full,
            zero: AtomicI64::new(-full),
            last: AtomicU64::new(0),
            burst: ledger.pace.burst,
        })
    }

    /// What a grant is to the ledger.
    pub(super) fn promise(&self, n: u32, grant: Swiftly) -> Promise {
        let Swiftly { now, delay, units } = grant;
        let exact = Exact { units: i128::from(units), per_nano: self.per_nano };
        Promise { n, grant: Grant { now, delay, exact }, rate: Some(self.rate()) }
    }

    fn rate(&self) -> Rate {
        Rate { per_nano: self.per_nano, token: i128::from(self.token) }
    }

    #[cfg(all(test, not(requeue_loom)))]
    pub(super) fn is_open(&self) -> bool {
        self.zero.load(Relaxed) != SHUT
    }

    /// [`Ledger::take`]; `None` where that must be asked itself.
    #[inline]
    pub(super) fn take(&self, n: u32, now: Instant, at_most: u64) -> Option<Result<Swiftly, Refusal>> {
        if n == 0 {
            // leaves the zero as it is, and so no trace of what it was promised
            return None;
        }
        let mut zero = self.zero.load(Acquire);
        if zero == SHUT {
            return None;
        }
        if n > self.burst || now.is_never() {
            return Some(Err(Refusal::Never));
        }
        let taken = self.token * i64::from(n);
        let mut seen = self.last.load(Relaxed);
        loop {
            let at = now.as_nanos().max(seen);
            let t = at.checked_mul(self.per_nano).filter(|t| *t < LIMIT as u64)? as i64;
            let after = zero.max(t - self.full) + taken;
            if after >= LIMIT {
                return None;
            }
            let mut grant = Swiftly { now: Instant::from_nanos(at), delay: 0, units: after.max(t) };
            if after > t {
                let debt = (after - t) as u64;
                grant.delay = if self.per_nano == 1 { debt } else { debt.div_ceil(self.per_nano) };
                if grant.delay > at_most {
                    return Some(Err(Refusal::Later));
                }
            }
            // somebody who raises it further at this moment comes after this one, or first: then the
            // swap fails
            if at > seen {
                self.last.fetch_max(at, Relaxed);
            }
            match self.zero.compare_exchange_weak(zero, after, AcqRel, Acquire) {
                Ok(_) => return Some(Ok(grant)),
                Err(SHUT) => return None,
                Err(other) => zero = other,
            }
            seen = self.last.load(Relaxed);
        }
    }

    /// Brings the ledger up to date and leaves the level to it. False if it has it
    /// already. The caller holds the ledger's lock.
    pub(super) fn shut(&self, ledger: &mut Ledger) -> bool {
        let zero = self.zero.swap(SHUT, AcqRel);
        if zero == SHUT {
            return false;
        }
        let (zero, last) = (i128::from(zero), Instant::from_nanos(self.last.load(Relaxed)));
        if zero != ledger.level.zero {
            // each reservation raised it
            let promised = zero.max(self.rate().units(last));
            ledger.latest = Exact { units: promised, per_nano: self.per_nano };
        }
        ledger.level = Level { zero, last };
        true
    }

    /// Takes the level back, if the pace is still the same and it fits.
    pub(super) fn open(&self, ledger: &Ledger) {
        let zero = i64::try_from(ledger.level.zero).ok().filter(|zero| *zero < LIMIT);
        if let (true, Some(zero)) = (ledger.unchanged, zero) {
            self.last.fetch_max(ledger.level.last.as_nanos(), Relaxed);
            self.zero.store(zero, Release);
        }
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::super::{Reservation, TokenBucket};
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// Rates that fit, that fit for a while, and that do not; where a token takes a
    /// whole number of nanoseconds and where it does not.
    const RATES: [f64; 12] =
        [10.0, 3.0, 0.6, 33.3, 1e9, 2.5e9, 1e-3, 0.123_456_789, 7e-10, 1e17, 0.0, f64::INFINITY];

    /// The ledger by itself: what the bucket was before it had an atomic.
    fn reserve(ledger: &mut Ledger, n: u32, now: Instant, at_most: u64) -> Result<Promise, Refusal> {
        let grant = ledger.take(n, now, at_most)?;
        Ok(Promise { n, grant, rate: ledger.pace.rate })
    }

    proptest! {
        #[test]
        fn r_bucket_without_a_lock_agrees_with_its_ledger(
            rate in 0usize..RATES.len(),
            burst in 0u32..40,
            // most of the time rate and burst stay
            may_change: bool,
            far: bool,
            steps in proptest::collection::vec((0u8..12, 0u32..45, 0u64..3_000_000_000), 1..120),
        ) {
            let bucket = TokenBucket::new(RATES[rate], burst).unwrap();
            let mut ledger = Ledger::new(RATES[rate], burst);
            let mut clock = if far { (1 << 62) - 40_000_000_000 } else { 0 };
            let mut open: Vec<(Reservation<'_>, Option<Promise>)> = Vec::new();
            for (step, n, nanos) in steps {
                // forward, in steps of all sizes, and now and then an earlier instant
                let now = match step % 4 {
                    0 => { clock += nanos; clock }
                    1 => { clock += nanos >> 20; clock }
                    2 => clock.saturating_sub(nanos),
                    _ => clock,
                };
                let now = Instant::from_nanos(now);
                match step {
                    0..6 => {
                        let reservation = bucket.reserve(n, now);
                        let expected = reserve(&mut ledger, n, now, u64::MAX).ok();
                        let delay = expected.map_or(Duration::MAX, |p| Duration::from_nanos(p.grant.delay));
                        prop_assert_eq!(reservation.delay(), delay);
                        prop_assert_eq!(
                            reservation.ready_at(),
                            expected.map_or(Instant::NEVER, |p| p.grant.ready_at())
                        );
                        open.push((reservation, expected));
                    }
                    6 | 7 => prop_assert_eq!(bucket.allow(n, now), ledger.take(n, now, 0).is_ok()),
                    8 | 9 if !open.is_empty() => {
                        let (reservation, expected) = open.swap_remove(n as usize % open.len());
                        reservation.cancel(now);
                        if let Some(promise) = &expected {
                            ledger.give_back(promise, now);
                        }
                    }
                    10 if may_change => {
                        let rate = RATES[n as usize % RATES.len()];
                        bucket.set_rate(rate, now).unwrap();
                        ledger.change(rate, ledger.pace.burst, now);
                    }
                    11 if may_change => {
                        bucket.set_burst(n, now);
                        ledger.change(ledger.per_second, n, now);
                    }
                    _ => {
                        let within = bucket.reserve_within(n, now, Duration::from_nanos(nanos));
                        let expected = reserve(&mut ledger, n, now, nanos).ok();
                        prop_assert_eq!(within.is_never(), expected.is_none());
                        open.push((within, expected));
                    }
                }
                if step % 3 == 0 {
                    prop_assert_eq!(bucket.tokens(now), ledger.tokens(now));
                }
            }
        }
    }

    #[test]
    fn a_bucket_goes_on_without_a_lock_until_its_pace_is_changed() {
        let bucket = TokenBucket::new(10.0, 5).unwrap();
        let open = || bucket.is_swift();
        bucket.reserve(3, Instant::ORIGIN).cancel(Instant::ORIGIN);
        assert!(bucket.reserve(0, Instant::ORIGIN).delay().is_zero());
        assert_eq!(bucket.tokens(Instant::ORIGIN), 5.0);
        assert!(open());
        bucket.set_burst(6, Instant::ORIGIN);
        assert!(!open());
    }

    #[test]
    fn tokens_are_taken_without_the_ledger() {
        let swift = Swift::new(&Ledger::new(1e9, 5)).unwrap();
        let take = |n| swift.take(n, Instant::ORIGIN, u64::MAX).map(|taken| taken.map(|grant| grant.delay));
        assert_eq!([take(5), take(1), take(6)], [Some(Ok(0)), Some(Ok(1)), Some(Err(Refusal::Never))]);
        assert_eq!(take(0), None, "what a grant of nothing was promised only the ledger knows");
    }

    #[test]
    fn the_usual_rates_fit_into_the_atomic() {
        for rate in [0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 33.3, 100.0, 1e3, 1e6, 1e9] {
            assert!(TokenBucket::new(rate, 100_000).unwrap().is_swift(), "{rate}");
        }
    }
}

/// Models: `RUSTFLAGS="--cfg requeue_loom" cargo test -p requeue --lib loom_`.
#[cfg(all(test, requeue_loom))]
mod models {
    use super::super::TokenBucket;
    use crate::Instant;
    use loom::thread;
    use std::sync::Arc;

    /// A token a nanosecond.
    fn bucket(burst: u32) -> Arc<TokenBucket> {
        Arc::new(TokenBucket::new(1e9, burst).expect("a rate"))
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn explore(f: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(4);
        builder.check(f);
    }

    #[test]
    fn loom_r_each_token_is_reserved_once() {
        explore(|| {
            let bucket = bucket(1);
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let bucket = bucket.clone();
                    thread::spawn(move || bucket.reserve(1, at(0)).delay().as_nanos())
                })
                .collect();
            let mut delays = vec![bucket.reserve(1, at(0)).delay().as_nanos()];
            delays.extend(others.into_iter().map(|other| other.join().expect("it does not panic")));
            delays.sort_unstable();
            assert_eq!(delays, [0, 1, 2]);
            assert_eq!(bucket.tokens(at(0)), -2.0);
        });
    }

    #[test]
    fn loom_r_whoever_comes_after_a_grant_counts_from_its_instant() {
        explore(|| {
            let bucket = bucket(1);
            let first = {
                let bucket = bucket.clone();
                thread::spawn(move || bucket.reserve(1, at(9)).ready_at())
            };
            // it came first and was counted at 3, or at the 9 that was on its way;
            // or it came second, and counts from 9
            let second = bucket.reserve(1, at(3)).ready_at();
            let first = first.join().expect("it does not panic");
            let outcomes = [(at(9), at(3)), (at(10), at(9)), (at(9), at(10))];
            assert!(outcomes.contains(&(first, second)), "{first:?} {second:?}");
            let third = bucket.reserve(1, at(0)).ready_at();
            assert_eq!(third, at(second.max(first).as_nanos() + 1), "counted at 9 or later");
        });
    }

    #[test]
    fn loom_r_the_latest_instant_that_was_counted_is_never_lost() {
        explore(|| {
            let bucket = bucket(3);
            let later = {
                let bucket = bucket.clone();
                thread::spawn(move || bucket.allow(1, at(9)))
            };
            assert!(bucket.allow(1, at(3)) && later.join().expect("it does not panic"));
            // counted at 9: what was taken at 3 has come back by then, or was taken at 9
            let left = bucket.tokens(at(0));
            assert!(left == 2.0 || left == 1.0, "{left}");
        });
    }

    #[test]
    fn loom_r_no_token_is_allowed_twice_when_one_is_given_back() {
        explore(|| {
            let bucket = bucket(1);
            let other = {
                let bucket = bucket.clone();
                thread::spawn(move || bucket.reserve(1, at(0)).cancel(at(0)))
            };
            let allowed = bucket.allow(1, at(0));
            other.join().expect("it does not panic");
            assert_eq!(bucket.allow(1, at(0)), !allowed);
        });
    }

    #[test]
    fn loom_r_a_change_of_burst_loses_no_reservation_and_none_is_made_at_the_old_one() {
        explore(|| {
            let bucket = bucket(2);
            let other = {
                let bucket = bucket.clone();
                thread::spawn(move || bucket.reserve(2, at(0)).is_never())
            };
            bucket.set_burst(1, at(0));
            assert!(bucket.reserve(2, at(0)).is_never());
            // it came before, and left none, or after
            let refused = other.join().expect("it does not panic");
            assert_eq!(bucket.tokens(at(0)), if refused { 1.0 } else { 0.0 });
        });
    }

    #[test]
    fn loom_r_a_look_and_a_reservation_at_once_lose_nothing() {
        explore(|| {
            let bucket = bucket(2);
            let other = {
                let bucket = bucket.clone();
                thread::spawn(move || bucket.allow(1, at(0)))
            };
            let seen = bucket.tokens(at(0));
            assert!(seen == 2.0 || seen == 1.0);
            assert!(bucket.allow(1, at(0)) && other.join().expect("it does not panic"));
            assert!(!bucket.allow(1, at(0)));
        });
    }
}
