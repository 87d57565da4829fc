//! The meaning of a run's end for its key.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::config::{AGAIN, Ends};
use crate::input::unpassable::Unpassable;
use crate::report::outcome::{Ended, Failure};
use crate::run::process_slots::is_shortage;

/// The fate of the key.
#[derive(Debug)]
pub(crate) enum Verdict {
    Done,
    Again(Duration),
    Retry(Failure),
    GiveUp(Failure),
    /// It failed, and its file is gone: the program runs once more, for the deletion.
    AtOnce(Failure),
    /// It failed for the deletion of its file, and not for the first time: it is done.
    Gone(Failure),
    /// The command had to leave: before its end, or for this reason.
    Left(Option<Failure>),
    /// The command had to leave before the run began.
    NotBegun,
}

/// Judges a run, which was attempt number `attempt`.
pub(crate) fn judge(ended: Ended, attempt: u32, ends: &Ends) -> Verdict {
    let failure = match ended {
        Ended::Exit(0) => return Verdict::Done,
        Ended::Stopped => return Verdict::Left(None),
        Ended::LeaseLost => return Verdict::Left(Some(Failure::LeaseLost)),
        Ended::Unheard => return Verdict::Left(Some(Failure::Unheard)),
        Ended::Exit(code) => {
            if let (Some(d), true) = (ends.again_after, code == i32::from(AGAIN)) {
                return Verdict::Again(d);
            }
            if ends.fatal_codes.iter().any(|fatal| i32::from(*fatal) == code) {
                return Verdict::GiveUp(Failure::Exit(code));
            }
            Failure::Exit(code)
        }
        Ended::Signal(n) => Failure::Signal(n),
        Ended::Unknown => Failure::Unknown,
        Ended::WantedTerminal(n) => Failure::WantedTerminal(n),
        Ended::TimedOut => Failure::TimedOut(ends.timeout.unwrap_or_default()),
    };
    retry(failure, attempt, ends)
}

fn retry(failure: Failure, attempt: u32, ends: &Ends) -> Verdict {
    if ends.max_attempts != 0 && attempt >= ends.max_attempts {
        Verdict::GiveUp(failure)
    } else {
        Verdict::Retry(failure)
    }
}

/// The reason why a program did not start.
#[derive(Debug)]
pub(crate) enum StartError {
    /// A problem of the key, or a temporary one.
    Key(Verdict),
    /// A problem of PROGRAM: the exit status to leave with.
    Program(u8, io::Error),
}

/// Judges the reason why the program did not start; `ever`: it has started before, so a program that is just
/// being replaced is no reason to end.
pub(crate) fn judge_start(error: io::Error, ever: bool, attempt: u32, ends: &Ends) -> StartError {
    // One that has lasted, see `ProcessSlots`.
    if is_shortage(&error) {
        let why = format!("the system had no room for one program more: {error} (see ulimit -u, -n and -v)");
        return StartError::Program(126, io::Error::new(error.kind(), why));
    }
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    match errno {
        Some(Errno::TOOBIG) => StartError::Key(Verdict::GiveUp(Failure::Unpassable(Unpassable::TooLong))),
        // PROGRAM itself was there when it was looked up.
        Some(Errno::NOENT | Errno::NOTDIR) if !ever => {
            let why = "its interpreter is not there (see its first line), or it was just removed";
            StartError::Program(126, io::Error::new(io::ErrorKind::NotFound, why))
        }
        Some(Errno::ACCESS | Errno::NOEXEC | Errno::PERM | Errno::ISDIR | Errno::LIBBAD | Errno::LOOP)
            if !ever =>
        {
            StartError::Program(126, error)
        }
        _ => StartError::Key(retry(Failure::NotStarted(error.to_string()), attempt, ends)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_that_has_lasted_is_said_to_be_the_systems_and_not_the_keys() {
        let ends = Ends { max_attempts: 5, timeout: None, again_after: None, fatal_codes: Vec::new() };
        for errno in [Errno::AGAIN, Errno::MFILE, Errno::NOMEM] {
            let StartError::Program(126, why) = judge_start(errno.into(), true, 1, &ends) else {
                panic!("{errno} is the key's failure")
            };
            assert!(why.to_string().starts_with("the system had no room for one program more: "), "{why}");
        }
    }
}
