//! Features of a queue, each alone and in pairs, by the system's clock, and with ten thousand ready keys in the cycles.
//! A program of its own: see `paths.rs`.

mod rig;

use requeue::{Add, InBackoff, Metrics, SystemClock};
use requeue_guard::{count, row};
use rig::{Builder, Queue, Rig, number, rig_of};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

/// Hears everything and keeps nothing.
struct Deaf;

impl Metrics for Deaf {}

/// A feature, a letter each.
fn with(builder: Builder<u64>, feature: char) -> Builder<u64> {
    match feature {
        'g' => builder.group_by(|key: &u64| key % 100),
        'p' => builder.priorities(),
        'w' => builder.max_wait(Duration::from_secs(3_600)),
        'i' => builder.priorities_within_groups(),
        'b' => builder.bound(1_000_000),
        'r' => builder.in_backoff(InBackoff::Respect),
        'm' => builder.metrics(Deaf),
        't' => builder.rate(1e9, u32::MAX),
        other => unreachable!("{other} is no feature"),
    }
}

/// A queue with these features, and the priority of each key.
struct Combined {
    rig: Rig<u64>,
    levels: u32,
}

impl Combined {
    fn priority(&self, i: usize) -> i16 {
        (i as u32 * 37 % self.levels) as i16
    }
}

fn features(letters: &str) -> Combined {
    let build = |builder: Builder<u64>| letters.chars().fold(builder.clock(SystemClock).name("guard"), with);
    Combined { rig: rig_of(number, build), levels: if letters.contains('p') { 100 } else { 1 } }
}

/// [`features`] with ten thousand keys that are ready.
fn pending(letters: &str) -> Combined {
    let combined = features(letters);
    for i in 0..10_000 {
        let add = Add::now().priority(combined.priority(i));
        combined.rig.q.add_with(number(i), add).expect("open");
    }
    combined
}

fn combined_cycle_u64(mut combined: Combined) -> Queue<u64> {
    let keys = std::mem::take(&mut combined.rig.keys);
    for (i, key) in keys.into_iter().enumerate() {
        add(&combined, key, i);
        if let Some(item) = combined.rig.q.get_blocking() {
            black_box(item).done();
        }
    }
    combined.rig.q
}

/// Adds a key: with the call of queues without priorities, where there are none.
#[inline(always)]
fn add(combined: &Combined, key: u64, i: usize) {
    let q = &combined.rig.q;
    if combined.levels == 1 {
        let _ = black_box(q.add(black_box(key)));
    } else {
        let _ = black_box(q.add_with(black_box(key), Add::now().priority(combined.priority(i))));
    }
}

fn combined_bulk_u64(mut combined: Combined) -> Queue<u64> {
    let keys = std::mem::take(&mut combined.rig.keys);
    for (i, key) in keys.into_iter().enumerate() {
        add(&combined, key, i);
    }
    while let Ok(item) = combined.rig.q.try_get() {
        black_box(item).done();
    }
    combined.rig.q
}

fn main() -> ExitCode {
    count::main(&[
        row!("combined_cycle_u64 plain", pending(""), combined_cycle_u64),
        row!("combined_cycle_u64 groups", pending("g"), combined_cycle_u64),
        row!("combined_cycle_u64 priorities", pending("p"), combined_cycle_u64),
        row!("combined_cycle_u64 bound", pending("b"), combined_cycle_u64),
        row!("combined_cycle_u64 respect", pending("r"), combined_cycle_u64),
        row!("combined_cycle_u64 metrics", pending("m"), combined_cycle_u64),
        row!("combined_cycle_u64 rate", pending("t"), combined_cycle_u64),
        row!("combined_cycle_u64 priorities_max_wait", pending("pw"), combined_cycle_u64),
        row!("combined_cycle_u64 groups_priorities", pending("gp"), combined_cycle_u64),
        row!("combined_cycle_u64 groups_priorities_max_wait", pending("gpw"), combined_cycle_u64),
        row!("combined_cycle_u64 groups_within", pending("gpi"), combined_cycle_u64),
        row!("combined_cycle_u64 groups_within_max_wait", pending("gpiw"), combined_cycle_u64),
        row!("combined_cycle_u64 groups_bound", pending("gb"), combined_cycle_u64),
        row!("combined_cycle_u64 groups_respect", pending("gr"), combined_cycle_u64),
        row!("combined_cycle_u64 groups_metrics", pending("gm"), combined_cycle_u64),
        row!("combined_cycle_u64 groups_rate", pending("gt"), combined_cycle_u64),
        row!("combined_cycle_u64 priorities_bound", pending("pb"), combined_cycle_u64),
        row!("combined_cycle_u64 priorities_respect", pending("pr"), combined_cycle_u64),
        row!("combined_cycle_u64 priorities_metrics", pending("pm"), combined_cycle_u64),
        row!("combined_cycle_u64 priorities_rate", pending("pt"), combined_cycle_u64),
        row!("combined_cycle_u64 bound_respect", pending("br"), combined_cycle_u64),
        row!("combined_cycle_u64 bound_metrics", pending("bm"), combined_cycle_u64),
        row!("combined_cycle_u64 bound_rate", pending("bt"), combined_cycle_u64),
        row!("combined_cycle_u64 respect_metrics", pending("rm"), combined_cycle_u64),
        row!("combined_cycle_u64 respect_rate", pending("rt"), combined_cycle_u64),
        row!("combined_cycle_u64 metrics_rate", pending("mt"), combined_cycle_u64),
        row!("combined_bulk_u64 plain", features(""), combined_bulk_u64),
        row!("combined_bulk_u64 groups", features("g"), combined_bulk_u64),
        row!("combined_bulk_u64 priorities", features("p"), combined_bulk_u64),
        row!("combined_bulk_u64 priorities_max_wait", features("pw"), combined_bulk_u64),
        row!("combined_bulk_u64 groups_priorities", features("gp"), combined_bulk_u64),
        row!("combined_bulk_u64 groups_priorities_max_wait", features("gpw"), combined_bulk_u64),
        row!("combined_bulk_u64 groups_within", features("gpi"), combined_bulk_u64),
        row!("combined_bulk_u64 groups_within_max_wait", features("gpiw"), combined_bulk_u64),
    ])
}
