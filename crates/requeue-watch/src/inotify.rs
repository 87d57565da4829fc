//! The file system of Linux, and its events.
//!
//! It uses `rustix`, like the rest of the command, so that the descriptor can be in one `poll` with all else
//! that is waited for.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::disk::{Disk, Found, Foundation, Kind, Links, Watch};
use crate::tree::Happened;

/// Size of the read buffer for events.
const BUFFER: usize = 64 * 1024;

/// Maximum size of a `.gitignore`. Git does not read longer ones either. Reading a part could hide what the
/// whole shows.
const RULES: u64 = 100 << 20;

/// The events to watch for. Reading and opening are left out: a program that reads its key must not trigger
/// it.
const WANTED: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

#[derive(Debug)]
pub(crate) struct Inotify {
    fd: OwnedFd,
}

impl Inotify {
    /// # Errors
    ///
    /// Fails if the system has no inotify instance or descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { fd })
    }

    /// Polls as readable when there are events.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads the pending events, at most one buffer of them.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub(crate) fn events(&self) -> io::Result<Vec<Happened>> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(self.fd.as_fd(), &mut buffer);
        let mut all = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => all.extend(happened(&event)),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(all),
                Err(e) => return Err(e.into()),
            }
            if reader.is_buffer_empty() {
                return Ok(all);
            }
        }
    }
}

fn happened(event: &inotify::Event<'_>) -> Option<Happened> {
    let (watch, what) = (Watch(event.wd()), event.events());
    if what.contains(ReadFlags::QUEUE_OVERFLOW) {
        return Some(Happened::Overflow);
    }
    if what.intersects(ReadFlags::IGNORED | ReadFlags::UNMOUNT) {
        return Some(Happened::Itself { watch, over: what.contains(ReadFlags::IGNORED) });
    }
    Some(match event.file_name() {
        Some(name) => {
            let moved = what.contains(ReadFlags::MOVED_TO);
            Happened::Entry { watch, name: OsStr::from_bytes(name.to_bytes()).to_owned(), moved }
        }
        None => Happened::Itself { watch, over: false },
    })
}

fn no_follow(links: Links) -> OFlags {
    match links {
        Links::Follow => OFlags::empty(),
        Links::Refuse => OFlags::NOFOLLOW,
    }
}

fn kind(of: std::fs::FileType) -> Kind {
    if of.is_dir() {
        Kind::Dir
    } else if of.is_file() || of.is_symlink() {
        Kind::File
    } else {
        Kind::Other
    }
}

/// Turns a "not found" error into `None`.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if crate::disk::is_gone(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

impl Disk for Inotify {
    fn watch(&mut self, dir: &Path, links: Links) -> io::Result<Watch> {
        let flags = match links {
            Links::Follow => WANTED,
            Links::Refuse => WANTED | WatchFlags::DONT_FOLLOW,
        };
        Ok(Watch(inotify::add_watch(&self.fd, dir, flags)?))
    }

    fn unwatch(&mut self, watch: Watch) {
        // It fails where the directory is gone, and the watch with it.
        let _ = inotify::remove_watch(&self.fd, watch.0);
    }

    fn list(&mut self, dir: &Path, links: Links) -> io::Result<Vec<(OsString, Kind)>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | no_follow(links);
        let mut entries = Dir::new(openat(CWD, dir, flags, Mode::empty())?)?;
        let mut list = Vec::new();
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile | FileType::Symlink => Kind::File,
                FileType::Directory => Kind::Dir,
                // Some file systems do not report it.
                FileType::Unknown => match self.look(&dir.join(name))? {
                    Some(found) => found.kind,
                    None => continue,
                },
                _ => Kind::Other,
            };
            list.push((name.to_owned(), kind));
        }
        Ok(list)
    }

    fn look(&mut self, path: &Path) -> io::Result<Option<Found>> {
        Ok(found(std::fs::symlink_metadata(path))?.map(|data| {
            let seconds = u64::try_from(data.ctime()).unwrap_or(0);
            let nanoseconds = u32::try_from(data.ctime_nsec()).unwrap_or(0);
            let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds));
            Found { kind: kind(data.file_type()), changed }
        }))
    }

    fn root(&mut self, path: &Path) -> io::Result<Option<Foundation>> {
        let Some(data) = found(std::fs::metadata(path))? else { return Ok(None) };
        let linked = std::fs::symlink_metadata(path).is_ok_and(|data| data.is_symlink());
        let stamp = (data.dev(), data.ino(), data.mtime(), data.mtime_nsec(), data.len());
        Ok(Some(Foundation { kind: kind(data.file_type()), linked, stamp }))
    }

    fn real(&mut self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }

    fn read(&mut self, path: &Path) -> Option<Vec<u8>> {
        use std::io::Read as _;
        // A pipe of that name must not hold us up.
        if !std::fs::symlink_metadata(path).is_ok_and(|data| data.is_file()) {
            return None;
        }
        let mut text = Vec::new();
        std::fs::File::open(path).ok()?.take(RULES + 1).read_to_end(&mut text).ok()?;
        (text.len() as u64 <= RULES).then_some(text)
    }
}
