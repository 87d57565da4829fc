//! Restores: a key is put back with its earlier state, usually by a later process.

use super::trigger::{Accepted, Added, Delay, Limit, Policy, Refused, Trigger};
use super::{BACKOFF, Core, HELD, InBackoff, READY};
use crate::Instant;

/// The earlier state of a key that is put back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Number of requeues since it was last forgotten.
    pub failures: u32,
    /// The attempt of its next run; 0 counts as 1.
    pub attempt: u32,
    /// When its timer is due; without one it is ready.
    pub due: Option<Instant>,
}

impl<K: Eq, V> Core<K, V> {
    /// A trigger from outside with the key's earlier state.
    ///
    /// On a key that is already ready, waiting or held it acts like any other trigger (the earlier timer
    /// stays), except for the failures: the larger number stays. They are recorded only if `limit` counts.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the queue accepts no more triggers, or has no priorities and the trigger has one.
    ///
    /// # Panics
    ///
    /// Like [`add`](Self::add).
    pub fn restore(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        known: Restored,
        limit: Limit<'_>,
    ) -> Result<Accepted, Refused> {
        self.admits_outside()?;
        self.knows_priorities(trigger)?;
        let drops = self.room_for_trigger(trigger, hash)?;
        self.expire_some(limit);
        let Trigger { key, value, priority } = trigger;
        let (slot, new) = self.find_or_know(key, hash);
        if new {
            self.suspect(Some(slot));
        }
        if known.due.is_some() {
            self.fire_if_due(slot);
        }
        let idle = self.arena.flags(slot) & (READY | HELD) == 0 && self.timers.due(slot).is_none();
        let delay = known.due.map_or(Delay::Now, |due| Delay::At(due, Policy::Earliest));
        let accepted = self.trigger(slot, value, delay, *priority, new, InBackoff::Run);
        if limit.counts && known.failures > self.failures(slot) {
            let from = known.due.map_or(self.now, |due| due.max(self.now));
            let after = limit.expire_after.or(self.expire_after);
            let record = self.record_of(slot);
            record.failures = known.failures;
            record.expires = after.map_or(Instant::NEVER, |after| from + after);
        }
        if idle && known.attempt > 1 {
            self.record_of(slot).retries = known.attempt - 1;
        }
        if idle && accepted.added == Added::Waiting && (known.attempt > 1 || known.failures > 0) {
            // it waits out a failure, and the run that its timer brings is the next attempt
            self.arena.set_flags(slot, self.arena.flags(slot) | BACKOFF);
        }
        self.has_entered(hash, drops);
        Ok(accepted)
    }
}
