//! [`Writer`]: concurrent callers share one transaction, and a lone caller writes its own.
//!
//! ```text
//!   a call: push a trigger, note who is to be told       an end of a run: note what is known of its key
//!      └─► wait: is nobody writing?  ──yes──► write all that is noted, tell everybody
//!                     └──no──► sleep until told: the committer writes when who writes now is done
//! ```
//!
//! One thread at a time has the connection. It takes everything recorded, writes it in one transaction, and then
//! reports to each trigger that it is written, in the order of their tickets: only then the trigger is given
//! to the queue in memory, and only after that its caller is told. So the queue in memory never has a trigger
//! that is not on the disk.

use crate::inbox::{self, InboxRow};
use crate::rows::{EndRow, Place, TriggerRow};
use crate::runner_conn::{Failed, Group, RunnerConn};
use crate::write_signal::WriteSignal;
use requeue::BoxError;
use requeue_engine::EngineError;
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long ends of runs wait for a trigger whose transaction includes them. A run whose end was not written
/// runs again if the process dies.
const ENDS_WAIT: Duration = Duration::from_millis(10);
/// Time after which runs are shown to others.
const SHOWS: Duration = Duration::from_millis(50);
/// Delay before a failed transaction is tried again, if no trigger comes.
const TRIES_AGAIN: Duration = Duration::from_millis(200);
/// Maximum number of triggers written at once, so that no caller waits for an endless transaction.
const MOST: usize = 4096;

/// Poll interval for requests of other processes without a write signal: a poll reads a number in shared memory.
const LOOKS: Duration = Duration::from_millis(20);
/// Poll interval with a write signal, because a process may die between its request and the ring.
const LOOKS_WITH_SIGNAL: Duration = Duration::from_secs(1);

/// Callback for a trigger that was written, or was not. It must not panic.
pub(crate) type OnWritten = Box<dyn FnOnce(Result<(), EngineError>) + Send>;

/// A queue of this process, as a receiver of other processes' requests.
pub(crate) trait Intake: Send + Sync {
    /// The trigger to write for a request, and the callback for it.
    fn trigger(
        self: Arc<Self>,
        request: &InboxRow,
        ticket: u64,
    ) -> Result<(TriggerRow, OnWritten), EngineError>;

    /// Joins two immediate triggers of a key, so that no run begins between them. False if that is not
    /// possible.
    fn join(&self, first: &mut InboxRow, later: &InboxRow) -> bool;

    /// Whether it is shut down.
    fn is_shut_down(&self) -> bool;

    /// Executes a request in memory. Returns its answer, or what the file must do.
    fn obey(&self, request: &InboxRow) -> Obeyed;

    /// Shows running keys to others. True if some have begun so recently that they are not shown yet.
    fn show_runs(&self, conn: &RunnerConn) -> bool;

    /// Handles the loss of the queue or its file: it hands nothing out from now on.
    fn lose(&self);
}

/// A request, and its queue if that is open.
type Routed = (InboxRow, Option<Arc<dyn Intake>>);

/// Requests with their answers; one without an answer is removed.
type Answered = Vec<(i64, Option<String>)>;

/// Result of a request.
pub(crate) enum Obeyed {
    /// It is done.
    Answer(String),
    /// An immediate trigger must be written for it; then this is the answer.
    Trigger(String),
    /// The file does the rest.
    InFile,
}

/// A handle for writing. When the last one is dropped, pending writes are written and the file is closed.
pub(crate) struct Writer {
    batcher: Arc<AddBatcher>,
    /// Rung by other processes that have written requests.
    write_signal: Option<WriteSignal>,
    committer: Option<JoinHandle<()>>,
}

/// State shared by writers and the committer.
struct AddBatcher {
    noted: Mutex<Noted>,
    conn: Mutex<RunnerConn>,
    /// The queues that are open, by their numbers.
    intakes: Mutex<HashMap<i64, Weak<dyn Intake>>>,
    /// Queues without a handle in this process, to be released when all is written.
    leaving: Mutex<Vec<i64>>,
    /// The error of the last group.
    trouble: Mutex<Option<String>>,
    lost: OnceLock<String>,
    wake: Wake,
}

#[derive(Default)]
struct Noted {
    group: Group,
    /// Callbacks of the triggers.
    told: Vec<OnWritten>,
    /// Callbacks for when the recorded ends are written.
    waits: Vec<OnWritten>,
    tickets: u64,
}

/// The committer's reason to wake up.
#[derive(Default)]
struct Wake {
    asked: Mutex<WakeReason>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum WakeReason {
    #[default]
    Nothing,
    /// Keys have begun to run.
    Shown,
    /// Ends are noted.
    Soon,
    /// A caller waits.
    Now,
    /// The last writer was dropped.
    Ends,
}

thread_local! {
    /// Whether this thread writes: it has the connection, and calls back.
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as the one that writes, until it is dropped.
struct WritesHere;

impl WritesHere {
    fn begin() -> Self {
        WRITES.set(true);
        Self
    }
}

impl Drop for WritesHere {
    fn drop(&mut self) {
        WRITES.set(false);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in a hold is caught, or leaves the noted group whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    /// # Errors
    ///
    /// If the system can't start the committer.
    pub(crate) fn start(path: &Path, conn: RunnerConn) -> std::io::Result<Arc<Self>> {
        let batcher = AddBatcher {
            noted: Mutex::default(),
            conn: Mutex::new(conn),
            intakes: Mutex::default(),
            leaving: Mutex::default(),
            lost: OnceLock::new(),
            trouble: Mutex::default(),
            wake: Wake::default(),
        };
        let batcher = Arc::new(batcher);
        let woken = batcher.clone();
        let write_signal = WriteSignal::listen(path, move || woken.wake.ask(WakeReason::Now));
        let looks = if write_signal.is_some() { LOOKS_WITH_SIGNAL } else { LOOKS };
        let committer = batcher.clone();
        let thread = std::thread::Builder::new().name("requeue-sqlite".into());
        let committer = Some(thread.spawn(move || committer.commits(looks))?);
        Ok(Arc::new(Self { batcher, write_signal, committer }))
    }

    /// Runs `call` with the connection, for operations without a group.
    pub(crate) fn with_conn<R>(&self, call: impl FnOnce(&mut RunnerConn) -> R) -> R {
        call(&mut lock(&self.batcher.conn))
    }

    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.batcher.trouble).clone()
    }

    /// The reason why this process no longer works on the file.
    pub(crate) fn lost(&self) -> Option<String> {
        self.batcher.lost.get().cloned()
    }

    /// Reads a queue's keys, and registers it for requests. Nothing is written in between, or a request would
    /// be in the file alone. `read` returns the last place in its line.
    pub(crate) fn take_in(
        &self,
        queue: i64,
        intake: Weak<dyn Intake>,
        read: impl FnOnce(&mut RunnerConn) -> Result<u64, EngineError>,
    ) -> Result<(), EngineError> {
        let mut conn = lock(&self.batcher.conn);
        let last = read(&mut conn)?;
        let mut noted = lock(&self.batcher.noted);
        noted.tickets = noted.tickets.max(last);
        drop(noted);
        lock(&self.batcher.intakes).insert(queue, intake);
        conn.look_again();
        drop(conn);
        self.ask();
        Ok(())
    }

    /// Takes a queue away from the thread that writes, which has it for a moment now and then: a drop of the
    /// queue after this is the last one, and has closed it when it returns.
    pub(crate) fn take_back(&self, queue: i64) {
        // a callback of that thread drops it: it can't wait for itself
        if !WRITES.get() {
            let conn = lock(&self.batcher.conn);
            lock(&self.batcher.intakes).remove(&queue);
            drop(conn);
        }
    }

    /// Releases a queue without handles in this process, when all is written.
    pub(crate) fn leave(&self, queue: i64) {
        lock(&self.batcher.leaving).push(queue);
        self.lead();
        self.ask();
    }

    /// Notes that a key has begun to run.
    pub(crate) fn shows_soon(&self) {
        self.batcher.wake.ask(WakeReason::Shown);
    }

    /// Records a trigger, which gets its ticket. It is written when a caller [leads](Self::lead) or the
    /// committer is [asked](Self::ask).
    pub(crate) fn push(&self, mut trigger: TriggerRow, told: impl FnOnce(u64) -> OnWritten) {
        let mut noted = lock(&self.batcher.noted);
        noted.tickets += 1;
        trigger.ticket = noted.tickets;
        let told = told(trigger.ticket);
        noted.group.triggers.push(trigger);
        noted.told.push(told);
    }

    /// Records the state of a key at the end of a run. `record` gets its ticket.
    pub(crate) fn push_end(&self, place: Place, end: impl FnOnce(u64) -> EndRow) {
        let mut noted = lock(&self.batcher.noted);
        noted.tickets += 1;
        let end = end(noted.tickets);
        let first = noted.group.ends.is_empty();
        noted.group.ends.insert(place, end);
        drop(noted);
        if first {
            self.batcher.wake.ask(WakeReason::Soon);
        }
    }

    /// Records that a queue is paused or resumed.
    pub(crate) fn push_pause(&self, queue: i64, paused: bool) {
        lock(&self.batcher.noted).group.paused.insert(queue, paused);
    }

    /// Records that a key no longer comes again after its runs.
    pub(crate) fn push_unscheduled(&self, place: Place) {
        lock(&self.batcher.noted).group.unscheduled.push(place);
        self.batcher.wake.ask(WakeReason::Soon);
    }

    /// Records that a key can't be run, and why.
    pub(crate) fn push_dead(&self, place: Place, why: String) {
        lock(&self.batcher.noted).group.dead.push((place, why));
        self.batcher.wake.ask(WakeReason::Soon);
    }

    /// Records a callback for when the ends recorded before are written.
    pub(crate) fn push_wait(&self, told: OnWritten) {
        lock(&self.batcher.noted).waits.push(told);
    }

    /// Asks the committer to write.
    pub(crate) fn ask(&self) {
        self.batcher.wake.ask(WakeReason::Now);
    }

    /// Writes everything recorded, unless another thread is writing; that one then makes sure that it is
    /// written.
    pub(crate) fn lead(&self) {
        let conn = match self.batcher.conn.try_lock() {
            Ok(conn) => conn,
            Err(std::sync::TryLockError::Poisoned(conn)) => conn.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return,
        };
        self.batcher.commit(conn);
        // callers that came meanwhile found the connection taken
        if self.batcher.is_asked() {
            self.ask();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.write_signal.take());
        self.batcher.wake.ask(WakeReason::Ends);
        // so that the file is closed when the last handle is gone
        let committer = self.committer.take().filter(|it| it.thread().id() != std::thread::current().id());
        if let Some(committer) = committer {
            drop(committer.join());
        }
    }
}

impl AddBatcher {
    fn is_asked(&self) -> bool {
        let noted = lock(&self.noted);
        !(noted.group.triggers.is_empty() && noted.waits.is_empty())
    }

    /// Writes one group, and calls its callbacks. False if it was not written, or requests could not be read.
    fn commit(&self, mut conn: MutexGuard<'_, RunnerConn>) -> bool {
        let _writes = WritesHere::begin();
        let is_written = self.commit_group(&mut conn);
        if is_written && self.is_empty() {
            for queue in std::mem::take(&mut *lock(&self.leaving)) {
                conn.leave(queue);
            }
        }
        is_written
    }

    fn commit_group(&self, conn: &mut RunnerConn) -> bool {
        // A key added to a queue that takes no more was accepted all the same: it stays in the inbox until
        // the queue is opened again. In its row it would not be safe: the queue in memory does not know of
        // it, and may end a run of the same key.
        let closed = self.closed();
        let has_requests = conn.has_requests(&closed);
        let is_read = has_requests.is_ok();
        if matches!(has_requests, Ok(false)) && self.is_empty() && conn.lost().is_none() {
            let waits = std::mem::take(&mut lock(&self.noted).waits);
            waits.into_iter().for_each(|told| told(Ok(())));
            return true;
        }
        if let Err(e) = conn.begin() {
            conn.look_again();
            let (group, mut told, waits) = self.next_group(Vec::new(), Answered::new());
            told.extend(waits);
            return self.failed(conn, group, told, e);
        }
        // Now, because others can't write any more: the next run sees each trigger that they were told is
        // accepted.
        let requests = conn.requests(&closed);
        let is_read = is_read && requests.is_ok();
        let mut requests = requests.unwrap_or_default();
        // Requests other than triggers are handled at once, and triggers are applied when they are written. A
        // request behind a trigger waits for that, because both may be for the same key.
        let mut triggers = false;
        let behind = requests.iter().position(|request| {
            let waits = triggers && !request.is_add();
            triggers |= request.is_add() || request.what == "retry";
            waits
        });
        if let Some(behind) = behind {
            requests.truncate(behind);
            conn.look_again();
        }
        // some are left, and no signal will come for them
        if !requests.is_empty() && conn.looks_again() {
            self.wake.ask(WakeReason::Now);
        }
        let (requests, answered) = self.obey(conn, requests);
        let (mut group, mut told, waits) = self.next_group(requests, answered);
        loop {
            if group.is_empty() {
                conn.roll_back();
                told.extend(waits);
                told.into_iter().for_each(|told| told(Ok(())));
                return is_read;
            }
            match conn.write(&group) {
                Ok(()) => {
                    *lock(&self.trouble) = None;
                    told.extend(waits);
                    told.into_iter().for_each(|told| told(Ok(())));
                    return is_read;
                }
                // users' code has refused one trigger: the others go on without it
                Err(Failed::Trigger(nth, error)) => {
                    group.triggers.remove(nth);
                    told.remove(nth)(Err(error));
                    if let Err(e) = conn.begin() {
                        told.extend(waits);
                        return self.failed(conn, group, told, e);
                    }
                }
                Err(e) => {
                    conn.look_again();
                    told.extend(waits);
                    return self.failed(conn, group, told, e);
                }
            }
        }
    }

    /// Whether nothing is recorded to be written.
    fn is_empty(&self) -> bool {
        lock(&self.noted).group.is_empty()
    }

    /// The open queues that are shut down.
    fn closed(&self) -> Vec<i64> {
        // one that goes here must not go under the lock
        let open: Vec<_> =
            lock(&self.intakes).iter().filter_map(|(queue, it)| Some((*queue, it.upgrade()?))).collect();
        open.into_iter().filter(|(_, intake)| intake.is_shut_down()).map(|(queue, _)| queue).collect()
    }

    /// The queue of this request, if it is open.
    fn intake(&self, request: &InboxRow) -> Option<Arc<dyn Intake>> {
        lock(&self.intakes).get(&request.queue).and_then(Weak::upgrade)
    }

    /// Executes requests in the open queues. Returns the requests to be written as triggers, or left to the
    /// file; and the answers to the others.
    fn obey(&self, conn: &mut RunnerConn, requests: Vec<InboxRow>) -> (Vec<Routed>, Answered) {
        let (mut left, mut answered) = (Vec::new(), Answered::new());
        for request in requests {
            match self.intake(&request) {
                // waiting, dead and ready keys are all in the file
                Some(_)
                    if request.what == "retry"
                        && !conn.knows(request.queue, &request.key).unwrap_or(true) =>
                {
                    answered.push((request.id, Some("nothing".to_owned())));
                }
                Some(intake) if !request.is_add() => match intake.obey(&request) {
                    Obeyed::Answer(answer) => answered.push((request.id, Some(answer))),
                    Obeyed::Trigger(answer) => {
                        answered.push((request.id, Some(answer)));
                        left.push((request, Some(intake)));
                    }
                    Obeyed::InFile => left.push((request, None)),
                },
                intake => left.push((request, intake)),
            }
        }
        (left, answered)
    }

    /// Joins triggers of one key into one. The others get its answer.
    fn joined(requests: Vec<Routed>, answered: &mut Answered) -> Vec<Routed> {
        let mut joined: Vec<Routed> = Vec::with_capacity(requests.len());
        let mut first: HashMap<(i64, Vec<u8>), usize> = HashMap::new();
        for (request, intake) in requests {
            let is_now = request.is_add() && request.delay.is_none();
            let intake = match intake {
                Some(intake) if is_now => intake,
                intake => {
                    joined.push((request, intake));
                    continue;
                }
            };
            let known = first.get(&(request.queue, request.key.clone())).copied();
            if known.is_some_and(|at| intake.join(&mut joined[at].0, &request)) {
                answered.push((request.id, None));
                continue;
            }
            first.insert((request.queue, request.key.clone()), joined.len());
            joined.push((request, Some(intake)));
        }
        joined
    }

    /// The next group: everything recorded, followed by the triggers of requests; the callbacks of the
    /// triggers, and those of the ends.
    fn next_group(
        &self,
        requests: Vec<Routed>,
        mut answered: Answered,
    ) -> (Group, Vec<OnWritten>, Vec<OnWritten>) {
        let requests = Self::joined(requests, &mut answered);
        let mut noted = lock(&self.noted);
        let noted_now = noted.group.triggers.len();
        // tickets are written in their order, so that nothing may be left before those of requests
        let most = if requests.is_empty() { noted_now.min(MOST) } else { noted_now };
        let mut group = Group {
            ends: std::mem::take(&mut noted.group.ends),
            paused: std::mem::take(&mut noted.group.paused),
            unscheduled: std::mem::take(&mut noted.group.unscheduled),
            dead: std::mem::take(&mut noted.group.dead),
            triggers: noted.group.triggers.drain(..most).collect(),
            ..Group::default()
        };
        let mut told: Vec<_> = noted.told.drain(..most).collect();
        let waits = std::mem::take(&mut noted.waits);
        let tickets = noted.tickets + 1..;
        noted.tickets += requests.len() as u64;
        // An intake may want the lock of its queue, under which ends are noted.
        drop(noted);
        for ((request, intake), ticket) in requests.into_iter().zip(tickets) {
            let Some(intake) = intake else {
                group.requests.push(request);
                continue;
            };
            let is_add = request.is_add();
            match intake.trigger(&request, ticket) {
                Ok((trigger, tells)) => {
                    group.triggers.push(trigger);
                    told.push(tells);
                    if is_add {
                        answered.push((request.id, None));
                    }
                }
                // it was shut down just now, and the request stays where it is
                Err(EngineError::ShutDown) if is_add => {}
                // it was accepted: what can't be run is shown, with the reason
                Err(e) if is_add => {
                    group.dead.push(((request.queue, request.key.into()), inbox::why(&e)));
                    answered.push((request.id, None));
                }
                Err(e) => answered.push((request.id, Some(e.to_string()))),
            }
        }
        group.answered = answered;
        (group, told, waits)
    }

    /// The loop of the committer.
    fn commits(&self, looks: Duration) {
        loop {
            let asked = self.wake.next(looks);
            let written = catch_unwind(AssertUnwindSafe(|| self.commit(lock(&self.conn))));
            if asked == WakeReason::Ends {
                // no caller waits for a trigger any more: each such caller has a writer
                return;
            }
            if self.looks_around(asked) {
                self.wake.ask(WakeReason::Shown);
            }
            if self.is_asked() {
                self.wake.ask(WakeReason::Now);
            } else if !written.unwrap_or(false) {
                lock(&self.conn).make_room();
                std::thread::sleep(TRIES_AGAIN);
                self.wake.ask(WakeReason::Soon);
            }
        }
    }

    /// Does the periodic work. True if some running keys are not shown yet.
    fn looks_around(&self, asked: WakeReason) -> bool {
        let _writes = WritesHere::begin();
        let mut conn = lock(&self.conn);
        if asked == WakeReason::Nothing {
            conn.check_place();
        }
        if let Some(lost) = conn.lost() {
            self.lose(lost);
        }
        let open: Vec<_> = lock(&self.intakes).values().filter_map(Weak::upgrade).collect();
        let mut some = false;
        for intake in open {
            some |= intake.show_runs(&conn);
        }
        some
    }

    /// Handles the loss of the queues or the file.
    fn lose(&self, why: &str) {
        if self.lost.set(why.to_owned()).is_ok() {
            *lock(&self.trouble) = Some(why.to_owned());
            let open: Vec<_> = lock(&self.intakes).values().filter_map(Weak::upgrade).collect();
            open.iter().for_each(|intake| intake.lose());
        }
    }

    /// Handles a group that was not written: its triggers are refused, and its ends are kept.
    fn failed(&self, conn: &RunnerConn, group: Group, told: Vec<OnWritten>, failed: Failed) -> bool {
        let mut noted = lock(&self.noted);
        // Letters stand in the file, and are read again.
        for (place, end) in group.ends {
            // an end noted meanwhile is newer
            noted.group.ends.entry(place).or_insert(end);
        }
        for (queue, paused) in group.paused {
            noted.group.paused.entry(queue).or_insert(paused);
        }
        noted.group.unscheduled.extend(group.unscheduled);
        noted.group.dead.extend(group.dead);
        drop(noted);
        let (why, error): (_, fn(BoxError) -> EngineError) = match failed {
            Failed::Maybe(why) => (why.to_string(), EngineError::Unknown),
            failed => (inbox::why(&failed.into_error()), EngineError::NotApplied),
        };
        *lock(&self.trouble) = Some(why.clone());
        if let Some(lost) = conn.lost() {
            self.lose(lost);
        }
        told.into_iter().for_each(|told| told(Err(error(why.clone().into()))));
        false
    }
}

impl Wake {
    fn ask(&self, what: WakeReason) {
        let mut asked = lock(&self.asked);
        if *asked < what {
            *asked = what;
            self.changed.notify_one();
        }
    }

    /// Sleeps until something is asked for and its time has come, or it is time to look for requests.
    fn next(&self, looks: Duration) -> WakeReason {
        let mut asked = lock(&self.asked);
        loop {
            asked = match *asked {
                WakeReason::Nothing => {
                    let waited = self.changed.wait_timeout(asked, looks);
                    let (asked, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() && *asked == WakeReason::Nothing {
                        return WakeReason::Nothing;
                    }
                    asked
                }
                now @ (WakeReason::Shown | WakeReason::Soon) => {
                    let rest = if now == WakeReason::Soon { ENDS_WAIT } else { SHOWS };
                    let waited = self.changed.wait_timeout(asked, rest);
                    let (asked, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() {
                        return self.taken(asked);
                    }
                    asked
                }
                WakeReason::Now | WakeReason::Ends => return self.taken(asked),
            };
        }
    }

    fn taken(&self, mut asked: MutexGuard<'_, WakeReason>) -> WakeReason {
        std::mem::take(&mut *asked)
    }
}
