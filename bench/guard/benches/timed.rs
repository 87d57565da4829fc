//! Instruction counts of queues that read the time, by the system's clock; in a file of their own: see
//! `paths.rs`.

mod rig;

use requeue::{Metrics, SystemClock};
use requeue_guard::{count, row};
use rig::{Queue, Rig, cycle, number, rig_of, string};
use std::hash::Hash;
use std::process::ExitCode;
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

fn metrics_cycle_u64(rig: Rig<u64>) -> Queue<u64> {
    cycle(rig)
}

fn metrics_cycle_string(rig: Rig<String>) -> Queue<String> {
    cycle(rig)
}

fn far_timer_cycle_u64(rig: Rig<u64>) -> Queue<u64> {
    cycle(rig)
}

fn far_timer_cycle_string(rig: Rig<String>) -> Queue<String> {
    cycle(rig)
}

fn main() -> ExitCode {
    count::main(&[
        row!("metrics_cycle_u64 fresh", with_metrics(number), metrics_cycle_u64),
        row!("metrics_cycle_string fresh", with_metrics(string), metrics_cycle_string),
        row!("far_timer_cycle_u64 timer", beside_a_timer(number), far_timer_cycle_u64),
        row!("far_timer_cycle_string timer", beside_a_timer(string), far_timer_cycle_string),
    ])
}
