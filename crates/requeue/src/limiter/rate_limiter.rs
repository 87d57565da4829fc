//! [`RateLimiter`]: the trait, where a limiter keeps its records, and the macros that write limiters.

use requeue_core::Instant;
use std::time::Duration;

/// Delegates a limiter's records to another limiter, or to its counts.
macro_rules! left_to {
    ($self:ident => $within:expr) => {
        forward! { $self => $within;
            fn forget(&self, key: &K);
            fn num_requeues(&self, key: &K) -> u32;
            fn num_requeues_at(&self, key: &K, now: Instant, token: sealed::Token) -> u32;
        }
    };
}

/// Delegates a limiter's answers to another, and leaves the records to it.
macro_rules! answers_as {
    ($self:ident => $other:expr) => {
        forward! { $self => $other;
            fn when(&self, key: &K, now: Instant) -> Duration;
            fn longest(&self, token: sealed::Token) -> Duration;
        }
        left_to!($self => $other);
    };
}

/// Delegates all methods of a limiter to another.
macro_rules! stands_for {
    ($self:ident => $other:expr) => {
        answers_as!($self => $other);
        forward! { $self => $other;
            fn keeps(&self, token: sealed::Token) -> Keeps;
            fn when_counted(&self, failures: u32, now: Instant, token: sealed::Token) -> Duration;
        }
    };
}

/// Implements a limiter without records: its delay follows from the time, and from a count that a queue may
/// keep for it. Asked directly, it takes each failure for the key's first.
macro_rules! keeps_no_records {
    ($self:ident: $keeps:expr, |$failures:pat_param, $now:pat_param| $delay:expr) => {
        fn when(&self, _: &K, now: Instant) -> Duration {
            RateLimiter::<K>::when_counted(self, 0, now, sealed::Token(()))
        }
        fn forget(&self, _: &K) {}
        fn num_requeues(&self, _: &K) -> u32 {
            0
        }
        fn keeps(&self, _: sealed::Token) -> Keeps {
            $keeps
        }
        fn when_counted(&$self, $failures: u32, $now: Instant, _: sealed::Token) -> Duration {
            $delay
        }
    };
}

/// Decides when a key that is added through
/// [`add_rate_limited`](crate::WorkQueue::add_rate_limited) becomes ready.
///
/// A limiter owns no clock: the instant is an argument, so that limiter and queue never disagree about the
/// time.
///
/// ```
/// use requeue::{Instant, RateLimiter};
/// use std::time::Duration;
///
/// /// Always the same delay.
/// struct Fixed(Duration);
/// impl<K: ?Sized> RateLimiter<K> for Fixed {
///     fn when(&self, _: &K, _: Instant) -> Duration {
///         self.0
///     }
///     fn forget(&self, _: &K) {}
///     fn num_requeues(&self, _: &K) -> u32 {
///         0
///     }
/// }
/// let limiter = (Fixed(Duration::from_secs(3)), requeue::limiter::Bucket::new(10.0, 100)?);
/// assert_eq!(limiter.when("a", Instant::ORIGIN), Duration::from_secs(3));
/// # Ok::<_, requeue::limiter::LimiterError>(())
/// ```
#[doc(alias("TypedRateLimiter"))]
pub trait RateLimiter<K: ?Sized>: Send + Sync {
    /// Time from `now` until `key` may run; [`Duration::MAX`] for never. Counts as one requeue of `key`.
    ///
    /// ```
    /// use requeue::{Instant, RateLimiter, limiter::Exponential};
    /// use std::time::Duration;
    /// let limiter = Exponential::new(Duration::from_millis(5), Duration::from_secs(1))?;
    /// assert_eq!(limiter.when(&"a", Instant::ORIGIN).as_millis(), 5);
    /// assert_eq!(limiter.when(&"a", Instant::ORIGIN).as_millis(), 10);
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    fn when(&self, key: &K, now: Instant) -> Duration;
    /// Forgets the records of `key`.
    ///
    /// ```
    /// use requeue::{Instant, RateLimiter, limiter::Exponential};
    /// use std::time::Duration;
    /// let limiter = Exponential::new(Duration::from_millis(5), Duration::from_secs(1))?;
    /// limiter.when(&"a", Instant::ORIGIN);
    /// limiter.forget(&"a");
    /// assert_eq!(limiter.when(&"a", Instant::ORIGIN).as_millis(), 5, "as for the first time");
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    fn forget(&self, key: &K);
    /// Number of requeues of `key` since it was last forgotten.
    ///
    /// ```
    /// use requeue::{Instant, RateLimiter, limiter::Exponential};
    /// use std::time::Duration;
    /// let limiter = Exponential::new(Duration::from_millis(5), Duration::from_secs(1))?;
    /// limiter.when(&"a", Instant::ORIGIN);
    /// assert_eq!((limiter.num_requeues(&"a"), limiter.num_requeues(&"b")), (1, 0));
    /// # Ok::<_, requeue::limiter::LimiterError>(())
    /// ```
    fn num_requeues(&self, key: &K) -> u32;

    /// Where this limiter keeps its records. Only limiters of this crate can return anything but
    /// [`Keeps::Own`]: the argument cannot be named elsewhere.
    #[doc(hidden)]
    fn keeps(&self, _: sealed::Token) -> Keeps {
        Keeps::Own
    }

    /// The delay of a key with `failures` earlier requeues, for a limiter that does not keep its own records.
    /// Runs under the queue's lock.
    #[doc(hidden)]
    fn when_counted(&self, _failures: u32, _now: Instant, _: sealed::Token) -> Duration {
        Duration::ZERO
    }

    /// Like [`num_requeues`](Self::num_requeues), as of `now`: a record that has expired by then reads 0.
    /// Without an instant the limiter uses the latest that `when` was given.
    #[doc(hidden)]
    fn num_requeues_at(&self, key: &K, _now: Instant, _: sealed::Token) -> u32 {
        self.num_requeues(key)
    }

    /// The limiter's maximum delay, which jitter must not exceed; [`Duration::MAX`] if it has none.
    #[doc(hidden)]
    fn longest(&self, _: sealed::Token) -> Duration {
        Duration::MAX
    }
}

/// Where a limiter's records of keys are kept.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// In the limiter: it is asked by key, outside the queue's lock.
    Own,
    /// A count per key and nothing else: the queue keeps it in the key's entry.
    Count {
        /// Time from the end of its last delay until a count expires.
        expire_after: Option<Duration>,
    },
    /// Nothing per key: `num_requeues` is always 0.
    Nothing,
}

pub(crate) mod sealed {
    /// Proof that a call comes from this crate.
    #[derive(Clone, Copy, Debug)]
    pub struct Token(pub(crate) ());
}
