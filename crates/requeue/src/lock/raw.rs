//! The lock itself: a word that names its holder. A plain store releases it.
//!
//! The usual mutex is released by a read-modify-write, because the holder must learn in that step whether a
//! thread sleeps. That instruction takes as long as a third of a whole `add`. Here the holder stores, and
//! then checks for sleepers. A holder that checks too early would leave a sleeper asleep for ever:
//!
//! ```text
//!   holder                          sleeper
//!   S  holder = FREE                W  SLEEPERS is set
//!   light barrier                   heavy barrier
//!   L  is SLEEPERS set?             V  does somebody still have it?
//!   yes: wake one                   yes: sleep
//! ```
//!
//! L must not read the value before W while V reads the value before S. On the holder's side that takes a
//! full barrier, which costs as much as the read-modify-write. So the sleeper, which is about to make a
//! system call anyway, pays for both: its [heavy barrier](barrier::heavy) makes every running thread of the
//! process pass a full barrier, and the holder's [light one](barrier::light) only keeps the compiler from
//! reordering. (The manual of the system call `membarrier` describes this scheme.)
//!
//! **No thread sleeps for ever.** Let a sleeper's V have read that H has the lock. If the heavy barrier fell
//! between two instructions of H's thread that come before S, then L comes after it and reads SLEEPERS. If it
//! fell after S, then S was visible before V, but V read an older value: a contradiction. This holds for each
//! thread that takes the lock after H too, so every later holder finds SLEEPERS until it is cleared. It is
//! cleared only by a holder that looks for a thread to wake, inside the [lot's](Lot) own lock, when no other
//! thread is in the lot. V happens inside that lock too, and checks SLEEPERS again: a thread that had set it
//! and was not in the lot yet starts anew.
//!
//! **No thread waits for itself.** The word names the thread that took the lock. A caller that finds itself
//! there is user code that the queue runs under the lock and that calls the queue: it panics. No other thread
//! is mistaken for it: only the thread that has the lock has its own number there, and the number is removed
//! before the lock is handed over.
//!
//! **No thread starves.** A thread that wakes another takes the lock again first, if it is free (if not, its
//! new holder finds SLEEPERS). At times, when the lot says so, it hands the lock over instead of releasing
//! it.

use super::barrier;
use super::lot::{Lot, Parked, Unparked, Woken};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicU8, AtomicUsize, fence};
use crate::sync::this_thread;
use std::marker::PhantomData;
use std::time::Duration;

/// The kind of caller that has the lock or waits for it: the last two bits of the lock's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A caller that adds keys.
    Adds = 1,
    /// Any other caller.
    Other = 2,
}

/// The lock is free. Otherwise its word is the [`Caller`] that has it and the number of the thread; without a
/// number while it is handed over.
const FREE: usize = 0;
/// The bits of the word that are the [`Caller`].
const CALLER: usize = 3;

impl Caller {
    /// The lock's word while this thread has it.
    #[inline]
    fn on_this_thread(self) -> usize {
        self as usize | this_thread()
    }

    /// Whether this kind of caller has the lock, by the lock's word.
    #[inline]
    fn has(self, word: usize) -> bool {
        word & CALLER == self as usize
    }
}

/// How a caller that finds the lock taken stays away from it.
struct Turns {
    left: u32,
    /// The processor's pauses in the next turn, and the maximum per turn. A pause takes 45 ns on a Xeon of
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

    /// Stays away for one turn. Returns false if no turn is left.
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

/// How often a caller yields its core before each sleep.
const YIELDS: u32 = if cfg!(requeue_loom) { 0 } else { 7 };
/// A generous upper bound on the time until a store is visible to all threads.
const MOMENT: Duration = Duration::from_millis(1);

/// A thread is in the lot, or on its way there.
const SLEEPERS: u8 = 1;
/// The system has no heavy barrier, so each holder makes a full one. Never cleared: set when the lock is
/// made, or by the first sleeper that the system refuses it.
const FENCES: u8 = 2;

/// Panics because code that the queue runs under its lock has called the queue.
fn waits_for_itself() -> ! {
    panic!(
        "a queue was called from code that it runs under its own lock, and would wait for itself for ever: Eq, a merge \
         function, the drop of a value in it, a function of groups or an order must not call the queue; make that call after \
         the one that runs this code has returned"
    )
}

/// Proof that the current thread has the lock.
#[derive(Debug, Default)]
#[must_use = "the lock stays taken until this is given back"]
pub(super) struct Taken<'a>(PhantomData<(&'a RawLock, *const ())>);

#[derive(Debug)]
pub(super) struct RawLock {
    /// `FREE`, or the holder.
    holder: AtomicUsize,
    /// Flags that a holder checks after it has released the lock: `SLEEPERS`, `FENCES`.
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

    /// Takes the lock with this word if it is free. The error is the lock's current word.
    #[inline(always)]
    fn try_take(&self, word: usize) -> Result<(), usize> {
        self.holder.compare_exchange(FREE, word, Acquire, Relaxed).map(drop)
    }

    /// Whether this thread has the lock: no other one writes this thread's number there.
    #[inline]
    pub(super) fn is_held_here(&self) -> bool {
        self.holder.load(Relaxed) & !CALLER == this_thread()
    }

    /// Like [`try_take`](Self::try_take), but does not fetch the cache line for writing while the lock is
    /// taken.
    #[inline]
    fn try_take_again(&self, word: usize) -> Result<(), usize> {
        match self.holder.load(Relaxed) {
            FREE => self.try_take(word),
            holder => Err(holder),
        }
    }

    #[cold]
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

    /// Yields its core a few times, perhaps to the holder. Returns whether it then has the lock.
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
    fn after_release(&self) {
        if self.after.load(Relaxed) & FENCES != 0 {
            fence(SeqCst);
            if self.after.load(Relaxed) & SLEEPERS == 0 {
                return;
            }
        }
        // if another thread has it, that thread does it, because it finds SLEEPERS (without a number: if the
        // lock is handed over, this thread does not have it, and may call again)
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
