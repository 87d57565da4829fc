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
use requeue_bench::{
    Args, Line, Usage, contended, cycle, far_timers, idle, main_with, memory, metrics, ours, redundant,
    stops, stress, wakeups,
};
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
            "wakeups" => threads_only(args, wakeups::run_threads::<bare::Park>),
            _ => Err(cannot(args, "park is only a wake-up: wakeups")),
        },
        "notify" => match args.workload() {
            "wakeups" => tasks_only(args, wakeups::run::<bare::Notified>),
            #[cfg(feature = "others")]
            "contended" | "idle" => others::notify(args),
            _ => Err(cannot(
                args,
                "notify is a way for tasks to wait: wakeups, and with the other peers contended and idle",
            )),
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
        "cycle" => cycle::run::<Plain<u64>, Plain<String>>(args),
        "contended" => threads_only(args, contended::run_threads::<Plain<u64>>),
        "redundant" => redundant::run::<Plain<u64>, Plain<String>>(args),
        "wakeups" => threads_only(args, wakeups::run_threads::<Plain<u64>>),
        "memory" => memory::run::<Plain<u64>, Plain<String>>(args),
        "metrics" => metrics::run::<Plain<u64>, Plain<String>>(args),
        "idle" => threads_only(args, idle::run_threads::<Plain<u64>>),
        "stops" => stops::run::<Plain<u64>>(args),
        "fartimers" => far_timers::run::<Plain<u64>, Plain<String>>(args),
        "stress" => stress::run::<Plain<u64>>(args),
        _ => Err(cannot(args, "the plain queue has no limits, no served timers and no tasks")),
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
