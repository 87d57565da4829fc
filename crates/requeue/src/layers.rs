//! The three layers as traits, for signatures that ask for the least they need.
//!
//! They are sealed, so that they can grow. Each method is one line to the
//! inherent method of the same name, where its documentation is.

use crate::add_many::AddedMany;
use crate::drain::{Drain, DrainOptions, ShutDown};
use crate::error::{AddResult, NotHeld, TryGetError};
use crate::get::Get;
use crate::get_many::GetMany;
use crate::item::Item;
use crate::items::Items;
use crate::{KeyState, Stats, WorkQueue};
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// The FIFO queue: add, get, done.
///
/// ```
/// use requeue::{Queue, WorkQueue};
/// fn feed(q: &dyn Queue<String>) {
///     let _ = q.add("x".to_string());
/// }
/// let q = WorkQueue::new();
/// feed(&q);
/// assert_eq!(q.len(), 1);
/// ```
pub trait Queue<K, V = ()>: sealed::Sealed + Send + Sync {
    /// [`WorkQueue::add`]
    ///
    /// # Errors
    ///
    /// As there.
    fn add(&self, key: K) -> AddResult<K, V>;
    /// [`WorkQueue::add_value`]
    ///
    /// # Errors
    ///
    /// As there.
    fn add_value(&self, key: K, value: V) -> AddResult<K, V>;
    /// [`WorkQueue::add_many`], with a `Vec` so that it can be called on a `dyn Queue`
    fn add_many(&self, keys: Vec<K>) -> AddedMany<K, V>;
    /// [`WorkQueue::get`]
    fn get(&self) -> Get<'_, K, V>;
    /// [`WorkQueue::get_many`]
    fn get_many(&self, most: usize) -> GetMany<'_, K, V>;
    /// [`WorkQueue::get_blocking`]
    fn get_blocking(&self) -> Option<Item<'_, K, V>>;
    /// [`WorkQueue::try_get`]
    ///
    /// # Errors
    ///
    /// As there.
    fn try_get(&self) -> Result<Item<'_, K, V>, TryGetError>;
    /// [`WorkQueue::try_get_many`]
    ///
    /// # Errors
    ///
    /// As there.
    fn try_get_many(&self, most: usize) -> Result<Items<'_, K, V>, TryGetError>;
    /// [`WorkQueue::done`]
    ///
    /// # Errors
    ///
    /// As there.
    fn done(&self, key: &K) -> Result<(), NotHeld>;
    /// [`WorkQueue::state`]
    fn state(&self, key: &K) -> Option<KeyState>;
    /// [`WorkQueue::len`]
    fn len(&self) -> usize;
    /// [`WorkQueue::is_empty`]
    fn is_empty(&self) -> bool;
    /// [`WorkQueue::stats`]
    fn stats(&self) -> Stats;
    /// [`WorkQueue::shutting_down`]
    fn shutting_down(&self) -> bool;
    /// [`WorkQueue::close`]
    fn close(&self);
    /// [`WorkQueue::shut_down`]
    fn shut_down(&self) -> ShutDown;
    /// [`WorkQueue::shut_down_with_drain`]
    fn shut_down_with_drain(&self) -> Drain<'_, K, V>;
    /// [`WorkQueue::shut_down_with`]
    fn shut_down_with(&self, options: DrainOptions) -> Drain<'_, K, V>;
}

/// The delaying queue: the FIFO queue and add_after.
///
/// ```
/// use requeue::{DelayingQueue, WorkQueue};
/// use std::time::Duration;
/// fn feed<Q: DelayingQueue<String> + ?Sized>(q: &Q) {
///     let _ = q.add_after("x".to_string(), Duration::from_secs(1));
/// }
/// let q = WorkQueue::new();
/// feed(&q);
/// assert_eq!(q.stats().waiting, 1);
/// ```
pub trait DelayingQueue<K, V = ()>: Queue<K, V> {
    /// [`WorkQueue::add_after`]
    ///
    /// # Errors
    ///
    /// As there.
    fn add_after(&self, key: K, delay: Duration) -> AddResult<K, V>;
}

/// The rate-limiting queue: the delaying queue and add_rate_limited, forget and
/// num_requeues.
///
/// ```
/// use requeue::{Queue, RateLimitingQueue, WorkQueue};
/// use std::sync::Arc;
/// let q: Arc<dyn RateLimitingQueue<String>> = Arc::new(WorkQueue::new());
/// q.add_rate_limited("x".to_string()).expect("open");
/// assert_eq!(q.num_requeues(&"x".to_string()), 1);
/// let fifo: &dyn Queue<String> = &*q;
/// ```
pub trait RateLimitingQueue<K, V = ()>: DelayingQueue<K, V> {
    /// [`WorkQueue::add_rate_limited`]
    ///
    /// # Errors
    ///
    /// As there.
    fn add_rate_limited(&self, key: K) -> AddResult<K, V>;
    /// [`WorkQueue::forget`]
    fn forget(&self, key: &K);
    /// [`WorkQueue::num_requeues`]
    fn num_requeues(&self, key: &K) -> u32;
}

mod sealed {
    pub trait Sealed {}
    impl<K, V, S> Sealed for crate::WorkQueue<K, V, S> {}
}

impl<K, V, S> Queue<K, V> for WorkQueue<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send,
    S: BuildHasher + Send + Sync,
{
    fn add(&self, key: K) -> AddResult<K, V> {
        self.add(key)
    }
    fn add_value(&self, key: K, value: V) -> AddResult<K, V> {
        self.add_value(key, value)
    }
    fn add_many(&self, keys: Vec<K>) -> AddedMany<K, V> {
        self.add_many(keys)
    }
    fn get(&self) -> Get<'_, K, V> {
        self.get()
    }
    fn get_many(&self, most: usize) -> GetMany<'_, K, V> {
        self.get_many(most)
    }
    fn get_blocking(&self) -> Option<Item<'_, K, V>> {
        self.get_blocking()
    }
    fn try_get(&self) -> Result<Item<'_, K, V>, TryGetError> {
        self.try_get()
    }
    fn try_get_many(&self, most: usize) -> Result<Items<'_, K, V>, TryGetError> {
        self.try_get_many(most)
    }
    fn done(&self, key: &K) -> Result<(), NotHeld> {
        self.done(key)
    }
    fn state(&self, key: &K) -> Option<KeyState> {
        self.state(key)
    }
    fn len(&self) -> usize {
        self.len()
    }
    fn is_empty(&self) -> bool {
        self.is_empty()
    }
    fn stats(&self) -> Stats {
        self.stats()
    }
    fn shutting_down(&self) -> bool {
        self.shutting_down()
    }
    fn close(&self) {
        self.close();
    }
    fn shut_down(&self) -> ShutDown {
        self.shut_down()
    }
    fn shut_down_with_drain(&self) -> Drain<'_, K, V> {
        self.shut_down_with_drain()
    }
    fn shut_down_with(&self, options: DrainOptions) -> Drain<'_, K, V> {
        self.shut_down_with(options)
    }
}

impl<K, V, S> DelayingQueue<K, V> for WorkQueue<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send,
    S: BuildHasher + Send + Sync,
{
    fn add_after(&self, key: K, delay: Duration) -> AddResult<K, V> {
        self.add_after(key, delay)
    }
}

impl<K, V, S> RateLimitingQueue<K, V> for WorkQueue<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send,
    S: BuildHasher + Send + Sync,
{
    fn add_rate_limited(&self, key: K) -> AddResult<K, V> {
        self.add_rate_limited(key)
    }
    fn forget(&self, key: &K) {
        self.forget(key);
    }
    fn num_requeues(&self, key: &K) -> u32 {
        self.num_requeues(key)
    }
}
