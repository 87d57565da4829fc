//! [`Ledger`]: the list of the keys that drains leave unfinished. `unfinished.rs` says which keys come to it.

use super::answers::UnfinishedReason;
use crate::time::Instant;
use alloc::collections::{BTreeMap, VecDeque};

/// A refused retry of a current run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) due: Option<Instant>,
    pub(super) reason: UnfinishedReason,
    /// The value was to go back: the run failed, or asked for a later run that has it.
    pub(super) keeps_value: bool,
}

/// A run that a shutdown dropped and a store still owes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlived {
    /// `None` is now.
    pub(super) due: Option<Instant>,
    pub(super) priority: i16,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) slot: u32,
    pub(super) due: Option<Instant>,
    /// The attempt of the next run.
    pub(super) attempt: u32,
    pub(super) priority: i16,
    pub(super) reason: UnfinishedReason,
}

/// The list.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// By number, in the order in which keys came into the list.
    pub(super) entries: BTreeMap<u64, Entry>,
    /// The numbers by slot.
    pub(super) numbers: BTreeMap<u32, u64>,
    /// The number of the next entry, which is also the number of entries made so far.
    pub(super) next: u64,
    /// Numbers of entries that were not reported.
    pub(super) untold: VecDeque<u64>,
    /// Triggers that were dropped while their limiters are being asked: they enter the list when those have
    /// answered.
    pub(super) coming: usize,
    /// The list was reported: the answer of a drain was made.
    pub(super) answered: bool,
    /// The next slot to be examined by a drain that keeps the timers of failed keys.
    pub(super) scanned: u32,
    /// The windows found by it, ordered by their ends.
    pub(super) windows: BTreeMap<(Instant, u32), u32>,
}
