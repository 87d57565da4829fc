//! A file, and how its queues are opened.

use crate::key;
use crate::lock;
use crate::open::{IsOpen, OpenFile, OpenQueues};
use crate::queue::{Inner, Queue, SqliteStore};
use crate::rows::{MergeBytes, wall};
use crate::run_ledger::{RunLedger, WallClock};
use crate::runner_conn::{Claimed, RunnerConn};
use crate::schema::not_applied;
use crate::writer::Writer;
use requeue::limiter::{Exponential, RateLimiter};
use requeue::{Builder, Source, WorkQueue};
use requeue_engine::{DurableQueue, EngineError, Key, Trigger, with_journal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A file with queues, some of which this process works on. Each queue has only one such process.
///
/// A clone is another handle to the file.
///
/// ```
/// # use requeue_sqlite::Sqlite;
/// # let dir = tempfile::tempdir()?;
/// let file = Sqlite::open(dir.path().join("a.db"))?;
/// let (orders, mails) = (file.queue::<u64>("orders").open()?, file.queue::<String>("mails").open()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Sqlite {
    file: Arc<OpenFile>,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.file.path).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens a file, or creates it, to work on queues in it. Other processes may work on others.
    ///
    /// Beside it are files whose names end in `-wal` and `-shm`. The first belongs to the data: copy or move
    /// it together with the file, if it exists.
    ///
    /// On a full disk an existing file can still be opened: its keys run, and pending writes are kept as
    /// [`trouble`](Self::trouble) says.
    ///
    /// # Errors
    ///
    /// - [`EngineError::Version`]: a newer version of this crate has made the file;
    /// - a process that uses an older version works on it, or a process has it open by another name (for
    ///   example a hard link);
    /// - the file is not a database, or another program's, or cannot be read and written.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// let file = Sqlite::open(dir.path().join("orders.db"))?;
    /// assert!(Sqlite::open(dir.path()).is_err()); // no file
    /// # drop(file);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, EngineError> {
        let path = path.as_ref();
        let writer = Writer::start(path, RunnerConn::open(path)?);
        let writer = writer.map_err(|e| not_applied(format!("{}: {e}", path.display())))?;
        Ok(Self { file: Arc::new(OpenFile { path: path.to_owned(), writer, open: OpenQueues::default() }) })
    }

    /// A builder for the queue with this name, with keys alone.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// let q = Sqlite::open(dir.path().join("a.db"))?.queue::<String>("orders").open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue<K: Key>(&self, name: &str) -> QueueBuilder<K> {
        QueueBuilder::new(self, name, WorkQueue::merging(|_: &mut (), ()| ()), None)
    }

    /// A builder for the queue with this name, whose triggers may carry values. Values of one key merge, the
    /// older first; the file has them as JSON.
    ///
    /// `merge` is called when the trigger is written, and again in memory. If it panics the trigger is
    /// refused.
    ///
    /// ```
    /// # use requeue::Add;
    /// # use requeue_sqlite::Sqlite;
    /// # use std::collections::BTreeSet;
    /// # let dir = tempfile::tempdir()?;
    /// let file = Sqlite::open(dir.path().join("a.db"))?;
    /// let merge = |old: &mut BTreeSet<String>, new| old.extend(new);
    /// let q = file.queue_with::<String, BTreeSet<String>>("users", merge).open()?;
    /// q.add_with("user:7".into(), Add::now().value(BTreeSet::from(["mail".into()]))).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue_with<K, V>(
        &self,
        name: &str,
        merge: impl Fn(&mut V, V) + Send + Sync + 'static,
    ) -> QueueBuilder<K, V>
    where
        K: Key,
        V: Serialize + DeserializeOwned + Send + 'static,
    {
        let merge = Arc::new(merge);
        let in_memory = merge.clone();
        let bytes: Arc<MergeBytes> = Arc::new(move |older: &[u8], newer: &[u8]| {
            let (mut older, newer) = (key::decode::<V>(older)?, key::decode::<V>(newer)?);
            let merged = catch_unwind(AssertUnwindSafe(|| merge(&mut older, newer)));
            merged.map_err(|_| EngineError::Codec("the function that merges two values panicked".into()))?;
            key::encode(&older)
        });
        QueueBuilder::new(self, name, WorkQueue::merging(move |old, new| in_memory(old, new)), Some(bytes))
    }

    /// Number of transactions committed since the file was opened.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// let file = Sqlite::open(dir.path().join("a.db"))?;
    /// let q = file.queue::<String>("orders").open()?;
    /// q.add("a".into()).wait()?;
    /// let commits = file.commits();
    /// q.add("a".into()).wait()?; // it is ready already
    /// assert_eq!(file.commits(), commits);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.file.writer.with_conn(|conn| conn.commits)
    }

    /// The error of the last transaction, while the file can't be written: for example a full disk. `None` if
    /// it succeeded. Ends of runs are kept meanwhile, and tried again five times a second.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// let file = Sqlite::open(dir.path().join("a.db"))?;
    /// assert_eq!(file.trouble(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.file.writer.trouble()
    }

    /// The reason why this process no longer works on the file: it was removed, renamed or replaced, or
    /// another process has its queues. From then on its queues hand nothing out, current runs are told to
    /// end, triggers are refused, and no end is written. `None` while all is well.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// let file = Sqlite::open(dir.path().join("a.db"))?;
    /// assert_eq!(file.lost(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn lost(&self) -> Option<String> {
        self.file.writer.lost()
    }
}

impl Sqlite {
    /// Limits the number of the file's pages. Returns the previous limit. For tests of a full disk.
    #[doc(hidden)]
    pub fn limit_pages(&self, pages: u32) -> u32 {
        self.file.writer.with_conn(|conn| conn.limit_pages(pages)).unwrap_or(0)
    }
}

type Customize<K, V> = Box<dyn FnOnce(Builder<K, V>) -> Builder<K, V>>;

/// Opens a queue of a file: [`Sqlite::queue`].
///
/// ```
/// # use requeue_sqlite::Sqlite;
/// # let dir = tempfile::tempdir()?;
/// let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until open()"]
pub struct QueueBuilder<K: Key, V = ()> {
    file: Sqlite,
    name: String,
    front: Builder<K, V>,
    customize: Vec<Customize<K, V>>,
    merge: Option<Arc<MergeBytes>>,
    wall: WallClock,
}

impl<K: Key, V> fmt::Debug for QueueBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueBuilder")
            .field("name", &self.name)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> QueueBuilder<K, V> {
    fn new(file: &Sqlite, name: &str, front: Builder<K, V>, merge: Option<Arc<MergeBytes>>) -> Self {
        let first = Duration::from_millis(5);
        let backoff = Exponential::new(first, Duration::from_secs(1000));
        let front = match backoff {
            Ok(backoff) => front.limiter(backoff),
            Err(_) => unreachable!("5 ms is less than 1,000 s"),
        };
        let front = front.name(name).retry_dropped(true);
        Self {
            file: file.clone(),
            name: name.to_owned(),
            front,
            customize: Vec::new(),
            merge,
            wall: Arc::new(wall),
        }
    }

    /// Sets the back-off limiter. By default 5 ms, doubled for each failure in a row, up to 1,000 s. It must
    /// count in the queue, as all limiters of `requeue` do: a user's limiter cannot be given the failures
    /// from the file.
    ///
    /// ```
    /// # use requeue::limiter::Exponential;
    /// # use requeue_sqlite::Sqlite;
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// # let file = Sqlite::open(dir.path().join("a.db"))?;
    /// let backoff = Exponential::new(Duration::from_secs(1), Duration::from_secs(3600))?;
    /// let q = file.queue::<u64>("orders").limiter(backoff).open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn limiter(self, limiter: impl RateLimiter<K> + 'static) -> Self {
        self.front(move |front| front.limiter(limiter))
    }

    /// Changes the builder of the queue in memory: priorities, metrics, groups, another clock. With a bound
    /// [`open`](Self::open) returns an error. Debounces and back-off options apply only in memory: after a
    /// restart a key that was to run is ready.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let file = Sqlite::open(dir.path().join("a.db"))?;
    /// let q = file.queue::<u64>("orders").front(|front| front.priorities()).open()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn front(mut self, change: impl FnOnce(Builder<K, V>) -> Builder<K, V> + 'static) -> Self {
        self.customize.push(Box::new(change));
        self
    }

    /// Sets the time of day, in microseconds since 1970: for tests.
    #[doc(hidden)]
    pub fn wall(self, wall: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self { wall: Arc::new(wall), ..self }
    }

    /// Opens the queue: the file's keys are ready or waiting. A key or a value that is not of this type stays
    /// in the file as dead, with the reason.
    ///
    /// # Errors
    ///
    /// If another process works on the queue; the message has its number (after waiting a second for it to
    /// end). If the queue is already open in this process (after waiting a second for handles and workers to
    /// end). If the settings of [`front`](Self::front) exclude each other, or if the file can't be read.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// let file = Sqlite::open(dir.path().join("a.db"))?;
    /// let q = file.queue::<u64>("orders").open()?;
    /// assert!(file.queue::<u64>("orders").open().is_err()); // it is open
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(self) -> Result<Queue<K, V>, EngineError> {
        let Self { file, name, front, customize, merge, wall } = self;
        if !file.file.open.insert(&name) {
            return Err(not_applied(format!("the queue {name:?} is open in this process")));
        }
        let mut is_open = IsOpen { file: file.file.clone(), name, number: None };
        let front = customize.into_iter().fold(front, |front, change| change(front));
        let writer = file.file.writer.clone();
        let (number, fence) = claim(&file.file.path, &writer, &is_open.name, merge.as_ref())?;
        is_open.number = Some(number);
        let ledger = Arc::new(RunLedger::new(writer.clone(), number, fence, wall));
        let front = with_journal(front, ledger.clone()).build().map_err(|e| not_applied(e.to_string()))?;
        drop(ledger.clocks.queue.set(Source::front(&front).clock()));
        let inner = Arc::new(Inner { front, ledger, merge, _is_open: is_open });
        let intake: Weak<Inner<K, V>> = Arc::downgrade(&inner);
        let applies = intake.clone();
        drop(inner.ledger.applies.set(Arc::new(move |key, options, ticket| {
            // where the queue is closed by now the file has it
            if let Some(inner) = applies.upgrade() {
                drop(inner.apply(
                    Trigger { key, value: None, options, every: None, teller: None },
                    ticket,
                    None,
                ));
            }
        })));
        let mut dead = Vec::new();
        writer.take_in(number, intake, |conn| inner.restore(conn, &mut dead))?;
        for (key, why) in dead {
            writer.push_dead((number, key.into()), why);
        }
        Ok(DurableQueue::new(SqliteStore::new(inner)))
    }
}

/// Makes this process work on the queue. Returns the queue's number, and the fence before its first one.
fn claim(
    path: &Path,
    writer: &Writer,
    name: &str,
    merge: Option<&Arc<MergeBytes>>,
) -> Result<(i64, u64), EngineError> {
    // a queue without values leaves them in the file for one that has them
    let newest: Arc<MergeBytes> = Arc::new(|_: &[u8], newer: &[u8]| Ok(newer.to_vec()));
    let merge = merge.unwrap_or(&newest);
    let begun = std::time::Instant::now();
    loop {
        let (number, pid) = match writer.with_conn(|conn| conn.claim(name, merge))? {
            Claimed::Ours(number, fence) => return Ok((number, fence)),
            Claimed::By(number, pid) => (number, pid),
        };
        // Threads of a worker that was stopped may be about to let go of it, and a process that was killed may have left a lock
        // to one that ends its programs. Only the locks are looked at meanwhile: a claim takes the turn from those who write.
        loop {
            if begun.elapsed() >= lock::LETS_GO && !pid.is_some_and(lock::has_ended) {
                let who = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
                let why = format!("{who} works on it, and one process at a time can");
                return Err(not_applied(format!("{}: queue {name:?}: {why}", path.display())));
            }
            std::thread::sleep(Duration::from_millis(2));
            if writer.with_conn(|conn| conn.is_free(number)) {
                break;
            }
        }
    }
}
