//! B2: priorities. `b_overdue.rs` has the bound on waiting.

use crate::adapter::{
    Accepted, Adapter, Config, Held, Line, Many, Policy, Said, Subject, Waiters, When, ignore, ms, sound,
};
use crate::lockstep::unwind_through;
use crate::probe::Value;

fn q<A: Adapter>() -> Subject<A> {
    Subject::with_priorities(None)
}

fn after(delay: u64) -> When {
    When::After(ms(delay), Policy::Earliest)
}

fn said(key: u64, when: When, priority: i16) -> Said {
    Said::from((key.into(), when, None)).priority(priority)
}

/// Works everything off; the keys and their priorities in their order.
fn work_off<A: Adapter>(q: &Subject<A>) -> Vec<(u64, i16)> {
    let mut runs = Vec::new();
    while let Ok(item) = q.try_get() {
        runs.push((item.key().id, item.priority()));
        sound(item.done());
    }
    runs
}

pub fn b2_higher_priorities_go_first_and_equal_ones_in_the_order_of_becoming_ready<A: Adapter>() {
    let q = q::<A>();
    let keys = [(1, 0), (2, 7), (3, i16::MIN), (4, 7), (5, i16::MAX), (6, -1), (7, 0), (8, i16::MAX), (9, 1)];
    for (key, priority) in keys {
        assert_eq!(q.add_at(key, priority), Accepted::Ready);
    }
    let expected =
        [(5, i16::MAX), (8, i16::MAX), (2, 7), (4, 7), (9, 1), (1, 0), (7, 0), (6, -1), (3, i16::MIN)];
    assert_eq!(work_off(&q), expected);
    // and while keys come and go
    q.add_at(1, 1);
    q.add_at(2, 2);
    sound(q.take_at(2, 2).done());
    q.add_at(3, 3);
    q.add_at(4, 1);
    assert_eq!(work_off(&q), [(3, 3), (1, 1), (4, 1)]);
}

pub fn b2_a_trigger_without_a_priority_has_0<A: Adapter>() {
    let q = q::<A>();
    q.add_at(1, -1);
    q.add(2);
    q.add_value(3, 7);
    q.add_after(4, ms(1));
    q.add_rate_limited(5);
    ignore(sound(q.queue.add_ref(&6.into())));
    q.add_many([7, 8]);
    q.add_at(9, 1);
    q.clock.advance(ms(1));
    let expected = [(9, 1), (2, 0), (3, 0), (6, 0), (7, 0), (8, 0), (4, 0), (5, 0), (1, -1)];
    assert_eq!(work_off(&q), expected);
}

pub fn b2_a_queue_with_priorities_that_nobody_uses_is_first_in_first_out<A: Adapter>() {
    for max_wait in [None, Some(ms(5))] {
        let q = Subject::<A>::with_priorities(max_wait);
        for key in [3, 1, 2] {
            q.add(key);
            q.clock.advance(ms(3));
        }
        q.add(3);
        assert_eq!(q.work_off(), [3, 1, 2]);
    }
}

pub fn b2_adding_again_raises_a_ready_key_and_never_lowers_it<A: Adapter>() {
    let raises: [fn(&Subject<A>); 6] = [
        |q| assert_eq!(q.add_at(1, 0), Accepted::Coalesced),
        |q| assert_eq!(q.add(1), Accepted::Coalesced),
        |q| assert_eq!(q.add_value(1, 7), Accepted::Coalesced),
        |q| assert_eq!(sound(q.queue.add_ref(&1.into())), Ok(Accepted::Coalesced)),
        |q| assert_eq!(q.add_many([1]), [Accepted::Coalesced]),
        |q| assert_eq!(q.ask_at(1, When::After(ms(0), Policy::Replace), 0), Accepted::Coalesced),
    ];
    for raise in raises {
        let q = q::<A>();
        q.add_at(1, -5);
        q.add_at(2, -1);
        raise(&q);
        q.has(2, 0, 0, 0);
        assert_eq!(work_off(&q), [(1, 0), (2, -1)]);
        // the same trigger lowers nothing
        q.add_at(1, 5);
        q.add_at(2, 3);
        raise(&q);
        assert_eq!(work_off(&q), [(1, 5), (2, 3)]);
    }
}

pub fn b2_a_raised_key_keeps_its_age_and_goes_before_equals_that_became_ready_later<A: Adapter>() {
    let q = q::<A>();
    for (key, priority) in [(1, 5), (2, 0), (3, 5), (4, 0), (5, 5), (6, 2)] {
        q.add_at(key, priority);
    }
    // in another order than that of their ages, and one in two steps
    q.add_at(4, 5);
    q.add_at(6, 4);
    q.add_at(2, 3);
    q.add_at(2, 5);
    q.add_at(7, 5);
    let expected = [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5), (7, 5), (6, 4)];
    assert_eq!(work_off(&q), expected);
}

pub fn b2_a_timer_applies_its_priority_when_it_fires_and_not_before<A: Adapter>() {
    let q = q::<A>();
    q.add_at(2, 1);
    // of a waiting key, of one that is ready too, and of one that is held
    q.ask_at(1, after(5), 9);
    q.ask_at(2, after(5), 3);
    q.add_at(3, 2);
    let three = q.take_at(3, 2);
    q.ask_at(3, after(5), 4);
    q.add_at(4, 2);
    assert_eq!(work_off(&q), [(4, 2), (2, 1)], "no timer has fired");
    // an immediate add of a waiting key has a priority of its own
    q.add_at(2, -1);
    q.add_at(5, -2);
    q.clock.advance(ms(5));
    q.has(3, 1, 1, 0);
    sound(three.done());
    assert_eq!(work_off(&q), [(1, 9), (3, 4), (2, 3), (5, -2)]);
}

pub fn b2_a_timer_that_fires_lowers_nothing<A: Adapter>() {
    let q = q::<A>();
    q.add_at(1, 5);
    q.ask_at(1, after(5), -5);
    q.add_at(2, 5);
    let held = q.take_at(1, 5);
    q.ask_at(1, after(4), -7);
    q.add_at(1, 4);
    q.clock.advance(ms(5));
    q.has(1, 1, 1, 0);
    sound(held.done());
    assert_eq!(work_off(&q), [(2, 5), (1, 4)]);
}

pub fn b2_triggers_that_share_a_timer_raise_it_and_never_lower_it_under_every_policy<A: Adapter>() {
    for policy in [Policy::Earliest, Policy::Latest(ms(50)), Policy::Replace, Policy::Keep] {
        let q = q::<A>();
        q.ask_at(1, after(5), 1);
        for (delay, priority) in [(9, 3), (2, 2), (7, -4)] {
            q.ask_at(1, When::After(ms(delay), policy), priority);
        }
        q.add_at(2, 2);
        q.clock.advance(ms(50));
        q.has(2, 0, 0, 0);
        assert_eq!(work_off(&q), [(1, 3), (2, 2)], "{policy:?}");
        // and the next timer knows nothing of it
        q.ask_at(1, after(5), -1);
        q.clock.advance(ms(5));
        assert_eq!(work_off(&q), [(1, -1)], "{policy:?}");
    }
}

pub fn b2_a_rate_limited_trigger_has_its_priority_too<A: Adapter>() {
    let q = q::<A>();
    q.add(1);
    q.ask_at(2, When::RateLimited, 6);
    q.clock.advance(ms(1));
    assert_eq!(work_off(&q), [(2, 6), (1, 0)]);
}

pub fn b2_a_dirty_key_takes_the_highest_of_the_triggers_during_its_run<A: Adapter>() {
    let q = q::<A>();
    q.add_at(1, 9);
    let one = q.take_at(1, 9);
    q.add_at(1, -3);
    q.add_at(1, 2);
    q.add_at(1, -1);
    q.add_at(2, 3);
    q.add_at(3, 1);
    sound(one.done());
    assert_eq!(work_off(&q), [(2, 3), (1, 2), (3, 1)], "and not that of the run that went on");
    let held = {
        q.add_at(1, 9);
        q.take_at(1, 9)
    };
    q.add_at(1, -3);
    sound(held.done());
    assert_eq!(work_off(&q), [(1, -3)], "it may be lower than that of the run that went on");
}

pub fn b2_a_retry_keeps_the_priority_of_its_run<A: Adapter>() {
    let ends: [fn(A::Held<'_>); 4] = [
        |item| assert!(sound(item.retry()).is_ok()),
        |item| assert!(sound(item.retry_after(ms(1))).is_ok()),
        |item| assert!(sound(item.again(ms(1))).is_ok()),
        |item| assert!(sound(item.into_owned().retry_after(ms(1))).is_ok()),
    ];
    for end in ends {
        let q = q::<A>();
        q.add_at(1, -7);
        for _ in 0..3 {
            end(q.take_at(1, -7));
            q.has(0, 0, 0, 1);
            q.clock.advance(ms(9));
        }
        q.add_at(2, -8);
        q.add_at(3, -6);
        assert_eq!(work_off(&q), [(3, -6), (1, -7), (2, -8)]);
    }
    let at_once: [fn(A::Held<'_>); 2] = [
        |item| assert!(sound(item.retry_after(ms(0))).is_ok()),
        |item| assert!(sound(item.again(ms(0))).is_ok()),
    ];
    for end in at_once {
        let q = q::<A>();
        q.add_at(1, 7);
        end(q.take_at(1, 7));
        assert_eq!(work_off(&q), [(1, 7)]);
    }
}

pub fn b2_a_retry_of_a_dirty_key_raises_its_next_run_when_the_retry_is_due<A: Adapter>() {
    let q = q::<A>();
    q.add_at(1, 7);
    let one = q.take_at(1, 7);
    q.add_at(1, 2);
    assert!(sound(one.retry_after(ms(0))).is_ok());
    assert_eq!(work_off(&q), [(1, 7)]);
    q.add_at(1, 7);
    let one = q.take_at(1, 7);
    q.add_at(1, 2);
    assert!(sound(one.retry_after(ms(5))).is_ok());
    q.has(1, 0, 0, 1);
    q.add_at(2, 3);
    sound(q.take_at(2, 3).done());
    q.add_at(2, 3);
    q.clock.advance(ms(5));
    assert_eq!(work_off(&q), [(1, 7), (2, 3)]);
}

pub fn b2_a_retry_joins_a_timer_that_is_set_and_raises_it<A: Adapter>() {
    let q = q::<A>();
    q.add_at(1, 7);
    let one = q.take_at(1, 7);
    q.ask_at(1, after(2), 3);
    assert!(sound(one.retry_after(ms(9))).is_ok());
    q.clock.advance(ms(2));
    assert_eq!(work_off(&q), [(1, 7)]);
}

pub fn b2_a_guard_that_is_dropped_without_a_word_keeps_the_priority_by_option<A: Adapter>() {
    let config = || Config { order: Line::Priority(None), unfinished_retries: true, ..Config::default() };
    let q = Subject::<A>::with(config());
    q.add_at(1, 7);
    drop(q.take_at(1, 7));
    q.clock.advance(ms(1));
    assert_eq!(work_off(&q), [(1, 7)]);
}

pub fn b2_runs_that_a_panic_puts_back_keep_their_priorities<A: Adapter>() {
    let q = q::<A>();
    for (key, priority) in [(1, 7), (2, -7), (3, 2)] {
        q.add_at(key, priority);
    }
    let items = q.take_many(3);
    q.add_at(3, -9);
    q.add_at(1, 8);
    unwind_through(items);
    q.has(3, 0, 0, 0);
    assert_eq!(work_off(&q), [(1, 8), (3, 2), (2, -7)]);
}

pub fn b2_the_item_tells_the_priority_of_its_run_whatever_comes_during_it<A: Adapter>() {
    let q = q::<A>();
    q.add_at(1, 3);
    let one = q.take_at(1, 3);
    q.add_at(1, 9);
    q.ask_at(1, after(0), 8);
    assert_eq!(one.priority(), 3);
    assert!(q.done(1));
    assert_eq!(one.priority(), 3, "its run was ended by key");
    let again = q.take_at(1, 9);
    assert_eq!((one.priority(), again.priority()), (3, 9));
    drop(one);
    q.add_at(2, -4);
    let two = sound(again.next()).expect("two is ready");
    assert_eq!((two.key().id, two.priority()), (2, -4));
    assert_eq!(two.into_owned().priority(), -4);
}

pub fn b2_each_key_of_a_batch_has_a_priority_of_its_own<A: Adapter>() {
    let q = q::<A>();
    q.add_at(4, 1);
    let batch = vec![
        said(1, When::Now, 5),
        said(2, When::Now, 0),
        said(3, after(5), 9),
        said(4, When::Now, 3),
        said(5, When::RateLimited, 7),
        said(2, When::Now, -2),
        said(6, When::Now, -1),
    ];
    let added: Vec<_> = q.trigger_many(batch).into_iter().map(|added| added.expect("open")).collect();
    use Accepted::{Coalesced, Ready, Waiting};
    assert_eq!(added, [Ready, Ready, Waiting, Coalesced, Waiting, Coalesced, Ready]);
    let items = q.take_many(3);
    let seen: Vec<_> = items.singles().map(|item| (item.key().id, item.priority())).collect();
    assert_eq!(seen, [(1, 5), (4, 3), (2, 0)]);
    q.clock.advance(ms(5));
    assert_eq!(work_off(&q), [(3, 9), (5, 7), (6, -1)]);
}

pub fn b2_a_drain_hands_out_by_priority_and_timers_that_it_fires_have_theirs<A: Adapter>() {
    let q = q::<A>();
    q.add_at(1, -1);
    q.ask_at(2, after(50), 3);
    q.ask_at(3, after(40), -3);
    q.add_at(4, 2);
    let drain = q.drain(Waiters::RunNow);
    assert_eq!(work_off(&q), [(2, 3), (4, 2), (1, -1), (3, -3)]);
    drop(drain);
    q.is_over();
}

pub fn b2_without_max_wait_a_key_is_passed_over_for_as_long_as_higher_ones_come<A: Adapter>() {
    let q = q::<A>();
    q.add_at(1, -1);
    for key in 100..200 {
        q.clock.advance(ms(1_000));
        q.add(key);
        sound(q.take_at(key, 0).done());
    }
    assert_eq!(work_off(&q), [(1, -1)]);
}

pub fn b2_a_queue_without_priorities_refuses_any_but_0_and_nothing_changes<A: Adapter>() {
    for order in [Line::Fifo, Line::Lifo] {
        let q = Subject::<A>::with(Config { order, ..Config::default() });
        q.add(7);
        for when in [When::Now, after(0), after(5), When::RateLimited] {
            for key in [7, 8] {
                let said = Said::from((key.into(), when, Some(Value::of(3)))).priority(1);
                let back = q.say(said).expect_err("a priority");
                assert_eq!((back.key.id, back.value.map(|value| value.items.clone())), (key, Some(vec![3])));
            }
        }
        // of a batch only those that have one
        let batch = vec![
            said(1, When::RateLimited, -1),
            said(2, When::RateLimited, 0),
            said(3, When::Now, 4),
            said(4, When::Now, 0),
        ];
        let accepted: Vec<_> = q.trigger_many(batch).into_iter().map(|added| added.is_ok()).collect();
        assert_eq!(accepted, [false, true, false, true]);
        q.has(2, 0, 0, 1);
        assert_eq!([7, 8, 1, 2].map(|key| q.num_requeues(key)), [0, 0, 0, 1], "it asks no limiter");
        assert_eq!(q.take_many(1).singles().map(|item| item.priority()).collect::<Vec<_>>(), [0]);
        assert_eq!(q.shut_down().refused, 0, "nobody was refused for a shutdown");
    }
}

pub fn x12_the_priority_that_is_handed_out_is_that_of_this_run_and_of_no_other<A: Adapter>() {
    let q = q::<A>();
    q.add_at(1, 5);
    sound(q.take_at(1, 5).done());
    q.add(1);
    assert_eq!(work_off(&q), [(1, 0)], "that of an earlier run is forgotten");
    q.ask_at(1, after(5), 8);
    q.add_at(1, 3);
    sound(q.take_at(1, 3).done());
    q.clock.advance(ms(5));
    sound(q.take_at(1, 8).done());
    // another key where the first one stood
    q.add(2);
    assert_eq!(work_off(&q), [(2, 0)]);
}

pub fn x13_an_urgent_ready_key_is_not_behind_less_urgent_ones_that_were_due_earlier<A: Adapter>() {
    let q = q::<A>();
    for key in 1..=5 {
        q.ask_at(key, after(key), -1);
    }
    q.add_at(8, -2);
    q.clock.advance(ms(9));
    q.add_at(9, 7);
    q.ask_at(7, after(1), 6);
    q.clock.advance(ms(1));
    assert_eq!(q.work_off(), [9, 7, 1, 2, 3, 4, 5, 8]);
}

pub fn x16_raising_a_priority_keeps_the_order_within_the_level<A: Adapter>() {
    let q = q::<A>();
    for key in 0..600 {
        q.add_at(key, (key % 3) as i16);
    }
    // all come to one level, the last first, and some that were there already again
    for key in (0..600).rev() {
        q.add_at(key, 2);
    }
    assert_eq!(q.work_off(), (0..600).collect::<Vec<_>>());
}

pub fn x18_a_priority_is_not_lost_on_retry<A: Adapter>() {
    let q = q::<A>();
    for key in 1..=4 {
        q.add_at(key, 10 * key as i16);
    }
    for attempt in 1..=5 {
        for key in (1..=4).rev() {
            let item = q.take_at(key, 10 * key as i16);
            assert_eq!(item.attempt(), attempt);
            assert!(sound(item.retry()).is_ok());
        }
        q.clock.advance(ms(100));
    }
    assert_eq!(work_off(&q), [(4, 40), (3, 30), (2, 20), (1, 10)]);
}
