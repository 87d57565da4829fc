//! requeue and other queues of the Rust world under the workloads of requeue's
//! benchmarks:
//!
//! ```text
//! requeue-peers WORKLOAD impl=NAME [name=value …]
//! ```
//!
//! prints one JSON line. It exits with 2 for unknown arguments, and with 3 for a workload that the chosen
//! peer cannot do. `../README.md` explains how each peer is used, and why.

mod bare;
#[cfg(feature = "others")]
mod others;
mod plain;

use plain::Plain;
use requeue_bench::measure::Counting;
use requeue_bench::{Args, Line, Usage, main_with, ours, stress, w1, w2, w3, w6, w7, w8, w9, w10, w11};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The peers that are always here.
const NAMES: [&str; 4] = [ours::NAME, "plain", "park", "notify"];

fn main() -> ExitCode {
    main_with(option_env!("REQUEUE_BUILT"), dispatch)
}

fn dispatch(args: &mut Args) -> Result<Line, Usage> {
    let name = args.implementation().unwrap_or_default();
    match name.as_str() {
        ours::NAME => ours::dispatch(args),
        "plain" => plain(args),
        "park" => match args.workload() {
            "w6" => threads_only(args, w6::run_threads::<bare::Park>),
            _ => Err(cannot(args, "park is only a wake-up: w6")),
        },
        "notify" => match args.workload() {
            "w6" => tasks_only(args, w6::run::<bare::Notified>),
            #[cfg(feature = "others")]
            "w2" | "w9" => others::notify(args),
            _ => Err(cannot(args, "notify is a way for tasks to wait: w6, and with the other peers w2, w9")),
        },
        #[cfg(feature = "others")]
        other if others::NAMES.contains(&other) => others::dispatch(other, args),
        _ => Err(no_peer(&name)),
    }
}

fn no_peer(name: &str) -> Usage {
    #[cfg(feature = "others")]
    let names = [&NAMES[..], &others::NAMES].concat().join(", ");
    #[cfg(not(feature = "others"))]
    let names = format!("{}; built with --features others it has more", NAMES.join(", "));
    Usage::Wrong(format!("which peer? impl={name:?} must be one of {names}"))
}

fn plain(args: &mut Args) -> Result<Line, Usage> {
    match args.workload() {
        "w1" => w1::run::<Plain<u64>, Plain<String>>(args),
        "w2" => threads_only(args, w2::run_threads::<Plain<u64>>),
        "w3" => w3::run::<Plain<u64>, Plain<String>>(args),
        "w6" => threads_only(args, w6::run_threads::<Plain<u64>>),
        "w7" => w7::run::<Plain<u64>, Plain<String>>(args),
        "w8" => w8::run::<Plain<u64>, Plain<String>>(args),
        "w9" => threads_only(args, w9::run_threads::<Plain<u64>>),
        "w10" => w10::run::<Plain<u64>>(args),
        "w11" => w11::run::<Plain<u64>, Plain<String>>(args),
        "stress" => stress::run::<Plain<u64>>(args),
        _ => Err(cannot(args, "the plain queue has no limits and no tasks: w1, w2, w3, w6 to w11, stress")),
    }
}

type Run = fn(&mut Args) -> Result<Line, Usage>;

/// Runs a workload of a peer for which only threads wait.
fn threads_only(args: &mut Args, run: Run) -> Result<Line, Usage> {
    if asked_for("mode=tasks") || asked_for("mode=goroutines") || asked_for("producer=task") {
        return Err(cannot(args, "only threads can wait here: mode=threads"));
    }
    run(args)
}

/// Runs a peer that only tasks can wait for.
fn tasks_only(args: &mut Args, run: Run) -> Result<Line, Usage> {
    if !asked_for("mode=tasks") && !asked_for("producer=task") {
        return Err(cannot(args, "only tasks can wait here: mode=tasks"));
    }
    run(args)
}

fn asked_for(what: &str) -> bool {
    std::env::args().any(|arg| arg == what)
}

/// Says that the peer cannot do the workload; what no peer has is an error in the
/// arguments.
fn cannot(args: &Args, why: &str) -> Usage {
    if requeue_bench::WORKLOADS.contains(&args.workload()) {
        Usage::Cannot(why.to_string())
    } else {
        args.unknown(requeue_bench::WORKLOADS)
    }
}
