//! A task that was woken is not polled again: its key must go to another caller, while others come, leave and
//! shut down, and the clock's alarm fires at any moment between.
//!
//! In each model `stuck` is polled last and so woken first. It is not polled after that.

use crate::support::{Queue, bounded, every, nanos, poll, queue, taker};
use loom::thread::{self, JoinHandle};
use requeue::{DrainOptions, FakeClock, Get, Parker};
use std::task::Poll;
use std::time::Duration;

/// Time after which an unanswered wake-up is passed on to the next waiting caller.
const PASSED_ON: Duration = Duration::from_millis(10);

fn advances(clock: &FakeClock, by: Duration) -> JoinHandle<()> {
    let clock = clock.clone();
    thread::spawn(move || clock.advance(by))
}

/// The wakers of two getters that are polled by hand.
struct Hand {
    idle: Parker,
    stuck: Parker,
}

impl Hand {
    fn new() -> Self {
        Self { idle: Parker::current(), stuck: Parker::current() }
    }
}

type Getter<'q> = Get<'q, u32>;

/// Both wait, and `stuck` is the newer.
fn waiting<'q>(q: &'q Queue, hand: &Hand) -> (Getter<'q>, Getter<'q>) {
    let (mut idle, mut stuck) = (q.get(), q.get());
    assert!(poll(&mut idle, &hand.idle).is_pending());
    assert!(poll(&mut stuck, &hand.stuck).is_pending());
    (idle, stuck)
}

/// The key of a getter that is polled when it is woken, and only then.
fn when_woken(mut get: Getter<'_>, parker: &Parker) -> Option<u32> {
    loop {
        parker.park();
        if let Poll::Ready(item) = poll(&mut get, parker) {
            return item.map(|item| *item.key());
        }
    }
}

#[test]
fn loom_d4_a_wake_up_that_is_not_answered_goes_to_the_next() {
    every(|| {
        let (q, clock) = queue();
        let hand = Hand::new();
        let (idle, _stuck) = waiting(&q, &hand);
        q.add(1).expect("open");
        let rings = advances(&clock, PASSED_ON);
        assert_eq!(when_woken(idle, &hand.idle), Some(1));
        rings.join().expect("no panic");
    });
}

#[test]
fn loom_d4_a_thread_that_comes_as_the_watch_rings_takes_no_wake_up_away() {
    bounded(|| {
        let (q, clock) = queue();
        let hand = Hand::new();
        let (idle, _stuck) = waiting(&q, &hand);
        q.add(1).expect("open");
        q.add(2).expect("open");
        let rings = advances(&clock, PASSED_ON);
        let comes = taker(&q);
        let got = [when_woken(idle, &hand.idle), comes.join().expect("no panic")];
        assert!(got == [Some(1), Some(2)] || got == [Some(2), Some(1)], "{got:?}");
        rings.join().expect("no panic");
    });
}

#[test]
fn loom_q8_a_woken_getter_that_leaves_as_the_watch_rings_passes_the_wake_up_on() {
    every(|| {
        let (q, clock) = queue();
        let hand = Hand::new();
        let (idle, stuck) = waiting(&q, &hand);
        q.add(1).expect("open");
        let rings = advances(&clock, PASSED_ON);
        drop(stuck);
        assert_eq!(when_woken(idle, &hand.idle), Some(1));
        rings.join().expect("no panic");
    });
}

#[test]
fn loom_q10_a_shutdown_as_the_watch_rings_leaves_the_key_to_the_next() {
    every(|| {
        let (q, clock) = queue();
        let hand = Hand::new();
        let (idle, _stuck) = waiting(&q, &hand);
        q.add(1).expect("open");
        let rings = advances(&clock, PASSED_ON);
        q.shut_down();
        assert_eq!(when_woken(idle, &hand.idle), Some(1));
        rings.join().expect("no panic");
    });
}

/// The alarm rings for the timer, the watch for the task that was woken to look; a
/// timer that is set meanwhile changes nothing.
#[test]
fn loom_d4_a_timer_whose_task_does_not_come_is_fired_by_the_next() {
    bounded(|| {
        let (q, clock) = queue();
        q.add_after(1, nanos(5)).expect("open");
        let hand = Hand::new();
        let (idle, _stuck) = waiting(&q, &hand);
        let rings = {
            let clock = clock.clone();
            thread::spawn(move || {
                clock.advance(nanos(5));
                clock.advance(PASSED_ON);
            })
        };
        q.add_after(2, nanos(50)).expect("open");
        assert_eq!(when_woken(idle, &hand.idle), Some(1));
        rings.join().expect("no panic");
    });
}

/// Time passes only to the due instant: the thread is not woken by the watch.
#[test]
fn loom_d4_a_first_timer_beside_a_stuck_task_is_a_threads() {
    every(|| {
        let (q, clock) = queue();
        let parker = Parker::current();
        let mut stuck = q.get();
        assert!(poll(&mut stuck, &parker).is_pending());
        let getter = taker(&q);
        q.add_after(1, nanos(5)).expect("open");
        clock.advance(nanos(5));
        assert_eq!(getter.join().expect("no panic"), Some(1));
    });
}

#[test]
fn loom_d4_a_sooner_timer_beside_a_stuck_task_is_a_threads() {
    every(|| {
        let (q, clock) = queue();
        q.add_after(9, nanos(50)).expect("open");
        let parker = Parker::current();
        let mut stuck = q.get();
        assert!(poll(&mut stuck, &parker).is_pending());
        let getter = taker(&q);
        q.add_after(1, nanos(5)).expect("open");
        clock.advance(nanos(5));
        assert_eq!(getter.join().expect("no panic"), Some(1));
    });
}

/// A thread waits next to the stuck task, and a key comes: the thread runs it, and no time passes.
#[test]
fn loom_d4_a_key_beside_a_stuck_task_is_a_threads() {
    every(|| {
        let (q, _clock) = queue();
        let getter = taker(&q);
        let parker = Parker::current();
        let mut stuck = q.get();
        if poll(&mut stuck, &parker).is_pending() {
            q.add(1).expect("open");
            assert_eq!(getter.join().expect("no panic"), Some(1));
        }
    });
}

#[test]
fn loom_q11_a_drain_waits_for_no_stuck_task() {
    bounded(|| {
        let (q, clock) = queue();
        let hand = Hand::new();
        let (idle, _stuck) = waiting(&q, &hand);
        q.add(1).expect("open");
        let rings = advances(&clock, PASSED_ON);
        let drain = {
            let q = q.clone();
            thread::spawn(move || q.drain(DrainOptions::default()).wait())
        };
        assert_eq!(when_woken(idle, &hand.idle), Some(1));
        assert!(drain.join().expect("no panic").complete);
        rings.join().expect("no panic");
    });
}
