//! Back-off: the effect of triggers on a key that waits out a failure, and on a run that fails (rule B5).
//!
//! A key waits out a failure (`BACKOFF`) while it has a timer that was set through the limiter, or by the
//! retry of its last run, and no run of it has been handed out since. The effect of triggers during a run is
//! decided when the run ends, because only then it is known whether it failed. Until then three flags
//! remember them: `DIRTY_RESPECTS` for a dirty key, `TIMER_RESPECTS` for its timer, and `RESET`. A queue
//! whose triggers are all [`Run`](InBackoff::Run) never sets one of the three.

use super::answers::RunRef;
use super::flags::{BACKOFF, DIRTY, DIRTY_RESPECTS, GROUPED, HELD, READY, RESET, TIMER_RESPECTS, WINDOW};
use super::options::{How, InBackoff, RetryDelay};
use super::pending_work;
use super::state::Core;
use crate::time::Instant;
use core::borrow::Borrow;

impl<K, V> Core<K, V> {
    /// Whether the retry of this run will be a fresh start, because a trigger that resets came during it:
    /// then no limiter is asked.
    #[must_use]
    pub fn starts_afresh(&self, run: &RunRef<K>) -> bool {
        self.arena.flags(run.slot()) & RESET != 0 && !self.is_inert(run)
    }

    /// Whether a trigger resets, and its key is ready, held or waiting, so that there is something to reset.
    pub(super) fn resets(&self, slot: u32, in_backoff: InBackoff) -> bool {
        in_backoff == InBackoff::Reset
            && (self.arena.flags(slot) & (READY | HELD) != 0 || self.timers.due(slot).is_some())
    }

    /// Whether a trigger of this key that resets would be accepted, and have something to reset.
    #[must_use]
    pub fn has_to_reset<Q>(&self, key: &Q, hash: u32) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.accepts(false) && self.find(hash, key).is_some_and(|slot| self.resets(slot, InBackoff::Reset))
    }

    /// Records that a limiter that keeps the failures itself must forget those of this key.
    pub(super) fn forget_elsewhere(&mut self, key: &mut Option<K>) {
        if let Some(forgotten) = &mut self.forgotten {
            forgotten.extend(key.take());
            self.pending_work |= pending_work::FORGOTTEN;
        }
    }

    /// Makes a held key dirty, by a trigger at `since` that respects a back-off. Returns false if the key was
    /// dirty already.
    pub(super) fn make_dirty_respecting(&mut self, slot: u32, since: Instant, priority: i16) -> bool {
        let priority = self.cover_respecting(slot, priority);
        let first = self.arena.flags(slot) & DIRTY == 0;
        if first {
            self.make_dirty_beside(slot, since, priority);
            let flags = self.arena.flags(slot) | DIRTY_RESPECTS;
            self.arena.set_flags(slot, flags);
            if flags & WINDOW != 0 {
                self.tally_window(slot, flags);
            }
        } else {
            self.line.raise_to(&mut self.arena, slot, priority);
        }
        first
    }

    /// Resets a key's failures, for a trigger that resets. `flags` are the key's flags before the trigger;
    /// `delayed`: it has set its own timer, in place of a back-off's.
    pub(super) fn reset(&mut self, slot: u32, flags: u32, delayed: bool) {
        self.forget_failures(slot);
        if flags & HELD != 0 {
            self.arena.set_flags(slot, self.arena.flags(slot) | RESET);
        } else {
            self.restart_attempts(slot);
        }
        if flags & BACKOFF != 0 {
            if delayed {
                self.arena.set_flags(slot, self.arena.flags(slot) & !BACKOFF);
            } else {
                self.clear_timer(slot);
            }
        }
    }

    /// Records that a trigger from outside has set its key's timer, or left it. `flags` are the key's flags
    /// before.
    pub(super) fn timer_was_asked_for(&mut self, slot: u32, flags: u32, asked: BackoffChange) {
        let BackoffChange { moved, had, limited, respects } = asked;
        let mut now = self.arena.flags(slot);
        if limited {
            now |= BACKOFF;
        }
        now &= !TIMER_RESPECTS;
        if respects && flags & HELD != 0 && (flags & TIMER_RESPECTS != 0 || !had) {
            now |= TIMER_RESPECTS;
        }
        self.arena.set_flags(slot, now);
        // a timer that is not the outcome's own will ready it
        if flags & (HELD | READY) == 0 && (moved || flags & BACKOFF == 0) {
            self.restart_attempts(slot);
        }
    }

    /// Settles the triggers of a run that is about to end, if the key is in a group or one of this module's
    /// flags is set: they join the retry, or the retry becomes a fresh start, which returns true.
    pub(super) fn settle(&mut self, slot: u32, how: &How<'_>) -> bool {
        let flags = self.arena.flags(slot);
        if flags & GROUPED != 0 {
            self.line.ended(slot);
            if flags & (DIRTY_RESPECTS | TIMER_RESPECTS | RESET | WINDOW) == 0 {
                return false;
            }
        }
        let fails = match how {
            How::Retry(RetryDelay::Asked(_, asking)) => self.is_live(*asking),
            How::Retry(_) => true,
            // it was put back through the limiter before its end, as in the original
            How::Done => flags & BACKOFF != 0,
            How::Succeed | How::GiveUp | How::Again(_) => false,
        };
        if !fails {
            return false;
        }
        let resets = flags & RESET != 0;
        // the priority of the fresh start: the higher of the retry's and of the removed timer's
        let mut priority = if let How::Retry(_) = how { self.line.run_priority(slot) } else { i16::MIN };
        if flags & TIMER_RESPECTS != 0 || resets && flags & BACKOFF != 0 {
            priority = priority.max(self.line.timer_priority(slot));
            self.line.join_run(slot, priority);
            self.clear_timer(slot);
        }
        if flags & WINDOW != 0 {
            if let Some(joins) = self.window_joins(slot, resets) {
                priority = priority.max(joins);
                self.line.join_run(slot, joins);
                // a fresh start is a separate run: a timer that remains next to it belongs to another run
                if !resets && self.own_due(slot).is_some() {
                    self.line.set_timer_priority(slot, joins, true);
                }
            }
        }
        if resets {
            if let How::Retry(_) = how {
                self.forget_failures(slot);
            }
            self.make_dirty(slot, self.now, priority);
        } else if flags & DIRTY_RESPECTS != 0 {
            self.line.join_back_off(slot);
            self.arena.set_flags(slot, self.arena.flags(slot) & !(DIRTY | DIRTY_RESPECTS));
            self.dirty -= 1;
        }
        resets
    }
}

/// How a trigger asked for a timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackoffChange {
    /// It has set or moved the timer.
    pub(super) moved: bool,
    /// There was a timer before that stayed or was moved, and was not replaced whatever its instant.
    pub(super) had: bool,
    /// The limiter was asked.
    pub(super) limited: bool,
    /// It respects a back-off.
    pub(super) respects: bool,
}
