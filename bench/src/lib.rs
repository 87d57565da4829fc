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
pub mod crew;
pub mod fair;
pub mod floor;
pub mod keys;
pub mod line;
pub mod measure;
pub mod ours;
pub mod queues;
pub mod sink;
pub mod stress;
pub mod w1;
pub mod w10;
pub mod w11;
pub mod w12;
pub mod w13;
pub mod w14;
pub mod w2;
pub mod w3;
pub mod w4;
pub mod w5;
pub mod w6;
pub mod w7;
pub mod w8;
pub mod w9;

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
    "w1",
    "w1floor",
    "w2",
    "w3",
    "w3floor",
    "w4",
    "w4sooner",
    "timerfloor",
    "soonerreference",
    "w5",
    "w5when",
    "w5bucket",
    "bucketreference",
    "w6",
    "w7",
    "w8",
    "w8reference",
    "w9",
    "w10",
    "w11",
    "w12",
    "w13",
    "w14",
    "fair",
    "stress",
];
