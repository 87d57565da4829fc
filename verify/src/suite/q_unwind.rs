//! Q12: the items of a batch when a panic unwinds through it.

use crate::adapter::{Adapter, Config, Drained, Held, Many, Policy, Subject, Waiters, When, ms, sound};
use crate::lockstep::unwind_through;
use crate::probe::Value;
use crate::wake::{Count, poll_once};
use std::task::Poll;

/// A queue whose guards are done when they are dropped, and one whose guards retry.
fn both<A: Adapter>() -> [Subject<A>; 2] {
    [false, true].map(|unfinished_retries| Subject::with(Config { unfinished_retries, ..Config::default() }))
}

fn numbers(value: Option<&Value>) -> Vec<u32> {
    value.map(|value| value.items.clone()).unwrap_or_default()
}

pub fn q12_items_inside_a_batch_are_put_back_when_a_panic_unwinds_through_it<A: Adapter>() {
    for q in both::<A>() {
        for key in 1..=3 {
            q.add_value(key, 10);
        }
        let items = q.take_many(3);
        q.add(4);
        unwind_through(items);
        q.has(4, 0, 0, 0);
        let items = q.take_many(9);
        assert_eq!(items.keys(), [4, 1, 2, 3], "to the back of the line, in their order");
        let seen = items.singles().skip(1).map(|item| (item.attempt(), numbers(item.value())));
        assert!(seen.eq([(1, vec![10]), (1, vec![10]), (1, vec![10])]), "with their payloads");
    }
}

pub fn q12_items_inside_the_iterator_of_a_batch_are_put_back_and_one_taken_out_ends_by_itself<A: Adapter>() {
    for q in both::<A>() {
        q.add_many(1..=4);
        let mut singles = q.take_many(4).singles();
        sound(singles.next().expect("four").done());
        let two = singles.next().expect("four");
        unwind_through(singles);
        q.has(2, 1, 0, 0);
        sound(two.done());
        assert_eq!(q.work_off(), [3, 4]);
    }
}

pub fn q12_what_is_put_back_keeps_its_attempt_and_its_failures<A: Adapter>() {
    for q in both::<A>() {
        q.add_many([1, 2]);
        let mut singles = q.take_many(2).singles();
        for item in singles.by_ref() {
            assert!(sound(item.retry()).is_ok());
        }
        q.clock.advance(ms(1));
        let items = q.take_many(2);
        // a trigger during the run restarts the attempts (W), not the failures
        q.add(2);
        unwind_through(items);
        q.has(2, 0, 0, 0);
        for expected in [(1, 2), (2, 1)] {
            let item = q.take(expected.0);
            assert_eq!((item.key().id, item.attempt()), (expected.0, expected.1));
            sound(item.done());
        }
        assert_eq!((q.num_requeues(1), q.num_requeues(2)), (1, 1));
    }
}

pub fn q12_what_is_put_back_merges_its_payload_in_front_of_what_came_meanwhile<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 1);
    q.add_value(2, 1);
    let mut items = q.take_many(2);
    assert!(items.take_value(1).is_some(), "what was taken does not come back");
    q.add_value(1, 2);
    unwind_through(items);
    let values = q.take_many(9).singles().map(|item| numbers(item.value()));
    assert!(values.eq([vec![1, 2], vec![]]));
}

pub fn q12_what_is_put_back_leaves_a_timer_alone<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let items = q.take_many(1);
    assert!(q.trigger(1, When::After(ms(5), Policy::Earliest), None).is_ok());
    unwind_through(items);
    q.has(1, 0, 0, 1);
    assert_eq!(q.work_off(), [1]);
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [1]);
}

pub fn q12_what_is_put_back_counts_as_no_run_that_was_done<A: Adapter>() {
    for q in both::<A>() {
        q.add_many([1, 2]);
        let items = q.take_many(2);
        q.add(3);
        let mut drain = q.drain(Waiters::Drop);
        unwind_through(items);
        // also on a queue that is shut down: getters are still there, for key 3
        q.has(3, 0, 0, 0);
        assert!(poll_once(&mut drain).is_pending(), "keys are left");
        assert_eq!(q.work_off(), [3, 1, 2]);
        let Poll::Ready(answer) = poll_once(&mut drain) else { panic!("nothing is left") };
        assert_eq!(sound(answer), Drained { complete: true, done: 3, ..Drained::default() });
        q.is_over();
    }
}

pub fn q12_what_is_put_back_on_a_queue_that_is_over_is_in_line_and_gets_its_run<A: Adapter>() {
    for ends in [Some(Waiters::Drop), Some(Waiters::Wait), Some(Waiters::Retries), None] {
        for q in both::<A>() {
            for key in 1..=3 {
                q.add_value(key, 10);
            }
            let items = q.take_many(2);
            let three = q.take(3);
            let count = Count::new();
            let mut drain = q.queue.drain(ends.unwrap_or_default(), Some(ms(1_000)));
            if ends.is_none() {
                q.shut_down();
            }
            unwind_through(items);
            q.has(2, 1, 0, 0);
            sound(three.done());
            assert_eq!(count.poll(&mut drain).is_pending(), ends.is_some(), "two keys are in line");
            let put_back = q.take_many(9);
            assert_eq!(put_back.keys(), [1, 2]);
            for item in put_back.singles() {
                assert_eq!((item.attempt(), numbers(item.value())), (1, vec![10]), "with its payload");
                sound(item.done());
            }
            if ends.is_some() {
                let Poll::Ready(answer) = count.poll(&mut drain) else { panic!("nothing is left") };
                assert_eq!(sound(answer), Drained { complete: true, done: 3, ..Drained::default() });
            }
            q.is_over();
        }
    }
}

pub fn q12_a_getter_that_is_told_the_end_before_comes_again_for_what_is_put_back<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2]);
    let items = q.take_many(2);
    q.shut_down();
    q.is_over();
    unwind_through(items);
    assert_eq!(q.work_off(), [1, 2]);
    q.is_over();
}

pub fn q12_what_is_put_back_wakes_who_waits_for_keys<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2]);
    let items = q.take_many(2);
    let (count, mut getting) = (Count::new(), q.getting());
    assert!(count.poll(&mut getting).is_pending());
    unwind_through(items);
    assert!(count.wakes() > 0, "nobody was told of the keys");
    let Poll::Ready(found) = count.poll(&mut getting) else { panic!("two keys are ready") };
    assert_eq!(sound(found).expect("a key").key().id, 1);
}

pub fn q12_a_run_that_was_ended_by_key_is_not_put_back<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2]);
    let items = q.take_many(2);
    assert!(q.done(1));
    unwind_through(items);
    q.has(1, 0, 0, 0);
    assert_eq!(q.work_off(), [2]);
}
