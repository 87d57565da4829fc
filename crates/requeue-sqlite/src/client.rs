//! What other processes than the one that works may do with a file.

use crate::bell;
use crate::lock;
use crate::store::{self, Letter, Store, Wall, duration, micros, wall};
use requeue::EngineError;
use requeue::engine::{Key, Listed, Status};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, TransactionBehavior, params};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// So long a process that works has to answer.
const ANSWERS: Duration = Duration::from_secs(5);

/// A file as a process has it that does not work on it: it adds, lists, cancels, pauses, beside the one that works or
/// while there is none.
///
/// Each call is one transaction of its own, and blocks. The process that works is told of it on Linux, and
/// looks for it 50 times a second on other systems.
///
/// ```
/// use requeue_sqlite::{Client, Sqlite, Status};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("orders.db");
/// let client = Client::open(&path)?;
/// client.add("orders", &"order-4711".to_owned(), None)?; // it is on the disk
/// assert_eq!(client.list("orders")?[0].status, Status::Ready);
///
/// let q = Sqlite::open(&path)?.queue::<String>("orders").open()?; // works it off, now or later
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Client {
    path: PathBuf,
    connection: Connection,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("path", &self.path).finish_non_exhaustive()
    }
}

/// How many keys of a queue do what.
///
/// ```
/// # use requeue_sqlite::{Client, Status};
/// # let dir = tempfile::tempdir()?;
/// let client = Client::open(dir.path().join("a.db"))?;
/// assert_eq!(client.stats("orders")?.ready, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileStats {
    /// In line, or with a worker.
    pub ready: u64,
    /// Waiting for a timer.
    pub waiting: u64,
    /// Given up.
    pub dead: u64,
    /// How long ago the first trigger came of the key that is ready the longest.
    pub oldest_ready: Option<Duration>,
    /// Whether the queue is paused.
    pub paused: bool,
    /// The process that works on the file.
    pub runner: Option<u32>,
}

fn said(e: rusqlite::Error) -> EngineError {
    EngineError::NotApplied(e.into())
}

/// What a transaction has failed with whose end may have been written.
fn unsure(e: rusqlite::Error) -> EngineError {
    match e.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => EngineError::Unknown(e.into()),
        _ => said(e),
    }
}

/// Writes a letter; returns its number.
fn put(
    connection: &Connection,
    queue: i64,
    what: &str,
    key: Option<&[u8]>,
    delay: Option<Duration>,
    priority: i16,
    every: Option<Duration>,
) -> rusqlite::Result<i64> {
    let letter = "insert into inbox(queue, what, at, key, delay, priority, every)
                  values(?1, ?2, ?3, ?4, ?5, ?6, ?7) returning id";
    let (delay, every) = (delay.map(micros), every.map(micros));
    let number =
        store::written(connection, letter, params![queue, what, wall(), key, delay, priority, every])?;
    number.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

impl Client {
    /// Opens a file, or makes it.
    ///
    /// # Errors
    ///
    /// As for [`Sqlite::open`](crate::Sqlite::open), but for a process that works on it.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// let client = Client::open(dir.path().join("a.db"))?;
    /// assert!(client.queues()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> Result<Self, EngineError> {
        let path = path.as_ref();
        Ok(Self { path: path.to_owned(), connection: store::connect(path)? })
    }

    /// Asks for a run of the key, after a delay if there is one. It is on the disk when this returns.
    ///
    /// # Errors
    ///
    /// If it can't be written: nothing has changed then ([`EngineError::NotApplied`]), or nobody knows
    /// ([`EngineError::Unknown`]).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add("orders", &key, None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add(&self, queue: &str, key: &impl Key, delay: Option<Duration>) -> Result<(), EngineError> {
        self.add_with_priority(queue, key, delay, 0)
    }

    /// [`add`](Self::add) with a priority, to a queue that has them.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add). Whether the queue has priorities is not known here: the process that works refuses it
    /// if not, and it stays where it was written.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add_with_priority("orders", &key, None, 7)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_with_priority(
        &self,
        queue: &str,
        key: &impl Key,
        delay: Option<Duration>,
        priority: i16,
    ) -> Result<(), EngineError> {
        self.write(queue, "add", Some(&key.to_bytes()), delay, priority).map(drop)
    }

    /// [`add`](Self::add) for each key, in one transaction: all or none.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add_many("orders", &["a".to_owned(), "b".to_owned()], None, 0)?;
    /// assert_eq!(client.list("orders")?.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_many<K: Key>(
        &mut self,
        queue: &str,
        keys: &[K],
        delay: Option<Duration>,
        priority: i16,
    ) -> Result<(), EngineError> {
        self.add_all(queue, keys, delay, priority, None)
    }

    /// [`add_many`](Self::add_many) for keys that come again so long after each run, as
    /// [`Queue::add_every`](crate::Queue::add_every) says. [`cancel`](Self::cancel) ends that.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # use std::time::Duration;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// client.add_every("jobs", &["report".to_owned()], Duration::from_secs(3600), None, 0)?;
    /// assert_eq!(client.list("jobs")?[0].every, Some(Duration::from_secs(3600)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_every<K: Key>(
        &mut self,
        queue: &str,
        keys: &[K],
        every: Duration,
        delay: Option<Duration>,
        priority: i16,
    ) -> Result<(), EngineError> {
        self.add_all(queue, keys, delay, priority, Some(every))
    }

    fn add_all<K: Key>(
        &mut self,
        queue: &str,
        keys: &[K],
        delay: Option<Duration>,
        priority: i16,
        every: Option<Duration>,
    ) -> Result<(), EngineError> {
        let number = store::queue_number(&self.connection, queue).map_err(said)?;
        let begun =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(said)?;
        for key in keys {
            put(&begun, number, "add", Some(&key.to_bytes()), delay, priority, every).map_err(said)?;
        }
        begun.commit().map_err(unsure)?;
        bell::ring(&self.path);
        Ok(())
    }

    fn write(
        &self,
        queue: &str,
        what: &str,
        key: Option<&[u8]>,
        delay: Option<Duration>,
        priority: i16,
    ) -> Result<i64, EngineError> {
        let queue = store::queue_number(&self.connection, queue).map_err(said)?;
        let letter = put(&self.connection, queue, what, key, delay, priority, None).map_err(unsure)?;
        bell::ring(&self.path);
        Ok(letter)
    }

    /// Takes away what asks for a run of the key; a run that is on goes on. A key that comes again after each run does not
    /// any more. False if there was nothing.
    ///
    /// # Errors
    ///
    /// If the process that works does not answer within five seconds, or the file can't be written.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add("orders", &key, None)?;
    /// assert!(client.cancel("orders", &key)? && !client.cancel("orders", &key)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self, queue: &str, key: &impl Key) -> Result<bool, EngineError> {
        Ok(self.ask(queue, "cancel", Some(&key.to_bytes()))? == "cancelled")
    }

    /// The key runs now: one that waits, or one that is dead. False if nothing is known of it.
    ///
    /// # Errors
    ///
    /// As for [`cancel`](Self::cancel).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add("orders", &key, Some(std::time::Duration::from_secs(60)))?;
    /// assert!(client.retry("orders", &key)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry(&self, queue: &str, key: &impl Key) -> Result<bool, EngineError> {
        Ok(self.ask(queue, "retry", Some(&key.to_bytes()))? == "ready")
    }

    /// No key of the queue is handed out until [`resume`](Self::resume), also after a restart.
    ///
    /// # Errors
    ///
    /// As for [`cancel`](Self::cancel).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.pause("orders")?;
    /// assert!(client.stats("orders")?.paused);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self, queue: &str) -> Result<(), EngineError> {
        self.ask(queue, "pause", None).map(drop)
    }

    /// Ends a [`pause`](Self::pause).
    ///
    /// # Errors
    ///
    /// As for [`cancel`](Self::cancel).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.resume("orders")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(&self, queue: &str) -> Result<(), EngineError> {
        self.ask(queue, "resume", None).map(drop)
    }

    /// Removes the dead keys of a queue; returns how many there were.
    ///
    /// # Errors
    ///
    /// As for [`cancel`](Self::cancel).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// assert_eq!(client.purge("orders")?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn purge(&self, queue: &str) -> Result<u64, EngineError> {
        let answer = self.ask(queue, "purge", None)?;
        answer.parse().map_err(|_| EngineError::Unknown(answer.into()))
    }

    /// Writes a letter, and waits for what becomes of it.
    fn ask(&self, queue: &str, what: &str, key: Option<&[u8]>) -> Result<String, EngineError> {
        let letter = self.write(queue, what, key, None, 0)?;
        let begun = Instant::now();
        loop {
            self.work_if_alone()?;
            let answer = "delete from inbox where id = ?1 and answer is not null returning answer";
            if let Some(answer) = store::written(&self.connection, answer, [letter]).map_err(said)? {
                return Ok(answer);
            }
            if begun.elapsed() > ANSWERS {
                let taken_back = "delete from inbox where id = ?1 and answer is null";
                self.connection.execute(taken_back, [letter]).map_err(said)?;
                let why = format!("{}: the process that works on it does not answer", self.path.display());
                return Err(EngineError::NotApplied(why.into()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Where nobody works on the file, what is in its inbox is done by us. Returns who works on it.
    fn work_if_alone(&self) -> Result<Option<u32>, EngineError> {
        let lock = match lock::try_take(&self.path)? {
            Ok(lock) => lock,
            Err(pid) => return Ok(pid),
        };
        let mut store = Store::open(&self.path, |_| Ok(lock))?;
        loop {
            let letters: Vec<Letter> = store.letters(&[]).map_err(said)?;
            if letters.is_empty() {
                return Ok(None);
            }
            let group = store::Group { letters, ..store::Group::default() };
            store.write(&group).map_err(store::Failed::into_error)?;
        }
    }

    /// Has SQLite check the whole file (`PRAGMA integrity_check`): what is wrong with it, a line each. None if it is well.
    ///
    /// It reads all of it. Who works on the file goes on meanwhile.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// assert!(client.check()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self) -> Result<Vec<String>, EngineError> {
        let mut faults = self.connection.prepare("pragma integrity_check").map_err(said)?;
        let faults = faults.query_map([], |row| row.get(0)).map_err(said)?;
        let faults: Vec<String> = faults.collect::<Result<_, _>>().map_err(said)?;
        Ok(faults.into_iter().filter(|fault| fault != "ok").collect())
    }

    /// The names of the queues of the file.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add("orders", &key, None)?;
    /// assert_eq!(client.queues()?, ["orders"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queues(&self) -> Result<Vec<String>, EngineError> {
        let mut names = self.connection.prepare("select name from queue order by name").map_err(said)?;
        let names = names.query_map([], |row| row.get(0)).map_err(said)?;
        names.collect::<Result<_, _>>().map_err(said)
    }

    /// All that is known of the queue's keys, in the order of their line; those that wait or are dead stand among them.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add("orders", &key, None)?;
    /// assert_eq!(client.list("orders")?[0].key, b"order-4711");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list(&self, queue: &str) -> Result<Vec<Listed>, EngineError> {
        self.work_if_alone()?;
        self.listed(queue, None)
    }

    /// What is known of a key.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// assert!(client.state("orders", &key)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn state(&self, queue: &str, key: &impl Key) -> Result<Option<Listed>, EngineError> {
        self.work_if_alone()?;
        Ok(self.listed(queue, Some(&key.to_bytes()))?.pop())
    }

    fn listed(&self, queue: &str, key: Option<&[u8]>) -> Result<Vec<Listed>, EngineError> {
        let now = wall();
        let keys = "select key, ready, due, failures, attempt, priority, value, first, dead, error, every
                    from item join queue on queue.id = item.queue left join schedule using (queue, key)
                    where queue.name = ?1 and (?2 is null or key = ?2) order by dead, ready desc, ord, due, key";
        let mut keys = self.connection.prepare(keys).map_err(said)?;
        let keys = keys.query_map(params![queue, key], |row| read(row, now)).map_err(said)?;
        keys.collect::<Result<_, _>>().map_err(said)
    }

    /// How many keys of a queue do what. It counts them all.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let mut client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add("orders", &key, None)?;
    /// assert_eq!(client.stats("orders")?.ready, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self, queue: &str) -> Result<FileStats, EngineError> {
        let runner = self.work_if_alone()?;
        let now = wall();
        let counts = "select coalesce(sum(ready or due <= ?2), 0), coalesce(sum(not ready and due > ?2), 0),
                             coalesce(sum(dead), 0), min(case when ready or due <= ?2 then first end)
                      from item join queue on queue.id = item.queue where queue.name = ?1";
        let count = |row: &Row<'_>, nth| row.get(nth).map(i64::unsigned_abs);
        let stats = self.connection.query_row(counts, params![queue, now], |row| {
            let oldest: Option<Wall> = row.get(3)?;
            Ok(FileStats {
                ready: count(row, 0)?,
                waiting: count(row, 1)?,
                dead: count(row, 2)?,
                oldest_ready: oldest.map(|first| since(first, now)),
                paused: false,
                runner,
            })
        });
        let paused = "select paused from queue where name = ?1";
        let paused = self.connection.query_row(paused, [queue], |row| row.get(0)).optional();
        Ok(FileStats { paused: paused.map_err(said)?.unwrap_or(false), ..stats.map_err(said)? })
    }
}

fn since(at: Wall, now: Wall) -> Duration {
    Duration::from_micros(u64::try_from(now.saturating_sub(at)).unwrap_or(0))
}

fn read(row: &Row<'_>, now: Wall) -> rusqlite::Result<Listed> {
    let (ready, due, dead): (bool, Option<Wall>, bool) = (row.get(1)?, row.get(2)?, row.get(8)?);
    let status = match due {
        _ if dead => Status::Dead,
        _ if ready => Status::Ready,
        Some(due) if due <= now => Status::Ready,
        Some(_) => Status::Waiting,
        None => Status::Idle,
    };
    let value: Option<Vec<u8>> = row.get(6)?;
    let mut listed = Listed::new(row.get(0)?, status);
    listed.due_in = due.map(|due| since(now, due));
    listed.failures = row.get(3)?;
    listed.attempt = row.get(4)?;
    listed.priority = row.get(5)?;
    listed.value = value.map(|value| String::from_utf8_lossy(&value).into_owned());
    listed.age = since(row.get(7)?, now);
    listed.error = row.get(9)?;
    listed.every = row.get::<_, Option<i64>>(10)?.map(duration);
    Ok(listed)
}
