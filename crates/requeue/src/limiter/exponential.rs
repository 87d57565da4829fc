//! Doubling delays, key by key.

use super::counts::Counts;
use super::nanos::duration;
use super::{Keeps, LimiterError, RateLimiter, sealed};
use crate::{Instant, RandomState};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// Doubles a key's delay at each failure: `base * 2^failures`, at most `max`.
/// client-go's `ItemExponentialFailureRateLimiter`.
///
/// No count overflows: where the power is more than `max`, the delay is `max`. A
/// base of zero is zero for ever. The count itself stops at `u32::MAX`.
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
#[doc(alias(
    "ItemExponentialFailureRateLimiter",
    "TypedItemExponentialFailureRateLimiter",
    "NewItemExponentialFailureRateLimiter",
    "NewTypedItemExponentialFailureRateLimiter"
))]
pub struct Exponential<K, S = RandomState> {
    curve: Curve,
    counts: Counts<K, S>,
}

/// The delay as a function of the count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Curve {
    base: Duration,
    max: Duration,
    /// The two in nanoseconds, where 64 bits can say them: 584 years.
    nanos: Option<(u64, u64)>,
}

impl Curve {
    pub(super) fn new(base: Duration, max: Duration) -> Result<Self, LimiterError> {
        if max < base {
            return Err(LimiterError::MaxBelowBase { base, max });
        }
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).ok();
        Ok(Self { base, max, nanos: nanos(base).zip(nanos(max)).filter(|_| !base.is_zero()) })
    }

    #[inline]
    pub(super) fn delay(self, failures: u32) -> Duration {
        match self.nanos {
            // so often it can be doubled without a bit being lost
            Some((base, max)) if failures <= base.leading_zeros() => {
                Duration::from_nanos((base << failures).min(max))
            }
            Some(_) => self.max,
            None => self.delay_at_length(failures),
        }
    }

    /// Where the delays are of centuries, or zero.
    #[cold]
    fn delay_at_length(self, failures: u32) -> Duration {
        let (base, max) = (self.base.as_nanos(), self.max.as_nanos());
        if base == 0 {
            return Duration::ZERO;
        }
        // base * 2^n <= max just where base <= floor(max / 2^n), which cannot overflow.
        match max.checked_shr(failures) {
            Some(bound) if base <= bound => duration(base << failures),
            _ => self.max,
        }
    }

    /// The longest delay.
    pub(super) fn longest(self) -> Duration {
        if self.base.is_zero() { Duration::ZERO } else { self.max }
    }
}

impl<K> Exponential<K> {
    /// From `base` on, doubling, up to `max`.
    ///
    /// # Errors
    ///
    /// [`LimiterError::MaxBelowBase`] where `max` is below `base`.
    ///
    /// ```
    /// use requeue::limiter::Exponential;
    /// use std::time::Duration;
    /// let refused = Exponential::<String>::new(Duration::from_secs(2), Duration::from_secs(1));
    /// assert_eq!(
    ///     refused.unwrap_err().to_string(),
    ///     "the largest delay, 1s, is below the first, 2s: it must be at least as long"
    /// );
    /// ```
    pub fn new(base: Duration, max: Duration) -> Result<Self, LimiterError> {
        Ok(Self { curve: Curve::new(base, max)?, counts: Counts::new(RandomState::new(), None) })
    }
}

impl<K, S> Exponential<K, S> {
    /// Forgets a key by itself once `time` has passed since the end of the last
    /// delay that it was given: keys that fail and are never heard of again do
    /// not fill the memory.
    ///
    /// Reading a count does not extend its life. The limiter owns no clock, so
    /// `num_requeues` goes by the latest instant that it was asked at.
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
        self.counts.expire_after = Some(time);
        self
    }

    /// Hashes keys with `hasher`. What was counted so far is forgotten.
    ///
    /// ```
    /// use requeue::{Instant, RateLimiter, limiter::Exponential};
    /// use std::time::Duration;
    /// let limiter = Exponential::new(Duration::from_millis(1), Duration::from_secs(1))?
    ///     .hasher(std::hash::RandomState::new());
    /// assert_eq!(limiter.when(&"a", Instant::ORIGIN), Duration::from_millis(1));
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    #[must_use = "this is the limiter with that hasher"]
    pub fn hasher<S2>(self, hasher: S2) -> Exponential<K, S2> {
        Exponential { curve: self.curve, counts: Counts::new(hasher, self.counts.expire_after) }
    }
}

impl<K, S> RateLimiter<K> for Exponential<K, S>
where
    K: Hash + Eq + Clone + Send,
    S: BuildHasher + Send + Sync,
{
    fn when(&self, key: &K, now: Instant) -> Duration {
        self.counts.add(key, now, |failures| self.curve.delay(failures))
    }
    left_to!(self => self.counts);
    fn keeps(&self, _: sealed::Token) -> Keeps {
        Keeps::Count { expire_after: self.counts.expire_after }
    }
    fn when_counted(&self, failures: u32, _: Instant, _: sealed::Token) -> Duration {
        self.curve.delay(failures)
    }
    fn longest(&self, _: sealed::Token) -> Duration {
        self.curve.longest()
    }
}

impl<K, S> fmt::Debug for Exponential<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exponential")
            .field("base", &self.curve.base)
            .field("max", &self.curve.max)
            .field("expire_after", &self.counts.expire_after)
            .field("keys", &self.counts.len())
            .finish()
    }
}
