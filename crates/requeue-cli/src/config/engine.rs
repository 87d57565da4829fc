//! The commands for a durable queue.

use std::time::Duration;

use jiff::Zoned;
use requeue_sqlite::Schedule;

use super::Engine;
use super::group_by::GroupBy;

/// Environment variable for the engine, without `--engine`.
pub(crate) const ENGINE: &str = "REQUEUE_ENGINE";

/// Default name of the queue.
pub(crate) const DEFAULT: &str = "default";

/// A command, its queue, and the form of its output.
#[derive(Debug)]
pub(crate) struct Command {
    /// The place of the queue, or the problem with its name.
    pub(crate) engine: Result<Engine, String>,
    pub(crate) queue: String,
    /// Print JSON.
    pub(crate) json: bool,
    pub(crate) act: Act,
}

#[derive(Debug)]
pub(crate) enum Act {
    Add(Box<Add>),
    List(List),
    State(Vec<u8>),
    Cancel(Cancel),
    Retry(Vec<u8>),
    /// The queue, or one of its groups.
    Pause(Option<Vec<u8>>),
    Resume(Option<Vec<u8>>),
    Purge,
    Stats,
    Top {
        /// Interval between two looks.
        every: Duration,
        /// Number of looks.
        times: Option<u64>,
    },
    Migrate,
    Check,
}

/// `requeue add`
#[derive(Debug)]
pub(crate) struct Add {
    pub(crate) keys: Keys,
    pub(crate) when: When,
    /// The run stands for the delayed runs that the keys have.
    pub(crate) absorb: bool,
    pub(crate) priority: i16,
    /// The value of each key, as JSON.
    pub(crate) value: Option<String>,
    pub(crate) group_by: Option<GroupBy>,
    /// Create the queue on a server.
    pub(crate) make: bool,
}

/// The source of keys.
#[derive(Debug)]
pub(crate) enum Keys {
    Given(Vec<Vec<u8>>),
    /// Lines of standard input.
    Read {
        separator: u8,
        /// Each line ends with a tab and a value.
        values: bool,
    },
}

/// When keys run.
#[derive(Debug)]
pub(crate) struct When {
    pub(crate) after: Option<Duration>,
    pub(crate) at: Option<Zoned>,
    pub(crate) every: Option<Duration>,
    /// The times at which the keys come again, if they do not depend on the ends of runs.
    pub(crate) schedule: Option<Schedule>,
}

/// `requeue ls`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Keys,
    Dead,
    Running,
    Queues,
    Groups,
}

/// `requeue cancel`
#[derive(Debug)]
pub(crate) enum Cancel {
    One(Vec<u8>),
    Many {
        /// Begin of the keys.
        prefix: Vec<u8>,
        /// Do not ask.
        yes: bool,
        /// Cancel only this number of keys.
        expect: Option<u64>,
    },
}
