//! The look-up of PROGRAM before the first key is run, as a shell does it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::text::show;

/// The C library's search path if `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The reason why PROGRAM cannot be run, in a shell's two kinds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoProgram {
    /// Exit status 127.
    NotFound(String),
    /// Exit status 126.
    CannotExecute(String),
}

/// The file to execute for `program`: itself if it has a slash, otherwise the first executable file with that
/// name on `path`.
pub(crate) fn find(program: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, NoProgram> {
    let shown = show::key(program.as_bytes());
    if program.as_bytes().contains(&b'/') {
        let file = PathBuf::from(program);
        return match executable(&file) {
            Ok(()) => Ok(file),
            Err(Obstacle::Missing) => {
                Err(NoProgram::NotFound(format!("{shown}: not found{}", hint(program))))
            }
            Err(Obstacle::Other(why)) => {
                Err(NoProgram::CannotExecute(format!("{shown}: cannot be executed: {why}")))
            }
        };
    }
    let default = OsString::from(DEFAULT_PATH);
    let path = path.unwrap_or(&default);
    let mut obstacle = None;
    if !program.is_empty() {
        for directory in path.as_bytes().split(|b| *b == b':') {
            // An empty entry is the current directory.
            let directory = if directory.is_empty() { b"." } else { directory };
            let file = Path::new(OsStr::from_bytes(directory)).join(program);
            match executable(&file) {
                Ok(()) => return Ok(file),
                Err(Obstacle::Missing) => {}
                // A later directory may still have one that can be executed.
                Err(Obstacle::Other(why)) => obstacle = obstacle.or(Some((file, why))),
            }
        }
    }
    match obstacle {
        Some((file, why)) => Err(NoProgram::CannotExecute(format!(
            "{}: cannot be executed: {why}",
            show::key(file.as_os_str().as_bytes())
        ))),
        None => Err(NoProgram::NotFound(format!("{shown}: not found in PATH{}", hint(program)))),
    }
}

/// A hint for a user who gave a shell's line as one word.
fn hint(program: &OsStr) -> String {
    let text = program.to_string_lossy();
    if text.contains(|c: char| c.is_whitespace() || "|&;<>()$`".contains(c)) {
        let quoted = text.replace('\'', r"'\''");
        return format!(" (no shell reads it; to have one, write: sh -c '{quoted}')");
    }
    String::new()
}

/// Whether a file that the system cannot execute is for `sh`, as `execvp` decides. A file with a NUL in its
/// first line is not text.
pub(crate) fn is_script(file: &Path) -> bool {
    use std::io::Read as _;
    let mut start = Vec::new();
    let read = std::fs::File::open(file).and_then(|file| file.take(256).read_to_end(&mut start));
    let line = start.split(|b| *b == b'\n').next().unwrap_or_default();
    read.is_ok() && !line.contains(&0)
}

enum Obstacle {
    Missing,
    Other(String),
}

fn executable(file: &Path) -> Result<(), Obstacle> {
    match std::fs::metadata(file) {
        Ok(data) if data.is_dir() => Err(Obstacle::Other("it is a directory".to_owned())),
        Ok(data) if !data.is_file() => Err(Obstacle::Other("it is not a regular file".to_owned())),
        // With the effective ids, as the system will ask when it executes the file.
        Ok(_) => match accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS) {
            // Not every system can ask with the effective ids: then the start will tell.
            Ok(()) | Err(Errno::NOSYS) => Ok(()),
            Err(Errno::ACCESS) => Err(Obstacle::Other("permission denied".to_owned())),
            Err(e) => Err(Obstacle::Other(std::io::Error::from(e).to_string())),
        },
        Err(e) => match e.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => Err(Obstacle::Missing),
            _ => Err(Obstacle::Other(e.to_string())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn file(path: &Path, mode: u32) {
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_first_on_the_path_that_can_be_executed_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b, c) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
        for d in [&a, &b, &c] {
            std::fs::create_dir(d).unwrap();
        }
        std::fs::create_dir(a.join("tool")).unwrap();
        file(&b.join("tool"), 0o644);
        file(&c.join("tool"), 0o755);
        let path = std::env::join_paths([&a, &b, &c]).unwrap();
        assert_eq!(find(OsStr::new("tool"), Some(&path)), Ok(c.join("tool")));

        let path = std::env::join_paths([&b]).unwrap();
        let Err(NoProgram::CannotExecute(why)) = find(OsStr::new("tool"), Some(&path)) else {
            panic!("a file without x was taken");
        };
        assert!(why.ends_with("permission denied"), "{why}");
        assert!(matches!(find(OsStr::new("other"), Some(&path)), Err(NoProgram::NotFound(_))));
    }

    #[test]
    fn a_name_with_a_slash_is_not_looked_for() {
        let path = OsString::from("/bin:/usr/bin");
        assert!(find(OsStr::new("/bin/sh"), None).is_ok());
        assert!(find(OsStr::new("sh"), None).is_ok());
        assert!(matches!(find(OsStr::new("./sh"), Some(&path)), Err(NoProgram::NotFound(_))));
        assert!(matches!(find(OsStr::new("/"), Some(&path)), Err(NoProgram::CannotExecute(_))));
        assert!(matches!(find(OsStr::new("/bin/sh/x"), Some(&path)), Err(NoProgram::NotFound(_))));
        assert!(matches!(find(OsStr::new("/dev/null"), Some(&path)), Err(NoProgram::CannotExecute(_))));
    }

    #[test]
    fn a_line_for_a_shell_is_not_found_and_a_shell_is_proposed() {
        let path = OsString::from("/bin:/usr/bin");
        for (line, proposed) in [
            ("echo hi", "sh -c 'echo hi'"),
            ("ls|wc", "sh -c 'ls|wc'"),
            ("/bin/echo it's", r"sh -c '/bin/echo it'\''s'"),
        ] {
            let Err(NoProgram::NotFound(why)) = find(OsStr::new(line), Some(&path)) else {
                panic!("{line} was found");
            };
            assert!(why.contains(proposed), "{why}");
        }
        let Err(NoProgram::NotFound(why)) = find(OsStr::new("no-such-tool"), Some(&path)) else {
            panic!("it was found");
        };
        assert!(!why.contains("sh -c"), "{why}");
    }

    #[test]
    fn an_empty_name_is_not_found() {
        assert!(matches!(find(OsStr::new(""), None), Err(NoProgram::NotFound(_))));
    }
}
