//! The command's options as plain data: made by `args` from the command line, read by all else.

pub(crate) mod engine;
pub(crate) mod group_by;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use requeue::{InBackoff, Instant};

use self::group_by::GroupBy;
use crate::limiter::Limiter;

/// A subcommand with its options.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Box<Run>),
    Plan(Box<Plan>),
    Engine(engine::Command),
}

/// `requeue run` and `requeue work`.
#[derive(Debug)]
pub(crate) struct Run {
    /// The program and its arguments.
    pub(crate) program: Vec<OsString>,
    /// Number of programs that run at a time.
    pub(crate) workers: usize,
    /// Only print the commands.
    pub(crate) dry_run: bool,
    pub(crate) lines: Lines,
    /// `None` if keys are not files.
    pub(crate) watch: Option<Watch>,
    pub(crate) queue: Queue,
    /// `None` if the queue is only in memory.
    pub(crate) durable: Option<Durable>,
    pub(crate) ends: Ends,
    /// Time between TERM and KILL.
    pub(crate) grace: Duration,
    /// When a key gives up, start no further run.
    pub(crate) fail_fast: bool,
    /// Time to work off keys after the end of the input, or after a signal.
    pub(crate) drain_timeout: Option<Duration>,
    pub(crate) output: Output,
    /// Each line of output has the key in front.
    pub(crate) tag: bool,
    pub(crate) files: Files,
    pub(crate) listen: Option<SocketAddr>,
    /// Name of the queue in the metrics.
    pub(crate) metrics_name: String,
    pub(crate) log: Form,
    pub(crate) summary: Form,
    /// Show the progress on a terminal.
    pub(crate) progress: bool,
}

impl Run {
    /// Whether all keys come from an engine.
    pub(crate) fn works(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.works)
    }

    /// Whether the command goes on until a signal: the rest is then left for the next process.
    pub(crate) fn stays(&self) -> bool {
        self.durable.as_ref().is_some_and(|durable| durable.stays)
    }

    /// Whether the queue is on a server, where other processes work on it too.
    pub(crate) fn is_on_server(&self) -> bool {
        matches!(self.durable, Some(Durable { engine: Engine::Server(_), .. }))
    }
}

/// How lines become keys, on standard input and in files of keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines {
    /// Whether keys are read from standard input.
    pub(crate) are_read: bool,
    /// The byte that ends a line.
    pub(crate) separator: u8,
    /// A line begins with a priority.
    pub(crate) priorities: bool,
    /// A line ends with a value, and the values of a run are merged so.
    pub(crate) merge: Option<Merge>,
    /// Maximum length of a key that is kept whole. If a file may have to contain it, any length that fits into
    /// memory.
    pub(crate) longest: usize,
}

/// How several values are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    Last,
    Concat,
    Count,
}

/// `--watch`
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) dirs: bool,
    pub(crate) globs: Vec<String>,
    pub(crate) ignored: Vec<String>,
    pub(crate) gitignore: bool,
    pub(crate) resync: Option<Duration>,
    /// Events for which a key is run.
    pub(crate) on: Vec<On>,
    /// All changes are one key, the first path.
    pub(crate) one: bool,
}

impl Watch {
    /// Whether a key is run for this event.
    pub(crate) fn runs_on(&self, event: On) -> bool {
        self.on.contains(&event)
    }

    /// The key of all changes, with `--one`.
    pub(crate) fn one_key(&self) -> Option<&[u8]> {
        self.paths.first().filter(|_| self.one).map(|path| path.as_os_str().as_encoded_bytes())
    }
}

/// An event of a watched file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Initial,
    Write,
    Delete,
}

/// The order of keys, and when they run.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) priorities: bool,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) overdue_every: Option<u32>,
    pub(crate) absorb: bool,
    pub(crate) groups: Option<Groups>,
    pub(crate) rate: Option<Rate>,
    pub(crate) bound: Option<NonZeroUsize>,
    /// The quiet time before a run, and its maximum.
    pub(crate) debounce: Option<(Duration, Duration)>,
    pub(crate) in_backoff: InBackoff,
    pub(crate) retry: Retry,
}

/// Groups that take turns.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    pub(crate) by: GroupBy,
    /// Number of programs of a group that run at a time.
    pub(crate) cap: Option<NonZeroUsize>,
    /// Number of runs of a group that start per second.
    pub(crate) rate: Option<f64>,
}

/// Number of runs that may start per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    Most(f64),
    /// Any number, even if the server has a rate for the queue.
    NoLimit,
}

/// The delays before retries.
#[derive(Debug)]
pub(crate) struct Retry {
    /// Replaces all that follows.
    pub(crate) limiter: Option<Limiter>,
    /// Delay after a key's first failure. A server knows a delay that is not given.
    pub(crate) base_delay: Option<Duration>,
    pub(crate) max_delay: Option<Duration>,
    /// The fraction by which a delay is lengthened at most.
    pub(crate) jitter: f64,
    /// Number of retries of all keys per second, and at once.
    pub(crate) rate: Option<(f64, u32)>,
}

impl Retry {
    /// The delay after a key's first failure, and the maximum delay, for a queue that stores neither.
    pub(crate) fn delays(&self) -> (Duration, Duration) {
        let base = self.base_delay.unwrap_or(Duration::from_secs(1));
        (base, self.max_delay.unwrap_or(Duration::from_secs(300)))
    }
}

/// A queue that outlives the command.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) engine: Engine,
    /// The name of the queue.
    pub(crate) queue: String,
    /// All keys come from the engine: `requeue work`.
    pub(crate) works: bool,
    /// The command goes on until a signal.
    pub(crate) stays: bool,
    /// On a server, how long the process may be silent before others get its keys.
    pub(crate) lease: Option<Duration>,
}

/// The place of a durable queue.
#[derive(Clone, Debug)]
pub(crate) enum Engine {
    File(PathBuf),
    /// The connection string. It may contain a password.
    Server(String),
}

/// The meaning of a run's end.
#[derive(Debug)]
pub(crate) struct Ends {
    /// Number of failed attempts at which a key gives up; 0: none.
    pub(crate) max_attempts: u32,
    pub(crate) timeout: Option<Duration>,
    /// Exit status [`AGAIN`] means "run again after this time".
    pub(crate) again_after: Option<Duration>,
    /// Exit statuses after which a key gives up.
    pub(crate) fatal_codes: Vec<u8>,
}

/// The exit status that can mean "run again": `EX_TEMPFAIL` of sysexits.h.
pub(crate) const AGAIN: u8 = 75;

/// When the output of a run is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Line by line.
    Lines,
    /// In one piece, when the run ends.
    Grouped,
    /// In one piece, in the order of the keys.
    InOrder,
}

/// The files that are written.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) failed_to: Option<PathBuf>,
    pub(crate) left_to: Option<PathBuf>,
    pub(crate) joblog: Option<PathBuf>,
    /// Skip the keys whose last run in the joblog succeeded.
    pub(crate) resume: bool,
    pub(crate) metrics_to: Option<PathBuf>,
}

/// The form of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
    Off,
}

/// `requeue plan`
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) limiter: Limiter,
    pub(crate) calls: Calls,
    /// Draw in the terminal.
    pub(crate) plot: bool,
    /// Draw into this file.
    pub(crate) svg: Option<PathBuf>,
    pub(crate) json: bool,
}

/// The times and keys of calls of a limiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    /// Number of calls, from 1.
    pub(crate) calls: u64,
    /// The time from each call to the next.
    pub(crate) every: Duration,
    /// Number of keys that take turns; from 1.
    pub(crate) keys: u64,
}

impl Calls {
    /// When the last call comes; `None` if the clock has ended by then.
    pub(crate) fn end(self) -> Option<Duration> {
        let nanos = self.every.as_nanos().checked_mul(u128::from(self.calls - 1))?;
        let last = u64::try_from(nanos).ok().map(Instant::from_nanos)?;
        (last < Instant::from_nanos(u64::MAX - 1)).then(|| Duration::from_nanos(last.as_nanos()))
    }
}
