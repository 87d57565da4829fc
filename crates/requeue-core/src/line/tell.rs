//! Gauges of the line for metrics, a page in each lock hold: how many keys of each priority are ready,
//! and of each group.

use super::{Discipline, Line, Scheduler};
use crate::arena::Arena;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// How many levels, or groups, a page looks at.
pub(super) const PAGE: u32 = 256;

/// How many keys of a group are where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupGauges {
    /// Its name.
    pub name: Arc<str>,
    /// Its ready keys.
    pub ready: usize,
    /// Its held keys.
    pub held: usize,
}

impl<K> Line<K> {
    /// The levels from this rank on at which keys are ready, and how many, as far as one lock hold
    /// looks; returns where the next page begins.
    pub(crate) fn depths(&self, from: u32, into: &mut Vec<(i16, usize)>) -> Option<u32> {
        self.scheduler.as_deref()?.known.depths(from, PAGE as usize, into)
    }

    /// A ready key that is paused came to stand, or ceases to stand, where nothing takes it from.
    pub(super) fn set_paused_ready(&mut self, slot: u32, to: bool) {
        let Some(Scheduler { discipline, known, pauses, .. }) = self.scheduler.as_deref_mut() else { return };
        if pauses.set_ready(slot, to) {
            let by = if to { 1 } else { -1 };
            known.count_depth(known.pending(slot), by);
            if let Discipline::Fair(fair) = discipline {
                fair.count_paused_ready(slot, by);
            }
        }
    }

    /// Whether a key is paused and ready: it does not stand in line.
    pub(super) fn is_paused_ready(&self, arena: &Arena<K>, slot: u32) -> bool {
        self.scheduler.as_deref().is_some_and(|scheduler| scheduler.pauses.is_ready(arena, slot))
    }
}
