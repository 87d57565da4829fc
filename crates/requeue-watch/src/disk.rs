//! What the tree asks of the file system: the one door, so that the tree's decisions
//! can be tested on a file system that changes at every step.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What the kernel calls a directory that it tells of. The same directory has the same
/// number however often it is asked for, another one another, and no number comes back:
/// so it is the directory's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Watch(pub(crate) i32);

/// What stands under a name; links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file or a symbolic link.
    File,
    Dir,
    /// Pipes, sockets, devices: opening one can have effects, or wait for ever.
    Other,
}

/// What was found under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    /// When it was last changed, name and mode included.
    pub(crate) changed: Option<SystemTime>,
}

/// What a root's path leads to, links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Foundation {
    pub(crate) kind: Kind,
    /// The path itself is a symbolic link.
    pub(crate) linked: bool,
    /// Differs when the file behind it is another or was changed.
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
    /// Has the kernel tell of what happens in this directory from now on.
    fn watch(&mut self, dir: &Path, links: Links) -> io::Result<Watch>;

    fn unwatch(&mut self, watch: Watch);

    /// What stands in a directory.
    fn list(&mut self, dir: &Path, links: Links) -> io::Result<Vec<(OsString, Kind)>>;

    /// What stands under a name; nothing if it is gone.
    fn look(&mut self, path: &Path) -> io::Result<Option<Found>>;

    /// What a root's path leads to; nothing if it leads nowhere.
    fn root(&mut self, path: &Path) -> io::Result<Option<Foundation>>;

    /// The path without links and dots.
    fn real(&mut self, path: &Path) -> io::Result<PathBuf>;

    /// A small file, if there is one.
    fn read(&mut self, path: &Path) -> Option<Vec<u8>>;
}

/// Whether the error says that the directory is not there any more.
pub(crate) fn is_gone(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        // A directory that became a link in between: its parent will tell.
        || rustix::io::Errno::from_io_error(e) == Some(rustix::io::Errno::LOOP)
}
