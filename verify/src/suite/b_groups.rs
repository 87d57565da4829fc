//! B3: groups that take turns, by weight, and their caps. Key `k` is in group `k / 10`.

use crate::adapter::{
    Accepted, Adapter, Fair, Grouping, Held, Many, Policy, Restored, Said, Subject, Waiters, When, ms, sound,
};
use crate::lockstep::unwind_through;
use crate::probe::Value;
use crate::wake::{Count, block_on};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Poll;

fn tens() -> Grouping {
    Grouping::of(10)
}

fn capped(cap: usize) -> Grouping {
    Grouping { caps: [cap; 4], ..tens() }
}

fn q<A: Adapter>() -> Subject<A> {
    Subject::with_groups(Fair::of(tens()))
}

fn with_cap<A: Adapter>(cap: usize) -> Subject<A> {
    Subject::with_groups(Fair::of(capped(cap)))
}

fn add_all<A: Adapter>(q: &Subject<A>, keys: &[u64]) {
    for key in keys {
        assert_eq!(q.add(*key), Accepted::Ready);
    }
}

fn after(delay: u64) -> When {
    When::After(ms(delay), Policy::Earliest)
}

pub fn b3_groups_take_turns_and_within_a_group_the_first_goes_first<A: Adapter>() {
    let q = q::<A>();
    add_all(&q, &[15, 13, 14, 11, 22, 21, 31]);
    assert_eq!(q.work_off(), [15, 22, 31, 13, 21, 14, 11]);
    // a group that comes stands behind those that wait
    add_all(&q, &[11, 12, 13, 21]);
    sound(q.take(11).done());
    add_all(&q, &[31, 22]);
    assert_eq!(q.work_off(), [21, 12, 31, 22, 13]);
}

pub fn b3_a_queue_whose_keys_are_one_group_is_first_in_first_out<A: Adapter>() {
    let q = q::<A>();
    add_all(&q, &[3, 1, 2]);
    assert_eq!(q.add(3), Accepted::Coalesced);
    assert_eq!(q.work_off(), [3, 1, 2]);
}

pub fn b3_a_group_has_as_many_keys_in_its_turn_as_its_weight_says<A: Adapter>() {
    let q = Subject::<A>::with_groups(Fair::of(Grouping { weights: [1, 3, 2, 0], ..tens() }));
    for key in 0..6 {
        add_all(&q, &[10 + key, 20 + key, 30 + key]);
    }
    // a weight of 0 counts as 1
    let expected = [10, 11, 12, 20, 21, 30, 13, 14, 15, 22, 23, 31, 24, 25, 32, 33, 34, 35];
    assert_eq!(q.work_off(), expected);
}

pub fn b3_a_group_without_a_ready_key_loses_the_rest_of_its_turn<A: Adapter>() {
    let q = Subject::<A>::with_groups(Fair::of(Grouping { weights: [3; 4], ..tens() }));
    add_all(&q, &[11, 21, 22]);
    sound(q.take(11).done());
    add_all(&q, &[11, 12, 13, 14]);
    assert_eq!(q.work_off(), [21, 22, 11, 12, 13, 14]);
    // and a turn that others interrupt by coming goes on
    add_all(&q, &[11, 12, 13, 14]);
    sound(q.take(11).done());
    add_all(&q, &[21]);
    assert_eq!(q.work_off(), [12, 13, 21, 14]);
}

pub fn b3_no_more_keys_of_a_group_are_held_than_its_cap<A: Adapter>() {
    let q = with_cap::<A>(2);
    add_all(&q, &[11, 12, 13, 14, 21]);
    let (eleven, twenty, twelve) = (q.take(11), q.take(21), q.take(12));
    q.is_idle();
    // they are ready all the same
    q.has(2, 3, 0, 0);
    sound(twenty.done());
    q.is_idle();
    sound(eleven.done());
    let thirteen = q.take(13);
    q.is_idle();
    sound(twelve.done());
    sound(thirteen.done());
    assert_eq!(q.work_off(), [14]);
}

pub fn b3_each_group_has_a_cap_of_its_own<A: Adapter>() {
    let tier = Grouping { caps: [usize::MAX, 1, 2, 0], ..tens() };
    let q = Subject::<A>::with_groups(Fair::of(tier));
    for key in 0..4 {
        add_all(&q, &[key, 10 + key, 20 + key, 30 + key]);
    }
    let items = q.take_many(100);
    // a cap of 0 that a function tells counts as 1
    assert_eq!(items.keys(), [0, 10, 20, 30, 1, 21, 2, 3]);
    q.is_idle();
    q.has(8, 8, 0, 0);
    sound(items.done());
    assert_eq!(q.work_off(), [11, 22, 31, 12, 23, 32, 13, 33]);
}

type End<A> = fn(&Subject<A>, <A as Adapter>::Held<'_>);

/// Every way to end a run.
fn ends<A: Adapter>() -> [End<A>; 9] {
    [
        |_, item| sound(item.done()),
        |_, item| sound(item.succeed()),
        |_, item| sound(item.give_up()),
        |_, item| assert!(sound(item.retry_after(ms(50))).is_ok()),
        |_, item| assert!(sound(item.again(ms(50))).is_ok()),
        |_, item| drop(item),
        |_, item| drop(item.into_owned()),
        |q, item| {
            let (key, _) = sound(item.detach());
            assert!(q.done(key.id));
        },
        |q, item| {
            assert!(q.done(item.key().id));
            drop(item);
        },
    ]
}

pub fn b3_every_end_of_a_run_makes_room_under_the_cap<A: Adapter>() {
    for end in ends::<A>() {
        let q = with_cap::<A>(1);
        add_all(&q, &[11, 12, 13]);
        for key in [11, 12] {
            let item = q.take(key);
            q.is_idle();
            end(&q, item);
        }
        let thirteen = q.take(13);
        q.is_idle();
        drop(thirteen);
    }
}

pub fn b3_a_detached_run_and_an_inert_guard_count_for_the_cap_as_long_as_the_run_goes_on<A: Adapter>() {
    let q = with_cap::<A>(1);
    add_all(&q, &[11, 12]);
    let (_, _) = sound(q.take(11).detach());
    q.is_idle();
    assert!(q.done(11));
    let twelve = q.take(12);
    assert!(q.done(12));
    q.add(13);
    let thirteen = q.take(13);
    // its run has ended long ago
    drop(twelve);
    q.add(14);
    q.is_idle();
    sound(thirteen.done());
    assert_eq!(q.work_off(), [14]);
}

pub fn b3_a_group_that_leaves_its_cap_comes_behind_those_that_wait<A: Adapter>() {
    let q = with_cap::<A>(1);
    add_all(&q, &[11, 12, 21, 31]);
    let eleven = q.take(11);
    sound(eleven.done());
    assert_eq!(q.work_off(), [21, 31, 12]);
}

pub fn b3_a_getter_that_waits_while_a_group_is_at_its_cap_is_woken_by_the_end_of_a_run<A: Adapter>() {
    let q = with_cap::<A>(1);
    add_all(&q, &[11, 12]);
    let eleven = q.take(11);
    let (count, mut getting) = (Count::new(), q.getting());
    assert!(count.poll(&mut getting).is_pending());
    // more keys of the same group are none for it
    add_all(&q, &[13]);
    assert!(count.poll(&mut getting).is_pending());
    let woken = count.wakes();
    sound(eleven.done());
    assert!(count.wakes() > woken, "nobody was woken");
    let Poll::Ready(item) = count.poll(&mut getting) else { panic!("a key may be handed out") };
    assert_eq!(sound(item).map(|item| item.key().id), Some(12));
}

pub fn b3_threads_and_tasks_that_wait_share_what_the_caps_leave<A: Adapter>() {
    const KEYS: u64 = 30;
    let q = with_cap::<A>(2);
    let runs = AtomicU64::new(0);
    // Runs that go on, by group. A run is counted after its key is handed out and until before it
    // ends, so that the count is never above the truth. (The states of ten keys, read one after
    // another, may show three runs where each instant had two.)
    let running: [AtomicU64; 3] = Default::default();
    std::thread::scope(|scope| {
        for asynchronous in [false, true, false, true] {
            let (q, runs, running) = (&q, &runs, &running);
            scope.spawn(move || {
                loop {
                    let item = if asynchronous { sound(block_on(q.getting())) } else { q.get_or_end() };
                    let Some(item) = item else { return };
                    let running = &running[item.key().id as usize / 10];
                    let before = running.fetch_add(1, SeqCst);
                    assert!(before < 2, "more are held than the cap");
                    // long enough that another thread gets its turn during the run
                    std::thread::yield_now();
                    running.fetch_sub(1, SeqCst);
                    runs.fetch_add(1, SeqCst);
                    sound(item.done());
                }
            });
        }
        for key in 0..KEYS {
            q.add(key);
        }
        let drained = sound(q.queue.drain_wait(Waiters::Drop, None));
        assert!(drained.complete);
    });
    assert_eq!(runs.into_inner(), KEYS);
}

pub fn b3_while_a_group_waits_each_other_is_served_at_most_its_weight<A: Adapter>() {
    let weights = [2, 1, 3, 1];
    let q = Subject::<A>::with_groups(Fair::of(Grouping { weights, ..tens() }));
    // how often each was served while another one waits
    let mut passed: [Option<[u32; 4]>; 4] = [None; 4];
    let mut random = 7_u64;
    for _ in 0..600 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (action, key) = (random >> 33, random >> 40);
        // group 0 is noisy, and groups come and go
        let key = if action % 5 < 2 { key % 10 } else { key % 40 };
        if action % 7 < 4 {
            q.add(key);
            passed[key as usize / 10].get_or_insert_default();
        } else if let Ok(item) = q.try_get() {
            let group = item.key().id as usize / 10;
            sound(item.done());
            for (other, passed) in passed.iter_mut().enumerate().filter(|(other, _)| *other != group) {
                let Some(passed) = passed else { continue };
                passed[group] += 1;
                assert!(passed[group] <= weights[group], "{other} waits for {group}");
            }
            let left = (0..10).any(|key| q.state(group as u64 * 10 + key).is_some_and(|seen| seen.ready));
            passed[group] = left.then_some([0; 4]);
        }
    }
}

pub fn b3_what_groups_get_by_weight_never_drifts_apart_by_more_than_two<A: Adapter>() {
    let weights = [4, 1, 7, 2];
    let q = Subject::<A>::with_groups(Fair::of(Grouping { weights, ..tens() }));
    (0..40).for_each(|key| _ = q.add(key));
    let mut served = [0_f64; 4];
    let mut apart = [[(0_f64, 0_f64); 4]; 4];
    for _ in 0..400 {
        let item = q.try_get().expect("all groups always wait");
        let key = item.key().id;
        sound(item.done());
        q.add(key);
        served[key as usize / 10] += 1.0 / f64::from(weights[key as usize / 10]);
        for one in 0..4 {
            for other in 0..one {
                let (least, most) = &mut apart[one][other];
                let now = served[one] - served[other];
                (*least, *most) = (least.min(now), most.max(now));
                assert!(*most - *least <= 2.0, "{one} and {other}: {served:?}");
            }
        }
    }
}

pub fn b3_a_noisy_group_delays_others_by_its_weight_and_not_by_its_keys<A: Adapter>() {
    let q = Subject::<A>::with_groups(Fair::of(Grouping::of(1_000)));
    (0..500).for_each(|key| _ = q.add(key));
    for key in [1_000, 2_000] {
        q.add(key);
        let runs: Vec<_> = std::iter::repeat_with(|| q.take_many(1)).take(2).collect();
        assert!(runs.into_iter().any(|items| items.keys() == [key]), "at most one key before it");
    }
}

pub fn b3_by_default_the_highest_priority_goes_first_and_groups_take_turns_within_it<A: Adapter>() {
    let q = Subject::<A>::with_groups(Fair { priorities: true, ..Fair::of(tens()) });
    for (key, priority) in [(11, 0), (12, 5), (13, 5), (21, 0), (22, 5), (31, -1), (14, 0), (32, 5)] {
        q.add_at(key, priority);
    }
    assert_eq!(q.work_off(), [12, 22, 32, 13, 11, 21, 14, 31]);
    // a raise brings the key to the turns of its new priority, and the item tells it
    add_all(&q, &[11, 12, 21, 22]);
    q.add_at(12, 3);
    q.add_at(22, 3);
    sound(q.take_at(12, 3).done());
    assert_eq!(q.work_off(), [22, 11, 21]);
}

pub fn b3_priorities_within_groups_do_not_change_whose_turn_it_is<A: Adapter>() {
    let fair = Fair { priorities: true, within: true, ..Fair::of(tens()) };
    let q = Subject::<A>::with_groups(fair);
    for (key, priority) in [(11, 0), (12, 5), (13, 5), (21, -3), (22, -2), (14, 7), (31, -9)] {
        q.add_at(key, priority);
    }
    // a raised key keeps its age among its equals, and its group its place
    q.add_at(11, 5);
    q.add_at(31, 9);
    assert_eq!(q.work_off(), [14, 22, 31, 11, 21, 12, 13]);
}

pub fn b3_a_group_at_its_cap_is_skipped_at_every_priority<A: Adapter>() {
    for within in [false, true] {
        let fair = Fair { priorities: true, within, ..Fair::of(capped(1)) };
        let q = Subject::<A>::with_groups(fair);
        for (key, priority) in [(11, 9), (12, 8), (13, 7), (21, 0)] {
            q.add_at(key, priority);
        }
        let eleven = q.take_at(11, 9);
        sound(q.take_at(21, 0).done());
        q.is_idle();
        q.add_at(13, 10);
        sound(eleven.done());
        assert_eq!(q.work_off(), [13, 12]);
    }
}

pub fn b3_turns_and_caps_hold_within_a_batch<A: Adapter>() {
    let q = with_cap::<A>(2);
    let added = q.add_many([11, 12, 13, 14, 21, 22, 31]);
    assert_eq!(added, [Accepted::Ready; 7]);
    let items = q.take_many(4);
    assert_eq!(items.keys(), [11, 21, 31, 12]);
    let more = q.take_many(4);
    assert_eq!(more.keys(), [22]);
    assert!(q.try_get_many(4).is_err());
    sound(items.succeed());
    assert_eq!(q.take_many(4).keys(), [13, 14]);
}

pub fn b3_a_dirty_key_goes_to_the_back_of_its_group_when_its_run_ends<A: Adapter>() {
    let q = with_cap::<A>(1);
    add_all(&q, &[11, 12, 21]);
    let eleven = q.take(11);
    assert_eq!(q.add(11), Accepted::Dirty);
    q.has(2, 1, 1, 0);
    sound(eleven.done());
    assert_eq!(q.work_off(), [21, 12, 11]);
}

pub fn b3_timers_and_retries_bring_a_key_to_its_group<A: Adapter>() {
    let q = q::<A>();
    add_all(&q, &[11, 12]);
    q.ask_at(21, after(5), 0);
    q.ask_at(13, after(5), 0);
    q.add_rate_limited(31);
    assert!(sound(q.take(11).retry_after(ms(5))).is_ok());
    q.clock.advance(ms(5));
    assert_eq!(q.work_off(), [12, 31, 21, 13, 11]);
}

pub fn b3_a_cancelled_key_leaves_its_group_and_frees_no_place_under_the_cap<A: Adapter>() {
    let q = with_cap::<A>(1);
    add_all(&q, &[11, 12, 21]);
    assert!(q.cancel(11).is_some());
    let twelve = q.take(12);
    add_all(&q, &[13]);
    assert_eq!(q.add(12), Accepted::Dirty);
    assert!(q.cancel(12).is_some());
    sound(q.take(21).done());
    q.is_idle();
    sound(twelve.done());
    assert!(q.cancel(13).is_some());
    q.is_idle();
    q.has(0, 0, 0, 0);
}

pub fn b3_a_restored_key_is_in_its_group<A: Adapter>() {
    let q = with_cap::<A>(1);
    add_all(&q, &[11]);
    let due = q.clock.at() + ms(5);
    let restored = |due| Restored { failures: 0, attempt: 1, due, priority: 0 };
    assert!(q.restore(12, restored(None), None).is_ok());
    assert!(q.restore(21, restored(Some(due)), Some(Value::of(1))).is_ok());
    let eleven = q.take(11);
    q.is_idle();
    q.clock.advance(ms(5));
    sound(q.take(21).done());
    sound(eleven.done());
    assert_eq!(q.work_off(), [12]);
}

pub fn b3_runs_that_a_panic_puts_back_make_room_under_the_cap<A: Adapter>() {
    let q = with_cap::<A>(2);
    add_all(&q, &[11, 12, 13]);
    let items = q.take_many(3);
    assert_eq!(items.keys(), [11, 12]);
    unwind_through(items);
    q.has(3, 0, 0, 0);
    assert_eq!(q.work_off(), [13, 11, 12]);
}

pub fn b3_caps_hold_in_a_drain_and_it_is_complete_all_the_same<A: Adapter>() {
    for waiters in [Waiters::Drop, Waiters::RunNow, Waiters::Wait] {
        let q = with_cap::<A>(1);
        add_all(&q, &[11, 12, 13]);
        q.add_after(14, ms(5));
        let count = Count::new();
        let mut drain = q.drain(waiters);
        assert!(count.poll(&mut drain).is_pending());
        let mut ended = 0;
        loop {
            match q.try_get() {
                Ok(item) => {
                    if !q.is_empty() {
                        q.is_idle();
                    }
                    sound(item.done());
                    ended += 1;
                }
                Err(crate::adapter::Nothing::Empty) => q.clock.advance(ms(5)),
                Err(_) => break,
            }
        }
        let Poll::Ready(drained) = count.poll(&mut drain) else { panic!("the drain is over") };
        let drained = sound(drained);
        let dropped = usize::from(waiters == Waiters::Drop);
        assert_eq!((drained.complete, drained.unfinished), (dropped == 0, dropped));
        assert_eq!(ended, 4 - dropped);
    }
}

pub fn b3_after_shut_down_a_getter_waits_for_the_cap_and_is_told_the_end_at_last<A: Adapter>() {
    let q = with_cap::<A>(1);
    add_all(&q, &[11, 12]);
    let eleven = q.take(11);
    q.shut_down();
    let (count, mut getting) = (Count::new(), q.getting());
    assert!(count.poll(&mut getting).is_pending(), "twelve is ready: that is not the end");
    sound(eleven.done());
    let Poll::Ready(item) = count.poll(&mut getting) else { panic!("a key may be handed out") };
    let item = sound(item).expect("a key, not the end");
    assert_eq!(item.key().id, 12);
    drop(getting);
    sound(item.done());
    q.is_over();
}

pub fn b3_groups_come_and_go_and_a_group_that_comes_back_is_a_new_one<A: Adapter>() {
    let q = Subject::<A>::with_groups(Fair::of(Grouping { weights: [3; 4], caps: [2; 4], ..tens() }));
    for round in 0..40 {
        let base = round * 1_000;
        add_all(&q, &[base + 11, base + 12, base + 13, base + 21]);
        let held = [q.take(base + 11), q.take(base + 12), q.take(base + 21)];
        q.is_idle();
        drop(held);
        assert_eq!(q.work_off(), [base + 13]);
        q.has(0, 0, 0, 0);
    }
}

pub fn b3_a_paused_key_leaves_its_group_and_a_resumed_one_stands_at_its_back<A: Adapter>() {
    let q = with_cap::<A>(1);
    add_all(&q, &[11, 12, 21]);
    assert!(q.pause_key(11));
    // of a key that is not known, and of one that is held
    assert!(q.pause_key(13));
    let twelve = q.take(12);
    assert!(q.pause_key(12));
    assert_eq!(q.add(13), Accepted::Ready);
    sound(q.take(21).done());
    assert!(q.resume_key(11));
    q.is_idle();
    sound(twelve.done());
    assert!(q.resume_key(13) && q.resume_key(12));
    q.has(2, 0, 0, 0);
    assert_eq!(q.work_off(), [11, 13]);
}

pub fn b3_a_queue_with_groups_alone_refuses_a_priority<A: Adapter>() {
    let q = q::<A>();
    assert!(q.say(Said::from((11.into(), When::Now, None)).priority(1)).is_err());
    q.has(0, 0, 0, 0);
}
