//! B3: of groups what the suite cannot ask: how a queue is built, users' functions, what is
//! kept of groups.

use crate::Stack;
use requeue::{Add, BuildError, FakeClock, GroupRules, Order, Run, Scope, UnfinishedKey, WorkQueue, Worker};
use requeue_verify::adapter::ms;
use requeue_verify::limits::TestClock;
use requeue_verify::twins::do_the_same;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn tens(key: &u64) -> u64 {
    key / 10
}

fn order<K: Clone + std::hash::Hash + Eq>(q: &WorkQueue<K>) -> Vec<K> {
    std::iter::from_fn(|| q.try_get().ok()).map(|item| item.key().clone()).collect()
}

#[test]
fn b3_groups_and_another_order_are_refused_when_the_queue_is_built() {
    let builder = || WorkQueue::<u64>::builder().group_by(tens);
    let built = [
        builder().order(Order::Lifo).build(),
        builder().order(Order::Custom(Box::new(Stack(Vec::new())))).build(),
        builder().priorities().order(Order::Lifo).build(),
    ];
    for built in built {
        let error = built.unwrap_err();
        assert_eq!(error, BuildError::OrderAndGroups);
        assert!(error.to_string().contains("remove .order(…), or .group_by(…)"));
    }
    assert!(builder().order(Order::Fifo).build().is_ok(), "it is first in first out");
    assert!(builder().max_wait(ms(1)).build().is_ok(), "groups pass keys over");
}

#[test]
fn b3_a_cap_of_0_and_priorities_within_nothing_are_refused_when_the_queue_is_built() {
    let builder = WorkQueue::<u64>::builder;
    let error = builder().group_by_with(tens, GroupRules::new().cap(0)).build().unwrap_err();
    assert_eq!(error, BuildError::GroupCapZero);
    assert!(error.to_string().contains("group cap must be at least 1"));
    let built = [
        builder().priorities_within_groups().build(),
        builder().priorities().priorities_within_groups().build(),
        builder().group_by(tens).priorities_within_groups().build(),
    ];
    for built in built {
        let error = built.unwrap_err();
        assert_eq!(error, BuildError::NothingWithinGroups);
        assert!(error.to_string().contains("call .priorities() and .group_by(…) on the builder"));
    }
}

#[test]
fn b3_a_weight_of_0_and_a_cap_of_0_that_functions_tell_count_as_1() {
    let rules = GroupRules::new().weight(|_: &u64| 0).cap_of(|_| 0);
    let q = WorkQueue::<u64>::builder().group_by_with(tens, rules).build().unwrap();
    q.add_many([11, 12, 21]).all().unwrap();
    let items = q.try_get_many(9).unwrap();
    assert_eq!(items.iter().map(|item| *item.key()).collect::<Vec<_>>(), [11, 21]);
    drop(items);
    assert_eq!(order(&q), [12]);
}

#[test]
fn b3_the_group_function_is_called_once_for_each_key_that_becomes_known() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let group = move |key: &u64| {
        counted.fetch_add(1, Ordering::SeqCst);
        key / 10
    };
    let clock = FakeClock::new();
    let q = WorkQueue::<u64>::builder().clock(clock.clone()).group_by(group).build().unwrap();
    let called = |call: &dyn Fn()| {
        let before = calls.load(Ordering::SeqCst);
        call();
        calls.load(Ordering::SeqCst) - before
    };
    assert_eq!(called(&|| _ = q.add(11)), 1);
    assert_eq!(called(&|| _ = q.add(11)), 0);
    assert_eq!(called(&|| _ = q.add_after(11, ms(5))), 0);
    assert_eq!(called(&|| _ = q.add_after(12, ms(5))), 1);
    assert_eq!(called(&|| _ = q.add_many([11, 12, 13])), 1);
    clock.advance(ms(5));
    let run = || {
        let item = q.try_get().unwrap();
        q.add(*item.key()).unwrap();
        item.retry_after(ms(1)).unwrap();
    };
    assert_eq!(called(&run), 0);
    assert_eq!(called(&|| _ = q.cancel(&13)), 0);
    assert_eq!(called(&|| _ = q.add(13)), 1, "it is known anew");
}

#[test]
fn b3_a_group_function_that_panics_reaches_the_caller_and_the_trigger_is_not_accepted() {
    let group = |key: &u64| {
        assert!(key % 10 < 7, "no group");
        key / 10
    };
    let merge = |older: &mut Vec<u64>, newer: Vec<u64>| older.extend(newer);
    let clock = FakeClock::new();
    for priorities in [false, true] {
        let builder = WorkQueue::<u64, Vec<u64>>::merging(merge).clock(clock.clone()).group_by(group);
        let builder = if priorities { builder.priorities() } else { builder };
        let q = builder.build().unwrap();
        q.add_value(11, vec![1]).unwrap();
        let triggers: [&dyn Fn(); 7] = [
            &|| _ = q.add(17),
            &|| _ = q.add_value(17, vec![1]),
            &|| _ = q.add_after(17, ms(5)),
            &|| _ = q.add_rate_limited(17),
            &|| _ = q.add_with(17, Add::after(ms(5)).value(vec![2])),
            &|| {
                let mut failed = UnfinishedKey::new(17);
                failed.failures = 3;
                _ = q.restore(failed);
            },
            &|| _ = q.add_many([12, 17, 13]),
        ];
        for trigger in triggers {
            assert!(catch_unwind(AssertUnwindSafe(trigger)).is_err());
            assert_eq!((q.state(&17), q.num_requeues(&17), q.stats().waiting), (None, 0, 0));
        }
        // those before it in the batch were accepted, and those behind it not
        assert_eq!((q.len(), q.stats().known), (2, 2));
        q.add(21).unwrap();
        let runs: Vec<_> = std::iter::from_fn(|| q.try_get().ok())
            .map(|mut item| (*item.key(), item.take_value()))
            .collect();
        assert_eq!(runs, [(11, Some(vec![1])), (21, None), (12, None)]);
        assert_eq!(q.stats().known, 0);
    }
}

#[test]
fn b3_a_weight_or_a_cap_that_panics_leaves_no_group() {
    fn odd(group: &u64) -> bool {
        assert!(group % 2 == 0, "no rule");
        true
    }
    for rules in [
        GroupRules::new().weight(|group| u32::from(odd(group))),
        GroupRules::new().cap_of(|group| usize::from(odd(group))),
    ] {
        let q = WorkQueue::<u64>::builder().group_by_with(tens, rules).build().unwrap();
        q.add(20).unwrap();
        for _ in 0..3 {
            assert!(catch_unwind(AssertUnwindSafe(|| q.add(10))).is_err());
        }
        q.add(21).unwrap();
        assert_eq!(order(&q), [20, 21]);
    }
}

/// A group that counts how many of its like there are.
struct Tenant {
    number: u64,
    _counted: Arc<()>,
}

impl PartialEq for Tenant {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Tenant {}

impl std::hash::Hash for Tenant {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

#[test]
fn b3_nothing_is_kept_of_a_group_without_known_keys() {
    let alive = Arc::new(());
    let counted = Arc::clone(&alive);
    let of = move |key: &u64| Tenant { number: key / 10, _counted: Arc::clone(&counted) };
    let q = WorkQueue::<u64>::builder().group_by(of).build().unwrap();
    // the function has it, and so has this test
    let groups = || Arc::strong_count(&alive) - 2;
    q.add_many(0..1_000).all().unwrap();
    assert_eq!(groups(), 100);
    let items = q.try_get_many(usize::MAX).unwrap();
    assert_eq!(groups(), 100, "held keys are known");
    drop(items);
    assert_eq!(groups(), 0);
    q.add_after(7, Duration::from_secs(60)).unwrap();
    assert_eq!(groups(), 1);
    q.cancel(&7);
    assert_eq!(groups(), 0);
}

/// Number of keys a queue must know before it asks for the group of a key that may be known.
const MANY: u64 = 20_000;

/// A queue that knows many keys which are not ready, in groups without other keys.
fn crowded(q: WorkQueue<u64>) -> WorkQueue<u64> {
    let far = (0..MANY).map(|key| (1_000_000 + key, Add::after(Duration::from_secs(3_600))));
    q.add_many_with(far).all().unwrap();
    q
}

#[test]
fn b3_a_queue_that_knows_many_keys_does_what_one_does_that_knows_few() {
    let group = |key: &u64| {
        assert!(*key >= 1_000 || key % 50 != 49, "no group");
        key / 10
    };
    let flat = || WorkQueue::<u64>::builder().group_by(group);
    let builders: [&dyn Fn() -> requeue::Builder<u64>; 2] = [&flat, &|| flat().priorities()];
    for (at, builder) in builders.into_iter().enumerate() {
        let few = builder().build().unwrap();
        let many = crowded(builder().build().unwrap());
        do_the_same([&few, &many], at as u64, 6_000, 300, 10, |q, key, level| {
            let level = if at == 1 { level % 3 } else { 0 };
            let add = || q.add_with(key, Add::now().priority(level)).unwrap();
            let added = catch_unwind(AssertUnwindSafe(add)).ok();
            assert_eq!(added.is_none(), key % 50 == 49);
            added
        });
    }
}

#[test]
fn b3_nothing_is_kept_of_a_group_that_a_known_key_is_said_to_be_in() {
    let alive = Arc::new(());
    let (counted, lies) = (Arc::clone(&alive), Arc::new(AtomicUsize::new(0)));
    let lie = Arc::clone(&lies);
    let group = move |key: &u64| Tenant {
        number: key / MANY + lie.load(Ordering::SeqCst) as u64,
        _counted: Arc::clone(&counted),
    };
    let q = crowded(WorkQueue::builder().group_by(group).build().unwrap());
    let groups = || Arc::strong_count(&alive) - 2;
    let before = groups();
    q.add(7).unwrap();
    assert_eq!(groups(), before + 1);
    // the key before was new, so this one's group is asked for, and it tells another one
    lies.store(1_000, Ordering::SeqCst);
    assert_eq!(q.add(7).unwrap(), requeue::Added::Coalesced);
    lies.store(0, Ordering::SeqCst);
    q.add(8).unwrap();
    assert_eq!(groups(), before + 1, "what was made for it has gone");
    assert_eq!(order(&q), [7, 8]);
    assert_eq!(groups(), before);
}

#[test]
fn b3_a_run_ends_for_its_own_group_however_many_groups_there_are() {
    // a guard remembers the numbers of the first 65,535 groups
    const GROUPS: u64 = 66_000;
    let rules = GroupRules::new().cap(1);
    let q = WorkQueue::<u64>::builder().group_by_with(|key| key % GROUPS, rules).build().unwrap();
    q.add_many(0..2 * GROUPS).all().unwrap();
    let mut items: Vec<_> = std::iter::from_fn(|| q.try_get().ok()).collect();
    assert!(items.iter().map(|item| *item.key()).eq(0..GROUPS));
    // the last one first, so that the others keep their places
    for at in [65_999, 65_537, 65_536, 65_535, 65_534, 65_533, 463, 0] {
        items.remove(at).done();
        let next = q.try_get().unwrap();
        assert_eq!(*next.key(), at as u64 + GROUPS, "the one that ended was at its cap");
        assert!(q.try_get().is_err());
        next.done();
    }
}

#[test]
fn b3_groups_alone_read_no_clock() {
    for max_wait in [None, Some(ms(1))] {
        let clock = TestClock::default();
        let builder = WorkQueue::<u64>::builder().clock(clock.clone()).group_by(tens);
        let q = max_wait.into_iter().fold(builder, requeue::Builder::max_wait).build().unwrap();
        let before = clock.reads();
        q.add_many([11, 21]).all().unwrap();
        q.add(12).unwrap();
        assert_eq!(order(&q), [11, 21, 12]);
        assert_eq!(clock.reads(), before);
    }
}

#[test]
fn b3_of_two_functions_of_groups_the_last_one_counts() {
    let capped = GroupRules::new().cap(0);
    let q = WorkQueue::<u64>::builder().group_by_with(|key: &u64| key / 100, capped).group_by(tens).build();
    let q = q.unwrap();
    q.add_many([110, 112, 111, 120]).all().unwrap();
    assert_eq!(order(&q), [110, 120, 112, 111]);
}

#[test]
fn b3_a_crew_of_many_holds_no_more_of_a_group_than_its_cap() {
    // a fixed crew, and one that follows the work
    for workers in [8..=8, 0..=8] {
        let rules = GroupRules::new().cap(2);
        let q = WorkQueue::<u64>::builder().group_by_with(tens, rules).build().unwrap();
        let now: [AtomicUsize; 3] = std::array::from_fn(|_| AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let highest = Arc::clone(&most);
        let handler = move |run: Run<u64>| {
            let of_group = &now[*run.key() as usize / 10];
            highest.fetch_max(of_group.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            of_group.fetch_sub(1, Ordering::SeqCst);
        };
        let worker = Worker::of(&q).workers(workers).start_threads(handler).unwrap();
        for round in 0..50 {
            q.add_many((0..30).map(|key| (key * 7 + round) % 30)).all().unwrap();
        }
        let report = worker.drain(Duration::MAX).wait();
        assert!(report.complete && report.done >= 30, "{report:?}");
        let most = most.load(Ordering::SeqCst);
        assert!((1..=2).contains(&most), "{most} of a group were held");
    }
}

#[test]
fn b7_a_pause_of_a_group_whose_function_panics_changes_nothing() {
    let panics = |key: &u64| if *key == 13 { panic!("the function of users") } else { key / 10 };
    let q = WorkQueue::<u64>::builder().group_by(panics).build().unwrap();
    q.add_many([11, 21]).all().unwrap();
    let quietly = |call: &dyn Fn() -> bool| catch_unwind(AssertUnwindSafe(call)).is_err();
    assert!(quietly(&|| q.pause(Scope::GroupOf(13))));
    assert!(quietly(&|| q.paused(Scope::GroupOf(&13))));
    assert!(quietly(&|| q.resume(Scope::GroupOf(&13))));
    assert!(!q.paused(Scope::GroupOf(&11)));
    assert_eq!(order(&q), [11, 21]);
    assert_eq!(q.stats().known, 0);
}

#[test]
fn b6_a_rate_of_groups_that_is_none_is_refused_when_the_queue_is_built() {
    let build = |rate, burst| {
        let rules = GroupRules::new().rate(rate, burst);
        WorkQueue::<u64>::builder().group_by_with(tens, rules).build()
    };
    for (rate, burst) in [(0.0, 1), (-1.0, 1), (f64::NAN, 1), (f64::INFINITY, 1), (1.0, 0)] {
        let error = build(rate, burst).unwrap_err();
        assert!(matches!(error, BuildError::Rate { .. }));
        assert!(error.to_string().contains("keys a second of a group"), "{error}");
    }
    assert!(build(0.5, 1).is_ok());
}
