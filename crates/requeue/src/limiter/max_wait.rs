//! An upper bound on another limiter's delays.

use super::rate_limiter::{Keeps, RateLimiter, sealed};
use requeue_core::Instant;
use std::time::Duration;

/// A limiter whose delays are cut to at most `max`. client-go's `WithMaxWaitRateLimiter`.
///
/// Only the delay is cut: the inner limiter counts and reserves as before, so a bucket's debt may lie far
/// beyond `max`. "Never" is cut too.
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::{Bucket, WithMaxWait}};
/// use std::time::Duration;
/// let limiter = WithMaxWait::new(Bucket::new(1.0, 1)?, Duration::from_secs(2));
/// let delays: Vec<_> = (0..5).map(|key| limiter.when(&key, Instant::ORIGIN).as_secs()).collect();
/// assert_eq!(delays, [0, 1, 2, 2, 2]);
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[doc(alias("WithMaxWaitRateLimiter", "TypedWithMaxWaitRateLimiter"))]
#[doc(alias("NewWithMaxWaitRateLimiter", "NewTypedWithMaxWaitRateLimiter"))]
pub struct WithMaxWait<L> {
    limiter: L,
    max: Duration,
}

impl<L> WithMaxWait<L> {
    /// `limiter`, with no delay longer than `max`.
    ///
    /// ```
    /// use requeue::limiter::{WithMaxWait, default_controller};
    /// use std::time::Duration;
    /// let limiter = WithMaxWait::new(default_controller::<String>(), Duration::from_secs(60));
    /// ```
    #[must_use]
    pub fn new(limiter: L, max: Duration) -> Self {
        Self { limiter, max }
    }
}

impl<K: ?Sized, L: RateLimiter<K>> RateLimiter<K> for WithMaxWait<L> {
    fn when(&self, key: &K, now: Instant) -> Duration {
        self.limiter.when(key, now).min(self.max)
    }
    fn keeps(&self, token: sealed::Token) -> Keeps {
        self.limiter.keeps(token)
    }
    fn when_counted(&self, failures: u32, now: Instant, token: sealed::Token) -> Duration {
        self.limiter.when_counted(failures, now, token).min(self.max)
    }
    left_to!(self => self.limiter);
    fn longest(&self, token: sealed::Token) -> Duration {
        self.limiter.longest(token).min(self.max)
    }
}
