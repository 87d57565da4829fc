//! [`Sqlite`] and [`Queue`]: a file and its queues.

use crate::answer::Writing;
use crate::key;
use crate::letters::Letter;
use crate::lock;
use crate::rows::{Clocks, EndRow, Image, MergeBytes, Place, Stored, TriggerRow, Wall, micros, wall};
use crate::schedule::{RULES, Rule};
use crate::store::{Claimed, Store};
use crate::writer::{Intake, Obeyed, Told, Writer};
use requeue::engine::{Answer, Asked, Front, Journal, Key, Known, Source};
use requeue::limiter::{Exponential, RateLimiter};
use requeue::{
    Add, AddFailed, Added, AsyncQueue, Builder, Cancelled, Clock, Drain, DrainOptions, EngineError, Fence,
    Get, GetMany, Instant, Item, Items, KeyState, NotHeld, Op, Phase, Refused, Restore, ShutDown, Snapshot,
    Stats, TryGetError, Unfinished, WorkQueue,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
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

struct OpenFile {
    path: PathBuf,
    writer: Arc<Writer>,
    open: OpenQueues,
}

/// The open queues of a file, by name.
#[derive(Default)]
struct OpenQueues {
    names: Mutex<Vec<String>>,
    /// Notified when one of them was closed.
    closed: Condvar,
}

impl OpenQueues {
    /// Records an open queue. If it is still open it waits a while: the committer and stopped workers may be
    /// about to release it. False if it stays open.
    fn insert(&self, name: &str) -> bool {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |names: &mut Vec<String>| names.iter().any(|open| open == name);
        let waited = self.closed.wait_timeout_while(names, lock::LETS_GO, is_open);
        let (mut names, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if !waited.timed_out() {
            names.push(name.to_owned());
        }
        !waited.timed_out()
    }

    fn remove(&self, name: &str) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).retain(|open| open != name);
        self.closed.notify_all();
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.file.path).finish_non_exhaustive()
    }
}

fn not_applied(why: String) -> EngineError {
    EngineError::NotApplied(why.into())
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
        let writer = Writer::start(path, Store::open(path)?);
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
        self.file.writer.with_store(|store| store.commits)
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
        self.file.writer.with_store(|store| store.limit_pages(pages)).unwrap_or(0)
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

/// Time in microseconds after which a run is shown to others.
const SHOWN_AFTER: Wall = 40_000;

/// The time of day.
type WallClock = Arc<dyn Fn() -> Wall + Send + Sync>;

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
        let front = front.name(name).unfinished(Unfinished::Retry);
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
        let mut is_open = IsOpen { file: file.clone(), name, number: None };
        let front = customize.into_iter().fold(front, |front, change| change(front));
        let writer = file.file.writer.clone();
        let (number, fence) = claim(&file.file.path, &writer, &is_open.name, merge.as_ref())?;
        is_open.number = Some(number);
        let pen = Arc::new(Pen {
            writer: writer.clone(),
            queue: number,
            applied: AtomicU64::new(0),
            fences: AtomicU64::new(fence),
            clocks: Arc::new(BothClocks { queue: OnceLock::new(), wall: wall.clone() }),
            runs: Mutex::default(),
            ignored: Ignored::default(),
            inner: OnceLock::new(),
        });
        let front = front.journal(pen.clone()).build().map_err(|e| not_applied(e.to_string()))?;
        drop(pen.clocks.queue.set(Source::front(&front).clock()));
        let inner = Arc::new(Inner { front, pen, merge, _is_open: is_open });
        let intake: Weak<Inner<K, V>> = Arc::downgrade(&inner);
        drop(inner.pen.inner.set(intake.clone()));
        let mut dead = Vec::new();
        writer.take_in(number, intake, |store| inner.restore(store, &mut dead))?;
        for (key, why) in dead {
            writer.push_dead((number, key.into()), why);
        }
        Ok(Queue { inner })
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
        let pid = match writer.with_store(|store| store.claim(name, merge))? {
            Claimed::Ours(number, fence) => return Ok((number, fence)),
            Claimed::By(pid) => pid,
        };
        // Threads of a worker that was stopped may be about to let go of it, and a process that was killed may have left a lock
        // to one that ends its programs.
        if begun.elapsed() >= lock::LETS_GO && !pid.is_some_and(lock::has_ended) {
            let who = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
            let why = format!("{who} works on it, and one process at a time can");
            return Err(not_applied(format!("{}: queue {name:?}: {why}", path.display())));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> Inner<K, V> {
    /// Restores the file's keys in the queue in memory. Keys that fail are recorded in `dead`, with the
    /// reason.
    fn restore(&self, store: &mut Store, dead: &mut Vec<(Vec<u8>, String)>) -> Result<u64, EngineError> {
        let (number, clocks) = (self.pen.queue, &self.pen.clocks);
        let (now, wall_now) = (clocks.now(), clocks.wall());
        let last = store.read(number, |stored| {
            let bytes = stored.key.clone();
            match self.restore_key(stored, now, wall_now) {
                Err(EngineError::Codec(why)) => dead.push((bytes, why.to_string())),
                restored => restored?,
            }
            Ok(())
        })?;
        for (key, every, rule) in store.schedule(number)? {
            let Ok(key) = K::from_bytes(key) else { continue };
            let known = self.front.state(&key);
            let due = known.as_ref().and_then(|known| known.waiting_until);
            let due = due.map_or(wall_now, |due| wall_now.saturating_add(micros(clocks.until(due))));
            self.pen.runs().set_every(&key, every, Rule::stored(rule.as_deref(), due));
            if known.is_none_or(|known| !known.ready && known.waiting_until.is_none()) {
                // its last run ended, and the process before the next was noted
                let next = self.pen.runs().next(&key, wall_now, wall_now).filter(|_| rule.is_some());
                self.pen.comes_again(&key, next);
            }
        }
        if store.is_paused(number)? {
            self.front.pause();
        }
        Ok(last)
    }

    fn restore_key(&self, stored: Stored, now: Instant, wall_now: Wall) -> Result<(), EngineError> {
        let Stored { key, ready, due, delay, failures, attempt, priority, value } = stored;
        let key = K::from_bytes(key).map_err(EngineError::Codec)?;
        let value = match (value, &self.merge) {
            (Some(_), None) => {
                self.pen.ignored.note(Ignored::VALUES);
                None
            }
            (value, _) => value.map(|value| key::decode(&value)).transpose()?,
        };
        let priority = self.taken(priority);
        let front = &self.front;
        let restored = |key, value: Option<V>| {
            let known = Restore::new(key).failures(failures).attempt(attempt).priority(priority);
            value.into_iter().fold(known, Restore::value)
        };
        // never longer than it was to wait in all, also if the clock was set back
        let left = due.map(|due| due.saturating_sub(wall_now).clamp(0, delay.unwrap_or(i64::MAX)));
        let due = left.map(|left| now + Duration::from_micros(left.unsigned_abs()));
        let refused = |e: requeue::AddError<K, V>| not_applied(e.reason.to_string());
        match (ready, due) {
            (true, None) => _ = front.restore(restored(key, value)).map_err(refused)?,
            (false, Some(due)) => {
                _ = front.restore(restored(key, value).due(due)).map_err(refused)?;
            }
            (true, Some(due)) => {
                front.restore(restored(key.clone(), value)).map_err(refused)?;
                front.add_with(key, Add::at(due).priority(priority)).map_err(refused)?;
            }
            // only failures are known of it
            (false, None) => {
                front.restore(restored(key.clone(), value)).map_err(refused)?;
                drop(front.cancel(&key));
            }
        }
        Ok(())
    }

    /// The priority for this queue: 0 if it has no priorities.
    fn taken(&self, priority: i16) -> i16 {
        if priority != 0 && Source::front(&self.front).refuses(priority) == Some(Refused::NoPriorities) {
            self.pen.ignored.note(Ignored::PRIORITIES);
            return 0;
        }
        priority
    }
}

/// Options of other processes' requests that this queue does not support: the keys run without them.
#[derive(Default)]
struct Ignored(AtomicU8);

impl Ignored {
    const PRIORITIES: u8 = 1;
    const VALUES: u8 = 2;

    fn note(&self, what: u8) {
        self.0.fetch_or(what, Relaxed);
    }
}

/// Marks the queue with this name as open while it exists.
struct IsOpen {
    file: Sqlite,
    name: String,
    /// Once this process works on it.
    number: Option<i64>,
}

impl Drop for IsOpen {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.file.file.writer.leave(number);
        }
        self.file.file.open.remove(&self.name);
    }
}

/// The ledger of runs: receives the ends of runs from the queue in memory, on their way to the file.
struct Pen<K: Key, V> {
    writer: Arc<Writer>,
    queue: i64,
    /// The last trigger in the queue in memory. Accessed under that queue's lock.
    applied: AtomicU64,
    /// The last fence.
    fences: AtomicU64,
    clocks: Arc<BothClocks>,
    runs: Mutex<Runs<K>>,
    ignored: Ignored,
    /// Set before the queue is worked on.
    inner: OnceLock<Weak<Inner<K, V>>>,
}

/// State of runs before they end.
struct Runs<K> {
    /// Reasons of runs that are about to give up.
    giving_up: HashMap<K, String>,
    /// Keys that come again: the interval after each run, or the schedule.
    every: HashMap<K, Duration>,
    rules: HashMap<K, Rule>,
    /// Running keys, and since when.
    begun: HashMap<K, Begun>,
    /// Keys whose runs are shown to others, and have ended.
    over: Vec<K>,
}

impl<K> Default for Runs<K> {
    fn default() -> Self {
        Self {
            giving_up: HashMap::new(),
            every: HashMap::new(),
            rules: HashMap::new(),
            begun: HashMap::new(),
            over: Vec::new(),
        }
    }
}

impl<K: Key> Runs<K> {
    /// Sets when the key comes again: the interval after each run, or the schedule.
    fn set_every(&mut self, key: &K, every: Duration, rule: Option<Rule>) {
        self.every.insert(key.clone(), every);
        match rule {
            Some(rule) => self.rules.insert(key.clone(), rule),
            None => self.rules.remove(key),
        };
    }

    /// Time until the key comes again, if its run began at `began`; `None` if it does not.
    fn next(&mut self, key: &K, began: Wall, now: Wall) -> Option<Duration> {
        match self.rules.get_mut(key) {
            Some(rule) => rule.next(began, now),
            None => self.every.get(key).copied().filter(|every| micros(*every) < RULES),
        }
    }
}

/// A current run.
struct Begun {
    at: Wall,
    /// Whether it is shown to others.
    is_shown: bool,
}

struct BothClocks {
    /// Set before the queue is worked on.
    queue: OnceLock<Arc<dyn Clock>>,
    wall: WallClock,
}

impl BothClocks {
    fn now(&self) -> Instant {
        self.queue.get().map_or(Instant::ORIGIN, Clock::now)
    }
}

impl Clocks for BothClocks {
    fn wall(&self) -> Wall {
        (self.wall)()
    }

    fn until(&self, due: Instant) -> Duration {
        due.saturating_since(self.now())
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> Pen<K, V> {
    fn runs(&self) -> MutexGuard<'_, Runs<K>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, key: &K) -> Place {
        (self.queue, key.to_bytes().into())
    }

    /// Records that a key comes again after each run. The transaction with the end of its run has it too.
    fn comes_again(&self, key: &K, every: Option<Duration>) {
        let every = every.filter(|every| !every.is_zero());
        let row = TriggerRow {
            queue: self.queue,
            key: key.to_bytes().into(),
            ticket: 0,
            at: (self.clocks.wall)(),
            delay: every,
            priority: 0,
            value: None,
            every: None,
        };
        let (inner, key, asked) =
            (self.inner.get().cloned(), key.clone(), Asked { delay: every, priority: 0 });
        self.writer.push(row, |ticket| {
            Box::new(move |written| {
                // where the queue is closed by now the file has it
                if let (Ok(()), Some(inner)) = (written, inner.and_then(|inner| inner.upgrade())) {
                    drop(Queue { inner }.apply(key, None, asked, ticket));
                }
            })
        });
    }

    /// Records that the key no longer comes again after its runs. False if it did not.
    fn unschedule(&self, key: &K) -> bool {
        let mut runs = self.runs();
        let known = runs.every.remove(key).is_some();
        runs.rules.remove(key);
        drop(runs);
        if known {
            self.writer.push_unscheduled(self.place(key));
        }
        known
    }
}

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> Journal<K, V> for Pen<K, V> {
    fn changed(&self, key: &K, known: Option<Known<'_, V>>) {
        // of a key that is held it tells in the middle of its run
        let held = known.as_ref().is_some_and(|known| known.held);
        let mut runs = self.runs();
        let dead = if held { None } else { runs.giving_up.remove(key) };
        let begun = if held { None } else { runs.begun.remove(key) };
        if begun.as_ref().is_some_and(|begun| begun.is_shown) {
            runs.over.push(key.clone());
        }
        // One that failed comes again by its back-off, and one that is ready runs first.
        let is_over = !held && known.as_ref().is_none_or(|known| known.failures == 0 && !known.ready);
        let now = (self.clocks.wall)();
        let next = if is_over { runs.next(key, begun.map_or(now, |begun| begun.at), now) } else { None };
        drop(runs);
        let image = known.map(|Known { ready, held, due, failures, attempt, priority, value, .. }| {
            // what can't be written can't have been added
            let value = value.and_then(|value| key::encode(value).ok());
            Image { ord: 0, ready, held, due, failures, attempt, priority, value }
        });
        let applied = self.applied.load(Relaxed);
        self.writer.push_end(self.place(key), |ord| EndRow {
            image: image.map(|image| Image { ord, ..image }),
            dead,
            applied,
            clocks: self.clocks.clone(),
        });
        if next.is_some() {
            self.comes_again(key, next);
        }
    }

    fn applied(&self, ticket: u64) {
        self.applied.store(ticket, Relaxed);
    }

    fn gives_up(&self, key: &K, why: &dyn fmt::Display) {
        self.runs().giving_up.insert(key.clone(), why.to_string());
    }

    fn fence(&self, key: &K) -> Fence {
        let begun = Begun { at: (self.clocks.wall)(), is_shown: false };
        let mut runs = self.runs();
        let is_first = runs.begun.is_empty();
        runs.begun.insert(key.clone(), begun);
        drop(runs);
        if is_first {
            self.writer.shows_soon();
        }
        Fence(self.fences.fetch_add(1, Relaxed) + 1)
    }
}

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
}

struct Inner<K: Key, V> {
    front: WorkQueue<K, V>,
    pen: Arc<Pen<K, V>>,
    merge: Option<Arc<MergeBytes>>,
    _is_open: IsOpen,
}

impl<K: Key, V> Clone for Queue<K, V> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
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

    fn front(&self) -> Front<K, V> {
        Source::front(&self.inner.front)
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
    /// Like [`add`](Self::add); and options that the file can't store ([`Asked::of`]) are refused.
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
    pub fn add_with(&self, key: K, how: impl Into<Add<V>>) -> Op<Added, AddFailed<K, V>> {
        self.ask(key, how.into(), None)
    }

    /// Asks for a run of the key with the options of `how`, and for another one `every` after each run that
    /// is not retried, whether it succeeded or gave up. This holds over restarts: runs missed without a
    /// process that works become one run. [`cancel`](Self::cancel) ends it, and a further call changes the
    /// interval.
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
    pub fn add_every(&self, key: K, every: Duration, how: impl Into<Add<V>>) -> Op<Added, AddFailed<K, V>> {
        self.ask(key, how.into(), Some(every))
    }

    fn ask(&self, key: K, how: Add<V>, every: Option<Duration>) -> Op<Added, AddFailed<K, V>> {
        let asked = match Asked::of(&how) {
            Ok(asked) => asked,
            Err(why) => {
                let error = not_applied(why.to_owned());
                return Err(AddFailed { key, value: how.into_value(), error }).into();
            }
        };
        let Inner { front, pen, merge, .. } = &*self.inner;
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
            queue: pen.queue,
            key: key.to_bytes().into(),
            ticket: 0,
            at: (pen.clocks.wall)(),
            delay: asked.delay.filter(|delay| !delay.is_zero()),
            priority: asked.priority,
            value: encoded,
            every,
        };
        let (answer, queue) = (Arc::new(Answer::default()), self.clone());
        let tells = answer.clone();
        pen.writer.push(row, |ticket| {
            Box::new(move |written| {
                let applied = match written {
                    Err(error) => Err(AddFailed { key, value, error }),
                    Ok(()) => queue.apply_every(key, value, asked, ticket, every, None),
                };
                tells.tell(applied);
            })
        });
        Op::of(Writing::new(answer, pen.writer.clone()))
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
        self.inner.pen.unschedule(key);
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
        self.inner.pen.unschedule(key);
        self.when_written(self.inner.front.cancel_and_forget(key))
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
    #[must_use = "dropping the item puts its key back; None says that the queue is worked off"]
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
        let paused = self.inner.front.pause();
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
        let resumed = self.inner.front.resume();
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
        self.inner.front.is_paused()
    }

    /// Options that other processes have asked for and this queue does not support: keys with priorities or
    /// values run without them. `None` if all were supported.
    ///
    /// ```
    /// # use requeue_sqlite::{Client, Sqlite};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("a.db");
    /// Client::open(&path)?.add_with_priority("orders", &"a".to_owned(), None, 7)?;
    /// let q = Sqlite::open(&path)?.queue::<String>("orders").open()?;
    /// assert!(q.len() == 1 && q.ignores().is_some_and(|what| what.contains("priorities")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn ignores(&self) -> Option<&'static str> {
        match self.inner.pen.ignored.0.load(Relaxed) {
            0 => None,
            Ignored::PRIORITIES => Some("priorities"),
            Ignored::VALUES => Some("values"),
            _ => Some("priorities and values"),
        }
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
        let queue = self.inner.pen.queue;
        self.inner.pen.writer.with_store(|store| store.bequeath(queue))
    }

    /// Shuts down and waits for the end of all runs: [`WorkQueue::shut_down_with_drain`]. Waiting keys stay
    /// in the file.
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// assert!(q.shut_down_with_drain().wait().complete);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shut_down_with_drain(&self) -> Drain<'_, K, V> {
        self.inner.front.shut_down_with_drain()
    }

    /// Shuts down with options for waiting keys and a deadline: [`WorkQueue::shut_down_with`].
    ///
    /// ```
    /// # use requeue_sqlite::Sqlite;
    /// # let dir = tempfile::tempdir()?;
    /// # let q = Sqlite::open(dir.path().join("a.db"))?.queue::<u64>("orders").open()?;
    /// use requeue::DrainOptions;
    /// let now = DrainOptions::default().timeout(std::time::Duration::ZERO);
    /// assert!(q.shut_down_with(now).wait().complete);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shut_down_with(&self, options: DrainOptions) -> Drain<'_, K, V> {
        self.inner.front.shut_down_with(options)
    }

    /// Answers `so` when the disk has all that is recorded by now.
    fn when_written<T: Send + 'static>(&self, so: T) -> Op<T> {
        let writer = &self.inner.pen.writer;
        let answer = Arc::new(Answer::default());
        let tells = answer.clone();
        writer.push_wait(Box::new(move |written: Result<(), EngineError>| {
            tells.tell(written.map(|()| so).map_err(|e| EngineError::Unknown(e.into())));
        }));
        Op::of(Writing::new(answer, writer.clone()))
    }

    fn note_pause(&self, paused: bool, so: bool) -> Op<bool> {
        let Pen { writer, queue, .. } = &*self.inner.pen;
        writer.push_pause(*queue, paused);
        self.when_written(so)
    }

    /// Like [`apply`](Self::apply), for a key that may come again after each run: recorded before its first
    /// run.
    fn apply_every(
        &self,
        key: K,
        value: Option<V>,
        asked: Asked,
        ticket: u64,
        every: Option<Duration>,
        rule: Option<Rule>,
    ) -> Result<Added, AddFailed<K, V>> {
        if let Some(every) = every {
            self.inner.pen.runs().set_every(&key, every, rule);
        }
        self.apply(key, value, asked, ticket)
    }

    /// Gives a written trigger to the queue in memory.
    fn apply(&self, key: K, value: Option<V>, asked: Asked, ticket: u64) -> Result<Added, AddFailed<K, V>> {
        let front = &self.inner.front;
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

impl<K: Key, V: Serialize + DeserializeOwned + Send + 'static> Intake for Inner<K, V> {
    fn trigger(self: Arc<Self>, letter: &Letter, ticket: u64) -> Result<(TriggerRow, Told), EngineError> {
        let Letter { at, key, delay, priority, every, value, .. } = letter;
        let known = K::from_bytes(key.clone()).map_err(EngineError::Codec)?;
        let priority = self.taken(*priority);
        match Source::front(&self.front).refuses(priority) {
            None => {}
            Some(Refused::ShutDown) => return Err(EngineError::ShutDown),
            Some(reason) => return Err(not_applied(reason.to_string())),
        }
        let value = match (value, &self.merge) {
            (Some(_), None) => {
                self.pen.ignored.note(Ignored::VALUES);
                None
            }
            (value, _) => value.as_deref().map(key::decode).transpose()?,
        };
        let row = letter.trigger(ticket, self.merge.as_ref());
        // it has waited in the file for a while
        let since = (self.pen.clocks.wall)().saturating_sub(*at);
        let waited = Duration::from_micros(u64::try_from(since).unwrap_or(0));
        let delay = delay.map(|delay| delay.saturating_sub(waited)).filter(|left| !left.is_zero());
        let asked = Asked { delay, priority };
        let due = (*at).saturating_add(letter.delay.map_or(0, micros));
        let (rule, every) = (Rule::stored(letter.rule.as_deref(), due), *every);
        let queue = Queue { inner: self };
        let told = move |written: Result<(), EngineError>| {
            if written.is_ok() {
                drop(queue.apply_every(known, value, asked, ticket, every, rule));
            }
        };
        Ok((row, Box::new(told)))
    }

    fn join(&self, first: &mut Letter, later: &Letter) -> bool {
        let value = match (&first.value, &later.value, &self.merge) {
            (Some(older), Some(newer), Some(merge)) => match merge(older, newer) {
                Ok(merged) => Some(merged),
                Err(_) => return false,
            },
            (older, newer, _) => newer.clone().or_else(|| older.clone()),
        };
        first.value = value;
        first.priority = first.priority.max(later.priority);
        first.every = later.every.or(first.every);
        true
    }

    fn is_shut_down(&self) -> bool {
        self.front.shutting_down()
    }

    fn show_runs(&self, store: &Store) -> bool {
        let (queue, now) = (self.pen.queue, wall());
        let database = store.database();
        let mut runs = self.pen.runs();
        let Runs { begun, over, .. } = &mut *runs;
        for key in over.drain(..) {
            database.hide_run(queue, &key.to_bytes());
        }
        let mut some_are_new = false;
        let mut room = true;
        for (key, Begun { at, is_shown }) in begun.iter_mut().filter(|(_, begun)| !begun.is_shown) {
            if now.saturating_sub(*at) < SHOWN_AFTER {
                some_are_new = true;
            } else if room {
                *is_shown = database.show_run(queue, &key.to_bytes(), *at);
                room = *is_shown;
            }
        }
        some_are_new
    }

    fn lose(&self) {
        self.front.pause();
        Source::front(&self.front).cancel_runs();
    }

    fn obey(&self, letter: &Letter) -> Obeyed {
        let key = || K::from_bytes(letter.key.clone());
        match &*letter.what {
            "cancel" => Obeyed::Answer(match key() {
                Ok(key) => {
                    let was_scheduled = self.pen.unschedule(&key);
                    let cancelled = self.front.cancel(&key).is_some() || was_scheduled;
                    if cancelled { "cancelled" } else { "nothing" }.to_owned()
                }
                Err(e) => e.to_string(),
            }),
            "retry" => match key() {
                Ok(key) => {
                    // its timer goes, so that it does not run once more
                    drop(self.front.cancel(&key));
                    Obeyed::Trigger("ready".to_owned())
                }
                Err(e) => Obeyed::Answer(e.to_string()),
            },
            "pause" => {
                self.front.pause();
                Obeyed::InFile
            }
            "resume" => {
                self.front.resume();
                Obeyed::InFile
            }
            _ => Obeyed::InFile,
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
