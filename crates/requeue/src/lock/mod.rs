//! The lock of the queue and of token buckets: callers back off for a while before they sleep, and the usual
//! release is a plain store (`raw.rs`).
//!
//! The lock is held for about a hundred nanoseconds, in which the holder touches a few cache lines. The next
//! holder on another core fetches all of them, which takes ten times as long as the work. So under contention
//! it is faster if one core takes the lock several times in a row. A caller that finds the lock taken
//! therefore stays away for longer each time, and meanwhile the holder completes dozens of calls. The lock is
//! rarely released through the system, which would cost more than all of this. Measurements:
//! docs/EXPERIMENTS.md, "The lock". The scheme is that of T. E. Anderson, "The performance of spin lock
//! alternatives for shared-memory multiprocessors" (IEEE TPDS 1(1), 1990).
//!
//! There is one exception. If the holder adds keys, a caller that does not add looks again soon. So it mostly
//! gets the lock next, the line stays short, and the processor's caches hold the table and the slots. In the
//! workload `contended` all callers once stayed away for long: the line grew to a million keys, each add waited for
//! memory while it had the lock, and a key took two to three times as long (docs/EXPERIMENTS.md, "Who adds
//! keys steps back").
//!
//! No caller starves: after its turns it sleeps in `parking_lot`'s line (`lot.rs`), and the lock is handed
//! over to the longest sleeper every half millisecond.
//!
//! `unsafe` in this file: a hold gives access to the value. It is sound because only `Held` and `&mut Lock`
//! reach the value, a `Held` is made only by the thread that has taken the lock, and the lock is released
//! once, when it ends. A `Held` does not leave its thread. Both implementations of [`Locked`] return one
//! field, so always the same lock.

#[cfg_attr(requeue_loom, allow(dead_code, reason = "the queue's models have loom's mutex"))]
mod barrier;
#[cfg_attr(requeue_loom, allow(dead_code, reason = "as above"))]
mod lot;
#[cfg_attr(requeue_loom, allow(dead_code, reason = "as above"))]
mod raw;

pub(crate) use self::raw::Caller;
#[cfg(not(requeue_loom))]
use self::raw::{RawLock, Taken};
#[cfg(requeue_loom)]
use crate::sync::{RawLock, Taken};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

/// Starts a cache line: the fields before it are read without the lock.
#[repr(C, align(64))]
pub(crate) struct Lock<T> {
    raw: RawLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes from thread to thread as the lock does, and is on one at a time.
#[expect(unsafe_code, reason = "see above")]
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { raw: RawLock::new(), value: UnsafeCell::new(value) }
    }

    /// Whether this thread has it.
    #[inline]
    pub(crate) fn is_held_here(&self) -> bool {
        self.raw.is_held_here()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline]
    pub(crate) fn lock(&self) -> Held<'_, Self> {
        Held::new(self, Caller::Other)
    }

    /// Takes the lock without counting it. For reading how often locks were taken.
    #[cfg(all(requeue_counted, not(requeue_loom)))]
    pub(crate) fn lock_uncounted(&self) -> Held<'_, Self> {
        Held { of: self, taken: self.raw.lock(Caller::Other) }
    }
}

debug!([T] Lock<T>, |_| { .. });

/// A type with a lock that runs code at unlock. `Lock` itself runs none.
pub(crate) trait Locked {
    type Value;

    /// The lock. It must always be the same one: `Held` relies on that.
    fn the_lock(&self) -> &Lock<Self::Value>;

    /// Ends a hold that was [dropped](Held). It must release the lock.
    fn end(held: Plain<'_, Self::Value>, of: &Self);
}

/// A hold after which no code runs.
pub(crate) type Plain<'a, T> = Held<'a, Lock<T>>;

impl<T> Locked for Lock<T> {
    type Value = T;

    #[inline]
    fn the_lock(&self) -> &Lock<T> {
        self
    }

    #[inline]
    fn end(held: Plain<'_, T>, _: &Self) {
        held.release();
    }
}

/// One hold of a lock. When it is dropped, even by an unwinding panic, its [owner](Locked::end) ends it.
pub(crate) struct Held<'a, L: Locked> {
    of: &'a L,
    taken: Taken<'a>,
}

impl<'a, L: Locked> Held<'a, L> {
    #[inline]
    pub(crate) fn new(of: &'a L, by: Caller) -> Self {
        #[cfg(all(requeue_counted, not(requeue_loom)))]
        crate::sync::count_lock();
        Self { of, taken: of.the_lock().raw.lock(by) }
    }

    #[inline]
    pub(crate) fn owner(&self) -> &'a L {
        self.of
    }

    /// Converts the hold to one after which no code runs.
    #[inline]
    pub(crate) fn into_plain(mut self) -> Plain<'a, L::Value> {
        let (of, taken) = (self.of, std::mem::take(&mut self.taken));
        std::mem::forget(self);
        Held { of: of.the_lock(), taken }
    }

    /// Releases the lock, and no more.
    #[inline]
    pub(crate) fn release(mut self) {
        let (of, taken) = (self.of, std::mem::take(&mut self.taken));
        std::mem::forget(self);
        of.the_lock().raw.release(taken);
    }
}

impl<L: Locked> Drop for Held<'_, L> {
    #[inline]
    fn drop(&mut self) {
        L::end(Held { of: self.of.the_lock(), taken: std::mem::take(&mut self.taken) }, self.of);
    }
}

impl<L: Locked> Deref for Held<'_, L> {
    type Target = L::Value;

    #[inline]
    #[expect(unsafe_code, reason = "see above")]
    fn deref(&self) -> &L::Value {
        // SAFETY: this hold alone reaches the value until it ends, and it is borrowed as long as what is returned.
        unsafe { &*self.of.the_lock().value.get() }
    }
}

impl<L: Locked> DerefMut for Held<'_, L> {
    #[inline]
    #[expect(unsafe_code, reason = "see above")]
    fn deref_mut(&mut self) -> &mut L::Value {
        // SAFETY: as above, and this hold is borrowed mutably.
        unsafe { &mut *self.of.the_lock().value.get() }
    }
}

#[cfg(all(test, requeue_loom))]
mod models;
#[cfg(all(test, not(requeue_loom)))]
mod tests;
