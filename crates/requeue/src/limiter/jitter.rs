//! [`Jitter`]: random delays, so that keys that failed together do not come back together.

use super::error::LimiterError;
use super::nanos::duration;
use super::rate_limiter::{Keeps, RateLimiter, sealed};
use crate::sync::atomic::{AtomicU64, Ordering};
use requeue_core::Instant;
use std::time::Duration;

/// A limiter whose delays are lengthened at random: `d * (1 + fraction * u)` with `0 <= u < 1`, rounded up to
/// a nanosecond, like `wait.Jitter` of Kubernetes' apimachinery.
///
/// A delay is never shortened; zero stays zero, and [`Duration::MAX`] (never) stays that. The inner limiter's
/// maximum still applies: that of an [`Exponential`](super::Exponential), a [`FastSlow`](super::FastSlow) or
/// a [`WithMaxWait`](super::WithMaxWait), and of several the largest. So keys whose delay has reached the
/// maximum are no longer spread. A bucket, a window and a user's limiter have no maximum; wrap them in a
/// `WithMaxWait`, inside or outside.
///
/// `u` depends only on the seed and the number of the call, so a test with a fixed seed always sees the same
/// delays. It is the SplitMix64 sequence (Steele, Lea, Flood, 2014).
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
    /// Number of calls.
    calls: AtomicU64,
}

impl<L> Jitter<L> {
    /// Lengthens each delay `d` of `limiter` by less than `fraction * d`. The fraction may exceed 1.
    ///
    /// # Errors
    ///
    /// [`LimiterError::NotAFraction`] if the fraction is negative, infinite or NaN.
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
        // A limiter may exceed its stated maximum. Then its delay is not shortened.
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
