//! Keys that leave the line without a run: cancels, and drops for room.

use super::answers::{Cancelled, Handout, NoRun};
use super::flags::{COUNTED_WAITING, DIRTY, HELD, PENDING, READY, RESET};
use super::state::Core;
use core::borrow::Borrow;

impl<K, V> Core<K, V> {
    /// Makes a key neither ready nor dirty. Returns `false` if it was neither.
    ///
    /// A user's order, which is told of it, runs before anything changes.
    pub(super) fn leave_line(&mut self, slot: u32, withdraw: impl FnOnce(&K, u32)) -> bool {
        let flags = self.arena.flags(slot);
        if flags & (READY | DIRTY) == 0 {
            return false;
        }
        if flags & READY != 0 {
            self.line.leave(&mut self.arena, slot);
            if let Some(times) = &mut self.times {
                times.left(slot);
            }
        }
        self.arena.set_flags(slot, flags & !PENDING);
        if flags & COUNTED_WAITING != 0 {
            self.count_waiting(flags & !READY);
        }
        self.leave_pending(slot, flags, withdraw);
        true
    }

    /// Cancels everything that asks for a run of the key: it is no longer ready, dirty or waiting, and its
    /// value is taken. `None` if there was none of these. A current run goes on, and the failures stay.
    ///
    /// The second part of the answer is the key, if there is no reason left to know it; drop it outside the
    /// lock. For `withdraw` see [`get_up_to`](Self::get_up_to).
    ///
    /// # Panics
    ///
    /// If user code panics (`Eq`, a user's order). Then nothing has changed.
    pub fn cancel<Q>(
        &mut self,
        key: &Q,
        hash: u32,
        withdraw: impl FnOnce(&K, u32),
    ) -> (Option<Cancelled<V>>, Option<K>)
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let Some(slot) = self.find(hash, key) else { return (None, None) };
        self.cancel_at(slot, false, withdraw)
    }

    /// Removes all that is known of a key whose run has ended: everything that asks for a run, and its
    /// failures. Drop the result outside the lock. For `withdraw` see [`get_up_to`](Self::get_up_to). Does
    /// nothing to a held key.
    pub fn withdraw_ended(
        &mut self,
        slot: u32,
        withdraw: impl FnOnce(&K, u32),
    ) -> (Option<Cancelled<V>>, Option<K>) {
        if self.arena.flags(slot) & HELD != 0 {
            return (None, None);
        }
        self.cancel_at(slot, true, withdraw)
    }

    /// Forgets a key that was just handed out and must not run: nothing is known of it afterwards. Key and value are
    /// [trash](Self::take_trash). For `withdraw` see [`get_up_to`](Self::get_up_to).
    ///
    /// # Panics
    ///
    /// If the run belongs to another queue.
    pub fn take_back_handout(&mut self, handout: Handout<K, V>, withdraw: impl FnOnce(&K, u32)) {
        let slot = handout.run.slot();
        // without the value: nothing is merged, so no users' code runs
        let _ = self.put_back(handout.run, None, false);
        let (cancelled, key) = self.withdraw_ended(slot, withdraw);
        self.discard(key, handout.value);
        self.discard(None, cancelled.and_then(|cancelled| cancelled.value));
    }

    /// Clears what asks for a run of the key beside the line: its window, its timer, and the requests of triggers in a back-off.
    pub(super) fn clear_requests(&mut self, slot: u32) {
        self.clear_window(slot);
        self.clear_timer(slot);
        self.arena.set_flags(slot, self.arena.flags(slot) & !RESET);
    }

    fn cancel_at(
        &mut self,
        slot: u32,
        forget: bool,
        withdraw: impl FnOnce(&K, u32),
    ) -> (Option<Cancelled<V>>, Option<K>) {
        let flags = self.arena.flags(slot);
        let left = self.leave_line(slot, withdraw);
        let waiting_until = self.timers.due(slot);
        let unfinished = self.unlist(slot);
        self.clear_requests(slot);
        if forget {
            self.forget_failures(slot);
        }
        self.awaited_run_is_gone(slot, NoRun::Cancelled);
        let cancelled = (left || waiting_until.is_some() || unfinished).then(|| {
            if flags & HELD == 0 {
                // no further run follows the failures in a row
                self.restart_attempts(slot);
            }
            let (ready, dirty) = (flags & READY != 0, flags & DIRTY != 0);
            Cancelled { ready, dirty, waiting_until, unfinished, value: self.dead_value(slot) }
        });
        (cancelled, self.release(slot))
    }
}
