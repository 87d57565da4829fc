//! The connection: a file as used by the process that works on its queues, read, and written in transactions.

use crate::inbox::{self, InboxRow, MOST_REQUESTS, bury, fold, obey, pause, write_or_bury};
use crate::lock::{Database, Turn, Writes, bequeath, has_heir};
use crate::look::Look;
use crate::rows::{
    EndRow, MergeBytes, Place, Stored, TriggerRow, duration, queue_number, unschedule, wall, write_end,
    write_trigger,
};
use crate::schema::{Link, Scan, not_applied, words};
use requeue::BoxError;
use requeue_engine::EngineError;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The contents of one transaction.
#[derive(Default)]
pub(crate) struct Group {
    /// The last end of each key, because each has the whole state.
    pub(crate) ends: HashMap<Place, EndRow>,
    pub(crate) triggers: Vec<TriggerRow>,
    /// Keys whose interval or schedule was removed.
    pub(crate) unscheduled: Vec<Place>,
    /// Requests that the queue in memory has handled, with their answers.
    pub(crate) answered: Vec<(i64, Option<String>)>,
    /// Requests that only the file must handle.
    pub(crate) requests: Vec<InboxRow>,
    /// Keys that can't be run, with the reasons.
    pub(crate) dead: Vec<(Place, String)>,
    /// Queues that are paused or resumed.
    pub(crate) paused: HashMap<i64, bool>,
}

impl Group {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { ends, triggers, unscheduled, answered, requests, dead, paused } = self;
        ends.is_empty()
            && triggers.is_empty()
            && unscheduled.is_empty()
            && answered.is_empty()
            && requests.is_empty()
            && dead.is_empty()
            && paused.is_empty()
    }
}

/// The state of the connection.
#[expect(clippy::large_enum_variant, reason = "there is one for each file")]
enum Open {
    Writes(Link),
    /// The disk is full, and SQLite has no room for its files beside the database. It is only read meanwhile.
    Reads(Look),
}

/// A queue that this process works on.
struct Epoch {
    /// The epoch that the transaction must find.
    epoch: i64,
    /// It is in the file.
    is_written: bool,
}

/// The connection of the process that works.
pub(crate) struct RunnerConn {
    open: Open,
    path: PathBuf,
    /// SQLite's counter of other connections' writes.
    version: Option<i64>,
    /// The triggers of the last transaction. An end recorded before they were applied does not include them:
    /// after such an end they are written once more.
    recent: Vec<TriggerRow>,
    pub(crate) commits: u64,
    epochs: HashMap<i64, Epoch>,
    /// The turn to write, during a transaction.
    turn: Option<Turn>,
    /// The reason why this process no longer works on the file: another one does, or the file is gone.
    lost: Option<String>,
}

/// The reason why a group was not written.
pub(crate) enum Failed {
    /// Nothing was written.
    Not(BoxError),
    /// Everything may have been written.
    Maybe(BoxError),
    /// Nothing was written, because of this trigger alone.
    Trigger(usize, EngineError),
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Not(words(error))
    }
}

impl Failed {
    pub(crate) fn into_error(self) -> EngineError {
        match self {
            Self::Not(e) => EngineError::NotApplied(e),
            Self::Maybe(e) => EngineError::Unknown(e),
            Self::Trigger(_, e) => e,
        }
    }
}

/// Result of claiming a queue.
pub(crate) enum Claimed {
    /// This process works on it from now on: the queue's number, and the fence before its first one.
    Ours(i64, u64),
    /// Another one does: the queue's number, and that of the process, if it stands in the file.
    By(i64, Option<u32>),
}

/// Whether there was no room for it. For its shared memory, and for files that it can't create, SQLite does
/// not say so.
fn is_full(e: &EngineError, path: &Path) -> bool {
    let (EngineError::NotApplied(why) | EngineError::Unknown(why)) = e else { return false };
    why.to_string().contains("disk is full") || has_no_room(path)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn has_no_room(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < 1 << 16)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn has_no_room(_: &Path) -> bool {
    false
}

/// A key that comes again: the interval, and the schedule behind it.
pub(crate) type Scheduled = (Vec<u8>, Duration, Option<String>);

impl RunnerConn {
    /// Opens the file, or creates it. On a full disk it is only read until there is room.
    pub(crate) fn open(path: &Path) -> Result<Self, EngineError> {
        let open = match Link::open(path, Writes::Runner) {
            Ok(link) => Open::Writes(link),
            Err(e) if is_full(&e, path) => {
                let mut look = Look::at(path).map_err(|_| EngineError::NotApplied(e.to_string().into()))?;
                // an empty file has no queue to be worked on, and one of an older schema is read when it is brought to this one
                match look.look(|_, version| Ok(version)) {
                    Ok(version) if version == crate::schema::VERSION => Open::Reads(look),
                    _ => return Err(e),
                }
            }
            Err(e) => return Err(e),
        };
        Ok(Self {
            open,
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            version: None,
            recent: Vec::new(),
            commits: 0,
            epochs: HashMap::new(),
            turn: None,
            lost: None,
        })
    }

    pub(crate) fn database(&self) -> &Database {
        match &self.open {
            Open::Writes(link) => &link.database,
            Open::Reads(look) => look.database(),
        }
    }

    /// The reason why nothing is written any more, once this process has lost a queue or the file.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    pub(crate) fn limit_pages(&mut self, pages: u32) -> rusqlite::Result<u32> {
        let Open::Writes(Link { connection, .. }) = &self.open else { return Ok(0) };
        let before = connection.pragma_query_value(None, "max_page_count", |row| row.get(0))?;
        connection.pragma_update(None, "max_page_count", pages)?;
        Ok(before)
    }

    /// Reads with a scan's memory.
    fn read_with<T>(
        &mut self,
        mut read: impl FnMut(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, EngineError> {
        match &mut self.open {
            Open::Writes(link) => {
                let _scan = Scan::begin(&link.connection).map_err(not_applied)?;
                read(&link.connection).map_err(not_applied)
            }
            Open::Reads(look) => look.look(|connection, _| read(connection)),
        }
    }

    /// Starts to work on the queue with this name, and executes the requests from the time without a runner.
    pub(crate) fn claim(&mut self, name: &str, merge: &Arc<MergeBytes>) -> Result<Claimed, EngineError> {
        match self.claim_in_file(name, merge) {
            Err(e) if is_full(&e, &self.path) => self.claim_on_a_full_disk(name, e),
            claimed => claimed,
        }
    }

    fn claim_in_file(&mut self, name: &str, merge: &Arc<MergeBytes>) -> Result<Claimed, EngineError> {
        self.begin().map_err(Failed::into_error)?;
        let claimed = self.claim_begun(name, merge);
        let Ok(Claimed::Ours(queue, _)) = claimed else {
            self.roll_back();
            return claimed.map_err(not_applied);
        };
        if let Err(e) = self.commit() {
            self.leave(queue);
            return Err(e.into_error());
        }
        claimed.map_err(not_applied)
    }

    fn claim_begun(&mut self, name: &str, merge: &Arc<MergeBytes>) -> Result<Claimed, BoxError> {
        let Open::Writes(link) = &self.open else { unreachable!("a transaction has begun") };
        let begun = &link.connection;
        let queue = queue_number(begun, name)?;
        if !link.database.work_on(queue)? {
            return Ok(Claimed::By(queue, runner(begun, queue)?));
        }
        if has_heir(&self.path, queue) {
            link.database.leave(queue);
            return Ok(Claimed::By(queue, runner(begun, queue)?));
        }
        let claimed = || -> rusqlite::Result<i64> {
            let (last, passed) = last_epoch(begun, queue)?;
            let epoch = last + 2 + (passed >> EPOCHS);
            note_epoch(begun, queue, epoch)?;
            fold(begun, queue, Some(merge))?;
            Ok(epoch)
        };
        let epoch = claimed().inspect_err(|_| link.database.leave(queue))?;
        self.epochs.insert(queue, Epoch { epoch, is_written: true });
        Ok(Claimed::Ours(queue, epoch.unsigned_abs() << EPOCHS))
    }

    /// Claims a queue when nothing can be written: the file's keys run all the same, and requests are
    /// executed when writing works again.
    fn claim_on_a_full_disk(&mut self, name: &str, e: EngineError) -> Result<Claimed, EngineError> {
        let number = "select id from queue where name = ?1";
        let found = self.read_with(|connection| {
            let Some(queue) = connection.query_row(number, [name], |row| row.get(0)).optional()? else {
                return Ok(None);
            };
            Ok(Some((queue, last_epoch(connection, queue)?, runner(connection, queue)?)))
        })?;
        let Some((queue, (last, passed), runner)) = found else { return Err(e) };
        if !self.database().work_on(queue).map_err(not_applied)? {
            return Ok(Claimed::By(queue, runner));
        }
        let epoch = last + 1 + (passed >> EPOCHS);
        self.epochs.insert(queue, Epoch { epoch, is_written: false });
        let beyond = passed & ((1 << EPOCHS) - 1);
        Ok(Claimed::Ours(queue, (epoch.unsigned_abs() << EPOCHS) + beyond.unsigned_abs()))
    }

    /// Whether no process works on a queue, or may have inherited its lock. Where the system does not say it,
    /// a claim finds out.
    pub(crate) fn is_free(&self, queue: i64) -> bool {
        !self.database().is_worked_on(queue).unwrap_or(false) && !has_heir(&self.path, queue)
    }

    /// A lock on a queue that child processes may inherit.
    pub(crate) fn bequeath(&self, queue: i64) -> std::io::Result<std::os::fd::OwnedFd> {
        bequeath(&self.path, queue)
    }

    /// Stops working on a queue.
    pub(crate) fn leave(&mut self, queue: i64) {
        if self.epochs.remove(&queue).is_some() {
            self.database().leave(queue);
        }
    }

    /// Whether a queue is paused.
    pub(crate) fn is_paused(&mut self, queue: i64) -> Result<bool, EngineError> {
        let paused = "select paused from queue where id = ?1";
        self.read_with(|connection| connection.query_row(paused, [queue], |row| row.get(0)))
    }

    /// Whether a key is known.
    pub(crate) fn knows(&mut self, queue: i64, key: &[u8]) -> Result<bool, EngineError> {
        let known = "select exists(select 1 from item where queue = ?1 and key = ?2)";
        let Open::Writes(link) = &self.open else { return Ok(true) };
        link.connection.query_row(known, params![queue, key], |row| row.get(0)).map_err(not_applied)
    }

    /// Whether there are requests to the queues that this process works on. If there were none, this only
    /// reads shared memory until the next write.
    pub(crate) fn has_requests(&mut self, closed: &[i64]) -> rusqlite::Result<bool> {
        let Open::Writes(Link { connection, .. }) = &self.open else { return Ok(false) };
        let version = connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
        if self.version == Some(version) {
            return Ok(false);
        }
        let some = !inbox::unread(connection, &self.queues(), closed, 1)?.is_empty();
        if !some {
            self.version = Some(version);
        }
        Ok(some)
    }

    fn queues(&self) -> Vec<i64> {
        self.epochs.keys().copied().collect()
    }

    /// The unread requests, in the transaction that writes their effects. Triggers of the queues in `closed`
    /// are skipped, and do not block others.
    pub(crate) fn requests(&mut self, closed: &[i64]) -> rusqlite::Result<Vec<InboxRow>> {
        let Open::Writes(Link { connection, .. }) = &self.open else { return Ok(Vec::new()) };
        let version = connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
        if self.version == Some(version) {
            return Ok(Vec::new());
        }
        let requests = inbox::unread(connection, &self.queues(), closed, MOST_REQUESTS)?;
        // the next look finds those that are left
        self.version = if requests.len() < MOST_REQUESTS { Some(version) } else { None };
        Ok(requests)
    }

    /// Whether the next look for requests may find some although nothing was written since the last one.
    pub(crate) fn looks_again(&self) -> bool {
        self.version.is_none()
    }

    /// Makes the next look find the requests again: they were not written.
    pub(crate) fn look_again(&mut self) {
        self.version = None;
    }

    /// Reads the keys of a queue: waiting ones in no order, followed by those in line in its order. Returns
    /// the last place in line.
    pub(crate) fn read(
        &mut self,
        queue: i64,
        mut each: impl FnMut(Stored) -> Result<(), EngineError>,
    ) -> Result<u64, EngineError> {
        let (mut line, waiting) = self.read_with(|connection| read_items(connection, queue))?;
        waiting.into_iter().try_for_each(&mut each)?;
        // Sorted here: SQLite takes three times as long for a million.
        line.sort_unstable_by_key(|(place, _)| *place);
        let last = line.last().map_or(0, |(place, _)| place.unsigned_abs());
        line.into_iter().try_for_each(|(_, stored)| each(stored))?;
        Ok(last)
    }

    /// The keys of a queue that come again, with their intervals or schedules.
    pub(crate) fn schedule(&mut self, queue: i64) -> Result<Vec<Scheduled>, EngineError> {
        self.read_with(|connection| {
            let mut schedule = connection.prepare(
                "select key, every, (select text from rule where rule.id = every - (1 << 62)) from schedule
                 where queue = ?1",
            )?;
            let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, duration(row.get(1)?), row.get(2)?));
            let schedule = schedule.query_map([queue], read)?;
            schedule.collect()
        })
    }

    /// Begins a transaction: waits for the turn, and checks that this process may still write.
    pub(crate) fn begin(&mut self) -> Result<(), Failed> {
        if let Some(why) = &self.lost {
            return Err(Failed::Not(why.as_str().into()));
        }
        if let Open::Reads(look) = &self.open {
            if !look.database().is_at(&self.path) {
                return Err(self.lose(format!("{}: the file was removed or replaced", self.path.display())));
            }
            let link =
                Link::open(&self.path, Writes::Runner).map_err(|e| Failed::Not(e.to_string().into()))?;
            self.open = Open::Writes(link);
            self.look_again();
        }
        let Open::Writes(link) = &mut self.open else { unreachable!("it was opened above") };
        let turn = link.turn().map_err(|e| Failed::Not(inbox::why(&e).into()))?;
        link.connection.execute_batch("begin immediate")?;
        self.turn = Some(turn);
        self.check_place();
        if let Some(lost) = self.lost.clone() {
            self.roll_back();
            return Err(self.lose(lost));
        }
        let Open::Writes(link) = &mut self.open else { unreachable!("it was opened above") };
        let (mut lost, mut failed) = (None, None);
        for (queue, epoch) in &mut self.epochs {
            match is_ours(&link.connection, *queue, epoch) {
                Ok(true) => {}
                Ok(false) => lost = Some(format!("{}: another process works on it now", self.path.display())),
                Err(e) => failed = Some(e),
            }
        }
        if let Some(lost) = lost {
            self.roll_back();
            return Err(self.lose(lost));
        }
        failed.map_or(Ok(()), |e| {
            self.roll_back();
            Err(e.into())
        })
    }

    fn lose(&mut self, why: String) -> Failed {
        self.lost = Some(why.clone());
        Failed::Not(why.into())
    }

    /// Rolls back a transaction that has nothing to write.
    pub(crate) fn roll_back(&mut self) {
        if let Open::Writes(link) = &self.open {
            if !link.connection.is_autocommit() {
                // where that fails SQLite has done it already, or does it as it is opened next
                drop(link.connection.execute_batch("rollback"));
            }
        }
        self.turn = None;
    }

    /// After a write that has failed: on a full disk shortens SQLite's log, which may be what fills it.
    pub(crate) fn make_room(&mut self) {
        let Open::Writes(link) = &mut self.open else { return };
        if has_no_room(&self.path) && link.connection.is_autocommit() {
            if let Ok(turn) = link.turn() {
                link.shorten_log(&turn);
            }
        }
    }

    /// Checks that the file still has its name.
    pub(crate) fn check_place(&mut self) {
        if let Open::Writes(link) = &mut self.open {
            if self.lost.is_none() && !self.epochs.is_empty() {
                self.lost = link.is_cut_off();
            }
        }
    }

    fn commit(&mut self) -> Result<(), Failed> {
        let Open::Writes(link) = &mut self.open else { unreachable!("a transaction has begun") };
        if let Err(e) = link.connection.execute_batch("commit") {
            let code = e.sqlite_error_code();
            self.roll_back();
            return Err(match code {
                // it found no room for all of it, so it wrote no end of the transaction
                Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy) => Failed::Not(e.into()),
                _ => Failed::Maybe(words(e)),
            });
        }
        if let Some(turn) = self.turn.take() {
            link.end_turn(turn);
        }
        self.epochs.values_mut().for_each(|epoch| epoch.is_written = true);
        self.commits += 1;
        self.check_place();
        match &self.lost {
            None => Ok(()),
            Some(why) => Err(Failed::Maybe(why.as_str().into())),
        }
    }

    /// Writes a group into the current transaction, all or nothing. It is on the disk when this returns.
    pub(crate) fn write(&mut self, group: &Group) -> Result<(), Failed> {
        if let Err(e) = self.write_begun(group) {
            self.roll_back();
            return Err(e);
        }
        self.commit()?;
        if !group.triggers.is_empty() {
            self.recent.clone_from(&group.triggers);
        }
        Ok(())
    }

    fn write_begun(&self, group: &Group) -> Result<(), Failed> {
        let Open::Writes(Link { connection: begun, .. }) = &self.open else {
            unreachable!("a transaction has begun")
        };
        let newest = self.recent.last().map_or(0, |trigger| trigger.ticket);
        let mut recent: Option<ByKey<'_>> = None;
        for ((queue, key), end) in &group.ends {
            write_end(begun, *queue, key, end)?;
            if end.applied >= newest {
                continue;
            }
            let recent = recent.get_or_insert_with(|| {
                let mut by_key = ByKey::new();
                for trigger in &self.recent {
                    by_key.entry((trigger.queue, &*trigger.key)).or_default().push(trigger);
                }
                by_key
            });
            for trigger in recent.get(&(*queue, &**key)).into_iter().flatten() {
                if trigger.ticket > end.applied {
                    // not a trigger of this group, whose caller could be told: it was accepted before
                    write_or_bury(begun, trigger)?;
                }
            }
        }
        for (queue, key) in &group.unscheduled {
            unschedule(begun, *queue, key)?;
        }
        for (nth, trigger) in group.triggers.iter().enumerate() {
            write_trigger(begun, trigger).map_err(|e| e.of(nth))?;
        }
        for ((queue, key), why) in &group.dead {
            bury(begun, *queue, key, why)?;
        }
        for (request, answer) in &group.answered {
            inbox::answer(begun, *request, answer.as_deref())?;
        }
        for (queue, paused) in &group.paused {
            pause(begun, *queue, *paused)?;
        }
        for request in &group.requests {
            let done = obey(begun, request, None)?;
            inbox::answer(begun, request.id, done.as_deref())?;
        }
        Ok(())
    }
}

/// Triggers by queue and key.
type ByKey<'a> = HashMap<(i64, &'a [u8]), Vec<&'a TriggerRow>>;

/// Keys in line with their places, and the others.
type Items = (Vec<(i64, Stored)>, Vec<Stored>);

fn read_items(connection: &Connection, queue: i64) -> rusqlite::Result<Items> {
    let keys = "select key, ready, due, delay, failures, attempt, priority, value, ord from item
                where queue = ?1 and not dead";
    let mut keys = connection.prepare(keys)?;
    let mut rows = keys.query([queue])?;
    let (mut line, mut waiting) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let stored = Stored {
            key: row.get(0)?,
            ready: row.get(1)?,
            due: row.get(2)?,
            delay: row.get(3)?,
            failures: row.get(4)?,
            attempt: row.get(5)?,
            priority: row.get(6)?,
            value: row.get(7)?,
        };
        if stored.ready {
            line.push((row.get(8)?, stored));
        } else {
            waiting.push(stored);
        }
    }
    Ok((line, waiting))
}

/// Number of bits of a fence below the epoch: 10^12 runs per epoch.
const EPOCHS: u32 = 40;

/// The last epoch of the file, and the microseconds since the queue was opened to be worked on.
///
/// On a full disk the next epoch can't be written, and the one after it begins with that number. Fences then
/// start at the number of those microseconds, because a process hands out fewer keys than that. If the epoch
/// can be written it is one higher.
fn last_epoch(connection: &Connection, queue: i64) -> rusqlite::Result<(i64, i64)> {
    let last = connection.query_row("select n from epoch", [], |row| row.get(0))?;
    let since = "select at from runner where queue = ?1";
    let since: Option<i64> = connection.query_row(since, [queue], |row| row.get(0)).optional()?;
    Ok((last, since.map_or(0, |since| wall().saturating_sub(since).max(0))))
}

fn note_epoch(connection: &Connection, queue: i64, epoch: i64) -> rusqlite::Result<()> {
    connection.execute("update epoch set n = max(n, ?1)", [epoch])?;
    let runner = "insert or replace into runner(queue, epoch, pid, at) values(?1, ?2, ?3, ?4)";
    connection.prepare_cached(runner)?.execute(params![queue, epoch, std::process::id(), wall()])?;
    Ok(())
}

/// Whether the file has this epoch of the queue, or gets it now.
fn is_ours(connection: &Connection, queue: i64, epoch: &Epoch) -> rusqlite::Result<bool> {
    if !epoch.is_written {
        note_epoch(connection, queue, epoch.epoch)?;
        return Ok(true);
    }
    let found = "select epoch from runner where queue = ?1";
    let found: Option<i64> =
        connection.prepare_cached(found)?.query_row([queue], |row| row.get(0)).optional()?;
    Ok(found == Some(epoch.epoch))
}

/// The process that last worked on a queue.
pub(crate) fn runner(connection: &Connection, queue: i64) -> rusqlite::Result<Option<u32>> {
    let pid = "select pid from runner where queue = ?1";
    connection.query_row(pid, [queue], |row| row.get(0)).optional()
}
