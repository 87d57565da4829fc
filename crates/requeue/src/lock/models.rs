//! Who sleeps is woken, whatever the order of release, look and sleep; and nobody has the lock beside somebody else.
//!
//! Both barriers are full ones here: that the heavy one makes a full one of the light one is the system's promise.
//! `verify/loom.sh` leaves each of them out, and these must fail.

use super::lot::Lot;
use super::raw::RawLock;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

struct Counter {
    raw: RawLock,
    count: UnsafeCell<u32>,
}

impl Counter {
    fn up(&self) {
        let taken = self.raw.lock();
        self.count.with_mut(|count| {
            // SAFETY: whoever has the lock is alone; loom reports it otherwise.
            #[expect(unsafe_code, reason = "what a lock is for")]
            unsafe {
                *count += 1;
            }
        });
        self.raw.release(taken);
    }
}

fn threads_count(threads: u32, each: u32, lot: fn() -> Lot, heavy: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(if threads > 2 { 2 } else { 4 });
    model.check(move || {
        let counter = Arc::new(Counter { raw: RawLock::in_lot(lot(), heavy), count: UnsafeCell::new(0) });
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let counter = counter.clone();
                thread::spawn(move || (0..each).for_each(|_| counter.up()))
            })
            .collect();
        (0..each).for_each(|_| counter.up());
        others.into_iter().for_each(|thread| thread.join().expect("no panic"));
        // what they did is seen
        counter.up();
        let total = counter.count.with(|count| {
            // SAFETY: all others have ended.
            #[expect(unsafe_code, reason = "what a lock is for")]
            unsafe {
                *count
            }
        });
        assert_eq!(total, threads * each + 1);
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
