//! Instruction counts of queues with a hundred priorities, in a file of their own: see `paths.rs`.

mod rig;

use requeue::Add;
use requeue_guard::{count, row};
use rig::{Queue, Rig, number, rig_of};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

fn levels() -> Rig<u64> {
    rig_of(number, requeue::Builder::priorities)
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

fn b2_cycle_u64(Rig { q, keys }: Rig<u64>) -> Queue<u64> {
    for (i, key) in keys.into_iter().enumerate() {
        let _ = black_box(q.add_with(black_box(key), Add::now().priority(level(i))));
        if let Some(item) = q.get_blocking() {
            black_box(item).done();
        }
    }
    q
}

fn b2_bulk_u64(Rig { q, keys }: Rig<u64>) -> Queue<u64> {
    for (i, key) in keys.into_iter().enumerate() {
        let _ = black_box(q.add_with(black_box(key), Add::now().priority(level(i))));
    }
    while let Ok(item) = q.try_get() {
        black_box(item).done();
    }
    q
}

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

fn main() -> ExitCode {
    count::main(&[
        row!("b2_cycle_u64 fresh", levels(), b2_cycle_u64),
        row!("b2_cycle_u64 pending", pending(), b2_cycle_u64),
        row!("b2_cycle_u64 aged", aged(), b2_cycle_u64),
        row!("b2_bulk_u64 fresh", levels(), b2_bulk_u64),
        row!("b2_raise_u64 raised", levels(), b2_raise_u64),
    ])
}
