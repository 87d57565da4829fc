//! B2, where it concerns how a queue is built, what it reads, and calls that the suite cannot make.

use crate::Stack;
use requeue::{Add, BuildError, Clock, FakeClock, Order, Refused, WorkQueue};
use requeue_verify::limits::{Scripted, TestClock};
use requeue_verify::probe::Key;
use requeue_verify::twins::do_the_same;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn b2_priorities_and_another_order_are_refused_when_the_queue_is_built() {
    let builder = || WorkQueue::<u64>::builder();
    let said = |error: BuildError| error.to_string();
    for built in [
        builder().priorities().order(Order::Custom(Box::new(Stack(Vec::new())))).build(),
        builder().order(Order::Custom(Box::new(Stack(Vec::new())))).priorities().max_wait(ms(1)).build(),
        builder().order(Order::Lifo).priorities().build(),
    ] {
        let error = built.unwrap_err();
        assert_eq!(error, BuildError::OrderAndPriorities);
        assert!(said(error).contains("remove .order(…), or .priorities()"));
    }
    assert!(builder().order(Order::Fifo).priorities().build().is_ok(), "it is first in first out");
    let error = builder().max_wait(ms(1)).build().unwrap_err();
    assert_eq!(error, BuildError::MaxWaitWithoutPriorities);
    assert!(said(error).contains("call .priorities() or .group_by(…) on the builder"));
}

#[test]
fn b2_an_overdue_share_below_2_is_refused_when_the_queue_is_built() {
    let builder = || WorkQueue::<u64>::builder().priorities().max_wait(ms(1));
    for asked in [0, 1] {
        let error = builder().overdue_every(asked).build().unwrap_err();
        assert_eq!(error, BuildError::OverdueEvery { asked });
        assert!(error.to_string().contains("use at least 2"));
    }
    assert!(builder().overdue_every(2).build().is_ok() && builder().overdue_every(u32::MAX).build().is_ok());
}

#[test]
fn b2_a_refused_priority_says_what_would_be_right_and_asks_no_limiter_of_ones_own() {
    let limiter = Scripted::new(ms(5));
    let q = WorkQueue::<Key>::builder().limiter(requeue_verify::adapter::Limiter(limiter.clone())).build();
    let q = q.unwrap();
    let refused = q.add_with(1.into(), Add::rate_limited().priority(3)).unwrap_err();
    assert_eq!((refused.key.id, refused.reason), (1, Refused::NoPriorities));
    assert!(refused.reason.to_string().contains("call .priorities() on its builder"));
    let batch = [(2.into(), Add::rate_limited().priority(-1)), (3.into(), Add::rate_limited())];
    let added: Vec<_> = q.add_many_with(batch).iter().map(Result::err).collect();
    assert_eq!(added, [Some(Refused::NoPriorities), None]);
    assert_eq!(limiter.take_whens(), 1, "of the third key alone");
    // whatever the phase is, it is the call that is wrong
    q.shut_down();
    assert_eq!(q.add_with(1.into(), Add::now().priority(3)).unwrap_err().reason, Refused::NoPriorities);
    assert_eq!(q.shut_down().refused, 0);
}

/// Redundant adds of integers take no lock: one that raises is not redundant.
#[test]
fn b2_an_add_that_takes_no_lock_loses_no_priority() {
    for held in [false, true] {
        let q = WorkQueue::<u64>::builder().priorities().build().unwrap();
        // once as a key whose adds are published already
        for round in 0..3 {
            let first = held.then(|| {
                q.add(1).unwrap();
                q.try_get().unwrap()
            });
            q.add_with(1, Add::now().priority(-5)).unwrap();
            q.add_with(2, Add::now().priority(-3)).unwrap();
            for _ in 0..600 {
                q.add(1).unwrap();
                q.add(2).unwrap();
            }
            q.add_with(2, Add::now().priority(1)).unwrap();
            for _ in 0..600 {
                q.add(2).unwrap();
            }
            drop(first);
            let seen: Vec<_> =
                std::iter::from_fn(|| q.try_get().ok()).map(|item| (*item.key(), item.priority())).collect();
            assert_eq!(seen, [(2, 1), (1, 0)], "round {round}, held {held}");
        }
    }
}

#[test]
fn b2_only_a_queue_with_max_wait_reads_the_clock_for_its_priorities() {
    for (max_wait, readings) in [(None, [0, 0, 0, 0]), (Some(ms(9)), [1, 1, 1, 1])] {
        let clock = TestClock::default();
        let builder = WorkQueue::<String>::builder().clock(clock.clone()).priorities();
        let q = max_wait.into_iter().fold(builder, requeue::Builder::max_wait).build().unwrap();
        let paid = |call: &mut dyn FnMut()| {
            let before = clock.reads();
            call();
            clock.reads() - before
        };
        let mut item = None;
        let paid = [
            paid(&mut || assert!(q.add_with("a".into(), Add::now().priority(4)).is_ok())),
            paid(&mut || assert!(q.add_ref("a").is_ok())),
            paid(&mut || item = q.try_get().ok()),
            paid(&mut || drop(item.take())),
        ];
        assert_eq!(paid, readings, "{max_wait:?}");
    }
}

#[test]
fn b2_a_merge_that_panics_raises_nothing() {
    let panics = Arc::new(AtomicBool::new(false));
    let merge = {
        let panics = Arc::clone(&panics);
        move |old: &mut u32, new: u32| {
            assert!(!panics.load(Ordering::SeqCst), "the merge of the test");
            *old += new;
        }
    };
    let clock = FakeClock::new();
    let q = WorkQueue::merging(merge).clock(clock.clone()).priorities().build().unwrap();
    let soon = || Add::after(ms(5));
    q.add_with(1, Add::now().priority(1).value(1)).unwrap();
    q.add_with(2, soon().priority(2).value(1)).unwrap();
    q.add_with(3, Add::now().priority(9).value(1)).unwrap();
    let three = q.try_get().unwrap();
    q.add_with(3, Add::now().priority(3).value(1)).unwrap();
    panics.store(true, Ordering::SeqCst);
    for (key, how) in [(1, Add::now()), (2, soon()), (3, Add::now())] {
        let how = how.priority(8).value(1);
        assert!(catch_unwind(AssertUnwindSafe(|| q.add_with(key, how))).is_err());
    }
    panics.store(false, Ordering::SeqCst);
    drop(three);
    clock.advance(ms(5));
    let seen = std::iter::from_fn(|| q.try_get().ok()).map(|item| (*item.key(), item.priority()));
    assert_eq!(seen.collect::<Vec<_>>(), [(3, 3), (2, 2), (1, 1)]);
}

/// Levels that are empty again, and keys that were raised, leave nothing behind.
#[test]
fn b2_every_priority_may_be_used_and_each_key_comes_once() {
    let clock = FakeClock::new();
    let q = WorkQueue::<u64>::builder().clock(clock.clone()).priorities().build().unwrap();
    for round in 0..2 {
        for key in 0..=u64::from(u16::MAX) {
            let priority = i16::try_from(key as i64 - 32_768).unwrap();
            q.add_with(key, Add::now().priority(priority)).unwrap();
        }
        let mut last = i32::from(i16::MAX) + 1;
        while let Ok(item) = q.try_get() {
            assert_eq!(i32::from(item.priority()), last - 1, "round {round}");
            last -= 1;
        }
        assert_eq!(last, i32::from(i16::MIN));
    }
    assert_eq!(clock.now(), FakeClock::new().now());
}

#[test]
fn b2_a_queue_that_knows_many_keys_does_what_one_does_that_knows_few() {
    let few = WorkQueue::<u64>::builder().priorities().build().unwrap();
    let many = WorkQueue::<u64>::builder().priorities().build().unwrap();
    // none of them is ready
    let far = (0..20_000).map(|key| (1_000_000 + key, Add::after(Duration::from_secs(3_600))));
    many.add_many_with(far).all().unwrap();
    do_the_same([&few, &many], 1, 100_000, 3_000, 1_000, |q, key, level| {
        // more levels than have a place of their own for their keys
        q.add_with(key, Add::now().priority(level % 200)).expect("it is open")
    });
}
