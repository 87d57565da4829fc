//! The pending filter: finds redundant adds without the lock, for integer keys (see `integer.rs`; for other
//! keys see docs/EXPERIMENTS.md, "Redundant adds of strings").
//!
//! A key is *pending* while it is ready, or held and dirty: adding it then changes nothing. The filter is a
//! table beside the queue (see `table.rs`) of pending keys, written under the mutex and read without it.
//! Every key in it is pending, but not every pending key is in it.
//!
//! * A key is entered when an `add` under the lock was redundant, so queues without redundant adds have no
//!   filter and pay one load per add. A custom order must see each add, so it uses no filter.
//! * A key is withdrawn when it stops being pending, in the same lock hold: when it is handed out, or leaves
//!   the line. The state machine has one function for that, and remembers for each key whether it has been
//!   entered (`PUBLISHED`), so that other keys pay one test of a flag.
//! * It may be overwritten by another key that needs its entry.
//!
//! # The protocol
//!
//! ```text
//!   adder                          getter, holding the mutex
//!   (what was written before)      C  clear the entry, if there still is one
//!   look: is it my key?            G  full barrier
//!   A  full barrier                unlock; handler: reads
//!   L  look again: unchanged?
//!   (then it was redundant)
//! ```
//!
//! **What the run sees (Q5).** Let W be a write that happens before the add (its caller's, or one that the
//! caller knew of), R a read by the handler of the key's next run, and L a load that found the entry
//! unchanged. L has read what entered the key, so it is coherence-ordered before C, the store that removed
//! it. (If the entry had been given to another key, C is that replacement; it happened in an earlier hold of
//! the mutex, so it too happens before G.) The rule for fences (C++20, [atomics.order] 4): if A happens
//! before X, Y happens before G and X is coherence-ordered before Y, then A precedes G in the single order S
//! of all such fences. With L and C for X and Y: A precedes G. Now suppose R read what W overwrote. Then R
//! would be coherence-ordered before W, and by the same rule, since G happens before R and W before A, G
//! would precede A. This is a contradiction, so R sees W or something later. And because the hand-out comes
//! after L, the run starts after the call began.
//!
//! **A cancel** withdraws in the same way, with the same barrier. An add whose L found the entry comes before
//! C, and is cancelled with what was pending. An add that begins after the cancel has returned, and knows of
//! that return by any means, does not find the entry: otherwise A would precede G as above, but G precedes A
//! because the return was told after G and known before A.
//!
//! Without either barrier L may be answered before W has left the adder's store
//! buffer, or R before C has left the getter's.
//!
//! W and R are accesses to atomics and to what is built of them, locks and channels included. Safe code can
//! observe nothing else. The guarantee is weaker than the *happens before* of the mutex: `unsafe` code that
//! passes plain memory from an adder to a run needs an atomic of its own (store with `Release`, load with
//! `Acquire`).
//!
//! **The value that L reads.** A number that is never used twice and stands beside the key in the entry: see
//! `table.rs`.
//!
//! **Shutting down (Q10).** `close`, `shut_down` and drains first close the gate, in the lock hold that
//! changes the phase (which only they do while the queue is open: see `Shared`), followed by a full barrier.
//! An add that begins after their return, and knows of it by any means, sees the gate closed, because it
//! looks at the gate again after A; a relaxed load is enough. Nothing is entered any more, so an add that
//! overlaps and still finds its key was redundant the moment before the gate was closed.
//!
//! **Skipping the end of the lock hold.** The end of a lock hold looks for waiters to wake. A redundant add
//! need not do that: it makes no key ready, and an alarm of the clock detects a lost wake-up (`wait.rs`, "The
//! watch").

mod barrier;
mod integer;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use self::integer::word;
use self::table::{LEVELS, Tables};
use crate::sync::atomic::AtomicUsize;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::leaves_out;
use requeue_core::{Core, Ticket};

/// No table yet. Otherwise the gate is the number of the table in use, from 1, with `CLOSED` if nothing can
/// be found any more.
const EMPTY: usize = 0;
const CLOSED: usize = 1 << 8;

/// The value of `gate` before the look-up.
#[derive(Clone, Copy)]
pub(crate) struct Open(usize);

pub(crate) struct Filter {
    gate: AtomicUsize,
    tables: Tables,
}

impl Filter {
    pub(crate) fn new() -> Self {
        Self { gate: AtomicUsize::new(EMPTY), tables: Tables::new() }
    }

    /// The gate, if the key may be found. Compiles to nothing for keys that are not integers.
    #[inline(always)]
    pub(crate) fn open<Q: ?Sized>(&self, key: &Q) -> Option<Open> {
        word(key)?;
        let gate = self.gate.load(Acquire);
        (gate.wrapping_sub(1) < LEVELS).then_some(Open(gate))
    }

    /// `true`: the key is pending, and a full barrier lies between the two looks. `false`: unknown, take the
    /// lock.
    #[inline]
    pub(crate) fn finds<Q: ?Sized>(&self, Open(gate): Open, key: &Q, hash: u32) -> bool {
        word(key).is_some_and(|key| self.tables.is_pending(gate.wrapping_sub(1), key, hash))
            && self.gate.load(Relaxed) == gate
    }

    /// Enters the integer key of a redundant add, unless the state machine must see each add.
    #[cold]
    pub(crate) fn publish<K, V>(&self, core: &mut Core<K, V>, ticket: Ticket, key: u64, hash: u32) {
        if !core.publish(ticket) {
            return;
        }
        if let Some(level) = self.level() {
            self.tables.enter(level, key, hash);
        }
    }

    /// The table in use, created if there is none; under the mutex.
    fn level(&self) -> Option<usize> {
        if self.gate.load(Relaxed) == EMPTY {
            self.tables.make(0);
            self.gate.store(1, Release);
        }
        // the Acquire is for a table that another thread made without the mutex
        Some(self.gate.load(Acquire).wrapping_sub(1)).filter(|level| *level < LEVELS)
    }

    /// Creates a larger table, without the mutex, if the one in use has turned out to be too small.
    #[inline]
    pub(crate) fn grow_if_too_small(&self) {
        if self.tables.is_too_small() {
            self.grow();
        }
    }

    fn grow(&self) {
        let gate = self.gate.load(Relaxed);
        if self.tables.was_too_small() && (1..LEVELS).contains(&gate) {
            self.tables.make(gate);
            // not if it was closed, or another thread did this
            let _ = self.gate.compare_exchange(gate, gate + 1, Release, Relaxed);
        }
    }

    /// Withdraws a published key that is being handed out: under the mutex, before its handler can begin.
    #[cold]
    pub(crate) fn withdraw<K>(&self, key: &K, hash: u32) {
        // the Acquire is for tables that others made without the mutex; one that is
        // not in use yet is empty
        let levels = self.gate.load(Acquire) & !CLOSED;
        if let Some(key) = word(key) {
            self.tables.withdraw(levels, key, hash);
        }
        barrier::getter_barrier();
    }

    /// Closes the filter: from now on a lookup finds no key. Called under the mutex, before the state machine
    /// refuses any trigger.
    pub(crate) fn close(&self) {
        if !leaves_out("gate") {
            // the other bits stay: `grow` has released them
            self.gate.fetch_or(CLOSED, Relaxed);
            barrier::full_barrier();
        }
    }
}
