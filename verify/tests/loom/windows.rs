//! The end of a debounce's window (rule B4), concurrent with an add, a getter and a drain.

use crate::support::{Hash, Queue, bounded, bounded_by, every, nanos, poll, take, taker};
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use requeue::{Debounce, DrainOptions, FakeClock, Parker, WaitingKeys, WorkQueue};
use std::sync::Arc;

/// A queue whose keys run after 5 ns without a trigger.
fn queue(leading: bool) -> (Queue, FakeClock) {
    let clock = FakeClock::new();
    let debounce = Debounce::new(nanos(5)).max(nanos(9));
    let debounce = if leading { debounce.leading() } else { debounce };
    let builder = WorkQueue::builder().clock(clock.clone()).hasher(Hash::default()).debounce(debounce);
    (Arc::new(builder.build().expect("a debounce")), clock)
}

fn waits() -> DrainOptions {
    DrainOptions::default().waiting_keys(WaitingKeys::Wait)
}

#[test]
fn loom_b4_a_window_that_opens_while_a_thread_waits_wakes_it_at_its_end() {
    every(|| {
        let (q, clock) = queue(false);
        let getter = taker(&q);
        q.add(1).expect("open");
        clock.advance(nanos(5));
        assert_eq!(getter.join().expect("no panic"), Some(1));
    });
}

/// The add comes before the window's end and pushes it back, at its end, or during the run that
/// the end gave, and opens another window: a run that begins after it comes in each case.
#[test]
fn loom_b4_an_add_beside_the_end_of_a_window_is_followed_by_a_run() {
    bounded(|| {
        let (q, clock) = queue(false);
        let asked = Arc::new(AtomicBool::new(false));
        q.add(1).expect("open");
        let getter = {
            let (q, asked) = (q.clone(), asked.clone());
            thread::spawn(move || {
                loop {
                    let item = q.get_blocking().expect("not shut down");
                    let seen = asked.load(Relaxed);
                    item.done();
                    if seen {
                        return;
                    }
                }
            })
        };
        let adds = {
            let q = q.clone();
            thread::spawn(move || {
                asked.store(true, Relaxed);
                q.add(1).expect("open");
            })
        };
        clock.advance(nanos(5));
        adds.join().expect("no panic");
        clock.advance(nanos(9));
        // a look, which ends a window beside the run as well
        _ = q.len();
        getter.join().expect("no panic");
    });
}

/// The add is refused, or it is taken and the drain waits for its run too.
#[test]
fn loom_b4_a_drain_beside_the_end_of_a_window_and_an_add_waits_for_their_runs() {
    bounded_by(3, || {
        let (q, clock) = queue(false);
        q.add(1).expect("open");
        let runs = {
            let q = q.clone();
            thread::spawn(move || crate::support::work(&q))
        };
        let adds = {
            let (q, clock) = (q.clone(), clock.clone());
            thread::spawn(move || {
                let added = q.add(1).is_ok();
                clock.advance(nanos(5));
                added
            })
        };
        let mut drain = q.drain(waits());
        let parker = Parker::current();
        _ = poll(&mut drain, &parker);
        adds.join().expect("no panic");
        clock.advance(nanos(9));
        assert!(drain.wait().complete);
        let runs = runs.join().expect("no panic");
        assert!((1..=2).contains(&runs), "{runs} runs");
    });
}

/// After a leading edge a window is open that owes no run. Nobody gets, and the drain waits for
/// its end all the same, unless the add comes first and the end has a run to give.
#[test]
fn loom_b4_a_drain_whose_getters_have_left_ends_with_a_window_that_owes_no_run() {
    every(|| {
        let (q, clock) = queue(true);
        q.add(1).expect("open");
        assert_eq!(take(&q), Some(1));
        let drains = {
            let q = q.clone();
            thread::spawn(move || q.drain(waits()).wait().complete)
        };
        clock.advance(nanos(5));
        assert!(drains.join().expect("no panic"));
    });
}
