//! Doubling delays, key by key.

use super::counts::{CountingLimiter, Curve};
use super::error::LimiterError;
use super::nanos::duration;
use super::rate_limiter::{Keeps, RateLimiter, sealed};
use crate::hash::RandomState;
use requeue_core::Instant;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// Doubles a key's delay at each failure: `base * 2^failures`, at most `max`.
/// client-go's `ItemExponentialFailureRateLimiter`.
///
/// No count overflows: if the power exceeds `max`, the delay is `max`. A base of zero stays zero. The count
/// itself stops at `u32::MAX`.
///
/// By default a key's count is kept until it is forgotten, as in client-go; see
/// [`expire_after`](Self::expire_after).
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::Exponential};
/// use std::time::Duration;
/// let limiter = Exponential::new(Duration::from_millis(1), Duration::from_secs(1000))?;
/// let delays: Vec<_> = (0..5).map(|_| limiter.when(&"a", Instant::ORIGIN).as_millis()).collect();
/// assert_eq!(delays, [1, 2, 4, 8, 16]);
/// assert_eq!(limiter.num_requeues(&"a"), 5);
/// limiter.forget(&"a");
/// assert_eq!(limiter.when(&"a", Instant::ORIGIN).as_millis(), 1);
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
#[doc(alias("ItemExponentialFailureRateLimiter", "TypedItemExponentialFailureRateLimiter"))]
#[doc(alias("NewItemExponentialFailureRateLimiter", "NewTypedItemExponentialFailureRateLimiter"))]
pub struct Exponential<K, S = RandomState>(CountingLimiter<K, Doubling, S>);

/// `base * 2^failures`, at most `max`: in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubling {
    base: u128,
    max: u128,
}

impl Doubling {
    pub(super) fn new(base: Duration, max: Duration) -> Result<Self, LimiterError> {
        if max < base {
            return Err(LimiterError::MaxBelowBase { base, max });
        }
        Ok(Self { base: base.as_nanos(), max: max.as_nanos() })
    }
}

impl Curve for Doubling {
    #[inline]
    fn delay(&self, failures: u32) -> Duration {
        // base * 2^n <= max just where base <= floor(max / 2^n), which cannot overflow.
        match self.max.checked_shr(failures) {
            Some(bound) if self.base <= bound => duration(self.base << failures),
            _ => self.longest(),
        }
    }

    fn longest(&self) -> Duration {
        if self.base == 0 { Duration::ZERO } else { duration(self.max) }
    }
}

impl<K> Exponential<K> {
    /// From `base` on, doubling, up to `max`.
    ///
    /// # Errors
    ///
    /// [`LimiterError::MaxBelowBase`] if `max` is below `base`.
    ///
    /// ```
    /// use requeue::limiter::Exponential;
    /// use std::time::Duration;
    /// let refused = Exponential::<String>::new(Duration::from_secs(2), Duration::from_secs(1));
    /// assert_eq!(
    ///     refused.unwrap_err().to_string(),
    ///     "maximum delay 1s is below the first delay 2s: make it at least as long"
    /// );
    /// ```
    pub fn new(base: Duration, max: Duration) -> Result<Self, LimiterError> {
        Doubling::new(base, max).map(CountingLimiter::new).map(Self)
    }
}

impl<K, S> Exponential<K, S> {
    /// Forgets a key once `time` has passed since the end of its last delay, so that keys that fail and never
    /// come again do not fill the memory.
    ///
    /// Reading a count does not extend its life. The limiter owns no clock, so `num_requeues` uses the latest
    /// instant that `when` was given.
    ///
    /// ```
    /// use requeue::{Instant, RateLimiter, limiter::Exponential};
    /// use std::time::Duration;
    /// let (ms, s) = (Duration::from_millis(1), Duration::from_secs(1));
    /// let limiter = Exponential::new(ms, s)?.expire_after(60 * s);
    /// let now = Instant::ORIGIN;
    /// assert_eq!(limiter.when(&"a", now), ms);
    /// assert_eq!(limiter.when(&"a", now + 60 * s), 2 * ms);
    /// assert_eq!(limiter.when(&"a", now + 120 * s + 2 * ms), ms, "a minute after the end of the delay");
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use = "this is the limiter with that setting"]
    pub fn expire_after(mut self, time: Duration) -> Self {
        self.0.expire_after = Some(time);
        self
    }

    /// Sets the hasher of keys. Existing counts are lost.
    ///
    /// ```
    /// use requeue::{Instant, RateLimiter, limiter::Exponential};
    /// use std::time::Duration;
    /// let limiter = Exponential::new(Duration::from_millis(1), Duration::from_secs(1))?
    ///     .hasher(std::hash::RandomState::default());
    /// assert_eq!(limiter.when(&"a", Instant::ORIGIN), Duration::from_millis(1));
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use = "this is the limiter with that hasher"]
    pub fn hasher<S2>(self, hasher: S2) -> Exponential<K, S2> {
        Exponential(self.0.hasher(hasher))
    }
}

impl<K: Hash + Eq + Clone + Send, S: BuildHasher + Send + Sync> RateLimiter<K> for Exponential<K, S> {
    stands_for!(self => self.0);
}

debug!([K, S] Exponential<K, S>, |exponential| {
    base: duration(exponential.0.curve.base),
    max: duration(exponential.0.curve.max),
    expire_after: exponential.0.expire_after,
    keys: exponential.0.len()
});
