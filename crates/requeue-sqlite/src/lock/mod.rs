//! The database as processes share it: its identity, the runners of its queues, the turn to write, and
//! current runs.
//!
//! All of that is kept in locks on bytes of the database file itself, far behind its end and apart from
//! SQLite's own. So they belong to the file, whatever its name is, need no extra file and no room on the
//! disk, and end with the process that has them, however that ends.
//!
//! ```text
//!   (1 << 61) + 1           the turn: who may write
//!   (1 << 61) + (1 << 32)   by which name the file is open: a byte for each name, shared
//!   (1 << 61) + (1 << 40)   who works on a queue: a byte for each queue, by its number
//!   (1 << 61) + (1 << 60)   the line before the turn: its head, which runners share, and a byte for each adder
//!   1 << 62                 what runs: 2^20 bytes for each hash of queue and key; how many are locked says since when
//! ```
//!
//! How the turn is waited for is in [`turn`]. SQLite's log stands beside the *name*, so a second name of an open file is refused. What runs is shown after 40 ms,
//! 1,024 keys at most.
//!
//! The kernel ends SQLite's locks on a file when the process closes *any* descriptor of it. Therefore a
//! process has one descriptor per database, in a [table](DATABASES), which is closed when this crate no
//! longer has it open. Each connection has a [`Database`] that outlives it.

#[cfg(any(test, not(any(target_os = "linux", target_os = "android"))))]
mod beside;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod bytes;
mod turn;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
use beside::{Bytes, is_locked};
#[cfg(any(target_os = "linux", target_os = "android"))]
use bytes::{Bytes, is_locked};
pub(crate) use turn::{Turn, Writes};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// How long to wait for a queue that another thread may be about to release.
pub(crate) const LETS_GO: Duration = Duration::from_secs(1);
/// How long a runner waits for its turn.
pub(crate) const RUNNER_WAITS: Duration = Duration::from_secs(5);
/// How long other processes wait for their turn.
pub(crate) const ADDER_WAITS: Duration = Duration::from_secs(30);

/// Where the bytes of this crate begin.
const OURS: i64 = 1 << 61;
const TURN: i64 = OURS + 1;
/// First byte of the queues in the file's folder: locks that outlive the process that works on a queue.
const HEIRS: i64 = 1 << 61;
const NAMES: i64 = OURS + (1 << 32);
const QUEUES: i64 = OURS + (1 << 40);
/// The head of the line. The places of adders are behind it.
const LINE: i64 = OURS + (1 << 60);
const RUNS: i64 = 1 << 62;
/// Number of bits for a run's start in seconds: 12 days.
const SECONDS: u32 = 20;
/// Maximum number of runs shown: the kernel examines the locks of a file one by one.
pub(crate) const MOST_RUNS: usize = 1024;

/// Device and inode.
type Id = (u64, u64);

/// The databases that this process has open.
static DATABASES: LazyLock<Mutex<HashMap<Id, Arc<Shared>>>> = LazyLock::new(Mutex::default);

struct Shared {
    id: Id,
    bytes: Bytes,
    /// The name by which this process has it open, once it has written to it.
    name: Mutex<Option<i64>>,
    /// The queues that this process works on.
    queues: Mutex<HashSet<i64>>,
    /// The runs that this process shows, by their first bytes.
    runs: Mutex<HashMap<i64, i64>>,
    inside: turn::Inside,
    /// Read-locked by readers, write-locked by a connection that opens it to write.
    opens: RwLock<()>,
}

/// An open database. Dropping the last one closes its descriptor.
#[derive(Clone)]
pub(crate) struct Database(Option<Arc<Shared>>);

impl Drop for Database {
    fn drop(&mut self) {
        let mut databases = DATABASES.lock();
        let shared = self.0.take();
        // The table has one, and this is the other: a further one is made under the table's lock, or from a
        // third. The descriptor is closed under that lock, so that the file is not opened again before.
        if let Some(last) = shared.filter(|shared| Arc::strong_count(shared) == 2) {
            drop(databases.remove(&last.id));
            drop(last);
        }
    }
}

fn id(metadata: &Metadata) -> Id {
    (metadata.dev(), metadata.ino())
}

impl Database {
    fn shared(&self) -> &Arc<Shared> {
        self.0.as_ref().unwrap_or_else(|| unreachable!("it is taken as this is dropped"))
    }

    /// Opens the database with this name. Creates an empty file if needed.
    pub(crate) fn open(path: &Path, makes: bool) -> io::Result<Self> {
        // a FIFO would be waited for
        if path.metadata().is_ok_and(|it| !it.is_file()) {
            return Err(io::Error::other("it is not a regular file; name a file to keep the queue in"));
        }
        let mut databases = DATABASES.lock();
        if let Some(known) = path.metadata().ok().and_then(|it| databases.get(&id(&it))) {
            return Ok(Self(Some(known.clone())));
        }
        let (bytes, metadata) = Bytes::open(path, makes)?;
        let shared = Shared {
            id: id(&metadata),
            bytes,
            name: Mutex::default(),
            queues: Mutex::default(),
            runs: Mutex::default(),
            inside: turn::Inside::default(),
            opens: RwLock::default(),
        };
        // It may have been replaced since: a second descriptor of one that is known stays open with the first.
        let shared = Arc::new(shared);
        let known = databases.entry(shared.id).or_insert_with(|| shared.clone()).clone();
        if !Arc::ptr_eq(&known, &shared) {
            std::mem::forget(shared);
        }
        Ok(Self(Some(known)))
    }

    /// Blocks this process from opening it to write during a read: see [`look`](crate::look).
    pub(crate) fn looks(&self) -> RwLockReadGuard<'_, ()> {
        self.shared().opens.read()
    }

    /// Blocks reads of this process while it opens the database to write.
    pub(crate) fn opens(&self) -> RwLockWriteGuard<'_, ()> {
        self.shared().opens.write()
    }

    /// The head of the file. It is read by the descriptor that this process has: closing another would end SQLite's locks.
    pub(crate) fn head(&self) -> Option<[u8; 100]> {
        self.shared().bytes.head().ok()
    }

    /// Whether this name is the name of this database.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        path.metadata().is_ok_and(|metadata| id(&metadata) == self.shared().id)
    }

    /// Records the name by which the file is open. SQLite keeps its log beside that name, so a second name
    /// would have a second log.
    ///
    /// # Errors
    ///
    /// If a process has the file open by another name: a hard link, or the name that it had before it was
    /// renamed.
    pub(crate) fn enter(&self, path: &Path) -> io::Result<()> {
        let name = name_of(path)?;
        let mut known = self.shared().name.lock();
        if known.is_some_and(|known| known == name) {
            return Ok(());
        }
        if known.is_some() || !self.shared().bytes.share(name)? || self.is_open_elsewhere(name)? {
            if known.is_none() {
                self.shared().bytes.unlock(name..name + 1)?;
            }
            let why = "the file is open by another name (a hard link, a mount, or it was renamed); end that process, or \
                       use its name";
            return Err(io::Error::other(why));
        }
        *known = Some(name);
        Ok(())
    }

    fn is_open_elsewhere(&self, name: i64) -> io::Result<bool> {
        let is_open = |range: std::ops::Range<i64>| -> io::Result<bool> {
            Ok(self.shared().bytes.locked(range)?.is_some())
        };
        Ok(is_open(NAMES..name)? || is_open(name + 1..NAMES + (1 << 32))?)
    }

    /// Starts to work on a queue, until [`leave`](Self::leave) or the end of this process. False if another
    /// process does.
    pub(crate) fn work_on(&self, queue: i64) -> io::Result<bool> {
        let mut queues = self.shared().queues.lock();
        if queues.contains(&queue) || !self.shared().bytes.lock(QUEUES + queue)? {
            return Ok(false);
        }
        queues.insert(queue);
        Ok(true)
    }

    /// Stops working on a queue.
    pub(crate) fn leave(&self, queue: i64) {
        let mut queues = self.shared().queues.lock();
        if queues.remove(&queue) {
            // the end of this process does it as well
            drop(self.shared().bytes.unlock(QUEUES + queue..QUEUES + queue + 1));
        }
    }

    /// Whether a process works on a queue.
    pub(crate) fn is_worked_on(&self, queue: i64) -> io::Result<bool> {
        if self.shared().queues.lock().contains(&queue) {
            return Ok(true);
        }
        Ok(self.shared().bytes.locked(QUEUES + queue..QUEUES + queue + 1)?.is_some())
    }

    /// Shows that a key runs, since `since`. False if too many are shown.
    pub(crate) fn show_run(&self, queue: i64, key: &[u8], since: i64) -> bool {
        let mut runs = self.shared().runs.lock();
        if runs.len() >= MOST_RUNS {
            return false;
        }
        let (start, len) =
            (run_of(queue, key), 1 + since.div_euclid(1_000_000).rem_euclid((1 << SECONDS) - 2));
        if self.shared().bytes.lock_range(start..start + len).unwrap_or(false) {
            runs.insert(start, len);
            return true;
        }
        false
    }

    /// Hides a run that is over.
    pub(crate) fn hide_run(&self, queue: i64, key: &[u8]) {
        let mut runs = self.shared().runs.lock();
        let start = run_of(queue, key);
        if let Some(len) = runs.remove(&start) {
            drop(self.shared().bytes.unlock(start..start + len));
        }
    }

    /// The current runs.
    pub(crate) fn runs(&self) -> io::Result<Running> {
        let mut shown: HashMap<i64, i64> = self.shared().runs.lock().clone();
        let mut ahead = Vec::from([(RUNS, i64::MAX)]);
        while let Some((start, end)) = ahead.pop() {
            if shown.len() >= 2 * MOST_RUNS {
                continue;
            }
            let Some(found) = self.shared().bytes.locked(start..end)? else { continue };
            shown.insert(found.start, found.end.saturating_sub(found.start));
            ahead.push((start, found.start));
            ahead.push((found.end, end));
        }
        Ok(Running(shown))
    }
}

/// The current runs at the time of the call.
#[derive(Default)]
pub(crate) struct Running(HashMap<i64, i64>);

impl Running {
    /// How long the key has run, if it runs; in whole seconds.
    pub(crate) fn since(&self, queue: i64, key: &[u8], now: i64) -> Option<Duration> {
        self.0.get(&run_of(queue, key)).map(|len| age(*len, now))
    }

    /// Number of a queue's running keys. Queues whose numbers are equal modulo 64 are counted together.
    pub(crate) fn count(&self, queue: i64) -> u64 {
        self.of(queue).count() as u64
    }

    /// How long the longest of these has run, in whole seconds.
    pub(crate) fn longest(&self, queue: i64, now: i64) -> Option<Duration> {
        self.of(queue).map(|len| age(len, now)).max()
    }

    fn of(&self, queue: i64) -> impl Iterator<Item = i64> {
        let group = run_of(queue, b"") >> 56;
        self.0.iter().filter(move |(start, _)| **start >> 56 == group).map(|(_, len)| *len)
    }
}

/// The age of a run, from the length of its bytes.
fn age(len: i64, now: i64) -> Duration {
    let now = now.div_euclid(1_000_000);
    let age = (now - (len - 1)).rem_euclid((1 << SECONDS) - 2);
    // a clock that differs by a little from the one that said when it began
    let age = if age > (1 << SECONDS) - 62 { 0 } else { age };
    Duration::from_secs(age.unsigned_abs())
}

/// The first byte of a run: six bits of the queue, 36 of the key's hash, and 20 that are zero.
fn run_of(queue: i64, key: &[u8]) -> i64 {
    let hash = hash(key) >> 28;
    let hash = i64::try_from(hash).unwrap_or(0);
    RUNS + ((queue & 63) << 56) + (hash << SECONDS)
}

/// FNV-1a, and mixed: equal in each version of this program.
fn hash(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// The byte of a name: of its folder, and its file name there.
fn name_of(path: &Path) -> io::Result<i64> {
    let path = path.canonicalize()?;
    let folder = path.parent().unwrap_or(&path).metadata()?;
    let (dev, ino) = id(&folder);
    let mut name = [dev.to_le_bytes(), ino.to_le_bytes()].concat();
    name.extend(path.file_name().unwrap_or_default().as_bytes());
    Ok(NAMES + i64::from(u32::try_from(hash(&name) >> 32).unwrap_or(0)))
}

/// A lock on a queue that child processes may inherit. It is on the file's folder, which nothing else locks:
/// a descriptor of the database itself could not be closed in this process, and SQLite's log is removed with
/// the last process that has the file open.
pub(crate) fn bequeath(path: &Path, queue: i64) -> io::Result<OwnedFd> {
    let (folder, byte) = heirs(path, queue)?;
    // somebody may have one already, and both are kept then
    folder.share(byte)?;
    folder.into_fd()
}

/// Whether a process has inherited a lock on a queue.
pub(crate) fn has_heir(path: &Path, queue: i64) -> bool {
    let Ok((folder, byte)) = heirs(path, queue) else { return false };
    folder.locked(byte..byte + 1).is_ok_and(|locked| locked.is_some())
}

/// The folder of a file, and its byte for a queue.
fn heirs(path: &Path, queue: i64) -> io::Result<(Bytes, i64)> {
    let path = path.canonicalize()?;
    let (dev, ino) = id(&path.metadata()?);
    let queue = [dev.to_le_bytes(), ino.to_le_bytes(), queue.to_le_bytes()].concat();
    let byte = HEIRS + i64::try_from(hash(&queue) >> 24).unwrap_or(0);
    Ok((Bytes::of_folder(path.parent().unwrap_or(&path))?, byte))
}

/// Whether no process has this number. A zombie counts as ended.
pub(crate) fn has_ended(pid: u32) -> bool {
    use rustix::{io::Errno, process};
    let Some(process) = i32::try_from(pid).ok().and_then(process::Pid::from_raw) else { return false };
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Its state stands behind its name, which may have anything in it.
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2));
    state == Some(&b'Z') || process::test_kill_process(process) == Err(Errno::SRCH)
}

/// The process of a version before 3 of the schema that works on the file, if there is one: `0` if it is
/// unknown.
pub(crate) fn older_runner(path: &Path) -> Option<u32> {
    let mut name = path.as_os_str().to_owned();
    name.push("-runner");
    let file = std::fs::File::open(&name).ok()?;
    let pid = std::fs::read_to_string(&name).unwrap_or_default();
    is_locked(&file).then(|| pid.trim().parse().unwrap_or(0))
}

/// The path of the file with `what` appended to its name, in the file's real folder.
pub(crate) fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.canonicalize().unwrap_or_else(|_| path.to_owned()).into_os_string();
    name.push(what);
    name.into()
}

#[cfg(test)]
mod tests;
