//! A few quick tries, then slow ones.

use super::counts::Counts;
use super::{Keeps, RateLimiter, sealed};
use crate::{Instant, RandomState};
use std::fmt;
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
#[doc(alias(
    "ItemFastSlowRateLimiter",
    "TypedItemFastSlowRateLimiter",
    "NewItemFastSlowRateLimiter",
    "NewTypedItemFastSlowRateLimiter"
))]
pub struct FastSlow<K, S = RandomState> {
    fast: Duration,
    slow: Duration,
    n: u32,
    counts: Counts<K, S>,
}

impl<K> FastSlow<K> {
    /// `fast` for the first `n` failures, then `slow`. Any two delays will do,
    /// also a fast one that is the longer.
    ///
    /// ```
    /// use requeue::{Instant, RateLimiter, limiter::FastSlow};
    /// use std::time::Duration;
    /// let limiter = FastSlow::new(Duration::ZERO, Duration::from_secs(1), 0);
    /// assert_eq!(limiter.when(&"a", Instant::ORIGIN), Duration::from_secs(1));
    /// ```
    #[must_use]
    pub fn new(fast: Duration, slow: Duration, n: u32) -> Self {
        Self { fast, slow, n, counts: Counts::new(RandomState::new(), None) }
    }
}

impl<K, S> FastSlow<K, S> {
    /// Forgets a key by itself once `time` has passed since the end of the last
    /// delay that it was given, as [`Exponential::expire_after`] does.
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
        self.counts.expire_after = Some(time);
        self
    }

    /// Hashes keys with `hasher`. What was counted so far is forgotten.
    ///
    /// ```
    /// use requeue::{Instant, RateLimiter, limiter::FastSlow};
    /// use std::time::Duration;
    /// let limiter = FastSlow::new(Duration::ZERO, Duration::from_secs(1), 3)
    ///     .hasher(std::hash::RandomState::new());
    /// assert_eq!(limiter.when(&"a", Instant::ORIGIN), Duration::ZERO);
    /// ```
    #[must_use = "this is the limiter with that hasher"]
    pub fn hasher<S2>(self, hasher: S2) -> FastSlow<K, S2> {
        let Self { fast, slow, n, counts } = self;
        FastSlow { fast, slow, n, counts: Counts::new(hasher, counts.expire_after) }
    }

    fn delay(&self, failures: u32) -> Duration {
        if failures < self.n { self.fast } else { self.slow }
    }
}

impl<K, S> RateLimiter<K> for FastSlow<K, S>
where
    K: Hash + Eq + Clone + Send,
    S: BuildHasher + Send + Sync,
{
    fn when(&self, key: &K, now: Instant) -> Duration {
        self.counts.add(key, now, |failures| self.delay(failures))
    }
    left_to!(self => self.counts);
    fn keeps(&self, _: sealed::Token) -> Keeps {
        Keeps::Count { expire_after: self.counts.expire_after }
    }
    fn when_counted(&self, failures: u32, _: Instant, _: sealed::Token) -> Duration {
        self.delay(failures)
    }
    fn longest(&self, _: sealed::Token) -> Duration {
        if self.n == 0 { self.slow } else { self.fast.max(self.slow) }
    }
}

impl<K, S> fmt::Debug for FastSlow<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastSlow")
            .field("fast", &self.fast)
            .field("slow", &self.slow)
            .field("n", &self.n)
            .field("expire_after", &self.counts.expire_after)
            .field("keys", &self.counts.len())
            .finish()
    }
}
