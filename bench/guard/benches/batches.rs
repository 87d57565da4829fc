//! Instruction counts of batches, in a file of their own: see `paths.rs`.

mod rig;

use requeue::Items;
use requeue_guard::{count, row};
use rig::{Queue, Rig, number, rig, string};
use std::hash::Hash;
use std::hint::black_box;
use std::process::ExitCode;

/// In batches of 32, gets the next batch and ends the one before in one call.
fn batch<K: Hash + Eq>(Rig { q, keys }: Rig<K>) -> Queue<K> {
    let mut keys = keys.into_iter();
    let mut items = None;
    while keys.len() > 0 {
        let _ = black_box(q.add_many(keys.by_ref().take(32)));
        let get = items.map_or_else(|| q.get_many(32), |items: Items<'_, K>| items.next(32));
        items = black_box(get.wait());
    }
    drop(items);
    q
}

fn cycle_batch_u64(rig: Rig<u64>) -> Queue<u64> {
    batch(rig)
}

fn cycle_batch_string(rig: Rig<String>) -> Queue<String> {
    batch(rig)
}

fn main() -> ExitCode {
    count::main(&[
        row!("cycle_batch_u64 fresh", rig(number), cycle_batch_u64),
        row!("cycle_batch_string fresh", rig(string), cycle_batch_string),
    ])
}
