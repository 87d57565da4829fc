//! The schema of the file, and the connection of its writer.

use crate::lock::{self, Database, Turn, Writes, beside};
use requeue::BoxError;
use requeue_engine::EngineError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// "requeue" in the file's header, so that other programs do not take it for theirs, nor we a foreign file
/// for ours.
pub(crate) const APPLICATION: i32 = i32::from_be_bytes(*b"rque");
/// The version of the schema that this program writes.
#[expect(clippy::cast_possible_truncation, reason = "there are few")]
pub(crate) const VERSION: u32 = 1 + MIGRATIONS.len() as u32;

/// The changes of each version, from 2 on. A new file gets all of them too.
const MIGRATIONS: [&str; 2] = [
    "
alter table inbox add column every integer;
-- Keys that come again so many microseconds after each run, until they are cancelled.
create table schedule(
    queue integer not null,
    key blob not null,
    every integer not null,
    primary key(queue, key)
) strict, without rowid;
",
    "
alter table inbox add column value blob;
create index unread on inbox(queue, id) where answer is null;
create index dead on item(queue) where dead;
-- Who works on a queue, or did last: a lock on the file says which of the two. A process that finds another epoch than
-- its own has lost the queue.
create table runner(
    queue integer primary key,
    epoch integer not null,
    pid integer not null,
    at integer not null     -- since when, in microseconds since 1970
) strict;
-- Times at which keys come again, as `Schedule` reads them: `every` of an inbox or a schedule is 2^62 and the number here.
create table rule(
    id integer primary key,
    text text not null unique
) strict;
",
];

/// Version 1. Never changed.
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

pub(crate) fn not_applied(why: impl Into<BoxError>) -> EngineError {
    EngineError::NotApplied(why.into())
}

/// Converts an error of SQLite, and adds the file's name.
pub(crate) fn about(path: &Path) -> impl Fn(rusqlite::Error) -> EngineError + '_ {
    move |e| match e.sqlite_error_code() {
        Some(ErrorCode::ReadOnly) => not_applied(format!("{}: it can't be written to", path.display())),
        Some(ErrorCode::NotADatabase) => not_applied(format!("{}: it is no SQLite database", path.display())),
        _ => not_applied(format!("{}: {}", path.display(), words(e))),
    }
}

const CUT: &str = "its log, the file beside it that ends in -wal, was removed, replaced or truncated while processes had it \
                   open, and what it had is lost: end them, and start them again";

/// An error of SQLite, in words where it says too little.
pub(crate) fn words(e: rusqlite::Error) -> BoxError {
    // less was read than stands in the index of the log
    let is_cut = e.sqlite_error().is_some_and(|e| e.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ);
    if is_cut { CUT.into() } else { e.into() }
}

/// Whether somebody has truncated a log before the last was written to it: it begins with nothing then.
fn is_hollow(log: &Path) -> bool {
    let mut begin = [0; 4];
    File::open(log).is_ok_and(|mut log| log.read_exact(&mut begin).is_ok() && begin == [0; 4])
}

/// The log of a database that is not there: SQLite would remove it as it makes a new one, with what was accepted last.
fn log_alone(path: &Path) -> Option<PathBuf> {
    let has_something = |path: &Path| path.metadata().is_ok_and(|it| it.len() > 0);
    let log = beside(path, "-wal");
    // in this order: another process may be making the file, and makes its log last
    (has_something(&log) && !has_something(path)).then_some(log)
}

/// The parts of a file by which its program and its version are known.
pub(crate) struct Head {
    application: i64,
    version: i64,
    tables: i64,
}

impl Head {
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        // in one statement, which sees one state of the file: another process may be making it
        let head = "select (select application_id from pragma_application_id), (select user_version from pragma_user_version),
                           (select count(*) from sqlite_schema)";
        connection.query_row(head, [], |row| {
            Ok(Self { application: row.get(0)?, version: row.get(1)?, tables: row.get(2)? })
        })
    }

    /// The version of our schema; 0 if the file is empty.
    pub(crate) fn version(&self, path: &Path) -> Result<u32, EngineError> {
        let is_new = self.application == 0 && self.version == 0 && self.tables == 0;
        if !is_new && self.application != i64::from(APPLICATION) {
            return Err(not_applied(format!("{}: it is a database of another program", path.display())));
        }
        let found = u32::try_from(self.version).unwrap_or(u32::MAX);
        if found > VERSION { Err(EngineError::Version { found, known: VERSION }) } else { Ok(found) }
    }
}

/// The version of our schema in a file; 0 if it is empty.
fn version_of(connection: &Connection, path: &Path) -> Result<u32, EngineError> {
    Head::read(connection).map_err(about(path))?.version(path)
}

/// Whether the file's own first page says that it is a database of this program, of a version that is known here. It may
/// say no although it is one: a new file has that in its log.
pub(crate) fn is_ours(database: &Database) -> bool {
    let number = |head: &[u8; 100], at: usize| {
        head.get(at..at + 4).and_then(|it| it.try_into().ok()).map(u32::from_be_bytes)
    };
    database.head().is_some_and(|head| {
        head.starts_with(b"SQLite format 3\0")
            && number(&head, 68) == Some(u32::from_be_bytes(APPLICATION.to_be_bytes()))
            && number(&head, 60).is_some_and(|version| (1..=VERSION).contains(&version))
    })
}

/// A connection that writes. Its database is closed after it.
pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(crate) database: Database,
    pub(crate) path: PathBuf,
    of: Writes,
    /// SQLite's log and shared memory, with their inodes once seen.
    beside: [(PathBuf, Option<u64>); 2],
    /// When the log was last to be shortened, and was not: readers have prevented it.
    was_long: Option<Instant>,
}

/// Page size, in bytes.
const PAGE: u64 = 4096;
/// How long a writer that shortens the log waits for those who read it. Others wait for its turn meanwhile.
const READERS_END: Duration = Duration::from_millis(20);
/// Rest of a process between two attempts.
const SHORTENS_AGAIN: Duration = Duration::from_millis(100);

/// Pages of the log after which SQLite writes it into the file, and begins it anew if it has no reader: 16
/// MB. A checkpoint writes each page once, however often it has changed. Others leave it to the runner, if
/// there is one.
fn checkpoint_after(of: Writes) -> u32 {
    if of == Writes::Runner { 4000 } else { 8000 }
}

/// Whether the log is so long that SQLite could not begin it anew, as far as these processes see to that.
fn is_long(log: &Metadata, of: Writes) -> bool {
    log.len() > u64::from(checkpoint_after(of)) * PAGE * 5 / 4
}

/// Whether a long log waits for its readers to end, so that a new one better waits too.
pub(crate) fn is_to_be_shortened(path: &Path) -> bool {
    let is_written = |log: &Metadata| {
        log.modified().is_ok_and(|at| at.elapsed().is_ok_and(|ago| ago < Duration::from_secs(1)))
    };
    beside(path, "-wal").metadata().is_ok_and(|log| is_long(&log, Writes::Runner) && is_written(&log))
}

impl Link {
    /// Opens the file, or creates it, and migrates its schema to this version. A file of this version is not
    /// written to.
    pub(crate) fn open(path: &Path, of: Writes) -> Result<Self, EngineError> {
        let said = |e: std::io::Error| not_applied(format!("{}: {e}", path.display()));
        // so that no name is one of SQLite's own (":memory:", a URI), and another working directory changes nothing
        let path = &std::path::absolute(path).map_err(said)?;
        let said = |e: std::io::Error| not_applied(format!("{}: {e}", path.display()));
        if let Some(log) = log_alone(path) {
            let (path, log) = (path.display(), log.display());
            let why = "the file was removed or renamed without it: end the process that has it open, and bring the file back or \
                       move its log to where it is; or remove the log, with the keys that were accepted last";
            return Err(not_applied(format!("{path}: it is not there, but its log {log} is: {why}")));
        }
        let database = Database::open(path, true).map_err(said)?;
        let opens = database.opens();
        let connection = Connection::open(path).map_err(about(path))?;
        connection.busy_timeout(waits(of)).map_err(about(path))?;
        let found = version_of(&connection, path)?;
        drop(opens);
        database.enter(path).map_err(said)?;
        let beside = [(beside(path, "-wal"), None), (beside(path, "-shm"), None)];
        let mut link = Self { connection, database, path: path.clone(), of, beside, was_long: None };
        let turn = if found < VERSION { Some(link.turn()?) } else { None };
        link.configure().map_err(about(path))?;
        if turn.is_some() {
            link.migrate()?;
        }
        Ok(link)
    }

    fn configure(&self) -> rusqlite::Result<()> {
        let Self { connection, of, .. } = self;
        let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
        if mode != "wal" {
            connection.pragma_update(None, "journal_mode", "WAL")?;
        }
        // each commit is on the disk, not only in the system's memory
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", checkpoint_after(*of))?;
        // others do not end with a checkpoint: an add would wait for three more syncs
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, *of == Writes::Others)?;
        connection.pragma_update(None, "cache_size", CACHE)?;
        connection.set_prepared_statement_cache_capacity(24);
        Ok(())
    }

    fn migrate(&mut self) -> Result<(), EngineError> {
        let path = &self.path;
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let begun = begun.map_err(about(path))?;
        let found = version_of(&begun, path)?;
        if found > 0 && found < VERSION {
            if let Some(pid) = lock::older_runner(path) {
                let why =
                    format!("process {pid}, of an older version of this program, works on it: end it first");
                return Err(not_applied(format!("{}: {why}", path.display())));
            }
        }
        migrate(&begun, found).map_err(about(path))?;
        begun.commit().map_err(about(path))
    }

    /// Waits for the turn to write.
    pub(crate) fn turn(&self) -> Result<Turn, EngineError> {
        let turn = self.database.turn(self.of, waits(self.of));
        turn.map_err(|e| not_applied(format!("{}: {e}", self.path.display())))
    }

    /// Ends a turn. A long log is shortened before others write.
    pub(crate) fn end_turn(&mut self, turn: Turn) {
        let rests = self.was_long.is_some_and(|then| then.elapsed() < SHORTENS_AGAIN);
        if !rests && self.beside[0].0.metadata().is_ok_and(|log| is_long(&log, self.of)) {
            self.shorten_log(&turn);
        }
        drop(turn);
    }

    /// Writes SQLite's log into the file, and cuts it off.
    ///
    /// SQLite begins the log anew by itself only when a writer finds all of it in the file and no reader.
    /// While others write and read all the time that does not happen, and the log would grow until the disk
    /// is full. In its turn this process is the only writer, and need only wait for those who read;
    /// [looks](crate::look) begin no later.
    pub(crate) fn shorten_log(&mut self, _turn: &Turn) {
        let Self { connection, of, .. } = self;
        let shortened = connection.busy_timeout(READERS_END).and_then(|()| {
            connection.query_row("pragma wal_checkpoint(truncate)", [], |row| row.get::<_, i64>(0))
        });
        // SQLite refuses no time
        drop(connection.busy_timeout(waits(*of)));
        self.was_long = if matches!(shortened, Ok(0)) { None } else { Some(Instant::now()) };
    }

    /// The reason why writes are lost, if they are: the file, its log or SQLite's shared memory was removed,
    /// renamed, or replaced.
    pub(crate) fn is_cut_off(&mut self) -> Option<String> {
        if !self.database.is_at(&self.path) {
            return Some(format!(
                "{}: the file was removed or replaced while it was open",
                self.path.display()
            ));
        }
        for ((path, known), what) in self.beside.iter_mut().zip(["log", "shared memory"]) {
            let now = path.metadata().ok().map(|it| it.ino());
            if known.is_some() && *known != now {
                if what == "shared memory" {
                    // Others that have opened the file since know of another end of the log. It stays for the next to read: a
                    // checkpoint would leave out what they have written. If this fails, nothing else can be done.
                    drop(self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true));
                }
                let path = path.display();
                return Some(format!("{path}: SQLite's {what} was removed or replaced while it was open"));
            }
            *known = now;
        }
        if is_hollow(&self.beside[0].0) {
            return Some(format!("{}: {CUT}", self.path.display()));
        }
        None
    }
}

fn waits(of: Writes) -> Duration {
    if of == Writes::Runner { lock::RUNNER_WAITS } else { lock::ADDER_WAITS }
}

/// Migrates the schema to this program's version.
fn migrate(begun: &Transaction<'_>, found: u32) -> rusqlite::Result<()> {
    if found == 0 {
        begun.execute_batch(SCHEMA)?;
        begun.pragma_update(None, "application_id", APPLICATION)?;
    }
    for migration in MIGRATIONS.iter().skip(found.saturating_sub(1) as usize) {
        begun.execute_batch(migration)?;
    }
    if found < VERSION {
        begun.pragma_update(None, "user_version", VERSION)?;
    }
    Ok(())
}

/// SQLite's page cache in KiB, which it wants negative.
const CACHE: i32 = -65536;
/// The page cache while each page is read once.
pub(crate) const CACHE_OF_A_SCAN: i32 = -1024;

/// A large read whose pages are not kept in memory.
pub(crate) struct Scan<'a>(&'a Connection);

impl<'a> Scan<'a> {
    pub(crate) fn begin(connection: &'a Connection) -> rusqlite::Result<Self> {
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
