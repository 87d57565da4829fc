//! The one door through which locks, atomics and parking come in, so that the
//! models can swap in loom's under the private cfg `requeue_loom`, and the test of
//! what each call costs a lock that is counted, under `requeue_counted`.

#[cfg(all(requeue_counted, not(requeue_loom)))]
pub(crate) use self::counted::{Mutex, locks};
#[cfg(requeue_loom)]
pub(crate) use self::modelled::*;
#[cfg(not(requeue_loom))]
pub(crate) use self::real::*;

#[cfg(not(requeue_loom))]
mod real {
    #[cfg(not(requeue_counted))]
    pub(crate) use parking_lot::Mutex;
    pub(crate) use parking_lot::MutexGuard;
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread;
}

#[cfg(all(requeue_counted, not(requeue_loom)))]
mod counted {
    use parking_lot::MutexGuard;
    use std::cell::Cell;

    thread_local! {
        static LOCKS: Cell<u64> = const { Cell::new(0) };
    }

    /// How often this thread has taken a lock of this crate, whichever it was.
    pub(crate) fn locks() -> u64 {
        LOCKS.get()
    }

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }
        pub(crate) fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
        #[inline]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            LOCKS.set(LOCKS.get() + 1);
            self.0.lock()
        }
        #[inline]
        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            let guard = self.0.try_lock()?;
            LOCKS.set(LOCKS.get() + 1);
            Some(guard)
        }
        /// For whoever reads the counts.
        pub(crate) fn lock_uncounted(&self) -> MutexGuard<'_, T> {
            self.0.lock()
        }
    }
}

#[cfg(requeue_loom)]
mod modelled {
    pub(crate) use loom::sync::{MutexGuard, atomic};
    pub(crate) use loom::thread;

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
}
