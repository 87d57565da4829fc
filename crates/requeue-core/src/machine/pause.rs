//! Pauses: the queue, a group or a key is not handed out for a while (rule B7).
//!
//! A paused key is known until it is resumed, in any state. If it is ready it counts as ready, but is not in
//! line: [`Line::enter`](crate::line::Line::enter) leaves it out. A paused group is held back like one at its
//! cap, and is known until it is resumed. A drain or a shutdown lifts all pauses: the queue's at once, those
//! of groups and keys one batch per lock hold, as the timers are dropped.

use super::flags::READY;
use super::state::{BATCH, Core};
use crate::line::PAUSED;

impl<K, V> Core<K, V> {
    /// Hands out no key until [`resume`](Self::resume), or until a drain or a shutdown. Returns false, and
    /// changes nothing, if one has begun.
    pub fn pause(&mut self) -> bool {
        let may_be = !self.is_ending();
        if may_be {
            self.line.pause(self.now);
        }
        may_be
    }

    /// Hands out keys again; false if the queue was not paused. Keys that are themselves paused stay paused.
    pub fn resume(&mut self) -> bool {
        self.line.resume(self.now)
    }

    /// Whether the whole queue is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.line.is_paused()
    }

    /// Lifts the rate of the queue and those of its groups; false if there was none. Call
    /// [`advance`](Self::advance) until it has no more to do.
    pub fn lift_rate(&mut self) -> bool {
        let lifted = self.line.lift_rate();
        if lifted {
            // the rest is left for the next look
            self.line.refill(self.now, BATCH);
        }
        self.watch_time();
        lifted
    }

    /// Hands out no key of this key's group until [`resume_group`](Self::resume_group), or until a drain or a
    /// shutdown. The key itself need not be known, and does not become known. Returns false, and changes
    /// nothing, if there are no groups, or if a drain or a shutdown has begun.
    ///
    /// # Panics
    ///
    /// If user code panics (the function of groups). Then nothing has changed.
    pub fn pause_group(&mut self, key: &K) -> bool {
        !self.is_ending() && self.line.pause_group(key, self.now)
    }

    /// Hands out the keys of this key's group again: the group goes behind those that wait. False if it was
    /// not paused.
    ///
    /// # Panics
    ///
    /// Like [`pause_group`](Self::pause_group).
    pub fn resume_group(&mut self, key: &K) -> bool {
        self.line.resume_group(key, self.now)
    }

    /// Whether this key's group is paused.
    ///
    /// # Panics
    ///
    /// Like [`pause_group`](Self::pause_group).
    #[must_use]
    pub fn is_group_paused(&self, key: &K) -> bool {
        self.line.fair().is_some_and(|fair| fair.is_group_paused(key))
    }

    /// Stops handing out this key until [`resume_key`](Self::resume_key), or until a drain or a shutdown. An
    /// unknown key becomes known. Returns false, and changes nothing, if a drain or a shutdown has begun.
    /// Drop the rest of `key` outside the lock.
    ///
    /// # Panics
    ///
    /// If user code panics (`Eq`, a user's order or groups), and then nothing has changed; or if `key` is
    /// `None`.
    pub fn pause_key(&mut self, key: &mut Option<K>, hash: u32) -> bool
    where
        K: Eq,
    {
        if self.is_ending() {
            return false;
        }
        let (slot, _) = self.find_or_know(key, hash);
        let flags = self.arena.flags(slot);
        if flags & PAUSED == 0 {
            if flags & READY != 0 {
                self.line.leave(&mut self.arena, slot);
            }
            self.line.pause_key(&mut self.arena, slot, self.now, flags & READY != 0);
        }
        true
    }

    /// Hands this key out again: if it is ready it goes to the back of the line. The first part of the answer
    /// is whether it was paused. The second is the key, if there is no reason left to know it; drop it
    /// outside the lock.
    pub fn resume_key(&mut self, key: &K, hash: u32) -> (bool, Option<K>)
    where
        K: Eq,
    {
        match self.find(hash, key).filter(|slot| self.arena.flags(*slot) & PAUSED != 0) {
            Some(slot) => (true, self.lift(slot)),
            None => (false, None),
        }
    }

    /// Lifts the pause of a paused key. Returns the key, to be dropped, if there is no other reason to know
    /// it.
    fn lift(&mut self, slot: u32) -> Option<K> {
        self.line.resume_key(&mut self.arena, slot);
        if self.arena.flags(slot) & READY != 0 {
            self.line.enter(&mut self.arena, slot, self.now);
        }
        self.release(slot)
    }

    /// Whether pauses are refused, because a drain or a shutdown has begun and lifts the existing ones.
    fn is_ending(&self) -> bool {
        self.waiting_drain.is_some() || self.is_shut_down()
    }

    /// Whether keys or groups are still paused although a drain or a shutdown has begun.
    #[inline]
    pub(super) fn is_lifting(&self) -> bool {
        (self.line.paused_keys() > 0 || self.line.has_paused_groups()) && self.is_ending()
    }

    /// Lifts at most `most` pauses of groups, then of keys, in the order in which they were made. Returns
    /// true if some are left.
    pub(super) fn lift_some(&mut self, most: usize) -> bool {
        for _ in 0..most {
            if self.line.lift_first_group(self.now) {
                continue;
            }
            let Some(slot) = self.line.first_paused() else { break };
            if let Some(key) = self.lift(slot) {
                self.discard(Some(key), None);
            }
        }
        let more = self.line.paused_keys() > 0 || self.line.has_paused_groups();
        if !more {
            self.watch_end();
        }
        more
    }
}
