//! requeue under the workloads of `bench/README.md`.

use requeue_bench::measure::Counting;
use requeue_bench::{main_with, ours};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    main_with(option_env!("REQUEUE_BUILT"), ours::dispatch)
}
