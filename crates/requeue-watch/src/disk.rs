//! [`Disk`]: the tree's only access to the file system, so that its decisions can be tested on a file system
//! that changes at every step.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The kernel's number of a watched directory. A directory keeps its number, different directories have
/// different ones, and no number is reused: so it identifies the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Watch(pub(crate) i32);

/// The kind of a directory entry; links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file or a symbolic link.
    File,
    Dir,
    /// A pipe, socket or device: opening one can have effects, or block for ever.
    Other,
}

/// A directory entry that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    /// When it was last changed, including its name and mode.
    pub(crate) changed: Option<SystemTime>,
}

/// The file or directory that a root's path leads to, links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Foundation {
    pub(crate) kind: Kind,
    /// The path itself is a symbolic link.
    pub(crate) linked: bool,
    /// Changes when the file behind it is replaced or modified.
    pub(crate) stamp: Stamp,
}

/// Device, inode, modification time in seconds and nanoseconds, length.
pub(crate) type Stamp = (u64, u64, i64, i64, u64);

/// Whether a path below a root may be reached through a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    Follow,
    Refuse,
}

pub(crate) trait Disk {
    /// Makes the kernel report events in this directory from now on.
    fn watch(&mut self, dir: &Path, links: Links) -> io::Result<Watch>;

    fn unwatch(&mut self, watch: Watch);

    /// The entries of a directory.
    fn list(&mut self, dir: &Path, links: Links) -> io::Result<Vec<(OsString, Kind)>>;

    /// The entry at a path; `None` if it is gone.
    fn look(&mut self, path: &Path) -> io::Result<Option<Found>>;

    /// The target of a root's path; `None` if it leads nowhere.
    fn root(&mut self, path: &Path) -> io::Result<Option<Foundation>>;

    /// The path without links and dots.
    fn real(&mut self, path: &Path) -> io::Result<PathBuf>;

    /// The contents of a small file, if it exists.
    fn read(&mut self, path: &Path) -> Option<Vec<u8>>;
}

/// Whether the error says that the directory no longer exists.
pub(crate) fn is_gone(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        // A directory that became a link in between: its parent reports it.
        || rustix::io::Errno::from_io_error(e) == Some(rustix::io::Errno::LOOP)
}
