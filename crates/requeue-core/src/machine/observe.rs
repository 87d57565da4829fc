//! Queries: counts, the state of a key, records, gauges.

use super::answers::{Counts, KeyGauges, KeyState, Paused, Stats};
use super::flags::{BACKOFF, DIRTY, DIRTY_RESPECTS, HELD, READY, RESET, TIMER_RESPECTS};
use super::options::InBackoff;
use super::pending_work;
use super::state::{Core, Sweep};
use crate::line::{Ahead, GroupGauges, PAUSED};
use crate::time::Instant;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::time::Duration;

impl<K, V> Core<K, V> {
    /// Keys in line.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.ready
    }

    /// Number of keys that a [`get`](Self::get) may have now. It is smaller than [`len`](Self::len) if ready
    /// keys are paused or in groups at their cap, if the queue is paused, or if its rate has no token. (One
    /// get may bring a group to its cap, and then fewer are left.)
    #[inline]
    #[must_use]
    pub fn servable(&self) -> usize {
        self.line.servable_at(self.now)
    }

    /// Whether no key is in line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready == 0
    }

    pub(super) fn waiting(&self) -> usize {
        if self.sweep == Sweep::Drop { 0 } else { self.timers.len() }
    }

    /// Numbers of keys by state, and the room.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            ready: self.ready,
            held: self.held,
            dirty: self.dirty,
            waiting: self.waiting(),
            paused: self.line.paused_keys(),
            known: self.arena.len(),
            room: self.room(),
            adders: 0,
            waiters: 0,
        }
    }

    /// Takes the counts since the last call.
    #[inline]
    pub fn take_counts(&mut self) -> Counts {
        core::mem::take(&mut self.counts)
    }

    /// Lateness of each timer that has fired since the last call, if timestamps are kept. Timers that a drain
    /// fired early are not included.
    pub fn take_late(&mut self) -> Vec<Duration> {
        self.pending_work &= !pending_work::LATE;
        self.times.as_mut().map(|times| core::mem::take(&mut times.late)).unwrap_or_default()
    }

    /// The gauges; all durations are 0 if the queue keeps no timestamps.
    #[must_use]
    pub fn gauges(&self) -> KeyGauges {
        let times = self.times.as_ref();
        let (unfinished_work, longest_running) =
            times.map_or_else(Default::default, |t| t.running(self.now, self.held));
        KeyGauges {
            depth: self.ready,
            waiting: self.waiting(),
            held: self.held,
            dirty: self.dirty,
            oldest_ready: times.map_or(Duration::ZERO, |t| t.oldest(&t.ready, self.now)),
            unfinished_work,
            longest_running,
        }
    }

    /// Number of ready keys per priority, from the rank `from` on. Returns the rank of the next page; read
    /// one page per lock hold. Empty on a queue without priorities or without timestamps.
    pub fn depths(&self, from: u32, into: &mut Vec<(i16, usize)>) -> Option<u32> {
        self.line.depths(from, into)
    }

    /// Number of keys per named group, from the number `from` on. Returns where the next page begins; read one page per lock hold.
    pub fn told_groups(&self, from: u32, into: &mut Vec<GroupGauges>) -> Option<u32> {
        self.line.fair()?.told_groups(from, into)
    }

    /// State of a key; `None` if the queue does not know it.
    #[must_use]
    pub fn state<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> Option<KeyState>
    where
        K: Borrow<Q>,
    {
        self.state_of(self.find(hash, key)?)
    }

    /// Number of keys before this one; `None` if it is not in line, if groups take turns, or if the line has
    /// a user's order, which alone knows.
    #[must_use]
    pub fn ahead_of<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> Option<Ahead>
    where
        K: Borrow<Q>,
    {
        let slot = self.find(hash, key).filter(|slot| self.arena.flags(*slot) & READY != 0)?;
        self.line.ahead_of(&self.arena, slot)
    }

    /// Instant of the rate's next token, if keys wait for it.
    #[inline]
    #[must_use]
    pub fn next_token(&self) -> Option<Instant> {
        self.line.next_token(self.now)
    }

    pub(super) fn state_of(&self, slot: u32) -> Option<KeyState> {
        let state = self.state_at(slot);
        // a key that only an inert guard still lends, or whose failures have
        // expired, is not known any more
        let known = self.arena.flags(slot) & (READY | HELD | PAUSED) != 0
            || state.waiting_until.is_some()
            || state.failures > 0;
        known.then_some(state)
    }

    /// The state of a slot whose key may have been forgotten.
    pub(super) fn state_at(&self, slot: u32) -> KeyState {
        let (flags, groups) = (self.arena.flags(slot), self.line.fair());
        KeyState {
            ready: flags & READY != 0,
            held: flags & HELD != 0,
            held_since: self.times.as_ref().filter(|_| flags & HELD != 0).map(|t| t.of(slot).link.since),
            dirty: flags & DIRTY != 0,
            waiting_until: self.timers.due(slot),
            window_until: self.window_until(slot, flags, true),
            quiet_until: self.window_until(slot, flags, false),
            failures: self.failures(slot),
            attempt: self.records.get(slot).map_or(0, |r| r.attempts_before).saturating_add(1),
            backing_off: flags & (BACKOFF | READY | HELD) == BACKOFF,
            if_it_fails: if flags & RESET != 0 {
                InBackoff::Reset
            } else if flags & DIRTY_RESPECTS != 0 || flags & (DIRTY | TIMER_RESPECTS) == TIMER_RESPECTS {
                InBackoff::Respect
            } else {
                InBackoff::Run
            },
            paused: if flags & PAUSED != 0 {
                Some(Paused::Key)
            } else if groups.is_some_and(|fair| fair.is_in_paused_group(slot)) {
                Some(Paused::Group)
            } else {
                self.line.is_paused().then_some(Paused::Queue)
            },
            group_is_full: groups.is_some_and(|fair| fair.is_at_cap(slot)),
            group_token: groups.and_then(|fair| fair.group_token(slot, self.now)),
            priority: if flags & (READY | DIRTY) != 0 {
                self.line.pending_priority(slot)
            } else if flags & HELD != 0 {
                self.line.run_priority(slot)
            } else if self.timers.due(slot).is_some() {
                self.line.timer_priority(slot)
            } else {
                0
            },
        }
    }

    /// The number of this key's slot, which is unique while the key is known.
    #[must_use]
    pub fn slot_of<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        self.find(hash, key)
    }

    /// The number of this key's slot, if the key is held.
    #[must_use]
    pub fn held_slot<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        self.find(hash, key).filter(|slot| self.arena.flags(*slot) & HELD != 0)
    }

    /// The key in this slot, which must be occupied; its state as a store is told of it; and its value. The
    /// state is `None` if the key is no longer known: only a guard still lends it, or its failures have
    /// expired.
    #[must_use]
    pub fn known_of(&self, slot: u32) -> (&K, Option<KeyState>, Option<&V>) {
        (self.arena.key(slot), self.outlived_state(slot), self.values.get(slot).and_then(Option::as_ref))
    }

    /// Number of requeues of the key since it was last forgotten.
    #[must_use]
    pub fn num_requeues<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> u32
    where
        K: Borrow<Q>,
    {
        self.find(hash, key).map_or(0, |slot| self.failures(slot))
    }

    /// Forgets the key's failures; its timer stays. Returns the key, to be dropped, if there is no other
    /// reason to know it.
    pub fn forget<Q: Eq + ?Sized>(&mut self, key: &Q, hash: u32) -> Option<K>
    where
        K: Borrow<Q>,
    {
        let slot = self.find(hash, key)?;
        self.forget_failures(slot);
        self.release(slot)
    }
}
