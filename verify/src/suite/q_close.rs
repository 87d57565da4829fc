//! Q14: close, and drains that wait.

use crate::adapter::{Accepted, Adapter, Drained, Held, Nothing, Policy, Subject, Waiters, When, ms, sound};
use crate::wake::{Count, poll_once};
use std::task::Poll;
use std::thread;

pub fn q14_close_refuses_triggers_from_outside<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.close();
    assert!(q.refuses(2));
    assert!(q.refuses(1));
    for when in [When::After(ms(1), Policy::Earliest), When::RateLimited] {
        assert!(q.trigger(2, when, None).is_err());
    }
    assert_eq!(q.work_off(), [1]);
}

pub fn q14_close_takes_what_a_holder_asks_for_the_key_that_it_holds<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in 1..=3 {
        q.add(key);
    }
    let (one, two, three) = (q.take(1), q.take(2), q.take(3));
    q.close();
    assert!(sound(one.retry_after(ms(1))).is_ok());
    assert!(sound(two.again(ms(2))).is_ok());
    assert!(sound(three.retry()).is_ok());
    q.clock.advance(ms(2));
    assert_eq!(q.work_off(), [1, 3, 2], "1 ms by its own, 1 ms by the limiter, 2 ms");
}

pub fn q14_add_rate_limited_on_the_queue_is_outside_also_for_the_key_that_one_holds<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.close();
    assert!(q.trigger(1, When::RateLimited, None).is_err());
    assert_eq!(q.num_requeues(1), 0);
    sound(one.done());
    q.has(0, 0, 0, 0);
}

pub fn q14_after_close_alone_getters_wait_and_shutting_down_is_true<A: Adapter>() {
    let q = Subject::<A>::new();
    let mut getting = q.getting();
    assert!(poll_once(&mut getting).is_pending());
    q.close();
    assert!(q.shutting_down());
    assert!(poll_once(&mut getting).is_pending());
    q.is_idle();
    q.shut_down();
    assert!(poll_once(&mut getting).is_ready());
}

pub fn q14_close_keeps_timers<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.close();
    q.has(0, 0, 0, 1);
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [1]);
}

pub fn q14_a_drain_that_waits_works_retries_off_too<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    let mut drain = q.drain(Waiters::Wait);
    assert!(poll_once(&mut drain).is_pending());
    let delay = sound(one.retry()).ok().expect("a drain that waits takes retries");
    assert!(poll_once(&mut drain).is_pending(), "a retry is waiting");
    q.is_idle();
    q.clock.advance(delay);
    let one = q.take(1);
    assert!(poll_once(&mut drain).is_pending());
    sound(one.done());
    let Poll::Ready(answer) = poll_once(&mut drain) else { panic!("nothing is left") };
    assert_eq!(sound(answer), Drained { complete: true, done: 2, ..Drained::default() });
    q.is_over();
}

pub fn q14_a_drain_that_waits_refuses_outside_triggers_at_once<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    let _drain = q.drain(Waiters::Wait);
    assert!(q.refuses(1));
    assert!(q.refuses(2));
    assert!(q.shutting_down(), "true from the close");
}

pub fn q14_a_drain_that_waits_shuts_down_when_nothing_is_left_and_tells_the_getters<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    let mut drain = q.drain(Waiters::Wait);
    assert!(poll_once(&mut drain).is_pending());
    let count = Count::new();
    q.clock.advance(ms(5));
    let one = q.take(1);
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending(), "until then getters wait");
    sound(one.done());
    assert!(count.wakes() > 0, "the getter was not told of the end");
    let Poll::Ready(end) = count.poll(&mut getting) else { panic!("shut down") };
    assert!(sound(end).is_none());
    q.is_over();
}

pub fn q14_a_drain_that_waits_shuts_down_although_nobody_polls_it<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let drain = q.drain(Waiters::Wait);
    drop(drain);
    assert_eq!(q.work_off(), [1]);
    q.is_over();
}

pub fn q14_a_drain_that_waits_shuts_down_at_its_deadline<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add_after(2, ms(50));
    let one = q.take(1);
    let count = Count::new();
    let waits = Count::new();
    let mut drain = q.queue.drain(Waiters::Wait, Some(ms(10)));
    let mut getting = q.getting();
    assert!(count.poll(&mut drain).is_pending());
    assert!(waits.poll(&mut getting).is_pending());
    q.clock.advance(ms(10));
    assert!(count.wakes() > 0, "the clock woke nobody");
    let Poll::Ready(answer) = count.poll(&mut drain) else { panic!("past its deadline") };
    let answer = sound(answer);
    assert!(!answer.complete);
    assert_eq!((answer.ready, answer.held), (0, 1));
    assert_eq!(answer.waiting + answer.dropped, 1, "the waiting key is counted once: {answer:?}");
    // Shut down now: retries are refused, the timer is gone, getters are told.
    let one = sound(one.retry()).expect_err("shut down at the deadline");
    sound(one.done());
    let Poll::Ready(end) = waits.poll(&mut getting) else { panic!("shut down at the deadline") };
    assert!(sound(end).is_none());
    q.clock.advance(ms(50));
    q.is_over();
}

pub fn q14_a_drain_that_waits_shuts_down_at_its_deadline_however_late_one_looks<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.add_after(2, ms(50));
    drop(q.queue.drain(Waiters::Wait, Some(ms(10))));
    // Nobody waits, so nobody looks before all of it is past.
    q.clock.advance(ms(100));
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [1], "what was due after the deadline was dropped at the deadline");
    q.is_over();
}

pub fn q14_every_other_drain_refuses_a_holders_retry_tells_it_and_counts_it<A: Adapter>() {
    for waiters in [Waiters::Drop, Waiters::RunNow] {
        let q = Subject::<A>::new();
        q.add(1);
        let one = q.take(1);
        let mut drain = q.drain(waiters);
        let one = sound(one.retry()).expect_err("refused");
        let one = sound(one.again(ms(1))).expect_err("refused");
        assert_eq!(q.num_requeues(1), 0);
        sound(one.done());
        let Poll::Ready(answer) = poll_once(&mut drain) else { panic!("nothing is left") };
        let expected = Drained { done: 1, refused_retries: 2, unfinished: 1, ..Drained::default() };
        assert_eq!(sound(answer), expected);
    }
}

pub fn q14_a_drain_that_waits_on_a_queue_that_is_shut_down_takes_no_retries<A: Adapter>() {
    for earlier in [None, Some(Waiters::Drop), Some(Waiters::RunNow)] {
        let q = Subject::<A>::new();
        q.add(1);
        let one = q.take(1);
        let mut first = match earlier {
            None => {
                q.shut_down();
                None
            }
            Some(waiters) => Some(q.drain(waiters)),
        };
        let mut drain = q.drain(Waiters::Wait);
        assert_eq!(q.try_get().err(), Some(Nothing::ShutDown), "phases only move forward");
        let one = sound(one.retry()).expect_err("the queue is shut down");
        assert!(poll_once(&mut drain).is_pending(), "it waits for what is left");
        sound(one.done());
        let Poll::Ready(answer) = poll_once(&mut drain) else { panic!("nothing is left") };
        let expected = Drained { done: 1, refused_retries: 1, unfinished: 1, ..Drained::default() };
        assert_eq!(sound(answer), expected);
        assert!(first.as_mut().is_none_or(|first| poll_once(first).is_ready()));
        q.is_over();
    }
}

pub fn q14_a_close_after_shut_down_opens_nothing<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.shut_down();
    q.close();
    assert!(sound(one.retry()).is_err(), "shut down is behind closed");
    q.is_over();
}

pub fn q14_a_drain_that_waits_works_off_in_its_own_manner_of_waiting<A: Adapter>() {
    let q = Subject::<A>::new();
    for key in 0..4 {
        q.add(key);
    }
    q.add_after(9, ms(3));
    thread::scope(|s| {
        let worker = s.spawn(|| {
            let mut runs = Vec::new();
            while let Some(item) = q.get_or_end() {
                let key = item.key().id;
                runs.push(key);
                if key < 2 && item.attempt() < 3 {
                    assert!(sound(item.retry()).is_ok());
                } else {
                    sound(item.done());
                }
            }
            runs
        });
        let drain = s.spawn(|| q.drain_wait(Waiters::Wait));
        // The worker waits for a timer, again and again, until all are off.
        while !drain.is_finished() {
            if let Some(next) = q.clock.next_alarm() {
                q.clock.set(next);
            }
            thread::yield_now();
        }
        let mut runs = worker.join().unwrap();
        runs.sort_unstable();
        assert_eq!(runs, [0, 0, 0, 1, 1, 1, 2, 3, 9]);
        assert!(drain.join().unwrap().complete);
    });
}

pub fn q14_again_zero_by_a_holder_is_taken_after_close<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.close();
    assert!(sound(one.again(ms(0))).is_ok());
    assert_eq!(q.work_off(), [1]);
}

pub fn q14_a_queue_that_is_not_closed_accepts<A: Adapter>() {
    let q = Subject::<A>::new();
    assert!(!q.shutting_down());
    assert_eq!(q.add(1), Accepted::Ready);
}
