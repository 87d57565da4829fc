//! Adds from outside: the way from the public calls to the state machine.
//!
//! ```text
//!   add_now   the filter, which answers redundant ones without the lock
//!      └─► add_now_in_lock   the hold; what the queue does not take is dropped after it
//!             ├─► Core::try_add_fast   what the key's bucket in the table decides
//!             └─► add_now_in_hold ─► Core::add_now   everything else
//!   all other triggers
//!      └─► add_as   the hold ─► what the trigger asks for of the state machine
//! ```

use crate::filter::{Open, word};
use crate::hold::{Hold, Shared};
use crate::panics::{drop_both, in_drop};
use crate::{AddError, AddResult, Instant, Metrics};
use requeue_core::{
    Accepted, Added, Asking, Core, Debounce, Delay, InBackoff, Policy, Refused, RunRef, Ticket, Trigger,
};
use std::borrow::Borrow;
use std::time::Duration;

impl<K, V> Shared<K, V> {
    /// Adds a key now, without a value.
    #[inline]
    pub(crate) fn add_now(&self, key: K, hash: u32) -> AddResult<K, V>
    where
        K: Eq,
    {
        match self.filter.open(&key) {
            None => self.add_now_in_lock(key, hash),
            Some(open) => self.add_through_filter(open, key, hash),
        }
    }

    /// Separate function: keeps the slow path's registers out of the hit path.
    #[inline(never)]
    fn add_through_filter(&self, open: Open, key: K, hash: u32) -> AddResult<K, V>
    where
        K: Eq,
    {
        if self.filter.finds(open, &key, hash) {
            self.tell_redundant();
            return Ok(Added::Coalesced);
        }
        self.add_beside_filter(key, hash)
    }

    #[inline(never)]
    fn add_beside_filter(&self, key: K, hash: u32) -> AddResult<K, V>
    where
        K: Eq,
    {
        let added = self.add_now_in_lock(key, hash);
        self.filter.grow_if_too_small();
        added
    }

    /// Adds a key with a trigger of any kind.
    #[inline(always)]
    pub(crate) fn add_as<A>(
        &self,
        key: K,
        (value, priority): (Option<V>, i16),
        reading: Option<Instant>,
        add: impl FnOnce(&mut Core<K, V>, &mut Trigger<K, V>) -> Result<A, Refused>,
    ) -> Result<A, AddError<K, V>> {
        // declared before the lock is taken, so that what is left of it is dropped
        // after it is released, also where users' code panics
        let mut trigger = Kept(Trigger::new(key, value).priority(priority));
        let mut hold = self.hold_to_add(reading);
        let accepted = add(&mut hold.core, &mut trigger.0);
        hold.close();
        accepted.map_err(|reason| refused(&mut trigger.0, reason))
    }

    /// Adds a key now, without a value, after the filter had no answer. Separate function: its registers
    /// would cost a redundant add 22 instructions, and a call costs 7.
    #[inline(never)]
    fn add_now_in_lock(&self, key: K, hash: u32) -> AddResult<K, V>
    where
        K: Eq,
    {
        let integer = word(&key);
        // declared before the hold, so that they are dropped after it, also where users' code panics
        let mut in_memory;
        let mut trigger = Kept(Trigger::new(key, None));
        let mut hold = self.hold_to_add(None);
        let Some((added, ticket)) = hold.core.try_add_fast(&mut trigger.0, hash) else {
            in_memory = trigger;
            return self.add_now_in_hold(hold, &mut in_memory.0, integer, hash);
        };
        self.publish_if_redundant(&mut hold.core, added, ticket, integer, hash);
        hold.close();
        Ok(added)
    }

    /// Slow path of [`add_now_in_lock`](Self::add_now_in_lock), inside its lock hold.
    #[inline(never)]
    fn add_now_in_hold(
        &self,
        mut hold: Hold<'_, K, V>,
        trigger: &mut Trigger<K, V>,
        integer: Option<u64>,
        hash: u32,
    ) -> AddResult<K, V>
    where
        K: Eq,
    {
        let accepted = hold.core.add_now(trigger, hash).map(|(added, ticket)| {
            self.publish_if_redundant(&mut hold.core, added, ticket, integer, hash);
            added
        });
        hold.close();
        accepted.map_err(|reason| refused(trigger, reason))
    }

    /// Publishes an integer key that had a redundant add, so that its next redundant adds need no lock.
    #[inline(always)]
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

    /// Adds a key now, with a value or a priority.
    #[inline]
    pub(crate) fn add_with_options(&self, key: K, hash: u32, options: (Option<V>, i16)) -> AddResult<K, V>
    where
        K: Eq,
    {
        if self.priorities {
            self.add_by_priority(key, hash, options)
        } else {
            self.add_valued(key, hash, options)
        }
    }

    #[inline(never)]
    fn add_by_priority(&self, key: K, hash: u32, options: (Option<V>, i16)) -> AddResult<K, V>
    where
        K: Eq,
    {
        self.add_as(key, options, None, |core, trigger| core.add_by_priority(trigger, hash))
    }

    #[inline(never)]
    fn add_valued(&self, key: K, hash: u32, options: (Option<V>, i16)) -> AddResult<K, V>
    where
        K: Eq,
    {
        self.add_as(key, options, None, |core, trigger| Ok(core.add_now(trigger, hash)?.0))
    }

    /// Adds a key now, with the trigger's own debounce.
    #[cold]
    #[inline(never)]
    pub(crate) fn add_debounced(
        &self,
        key: K,
        hash: u32,
        options: (Option<V>, i16),
        in_backoff: Option<InBackoff>,
        debounce: Debounce,
    ) -> AddResult<K, V>
    where
        K: Eq,
    {
        self.add_as(key, options, Some(self.now()), |core, trigger| {
            Ok(core.add_debounced(trigger, hash, in_backoff, debounce)?.added)
        })
    }

    /// Adds a key with any other trigger: `options` holds its value and priority, and its delay counts from
    /// `reading`. The answer includes the delay.
    pub(crate) fn add(
        &self,
        key: K,
        hash: u32,
        options: (Option<V>, i16),
        delay: Delay<'_>,
        reading: Option<Instant>,
    ) -> Result<Accepted, AddError<K, V>>
    where
        K: Eq,
    {
        self.add_told(key, options, delay, reading, |core, trigger| core.add(trigger, hash, delay))
    }

    /// Like [`add`](Self::add), with the trigger's own back-off policy.
    #[inline(never)]
    pub(crate) fn add_in_backoff(
        &self,
        key: K,
        hash: u32,
        options: (Option<V>, i16),
        delay: Delay<'_>,
        reading: Option<Instant>,
        in_backoff: InBackoff,
    ) -> Result<Accepted, AddError<K, V>>
    where
        K: Eq,
    {
        self.add_told(key, options, delay, reading, |core, trigger| {
            core.add_in_backoff(trigger, hash, delay, in_backoff)
        })
    }

    /// Adds a key, and tells the metrics if the trigger has a delay.
    #[inline(always)]
    fn add_told(
        &self,
        key: K,
        options: (Option<V>, i16),
        delay: Delay<'_>,
        reading: Option<Instant>,
        add: impl FnOnce(&mut Core<K, V>, &mut Trigger<K, V>) -> Result<Accepted, Refused>,
    ) -> Result<Accepted, AddError<K, V>> {
        let accepted = self.add_as(key, options, reading, add)?;
        if !matches!(delay, Delay::Now) {
            self.tell(Metrics::retried);
        }
        Ok(accepted)
    }

    /// Like [`add_now`](Self::add_now), but by reference: the key is cloned, outside the lock, only if the
    /// queue does not know it.
    #[inline]
    pub(crate) fn add_ref<Q>(&self, key: &Q, hash: u32) -> Result<Added, Refused>
    where
        K: Eq + Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
        // a `Q` that is an integer is `K`, for an integer's `Owned` is itself
        if let Some(open) = self.filter.open(key) {
            if self.filter.finds(open, key, hash) {
                self.tell_redundant();
                return Ok(Added::Coalesced);
            }
            self.filter.grow_if_too_small();
        }
        self.add_ref_in_lock(key, hash)
    }

    #[inline(never)]
    fn add_ref_in_lock<Q>(&self, key: &Q, hash: u32) -> Result<Added, Refused>
    where
        K: Eq + Borrow<Q>,
        Q: Eq + ToOwned<Owned = K> + ?Sized,
    {
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
        match self.add(key.to_owned(), hash, (None, 0), Delay::Now, reading) {
            Ok(accepted) => Ok(accepted.added),
            Err(refused) => Err(refused.reason),
        }
    }

    /// Adds a key after the limiter's delay.
    pub(crate) fn add_limited(
        &self,
        key: K,
        hash: u32,
        options: (Option<V>, i16),
        policy: Policy,
    ) -> Result<Accepted, AddError<K, V>>
    where
        K: Eq,
    {
        let now = self.now();
        if !self.keeps_own() {
            return self
                .with_limit(|limit| self.add(key, hash, options, Delay::Limited(limit, policy), Some(now)));
        }
        match self.ask_for(&key, hash, now, false) {
            Ok((delay, asking)) => {
                self.add(key, hash, options, Delay::Asked(delay, policy, asking), Some(now))
            }
            Err(reason) => Err(AddError { key, value: options.0, reason }),
        }
    }

    /// Like [`add_limited`](Self::add_limited), with the trigger's own back-off policy.
    #[inline(never)]
    pub(crate) fn add_limited_in_backoff(
        &self,
        key: K,
        hash: u32,
        options: (Option<V>, i16),
        policy: Policy,
        in_backoff: InBackoff,
    ) -> Result<Accepted, AddError<K, V>>
    where
        K: Eq,
    {
        let now = self.now();
        let add = |key, options, delay: Delay<'_>| {
            self.add_in_backoff(key, hash, options, delay, Some(now), in_backoff)
        };
        if !self.keeps_own() {
            return self.with_limit(|limit| add(key, options, Delay::Limited(limit, policy)));
        }
        match self.ask_for(&key, hash, now, in_backoff == InBackoff::Reset) {
            Ok((delay, asking)) => add(key, options, Delay::Asked(delay, policy, asking)),
            Err(reason) => Err(AddError { key, value: options.0, reason }),
        }
    }

    /// Asks a limiter that keeps its own counts, outside the lock. A shutdown may overtake the call, and the
    /// limiter may panic, so the state machine is told before and after. The limiter is not asked for a run
    /// whose retry will be a fresh start.
    pub(crate) fn ask(
        &self,
        run: &RunRef<K>,
        instead: Option<Duration>,
        now: Instant,
    ) -> Result<(Duration, Asking), Refused> {
        let (asking, afresh) = self.hold(Some(now)).with(|hold| {
            let asking = hold.core.ask(Some(run)).inspect_err(|_| {
                if let Some(delay) = instead {
                    hold.core.refused_to_come_after(run, delay);
                }
            })?;
            Ok((asking, hold.core.starts_afresh(run)))
        })?;
        if afresh {
            self.limiter.forget(run.key());
            return Ok((Duration::ZERO, asking));
        }
        Ok((self.asked(run.key(), now, asking, false), asking))
    }

    /// Like [`ask`](Self::ask), for a trigger from outside, which may give a key in back-off a fresh start.
    fn ask_for(&self, key: &K, hash: u32, now: Instant, resets: bool) -> Result<(Duration, Asking), Refused>
    where
        K: Eq,
    {
        let (asking, resets) = self.hold_to_add(Some(now)).with(|hold| {
            let asking = hold.core.ask_for(key, hash)?;
            Ok((asking, resets && hold.core.has_to_reset(key, hash)))
        })?;
        Ok((self.asked(key, now, asking, resets), asking))
    }

    /// The limiter's delay, once the state machine knows that it is asked. If the key starts afresh, the
    /// limiter forgets it first. A refused trigger never gets here, so it forgets nothing.
    pub(crate) fn asked(&self, key: &K, now: Instant, asking: Asking, resets: bool) -> Duration {
        let unasked = Unask { shared: self, asking, left: 1 };
        if resets {
            self.limiter.forget(key);
        }
        let delay = self.limiter.when(key, now);
        std::mem::forget(unasked);
        delay
    }

    /// Whether the queue accepts triggers of this priority.
    #[inline]
    pub(crate) fn takes(&self, priority: i16) -> bool {
        priority == 0 || self.priorities
    }

    /// Tells the metrics of an add that took no lock.
    #[inline(always)]
    fn tell_redundant(&self) {
        self.tell(|m| m.coalesced(1));
    }
}

/// On drop, withdraws limiter calls whose triggers do not come because the limiter panicked.
pub(crate) struct Unask<'a, K, V> {
    pub(crate) shared: &'a Shared<K, V>,
    pub(crate) asking: Asking,
    /// Number of calls to withdraw.
    pub(crate) left: usize,
}

impl<K, V> Drop for Unask<'_, K, V> {
    fn drop(&mut self) {
        if self.left > 0 {
            // without letting time pass: that is not ours to do while unwinding
            self.shared.lock().with(|hold| {
                for _ in 0..self.left {
                    hold.core.unask(self.asking);
                }
            });
        }
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
    #[inline(always)]
    fn drop(&mut self) {
        if std::mem::needs_drop::<(K, V)>() && !self.0.is_empty() {
            let (key, value) = self.0.take();
            in_drop(|| drop_both(key, value));
        }
    }
}
