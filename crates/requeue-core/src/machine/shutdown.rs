//! The ends of a queue: close, shut_down, drain.

use super::answers::{DrainBase, Drained, ShutDown};
use super::options::WaitingKeys;
use super::state::{Core, Phase, Sweep};
use crate::time::Instant;

impl<K, V> Core<K, V> {
    /// Refuses triggers from outside; holders may still retry their keys.
    pub fn close(&mut self) {
        if self.phase == Phase::Open {
            self.set_phase(Phase::Closed);
        }
    }

    /// Enters a phase after the first.
    fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
        self.fast_add = false;
        self.enters_ready = false;
    }

    /// Refuses all triggers, drops the timers and releases every drain. Call
    /// [`advance`](Self::advance) until it has no more to do.
    pub fn shut_down(&mut self) -> ShutDown {
        self.releases += 1;
        self.shut();
        let before = self.dropped;
        self.begin_dropping();
        ShutDown {
            ready: self.ready + self.windows.ready,
            held: self.held,
            dirty: self.dirty + self.windows.dirty,
            dropped: (self.dropped - before) as usize,
            refused: self.refused,
            refused_retries: self.refused_retries,
        }
    }

    pub(super) fn shut(&mut self) {
        self.set_phase(Phase::ShutDown);
        self.waiting_drain = None;
        self.only_retries = false;
        self.line.resume(self.now);
        self.watch_end();
    }

    pub(super) fn begin_dropping(&mut self) {
        self.askings_are_dropped(self.asking);
        // an open window is no timer: it closes
        self.dropped += (self.timers.len() - self.windows.alone + self.asking) as u64;
        self.asking = 0;
        self.leave_all_places();
        self.ask_epoch += 1;
        self.sweep = Sweep::Drop;
        self.watch_end();
    }

    /// Begins a drain. Call [`advance`](Self::advance) until it has no more to do.
    pub fn begin_drain(&mut self, waiting: WaitingKeys, deadline: Instant) -> DrainBase {
        let base = DrainBase {
            done: self.runs_done,
            dropped: self.dropped,
            refused: self.refused,
            refused_retries: self.refused_retries,
            releases: self.releases,
        };
        self.open_ledger();
        match waiting {
            // phases only move forward: a queue that is shut down takes no retries again
            WaitingKeys::WaitForRetries if !deadline.is_never() && self.phase != Phase::ShutDown => {
                self.set_phase(Phase::Closed);
                self.waiting_drain = Some(deadline);
                self.only_retries = true;
                self.sweep = Sweep::KeepRetries;
                self.line.resume(self.now);
                self.watch_end();
            }
            WaitingKeys::Drop | WaitingKeys::WaitForRetries => {
                self.shut();
                self.begin_dropping();
            }
            WaitingKeys::RunNow => {
                self.shut();
                self.sweep = Sweep::Fire;
                self.watch_end();
            }
            WaitingKeys::Wait if self.phase == Phase::ShutDown => {}
            WaitingKeys::Wait => {
                self.set_phase(Phase::Closed);
                self.waiting_drain = Some(deadline);
                self.only_retries = false;
                self.line.resume(self.now);
                self.watch_end();
            }
        }
        base
    }

    /// Ends a waiting drain if all is worked off, and repairs the state after a panic of user code. Call it
    /// at the end of every lock hold after which the queue [is not quiescent](Self::is_quiescent).
    #[inline]
    pub fn conclude(&mut self) {
        self.repair_suspect();
        if self.waiting_drain.is_some()
            && self.ready == 0
            && self.held == 0
            // a window that owes no run holds nothing up
            && self.timers.len() == self.windows.idle
            && self.asking == 0
            && self.sweep == Sweep::None
        {
            self.shut();
            if self.timers.len() > 0 {
                self.begin_dropping();
            }
        }
    }

    /// Number of calls of `shut_down`: each releases the drains that began before it.
    #[must_use]
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// Whether a drain that began with `base` need not wait any longer, apart from its deadline.
    #[must_use]
    pub fn drain_is_over(&self, base: &DrainBase) -> bool {
        self.is_drained() || self.releases > base.releases
    }

    /// Whether the queue is shut down and nothing is left of it.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.is_over() && self.held == 0
    }

    /// Whether getters see "shut down": no key is ready and none will be.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::ShutDown
            && self.ready == 0
            && self.dirty == 0
            && self.asking == 0
            && self.sweep != Sweep::Fire
            && (self.sweep != Sweep::Drop || self.windows.ready + self.windows.dirty == 0)
    }

    /// Whether every caller is refused, even holders.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.phase == Phase::ShutDown
    }

    /// Whether adds are refused: after `close`, a drain or `shut_down`.
    #[must_use]
    pub fn shutting_down(&self) -> bool {
        self.phase != Phase::Open
    }

    /// The counts of a drain.
    #[must_use]
    pub fn drain_counts(&self, base: &DrainBase) -> Drained {
        Drained {
            complete: self.is_drained() && !self.leaves_unfinished(),
            unfinished: self.unfinished(),
            durable: false,
            done: self.runs_done - base.done,
            dropped: self.dropped - base.dropped,
            refused: self.refused - base.refused,
            refused_retries: self.refused_retries - base.refused_retries,
            ready: self.ready,
            held: self.held,
            waiting: self.waiting() + self.asking,
        }
    }

    /// The deadline until which a current drain waits for waiting keys: the latest drain's.
    #[must_use]
    pub fn waiting_until(&self) -> Option<Instant> {
        self.waiting_drain.filter(|deadline| !deadline.is_never())
    }
}
