//! Failure counts per key, for limiters whose delay depends on them.

use super::rate_limiter::{Keeps, RateLimiter, sealed};
use super::records::Records;
use crate::hash::RandomState;
use crate::sync::atomic::{AtomicU64, Ordering};
use requeue_core::Instant;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// The delay as a function of the key's earlier failures.
pub(super) trait Curve: Send + Sync {
    fn delay(&self, failures: u32) -> Duration;
    /// The longest of all delays.
    fn longest(&self) -> Duration;
}

/// A limiter from a curve: one count per key, which expires some time after the end of the last delay.
///
/// The counts are used only if the limiter is shared or asked directly; a queue that owns its limiter keeps
/// the counts in its own entries ([`Keeps::Count`]).
pub(super) struct CountingLimiter<K, C, S> {
    pub(super) curve: C,
    records: Records<K, FailureCount, S>,
    pub(super) expire_after: Option<Duration>,
    /// The latest instant passed to a call, in nanoseconds. `num_requeues` gets no instant, and an expired
    /// count must read 0.
    seen: AtomicU64,
}

#[derive(Clone, Copy)]
struct FailureCount {
    failures: u32,
    expires: Instant,
}

impl FailureCount {
    fn expired(&self, now: Instant) -> bool {
        self.expires <= now && !self.expires.is_never()
    }
}

impl<K, C> CountingLimiter<K, C, RandomState> {
    pub(super) fn new(curve: C) -> Self {
        let records = Records::new(RandomState::default());
        Self { curve, records, expire_after: None, seen: AtomicU64::new(0) }
    }
}

impl<K, C, S> CountingLimiter<K, C, S> {
    pub(super) fn hasher<S2>(self, hasher: S2) -> CountingLimiter<K, C, S2> {
        let Self { curve, expire_after, .. } = self;
        CountingLimiter { curve, records: Records::new(hasher), expire_after, seen: AtomicU64::new(0) }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

impl<K, C, S> RateLimiter<K> for CountingLimiter<K, C, S>
where
    K: Hash + Eq + Clone + Send,
    C: Curve,
    S: BuildHasher + Send + Sync,
{
    fn when(&self, key: &K, now: Instant) -> Duration {
        self.seen.fetch_max(now.as_nanos(), Ordering::Relaxed);
        self.records.update(
            key,
            || FailureCount { failures: 0, expires: Instant::NEVER },
            self.expire_after.map(|_| |count: &FailureCount| count.expired(now)),
            |count| {
                let delay = self.curve.delay(count.failures);
                count.failures = count.failures.saturating_add(1);
                count.expires = self.expire_after.map_or(Instant::NEVER, |time| now + delay + time);
                delay
            },
        )
    }

    fn forget(&self, key: &K) {
        self.records.forget(key);
    }

    /// The count at the latest instant that was seen.
    fn num_requeues(&self, key: &K) -> u32 {
        self.num_requeues_at(key, Instant::ORIGIN, sealed::Token(()))
    }

    fn num_requeues_at(&self, key: &K, now: Instant, _: sealed::Token) -> u32 {
        let now = now.max(Instant::from_nanos(self.seen.load(Ordering::Relaxed)));
        self.records.read(key, |count| if count.expired(now) { 0 } else { count.failures }).unwrap_or(0)
    }

    fn keeps(&self, _: sealed::Token) -> Keeps {
        Keeps::Count { expire_after: self.expire_after }
    }

    fn when_counted(&self, failures: u32, _: Instant, _: sealed::Token) -> Duration {
        self.curve.delay(failures)
    }

    fn longest(&self, _: sealed::Token) -> Duration {
        self.curve.longest()
    }
}
