//! How long a key waits before it comes back: the limiters.

use crate::Instant;
use std::time::Duration;

/// Decides when a key that is added through
/// [`add_rate_limited`](crate::WorkQueue::add_rate_limited) becomes ready.
///
/// A limiter owns no clock: the instant is handed in, so that limiter and queue
/// can never disagree about the time.
pub trait RateLimiter<K: ?Sized>: Send + Sync {
    /// How long from `now` until `key` may run. Counts as one requeue of `key`.
    fn when(&self, key: &K, now: Instant) -> Duration;
    /// Forgets what is recorded of `key`.
    fn forget(&self, key: &K);
    /// How often `key` was put back since it was last forgotten.
    fn num_requeues(&self, key: &K) -> u32;

    /// Where this limiter's records are kept. Only the limiters of this crate
    /// can answer anything but [`Keeps::Own`]: the argument cannot be named elsewhere.
    #[doc(hidden)]
    fn keeps(&self, _: sealed::Token) -> Keeps {
        Keeps::Own
    }

    /// The delay of a key that was put back `failures` times before, for a
    /// limiter that does not keep its own records. Runs under the queue's lock.
    #[doc(hidden)]
    fn when_counted(&self, _failures: u32, _now: Instant, _: sealed::Token) -> Duration {
        Duration::ZERO
    }
}

/// Where a limiter's records of keys are kept.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// In the limiter: it is asked by key, without the queue's lock.
    Own,
    /// A count per key and nothing else: the queue keeps it in the key's entry.
    Count {
        /// How long after the end of its last delay a count expires.
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
