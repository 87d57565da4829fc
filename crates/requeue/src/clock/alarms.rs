//! The alarms that are set, by instant and then by the order in which they were
//! set: knows neither lock nor thread, and takes the time as an argument.

use crate::Instant;
use std::collections::BTreeMap;
use std::task::Waker;

/// Names one alarm of one [`Alarms`]. The sequence number is never used twice,
/// so that taking back an alarm that has rung cannot hit a later one.
pub(super) type AlarmId = (Instant, u64);

/// The wakers that wait for an instant.
///
/// Wakers are foreign code: every operation hands out those that it is done
/// with, so that the caller can wake or drop them without its lock.
#[derive(Debug)]
pub(super) struct Alarms {
    by_instant: BTreeMap<AlarmId, Waker>,
    /// Larger than the sequence number of every alarm ever set.
    next: u64,
}

impl Alarms {
    pub(super) const fn new() -> Self {
        Self { by_instant: BTreeMap::new(), next: 0 }
    }

    pub(super) fn set(&mut self, at: Instant, waker: Waker) -> AlarmId {
        let id = (at, self.next);
        self.next += 1;
        self.by_instant.insert(id, waker);
        id
    }

    /// The waker of `id`, unless that alarm has rung or was taken back before.
    pub(super) fn take_back(&mut self, id: AlarmId) -> Option<Waker> {
        self.by_instant.remove(&id)
    }

    /// The soonest alarm that is due at `now`. One at [`Instant::NEVER`] never is.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Waker> {
        let soonest = self.by_instant.first_entry()?;
        let at = soonest.key().0;
        if at > now || at.is_never() {
            return None;
        }
        Some(soonest.remove())
    }

    /// When the next alarm rings, if any ever does.
    pub(super) fn soonest(&self) -> Option<Instant> {
        let (at, _) = *self.by_instant.keys().next()?;
        (!at.is_never()).then_some(at)
    }

    pub(super) fn len(&self) -> usize {
        self.by_instant.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_instant.is_empty()
    }
}

#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/alarms.rs"]
mod tests;
