//! Leader and followers: one caller sleeps until the soonest timer, whatever callers come or go, or set a
//! sooner one.

use crate::support::{
    block_on, bounded, every, hold, nanos, now, one_has_it, poll, polled_once, queue, take, taker, task,
};
use loom::thread;
use requeue::Parker;

#[test]
fn loom_d4_a_timer_set_while_a_thread_waits_wakes_it_in_time() {
    every(|| {
        let (q, clock) = queue();
        let getter = {
            let (q, clock) = (q.clone(), clock.clone());
            thread::spawn(move || (take(&q), now(&clock)))
        };
        q.add_after(1, nanos(5)).expect("open");
        clock.advance(nanos(5));
        assert_eq!(getter.join().expect("no panic"), (Some(1), 5));
    });
}

#[test]
fn loom_d4_a_timer_set_while_a_task_waits_wakes_it_in_time() {
    every(|| {
        let (q, clock) = queue();
        let getter = {
            let (q, clock) = (q.clone(), clock.clone());
            thread::spawn(move || (block_on(q.get()).map(|item| *item.key()), now(&clock)))
        };
        q.add_after(1, nanos(5)).expect("open");
        clock.advance(nanos(5));
        assert_eq!(getter.join().expect("no panic"), (Some(1), 5));
    });
}

/// The clock never reaches the later timer: a leader that did not notice the sooner one sleeps for ever.
#[test]
fn loom_d4_a_sooner_timer_wakes_the_leader() {
    every(|| {
        let (q, clock) = queue();
        q.add_after(9, nanos(50)).expect("open");
        let getter = taker(&q);
        q.add_after(1, nanos(5)).expect("open");
        clock.advance(nanos(5));
        assert_eq!(getter.join().expect("no panic"), Some(1));
    });
}

#[test]
fn loom_d4_a_sooner_timer_sets_the_alarm_of_a_waiting_task_anew() {
    every(|| {
        let (q, clock) = queue();
        q.add_after(9, nanos(50)).expect("open");
        let getter = {
            let q = q.clone();
            thread::spawn(move || block_on(q.get()).map(|item| *item.key()))
        };
        q.add_after(1, nanos(5)).expect("open");
        clock.advance(nanos(5));
        assert_eq!(getter.join().expect("no panic"), Some(1));
    });
}

/// The key's own timer is moved to an earlier instant.
#[test]
fn loom_d2_an_earlier_instant_for_the_same_key_wakes_the_leader() {
    every(|| {
        let (q, clock) = queue();
        q.add_after(1, nanos(50)).expect("open");
        let getter = taker(&q);
        q.add_after(1, nanos(5)).expect("open");
        clock.advance(nanos(5));
        assert_eq!(getter.join().expect("no panic"), Some(1));
    });
}

/// A leader that is cancelled leaves the timer to a getter that still waits.
#[test]
fn loom_d4_a_follower_takes_over_from_a_leader_that_is_cancelled() {
    bounded(|| {
        let (q, clock) = queue();
        q.add_after(1, nanos(5)).expect("open");
        let stays = taker(&q);
        let leaves = polled_once(&q);
        clock.advance(nanos(5));
        one_has_it(&q, leaves, stays);
    });
}

/// A leader that leaves with a ready key does as well.
#[test]
fn loom_d4_a_follower_takes_over_from_a_leader_that_got_a_key() {
    bounded(|| {
        let (q, clock) = queue();
        q.add_after(1, nanos(5)).expect("open");
        let getters = [(); 2].map(|()| {
            let q = q.clone();
            thread::spawn(move || hold(&q))
        });
        q.add(2).expect("open");
        clock.advance(nanos(5));
        let held = getters.map(|t| t.join().expect("no panic").expect("not shut down"));
        assert_ne!(held[0].key(), held[1].key());
    });
}

/// Two keys become ready in one lock hold, and only one wake-up is in flight: the getter that came for the
/// first key passes it on.
#[test]
fn loom_d4_two_keys_due_at_once_end_the_waits_of_two_getters() {
    bounded(|| {
        let (q, clock) = queue();
        q.add_after(1, nanos(5)).expect("open");
        q.add_after(2, nanos(5)).expect("open");
        let getters = [(); 2].map(|()| {
            let q = q.clone();
            thread::spawn(move || hold(&q))
        });
        clock.advance(nanos(5));
        let held = getters.map(|t| t.join().expect("no panic").expect("not shut down"));
        assert_ne!(held[0].key(), held[1].key());
    });
}

/// The queue's alarm leads where tasks wait. When it has rung, the first look sets it for the next timer:
/// that of the task that it woke, as it takes its key or as it waits again.
#[test]
fn loom_d4_the_alarm_of_a_waiting_task_is_set_again_for_the_next_timer() {
    every(|| {
        let (q, clock) = queue();
        q.add_after(1, nanos(5)).expect("open");
        q.add_after(2, nanos(9)).expect("open");
        let mut first = q.get();
        let parker = Parker::current();
        assert!(poll(&mut first, &parker).is_pending());
        let rings = {
            let clock = clock.clone();
            thread::spawn(move || clock.advance(nanos(5)))
        };
        parker.park();
        assert_eq!(block_on(first).map(|item| *item.key()), Some(1));
        let mut second = q.get();
        let parker = Parker::current();
        assert!(poll(&mut second, &parker).is_pending());
        rings.join().expect("no panic");
        clock.advance(nanos(4));
        parker.park();
        assert_eq!(block_on(second).map(|item| *item.key()), Some(2));
    });
}

/// The last task that gives up takes the alarm back, but not from one that comes
/// at the same time.
#[test]
fn loom_d4_a_task_that_gives_up_leaves_another_its_alarm() {
    bounded(|| {
        let (q, clock) = queue();
        q.add_after(1, nanos(5)).expect("open");
        let stays = task(&q);
        let parker = Parker::current();
        let mut get = q.get();
        assert!(poll(&mut get, &parker).is_pending());
        drop(get);
        clock.advance(nanos(5));
        assert_eq!(stays.join().expect("no panic"), Some(1));
        assert_eq!(clock.alarms(), 0);
    });
}
