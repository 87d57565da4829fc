//! B2, B3 and B7: `max_wait`, and which hand-outs overdue keys get. Key `k` is in group `k / 10`.

use crate::adapter::{
    Adapter, Config, Fair, Grouping, Held, Line, Many, MaxWait, Policy, Subject, When, ms, sound,
};
use crate::lockstep::unwind_through;

const TEN: std::time::Duration = ms(10);

fn after(delay: u64) -> When {
    When::After(ms(delay), Policy::Earliest)
}

fn every<A: Adapter>(every: u32) -> Subject<A> {
    let max_wait = MaxWait { every, ..MaxWait::of(TEN) };
    Subject::with(Config { order: Line::Priority(Some(max_wait)), ..Config::default() })
}

/// Groups with priorities, and with `max_wait`.
fn groups() -> Fair {
    Fair { priorities: true, max_wait: Some(MaxWait::of(TEN)), ..Fair::of(Grouping::of(10)) }
}

/// Works so many keys off, or as many as there are.
fn work<A: Adapter>(q: &Subject<A>, most: usize) -> Vec<u64> {
    let mut keys = Vec::new();
    while let Some(item) = (keys.len() < most).then(|| q.try_get().ok()).flatten() {
        keys.push(item.key().id);
        sound(item.done());
    }
    keys
}

/// Adds all of them at a priority.
fn add<A: Adapter>(q: &Subject<A>, keys: impl IntoIterator<Item = u64>, priority: i16) {
    for key in keys {
        q.add_at(key, priority);
    }
}

pub fn b2_a_key_is_overdue_once_it_has_been_ready_for_max_wait<A: Adapter>() {
    let q = Subject::<A>::with_priorities(Some(TEN));
    q.add_at(1, -5);
    q.clock.advance(ms(4));
    add(&q, [3, 4], 5);
    q.clock.advance(ms(5));
    assert_eq!(work(&q, 1), [3]);
    q.clock.advance(ms(1));
    assert_eq!(work(&q, 9), [1, 4]);
}

pub fn b2_one_of_every_8_hand_outs_goes_to_the_oldest_overdue_key<A: Adapter>() {
    let q = Subject::<A>::with_priorities(Some(TEN));
    // the younger ones are more urgent, and overdue too
    add(&q, 0..5, -9);
    add(&q, 5..10, -8);
    q.clock.advance(TEN);
    add(&q, 100..200, 5);
    let mut urgent = 100..;
    for old in 0..10 {
        let mut expected = vec![old];
        expected.extend(urgent.by_ref().take(7));
        assert_eq!(work(&q, 8), expected);
    }
}

pub fn b2_a_setting_says_how_often_an_overdue_key_goes<A: Adapter>() {
    for n in [2, 3, 100] {
        let q = every::<A>(n);
        add(&q, [1, 2], 0);
        q.clock.advance(TEN);
        add(&q, 100..300, 5);
        let order = work(&q, 200);
        assert_eq!((order[0], order[n as usize]), (1, 2), "one of every {n}");
    }
}

pub fn b2_a_backlog_older_than_max_wait_does_not_turn_the_order_round<A: Adapter>() {
    let q = Subject::<A>::with_priorities(Some(TEN));
    add(&q, 0..1_000, -100);
    q.clock.advance(ms(1_000));
    let mut left = 1_000;
    // whenever a change comes, it is the next or the one after
    for change in 2_000..2_100_u64 {
        let worked_off = work(&q, change as usize % 10).len();
        left -= worked_off;
        q.add(change);
        let order = work(&q, 2);
        assert!(order.contains(&change), "{change} stands behind {order:?}");
        left -= 1;
        q.clock.advance(ms(1));
    }
    assert_eq!(work(&q, 2_000).len(), left, "and none of the backlog is lost");
}

pub fn b2_an_overdue_key_with_m_older_ones_goes_within_n_times_m_plus_1_hand_outs<A: Adapter>() {
    const KEYS: u64 = 40;
    for n in [2, 3, 8] {
        let q = every::<A>(n);
        // since when each is ready, and until which hand-out it has to go
        let mut ready: Vec<Option<(u64, Option<u64>)>> = vec![None; KEYS as usize];
        let mut served = vec![0; KEYS as usize];
        // a run takes a millisecond, in which four keys are triggered: of keys that never stop,
        // and the higher ones alone would take all the time
        for now in 0..2_000_u64 {
            for step in 0..4 {
                let key = (now * 4 + step) * 17 % KEYS;
                q.add_at(key, key as i16);
                ready[key as usize].get_or_insert((now, None));
            }
            let since = |key: &Option<(u64, Option<u64>)>| key.map(|(since, _)| since);
            let all: Vec<_> = ready.iter().filter_map(since).collect();
            for (since, until) in ready.iter_mut().flatten() {
                if until.is_none() && now - *since >= 10 {
                    // of those that are ready since one instant each may be the older
                    let older = all.iter().filter(|other| **other <= *since).count() as u64 - 1;
                    *until = Some(now + u64::from(n) * (older + 1));
                }
            }
            let item = q.try_get().expect("there is always a key");
            ready[item.key().id as usize] = None;
            served[item.key().id as usize] += 1;
            let late = ready.iter().flatten().find(|(_, until)| until.is_some_and(|until| now + 1 >= until));
            assert_eq!(late, None, "one of every {n}: not handed out in time, at hand-out {now}");
            q.clock.advance(ms(1));
            sound(item.done());
        }
        assert!(served.iter().all(|runs| *runs > 0), "{served:?}");
    }
}

pub fn b2_a_batch_that_is_taken_ages_too<A: Adapter>() {
    let q = every::<A>(2);
    q.add_at(1, -5);
    q.add_at(2, -9);
    q.clock.advance(TEN);
    q.add_at(3, 5);
    q.add_at(4, 7);
    assert_eq!(q.take_many(3).keys(), [1, 4, 2]);
}

pub fn b2_a_raise_does_not_make_a_key_younger<A: Adapter>() {
    let q = Subject::<A>::with_priorities(Some(TEN));
    q.add_at(1, -5);
    q.clock.advance(ms(1));
    q.add_at(2, 9);
    q.clock.advance(ms(8));
    q.add_at(1, -4);
    q.clock.advance(ms(1));
    assert_eq!(q.work_off(), [1, 2]);
}

pub fn b2_age_counts_from_when_the_key_became_ready<A: Adapter>() {
    let q = Subject::<A>::with_priorities(Some(TEN));
    // from the due instant, however late somebody looks
    q.ask_at(1, after(5), -5);
    q.clock.advance(ms(15));
    q.has(1, 0, 0, 0);
    q.add_at(2, 5);
    assert_eq!(q.work_off(), [1, 2]);
    let q = Subject::<A>::with_priorities(Some(TEN));
    // from the end of the run, of a key that is dirty
    q.add_at(1, -5);
    let one = q.take_at(1, -5);
    q.add_at(1, -5);
    q.clock.advance(TEN);
    sound(one.done());
    q.add_at(2, 5);
    sound(q.take_at(2, 5).done());
    // from when it is put back
    let one = q.take_many(1);
    q.clock.advance(TEN);
    unwind_through(one);
    q.add_at(2, 5);
    assert_eq!(q.work_off(), [2, 1]);
}

pub fn b2_with_a_max_wait_of_nothing_every_key_is_overdue_and_with_one_without_end_none<A: Adapter>() {
    for (max_wait, expected) in [(ms(0), [1, 4, 3, 2]), (std::time::Duration::MAX, [4, 3, 2, 1])] {
        let max_wait = MaxWait { every: 3, ..MaxWait::of(max_wait) };
        let q = Subject::<A>::with(Config { order: Line::Priority(Some(max_wait)), ..Config::default() });
        for key in 1..5 {
            q.add_at(key, key as i16);
            q.clock.advance(ms(1_000));
        }
        assert_eq!(q.work_off(), expected);
    }
}

pub fn b2_hand_outs_that_find_no_key_do_not_count<A: Adapter>() {
    let q = every::<A>(3);
    q.add_at(1, -5);
    q.clock.advance(TEN);
    assert_eq!(q.work_off(), [1]);
    (0..5).for_each(|_| q.is_idle());
    q.add_at(1, -5);
    q.clock.advance(TEN);
    add(&q, [2, 3, 4], 5);
    assert_eq!(q.work_off(), [2, 3, 1, 4]);
}

pub fn b7_a_pause_of_the_queue_ages_no_key<A: Adapter>() {
    let q = Subject::<A>::with_priorities(Some(TEN));
    q.add_at(1, -5);
    q.ask_at(2, after(40), -6);
    q.clock.advance(ms(4));
    for pause in 0..3 {
        assert!(q.pause());
        assert!(q.pause(), "pauses do not add up");
        q.clock.advance(ms(50));
        assert!(q.resume());
        // 1 is 4, 5 and 6 ms old, and 2, whose timer fired during the first pause, as it ended was new
        q.add_at(10 + pause, 5);
        sound(q.take_at(10 + pause, 5).done());
        q.clock.advance(ms(1));
    }
    q.clock.advance(ms(3));
    add(&q, 20..28, 5);
    assert_eq!(work(&q, 8), [1, 20, 21, 22, 23, 24, 25, 26]);
    q.clock.advance(ms(3));
    q.add_at(28, 5);
    assert_eq!(work(&q, 3), [27, 28, 2], "2 is 9 ms old, so it goes by its priority");
    q.ask_at(2, after(5), -6);
    q.clock.advance(ms(7));
    assert!(q.pause(), "a look: the timer fires, and the key is 2 ms old");
    q.clock.advance(ms(50));
    assert!(q.resume());
    q.clock.advance(ms(7));
    q.add_at(30, 5);
    sound(q.take_at(30, 5).done());
    q.clock.advance(ms(1));
    q.add_at(31, 5);
    assert_eq!(q.work_off(), [2, 31], "it is overdue, and the hand-outs of others have been 7 and more");
}

pub fn b7_a_pause_of_a_group_ages_none_of_its_keys<A: Adapter>() {
    for fair in [groups(), Fair { within: true, ..groups() }] {
        let q = Subject::<A>::with_groups(fair);
        q.add_at(11, -5);
        q.clock.advance(ms(6));
        assert!(q.pause_group(11));
        q.clock.advance(ms(50));
        // it becomes ready during the pause
        q.add_at(12, -4);
        q.clock.advance(ms(50));
        assert!(q.resume_group(11));
        q.add_at(13, 5);
        assert_eq!(work(&q, 1), [13]);
        q.clock.advance(ms(4));
        q.add_at(13, 5);
        assert_eq!(q.work_off(), [11, 13, 12]);
    }
}

pub fn b7_pauses_of_a_group_and_of_the_queue_that_overlap_count_once<A: Adapter>() {
    for within in [false, true] {
        let q = Subject::<A>::with_groups(Fair { within, ..groups() });
        q.add_at(111, -5);
        q.clock.advance(ms(5));
        // the group, the queue and the group again, each from within the pause before to after it
        assert!(q.pause_group(111));
        q.clock.advance(ms(10));
        assert!(q.pause());
        q.clock.advance(ms(10));
        assert!(q.resume_group(111) && q.pause_group(111));
        q.clock.advance(ms(10));
        assert!(q.resume());
        q.clock.advance(ms(10));
        assert!(q.resume_group(111));
        q.clock.advance(ms(4));
        q.add_at(112, 5);
        assert_eq!(work(&q, 1), [112], "9 ms old, within {within}");
        q.clock.advance(ms(1));
        q.add_at(112, 5);
        assert_eq!(q.work_off(), [111, 112], "10 ms old, within {within}");
    }
}

pub fn b7_with_max_wait_a_resumed_key_ages_anew<A: Adapter>() {
    let q = Subject::<A>::with_priorities(Some(TEN));
    q.add_at(1, -1);
    q.clock.advance(ms(9));
    assert!(q.pause_key(1));
    q.clock.advance(TEN);
    q.add_at(2, 5);
    assert!(q.resume_key(1));
    q.clock.advance(ms(9));
    drop(q.take_at(2, 5));
    q.clock.advance(ms(1));
    q.add_at(2, 5);
    assert_eq!(q.work_off(), [1, 2]);
}

pub fn b3_without_priorities_max_wait_changes_nothing<A: Adapter>() {
    let fair = Fair { max_wait: Some(MaxWait::of(TEN)), ..Fair::of(Grouping::of(10)) };
    let q = Subject::<A>::with_groups(fair);
    add(&q, [11, 12, 13], 0);
    q.clock.advance(TEN);
    add(&q, [21, 22], 0);
    assert_eq!(q.work_off(), [11, 21, 12, 22, 13]);
}

pub fn b3_with_max_wait_an_overdue_key_waits_for_the_turn_of_its_group<A: Adapter>() {
    let q = Subject::<A>::with_groups(groups());
    // both levels have their turns, and so has each group at each of them
    add(&q, [11, 12, 13, 14, 15, 16, 21, 31, 32], -5);
    q.clock.advance(TEN);
    add(&q, 110..119, 5);
    add(&q, 120..150, 5);
    let order = work(&q, 48);
    let old: Vec<_> = order.iter().step_by(8).copied().collect();
    assert_eq!(old, [11, 21, 31, 12, 32, 13], "one of every 8, and groups in turn");
    let urgent: Vec<_> = order.iter().filter(|key| **key >= 100).copied().collect();
    let turns = |key: u64| key % 10 * 10 + key / 10 - 11;
    assert!(urgent.iter().map(|key| turns(*key)).is_sorted(), "groups take turns as ever: {urgent:?}");
}

pub fn b3_with_priorities_within_groups_one_of_every_8_hand_outs_of_a_group_goes_to_its_oldest<A: Adapter>() {
    let q = Subject::<A>::with_groups(Fair { within: true, ..groups() });
    add(&q, [11, 12], -5);
    add(&q, [21], -5);
    q.clock.advance(TEN);
    add(&q, 110..120, 5);
    add(&q, 10..11, 5);
    add(&q, 13..20, 5);
    add(&q, 22..30, 5);
    let order = work(&q, 100);
    let of = |group: u64| order.iter().copied().filter(|key| key / 10 == group).collect::<Vec<_>>();
    assert_eq!(of(1), [11, 10, 13, 14, 15, 16, 17, 18, 12, 19]);
    assert_eq!(of(2), [21, 22, 23, 24, 25, 26, 27, 28, 29]);
    assert_eq!(of(11), (110..120).collect::<Vec<_>>());
    let first: Vec<_> = order[..24].iter().map(|key| key / 10).collect();
    assert_eq!(first, [1, 2, 11].repeat(8), "and the turns of groups are as without max_wait");
}

pub fn b3_a_group_that_has_no_ready_key_begins_its_hand_outs_anew<A: Adapter>() {
    let q = Subject::<A>::with_groups(Fair { within: true, ..groups() });
    for _ in 0..3 {
        q.add_at(11, -5);
        q.clock.advance(TEN);
        add(&q, [12, 13], 5);
        assert_eq!(q.work_off(), [11, 12, 13]);
    }
}

pub fn b3_with_max_wait_a_group_at_its_cap_is_passed_over_and_the_oldest_of_the_others_goes<A: Adapter>() {
    let max_wait = Some(MaxWait { every: 2, ..MaxWait::of(TEN) });
    let capped = Grouping { caps: [1; 4], ..Grouping::of(10) };
    let q = Subject::<A>::with_groups(Fair { groups: capped, max_wait, ..groups() });
    for (key, priority) in [(11, 0), (12, 0), (21, -5), (31, 7)] {
        q.add_at(key, priority);
        q.clock.advance(ms(1));
    }
    q.clock.advance(ms(8));
    let eleven = q.take(11);
    sound(q.take(31).done());
    sound(q.take(21).done());
    q.is_idle();
    sound(eleven.done());
    assert_eq!(q.work_off(), [12]);
}

pub fn b3_an_overdue_key_goes_by_its_age_and_not_by_when_it_entered_the_line<A: Adapter>() {
    let q = Subject::<A>::with_groups(groups());
    // the one that came first was paused for long, so it is younger
    q.add_at(11, -5);
    assert!(q.pause_group(11));
    q.clock.advance(ms(50));
    q.add_at(21, -6);
    q.clock.advance(ms(5));
    assert!(q.resume_group(11));
    q.clock.advance(ms(5));
    q.add_at(31, 5);
    assert_eq!(q.work_off(), [21, 31, 11]);
}
