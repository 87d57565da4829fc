//! Delays spread at random, so that keys that failed together do not come back
//! together.

use super::nanos::duration;
use super::{Keeps, LimiterError, RateLimiter, sealed};
use crate::Instant;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Another limiter, whose delays are lengthened at random: `d * (1 + fraction * u)`
/// with `0 <= u < 1`, rounded up to a nanosecond, as `wait.Jitter` of Kubernetes'
/// apimachinery does.
///
/// Never shorter; a delay of zero stays zero, and one of [`Duration::MAX`]
/// (never) stays that. The maximum of the limiter within still caps: that of an
/// [`Exponential`](super::Exponential), a [`FastSlow`](super::FastSlow) or a
/// [`WithMaxWait`](super::WithMaxWait), and of several the largest. A bucket, a
/// window and a limiter of your own have none; wrap them into a `WithMaxWait`,
/// inside or outside. So keys whose delay has reached the maximum are no longer
/// spread.
///
/// `u` depends on the seed and on the number of the call alone, so a test that
/// fixes the seed sees the same delays each time. It is the SplitMix64 sequence
/// (Steele, Lea, Flood, 2014).
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::{Exponential, Jitter}};
/// use std::time::Duration;
/// let ms = Duration::from_millis(1);
/// let limiter = Jitter::new(Exponential::new(100 * ms, 200 * ms)?, 0.5, 7)?;
/// let first = limiter.when(&"a", Instant::ORIGIN);
/// assert!(100 * ms <= first && first <= 150 * ms);
/// assert_eq!(limiter.when(&"a", Instant::ORIGIN), 200 * ms, "the maximum");
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
pub struct Jitter<L> {
    limiter: L,
    fraction: f64,
    seed: u64,
    /// How many calls there were.
    calls: AtomicU64,
}

impl<L> Jitter<L> {
    /// `limiter`, with each delay `d` lengthened by less than `fraction * d`; a
    /// fraction above 1 is fine.
    ///
    /// # Errors
    ///
    /// [`LimiterError::NotAFraction`] where the fraction is negative, infinite or
    /// not a number.
    ///
    /// ```
    /// use requeue::limiter::{Jitter, default_per_item};
    /// assert!(Jitter::new(default_per_item::<u64>(), 0.1, 42).is_ok());
    /// assert!(Jitter::new(default_per_item::<u64>(), -0.1, 42).is_err());
    /// ```
    pub fn new(limiter: L, fraction: f64, seed: u64) -> Result<Self, LimiterError> {
        if !fraction.is_finite() || fraction < 0.0 {
            return Err(LimiterError::NotAFraction { fraction });
        }
        Ok(Self { limiter, fraction, seed, calls: AtomicU64::new(0) })
    }

    fn lengthen(&self, delay: Duration, longest: Duration) -> Duration {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let nanos = delay.as_nanos();
        // The cast saturates, also from infinity. Nothing stays nothing, and never stays never.
        let more = (nanos as f64 * (self.fraction * unit(self.seed, call))).ceil() as u128;
        // A limiter may exceed what it said was its longest: never shorter.
        duration(nanos.saturating_add(more)).min(longest).max(delay)
    }
}

/// The `call`th number of SplitMix64 from `seed`, as a fraction of one.
fn unit(seed: u64, call: u64) -> f64 {
    let mut x = seed.wrapping_add(call.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    (x >> 11) as f64 / (1u64 << 53) as f64
}

impl<K: ?Sized, L: RateLimiter<K>> RateLimiter<K> for Jitter<L> {
    fn when(&self, key: &K, now: Instant) -> Duration {
        self.lengthen(self.limiter.when(key, now), self.limiter.longest(sealed::Token(())))
    }
    fn keeps(&self, token: sealed::Token) -> Keeps {
        self.limiter.keeps(token)
    }
    fn when_counted(&self, failures: u32, now: Instant, token: sealed::Token) -> Duration {
        self.lengthen(self.limiter.when_counted(failures, now, token), self.limiter.longest(token))
    }
    left_to!(self => self.limiter);
    fn longest(&self, token: sealed::Token) -> Duration {
        self.limiter.longest(token)
    }
}

debug!([L: std::fmt::Debug] Jitter<L>, |jitter| {
    limiter: jitter.limiter,
    fraction: jitter.fraction,
    seed: jitter.seed,
    ..
});

#[cfg(test)]
mod tests {
    use super::unit;

    #[test]
    fn units_are_splitmix64s() {
        // The reference sequence for the seed 1234567.
        let reference = [6_457_827_717_110_365_317u64, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        for (call, x) in (0..).zip(reference) {
            assert_eq!(unit(1_234_567, call), (x >> 11) as f64 / (1u64 << 53) as f64);
        }
    }
}
