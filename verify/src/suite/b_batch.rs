//! B9: many triggers, many keys, many ends at once.

use crate::adapter::{
    Accepted, Adapter, Asked, Config, Down, Held, Many, Nothing, Policy, Subject, Waiters, When, ms, sound,
};
use crate::probe::Value;
use crate::wake::{Count, poll_once};
use std::task::Poll;

fn after(delay: u64) -> When {
    When::After(ms(delay), Policy::Earliest)
}

fn asked(key: u64, when: When, value: Option<u32>) -> Asked {
    (key.into(), when, value.map(Value::of))
}

fn drain_keys<'q, M: Many<'q>>(items: M) -> Vec<u64> {
    let keys = items.keys();
    sound(items.done());
    keys
}

pub fn b9_keys_are_added_in_slice_order<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(5);
    assert_eq!(
        q.add_many([3, 1, 5, 2]),
        [Accepted::Ready, Accepted::Ready, Accepted::Coalesced, Accepted::Ready]
    );
    assert_eq!(q.work_off(), [5, 3, 1, 2]);
}

pub fn b9_a_key_that_comes_twice_in_a_batch_coalesces_older_value_first<A: Adapter>() {
    let q = Subject::<A>::new();
    let batch = (1..=3).map(|item| asked(7, When::Now, Some(item))).collect();
    let added: Vec<_> = q.trigger_many(batch).into_iter().map(Result::ok).collect();
    assert_eq!(added, [Some(Accepted::Ready), Some(Accepted::Coalesced), Some(Accepted::Coalesced)]);
    let seven = q.take(7);
    assert_eq!(seven.value().map(|value| value.items.clone()), Some(vec![1, 2, 3]));
    let added = q.add_many([7, 7]);
    assert_eq!(added, [Accepted::Dirty, Accepted::Coalesced]);
}

pub fn b9_each_key_has_options_and_a_result_of_its_own<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let held = q.take(1);
    q.add_after(2, ms(50));
    let batch = vec![
        asked(1, When::Now, None),
        asked(2, When::After(ms(20), Policy::Keep), None),
        asked(3, after(10), Some(3)),
        asked(4, When::RateLimited, None),
        asked(5, When::After(ms(0), Policy::Replace), Some(5)),
        asked(2, When::After(ms(80), Policy::Replace), None),
        asked(4, When::RateLimited, None),
    ];
    let added: Vec<_> = q.trigger_many(batch).into_iter().map(|added| added.expect("open")).collect();
    assert_eq!(
        added,
        [
            Accepted::Dirty,
            Accepted::Coalesced,
            Accepted::Waiting,
            Accepted::Waiting,
            Accepted::Ready,
            Accepted::Waiting,
            Accepted::Coalesced
        ]
    );
    let due = |key| q.state(key).and_then(|seen| seen.due);
    let now = q.clock.at();
    assert_eq!(due(2), Some(now + ms(80)));
    assert_eq!((due(3), due(4), due(5)), (Some(now + ms(10)), Some(now + ms(1)), None));
    assert_eq!((q.num_requeues(4), q.num_requeues(3)), (2, 0));
    drop(held);
    q.clock.advance(ms(10));
    let keys = q.take_many(9).singles().map(|item| (item.key().id, item.value().is_some()));
    assert_eq!(keys.collect::<Vec<_>>(), [(5, true), (1, false), (4, false), (3, true)]);
}

pub fn b9_an_empty_batch_is_nothing<A: Adapter>() {
    let q = Subject::<A>::new();
    assert!(q.trigger_many(Vec::<Asked>::new()).is_empty());
    assert_eq!(q.take_many(0).keys(), [0; 0]);
    q.add(1);
    assert_eq!(q.take_many(0).keys(), [0; 0], "asked for none, given none");
    q.has(1, 0, 0, 0);
    assert!(sound(q.queue.get_many(0)).is_some_and(|items| items.keys().is_empty()), "it does not wait");
    q.shut_down();
    assert!(q.trigger_many(Vec::<Asked>::new()).is_empty());
    assert_eq!(q.take_many(0).keys(), [0; 0], "a key is left");
    assert_eq!(q.work_off(), [1]);
    assert_eq!(q.try_get_many(0).err(), Some(Nothing::ShutDown));
    assert!(sound(q.queue.get_many(0)).is_none(), "else a loop of it would never end");
}

pub fn b9_a_refused_batch_gives_every_key_and_value_back_in_order<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.close();
    let batch = vec![
        asked(2, When::Now, Some(2)),
        asked(1, after(5), None),
        asked(3, When::RateLimited, Some(3)),
        asked(2, When::Now, None),
    ];
    let refused = q.trigger_many(batch).into_iter().map(|added| added.expect_err("closed"));
    let back: Vec<_> =
        refused.map(|back| (back.key.id, back.value.map(|value| value.items.clone()))).collect();
    assert_eq!(back, [(2, Some(vec![2])), (1, None), (3, Some(vec![3])), (2, None)]);
    q.has(1, 0, 0, 0);
    assert_eq!(q.num_requeues(3), 0);
    assert_eq!(q.work_off(), [1]);
}

pub fn b9_get_up_to_n_takes_what_is_ready_and_no_more<A: Adapter>() {
    let q = Subject::<A>::new();
    assert_eq!(q.try_get_many(3).err(), Some(Nothing::Empty));
    q.add_many(0..5);
    q.add_after(9, ms(1));
    assert_eq!(drain_keys(q.take_many(3)), [0, 1, 2]);
    assert_eq!(drain_keys(sound(q.queue.get_many(3)).expect("open")), [3, 4], "it does not wait for a third");
    q.add_many(0..1_000);
    assert_eq!(drain_keys(q.take_many(usize::MAX)), (0..1_000).collect::<Vec<_>>());
    q.clock.advance(ms(1));
    assert_eq!(drain_keys(q.take_many(1)), [9], "what is due is ready");
    q.shut_down();
    assert_eq!(q.try_get_many(usize::MAX).err(), Some(Nothing::ShutDown));
}

pub fn b9_keys_that_were_taken_together_are_held_each<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2, 3]);
    let items = q.take_many(2);
    q.has(1, 2, 0, 0);
    assert_eq!(q.add_many([1, 2, 3]), [Accepted::Dirty, Accepted::Dirty, Accepted::Coalesced]);
    assert_eq!(q.take_many(9).keys(), [3], "no key is held twice");
    assert_eq!(items.keys(), [1, 2]);
    sound(items.done());
    assert_eq!(q.work_off(), [1, 2]);
    q.has(0, 0, 0, 0);
}

pub fn b9_get_up_to_n_waits_until_it_can_hand_out_a_key<A: Adapter>() {
    let q = Subject::<A>::new();
    let count = Count::new();
    let mut getting = q.queue.getting_many(8);
    assert!(count.poll(&mut getting).is_pending());
    q.add_many([1, 2]);
    assert_eq!(count.wakes(), 1);
    let Poll::Ready(found) = count.poll(&mut getting) else { panic!("two keys are ready") };
    assert_eq!(drain_keys(sound(found).expect("open")), [1, 2]);
    std::thread::scope(|s| {
        let waits = s.spawn(|| sound(q.queue.get_many(8)).map(drain_keys));
        q.add(3);
        assert_eq!(waits.join().expect("no panic"), Some(vec![3]));
        let waits = s.spawn(|| sound(q.queue.get_many(8)).is_none());
        q.shut_down();
        assert!(waits.join().expect("no panic"));
    });
}

pub fn b9_at_the_deadline_keys_come_before_shut_down_before_timed_out<A: Adapter>() {
    let q = Subject::<A>::new();
    let get = |most| sound(q.queue.get_many_timeout(most, ms(0))).map(drain_keys);
    assert_eq!(get(2), Err(Nothing::TimedOut));
    q.add_many([1, 2, 3]);
    q.shut_down();
    assert_eq!(get(2), Ok(vec![1, 2]));
    assert_eq!(get(2), Ok(vec![3]));
    assert_eq!(get(2), Err(Nothing::ShutDown));
}

pub fn b9_a_get_up_to_n_times_out_at_its_deadline<A: Adapter>() {
    let q = Subject::<A>::new();
    std::thread::scope(|s| {
        let waits = s.spawn(|| sound(q.queue.get_many_timeout(4, ms(5))).map(drain_keys));
        q.clock.wait_for_alarms(1);
        q.clock.advance(ms(5));
        assert_eq!(waits.join().expect("no panic"), Err(Nothing::TimedOut));
    });
}

pub fn b9_timers_that_are_due_at_once_are_handed_out_together<A: Adapter>() {
    let q = Subject::<A>::new();
    let count = Count::new();
    let mut getting = q.queue.getting_many(500);
    assert!(count.poll(&mut getting).is_pending());
    q.trigger_many((0..300).map(|key| asked(key, after(5), None)).collect());
    assert!(count.poll(&mut getting).is_pending());
    q.clock.advance(ms(5));
    let Poll::Ready(found) = count.poll(&mut getting) else { panic!("three hundred keys are due") };
    assert_eq!(drain_keys(sound(found).expect("open")), (0..300).collect::<Vec<_>>());
}

pub fn b9_keys_are_taken_only_in_the_poll_that_returns_them<A: Adapter>() {
    let q = Subject::<A>::new();
    let mut getting = q.queue.getting_many(2);
    q.add_many([1, 2, 3]);
    q.has(3, 0, 0, 0);
    drop(q.queue.getting_many(2));
    let Poll::Ready(found) = poll_once(&mut getting) else { panic!("three keys are ready") };
    q.has(1, 2, 0, 0);
    drop(found);
    assert_eq!(q.work_off(), [3]);
    // woken, and dropped: nothing was taken
    let count = Count::new();
    let mut getting = q.queue.getting_many(2);
    assert!(count.poll(&mut getting).is_pending());
    q.add_many([1, 2, 3]);
    assert_eq!(count.wakes(), 1);
    drop(getting);
    assert_eq!(q.work_off(), [1, 2, 3]);
}

pub fn b9_items_are_ended_all_at_once_dropped_or_one_by_one<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many(0..6);
    sound(q.take_many(2).done());
    q.has(4, 0, 0, 0);
    drop(q.take_many(2));
    q.has(2, 0, 0, 0);
    let mut singles = q.take_many(2).singles();
    let four = singles.next().expect("two");
    q.has(0, 2, 0, 0);
    drop(singles);
    q.has(0, 1, 0, 0);
    assert_eq!(four.key().id, 4);
    assert!(sound(four.retry()).is_ok());
    q.has(0, 0, 0, 1);
}

pub fn b9_done_of_all_leaves_failures_and_succeed_forgets_them<A: Adapter>() {
    let q = Subject::<A>::new();
    for round in [2, 0] {
        for key in 1..=2 {
            q.add_rate_limited(key);
            q.add(key);
        }
        let items = q.take_many(2);
        sound(if round > 0 { items.done() } else { items.succeed() });
        let left = u32::from(round > 0);
        assert_eq!((q.num_requeues(1), q.num_requeues(2)), (left, left));
        q.clock.advance(ms(100));
        q.work_off();
    }
}

pub fn b9_items_that_are_dropped_retry_each_by_option<A: Adapter>() {
    let q = Subject::<A>::with(Config { unfinished_retries: true, ..Config::default() });
    q.trigger_many((1..=3).map(|key| asked(key, When::Now, Some(1))).collect());
    let mut items = q.take_many(3);
    assert!(items.take_value(1).is_some());
    q.trigger_many(vec![asked(3, When::Now, Some(2))]);
    drop(items);
    q.has(1, 0, 0, 3);
    assert_eq!((q.num_requeues(1), q.num_requeues(2), q.num_requeues(3)), (1, 1, 1));
    let three = q.take(3);
    assert_eq!(three.value().map(|value| value.items.clone()), Some(vec![1, 2]), "the older goes first");
    sound(three.succeed());
    q.clock.advance(ms(1));
    let values = q.take_many(9).singles().map(|item| {
        let seen = (item.key().id, item.attempt(), item.value().map(|value| value.items.clone()));
        sound(item.done());
        seen
    });
    assert_eq!(values.collect::<Vec<_>>(), [(1, 2, Some(vec![1])), (2, 2, None), (3, 1, None)]);
    // said done of, they do not retry; refused, they are done and counted
    q.add_many([1, 2]);
    sound(q.take_many(2).done());
    q.has(0, 0, 0, 0);
    q.add_many([1, 2]);
    let items = q.take_many(2);
    let mut drain = q.drain(Waiters::Drop);
    drop(items);
    let Poll::Ready(answer) = poll_once(&mut drain) else { panic!("nothing is held") };
    let answer = sound(answer);
    assert_eq!((answer.unfinished, answer.done, answer.refused_retries), (2, 2, 2));
}

pub fn b9_done_and_get_the_next_hands_out_the_next<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many(0..5);
    let items = q.take_many(2);
    q.add(1);
    let items = sound(items.next(2)).expect("open");
    assert_eq!(items.keys(), [2, 3]);
    q.has(2, 2, 0, 0);
    let items = sound(items.next(9)).expect("open");
    assert_eq!(items.keys(), [4, 1], "a dirty key comes again, behind what was ready");
    q.shut_down();
    assert!(sound(items.next(9)).is_none());
    q.is_over();
}

pub fn b9_done_and_get_the_next_ends_the_runs_at_the_first_poll_or_at_the_drop<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2]);
    let mut next = q.take_many(2).nexting(2);
    q.has(0, 2, 0, 0);
    let count = Count::new();
    assert!(count.poll(&mut next).is_pending());
    q.has(0, 0, 0, 0);
    q.add_many([3, 4]);
    assert_eq!(count.wakes(), 1);
    drop(next);
    let next = q.take_many(2).nexting(2);
    q.has(0, 2, 0, 0);
    drop(next);
    q.has(0, 0, 0, 0);
    q.add_many([5]);
    assert_eq!(q.work_off(), [5]);
}

pub fn b9_a_run_ended_by_key_is_ended_once_in_a_batch_too<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2]);
    let items = q.take_many(2);
    assert!(q.done(1));
    q.add(1);
    let one = q.take(1);
    assert_eq!(items.keys(), [1, 2], "its key stays readable");
    sound(items.done());
    q.has(0, 1, 0, 0);
    drop(one);
    q.has(0, 0, 0, 0);
}

pub fn b9_the_ends_of_a_batch_tell_who_waits<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_many([1, 2]);
    let items = q.take_many(2);
    let mut drain = q.drain(Waiters::Drop);
    let count = Count::new();
    assert!(count.poll(&mut drain).is_pending());
    assert_eq!(q.trigger_many(vec![asked(3, When::Now, None)]).len(), 1);
    sound(items.done());
    assert_eq!(count.wakes(), 1);
    let Poll::Ready(answer) = count.poll(&mut drain) else { panic!("nothing is left") };
    let answer = sound(answer);
    assert_eq!((answer.complete, answer.done, answer.refused), (true, 2, 1));
}

pub fn b9_shut_down_counts_a_batch_key_by_key<A: Adapter>() {
    let q = Subject::<A>::new();
    q.trigger_many((0..9).map(|key| asked(key, if key < 4 { When::Now } else { after(5) }, None)).collect());
    let items = q.take_many(3);
    assert_eq!(q.shut_down(), Down { ready: 1, held: 3, dropped: 5, ..Down::default() });
    drop(items);
    assert_eq!(q.work_off(), [3]);
    q.is_over();
}
