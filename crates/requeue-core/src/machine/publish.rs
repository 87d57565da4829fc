//! Published keys: pending keys that an add can find without the lock.
//!
//! The caller decides when keys are published and read: see the crate `requeue`, `filter/`. This module keeps
//! the part that must not be forgotten: that a pending key was published, so that it is withdrawn when it is
//! taken.

use super::flags::{DIRTY, DIRTY_RESPECTS, PENDING, PUBLISHED, READY};
use super::options::InBackoff;
use super::state::{Core, Phase};
use crate::line::Ticket;
use crate::slots::Slots;

impl<K, V> Core<K, V> {
    /// Records that a key is being published. Returns false if it must not be: it is not pending (ready, or
    /// held and dirty whatever becomes of its run), not every caller may trigger it, or each trigger must be
    /// seen, by a user's order or because it resets. Also false on a queue that drops keys for others.
    #[must_use]
    pub fn publish(&mut self, ticket: Ticket) -> bool {
        let slot = ticket.0;
        let flags = self.arena.flags_if_occupied(slot).unwrap_or(0);
        let may_be = flags & (READY | DIRTY) != 0
            && flags & DIRTY_RESPECTS == 0
            && self.phase == Phase::Open
            && !self.line.is_custom()
            && self.in_backoff != InBackoff::Reset
            && !self.drops_keys();
        if may_be {
            self.arena.set_flags(slot, flags | PUBLISHED);
        }
        may_be
    }

    /// The single end of the pending state: the key, which had these `flags`, is neither ready nor dirty any
    /// more. If it was published, `withdraw` gets it and its hash. The caller has cleared [`PENDING`] in its
    /// flags, and taken it out of the line.
    #[inline]
    pub(super) fn leave_pending(&mut self, slot: u32, flags: u32, withdraw: impl FnOnce(&K, u32)) {
        debug_assert!(flags & (READY | DIRTY) != 0 && self.arena.flags(slot) & PENDING == 0);
        if flags & PUBLISHED != 0 {
            withdraw(self.arena.key(slot), self.arena.hash(slot));
        }
        if flags & READY != 0 {
            self.ready -= 1;
        } else {
            self.dirty -= 1;
        }
    }
}
