//! Other queues of the Rust world under the workloads of requeue's benchmarks:
//!
//! ```text
//! requeue-peers WORKLOAD impl=NAME [name=value …]
//! ```
//!
//! prints one JSON line. It exits with 2 for arguments that it does not know, and
//! with 3 for a workload that the chosen peer cannot do. `../README.md` says how
//! each peer is used, and why so.

mod bare;
mod channels;
mod client_go;
mod context;
mod delay_queue;
mod kube;
mod notify;

use channels::{AsyncChannel, Crossbeam, Flume, Kanal};
use client_go::{ExponentialMap, MutexBucket, Port};
use requeue_bench::measure::Counting;
use requeue_bench::{Args, Line, Usage, fair, main_with, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NAMES: [&str; 9] =
    ["kube", "tokio-delayqueue", "mutex", "crossbeam", "async-channel", "flume", "kanal", "park", "notify"];

fn main() -> ExitCode {
    main_with(dispatch)
}

fn dispatch(args: &mut Args) -> Result<Line, Usage> {
    let Some(name) = args.implementation() else {
        return Err(Usage::Wrong(format!("which peer? impl= must be one of {}", NAMES.join(", "))));
    };
    match name.as_str() {
        "kube" => kube(args),
        "tokio-delayqueue" => delay_queue(args),
        "mutex" => mutex(args),
        "crossbeam" => match args.workload() {
            "w1" => w1::run::<Crossbeam<u64>, Crossbeam<String>>(args),
            "w2" => threads_only(args, w2::run_threads::<Crossbeam<u64>>),
            "w6" => threads_only(args, w6::run_threads::<Crossbeam<u64>>),
            "w7" => w7::run::<Crossbeam<u64>, Crossbeam<String>>(args),
            "w9" => threads_only(args, w9::run_threads::<Crossbeam<u64>>),
            _ => Err(cannot(args, NOT_A_CHANNEL)),
        },
        "async-channel" => channel!(args, AsyncChannel),
        "flume" => channel!(args, Flume),
        "kanal" => channel!(args, Kanal),
        "park" => match args.workload() {
            "w6" => threads_only(args, w6::run_threads::<bare::Park>),
            _ => Err(cannot(args, "park is only a wake-up: w6")),
        },
        "notify" => match args.workload() {
            "w2" => tasks_only(args, w2::run::<notify::Tasks>),
            "w6" => tasks_only(args, w6::run::<bare::Notified>),
            "w9" => tasks_only(args, w9::run::<notify::Tasks>),
            _ => Err(cannot(args, "notify is a way for tasks to wait: w2, w6, w9")),
        },
        _ => Err(Usage::Wrong(format!("there is no impl {name:?} here; there are: {}", NAMES.join(", ")))),
    }
}

const NOT_A_CHANNEL: &str = "a channel knows no keys, timers or limits: w1, w2, w6, w7, w9";

/// What a channel for threads and tasks takes part in.
macro_rules! channel {
    ($args:ident, $Channel:ident) => {
        match $args.workload() {
            "w1" => w1::run::<$Channel<u64>, $Channel<String>>($args),
            "w2" => w2::run::<$Channel<u64>>($args),
            "w6" => w6::run::<$Channel<u64>>($args),
            "w7" => w7::run::<$Channel<u64>, $Channel<String>>($args),
            "w9" => w9::run::<$Channel<u64>>($args),
            _ => Err(cannot($args, NOT_A_CHANNEL)),
        }
    };
}
use channel;

fn kube(args: &mut Args) -> Result<Line, Usage> {
    match args.workload() {
        "w1" => w1::run::<kube::Scheduled<u64>, kube::Scheduled<String>>(args),
        "w4" => threads_only(args, w4::run::<kube::Scheduled<u64>>),
        "w4sooner" => threads_only(args, w4::sooner::<kube::Scheduled<u64>>),
        "fair" => kube::fair(args),
        _ => Err(cannot(args, "kube-runtime's scheduler is one stream for one task: w1, w4, w4sooner, fair")),
    }
}

fn delay_queue(args: &mut Args) -> Result<Line, Usage> {
    match args.workload() {
        "w4" => threads_only(args, w4::run::<delay_queue::Delayed>),
        "w4sooner" => threads_only(args, w4::sooner::<delay_queue::Delayed>),
        "w10" => w10::run::<delay_queue::Delayed>(args),
        _ => Err(cannot(args, "a DelayQueue is for timers: w4, w4sooner, w10")),
    }
}

fn mutex(args: &mut Args) -> Result<Line, Usage> {
    match args.workload() {
        "w1" => w1::run::<Port<u64>, Port<String>>(args),
        "w2" => threads_only(args, w2::run_threads::<Port<u64>>),
        "w3" => w3::run::<Port<u64>, Port<String>>(args),
        "w4" => threads_only(args, w4::run::<Port<u64>>),
        "w4sooner" => threads_only(args, w4::sooner::<Port<u64>>),
        "w5" => w5::run::<Port<u64>, Port<String>>(args),
        "w5when" => w5::when::<ExponentialMap<u64>, ExponentialMap<String>>(args),
        "w5bucket" => w5::bucket::<MutexBucket>(args),
        "w6" => threads_only(args, w6::run_threads::<Port<u64>>),
        "w7" => w7::run::<Port<u64>, Port<String>>(args),
        "w8" => w8::run::<Port<u64>, Port<String>>(args),
        "w9" => threads_only(args, w9::run_threads::<Port<u64>>),
        "w10" => w10::run::<Port<u64>>(args),
        "w11" => w11::run::<Port<u64>, Port<String>>(args),
        "fair" => fair::run::<Port<u64>>(args),
        _ => Err(cannot(args, "it is the floor of requeue itself")),
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

/// The same for one for which only tasks wait.
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
