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
use requeue_bench::{Args, Line, Usage, fair, stress, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11};

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
            "w1" => w1::run::<Crossbeam<u64>, Crossbeam<String>>(args),
            "w2" => threads_only(args, w2::run_threads::<Crossbeam<u64>>),
            "w6" => threads_only(args, w6::run_threads::<Crossbeam<u64>>),
            "w7" => w7::run::<Crossbeam<u64>, Crossbeam<String>>(args),
            "w9" => threads_only(args, w9::run_threads::<Crossbeam<u64>>),
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
        "w2" => tasks_only(args, w2::run::<notify::Tasks>),
        _ => tasks_only(args, w9::run::<notify::Tasks>),
    }
}

const NOT_A_CHANNEL: &str = "a channel knows no keys, timers or limits: w1, w2, w6, w7, w9";

/// Implements the workloads for a channel of threads and tasks.
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
        "stress" => stress::run::<Port<u64>>(args),
        _ => Err(cannot(args, "it is the floor of requeue itself")),
    }
}
