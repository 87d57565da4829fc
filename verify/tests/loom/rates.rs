//! The token of a rate (rule B6), of the queue and of a group, and callers that wait for it.

use crate::support::{Hash, Queue, block_on, bounded, every, hold, nanos, take, taker};
use loom::thread;
use requeue::{FakeClock, GroupRules, WorkQueue};
use std::sync::Arc;

/// A token each 5 ns. There are two, which are taken.
fn queue() -> (Queue, FakeClock) {
    let clock = FakeClock::new();
    let builder = WorkQueue::builder().clock(clock.clone()).hasher(Hash::default());
    let q: Queue = Arc::new(builder.rate(200e6, 2).build().expect("a rate"));
    for key in [8, 9] {
        q.add(key).expect("open");
        assert_eq!(take(&q), Some(key));
    }
    (q, clock)
}

/// A queue with a rate per group. A key is in a group with its neighbours: the tokens of 1 and 11 are taken.
fn queue_with_groups() -> (Queue, FakeClock) {
    let clock = FakeClock::new();
    let builder = WorkQueue::builder().clock(clock.clone()).hasher(Hash::default());
    let rules = GroupRules::new().rate(200e6, 1);
    let q: Queue = Arc::new(builder.group_by_with(|key| key / 10, rules).build().expect("a rate"));
    for key in [1, 11] {
        q.add(key).expect("open");
        assert_eq!(take(&q), Some(key));
    }
    (q, clock)
}

#[test]
fn loom_b6_the_token_ends_the_wait_of_a_thread_whenever_it_began() {
    every(|| {
        let (q, clock) = queue();
        q.add(1).expect("open");
        let getter = taker(&q);
        clock.advance(nanos(5));
        assert_eq!(getter.join().expect("no panic"), Some(1));
    });
}

#[test]
fn loom_b6_the_token_ends_the_wait_of_a_task_whenever_it_began() {
    every(|| {
        let (q, clock) = queue();
        q.add(1).expect("open");
        let getter = {
            let q = q.clone();
            thread::spawn(move || block_on(q.get()).map(|item| *item.key()))
        };
        clock.advance(nanos(5));
        assert_eq!(getter.join().expect("no panic"), Some(1));
    });
}

/// The key comes before the token, with it, or after it.
#[test]
fn loom_b6_a_key_that_is_added_beside_its_token_is_handed_out() {
    bounded(|| {
        let (q, clock) = queue();
        let getter = taker(&q);
        let moves = thread::spawn(move || clock.advance(nanos(5)));
        q.add(1).expect("open");
        moves.join().expect("no panic");
        assert_eq!(getter.join().expect("no panic"), Some(1));
    });
}

/// The getter that takes the first token leaves the second to the one that still waits.
#[test]
fn loom_b6_two_tokens_end_the_waits_of_two_getters() {
    bounded(|| {
        let (q, clock) = queue();
        q.add(1).expect("open");
        q.add(2).expect("open");
        let getters = [(); 2].map(|()| {
            let q = q.clone();
            thread::spawn(move || hold(&q))
        });
        clock.advance(nanos(5));
        clock.advance(nanos(5));
        let held = getters.map(|getter| getter.join().expect("no panic").expect("not shut down"));
        assert_ne!(held[0].key(), held[1].key());
    });
}

/// No time passes.
#[test]
fn loom_b6_lifting_the_rate_ends_the_waits_of_two_getters() {
    bounded(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        q.add(2).expect("open");
        let getters = [(); 2].map(|()| {
            let q = q.clone();
            thread::spawn(move || hold(&q))
        });
        assert!(q.lift_rate());
        let held = getters.map(|getter| getter.join().expect("no panic").expect("not shut down"));
        assert_ne!(held[0].key(), held[1].key());
    });
}

/// Both groups have their token at the same instant.
#[test]
fn loom_b6_the_tokens_of_two_groups_end_the_waits_of_two_getters() {
    bounded(|| {
        let (q, clock) = queue_with_groups();
        q.add(2).expect("open");
        q.add(12).expect("open");
        let getters = [(); 2].map(|()| {
            let q = q.clone();
            thread::spawn(move || hold(&q))
        });
        clock.advance(nanos(5));
        let held = getters.map(|getter| getter.join().expect("no panic").expect("not shut down"));
        assert_ne!(held[0].key(), held[1].key());
    });
}
