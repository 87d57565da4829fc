//! Timers of keys: set, moved, cleared, fired. A key has one timer of its own (rule D2).

use super::flags::{BACKOFF, COUNTED_WAITING, DIRTY, HAS_SIDE_DATA, HELD, READY, TIMER_RESPECTS, WINDOW};
use super::options::Policy;
use super::pending_work;
use super::state::Core;
use crate::time::Instant;
use core::time::Duration;

/// The effect of a delay on a key's timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimerPlan {
    pub(super) due: Instant,
    pub(super) moved: bool,
    /// The key already has a timer.
    pub(super) joins: bool,
    /// When a timer that may be pushed back was first asked for.
    pub(super) pushed_since: Option<Instant>,
}

impl TimerPlan {
    /// Whether it makes the key due at once, without a timer.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.moved && self.due <= now
    }
}

/// The later of a timer's instants, but none later than `max` after the first such call.
pub(super) fn latest(new: Instant, began: Instant, max: Duration, old: Option<Instant>) -> Instant {
    new.min(began + max).max(old.unwrap_or(Instant::ORIGIN))
}

impl<K, V> Core<K, V> {
    /// Plans the effect of a delay on the key's timer, without changing anything. `old` is when that is due; `None` if there is
    /// none, or it goes whatever its instant.
    #[inline]
    pub(super) fn plan_timer(
        &self,
        slot: u32,
        old: Option<Instant>,
        from: Instant,
        delay: Duration,
        policy: Policy,
    ) -> TimerPlan {
        let new = from + delay;
        let mut pushed_since = None;
        let due = match (policy, old) {
            (Policy::Keep, Some(old)) => old,
            (Policy::Earliest, Some(old)) => old.min(new),
            (Policy::Latest { max }, _) => {
                let began = old.and_then(|_| *self.pushed_since.get(slot)?).unwrap_or(self.now);
                pushed_since = Some(began);
                latest(new, began, max, old)
            }
            (Policy::Replace | Policy::Earliest | Policy::Keep, _) => new,
        };
        TimerPlan { due, moved: old != Some(due), joins: old.is_some(), pushed_since }
    }

    /// Sets the key's timer as planned; false if it stays unchanged except for its priority.
    #[inline]
    pub(super) fn set_timer(&mut self, slot: u32, plan: TimerPlan, priority: i16) -> bool {
        self.line.set_timer_priority(slot, priority, plan.joins);
        if plan.pushed_since.is_some() {
            *self.pushed_since.entry(slot) = plan.pushed_since;
        } else if plan.moved {
            // it was that of the timer which this one replaces
            if let Some(pushed_since) = self.pushed_since.get_mut(slot) {
                *pushed_since = None;
            }
        }
        if plan.moved {
            if self.bound.is_some() {
                self.count_timer(slot);
            }
            let flags = self.arena.flags(slot) | HAS_SIDE_DATA;
            self.arena.set_flags(slot, flags);
            if flags & WINDOW != 0 {
                self.time_beside_window(slot, plan.due);
            } else {
                self.timers.set(slot, plan.due, self.now);
                self.set_time_matters(true);
            }
        }
        plan.moved
    }

    /// Removes the key's timer; false if it has none.
    #[inline]
    pub(super) fn clear_timer(&mut self, slot: u32) -> bool {
        if self.arena.flags(slot) & WINDOW != 0 {
            return self.clear_beside_window(slot);
        }
        let had = self.timers.remove(slot);
        if had {
            if let Some(pushed_since) = self.pushed_since.get_mut(slot) {
                *pushed_since = None;
            }
            let flags = self.arena.flags(slot);
            if flags & COUNTED_WAITING != 0 {
                self.uncount_waiting(flags);
            }
            self.arena.set_flags(slot, flags & !(BACKOFF | TIMER_RESPECTS | COUNTED_WAITING));
            self.watch_time();
        }
        had
    }

    /// Recomputes whether time matters to a look.
    #[inline]
    pub(super) fn watch_time(&mut self) {
        let matters = self.timers.len() > 0
            || self.waiting_drain.is_some()
            || self.line.is_rated()
            || self.needs_every_reading();
        self.set_time_matters(matters);
    }

    /// Fires a timer that has come, or that a drain lets come early: the key runs, or runs again. With `lets_go` a key that
    /// there is no reason left to know is removed; otherwise the caller uses it.
    pub(super) fn fire(&mut self, slot: u32, due: Instant, lets_go: bool) {
        if self.arena.flags(slot) & WINDOW != 0 {
            return self.fire_beside_window(slot, lets_go);
        }
        self.timer_fires(slot, due);
    }

    /// Records how late a timer fires, for metrics, unless it fires early.
    #[inline]
    pub(super) fn tell_late(&mut self, due: Instant) {
        if let Some(times) = self.times.as_mut().filter(|_| due <= self.now) {
            times.fired(self.now.saturating_since(due));
            self.pending_work |= pending_work::LATE;
        }
    }

    /// Fires the key's own timer.
    #[inline]
    pub(super) fn timer_fires(&mut self, slot: u32, due: Instant) {
        self.tell_late(due);
        let since = due.min(self.now);
        // read before the timer goes, which clears them
        let (flags, priority) = (self.arena.flags(slot), self.line.timer_priority(slot));
        self.clear_timer(slot);
        if flags & TIMER_RESPECTS != 0 {
            self.make_dirty_respecting(slot, since, priority);
        } else if flags & HELD != 0 {
            self.make_dirty(slot, since, priority);
        } else if flags & READY != 0 {
            self.line.raise_to(&mut self.arena, slot, priority);
        } else {
            if flags & BACKOFF == 0 {
                self.restart_attempts(slot);
            }
            self.make_ready(slot, since, priority);
            self.line.enter(&mut self.arena, slot, since);
        }
    }

    /// Fires this key's timer if it is due: a call that sets another one for the key has read the clock.
    pub(super) fn fire_if_due(&mut self, slot: u32) {
        while let Some(due) = self.timers.due(slot).filter(|due| *due <= self.now) {
            self.fire(slot, due, false);
        }
    }

    /// Fires the key's timer if the key is to run anyway: that run stands for the timer's.
    pub(super) fn absorb_timer(&mut self, slot: u32) {
        if self.arena.flags(slot) & (READY | DIRTY) == 0 {
            return;
        }
        match self.own_due(slot) {
            Some(due) if self.arena.flags(slot) & WINDOW == 0 => self.timer_fires(slot, due),
            Some(_) => _ = self.clear_timer(slot),
            None => {}
        }
    }
}
