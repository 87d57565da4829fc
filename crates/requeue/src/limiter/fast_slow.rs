//! [`FastSlow`]: a few quick tries, then slow ones.

use super::counts::{CountingLimiter, Curve};
use super::rate_limiter::{Keeps, RateLimiter, sealed};
use crate::hash::RandomState;
use requeue_core::Instant;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// The delay `fast` for a key's first `n` failures, then `slow`. client-go's
/// `ItemFastSlowRateLimiter`.
///
/// By default a key's count is kept until it is forgotten, as in client-go; see
/// [`expire_after`](Self::expire_after).
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::FastSlow};
/// use std::time::Duration;
/// let limiter = FastSlow::new(Duration::from_millis(5), Duration::from_secs(10), 3);
/// let delays: Vec<_> = (0..5).map(|_| limiter.when(&"a", Instant::ORIGIN).as_millis()).collect();
/// assert_eq!(delays, [5, 5, 5, 10_000, 10_000]);
/// ```
#[doc(alias("ItemFastSlowRateLimiter", "TypedItemFastSlowRateLimiter"))]
#[doc(alias("NewItemFastSlowRateLimiter", "NewTypedItemFastSlowRateLimiter"))]
pub struct FastSlow<K, S = RandomState>(CountingLimiter<K, Step, S>);

/// `fast` for the first `n` failures, then `slow`.
struct Step {
    fast: Duration,
    slow: Duration,
    n: u32,
}

impl Curve for Step {
    fn delay(&self, failures: u32) -> Duration {
        if failures < self.n { self.fast } else { self.slow }
    }

    fn longest(&self) -> Duration {
        if self.n == 0 { self.slow } else { self.fast.max(self.slow) }
    }
}

impl<K> FastSlow<K> {
    /// `fast` for the first `n` failures, then `slow`. Any two delays are allowed, even if the fast one is
    /// longer.
    ///
    /// ```
    /// use requeue::{Instant, RateLimiter, limiter::FastSlow};
    /// use std::time::Duration;
    /// let limiter = FastSlow::new(Duration::ZERO, Duration::from_secs(1), 0);
    /// assert_eq!(limiter.when(&"a", Instant::ORIGIN), Duration::from_secs(1));
    /// ```
    #[must_use]
    pub fn new(fast: Duration, slow: Duration, n: u32) -> Self {
        Self(CountingLimiter::new(Step { fast, slow, n }))
    }
}

impl<K, S> FastSlow<K, S> {
    /// Forgets a key once `time` has passed since the end of its last delay, like
    /// [`Exponential::expire_after`].
    ///
    /// ```
    /// use requeue::{Instant, RateLimiter, limiter::FastSlow};
    /// use std::time::Duration;
    /// let (ms, s) = (Duration::from_millis(1), Duration::from_secs(1));
    /// let limiter = FastSlow::new(ms, s, 1).expire_after(60 * s);
    /// assert_eq!(limiter.when(&"a", Instant::ORIGIN), ms);
    /// assert_eq!(limiter.when(&"a", Instant::ORIGIN + 2 * s), s);
    /// assert_eq!(limiter.when(&"a", Instant::ORIGIN + 63 * s), ms, "a minute after the end of the delay");
    /// ```
    ///
    /// [`Exponential::expire_after`]: super::Exponential::expire_after
    #[must_use = "this is the limiter with that setting"]
    pub fn expire_after(mut self, time: Duration) -> Self {
        self.0.expire_after = Some(time);
        self
    }

    /// Sets the hasher of keys. Existing counts are lost.
    ///
    /// ```
    /// use requeue::{Instant, RateLimiter, limiter::FastSlow};
    /// use std::time::Duration;
    /// let limiter = FastSlow::new(Duration::ZERO, Duration::from_secs(1), 3)
    ///     .hasher(std::hash::RandomState::default());
    /// assert_eq!(limiter.when(&"a", Instant::ORIGIN), Duration::ZERO);
    /// ```
    #[must_use = "this is the limiter with that hasher"]
    pub fn hasher<S2>(self, hasher: S2) -> FastSlow<K, S2> {
        FastSlow(self.0.hasher(hasher))
    }
}

impl<K: Hash + Eq + Clone + Send, S: BuildHasher + Send + Sync> RateLimiter<K> for FastSlow<K, S> {
    stands_for!(self => self.0);
}

debug!([K, S] FastSlow<K, S>, |slow| {
    fast: slow.0.curve.fast,
    slow: slow.0.curve.slow,
    n: slow.0.curve.n,
    expire_after: slow.0.expire_after,
    keys: slow.0.len()
});
