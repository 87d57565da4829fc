//! Limiters of several limiters, and limiters behind a pointer.

use super::error::LimiterError;
use super::rate_limiter::{Keeps, RateLimiter, sealed};
use requeue_core::Instant;
use std::sync::Arc;
use std::time::Duration;

impl Keeps {
    /// Where two limiters asked as one keep their records. A count lives as long as the longer-lived of the
    /// two needs it.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Own, _) | (_, Self::Own) => Self::Own,
            (Self::Nothing, keeps) | (keeps, Self::Nothing) => keeps,
            (Self::Count { expire_after: a }, Self::Count { expire_after: b }) => {
                Self::Count { expire_after: a.zip(b).map(|(a, b)| a.max(b)) }
            }
        }
    }
}

/// Asks both and takes the longer delay. `num_requeues` is the larger number, and forgetting forgets in both.
/// Needs no boxes; pairs nest. [`MaxOf`] is the version for any number.
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::{Bucket, FastSlow}};
/// use std::time::Duration;
/// let s = Duration::from_secs(1);
/// let limiter = (FastSlow::new(s, 5 * s, 2), Bucket::new(0.5, 1)?);
/// let delays: Vec<_> = (0..5).map(|_| limiter.when(&"a", Instant::ORIGIN).as_secs()).collect();
/// assert_eq!(delays, [1, 2, 5, 6, 8]);
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
impl<K: ?Sized, A: RateLimiter<K>, B: RateLimiter<K>> RateLimiter<K> for (A, B) {
    fn when(&self, key: &K, now: Instant) -> Duration {
        self.0.when(key, now).max(self.1.when(key, now))
    }
    fn forget(&self, key: &K) {
        self.0.forget(key);
        self.1.forget(key);
    }
    fn num_requeues(&self, key: &K) -> u32 {
        self.0.num_requeues(key).max(self.1.num_requeues(key))
    }
    fn keeps(&self, token: sealed::Token) -> Keeps {
        self.0.keeps(token).and(self.1.keeps(token))
    }
    fn when_counted(&self, failures: u32, now: Instant, token: sealed::Token) -> Duration {
        self.0.when_counted(failures, now, token).max(self.1.when_counted(failures, now, token))
    }
    fn num_requeues_at(&self, key: &K, now: Instant, token: sealed::Token) -> u32 {
        self.0.num_requeues_at(key, now, token).max(self.1.num_requeues_at(key, now, token))
    }
    fn longest(&self, token: sealed::Token) -> Duration {
        self.0.longest(token).max(self.1.longest(token))
    }
}

/// Asks each of several limiters and takes the longest delay. `num_requeues` is the largest number, and
/// forgetting forgets in all. client-go's `MaxOfRateLimiter`. For two limiters, a pair needs no boxes.
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::{Exponential, MaxOf, Window}};
/// use std::time::Duration;
/// let s = Duration::from_secs(1);
/// let limiter = MaxOf::new(vec![
///     Box::new(Exponential::new(s, 100 * s)?),
///     Box::new(Window::new(3 * s, 1)?),
/// ])?;
/// let delays: Vec<_> = (0..5).map(|_| limiter.when(&"a", Instant::ORIGIN).as_secs()).collect();
/// assert_eq!(delays, [1, 3, 6, 9, 16]);
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
#[doc(alias("MaxOfRateLimiter", "TypedMaxOfRateLimiter", "NewMaxOfRateLimiter", "NewTypedMaxOfRateLimiter"))]
pub struct MaxOf<K: ?Sized>(Vec<Box<dyn RateLimiter<K>>>);

impl<K: ?Sized> MaxOf<K> {
    /// The longest delay of `limiters`.
    ///
    /// # Errors
    ///
    /// [`LimiterError::NoLimiters`] if the list is empty, which is most likely a mistake. (For no delay at
    /// all, use `Exponential::new(Duration::ZERO, Duration::ZERO)`.)
    ///
    /// ```
    /// use requeue::limiter::{LimiterError, MaxOf};
    /// assert_eq!(MaxOf::<str>::new(vec![]).unwrap_err(), LimiterError::NoLimiters);
    /// ```
    pub fn new(limiters: Vec<Box<dyn RateLimiter<K>>>) -> Result<Self, LimiterError> {
        if limiters.is_empty() { Err(LimiterError::NoLimiters) } else { Ok(Self(limiters)) }
    }

    /// Asks every limiter and returns the longest answer.
    fn longest_of(&self, ask: impl Fn(&dyn RateLimiter<K>) -> Duration) -> Duration {
        self.0.iter().map(|limiter| ask(&**limiter)).fold(Duration::ZERO, Duration::max)
    }
}

impl<K: ?Sized> RateLimiter<K> for MaxOf<K> {
    fn when(&self, key: &K, now: Instant) -> Duration {
        self.longest_of(|limiter| limiter.when(key, now))
    }
    fn forget(&self, key: &K) {
        for limiter in &self.0 {
            limiter.forget(key);
        }
    }
    fn num_requeues(&self, key: &K) -> u32 {
        self.0.iter().map(|limiter| limiter.num_requeues(key)).max().unwrap_or(0)
    }
    fn keeps(&self, token: sealed::Token) -> Keeps {
        self.0.iter().map(|limiter| limiter.keeps(token)).fold(Keeps::Nothing, Keeps::and)
    }
    fn when_counted(&self, failures: u32, now: Instant, token: sealed::Token) -> Duration {
        self.longest_of(|limiter| limiter.when_counted(failures, now, token))
    }
    fn num_requeues_at(&self, key: &K, now: Instant, token: sealed::Token) -> u32 {
        self.0.iter().map(|limiter| limiter.num_requeues_at(key, now, token)).max().unwrap_or(0)
    }
    fn longest(&self, token: sealed::Token) -> Duration {
        self.longest_of(|limiter| limiter.longest(token))
    }
}

debug!([K: ?Sized] MaxOf<K>, |max| { limiters: max.0.len() });

/// The limiter in the box.
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::FastSlow};
/// use std::time::Duration;
/// let limiter: Box<dyn RateLimiter<str>> = match std::env::var_os("SLOW") {
///     Some(_) => Box::new(requeue::limiter::Window::new(Duration::from_secs(60), 1)?),
///     None => Box::new(requeue::limiter::Bucket::new(10.0, 100)?),
/// };
/// assert_eq!(limiter.when("a", Instant::ORIGIN), Duration::ZERO);
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
impl<K: ?Sized, L: RateLimiter<K> + ?Sized> RateLimiter<K> for Box<L> {
    stands_for!(self => **self);
}

/// A limiter shared by several queues, or by a queue and an observer: all see the same counts.
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::Exponential};
/// use std::{sync::Arc, time::Duration};
/// let limiter = Arc::new(Exponential::new(Duration::from_millis(1), Duration::from_secs(1))?);
/// Arc::clone(&limiter).when(&"a", Instant::ORIGIN);
/// assert_eq!(limiter.num_requeues(&"a"), 1);
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
///
/// It keeps its records itself, so that all see them.
impl<K: ?Sized, L: RateLimiter<K> + ?Sized> RateLimiter<K> for Arc<L> {
    answers_as!(self => **self);
}

/// A limiter that somebody else owns.
impl<K: ?Sized, L: RateLimiter<K> + ?Sized> RateLimiter<K> for &L {
    answers_as!(self => **self);
}
