//! One process works on a file: the lock that says which.

use fs4::fs_std::FileExt;
use requeue::EngineError;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// So long a file, or a queue of it, is waited for that somebody is about to let go of.
pub(crate) const LETS_GO: Duration = Duration::from_secs(1);

/// The file beside a file that its runner locks.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-runner");
    name.into()
}

fn said(path: &Path, e: &io::Error) -> EngineError {
    EngineError::NotApplied(format!("{}: {e}", beside(path).display()).into())
}

/// Locks the file for this process. The lock ends with the process, however that ends.
pub(crate) fn take(path: &Path) -> Result<File, EngineError> {
    let begun = Instant::now();
    loop {
        let pid = match try_take(path)? {
            Ok(lock) => return Ok(lock),
            Err(pid) => pid,
        };
        // Threads of a worker that was stopped may be about to let go of it, and other processes have it for a moment as
        // they work off what they have added.
        // A process that was killed may have left its lock to one that ends its programs.
        if begun.elapsed() < LETS_GO || pid.is_some_and(has_ended) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let who = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
        let why = format!("{}: {who} works on it, and one process at a time can", path.display());
        return Err(EngineError::NotApplied(why.into()));
    }
}

/// The lock; or the number of the process that has it, if it has said that already.
pub(crate) fn try_take(path: &Path) -> Result<Result<File, Option<u32>>, EngineError> {
    let said = |e: io::Error| said(path, &e);
    let options = File::options().create(true).truncate(false).read(true).write(true).open(beside(path));
    let mut file = options.map_err(said)?;
    if !file.try_lock_exclusive().map_err(said)? {
        let mut pid = String::new();
        file.read_to_string(&mut pid).map_err(said)?;
        return Ok(Err(pid.trim().parse().ok()));
    }
    let told = file.set_len(0).and_then(|()| file.rewind());
    told.and_then(|()| write!(file, "{}", std::process::id())).map_err(said)?;
    Ok(Ok(file))
}

/// Whether there is no process of this number. One that nobody has asked for its exit status has ended.
#[cfg(unix)]
fn has_ended(pid: u32) -> bool {
    use rustix::{io::Errno, process};
    let Some(process) = i32::try_from(pid).ok().and_then(process::Pid::from_raw) else { return false };
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Its state stands behind its name, which may have anything in it.
    let state = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2));
    state == Some(&b'Z') || process::test_kill_process(process) == Err(Errno::SRCH)
}

#[cfg(not(unix))]
fn has_ended(_: u32) -> bool {
    false
}
