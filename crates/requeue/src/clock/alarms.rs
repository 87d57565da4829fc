//! The set of alarms, ordered by instant and then by when they were set. It knows neither lock nor thread,
//! and takes the time as an argument.

use requeue_core::Instant;
use std::collections::BTreeMap;
use std::task::Waker;

/// Identifies one alarm of one [`Alarms`]. A sequence number is never used twice, so cancelling an alarm that
/// has fired cannot hit a later one.
pub(super) type AlarmId = (Instant, u64);

/// A set of wakers, each waiting for an instant.
///
/// Wakers are user code: every operation returns those that it is done with, so that the caller can wake or
/// drop them outside its lock.
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

    /// Removes the alarm `id` and returns its waker, unless it has fired or was removed before.
    pub(super) fn take_back(&mut self, id: AlarmId) -> Option<Waker> {
        self.by_instant.remove(&id)
    }

    /// Removes the soonest alarm that is due at `now`. An alarm at [`Instant::NEVER`] is never due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Waker> {
        let soonest = self.by_instant.first_entry()?;
        let at = soonest.key().0;
        if at > now || at.is_never() {
            return None;
        }
        Some(soonest.remove())
    }

    /// The instant of the next alarm, if one will ever fire.
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
