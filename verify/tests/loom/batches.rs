//! Batches: wake-ups for several keys, and the passing on of unused ones.

use crate::support::{block_on, bounded, every, poll, queue, taker, task};
use loom::thread;
use requeue::{DrainOptions, Items, Parker};
use std::task::Poll;

fn keys(items: Option<Items<'_, u32>>) -> Vec<u32> {
    items.map_or_else(Vec::new, |items| items.iter().map(|item| *item.key()).collect())
}

#[test]
fn loom_b9_a_batch_ends_the_wait_of_a_thread_for_many_whenever_it_began() {
    every(|| {
        let (q, _) = queue();
        let getter = {
            let q = q.clone();
            thread::spawn(move || keys(q.get_many(8).wait()))
        };
        q.add_many([1, 2]).all().expect("open");
        assert_eq!(getter.join().expect("no panic"), [1, 2], "both or none");
    });
}

#[test]
fn loom_b9_a_batch_ends_the_wait_of_a_task_for_many_whenever_it_began() {
    every(|| {
        let (q, _) = queue();
        let getter = {
            let q = q.clone();
            thread::spawn(move || keys(block_on(q.get_many(8))))
        };
        q.add_many([1, 2]).all().expect("open");
        assert_eq!(getter.join().expect("no panic"), [1, 2], "both or none");
    });
}

/// A batch of two keys wakes one; both of two getters return. What they hold is
/// kept until then, so that no `done` makes up for a wake-up that was lost.
#[test]
fn loom_b9_whoever_takes_a_part_of_a_batch_passes_the_wake_up_on() {
    bounded(|| {
        let (q, _) = queue();
        let getters = [1, 2].map(|most| {
            let q = q.clone();
            thread::spawn(move || q.get_many(most).wait().map(Items::into_owned))
        });
        q.add_many([1, 2, 3]).all().expect("open");
        let held = getters.map(|getter| getter.join().expect("no panic").expect("not shut down"));
        assert_eq!(held.iter().map(|items| items.len()).collect::<Vec<_>>(), [1, 2]);
    });
}

/// A getter of many may be chosen, and gives up at some moment.
#[test]
fn loom_b9_a_cancelled_getter_of_many_passes_the_wake_up_on() {
    bounded(|| {
        let (q, _) = queue();
        // a task too: a thread would be woken first
        let stays = task(&q);
        let leaves = {
            let q = q.clone();
            thread::spawn(move || {
                let parker = Parker::current();
                let mut get = q.get_many(8);
                match poll(&mut get, &parker) {
                    Poll::Ready(items) => keys(items),
                    Poll::Pending => Vec::new(),
                }
            })
        };
        q.add_many([1, 2]).all().expect("open");
        let left = leaves.join().expect("no panic");
        if left.len() < 2 {
            assert!(stays.join().expect("no panic").is_some());
        } else {
            // only here: else it would make up for a wake-up that was lost
            q.shut_down();
        }
    });
}

/// The ends of a batch make a dirty key ready and take the next keys in one hold; if the future is dropped,
/// waiting callers get the keys.
#[test]
fn loom_b9_a_dropped_done_and_next_of_many_loses_no_key() {
    bounded(|| {
        let (q, _) = queue();
        q.add_many([1, 2]).all().expect("open");
        let items = q.try_get_many(2).expect("ready").into_owned();
        let stays = taker(&q);
        let leaves = thread::spawn(move || {
            let parker = Parker::current();
            let mut next = items.next(2);
            match poll(&mut next, &parker) {
                Poll::Ready(items) => keys(items),
                Poll::Pending => Vec::new(),
            }
        });
        q.add(1).expect("open");
        if leaves.join().expect("no panic").is_empty() {
            assert_eq!(stays.join().expect("no panic"), Some(1));
        } else {
            q.shut_down();
        }
    });
}

/// The last runs end together, and the drain returns.
#[test]
fn loom_b9_a_drain_against_the_ends_of_a_batch() {
    every(|| {
        let (q, _) = queue();
        q.add_many([1, 2]).all().expect("open");
        let items = q.try_get_many(2).expect("ready").into_owned();
        let ends = thread::spawn(move || items.done());
        assert!(q.drain(DrainOptions::default()).wait().complete);
        ends.join().expect("no panic");
    });
}
