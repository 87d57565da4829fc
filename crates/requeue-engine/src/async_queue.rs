//! [`AsyncQueue`]: the adding side of a queue, in memory or an engine's.

use crate::{AddFailed, Op};
use requeue::{Add, Added, WorkQueue};
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// The adding side of a queue, in memory or an engine's.
///
/// ```
/// # use requeue::WorkQueue;
/// # use requeue_engine::{AsyncQueue, EngineError};
/// # use std::time::Duration;
/// async fn feed(q: &impl AsyncQueue<String>) -> Result<(), EngineError> {
///     q.add("a".into()).await?;
///     q.add_after("b".into(), Duration::from_secs(1)).await?;
///     Ok(())
/// }
/// smol::block_on(feed(&WorkQueue::new()))?; // in tests; in production an engine's queue
/// # Ok::<(), EngineError>(())
/// ```
pub trait AsyncQueue<K, V = ()> {
    /// Asks for a run of the key. When this has succeeded the trigger is as safe as the queue keeps it: an
    /// engine's survives the process.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// # use requeue_engine::AsyncQueue;
    /// # use std::time::Duration;
    /// # let q = WorkQueue::<u32>::new();
    /// AsyncQueue::add(&q, 7).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn add(&self, key: K) -> Op<Added, AddFailed<K, V>>;

    /// Asks for a run of the key after a delay.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// # use requeue_engine::AsyncQueue;
    /// # use std::time::Duration;
    /// # let q = WorkQueue::<u32>::new();
    /// AsyncQueue::add_after(&q, 7, Duration::from_secs(1)).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn add_after(&self, key: K, delay: Duration) -> Op<Added, AddFailed<K, V>>;

    /// Asks for a run of the key with the options of `how`.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// # use requeue_engine::AsyncQueue;
    /// # use std::time::Duration;
    /// # let q = WorkQueue::<u32>::new();
    /// AsyncQueue::add_with(&q, 7, Add::after(Duration::from_secs(1))).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn add_with(&self, key: K, how: Add<V>) -> Op<Added, AddFailed<K, V>>;
}

impl<K: Hash + Eq, V, S: BuildHasher> AsyncQueue<K, V> for WorkQueue<K, V, S> {
    fn add(&self, key: K) -> Op<Added, AddFailed<K, V>> {
        Self::add(self, key).map_err(AddFailed::from).into()
    }

    fn add_after(&self, key: K, delay: Duration) -> Op<Added, AddFailed<K, V>> {
        Self::add_after(self, key, delay).map_err(AddFailed::from).into()
    }

    fn add_with(&self, key: K, how: Add<V>) -> Op<Added, AddFailed<K, V>> {
        Self::add_with(self, key, how).map_err(AddFailed::from).into()
    }
}
