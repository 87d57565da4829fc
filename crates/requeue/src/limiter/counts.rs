//! How often single keys failed, for the limiters whose delay depends on that.

use super::records::Records;
use super::sealed;
use crate::Instant;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// A count a key, which expires some time after the end of the last delay.
///
/// Used only where a limiter is shared or asked by itself; a queue that owns its
/// limiter keeps the counts in its own entries ([`Keeps::Count`](super::Keeps)).
pub(super) struct Counts<K, S> {
    records: Records<K, Count, S>,
    pub(super) expire_after: Option<Duration>,
    /// The latest instant that a call was given, in nanoseconds: `num_requeues`
    /// is given none, and an expired count must read 0.
    seen: AtomicU64,
}

#[derive(Clone, Copy)]
struct Count {
    failures: u32,
    expires: Instant,
}

impl Count {
    fn expired(&self, now: Instant) -> bool {
        self.expires <= now && !self.expires.is_never()
    }
}

impl<K, S> Counts<K, S> {
    pub(super) fn new(hasher: S, expire_after: Option<Duration>) -> Self {
        Self { records: Records::new(hasher), expire_after, seen: AtomicU64::new(0) }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}

impl<K: Hash + Eq, S: BuildHasher> Counts<K, S> {
    /// Counts a failure of `key`. `delay` tells the delay from the number of
    /// failures before this one.
    pub(super) fn add(&self, key: &K, now: Instant, delay: impl Fn(u32) -> Duration) -> Duration
    where
        K: Clone,
    {
        self.seen.fetch_max(now.as_nanos(), Ordering::Relaxed);
        self.records.update(
            key,
            || Count { failures: 0, expires: Instant::NEVER },
            self.expire_after.map(|_| |count: &Count| count.expired(now)),
            |count| {
                let delay = delay(count.failures);
                count.failures = count.failures.saturating_add(1);
                count.expires = self.expire_after.map_or(Instant::NEVER, |time| now + delay + time);
                delay
            },
        )
    }

    pub(super) fn forget(&self, key: &K) {
        self.records.forget(key);
    }

    /// The count at the latest instant that was seen.
    pub(super) fn num_requeues(&self, key: &K) -> u32 {
        self.num_requeues_at(key, Instant::ORIGIN, sealed::Token(()))
    }

    pub(super) fn num_requeues_at(&self, key: &K, now: Instant, _: sealed::Token) -> u32 {
        let now = now.max(Instant::from_nanos(self.seen.load(Ordering::Relaxed)));
        self.records.read(key, |count| if count.expired(now) { 0 } else { count.failures }).unwrap_or(0)
    }
}
