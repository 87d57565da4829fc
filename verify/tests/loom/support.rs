//! Helpers of the models.

use loom::thread::{self, JoinHandle};
use requeue::{Clock, FakeClock, Instant, Item, Parker, WorkQueue};
use std::future::Future;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// A fixed hasher: executions must repeat exactly.
pub(crate) type Hash = BuildHasherDefault<DefaultHasher>;

/// Shared by reference count, because a clone would be another handle and its
/// drop one more thing to explore.
pub(crate) type Queue = Arc<WorkQueue<u32, (), Hash>>;

/// Explores a program of two threads: every interleaving there is.
pub(crate) fn every(f: impl Fn() + Sync + Send + 'static) {
    explore(loom::model::Builder::new(), f);
}

/// Explores a model with more threads, with at most four preemptions per execution, unless the environment
/// sets another number.
pub(crate) fn bounded(f: impl Fn() + Sync + Send + 'static) {
    bounded_by(4, f);
}

/// Runs a model with this number of preemptions, for a program of many steps.
pub(crate) fn bounded_by(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    explore(builder, f);
}

fn explore(mut builder: loom::model::Builder, f: impl Fn() + Sync + Send + 'static) {
    builder.max_branches = 10_000;
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        f();
    });
    // a model of one execution models nothing; `--nocapture` shows how many
    let executions = executions.load(Ordering::Relaxed);
    println!("{executions} executions");
    assert!(executions > 1);
}

/// A queue whose clock stands still until the test moves it.
pub(crate) fn queue() -> (Queue, FakeClock) {
    let clock = FakeClock::new();
    let builder = WorkQueue::builder().clock(clock.clone()).hasher(Hash::default());
    (Arc::new(builder.build().expect("it has no metrics")), clock)
}

/// A queue with groups: a key is in a group with its neighbours.
pub(crate) fn queue_with_groups() -> Queue {
    let builder = WorkQueue::builder().clock(FakeClock::new()).hasher(Hash::default());
    Arc::new(builder.group_by(|key| key / 10).build().expect("it has no metrics"))
}

pub(crate) fn nanos(n: u64) -> Duration {
    Duration::from_nanos(n)
}

pub(crate) fn at(n: u64) -> Instant {
    Instant::from_nanos(n)
}

pub(crate) fn now(clock: &FakeClock) -> u64 {
    clock.now().as_nanos()
}

/// Polls with this thread's parker, as an executor would with a task's waker.
pub(crate) fn poll<F: Future + Unpin>(future: &mut F, parker: &Parker) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(parker.waker()))
}

/// The smallest executor: what an async caller sees of a queue.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let parker = Parker::current();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(parker.waker())) {
            Poll::Ready(output) => return output,
            Poll::Pending => parker.park(),
        }
    }
}

/// Takes the next key and ends its run with done; `None` once the queue is shut down.
pub(crate) fn take(queue: &Queue) -> Option<u32> {
    queue.get_blocking().map(|item| *item.key())
}

/// A thread that takes the next key.
pub(crate) fn taker(queue: &Queue) -> JoinHandle<Option<u32>> {
    let queue = queue.clone();
    thread::spawn(move || take(&queue))
}

/// A task that takes the next key. Unlike a thread it is not woken first.
pub(crate) fn task(queue: &Queue) -> JoinHandle<Option<u32>> {
    let queue = queue.clone();
    thread::spawn(move || block_on(queue.get()).map(|item| *item.key()))
}

/// A getter that is polled once, and then dropped.
pub(crate) fn polled_once(queue: &Queue) -> JoinHandle<Option<u32>> {
    let queue = queue.clone();
    thread::spawn(move || {
        let parker = Parker::current();
        let mut get = queue.get();
        match poll(&mut get, &parker) {
            Poll::Ready(item) => item.map(|item| *item.key()),
            Poll::Pending => None,
        }
    })
}

/// Asserts that the getter that leaves has the key, or the one that stays gets it.
pub(crate) fn one_has_it(queue: &Queue, leaves: JoinHandle<Option<u32>>, stays: JoinHandle<Option<u32>>) {
    match leaves.join().expect("no panic") {
        // only here: else it would make up for a wake-up that was lost
        Some(_) => _ = queue.shut_down(),
        None => assert_eq!(stays.join().expect("no panic"), Some(1)),
    }
}

/// A worker that reads `data` in each run until the queue is shut down. Returns what the last run saw.
pub(crate) fn last_seen(queue: &Queue, data: &Arc<loom::sync::atomic::AtomicUsize>) -> JoinHandle<usize> {
    let (queue, data) = (queue.clone(), data.clone());
    thread::spawn(move || {
        let mut seen = 0;
        while let Some(item) = queue.get_blocking() {
            seen = data.load(Ordering::Relaxed);
            item.done();
        }
        seen
    })
}

/// Takes the next key and keeps it, so that no `done` makes up for a wake-up that
/// was not passed on.
pub(crate) fn hold(queue: &Queue) -> Option<Item<'static, u32>> {
    queue.get_blocking().map(Item::into_owned)
}

/// Works keys off until the queue is shut down; returns how many.
pub(crate) fn work(queue: &Queue) -> usize {
    std::iter::from_fn(|| take(queue)).count()
}
