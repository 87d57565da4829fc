//! D1, D2, D3, D5, D6: when a waiting key becomes ready.

use crate::adapter::{Accepted, Adapter, Config, Held, Policy, Seen, Subject, When, ms, sound};
use std::time::Duration;

const ALL: [Policy; 4] = [Policy::Earliest, Policy::Latest(ms(1_000)), Policy::Replace, Policy::Keep];

fn absorbing<A: Adapter>() -> Subject<A> {
    Subject::with(Config { absorbed: true, ..Config::default() })
}

/// Remaining time of a waiting key.
fn left<A: Adapter>(q: &Subject<A>, key: u64) -> Option<Duration> {
    let due = q.state(key)?.due?;
    Some(due.saturating_since(q.clock.at()))
}

pub fn d1_a_delay_of_zero_is_add_under_every_policy<A: Adapter>() {
    for policy in ALL {
        let q = Subject::<A>::new();
        assert_eq!(q.add_after_with(1, ms(0), policy), Accepted::Ready);
        q.has(1, 0, 0, 0);
        assert_eq!(q.add_after_with(1, ms(0), policy), Accepted::Coalesced);
        let one = q.take(1);
        assert_eq!(q.add_after_with(1, ms(0), policy), Accepted::Dirty);
        drop(one);
        assert_eq!(q.work_off(), [1]);
    }
}

pub fn d1_a_delay_of_zero_leaves_a_timer_that_is_set_as_it_is<A: Adapter>() {
    for policy in ALL {
        let q = Subject::<A>::new();
        q.add_after(1, ms(10));
        assert_eq!(q.add_after_with(1, ms(0), policy), Accepted::Ready);
        assert_eq!(left(&q, 1), Some(ms(10)), "{policy:?}");
        assert_eq!(q.work_off(), [1]);
        q.clock.advance(ms(10));
        assert_eq!(q.work_off(), [1], "the timer's run comes too");
    }
}

pub fn d2_a_second_timer_keeps_the_earlier_due_instant<A: Adapter>() {
    let q = Subject::<A>::new();
    assert_eq!(q.add_after(1, ms(10)), Accepted::Waiting);
    assert_eq!(q.add_after(1, ms(20)), Accepted::Coalesced);
    assert_eq!(left(&q, 1), Some(ms(10)));
    assert_eq!(q.add_after(1, ms(5)), Accepted::Waiting);
    assert_eq!(left(&q, 1), Some(ms(5)));
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [1]);
    q.clock.advance(ms(100));
    q.is_idle();
}

pub fn d2_any_number_of_timers_for_one_key_are_one<A: Adapter>() {
    let q = Subject::<A>::new();
    for delay in 1..=100 {
        q.add_after(1, ms(delay));
    }
    q.has(0, 0, 0, 1);
    q.clock.advance(ms(200));
    assert_eq!(q.work_off(), [1]);
}

pub fn d3_a_key_is_never_handed_out_before_its_due_instant<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    for _ in 0..10 {
        q.is_idle();
        assert!(q.is_empty());
        q.clock.advance(ms(1) - Duration::from_nanos(1));
    }
    q.is_idle();
    q.clock.advance(Duration::from_nanos(9));
    q.is_idle();
    q.clock.advance(Duration::from_nanos(1));
    assert_eq!(q.work_off(), [1]);
}

pub fn d3_the_due_instant_counts_from_the_call<A: Adapter>() {
    let q = Subject::<A>::new();
    q.clock.advance(ms(7));
    q.add_after(1, ms(10));
    assert_eq!(q.state(1).and_then(|seen| seen.due), Some(q.clock.at() + ms(10)));
    q.clock.advance(ms(9));
    q.is_idle();
    q.clock.advance(ms(1));
    assert_eq!(q.work_off(), [1]);
}

pub fn d5_timers_become_ready_in_the_order_of_their_due_instants<A: Adapter>() {
    let q = Subject::<A>::new();
    // 0..97, shuffled by a multiplication that is coprime to 97.
    let delays: Vec<u64> = (0..97).map(|i| i * 31 % 97).collect();
    for delay in &delays {
        q.add_after(*delay, ms(delay + 1));
    }
    q.clock.advance(ms(1_000));
    assert_eq!(q.work_off(), (0..97).collect::<Vec<_>>());
}

pub fn d5_equal_due_instants_become_ready_in_the_order_of_the_calls<A: Adapter>() {
    let q = Subject::<A>::new();
    let keys: Vec<u64> = (0..200).map(|i| i * 67 % 200).collect();
    for key in &keys {
        q.add_after(*key, ms(5));
    }
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), keys);
}

pub fn d5_equal_due_instants_set_at_different_times_keep_the_order_of_the_calls<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    q.clock.advance(ms(4));
    q.add_after(2, ms(6));
    q.add_after(3, ms(5));
    q.clock.advance(ms(4));
    q.add_after(4, ms(2));
    q.clock.advance(ms(2));
    assert_eq!(q.work_off(), [3, 1, 2, 4]);
}

pub fn d5_a_call_that_does_not_change_the_instant_keeps_the_place<A: Adapter>() {
    for policy in ALL {
        let q = Subject::<A>::new();
        q.add_after(1, ms(5));
        q.add_after(2, ms(5));
        assert_eq!(q.add_after_with(1, ms(5), policy), Accepted::Coalesced);
        q.clock.advance(ms(5));
        assert_eq!(q.work_off(), [1, 2], "{policy:?}");
    }
}

pub fn d5_a_call_that_changes_the_instant_takes_a_new_place<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(9));
    q.add_after(2, ms(5));
    q.add_after(1, ms(5));
    q.clock.advance(ms(9));
    assert_eq!(q.work_off(), [2, 1]);
    q.add_after(1, ms(5));
    q.add_after(2, ms(5));
    q.add_after_with(1, ms(7), Policy::Replace);
    q.add_after_with(1, ms(5), Policy::Replace);
    q.clock.advance(ms(9));
    assert_eq!(q.work_off(), [2, 1]);
}

pub fn d5_a_key_that_a_look_made_ready_stands_before_a_key_added_afterwards<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(5));
    q.add_after(2, ms(5));
    q.clock.advance(ms(5));
    q.has(2, 0, 0, 0);
    q.add(3);
    assert_eq!(q.work_off(), [1, 2, 3]);
}

pub fn d6_an_immediate_add_of_a_waiting_key_makes_it_ready_and_leaves_the_timer_armed<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    assert_eq!(q.add(1), Accepted::Ready);
    let due = Some(q.clock.at() + ms(10));
    assert_eq!(q.state(1), Some(Seen { ready: true, due, ..Seen::default() }));
    assert_eq!(q.work_off(), [1]);
    assert_eq!(q.state(1), Some(Seen { due, ..Seen::default() }));
    q.clock.advance(ms(10));
    assert_eq!(q.work_off(), [1], "the timer's run comes too");
    q.is_idle();
}

pub fn d6_a_timer_that_fires_for_a_ready_key_changes_nothing<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    q.add(1);
    q.add(2);
    q.clock.advance(ms(10));
    q.has(2, 0, 0, 0);
    assert_eq!(q.work_off(), [1, 2]);
}

pub fn d6_a_timer_that_fires_for_a_held_key_makes_it_dirty<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    assert_eq!(q.add_after(1, ms(10)), Accepted::Waiting);
    let due = Some(q.clock.at() + ms(10));
    assert_eq!(q.state(1), Some(Seen { held: true, due, ..Seen::default() }));
    q.clock.advance(ms(10));
    assert_eq!(q.state(1), Some(Seen { held: true, dirty: true, ..Seen::default() }));
    sound(one.done());
    assert_eq!(q.work_off(), [1]);
}

pub fn d6_a_timer_that_fires_for_a_dirty_key_changes_nothing<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    let one = q.take(1);
    q.add(1);
    q.add_after(1, ms(10));
    q.clock.advance(ms(10));
    q.has(0, 1, 1, 0);
    sound(one.done());
    assert_eq!(q.work_off(), [1]);
    q.is_idle();
}

pub fn d6_state_tells_every_combination_with_waiting<A: Adapter>() {
    let q = Subject::<A>::new();
    let due = Some(q.clock.at() + ms(10));
    q.add_after(1, ms(10));
    assert_eq!(q.state(1), Some(Seen { due, ..Seen::default() }));
    q.add(1);
    assert_eq!(q.state(1), Some(Seen { ready: true, due, ..Seen::default() }));
    let one = q.take(1);
    assert_eq!(q.state(1), Some(Seen { held: true, due, ..Seen::default() }));
    q.add(1);
    assert_eq!(q.state(1), Some(Seen { held: true, dirty: true, due, ..Seen::default() }));
    drop(one);
    assert_eq!(q.state(1), Some(Seen { ready: true, due, ..Seen::default() }));
}

pub fn d6_by_default_a_run_leaves_earlier_timers_armed<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add(1);
    assert!(sound(q.take(1).retry_after(ms(10))).is_ok());
    q.add(1);
    sound(q.take(1).succeed());
    q.has(0, 0, 0, 1);
    q.clock.advance(ms(10));
    assert_eq!(q.work_off(), [1], "as in the original");
}

pub fn d6_timers_absorbed_a_run_that_starts_absorbs_the_timers_set_before_it<A: Adapter>() {
    let q = absorbing::<A>();
    q.add_after(1, ms(10));
    q.add(1);
    let one = q.take(1);
    assert_eq!(q.state(1), Some(Seen { held: true, ..Seen::default() }));
    sound(one.done());
    q.has(0, 0, 0, 0);
    q.clock.advance(ms(10));
    q.is_idle();
}

pub fn d6_timers_absorbed_a_run_that_starts_absorbs_back_offs_too<A: Adapter>() {
    let q = absorbing::<A>();
    q.add(1);
    assert!(sound(q.take(1).retry_after(ms(10))).is_ok());
    q.add(1);
    sound(q.take(1).succeed());
    q.clock.advance(ms(10));
    q.is_idle();
}

pub fn d6_timers_absorbed_keeps_those_set_during_the_run<A: Adapter>() {
    let q = absorbing::<A>();
    q.add(1);
    let one = q.take(1);
    q.add_after(1, ms(10));
    sound(one.done());
    q.has(0, 0, 0, 1);
    q.clock.advance(ms(10));
    assert_eq!(q.work_off(), [1]);
}

pub fn d6_timers_absorbed_absorbs_nothing_while_the_key_is_only_ready<A: Adapter>() {
    let q = absorbing::<A>();
    q.add_after(1, ms(10));
    q.add(1);
    q.has(1, 0, 0, 1);
    q.clock.advance(ms(10));
    assert_eq!(q.work_off(), [1]);
    q.has(0, 0, 0, 0);
}

pub fn d6_latest_pushes_the_timer_back_up_to_its_maximum<A: Adapter>() {
    let q = Subject::<A>::new();
    let latest = Policy::Latest(ms(25));
    q.add_after_with(1, ms(10), latest);
    q.clock.advance(ms(5));
    q.add_after_with(1, ms(10), latest);
    assert_eq!(left(&q, 1), Some(ms(10)), "15 ms after the first");
    q.clock.advance(ms(9));
    q.add_after_with(1, ms(10), latest);
    assert_eq!(left(&q, 1), Some(ms(10)), "24 ms after the first");
    q.clock.advance(ms(9));
    q.add_after_with(1, ms(10), latest);
    assert_eq!(left(&q, 1), Some(ms(2)), "25 ms after the first: the maximum");
    q.clock.advance(ms(2) - Duration::from_nanos(1));
    q.add_after_with(1, ms(10), latest);
    q.is_idle();
    q.clock.advance(Duration::from_nanos(1));
    assert_eq!(q.work_off(), [1]);
    q.is_idle();
}

pub fn d6_latest_never_moves_a_timer_to_an_earlier_instant<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(30));
    assert_eq!(q.add_after_with(1, ms(10), Policy::Latest(ms(1_000))), Accepted::Coalesced);
    assert_eq!(left(&q, 1), Some(ms(30)));
}

pub fn d6_latest_begins_a_new_window_after_the_run<A: Adapter>() {
    let q = Subject::<A>::new();
    let latest = Policy::Latest(ms(15));
    for _ in 0..3 {
        q.add_after_with(1, ms(10), latest);
        q.clock.advance(ms(9));
        q.add_after_with(1, ms(10), latest);
        assert_eq!(left(&q, 1), Some(ms(6)));
        q.clock.advance(ms(6));
        assert_eq!(q.work_off(), [1]);
    }
}

pub fn d6_replace_takes_the_new_instant_earlier_or_later<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after(1, ms(10));
    assert_eq!(q.add_after_with(1, ms(20), Policy::Replace), Accepted::Waiting);
    assert_eq!(left(&q, 1), Some(ms(20)));
    assert_eq!(q.add_after_with(1, ms(5), Policy::Replace), Accepted::Waiting);
    assert_eq!(left(&q, 1), Some(ms(5)));
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [1]);
    q.clock.advance(ms(50));
    q.is_idle();
}

pub fn d6_keep_leaves_what_is_there<A: Adapter>() {
    let q = Subject::<A>::new();
    assert_eq!(q.add_after_with(1, ms(10), Policy::Keep), Accepted::Waiting);
    assert_eq!(q.add_after_with(1, ms(5), Policy::Keep), Accepted::Coalesced);
    assert_eq!(q.add_after_with(1, ms(20), Policy::Keep), Accepted::Coalesced);
    assert_eq!(left(&q, 1), Some(ms(10)));
}

pub fn d6_the_policy_belongs_to_the_call_and_not_to_the_key<A: Adapter>() {
    let q = Subject::<A>::new();
    q.add_after_with(1, ms(10), Policy::Latest(ms(1_000)));
    q.add_after_with(1, ms(30), Policy::Latest(ms(1_000)));
    assert_eq!(left(&q, 1), Some(ms(30)));
    q.add_after(1, ms(20));
    assert_eq!(left(&q, 1), Some(ms(20)), "earliest again");
}

pub fn d6_every_policy_may_be_used_for_a_rate_limited_key_that_waits<A: Adapter>() {
    let q = Subject::<A>::new();
    q.trigger(1, When::RateLimited, None).unwrap();
    assert_eq!(left(&q, 1), Some(ms(1)));
    q.add_after_with(1, ms(3), Policy::Replace);
    q.trigger(1, When::RateLimited, None).unwrap();
    assert_eq!(left(&q, 1), Some(ms(2)), "the earlier of 3 ms and 2 ms");
}
