//! The bound on the number of keys that a queue knows (rule B8).
//!
//! Keys that are ready, waiting or held count, once each. A key that is known only by its failures, or by a
//! guard that still lends it, does not count: it needs no run. So the number is the sum of ready keys, held
//! keys, and keys that only wait. The last number is kept only on queues with a bound, where each key with a
//! timer has the flag [`COUNTED_WAITING`].
//!
//! Only triggers from outside need room, and only for keys that do not count yet. A retry's key is held, and
//! a timer's key is waiting.

use super::answers::Refused;
use super::flags::{COUNTED_WAITING, HELD, READY};
use super::options::Asking;
use super::pending_work;
use super::state::Core;
use crate::arena::KeyRef;
use alloc::vec::Vec;
use core::borrow::Borrow;

impl<K, V> Core<K, V> {
    /// Number of further keys that there is room for; `None` on a queue without a bound.
    #[must_use]
    pub fn room(&self) -> Option<usize> {
        let room = self.bound.as_deref()?;
        Some(room.free(self.ready + self.held))
    }

    /// Whether there is room for a further key, and no caller waits that must be told of it.
    #[inline]
    pub(super) fn has_room_at_once(&self) -> bool {
        let Some(room) = self.bound.as_deref() else { return true };
        room.entered.is_none() && room.free(self.ready + self.held) > room.kept
    }

    /// Number of waiting callers that there is room for, counting keys that may be dropped for them. `None`
    /// on a queue without a bound.
    #[must_use]
    pub fn room_to_make(&self) -> Option<usize> {
        let droppable = if self.drops_keys() && self.line.oldest().is_some() { self.ready } else { 0 };
        self.room().map(|room| room + droppable)
    }

    /// Starts or stops recording the hashes of triggered keys, for callers that wait for room.
    pub fn note_entered(&mut self, to: bool) {
        if let Some(room) = &mut self.bound {
            if to != room.entered.is_some() {
                room.entered = to.then(Vec::new);
            }
        }
    }

    /// The hashes [recorded](Self::note_entered), each at least once.
    pub fn take_entered(&mut self) -> Vec<u32> {
        let entered = self.bound.as_mut().and_then(|room| room.entered.as_mut());
        entered.map(core::mem::take).unwrap_or_default()
    }

    /// Records that a trigger of a key was entered, for which the key in this slot makes room.
    #[inline]
    pub(super) fn note_trigger_entered(&mut self, hash: u32, drops: Option<u32>) {
        if let Some(slot) = drops {
            self.drop_for_room(slot);
        }
        if let Some(entered) = self.bound.as_mut().and_then(|room| room.entered.as_mut()) {
            entered.push(hash);
        }
    }

    /// Runs `call` while this number of places is reserved for callers that wait for room.
    pub fn behind<R>(&mut self, places: usize, call: impl FnOnce(&mut Self) -> R) -> R {
        struct Kept<'a, K, V>(&'a mut Core<K, V>);
        impl<K, V> Kept<'_, K, V> {
            fn set(&mut self, places: usize) {
                if let Some(room) = &mut self.0.bound {
                    room.kept = places;
                }
            }
        }
        // also where users' code panics
        impl<K, V> Drop for Kept<'_, K, V> {
            fn drop(&mut self) {
                self.set(0);
            }
        }
        let mut kept = Kept(self);
        kept.set(places);
        call(kept.0)
    }

    /// Takes the keys that were dropped for room, with their values. Each loan must be [given
    /// back](Self::take_back).
    pub fn take_dropped(&mut self) -> Vec<(KeyRef<K>, Option<V>)> {
        if self.pending_work & pending_work::DROPPED == 0 {
            return Vec::new();
        }
        self.pending_work &= !pending_work::DROPPED;
        self.bound.as_mut().map(|room| core::mem::take(&mut room.dropped)).unwrap_or_default()
    }

    /// Gives up the place of an asking that is over, or was dropped.
    pub(super) fn leave_place(&mut self, asking: Asking) {
        if let (true, Some(room)) = (asking.place, &mut self.bound) {
            room.asking -= 1;
        }
    }

    /// Gives up the places of all askings.
    pub(super) fn leave_all_places(&mut self) {
        if let Some(room) = &mut self.bound {
            room.asking = 0;
        }
    }

    /// Whether the key counts.
    pub(super) fn has_place<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(hash, key).is_some_and(|slot| self.counts(slot))
    }

    /// Whether the key in this slot counts.
    pub(super) fn counts(&self, slot: u32) -> bool {
        self.arena.flags(slot) & (READY | HELD | COUNTED_WAITING) != 0
    }

    /// The slot of the key that must go once a trigger of this key is entered, if any. The only user code it
    /// calls is `Eq`.
    ///
    /// # Errors
    ///
    /// [`Refused::Full`] if there is no room.
    pub(super) fn room_for<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> Result<Option<u32>, Refused>
    where
        K: Borrow<Q>,
    {
        let (Some(free), Some(room)) = (self.room(), &self.bound) else { return Ok(None) };
        if free > room.kept || self.has_place(key, hash) {
            return Ok(None);
        }
        let oldest = if room.bound.drop_oldest { self.line.oldest() } else { None };
        oldest.map(Some).ok_or(Refused::Full)
    }

    /// Whether keys may be dropped for others. Then no key is published, because it could cease to be pending
    /// in a call that cannot withdraw it.
    pub(super) fn drops_keys(&self) -> bool {
        self.bound.as_ref().is_some_and(|room| room.bound.drop_oldest)
    }

    /// Drops a ready key for room, as if it were cancelled. Runs no user code: there is no user's order.
    fn drop_for_room(&mut self, slot: u32) {
        let loan = self.arena.lend_in_place(slot);
        self.leave_line(slot, |_, _| ());
        self.clear_requests(slot);
        self.restart_attempts(slot);
        let value = self.dead_value(slot);
        if let Some(room) = &mut self.bound {
            room.dropped.push((loan, value));
            self.pending_work |= pending_work::DROPPED;
        }
    }

    /// Counts a key whose timer is about to be set.
    pub(super) fn count_timer(&mut self, slot: u32) {
        let flags = self.arena.flags(slot);
        if flags & COUNTED_WAITING == 0 {
            self.arena.set_flags(slot, flags | COUNTED_WAITING);
            self.count_waiting(flags);
        }
    }

    /// Counts a key with a timer as only waiting from now on, unless these other flags of it say that it is
    /// ready or held.
    pub(super) fn count_waiting(&mut self, flags: u32) {
        if let (0, Some(room)) = (flags & (READY | HELD), &mut self.bound) {
            room.waiting += 1;
        }
    }

    /// Counts a key with these former flags that has lost its timer, or becomes ready.
    pub(super) fn uncount_waiting(&mut self, flags: u32) {
        if let (0, Some(room)) = (flags & (READY | HELD), &mut self.bound) {
            room.waiting -= 1;
        }
    }
}
