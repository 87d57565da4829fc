//! The rows of the file: writing and reading of keys, triggers and ends of runs.
//!
//! A **trigger** is written before the queue in memory has it: `ready`, the earlier due instant, the merged value. An
//! **record** is written at the end of a run: all that the queue in memory knows of the key then, or that it knows
//! nothing. It is made under the queue's lock, so that the images of a key come in the order of its runs, and it
//! replaces the row. (Timers that a shutdown drops while their key is in line or runs are in its images all the same.)
//!
//! A record says which trigger was the last that memory had; both take their tickets from one counter. A transaction
//! writes the records first, then those triggers of the transaction before that a record did not know of yet, then its
//! own triggers. So a row is always what memory knew at some instant and the triggers since then.

use crate::runner_conn::Failed;
use crate::schedule::RULES;
use requeue::Instant;
use requeue_engine::{EngineError, Schedule};
use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params, params};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub(crate) type Wall = i64;

pub(crate) fn wall() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    micros(since)
}

pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(micros.unsigned_abs())
}

fn signed(ticket: u64) -> i64 {
    i64::try_from(ticket).unwrap_or(i64::MAX)
}

/// Merges a value with an older one, as bytes.
pub(crate) type MergeBytes = dyn Fn(&[u8], &[u8]) -> Result<Vec<u8>, EngineError> + Send + Sync;

/// A trigger in its stored form.
#[derive(Clone)]
pub(crate) struct TriggerRow {
    pub(crate) queue: i64,
    pub(crate) key: Box<[u8]>,
    pub(crate) ticket: u64,
    /// When it came.
    pub(crate) at: Wall,
    pub(crate) delay: Option<Duration>,
    pub(crate) priority: i16,
    pub(crate) value: Option<(Vec<u8>, Arc<MergeBytes>)>,
    /// Interval at which the key comes again after each run from now on. If it came again before, its timer is replaced,
    /// unless that is a retry's.
    pub(crate) every: Option<Duration>,
    /// The trigger absorbs the key's timer, which is removed.
    pub(crate) absorbs: bool,
}

/// State of a key in the queue in memory after the end of a run.
pub(crate) struct KeyRecord {
    pub(crate) ord: u64,
    pub(crate) ready: bool,
    /// It runs, and the file's state of that stays.
    pub(crate) held: bool,
    pub(crate) due: Option<Instant>,
    pub(crate) failures: u32,
    pub(crate) attempt: u32,
    pub(crate) priority: i16,
    pub(crate) value: Option<Vec<u8>>,
}

/// The clock of a queue, and the wall clock.
pub(crate) trait Clocks: Send + Sync {
    fn wall(&self) -> Wall;

    /// Time until then by the queue's clock.
    fn until(&self, due: Instant) -> Duration;
}

/// The end of a run in its stored form: the whole state of the key.
pub(crate) struct EndRow {
    /// `None` if nothing is known of the key.
    pub(crate) record: Option<KeyRecord>,
    /// The reason why its run gave up, if nothing else is known.
    pub(crate) dead: Option<String>,
    /// The last trigger that this state includes. Later ones come on top.
    pub(crate) applied: u64,
    pub(crate) clocks: Arc<dyn Clocks>,
}

/// A key of a queue of the file.
pub(crate) type Place = (i64, Box<[u8]>);

/// A key as read from the file.
pub(crate) struct Stored {
    pub(crate) key: Vec<u8>,
    pub(crate) ready: bool,
    pub(crate) due: Option<Wall>,
    pub(crate) delay: Option<i64>,
    pub(crate) failures: u32,
    pub(crate) attempt: u32,
    pub(crate) priority: i16,
    pub(crate) value: Option<Vec<u8>>,
}

/// The number of the queue with this name, which is created if needed.
pub(crate) fn queue_number(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    let known = "select id from queue where name = ?1";
    if let Some(id) = connection.query_row(known, [name], |row| row.get(0)).optional()? {
        return Ok(id);
    }
    let made = "insert into queue(name) values(?1) on conflict(name) do update set name = name returning id";
    written(connection, made, [name])?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// Runs a statement that writes at most one row. Returns its result when that is on the disk.
///
/// The statement is stepped to its end, because only there SQLite commits it and reports errors. `query_row`
/// takes the first row, and sees no error after it.
pub(crate) fn written<T: FromSql>(
    connection: &Connection,
    statement: &str,
    params: impl Params,
) -> rusqlite::Result<Option<T>> {
    let mut statement = connection.prepare_cached(statement)?;
    let mut rows = statement.query(params)?;
    let returned = rows.next()?.map(|row| row.get(0)).transpose()?;
    while rows.next()?.is_some() {}
    Ok(returned)
}

/// The reason why a trigger could not be written.
pub(crate) enum NotWritten {
    Store(rusqlite::Error),
    Trigger(EngineError),
}

impl NotWritten {
    pub(crate) fn of(self, nth: usize) -> Failed {
        match self {
            Self::Store(e) => e.into(),
            Self::Trigger(e) => Failed::Trigger(nth, e),
        }
    }
}

impl From<rusqlite::Error> for NotWritten {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error)
    }
}

pub(crate) fn write_end(begun: &Connection, queue: i64, key: &[u8], end: &EndRow) -> rusqlite::Result<()> {
    let record = match (&end.record, &end.dead) {
        (Some(record), _) => record,
        (None, Some(why)) => {
            let at = end.clocks.wall();
            let mut dead = begun.prepare_cached(
                "insert or replace into item(queue, key, ord, ready, failures, attempt, priority, first, dead, error)
                 values(?1, ?2, 0, 0, 0, 1, 0, ?3, 1, ?4)",
            )?;
            dead.execute(params![queue, key, at, why])?;
            return Ok(());
        }
        (None, None) => {
            let mut gone = begun.prepare_cached("delete from item where queue = ?1 and key = ?2")?;
            gone.execute(params![queue, key])?;
            return Ok(());
        }
    };
    let at = end.clocks.wall();
    let delay = record.due.map(|due| micros(end.clocks.until(due)));
    let due = delay.map(|delay| at.saturating_add(delay));
    if record.held {
        let mut held = begun.prepare_cached(
            "update item set ready = 1, due = ?3, delay = ?4, failures = ?5 where queue = ?1 and key = ?2",
        )?;
        held.execute(params![queue, key, due, delay, record.failures])?;
        return Ok(());
    }
    let mut known = begun.prepare_cached(
        "insert or replace into item(queue, key, ord, ready, due, delay, failures, attempt, priority, first, value)
         values(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    known.execute(params![
        queue,
        key,
        signed(record.ord),
        record.ready,
        due,
        delay,
        record.failures,
        record.attempt,
        record.priority,
        at,
        record.value,
    ])?;
    Ok(())
}

pub(crate) fn write_trigger(begun: &Connection, trigger: &TriggerRow) -> Result<(), NotWritten> {
    let TriggerRow { queue, key, ticket, at, delay, priority, value, every, absorbs } = trigger;
    let value = match value {
        None => None,
        Some((newer, merge)) => {
            let mut there = begun.prepare_cached("select value from item where queue = ?1 and key = ?2")?;
            let older: Option<Option<Vec<u8>>> =
                there.query_row(params![queue, key], |row| row.get(0)).optional()?;
            Some(match older.flatten() {
                None => newer.clone(),
                Some(older) => merge(&older, newer).map_err(NotWritten::Trigger)?,
            })
        }
    };
    let replaces = every.is_some() && is_scheduled(begun, *queue, key)?;
    let delay = delay.map(micros);
    let mut asked = begun.prepare_cached(
        "insert into item(queue, key, ord, ready, due, delay, failures, attempt, priority, first, value)
         values(?1, ?2, ?3, ?4, ?5, ?6, 0, 1, ?7, ?8, ?9)
         on conflict(queue, key) do update set
             ord = case when ready then ord else excluded.ord end,
             ready = max(ready, excluded.ready),
             delay = case when ?10 or ?11 and failures = 0 or due is null or excluded.due < due
                 then excluded.delay else delay end,
             due = case when ?10 or ?11 and failures = 0 or due is null
                 then excluded.due else min(due, coalesce(excluded.due, due)) end,
             priority = max(priority, excluded.priority),
             dead = 0,
             error = null,
             value = coalesce(excluded.value, value)",
    )?;
    let due = delay.map(|delay| at.saturating_add(delay));
    let (ord, ready) = (signed(*ticket), delay.is_none());
    asked.execute(params![queue, key, ord, ready, due, delay, priority, at, value, absorbs, replaces])?;
    if let Some(every) = every {
        let scheduled = "insert or replace into schedule(queue, key, every) values(?1, ?2, ?3)";
        begun.prepare_cached(scheduled)?.execute(params![queue, key, micros(*every)])?;
    }
    Ok(())
}

/// Writes the schedule. Returns the value of `every` for a key that comes again at its times.
pub(crate) fn rule(begun: &Connection, schedule: &Schedule) -> rusqlite::Result<Duration> {
    let number = "insert into rule(text) values(?1) on conflict(text) do update set text = text returning id";
    let number: Option<i64> = written(begun, number, [schedule.to_string()])?;
    number.map(|number| duration(RULES + number)).ok_or(rusqlite::Error::QueryReturnedNoRows)
}

fn is_scheduled(begun: &Connection, queue: i64, key: &[u8]) -> rusqlite::Result<bool> {
    let known = "select exists(select 1 from schedule where queue = ?1 and key = ?2)";
    begun.prepare_cached(known)?.query_row(params![queue, key], |row| row.get(0))
}

/// Ends the key's coming again after its runs. False if it did not come again.
pub(crate) fn unschedule(begun: &Connection, queue: i64, key: &[u8]) -> rusqlite::Result<bool> {
    let mut gone = begun.prepare_cached("delete from schedule where queue = ?1 and key = ?2")?;
    Ok(gone.execute(params![queue, key])? > 0)
}
