//! Features of a queue, each alone and in pairs, by the system's clock, and with ten thousand ready keys in the cycles.
//! A program of its own: see `paths.rs`.

// for the macros' output
#![allow(missing_docs, unreachable_pub)]

mod rig;

use gungraun::prelude::*;
use requeue::{Add, InBackoff, Metrics, SystemClock};
use rig::{Builder, Queue, Rig, number, rig_of};
use std::hint::black_box;
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

#[library_benchmark]
#[bench::plain(pending(""))]
#[bench::groups(pending("g"))]
#[bench::priorities(pending("p"))]
#[bench::bound(pending("b"))]
#[bench::respect(pending("r"))]
#[bench::metrics(pending("m"))]
#[bench::rate(pending("t"))]
#[bench::priorities_max_wait(pending("pw"))]
#[bench::groups_priorities(pending("gp"))]
#[bench::groups_priorities_max_wait(pending("gpw"))]
#[bench::groups_within(pending("gpi"))]
#[bench::groups_within_max_wait(pending("gpiw"))]
#[bench::groups_bound(pending("gb"))]
#[bench::groups_respect(pending("gr"))]
#[bench::groups_metrics(pending("gm"))]
#[bench::groups_rate(pending("gt"))]
#[bench::priorities_bound(pending("pb"))]
#[bench::priorities_respect(pending("pr"))]
#[bench::priorities_metrics(pending("pm"))]
#[bench::priorities_rate(pending("pt"))]
#[bench::bound_respect(pending("br"))]
#[bench::bound_metrics(pending("bm"))]
#[bench::bound_rate(pending("bt"))]
#[bench::respect_metrics(pending("rm"))]
#[bench::respect_rate(pending("rt"))]
#[bench::metrics_rate(pending("mt"))]
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

#[library_benchmark]
#[bench::plain(features(""))]
#[bench::groups(features("g"))]
#[bench::priorities(features("p"))]
#[bench::priorities_max_wait(features("pw"))]
#[bench::groups_priorities(features("gp"))]
#[bench::groups_priorities_max_wait(features("gpw"))]
#[bench::groups_within(features("gpi"))]
#[bench::groups_within_max_wait(features("gpiw"))]
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

library_benchmark_group!(name = combinations; benchmarks = combined_cycle_u64, combined_bulk_u64);

main!(library_benchmark_groups = combinations);
