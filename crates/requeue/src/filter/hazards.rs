//! Hazard records: which key a thread is reading without the lock.
//!
//! The scheme is M. Michael's, "Hazard Pointers: Safe Memory Reclamation for
//! Lock-Free Objects" (IEEE TPDS 15(6), 2004). A thread has one record a queue,
//! found by the thread's number, in blocks that are made as threads come.

use super::barrier::{full_barrier, leaves_out, store_then_adder_barrier};
use super::threads;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::OnceLock;

/// Records in the first block; each further one makes the number double.
const FIRST: usize = if cfg!(requeue_loom) { 1 } else { 8 };
const BLOCKS: usize = (threads::CAP / FIRST).ilog2() as usize + 1;

/// The address of the key that a thread reads, 0 if it reads none. Written by
/// the thread only whose number it has, and on a line of its own (two, because
/// processors fetch lines in pairs).
#[repr(align(128))]
pub(super) struct Record(AtomicUsize);

/// A record in use: the key at the address is not dropped while this exists, if
/// it was found published after this was made.
pub(super) struct Claim<'a>(&'a Record);

impl Record {
    /// Announces that the key at `address` is about to be read, and lets a full
    /// barrier follow. `None` if the thread is reading one already: users' `Eq`
    /// has called the queue.
    #[inline]
    pub(super) fn claim(&self, address: usize) -> Option<Claim<'_>> {
        if self.0.load(Relaxed) != 0 {
            return None;
        }
        store_then_adder_barrier(&self.0, address);
        Some(Claim(self))
    }
}

impl Drop for Claim<'_> {
    #[inline]
    fn drop(&mut self) {
        // what was read of the key was read before it is dropped
        self.0.0.store(0, Release);
    }
}

pub(super) struct Hazards {
    /// Block 0 has `FIRST` records, block n as many as all before it. Made under
    /// the queue's mutex.
    blocks: [OnceLock<Box<[Record]>>; BLOCKS],
    /// Whether somebody was found reading a key that nothing else keeps: whoever
    /// has stopped reading looks at this and then takes the lock once, so that
    /// such a key is mostly not kept until somebody else happens to call. (There
    /// is no barrier before that look: who stops just as the key is found may miss
    /// it, and then the next lock hold has the key dropped.)
    limbo: AtomicBool,
}

/// The block of a number, and the place in it.
#[inline]
fn locate(number: usize) -> (usize, usize) {
    if number < FIRST {
        return (0, number);
    }
    let doublings = (number / FIRST).ilog2();
    (doublings as usize + 1, number - (FIRST << doublings))
}

impl Hazards {
    pub(super) fn new() -> Self {
        Self { blocks: [const { OnceLock::new() }; BLOCKS], limbo: AtomicBool::new(false) }
    }

    /// The calling thread's record, if it has one.
    #[inline]
    pub(super) fn own(&self) -> Option<&Record> {
        let number = threads::number();
        if number >= threads::CAP {
            return None;
        }
        let (block, at) = locate(number);
        self.blocks[block].get()?.get(at)
    }

    /// Gives the calling thread a record, if there is one left. To be called
    /// under the queue's mutex.
    pub(super) fn enlist(&self) {
        threads::enlist();
        let number = threads::number();
        if number < threads::CAP {
            let (block, _) = locate(number);
            self.blocks[block].get_or_init(|| {
                let records = FIRST << block.saturating_sub(1);
                (0..records).map(|_| Record(AtomicUsize::new(0))).collect()
            });
        }
    }

    fn is_read(&self, address: usize) -> bool {
        let mut records = self.blocks.iter().filter_map(OnceLock::get).flat_map(|block| block.iter());
        records.any(|record| record.0.load(Acquire) == address)
    }

    /// Whether somebody may be reading the key at this address, which has been
    /// withdrawn. If so, whoever does finds [`owes_a_look`](Self::owes_a_look)
    /// when it has stopped. To be called under the queue's mutex.
    pub(super) fn protects(&self, address: usize) -> bool {
        if leaves_out("scan") || !self.is_read(address) {
            return false;
        }
        self.limbo.store(true, Relaxed);
        full_barrier();
        self.is_read(address)
    }

    #[inline]
    pub(super) fn owes_a_look(&self) -> bool {
        self.limbo.load(Relaxed)
    }

    /// Under the queue's mutex, after a look at what is in limbo.
    pub(super) fn looked(&self, some_are_left: bool) {
        if self.owes_a_look() != some_are_left {
            self.limbo.store(some_are_left, Relaxed);
        }
    }

    #[cfg(test)]
    pub(super) fn hold_own(&self, address: usize) -> Claim<'_> {
        self.own().and_then(|own| own.claim(address)).expect("a record that is free")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_record_of_its_own() {
        let mut next = (0, 0);
        for number in 0..threads::CAP {
            let (block, at) = locate(number);
            assert_eq!((block, at), next, "number {number}");
            let last = at + 1 == FIRST << block.saturating_sub(1);
            next = if last { (block + 1, 0) } else { (block, at + 1) };
        }
        assert_eq!(next, (BLOCKS, 0), "and no block is too many");
    }

    #[test]
    fn a_record_in_use_is_not_to_be_had_again() {
        let record = Record(AtomicUsize::new(0));
        let claim = record.claim(8).expect("it is free");
        assert!(record.claim(16).is_none() && record.0.load(Relaxed) == 8);
        drop(claim);
        assert!(record.claim(16).is_some());
    }
}
