//! Instruction counts of queues with a hundred priorities, in a file of their own: see `paths.rs`.

// for the macros' output
#![allow(missing_docs, unreachable_pub)]

mod rig;

use gungraun::prelude::*;
use requeue::Add;
use rig::{Queue, Rig, number, rig_of};
use std::hint::black_box;
use std::time::Duration;

fn levels() -> Rig<u64> {
    rig_of(number, |builder| builder.priorities())
}

/// A hundred priorities, in no order.
fn level(i: usize) -> i16 {
    (i * 37 % 100) as i16 - 50
}

/// A rig with ten thousand ready keys.
fn pending() -> Rig<u64> {
    let rig = levels();
    for i in 0..10_000 {
        rig.q.add_with(number(i), Add::now().priority(level(i))).expect("open");
    }
    rig
}

fn aged() -> Rig<u64> {
    rig_of(number, |builder| builder.priorities().max_wait(Duration::from_secs(60)))
}

#[library_benchmark]
#[bench::fresh(levels())]
#[bench::pending(pending())]
#[bench::aged(aged())]
fn b2_cycle_u64(Rig { q, keys }: Rig<u64>) -> Queue<u64> {
    for (i, key) in keys.into_iter().enumerate() {
        let _ = black_box(q.add_with(black_box(key), Add::now().priority(level(i))));
        if let Some(item) = q.get_blocking() {
            black_box(item).done();
        }
    }
    q
}

#[library_benchmark]
#[bench::fresh(levels())]
fn b2_bulk_u64(Rig { q, keys }: Rig<u64>) -> Queue<u64> {
    for (i, key) in keys.into_iter().enumerate() {
        let _ = black_box(q.add_with(black_box(key), Add::now().priority(level(i))));
    }
    while let Ok(item) = q.try_get() {
        black_box(item).done();
    }
    q
}

#[library_benchmark]
#[bench::raised(levels())]
fn b2_raise_u64(Rig { q, keys }: Rig<u64>) -> Queue<u64> {
    for key in &keys {
        let _ = black_box(q.add_with(black_box(*key), Add::now().priority(-100)));
    }
    for key in keys {
        let _ = black_box(q.add(black_box(key)));
    }
    while let Ok(item) = q.try_get() {
        black_box(item).done();
    }
    q
}

library_benchmark_group!(
    name = priorities;
    benchmarks = b2_cycle_u64, b2_bulk_u64, b2_raise_u64
);

main!(library_benchmark_groups = priorities);
