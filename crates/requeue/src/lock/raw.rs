//! The lock itself: a word that says who has the lock. A plain store releases it.
//!
//! The usual mutex is released by a read-modify-write, because the holder must learn in the same step whether
//! somebody sleeps. That instruction takes as long as a third of a whole `add`. Here the holder stores, and then
//! looks whether somebody sleeps. A holder that looks too early would leave a sleeper asleep for ever:
//!
//! ```text
//!   holder                          sleeper
//!   S  holder = FREE                W  SLEEPERS is set
//!   light barrier                   heavy barrier
//!   L  is SLEEPERS set?             V  does somebody still have it?
//!   yes: wake one                   yes: sleep
//! ```
//!
//! L must not read what was before W while V reads what was before S. On the holder's side that takes a full
//! barrier, which costs what the read-modify-write did. So the sleeper, which is about to call the system anyway,
//! pays for both: its [heavy barrier](barrier::heavy) makes every running thread of the process pass a full
//! barrier, and the holder's [light one](barrier::light) only keeps the compiler from changing the order.
//! (The scheme is that of the system call `membarrier`, as its manual describes it.)
//!
//! **Nobody sleeps for ever.** Let a sleeper's V have read that H has the lock. If the heavy barrier fell
//! between two instructions of H's thread that come before S, then L comes after it and reads SLEEPERS. If
//! it fell after S, then S was visible before V, but V read an older value: a contradiction. The same
//! holds of whoever takes the lock after H: so every later holder finds SLEEPERS, until it is cleared. It is
//! cleared only by a holder that looks whom to wake, within the [lot's](Lot) own lock, and when nobody else is in the lot.
//! V is made within that lock too, and looks at SLEEPERS once more: so whoever had set it
//! and was not in the lot yet begins anew.
//!
//! **Nobody waits for itself.** The word has the thread that took the lock. A caller that finds it taken, and finds itself
//! there, is users' code that the queue runs under the lock and that calls the queue: it panics. No other thread is taken for it: only the
//! thread that has the lock has its own number there, and the number is taken away before the lock is handed over.
//!
//! **Nobody starves.** Whoever wakes somebody takes the lock again before, if it is free (if not, its new holder
//! finds SLEEPERS). At times, as the lot says, it does not release it but hands it over.

use super::barrier;
use super::lot::{Lot, Parked, Unparked, Woken};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicU8, AtomicUsize, fence};
use crate::sync::this_thread;
use std::marker::PhantomData;
use std::time::Duration;

/// The owner of the lock or the caller that waits for it: the last two bits of the lock's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// One who adds keys.
    Adds = 1,
    /// Anybody else.
    Other = 2,
}

/// Nobody has the lock. Otherwise its word is the [`Caller`] who has it and the number of the thread; without a number while
/// it is handed over.
const FREE: usize = 0;
/// The bits of the word that are the [`Caller`].
const CALLER: usize = 3;

impl Caller {
    /// The lock's word while this thread has it.
    #[inline(always)]
    fn on_this_thread(self) -> usize {
        self as usize | this_thread()
    }

    /// Whether it is one of these who has the lock, by its word.
    #[inline]
    fn has(self, word: usize) -> bool {
        word & CALLER == self as usize
    }
}

/// How a caller that finds the lock taken stays away from it.
struct Turns {
    left: u32,
    /// How many of the processor's pauses the next turn takes, and how many a turn takes at most. A pause takes 45 ns on a Xeon of
    /// 2023, where all turns of `PATIENT` take 0.14 ms and those of `EAGER` 0.04 ms; 5 to 30 ns elsewhere.
    pauses: u32,
    most: u32,
}

impl Turns {
    const PATIENT: Self = Self::new(8, 64, 512);
    const EAGER: Self = Self::new(64, 1, 16);

    const fn new(turns: u32, pauses: u32, most: u32) -> Self {
        // a model tries all orders anyway
        Self { left: if cfg!(requeue_loom) { 0 } else { turns }, pauses, most }
    }

    /// Stays away for one turn; false if no turn is left.
    fn stay_away(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        for _ in 0..self.pauses {
            std::hint::spin_loop();
        }
        self.left -= 1;
        self.pauses = self.most.min(self.pauses * 2);
        true
    }
}

/// How often a caller gives its core away before it sleeps, and again before it sleeps once more.
const YIELDS: u32 = if cfg!(requeue_loom) { 0 } else { 7 };
/// What a store takes at the very most until all threads see it, with much to spare.
const MOMENT: Duration = Duration::from_millis(1);

/// Somebody is in the lot, or on the way there.
const SLEEPERS: u8 = 1;
/// The system has no heavy barrier, so each holder makes a full one. Once set it stays: it is set when the lock is made, or by
/// the first sleeper that the system refuses it.
const FENCES: u8 = 2;

/// The queue was called by code that the queue runs while it has the lock.
#[cold]
#[inline(never)]
fn waits_for_itself() -> ! {
    panic!(
        "a queue was called from code that it runs under its own lock, and would wait for itself for ever: Eq, a merge \
         function, the drop of a value in it, a function of groups or an order must not call the queue; make that call after \
         the one that runs this code has returned"
    )
}

/// What whoever has the lock has, on the thread that took it.
#[derive(Debug, Default)]
#[must_use = "the lock stays taken until this is given back"]
pub(super) struct Taken<'a>(PhantomData<(&'a RawLock, *const ())>);

#[derive(Debug)]
pub(super) struct RawLock {
    /// `FREE`, or who has it.
    holder: AtomicUsize,
    /// What a holder has to look at after it has released the lock: `SLEEPERS`, `FENCES`.
    after: AtomicU8,
    lot: Lot,
}

impl RawLock {
    pub(super) fn new() -> Self {
        Self::in_lot(Lot::default(), barrier::can_be_heavy())
    }

    pub(super) fn in_lot(lot: Lot, heavy: bool) -> Self {
        Self { holder: AtomicUsize::new(FREE), after: AtomicU8::new(if heavy { 0 } else { FENCES }), lot }
    }

    #[inline(always)]
    pub(super) fn lock(&self, by: Caller) -> Taken<'_> {
        if let Err(holder) = self.try_take(by.on_this_thread()) {
            self.back_off(by, holder);
        }
        Taken(PhantomData)
    }

    /// Takes the lock with this word if it is free; the error is the word that it has.
    #[inline(always)]
    fn try_take(&self, word: usize) -> Result<(), usize> {
        self.holder.compare_exchange(FREE, word, Acquire, Relaxed).map(drop)
    }

    /// The same, without fetching the line for writing while somebody has the lock.
    #[inline]
    fn try_take_again(&self, word: usize) -> Result<(), usize> {
        match self.holder.load(Relaxed) {
            FREE => self.try_take(word),
            holder => Err(holder),
        }
    }

    #[cold]
    #[inline(never)]
    fn back_off(&self, by: Caller, mut holder: usize) {
        let word = by.on_this_thread();
        if holder & !CALLER == word & !CALLER {
            waits_for_itself();
        }
        let (mut eager, mut patient) = (Turns::EAGER, Turns::PATIENT);
        loop {
            let soon = by == Caller::Other && Caller::Adds.has(holder);
            let has_waited = (soon && eager.stay_away()) || patient.stay_away();
            if !has_waited {
                return self.sleep(word);
            }
            match self.try_take_again(word) {
                Ok(()) => return,
                Err(now) => holder = now,
            }
        }
    }

    /// Waits for the lock asleep.
    fn sleep(&self, word: usize) {
        while !self.gives_way(word) {
            let fences = self.after.fetch_or(SLEEPERS, Relaxed) & FENCES != 0;
            if !barrier::heavy(fences) {
                // A process may forbid itself the system call at any time. From now on holders make full barriers here. One
                // that had looked too early for that has long released the lock when the moment is over.
                self.after.fetch_or(FENCES, Relaxed);
                std::thread::sleep(MOMENT);
                continue;
            }
            let is_to_sleep =
                || self.holder.load(Relaxed) != FREE && self.after.load(Relaxed) & SLEEPERS != 0;
            if let Parked::Woken(Woken::WithTheLock) = self.lot.park(is_to_sleep) {
                self.holder.store(word, Relaxed);
                return;
            }
        }
    }

    /// Yields its core a few times, perhaps to the holder; returns whether it has the lock then.
    fn gives_way(&self, word: usize) -> bool {
        for _ in 0..YIELDS {
            if self.try_take_again(word).is_ok() {
                return true;
            }
            std::thread::yield_now();
        }
        self.try_take_again(word).is_ok()
    }

    #[cfg(all(test, not(requeue_loom)))]
    pub(super) fn has_sleepers(&self) -> bool {
        self.after.load(Relaxed) & SLEEPERS != 0
    }

    #[inline(always)]
    pub(super) fn release(&self, _: Taken<'_>) {
        self.holder.store(FREE, Release);
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
        // (without a number: if it is handed over this thread does not have it, and may call again)
        if self.try_take_again(Caller::Other as usize).is_ok() {
            self.lot.unpark_one(|Unparked { any, more, fair }| {
                if !more {
                    self.after.fetch_and(!SLEEPERS, Relaxed);
                }
                if any && fair {
                    return Woken::WithTheLock;
                }
                self.holder.store(FREE, Release);
                Woken::ToTry
            });
        }
    }
}
