//! The workloads that requeue and its peers are measured with.
//!
//! A measurement is one process: `requeue-bench WORKLOAD [name=value …]` prints one JSON line ([`Line`]).
//! `bench/README.md` describes the workloads.
//!
//! A queue takes part by implementing the traits of [`queues`] as far as it can:
//! the workloads are generic over them, so all that is measured in Rust is
//! measured by the same code. A program for other queues is a `main` that gives
//! [`main_with`] a function from a workload's name to its `run`, as
//! [`ours::dispatch`] is.

pub mod args;
pub mod backoff;
pub mod contended;
pub mod control;
pub mod crew;
pub mod cycle;
pub mod fair;
pub mod far_timers;
pub mod floor;
pub mod idle;
pub mod keys;
pub mod line;
pub mod measure;
pub mod memory;
pub mod metrics;
pub mod ours;
pub mod queues;
pub mod redundant;
pub mod sink;
pub mod stops;
pub mod stress;
pub mod timers;
pub mod turns;
pub mod wakeups;
pub mod workers;

pub use args::{Args, Usage};
pub use keys::Key;
pub use line::Line;
pub use queues::Fifo;

use std::process::ExitCode;

/// The `main` of a program that measures: hands its arguments to `dispatch` and
/// prints the line that comes back, or what is wrong with the arguments. The
/// workload `version` prints `built`: the commit and the compiler, which a script
/// that builds the program passes in `REQUEUE_BUILT`.
pub fn main_with(built: Option<&str>, dispatch: impl FnOnce(&mut Args) -> Result<Line, Usage>) -> ExitCode {
    let done = Args::parse(std::env::args().skip(1)).and_then(|mut args| match args.workload() {
        "version" => Ok(built.unwrap_or("unknown; unknown").to_string()),
        _ => dispatch(&mut args).map(|line| line.to_string()),
    });
    match done {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(usage) => {
            eprintln!("{usage}");
            ExitCode::from(usage.exit_code())
        }
    }
}

/// The names of all workloads.
pub const WORKLOADS: &[&str] = &[
    "cycle",
    "cyclefloor",
    "contended",
    "redundant",
    "redundantfloor",
    "timers",
    "sooner",
    "timerfloor",
    "soonerreference",
    "backoff",
    "when",
    "bucket",
    "bucketreference",
    "wakeups",
    "memory",
    "metrics",
    "metricsreference",
    "idle",
    "stops",
    "fartimers",
    "control",
    "turns",
    "workers",
    "fair",
    "stress",
];
