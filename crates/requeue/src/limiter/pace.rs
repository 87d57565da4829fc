//! The exact integer arithmetic of a token bucket, without its storage.
//!
//! A bucket is stored in the virtual-scheduling form of the generic cell rate algorithm (GCRA, ITU-T I.371):
//! not the number of tokens, but the instant when the balance is zero. The unit is chosen so that nothing is
//! rounded: a rate is a fraction `per_nano / token`, a nanosecond is `per_nano` units long and a token is
//! worth `token` units. The balance at an instant `t` is `(t * per_nano - zero) / token` tokens; taking one
//! adds `token` to `zero`. Only a returned instant is rounded, up to a whole nanosecond, and the rounding is
//! not fed back: the thousandth token is as exact as the first.
//!
//! Bounds, which keep every sum within an `i128`: `per_nano <= 2^62`, `token <=
//! 2^86` for every rate above [`SLOWEST`], `zero <= 2^126` (nothing is granted
//! past [`Instant::NEVER`]), `burst * token <= 2^118`.

use crate::Instant;
use std::time::Duration;

/// The slowest rate: below it no token comes within the 584 years that an instant covers, so it counts as 0.
/// (1e9 / 2^64 tokens per second.)
const SLOWEST: f64 = 1e9 / 18_446_744_073_709_551_616.0;

/// The fastest rate: from here on a nanosecond brings more tokens than a burst of `u32` can hold, so faster
/// rates do not differ. (2^62 tokens per second.)
const FASTEST: f64 = 4_611_686_018_427_387_904.0;

/// A debt that is never paid: past every `zero` that a grant can leave.
const UNPAYABLE: i128 = 1 << 126;

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// A rate as an exact fraction: `per_nano / token` tokens per nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// Units per nanosecond; 0 if no token ever comes.
    pub(super) per_nano: u64,
    /// Units per token.
    pub(super) token: i128,
}

impl Rate {
    /// The rate 0. The worth of a token preserves fractions of one when a bucket is stopped and started
    /// again.
    pub(super) const ZERO: Self = Self { per_nano: 0, token: 1 << 64 };

    /// Converts `per_second`, finite and not negative, to the fraction with the smallest terms among those
    /// that round to this `f64`. So 0.1 is one token in ten seconds and 1.0 / 3.0 one in three, not the
    /// neighbouring binary fraction that is a nanosecond late.
    pub(super) fn per_second(per_second: f64) -> Self {
        if per_second < SLOWEST {
            return Self::ZERO;
        }
        let (tokens, seconds) =
            if per_second >= FASTEST { (FASTEST as u128, 1) } else { simplest_fraction(per_second) };
        let nanos = seconds * NANOS_PER_SEC;
        let common = gcd(tokens, nanos);
        Self { per_nano: (tokens / common) as u64, token: (nanos / common) as i128 }
    }

    /// `at` in units of this rate.
    pub(super) fn units(self, at: Instant) -> i128 {
        // At most 2^62 * 2^64.
        (u128::from(at.as_nanos()) * u128::from(self.per_nano)) as i128
    }
}

/// The first convergent of the continued fraction of `x` that equals `x` as an `f64`; `x` is within
/// `SLOWEST..FASTEST`.
fn simplest_fraction(x: f64) -> (u128, u128) {
    let bits = x.to_bits();
    // Never subnormal: `x` is at least `SLOWEST`.
    let mantissa = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1075;
    let (mut num, mut den) =
        if exponent >= 0 { (mantissa << exponent, 1) } else { (mantissa, 1u128 << -exponent) };
    let (mut p, mut q) = ((1u128, 0u128), (0u128, 1u128));
    loop {
        let whole = num / den;
        p = (whole * p.0 + p.1, p.0);
        q = (whole * q.0 + q.1, q.0);
        (num, den) = (den, num % den);
        if den == 0 || p.0 as f64 / q.0 as f64 == x {
            return (p.0, q.0);
        }
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
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

/// Converts `units` worth of tokens from the rate `from` to the rate `to`, rounded down (so a debt grows).
pub(super) fn convert(units: i128, from: Rate, to: Rate) -> i128 {
    if from.token == to.token {
        return units;
    }
    let whole = units.div_euclid(from.token);
    let part = units.rem_euclid(from.token) as u128;
    let part = mul_div(part, to.token as u128, from.token as u128) as i128;
    whole.saturating_mul(to.token).saturating_add(part).clamp(-UNPAYABLE, UNPAYABLE)
}

/// An unrounded instant: `units / per_nano` nanoseconds after the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exact {
    pub(super) units: i128,
    /// Never 0.
    pub(super) per_nano: u64,
}

impl Exact {
    pub(super) const ORIGIN: Self = Self { units: 0, per_nano: 1 };

    pub(super) fn at(at: Instant, rate: Rate) -> Self {
        if rate.per_nano == 0 {
            return Self { units: i128::from(at.as_nanos()), per_nano: 1 };
        }
        Self { units: rate.units(at), per_nano: rate.per_nano }
    }

    /// This instant in units of `rate`, rounded down.
    pub(super) fn units_of(self, rate: Rate) -> i128 {
        if self.per_nano == rate.per_nano {
            return self.units;
        }
        // Granted instants are never before the origin.
        let (units, own, other) = (self.units as u128, u128::from(self.per_nano), u128::from(rate.per_nano));
        ((units / own) * other + mul_div(units % own, other, own)) as i128
    }
}

/// The fill rate and capacity of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// `None`: no limit.
    pub(super) rate: Option<Rate>,
    pub(super) burst: u32,
    /// Units in a full bucket.
    pub(super) full: i128,
}

impl Pace {
    /// `per_second` must not be negative or NaN.
    pub(super) fn new(per_second: f64, burst: u32) -> Self {
        let rate = (per_second != f64::INFINITY).then(|| Rate::per_second(per_second));
        Self { rate, burst, full: rate.map_or(0, |rate| rate.token * i128::from(burst)) }
    }

    /// A full bucket.
    pub(super) fn full(&self) -> Level {
        Level { zero: -self.full, last: Instant::ORIGIN }
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
        let Some(rate) = self.rate else {
            level.last = now;
            return Ok(Grant { now, delay: 0, exact: Exact::at(now, Rate::ZERO) });
        };
        if n > self.burst || now.is_never() {
            return Err(Refusal::Never);
        }
        let t = rate.units(now);
        let zero = level.zero.max(t - self.full) + rate.token * i128::from(n);
        let mut grant = Grant { now, delay: 0, exact: Exact { units: zero, per_nano: rate.per_nano } };
        if zero <= t {
            grant.exact = Exact::at(now, rate);
        } else {
            grant.delay = rate.nanos_of((zero - t) as u128).ok_or(Refusal::Never)?;
            if grant.delay >= u64::MAX - now.as_nanos() {
                return Err(Refusal::Never);
            }
            if grant.delay > at_most {
                return Err(Refusal::Later);
            }
        }
        *level = Level { zero, last: now };
        Ok(grant)
    }

    /// The balance at `now`, in units of `rate`; negative if it is a debt.
    pub(super) fn balance(&self, rate: Rate, level: Level, now: Instant) -> i128 {
        (rate.units(now.max(level.last)) - level.zero).min(self.full)
    }

    /// The level that has `balance` at `now`, capped at the bucket's capacity.
    pub(super) fn with_balance(&self, rate: Rate, balance: i128, now: Instant) -> Level {
        Level { zero: (rate.units(now) - balance.min(self.full)).min(UNPAYABLE), last: now }
    }

    /// Whether the level can be forgotten at `now` without loss.
    pub(super) fn is_full(&self, level: &Level, now: Instant) -> bool {
        self.rate.is_none_or(|rate| rate.units(now) - level.zero >= self.full)
    }
}

/// The dispatch rate of a queue; `None` if no key would ever be handed out, or if there is no limit.
pub(crate) fn dispatch(per_second: f64, burst: u32) -> Option<requeue_core::Rate> {
    if !(per_second >= SLOWEST && per_second.is_finite() && burst > 0) {
        return None;
    }
    let Rate { per_nano, token } = Rate::per_second(per_second);
    Some(requeue_core::Rate { per_nano, token: token.unsigned_abs(), burst })
}

impl Rate {
    /// Nanoseconds until `debt` units have come, rounded up; `None` if that overflows.
    #[inline]
    fn nanos_of(self, debt: u128) -> Option<u64> {
        let per_nano = self.per_nano;
        if let Ok(debt) = u64::try_from(debt) {
            // A token that takes a whole number of nanoseconds, as most rates
            // that people write have it, needs no division.
            return if per_nano == 1 { Some(debt) } else { (per_nano != 0).then(|| debt.div_ceil(per_nano)) };
        }
        if per_nano == 0 {
            return None;
        }
        u64::try_from(debt.div_ceil(u128::from(per_nano))).ok()
    }
}

/// How full a bucket is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// The instant when the balance is zero, in units since the origin.
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
    pub(super) now: Instant,
    /// Nanoseconds from `now` until the tokens are there.
    pub(super) delay: u64,
    /// The unrounded instant when they are there.
    pub(super) exact: Exact,
}

impl Grant {
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

    fn rate(per_second: f64) -> (u64, i128) {
        let rate = Rate::per_second(per_second);
        (rate.per_nano, rate.token)
    }

    #[test]
    fn a_rate_is_the_simplest_fraction_that_it_can_mean() {
        assert_eq!(rate(10.0), (1, 100_000_000));
        assert_eq!(rate(0.1), (1, 10_000_000_000));
        assert_eq!(rate(1.0 / 3.0), (1, 3_000_000_000));
        assert_eq!(rate(3.0), (3, 1_000_000_000));
        assert_eq!(rate(0.6), (3, 5_000_000_000));
        assert_eq!(rate(33.3), (333, 10_000_000_000));
        assert_eq!(rate(1e9), (1, 1));
        assert_eq!(rate(2.5e9), (5, 2));
    }

    #[test]
    fn rates_at_the_ends_stay_within_their_bounds() {
        for x in [
            SLOWEST,
            SLOWEST * (1.0 + f64::EPSILON),
            2f64.powi(-30) * (1.0 + f64::EPSILON),
            1e-3,
            1e18,
            FASTEST,
        ] {
            let rate = Rate::per_second(x);
            assert!(rate.per_nano > 0 && rate.per_nano <= 1 << 62, "{x}: {rate:?}");
            assert!(rate.token > 0 && rate.token <= 1 << 86, "{x}: {rate:?}");
        }
        for x in [f64::MAX, 1e30] {
            assert_eq!(Rate::per_second(x), Rate::per_second(FASTEST));
        }
        for x in [0.0, -0.0, f64::MIN_POSITIVE, 5e-324, 1e-11] {
            assert_eq!(Rate::per_second(x), Rate::ZERO);
        }
    }

    #[test]
    fn what_a_change_of_rate_makes_larger_than_any_bound_ends_at_the_bound() {
        let (fine, coarse) = (Rate { per_nano: 1, token: 1 }, Rate::ZERO);
        assert_eq!(convert(1 << 100, fine, coarse), UNPAYABLE);
        assert_eq!(convert(-(1 << 100), fine, coarse), -UNPAYABLE);
        assert_eq!(convert(1 << 61, fine, coarse), 1 << 125, "and no sooner");
        assert_eq!(convert(1 << 63, fine, coarse), UNPAYABLE);
    }

    proptest! {
        #[test]
        fn a_fraction_is_the_rate_and_stays_within_its_bounds(bits in SLOWEST.to_bits()..FASTEST.to_bits()) {
            let x = f64::from_bits(bits);
            let (p, q) = simplest_fraction(x);
            prop_assert_eq!(p as f64 / q as f64, x);
            prop_assert!(p <= 1 << 62 && q <= 1 << 56, "{}: {}/{}", x, p, q);
        }

        #[test]
        fn mul_div_is_the_product_divided(a: u64, b: u64, c in 1u64..) {
            let a = u128::from(a % c);
            prop_assert_eq!(mul_div(a, b.into(), c.into()), a * u128::from(b) / u128::from(c));
        }

        #[test]
        fn tokens_survive_a_change_of_rate_to_within_one_unit(tokens in -1_000_000i64..1_000_000, a in 1u32..100_000, b in 1u32..100_000) {
            let (from, to) = (Rate::per_second(f64::from(a) / 8.0), Rate::per_second(f64::from(b) / 8.0));
            let units = i128::from(tokens) * from.token / 7;
            let there = convert(units, from, to);
            // there/to.token <= units/from.token < (there+1)/to.token
            prop_assert!(there * from.token <= units * to.token);
            prop_assert!((there + 1) * from.token > units * to.token);
        }

        #[test]
        fn an_instant_is_the_same_in_the_units_of_any_rate(nanos: u64, a in 0u32..100_000, b in 0u32..100_000) {
            let (from, to) = (Rate::per_second(f64::from(a) / 7.0), Rate::per_second(f64::from(b) / 7.0));
            let at = Instant::from_nanos(nanos);
            prop_assert_eq!(Exact::at(at, from).units_of(to), to.units(at));
        }

        #[test]
        fn an_instant_between_two_units_is_rounded_down(units in 0i128..1 << 60, own in 1u64..1 << 30, other in 0u64..1 << 30) {
            let rate = Rate { per_nano: other, token: 1 };
            let expected = units * i128::from(other) / i128::from(own);
            prop_assert_eq!(Exact { units, per_nano: own }.units_of(rate), expected);
        }
    }
}
