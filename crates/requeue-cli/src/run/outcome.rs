//! The meaning of a run's end for its key.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::args::{AGAIN, Run};
use crate::run::child::Ended;
use crate::run::process_slots::is_shortage;
use crate::run::template::Unpassable;
use crate::text::duration;

/// The reason why a run, or a key, failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Exit(i32),
    Signal(i32),
    TimedOut(Duration),
    /// The system stopped the program with this signal, because the terminal is not its own.
    WantedTerminal(i32),
    /// The program ended with an unknown exit status.
    Unknown,
    /// The program succeeded, but its output was not read.
    Unheard,
    /// The program was ended because another process may have its key.
    LeaseLost,
    /// The program did not start; it may the next time.
    NotStarted(String),
    Unpassable(Unpassable),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit status {code}"),
            Self::Signal(n) => match signal_hook::low_level::signal_name(*n) {
                Some(name) => write!(f, "killed by {name}"),
                None => write!(f, "killed by signal {n}"),
            },
            Self::TimedOut(limit) => write!(f, "timed out after {}", duration::show(*limit)),
            Self::WantedTerminal(n) => {
                let name = signal_hook::low_level::signal_name(*n).unwrap_or("a signal");
                write!(f, "wanted the terminal, which no program gets here (stopped by {name})")
            }
            Self::Unknown => f.write_str("its exit status is unknown: the system has already forgotten it"),
            Self::Unheard => f.write_str("its output could not be passed on"),
            Self::LeaseLost => f.write_str("its lease is lost: another process may run it"),
            Self::NotStarted(why) => write!(f, "could not be started: {why}"),
            Self::Unpassable(why) => why.fmt(f),
        }
    }
}

impl Failure {
    /// Whether we ended the program because of it.
    pub(crate) fn ended_it(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::WantedTerminal(_) | Self::LeaseLost)
    }
}

/// Lets the library carry it as the error of a run.
impl std::error::Error for Failure {}

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
pub(crate) fn judge(ended: Ended, attempt: u32, args: &Run) -> Verdict {
    let failure = match ended {
        Ended::Exit(0) => return Verdict::Done,
        Ended::Stopped => return Verdict::Left(None),
        Ended::LeaseLost => return Verdict::Left(Some(Failure::LeaseLost)),
        Ended::Unheard => return Verdict::Left(Some(Failure::Unheard)),
        Ended::Exit(code) => {
            if let (Some(d), true) = (args.again_after, code == i32::from(AGAIN)) {
                return Verdict::Again(d);
            }
            if args.fatal_code.iter().any(|fatal| i32::from(*fatal) == code) {
                return Verdict::GiveUp(Failure::Exit(code));
            }
            Failure::Exit(code)
        }
        Ended::Signal(n) => Failure::Signal(n),
        Ended::Unknown => Failure::Unknown,
        Ended::WantedTerminal(n) => Failure::WantedTerminal(n),
        Ended::TimedOut => Failure::TimedOut(args.timeout.unwrap_or_default()),
    };
    retry(failure, attempt, args)
}

fn retry(failure: Failure, attempt: u32, args: &Run) -> Verdict {
    if args.max_attempts != 0 && attempt >= args.max_attempts {
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
pub(crate) fn judge_start(error: io::Error, ever: bool, attempt: u32, args: &Run) -> StartError {
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
        _ => StartError::Key(retry(Failure::NotStarted(error.to_string()), attempt, args)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn a_shortage_that_has_lasted_is_said_to_be_the_systems_and_not_the_keys() {
        let cli = crate::args::Cli::try_parse_from(["requeue", "run", "true"]).unwrap();
        let crate::args::Command::Run(args) = cli.command else { panic!("another command") };
        for errno in [Errno::AGAIN, Errno::MFILE, Errno::NOMEM] {
            let StartError::Program(126, why) = judge_start(errno.into(), true, 1, &args) else {
                panic!("{errno} is the key's failure")
            };
            assert!(why.to_string().starts_with("the system had no room for one program more: "), "{why}");
        }
    }
}
