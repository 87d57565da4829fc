//! Locks on bytes of a file that belong to its description (`F_OFD_SETLK`): they end when it is closed, and not when the
//! process closes another descriptor of the same file.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, flock};
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Whether locks of many bytes are seen at once.
pub(super) const HAVE_RANGES: bool = true;

pub(super) struct Bytes(File);

fn request(kind: libc::c_int, range: &Range<i64>) -> flock {
    flock {
        l_type: libc::c_short::try_from(kind).unwrap_or_default(),
        l_whence: libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: range.start,
        l_len: range.end - range.start,
        l_pid: 0,
    }
}

impl Bytes {
    /// Opens the file, for writing if permitted. Creates it if `makes`.
    pub(super) fn open(path: &Path, makes: bool) -> io::Result<(Self, Metadata)> {
        let file = match File::options().create(makes).truncate(false).read(true).write(true).open(path) {
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                File::open(path)?
            }
            opened => opened?,
        };
        let metadata = file.metadata()?;
        Ok((Self(file), metadata))
    }

    /// Opens a folder, which has only shared locks.
    pub(super) fn of_folder(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    pub(super) fn into_fd(self) -> io::Result<OwnedFd> {
        Ok(self.0.into())
    }

    /// The first bytes of the file.
    pub(super) fn head(&self) -> io::Result<[u8; 100]> {
        let mut head = [0; 100];
        self.0.read_exact_at(&mut head, 0).map(|()| head)
    }

    fn set(&self, kind: libc::c_int, range: &Range<i64>) -> io::Result<bool> {
        match fcntl(&self.0, FcntlArg::F_OFD_SETLK(&request(kind, range))) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
            // it could be opened for reading alone
            Err(Errno::EBADF) => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, "it can't be written to"))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Locks a byte exclusively. False if another process has it.
    pub(super) fn lock(&self, byte: i64) -> io::Result<bool> {
        self.lock_range(byte..byte + 1)
    }

    pub(super) fn lock_range(&self, range: Range<i64>) -> io::Result<bool> {
        self.set(libc::F_WRLCK, &range)
    }

    /// Locks a byte together with others that do.
    pub(super) fn share(&self, byte: i64) -> io::Result<bool> {
        self.set(libc::F_RDLCK, &(byte..byte + 1))
    }

    pub(super) fn unlock(&self, range: Range<i64>) -> io::Result<()> {
        self.set(libc::F_UNLCK, &range).map(drop)
    }

    /// A range among these bytes that another process has locked: one of them, if there are several.
    pub(super) fn locked(&self, range: Range<i64>) -> io::Result<Option<Range<i64>>> {
        if range.is_empty() {
            return Ok(None); // a length of nothing is all to the end for the system
        }
        let mut found = request(libc::F_WRLCK, &range);
        fcntl(&self.0, FcntlArg::F_OFD_GETLK(&mut found))?;
        let is_free = libc::c_int::from(found.l_type) == libc::F_UNLCK;
        let end = if found.l_len == 0 { i64::MAX } else { found.l_start + found.l_len };
        Ok((!is_free).then_some(found.l_start..end))
    }
}

/// Whether a process has locked this file as versions before 3 of the schema did.
pub(super) fn is_locked(file: &File) -> bool {
    use rustix::fs::{FlockOperation, flock};
    flock(file, FlockOperation::NonBlockingLockShared).is_err()
}
