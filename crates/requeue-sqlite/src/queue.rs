//! [`SqliteStore`]: the part of a queue of a file that is not common to all engines.

use crate::answer::Writing;
use crate::key;
use crate::open::IsOpen;
use crate::rows::{MergeBytes, TriggerRow};
use crate::run_ledger::RunLedger;
use crate::schedule::Rule;
use requeue::{AddError, Added, Cancelled, Refused, Scope, Source, WorkQueue};
use requeue_engine::{
    AddFailed, Adding, Answer, AwaitsRuns, DurableQueue, EngineError, Key, Op, Store, StoredTrigger, Trigger,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A handle to a queue of a file: a [`DurableQueue`], with the calls of [`SqliteStore`].
///
/// When the last handle is dropped the queue accepts nothing more; workers finish the ready keys, and waiting keys stay
/// in the file. The end of a run is written within 10 ms, or when [`written`](SqliteStore::written) has ended.
///
/// ```
/// # use requeue_sqlite::Sqlite;
/// # let dir = tempfile::tempdir()?;
/// let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
/// q.add(4711).wait()?; // it is on the disk
/// assert_eq!(q.in_memory().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Queue<K, V = ()> = DurableQueue<SqliteStore<K, V>>;

/// A queue of a file, as its [handle](Queue) has it: the calls that other engines do not have.
///
/// ```
/// # use requeue_sqlite::{Queue, Sqlite};
/// # let dir = tempfile::tempdir()?;
/// let q: Queue<u64> = Sqlite::open(dir.path().join("a.db"))?.queue("orders").open()?;
/// assert!(q.pause().wait()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SqliteStore<K: Key, V = ()> {
    inner: Arc<Inner<K, V>>,
}

impl<K: Key, V> Drop for SqliteStore<K, V> {
    /// Shuts the queue down at once, and closes the file if nothing else has it open, also while the thread that writes
    /// has the queue for a moment.
    fn drop(&mut self) {
        self.inner.front.shut_down();
        self.inner.ledger.closes();
    }
}

impl<K: Key, V> fmt::Debug for SqliteStore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("front", &self.inner.front).finish_non_exhaustive()
    }
}

/// The queue in memory, which the thread that writes borrows to give it a key.
pub(crate) struct Inner<K: Key, V> {
    pub(crate) front: WorkQueue<K, V>,
    pub(crate) ledger: Arc<RunLedger<K>>,
    pub(crate) merge: Option<Arc<MergeBytes>>,
    pub(crate) _is_open: IsOpen,
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> Store for SqliteStore<K, V> {
    type Key = K;
    type Value = V;
    type Cancelled = Cancelled<V>;

    fn in_memory(&self) -> &WorkQueue<K, V> {
        &self.inner.front
    }

    fn add(self: &Arc<Self>, mut trigger: Trigger<K, V>) -> Adding<Self> {
        let Inner { front, ledger, merge, .. } = &*self.inner;
        let Trigger { options: StoredTrigger { delay, priority, .. }, value, every, teller, key } =
            &mut trigger;
        let says_nothing = delay.is_none() && *priority == 0 && value.is_none() && every.is_none();
        if says_nothing && front.front().joins(front, key, teller) {
            // A trigger that is on the disk has made it so, and its row stays until a run has ended that begins
            // after this.
            return Ok(Added::Coalesced).into();
        }
        let encoded = match value.as_ref().map(key::encode).transpose() {
            Ok(encoded) => encoded.zip(merge.clone()),
            Err(error) => return Err(trigger.failed(error)).into(),
        };
        let row = TriggerRow {
            queue: ledger.queue,
            key: key.to_bytes().into(),
            ticket: 0,
            at: (ledger.clocks.wall)(),
            delay: delay.filter(|delay| !delay.is_zero()),
            priority: *priority,
            value: encoded,
            every: *every,
            absorbs: false,
        };
        let (answer, store) = (Arc::new(Answer::default()), self.clone());
        let tells = answer.clone();
        ledger.writer.push(row, |ticket| {
            Box::new(move |written| {
                tells.tell(match written {
                    Err(error) => Err(trigger.failed(error)),
                    Ok(()) => store.inner.apply(trigger, ticket, None),
                });
            })
        });
        Op::of(Writing::new(answer, ledger.writer.clone()))
    }

    /// If it can't be written, the key is cancelled in this process all the same.
    fn cancel(&self, key: &K) -> Op<Option<Cancelled<V>>> {
        // first: a run that ends now does not come again
        self.inner.ledger.unschedule(key);
        self.when_written(self.inner.front.cancel(key))
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> AwaitsRuns for SqliteStore<K, V> {}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> SqliteStore<K, V> {
    pub(crate) fn new(inner: Arc<Inner<K, V>>) -> Self {
        Self { inner }
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
    /// assert_eq!(q.in_memory().num_requeues(&4711), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget(&self, key: &K) -> Op<()> {
        self.inner.front.forget(key);
        self.written()
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
    /// assert!(q.try_get().is_err() && q.in_memory().paused(requeue::Scope::Queue));
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
    /// assert!(q.resume().wait()? && !q.in_memory().paused(requeue::Scope::Queue));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(&self) -> Op<bool> {
        let resumed = self.inner.front.resume(Scope::Queue);
        self.note_pause(false, resumed)
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
    /// assert!(q.in_memory().len() == 1 && q.ignores().is_some_and(|what| what.contains("priorities")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn ignores(&self) -> Option<&'static str> {
        self.inner.ledger.ignored.told()
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
        self.inner.ledger.writer.with_conn(|conn| conn.bequeath(queue))
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
    /// Gives a written trigger to the queue in memory. A key that comes again is recorded before its first run.
    pub(crate) fn apply(
        &self,
        trigger: Trigger<K, V>,
        ticket: u64,
        rule: Option<Rule>,
    ) -> Result<Added, AddFailed<K, V>> {
        let Trigger { key, value, mut options, every, teller } = trigger;
        let front = &self.front;
        if let Some(every) = every {
            let replaces = self.ledger.runs().set_every(&key, every, rule);
            // the timer of a key that has failed is its retry's
            options.absorbs |= replaces && front.num_requeues(&key) == 0;
        }
        let again = key.clone();
        let applied = catch_unwind(AssertUnwindSafe(|| {
            front.front().apply(front, key, value, options, ticket, teller)
        }));
        match applied {
            Ok(Ok(added)) => Ok(added),
            Ok(Err(AddError { key, value, reason: Refused::ShutDown })) => {
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

#[cfg(test)]
mod tests {
    use crate::file::Sqlite;

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
