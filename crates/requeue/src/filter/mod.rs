//! The pending filter: tells without the lock that an `add` is redundant.
//!
//! A key is *pending* while it is ready, or held and dirty: adding it changes
//! nothing then. The filter is a table beside the queue (see `table.rs`) of keys
//! that are pending, written under the mutex and read without it. It holds no
//! key that is not pending, and need not hold all that are.
//!
//! * A key is entered when an `add` that came through the lock was redundant, so
//!   that queues without such adds have no filter and pay one load an add. Not
//!   where the order is a user's own: it wants to hear of each.
//! * It is withdrawn when its being pending ends, in the same lock hold: when it is
//!   handed out, or leaves the line. The state machine has one function for that,
//!   and remembers for each key whether it has been entered (`PUBLISHED`), so that
//!   others pay one test of a flag.
//! * It may be ousted by another key that wants its entry.
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
//! **What the run sees (Q5).** Let W be a write that happens before the add (its
//! caller's, or one that the caller knew of), R a read by the handler of the
//! key's next run, and L have found the entry unchanged: L has read what entered
//! the key, so it is coherence-ordered before C, which struck that out. (Where
//! the entry had been given to another key, C is that striking-out; it happened
//! in an earlier hold of the mutex, so it too happens before G.) The rule for
//! fences (C++20, [atomics.order] 4): if A happens before X, Y happens before G
//! and X is coherence-ordered before Y, then A precedes G in the single order S
//! of all such fences. With L and C for X and Y: A precedes G. Were R to read what
//! W overwrote, R would be coherence-ordered before W, and by the same rule, since
//! G happens before R and W before A, G would precede A. So R sees W or something
//! later. And as the hand-out comes after L, the run starts after the call began.
//!
//! Without either barrier L may be answered before W has left the adder's store
//! buffer, or R before C has left the getter's.
//!
//! W and R are accesses to atomics and to what is built of them, locks and
//! channels included. That is all that safe code can tell. It is less than
//! *happens before*, which the mutex gave: `unsafe` code that passes plain memory
//! from an adder to a run must say so by an atomic of its own (store with
//! `Release`, load with `Acquire`).
//!
//! **What L is a look at.** For integers, a number that is never used twice
//! (`words.rs`); for other keys the address itself, which is protected by then,
//! so that whatever key stands there may be read (`raw.rs`, `hazards.rs`). The
//! proof that a key which is read is not dropped is the one above, with the
//! hazard record for W and the look at all records before a key is dropped for R.
//! A key that is being read then waits in limbo, and who stops reading looks
//! whether one does (`Hazards::owes_a_look`), and mostly sees it; if not, the next
//! lock hold does.
//!
//! **Shutting down (Q10).** `close`, `shut_down` and drains close the gate first,
//! in the lock hold that changes the phase (which only these do while the queue
//! is open: see `Shared`), with a full barrier after. An add whose call comes
//! after theirs returned sees it closed, by whatever it knows of their return: as
//! the gate is looked at again after A, even by a relaxed load. Nothing is
//! entered any more, so an add that overlaps and still finds its key was
//! redundant the moment before the gate was closed.
//!
//! **What else a redundant add did in the lock.** It fired due timers, and looked
//! at who is to be woken. Neither is owed: whoever looks at the queue fires them
//! first, and the alarm of those who wait does. But a waiter that was woken and
//! never comes is found out by the number of lock holds (`wait.rs`), so each
//! thread takes the lock once in 257 times although it need not.

mod barrier;
mod hazards;
mod raw;
mod table;
#[cfg(test)]
mod tests;
mod threads;
mod words;

use self::hazards::Hazards;
use self::raw::Place;
use self::table::{LEVELS, Tables};
use self::words::Word;
use crate::sync::atomic::AtomicUsize;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use requeue_core::{Core, Ticket};
use std::borrow::Borrow;
use std::ptr;
use std::sync::Arc;

/// There is no table yet. Else the gate is the number of the table in use, from 1,
/// with `CLOSED` if nothing is to be found any more.
const EMPTY: usize = 0;
const CLOSED: usize = 1 << 8;

/// What was read of the gate before it was gone through.
#[derive(Clone, Copy)]
pub(crate) struct Open(usize);

pub(crate) struct Filter<K> {
    gate: AtomicUsize,
    /// In use if keys are integers.
    words: Tables<Word>,
    /// In use if they are not.
    places: Tables<Place<K>>,
    /// Who reads keys by their address; none if keys are integers.
    hazards: Option<Arc<Hazards>>,
}

impl<K> Filter<K> {
    pub(crate) fn new() -> Self {
        Self {
            gate: AtomicUsize::new(EMPTY),
            words: Tables::new(),
            places: Tables::new(),
            hazards: (!raw::is_integer::<K>()).then(|| Arc::new(Hazards::new())),
        }
    }

    /// The gate, if there may be anything to be found.
    #[inline]
    pub(crate) fn open(&self) -> Option<Open> {
        let gate = self.gate.load(Acquire);
        (gate.wrapping_sub(1) < LEVELS).then_some(Open(gate))
    }

    /// Whether the key is pending, with a barrier of the caller's before it was
    /// found to be. Does not hold that it is not if not.
    #[inline]
    pub(crate) fn finds<Q>(&self, Open(gate): Open, key: &Q, hash: u32) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let level = gate.wrapping_sub(1);
        let found = if raw::is_integer::<K>() {
            let (Some(bucket), Some(word)) = (self.words.bucket(level, hash), raw::word::<K, Q>(key)) else {
                return false;
            };
            bucket.entries().iter().any(|entry| entry.is_pending(word))
        } else {
            let (Some(bucket), Some(record)) =
                (self.places.bucket(level, hash), self.hazards.as_ref().and_then(|h| h.own()))
            else {
                return false;
            };
            bucket.entries().iter().any(|entry| entry.is_pending(hash, record, |k| k.borrow() == key))
        };
        found && self.gate.load(Relaxed) == gate && !threads::is_its_turn()
    }

    /// Enters the key of a redundant add, unless it has to go unnoticed.
    #[cold]
    #[inline(never)]
    pub(crate) fn publish<V>(&self, core: &mut Core<K, V>, ticket: Ticket) {
        if raw::is_integer::<K>() {
            let none: Option<fn() -> _> = None;
            let Some((key, hash)) = core.publish(ticket, none) else { return };
            if let (Some(word), Some(level)) = (raw::word::<K, K>(key), self.level(&self.words)) {
                self.words.enter(level, hash, word);
            }
        } else if let Some(hazards) = &self.hazards {
            hazards.enlist();
            let Some((key, hash)) = raw::publish(core, ticket, hazards) else { return };
            if let Some(level) = self.level(&self.places) {
                self.places.enter(level, hash, key);
            }
        }
    }

    /// The table in use, made if there is none; under the mutex.
    fn level<E: table::Entry>(&self, tables: &Tables<E>) -> Option<usize> {
        if self.gate.load(Relaxed) == EMPTY {
            tables.make(0);
            self.gate.store(1, Release);
        }
        // the Acquire is for a table that somebody else made without the mutex
        Some(self.gate.load(Acquire).wrapping_sub(1)).filter(|level| *level < LEVELS)
    }

    /// Has a table that has shown to be too small followed by a larger one, which
    /// is made without the mutex.
    #[inline]
    pub(crate) fn grow_if_too_small(&self) {
        if self.words.is_too_small() || self.places.is_too_small() {
            self.grow();
        }
    }

    #[cold]
    fn grow(&self) {
        let gate = self.gate.load(Relaxed);
        let here = self.words.was_too_small() || self.places.was_too_small();
        if here && (1..LEVELS).contains(&gate) {
            if raw::is_integer::<K>() {
                self.words.make(gate);
            } else {
                self.places.make(gate);
            }
            // not if it was closed, or somebody else did this
            let _ = self.gate.compare_exchange(gate, gate + 1, Release, Relaxed);
        }
    }

    /// Withdraws a key that was published and is being handed out: under the
    /// mutex, before anybody can begin to handle it.
    #[cold]
    #[inline(never)]
    pub(crate) fn withdraw(&self, key: &K, hash: u32) {
        // the Acquire is for tables that others made without the mutex; one that is
        // not in use yet is empty
        let levels = self.gate.load(Acquire) & !CLOSED;
        if let Some(word) = raw::word::<K, K>(key) {
            self.words.withdraw(levels, hash, word);
        } else {
            self.places.withdraw(levels, hash, ptr::from_ref(key).addr());
        }
        barrier::getter_barrier();
    }

    /// From here on nothing is found. Under the mutex, before the state machine
    /// refuses anybody.
    pub(crate) fn close(&self) {
        if !barrier::leaves_out("gate") {
            // what `grow` released stays so
            self.gate.fetch_or(CLOSED, Relaxed);
            barrier::full_barrier();
        }
    }

    /// Looks again at keys that were kept for somebody who read them; under the
    /// mutex.
    #[cold]
    pub(crate) fn retry_limbo<V>(&self, core: &mut Core<K, V>) {
        let some_are_left = core.retry_limbo();
        if let Some(hazards) = &self.hazards {
            hazards.looked(some_are_left);
        }
    }

    /// Whether a key may have been kept for the calling thread, which reads none
    /// any more: then it takes the lock once.
    #[inline]
    pub(crate) fn owes_a_look(&self) -> bool {
        !raw::is_integer::<K>() && self.hazards.as_ref().is_some_and(|hazards| hazards.owes_a_look())
    }
}
