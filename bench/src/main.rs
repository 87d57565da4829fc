//! requeue under the workloads of `bench/README.md`.

use requeue::WorkQueue;
use requeue_bench::measure::Counting;
use requeue_bench::{Args, Line, Usage, main_with, w1, w3};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type U = WorkQueue<u64>;
type S = WorkQueue<String>;

fn main() -> ExitCode {
    main_with(dispatch)
}

fn dispatch(args: &mut Args) -> Result<Line, Usage> {
    match args.workload() {
        "w1" => w1::run::<U, S>(args),
        "w3" => w3::run::<U, S>(args),
        _ => Err(args.unknown(&["w1", "w3"])),
    }
}
