//! requeue under the workloads of `bench/README.md`.

use requeue::WorkQueue;
use requeue::limiter::{Exponential, TokenBucket};
use requeue_bench::measure::Counting;
use requeue_bench::ours::{NAME, Slow};
use requeue_bench::{
    Args, Line, Usage, fair, floor, main_with, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11,
};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type U = WorkQueue<u64>;
type S = WorkQueue<String>;

fn main() -> ExitCode {
    main_with(dispatch)
}

fn dispatch(args: &mut Args) -> Result<Line, Usage> {
    if let Some(other) = args.implementation().filter(|name| name != NAME) {
        return Err(Usage::Wrong(format!("this program measures {NAME}, not {other}")));
    }
    match args.workload() {
        "w1" => w1::run::<U, S>(args),
        "w1floor" => floor::w1(args),
        "w3floor" => floor::w3(args),
        "timerfloor" => floor::timers(args),
        "soonerfloor" => floor::sooner(args),
        "bucketfloor" => floor::bucket(args),
        "w8floor" => floor::w8(args),
        "w2" => w2::run::<U>(args),
        "w3" => w3::run::<U, S>(args),
        "w4" => w4::run::<U>(args),
        "w4sooner" => w4::sooner::<U>(args),
        "w5" => w5::run::<U, S>(args),
        "w5when" => w5::when::<Exponential<u64>, Exponential<String>>(args),
        "w5bucket" => w5::bucket::<TokenBucket>(args),
        "w6" => w6::run::<U>(args),
        "w7" => w7::run::<U, S>(args),
        "w8" => w8::run::<U, S>(args),
        "w9" => w9::run::<U>(args),
        "w10" => w10::run::<U>(args),
        "w11" => w11::run::<U, S>(args),
        "fair" => fair::run::<Slow>(args),
        _ => Err(args.unknown(requeue_bench::WORKLOADS)),
    }
}
