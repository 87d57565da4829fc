//! A file that is complete or missing.
//!
//! Output goes to a temporary file beside it that gets its name at the end: so it may be the very file that
//! the input comes from, and a full disk leaves the old one. A file that is not regular (a pipe, a device) is
//! written directly.
//!
//! The temporary file exists only while it is written: if it were created at the start, it would stay for
//! ever when the command is killed during the runs. `O_TMPFILE`, which has no name, is not on every file
//! system, and cannot replace an existing file.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use tempfile::NamedTempFile;

/// Prefix of a temporary file's name.
const PREFIX: &str = ".requeue-";
/// Number of letters and digits after the prefix.
const RANDOM: usize = 6;

/// The file, before anything is written: an invalid name is reported early.
#[derive(Debug)]
pub(crate) enum WholeFile {
    Beside { target: PathBuf, permissions: Option<Permissions> },
    Directly(File),
}

impl WholeFile {
    /// # Errors
    ///
    /// If the file cannot be written.
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
        // Finds errors of the directory now, by the steps of the end.
        temporary(&target, permissions.clone())?;
        Ok(Self::Beside { target, permissions })
    }

    /// Lets `fill` write the contents.
    ///
    /// # Errors
    ///
    /// If it could not be written; an existing file of that name is unchanged.
    pub(crate) fn write(self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Directly(file) => put(&file, fill),
            Self::Beside { target, permissions } => {
                let temporary = temporary(&target, permissions)?;
                put(temporary.as_file(), fill)?;
                temporary.as_file().sync_all()?;
                temporary.persist(target).map_err(|e| e.error)?;
                Ok(())
            }
        }
    }
}

/// Creates an empty temporary file in the directory of `target`. Dropping it removes the file.
fn temporary(target: &Path, permissions: Option<Permissions>) -> io::Result<NamedTempFile> {
    let directory = directory(target);
    // Checked first: a later error would name the temporary file, which users do not know.
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|e| io::Error::new(e.kind(), format!("the directory {}: {e}", directory.display())))?;
    let temporary = tempfile::Builder::new()
        .prefix(PREFIX)
        .rand_bytes(RANDOM)
        // As for any new file, the umask applies.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory)?;
    if let Some(permissions) = permissions {
        temporary.as_file().set_permissions(permissions)?;
    }
    Ok(temporary)
}

/// Files that we write: they are no keys even among watched ones.
#[derive(Debug)]
pub(crate) struct Own(Vec<PathBuf>);

impl Own {
    /// These files, the temporary files beside them, and those of other such commands.
    pub(crate) fn new<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Self {
        // A symbolic link stays, and the file that it names is written.
        let both = |path| [resolved(path), Path::canonicalize(path).ok()];
        Self(paths.into_iter().flat_map(both).flatten().collect())
    }

    pub(crate) fn has(&self, path: &Path) -> bool {
        let Some(name) = path.file_name() else { return false };
        let random = name.as_encoded_bytes().strip_prefix(PREFIX.as_bytes());
        let temporary = random.is_some_and(|r| r.len() == RANDOM && r.iter().all(u8::is_ascii_alphanumeric));
        // The directory is looked up only for a name that may be ours.
        temporary
            || self.0.iter().any(|own| own.file_name() == Some(name))
                && resolved(path).is_some_and(|path| self.0.contains(&path))
    }
}

/// The path of a file, which may not exist, in its real directory.
fn resolved(path: &Path) -> Option<PathBuf> {
    Some(directory(path).canonicalize().ok()?.join(path.file_name()?))
}

/// Whether both names are of one regular file, which may not exist yet: the second one written would replace
/// the first.
pub(crate) fn same(a: &Path, b: &Path) -> bool {
    match (Place::of(a), Place::of(b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// A regular file: an existing one, whatever its name, or the name of a new one.
#[derive(PartialEq, Eq)]
enum Place {
    There(u64, u64),
    ToCome(PathBuf),
}

impl Place {
    fn of(path: &Path) -> Option<Self> {
        match std::fs::metadata(path) {
            Ok(data) if data.is_file() => Some(Self::There(data.dev(), data.ino())),
            Ok(_) => None,
            Err(_) => Some(Self::ToCome(resolved(path)?)),
        }
    }
}

/// Whether standard input is this file.
pub(crate) fn is_input(path: &Path) -> bool {
    let data = std::fs::metadata(path);
    data.is_ok_and(|data| data.is_file() && is(rustix::stdio::stdin(), &data))
}

/// The directory that the file is in.
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Whether our own output or messages go to this file.
fn is_ours(data: &Metadata) -> bool {
    is(rustix::stdio::stdout(), data) || is(rustix::stdio::stderr(), data)
}

fn is(ours: BorrowedFd<'_>, data: &Metadata) -> bool {
    let ours = ours.try_clone_to_owned().and_then(|ours| File::from(ours).metadata());
    ours.is_ok_and(|ours| (ours.dev(), ours.ino()) == (data.dev(), data.ino()))
}

fn put(file: &File, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    fill(&mut out)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &[u8]) -> io::Result<()> {
        WholeFile::open(path)?.write(|out| out.write_all(text))
    }

    fn names(dir: &Path) -> usize {
        std::fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn the_file_appears_whole_and_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("failed");
        let open = WholeFile::open(&path).unwrap();
        assert!(!path.exists());
        open.write(|out| out.write_all(b"a\n\xff b\n")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"a\n\xff b\n");
        assert_eq!(names(dir.path()), 1);
        // The next time there is nothing to write: the old text must not stay.
        write(&path, b"").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn an_existing_file_keeps_its_mode_and_a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("failed"), dir.path().join("link"));
        std::fs::write(&path, "old\n").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("failed", &link).unwrap();
        write(&link, b"new\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new\n");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn two_names_of_one_file_are_seen_through() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("there"), "").unwrap();
        std::os::unix::fs::symlink("there", at("link")).unwrap();
        std::fs::hard_link(at("there"), at("hard")).unwrap();
        std::fs::create_dir(at("sub")).unwrap();
        for (a, b, expected) in [
            ("there", "sub/../there", true),
            ("there", "link", true),
            ("link", "hard", true),
            ("new", "sub/../new", true),
            ("new", "newer", false),
            ("new", "there", false),
            ("no/such", "no/such", false),
        ] {
            assert_eq!(same(&at(a), &at(b)), expected, "{a} {b}");
        }
        // Both may go to a pipe, or to `/dev/null`.
        assert!(!same(Path::new("/dev/null"), Path::new("/dev/null")));
    }

    #[test]
    fn what_cannot_be_written_is_said_at_once() {
        let dir = tempfile::tempdir().unwrap();
        assert!(WholeFile::open(dir.path()).is_err());
        assert!(WholeFile::open(&dir.path().join("no/such")).is_err());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_device_is_an_error_and_stays_a_device() {
        let e = write(Path::new("/dev/full"), b"a\n").unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::StorageFull);
        assert!(!std::fs::metadata("/dev/full").unwrap().is_file());
    }
}
