//! Reads of a file: they take no lock that a writer needs, write nothing, and need no write permission.
//!
//! The files beside the database decide how it is read:
//!
//! | beside it | how it is read |
//! |---|---|
//! | its log and SQLite's shared memory | as any connection does, but the shared memory is not written to |
//! | no log | the file alone, as it has everything |
//! | a log, and no shared memory | file and log, with an index of the log in memory and without locks |
//!
//! The last two work only while no process opens the file to write: that is checked afterwards, and then the
//! read is repeated.

use crate::lock::{Database, beside};
use crate::schema::{CACHE_OF_A_SCAN, Head, about, is_to_be_shortened, not_applied};
use requeue_engine::EngineError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a read waits to find the file at rest, and how often it looks at least: on a machine that has much to do one look
/// at a long log takes seconds.
const TRIES: (Duration, u32) = (Duration::from_secs(5), 20);

/// How long a read waits for writers to shorten a long log, which they can't while somebody reads it.
const LETS_SHORTEN: Duration = Duration::from_secs(3);

/// How a file is read.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Route {
    Shared,
    /// Without a log. Time of the file's last write, and its size.
    Alone(i64, i64, u64),
    /// With a log that has no index, and the log's length.
    Log(u64),
}

impl Route {
    fn of(path: &Path) -> std::io::Result<Self> {
        let file = path.metadata()?;
        let log = beside(path, "-wal").metadata().ok();
        let shared = beside(path, "-shm").metadata().is_ok();
        Ok(match log {
            None => Self::Alone(file.mtime(), file.mtime_nsec(), file.size()),
            Some(_) if shared => Self::Shared,
            Some(log) => Self::Log(log.size()),
        })
    }

    /// The parameters of SQLite's URI for it.
    fn how(self) -> &'static str {
        match self {
            Self::Shared => "mode=ro&readonly_shm=1",
            Self::Alone(..) => "mode=ro&immutable=1",
            Self::Log(_) => "mode=ro&vfs=unix-none",
        }
    }
}

/// A file to be read.
pub(crate) struct Look {
    database: Database,
    path: PathBuf,
}

impl Look {
    /// An existing file.
    pub(crate) fn at(path: &Path) -> Result<Self, EngineError> {
        let said = |e: std::io::Error| not_applied(format!("{}: {e}", path.display()));
        let path = std::path::absolute(path).map_err(said)?;
        let database = Database::open(&path, false).map_err(said)?;
        Ok(Self { database, path })
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Reads all at one instant. `read` gets the version of the schema, 0 for an empty file, and is called
    /// again if the file was changed meanwhile in a way that could not be seen at once.
    pub(crate) fn look<T>(
        &mut self,
        mut read: impl FnMut(&Connection, u32) -> rusqlite::Result<T>,
    ) -> Result<T, EngineError> {
        let (begun, mut tries) = (Instant::now(), 0);
        while begun.elapsed() < LETS_SHORTEN && is_to_be_shortened(&self.path) {
            std::thread::sleep(Duration::from_millis(5));
        }
        loop {
            tries += 1;
            let path = &self.path.clone();
            let route = Route::of(path).map_err(|e| not_applied(format!("{}: {e}", path.display())))?;
            if !self.database.is_at(path) {
                *self = Self::at(path)?;
            }
            let looked = self.once(route, &mut read);
            let is_late = begun.elapsed() > TRIES.0 && tries >= TRIES.1;
            let is_still = Route::of(path).is_ok_and(|after| after == route);
            match looked {
                Ok(read) if is_late || is_still => return Ok(read),
                Err(Failed::Engine(e)) if is_late || is_still => return Err(e),
                Err(Failed::Sqlite(e)) if is_late || is_still && !may_pass(&e) => return Err(about(path)(e)),
                Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// Reads with a new connection: SQLite shares its memory among the connections of a process, and a writer
    /// finds it read-only if a reader has opened it first.
    fn once<T>(
        &self,
        route: Route,
        read: &mut impl FnMut(&Connection, u32) -> rusqlite::Result<T>,
    ) -> Result<T, Failed> {
        let _looks = self.database.looks();
        let connection = connect(&self.path, route)?;
        // An error of SQLite is judged as such: it may pass, and has passed by a second look at what it was.
        let version = Head::read(&connection)?.version(&self.path).map_err(Failed::Engine)?;
        connection.execute_batch("begin")?;
        // the transaction ends with the connection; after an error SQLite may have ended it already
        Ok(read(&connection, version)?)
    }
}

enum Failed {
    Sqlite(rusqlite::Error),
    Engine(EngineError),
}

impl From<rusqlite::Error> for Failed {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sqlite(e)
    }
}

/// Whether a process that opens or closes the file may have caused the error.
fn may_pass(e: &rusqlite::Error) -> bool {
    use ErrorCode::{CannotOpen, DatabaseBusy, DatabaseLocked, FileLockingProtocolFailed, ReadOnly};
    let codes = [CannotOpen, DatabaseBusy, DatabaseLocked, FileLockingProtocolFailed, ReadOnly];
    e.sqlite_error_code().is_some_and(|code| codes.contains(&code))
}

fn connect(path: &Path, route: Route) -> rusqlite::Result<Connection> {
    // with an empty authority: a path may begin with two slashes
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    let _ = write!(uri, "?{}", route.how());
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags)?;
    if matches!(route, Route::Log(_)) {
        // first, before anything is read: then the index of the log is in memory
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    // otherwise SQLite removes a log without locks as it closes, if nothing was written to that yet: a
    // process that has just made it would write to a removed file
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    // sorts in memory: a full disk has no room for files
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", CACHE_OF_A_SCAN)?;
    Ok(connection)
}
