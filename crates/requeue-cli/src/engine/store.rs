//! [`Store`]: the place of a durable queue, a file or a server.

use std::io::{self, ErrorKind::NotFound};
use std::time::Duration;

use requeue_engine::{EngineError, Listed};
use requeue_postgres::{GroupState, LONGEST_KEY, MOST_COUNTED, Postgres, Process};
use requeue_sqlite::{AddOptions, Client};

use crate::config::Engine;
use crate::config::group_by::GroupBy;
use crate::system::exit::USAGE;
use crate::system::limits;
use crate::text::show::quoted;

/// Maximum number of keys cancelled in one transaction.
const CANCELLED_AT_ONCE: usize = 1000;

/// The error of a read-only call, without the statement whether anything has changed.
pub(crate) fn plain(e: &EngineError) -> String {
    match e {
        EngineError::NotApplied(why) | EngineError::Unknown(why) => why.to_string(),
        e => e.to_string(),
    }
}

/// Whether a command creates a missing file.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Makes {
    File,
    /// No, but it changes an existing one.
    Changes,
    /// No: it only reads.
    Nothing,
}

/// An open engine.
#[derive(Debug)]
pub(crate) enum Store {
    File(Client),
    Server(Postgres),
}

/// Numbers of a queue's keys by state, and the processes that work on it.
pub(crate) struct Stats {
    pub(crate) ready: u64,
    pub(crate) held: u64,
    pub(crate) waiting: u64,
    pub(crate) dead: u64,
    /// Names of those counts above that are lower bounds.
    pub(crate) at_least: Vec<&'static str>,
    pub(crate) oldest_ready: Option<Duration>,
    /// How long the key has been held that was first.
    pub(crate) longest_held: Option<Duration>,
    pub(crate) paused: bool,
    pub(crate) who: Who,
    /// Processes that work on a server's queue.
    pub(crate) processes: Vec<Process>,
    /// `None` for a file, which stores no groups.
    pub(crate) groups: Option<Groups>,
    /// `None` for a file: the process that works on it has them.
    pub(crate) limits: Option<Limits>,
}

/// The counts as text. A `+` marks a lower bound.
impl Stats {
    pub(crate) fn ready(&self) -> String {
        self.shown("ready", self.ready)
    }

    pub(crate) fn held(&self) -> String {
        self.shown("held", self.held)
    }

    pub(crate) fn waiting(&self) -> String {
        self.shown("waiting", self.waiting)
    }

    pub(crate) fn dead(&self) -> String {
        self.shown("dead", self.dead)
    }

    fn shown(&self, name: &str, count: u64) -> String {
        let more = if self.at_least.contains(&name) { "+" } else { "" };
        format!("{count}{more}")
    }
}

/// Numbers of paused groups and of groups with a weight or a cap of their own, and the default cap.
pub(crate) struct Groups {
    pub(crate) paused: u64,
    pub(crate) with_rules: u64,
    pub(crate) cap: Option<usize>,
}

/// Limits that a server stores with a queue for all processes.
pub(crate) struct Limits {
    pub(crate) base_delay: Duration,
    pub(crate) max_delay: Duration,
    /// Dispatch rate: runs per second.
    pub(crate) rate: Option<f64>,
}

pub(crate) enum Who {
    /// The process that works on a file.
    Runner(Option<u32>),
    /// The number of processes that work on the server's queue, and the age of the oldest snapshot.
    Owners(u64, Option<Duration>),
}

type EngineResult<T> = Result<T, EngineError>;

impl Store {
    /// Opens the engine. Only writers create a missing file: other commands report a misspelt name.
    ///
    /// # Errors
    ///
    /// The exit status, and the reason.
    pub(crate) fn open(engine: Engine, makes: Makes) -> Result<Self, (u8, String)> {
        match engine {
            Engine::File(path) => {
                if makes != Makes::File && std::fs::metadata(&path).is_err_and(|e| e.kind() == NotFound) {
                    let path = path.display();
                    return Err((
                        1,
                        format!("{path}: there is no such file; the first `requeue add` makes it"),
                    ));
                }
                Client::open(path).map(Self::File).map_err(|e| (1, plain(&e)))
            }
            Engine::Server(server) => {
                Postgres::check(&server).map_err(|e| (USAGE, plain(&e)))?;
                limits::check_threads().map_err(|e| (1, e.to_string()))?;
                Postgres::connect(&server).wait().map(Self::Server).map_err(|e| (1, plain(&e)))
            }
        }
    }

    /// Adds keys. Only a server keeps groups.
    pub(crate) fn add(
        &mut self,
        queue: &str,
        keys: &[Vec<u8>],
        how: &AddOptions<'_>,
        group_by: Option<&GroupBy>,
    ) -> EngineResult<()> {
        let server = match self {
            Self::File(file) => return file.add_with(queue, keys, how),
            Self::Server(server) => server,
        };
        let client = group_by
            .cloned()
            .into_iter()
            .fold(server.client(queue), |client, group_by| client.group_by(move |key| group_by.group(key)));
        let &AddOptions { delay, priority, every, schedule, values, absorb, .. } = how;
        let added = match (schedule, every) {
            (Some(schedule), _) => client.add_scheduled(keys, schedule, priority),
            _ if !values.is_empty() => client.add_each(keys, values, delay, priority),
            (None, Some(every)) => client.add_every(keys, every, delay, priority),
            (None, None) => client.add_many(keys, delay, priority),
        };
        added.wait()?;
        // they are added whatever becomes of this
        if absorb { client.absorb(keys).wait().map_err(|e| EngineError::Unknown(e.into())) } else { Ok(()) }
    }

    /// Cancels each key. Returns the number of keys that had something to cancel, and why other keys were not
    /// cancelled.
    pub(crate) fn cancel_many(&mut self, queue: &str, keys: &[Vec<u8>]) -> (u64, Option<EngineError>) {
        let mut cancelled = 0;
        for keys in keys.chunks(CANCELLED_AT_ONCE) {
            let some = match self {
                Self::File(file) => file.cancel_many(queue, keys),
                Self::Server(server) => server.client(queue).cancel_many(keys).wait(),
            };
            let (some, failed) = match (some, &*self) {
                (Ok(some), _) => (some, None),
                // one that can't be cancelled does not keep the others
                (Err(EngineError::NotApplied(_)), Self::Server(server)) => {
                    cancel_each(&server.client(queue), keys)
                }
                (Err(e), _) => (0, Some(e)),
            };
            cancelled += some;
            if failed.is_some() {
                return (cancelled, failed);
            }
        }
        (cancelled, None)
    }

    /// Checks that the queue exists. Commands that only read or change create no queue, so that a misspelt
    /// name is reported.
    ///
    /// # Errors
    ///
    /// If no queue has this name.
    fn known(&mut self, queue: &str) -> EngineResult<()> {
        if let Self::Server(_) = self {
            // each of its calls says so, and which names are almost the same
            return Ok(());
        }
        if self.queues()?.iter().any(|name| name == queue) {
            return Ok(());
        }
        let queue = quoted(queue.as_bytes());
        let why = format!("there is no queue {queue}; the first `requeue add --queue {queue}` makes it");
        Err(EngineError::NotApplied(why.into()))
    }

    /// Creates the queue for keys to be added. On a server an add alone creates none, so that a misspelt name
    /// is reported.
    ///
    /// # Errors
    ///
    /// If the name is invalid.
    pub(crate) fn make(&mut self, queue: &str) -> EngineResult<()> {
        match self {
            Self::File(_) => Ok(()),
            Self::Server(server) => server.make_queue(queue).wait().map(drop),
        }
    }

    /// Checks that keys can be added to the queue.
    ///
    /// # Errors
    ///
    /// If the server has none with this name; the error says how to create it.
    pub(crate) fn takes_keys(&mut self, queue: &str) -> EngineResult<()> {
        match self {
            Self::Server(server) if !server.queues().wait()?.iter().any(|name| name == queue) => {
                let Err(EngineError::NotApplied(why)) = server.client(queue).groups().wait() else {
                    return Ok(());
                };
                Err(EngineError::NotApplied(format!("{why}; --make makes a new one").into()))
            }
            _ => Ok(()),
        }
    }

    /// Maximum length of a key in bytes, if there is one.
    pub(crate) fn longest_key(&self) -> Option<usize> {
        match self {
            Self::File(_) => None,
            Self::Server(_) => Some(LONGEST_KEY),
        }
    }

    /// The groups that are paused or have rules of their own; `None` for a file, which stores none.
    pub(crate) fn groups(&mut self, queue: &str) -> EngineResult<Option<Vec<GroupState>>> {
        if self.keeps_groups() {
            self.known(queue)?;
        }
        match self {
            Self::File(_) => Ok(None),
            Self::Server(server) => server.client(queue).groups().wait().map(Some),
        }
    }

    /// Whether keys are stored with their groups.
    pub(crate) fn keeps_groups(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// Passes each key that begins with `prefix` to `tell`, until that fails. Keys are read in pages, and no page behind that.
    pub(crate) fn list(
        &mut self,
        queue: &str,
        prefix: &[u8],
        mut tell: impl FnMut(Listed) -> io::Result<()>,
    ) -> EngineResult<io::Result<()>> {
        self.known(queue)?;
        match self {
            Self::File(file) => {
                let mut told = Ok(());
                file.list_prefix(queue, prefix, |key| {
                    told = tell(key);
                    told.is_ok()
                })?;
                Ok(told)
            }
            Self::Server(server) => {
                let mut pages = server.client(queue).pages_with_prefix(prefix);
                let mut told = Ok(());
                while let Some(page) = pages.next_page().wait()? {
                    told = page.into_iter().try_for_each(&mut tell);
                    if told.is_err() {
                        break;
                    }
                }
                Ok(told)
            }
        }
    }

    pub(crate) fn queues(&mut self) -> EngineResult<Vec<String>> {
        match self {
            Self::File(file) => file.queues(),
            Self::Server(server) => server.queues().wait(),
        }
    }

    pub(crate) fn state(&mut self, queue: &str, key: &Vec<u8>) -> EngineResult<Option<Listed>> {
        self.known(queue)?;
        match self {
            Self::File(file) => file.state(queue, key),
            Self::Server(server) => server.client(queue).state(key).wait(),
        }
    }

    pub(crate) fn cancel(&mut self, queue: &str, key: &Vec<u8>) -> EngineResult<bool> {
        self.known(queue)?;
        match self {
            Self::File(file) => file.cancel(queue, key),
            Self::Server(server) => server.client(queue).cancel(key).wait(),
        }
    }

    pub(crate) fn retry(&mut self, queue: &str, key: &Vec<u8>) -> EngineResult<bool> {
        self.known(queue)?;
        match self {
            Self::File(file) => file.retry(queue, key),
            Self::Server(server) => server.client(queue).retry(key).wait(),
        }
    }

    /// Pauses the queue, or one of its groups if it has groups; or ends a pause.
    pub(crate) fn pause(&mut self, queue: &str, group: Option<Vec<u8>>, pause: bool) -> EngineResult<()> {
        self.known(queue)?;
        match (self, group, pause) {
            (Self::File(file), _, true) => file.pause(queue),
            (Self::File(file), _, false) => file.resume(queue),
            (Self::Server(server), None, true) => server.client(queue).pause().wait(),
            (Self::Server(server), None, false) => server.client(queue).resume().wait(),
            (Self::Server(server), Some(group), true) => {
                server.client(queue).pause_group(&group).wait().map(drop)
            }
            (Self::Server(server), Some(group), false) => {
                server.client(queue).resume_group(&group).wait().map(drop)
            }
        }
    }

    pub(crate) fn purge(&mut self, queue: &str) -> EngineResult<u64> {
        self.known(queue)?;
        match self {
            Self::File(file) => file.purge(queue),
            Self::Server(server) => server.client(queue).purge().wait(),
        }
    }

    pub(crate) fn stats(&mut self, queue: &str) -> EngineResult<Stats> {
        self.known(queue)?;
        self.counts(queue)
    }

    /// The counts of a queue that is known to exist.
    pub(crate) fn counts(&mut self, queue: &str) -> EngineResult<Stats> {
        Ok(match self {
            Self::File(file) => {
                let stats = file.stats(queue)?;
                Stats {
                    ready: stats.ready,
                    held: stats.held,
                    waiting: stats.waiting,
                    dead: stats.dead,
                    at_least: if stats.at_least { vec!["ready", "waiting", "dead"] } else { Vec::new() },
                    oldest_ready: stats.oldest_ready,
                    longest_held: stats.longest_held,
                    paused: stats.paused,
                    who: Who::Runner(stats.runner),
                    processes: Vec::new(),
                    groups: None,
                    limits: None,
                }
            }
            Self::Server(server) => {
                let stats = server.client(queue).stats().wait()?;
                let processes = server.client(queue).processes().wait()?;
                let counts = [
                    ("ready", stats.ready.max(stats.inbox)),
                    ("held", stats.held),
                    ("waiting", stats.waiting),
                    ("dead", stats.dead),
                ];
                let at_least = counts.into_iter().filter(|(_, count)| *count >= MOST_COUNTED);
                Stats {
                    // keys that no process has taken in yet are in line as well
                    ready: stats.ready + stats.inbox,
                    held: stats.held,
                    waiting: stats.waiting,
                    dead: stats.dead,
                    at_least: at_least.map(|(name, _)| name).collect(),
                    oldest_ready: stats.oldest_ready,
                    longest_held: processes.iter().filter_map(|it| it.longest_held).max(),
                    paused: stats.paused,
                    who: Who::Owners(stats.owners, stats.oldest_snapshot),
                    processes,
                    groups: Some(Groups {
                        paused: stats.groups_paused,
                        with_rules: stats.groups_with_rules,
                        cap: stats.group_cap,
                    }),
                    limits: Some(Limits {
                        base_delay: stats.backoff.0,
                        max_delay: stats.backoff.1,
                        rate: stats.dispatch_rate.map(|(rate, _)| rate),
                    }),
                }
            }
        })
    }

    /// Creates the schema, or migrates it to this version. A file's is created when it is opened.
    pub(crate) fn migrate(&mut self) -> EngineResult<()> {
        match self {
            Self::File(_) => Ok(()),
            Self::Server(server) => server.migrate().wait(),
        }
    }

    /// The problems of the file; `None` for a server, which checks itself.
    pub(crate) fn check(&mut self) -> EngineResult<Option<Vec<String>>> {
        match self {
            Self::File(file) => file.check().map(Some),
            Self::Server(_) => Ok(None),
        }
    }
}

/// Cancels keys of a server, each in a transaction of its own. Returns the number of those that had something to cancel,
/// and why the last of the others was not cancelled.
fn cancel_each(client: &requeue_postgres::Client, keys: &[Vec<u8>]) -> (u64, Option<EngineError>) {
    let (mut cancelled, mut failed) = (0, None);
    let asked: Vec<_> = keys.iter().map(|key| client.cancel(key)).collect();
    for op in asked {
        match op.wait() {
            Ok(was_there) => cancelled += u64::from(was_there),
            Err(e) => failed = Some(e),
        }
    }
    (cancelled, failed)
}
