//! Locks for systems without locks on bytes that belong to a descriptor: a file beside the database for each
//! locked byte. There each *name* can have a runner, symbolic links aside, and other processes do not see
//! current runs.

use fs4::fs_std::FileExt;
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Whether locks of many bytes are seen at once.
#[cfg_attr(
    any(target_os = "linux", target_os = "android"),
    expect(dead_code, reason = "the other one's is asked")
)]
pub(super) const HAVE_RANGES: bool = false;

pub(super) struct Bytes {
    path: PathBuf,
    /// The locked bytes.
    has: Mutex<HashMap<i64, File>>,
}

impl Bytes {
    pub(super) fn open(path: &Path, makes: bool) -> io::Result<(Self, Metadata)> {
        if makes {
            File::options().create(true).truncate(false).write(true).open(path)?;
        }
        Ok((Self { path: path.to_owned(), has: Mutex::default() }, path.metadata()?))
    }

    #[cfg_attr(
        any(target_os = "linux", target_os = "android"),
        expect(dead_code, reason = "nobody inherits its locks")
    )]
    pub(super) fn of_folder(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), has: Mutex::default() })
    }

    /// Fails: none of its locks can be inherited.
    pub(super) fn into_fd(self) -> io::Result<OwnedFd> {
        Ok(File::open(self.path)?.into())
    }

    /// Fails: a descriptor that is closed again would end SQLite's locks.
    #[cfg_attr(
        any(target_os = "linux", target_os = "android"),
        expect(dead_code, reason = "the other one's is read")
    )]
    pub(super) fn head(&self) -> io::Result<[u8; 100]> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn file(&self, byte: i64) -> io::Result<File> {
        let path = super::beside(&self.path, &format!("-lock-{}", byte - super::OURS));
        File::options().create(true).truncate(false).read(true).write(true).open(path)
    }

    fn has(&self) -> std::sync::MutexGuard<'_, HashMap<i64, File>> {
        self.has.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self, byte: i64) -> io::Result<bool> {
        let file = self.file(byte)?;
        let locked = file.try_lock_exclusive()?;
        if locked {
            self.has().insert(byte, file);
        }
        Ok(locked)
    }

    /// Does nothing: current runs are not shown.
    pub(super) fn lock_range(&self, _: Range<i64>) -> io::Result<bool> {
        Ok(false)
    }

    pub(super) fn share(&self, _: i64) -> io::Result<bool> {
        Ok(true)
    }

    pub(super) fn unlock(&self, range: Range<i64>) -> io::Result<()> {
        self.has().remove(&range.start);
        Ok(())
    }

    pub(super) fn locked(&self, range: Range<i64>) -> io::Result<Option<Range<i64>>> {
        let byte = range.start;
        if range.end != byte + 1 || self.has().contains_key(&byte) {
            return Ok(None);
        }
        let path = super::beside(&self.path, &format!("-lock-{}", byte - super::OURS));
        match File::open(path) {
            Ok(file) => Ok((!FileExt::try_lock_shared(&file)?).then_some(range)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Whether a process has locked this file as versions before 3 of the schema did.
pub(super) fn is_locked(file: &File) -> bool {
    !FileExt::try_lock_shared(file).unwrap_or(false)
}
