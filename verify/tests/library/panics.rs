//! Users' code that panics at awkward moments: the panic may reach the caller, and the queue goes on as if it
//! had not happened.

use requeue::limiter::TokenBucket;
use requeue::{Alarm, Clock, FakeClock, Get, Instant, Timeout, WorkQueue, Worker};
use std::future::Future;
use std::hash::{BuildHasher, DefaultHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a bomb was dropped");
    }
}

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {}
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn panics(what: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(what)).is_err()
}

#[test]
fn q12_a_waker_that_panics_when_dropped_leaves_no_key_held() {
    let q = WorkQueue::new();
    let (mut first, mut second) = (q.get(), q.get());
    let bomb = Waker::from(Arc::new(Bomb));
    assert!(poll(&mut first, &bomb).is_pending());
    drop(bomb); // the queue has the last one
    assert!(poll(&mut second, Waker::noop()).is_pending());
    q.add(1).expect("open");
    // the second was woken; the first comes by chance and takes the key
    let Poll::Ready(Some(item)) = poll(&mut first, Waker::noop()) else { panic!("a key is ready") };
    assert_eq!((*item.key(), q.stats().held), (1, 1), "the panic takes it from nobody");
    drop(item);
    assert_eq!(q.stats().held, 0);
    q.add(1).expect("open");
    assert!(poll(&mut second, Waker::noop()).is_ready());
}

/// Panics with something that panics when it is dropped.
struct Vicious;

impl Wake for Vicious {
    fn wake(self: Arc<Self>) {
        panic_any(Bomb);
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn q10_a_waker_that_panics_keeps_nobody_else_asleep() {
    let q = WorkQueue::<u32>::new();
    let count = Arc::new(Count::default());
    let mut getters = [q.get(), q.get(), q.get()];
    for (at, getter) in getters.iter_mut().enumerate() {
        let waker = if at == 1 { Waker::from(Arc::new(Vicious)) } else { count.clone().into() };
        assert!(poll(getter, &waker).is_pending());
    }
    q.shut_down();
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
}

struct NoClone;

impl Clone for NoClone {
    fn clone(&self) -> Self {
        panic!("this hasher cannot be cloned");
    }
}

impl BuildHasher for NoClone {
    type Hasher = DefaultHasher;
    fn build_hasher(&self) -> DefaultHasher {
        DefaultHasher::new()
    }
}

#[test]
fn q10_a_handle_whose_clone_panicked_does_not_keep_the_queue_open() {
    let q = WorkQueue::builder().hasher(NoClone).build().expect("it has no metrics");
    q.add(1).expect("open");
    let item = q.try_get().expect("ready").into_owned();
    assert!(panics(|| drop(q.clone())));
    drop(q);
    assert!(item.next().wait().is_none());
}

/// A future with a deadline, polled with a waker that panics when it is dropped, whose last clones the future
/// and the clock have.
fn waits_with_a_bomb<'q, K, V>(q: &'q WorkQueue<K, V>) -> Timeout<Get<'q, K, V>>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + 'static,
{
    let mut get = q.get().timeout(Duration::from_secs(1));
    let bomb = Waker::from(Arc::new(Bomb));
    assert!(poll(&mut get, &bomb).is_pending());
    drop(bomb);
    get
}

#[test]
fn q8_a_waker_that_panics_as_a_deadline_is_taken_back_takes_no_key() {
    let q = WorkQueue::builder().clock(FakeClock::new()).build().expect("it has no metrics");
    let mut get = waits_with_a_bomb(&q);
    q.add(1).expect("open");
    let Poll::Ready(Ok(item)) = poll(&mut get, Waker::noop()) else { panic!("a key is ready") };
    assert_eq!((*item.key(), q.stats().held), (1, 1));
}

#[test]
fn q8_a_wait_with_a_deadline_may_be_dropped_by_a_panic_whatever_its_waker_does() {
    let q = WorkQueue::<u32>::builder().clock(FakeClock::new()).build().expect("it has no metrics");
    assert!(panics(|| {
        let _get = waits_with_a_bomb(&q);
        panic!("in the task");
    }));
    assert_eq!(q.stats().waiters, 0);
}

#[test]
fn w_a_waker_that_panics_keeps_no_worker_in_one_future_from_coming() {
    let q = WorkQueue::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let count = runs.clone();
    let mut workers = Worker::of(&q)
        .workers(1)
        .run(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            async {}
        })
        .expect("one worker");
    let bomb = Waker::from(Arc::new(Bomb));
    assert!(poll(&mut workers, &bomb).is_pending());
    drop(bomb);
    let worker = workers.worker();
    worker.resize(3).expect("so many fit");
    q.add_many(0..3).all().expect("open");
    assert!(poll(&mut workers, Waker::noop()).is_pending());
    assert_eq!((worker.workers(), runs.load(Ordering::Relaxed)), (3, 3));
}

/// A clock that panics at a reading, once it is told to.
struct Broken(FakeClock, AtomicBool);

impl Clock for Broken {
    fn now(&self) -> Instant {
        assert!(!self.1.load(Ordering::Relaxed), "this clock is broken");
        self.0.now()
    }
    fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm {
        self.0.wake_at(at, waker)
    }
}

#[test]
fn r_a_wait_for_tokens_may_be_dropped_by_a_panic_whatever_its_clock_does() {
    let clock = Broken(FakeClock::new(), AtomicBool::new(false));
    let bucket = TokenBucket::new(1.0, 1).expect("a rate");
    assert!(bucket.allow(1, clock.now()));
    assert!(panics(|| {
        let mut wait = bucket.acquire(1, &clock);
        assert!(poll(&mut wait, Waker::noop()).is_pending());
        clock.1.store(true, Ordering::Relaxed);
        panic!("in the task");
    }));
    clock.1.store(false, Ordering::Relaxed);
    assert_eq!(bucket.tokens(clock.now()), 0.0, "its token came back");
}
