//! A disk in memory: it records which part of each file was synced, loses the rest when its power is cut, and
//! fails calls on request.

use rusqlite::ffi;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString, c_int};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The calls of SQLite that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call {
    Open,
    Delete,
    Access,
    Read,
    Write,
    Truncate,
    Sync,
    FileSize,
    Lock,
    Unlock,
    CheckReserved,
    ShmMap,
    ShmLock,
}

impl Call {
    pub(crate) const ALL: [Self; 13] = [
        Self::Open,
        Self::Delete,
        Self::Access,
        Self::Read,
        Self::Write,
        Self::Truncate,
        Self::Sync,
        Self::FileSize,
        Self::Lock,
        Self::Unlock,
        Self::CheckReserved,
        Self::ShmMap,
        Self::ShmLock,
    ];

    /// The errors that SQLite may get when this call fails.
    ///
    /// No sync returns FULL: SQLite's own VFS returns `IOERR_FSYNC` for any error of the system, and
    /// requeue-sqlite relies on it. Only locks return BUSY. Releasing a lock of shared memory never fails,
    /// and SQLite does not check it.
    pub(crate) fn errors(self) -> &'static [c_int] {
        match self {
            Self::Open => &[ffi::SQLITE_CANTOPEN, ffi::SQLITE_FULL, ffi::SQLITE_IOERR],
            Self::Delete => &[ffi::SQLITE_IOERR_DELETE],
            Self::Access => &[ffi::SQLITE_IOERR_ACCESS],
            Self::Read => &[ffi::SQLITE_IOERR_READ],
            Self::Write => &[ffi::SQLITE_FULL, ffi::SQLITE_IOERR_WRITE],
            Self::Truncate => &[ffi::SQLITE_IOERR_TRUNCATE, ffi::SQLITE_FULL],
            Self::Sync => &[ffi::SQLITE_IOERR_FSYNC],
            Self::FileSize => &[ffi::SQLITE_IOERR_FSTAT],
            Self::Lock => &[ffi::SQLITE_BUSY, ffi::SQLITE_IOERR_LOCK],
            Self::Unlock => &[ffi::SQLITE_IOERR_UNLOCK],
            Self::CheckReserved => &[ffi::SQLITE_IOERR_CHECKRESERVEDLOCK],
            Self::ShmMap => &[ffi::SQLITE_IOERR_SHMMAP, ffi::SQLITE_FULL],
            Self::ShmLock => &[ffi::SQLITE_BUSY, ffi::SQLITE_IOERR_SHMLOCK],
        }
    }
}

/// A call that fails.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) call: Call,
    /// Number of these calls that succeed first.
    pub(crate) after: u64,
    /// Number of calls that then fail.
    pub(crate) times: u64,
    pub(crate) code: c_int,
}

/// Numbers that follow from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

/// A change of a file since it was synced.
enum Unsynced {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

#[derive(Default)]
struct Data {
    /// Contents that a read sees.
    now: Vec<u8>,
    /// Contents that survive any power cut.
    synced: Vec<u8>,
    unsynced: Vec<Unsynced>,
    /// Connections with unsynced writes.
    wrote: BTreeSet<u64>,
    /// It was synced once, so its name is on the disk.
    is_named: bool,
    /// Its first sync also syncs the folder: SQLite's own VFS does that for journals and logs.
    syncs_dir: bool,
    /// Connections whose writes were lost when another's sync failed: their next sync reports that.
    to_be_told: BTreeSet<u64>,
    locks: HashMap<u64, c_int>,
    shm: Shm,
}

/// A part of shared memory: it stays in place as long as a connection has it.
pub(crate) type Region = Arc<[AtomicU64]>;

/// The shared memory of the connections to a file, and its locks.
#[derive(Default)]
struct Shm {
    regions: Vec<Region>,
    /// By connection, its shared and its exclusive locks: one bit each.
    locks: HashMap<u64, (u32, u32)>,
}

fn put(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if file.len() < at + bytes.len() {
        file.resize(at + bytes.len(), 0);
    }
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

impl Data {
    fn sync(&mut self) {
        for done in self.unsynced.drain(..) {
            match done {
                Unsynced::Write(at, bytes) => put(&mut self.synced, at, &bytes),
                Unsynced::Truncate(len) => self.synced.resize(len, 0),
            }
        }
        self.wrote.clear();
        self.is_named = true;
    }

    /// The part of the file that survives a power cut.
    fn left(&self, seeded: &mut Seeded) -> Option<Vec<u8>> {
        let percent = seeded.one_of(&[0, 20, 50, 80, 95, 100, 100]);
        // sectors, pages, or whole writes
        let piece = seeded.one_of(&[512, 512, 4096, usize::MAX]);
        if !self.is_named && seeded.below(100) >= percent {
            return None;
        }
        let mut left = self.synced.clone();
        for done in &self.unsynced {
            match done {
                Unsynced::Write(at, bytes) => {
                    let (mut from, end) = (*at, at + bytes.len());
                    while from < end {
                        let to = (from / piece + 1).saturating_mul(piece).min(end);
                        if seeded.below(100) < percent {
                            put(&mut left, from, &bytes[from - at..to - at]);
                        }
                        from = to;
                    }
                }
                Unsynced::Truncate(len) => {
                    if seeded.below(100) < percent {
                        left.resize(*len, 0);
                    }
                }
            }
        }
        Some(left)
    }
}

#[derive(Default)]
struct State {
    names: BTreeMap<OsString, u64>,
    files: HashMap<u64, Data>,
    /// Deleted files whose deletion a power cut may undo.
    deleted: BTreeMap<OsString, Data>,
    last_number: u64,
    calls: u64,
    /// The number of the call at which the power is cut.
    cut_at: Option<u64>,
    /// The files after the power cut.
    cut: Option<BTreeMap<OsString, Vec<u8>>>,
    faults: Vec<Fault>,
    failed: u64,
    seeded: Option<Seeded>,
}

pub(crate) type Said<T = ()> = Result<T, c_int>;

/// A disk.
#[derive(Default)]
pub(crate) struct Disk {
    state: Mutex<State>,
}

/// The disks, by their folders.
static DISKS: Mutex<BTreeMap<PathBuf, Arc<Disk>>> = Mutex::new(BTreeMap::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The disk of this file, and its name there.
pub(crate) fn disk_of(path: &Path) -> Said<(Arc<Disk>, &OsStr)> {
    let disks = lock(&DISKS);
    let disk = path.parent().and_then(|dir| disks.get(dir)).cloned();
    disk.zip(path.file_name()).ok_or(ffi::SQLITE_CANTOPEN)
}

impl State {
    /// Counts a call, and fails it if that is planned.
    fn enter(&mut self, call: Call) -> Said {
        if self.cut.is_some() {
            return Err(ffi::SQLITE_IOERR);
        }
        self.calls += 1;
        // a write is there as one that is not synced when the power is cut in the middle of it
        if self.cut_at.is_some_and(|at| self.calls >= at) && !matches!(call, Call::Write | Call::Truncate) {
            self.cut();
            return Err(ffi::SQLITE_IOERR);
        }
        for fault in &mut self.faults {
            if fault.call != call || fault.times == 0 {
                continue;
            }
            if fault.after > 0 {
                fault.after -= 1;
                continue;
            }
            fault.times -= 1;
            self.failed += 1;
            return Err(fault.code);
        }
        Ok(())
    }

    fn left(&mut self) -> Said {
        if self.cut_at.is_some_and(|at| self.calls >= at) {
            self.cut();
            return Err(ffi::SQLITE_IOERR);
        }
        Ok(())
    }

    fn cut(&mut self) {
        if self.cut.is_some() {
            return;
        }
        let mut seeded = self.seeded.clone().unwrap_or(Seeded(1));
        let mut left = BTreeMap::new();
        for (name, data) in &self.deleted {
            if seeded.below(2) == 0 {
                left.extend(data.left(&mut seeded).map(|data| (name.clone(), data)));
            }
        }
        for (name, number) in &self.names {
            left.extend(self.files[number].left(&mut seeded).map(|data| (name.clone(), data)));
        }
        self.seeded = Some(seeded);
        self.cut = Some(left);
    }

    fn data(&mut self, file: u64) -> Said<&mut Data> {
        // none if the power was cut since it was opened
        self.files.get_mut(&file).ok_or(ffi::SQLITE_IOERR)
    }
}

/// The tests' control of a disk.
impl Disk {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let state = State { seeded: Some(Seeded(seed)), ..State::default() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Makes its files appear in this folder.
    pub(crate) fn mount(self: &Arc<Self>, dir: PathBuf) {
        lock(&DISKS).insert(dir, self.clone());
    }

    pub(crate) fn unmount(dir: &Path) {
        lock(&DISKS).remove(dir);
    }

    /// Cuts the power after this number of further calls.
    pub(crate) fn cut_after(&self, calls: u64) {
        let mut state = lock(&self.state);
        state.cut_at = Some(state.calls + calls.max(1));
    }

    pub(crate) fn cut(&self) {
        lock(&self.state).cut();
    }

    pub(crate) fn is_cut(&self) -> bool {
        lock(&self.state).cut.is_some()
    }

    /// Runs `does` if the power is on. It is not cut meanwhile.
    pub(crate) fn unless_cut(&self, does: impl FnOnce()) {
        let state = lock(&self.state);
        if state.cut.is_none() {
            does();
        }
    }

    /// Restores the power. Open files are no longer valid.
    pub(crate) fn boot(&self) {
        let mut state = lock(&self.state);
        let left = state.cut.take().expect("the power was cut");
        state.cut_at = None;
        state.faults.clear();
        state.names.clear();
        state.files.clear();
        state.deleted.clear();
        for (name, bytes) in left {
            state.last_number += 1;
            let number = state.last_number;
            state.names.insert(name, number);
            let data = Data { now: bytes.clone(), synced: bytes, is_named: true, ..Data::default() };
            state.files.insert(number, data);
        }
    }

    pub(crate) fn plant(&self, fault: Fault) {
        lock(&self.state).faults.push(fault);
    }

    /// Ends all faults. Returns the number of failed calls since the last time.
    pub(crate) fn mend(&self) -> u64 {
        let mut state = lock(&self.state);
        state.faults.clear();
        std::mem::take(&mut state.failed)
    }
}

/// SQLite's operations on a disk. `file` is the number of a file, `who` of a connection.
impl Disk {
    pub(crate) fn open(&self, name: Option<&OsStr>, make: bool, syncs_dir: bool) -> Said<(u64, u64)> {
        let mut state = lock(&self.state);
        state.enter(Call::Open)?;
        let known = name.and_then(|name| state.names.get(name)).copied();
        if known.is_none() && !make {
            return Err(ffi::SQLITE_CANTOPEN);
        }
        state.last_number += 2;
        let (number, who) = (state.last_number, state.last_number - 1);
        if let Some(known) = known {
            return Ok((known, who));
        }
        state.files.insert(number, Data { syncs_dir, ..Data::default() });
        if let Some(name) = name {
            state.deleted.remove(name);
            state.names.insert(name.to_owned(), number);
        }
        Ok((number, who))
    }

    pub(crate) fn close(&self, file: u64, who: u64) {
        self.shm_unmap(file, who);
        if let Ok(data) = lock(&self.state).data(file) {
            data.locks.remove(&who);
            data.to_be_told.remove(&who);
        }
    }

    pub(crate) fn delete(&self, name: &OsStr, sync: bool) -> Said {
        let mut state = lock(&self.state);
        state.enter(Call::Delete)?;
        let number = state.names.remove(name).ok_or(ffi::SQLITE_IOERR_DELETE_NOENT)?;
        if let Some(data) = state.files.remove(&number) {
            if !sync {
                state.deleted.insert(name.to_owned(), data);
            }
        }
        Ok(())
    }

    pub(crate) fn exists(&self, name: &OsStr) -> Said<bool> {
        let mut state = lock(&self.state);
        state.enter(Call::Access)?;
        Ok(state.names.contains_key(name))
    }

    /// Reads as much as there is. Returns the number of bytes.
    pub(crate) fn read(&self, file: u64, at: usize, into: &mut [u8]) -> Said<usize> {
        let mut state = lock(&self.state);
        state.enter(Call::Read)?;
        let there = state.data(file)?.now.get(at..).unwrap_or_default();
        let len = there.len().min(into.len());
        into[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }

    pub(crate) fn write(&self, file: u64, who: u64, at: usize, bytes: &[u8]) -> Said {
        let mut state = lock(&self.state);
        let said = state.enter(Call::Write);
        // one that fails may have been done in part
        let part = bytes.len() / 2 * usize::from(state.calls % 2 == 0);
        let bytes = if said.is_ok() { bytes } else { &bytes[..part] };
        if state.cut.is_none() {
            let data = state.data(file)?;
            put(&mut data.now, at, bytes);
            data.unsynced.push(Unsynced::Write(at, bytes.to_vec()));
            data.wrote.insert(who);
        }
        said.and_then(|()| state.left())
    }

    pub(crate) fn truncate(&self, file: u64, who: u64, len: usize) -> Said {
        let mut state = lock(&self.state);
        state.enter(Call::Truncate)?;
        let data = state.data(file)?;
        data.now.resize(len, 0);
        data.unsynced.push(Unsynced::Truncate(len));
        data.wrote.insert(who);
        state.left()
    }

    pub(crate) fn sync(&self, file: u64, who: u64) -> Said {
        let mut state = lock(&self.state);
        let said = state.enter(Call::Sync);
        let forgets = state.calls % 2 == 0;
        if state.cut.is_some() {
            return said;
        }
        let data = state.data(file)?;
        if said.is_err() {
            if forgets {
                // Linux takes the pages for written when it could not write them, and a later sync does not try again
                data.unsynced.clear();
                data.to_be_told.append(&mut data.wrote);
                data.to_be_told.remove(&who);
            }
            return said;
        }
        if data.to_be_told.remove(&who) {
            return Err(ffi::SQLITE_IOERR_FSYNC);
        }
        data.sync();
        if std::mem::take(&mut data.syncs_dir) {
            state.deleted.clear();
            state.files.values_mut().for_each(|data| data.is_named = true);
        }
        Ok(())
    }

    pub(crate) fn len(&self, file: u64) -> Said<usize> {
        let mut state = lock(&self.state);
        state.enter(Call::FileSize)?;
        Ok(state.data(file)?.now.len())
    }

    pub(crate) fn lock(&self, file: u64, who: u64, level: c_int) -> Said {
        let mut state = lock(&self.state);
        state.enter(Call::Lock)?;
        let locks = &mut state.data(file)?.locks;
        let ours = locks.get(&who).copied().unwrap_or(ffi::SQLITE_LOCK_NONE);
        let others = locks.iter().filter(|(other, _)| **other != who).map(|(_, level)| *level).max();
        let others = others.unwrap_or(ffi::SQLITE_LOCK_NONE);
        let most_beside = match level {
            ffi::SQLITE_LOCK_SHARED => ffi::SQLITE_LOCK_RESERVED,
            ffi::SQLITE_LOCK_RESERVED => ffi::SQLITE_LOCK_SHARED,
            _ => ffi::SQLITE_LOCK_NONE,
        };
        if ours >= level {
            return Ok(());
        }
        if others > most_beside {
            return Err(ffi::SQLITE_BUSY);
        }
        locks.insert(who, level);
        Ok(())
    }

    pub(crate) fn unlock(&self, file: u64, who: u64, level: c_int) -> Said {
        let mut state = lock(&self.state);
        let said = state.enter(Call::Unlock);
        if let Ok(data) = state.data(file) {
            data.locks.insert(who, level);
        }
        said
    }

    pub(crate) fn is_reserved(&self, file: u64) -> Said<bool> {
        let mut state = lock(&self.state);
        state.enter(Call::CheckReserved)?;
        Ok(state.data(file)?.locks.values().any(|level| *level >= ffi::SQLITE_LOCK_RESERVED))
    }

    /// A part of the shared memory.
    pub(crate) fn shm_map(
        &self,
        file: u64,
        who: u64,
        region: usize,
        len: usize,
        make: bool,
    ) -> Said<Option<Region>> {
        let mut state = lock(&self.state);
        state.enter(Call::ShmMap)?;
        let shm = &mut state.data(file)?.shm;
        shm.locks.entry(who).or_default();
        while make && shm.regions.len() <= region {
            shm.regions.push((0..len / 8).map(|_| AtomicU64::new(0)).collect());
        }
        Ok(shm.regions.get(region).cloned())
    }

    pub(crate) fn shm_lock(&self, file: u64, who: u64, mask: u32, takes: bool, alone: bool) -> Said {
        let mut state = lock(&self.state);
        if takes {
            state.enter(Call::ShmLock)?;
        }
        let locks = &mut state.data(file)?.shm.locks;
        let others = locks.iter().filter(|(other, _)| **other != who).map(|(_, locks)| *locks);
        let (shared, exclusive) = others.fold((0, 0), |all, one| (all.0 | one.0, all.1 | one.1));
        let in_the_way = if alone { shared | exclusive } else { exclusive };
        let ours = locks.entry(who).or_default();
        match (takes, alone) {
            (true, _) if in_the_way & mask != 0 => return Err(ffi::SQLITE_BUSY),
            (true, false) => ours.0 |= mask,
            (true, true) => ours.1 |= mask,
            (false, false) => ours.0 &= !mask,
            (false, true) => ours.1 &= !mask,
        }
        Ok(())
    }

    pub(crate) fn shm_unmap(&self, file: u64, who: u64) {
        if let Ok(data) = lock(&self.state).data(file) {
            data.shm.locks.remove(&who);
            if data.shm.locks.is_empty() {
                data.shm.regions.clear();
            }
        }
    }
}
