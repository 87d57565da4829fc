//! Time that passes: before each call (`advance`, `begin`), until the next event (`next_wake`), and for a shutdown, whose work on
//! all timers goes on here, a batch a hold.

use super::flags::WINDOW;
use super::pending_work;
use super::state::{BATCH, Core, Sweep};
use crate::line::Fair;
use crate::time::Instant;
use crate::timers::Next;

/// In the work limit of a hold, moving a timer counts as a quarter of firing one.
const STEPS: usize = 4;

impl<K, V> Core<K, V> {
    /// Lets time pass to `now` and fires up to a batch of the timers that are due. True if there is more:
    /// release the lock, take it again and call this again before any other operation.
    #[inline]
    pub fn advance(&mut self, now: Instant) -> bool {
        self.pass(now);
        let disturbed =
            self.pending_work & (pending_work::SUSPECT | pending_work::ENDING | pending_work::GROUPS) != 0;
        (disturbed || self.pending_work & pending_work::TIME != 0 && self.is_due()) && self.advance_more()
    }

    /// Whether [`advance`](Self::advance) has nothing to do at any time.
    #[inline]
    #[must_use]
    pub fn is_up_to_date(&self) -> bool {
        const MORE: u32 =
            pending_work::SUSPECT | pending_work::ENDING | pending_work::TIME | pending_work::GROUPS;
        self.pending_work & MORE == 0
    }

    /// Whether nothing but timers and shutdowns makes the time matter: neither a rate nor what [needs every
    /// reading](Self::needs_every_reading).
    #[must_use]
    pub fn has_timers_alone(&self) -> bool {
        !self.line.is_rated() && !self.needs_every_reading()
    }

    /// The soonest timer, if timers alone make the time matter and nothing else is to be done before a look.
    #[inline]
    #[must_use]
    pub fn timers_alone(&self) -> Option<Instant> {
        const MORE: u32 = pending_work::SUSPECT | pending_work::ENDING | pending_work::GROUPS;
        if self.pending_work & MORE != 0 || !self.has_timers_alone() {
            return None;
        }
        self.timers.soonest()
    }

    /// Lets time pass without firing anything.
    #[inline]
    fn pass(&mut self, now: Instant) {
        if now > self.now {
            // a timer at NEVER is never due, whatever a clock shows
            self.now = now.min(Instant::from_nanos(Instant::NEVER.as_nanos() - 1));
        }
    }

    /// Begins a lock hold of a call that is not a look and has read the time: an add, or the end of a run. Such a
    /// call fires no timers. True if [`advance`](Self::advance) must come first, because the deadline of a drain
    /// has passed.
    #[inline]
    pub fn begin(&mut self, now: Instant) -> bool {
        self.repair_suspect();
        self.pass(now);
        self.pending_work & (pending_work::ENDING | pending_work::GROUPS) != 0 && self.begin_more()
    }

    fn begin_more(&mut self) -> bool {
        // the rest is left for the next look
        self.line.refill(self.now, BATCH);
        self.waiting_drain.is_some_and(|deadline| deadline <= self.now)
    }

    /// Whether an unfired timer is due, by the latest instant that any call passed.
    #[inline]
    fn is_due(&self) -> bool {
        self.timers.soonest().is_some_and(|due| due <= self.now)
    }

    #[inline(never)]
    fn advance_more(&mut self) -> bool {
        self.repair_suspect();
        if self.pending_work & pending_work::GROUPS != 0 && self.line.refill(self.now, BATCH) {
            return true;
        }
        if self.is_lifting() && self.lift_some(BATCH) {
            return true;
        }
        if self.timers.len() == 0 && self.waiting_drain.is_none() {
            self.swept();
            return false;
        }
        if self.sweep == Sweep::KeepRetries {
            // before the deadline is looked at: what the drain dropped as it began does not run, however late this is
            if !self.keep_retries_only() {
                self.swept();
            }
            return true;
        }
        if let Some(deadline) = self.waiting_drain.filter(|deadline| *deadline <= self.now) {
            // timers due by the deadline still fire before the end, however late this look is
            if self.fire_due(deadline) {
                return true;
            }
            self.shut();
            self.begin_dropping();
            self.windows.shut = Some(deadline);
        }
        let more = match self.sweep {
            // `KeepRetries` was completed above
            Sweep::None | Sweep::KeepRetries => return self.fire_due(self.now),
            Sweep::Fire => self.fire_due(Instant::NEVER),
            Sweep::Drop if self.windows.open > 0 => self.close_some(),
            Sweep::Drop => self.drop_some(),
        };
        if !more {
            self.swept();
        }
        more
    }

    fn swept(&mut self) {
        self.sweep = Sweep::None;
        self.watch_end();
    }

    /// Recomputes whether an end is on its way.
    pub(super) fn watch_end(&mut self) {
        let ending = self.waiting_drain.is_some() || self.sweep != Sweep::None || self.is_lifting();
        self.set_pending_work(pending_work::ENDING, ending);
        self.watch_time();
    }

    /// Fires timers due by `until`; true if some are left.
    fn fire_due(&mut self, until: Instant) -> bool {
        let mut left = BATCH * STEPS;
        while left > 0 {
            let steps = match self.timers.next(until) {
                Next::Due(slot, due) => {
                    self.fire(slot, due, true);
                    STEPS
                }
                Next::Moved => 1,
                Next::Nothing => return false,
            };
            left = left.saturating_sub(steps);
        }
        self.timers.soonest().is_some_and(|due| due <= until)
    }

    fn drop_some(&mut self) -> bool {
        for _ in 0..BATCH {
            let Some(slot) = self.timers.last() else { return false };
            self.drop_timer(slot);
        }
        self.timers.last().is_some()
    }

    /// Like [`drop_some`](Self::drop_some), with open windows: keys become ready in the order in which their
    /// windows would have ended.
    fn close_some(&mut self) -> bool {
        for _ in 0..BATCH {
            match self.timers.next(Instant::NEVER) {
                Next::Due(slot, _) if self.arena.flags(slot) & WINDOW != 0 => self.drop_beside_window(slot),
                Next::Due(slot, _) => self.drop_timer(slot),
                Next::Moved => {}
                Next::Nothing => return false,
            }
        }
        self.timers.last().is_some()
    }

    /// Whether the time matters to a look: a timer or a drain's deadline may have come, or timestamps are
    /// kept. If not, [`advance`](Self::advance) may be given any earlier instant.
    #[inline]
    #[must_use]
    pub fn time_matters(&self) -> bool {
        self.pending_work & pending_work::TIME != 0
    }

    /// Whether [time matters](Self::time_matters), for a caller that remembers it beside the state machine: the
    /// queue is not quiescent from when that changes until this is called.
    #[inline]
    pub fn take_time_matters(&mut self) -> bool {
        self.pending_work &= !pending_work::RETIMED;
        self.time_matters()
    }

    /// Whether a call needs no work before or after it, except for timers that fall due: nothing is being
    /// shut down, no panic needs repair, nothing waits to be dropped, and whether time matters is unchanged
    /// since [`take_time_matters`](Self::take_time_matters) was called. This is the usual case.
    #[inline]
    #[must_use]
    pub fn is_quiescent(&self) -> bool {
        self.pending_work & !pending_work::TIME == 0
    }

    /// The instant of the next event without a call: the soonest timer, the deadline of a waiting drain, or
    /// the rate's next token if keys wait for it. `None` if there will be none.
    #[inline]
    #[must_use]
    pub fn next_wake(&self) -> Option<Instant> {
        let token = earlier(self.next_token(), self.line.fair().and_then(Fair::next_group));
        let wake = earlier(earlier(self.timers.soonest(), self.waiting_drain), token)?;
        (!wake.is_never()).then_some(wake)
    }
}

#[inline]
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
