//! Q10: shut_down, from any thread, in any state, any number of times.

use crate::adapter::{Accepted, Adapter, Down, Held, Policy, Seen, Subject, Waiters, When, ms, sound};
use crate::probe::Value;
use crate::wake::{Count, poll_once};
use std::task::Poll;
use std::thread;

pub fn q10_triggers_after_shut_down_are_refused_visibly<A: Adapter>() {
    let q = Subject::<A>::new();
    assert!(!q.shutting_down());
    q.shut_down();
    assert!(q.shutting_down());
    let delayed = When::After(ms(1), Policy::Earliest);
    let now = When::After(ms(0), Policy::Earliest);
    for when in [When::Now, delayed, now, When::RateLimited] {
        let back = q.trigger(7, when, Some(Value::of(3))).expect_err("the queue is shut down");
        assert_eq!(back.key.id, 7, "the key comes back");
        assert_eq!(back.value.map(|value| value.items.clone()), Some(vec![3]), "the value comes back");
    }
    assert_eq!(sound(q.queue.add_ref(&7.into())), Err(()));
    q.has(0, 0, 0, 0);
    assert_eq!(q.num_requeues(7), 0);
}

pub fn q10_ready_keys_are_still_handed_out<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    assert_eq!(q.shut_down(), Down { ready: 2, ..Down::default() });
    assert_eq!(q.len(), 2);
    assert_eq!(q.work_off(), [1, 2]);
    q.is_over();
}

pub fn q10_a_held_dirty_key_still_gets_its_run<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    assert_eq!(q.shut_down(), Down { held: 1, ..Down::default() });
    assert_eq!(q.state(1), Some(Seen { held: true, dirty: true, ..Seen::default() }));
    sound(one.done());
    assert_eq!(q.work_off(), [1]);
    q.is_over();
}

pub fn q10_a_trigger_for_a_key_that_is_ready_or_held_is_refused_too<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    let one = q.take(1);
    q.shut_down();
    assert!(q.refuses(1));
    assert!(q.refuses(2));
    sound(one.done());
    assert_eq!(q.work_off(), [2]);
}

pub fn q10_any_number_of_calls_in_any_state_neither_panics_nor_hangs<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    q.add_after(3, ms(5));
    let one = q.take(1);
    q.add(1);
    q.close();
    assert_eq!(q.shut_down(), Down { ready: 1, held: 1, dropped: 1, ..Down::default() });
    for _ in 0..3 {
        assert_eq!(q.shut_down(), Down { ready: 1, held: 1, ..Down::default() });
        q.close();
        assert!(q.shutting_down());
    }
    sound(one.done());
    q.shut_down();
    assert_eq!(q.work_off(), [2, 1]);
    assert_eq!(q.shut_down(), Down::default());
    q.is_over();
}

pub fn q10_shut_down_from_many_threads_at_once<A: Adapter>() {
    for _ in 0..50 {
        let q = Subject::<A>::new();
        q.add(1);
        q.add_after(2, ms(1));
        let dropped: usize = thread::scope(|s| {
            let getter = s.spawn(|| while q.get_or_end().is_some() {});
            let downs: Vec<_> = (0..4).map(|_| s.spawn(|| q.shut_down().dropped)).collect();
            getter.join().unwrap();
            downs.into_iter().map(|down| down.join().unwrap()).sum()
        });
        assert_eq!(dropped, 1, "the waiting key is counted by one of them");
        q.is_over();
    }
}

pub fn q10_shut_down_during_drains_and_closes_from_many_threads<A: Adapter>() {
    for round in 0..50 {
        let q = Subject::<A>::new();
        for key in 0..8 {
            q.add(key);
            q.add_after(key, ms(1));
        }
        thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| while q.get_or_end().is_some() {});
            }
            s.spawn(|| q.drain_wait(Waiters::Drop));
            s.spawn(|| q.drain_wait(if round % 2 == 0 { Waiters::RunNow } else { Waiters::Drop }));
            s.spawn(|| q.close());
            s.spawn(|| q.shut_down());
        });
        q.is_over();
        q.has(0, 0, 0, 0);
    }
}

pub fn q10_dropping_the_last_handle_is_shut_down<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    let one = q.take(1).into_owned();
    let other = q.clone();
    drop(q);
    other.add(3);
    assert!(!other.shutting_down(), "a handle is left");
    drop(other);
    // The guard is not a handle; with it the rest is worked off, to the end.
    let two = sound(one.next()).expect("ready keys are still handed out");
    assert_eq!(two.key().id, 2);
    let three = sound(two.next()).expect("ready keys are still handed out");
    assert_eq!(three.key().id, 3);
    assert!(sound(three.next()).is_none(), "the queue is shut down");
}

pub fn q10_a_guard_or_a_waiting_getter_is_not_a_handle<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    let waits = q.take(1).into_owned();
    let holds = q.take(2).into_owned();
    let count = Count::new();
    let mut getting = waits.nexting();
    assert!(count.poll(&mut getting).is_pending());
    drop(q);
    assert!(count.wakes() > 0, "the getter was not told of the end");
    let Poll::Ready(end) = count.poll(&mut getting) else { panic!("the last handle is dropped") };
    assert!(sound(end).is_none());
    let refused = sound(holds.retry()).expect_err("the queue is shut down");
    assert_eq!(refused.key().id, 2);
}

pub fn q10_dropping_a_handle_that_is_not_the_last_changes_nothing<A: Adapter>() {
    let q = Subject::<A>::new();
    for _ in 0..3 {
        drop(q.clone());
    }
    assert!(!q.shutting_down());
    assert_eq!(q.add(1), Accepted::Ready);
}

pub fn q10_a_holders_retry_is_refused_and_the_guard_comes_back<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 7);
    let one = q.take(1);
    q.shut_down();
    let one = sound(one.retry()).expect_err("shut down");
    let one = sound(one.retry_after(ms(1))).expect_err("shut down");
    let one = sound(one.again(ms(1))).expect_err("shut down");
    assert_eq!(one.key().id, 1);
    assert_eq!(one.value().map(|value| value.items.clone()), Some(vec![7]));
    q.has(0, 1, 0, 0);
    assert_eq!(q.num_requeues(1), 0, "a refused retry counts no failure");
    sound(one.done());
    q.has(0, 0, 0, 0);
}

pub fn q10_shut_down_counts_refused_triggers_and_apart_refused_retries<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.close();
    assert!(q.refuses(1) && q.refuses(2));
    let down = q.shut_down();
    assert_eq!((down.refused, down.refused_retries), (2, 0));
    let one = sound(one.retry()).expect_err("shut down");
    assert!(q.refuses(3));
    let down = q.shut_down();
    assert_eq!((down.refused, down.refused_retries), (3, 1), "all that were refused so far");
    sound(one.done());
}

pub fn q10_shut_down_is_seen_by_a_get_that_waits_in_its_own_manner<A: Adapter>() {
    let q = Subject::<A>::new();
    // Far out, so that the getter sets an alarm and the test knows that it waits.
    q.add_after(9, ms(1_000_000));
    thread::scope(|s| {
        let getter = s.spawn(|| q.get_or_end().is_none());
        q.clock.wait_for_alarms(1);
        q.shut_down();
        assert!(getter.join().unwrap());
    });
}

pub fn q10_a_get_begun_before_and_polled_after_shut_down_ends<A: Adapter>() {
    let q = Subject::<A>::new();
    let mut getting = q.getting();
    q.shut_down();
    let Poll::Ready(end) = poll_once(&mut getting) else { panic!("shut down") };
    assert!(sound(end).is_none());
}
