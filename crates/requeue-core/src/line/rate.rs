//! How many keys a second are handed out at most (rule B6): a bucket of tokens, in exact integers.
//!
//! It is charged when a key is handed out, so a trigger that coalesces costs nothing. Nothing is
//! taken that is not there: there are no debts. As in the virtual-scheduling form of the generic
//! cell rate algorithm (ITU-T I.371) what is kept is when the balance was zero.

use crate::Instant;

/// At most so many keys are handed out, as an exact fraction: a token is there for each key, of
/// which `per_nano / token` come in a nanosecond, and `burst` are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Units that pass in a nanosecond: from 1 to 2^62.
    pub per_nano: u64,
    /// Units that a token is worth: from 1 to 2^86.
    pub token: u128,
    /// How many tokens are kept: at least 1. The bucket is full at first.
    pub burst: u32,
}

/// The tokens.
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

    /// How many tokens are there.
    #[inline]
    pub(super) fn tokens(&self, now: Instant) -> usize {
        let tokens = (self.units(now) - self.zero).min(self.full) / self.token;
        usize::try_from(tokens).unwrap_or(usize::MAX)
    }

    /// Takes a token, which is there.
    #[inline]
    pub(super) fn take(&mut self, now: Instant) {
        debug_assert!(self.tokens(now) > 0);
        self.zero = self.zero.max(self.units(now) - self.full) + self.token;
    }

    /// When the bucket is full, if no more is taken.
    pub(super) fn full_at(&self) -> Instant {
        self.instant(self.zero + self.full)
    }

    /// When so many units have passed, rounded up, so that they have.
    fn instant(&self, units: i128) -> Instant {
        let nanos = (units.max(0) + self.per_nano - 1) / self.per_nano;
        u64::try_from(nanos).map_or(Instant::NEVER, Instant::from_nanos)
    }

    /// When the next token is there, if none is.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        let at = self.zero + self.token;
        (at > self.units(now)).then(|| self.instant(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
