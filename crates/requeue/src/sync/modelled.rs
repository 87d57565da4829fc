//! The models' locks and atomics, which are loom's.

pub(crate) use loom::sync::{MutexGuard, atomic};
pub(crate) use loom::thread;
use std::sync::atomic::{AtomicUsize, Ordering};

static THREADS: AtomicUsize = AtomicUsize::new(1);

loom::thread_local! {
    static HERE: usize = THREADS.fetch_add(1, Ordering::Relaxed) * 4;
}

/// The number of this thread: a multiple of 4, and not 0.
pub(crate) fn this_thread() -> usize {
    HERE.with(|here| *here)
}

/// The queue's lock in its models: loom's mutex. (Our own lock has models in `lock/models.rs`.)
#[derive(Debug)]
pub(crate) struct RawLock(Mutex<()>);

/// The holder's token; empty once given back.
#[derive(Debug, Default)]
pub(crate) struct Taken<'a>(Option<MutexGuard<'a, ()>>);

impl RawLock {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(()))
    }
    /// Takes the lock. The kind of caller makes no difference: models try all orders.
    pub(crate) fn lock<By>(&self, _: By) -> Taken<'_> {
        Taken(Some(self.0.lock()))
    }
    /// The models have no users' code that calls the queue.
    pub(crate) fn is_held_here(&self) -> bool {
        false
    }
    pub(crate) fn release(&self, taken: Taken<'_>) {
        drop(taken.0);
    }
}

/// loom's mutex with parking_lot's signature: a lock that is not poisoned.
#[derive(Debug)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }
    pub(crate) fn get_mut(&mut self) -> &mut T {
        match self.0.get_mut() {
            Ok(value) => value,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.0.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}
