//! The queue's lock, and a token bucket's: a mutex at which callers back off for a while before
//! they sleep.
//!
//! It is held for a hundred nanoseconds, in which the holder touches a handful of
//! cache lines. Who gets it next on another core fetches all of them, which takes
//! ten times as long as the work, so where many callers want it the core that had it
//! last had better have it again for a while. A caller that finds it taken therefore
//! stays away for longer each time, and in the meantime the holder gets through
//! dozens of calls; and the lock is rarely given up by way of the system, which
//! would cost more than all of this. What it came to: docs/EXPERIMENTS.md,
//! "In this code". The scheme is that of T. E. Anderson, "The performance of spin
//! lock alternatives for shared-memory multiprocessors" (IEEE TPDS 1(1), 1990).
//!
//! Nobody starves: after its turns a caller sleeps in the mutex's own line, and
//! `parking_lot` hands the lock over to the longest sleeper every half
//! millisecond.

use crate::sync::{Mutex, MutexGuard};

/// How often a caller stays away before it sleeps.
#[cfg(not(requeue_loom))]
const TURNS: u32 = 8;
/// How many of the processor's pauses it stays away for at first, and at most: of
/// 45 ns each on a Xeon of 2023, where all turns together take 0.14 ms; of 5 to
/// 30 ns on others.
#[cfg(not(requeue_loom))]
const PAUSES: (u32, u32) = (64, 512);

/// It begins a cache line: what stands before it is read without the lock.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    #[cfg(not(requeue_loom))]
    #[inline(always)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.back_off(),
        }
    }

    /// Pauses would be for nothing: the model tries all orders anyway.
    #[cfg(requeue_loom)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    #[cfg(not(requeue_loom))]
    #[cold]
    fn back_off(&self) -> MutexGuard<'_, T> {
        let (mut pauses, most) = PAUSES;
        for _ in 0..TURNS {
            for _ in 0..pauses {
                std::hint::spin_loop();
            }
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
            pauses = most.min(pauses * 2);
        }
        self.0.lock()
    }

    /// See [`Mutex::lock_uncounted`].
    #[cfg(all(requeue_counted, not(requeue_loom)))]
    pub(crate) fn lock_uncounted(&self) -> MutexGuard<'_, T> {
        self.0.lock_uncounted()
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn callers_that_backed_off_until_they_slept_get_the_lock() {
        let (lock, tried) = (Lock::new(0), Barrier::new(2));
        std::thread::scope(|s| {
            let held = lock.lock();
            s.spawn(|| {
                tried.wait();
                *lock.lock() += 1;
            });
            tried.wait();
            // all turns that it has, and more
            for _ in 0..100 * TURNS * PAUSES.1 {
                std::hint::spin_loop();
            }
            drop(held);
        });
        assert_eq!(*lock.lock(), 1);
    }
}
