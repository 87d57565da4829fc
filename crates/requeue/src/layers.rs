//! The three layers as traits, for signatures that ask for the least they need.
//!
//! They are sealed, so that they can grow. Each method only calls the inherent
//! method of the same name, where its documentation is.

use crate::drain::{Drain, DrainOptions, ShutDown};
use crate::error::{AddError, Added, NotHeld};
use crate::get::Get;
use crate::queue::WorkQueue;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// The FIFO queue: add, get, done and shutdown, as in client-go.
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
#[doc(alias("Interface", "TypedInterface"))]
#[expect(clippy::len_without_is_empty, reason = "as in client-go; the queue itself has `is_empty`")]
pub trait Queue<K, V = ()>: sealed::Sealed + Send + Sync {
    /// [`WorkQueue::add`]
    ///
    /// # Errors
    ///
    /// See [`WorkQueue::add`].
    ///
    /// ```
    /// use requeue::{Queue, WorkQueue};
    /// let q = WorkQueue::new();
    /// let q: &dyn Queue<&str> = &q;
    /// q.add("a").expect("open");
    /// assert_eq!(q.len(), 1);
    /// ```
    fn add(&self, key: K) -> Result<Added, AddError<K, V>>;
    /// [`WorkQueue::get`]
    ///
    /// ```
    /// use requeue::{Queue, WorkQueue};
    /// let q = WorkQueue::new();
    /// let q: &dyn Queue<&str> = &q;
    /// q.add("a").expect("open");
    /// assert_eq!(q.get().wait().map(|item| *item.key()), Some("a"));
    /// ```
    fn get(&self) -> Get<'_, K, V>;
    /// [`WorkQueue::done`]
    ///
    /// # Errors
    ///
    /// See [`WorkQueue::done`].
    ///
    /// ```
    /// use requeue::{Queue, WorkQueue};
    /// let q = WorkQueue::new();
    /// let q: &dyn Queue<&str> = &q;
    /// assert!(q.done(&"a").is_err(), "nobody holds it");
    /// ```
    fn done(&self, key: &K) -> Result<(), NotHeld>;
    /// [`WorkQueue::len`]
    ///
    /// ```
    /// use requeue::{Queue, WorkQueue};
    /// let q = WorkQueue::new();
    /// let q: &dyn Queue<&str> = &q;
    /// assert_eq!(q.len(), 0);
    /// ```
    fn len(&self) -> usize;
    /// [`WorkQueue::shutting_down`]
    ///
    /// ```
    /// use requeue::{Queue, WorkQueue};
    /// let q = WorkQueue::new();
    /// let q: &dyn Queue<&str> = &q;
    /// assert!(!q.shutting_down());
    /// ```
    fn shutting_down(&self) -> bool;
    /// [`WorkQueue::shut_down`]
    ///
    /// ```
    /// use requeue::{Queue, WorkQueue};
    /// let q = WorkQueue::new();
    /// let q: &dyn Queue<&str> = &q;
    /// q.add("a").expect("open");
    /// assert_eq!(q.shut_down().ready, 1);
    /// ```
    fn shut_down(&self) -> ShutDown;
    /// [`WorkQueue::drain`]
    ///
    /// ```
    /// use requeue::{DrainOptions, Queue, WorkQueue};
    /// let q = WorkQueue::new();
    /// let q: &dyn Queue<&str> = &q;
    /// assert!(q.drain(DrainOptions::default()).wait().complete);
    /// ```
    fn drain(&self, options: DrainOptions) -> Drain<'_, K, V>;
}

/// The delaying queue: the FIFO queue and `add_after`.
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
#[doc(alias("DelayingInterface", "TypedDelayingInterface"))]
pub trait DelayingQueue<K, V = ()>: Queue<K, V> {
    /// [`WorkQueue::add_after`]
    ///
    /// # Errors
    ///
    /// See [`WorkQueue::add_after`].
    ///
    /// ```
    /// use requeue::{Added, DelayingQueue, WorkQueue};
    /// use std::time::Duration;
    /// let q = WorkQueue::new();
    /// let q: &dyn DelayingQueue<&str> = &q;
    /// assert_eq!(q.add_after("a", Duration::from_secs(60)).expect("open"), Added::Waiting);
    /// ```
    fn add_after(&self, key: K, delay: Duration) -> Result<Added, AddError<K, V>>;
}

/// The rate-limiting queue: the delaying queue and `add_rate_limited`, `forget` and `num_requeues`.
///
/// ```
/// use requeue::{Queue, RateLimitingQueue, WorkQueue};
/// use std::sync::Arc;
/// let q: Arc<dyn RateLimitingQueue<String>> = Arc::new(WorkQueue::new());
/// q.add_rate_limited("x".to_string()).expect("open");
/// assert_eq!(q.num_requeues(&"x".to_string()), 1);
/// let fifo: &dyn Queue<String> = &*q;
/// ```
#[doc(alias("RateLimitingInterface", "TypedRateLimitingInterface"))]
pub trait RateLimitingQueue<K, V = ()>: DelayingQueue<K, V> {
    /// [`WorkQueue::add_rate_limited`]
    ///
    /// # Errors
    ///
    /// See [`WorkQueue::add_rate_limited`].
    ///
    /// ```
    /// use requeue::{RateLimitingQueue, WorkQueue};
    /// let q = WorkQueue::new();
    /// let q: &dyn RateLimitingQueue<&str> = &q;
    /// q.add_rate_limited("a").expect("open");
    /// assert_eq!(q.num_requeues(&"a"), 1);
    /// ```
    fn add_rate_limited(&self, key: K) -> Result<Duration, AddError<K, V>>;
    /// [`WorkQueue::forget`]
    ///
    /// ```
    /// use requeue::{RateLimitingQueue, WorkQueue};
    /// let q = WorkQueue::new();
    /// let q: &dyn RateLimitingQueue<&str> = &q;
    /// q.add_rate_limited("a").expect("open");
    /// q.forget(&"a");
    /// assert_eq!(q.num_requeues(&"a"), 0);
    /// ```
    fn forget(&self, key: &K);
    /// [`WorkQueue::num_requeues`]
    ///
    /// ```
    /// use requeue::{RateLimitingQueue, WorkQueue};
    /// let q = WorkQueue::new();
    /// let q: &dyn RateLimitingQueue<&str> = &q;
    /// q.add_rate_limited("a").expect("open");
    /// q.add_rate_limited("a").expect("open");
    /// assert_eq!(q.num_requeues(&"a"), 2);
    /// ```
    fn num_requeues(&self, key: &K) -> u32;
}

mod sealed {
    pub trait Sealed {}
    impl<K, V, S> Sealed for crate::queue::WorkQueue<K, V, S> {}
}

impl<K: Hash + Eq + Send + Sync, V: Send, S: BuildHasher + Send + Sync> Queue<K, V> for WorkQueue<K, V, S> {
    forward! { self => *self;
        fn add(&self, key: K) -> Result<Added, AddError<K, V>>;
        fn get(&self) -> Get<'_, K, V>;
        fn done(&self, key: &K) -> Result<(), NotHeld>;
        fn len(&self) -> usize;
        fn shutting_down(&self) -> bool;
        fn shut_down(&self) -> ShutDown;
        fn drain(&self, options: DrainOptions) -> Drain<'_, K, V>;
    }
}

impl<K, V, S> DelayingQueue<K, V> for WorkQueue<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send,
    S: BuildHasher + Send + Sync,
{
    forward! { self => *self; fn add_after(&self, key: K, delay: Duration) -> Result<Added, AddError<K, V>>; }
}

impl<K, V, S> RateLimitingQueue<K, V> for WorkQueue<K, V, S>
where
    K: Hash + Eq + Send + Sync,
    V: Send,
    S: BuildHasher + Send + Sync,
{
    forward! { self => *self;
        fn add_rate_limited(&self, key: K) -> Result<Duration, AddError<K, V>>;
        fn forget(&self, key: &K);
        fn num_requeues(&self, key: &K) -> u32;
    }
}
