//! A counted lock, for the test of what each call costs.

use parking_lot::MutexGuard;
use std::cell::Cell;

thread_local! {
    static LOCKS: Cell<u64> = const { Cell::new(0) };
}

/// Number of locks of this crate that this thread has taken.
pub(crate) fn locks() -> u64 {
    LOCKS.get()
}

pub(crate) fn count_lock() {
    LOCKS.set(LOCKS.get() + 1);
}

#[derive(Debug)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        count_lock();
        self.0.lock()
    }
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}
