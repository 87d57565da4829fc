//! [`Store`]: the part of a durable queue that each engine writes for itself.

use crate::{AddFailed, EngineError, Key, Op, RunTeller, StoredTrigger};
use requeue::{Added, Cancelled, Source, WorkQueue};
use std::sync::Arc;
use std::time::Duration;

/// A place that keeps the keys of one queue, behind a [`DurableQueue`](crate::DurableQueue).
///
/// The trait has what differs from engine to engine; the calls that they share are the handle's. Calls that only one
/// engine has are methods of its store, to which the handle dereferences.
///
/// The last handle drops the store. The queue in memory must be shut down then: an engine whose threads have it too
/// shuts it down in the store's `Drop`. Those threads must not own the store.
///
/// A [`WorkQueue`] is a store too, which keeps nothing when the process ends: for tests of code that takes any engine.
///
/// ```
/// use requeue::{Cancelled, Source, WorkQueue};
/// use requeue_engine::{AddFailed, Adding, DurableQueue, Op, Store, Trigger};
/// use std::sync::{Arc, Mutex};
///
/// /// Writes its keys into a list.
/// struct InList {
///     in_memory: WorkQueue<u32>,
///     list: Mutex<Vec<u32>>,
/// }
///
/// impl Store for InList {
///     type Key = u32;
///     type Value = ();
///     type Cancelled = Cancelled;
///
///     fn in_memory(&self) -> &WorkQueue<u32> {
///         &self.in_memory
///     }
///     fn add(self: &Arc<Self>, trigger: Trigger<u32, ()>) -> Adding<Self> {
///         self.list.lock().unwrap().push(trigger.key); // first it is written
///         let Trigger { key, options, teller, .. } = trigger;
///         let front = self.in_memory.front();
///         front.apply(&self.in_memory, key, None, options, 1, teller).map_err(AddFailed::from).into()
///     }
///     fn cancel(&self, key: &u32) -> Op<Option<Cancelled>> {
///         self.list.lock().unwrap().retain(|it| it != key);
///         Ok(self.in_memory.cancel(key)).into()
///     }
/// }
///
/// let q = DurableQueue::new(InList { in_memory: WorkQueue::new(), list: Mutex::default() });
/// q.add(4711).wait()?;
/// assert_eq!(*q.list.lock().unwrap(), [4711]);
/// assert!(q.cancel(&4711).wait()?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Store: Send + Sync + Sized + 'static {
    /// Type of the keys.
    type Key: Key;
    /// Type of the values.
    type Value: Send + 'static;
    /// Answer to a cancel that found something: `()` if the store says no more than that.
    type Cancelled: Send + 'static;

    /// The queue in memory that hands the keys out.
    ///
    /// ```
    /// # use requeue_engine::Store;
    /// fn ready<S: Store>(store: &S) -> usize {
    ///     store.in_memory().len()
    /// }
    /// ```
    fn in_memory(&self) -> &WorkQueue<Self::Key, Self::Value>;

    /// Writes a trigger. A clone of the reference keeps the queue open meanwhile.
    ///
    /// ```
    /// # use requeue_engine::{Adding, EngineError, Store, Trigger};
    /// // of a store that is full
    /// fn add<S: Store>(trigger: Trigger<S::Key, S::Value>) -> Adding<S> {
    ///     Err(trigger.failed(EngineError::NotApplied("it is full".into()))).into()
    /// }
    /// ```
    fn add(self: &Arc<Self>, trigger: Trigger<Self::Key, Self::Value>) -> Adding<Self>;

    /// Cancels everything that asks for a run of the key. `None` if there was nothing.
    ///
    /// ```
    /// # use requeue_engine::{Op, Store};
    /// fn cancel<S: Store>(store: &S, key: &S::Key) -> Op<Option<S::Cancelled>> {
    ///     store.cancel(key)
    /// }
    /// ```
    fn cancel(&self, key: &Self::Key) -> Op<Option<Self::Cancelled>>;

    /// The reason why the store accepts no trigger of this process any more. `None` by default.
    ///
    /// ```
    /// # use requeue_engine::Store;
    /// fn accepts(store: &impl Store) -> bool {
    ///     store.refusal().is_none()
    /// }
    /// ```
    fn refusal(&self) -> Option<EngineError> {
        None
    }

    /// Called after the handle has shut the queue in memory down. Does nothing by default.
    ///
    /// ```
    /// # use requeue_engine::Store;
    /// fn shut_down(store: &impl Store) {
    ///     store.in_memory().shut_down();
    ///     store.on_shut_down();
    /// }
    /// ```
    fn on_shut_down(&self) {}
}

/// A store whose keys all run in this process, so that a caller can [await](crate::DurableQueue::await_run) a run: its
/// [`add`](Store::add) hands the trigger's [`teller`](Trigger::teller) to the queue in memory.
///
/// ```
/// # use requeue::Add;
/// # use requeue_engine::{AwaitsRuns, DurableQueue};
/// async fn load(q: &DurableQueue<impl AwaitsRuns<Key = u64>>) -> Result<(), Box<dyn std::error::Error>> {
///     q.await_run(4711, Add::now()).await?.await?;
///     Ok(())
/// }
/// ```
pub trait AwaitsRuns: Store {}

/// A call that writes a trigger into the store `S`.
///
/// ```
/// # use requeue::Added;
/// # use requeue_engine::{Adding, Store};
/// fn known<S: Store>() -> Adding<S> {
///     Ok(Added::Coalesced).into()
/// }
/// ```
pub type Adding<S> = Op<Added, AddFailed<<S as Store>::Key, <S as Store>::Value>>;

/// A trigger to be written, with options that a store can keep.
///
/// ```
/// # use requeue_engine::Trigger;
/// fn is_delayed(trigger: &Trigger<u32, String>) -> bool {
///     trigger.options.delay.is_some()
/// }
/// ```
#[derive(Debug)]
pub struct Trigger<K, V> {
    /// The key.
    pub key: K,
    /// The value, if there is one.
    pub value: Option<V>,
    /// Delay and priority.
    pub options: StoredTrigger,
    /// The key comes again so long after each run.
    pub every: Option<Duration>,
    /// Is told how the run ends: for the queue in memory. `None` in a store that is not [`AwaitsRuns`].
    pub teller: Option<RunTeller>,
}

impl<K, V> Trigger<K, V> {
    /// The answer to a trigger that failed.
    ///
    /// ```
    /// # use requeue_engine::{AddFailed, EngineError, Trigger};
    /// fn refuse(trigger: Trigger<u32, ()>) -> AddFailed<u32> {
    ///     trigger.failed(EngineError::ShutDown)
    /// }
    /// ```
    pub fn failed(self, error: EngineError) -> AddFailed<K, V> {
        AddFailed { key: self.key, value: self.value, error }
    }
}

impl<K: Key, V: Send + 'static> Store for WorkQueue<K, V> {
    type Key = K;
    type Value = V;
    type Cancelled = Cancelled<V>;

    fn in_memory(&self) -> &WorkQueue<K, V> {
        self
    }

    fn add(self: &Arc<Self>, trigger: Trigger<K, V>) -> Adding<Self> {
        if trigger.every.is_some() {
            let why = "a queue in memory does not add keys again: call `again` at the end of each run";
            return Err(trigger.failed(EngineError::NotApplied(why.into()))).into();
        }
        let Trigger { key, value, options, teller, .. } = trigger;
        self.front().apply(self, key, value, options, 0, teller).map_err(AddFailed::from).into()
    }

    fn cancel(&self, key: &K) -> Op<Option<Cancelled<V>>> {
        Ok(Self::cancel(self, key)).into()
    }
}

impl<K: Key, V: Send + 'static> AwaitsRuns for WorkQueue<K, V> {}
