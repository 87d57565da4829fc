//! Debounce (rule B4): a trigger opens a window, others push its end back, and at its end the
//! key becomes ready.
//!
//! A window is open while the slot has `WINDOW`. It owes a run unless its leading edge has run and no other
//! trigger has come since. While the key is ready, or is dirty without respecting a back-off, no window that
//! owes a run is open: whatever makes the key ready or dirty in this way closes the window, and the run also
//! serves the window's triggers.
//!
//! A slot has one entry among the timers: the earlier of the window's end and the key's own timer. While a
//! window is open, the key's own timer is kept here, with its place among timers of the same instant. Setting
//! one does not move the other.

use super::answers::{Accepted, Added};
use super::flags::{
    BACKOFF, COUNTED_WAITING, DIRTY, DIRTY_RESPECTS, HAS_SIDE_DATA, HELD, READY, TIMER_RESPECTS, WINDOW,
};
use super::options::{Debounce, InBackoff};
use super::state::Core;
use super::timer::latest;
use super::windows::Window;
use crate::line::Ticket;
use crate::time::Instant;
use crate::timers::Place;
use core::time::Duration;

impl<K: Eq, V> Core<K, V> {
    /// Applies an immediate trigger with a debounce to the key in this slot, which it has made known if it is `new`.
    pub(super) fn debounce(
        &mut self,
        slot: u32,
        value: &mut Option<V>,
        priority: i16,
        in_backoff: InBackoff,
        debounce: Debounce,
        new: bool,
    ) -> Accepted {
        if !new {
            self.fire_if_due(slot);
        }
        let resets = !new && self.resets(slot, in_backoff);
        let flags = self.arena.flags(slot);
        let respects = in_backoff == InBackoff::Respect;
        let pending = flags & READY != 0 || flags & DIRTY != 0 && (flags & DIRTY_RESPECTS == 0 || respects);
        let leads = debounce.leading && flags & (READY | HELD | WINDOW) == 0;
        let added = if respects && flags & (BACKOFF | READY | HELD) == BACKOFF {
            self.merge_in(slot, value.take());
            self.line.set_timer_priority(slot, priority, true);
            self.coalesced()
        } else if pending && respects && flags & HELD != 0 {
            self.merge_in(slot, value.take());
            self.make_dirty_respecting(slot, self.now, priority);
            self.coalesced()
        } else if pending || leads {
            let added = self.make_pending(slot, value, priority);
            if leads {
                self.push_back(slot, debounce, Window::default());
            }
            added
        } else {
            self.merge_in(slot, value.take());
            let respects = respects && flags & HELD != 0;
            let asked = Window { owes: true, respects, priority, ..Window::default() };
            if self.push_back(slot, debounce, asked) { Added::Waiting } else { self.coalesced() }
        };
        if resets {
            self.reset(slot, flags, false);
        }
        self.suspect(None);
        Accepted { added, delay: Duration::ZERO, ticket: Ticket(slot) }
    }
}

impl<K, V> Core<K, V> {
    /// Opens a window, or pushes its end back; false if it owed a run before.
    fn push_back(&mut self, slot: u32, debounce: Debounce, asked: Window) -> bool {
        let (now, flags) = (self.now, self.arena.flags(slot));
        let open = (flags & WINDOW != 0).then(|| self.windows.of(slot));
        let began = open.map_or(now, |open| open.began);
        let old = open.map(|open| open.ends.due);
        let ends = latest(now + debounce.quiet, began, debounce.max, old);
        let moved = old != Some(ends);
        let ends = match open {
            Some(open) if !moved => open.ends,
            _ => self.timers.new_place(ends),
        };
        let owed = open.is_some_and(|open| open.owes);
        let opened = Window {
            open: true,
            began,
            ends,
            respects: asked.respects && open.is_none_or(|open| open.respects || !open.owes),
            priority: if owed {
                open.map_or(asked.priority, |o| o.priority.max(asked.priority))
            } else {
                asked.priority
            },
            own: match open {
                Some(open) => open.own,
                None => self.timers.place(slot),
            },
            ..asked
        };
        if open.is_none() {
            self.arena.set_flags(slot, flags | HAS_SIDE_DATA | WINDOW);
            self.set_time_matters(true);
            self.windows.open += 1;
        }
        if self.bound.is_some() && asked.owes {
            self.count_timer(slot);
        }
        self.windows.change(slot, flags, |window| *window = Window { tally: window.tally, ..opened });
        self.retime(slot);
        !owed
    }

    /// Updates the slot's timer to the earlier of its window's end and the key's own timer.
    fn retime(&mut self, slot: u32) {
        let Window { ends, own, .. } = self.windows.of(slot);
        let first = own.filter(|own| self.timers.is_before(*own, ends)).unwrap_or(ends);
        self.timers.set_place(slot, first, self.now);
    }

    /// Closes a slot's window, and returns its state.
    fn close_window(&mut self, slot: u32) -> Window {
        let flags = self.arena.flags(slot);
        let window = self.windows.of(slot);
        self.windows
            .change(slot, flags, |window| *window = Window { tally: window.tally, ..Window::default() });
        self.windows.open -= 1;
        self.arena.set_flags(slot, flags & !WINDOW);
        match window.own {
            Some(own) => self.timers.set_place(slot, own, self.now),
            None => self.timer_gone(slot),
        }
        window
    }

    /// Handles the removal of the key's last timer.
    fn timer_gone(&mut self, slot: u32) {
        self.timers.remove(slot);
        let flags = self.arena.flags(slot);
        if flags & COUNTED_WAITING != 0 {
            self.uncount_waiting(flags);
            self.arena.set_flags(slot, flags & !COUNTED_WAITING);
        }
        self.watch_time();
    }

    /// Removes a window, if one is open.
    pub(super) fn clear_window(&mut self, slot: u32) {
        if self.arena.flags(slot) & WINDOW != 0 {
            self.close_window(slot);
        }
    }

    /// When the key's own timer is due.
    #[inline]
    pub(super) fn own_due(&self, slot: u32) -> Option<Instant> {
        if self.arena.flags(slot) & WINDOW == 0 {
            return self.timers.due(slot);
        }
        self.windows.of(slot).own.map(|own| own.due)
    }

    /// The end of an open window, if it owes a run as `owes` says; the key has these flags.
    pub(super) fn window_until(&self, slot: u32, flags: u32, owes: bool) -> Option<Instant> {
        let window = (flags & WINDOW != 0).then(|| self.windows.of(slot));
        window.filter(|window| window.owes == owes).map(|window| window.ends.due)
    }

    /// Sets the own timer of a key with an open window.
    pub(super) fn time_beside_window(&mut self, slot: u32, due: Instant) {
        let own = self.timers.new_place(due);
        self.windows.change(slot, self.arena.flags(slot), |window| window.own = Some(own));
        self.retime(slot);
    }

    /// Removes the own timer of a key with an open window.
    pub(super) fn clear_beside_window(&mut self, slot: u32) -> bool {
        let flags = self.arena.flags(slot);
        let (had, owes) =
            self.windows.change(slot, flags, |window| (window.own.take().is_some(), window.owes));
        if had {
            if flags & COUNTED_WAITING != 0 && !owes {
                self.uncount_waiting(flags);
            }
            let flags = if owes { flags } else { flags & !COUNTED_WAITING };
            if let Some(pushed_since) = self.pushed_since.get_mut(slot) {
                *pushed_since = None;
            }
            self.arena.set_flags(slot, flags & !(BACKOFF | TIMER_RESPECTS));
            self.retime(slot);
        }
        had
    }

    /// Covers a window by another cause that makes the key ready, or dirty without respecting a back-off,
    /// with this priority. That run also serves the triggers of a window that owes one, which closes. Returns
    /// the higher of this priority and theirs.
    pub(super) fn cover(&mut self, slot: u32, priority: i16) -> i16 {
        if self.arena.flags(slot) & WINDOW == 0 || !self.windows.of(slot).owes {
            return priority;
        }
        self.close_window(slot).priority.max(priority)
    }

    /// Covers a window by a trigger that respects a back-off and makes the key dirty. That run also serves
    /// the triggers of a window if all of them respect a back-off too.
    pub(super) fn cover_respecting(&mut self, slot: u32, priority: i16) -> i16 {
        if self.arena.flags(slot) & WINDOW == 0 || !self.windows.of(slot).respects {
            return priority;
        }
        self.cover(slot, priority)
    }

    /// Updates the counts after the state of a key with an open window has changed.
    pub(super) fn tally_window(&mut self, slot: u32, flags: u32) {
        self.windows.change(slot, flags, |_| ());
    }

    /// Joins a window to the retry of a failed run that is about to end, if its triggers respect the back-off
    /// that begins, or if the retry is a fresh start. Returns the priority of a window that joins.
    pub(super) fn window_joins(&mut self, slot: u32, resets: bool) -> Option<i16> {
        let Window { owes, respects, .. } = self.windows.of(slot);
        (owes && (respects || resets)).then(|| self.close_window(slot).priority)
    }

    /// Handles the end of the run of a key with an open window.
    pub(super) fn window_at_end(&mut self, slot: u32, flags: u32) {
        if flags & DIRTY != 0 {
            let priority = self.cover(slot, i16::MIN);
            self.line.raise_to(&mut self.arena, slot, priority);
        } else {
            self.windows.change(slot, flags & !HELD, |window| window.respects = false);
        }
    }

    /// Ends a window, or fires the own timer beside it: see [`fire`](Self::fire).
    pub(super) fn fire_beside_window(&mut self, slot: u32, lets_go: bool) {
        let Window { ends, own, .. } = self.windows.of(slot);
        if let Some(own) = own.filter(|own| self.timers.is_before(*own, ends)) {
            return self.timer_fires(slot, own.due);
        }
        let window = self.close_window(slot);
        if window.owes {
            self.window_ends(slot, window);
        } else if lets_go {
            self.let_go(slot);
            // a drain may have waited for it alone
            self.conclude();
        } else if self.arena.flags(slot) & (READY | HELD) == 0 && self.timers.due(slot).is_none() {
            self.suspect(Some(slot));
        }
    }

    /// Handles the end of a window that owed a run.
    fn window_ends(&mut self, slot: u32, window: Window) {
        let (due, priority) = (window.ends.due, window.priority);
        self.tell_late(due);
        let since = due.min(self.windows.shut.unwrap_or(self.now));
        let flags = self.arena.flags(slot);
        if flags & HELD == 0 {
            self.restart_attempts(slot);
            self.make_ready(slot, since, priority);
            self.line.enter(&mut self.arena, slot, since);
        } else if window.respects {
            self.make_dirty_respecting(slot, since, priority);
        } else {
            self.make_dirty(slot, since, priority);
        }
    }

    /// Removes a key and its value, if there is no reason left for them.
    pub(super) fn let_go(&mut self, slot: u32) {
        let value = self.dead_value(slot);
        let key = self.release(slot);
        if key.is_some() || value.is_some() {
            self.discard(key, value);
        }
    }

    /// Drops the timers of a key with an open window, which closes, for a shutdown.
    pub(super) fn drop_beside_window(&mut self, slot: u32) {
        if self.own_due(slot).is_some() {
            self.drop_timer(slot);
            // its turn comes by the window's end
            return;
        }
        self.shut_window(slot);
    }

    /// The place of the end of the slot's window among the timers, if one is open. The key has these flags.
    pub(super) fn window_place(&self, slot: u32, flags: u32) -> Option<Place> {
        (flags & WINDOW != 0).then(|| self.windows.of(slot).ends)
    }

    /// Closes a window, for a shutdown.
    pub(super) fn shut_window(&mut self, slot: u32) {
        let window = self.close_window(slot);
        if window.owes {
            self.window_ends(slot, window);
        } else {
            self.let_go(slot);
        }
    }
}
