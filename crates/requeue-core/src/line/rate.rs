//! The maximum rate at which keys are handed out (rule B6): a bucket of tokens, in exact integers.
//!
//! A token is taken when a key is handed out, so a trigger that coalesces costs nothing. The balance is never
//! negative. As in the virtual-scheduling form of the generic cell rate algorithm (ITU-T I.371), the bucket
//! stores the instant at which its balance is zero.

use crate::time::Instant;

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// A rate at which keys are handed out: this many a second, and at most `burst` at once. It is kept as an exact fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Units that pass in a nanosecond: from 1 to 2^62.
    per_nano: u64,
    /// Units that a token is worth: from 1 to 2^86.
    token: u128,
    /// Number of tokens that are kept: at least 1. The bucket is full at first.
    burst: u32,
}

impl Rate {
    /// The slowest rate: below it no token comes within the 584 years that an instant covers, so it counts as 0.
    /// (1e9 / 2^64 tokens per second.)
    pub const SLOWEST: f64 = 1e9 / 18_446_744_073_709_551_616.0;

    /// The fastest rate: from here on a nanosecond brings more tokens than a burst of `u32` can hold, so faster
    /// rates do not differ. (2^62 tokens per second.)
    pub const FASTEST: f64 = 4_611_686_018_427_387_904.0;

    /// The rate of `keys` a second, with this burst. `None` if no key would ever be handed out (a rate or burst of 0, a negative
    /// rate, NaN, less than one key in 580 years), or if the rate is infinite.
    #[must_use]
    pub fn per_second(keys: f64, burst: u32) -> Option<Self> {
        if !(keys >= Self::SLOWEST && keys.is_finite() && burst > 0) {
            return None;
        }
        let (tokens, seconds) = simplest_fraction(keys);
        let nanos = seconds * NANOS_PER_SEC;
        let (mut common, mut rest) = (tokens, nanos);
        while rest != 0 {
            (common, rest) = (rest, common % rest);
        }
        Some(Self { per_nano: (tokens / common) as u64, token: nanos / common, burst })
    }

    /// The time between two tokens, in nanoseconds, as a fraction: at most 2^86, and at most 2^62.
    #[must_use]
    pub fn interval(&self) -> (u128, u64) {
        (self.token, self.per_nano)
    }
}

/// The rate `per_second`, within [`Rate::SLOWEST`] and infinity, as a fraction with small terms: the first convergent of its continued
/// fraction that equals it as an `f64`. So 0.1 is one token in ten seconds and 1.0 / 3.0 one in three, not the neighbouring
/// binary fraction that is a nanosecond late.
fn simplest_fraction(per_second: f64) -> (u128, u128) {
    let x = per_second.min(Rate::FASTEST);
    let bits = x.to_bits();
    // Never subnormal: `x` is at least `Rate::SLOWEST`.
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

/// A bucket of tokens.
#[derive(Debug)]
pub(super) struct Bucket {
    per_nano: i128,
    token: i128,
    full: i128,
    /// When the balance is zero, in units since the origin.
    zero: i128,
}

impl Bucket {
    pub(super) fn new(Rate { per_nano, token, burst }: Rate) -> Self {
        // at most 2^86 * 2^32, which an i128 has room for
        let token = token.clamp(1, 1 << 86) as i128;
        let full = token * i128::from(burst.max(1));
        Self { per_nano: i128::from(per_nano.clamp(1, 1 << 62)), token, full, zero: -full }
    }

    /// Units that pass until this instant: at most 2^126.
    fn units(&self, at: Instant) -> i128 {
        i128::from(at.as_nanos()) * self.per_nano
    }

    /// Number of available tokens.
    #[inline]
    pub(super) fn tokens(&self, now: Instant) -> usize {
        let tokens = (self.units(now) - self.zero).min(self.full) / self.token;
        usize::try_from(tokens).unwrap_or(usize::MAX)
    }

    /// Takes a token. One must be available.
    #[inline]
    pub(super) fn take(&mut self, now: Instant) {
        debug_assert!(self.tokens(now) > 0);
        self.zero = self.zero.max(self.units(now) - self.full) + self.token;
    }

    /// Changes the rate. The tokens stay, up to the new burst; a part of a token is lost.
    pub(super) fn set(&mut self, rate: Rate, now: Instant) {
        let tokens = self.tokens(now);
        *self = Self::new(rate);
        let tokens = self.full.min(self.token.saturating_mul(tokens as i128));
        self.zero = self.units(now) - tokens;
    }

    /// The instant at which the bucket is full if no more tokens are taken.
    pub(super) fn full_at(&self) -> Instant {
        self.instant(self.zero + self.full)
    }

    /// The earliest instant, in whole nanoseconds, at which this many units have passed.
    fn instant(&self, units: i128) -> Instant {
        let nanos = (units.max(0) + self.per_nano - 1) / self.per_nano;
        u64::try_from(nanos).map_or(Instant::NEVER, Instant::from_nanos)
    }

    /// The instant of the next token. `None` if a token is available now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let at = self.zero + self.token;
        (at > self.units(now)).then(|| self.instant(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_the_rate_and_stays_within_its_bounds() {
        let (from, to) = (Rate::SLOWEST.to_bits(), Rate::FASTEST.to_bits());
        let mut any = 1_u64;
        for _ in 0..10_000 {
            // Knuth's MMIX generator
            any = any.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let x = f64::from_bits(from + ((u128::from(any) * u128::from(to - from)) >> 64) as u64);
            let (p, q) = simplest_fraction(x);
            assert_eq!(p as f64 / q as f64, x);
            assert!(p <= 1 << 62 && q <= 1 << 56, "{x}: {p}/{q}");
        }
    }

    #[test]
    fn a_rate_is_an_exact_fraction_and_needs_a_number_above_zero() {
        assert_eq!(Rate::per_second(33.3, 2), Some(Rate { per_nano: 333, token: 10_000_000_000, burst: 2 }));
        for (keys, burst) in [(0.0, 1), (1.0, 0), (-1.0, 1), (f64::NAN, 1), (f64::INFINITY, 1), (1e-11, 1)] {
            assert_eq!(Rate::per_second(keys, burst), None);
        }
    }

    #[test]
    fn a_change_of_rate_keeps_the_tokens_that_fit() {
        let mut bucket = rate(1, 10, 5);
        bucket.take(at(0));
        bucket.set(Rate { per_nano: 1, token: 100, burst: 2 }, at(0));
        assert_eq!((bucket.tokens(at(0)), bucket.full_at()), (2, at(0)));
        bucket.take(at(0));
        bucket.take(at(0));
        assert_eq!(bucket.next(at(0)), Some(at(100)));
        bucket.set(Rate { per_nano: 1, token: 10, burst: 5 }, at(50));
        assert_eq!((bucket.tokens(at(50)), bucket.next(at(50))), (0, Some(at(60))));
    }

    fn rate(per_nano: u64, token: u128, burst: u32) -> Bucket {
        Bucket::new(Rate { per_nano, token, burst })
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_bucket_is_full_at_first_and_holds_no_more() {
        let mut bucket = rate(1, 10, 3);
        for now in [0, 1_000] {
            for left in (0..3).rev() {
                bucket.take(at(now));
                assert_eq!(bucket.tokens(at(now)), left);
            }
            assert_eq!(bucket.next(at(now)), Some(at(now + 10)));
        }
        assert_eq!((bucket.tokens(at(1_009)), bucket.tokens(at(1_010))), (0, 1));
        assert_eq!(bucket.next(at(1_010)), None);
    }

    #[test]
    fn the_thousandth_token_is_as_exact_as_the_first() {
        // 7 tokens in 30 nanoseconds; one more than is taken at a time, so that what a rounded
        // instant is too late by has room
        let mut bucket = rate(7, 30, 2);
        bucket.take(at(0));
        bucket.take(at(0));
        let mut now = at(0);
        for taken in 1..=1_000_u64 {
            now = bucket.next(now).expect("one at a time");
            assert_eq!(now.as_nanos(), (taken * 30).div_ceil(7));
            assert_eq!(bucket.tokens(now), 1);
            bucket.take(now);
        }
    }

    #[test]
    fn the_ends_of_what_is_allowed_overflow_nothing() {
        let last = at(u64::MAX - 1);
        let mut slow = rate(1, 1 << 86, u32::MAX);
        slow.take(last);
        assert_eq!(slow.next(last), None);
        let mut slowest = rate(0, u128::MAX, 0);
        slowest.take(last);
        assert_eq!((slowest.tokens(last), slowest.next(last)), (0, Some(Instant::NEVER)));
        let mut fast = rate(u64::MAX, 0, u32::MAX);
        fast.take(at(0));
        assert_eq!(fast.tokens(last), u32::MAX as usize);
    }
}
