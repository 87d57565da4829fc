//! The queue's lock, and a token bucket's: callers back off for a while before they sleep, and the
//! usual release is a plain store (`raw.rs`).
//!
//! It is held for a hundred nanoseconds, in which the holder touches a handful of
//! cache lines. Who gets it next on another core fetches all of them, which takes
//! ten times as long as the work, so where many callers want it, it is faster if one core
//! takes the lock several times in a row. A caller that finds it taken therefore
//! stays away for longer each time, and in the meantime the holder gets through
//! dozens of calls; and the lock is rarely given up by way of the system, which
//! would cost more than all of this. What it came to: docs/EXPERIMENTS.md, "The lock". The scheme is that of T. E.
//! Anderson, "The performance of spin lock alternatives for shared-memory multiprocessors" (IEEE TPDS 1(1), 1990).
//!
//! There is one exception. A caller that does not add keys looks again soon if the holder adds some. So it mostly gets the lock
//! next, the line stays short, and the processor's caches hold the table and the slots. In the workload W2, where all callers
//! stayed away for long, the line grew to a million keys, each add waited for memory while it had the lock, and a key took
//! two to three times as long: docs/EXPERIMENTS.md, "Who adds keys steps back".
//!
//! Nobody starves: after its turns a caller sleeps in `parking_lot`'s line (`lot.rs`), and the lock is
//! handed over to the longest sleeper every half millisecond.
//!
//! `unsafe` in this file: a hold gives access to the value. What makes it sound: only `Held` reaches
//! the value, other than by `&mut Lock`; a `Held` is made by whoever has taken the lock, and
//! the lock is released once, when it ends. It does not leave its thread. Both implementations of [`Locked`] answer
//! with one field of theirs, so with the same lock each time.

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

/// It begins a cache line: what stands before it is read without the lock.
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

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> Held<'_, Self> {
        Held::new(self, Caller::Other)
    }

    /// For whoever reads how often locks were taken.
    #[cfg(all(requeue_counted, not(requeue_loom)))]
    pub(crate) fn lock_uncounted(&self) -> Held<'_, Self> {
        Held { of: self, taken: self.raw.lock(Caller::Other) }
    }
}

debug!([T] Lock<T>, |_| { .. });

/// Something that contains a lock, and may have to act when a hold ends. A bare lock does nothing.
pub(crate) trait Locked {
    type Value;

    /// The lock, which must be the same one at each call: `Held` relies on that.
    fn the_lock(&self) -> &Lock<Self::Value>;

    /// Ends a hold that was [dropped](Held). It must release the lock.
    fn end(held: Plain<'_, Self::Value>, of: &Self);
}

/// A hold without anything that follows it.
pub(crate) type Plain<'a, T> = Held<'a, Lock<T>>;

impl<T> Locked for Lock<T> {
    type Value = T;

    #[inline(always)]
    fn the_lock(&self) -> &Lock<T> {
        self
    }

    #[inline(always)]
    fn end(held: Plain<'_, T>, _: &Self) {
        held.release();
    }
}

/// One hold of a lock. Dropped, also by a panic that unwinds, it ends as its [owner](Locked::end) says.
pub(crate) struct Held<'a, L: Locked> {
    of: &'a L,
    taken: Taken<'a>,
}

impl<'a, L: Locked> Held<'a, L> {
    #[inline(always)]
    pub(crate) fn new(of: &'a L, by: Caller) -> Self {
        #[cfg(all(requeue_counted, not(requeue_loom)))]
        crate::sync::count_lock();
        Self { of, taken: of.the_lock().raw.lock(by) }
    }

    #[inline(always)]
    pub(crate) fn owner(&self) -> &'a L {
        self.of
    }

    /// The same hold, after which nothing follows.
    #[inline(always)]
    pub(crate) fn into_plain(mut self) -> Plain<'a, L::Value> {
        let (of, taken) = (self.of, std::mem::take(&mut self.taken));
        std::mem::forget(self);
        Held { of: of.the_lock(), taken }
    }

    /// Releases the lock, and no more.
    #[inline(always)]
    pub(crate) fn release(mut self) {
        let (of, taken) = (self.of, std::mem::take(&mut self.taken));
        std::mem::forget(self);
        of.the_lock().raw.release(taken);
    }
}

impl<L: Locked> Drop for Held<'_, L> {
    #[inline(always)]
    fn drop(&mut self) {
        L::end(Held { of: self.of.the_lock(), taken: std::mem::take(&mut self.taken) }, self.of);
    }
}

impl<L: Locked> Deref for Held<'_, L> {
    type Target = L::Value;

    #[inline(always)]
    #[expect(unsafe_code, reason = "see above")]
    fn deref(&self) -> &L::Value {
        // SAFETY: this hold alone reaches the value until it ends, and it is borrowed as long as what is returned.
        unsafe { &*self.of.the_lock().value.get() }
    }
}

impl<L: Locked> DerefMut for Held<'_, L> {
    #[inline(always)]
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
