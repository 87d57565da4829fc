//! The file: its schema, and what is written into it.

use requeue::{BoxError, EngineError, Instant};
use rusqlite::types::FromSql;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Params, Transaction, TransactionBehavior, params};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// "requeue" in the file's header, so that nobody takes it for something else, and we take nothing else for ours.
const APPLICATION: i32 = i32::from_be_bytes(*b"rque");
/// The version of the schema that this program writes.
#[expect(clippy::cast_possible_truncation, reason = "there are few")]
pub(crate) const VERSION: u32 = 1 + MIGRATIONS.len() as u32;

/// What each version has changed, from 2 on. A new file goes through all of them as well.
const MIGRATIONS: [&str; 1] = ["
alter table inbox add column every integer;
-- Keys that come again so many microseconds after each run, until they are cancelled.
create table schedule(
    queue integer not null,
    key blob not null,
    every integer not null,
    primary key(queue, key)
) strict, without rowid;
"];

/// Version 1. It is not changed any more.
const SCHEMA: &str = "
create table queue(
    id integer primary key,
    name text not null unique,
    paused integer not null default 0
) strict;
-- What is known of a key, as of the last commit. A key that is being run is as it was before its run.
create table item(
    queue integer not null,
    key blob not null,
    ord integer not null,       -- the place in line
    ready integer not null,     -- it is in line, or held
    due integer,                -- when its timer is due, in microseconds since 1970
    delay integer,              -- how long that was from when it was set: nothing waits for longer
    failures integer not null,
    attempt integer not null,
    priority integer not null,
    first integer not null,     -- when the first of its triggers came
    value blob,
    dead integer not null default 0, -- its last run gave up: it waits for a trigger
    error text,                 -- why
    primary key(queue, key)
) strict, without rowid;
-- What other processes ask of the one that works.
create table inbox(
    id integer primary key,
    queue integer not null,
    what text not null,         -- add, cancel, retry, pause, resume, purge
    at integer not null,
    key blob,
    delay integer,
    priority integer not null default 0,
    answer text                 -- what has become of it; an add has none, and is gone then
) strict;
-- How often the file was opened to be worked on: the upper part of fences.
create table epoch(n integer not null) strict;
insert into epoch values(0);
";

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

/// What a value and an older one make, as bytes.
pub(crate) type MergeBytes = dyn Fn(&[u8], &[u8]) -> Result<Vec<u8>, EngineError> + Send + Sync;

/// A trigger as it is written.
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
    /// From now on the key comes again so long after each run.
    pub(crate) every: Option<Duration>,
}

/// What the queue in memory knows of a key after the end of a run.
pub(crate) struct Image {
    pub(crate) ord: u64,
    pub(crate) ready: bool,
    /// It runs, and what is in the file of that stays.
    pub(crate) held: bool,
    pub(crate) due: Option<Instant>,
    pub(crate) failures: u32,
    pub(crate) attempt: u32,
    pub(crate) priority: i16,
    pub(crate) value: Option<Vec<u8>>,
}

/// The clock of a queue, and that on the wall.
pub(crate) trait Clocks: Send + Sync {
    fn wall(&self) -> Wall;

    /// How long it is until then by the queue's clock.
    fn until(&self, due: Instant) -> Duration;
}

/// What another process asks of a queue.
pub(crate) struct Letter {
    pub(crate) id: i64,
    pub(crate) queue: i64,
    pub(crate) what: String,
    pub(crate) at: Wall,
    pub(crate) key: Vec<u8>,
    pub(crate) delay: Option<Duration>,
    pub(crate) priority: i16,
    pub(crate) every: Option<Duration>,
}

/// The end of a run as it is written: all that is known of the key then.
pub(crate) struct EndRow {
    /// `None` if nothing is known.
    pub(crate) image: Option<Image>,
    /// Why its run gave up, if nothing else is known.
    pub(crate) dead: Option<String>,
    /// The last trigger of which this knows. Those behind it come on top.
    pub(crate) applied: u64,
    pub(crate) clocks: Arc<dyn Clocks>,
}

/// A key of one of the queues of the file.
pub(crate) type Place = (i64, Box<[u8]>);

/// What is written in one transaction.
#[derive(Default)]
pub(crate) struct Group {
    /// The last end of each key, as each says all.
    pub(crate) ends: HashMap<Place, EndRow>,
    pub(crate) triggers: Vec<TriggerRow>,
    /// Keys that do not come again any more.
    pub(crate) unscheduled: Vec<Place>,
    /// Letters of which the queue in memory has taken note, with their answers.
    pub(crate) answered: Vec<(i64, Option<String>)>,
    /// Letters that only the file is to take note of.
    pub(crate) letters: Vec<Letter>,
    /// The queues that are paused from now on, or not any more.
    pub(crate) paused: HashMap<i64, bool>,
}

impl Group {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { ends, triggers, unscheduled, answered, letters, paused } = self;
        ends.is_empty()
            && triggers.is_empty()
            && unscheduled.is_empty()
            && answered.is_empty()
            && letters.is_empty()
            && paused.is_empty()
    }
}

/// A key as it was read.
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

/// The connection of the process that works.
pub(crate) struct Store {
    connection: Connection,
    /// What SQLite said last of the writes of others.
    version: Option<i64>,
    /// The triggers of the last transaction. What came to an end before they were applied does not know of them.
    recent: Vec<TriggerRow>,
    pub(crate) commits: u64,
    /// Locked as long as the file is open to be worked on. The lock ends with the process, however that ends.
    lock: File,
}

/// Why a group was not written.
pub(crate) enum Failed {
    /// None of it was.
    Not(rusqlite::Error),
    /// All of it may have been.
    Maybe(rusqlite::Error),
    /// None of it was, because of this trigger alone.
    Trigger(usize, EngineError),
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Not(error)
    }
}

fn not_applied(why: impl Into<BoxError>) -> EngineError {
    EngineError::NotApplied(why.into())
}

impl Store {
    /// Opens the file, or makes it, and then takes the lock: beside a file of another program there is to be none.
    pub(crate) fn open(
        path: &Path,
        take: impl FnOnce(&Path) -> Result<File, EngineError>,
    ) -> Result<Self, EngineError> {
        let connection = connect(path)?;
        Ok(Self { connection, version: None, recent: Vec::new(), commits: 0, lock: take(path)? })
    }

    /// The file is opened to be worked on once more: how often that was.
    pub(crate) fn next_epoch(&mut self) -> rusqlite::Result<u64> {
        let next = "update epoch set n = n + 1 returning n";
        written::<i64>(&self.connection, next, [])?
            .map(i64::unsigned_abs)
            .ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    /// The same lock once more.
    pub(crate) fn lock(&self) -> std::io::Result<File> {
        self.lock.try_clone()
    }

    pub(crate) fn limit_pages(&mut self, pages: u32) -> rusqlite::Result<u32> {
        let before = self.connection.pragma_query_value(None, "max_page_count", |row| row.get(0))?;
        self.connection.pragma_update(None, "max_page_count", pages)?;
        Ok(before)
    }

    /// The number of the queue of this name.
    pub(crate) fn queue(&mut self, name: &str) -> rusqlite::Result<i64> {
        queue_number(&self.connection, name)
    }

    /// The largest place in any line.
    pub(crate) fn last_place(&mut self) -> rusqlite::Result<u64> {
        let last = "select coalesce(max(ord), 0) from item";
        let _scan = Scan::begin(&self.connection)?;
        self.connection.query_row(last, [], |row| row.get(0)).map(i64::unsigned_abs)
    }

    /// Whether a queue is paused.
    pub(crate) fn is_paused(&mut self, queue: i64) -> rusqlite::Result<bool> {
        self.connection.query_row("select paused from queue where id = ?1", [queue], |row| row.get(0))
    }

    /// Whether anything is known of a key.
    pub(crate) fn knows(&mut self, queue: i64, key: &[u8]) -> rusqlite::Result<bool> {
        let known = "select exists(select 1 from item where queue = ?1 and key = ?2)";
        self.connection.query_row(known, params![queue, key], |row| row.get(0))
    }

    /// The letters that nobody has read, if another process has written since this was asked last. Triggers of the queues in
    /// `closed` are left out, and do not stand in the way of others.
    pub(crate) fn letters(&mut self, closed: &[i64]) -> rusqlite::Result<Vec<Letter>> {
        let version = self.connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
        if self.version == Some(version) {
            return Ok(Vec::new());
        }
        let letters = unread(&self.connection, closed)?;
        // the next look finds those that are left
        self.version = if letters.len() < MOST_LETTERS as usize { Some(version) } else { None };
        Ok(letters)
    }

    /// How many letters nobody has answered.
    pub(crate) fn unread(&mut self) -> rusqlite::Result<u32> {
        self.connection.query_row("select count(*) from inbox where answer is null", [], |row| row.get(0))
    }

    /// Whether the next look at the letters may find some although nobody has written since the last one.
    pub(crate) fn looks_again(&self) -> bool {
        self.version.is_none()
    }

    /// The next look at the letters finds them again: they were not written down.
    pub(crate) fn look_again(&mut self) {
        self.version = None;
    }

    /// Reads the keys of a queue: those that wait in no order, and behind them those that are in line in its order.
    pub(crate) fn read(
        &mut self,
        queue: i64,
        mut each: impl FnMut(Stored) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let said = |e: rusqlite::Error| not_applied(e);
        let _scan = Scan::begin(&self.connection).map_err(said)?;
        let mut keys = self
            .connection
            .prepare(
                "select key, ready, due, delay, failures, attempt, priority, value, ord from item
                 where queue = ?1 and not dead",
            )
            .map_err(said)?;
        let mut rows = keys.query([queue]).map_err(said)?;
        let mut line: Vec<(i64, Stored)> = Vec::new();
        while let Some(row) = rows.next().map_err(said)? {
            let stored = || -> rusqlite::Result<(i64, Stored)> {
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
                Ok((row.get(8)?, stored))
            };
            let (place, stored) = stored().map_err(said)?;
            if stored.ready {
                line.push((place, stored));
            } else {
                each(stored)?;
            }
        }
        // Sorted here: SQLite takes three times as long for a million.
        line.sort_unstable_by_key(|(place, _)| *place);
        line.into_iter().try_for_each(|(_, stored)| each(stored))
    }

    /// The keys of a queue that come again after each run, and after how long.
    pub(crate) fn schedule(&mut self, queue: i64) -> rusqlite::Result<Vec<(Vec<u8>, Duration)>> {
        let mut schedule = self.connection.prepare("select key, every from schedule where queue = ?1")?;
        let schedule = schedule.query_map([queue], |row| Ok((row.get(0)?, duration(row.get(1)?))))?;
        schedule.collect()
    }

    /// Writes a group, all or nothing. It is on the disk when this returns.
    pub(crate) fn write(&mut self, group: &Group) -> Result<(), Failed> {
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let newest = self.recent.last().map_or(0, |trigger| trigger.ticket);
        let mut recent: Option<ByKey<'_>> = None;
        for ((queue, key), end) in &group.ends {
            write_end(&begun, *queue, key, end)?;
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
                    // it was written once already, so its values merge
                    write_trigger(&begun, trigger).map_err(|e| e.of(0))?;
                }
            }
        }
        for (queue, key) in &group.unscheduled {
            unschedule(&begun, *queue, key)?;
        }
        for (nth, trigger) in group.triggers.iter().enumerate() {
            write_trigger(&begun, trigger).map_err(|e| e.of(nth))?;
        }
        for (letter, answer) in &group.answered {
            match answer {
                None => begun.prepare_cached("delete from inbox where id = ?1")?.execute([letter])?,
                Some(answer) => begun
                    .prepare_cached("update inbox set answer = ?2 where id = ?1")?
                    .execute(params![letter, answer])?,
            };
        }
        for (queue, paused) in &group.paused {
            pause(&begun, *queue, *paused)?;
        }
        for letter in &group.letters {
            obey(&begun, letter)?;
        }
        begun.commit().map_err(|e| match e.sqlite_error_code() {
            // it found no room for all of it, so it wrote no end of the transaction
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy) => Failed::Not(e),
            _ => Failed::Maybe(e),
        })?;
        self.commits += 1;
        if !group.triggers.is_empty() {
            self.recent.clone_from(&group.triggers);
        }
        Ok(())
    }
}

/// Triggers by queue and key.
type ByKey<'a> = HashMap<(i64, &'a [u8]), Vec<&'a TriggerRow>>;

/// A connection to the file, which is made if it is not there.
pub(crate) fn connect(path: &Path) -> Result<Connection, EngineError> {
    let said = |e: rusqlite::Error| match e.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => not_applied(format!("{}: it is no SQLite database", path.display())),
        _ => not_applied(format!("{}: {e}", path.display())),
    };
    // so that no name is one of SQLite's own: ":memory:", or a URI
    let mut connection = Connection::open(Path::new(".").join(path)).map_err(said)?;
    configure(&connection).map_err(said)?;
    let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(said)?;
    migrate(&begun, path)?;
    begun.commit().map_err(said)?;
    Ok(connection)
}

/// The number of the queue of this name, which is made if there is none.
pub(crate) fn queue_number(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    let known = "select id from queue where name = ?1";
    if let Some(id) = connection.query_row(known, [name], |row| row.get(0)).optional()? {
        return Ok(id);
    }
    let made = "insert into queue(name) values(?1) on conflict(name) do update set name = name returning id";
    written(connection, made, [name])?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// What a statement returns that writes one row at most, when that is on the disk.
///
/// The statement is stepped to its end: only there SQLite commits it, and says whether it could. `query_row` takes the
/// first row, and hears of no error behind it.
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

impl Failed {
    pub(crate) fn into_error(self) -> EngineError {
        match self {
            Self::Not(e) => EngineError::NotApplied(e.into()),
            Self::Maybe(e) => EngineError::Unknown(e.into()),
            Self::Trigger(_, e) => e,
        }
    }
}

/// Why a trigger could not be written.
enum NotWritten {
    Store(rusqlite::Error),
    Trigger(EngineError),
}

impl NotWritten {
    fn of(self, nth: usize) -> Failed {
        match self {
            Self::Store(e) => Failed::Not(e),
            Self::Trigger(e) => Failed::Trigger(nth, e),
        }
    }
}

impl From<rusqlite::Error> for NotWritten {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error)
    }
}

/// The pages that SQLite keeps in memory, in KiB as it counts them: below zero.
const CACHE: i32 = -65536;
/// The same while each page is read once.
const CACHE_OF_A_SCAN: i32 = -1024;

/// Much is read that is not read again: it does not stay in memory.
struct Scan<'a>(&'a Connection);

impl<'a> Scan<'a> {
    fn begin(connection: &'a Connection) -> rusqlite::Result<Self> {
        connection.pragma_update(None, "cache_size", CACHE_OF_A_SCAN)?;
        Ok(Self(connection))
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        // with the small one it is slower, and right
        drop(self.0.pragma_update(None, "cache_size", CACHE));
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // each commit is on the disk, not only in the system's memory
    connection.pragma_update(None, "synchronous", "FULL")?;
    // 16 MB between two checkpoints: a checkpoint writes each page once, however often it has changed
    connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
    connection.pragma_update(None, "cache_size", CACHE)?;
    connection.set_prepared_statement_cache_capacity(16);
    Ok(())
}

/// Brings the schema to this program's version.
fn migrate(begun: &Transaction<'_>, path: &Path) -> Result<(), EngineError> {
    let pragma = |name: &str| -> Result<i64, EngineError> {
        begun.pragma_query_value(None, name, |row| row.get(0)).map_err(not_applied)
    };
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 =
        begun.query_row("select count(*) from sqlite_schema", [], |row| row.get(0)).map_err(not_applied)?;
    let is_new = application == 0 && version == 0 && tables == 0;
    if !is_new && application != i64::from(APPLICATION) {
        return Err(not_applied(format!("{}: it is a database of another program", path.display())));
    }
    let found = u32::try_from(version).unwrap_or(u32::MAX);
    if found > VERSION {
        return Err(EngineError::Version { found, known: VERSION });
    }
    if is_new {
        let made = begun
            .execute_batch(SCHEMA)
            .and_then(|()| begun.pragma_update(None, "application_id", APPLICATION));
        made.map_err(not_applied)?;
    }
    for migration in MIGRATIONS.iter().skip(found.saturating_sub(1) as usize) {
        begun.execute_batch(migration).map_err(not_applied)?;
    }
    if found < VERSION {
        begun.pragma_update(None, "user_version", VERSION).map_err(not_applied)?;
    }
    Ok(())
}

fn write_end(begun: &Transaction<'_>, queue: i64, key: &[u8], end: &EndRow) -> rusqlite::Result<()> {
    let image = match (&end.image, &end.dead) {
        (Some(image), _) => image,
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
    let delay = image.due.map(|due| micros(end.clocks.until(due)));
    let due = delay.map(|delay| at.saturating_add(delay));
    if image.held {
        let mut held = begun.prepare_cached(
            "update item set ready = 1, due = ?3, delay = ?4, failures = ?5 where queue = ?1 and key = ?2",
        )?;
        held.execute(params![queue, key, due, delay, image.failures])?;
        return Ok(());
    }
    let mut known = begun.prepare_cached(
        "insert or replace into item(queue, key, ord, ready, due, delay, failures, attempt, priority, first, value)
         values(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    known.execute(params![
        queue,
        key,
        signed(image.ord),
        image.ready,
        due,
        delay,
        image.failures,
        image.attempt,
        image.priority,
        at,
        image.value,
    ])?;
    Ok(())
}

fn write_trigger(begun: &Transaction<'_>, trigger: &TriggerRow) -> Result<(), NotWritten> {
    let TriggerRow { queue, key, ticket, at, delay, priority, value, every } = trigger;
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
    let delay = delay.map(micros);
    let mut asked = begun.prepare_cached(
        "insert into item(queue, key, ord, ready, due, delay, failures, attempt, priority, first, value)
         values(?1, ?2, ?3, ?4, ?5, ?6, 0, 1, ?7, ?8, ?9)
         on conflict(queue, key) do update set
             ord = case when ready then ord else excluded.ord end,
             ready = max(ready, excluded.ready),
             delay = case when due is null or excluded.due < due then excluded.delay else delay end,
             due = case when due is null then excluded.due else min(due, coalesce(excluded.due, due)) end,
             priority = max(priority, excluded.priority),
             dead = 0,
             error = null,
             value = coalesce(excluded.value, value)",
    )?;
    let due = delay.map(|delay| at.saturating_add(delay));
    asked.execute(params![queue, key, signed(*ticket), delay.is_none(), due, delay, priority, at, value])?;
    if let Some(every) = every {
        let scheduled = "insert or replace into schedule(queue, key, every) values(?1, ?2, ?3)";
        begun.prepare_cached(scheduled)?.execute(params![queue, key, micros(*every)])?;
    }
    Ok(())
}

/// The key does not come again after its runs any more. False if it did not anyway.
fn unschedule(begun: &Transaction<'_>, queue: i64, key: &[u8]) -> rusqlite::Result<bool> {
    let mut gone = begun.prepare_cached("delete from schedule where queue = ?1 and key = ?2")?;
    Ok(gone.execute(params![queue, key])? > 0)
}

/// So many letters are read at once.
pub(crate) const MOST_LETTERS: u32 = 1000;

/// The oldest letters that nobody has answered.
fn unread(connection: &Connection, closed: &[i64]) -> rusqlite::Result<Vec<Letter>> {
    let mut letters = connection.prepare_cached(
        "select id, queue, what, at, key, delay, priority, every from inbox where answer is null
         and (what <> 'add' or queue not in (select value from json_each(?2))) order by id limit ?1",
    )?;
    let closed = format!("{closed:?}"); // an array of numbers, as JSON has it too
    let letters = letters.query_map(params![MOST_LETTERS, closed], |row| {
        Ok(Letter {
            id: row.get(0)?,
            queue: row.get(1)?,
            what: row.get(2)?,
            at: row.get(3)?,
            key: row.get::<_, Option<_>>(4)?.unwrap_or_default(),
            delay: row.get::<_, Option<i64>>(5)?.map(duration),
            priority: row.get(6)?,
            every: row.get::<_, Option<i64>>(7)?.map(duration),
        })
    })?;
    letters.collect()
}

/// Does what a letter asks for where the queue is not open: in the file alone.
fn obey(begun: &Transaction<'_>, letter: &Letter) -> rusqlite::Result<()> {
    let Letter { id, queue, what, at, key, delay, priority, every } = letter;
    let answer = match &**what {
        "add" => {
            // the instant is larger than any ticket yet, so it is the end of the line
            let ticket = at.unsigned_abs();
            let (key, queue, value) = (key.as_slice().into(), *queue, None);
            let (at, delay, priority, every) = (*at, *delay, *priority, *every);
            let trigger = TriggerRow { queue, key, ticket, at, delay, priority, value, every };
            match write_trigger(begun, &trigger) {
                Ok(()) => None,
                Err(NotWritten::Store(e)) => return Err(e),
                Err(NotWritten::Trigger(e)) => Some(e.to_string()),
            }
        }
        "cancel" => {
            let mut gone =
                begun.prepare_cached("delete from item where queue = ?1 and key = ?2 and not dead")?;
            let known = gone.execute(params![queue, key])? > 0;
            Some(if unschedule(begun, *queue, key)? || known { "cancelled" } else { "nothing" }.to_owned())
        }
        "retry" => {
            let mut ready = begun.prepare_cached(
                "update item set ready = 1, due = null, delay = null, dead = 0, error = null, ord = ?3
                 where queue = ?1 and key = ?2",
            )?;
            Some(if ready.execute(params![queue, key, at])? > 0 { "ready" } else { "nothing" }.to_owned())
        }
        "pause" | "resume" => {
            pause(begun, *queue, what == "pause")?;
            Some("done".to_owned())
        }
        "purge" => Some(purge(begun, *queue)?.to_string()),
        other => Some(format!("nobody knows what {other:?} is")),
    };
    match answer {
        None => begun.execute("delete from inbox where id = ?1", [id])?,
        Some(answer) => begun.execute("update inbox set answer = ?2 where id = ?1", params![id, answer])?,
    };
    Ok(())
}

pub(crate) fn pause(connection: &Connection, queue: i64, paused: bool) -> rusqlite::Result<()> {
    connection.execute("update queue set paused = ?2 where id = ?1", params![queue, paused])?;
    Ok(())
}

/// Removes the dead keys of a queue; returns how many there were.
pub(crate) fn purge(connection: &Connection, queue: i64) -> rusqlite::Result<usize> {
    connection.execute("delete from item where queue = ?1 and dead", [queue])
}
