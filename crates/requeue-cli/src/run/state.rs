//! The command's durable queue: `--state`, `requeue work`.
//!
//! The queue in memory does not change, so that the rest of the command does not depend on the engine. Only
//! adds differ: a trigger is written first, and given to the queue in memory when it is on the disk.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use requeue::{Add, Added, KeyState, Only, WorkQueue};
use requeue_engine::{AddFailed, EngineError, Op};
use requeue_postgres::Postgres;
use requeue_prometheus::QueueSink;
use requeue_sqlite::{Client, Sqlite};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::config::{self, Durable, Engine, Run};
use crate::engine::store::plain;
use crate::input::cause::Cause;
use crate::input::keys::Key;
use crate::report::log::Log;
use crate::run::queue::{self, Queue, Shape};
use crate::system::control::{Control, Level};
use crate::system::exit::USAGE;
use crate::system::limits;
use crate::text::show::quoted;

/// Delay before a write that the disk refused is tried again.
const TRIES_AGAIN: Duration = Duration::from_millis(500);
/// Time limit for the server to accept the last ends.
const ENDS_ARRIVE: Duration = Duration::from_secs(5);
/// Interval for checking whether all is worked off.
const LOOKS: Duration = Duration::from_millis(20);

/// A trigger being written.
struct Writing {
    key: Key,
    priority: i16,
    /// Number of lines that it represents.
    lines: u64,
    op: Op<Added, AddFailed<Key, Cause>>,
}

/// The place of the queue.
enum Place {
    File {
        path: PathBuf,
        /// The option and the path, as the user gave them.
        named: String,
        file: Sqlite,
        queue: requeue_sqlite::Queue<Key, Cause>,
    },
    Server(requeue_postgres::Queue<Key, Cause>),
}

pub(crate) struct State {
    name: String,
    place: Place,
    /// In the order of the input.
    writing: Mutex<Vec<Writing>>,
    /// It was reported that nothing can be written.
    is_in_trouble: AtomicBool,
    /// Number of refused ends that were reported.
    refused_told: AtomicU64,
    /// Unsupported options were reported.
    ignores_told: AtomicBool,
}

/// A queue, and its engine if it has one.
pub(crate) type Opened = (Queue, Option<Arc<State>>);

/// Opens the queue of the options, with `sink` for its metrics.
///
/// # Errors
///
/// The exit status, and the reason: the library's error on the options, or the problem with the engine.
pub(crate) fn open(config: &Run, sink: Option<Arc<QueueSink>>) -> Result<Opened, (u8, String)> {
    let told = queue::told_to(&config.metrics_name, sink);
    let shape: Shape = if config.is_on_server() {
        told
    } else {
        let shape = queue::shape(&config.queue).map_err(|e| (1, e.to_string()))?;
        Box::new(|builder| told(shape(builder)))
    };
    let Some(durable) = &config.durable else {
        let built = shape(WorkQueue::merging(Cause::merge)).build();
        return Ok((built.map_err(|e| (1, e.to_string()))?, None));
    };
    let state = State::open(durable, &config.queue, shape)?;
    Ok((state.queue(), Some(Arc::new(state))))
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("name", &self.name).finish_non_exhaustive()
    }
}

impl State {
    /// Opens the queue of the options, with a front built by `shape`.
    ///
    /// # Errors
    ///
    /// The exit status, and the reason why it can't be worked on.
    fn open(durable: &Durable, options: &config::Queue, shape: Shape) -> Result<Self, (u8, String)> {
        let name = durable.queue.clone();
        let place = match &durable.engine {
            Engine::File(path) => Self::file(path, durable, shape).map_err(|why| (USAGE, why))?,
            Engine::Server(server) => {
                Postgres::check(server).map_err(|e| (USAGE, plain(&e)))?;
                limits::check_threads().map_err(|e| (1, e.to_string()))?;
                let open = || {
                    let builder =
                        Postgres::connect(server).wait()?.queue_with(&name, Cause::merge).front(shape);
                    queue::at_server(builder, options, durable.lease).open().wait()
                };
                Place::Server(open().map_err(|e| (1, plain(&e)))?)
            }
        };
        Ok(Self {
            name,
            place,
            writing: Mutex::default(),
            is_in_trouble: AtomicBool::new(false),
            refused_told: AtomicU64::new(0),
            ignores_told: AtomicBool::new(false),
        })
    }

    fn file(path: &Path, durable: &Durable, shape: Shape) -> Result<Place, String> {
        let option = if durable.works { "sqlite:" } else { "--state " };
        let named = format!("{option}{}", path.display());
        let about = |e: EngineError| match e {
            // "nothing has changed" says nothing of a file that was only opened
            EngineError::NotApplied(why) => format!("{option}{why}"),
            e => format!("{named}: {e}"),
        };
        let file = Sqlite::open(path).map_err(about)?;
        let queue = file.queue_with(&durable.queue, Cause::merge).front(shape).open();
        let queue = queue.map_err(about)?;
        Ok(Place::File { path: path.to_owned(), named, file, queue })
    }

    /// The queue in memory.
    pub(crate) fn queue(&self) -> Queue {
        match &self.place {
            Place::File { queue, .. } => queue.in_memory().clone(),
            Place::Server(queue) => queue.in_memory().clone(),
        }
    }

    /// The lock of the file's runner. A server has leases instead.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor left.
    pub(crate) fn lock(&self) -> std::io::Result<Option<OwnedFd>> {
        match &self.place {
            Place::File { queue, .. } => queue.lock().map(Some),
            Place::Server(_) => Ok(None),
        }
    }

    /// Begins to write a trigger. [`settle`](Self::settle) reports its result.
    pub(crate) fn begin(&self, key: &[u8], cause: Option<Cause>, priority: i16) {
        self.begin_for(1, key.to_vec(), cause, priority);
    }

    fn begin_for(&self, lines: u64, key: Key, cause: Option<Cause>, priority: i16) {
        let add = Add::now().priority(priority);
        let add = cause.into_iter().fold(add, Add::value);
        let op = match &self.place {
            Place::File { queue, .. } => queue.add_with(key.clone(), add),
            Place::Server(queue) => queue.add_with(key.clone(), add),
        };
        lock(&self.writing).push(Writing { key, priority, lines, op });
    }

    /// Repeats the line that was begun last. False if that is already settled.
    pub(crate) fn repeat(&self) -> bool {
        lock(&self.writing).last_mut().map(|last| last.lines += 1).is_some()
    }

    /// Waits until all begun triggers are on the disk, however long that takes; `accepted` gets each, with
    /// the number of lines that it represents. Returns the number of lines that were not accepted, because
    /// the command must end, or the file can't store them.
    pub(crate) fn settle(
        &self,
        control: &Control,
        log: &Log,
        mut accepted: impl FnMut(&[u8], Added, u64),
    ) -> u64 {
        let mut writing = std::mem::take(&mut *lock(&self.writing));
        let mut lost = 0;
        while !writing.is_empty() {
            let mut again = Vec::new();
            for Writing { key, priority, lines, op } in writing {
                match op.wait() {
                    Ok(added) => accepted(&key, added, lines),
                    Err(AddFailed {
                        value,
                        error: EngineError::NotApplied(_) | EngineError::Unknown(_),
                        ..
                    }) => {
                        again.push((lines, key, value, priority));
                    }
                    Err(_) => lost += lines,
                }
            }
            self.tell_trouble(log);
            self.ends_if_cut_off(control);
            if !again.is_empty() {
                pause(control, TRIES_AGAIN);
            }
            if !again.is_empty() && control.reached(Level::WorkOff) {
                lost += again.iter().map(|(lines, ..)| lines).sum::<u64>();
                break;
            }
            for (lines, key, value, priority) in again {
                self.begin_for(lines, key, value, priority);
            }
            writing = std::mem::take(&mut *lock(&self.writing));
        }
        lost
    }

    /// Reports once that the engine can't be written to, and that it can again; and options that it does not
    /// support.
    pub(crate) fn tell_trouble(&self, log: &Log) {
        if self.cut_off().is_some() {
            return; // `finish` tells it, at the end of the command
        }
        if let Place::File { named, queue, .. } = &self.place {
            if let Some(what) = queue.ignores().filter(|_| !self.ignores_told.swap(true, Ordering::Relaxed)) {
                log.note(&format!("{named}: keys with {what} run without: this process has none"));
            }
        }
        let trouble = match &self.place {
            Place::File { file, .. } => file.trouble(),
            Place::Server(queue) => queue.trouble(),
        };
        let was_told = self.is_in_trouble.swap(trouble.is_some(), Ordering::Relaxed);
        match (&self.place, trouble) {
            (Place::File { named, .. }, Some(why)) if !was_told => log.note(&format!(
                "{named}: {why}; the runs go on, and nothing more is read until it can be written"
            )),
            (Place::File { named, .. }, None) if was_told => {
                log.note(&format!("{named}: it can be written again"));
            }
            (Place::Server(_), Some(why)) if !was_told => {
                log.note(&format!("{why}; the runs go on, and it is tried again"));
            }
            (Place::Server(_), None) if was_told => log.note("PostgreSQL answers again"),
            _ => {}
        }
    }

    /// The reason why this process may no longer work on the queue: it has lost the file, or the server's
    /// schema needs a newer program.
    fn cut_off(&self) -> Option<String> {
        match &self.place {
            Place::File { file, .. } => file
                .lost()
                .map(|why| format!("{why}: it is not worked on any more, and the last runs may run again")),
            Place::Server(queue) => queue.outdated().map(|e| e.to_string()),
        }
    }

    /// Stops the programs if nothing can be claimed any more: their keys go back.
    pub(crate) fn ends_if_cut_off(&self, control: &Control) {
        if self.cut_off().is_some() {
            control.raise(Level::Stop);
        }
    }

    /// A message about ends of runs that the server has refused since the last one; `None` if there were
    /// none.
    fn refused(&self) -> Option<String> {
        let Place::Server(queue) = &self.place else { return None };
        let all = queue.ends_refused();
        let told = self.refused_told.fetch_max(all, Ordering::Relaxed);
        match all.saturating_sub(told) {
            0 => None,
            1 => Some(
                "1 run ended after its lease was lost: the server has refused its end, and its key runs again"
                    .to_owned(),
            ),
            n => Some(format!(
                "{n} runs ended after their lease was lost: the server has refused their ends, and their keys run again"
            )),
        }
    }

    /// The engine's contents when it was opened, in words; `None` if it was empty.
    pub(crate) fn found(&self) -> Option<String> {
        let (named, queue) = match &self.place {
            Place::File { named, queue, .. } => (named, queue),
            // The work of other processes on a server is not ours to tell. But in a paused queue nothing
            // would ever happen here.
            Place::Server(queue) => {
                let is_paused = queue.client().stats().wait().is_ok_and(|stats| stats.paused);
                let name = quoted(self.name.as_bytes());
                return is_paused.then(|| format!("queue {name} is paused: see requeue resume"));
            }
        };
        let queue = queue.in_memory();
        let stats = queue.stats();
        let (ready, waiting) = (stats.ready, stats.waiting);
        if queue.paused(requeue::Scope::Queue) {
            let name = &self.name;
            return Some(format!(
                "{named}: {ready} ready and {waiting} waiting, and queue {name} is paused: see requeue resume"
            ));
        }
        (ready + waiting > 0).then(|| format!("{named}: {ready} ready and {waiting} waiting go on"))
    }

    /// Waits until nothing is ready, running or waiting for a retry, or the command is told to end. Keys that
    /// wait for a time of their own do not count. False if `limit` is over.
    pub(crate) fn work_off(&self, control: &Control, limit: Option<Duration>) -> bool {
        let queue = self.queue();
        let begun = Instant::now();
        let is_over =
            || control.reached(Level::WorkOff) || limit.is_some_and(|limit| begun.elapsed() >= limit);
        let mut retries: Option<Key> = None;
        while !is_over() {
            self.ends_if_cut_off(control);
            let stats = queue.stats();
            if stats.ready + stats.held == 0 {
                // One of them is enough to go on waiting.
                let waits = |key: &Key| queue.state(key).is_some_and(|state| is_retry(&state));
                retries = retries.filter(waits).or_else(|| {
                    let mut pages = queue.snapshot().only(Only::Waiting);
                    pages.find_map(|page| {
                        page.keys.into_iter().find(|(_, state)| is_retry(state)).map(|(key, _)| key)
                    })
                });
                if retries.is_none() {
                    return true;
                }
            }
            pause(control, LOOKS);
        }
        control.reached(Level::WorkOff)
    }

    /// Waits until nothing runs, or the programs are to be stopped. False if `limit` is over.
    pub(crate) fn runs_end(&self, control: &Control, limit: Option<Duration>) -> bool {
        let (queue, begun) = (self.queue(), Instant::now());
        while queue.stats().held > 0 && !control.reached(Level::Stop) {
            if limit.is_some_and(|limit| begun.elapsed() >= limit) {
                return false;
            }
            std::thread::sleep(LOOKS);
        }
        true
    }

    /// Writes everything pending. Returns the number of keys left in the file, which run when it is opened
    /// again; 0 for a server, whose keys are for others. The error says what could not be written or read, or
    /// was refused, and the consequence.
    pub(crate) fn finish(&self) -> (u64, Result<(), String>) {
        match &self.place {
            Place::File { path: file, named, queue, .. } => {
                if let Some(why) = self.cut_off() {
                    return (0, Err(why));
                }
                let flushed = queue.written().wait().map_err(|e| {
                    let why = plain(&e);
                    format!("{named}: the last runs may run again: their ends are not written: {why}")
                });
                match Client::open(file).and_then(|client| client.stats(&self.name)) {
                    Ok(stats) => (stats.ready + stats.held + stats.waiting, flushed),
                    Err(e) => (0, flushed.and(Err(format!("{named}: {e}")))),
                }
            }
            Place::Server(queue) => (0, self.leave(queue)),
        }
    }

    /// Waits until the server has all ends, and gives this process's membership up.
    fn leave(&self, queue: &requeue_postgres::Queue<Key, Cause>) -> Result<(), String> {
        let begun = Instant::now();
        while !queue.is_settled() {
            if begun.elapsed() >= ENDS_ARRIVE {
                let why = queue.trouble().unwrap_or_else(|| "the server does not answer".to_owned());
                return Err(format!("the last runs may run again: their ends are not written: {why}"));
            }
            std::thread::sleep(LOOKS);
        }
        // a thread may have a handle for a moment longer than this process lives
        let left = queue.leave().wait();
        left.map_err(|e| format!("others may get the next runs late: {e}"))?;
        if let Some(outdated) = queue.outdated() {
            return Err(format!("{outdated}; the keys that it had are others' now"));
        }
        self.refused().map_or(Ok(()), Err)
    }

    /// A message about lines that were read, and not accepted.
    pub(crate) fn lost(&self, lines: u64) -> String {
        let lines = if lines == 1 { "line" } else { &format!("{lines} lines") };
        match &self.place {
            Place::File { named, .. } => {
                format!("{named}: the last {lines} that came may not be in it")
            }
            Place::Server(_) => format!("the last {lines} that came may not be in queue {}", self.name),
        }
    }

    /// Waits until the command is told to end. Meanwhile it reports trouble, and refused ends;
    /// [`finish`](Self::finish) reports later ones.
    pub(crate) fn stay(&self, control: &Control, log: &Log) {
        while !control.reached(Level::WorkOff) {
            pause(control, TRIES_AGAIN);
            self.ends_if_cut_off(control);
            self.tell_trouble(log);
            if let Some(refused) = self.refused() {
                log.note(&refused);
            }
        }
    }
}

/// Waits for this time, or until the command is told to end, or a signal came.
fn pause(control: &Control, at_most: Duration) {
    let at_most = Timespec::try_from(at_most).ok();
    let mut fds = [PollFd::from_borrowed_fd(control.reading_ends.fd(), PollFlags::IN)];
    // the caller looks again, also after an interrupted poll
    let _ = poll(&mut fds, at_most.as_ref());
}

fn is_retry(state: &KeyState) -> bool {
    state.waiting_until.is_some() && state.failures > 0
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
