//! Triggers from outside: the way from the public calls to the state machine.
//!
//! ```text
//!   add_now   the filter, which answers redundant ones without the lock
//!      └─► lock_and_add   the hold; what the queue does not take is dropped after it
//!             ├─► Core::add_now   a trigger without options on a plain line
//!             └─► Core::trigger   any other queue
//!   trigger   with options (`trying.rs`): the hold, Core::trigger; before that, for a delay, the clock and a limiter are asked
//! ```

use crate::error::AddError;
use crate::filter::{Open, word};
use crate::hold::{Hold, Shared};
use crate::panics::{drop_both, in_drop};
use requeue_core::{Accepted, Added, Core, Instant, Limit, Refused, Ticket, Trigger, TriggerOptions};
use std::borrow::Borrow;

impl<K: Eq, V> Shared<K, V> {
    /// Adds a key now, without options.
    #[inline]
    pub(crate) fn add_now(&self, key: K, hash: u32) -> Result<Added, AddError<K, V>> {
        match self.filter.open(&key) {
            None => self.lock_and_add(key, hash),
            Some(open) => self.find_or_add(open, key, hash),
        }
    }

    /// Looks for the key in the filter, and adds it if it is not there. Separate function, as the next one is: a redundant
    /// add takes 66 instructions, and 75 if the registers of the slow path are saved in it.
    #[inline(never)]
    fn find_or_add(&self, open: Open, key: K, hash: u32) -> Result<Added, AddError<K, V>> {
        if self.filter.finds(open, &key, hash) {
            self.tell_metrics(|m| m.coalesced(1));
            return Ok(Added::Coalesced);
        }
        self.lock_and_add_beside_filter(key, hash)
    }

    #[inline(never)]
    fn lock_and_add_beside_filter(&self, key: K, hash: u32) -> Result<Added, AddError<K, V>> {
        let added = self.lock_and_add(key, hash);
        self.filter.grow_if_too_small();
        added
    }

    /// Adds a key now, after the filter had no answer. Separate function: keeps its registers out of a redundant add.
    #[inline(never)]
    fn lock_and_add(&self, key: K, hash: u32) -> Result<Added, AddError<K, V>> {
        let integer = word(&key);
        // declared before the hold, so that they are dropped after it, also where users' code panics; the trigger is moved to the
        // second on the slow path alone: on the fast one it stays in registers
        let mut in_memory;
        let mut trigger = Kept(Trigger::new(key, None));
        let mut hold = self.hold_to_add(None);
        let Some((added, ticket)) = hold.core.add_now(&mut trigger.0, hash) else {
            in_memory = trigger;
            return self.slow_add(hold, &mut in_memory.0, integer, hash);
        };
        self.publish_if_redundant(&mut hold.core, added, ticket, integer, hash);
        hold.unlock();
        Ok(added)
    }

    /// Slow path of [`lock_and_add`](Self::lock_and_add), inside its lock hold. (`Core::trigger` asks `Core::add_now` again,
    /// which says no again.)
    #[inline(never)]
    fn slow_add(
        &self,
        mut hold: Hold<'_, K, V>,
        trigger: &mut Trigger<K, V>,
        integer: Option<u64>,
        hash: u32,
    ) -> Result<Added, AddError<K, V>> {
        let accepted = hold.core.trigger(trigger, hash, &TriggerOptions::NOW, &Limit::NONE).map(|accepted| {
            let Accepted { added, ticket, .. } = accepted;
            self.publish_if_redundant(&mut hold.core, added, ticket, integer, hash);
            added
        });
        hold.unlock();
        accepted.map_err(|reason| refused(trigger, reason))
    }

    /// Like [`add_now`](Self::add_now), but by reference: the key is cloned, outside the lock, only if the
    /// queue does not know it.
    #[inline]
    pub(crate) fn add_ref<Q>(&self, key: &Q, hash: u32) -> Result<Added, Refused>
    where
        K: Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        // a `Q` that is an integer is `K`, for an integer's `Owned` is itself
        if let Some(open) = self.filter.open(key) {
            if self.filter.finds(open, key, hash) {
                self.tell_metrics(|m| m.coalesced(1));
                return Ok(Added::Coalesced);
            }
            self.filter.grow_if_too_small();
        }
        // once for both holds
        let reading = self.stamps.then(|| self.now());
        let known = self.hold_to_add(reading).with(|hold| {
            let accepted = hold.core.add_known(key, hash)?;
            Ok(accepted.map(|Accepted { added, ticket, .. }| {
                self.publish_if_redundant(&mut hold.core, added, ticket, word(key), hash);
                added
            }))
        })?;
        if let Some(added) = known {
            return Ok(added);
        }
        // by now the key may be known after all
        match self.trigger(Trigger::new(key.to_owned(), None), hash, &TriggerOptions::NOW, reading) {
            Ok(accepted) => Ok(accepted.added),
            Err(refused) => Err(refused.reason),
        }
    }

    /// Adds a trigger with all its options. The clock is read if one of them needs it and the caller has no `reading`.
    #[inline]
    pub(crate) fn trigger(
        &self,
        trigger: Trigger<K, V>,
        hash: u32,
        options: &TriggerOptions,
        reading: Option<Instant>,
    ) -> Result<Accepted, AddError<K, V>> {
        let mut trigger = Kept(trigger);
        self.try_trigger(&mut trigger.0, hash, options, reading, None, |_, _| ())
            .map_err(|reason| refused(&mut trigger.0, reason))
    }
}

impl<K, V> Shared<K, V> {
    /// Passes a trigger to the state machine in a hold, for calls that do more in it than to add.
    pub(crate) fn pass<A>(
        &self,
        trigger: Trigger<K, V>,
        reading: Option<Instant>,
        call: impl FnOnce(&mut Core<K, V>, &mut Trigger<K, V>) -> Result<A, Refused>,
    ) -> Result<A, AddError<K, V>> {
        // declared before the hold, so that what is left of it is dropped after it, also where users' code panics
        let mut trigger = Kept(trigger);
        let accepted = self.hold_to_add(reading).with(|hold| call(&mut hold.core, &mut trigger.0));
        accepted.map_err(|reason| refused(&mut trigger.0, reason))
    }

    /// Publishes an integer key that had a redundant add, so that its next redundant adds need no lock.
    #[inline]
    fn publish_if_redundant(
        &self,
        core: &mut Core<K, V>,
        added: Added,
        ticket: Ticket,
        integer: Option<u64>,
        hash: u32,
    ) {
        if let (Added::Coalesced, Some(integer)) = (added, integer) {
            self.filter.publish(core, ticket, integer, hash);
        }
    }

    /// Whether the queue accepts triggers of this priority.
    pub(crate) fn takes(&self, priority: i16) -> bool {
        priority == 0 || self.priorities
    }
}

/// Makes the error that gives a refused trigger back to its caller.
pub(crate) fn refused<K, V>(trigger: &mut Trigger<K, V>, reason: Refused) -> AddError<K, V> {
    match trigger.take() {
        (Some(key), value) => AddError { key, value, reason },
        (None, _) => unreachable!("a refused trigger keeps its key"),
    }
}

/// A trigger whose drop during unwinding must not panic again.
pub(crate) struct Kept<K, V>(pub(crate) Trigger<K, V>);

impl<K, V> Drop for Kept<K, V> {
    #[inline]
    fn drop(&mut self) {
        if std::mem::needs_drop::<(K, V)>() && !self.0.is_empty() {
            let (key, value) = self.0.take();
            in_drop(|| drop_both(key, value));
        }
    }
}
