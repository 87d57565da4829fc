//! The peers that take long to build, or that show less: the feature `others`.

mod channels;
mod client_go;
mod context;
mod delay_queue;
mod kube;
mod notify;

use crate::{cannot, tasks_only, threads_only};
use channels::{AsyncChannel, Crossbeam, Flume, Kanal};
use client_go::{ExponentialMap, MutexBucket, Port};
use requeue_bench::{
    Args, Line, Usage, backoff, contended, cycle, fair, far_timers, idle, memory, metrics, redundant, stops,
    stress, timers, wakeups,
};

/// Names of the peers.
pub const NAMES: [&str; 7] =
    ["kube", "tokio-delayqueue", "mutex", "crossbeam", "async-channel", "flume", "kanal"];

/// Measures the one of that name, which is one of [`NAMES`].
pub fn dispatch(name: &str, args: &mut Args) -> Result<Line, Usage> {
    match name {
        "kube" => kube(args),
        "tokio-delayqueue" => delay_queue(args),
        "mutex" => mutex(args),
        "crossbeam" => match args.workload() {
            "cycle" => cycle::run::<Crossbeam<u64>, Crossbeam<String>>(args),
            "contended" => threads_only(args, contended::run_threads::<Crossbeam<u64>>),
            "wakeups" => threads_only(args, wakeups::run_threads::<Crossbeam<u64>>),
            "memory" => memory::run::<Crossbeam<u64>, Crossbeam<String>>(args),
            "idle" => threads_only(args, idle::run_threads::<Crossbeam<u64>>),
            _ => Err(cannot(args, NOT_A_CHANNEL)),
        },
        "async-channel" => channel!(args, AsyncChannel),
        "flume" => channel!(args, Flume),
        _ => channel!(args, Kanal),
    }
}

/// The port of client-go to tasks, for the workloads in which `notify` is that.
pub fn notify(args: &mut Args) -> Result<Line, Usage> {
    match args.workload() {
        "contended" => tasks_only(args, contended::run::<notify::Tasks>),
        _ => tasks_only(args, idle::run::<notify::Tasks>),
    }
}

const NOT_A_CHANNEL: &str =
    "a channel knows no keys, timers or limits: cycle, contended, wakeups, memory, idle";

/// Implements the workloads for a channel of threads and tasks.
macro_rules! channel {
    ($args:ident, $Channel:ident) => {
        match $args.workload() {
            "cycle" => cycle::run::<$Channel<u64>, $Channel<String>>($args),
            "contended" => contended::run::<$Channel<u64>>($args),
            "wakeups" => wakeups::run::<$Channel<u64>>($args),
            "memory" => memory::run::<$Channel<u64>, $Channel<String>>($args),
            "idle" => idle::run::<$Channel<u64>>($args),
            _ => Err(cannot($args, NOT_A_CHANNEL)),
        }
    };
}
use channel;

fn kube(args: &mut Args) -> Result<Line, Usage> {
    match args.workload() {
        "cycle" => cycle::run::<kube::Scheduled<u64>, kube::Scheduled<String>>(args),
        "timers" => threads_only(args, timers::run::<kube::Scheduled<u64>>),
        "sooner" => threads_only(args, timers::sooner::<kube::Scheduled<u64>>),
        "fair" => kube::fair(args),
        _ => Err(cannot(
            args,
            "kube-runtime's scheduler is one stream for one task: cycle, timers, sooner, fair",
        )),
    }
}

fn delay_queue(args: &mut Args) -> Result<Line, Usage> {
    match args.workload() {
        "timers" => threads_only(args, timers::run::<delay_queue::Delayed>),
        "sooner" => threads_only(args, timers::sooner::<delay_queue::Delayed>),
        "stops" => stops::run::<delay_queue::Delayed>(args),
        _ => Err(cannot(args, "a DelayQueue is for timers: timers, sooner, stops")),
    }
}

fn mutex(args: &mut Args) -> Result<Line, Usage> {
    match args.workload() {
        "cycle" => cycle::run::<Port<u64>, Port<String>>(args),
        "contended" => threads_only(args, contended::run_threads::<Port<u64>>),
        "redundant" => redundant::run::<Port<u64>, Port<String>>(args),
        "timers" => threads_only(args, timers::run::<Port<u64>>),
        "sooner" => threads_only(args, timers::sooner::<Port<u64>>),
        "backoff" => backoff::run::<Port<u64>, Port<String>>(args),
        "when" => backoff::when::<ExponentialMap<u64>, ExponentialMap<String>>(args),
        "bucket" => backoff::bucket::<MutexBucket>(args),
        "wakeups" => threads_only(args, wakeups::run_threads::<Port<u64>>),
        "memory" => memory::run::<Port<u64>, Port<String>>(args),
        "metrics" => metrics::run::<Port<u64>, Port<String>>(args),
        "idle" => threads_only(args, idle::run_threads::<Port<u64>>),
        "stops" => stops::run::<Port<u64>>(args),
        "fartimers" => far_timers::run::<Port<u64>, Port<String>>(args),
        "fair" => fair::run::<Port<u64>>(args),
        "stress" => stress::run::<Port<u64>>(args),
        _ => Err(cannot(args, "it is the floor of requeue itself")),
    }
}
