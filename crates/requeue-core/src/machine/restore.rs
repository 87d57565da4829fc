//! Restores: a key is put back with its earlier state, usually by a later process.

use super::answers::{Accepted, Added, Refused};
use super::flags::{BACKOFF, HELD, READY};
use super::options::{Delay, InBackoff, Limit, Policy, Restored, Trigger, TriggerOptions};
use super::state::Core;
use crate::time::Instant;

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
    /// Like [`trigger`](Self::trigger).
    pub fn restore(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        known: Restored,
        limit: &Limit<'_>,
    ) -> Result<Accepted, Refused> {
        self.admits_outside()?;
        let delay = known.due.map_or(Delay::Now, |due| Delay::At(due, Policy::Earliest));
        let options = &TriggerOptions { priority: known.priority, ..TriggerOptions::after(delay) };
        self.knows_priorities(options)?;
        let drops = self.room_for_trigger(trigger, hash)?;
        self.expire_some(limit);
        let (slot, new) = self.find_or_know(&mut trigger.key, hash);
        if new {
            self.suspect(Some(slot));
        }
        if known.due.is_some() {
            self.fire_if_due(slot);
        }
        let idle = self.arena.flags(slot) & (READY | HELD) == 0 && self.timers.due(slot).is_none();
        let accepted = self.apply(slot, trigger, options, limit, InBackoff::Run, new);
        if limit.counts && known.failures > self.failures(slot) {
            let from = known.due.map_or(self.now, |due| due.max(self.now));
            let after = limit.expire_after.or(self.expire_after);
            let record = self.record_of(slot);
            record.failures = known.failures;
            record.expires = after.map_or(Instant::NEVER, |after| from + after);
        }
        if idle && known.attempt > 1 {
            self.record_of(slot).attempts_before = known.attempt - 1;
        }
        if idle && accepted.added == Added::Waiting && (known.attempt > 1 || known.failures > 0) {
            // it waits out a failure, and the run that its timer brings is the next attempt
            self.arena.set_flags(slot, self.arena.flags(slot) | BACKOFF);
        }
        self.note_trigger_entered(hash, drops);
        Ok(accepted)
    }
}
