//! Keys and values that panic as they are dropped, and user code that panics with them. None of it may keep a
//! key held, take a key from its caller, or end the process.

use requeue::{DrainOptions, Instant, RateLimiter, WorkQueue, Worker};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Panics as it is dropped, while it is armed.
#[derive(Clone)]
struct Bomb(u32, Arc<AtomicBool>);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.1.load(SeqCst), "the drop of {}", self.0);
    }
}
impl PartialEq for Bomb {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Bomb {}
impl Hash for Bomb {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

fn bomb(number: u32) -> Bomb {
    Bomb(number, Arc::new(AtomicBool::new(false)))
}

fn panics(what: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(what)).is_err()
}

/// A user's limiter that panics when it forgets, and when it is asked if told to.
struct Grumpy(bool);

impl<K: ?Sized> RateLimiter<K> for Grumpy {
    fn when(&self, _: &K, _: Instant) -> Duration {
        assert!(!self.0, "when");
        Duration::ZERO
    }
    fn forget(&self, _: &K) {
        panic!("forget");
    }
    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
}

#[test]
fn a_value_that_panics_before_the_next_get_leaves_no_key_held() {
    let q = WorkQueue::<u32, Bomb>::merging(|_, _| ()).build().unwrap();
    let value = bomb(1);
    let armed = Arc::clone(&value.1);
    q.add_value(1, value).unwrap();
    let item = q.try_get().unwrap();
    armed.store(true, SeqCst);
    assert!(panics(|| drop(item.next())));
    assert_eq!(q.stats().held, 0);
    let drain = q.drain(DrainOptions::default()).wait();
    assert!(drain.complete);
}

#[test]
fn a_key_that_panics_as_it_is_dropped_takes_no_other_key_from_the_caller() {
    let q = WorkQueue::new();
    let first = bomb(0);
    let armed = Arc::clone(&first.1);
    q.add(first).unwrap();
    q.add(bomb(1)).unwrap();
    let item = q.try_get().unwrap();
    armed.store(true, SeqCst);
    let next = item.next().wait().expect("one more is ready");
    assert_eq!((next.key().0, q.stats().held), (1, 1));
    next.done();
    assert_eq!(q.stats().known, 0);
}

#[test]
fn a_key_and_its_value_may_both_panic_as_they_are_dropped() {
    let armed = Arc::new(AtomicBool::new(false));
    let q = WorkQueue::<Bomb, Bomb>::merging(|_, _| ()).build().unwrap();
    q.add_value(Bomb(1, Arc::clone(&armed)), Bomb(2, Arc::clone(&armed))).unwrap();
    let item = q.try_get().unwrap();
    armed.store(true, SeqCst);
    assert!(panics(|| drop(item)));
    assert_eq!(q.stats().known, 0);
}

#[test]
fn a_limiter_may_panic_beside_a_value() {
    let q =
        WorkQueue::<u32, Bomb>::merging(|_, _| ()).limiter(Grumpy(true)).retry_dropped(true).build().unwrap();
    let value = bomb(1);
    let armed = Arc::clone(&value.1);
    q.add_value(1, value).unwrap();
    let item = q.try_get().unwrap();
    armed.store(true, SeqCst);
    assert!(panics(|| drop(item)));
    assert_eq!(q.stats().held, 0);
}

#[test]
fn a_run_ends_and_is_told_of_although_the_limiter_panics_as_it_forgets() {
    let q = WorkQueue::<u32>::builder().limiter(Grumpy(false)).build().unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&told);
    q.add_many(0..5).all().unwrap();
    let worker = Worker::of(&q)
        .on_end(move |_, _| {
            hook.fetch_add(1, SeqCst);
        })
        .start_threads(|_| ())
        .unwrap();
    let report = worker.drain(Duration::from_secs(60)).wait();
    assert!(report.complete);
    assert_eq!((report.done, told.load(SeqCst)), (5, 5));
}

#[test]
fn a_worker_outlives_a_limiter_that_panics_beside_a_payload() {
    let armed = Arc::new(AtomicBool::new(true));
    let q = WorkQueue::<u32, Bomb>::merging(|_, _| ()).limiter(Grumpy(false)).build().unwrap();
    q.add_value(1, Bomb(1, Arc::clone(&armed))).unwrap();
    q.add(2).unwrap();
    let worker = Worker::of(&q).start_threads(|_| ()).unwrap();
    assert!(worker.drain(Duration::from_secs(60)).wait().complete);
}

#[test]
fn a_trigger_whose_key_is_not_compared_to_an_end_is_dropped_once() {
    // the comparison panics, and so do both of what is left
    struct Touchy(Bomb);
    impl PartialEq for Touchy {
        fn eq(&self, _: &Self) -> bool {
            self.0.1.store(true, SeqCst);
            panic!("eq")
        }
    }
    impl Eq for Touchy {}
    impl Hash for Touchy {
        fn hash<H: Hasher>(&self, state: &mut H) {
            0.hash(state);
        }
    }
    let armed = Arc::new(AtomicBool::new(false));
    let q = WorkQueue::<Touchy, Bomb>::merging(|_, _| ()).limiter(Grumpy(false)).build().unwrap();
    let of = || Touchy(Bomb(1, Arc::clone(&armed)));
    q.add_value(of(), Bomb(2, Arc::clone(&armed))).unwrap();
    let again = (of(), Bomb(3, Arc::clone(&armed)));
    assert!(panics(|| {
        let _ = q.add_value(again.0, again.1);
    }));
    armed.store(false, SeqCst);
    assert_eq!(q.stats().ready, 1);
}
