//! A handle to a queue of a file.

use crate::answer::Writing;
use crate::key;
use crate::open::IsOpen;
use crate::rows::{MergeBytes, TriggerRow};
use crate::run_ledger::RunLedger;
use crate::schedule::Rule;
use crate::schema::not_applied;
use requeue::{
    Add, Added, Cancelled, Drain, DrainOptions, Get, GetMany, Item, Items, KeyState, NotHeld, Phase, Refused,
    Scope, ShutDown, Snapshot, Source, Stats, TryGetError, WorkQueue,
};
use requeue_engine::{AddFailed, Answer, AsyncQueue, EngineError, Key, LocalQueue, Op, StoredTrigger};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// A handle to a queue of a file. A clone is another one.
///
/// A [`Worker`](requeue::Worker) works for it as for a [`WorkQueue`]: `Worker::of(&q)`. When the last handle
/// is dropped the queue accepts nothing more; workers finish the ready keys, and waiting keys stay in the
/// file.
///
/// ```
/// # use requeue_sqlite::Sqlite;
/// # let dir = tempfile::tempdir()?;
/// let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
/// q.add(4711).wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queue<K: Key, V = ()> {
    inner: Arc<Inner<K, V>>,
    _handle: Arc<Handle<K, V>>,
}

/// State shared by the handles of a queue. Dropping the last one shuts the queue down at once, and closes the file if
/// nothing else has it open, also while the thread that writes has an [`Inner`] for a moment.
struct Handle<K: Key, V>(Arc<Inner<K, V>>);

impl<K: Key, V> Drop for Handle<K, V> {
    fn drop(&mut self) {
        self.0.front.shut_down();
        self.0.ledger.closes();
    }
}

/// The queue in memory, which the thread that writes borrows to give it a key.
pub(crate) struct Inner<K: Key, V> {
    pub(crate) front: WorkQueue<K, V>,
    pub(crate) ledger: Arc<RunLedger<K>>,
    pub(crate) merge: Option<Arc<MergeBytes>>,
    pub(crate) _is_open: IsOpen,
}

impl<K: Key, V> Clone for Queue<K, V> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), _handle: self._handle.clone() }
    }
}

impl<K: Key, V> fmt::Debug for Queue<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("front", &self.inner.front).finish_non_exhaustive()
    }
}

impl<K: Key, V: 'static> Source for Queue<K, V> {
    type Key = K;
    type Value = V;

    fn front(&self) -> LocalQueue<K, V> {
        Source::front(&self.inner.front)
    }
}

impl<K: Key, V> Queue<K, V> {
    pub(crate) fn new(inner: Arc<Inner<K, V>>) -> Self {
        Self { _handle: Arc::new(Handle(inner.clone())), inner }
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> Queue<K, V> {
    /// Asks for a run of the key. When this has succeeded the trigger is on the disk.
    ///
    /// If the key is already ready, or runs again after its run, nothing is written.
    ///
    /// # Errors
    ///
    /// [`AddFailed`], with key and value: nothing has changed ([`EngineError::NotApplied`]: for example a
    /// full disk), it is unknown ([`EngineError::Unknown`]), or the queue is shut down. The handle works
    /// again when the disk does.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(4711).wait()?; // in async code: q.add(4711).await?
    /// assert_eq!(q.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add(&self, key: K) -> Op<Added, AddFailed<K, V>> {
        self.add_with(key, Add::now())
    }

    /// Asks for a run of the key after a delay, by the wall clock: a restart does not begin the delay anew.
    ///
    /// # Errors
    ///
    /// Like [`add`](Self::add).
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add_after(4711, Duration::from_secs(1800)).wait()?;
    /// assert!(q.state(&4711).is_some_and(|state| state.waiting_until.is_some()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_after(&self, key: K, delay: Duration) -> Op<Added, AddFailed<K, V>> {
        self.add_with(key, Add::after(delay))
    }

    /// Asks for a run of the key with the options of `how`: a delay, a value, a priority.
    ///
    /// # Errors
    ///
    /// Like [`add`](Self::add); and options that the file can't store ([`StoredTrigger::of`]) are refused.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// use requeue::Add;
    /// q.add_with(4711, Add::after(Duration::from_secs(1))).wait()?;
    /// assert!(q.add_with(4711, Add::now().priority(7)).wait().is_err()); // this queue has none
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_with(&self, key: K, how: Add<V>) -> Op<Added, AddFailed<K, V>> {
        self.ask(key, how, None)
    }

    /// Asks for a run of the key with the options of `how`, and for another one `every` after each run that
    /// is not retried, whether it succeeded or gave up. This holds over restarts: runs missed without a
    /// process that works become one run. [`cancel`](Self::cancel) ends it, and a further call changes the
    /// interval and replaces the timer that is set for the next run.
    ///
    /// An interval of zero makes the key run all the time.
    ///
    /// # Errors
    ///
    /// Like [`add_with`](Self::add_with).
    ///
    /// ```
    /// # use requeue::Add;
    /// # use requeue_sqlite::Sqlite;
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<String>("jobs").open()?;
    /// q.add_every("report".into(), Duration::from_secs(3600), Add::now()).wait()?;
    /// q.cancel(&"report".into()).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_every(&self, key: K, every: Duration, how: Add<V>) -> Op<Added, AddFailed<K, V>> {
        self.ask(key, how, Some(every))
    }

    fn ask(&self, key: K, how: Add<V>, every: Option<Duration>) -> Op<Added, AddFailed<K, V>> {
        let asked = match StoredTrigger::of(&how) {
            Ok(asked) => asked,
            Err(why) => {
                let error = not_applied(why.to_owned());
                return Err(AddFailed { key, value: how.into_value(), error }).into();
            }
        };
        let Inner { front, ledger, merge, .. } = &*self.inner;
        if Source::front(front).refuses(asked.priority).is_some() {
            // so that it counts as refused: no queue opens again
            return front.add_with(key, how).map_err(AddFailed::from).into();
        }
        let value = how.into_value();
        let says_nothing = asked.delay.is_none() && asked.priority == 0 && value.is_none() && every.is_none();
        if says_nothing && Source::front(front).joins(front, &key) {
            // A trigger that is on the disk has made it so, and its row stays until a run has ended that begins
            // after this.
            return Ok(Added::Coalesced).into();
        }
        let encoded = match value.as_ref().map(key::encode).transpose() {
            Ok(encoded) => encoded.zip(merge.clone()),
            Err(error) => return Err(AddFailed { key, value, error }).into(),
        };
        let row = TriggerRow {
            queue: ledger.queue,
            key: key.to_bytes().into(),
            ticket: 0,
            at: (ledger.clocks.wall)(),
            delay: asked.delay.filter(|delay| !delay.is_zero()),
            priority: asked.priority,
            value: encoded,
            every,
            absorbs: false,
        };
        let (answer, handle) = (Arc::new(Answer::default()), self.clone());
        let tells = answer.clone();
        ledger.writer.push(row, |ticket| {
            Box::new(move |written| {
                let applied = match written {
                    Err(error) => Err(AddFailed { key, value, error }),
                    Ok(()) => handle.inner.apply_every(key, value, asked, ticket, every, None),
                };
                tells.tell(applied);
            })
        });
        Op::of(Writing::new(answer, ledger.writer.clone()))
    }

    /// Cancels everything that asks for a run of the key: it is no longer ready or waiting, its value is
    /// taken, and a current run has no successor. Returns what was there, like [`WorkQueue::cancel`]. When
    /// this has succeeded that is on the disk.
    ///
    /// # Errors
    ///
    /// If that could not be written ([`EngineError::Unknown`]): it is cancelled in this process; if the
    /// process dies before the disk works again, the key runs when the file is opened again.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders to close").open()?;
    /// q.add_after(4711, Duration::from_secs(1800)).wait()?;
    /// assert!(q.cancel(&4711).wait()?.is_some()); // it is paid
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self, key: &K) -> Op<Option<Cancelled<V>>> {
        // first: a run that ends now does not come again
        self.inner.ledger.unschedule(key);
        self.when_written(self.inner.front.cancel(key))
    }

    /// [`cancel`](Self::cancel) and [`forget`](Self::forget) in one.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel).
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(4711).wait()?;
    /// q.try_get()?.retry().expect("the queue is open");
    /// q.cancel_and_forget(&4711).wait()?;
    /// assert!(q.state(&4711).is_none() && q.num_requeues(&4711) == 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_and_forget(&self, key: &K) -> Op<Option<Cancelled<V>>> {
        self.inner.ledger.unschedule(key);
        self.inner.front.forget(key);
        self.when_written(self.inner.front.cancel(key))
    }

    /// Waits for the next key, like [`WorkQueue::get`].
    ///
    /// The guard ends the run in memory, and the end is written like that of a worker's run: within 10 ms, or
    /// when [`written`](Self::written) has ended. A guard that is dropped without an outcome puts its key
    /// back as a failure. A key released by [`detach`](requeue::Item::detach) runs again if the process dies
    /// before [`done`](Self::done).
    ///
    /// # Cancel safety
    ///
    /// A key is taken only in the poll that returns it.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(4711).wait()?;
    /// let item = q.get().wait().expect("the queue is open"); // in async code: q.get().await
    /// assert_eq!(*item.key(), 4711);
    /// item.succeed();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self) -> Get<'_, K, V> {
        self.inner.front.get()
    }

    /// Blocks until there is a key: [`WorkQueue::get_blocking`]. `None` if the queue is shut down and worked off.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(4711).wait()?;
    /// assert!(q.get_blocking().is_some_and(|item| *item.key() == 4711));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "dropping the item puts its key back; `None` means that the queue is shut down and worked off"]
    pub fn get_blocking(&self) -> Option<Item<'_, K, V>> {
        self.inner.front.get_blocking()
    }

    /// Takes a key if one is ready: [`WorkQueue::try_get`].
    ///
    /// # Errors
    ///
    /// See [`WorkQueue::try_get`].
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// assert!(q.try_get().is_err()); // nothing is ready
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_get(&self) -> Result<Item<'_, K, V>, TryGetError> {
        self.inner.front.try_get()
    }

    /// Waits for up to `most` keys at once: [`WorkQueue::get_many`].
    ///
    /// # Cancel safety
    ///
    /// Keys are taken only in the poll that returns them.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// for key in [1, 2, 3] {
    ///     q.add(key).wait()?;
    /// }
    /// assert_eq!(q.get_many(8).wait().map(|items| items.len()), Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many(&self, most: usize) -> GetMany<'_, K, V> {
        self.inner.front.get_many(most)
    }

    /// Takes up to `most` of the ready keys: [`WorkQueue::try_get_many`].
    ///
    /// # Errors
    ///
    /// See [`WorkQueue::try_get_many`].
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// assert!(q.try_get_many(8).is_err()); // nothing is ready
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_get_many(&self, most: usize) -> Result<Items<'_, K, V>, TryGetError> {
        self.inner.front.try_get_many(most)
    }

    /// Ends the run of a key: [`WorkQueue::done`].
    ///
    /// # Errors
    ///
    /// [`NotHeld`]: nobody has the key.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(4711).wait()?;
    /// let (key, _value) = q.try_get()?.detach();
    /// q.done(&key)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn done(&self, key: &K) -> Result<(), NotHeld> {
        self.inner.front.done(key)
    }

    /// Waits until all changes before the call are on the disk: the ends of runs.
    ///
    /// # Errors
    ///
    /// If they could not be written ([`EngineError::Unknown`]). They are kept, and written later.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(4711).wait()?;
    /// q.try_get()?.succeed();
    /// q.written().wait()?; // the run is not repeated whatever happens now
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn written(&self) -> Op<()> {
        self.when_written(())
    }

    /// Forgets the failures of a key: [`WorkQueue::forget`]. When this has ended that is on the disk.
    ///
    /// # Errors
    ///
    /// Like [`written`](Self::written).
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(4711).wait()?;
    /// q.try_get()?.retry().expect("the queue is open");
    /// q.forget(&4711).wait()?;
    /// assert_eq!(q.num_requeues(&4711), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget(&self, key: &K) -> Op<()> {
        self.inner.front.forget(key);
        self.written()
    }

    /// Hands nothing out from now on, in this process and in those that open the file later:
    /// [`WorkQueue::pause`]. True if it was not paused. When this has succeeded that is on the disk.
    ///
    /// # Errors
    ///
    /// Like [`written`](Self::written).
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(4711).wait()?;
    /// assert!(q.pause().wait()?);
    /// assert!(q.try_get().is_err() && q.is_paused());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self) -> Op<bool> {
        let paused = self.inner.front.pause(Scope::Queue);
        self.note_pause(true, paused)
    }

    /// Hands keys out again: [`WorkQueue::resume`]. True if it was paused. When this has succeeded that is on
    /// the disk.
    ///
    /// # Errors
    ///
    /// Like [`written`](Self::written).
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.pause().wait()?;
    /// assert!(q.resume().wait()? && !q.is_paused());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(&self) -> Op<bool> {
        let resumed = self.inner.front.resume(Scope::Queue);
        self.note_pause(false, resumed)
    }

    /// Whether it is [paused](Self::pause).
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// assert!(!q.is_paused());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.inner.front.paused(Scope::Queue)
    }

    /// Options that other processes have asked for and this queue does not support: keys with priorities or
    /// values run without them. `None` if all were supported.
    ///
    /// ```
    /// # use requeue_sqlite::{Client, Sqlite};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.db");
    /// Client::open(&path)?.add_many("orders", &["a".to_owned()], None, 7)?;
    /// let q = Sqlite::open(&path)?.queue::<String>("orders").open()?;
    /// assert!(q.len() == 1 && q.ignores().is_some_and(|what| what.contains("priorities")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn ignores(&self) -> Option<&'static str> {
        self.inner.ledger.ignored.told()
    }

    /// The queue in memory that hands the keys out: to inspect, shut down and drain. Keys added by its own
    /// methods are not in the file.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(4711).wait()?;
    /// assert_eq!(q.in_memory().stats().ready, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn in_memory(&self) -> &WorkQueue<K, V> {
        &self.inner.front
    }

    /// Number of ready keys.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(1).wait()?;
    /// assert!(q.len() == 1 && !q.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.front.len()
    }

    /// Whether no key is ready.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// assert!(q.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.front.is_empty()
    }

    /// Number of the key's failed runs since the last successful one.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// assert_eq!(q.num_requeues(&4711), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn num_requeues(&self, key: &K) -> u32 {
        self.inner.front.num_requeues(key)
    }

    /// State of the key.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(4711).wait()?;
    /// assert!(q.state(&4711).is_some_and(|state| state.ready));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn state(&self, key: &K) -> Option<KeyState> {
        self.inner.front.state(key)
    }

    /// Numbers of ready, held, dirty and waiting keys.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(4711).wait()?;
    /// assert_eq!(q.stats().ready, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.front.stats()
    }

    /// The known keys, in pages: [`WorkQueue::snapshot`].
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add(4711).wait()?;
    /// let page = q.snapshot().next().expect("a first page");
    /// assert_eq!(page.keys[0].0, 4711);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot<'_, K, V> {
        self.inner.front.snapshot()
    }

    /// Progress of the shutdown: [`WorkQueue::phase`].
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// assert_eq!(q.phase(), requeue::Phase::Open);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.inner.front.phase()
    }

    /// Whether adds are refused: [`WorkQueue::shutting_down`].
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// assert!(!q.shutting_down());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn shutting_down(&self) -> bool {
        self.inner.front.shutting_down()
    }

    /// Refuses adds, and goes on with the known keys: [`WorkQueue::close`].
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.close();
    /// assert!(q.add(4711).wait().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.inner.front.close();
    }

    /// Shuts the queue down, and hands out the ready keys: [`WorkQueue::shut_down`]. Waiting keys are dropped
    /// from memory, and stay in the file with their due times.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// q.add_after(4711, std::time::Duration::from_secs(1800)).wait()?;
    /// assert_eq!(q.shut_down().dropped, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shut_down(&self) -> ShutDown {
        self.inner.front.shut_down()
    }

    /// A further lock on the queue, which child processes may inherit. If this process dies, no process can
    /// work on the queue until each process that has this lock has closed it or ended.
    ///
    /// A program that starts children passes it to a process that ends them if the program is killed. The
    /// next process that opens the queue waits for that: a second, or as long as the recorded process number
    /// is unused.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor left.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// let file = Sqlite::open(dir.path().join("a.db"))?;
    /// let q = file.queue::<u64>("orders").open()?;
    /// let lock = q.lock()?;
    /// drop(q);
    /// assert!(file.queue::<u64>("orders").open().is_err());
    /// drop(lock);
    /// assert!(file.queue::<u64>("orders").open().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(unix)]
    pub fn lock(&self) -> std::io::Result<std::os::fd::OwnedFd> {
        let queue = self.inner.ledger.queue;
        self.inner.ledger.writer.with_store(|store| store.bequeath(queue))
    }

    /// Shuts down and waits for the end of all runs: [`WorkQueue::drain`]. Waiting keys stay in the file.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// use requeue::DrainOptions;
    /// assert!(q.drain(DrainOptions::default()).wait().complete);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self, options: impl Into<DrainOptions>) -> Drain<'_, K, V> {
        self.inner.front.drain(options)
    }

    /// Answers `so` when the disk has all that is recorded by now.
    fn when_written<T: Send + 'static>(&self, so: T) -> Op<T> {
        let writer = &self.inner.ledger.writer;
        let answer = Arc::new(Answer::default());
        let tells = answer.clone();
        writer.push_wait(Box::new(move |written: Result<(), EngineError>| {
            tells.tell(written.map(|()| so).map_err(|e| match e {
                EngineError::NotApplied(why) | EngineError::Unknown(why) => EngineError::Unknown(why),
                e => EngineError::Unknown(e.into()),
            }));
        }));
        Op::of(Writing::new(answer, writer.clone()))
    }

    fn note_pause(&self, paused: bool, so: bool) -> Op<bool> {
        let RunLedger { writer, queue, .. } = &*self.inner.ledger;
        writer.push_pause(*queue, paused);
        self.when_written(so)
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> Inner<K, V> {
    /// Like [`apply`](Self::apply), for a key that may come again after each run: recorded before its first
    /// run.
    pub(crate) fn apply_every(
        &self,
        key: K,
        value: Option<V>,
        mut asked: StoredTrigger,
        ticket: u64,
        every: Option<Duration>,
        rule: Option<Rule>,
    ) -> Result<Added, AddFailed<K, V>> {
        if let Some(every) = every {
            let replaces = self.ledger.runs().set_every(&key, every, rule);
            // the timer of a key that has failed is its retry's
            asked.absorbs |= replaces && self.front.num_requeues(&key) == 0;
        }
        self.apply(key, value, asked, ticket)
    }

    /// Gives a written trigger to the queue in memory.
    pub(crate) fn apply(
        &self,
        key: K,
        value: Option<V>,
        asked: StoredTrigger,
        ticket: u64,
    ) -> Result<Added, AddFailed<K, V>> {
        let front = &self.front;
        let again = key.clone();
        let applied =
            catch_unwind(AssertUnwindSafe(|| Source::front(front).apply(front, key, value, asked, ticket)));
        match applied {
            Ok(Ok(added)) => Ok(added),
            Ok(Err(requeue::AddError { key, value, reason: Refused::ShutDown })) => {
                let why = "the queue was shut down as it was written: it runs when the file is opened again, or not";
                Err(AddFailed { key, value, error: EngineError::Unknown(why.into()) })
            }
            Ok(Err(refused)) => Err(refused.into()),
            Err(_) => {
                let why = "Hash, Eq or merge panicked: it is in the file, and runs when that is opened again";
                Err(AddFailed { key: again, value: None, error: EngineError::Unknown(why.into()) })
            }
        }
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> AsyncQueue<K, V> for Queue<K, V> {
    fn add(&self, key: K) -> Op<Added, AddFailed<K, V>> {
        Self::add(self, key)
    }
    fn add_after(&self, key: K, delay: Duration) -> Op<Added, AddFailed<K, V>> {
        Self::add_after(self, key, delay)
    }
    fn add_with(&self, key: K, how: Add<V>) -> Op<Added, AddFailed<K, V>> {
        Self::add_with(self, key, how)
    }
}

#[cfg(test)]
mod tests {
    use crate::Sqlite;

    #[test]
    fn q10_the_last_handle_shuts_down_while_the_thread_that_writes_has_the_queue() {
        let dir = tempfile::tempdir().unwrap();
        let q = Sqlite::open(dir.path().join("q.db")).unwrap().queue::<u64>("orders").open().unwrap();
        let written = q.inner.clone();
        drop(q.clone());
        assert!(!written.front.shutting_down(), "a handle is left");
        drop(q);
        assert!(written.front.shutting_down());
    }
}
