//! B7: cancel, restore, snapshot.

use crate::adapter::{
    Accepted, Adapter, Cancelled, Config, Counts, Held, InBackoff, Line, Nothing, Policy, Restored, Seen,
    Subject, Waiters, When, ignore, ms, sound,
};
use crate::probe::Value;
use crate::suite::b_value::Smallest;
use crate::wake::Count;
use requeue::{Instant, Only};
use std::task::Poll;

/// Ready, dirty, due, and the value.
type Took = (bool, bool, Option<Instant>, Option<Vec<u32>>);

fn took(cancelled: Option<Cancelled>) -> Option<Took> {
    let Cancelled { ready, dirty, due, value, .. } = cancelled?;
    Some((ready, dirty, due, value.map(|value| value.items.clone())))
}

pub fn b7_cancel_takes_ready_waiting_and_the_value_and_tells_them<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 10);
    q.trigger(1, When::After(ms(5), Policy::Earliest), Some(Value::of(11))).unwrap();
    q.add_after(2, ms(7));
    q.add(3);
    let due = q.clock.at() + ms(5);
    assert_eq!(took(q.cancel(1)), Some((true, false, Some(due), Some(vec![10, 11]))));
    assert_eq!(q.state(1), None);
    assert_eq!(took(q.cancel(2)), Some((false, false, Some(due + ms(2)), None)));
    q.has(1, 0, 0, 0);
    q.clock.advance(ms(10));
    assert_eq!(q.work_off(), [3]);
}

pub fn b7_cancel_takes_dirty_and_the_run_goes_on<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 10);
    let run = q.take(1);
    q.add_value(1, 11);
    assert_eq!(took(q.cancel(1)), Some((false, true, None, Some(vec![11]))));
    assert_eq!(q.state(1), Some(Seen { held: true, ..Seen::default() }));
    assert_eq!(run.value().map(|value| value.items.clone()), Some(vec![10]), "the run's own stays");
    sound(run.done());
    q.has(0, 0, 0, 0);
    q.is_idle();
}

pub fn b7_a_trigger_after_a_cancel_during_the_run_makes_the_key_dirty_again<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let run = q.take(1);
    q.add(1);
    assert!(q.cancel(1).is_some());
    assert_eq!(q.add(1), Accepted::Dirty);
    sound(run.done());
    assert_eq!(q.work_off(), [1]);
}

pub fn b7_the_retry_of_a_run_whose_key_was_cancelled_is_taken<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_value(1, 10);
    let run = q.take(1);
    q.add_value(1, 11);
    assert!(q.cancel(1).is_some());
    assert_eq!(sound(run.retry_after(ms(5))).ok(), Some(ms(5)));
    q.clock.advance(ms(5));
    let again = q.take(1);
    // the trigger that would have restarted the attempts was taken back
    assert_eq!(again.attempt(), 2);
    assert_eq!(again.value().map(|value| value.items.clone()), Some(vec![10]));
}

pub fn b7_a_cancel_takes_back_what_triggers_said_of_a_back_off<A: Adapter>() {
    for in_backoff in [InBackoff::Run, InBackoff::Respect, InBackoff::Reset] {
        let q = Subject::<A>::new();
        q.add(1);
        let run = q.take(1);
        q.add_in(1, in_backoff);
        assert!(q.cancel(1).is_some_and(|took| took.dirty));
        // so this is a failure like any other, and no fresh start
        assert_eq!(sound(run.retry_after(ms(5))).ok(), Some(ms(5)), "{in_backoff:?}");
        q.has(0, 0, 0, 1);
        assert_eq!(q.num_requeues(1), 1);
    }
}

pub fn b7_cancel_leaves_the_failures_on_record<A: Adapter>() {
    let q = Subject::<A>::new();
    for _ in 0..2 {
        q.add_rate_limited(1);
    }
    assert!(q.cancel(1).is_some_and(|took| took.due.is_some()));
    assert_eq!(q.num_requeues(1), 2);
    assert_eq!(took(q.cancel(1)), None, "nothing but failures is left");
    assert_eq!(q.num_requeues(1), 2);
}

pub fn b7_cancel_and_forget_clears_the_failures_too<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_rate_limited(1);
    assert!(q.cancel_and_forget(1).is_some());
    assert_eq!((q.num_requeues(1), q.state(1)), (0, None));
    // where nothing else was to be taken
    q.add_rate_limited(1);
    assert!(q.cancel(1).is_some());
    assert_eq!((took(q.cancel_and_forget(1)), q.num_requeues(1)), (None, 0));
}

pub fn b7_there_is_nothing_to_cancel_of_an_unknown_or_a_clean_held_key<A: Adapter>() {
    let q = Subject::<A>::new();
    assert_eq!(took(q.cancel(1)), None);
    q.add(1);
    let run = q.take(1);
    assert_eq!(took(q.cancel(1)), None);
    assert_eq!(took(q.cancel_and_forget(1)), None);
    q.has(0, 1, 0, 0);
    drop(run);
}

pub fn b7_a_cancelled_key_that_is_added_again_goes_to_the_back_at_attempt_1<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert_eq!(sound(q.take(1).retry_after(ms(5))).ok(), Some(ms(5)));
    assert!(q.cancel(1).is_some_and(|took| took.due.is_some()));
    q.add(2);
    assert_eq!(q.add(1), Accepted::Ready);
    sound(q.take(2).done());
    assert_eq!(q.take(1).attempt(), 1);
    // and with a delay
    q.add(3);
    assert_eq!(sound(q.take(3).retry_after(ms(5))).ok(), Some(ms(5)));
    assert!(q.cancel(3).is_some());
    q.add_after(3, ms(5));
    q.clock.advance(ms(5));
    assert_eq!(q.take(3).attempt(), 1);
}

pub fn b7_cancel_fires_what_is_due_before_it_answers<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.add_after(2, ms(5));
    q.clock.advance(ms(5));
    assert_eq!(took(q.cancel(1)), Some((true, false, None, None)));
    assert_eq!(q.work_off(), [2]);
}

pub fn b7_cancel_takes_a_key_from_the_middle_of_the_line<A: Adapter>() {
    for (order, expected) in [(Line::Fifo, [0, 1, 3, 4]), (Line::Lifo, [4, 3, 1, 0])] {
        let q = Subject::<A>::with(Config { order, ..Config::default() });
        q.add_many(0..5);
        assert!(q.cancel(2).is_some());
        assert_eq!(q.len(), 4);
        assert_eq!(q.work_off(), expected);
    }
}

pub fn b7_an_order_of_ones_own_hears_of_a_cancel<A: Adapter>() {
    let q =
        Subject::<A>::with(Config { order: Line::Own(Box::new(Smallest::default())), ..Config::default() });
    for key in [3, 1, 2] {
        q.add(key);
    }
    // three touches make a key urgent, and a cancel takes them with it
    for _ in 0..3 {
        q.add(3);
    }
    assert!(q.cancel(3).is_some());
    assert_eq!(q.add(3), Accepted::Ready);
    assert_eq!(q.work_off(), [1, 2, 3]);
}

pub fn b7_a_drain_is_complete_when_a_cancel_takes_the_last_key<A: Adapter>() {
    // a ready key
    let q = Subject::<A>::new();
    q.add(1);
    let count = Count::new();
    let mut drain = q.drain(Waiters::Drop);
    assert!(count.poll(&mut drain).is_pending());
    assert!(q.cancel(1).is_some());
    assert!(count.wakes() > 0, "the drain was told");
    let Poll::Ready(drained) = count.poll(&mut drain) else { panic!("nothing is left") };
    assert!(sound(drained).complete);
    // a waiting one
    let q = Subject::<A>::new();
    q.add_after(1, ms(50));
    let count = Count::new();
    let mut drain = q.drain(Waiters::Wait);
    assert!(count.poll(&mut drain).is_pending());
    assert!(q.cancel(1).is_some_and(|took| took.due.is_some()));
    assert!(count.wakes() > 0, "the drain was told");
    let Poll::Ready(drained) = count.poll(&mut drain) else { panic!("nothing is left") };
    let drained = sound(drained);
    assert!(drained.complete && drained.dropped == 0 && drained.done == 0);
}

pub fn b7_a_cancel_of_the_last_key_tells_those_who_wait_that_it_is_over<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let run = q.take(1);
    q.add(1);
    q.shut_down();
    let counts = [Count::new(), Count::new()];
    let mut waits = [q.getting(), q.getting()];
    for (count, wait) in counts.iter().zip(&mut waits) {
        assert!(count.poll(wait).is_pending(), "the dirty key is still to run");
    }
    assert!(q.cancel(1).is_some_and(|took| took.dirty));
    for (count, wait) in counts.iter().zip(&mut waits) {
        assert!(count.wakes() > 0, "told");
        let Poll::Ready(found) = count.poll(wait) else { panic!("it is over") };
        assert!(sound(found).is_none());
    }
    drop(run);
}

pub fn b7_one_who_was_woken_for_a_key_that_is_cancelled_gets_the_next<A: Adapter>() {
    let q = Subject::<A>::new();
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    q.add(1);
    assert_eq!(count.wakes(), 1);
    assert!(q.cancel(1).is_some());
    assert!(count.poll(&mut getting).is_pending(), "there is nothing any more");
    q.add(2);
    assert_eq!(count.wakes(), 2);
    let Poll::Ready(found) = count.poll(&mut getting) else { panic!("2 is ready") };
    assert_eq!(sound(found).map(|item| item.key().id), Some(2));
}

pub fn b7_cancel_works_on_a_queue_that_takes_no_more_triggers<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    q.add(2);
    q.close();
    assert!(q.cancel(1).is_some());
    q.shut_down();
    assert!(q.cancel(2).is_some());
    assert_eq!(q.try_get().err(), Some(Nothing::ShutDown));
}

/// A key that failed twice; the next run is its third.
const FAILED: Restored = Restored { failures: 2, attempt: 3, due: None, priority: 0 };

pub fn b7_a_restored_key_is_ready_with_its_failures_attempt_and_value<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(9);
    assert_eq!(q.restore(1, FAILED, Some(Value::of(7))).ok(), Some(Accepted::Ready));
    assert_eq!(q.num_requeues(1), 2);
    sound(q.take(9).done());
    let one = q.take(1);
    assert_eq!((one.attempt(), one.value().map(|value| value.items.clone())), (3, Some(vec![7])));
    // and its next failure is the third
    assert_eq!(sound(one.retry()).ok(), Some(ms(4)));
    q.clock.advance(ms(4));
    assert_eq!(q.take(1).attempt(), 4);
}

pub fn b7_a_restored_key_waits_until_its_due_instant_and_keeps_its_attempt<A: Adapter>() {
    let q = Subject::<A>::new();
    let due = q.clock.at() + ms(5);
    let known = Restored { due: Some(due), ..FAILED };
    assert_eq!(q.restore(1, known, Some(Value::of(7))).ok(), Some(Accepted::Waiting));
    assert_eq!(q.state(1), Some(Seen { due: Some(due), ..Seen::default() }));
    q.clock.advance(ms(4));
    q.is_idle();
    q.clock.advance(ms(1));
    let one = q.take(1);
    assert_eq!((one.attempt(), one.value().map(|value| value.items.clone())), (3, Some(vec![7])));
    drop(one);
    // an instant that has come is now
    let known = Restored { due: Some(due), ..FAILED };
    assert_eq!(q.restore(2, known, None).ok(), Some(Accepted::Ready));
    assert_eq!(q.take(2).attempt(), 3);
    // and the last one never comes
    let never = Restored { due: Some(Instant::NEVER), ..FAILED };
    assert_eq!(q.restore(3, never, None).ok(), Some(Accepted::Waiting));
    q.clock.advance(std::time::Duration::MAX);
    q.is_idle();
}

pub fn b7_a_trigger_for_a_restored_key_that_waits_out_a_failure_is_attempt_1<A: Adapter>() {
    let q = Subject::<A>::new();
    let known = Restored { due: Some(q.clock.at() + ms(5)), ..FAILED };
    q.restore(1, known, None).unwrap();
    assert_eq!(q.add(1), Accepted::Ready);
    assert_eq!(q.take(1).attempt(), 1);
}

pub fn b7_a_restored_key_waits_out_a_failure_if_it_has_failed<A: Adapter>() {
    let q = Subject::<A>::new();
    let due = q.clock.at() + ms(5);
    q.restore(1, Restored { due: Some(due), ..FAILED }, None).unwrap();
    assert_eq!(q.add_in(1, InBackoff::Respect), Accepted::Coalesced);
    q.is_idle();
    q.clock.advance(ms(5));
    assert_eq!(q.take(1).attempt(), 3);
    // one that has not failed only waits
    q.restore(2, Restored { due: Some(q.clock.at() + ms(5)), ..Restored::default() }, None).unwrap();
    assert_eq!(q.add_in(2, InBackoff::Respect), Accepted::Ready);
}

pub fn b7_to_a_key_that_is_known_a_restore_is_a_trigger_and_the_more_failures_stay<A: Adapter>() {
    let q = Subject::<A>::new();
    // ready
    q.add_value(1, 1);
    assert_eq!(q.restore(1, FAILED, Some(Value::of(2))).ok(), Some(Accepted::Coalesced));
    let one = q.take(1);
    assert_eq!((one.attempt(), one.value().map(|value| value.items.clone())), (1, Some(vec![1, 2])));
    assert_eq!(q.num_requeues(1), 2);
    // held
    let fewer = Restored { failures: 1, ..FAILED };
    assert_eq!(q.restore(1, fewer, None).ok(), Some(Accepted::Dirty));
    assert_eq!(q.num_requeues(1), 2);
    sound(one.done());
    assert_eq!(q.take(1).attempt(), 1);
    // waiting
    q.add_after(2, ms(5));
    let later = Restored { due: Some(q.clock.at() + ms(9)), ..FAILED };
    assert_eq!(q.restore(2, later, None).ok(), Some(Accepted::Coalesced));
    let sooner = Restored { due: Some(q.clock.at() + ms(2)), ..FAILED };
    assert_eq!(q.restore(2, sooner, None).ok(), Some(Accepted::Waiting));
    q.clock.advance(ms(2));
    assert_eq!(q.take(2).attempt(), 1);
}

pub fn b7_a_refused_restore_gives_key_and_value_back_and_changes_nothing<A: Adapter>() {
    for end in [Subject::<A>::close, |q: &Subject<A>| ignore(q.shut_down())] {
        let q = Subject::<A>::new();
        end(&q);
        let Err(back) = q.restore(1, FAILED, Some(Value::of(7))) else { panic!("refused") };
        assert_eq!((back.key.id, back.value.map(|value| value.items.clone())), (1, Some(vec![7])));
        assert_eq!((q.num_requeues(1), q.state(1)), (0, None));
        assert_eq!(q.shut_down().refused, 1);
    }
}

pub fn b7_a_restored_key_wakes_who_waits<A: Adapter>() {
    let q = Subject::<A>::new();
    let count = Count::new();
    let mut getting = q.getting();
    assert!(count.poll(&mut getting).is_pending());
    q.restore(1, FAILED, None).unwrap();
    assert_eq!(count.wakes(), 1);
    let Poll::Ready(found) = count.poll(&mut getting) else { panic!("1 is ready") };
    assert_eq!(sound(found).map(|item| item.key().id), Some(1));
}

/// A queue with a ready key, 1, a held one, 2, a dirty one, 3, a waiting one, 4, and one of which
/// only failures are left, 5.
fn one_of_each<'q, A: Adapter>(q: &'q Subject<A>) -> Vec<A::Held<'q>> {
    q.add_rate_limited(5);
    assert!(q.cancel(5).is_some());
    q.add_many([2, 3]);
    let held = vec![q.take(2), q.take(3)];
    q.add_many([1, 3]);
    q.add_after(4, ms(5));
    held
}

pub fn b7_a_snapshot_tells_of_every_key_and_its_state<A: Adapter>() {
    let q = Subject::<A>::new();
    let held = one_of_each(&q);
    let mut page = q.page(0, 10, None);
    page.keys.sort_by_key(|(key, ..)| *key);
    let due = Some(q.clock.at() + ms(5));
    assert_eq!(
        page.keys,
        [
            (1, Seen { ready: true, ..Seen::default() }, 0),
            (2, Seen { held: true, ..Seen::default() }, 0),
            (3, Seen { held: true, dirty: true, ..Seen::default() }, 0),
            (4, Seen { due, ..Seen::default() }, 0),
            (5, Seen::default(), 1),
        ]
    );
    drop(held);
    q.work_off();
    assert_eq!(q.snapshot(10, None), [4, 5], "nothing is kept by having been told of");
}

pub fn b7_a_snapshot_tells_only_of_keys_that_are_so<A: Adapter>() {
    let q = Subject::<A>::new();
    let held = one_of_each(&q);
    for (only, keys) in [
        (Only::Ready, vec![1]),
        (Only::Held, vec![2, 3]),
        (Only::Dirty, vec![3]),
        (Only::Waiting, vec![4]),
        (Only::Failed, vec![5]),
    ] {
        assert_eq!(q.snapshot(10, Some(only)), keys, "{only:?}");
        assert_eq!(q.snapshot(1, Some(only)), keys, "{only:?}, a key a page");
    }
    drop(held);
}

pub fn b7_the_totals_of_a_page_are_those_of_its_instant<A: Adapter>() {
    let q = Subject::<A>::new();
    let held = one_of_each(&q);
    let first = q.page(0, 1, None);
    assert_eq!(first.totals, Counts { ready: 1, held: 2, dirty: 1, waiting: 1 });
    drop(held);
    q.work_off();
    let second = q.page(first.next.expect("there is more"), 10, None);
    assert_eq!(second.totals, Counts { ready: 0, held: 0, dirty: 0, waiting: 1 });
}

pub fn b7_a_snapshot_fires_what_is_due_before_it_looks<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.clock.advance(ms(5));
    assert_eq!(q.snapshot(10, Some(Only::Ready)), [1]);
}

pub fn b7_a_walk_meets_every_key_that_stays_known_although_those_that_it_has_met_go<A: Adapter>() {
    // those that have gone leave whole chunks of memory without keys, and the walk goes on in the middle of one
    for (first, gone) in [(1, 256), (38, 300), (300, 513), (474, 520), (260, 600)] {
        let q = Subject::<A>::new();
        ignore(q.add_many(0..700));
        let page = q.page(0, first, None);
        assert_eq!(page.keys.len(), first);
        for key in 0..gone {
            sound(q.take(key).done());
        }
        let (mut from, mut met) = (page.next, Vec::new());
        while let Some(at) = from {
            let page = q.page(at, 50, None);
            met.extend(page.keys.into_iter().map(|(key, ..)| key));
            from = page.next;
        }
        met.sort_unstable();
        assert_eq!(
            met,
            (gone.max(first as u64)..700).collect::<Vec<_>>(),
            "{gone} have gone after a page of {first}"
        );
    }
}

pub fn b7_a_snapshot_of_an_empty_queue_is_one_page_without_keys<A: Adapter>() {
    let q = Subject::<A>::new();
    let page = q.page(0, 10, None);
    assert_eq!((page.keys, page.totals, page.next), (vec![], Counts::default(), None));
    // and so is that of a walk that goes on where there is nothing any more
    assert_eq!(q.page(1_000_000, 10, None).keys, []);
    assert_eq!(q.page(u32::MAX, 0, None).next, None);
}

pub fn b7_a_walk_in_pages_tells_once_of_each_key_that_is_there_all_the_time<A: Adapter>() {
    let q = Subject::<A>::new();
    // a third stays, whatever it becomes meanwhile
    q.add_many(0..1_200);
    let stays = |key: u64| key % 3 == 0 && key < 1_200;
    let (mut from, mut told, mut turn) = (Some(0), Vec::new(), 0);
    while let Some(at) = from {
        let page = q.page(at, 100, None);
        told.extend(page.keys.iter().map(|(key, ..)| *key).filter(|key| stays(*key)));
        from = page.next;
        // others go and new ones come, some into the places that became free
        for key in (turn * 90..turn * 90 + 90).filter(|key| !stays(*key)) {
            q.cancel(key);
        }
        q.add_many(10_000 + turn * 40..10_000 + turn * 40 + 30);
        // and those that stay become something else
        for key in (turn * 90..turn * 90 + 90).filter(|key| stays(*key)) {
            q.add_after(key, ms(5));
            if key % 2 == 0 {
                q.add_after(key, ms(9));
            }
        }
        turn += 1;
    }
    assert!(turn >= 4, "several pages");
    told.sort_unstable();
    assert_eq!(told, (0..1_200).filter(|key| stays(*key)).collect::<Vec<_>>());
}
