//! A key becomes ready while somebody waits, or stops waiting.

use crate::support::{
    at, block_on, bounded, every, hold, nanos, one_has_it, poll, polled_once, queue, taker, task,
};
use loom::thread;
use requeue::{GetError, Item, Parker};
use std::task::Poll;

#[test]
fn loom_q7_an_add_ends_a_blocking_get_whenever_it_began() {
    every(|| {
        let (q, _) = queue();
        let getter = taker(&q);
        q.add(1).expect("open");
        assert_eq!(getter.join().expect("no panic"), Some(1));
    });
}

#[test]
fn loom_q8_an_add_ends_an_async_get_whenever_it_began() {
    every(|| {
        let (q, _) = queue();
        let getter = {
            let q = q.clone();
            thread::spawn(move || block_on(q.get()).map(|item| *item.key()))
        };
        q.add(1).expect("open");
        assert_eq!(getter.join().expect("no panic"), Some(1));
    });
}

#[test]
fn loom_q6_two_adds_end_the_waits_of_a_thread_and_of_a_task() {
    bounded(|| {
        let (q, _) = queue();
        let threads = {
            let q = q.clone();
            thread::spawn(move || hold(&q))
        };
        let tasks = {
            let q = q.clone();
            thread::spawn(move || block_on(q.get()).map(Item::into_owned))
        };
        q.add(1).expect("open");
        q.add(2).expect("open");
        let held = [threads, tasks].map(|t| t.join().expect("no panic").expect("not shut down"));
        assert_ne!(held[0].key(), held[1].key());
    });
}

/// One key, two getters, and one of them gives up at some moment: before it was
/// chosen, after it, or in the middle of taking its leave.
#[test]
fn loom_q8_a_cancelled_getter_that_was_chosen_passes_the_wake_up_on() {
    bounded(|| {
        let (q, _) = queue();
        // a task too: a thread would be woken first
        let stays = task(&q);
        let leaves = polled_once(&q);
        q.add(1).expect("open");
        one_has_it(&q, leaves, stays);
    });
}

/// A getter that was chosen for the first key may take it in a poll for another reason, without noticing the
/// wake-up. The wake-up is then used up, and the second key must wake another getter.
#[test]
fn loom_q8_a_chosen_getter_that_got_its_key_by_a_chance_poll_holds_up_nobody() {
    bounded(|| {
        let (q, _) = queue();
        let stays = taker(&q);
        let polls = {
            let q = q.clone();
            thread::spawn(move || {
                let parker = Parker::current();
                let mut get = q.get();
                for _ in 0..2 {
                    if let Poll::Ready(item) = poll(&mut get, &parker) {
                        return item.map(|item| *item.key());
                    }
                }
                None
            })
        };
        q.add(1).expect("open");
        q.add(2).expect("open");
        // with two keys there is one for the getter that stays, whatever the other got
        let got = stays.join().expect("no panic").expect("not shut down");
        assert_ne!(Some(got), polls.join().expect("no panic"));
    });
}

/// A key comes and the time is up: a getter that times out, chosen or not, leaves the key to the other.
fn key_and_deadline(key_comes_first: bool) {
    bounded(move || {
        let (q, clock) = queue();
        let stays = taker(&q);
        let times_out = {
            let q = q.clone();
            thread::spawn(move || q.get().timeout(at(5)).wait().map(|item| *item.key()))
        };
        if key_comes_first {
            q.add(1).expect("open");
        }
        clock.advance(nanos(5));
        if !key_comes_first {
            q.add(1).expect("open");
        }
        match times_out.join().expect("no panic") {
            Ok(key) => {
                assert_eq!(key, 1);
                q.shut_down();
                assert_eq!(stays.join().expect("no panic"), None);
            }
            Err(error) => {
                assert_eq!(error, GetError::Empty);
                assert_eq!(stays.join().expect("no panic"), Some(1));
            }
        }
    });
}

#[test]
fn loom_q8_a_getter_whose_time_is_up_after_the_key_came_loses_no_wake_up() {
    key_and_deadline(true);
}

#[test]
fn loom_q8_a_getter_whose_time_is_up_before_the_key_comes_is_not_chosen() {
    key_and_deadline(false);
}

#[test]
fn loom_q10_a_shutdown_releases_a_thread_and_a_task_that_wait() {
    bounded(|| {
        let (q, _) = queue();
        let threads = taker(&q);
        let tasks = {
            let q = q.clone();
            thread::spawn(move || block_on(q.get()).is_none())
        };
        q.shut_down();
        assert_eq!(threads.join().expect("no panic"), None);
        assert!(tasks.join().expect("no panic"));
    });
}

/// A waiter does not keep the queue open, and learns of its end.
#[test]
fn loom_q10_dropping_the_last_handle_releases_who_waits() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        let waits = thread::spawn(move || item.next().wait().is_none());
        drop(q);
        assert!(waits.join().expect("no panic"));
    });
}

/// Two handles that are dropped at once: exactly one of them is the last.
#[test]
fn loom_q10_of_two_handles_dropped_at_once_one_shuts_down() {
    bounded(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        let other = (*q).clone();
        let waits = thread::spawn(move || item.next().wait().is_none());
        let drops = thread::spawn(move || drop(other));
        drop(q);
        drops.join().expect("no panic");
        assert!(waits.join().expect("no panic"));
    });
}
