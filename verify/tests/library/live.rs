//! B13 and B14: rules that are changed on a live queue, and a rate for each group.

use requeue::{Add, BuildError, FakeClock, GroupRules, Rate, Refused, Scope, WorkQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn rate(keys: f64, burst: u32) -> Option<Rate> {
    Some(Rate::per_second(keys, burst).unwrap())
}

/// Number of keys that are handed out now.
fn takes(q: &WorkQueue<u32>) -> usize {
    q.try_get_many(1_000).map_or(0, |items| items.len())
}

fn filled(clock: &FakeClock) -> WorkQueue<u32> {
    let q = WorkQueue::builder().clock(clock.clone()).build().unwrap();
    q.add_many(0..1_000).all().unwrap();
    q
}

#[test]
fn b13_a_rate_begins_and_ends_on_a_queue_without_one() {
    let clock = FakeClock::new();
    let q = filled(&clock);
    clock.advance(SECOND);
    q.set_rate(rate(1.0, 3));
    assert_eq!((takes(&q), takes(&q)), (3, 0));
    clock.advance(2 * SECOND);
    assert_eq!(takes(&q), 2);
    q.set_rate(None);
    assert_eq!(takes(&q), 995);
    assert!(!q.lift_rate());
}

#[test]
fn b13_a_change_of_rate_brings_no_burst() {
    let clock = FakeClock::new();
    let q = filled(&clock);
    q.set_rate(rate(1.0, 10));
    assert_eq!(takes(&q), 10);
    for n in 1..100 {
        q.set_rate(rate(1.0, 10 + n));
        assert_eq!(takes(&q), 0);
    }
    clock.advance(5 * SECOND);
    q.set_rate(rate(1.0, 2));
    assert_eq!(takes(&q), 2, "the new burst holds no more");
    q.set_rate(rate(1_000.0, 2));
    clock.advance(Duration::from_millis(1));
    assert_eq!(takes(&q), 1);
}

#[test]
fn b13_a_getter_that_waits_for_a_token_is_woken_by_a_faster_rate() {
    let q = WorkQueue::builder().rate(0.001, 1).build().unwrap();
    q.add_many([1, 2]).all().unwrap();
    drop(q.try_get().unwrap());
    std::thread::scope(|s| {
        let getter = s.spawn(|| q.get_blocking().map(|item| *item.key()));
        while q.stats().waiters == 0 {
            std::thread::yield_now();
        }
        q.set_rate(rate(1e9, 1));
        assert_eq!(getter.join().unwrap(), Some(2));
    });
}

#[test]
fn b13_a_bound_grows_for_those_who_wait_and_shrinks_without_loss() {
    let q = WorkQueue::builder().bound(2).build().unwrap();
    q.add_many([1, 2]).all().unwrap();
    std::thread::scope(|s| {
        let adder = s.spawn(|| q.add_when_room(3, Add::now()).wait().map(drop));
        while q.explain(&3).waiting_for_room == 0 {
            std::thread::yield_now();
        }
        assert!(q.set_bound(3));
        adder.join().unwrap().unwrap();
    });
    assert!(q.set_bound(1));
    assert_eq!(q.len(), 3);
    drop(q.try_get_many(2).unwrap());
    assert_eq!(q.add(4).unwrap_err().reason, Refused::Full);
    q.try_get().unwrap().done();
    q.add(4).unwrap();
    assert!(q.set_bound(0), "counts as 1");
    assert_eq!(q.add(5).unwrap_err().reason, Refused::Full);
    assert!(!WorkQueue::<u32>::new().set_bound(5));
}

#[test]
fn b13_max_wait_counts_from_the_next_hand_out() {
    let clock = FakeClock::new();
    let q = WorkQueue::builder().clock(clock.clone()).priorities().max_wait(Duration::MAX).build().unwrap();
    q.add(1_u32).unwrap();
    clock.advance(60 * SECOND);
    for key in 2..5 {
        q.add_with(key, Add::now().priority(1)).unwrap();
    }
    assert_eq!(*q.try_get().unwrap().key(), 2);
    assert!(q.set_max_wait(60 * SECOND));
    assert_eq!(*q.try_get().unwrap().key(), 1);
    assert!(!WorkQueue::<u32>::new().set_max_wait(SECOND));
}

fn of_ten(key: &u32) -> u32 {
    key / 10
}

#[test]
fn b14_each_group_has_its_own_rate() {
    let clock = FakeClock::new();
    let rules = GroupRules::new().rate_of(|group: &u32| match group {
        0 => None,
        1 => rate(1.0, 1),
        _ => rate(2.0, 2),
    });
    let q = WorkQueue::builder().clock(clock.clone()).group_by_with(of_ten, rules).build().unwrap();
    q.add_many(0..30).all().unwrap();
    let mut by_group = [0; 3];
    for item in q.try_get_many(30).unwrap() {
        by_group[of_ten(item.key()) as usize] += 1;
    }
    assert_eq!(by_group, [10, 1, 2]);
    clock.advance(SECOND);
    assert_eq!(takes(&q), 3);
}

#[test]
fn b14_what_is_no_rate_is_refused_when_the_queue_is_built() {
    let rules = GroupRules::new().rate(0.0, 1);
    let built = WorkQueue::<u32>::builder().group_by_with(of_ten, rules.clone()).build();
    assert!(matches!(built, Err(BuildError::Rate { .. })));
    let rules = rules.rate_of(|_| rate(1.0, 1));
    assert!(WorkQueue::<u32>::builder().group_by_with(of_ten, rules).build().is_ok());
}

#[test]
fn b13_groups_follow_the_functions_of_their_rules() {
    let clock = FakeClock::new();
    let [weight, cap, keys] = [1, 1, 0].map(|n| Arc::new(AtomicU32::new(n)));
    let rules = {
        let [weight, cap, keys] = [&weight, &cap, &keys].map(Arc::clone);
        GroupRules::new()
            .weight(move |_| weight.load(Relaxed))
            .cap_of(move |_| cap.load(Relaxed) as usize)
            .rate_of(move |group: &u32| match keys.load(Relaxed) {
                n if n > 0 && *group == 0 => rate(f64::from(n), 1),
                _ => None,
            })
    };
    let q = WorkQueue::builder().clock(clock.clone()).group_by_with(of_ten, rules).build().unwrap();
    q.add_many(0..20).all().unwrap();
    let held = (q.try_get().unwrap(), q.try_get().unwrap());
    assert_eq!((*held.0.key(), *held.1.key()), (0, 10));
    assert_eq!(takes(&q), 0);

    cap.store(100, Relaxed);
    weight.store(2, Relaxed);
    assert_eq!(takes(&q), 0, "they are asked when they are told to be");
    q.reload_group_rules();
    let order: Vec<_> = q.try_get_many(4).unwrap().iter().map(|item| *item.key()).collect();
    assert_eq!(order, [1, 2, 11, 12]);

    cap.store(1, Relaxed);
    q.reload_group_rules();
    assert_eq!(takes(&q), 0, "one of each is still held");
    drop(held);

    cap.store(100, Relaxed);
    keys.store(1, Relaxed);
    q.reload_group_rules();
    assert_eq!(takes(&q), 1 + 7, "a token of the first group, and all of the other");
    keys.store(10, Relaxed);
    q.reload_group_rules();
    assert_eq!(takes(&q), 0, "a change brings no token");
    clock.advance(Duration::from_millis(100));
    assert_eq!(takes(&q), 1, "by the new rate");
    keys.store(0, Relaxed);
    q.reload_group_rules();
    assert_eq!(takes(&q), 5);
    assert!(q.is_empty());
}

#[test]
fn b13_a_paused_group_stays_paused_when_its_rules_are_asked_anew() {
    let q = WorkQueue::builder().group_by_with(of_ten, GroupRules::new().cap_of(|_| 5)).build().unwrap();
    q.add_many([1, 11]).all().unwrap();
    q.pause(Scope::GroupOf(1));
    q.reload_group_rules();
    assert_eq!(takes(&q), 1);
    q.resume(Scope::GroupOf(&1));
    assert_eq!(takes(&q), 1);
}

#[test]
fn b13_a_function_that_panics_leaves_the_groups_before_with_new_rules() {
    let cap = Arc::new(AtomicU32::new(1));
    let read = cap.clone();
    let rules = GroupRules::new().cap_of(move |group: &u32| match read.load(Relaxed) {
        0 if *group == 1 => panic!("no cap"),
        0 => 2,
        n => n as usize,
    });
    let q = WorkQueue::builder().group_by_with(of_ten, rules).build().unwrap();
    q.add_many([1, 2, 11, 12]).all().unwrap();
    let held: Vec<_> = q.try_get_many(4).unwrap().into_iter().collect();
    assert_eq!(held.len(), 2);
    cap.store(0, Relaxed);
    let reload = std::panic::AssertUnwindSafe(|| q.reload_group_rules());
    assert!(std::panic::catch_unwind(reload).is_err());
    let item = q.try_get().unwrap();
    assert_eq!((*item.key(), q.try_get().is_err()), (2, true));
    drop(held);
    drop(item);
    assert_eq!(*q.try_get().unwrap().key(), 12);
}
