//! [`Client`]: a file's operations for processes that do not work on it.

use crate::inbox::{ABSORB, InboxRow, fold, obey};
use crate::list::{self, Counts, Order, Pending, Seen};
use crate::lock::{Writes, beside};
use crate::look::Look;
use crate::rows::{queue_number, rule, wall};
use crate::runner_conn;
use crate::schema::{Link, about, is_ours, not_applied, words};
use crate::write_signal;
use requeue_engine::{EngineError, Key, Listed, Schedule};
use rusqlite::{Connection, ErrorCode, OptionalExtension};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How long a runner has to answer.
const ANSWERS: Duration = Duration::from_secs(5);

/// Maximum number of keys cancelled in one transaction.
const TOGETHER: usize = 1000;

/// A client of a queue file. It adds, lists, cancels and pauses keys, and runs none. No process needs to work
/// on the file.
///
/// Each call is a transaction of its own, and blocks. Writers take turns, with one another and with the
/// processes that work: a call waits up to 30 seconds for its turn. Readers ([`list`](Self::list),
/// [`state`](Self::state), [`stats`](Self::stats), [`queues`](Self::queues), [`check`](Self::check)) take no
/// lock, write nothing, and need no write permission. On Linux the process that works is notified of writes;
/// on other systems it polls 50 times a second.
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
    /// Opened when something is written.
    writes: RefCell<Option<Box<Link>>>,
    looks: RefCell<Option<Look>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Numbers of a queue's keys by state.
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
    /// In line, including keys that a worker has had for less than a twentieth of a second.
    pub ready: u64,
    /// With a worker, as far as the process that works on the queue shows it: at most 1,024 keys, and only on
    /// Linux.
    pub held: u64,
    /// How long the key has run whose run began first, in whole seconds, as far as it is shown.
    pub longest_held: Option<Duration>,
    /// Waiting for a timer.
    pub waiting: u64,
    /// Given up.
    pub dead: u64,
    /// Time since the first trigger of the key that has been ready longest.
    pub oldest_ready: Option<Duration>,
    /// Whether the queue is paused.
    pub paused: bool,
    /// The process that works on the queue.
    pub runner: Option<u32>,
    /// Whether the numbers are lower bounds: counting stops at a million keys.
    pub at_least: bool,
}

/// How keys are added to a queue of a file: [`Client::add_with`].
///
/// ```
/// # use requeue_sqlite::{AddOptions, Client};
/// # use std::time::Duration;
/// # let dir = tempfile::tempdir()?;
/// let client = Client::open(dir.path().join("a.db"))?;
/// let options = AddOptions { every: Some(Duration::from_secs(3600)), ..AddOptions::default() };
/// client.add_with("jobs", &["report".to_owned()], &options)?;
/// assert_eq!(client.list("jobs")?[0].every, Some(Duration::from_secs(3600)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AddOptions<'a> {
    /// The keys run after this delay.
    pub delay: Option<Duration>,
    /// Whether the queue has priorities is not known here: where it has none the keys run without.
    pub priority: i16,
    /// Period: the keys run again this long after the end of each run, as with
    /// [`Queue::add_every`](crate::Queue::add_every), until they are [cancelled](Client::cancel). This replaces an earlier `every` or `schedule` of a key, and the timer that is set for
    /// its next run, unless that is a retry's.
    pub every: Option<Duration>,
    /// The keys run at these times, from the next one on, until they are [cancelled](Client::cancel). This
    /// replaces what `every` replaces. Times that come during a run, or while no process works on the queue,
    /// are one run. `delay` and `every` are ignored then.
    pub schedule: Option<&'a Schedule>,
    /// A value for each key, as JSON, in their order. Values of a key merge, the older first, in the process that works on
    /// the queue: they wait in the file until there is one.
    pub values: &'a [String],
    /// The run stands for the delayed runs that the key has by now, retries too: their timers go. Only without a delay.
    pub absorb: bool,
}

impl Client {
    /// Opens a file, or creates it. An existing file is not written to.
    ///
    /// # Errors
    ///
    /// Those of [`Sqlite::open`](crate::Sqlite::open), except for a process that works on the file.
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
        let said = |e| not_applied(format!("{}: {e}", path.display()));
        let path = std::path::absolute(path).map_err(said)?;
        // an empty file stays empty, unless somebody is about to write to it
        let is_there = path.metadata().is_ok_and(|it| it.len() > 0 || !beside(&path, "-wal").exists());
        let writes = if is_there { None } else { Some(Link::open(&path, Writes::Others)?.into()) };
        let mut look = Look::at(&path)?;
        // A look would read the whole log if no process has the file open. A writer does that as well.
        if !is_ours(look.database()) {
            look.look(|_, _| Ok(()))?;
        }
        Ok(Self { path, writes: writes.into(), looks: RefCell::new(Some(look)) })
    }

    /// Asks for a run of the key, after a delay if there is one. The trigger is on the disk when this
    /// returns.
    ///
    /// # Errors
    ///
    /// If it can't be written: nothing has changed ([`EngineError::NotApplied`]), or it is unknown
    /// ([`EngineError::Unknown`]).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add("orders", &key, None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add(&self, queue: &str, key: &impl Key, delay: Option<Duration>) -> Result<(), EngineError> {
        self.add_many(queue, &[key.to_bytes().into_owned()], delay, 0)
    }

    /// Like [`add`](Self::add) for each key, in one transaction: all or none.
    ///
    /// # Errors
    ///
    /// Like [`add`](Self::add).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add_many("orders", &["a".to_owned(), "b".to_owned()], None, 0)?;
    /// assert_eq!(client.list("orders")?.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_many<K: Key>(
        &self,
        queue: &str,
        keys: &[K],
        delay: Option<Duration>,
        priority: i16,
    ) -> Result<(), EngineError> {
        self.add_with(queue, keys, &AddOptions { delay, priority, ..AddOptions::default() })
    }

    /// [`add_many`](Self::add_many) with more said of the keys: [`AddOptions`].
    ///
    /// # Errors
    ///
    /// The errors of [`add`](Self::add); and [`EngineError::NotApplied`] if no time of the schedule comes. A value that the
    /// process that works can't read makes its key dead, with the reason.
    ///
    /// ```
    /// # use requeue_sqlite::{AddOptions, Client, Schedule};
    /// # let dir = tempfile::tempdir()?;
    /// let client = Client::open(dir.path().join("a.db"))?;
    /// let workdays: Schedule = "cron 0 18 * * 1-5 Europe/Berlin".parse()?;
    /// let options = AddOptions { schedule: Some(&workdays), ..AddOptions::default() };
    /// client.add_with("jobs", &["report".to_owned()], &options)?;
    /// assert_eq!(client.list("jobs")?[0].schedule.as_deref(), Some("cron 0 18 * * 1-5 Europe/Berlin"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_with<K: Key>(
        &self,
        queue: &str,
        keys: &[K],
        options: &AddOptions<'_>,
    ) -> Result<(), EngineError> {
        let &AddOptions { delay, priority, every, schedule, values, absorb } = options;
        // delays count from here: it may be a while until it is our turn
        let asked = wall();
        let first = |schedule: &Schedule| {
            let (now, never) =
                (SystemTime::now(), || not_applied(format!("{schedule}: this time does not come")));
            Ok::<_, EngineError>(schedule.next(now).ok_or_else(never)?.duration_since(now).ok())
        };
        let delay = schedule.map_or(Ok(delay), first)?;
        let absorbs = absorb && delay.is_none();
        self.write(queue, schedule, keys.len(), |nth, request| {
            let what = if absorbs { ABSORB.to_owned() } else { request.what };
            let value = values.get(nth).map(|value| value.as_bytes().to_vec());
            let at = if delay.is_some() { asked } else { request.at };
            InboxRow { what, at, key: keys[nth].to_bytes().into(), delay, priority, every, value, ..request }
        })
    }

    /// Asks for runs of so many keys: of the process that works on the queue or, where there is none, in their rows at once.
    fn write(
        &self,
        queue: &str,
        schedule: Option<&Schedule>,
        keys: usize,
        how: impl Fn(usize, InboxRow) -> InboxRow,
    ) -> Result<(), EngineError> {
        let is_told = self.in_turn(queue, true, |begun, number, is_worked_on| {
            let rule = schedule.map(|schedule| rule(begun, schedule)).transpose()?;
            for nth in 0..keys {
                let request = how(nth, InboxRow::new(number, "add", &[]));
                let request = InboxRow { every: rule.or(request.every), ..request };
                // only who works on the queue can merge values
                if is_worked_on || request.value.is_some() {
                    request.put(begun)?;
                } else {
                    obey(begun, &request, None)?;
                }
            }
            Ok(is_worked_on)
        })?;
        if is_told == Some(true) {
            write_signal::send(&self.path);
        }
        Ok(())
    }

    /// Writes in a transaction, when it is our turn, after pending requests to a queue without a runner.
    /// `write` gets the queue's number, and whether it has a runner. `None` if the queue does not exist, and
    /// is not created.
    fn in_turn<T>(
        &self,
        queue: &str,
        makes: bool,
        write: impl FnOnce(&Connection, i64, bool) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, EngineError> {
        let mut link = self.writes.borrow_mut();
        if link.as_mut().is_some_and(|link| link.is_cut_off().is_some()) {
            *link = None;
        }
        if link.is_none() {
            *link = Some(Link::open(&self.path, Writes::Others)?.into());
        }
        let Some(link) = &mut *link else { unreachable!("it was opened above") };
        let turn = link.turn()?;
        let said = about(&self.path);
        let begun = &link.connection;
        begun.execute_batch("begin immediate").map_err(&said)?;
        let written = || -> rusqlite::Result<Option<T>> {
            let number = if makes {
                queue_number(begun, queue)?
            } else {
                match list::number(begun, 1, queue)? {
                    Some(number) => number,
                    None => return Ok(None),
                }
            };
            let is_worked_on = link.database.is_worked_on(number).unwrap_or(true);
            if !is_worked_on {
                fold(begun, number, None)?;
            }
            write(begun, number, is_worked_on).map(Some)
        };
        let written = written().map_err(&said).and_then(|written| {
            begun.execute_batch("commit").map_err(|e| match e.sqlite_error_code() {
                Some(ErrorCode::SystemIoFailure) => EngineError::Unknown(words(e)),
                _ => said(e),
            })?;
            Ok(written)
        });
        if !begun.is_autocommit() {
            // where that fails SQLite has done it already, or does it as it is opened next
            drop(begun.execute_batch("rollback"));
        }
        link.end_turn(turn);
        match link.is_cut_off() {
            Some(why) if written.is_ok() => Err(EngineError::Unknown(why.into())),
            _ => written,
        }
    }

    /// Cancels everything that asks for a run of the key; a current run goes on. A key that comes again after
    /// each run no longer does. False if there was nothing.
    ///
    /// # Errors
    ///
    /// If the process that works does not answer within five seconds, or the file can't be written.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add("orders", &key, None)?;
    /// assert!(client.cancel("orders", &key)? && !client.cancel("orders", &key)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self, queue: &str, key: &impl Key) -> Result<bool, EngineError> {
        Ok(self.ask(queue, "cancel", &key.to_bytes())? == "cancelled")
    }

    /// Like [`cancel`](Self::cancel) for each key. Returns the number of keys that had something to cancel.
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](Self::cancel). Some keys may be cancelled then.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// let keys = ["a".to_owned(), "b".to_owned()];
    /// client.add_many("orders", &keys, None, 0)?;
    /// assert_eq!(client.cancel_many("orders", &keys)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_many<K: Key>(&self, queue: &str, keys: &[K]) -> Result<u64, EngineError> {
        let mut cancelled = 0;
        for keys in keys.chunks(TOGETHER) {
            let keys: Vec<_> = keys.iter().map(Key::to_bytes).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
            let answers = self.ask_all(queue, "cancel", &keys)?;
            cancelled += answers.iter().filter(|answer| *answer == "cancelled").count() as u64;
        }
        Ok(cancelled)
    }

    /// Runs the key now, if it waits or is dead. False if it is unknown.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add("orders", &key, Some(std::time::Duration::from_secs(60)))?;
    /// assert!(client.retry("orders", &key)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry(&self, queue: &str, key: &impl Key) -> Result<bool, EngineError> {
        Ok(self.ask(queue, "retry", &key.to_bytes())? == "ready")
    }

    /// Hands out no key of the queue until [`resume`](Self::resume), even after a restart.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.pause("orders")?;
    /// assert!(client.stats("orders")?.paused);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self, queue: &str) -> Result<(), EngineError> {
        self.ask(queue, "pause", &[]).map(drop)
    }

    /// Ends a [`pause`](Self::pause).
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.resume("orders")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(&self, queue: &str) -> Result<(), EngineError> {
        self.ask(queue, "resume", &[]).map(drop)
    }

    /// Removes the dead keys of a queue. Returns their number.
    ///
    /// # Errors
    ///
    /// Like [`cancel`](Self::cancel).
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// assert_eq!(client.purge("orders")?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn purge(&self, queue: &str) -> Result<u64, EngineError> {
        let answer = self.ask(queue, "purge", &[])?;
        answer.parse().map_err(|_| EngineError::Unknown(answer.into()))
    }

    fn ask(&self, queue: &str, what: &str, key: &[u8]) -> Result<String, EngineError> {
        Ok(self.ask_all(queue, what, &[key])?.pop().unwrap_or_default())
    }

    /// Requests this for each key, in one transaction: from the process that works on the queue or, if there
    /// is none, directly.
    fn ask_all(&self, queue: &str, what: &str, keys: &[&[u8]]) -> Result<Vec<String>, EngineError> {
        let asked = self.in_turn(queue, what == "pause", |begun, number, is_worked_on| {
            let requests = keys.iter().map(|key| InboxRow::new(number, what, key));
            if is_worked_on {
                let put = requests.map(|request| request.put(begun)).collect::<rusqlite::Result<Vec<_>>>();
                return Ok((number, Err(put?)));
            }
            let done = requests.map(|request| Ok(obey(begun, &request, None)?.unwrap_or_default()));
            Ok((number, Ok(done.collect::<rusqlite::Result<Vec<_>>>()?)))
        })?;
        match asked {
            Some((_, Ok(done))) => Ok(done),
            Some((number, Err(requests))) => self.answers(queue, number, &requests),
            // there is no such queue
            None => Ok(vec![if what == "purge" { "0" } else { "nothing" }.to_owned(); keys.len()]),
        }
    }

    /// Waits for the answers to requests. Requests without an answer are withdrawn, so that none is handled
    /// later.
    fn answers(&self, queue: &str, number: i64, requests: &[i64]) -> Result<Vec<String>, EngineError> {
        write_signal::send(&self.path);
        let mut answers = Vec::with_capacity(requests.len());
        let mut last = Instant::now();
        while let Some(rest @ [_, ..]) = requests.get(answers.len()..) {
            let found = self.look(|connection, _| answers_to(connection, rest))?;
            if found.contains(&None) {
                return Err(EngineError::Unknown("somebody has removed what was asked".into()));
            }
            let before = answers.len();
            answers.extend(found.into_iter().map_while(Option::flatten));
            if answers.len() > before {
                last = Instant::now();
                continue;
            }
            let is_late = last.elapsed() > ANSWERS;
            if is_late || self.is_worked_on_by_nobody(number)? {
                // if no process works on the queue any more, it is done now
                let found = self.in_turn(queue, false, |begun, _, is_worked_on| {
                    let found = answers_to(begun, rest)?;
                    if is_worked_on && is_late {
                        let mut gone =
                            begun.prepare_cached("delete from inbox where id = ?1 and answer is null")?;
                        rest.iter().try_for_each(|request| gone.execute([request]).map(drop))?;
                    }
                    Ok(found)
                });
                // they are in the file still
                let found = found.map_err(|e| match e {
                    EngineError::NotApplied(why) => EngineError::Unknown(why),
                    e => e,
                })?;
                let found: Vec<_> = found.unwrap_or_default().into_iter().map(Option::flatten).collect();
                if is_late && found.contains(&None) {
                    let done = answers.len() + found.iter().flatten().count();
                    let why =
                        format!("{}: the process that works on it does not answer", self.path.display());
                    return Err(match done {
                        0 => not_applied(why),
                        _ => {
                            let all = requests.len();
                            let told = format!("{why}; {done} of {all} were done, the others were withdrawn");
                            EngineError::Unknown(told.into())
                        }
                    });
                }
                answers.extend(found.into_iter().map_while(|answer| answer));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(answers)
    }

    fn is_worked_on_by_nobody(&self, number: i64) -> Result<bool, EngineError> {
        let looks = self.looks.borrow();
        let Some(look) = &*looks else { return Ok(false) };
        look.database().is_worked_on(number).map(|it| !it).map_err(not_applied)
    }

    fn look<T>(&self, read: impl FnMut(&Connection, u32) -> rusqlite::Result<T>) -> Result<T, EngineError> {
        let mut looks = self.looks.borrow_mut();
        if looks.is_none() {
            *looks = Some(Look::at(&self.path)?);
        }
        let Some(look) = &mut *looks else { unreachable!("it was opened above") };
        look.look(read)
    }

    fn running(&self) -> crate::lock::Running {
        // where the system does not say it, nothing is shown as running
        self.looks.borrow().as_ref().and_then(|look| look.database().runs().ok()).unwrap_or_default()
    }

    /// Has SQLite check the whole file (`PRAGMA integrity_check`). Returns its problems, one line each; none
    /// if it is sound.
    ///
    /// It reads the whole file. Processes that work on the file continue meanwhile.
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
        let faults: Vec<String> = self.look(|connection, _| {
            let mut faults = connection.prepare("pragma integrity_check")?;
            faults.query_map([], |row| row.get(0))?.collect()
        })?;
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
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add("orders", &key, None)?;
    /// assert_eq!(client.queues()?, ["orders"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queues(&self) -> Result<Vec<String>, EngineError> {
        self.look(|connection, version| {
            if version == 0 {
                return Ok(Vec::new());
            }
            let mut names = connection.prepare("select name from queue order by name")?;
            names.query_map([], |row| row.get(0))?.collect()
        })
    }

    /// The state of the queue's keys, in the order of their line; waiting and dead keys are among them.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add("orders", &key, None)?;
    /// assert_eq!(client.list("orders")?[0].key, b"order-4711");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list(&self, queue: &str) -> Result<Vec<Listed>, EngineError> {
        let mut all = Vec::new();
        self.list_each(queue, |key| {
            all.push(key);
            true
        })?;
        Ok(all)
    }

    /// Like [`list`](Self::list), one key at a time, until `each` returns false. The order is fixed at the
    /// start, and each key has its state at the time it is passed to `each`: the file is read in pieces, so
    /// that a slow `each` blocks no writer.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// client.add_many("orders", &["a".to_owned(), "b".to_owned()], None, 0)?;
    /// let mut first = None;
    /// client.list_each("orders", |key| {
    ///     first = Some(key);
    ///     false
    /// })?;
    /// assert_eq!(first.map(|first| first.key), Some(b"a".to_vec()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list_each(&self, queue: &str, each: impl FnMut(Listed) -> bool) -> Result<(), EngineError> {
        self.list_prefix(queue, &[], each)
    }

    /// Like [`list_each`](Self::list_each) for the keys whose bytes begin with `prefix`. No other key is read.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// client.add_many("orders", &["eu/1".to_owned(), "us/1".to_owned()], None, 0)?;
    /// let mut keys = Vec::new();
    /// client.list_prefix("orders", b"us/", |key| {
    ///     keys.push(key.key);
    ///     true
    /// })?;
    /// assert_eq!(keys, [b"us/1"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list_prefix(
        &self,
        queue: &str,
        prefix: &[u8],
        mut each: impl FnMut(Listed) -> bool,
    ) -> Result<(), EngineError> {
        let read = self.look(|connection, version| {
            let Some(number) = list::number(connection, version, queue)? else { return Ok(None) };
            let pending = Pending::read(connection, version, number, None)?;
            let order = Order::read(connection, number, prefix, &pending, wall())?;
            Ok(Some((number, pending, order)))
        })?;
        let Some((number, pending, mut order)) = read else { return Ok(()) };
        let (mut begin, mut size) = (0, list::Size::first());
        loop {
            let keys = order.page(begin, size.next());
            if keys.is_empty() {
                return Ok(());
            }
            let seen = Seen { pending: &pending, running: &self.running(), now: wall() };
            let listed = self.look(|connection, version| {
                list::page(connection, version, number, &keys, &seen, &mut size)
            })?;
            let Some(listed) = listed else { continue };
            if !listed.into_iter().all(&mut each) {
                return Ok(());
            }
            begin += keys.len();
            size.grow();
        }
    }

    /// State of a key.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// assert!(client.state("orders", &key)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn state(&self, queue: &str, key: &impl Key) -> Result<Option<Listed>, EngineError> {
        let (key, now) = (key.to_bytes(), wall());
        self.look(|_, _| Ok(()))?;
        let running = self.running();
        self.look(|connection, version| {
            let Some(number) = list::number(connection, version, queue)? else { return Ok(None) };
            let pending = Pending::read(connection, version, number, Some(&key))?;
            list::state(
                connection,
                version,
                number,
                &key,
                &Seen { pending: &pending, running: &running, now },
            )
        })
    }

    /// Numbers of a queue's keys by state, counted up to a million.
    ///
    /// # Errors
    ///
    /// If the file can't be read.
    ///
    /// ```
    /// # use requeue_sqlite::Client;
    /// # let dir = tempfile::tempdir()?;
    /// # let client = Client::open(dir.path().join("a.db"))?;
    /// # let key = "order-4711".to_owned();
    /// client.add("orders", &key, None)?;
    /// assert_eq!(client.stats("orders")?.ready, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self, queue: &str) -> Result<FileStats, EngineError> {
        let now = wall();
        let found = self.look(|connection, version| {
            let Some(number) = list::number(connection, version, queue)? else { return Ok(None) };
            let pending = Pending::read(connection, version, number, None)?;
            let counts = Counts::read(connection, number, &pending, now)?;
            let paused = "select paused from queue where id = ?1";
            let paused: bool = connection.query_row(paused, [number], |row| row.get(0))?;
            let runner = if version >= 3 { runner_conn::runner(connection, number)? } else { None };
            Ok(Some((number, counts, pending.paused.unwrap_or(paused), runner)))
        })?;
        let Some((number, counts, paused, runner)) = found else { return Ok(FileStats::default()) };
        let running = self.running();
        let held = running.count(number).min(counts.ready);
        let looks = self.looks.borrow();
        let is_worked_on =
            looks.as_ref().is_some_and(|look| look.database().is_worked_on(number).unwrap_or(false));
        Ok(FileStats {
            ready: counts.ready - held,
            held,
            longest_held: running.longest(number, now),
            waiting: counts.waiting,
            dead: counts.dead,
            oldest_ready: counts.oldest.map(|first| list::since(first, now)),
            paused,
            runner: runner.filter(|_| is_worked_on),
            at_least: counts.is_cut,
        })
    }
}

/// The answers to these requests: `None` for one that is not there, `Some(None)` for one that has no answer yet.
fn answers_to(connection: &Connection, requests: &[i64]) -> rusqlite::Result<Vec<Option<Option<String>>>> {
    let mut answer = connection.prepare_cached("select answer from inbox where id = ?1")?;
    requests.iter().map(|request| answer.query_row([request], |row| row.get(0)).optional()).collect()
}
