//! The lock itself: a flag that is released by a plain store.
//!
//! The usual mutex is released by a read-modify-write, because the holder must learn in the same step whether
//! somebody sleeps. That instruction takes as long as a third of a whole `add`. Here the holder stores, and then
//! looks whether somebody sleeps. A holder that looks too early would leave a sleeper asleep for ever:
//!
//! ```text
//!   holder                          sleeper
//!   S  locked = false               W  SLEEPERS is set
//!   light barrier                   heavy barrier
//!   L  is SLEEPERS set?             V  is it still locked?
//!   yes: wake one                   yes: sleep
//! ```
//!
//! L must not read what was before W while V reads what was before S. On the holder's side that takes a full
//! barrier, which costs what the read-modify-write did. So the sleeper, which is about to call the system anyway,
//! pays for both: its [heavy barrier](barrier::heavy) makes every running thread of the process pass a full
//! barrier, and the holder's [light one](barrier::light) only keeps the compiler from changing the order.
//! (The scheme is that of the system call `membarrier`, as its manual describes it.)
//!
//! **Nobody sleeps for ever.** Let a sleeper's V have read the `true` of a holder H. If the heavy barrier fell
//! between two instructions of H's thread that come before S, then L comes after it and reads SLEEPERS. If
//! it fell after S, then S was visible before V, which read a `true` that is older: a contradiction. The same
//! holds of whoever takes the lock after H: so every later holder finds SLEEPERS, until it is cleared. It is
//! cleared only by a holder that looks whom to wake, within the [lot's](Lot) own lock, and when nobody else is in the lot.
//! V is made within that lock too, and looks at SLEEPERS once more: so whoever had set it
//! and was not in the lot yet begins anew.
//!
//! **Nobody starves.** Whoever wakes somebody takes the lock again before, if it is free (if not, its new holder
//! finds SLEEPERS). At times, as the lot says, it does not release it but hands it over.

use super::barrier;
use super::lot::{Lot, Parked, Unparked, Woken};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicBool, AtomicU8, fence};
use std::marker::PhantomData;
use std::time::Duration;

/// How often a caller stays away before it sleeps. (A model tries all orders anyway.)
const TURNS: u32 = if cfg!(requeue_loom) { 0 } else { 8 };
/// How many of the processor's pauses it stays away for at first, and at most: of
/// 45 ns each on a Xeon of 2023, where all turns together take 0.14 ms; of 5 to
/// 30 ns on others.
const PAUSES: (u32, u32) = (64, 512);
/// How often a caller gives its core away before it sleeps, and again before it sleeps once more.
const YIELDS: u32 = if cfg!(requeue_loom) { 0 } else { 7 };
/// What a store takes at the very most until all threads see it, with much to spare.
const MOMENT: Duration = Duration::from_millis(1);

/// Somebody is in the lot, or on the way there.
const SLEEPERS: u8 = 1;
/// The system has no heavy barrier, so each holder makes a full one. Once set it stays: it is set when the lock is made, or by
/// the first sleeper that the system refuses it.
const FENCES: u8 = 2;

/// What whoever has the lock has, on the thread that took it.
#[derive(Debug, Default)]
#[must_use = "the lock stays taken until this is given back"]
pub(super) struct Taken<'a>(PhantomData<(&'a RawLock, *const ())>);

#[derive(Debug)]
pub(super) struct RawLock {
    /// Somebody has it.
    locked: AtomicBool,
    /// What a holder has to look at after it has released the lock: `SLEEPERS`, `FENCES`.
    after: AtomicU8,
    lot: Lot,
}

impl RawLock {
    pub(super) fn new() -> Self {
        Self::in_lot(Lot::default(), barrier::can_be_heavy())
    }

    pub(super) fn in_lot(lot: Lot, heavy: bool) -> Self {
        Self { locked: AtomicBool::new(false), after: AtomicU8::new(if heavy { 0 } else { FENCES }), lot }
    }

    #[inline(always)]
    pub(super) fn lock(&self) -> Taken<'_> {
        if !self.try_take() {
            self.back_off();
        }
        Taken(PhantomData)
    }

    #[inline(always)]
    fn try_take(&self) -> bool {
        self.locked.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }

    /// The same, without fetching the line for writing while somebody has the lock.
    #[inline]
    fn try_take_again(&self) -> bool {
        !self.locked.load(Relaxed) && self.try_take()
    }

    #[cold]
    #[inline(never)]
    fn back_off(&self) {
        let (mut pauses, most) = PAUSES;
        for _ in 0..TURNS {
            for _ in 0..pauses {
                std::hint::spin_loop();
            }
            if self.try_take_again() {
                return;
            }
            pauses = most.min(pauses * 2);
        }
        self.sleep();
    }

    /// Waits for the lock asleep.
    fn sleep(&self) {
        while !self.gives_way() {
            let fences = self.after.fetch_or(SLEEPERS, Relaxed) & FENCES != 0;
            if !barrier::heavy(fences) {
                // A process may forbid itself the system call at any time. From now on holders make full barriers here. One
                // that had looked too early for that has long released the lock when the moment is over.
                self.after.fetch_or(FENCES, Relaxed);
                std::thread::sleep(MOMENT);
                continue;
            }
            let is_to_sleep = || self.locked.load(Relaxed) && self.after.load(Relaxed) & SLEEPERS != 0;
            if let Parked::Woken(Woken::WithTheLock) = self.lot.park(is_to_sleep) {
                return;
            }
        }
    }

    /// Yields its core a few times, perhaps to the holder; returns whether it has the lock then.
    fn gives_way(&self) -> bool {
        for _ in 0..YIELDS {
            if self.try_take_again() {
                return true;
            }
            std::thread::yield_now();
        }
        self.try_take_again()
    }

    #[cfg(all(test, not(requeue_loom)))]
    pub(super) fn has_sleepers(&self) -> bool {
        self.after.load(Relaxed) & SLEEPERS != 0
    }

    #[inline(always)]
    pub(super) fn release(&self, _: Taken<'_>) {
        self.locked.store(false, Release);
        barrier::light();
        if self.after.load(Relaxed) != 0 {
            self.after_release();
        }
    }

    #[cold]
    #[inline(never)]
    fn after_release(&self) {
        if self.after.load(Relaxed) & FENCES != 0 {
            fence(SeqCst);
            if self.after.load(Relaxed) & SLEEPERS == 0 {
                return;
            }
        }
        // if somebody has it, that is theirs to do: they find SLEEPERS
        if self.try_take_again() {
            self.lot.unpark_one(|Unparked { any, more, fair }| {
                if !more {
                    self.after.fetch_and(!SLEEPERS, Relaxed);
                }
                if any && fair {
                    return Woken::WithTheLock;
                }
                self.locked.store(false, Release);
                Woken::ToTry
            });
        }
    }
}
