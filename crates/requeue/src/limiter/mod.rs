//! Limiters: how long a key waits before it comes back.
//!
//! | | delay | remembers |
//! |---|---|---|
//! | [`Exponential`] | doubles at each failure of the key | a count a key |
//! | [`FastSlow`] | a short one at first, then a long one | a count a key |
//! | [`Bucket`] | spreads all keys at a rate, after a burst | |
//! | [`PerKeyBucket`] | spreads each key's calls at a rate | a bucket a key, until it is full |
//! | [`Window`] | so many keys in each window of time | |
//! | `(A, B)`, [`MaxOf`] | the longest of several | what those remember |
//! | [`WithMaxWait`] | another's, cut at a maximum | what that remembers |
//! | [`Jitter`] | another's, lengthened at random | what that remembers |
//! | [`default_controller`], [`default_controller_without_bucket`], [`default_per_item`] | what controllers start with | a count a key |
//!
//! All are deterministic functions of their calls and of the seed. None owns a clock, so tests pass any
//! instants. Delays are rounded up to a nanosecond and never overflow; [`Duration::MAX`] means never. A rate,
//! burst or quota of 0, which could never grant anything, is refused at construction.
//!
//! [`TokenBucket`] is the bucket by itself, for uses other than queues, such as calls to a server.
//!
//! # Why a limiter may leave its counts to the queue
//!
//! A limiter of failures is a pure function of a count, and the queue has an entry for the key anyway:
//! counting there saves a second map, a second lock, and a copy of the key. So a built-in limiter that a
//! queue owns keeps no records; one that is shared (an [`Arc`](std::sync::Arc)) or asked directly does. The
//! answers do not differ.

use crate::Instant;
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

mod acquire;
mod bucket;
mod combine;
mod counts;
mod defaults;
mod error;
mod exponential;
mod fast_slow;
mod jitter;
mod ledger;
mod max_wait;
mod nanos;
mod pace;
mod per_key_bucket;
mod records;
#[cfg(all(test, not(requeue_loom)))]
mod tests;

mod window;

pub use self::acquire::{Acquire, AcquireError};
pub use self::bucket::{Bucket, Reservation, TokenBucket};
pub use self::combine::MaxOf;
pub(crate) use self::defaults::counted_controller;
pub use self::defaults::{default_controller, default_controller_without_bucket, default_per_item};
pub use self::error::LimiterError;
pub use self::exponential::Exponential;
pub use self::fast_slow::FastSlow;
pub use self::jitter::Jitter;
pub use self::max_wait::WithMaxWait;
pub(crate) use self::pace::dispatch;
pub use self::per_key_bucket::PerKeyBucket;
pub use self::window::Window;

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
