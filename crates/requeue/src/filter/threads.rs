//! Small numbers for the threads of the process: each has one of its own for as
//! long as it lives, the lowest that is free.
//!
//! The number picks the thread's hazard record in every queue. A thread that has
//! none takes the lock instead: one that never met a redundant add, one that is
//! past its thread-local destructors, and any beyond [`CAP`].

use std::cell::Cell;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

/// How many threads have numbers at once.
pub(super) const CAP: usize = if cfg!(requeue_loom) { 8 } else { 256 };

/// No thread's number.
pub(super) const NONE: usize = usize::MAX;

const WORDS: usize = CAP.div_ceil(64);

/// Which numbers are taken.
struct Pool {
    /// A bit each. Never locked while anything else is waited for, and no models'
    /// lock: nothing that it orders is relied on.
    taken: Mutex<[u64; WORDS]>,
    /// How many there are: a hint that spares threads beyond the cap the lock.
    count: AtomicUsize,
}

#[cfg(not(requeue_loom))]
static POOL: Pool = Pool::new();
// one for each execution, which must repeat exactly
#[cfg(requeue_loom)]
loom::lazy_static! {
    static ref POOL: Pool = Pool::new();
}

impl Pool {
    const fn new() -> Self {
        Self { taken: Mutex::new([0; WORDS]), count: AtomicUsize::new(0) }
    }

    fn take(&self) -> usize {
        if self.count.load(Relaxed) >= CAP {
            return NONE;
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        for at in 0..CAP {
            if taken[at / 64] >> (at % 64) & 1 == 0 {
                taken[at / 64] |= 1 << (at % 64);
                self.count.fetch_add(1, Relaxed);
                return at;
            }
        }
        NONE
    }

    #[cfg_attr(requeue_loom, allow(dead_code))]
    fn give_back(&self, number: usize) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken[number / 64] &= !(1 << (number % 64));
        self.count.fetch_sub(1, Relaxed);
    }
}

/// A number, returned as the thread ends.
struct Lease(Cell<usize>);

impl Drop for Lease {
    fn drop(&mut self) {
        // a model's threads are few, and its pool goes before them
        #[cfg(not(requeue_loom))]
        if self.0.get() != NONE {
            NUMBER.set(NONE);
            POOL.give_back(self.0.get());
        }
    }
}

// Two, because one with a destructor is slower to reach.
#[cfg(not(requeue_loom))]
thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NONE) };
    static LEASE: Lease = const { Lease(Cell::new(NONE)) };
    static TURNS: Cell<u32> = const { Cell::new(0) };
}
#[cfg(requeue_loom)]
loom::thread_local! {
    static LEASE: Lease = Lease(Cell::new(NONE));
}

/// The calling thread's number, [`NONE`] if it has none.
#[inline]
pub(super) fn number() -> usize {
    #[cfg(not(requeue_loom))]
    return NUMBER.get();
    #[cfg(requeue_loom)]
    LEASE.try_with(|lease| lease.0.get()).unwrap_or(NONE)
}

/// Gets the calling thread a number, if there is one left and it is not ending.
pub(super) fn enlist() {
    if number() != NONE {
        return;
    }
    let _ = LEASE.try_with(|lease| {
        lease.0.set(POOL.take());
        #[cfg(not(requeue_loom))]
        NUMBER.set(lease.0.get());
    });
}

/// Whether it is the calling thread's turn to take the lock although it need
/// not: once in 256 times on average.
#[inline]
pub(super) fn is_its_turn() -> bool {
    #[cfg(not(requeue_loom))]
    {
        // a random step, so that who goes round several queues misses none; the
        // constants are those of Numerical Recipes
        let turn = TURNS.get().wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        TURNS.set(turn);
        turn >> 24 == 0
    }
    // a model must run the same way each time
    #[cfg(requeue_loom)]
    return false;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_that_is_free_is_taken_up_to_the_cap() {
        let pool = Pool::new();
        assert!((0..CAP).all(|n| pool.take() == n));
        assert_eq!((pool.take(), pool.take()), (NONE, NONE));
        pool.give_back(CAP - 1);
        pool.give_back(3);
        assert_eq!((pool.take(), pool.take(), pool.take()), (3, CAP - 1, NONE));
    }

    #[test]
    fn a_thread_keeps_its_number_and_returns_it() {
        let run = || {
            std::thread::spawn(|| {
                assert_eq!(number(), NONE);
                enlist();
                let own = number();
                enlist();
                assert_eq!(number(), own);
                own
            })
        };
        // other tests' threads come and go meanwhile
        let numbers: Vec<usize> = (0..10).map(|_| run().join().expect("no panic")).collect();
        assert!(numbers.iter().all(|&n| n < 64), "{numbers:?}");
    }

    #[test]
    fn a_thread_that_ends_has_none_any_more() {
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                enlist();
                // its lease has gone, or goes after this and takes the number along
                assert!(number() == NONE || LEASE.try_with(|_| ()).is_ok());
            }
        }
        thread_local!(static LATE: Late = const { Late });
        std::thread::spawn(|| {
            LATE.with(|_| ());
            enlist();
        })
        .join()
        .expect("no panic");
    }
}
