//! Waiting for room: somebody waits for it, gives up, or is refused at the end.

use crate::support::{Hash, Queue, bounded, every, hold, poll, take};
use loom::thread::{self, JoinHandle};
use requeue::{Add, FakeClock, Parker, Refused, WorkQueue};
use std::sync::Arc;
use std::task::Poll;

/// A queue of one key at most.
fn queue() -> Queue {
    let builder = WorkQueue::builder().clock(FakeClock::new()).hasher(Hash::default()).bound(1);
    Arc::new(builder.build().expect("a bound of 1"))
}

/// A thread that adds a key when there is room; why it was refused, if it was.
fn adder(q: &Queue, key: u32) -> JoinHandle<Option<Refused>> {
    let q = q.clone();
    thread::spawn(move || q.add_when_room(key, Add::now()).wait().err().map(|refused| refused.reason))
}

#[test]
fn loom_b8_the_end_of_a_run_ends_a_wait_for_room_whenever_it_began() {
    every(|| {
        let q = queue();
        q.add(1).expect("there is room");
        let held = hold(&q).expect("it is ready");
        let adds = adder(&q, 2);
        held.done();
        assert_eq!(adds.join().expect("no panic"), None);
        assert_eq!(take(&q), Some(2));
    });
}

#[test]
fn loom_b8_shut_down_refuses_who_waits_for_room_whenever_it_began() {
    every(|| {
        let q = queue();
        q.add(1).expect("there is room");
        let adds = adder(&q, 2);
        q.shut_down();
        assert_eq!(adds.join().expect("no panic"), Some(Refused::ShutDown));
    });
}

/// Room for one key, and two callers that wait for it. One of them gives up at some moment: before it is
/// woken, after it, or instead of adding its key.
#[test]
fn loom_b8_who_gives_up_waiting_for_room_passes_the_turn_on() {
    bounded(|| {
        let q = queue();
        q.add(1).expect("there is room");
        let held = hold(&q).expect("it is ready");
        let leaves = {
            let q = q.clone();
            thread::spawn(move || {
                let parker = Parker::current();
                let mut add = q.add_when_room(2, Add::now());
                matches!(poll(&mut add, &parker), Poll::Ready(Ok(_)))
            })
        };
        let stays = adder(&q, 3);
        held.done();
        if leaves.join().expect("no panic") {
            // room is made for the other by the run of this key
            assert!(take(&q).is_some());
        }
        assert_eq!(stays.join().expect("no panic"), None);
    });
}

#[test]
fn loom_b8_a_getter_an_adder_and_shut_down_lose_no_key() {
    bounded(|| {
        let q = queue();
        q.add(1).expect("there is room");
        let adds = adder(&q, 2);
        let runs = {
            let q = q.clone();
            thread::spawn(move || crate::support::work(&q))
        };
        q.shut_down();
        let expected = match adds.join().expect("no panic") {
            None => 2,
            Some(refused) => {
                assert_eq!(refused, Refused::ShutDown);
                1
            }
        };
        assert_eq!(runs.join().expect("no panic"), expected);
    });
}
