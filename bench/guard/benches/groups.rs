//! Instruction counts of queues with groups, in a file of their own: see `paths.rs`.

mod rig;

use requeue::GroupRules;
use requeue_guard::{count, row};
use rig::{Queue, Rig, number, rig_of};
use std::hint::black_box;
use std::process::ExitCode;

/// A hundred groups, in which the keys are in no order.
fn group(key: &u64) -> u64 {
    key % 100
}

fn groups() -> Rig<u64> {
    rig_of(number, |builder| builder.group_by(group))
}

/// A rig with ten thousand ready keys.
fn pending() -> Rig<u64> {
    let rig = groups();
    for i in 0..10_000 {
        rig.q.add(number(i)).expect("open");
    }
    rig
}

/// One key of a group at a time: each get reaches a cap, and each end leaves it.
fn capped() -> Rig<u64> {
    rig_of(number, |builder| builder.group_by_with(group, GroupRules::new().cap(1)))
}

fn b3_cycle_u64(Rig { q, keys }: Rig<u64>) -> Queue<u64> {
    for key in keys {
        let _ = black_box(q.add(black_box(key)));
        if let Some(item) = q.get_blocking() {
            black_box(item).done();
        }
    }
    q
}

fn b3_bulk_u64(Rig { q, keys }: Rig<u64>) -> Queue<u64> {
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
        row!("b3_cycle_u64 fresh", groups(), b3_cycle_u64),
        row!("b3_cycle_u64 pending", pending(), b3_cycle_u64),
        row!("b3_cycle_u64 capped", capped(), b3_cycle_u64),
        row!("b3_bulk_u64 groups", groups(), b3_bulk_u64),
        row!("b3_bulk_u64 capped", capped(), b3_bulk_u64),
    ])
}
