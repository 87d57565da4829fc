//! How a run ended, and why it failed.

use std::time::Duration;

use crate::input::unpassable::Unpassable;
use crate::text::duration;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exit(i32),
    Signal(i32),
    TimedOut,
    /// It was stopped by this signal, because it wanted the terminal, and then ended.
    WantedTerminal(i32),
    /// Its exit status is lost: another part of the process took it.
    Unknown,
    /// It was ended because the command must leave.
    Stopped,
    /// It was ended because another process may have its key.
    LeaseLost,
    /// It succeeded, but its output was not read before the command had to leave.
    Unheard,
}

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
