//! A token bucket for each key.

use super::bucket::can_grant;
use super::error::LimiterError;
use super::pace::{Level, Pace};
use super::rate_limiter::RateLimiter;
use super::records::Records;
use crate::hash::RandomState;
use requeue_core::Instant;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// One token bucket per key: no key slows another. The `ItemBucketRateLimiter` of earlier releases of
/// client-go (0.37 has none).
///
/// Forgetting a key forgets its bucket, so its next one is full; `num_requeues` is 0. Both are as in
/// client-go. client-go keeps a bucket for every key ever asked for; here a bucket that is full again is
/// dropped.
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::PerKeyBucket};
/// let limiter = PerKeyBucket::new(1.0, 1)?;
/// let delay = |key| limiter.when(&key, Instant::ORIGIN).as_secs();
/// assert_eq!([delay("a"), delay("a"), delay("b")], [0, 1, 0]);
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
#[doc(alias("ItemBucketRateLimiter"))]
pub struct PerKeyBucket<K, S = RandomState> {
    rate: f64,
    burst: u32,
    /// `None`: no limit.
    pace: Option<Pace>,
    levels: Records<K, Level, S>,
}

impl<K> PerKeyBucket<K> {
    /// A bucket per key of `rate` tokens per second, holding at most `burst`; full at first. An infinite rate
    /// is no limit.
    ///
    /// # Errors
    ///
    /// [`LimiterError::NoRate`] if the rate is 0, negative or NaN, [`LimiterError::NoBurst`] if the burst is
    /// 0: no key would ever run.
    ///
    /// ```
    /// use requeue::limiter::PerKeyBucket;
    /// assert!(PerKeyBucket::<String>::new(f64::NAN, 1).is_err());
    /// ```
    pub fn new(rate: f64, burst: u32) -> Result<Self, LimiterError> {
        can_grant(rate, burst)?;
        Ok(Self { rate, burst, pace: Pace::new(rate, burst), levels: Records::new(RandomState::default()) })
    }
}

impl<K, S> PerKeyBucket<K, S> {
    /// Sets the hasher of keys. All buckets are full afterwards.
    ///
    /// ```
    /// use requeue::{Instant, RateLimiter, limiter::PerKeyBucket};
    /// let limiter = PerKeyBucket::new(1.0, 1)?.hasher(std::hash::RandomState::default());
    /// assert!(limiter.when(&"a", Instant::ORIGIN).is_zero());
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use = "this is the limiter with that hasher"]
    pub fn hasher<S2>(self, hasher: S2) -> PerKeyBucket<K, S2> {
        PerKeyBucket { rate: self.rate, burst: self.burst, pace: self.pace, levels: Records::new(hasher) }
    }
}

impl<K: Hash + Eq + Clone + Send, S: BuildHasher + Send + Sync> RateLimiter<K> for PerKeyBucket<K, S> {
    fn when(&self, key: &K, now: Instant) -> Duration {
        let Some(pace) = self.pace else { return Duration::ZERO };
        self.levels
            .update(
                key,
                || pace.full_level(),
                Some(|level: &Level| pace.is_full(level, now)),
                |level| pace.take(level, 1, now, u64::MAX),
            )
            .map_or(Duration::MAX, |grant| grant.delay())
    }
    fn forget(&self, key: &K) {
        self.levels.forget(key);
    }
    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
}

debug!([K, S] PerKeyBucket<K, S>, |bucket| {
    rate: bucket.rate,
    burst: bucket.burst,
    keys: bucket.levels.len()
});
