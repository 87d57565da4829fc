//! B8, where it concerns how a queue is built, users' code, and calls that the suite cannot make.

use crate::Stack;
use requeue::{Add, BuildError, FakeClock, Order, Refused, WorkQueue};
use requeue_verify::adapter::Limiter;
use requeue_verify::limits::Scripted;
use requeue_verify::probe::{Key, Probe, Value};
use requeue_verify::wake::Count;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn panics<T>(call: impl FnOnce() -> T) {
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
}

#[test]
fn b8_a_bound_that_cannot_be_is_refused_when_the_queue_is_built() {
    let builder = || WorkQueue::<u64>::builder();
    let said = |error: BuildError| error.to_string();
    let error = builder().bound(0).build().unwrap_err();
    assert_eq!(error, BuildError::BoundOfZero);
    assert!(said(error).contains("bound must be at least 1"));
    let error = builder().drop_oldest(|_, _| ()).build().unwrap_err();
    assert_eq!(error, BuildError::DropOldestWithoutBound);
    assert!(said(error).contains("call .bound(…) on the builder"));
    let own = builder().order(Order::Custom(Box::new(Stack(Vec::new())))).bound(1).drop_oldest(|_, _| ());
    let error = own.build().unwrap_err();
    assert_eq!(error, BuildError::DropOldestAndOwnOrder);
    assert!(said(error).contains("remove .drop_oldest(…), or .order(…)"));
    assert!(builder().order(Order::Custom(Box::new(Stack(Vec::new())))).bound(1).build().is_ok());
    assert_eq!(builder().bound(usize::MAX).build().unwrap().stats().room, Some(usize::MAX));
}

#[test]
fn b8_a_full_queue_says_what_would_be_right() {
    let q = WorkQueue::builder().bound(1).build().unwrap();
    q.add(1).unwrap();
    let refused = q.add(2).unwrap_err();
    assert_eq!((refused.key, refused.reason), (2, Refused::Full));
    assert!(refused.to_string().contains("add the key when others are done, wait for room"));
}

#[test]
fn b8_a_limiter_of_ones_own_is_asked_once_and_only_if_there_is_room() {
    let limiter = Scripted::new(ms(5));
    let builder = WorkQueue::<Key>::builder().clock(FakeClock::new()).bound(1);
    let q = builder.limiter(Limiter(limiter.clone())).build().unwrap();
    q.add(1.into()).unwrap();
    assert_eq!(q.add_rate_limited(2.into()).unwrap_err().reason, Refused::Full);
    let batch = [(2.into(), Add::rate_limited()), (1.into(), Add::now()), (3.into(), Add::rate_limited())];
    let answers: Vec<_> = q.add_many_with(batch).iter().map(Result::err).collect();
    assert_eq!(answers, [Some(Refused::Full), None, Some(Refused::Full)]);
    let (mut add, count) = (q.add_when_room(2.into(), Add::rate_limited()), Count::new());
    assert!(count.poll(&mut add).is_pending());
    assert_eq!(limiter.take_whens(), 0);
    q.try_get().unwrap().done();
    assert!(count.poll(&mut add).is_ready());
    assert_eq!(limiter.take_whens(), 1);
    assert!(q.add_rate_limited(2.into()).is_ok(), "it is known");
}

#[test]
fn b8_a_trigger_whose_limiter_is_being_asked_has_its_place() {
    let limiter = Scripted::new(ms(5));
    let builder = WorkQueue::<Key>::builder().clock(FakeClock::new()).bound(1);
    let q = builder.limiter(Limiter(limiter.clone())).build().unwrap();
    let seen = Arc::new(Mutex::new(None));
    limiter.on_when.set({
        let (q, seen) = (q.clone(), seen.clone());
        move || *seen.lock().unwrap() = Some((q.stats().room, q.add(2.into()).unwrap_err().reason))
    });
    q.add_rate_limited(1.into()).unwrap();
    assert_eq!(seen.lock().unwrap().take(), Some((Some(0), Refused::Full)));
    assert_eq!((q.stats().room, q.stats().waiting), (Some(0), 1));
    // of a key that is known it takes none
    q.add_rate_limited(1.into()).unwrap();
    assert_eq!((q.stats().room, q.stats().waiting), (Some(0), 1));
    // one that panics gives its place back
    q.cancel(&Key::from(1));
    limiter.on_when.panics();
    panics(|| q.add_rate_limited(1.into()));
    assert_eq!(q.stats().room, Some(1));
    // and so does one that a shutdown has dropped
    limiter.on_when.set({
        let q = q.clone();
        move || {
            q.shut_down();
        }
    });
    q.add_rate_limited(1.into()).unwrap();
    assert_eq!(q.stats().room, Some(1));
}

#[test]
fn b8_users_code_that_panics_takes_no_room_and_drops_nobody() {
    let dropped = Arc::new(AtomicUsize::new(0));
    for drops in [false, true] {
        let count = dropped.clone();
        let builder = WorkQueue::merging(Value::merge).bound(2);
        let builder = if drops {
            builder.drop_oldest(move |_: &Key, _| {
                count.fetch_add(1, Ordering::SeqCst);
            })
        } else {
            builder
        };
        let q = builder.hasher(Same).build().unwrap();
        q.add(1.into()).unwrap();
        q.add(2.into()).unwrap();
        let probe = Probe::new();
        probe.eq.panics();
        panics(|| q.add(Key::probed(3, &probe)));
        panics(|| q.add_when_room(Key::probed(3, &probe), Add::now()).wait());
        assert_eq!((q.len(), q.stats().room, dropped.load(Ordering::SeqCst)), (2, Some(0), 0));
        assert_eq!(*q.try_get().unwrap().key(), Key::from(1));
        assert_eq!(q.stats().room, Some(1));
    }
}

/// All keys have the same hash, so that each is compared with the others.
#[derive(Clone, Copy, Default)]
struct Same;

impl std::hash::BuildHasher for Same {
    type Hasher = Same;
    fn build_hasher(&self) -> Same {
        Same
    }
}

impl std::hash::Hasher for Same {
    fn finish(&self) -> u64 {
        7
    }
    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn b8_who_is_told_of_a_dropped_key_may_call_the_queue_and_may_panic() {
    let weak = Arc::new(Mutex::new(None::<requeue::WeakQueue<u64>>));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let q = WorkQueue::builder().bound(1).drop_oldest({
        let (weak, seen) = (weak.clone(), seen.clone());
        move |key: &u64, _| {
            let q = weak.lock().unwrap().as_ref().and_then(requeue::WeakQueue::upgrade).unwrap();
            seen.lock().unwrap().push((*key, q.len(), q.state(key).is_some()));
            assert_ne!(*key, 1, "a panic that is caught");
        }
    });
    let q = q.build().unwrap();
    *weak.lock().unwrap() = Some(q.downgrade());
    for key in 1..=3 {
        q.add(key).unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), [(1, 1, false), (2, 1, false)]);
    assert_eq!(q.add_many([4, 5]).all(), Ok(()));
    assert_eq!(q.stats().known, 1, "what was lent has been given back");
    assert_eq!(*q.try_get().unwrap().key(), 5);
}

#[test]
fn b8_a_redundant_add_of_a_key_that_was_dropped_is_none() {
    let q = WorkQueue::builder().bound(1).drop_oldest(|_, _| ()).build().unwrap();
    for _ in 0..3 {
        for _ in 0..10 {
            q.add(1_u64).unwrap();
        }
        q.add(2).unwrap();
        assert_eq!(q.add(1).unwrap(), requeue::Added::Ready, "it was dropped");
    }
}

#[test]
fn b8_a_wait_for_room_that_is_polled_with_another_waker_wakes_that_one() {
    let clock = FakeClock::new();
    let q = WorkQueue::builder().clock(clock.clone()).bound(1).build().unwrap();
    q.add(1).unwrap();
    let (before, now) = (Count::new(), Count::new());
    let mut add = q.add_when_room(2, Add::now()).timeout(ms(10));
    assert!(before.poll(&mut add).is_pending() && now.poll(&mut add).is_pending());
    assert_eq!((clock.alarms(), q.stats().adders), (1, 1));
    clock.advance(ms(10));
    assert_eq!((before.wakes(), now.wakes()), (0, 1));
    assert!(now.poll(&mut add).is_ready());
    assert_eq!((clock.alarms(), q.stats().adders), (0, 0));
    assert!(now.poll(&mut add).is_pending(), "it has answered");

    let mut add = q.add_when_room(2, Add::now());
    assert!(before.poll(&mut add).is_pending() && now.poll(&mut add).is_pending());
    q.try_get().unwrap().done();
    assert_eq!((before.wakes(), now.wakes()), (0, 2));
    let mut add = add.into_owned();
    assert_eq!(q.stats().adders, 0, "its place is given up");
    assert!(now.poll(&mut add).is_ready());
}
