//! [`DurableQueue`]: the handle to a queue of any engine.

use crate::{
    AddFailed, Adding, AsyncQueue, AwaitsRuns, EngineError, LocalQueue, Op, RunTeller, Store, StoredTrigger,
    Trigger,
};
use requeue::{
    Add, AwaitedRun, Drain, DrainOptions, Get, GetError, GetMany, Item, Items, NotHeld, ShutDown, Source,
    WorkQueue,
};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A handle to a queue that a [`Store`] keeps. A clone is another handle.
///
/// Each engine has a name for its own: `requeue_sqlite::Queue`, `requeue_postgres::Queue`. The handle dereferences to
/// the store, which has the calls of that engine alone. A [`Worker`](requeue::Worker) works for it as for a
/// [`WorkQueue`]: `Worker::of(&q)`.
///
/// When the last handle is dropped, the queue is shut down in this process. The store keeps what is left for the next
/// one.
///
/// ```
/// # use requeue::WorkQueue;
/// # use requeue_engine::DurableQueue;
/// let q = DurableQueue::new(WorkQueue::<u64>::new()); // in tests; an engine's builder opens a durable one
/// q.add(4711).wait()?; // in async code: q.add(4711).await?
/// assert_eq!(q.in_memory().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DurableQueue<S> {
    store: Arc<S>,
}

impl<S> Clone for DurableQueue<S> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone() }
    }
}

impl<S> Deref for DurableQueue<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.store
    }
}

impl<S: Store> Source for DurableQueue<S> {
    type Key = S::Key;
    type Value = S::Value;

    fn front(&self) -> LocalQueue<S::Key, S::Value> {
        self.in_memory().front()
    }
}

impl<S: Store> DurableQueue<S> {
    /// The first handle to the queue of a store. For engines.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_engine::DurableQueue;
    /// let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// ```
    pub fn new(store: S) -> Self {
        Self { store: Arc::new(store) }
    }

    /// Asks for a run of the key. When this has succeeded the trigger is durable. If the key is already ready, or runs
    /// again after its run, nothing is written.
    ///
    /// # Errors
    ///
    /// [`AddFailed`], with key and value: nothing has changed ([`EngineError::NotApplied`]: for example a full disk),
    /// it is unknown ([`EngineError::Unknown`]), or the queue is shut down. The handle works again when the store does.
    ///
    /// # Cancel safety
    ///
    /// The call has begun when this returns; if it is dropped, it continues.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_engine::DurableQueue;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// q.add(4711).wait()?; // in async code: q.add(4711).await?
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add(&self, key: S::Key) -> Adding<S> {
        self.add_with(key, Add::now())
    }

    /// Asks for a run of the key after a delay, by the store's clock: a restart does not begin the delay anew. Of
    /// several such triggers the earliest counts.
    ///
    /// # Errors
    ///
    /// Like [`add`](Self::add).
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_engine::DurableQueue;
    /// # use std::time::Duration;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// q.add_after(4711, Duration::from_secs(1800)).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_after(&self, key: S::Key, delay: Duration) -> Adding<S> {
        self.add_with(key, Add::after(delay))
    }

    /// Asks for a run of the key with the options of `how`: a delay, a value, a priority.
    ///
    /// # Errors
    ///
    /// Like [`add`](Self::add); and options that a store can't keep ([`StoredTrigger::of`]) are refused.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// # use requeue_engine::DurableQueue;
    /// # use std::time::Duration;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// q.add_with(4711, Add::after(Duration::from_secs(1))).wait()?;
    /// assert!(q.add_with(4711, Add::now().priority(7)).wait().is_err()); // this queue has none
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_with(&self, key: S::Key, how: Add<S::Value>) -> Adding<S> {
        self.trigger(key, how, None, None)
    }

    /// Asks for a run of the key with the options of `how`, and for another one `every` after each run that is not
    /// retried, whether it succeeded or gave up. This holds over restarts: runs missed without a process that works
    /// become one run. [`cancel`](Self::cancel) ends it, and a further call changes the interval and replaces the timer
    /// that is set for the next run.
    ///
    /// An interval of zero makes the key run all the time.
    ///
    /// # Errors
    ///
    /// Like [`add_with`](Self::add_with).
    ///
    /// ```
    /// # use requeue::Add;
    /// # use requeue_engine::{DurableQueue, EngineError, Store};
    /// # use std::time::Duration;
    /// async fn report_hourly(q: &DurableQueue<impl Store<Key = String>>) -> Result<(), EngineError> {
    ///     q.add_every("report".into(), Duration::from_secs(3600), Add::now()).await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn add_every(&self, key: S::Key, every: Duration, how: Add<S::Value>) -> Adding<S> {
        self.trigger(key, how, Some(every), None)
    }

    fn trigger(
        &self,
        key: S::Key,
        how: Add<S::Value>,
        every: Option<Duration>,
        teller: Option<RunTeller>,
    ) -> Adding<S> {
        let options = match self.store.refusal() {
            Some(error) => Err(error),
            None => StoredTrigger::of(&how).map_err(|why| EngineError::NotApplied(why.into())),
        };
        let options = match options {
            Ok(options) => options,
            Err(error) => return Err(AddFailed { key, value: how.into_value(), error }).into(),
        };
        let queue = self.in_memory();
        if queue.front().refuses(options.priority).is_some() {
            // the queue in memory refuses it for good, and counts that
            return queue.add_with(key, how).map_err(AddFailed::from).into();
        }
        self.store.add(Trigger { key, value: how.into_value(), options, every, teller })
    }

    /// Cancels everything that asks for a run of the key: it is no longer ready or waiting, its value is taken, it does
    /// not [come again](Self::add_every), and a current run has no successor. When this has succeeded that is durable.
    /// `None` if there was nothing.
    ///
    /// # Errors
    ///
    /// If the store can't be written: the key may run once more.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_engine::DurableQueue;
    /// # use std::time::Duration;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// q.add_after(4711, Duration::from_secs(1800)).wait()?;
    /// assert!(q.cancel(&4711).wait()?.is_some()); // it is paid
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self, key: &S::Key) -> Op<Option<S::Cancelled>> {
        Store::cancel(&*self.store, key)
    }

    /// Waits for the next key, like [`WorkQueue::get`].
    ///
    /// The guard ends the run in memory, and the end is written like that of a worker's run. A guard that is dropped
    /// without an outcome puts its key back as a failure. A key released by [`detach`](requeue::Item::detach) runs again
    /// if the process dies before [`done`](Self::done).
    ///
    /// # Cancel safety
    ///
    /// A key is taken only in the poll that returns it.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_engine::DurableQueue;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// q.add(4711).wait()?;
    /// let item = q.get().wait().expect("the queue is open"); // in async code: q.get().await
    /// assert_eq!(*item.key(), 4711);
    /// item.succeed();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self) -> Get<'_, S::Key, S::Value> {
        self.in_memory().get()
    }

    /// Blocks until there is a key: [`WorkQueue::get_blocking`]. `None` if the queue is shut down and worked off.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_engine::DurableQueue;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// q.add(4711).wait()?;
    /// assert!(q.get_blocking().is_some_and(|item| *item.key() == 4711));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "dropping the item puts its key back; `None` means that the queue is shut down and worked off"]
    pub fn get_blocking(&self) -> Option<Item<'_, S::Key, S::Value>> {
        self.in_memory().get_blocking()
    }

    /// Takes a key if one is ready in this process: [`WorkQueue::try_get`].
    ///
    /// # Errors
    ///
    /// See [`WorkQueue::try_get`].
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_engine::DurableQueue;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// assert!(q.try_get().is_err()); // nothing is ready
    /// ```
    pub fn try_get(&self) -> Result<Item<'_, S::Key, S::Value>, GetError> {
        self.in_memory().try_get()
    }

    /// Waits for up to `most` keys at once: [`WorkQueue::get_many`].
    ///
    /// # Cancel safety
    ///
    /// Keys are taken only in the poll that returns them.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_engine::DurableQueue;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// for key in [1, 2, 3] {
    ///     q.add(key).wait()?;
    /// }
    /// assert_eq!(q.get_many(8).wait().map(|items| items.len()), Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many(&self, most: usize) -> GetMany<'_, S::Key, S::Value> {
        self.in_memory().get_many(most)
    }

    /// Takes up to `most` keys that are ready in this process: [`WorkQueue::try_get_many`].
    ///
    /// # Errors
    ///
    /// See [`WorkQueue::try_get_many`].
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_engine::DurableQueue;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// assert!(q.try_get_many(8).is_err()); // nothing is ready
    /// ```
    pub fn try_get_many(&self, most: usize) -> Result<Items<'_, S::Key, S::Value>, GetError> {
        self.in_memory().try_get_many(most)
    }

    /// Ends the run of a key that has no guard: [`WorkQueue::done`].
    ///
    /// # Errors
    ///
    /// [`NotHeld`]: the key is not held in this process.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_engine::DurableQueue;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// q.add(4711).wait()?;
    /// let (key, _value) = q.try_get()?.detach();
    /// q.done(&key)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn done(&self, key: &S::Key) -> Result<(), NotHeld> {
        self.in_memory().done(key)
    }

    /// The queue in memory that hands the keys out: to look at it. It has all keys of a file, and those keys of a server
    /// that this process has claimed. Keys added by its own methods are not in the store.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_engine::DurableQueue;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// q.add(4711).wait()?;
    /// assert!(q.in_memory().state(&4711).is_some_and(|state| state.ready));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn in_memory(&self) -> &WorkQueue<S::Key, S::Value> {
        Store::in_memory(&*self.store)
    }

    /// Shuts the queue down in this process, and hands out the keys that are ready in it: [`WorkQueue::shut_down`]. All
    /// others stay in the store, waiting ones with their due times.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use requeue_engine::DurableQueue;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// q.add_after(4711, std::time::Duration::from_secs(1800)).wait()?;
    /// assert_eq!(q.shut_down().dropped, 1); // from memory
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shut_down(&self) -> ShutDown {
        let report = self.in_memory().shut_down();
        self.store.on_shut_down();
        report
    }

    /// Like [`shut_down`](Self::shut_down), and waits for the end of this process's runs: [`WorkQueue::drain`].
    ///
    /// ```
    /// # use requeue::{DrainOptions, WorkQueue};
    /// # use requeue_engine::DurableQueue;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// assert!(q.drain(DrainOptions::default()).wait().complete);
    /// ```
    pub fn drain(&self, options: impl Into<DrainOptions>) -> Drain<'_, S::Key, S::Value> {
        let drain = self.in_memory().drain(options);
        self.store.on_shut_down();
        drain
    }
}

impl<S: AwaitsRuns> DurableQueue<S> {
    /// Asks for a run of the key like [`add_with`](Self::add_with). Once the trigger is durable, returns the
    /// run, to be awaited: see [`WorkQueue::await_run`].
    ///
    /// When the awaited run has ended, its end may not be stored yet: if the process dies then, the key may
    /// run again.
    ///
    /// # Errors
    ///
    /// Like [`add_with`](Self::add_with).
    ///
    /// ```
    /// # use requeue::{Add, RunEnd, WorkQueue};
    /// # use requeue_engine::DurableQueue;
    /// # let q = DurableQueue::new(WorkQueue::<u64>::new());
    /// let run = q.await_run(4711, Add::now()).wait()?;
    /// q.try_get()?.succeed(); // in a worker
    /// assert_eq!(run.wait()?, RunEnd::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn await_run(&self, key: S::Key, how: Add<S::Value>) -> Op<AwaitedRun, AddFailed<S::Key, S::Value>> {
        let (teller, run) = RunTeller::pair();
        self.trigger(key, how, None, Some(teller)).map(|_| run)
    }
}

impl<S: Store> AsyncQueue<S::Key, S::Value> for DurableQueue<S> {
    fn add(&self, key: S::Key) -> Adding<S> {
        Self::add(self, key)
    }
    fn add_after(&self, key: S::Key, delay: Duration) -> Adding<S> {
        Self::add_after(self, key, delay)
    }
    fn add_with(&self, key: S::Key, how: Add<S::Value>) -> Adding<S> {
        Self::add_with(self, key, how)
    }
}
