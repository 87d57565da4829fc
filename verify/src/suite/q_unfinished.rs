//! Q11: a drain accounts for every key. What it leaves unfinished is in a list.

use crate::adapter::{
    Adapter, Config, Drained, Held, Policy, Restored, Subject, UnfinishedKey, Waiters, When,
};
use crate::adapter::{ms, sound};
use crate::probe::Value;
use crate::wake::{Count, poll_once};
use std::task::Poll;

/// A key of the list that nothing else is known of.
fn left(key: u64, refused: bool) -> UnfinishedKey {
    let attempt = if refused { 2 } else { 1 };
    UnfinishedKey { key, value: None, failures: 0, attempt, due: None, priority: 0, refused }
}

fn answer(drain: Poll<Result<Drained, crate::adapter::Failed>>) -> Drained {
    let Poll::Ready(answer) = drain else { panic!("the drain is not over") };
    sound(answer)
}

pub fn q11_a_drain_with_a_deadline_works_off_keys_that_wait_out_a_failure<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2, 3]);
    // one waits out a failure as the drain begins, one fails while it goes on
    assert_eq!(sound(q.take(1).retry()).ok(), Some(ms(1)));
    let two = q.take(2);
    let (count, mut drain) = (Count::new(), q.queue.drain(Waiters::Retries, Some(ms(100))));
    assert!(count.poll(&mut drain).is_pending());
    assert!(q.refuses(4) && q.shutting_down());
    assert_eq!(sound(two.retry()).ok(), Some(ms(1)), "holders may still retry");
    assert_eq!(q.work_off(), [3]);
    q.is_idle();
    q.clock.advance(ms(1));
    let one = q.take(1);
    assert_eq!((one.attempt(), q.num_requeues(1)), (2, 1));
    assert_eq!(sound(one.retry()).ok(), Some(ms(2)));
    assert_eq!(q.work_off(), [2]);
    assert!(count.poll(&mut drain).is_pending(), "one waits out its second failure");
    q.clock.advance(ms(2));
    assert_eq!(q.work_off(), [1]);
    assert!(count.wakes() > 0, "nobody told the drain");
    let expected = Drained { complete: true, done: 5, refused: 1, ..Drained::default() };
    assert_eq!(answer(count.poll(&mut drain)), expected);
    assert_eq!(q.take_unfinished(), []);
    q.is_over();
}

pub fn q11_what_still_waits_out_a_failure_at_the_deadline_is_in_the_list<A: Adapter>() {
    let q = Subject::<A>::new();
    q.trigger(1, When::Now, Some(Value::of(7))).expect("open");
    q.add(2);
    let (one, two) = (q.take(1), q.take(2));
    let (count, mut drain) = (Count::new(), q.queue.drain(Waiters::Retries, Some(ms(10))));
    assert!(sound(one.retry_after(ms(50))).is_ok());
    assert!(count.poll(&mut drain).is_pending());
    q.clock.advance(ms(10));
    let drained = answer(count.poll(&mut drain));
    assert_eq!(drained, Drained { done: 1, dropped: 1, unfinished: 1, held: 1, ..Drained::default() });
    let due = Some(q.clock.at() + ms(40));
    let one = UnfinishedKey { value: Some(vec![7]), failures: 1, attempt: 2, due, ..left(1, false) };
    assert_eq!(q.take_unfinished(), [one]);
    assert_eq!(q.num_requeues(1), 0, "the list has it");
    // past the deadline a retry is refused, and comes into the list when its run ends
    let two = sound(two.retry_after(ms(5))).expect_err("the queue is shut down");
    assert_eq!(q.take_unfinished(), []);
    sound(two.done());
    let due = Some(q.clock.at() + ms(5));
    assert_eq!(q.take_unfinished(), [UnfinishedKey { due, ..left(2, true) }]);
    q.is_over();
}

pub fn q11_timers_that_no_failure_set_are_dropped_and_in_the_list<A: Adapter>() {
    for deadline in [Some(ms(100)), Some(ms(0)), None] {
        let q = Subject::<A>::new();
        q.trigger(1, When::After(ms(50), Policy::Earliest), Some(Value::of(7))).expect("open");
        q.add_after(2, ms(60));
        q.add(3);
        let (count, mut drain) = (Count::new(), q.queue.drain(Waiters::Retries, deadline));
        q.has(1, 0, 0, 0);
        assert_eq!(q.work_off(), [3]);
        let done = if deadline == Some(ms(0)) { 0 } else { 1 };
        let drained = answer(count.poll(&mut drain));
        assert_eq!((drained.complete, drained.dropped, drained.unfinished), (false, 2, 2));
        assert!(drained.done >= done);
        let (first, second) = (Some(q.clock.at() + ms(50)), Some(q.clock.at() + ms(60)));
        let one = UnfinishedKey { value: Some(vec![7]), due: first, ..left(1, false) };
        assert_eq!(q.take_unfinished(), [one, UnfinishedKey { due: second, ..left(2, false) }]);
        q.is_over();
    }
}

pub fn q11_without_a_deadline_keys_that_wait_out_a_failure_are_dropped_too<A: Adapter>() {
    for deadline in [None, Some(std::time::Duration::MAX)] {
        let q = Subject::<A>::new();
        q.add(1);
        assert!(sound(q.take(1).retry()).is_ok());
        let due = Some(q.clock.at() + ms(1));
        let mut drain = q.queue.drain(Waiters::Retries, deadline);
        let expected = Drained { dropped: 1, unfinished: 1, ..Drained::default() };
        assert_eq!(answer(poll_once(&mut drain)), expected);
        let one = UnfinishedKey { failures: 1, attempt: 2, due, ..left(1, false) };
        assert_eq!(q.take_unfinished(), [one]);
    }
}

pub fn q11_a_drain_that_is_told_to_drop_drops_keys_that_wait_out_a_failure<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert!(sound(q.take(1).retry()).is_ok());
    let mut drain = q.queue.drain(Waiters::Drop, Some(ms(100)));
    assert_eq!(answer(poll_once(&mut drain)), Drained { dropped: 1, unfinished: 1, ..Drained::default() });
    assert_eq!(q.take_unfinished().len(), 1);
}

pub fn q11_a_refused_retry_is_in_the_list_unless_its_run_ends_well_all_the_same<A: Adapter>() {
    type End<A> = fn(<A as Adapter>::Held<'_>);
    let ends: [(End<A>, bool); 4] = [
        (|item| sound(item.done()), true),
        (|item| drop(item), true),
        (|item| sound(item.succeed()), false),
        (|item| sound(item.give_up()), false),
    ];
    for (end, listed) in ends {
        let q = Subject::<A>::new();
        q.trigger(1, When::Now, Some(Value::of(7))).expect("open");
        let one = q.take(1);
        let mut drain = q.drain(Waiters::Drop);
        let one = sound(one.retry()).expect_err("refused");
        assert_eq!(one.value().map(|value| value.items.clone()), Some(vec![7]), "it comes back");
        end(one);
        let drained = answer(poll_once(&mut drain));
        assert_eq!((drained.complete, drained.unfinished, drained.done), (!listed, usize::from(listed), 1));
        let one = UnfinishedKey { value: Some(vec![7]), ..left(1, true) };
        assert_eq!(q.take_unfinished(), if listed { vec![one] } else { vec![] });
    }
}

pub fn q11_a_dropped_guard_whose_retry_is_refused_leaves_its_key_unfinished<A: Adapter>() {
    let q = Subject::<A>::with(Config { unfinished_retries: true, ..Config::default() });
    q.trigger(1, When::Now, Some(Value::of(7))).expect("open");
    let one = q.take(1);
    let mut drain = q.drain(Waiters::Drop);
    drop(one);
    assert_eq!(answer(poll_once(&mut drain)).unfinished, 1);
    assert_eq!(q.take_unfinished(), [UnfinishedKey { value: Some(vec![7]), ..left(1, true) }]);
}

pub fn q11_done_and_get_the_next_after_a_refused_retry_leaves_the_value_in_the_list<A: Adapter>() {
    for (polled, dirty) in [(true, false), (false, false), (true, true)] {
        let q = Subject::<A>::new();
        q.trigger(1, When::Now, Some(Value::of(7))).expect("open");
        let one = q.take(1);
        if dirty {
            q.add(1);
        }
        let _drain = q.drain(Waiters::Drop);
        let mut next = sound(one.retry()).expect_err("refused").nexting();
        if polled {
            let Poll::Ready(next) = poll_once(&mut next) else { panic!("the queue is over, or 1 is ready") };
            if let Some(next) = sound(next) {
                assert_eq!(
                    next.value().map(|value| value.items.clone()),
                    Some(vec![7]),
                    "the next run has it"
                );
                drop(sound(next.retry()).expect_err("refused"));
            }
        }
        drop(next);
        let one = UnfinishedKey { value: Some(vec![7]), ..left(1, true) };
        assert_eq!(q.take_unfinished(), [one]);
    }
}

pub fn q11_where_a_key_is_dirty_its_next_run_decides_after_a_refused_retry<A: Adapter>() {
    for fails in [false, true] {
        let q = Subject::<A>::new();
        q.trigger(1, When::Now, Some(Value::of(7))).expect("open");
        let one = q.take(1);
        q.trigger(1, When::Now, Some(Value::of(8))).expect("open");
        let mut drain = q.drain(Waiters::Drop);
        drop(sound(one.retry()).expect_err("refused"));
        assert_eq!(q.take_unfinished(), [], "a run is to come");
        let one = q.take(1);
        assert_eq!(one.value().map(|value| value.items.clone()), Some(vec![7, 8]), "with both values");
        if fails {
            drop(sound(one.retry()).expect_err("refused"));
        } else {
            sound(one.succeed());
        }
        assert_eq!(answer(poll_once(&mut drain)).unfinished, usize::from(fails));
        assert_eq!(q.take_unfinished().len(), usize::from(fails));
    }
}

pub fn q11_a_drain_that_works_failed_keys_off_refuses_again_after_a_time<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2]);
    let (one, two) = (q.take(1), q.take(2));
    let mut drain = q.queue.drain(Waiters::Retries, Some(ms(100)));
    assert!(sound(one.again(ms(0))).is_ok(), "at once is no timer");
    let two = sound(two.again(ms(5))).expect_err("no failure sets this timer");
    let due = Some(q.clock.at() + ms(5));
    sound(two.done());
    assert_eq!(q.work_off(), [1]);
    let expected = Drained { done: 3, refused_retries: 1, unfinished: 1, ..Drained::default() };
    assert_eq!(answer(poll_once(&mut drain)), expected);
    assert_eq!(q.take_unfinished(), [UnfinishedKey { due, ..left(2, false) }]);
}

pub fn q11_a_key_that_is_ready_as_well_stays_in_the_list_until_its_run_has_ended<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(50));
    q.add(1);
    let due = Some(q.clock.at() + ms(50));
    let mut drain = q.drain(Waiters::Drop);
    assert_eq!(q.take_unfinished(), []);
    let one = q.take(1);
    assert_eq!(q.take_unfinished(), []);
    sound(one.succeed());
    assert_eq!(answer(poll_once(&mut drain)).unfinished, 1);
    assert_eq!(q.take_unfinished(), [UnfinishedKey { due, ..left(1, false) }]);
}

pub fn q11_a_timer_that_the_run_to_come_absorbs_is_not_in_the_list<A: Adapter>() {
    let q = Subject::<A>::with(Config { absorbed: true, ..Config::default() });
    // ready, dirty, and held: that timer was set during the run
    q.add_after(1, ms(50));
    q.add_many([1, 2, 3]);
    let (one, two, three) = (q.take(1), q.take(2), q.take(3));
    q.add_after(2, ms(60));
    q.add(2);
    q.add_after(3, ms(70));
    sound(one.succeed());
    q.add_after(1, ms(50));
    q.add(1);
    let mut drain = q.drain(Waiters::Drop);
    sound(two.succeed());
    sound(three.succeed());
    assert_eq!(q.work_off(), [1, 2]);
    let drained = answer(poll_once(&mut drain));
    assert_eq!((drained.complete, drained.unfinished, drained.dropped), (false, 1, 3));
    let due = Some(q.clock.at() + ms(70));
    assert_eq!(q.take_unfinished(), [UnfinishedKey { due, ..left(3, false) }]);
}

pub fn q11_several_drains_have_one_list_which_is_handed_out_once<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(50));
    q.add(2);
    let two = q.take(2);
    let mut first = q.drain(Waiters::Drop);
    let mut second = q.queue.drain(Waiters::Retries, Some(ms(10)));
    drop(sound(two.retry()).expect_err("phases only move forward"));
    for drain in [&mut first, &mut second] {
        let drained = answer(poll_once(drain));
        assert_eq!((drained.complete, drained.unfinished), (false, 2));
    }
    let keys: Vec<u64> = q.take_unfinished().into_iter().map(|left| left.key).collect();
    assert_eq!((keys, q.take_unfinished()), (vec![1, 2], vec![]));
    // nobody can finish them any more
    let drained = answer(poll_once(&mut q.drain(Waiters::Drop)));
    assert_eq!((drained.complete, drained.unfinished), (false, 0));
}

pub fn q11_shut_down_during_a_drain_lists_what_it_drops<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert!(sound(q.take(1).retry()).is_ok());
    let mut drain = q.queue.drain(Waiters::Retries, Some(ms(100)));
    assert!(poll_once(&mut drain).is_pending());
    assert_eq!(q.shut_down().dropped, 1);
    assert_eq!(answer(poll_once(&mut drain)).unfinished, 1);
    assert_eq!(q.take_unfinished().len(), 1);
    // without a drain nobody asked for a list
    let q = Subject::<A>::new();
    q.add_after(1, ms(50));
    q.shut_down();
    assert_eq!(q.take_unfinished(), []);
}

pub fn q11_a_drain_that_nobody_waits_for_keeps_its_list_for_the_next<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(50));
    drop(q.drain(Waiters::Drop));
    assert_eq!(answer(poll_once(&mut q.drain(Waiters::Drop))).unfinished, 1);
    assert_eq!(q.take_unfinished().len(), 1);
}

pub fn q11_a_cancelled_key_leaves_the_list_and_its_value_is_in_the_answer<A: Adapter>() {
    let q = Subject::<A>::new();
    q.trigger(1, When::After(ms(50), Policy::Earliest), Some(Value::of(7))).expect("open");
    let _drain = q.drain(Waiters::Drop);
    let cancelled = sound(q.queue.cancel(&1.into(), false)).expect("it was in the list");
    assert!(
        cancelled.unfinished && !cancelled.ready && cancelled.due.is_none(),
        "nothing asks for a run of it"
    );
    assert_eq!(
        cancelled.value.map(|value| value.items.clone()),
        Some(vec![7]),
        "nothing is thrown away unseen"
    );
    assert!(sound(q.queue.cancel(&1.into(), false)).is_none());
    assert_eq!(answer(poll_once(&mut q.drain(Waiters::Drop))).unfinished, 0);
    assert_eq!(q.take_unfinished(), []);
}

pub fn q11_the_list_goes_on_in_another_queue_by_restore<A: Adapter>() {
    let q = Subject::<A>::new();
    q.trigger(1, When::Now, Some(Value::of(7))).expect("open");
    assert!(sound(q.take(1).retry()).is_ok());
    q.add_after(2, ms(50));
    drop(q.queue.drain(Waiters::Retries, Some(ms(0))));
    let other = Subject::<A>::with(Config { clock: q.clock.clone(), ..Config::default() });
    for UnfinishedKey { key, value, failures, attempt, due, priority, .. } in q.take_unfinished() {
        let value = value.map(|items| Value::of(items[0]));
        let known = Restored { failures, attempt, due, priority };
        assert!(sound(other.queue.restore(key.into(), known, value)).is_ok());
    }
    other.has(0, 0, 0, 2);
    q.clock.advance(ms(1));
    let one = other.take(1);
    assert_eq!((one.attempt(), other.num_requeues(1)), (2, 1));
    assert_eq!(one.value().map(|value| value.items.clone()), Some(vec![7]));
    sound(one.succeed());
    q.clock.advance(ms(49));
    assert_eq!(other.work_off(), [2]);
}
