//! Who sleeps is woken, whatever the order of release, look and sleep; and nobody has the lock beside somebody else.
//!
//! Both barriers are full ones here: that the heavy one makes a full one of the light one is the system's promise.
//! `verify/loom.sh` leaves each of them out, and these must fail.

use super::lot::Lot;
use super::raw::{Caller, RawLock};
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;
use std::sync::Arc;

/// What the lock guards: each step is a load and a store, so that two who have the lock at once, or one who does not see
/// what another one did, lose a step.
struct Counter {
    raw: RawLock,
    count: AtomicU32,
}

impl Counter {
    fn up(&self) -> u32 {
        let taken = self.raw.lock(Caller::Other);
        let count = self.count.load(Relaxed) + 1;
        self.count.store(count, Relaxed);
        self.raw.release(taken);
        count
    }
}

fn threads_count(threads: u32, each: u32, lot: fn() -> Lot, heavy: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if threads > 2 { 2 } else { 4 });
    model.check(move || {
        let counter = Arc::new(Counter { raw: RawLock::in_lot(lot(), heavy), count: AtomicU32::new(0) });
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let counter = counter.clone();
                thread::spawn(move || (0..each).for_each(|_| _ = counter.up()))
            })
            .collect();
        (0..each).for_each(|_| _ = counter.up());
        others.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(counter.up(), threads * each + 1);
    });
}

#[test]
fn loom_who_sleeps_at_a_lock_is_woken() {
    threads_count(2, 2, || Lot::that_is(false), true);
}

#[test]
fn loom_who_sleeps_at_a_lock_gets_it_handed_over() {
    threads_count(2, 2, || Lot::that_is(true), true);
}

#[test]
fn loom_all_of_three_get_a_lock() {
    threads_count(3, 1, || Lot::that_is(false), true);
}

#[test]
fn loom_all_of_three_get_a_lock_handed_over() {
    threads_count(3, 1, || Lot::that_is(true), true);
}

#[test]
fn loom_who_sleeps_at_a_lock_without_the_heavy_barrier_is_woken() {
    threads_count(2, 2, || Lot::that_is(false), false);
}
