//! Models: `RUSTFLAGS="--cfg requeue_loom" cargo test -p requeue --lib loom_`.
//! A lost wake-up is a deadlock, which loom reports.

use super::*;
use crate::sync::atomic::{AtomicBool, AtomicUsize};
use crate::{Clock, FakeClock, Instant};
use std::time::Duration;

#[test]
fn loom_d4_no_wake_up_is_lost() {
    loom::model(|| {
        let ready = Arc::new(AtomicBool::new(false));
        let parker = Parker::current();
        let (flag, waker) = (Arc::clone(&ready), parker.waker().clone());
        let waking = thread::spawn(move || {
            flag.store(true, Ordering::Relaxed);
            waker.wake();
        });
        while !ready.load(Ordering::Relaxed) {
            parker.park();
        }
        waking.join().unwrap();
    });
}

#[test]
fn loom_d4_what_each_of_two_wakers_did_is_visible_after_the_sleeps() {
    loom::model(|| {
        let done = Arc::new(AtomicUsize::new(0));
        let parker = Parker::current();
        let waking = [1, 2].map(|bit| {
            let (done, waker) = (Arc::clone(&done), parker.waker().clone());
            thread::spawn(move || {
                done.fetch_or(bit, Ordering::Relaxed);
                waker.wake();
            })
        });
        while done.load(Ordering::Relaxed) != 3 {
            parker.park();
        }
        for thread in waking {
            thread.join().unwrap();
        }
    });
}

#[test]
fn loom_d4_a_wait_inside_a_wait_loses_nothing_on_either_level() {
    loom::model(|| {
        let [outer_ready, inner_ready] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let outer = Parker::current();
        let inner = Parker::current();
        let waking = [(&outer_ready, &outer), (&inner_ready, &inner)].map(|(ready, parker)| {
            let (ready, waker) = (Arc::clone(ready), parker.waker().clone());
            thread::spawn(move || {
                ready.store(true, Ordering::Relaxed);
                waker.wake();
            })
        });
        while !inner_ready.load(Ordering::Relaxed) {
            inner.park();
        }
        drop(inner);
        while !outer_ready.load(Ordering::Relaxed) {
            outer.park();
        }
        for thread in waking {
            thread.join().unwrap();
        }
    });
}

#[test]
fn loom_d10_moving_the_clock_ends_a_blocking_wait_whenever_it_began() {
    loom::model(|| {
        let clock = FakeClock::new();
        let due = Instant::from_nanos(5);
        let mover = clock.clone();
        let moving = thread::spawn(move || mover.advance(Duration::from_nanos(5)));
        let parker = Parker::current();
        while clock.now() < due {
            clock.park_until(due, &parker);
        }
        moving.join().unwrap();
        assert_eq!(clock.alarms(), 0);
    });
}

#[test]
fn loom_d10_waiting_for_alarms_sees_the_one_that_is_set_meanwhile() {
    loom::model(|| {
        let clock = FakeClock::new();
        let due = Instant::from_nanos(5);
        let waits = clock.clone();
        let waiting = thread::spawn(move || {
            let parker = Parker::current();
            while waits.now() < due {
                waits.park_until(due, &parker);
            }
        });
        clock.wait_for_alarms(1);
        clock.advance(Duration::from_nanos(5));
        waiting.join().unwrap();
    });
}
