//! Models of the lock: a sleeper is woken whatever the order of release, look and sleep, and two threads
//! never have the lock at once.
//!
//! Both barriers are full ones here: the system promises that the heavy one turns the light one into a full
//! barrier. `verify/loom.sh` leaves each of them out, and then these models must fail.

use super::lot::Lot;
use super::raw::{Caller, RawLock};
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;
use std::sync::Arc;

/// The value guarded by the lock. Each step is a load and a store, so that a step is lost if two threads have
/// the lock at once, or if one does not see another's write.
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
