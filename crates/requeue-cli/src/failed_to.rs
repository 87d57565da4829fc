//! The file of the keys that gave up.
//!
//! It is complete or not there: keys go to a temporary file beside it that takes its
//! name at the end, so it may be the very file that the keys are read from, and a
//! full disk leaves the old one. What is not a regular file (a pipe, a device) is
//! written as it is.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// The file, before the first key is run: what is wrong with the name is said then.
#[derive(Debug)]
pub(crate) enum FailedTo {
    Beside { temporary: NamedTempFile, target: PathBuf },
    Directly(File),
}

impl FailedTo {
    /// # Errors
    ///
    /// The file cannot be written.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        match std::fs::metadata(path) {
            Ok(data) if data.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
            Ok(data) if !data.is_file() => Ok(Self::Directly(OpenOptions::new().write(true).open(path)?)),
            // Under a name like /dev/stdout: what else goes there must stay.
            Ok(data) if is_ours(&data) => Ok(Self::Directly(OpenOptions::new().append(true).open(path)?)),
            Ok(data) => {
                // It must be writable although only its name will be: a read-only file
                // is meant to stay. And a symbolic link stays one.
                OpenOptions::new().append(true).open(path)?;
                let target = path.canonicalize()?;
                Self::beside(target, Some(data.permissions()))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Self::beside(path.to_owned(), None),
            Err(e) => Err(e),
        }
    }

    fn beside(target: PathBuf, permissions: Option<Permissions>) -> io::Result<Self> {
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let temporary = tempfile::Builder::new()
            .prefix(".requeue-failed-")
            // As for any new file: the umask takes its part.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory)?;
        if let Some(permissions) = permissions {
            temporary.as_file().set_permissions(permissions)?;
        }
        Ok(Self::Beside { temporary, target })
    }

    /// Writes the keys, each with the separator behind it.
    ///
    /// # Errors
    ///
    /// They could not be written; a file of that name is as it was.
    pub(crate) fn write<'a>(self, keys: impl Iterator<Item = &'a [u8]>, separator: u8) -> io::Result<()> {
        match self {
            Self::Directly(file) => put(&file, keys, separator),
            Self::Beside { temporary, target } => {
                put(temporary.as_file(), keys, separator)?;
                temporary.as_file().sync_all()?;
                temporary.persist(target).map_err(|e| e.error)?;
                Ok(())
            }
        }
    }
}

/// Whether this is the file that our own output or messages go to.
fn is_ours(data: &Metadata) -> bool {
    let same = |ours: rustix::io::Result<rustix::fs::Stat>| {
        ours.is_ok_and(|ours| (ours.st_dev, ours.st_ino) == (data.dev(), data.ino()))
    };
    same(rustix::fs::fstat(rustix::stdio::stdout())) || same(rustix::fs::fstat(rustix::stdio::stderr()))
}

fn put<'a>(file: &File, keys: impl Iterator<Item = &'a [u8]>, separator: u8) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    for key in keys {
        out.write_all(key)?;
        out.write_all(&[separator])?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, keys: &[&[u8]]) -> io::Result<()> {
        FailedTo::open(path)?.write(keys.iter().copied(), b'\n')
    }

    fn names(dir: &Path) -> usize {
        std::fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn the_file_appears_whole_and_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("failed");
        let open = FailedTo::open(&path).unwrap();
        assert!(!path.exists());
        open.write([&b"a"[..], b"\xff b"].into_iter(), b'\n').unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"a\n\xff b\n");
        assert_eq!(names(dir.path()), 1);
        // Nothing failed the next time: the old keys must not be fed in again.
        write(&path, &[]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn an_existing_file_keeps_its_mode_and_a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("failed"), dir.path().join("link"));
        std::fs::write(&path, "old\n").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("failed", &link).unwrap();
        write(&link, &[b"new"]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new\n");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn what_cannot_be_written_is_said_at_once() {
        let dir = tempfile::tempdir().unwrap();
        assert!(FailedTo::open(dir.path()).is_err());
        assert!(FailedTo::open(&dir.path().join("no/such")).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_an_error_and_stays_a_device() {
        let e = write(Path::new("/dev/full"), &[b"a"]).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::StorageFull);
        assert!(!std::fs::metadata("/dev/full").unwrap().is_file());
    }
}
