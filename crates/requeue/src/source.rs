//! [`Source`]: a source of keys for workers.

use crate::hold::Shared;
use crate::queue::WorkQueue;
use std::sync::Arc;

/// A source of keys for a [`Worker`](crate::Worker): a [`WorkQueue`], or the queue of an engine.
///
/// ```
/// # use requeue::{Run, Source, WorkQueue, Worker};
/// fn print_all(queue: &impl Source<Key = String, Value = ()>) -> Worker {
///     Worker::of(queue).start_threads(|run: Run<String>| println!("{}", run.key())).expect("threads")
/// }
/// let worker = print_all(&WorkQueue::new());
/// # worker.stop(std::time::Duration::MAX).wait();
/// ```
pub trait Source {
    /// Type of its keys.
    type Key: 'static;
    /// Type of its values.
    type Value: 'static;

    /// The queue that hands the keys out.
    ///
    /// ```
    /// # use requeue::{Source, WorkQueue};
    /// let front = WorkQueue::<u32>::new().front();
    /// ```
    fn front(&self) -> LocalQueue<Self::Key, Self::Value>;
}

impl<K: 'static, V: 'static, S> Source for WorkQueue<K, V, S> {
    type Key = K;
    type Value = V;

    fn front(&self) -> LocalQueue<K, V> {
        LocalQueue { shared: self.shared.clone() }
    }
}

impl<Q: Source + ?Sized> Source for Arc<Q> {
    type Key = Q::Key;
    type Value = Q::Value;

    fn front(&self) -> LocalQueue<Q::Key, Q::Value> {
        (**self).front()
    }
}

/// Access to a queue for workers and engines. It is no handle: it does not keep the queue open.
///
/// ```
/// # use requeue::{Source, WorkQueue};
/// let front = WorkQueue::<u32>::new().front();
/// assert!(front.refuses(0).is_some()); // the queue's last handle is gone, and it is shut down
/// ```
pub struct LocalQueue<K, V> {
    pub(crate) shared: Arc<Shared<K, V>>,
}

impl<K, V> Clone for LocalQueue<K, V> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

debug!([K, V] LocalQueue<K, V>, |front| { name: front.shared.name, .. });
