//! The arithmetic of a token bucket, in fixed point, without its storage.
//!
//! A bucket is stored in the virtual-scheduling form of the generic cell rate algorithm (GCRA, ITU-T I.371): not the number of
//! tokens, but the instant when the balance is zero. Instants, and the time that a token takes to come, are whole numbers of
//! 2^-30 nanoseconds. Taking a token adds its time to that instant. The time of a token is rounded down and a returned instant
//! up to a whole nanosecond, so that the thousandth token comes as exactly as the first: the time of a token that is a whole
//! number of nanoseconds is exact, and the others are off by a nanosecond after 2^30 tokens.
//!
//! Bounds, which keep every sum within an `i128`: a token takes at most 2^94 (at [`Rate::SLOWEST`]), a full bucket 2^126.

use requeue_core::{Instant, Rate};
use std::time::Duration;

/// Bits of a nanosecond's fraction.
const FRACTION: u32 = 30;

/// A debt that is never paid: past every instant that a grant can leave.
const UNPAYABLE: i128 = 1 << 126;

/// `at`, in fixed point.
pub(super) fn fixed(at: Instant) -> i128 {
    i128::from(at.as_nanos()) << FRACTION
}

/// `a * b / c`, rounded down, where `a < c <= 2^100`. The product may exceed 128 bits, so it is built bit by
/// bit and divided as it grows.
fn mul_div(a: u128, b: u128, c: u128) -> u128 {
    debug_assert!(a < c && c <= 1 << 100);
    let (mut quotient, mut rest) = (0u128, 0u128);
    for bit in (0..128 - b.leading_zeros()).rev() {
        quotient <<= 1;
        rest <<= 1;
        if b >> bit & 1 == 1 {
            rest += a;
        }
        // The rest was below c: twice that and a is below 3c.
        while rest >= c {
            rest -= c;
            quotient += 1;
        }
    }
    quotient
}

/// The fill rate and capacity of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The time that a token takes, in fixed point. At rate 0 any: none comes.
    pub(super) token: i128,
    /// Whether tokens come at all.
    comes: bool,
    pub(super) burst: u32,
}

impl Pace {
    /// The pace at which no token comes.
    pub(super) const NONE: Self = Self { token: 1 << (64 + FRACTION), comes: false, burst: 0 };

    /// `per_second` must not be negative or NaN. `None` if it is infinite: there is no limit.
    pub(super) fn new(per_second: f64, burst: u32) -> Option<Self> {
        if per_second == f64::INFINITY {
            return None;
        }
        let Some((nanos, tokens)) = Rate::per_second(per_second, 1).map(|rate| rate.interval()) else {
            return Some(Self::NONE.with_burst(burst));
        };
        let token = ((nanos << FRACTION) / u128::from(tokens)) as i128;
        Some(Self { token: token.clamp(1, Self::NONE.token), comes: true, burst })
    }

    /// This rate with another burst.
    pub(super) fn with_burst(self, burst: u32) -> Self {
        Self { burst, ..self }
    }

    /// The time that `tokens` take.
    fn of(&self, tokens: u32) -> i128 {
        self.token * i128::from(tokens)
    }

    /// The time of a full bucket.
    pub(super) fn full(&self) -> i128 {
        self.of(self.burst)
    }

    /// A full bucket.
    pub(super) fn full_level(&self) -> Level {
        Level { zero: -self.full(), last: Instant::ORIGIN }
    }

    /// `now`, as far as tokens come.
    fn time(&self, now: Instant) -> i128 {
        if self.comes { fixed(now) } else { 0 }
    }

    /// Takes `n` tokens. If they could never be had, or only after more than `at_most` nanoseconds, nothing
    /// changes.
    #[inline]
    pub(super) fn take(
        &self,
        level: &mut Level,
        n: u32,
        now: Instant,
        at_most: u64,
    ) -> Result<Grant, Refusal> {
        let now = now.max(level.last);
        if n > self.burst || now.is_never() {
            return Err(Refusal::Never);
        }
        let time = self.time(now);
        let zero = level.zero.max(time - self.full()) + self.of(n);
        let mut grant = Grant::at(now);
        if zero > time {
            // at rate 0 no debt is ever paid
            let nanos = (zero - time + (1 << FRACTION) - 1) >> FRACTION;
            grant.delay = u64::try_from(nanos).ok().filter(|_| self.comes).ok_or(Refusal::Never)?;
            if grant.delay >= u64::MAX - now.as_nanos() {
                return Err(Refusal::Never);
            }
            if grant.delay > at_most {
                return Err(Refusal::Later);
            }
            grant.exact = zero;
        }
        *level = Level { zero, last: now };
        Ok(grant)
    }

    /// The balance at `now`, as the time of its tokens; negative if it is a debt.
    pub(super) fn balance(&self, level: Level, now: Instant) -> i128 {
        (self.time(now.max(level.last)) - level.zero).min(self.full())
    }

    /// The level that has `balance` at `now`, capped at the bucket's capacity.
    pub(super) fn with_balance(&self, balance: i128, now: Instant) -> Level {
        Level { zero: (self.time(now) - balance.min(self.full())).min(UNPAYABLE), last: now }
    }

    /// Whether the level can be forgotten at `now` without loss.
    pub(super) fn is_full(&self, level: &Level, now: Instant) -> bool {
        self.time(now) - level.zero >= self.full()
    }

    /// Converts the time of tokens at this pace to that at another, rounded down (so a debt grows).
    pub(super) fn convert(&self, time: i128, to: &Self) -> i128 {
        if self.token == to.token {
            return time;
        }
        let tokens = time.div_euclid(self.token);
        let part = mul_div(time.rem_euclid(self.token) as u128, to.token as u128, self.token as u128) as i128;
        tokens.saturating_mul(to.token).saturating_add(part).clamp(-UNPAYABLE, UNPAYABLE)
    }

    /// The part of `n` tokens on which no reservation relies whose tokens come `later` than these.
    pub(super) fn unused(&self, n: u32, later: i128) -> i128 {
        let all = self.of(n);
        if self.comes { (all - later).clamp(0, all) } else { all }
    }
}

/// How full a bucket is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// The instant when the balance is zero, in fixed point.
    pub(super) zero: i128,
    /// The latest instant used: an earlier one counts as this.
    pub(super) last: Instant,
}

/// The reason why no tokens were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Never,
    /// Not within the time asked for.
    Later,
}

/// Tokens that were taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    /// The instant used.
    now: Instant,
    /// Nanoseconds from `now` until the tokens are available.
    delay: u64,
    /// The unrounded instant when they are available, in fixed point.
    pub(super) exact: i128,
}

impl Grant {
    /// Number of available tokens.
    pub(super) fn at(now: Instant) -> Self {
        Self { now, delay: 0, exact: fixed(now) }
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay)
    }

    pub(super) fn ready_at(&self) -> Instant {
        self.now + self.delay()
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pace(per_second: f64) -> Pace {
        Pace::new(per_second, 1).expect("a limit")
    }

    /// The time of a token in nanoseconds, if it is a whole number of them.
    fn nanos(per_second: f64) -> Option<i128> {
        let token = pace(per_second).token;
        (token % (1 << FRACTION) == 0).then_some(token >> FRACTION)
    }

    #[test]
    fn a_rate_is_the_simplest_fraction_that_it_can_mean() {
        assert_eq!(nanos(10.0), Some(100_000_000));
        assert_eq!(nanos(0.1), Some(10_000_000_000));
        assert_eq!(nanos(1.0 / 3.0), Some(3_000_000_000));
        assert_eq!(nanos(1e9), Some(1));
        for (rate, tokens, nanos) in
            [(3.0, 3, 1_000_000_000), (0.6, 3, 5_000_000_000), (33.3, 333, 10_000_000_000), (2.5e9, 5, 2)]
        {
            assert_eq!(pace(rate).token, (nanos << FRACTION) / tokens, "{rate}");
        }
    }

    #[test]
    fn rates_at_the_ends_stay_within_their_bounds() {
        for x in [
            Rate::SLOWEST,
            Rate::SLOWEST * (1.0 + f64::EPSILON),
            2f64.powi(-30) * (1.0 + f64::EPSILON),
            1e-3,
            1e18,
            Rate::FASTEST,
            1e30,
            f64::MAX,
        ] {
            let pace = pace(x);
            assert!(pace.comes && (1..=1 << 94).contains(&pace.token), "{x}: {pace:?}");
        }
        for x in [0.0, -0.0, f64::MIN_POSITIVE, 5e-324, 1e-11] {
            assert!(!pace(x).comes, "{x}");
        }
    }

    #[test]
    fn what_a_change_of_rate_makes_larger_than_any_bound_ends_at_the_bound() {
        let (fine, coarse) = (pace(Rate::FASTEST), pace(Rate::SLOWEST));
        assert_eq!((fine.token, coarse.token), (1, 1 << 94));
        assert_eq!(fine.convert(1 << 100, &coarse), UNPAYABLE);
        assert_eq!(fine.convert(-(1 << 100), &coarse), -UNPAYABLE);
        assert_eq!(fine.convert(1 << 31, &coarse), 1 << 125, "and no sooner");
        assert_eq!(fine.convert(1 << 33, &coarse), UNPAYABLE);
    }

    proptest! {
        #[test]
        fn mul_div_is_the_product_divided(a: u64, b: u64, c in 1u64..) {
            let a = u128::from(a % c);
            prop_assert_eq!(mul_div(a, b.into(), c.into()), a * u128::from(b) / u128::from(c));
        }

        #[test]
        fn tokens_survive_a_change_of_rate_to_within_one_unit(tokens in -1_000_000i64..1_000_000, a in 1u32..100_000, b in 1u32..100_000) {
            let (from, to) = (pace(f64::from(a) / 8.0), pace(f64::from(b) / 8.0));
            let time = i128::from(tokens) * from.token / 7;
            let there = from.convert(time, &to);
            // there/to.token <= time/from.token < (there+1)/to.token
            prop_assert!(there * from.token <= time * to.token);
            prop_assert!((there + 1) * from.token > time * to.token);
        }
    }
}
