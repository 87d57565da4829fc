//! Users' code that panics at awkward moments: the panic may reach the caller,
//! and the queue goes on as if it had not happened.
#![cfg(not(requeue_loom))]

use requeue::WorkQueue;
use std::future::Future;
use std::hash::{BuildHasher, DefaultHasher};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

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
