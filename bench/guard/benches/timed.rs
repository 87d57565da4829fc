//! Instruction counts of queues that read the time, by the system's clock; in a file of their own: see
//! `paths.rs`.

// for the macros' output
#![allow(missing_docs, unreachable_pub)]

mod rig;

use gungraun::prelude::*;
use requeue::{Metrics, SystemClock};
use rig::{Queue, Rig, cycle, number, rig_of, string};
use std::hash::Hash;
use std::time::Duration;

/// Hears everything and keeps nothing.
struct Deaf;

impl Metrics for Deaf {}

/// A queue in which one key waits for an hour.
fn beside_a_timer<K: Hash + Eq + Clone + Send + Sync + 'static>(key: fn(usize) -> K) -> Rig<K> {
    let rig = rig_of(key, |builder| builder.clock(SystemClock));
    rig.q.add_after(key(40_000_000), Duration::from_secs(3_600)).expect("open");
    rig
}

fn with_metrics<K: Hash + Eq + Clone + Send + Sync + 'static>(key: fn(usize) -> K) -> Rig<K> {
    rig_of(key, |builder| builder.clock(SystemClock).name("guard").metrics(Deaf))
}

#[library_benchmark]
#[bench::fresh(with_metrics(number))]
fn metrics_cycle_u64(rig: Rig<u64>) -> Queue<u64> {
    cycle(rig)
}

#[library_benchmark]
#[bench::fresh(with_metrics(string))]
fn metrics_cycle_string(rig: Rig<String>) -> Queue<String> {
    cycle(rig)
}

#[library_benchmark]
#[bench::timer(beside_a_timer(number))]
fn far_timer_cycle_u64(rig: Rig<u64>) -> Queue<u64> {
    cycle(rig)
}

#[library_benchmark]
#[bench::timer(beside_a_timer(string))]
fn far_timer_cycle_string(rig: Rig<String>) -> Queue<String> {
    cycle(rig)
}

library_benchmark_group!(
    name = timed;
    benchmarks = metrics_cycle_u64, metrics_cycle_string, far_timer_cycle_u64, far_timer_cycle_string
);

main!(library_benchmark_groups = timed);
