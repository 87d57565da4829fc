//! The queue traits that workloads require.
//!
//! Each queue is used as its users use it, in its best configuration.

use crate::Key;
use std::future::Future;
use std::time::Duration;

/// Add, get and done, for threads.
pub trait Fifo: Send + Sync + 'static {
    /// The name under which it is measured.
    const NAME: &'static str;
    /// Its keys.
    type Key: Key;
    /// A key that was handed out.
    type Item<'q>: Send
    where
        Self: 'q;

    /// An empty queue.
    fn new() -> Self;
    /// Asks for a run of the key.
    fn add(&self, key: Self::Key);
    /// Like `add`, but by reference; a queue that must own its key clones it.
    fn add_ref(&self, key: &Self::Key) {
        self.add(key.clone());
    }
    /// Waits for a key; `None` once the queue is shut down and worked off.
    fn get(&self) -> Option<Self::Item<'_>>;
    /// The key that was handed out.
    fn key<'i>(item: &'i Self::Item<'_>) -> &'i Self::Key;
    /// Ends the run.
    fn done(&self, item: Self::Item<'_>);
    /// Ends the run and waits for the next key, in one call where there is one.
    fn next<'q>(&'q self, item: Self::Item<'q>) -> Option<Self::Item<'q>> {
        self.done(item);
        self.get()
    }
    /// Whether several keys can be added, got and ended in one call.
    const BATCHES: bool = false;
    /// Asks for runs of the keys, in one call.
    fn add_many(&self, keys: impl Iterator<Item = Self::Key>) {
        keys.for_each(|key| self.add(key));
    }
    /// Gets up to `most` ready keys in one call and ends their runs in another;
    /// returns how many.
    fn work_off(&self, most: usize) -> usize {
        let _ = most;
        0
    }
    /// Announces that no more keys come: ready keys are still handed out, then this many consumers get the
    /// end.
    fn shut_down(&self, consumers: usize);
}

/// The version of [`Fifo`] for tasks.
pub trait AsyncFifo: Fifo {
    /// Waits for a key; `None` once the queue is shut down and worked off.
    fn get_async(&self) -> impl Future<Output = Option<Self::Item<'_>>> + Send;
    /// Ends the run and waits for the next key, in one call where there is one.
    fn next_async<'q>(&'q self, item: Self::Item<'q>) -> impl Future<Output = Option<Self::Item<'q>>> + Send {
        async move {
            self.done(item);
            self.get_async().await
        }
    }
}

/// A queue with timers.
pub trait Delaying: Fifo {
    /// Asks for a run in `delay`.
    fn add_after(&self, key: Self::Key, delay: Duration);
}

/// A queue whose limiter is exponential by key, from 1 ms to 1,000 s.
pub trait RateLimited: Fifo {
    /// An empty queue with the limiter that comes with it, or with one that a
    /// user has written, which keeps its counts in a map.
    fn limited(by: Limiter) -> Self;
    /// Adds a key after the limiter's delay.
    fn add_rate_limited(&self, key: Self::Key);
}

/// Whose limiter a queue has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiter {
    /// The library's.
    Builtin,
    /// The user's.
    Own,
}

/// A queue with metrics.
pub trait Metered: Fifo {
    /// An empty queue that reports to counters and histograms of a Prometheus client.
    fn metered() -> Self;
}

/// An exponential limiter without a queue, from 1 ms to 1,000 s.
pub trait Exponential: Sync {
    /// The name under which it is measured.
    const NAME: &'static str;
    /// Type of the keys it counts by.
    type Key: Key;
    /// One that has counted nothing.
    fn new() -> Self;
    /// The delay of the key, which counts as a failure of it.
    fn when(&self, key: &Self::Key) -> Duration;
}

/// A token bucket without a queue.
pub trait Bucket: Sync {
    /// The name under which it is measured.
    const NAME: &'static str;
    /// A full one.
    fn new(per_second: f64, burst: u32) -> Self;
    /// Reserves a token. Returns the time until it is there, by the clock.
    fn reserve(&self) -> Duration;
}
