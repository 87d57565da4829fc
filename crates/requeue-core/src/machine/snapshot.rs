//! Snapshots: the known keys, one page per lock hold.
//!
//! A key has its slot for as long as it is known. So a walk over the slots in the order of their numbers
//! meets each key once that is known all the time, whatever comes and goes meanwhile.

use super::answers::{KeyState, Only};
use super::state::Core;
use crate::arena::{CHUNK, KeyRef};

/// Minimum number of slots that a page examines if they do not match.
const EXAMINED: usize = 4_096;

impl<K, V> Core<K, V> {
    /// Lends the next keys, at most `most`, from the slot `from` on, to `each`. Returns where the next page
    /// begins; `None` if this was the last. A page may be empty without being the last.
    ///
    /// Each loan must be [given back](Self::take_back).
    pub fn page(
        &mut self,
        from: u32,
        most: usize,
        only: Option<Only>,
        mut each: impl FnMut(KeyRef<K>, KeyState),
    ) -> Option<u32> {
        let end = self.arena.slots();
        let (mut slot, mut left, mut budget) = (from, most, most.max(EXAMINED));
        while slot < end && left > 0 && budget > 0 {
            budget -= 1;
            if self.arena.is_chunk_empty(slot) {
                slot = (slot / CHUNK as u32 + 1) * CHUNK as u32;
                continue;
            }
            if self.arena.flags_if_occupied(slot).is_some() {
                let wanted = |state: &KeyState| only.is_none_or(|only| only.is(state));
                if let Some(state) = self.state_of(slot).filter(wanted) {
                    each(self.arena.lend_in_place(slot), state);
                    left -= 1;
                }
            }
            slot += 1;
        }
        (slot < end).then_some(slot)
    }

    /// Takes back the loan of a key of a [`page`](Self::page). If there is no reason left to know the key, it
    /// is [trash](Self::take_trash).
    pub fn take_back(&mut self, loan: KeyRef<K>) {
        let slot = loan.slot();
        self.arena.give_back(loan);
        if let Some(key) = self.release(slot) {
            self.discard(Some(key), None);
        }
    }
}
