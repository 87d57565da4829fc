//! One try of a trigger on a queue with a bound (rule B8).

use crate::add::When;
use crate::hold::{Hold, Shared};
use crate::{Instant, Metrics};
use requeue_core::{Added, Asking, Core, Debounce, Delay, InBackoff, Policy, Refused, Trigger};
use std::task::Waker;
use std::time::Duration;

/// The options of a trigger, without its key, value and priority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) when: When,
    pub(crate) policy: Policy,
    pub(crate) in_backoff: Option<InBackoff>,
    pub(crate) debounce: Option<Debounce>,
}

impl Wish {
    /// Whether it reads the clock itself.
    pub(crate) fn is_timed(&self) -> bool {
        self.debounce.is_some() || !matches!(self.when, When::Now)
    }
}

/// The place of a trigger among those that wait for room.
#[derive(Debug, Default)]
pub(crate) struct Turn<'a> {
    pub(crate) ticket: Option<&'a mut Option<u64>>,
    /// If it finds no room it waits on, with this waker or its clone.
    pub(crate) waker: Option<&'a Waker>,
    pub(crate) clone: Option<Waker>,
    /// It found no room, and waits from now on.
    pub(crate) waits: bool,
    /// To be dropped outside the lock.
    pub(crate) old: Option<Waker>,
}

impl Turn<'_> {
    /// Number of waiting triggers before it.
    fn ahead<K, V>(&self, hold: &Hold<'_, K, V>) -> usize {
        let ticket = self.ticket.as_deref();
        ticket.map_or(0, |ticket| hold.adders.ahead(*ticket, hold.core.room().unwrap_or(0)))
    }

    /// Updates its place in the hold in which it was tried: it waits, or no longer.
    fn tried<K, V>(&mut self, hold: &mut Hold<'_, K, V>, hash: u32, full: bool) {
        let Some(ticket) = self.ticket.as_deref_mut() else { return };
        match (self.waker.filter(|_| full), self.clone.take()) {
            (None, _) => self.old = hold.adders().leave(ticket),
            (Some(waker), _) if hold.adders.is_current(*ticket, waker) => self.waits = true,
            (Some(_), Some(clone)) => {
                self.old = hold.adders().set(ticket, hash, clone);
                self.waits = true;
            }
            // it must be cloned without the lock, and then this is tried again
            (Some(_), None) => {}
        }
    }
}

impl<K: Eq, V> Shared<K, V> {
    /// Tries a trigger once, on a queue with a bound. Its delay counts from `reading`.
    pub(crate) fn try_add(
        &self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        wish: Wish,
        reading: Option<Instant>,
        turn: &mut Turn<'_>,
    ) -> Result<Added, Refused> {
        let Wish { when, policy, in_backoff, debounce } = wish;
        let enter = |delay: Delay<'_>, trigger: &mut Trigger<K, V>, turn: &mut Turn<'_>| {
            let mut hold = self.hold_to_add(reading);
            let ahead = turn.ahead(&hold);
            let accepted = hold.core.behind(ahead, |core: &mut Core<K, V>| match (in_backoff, debounce) {
                (in_backoff, Some(debounce)) => core.add_debounced(trigger, hash, in_backoff, debounce),
                (None, None) => core.add(trigger, hash, delay),
                (Some(in_backoff), None) => core.add_in_backoff(trigger, hash, delay, in_backoff),
            });
            turn.tried(&mut hold, hash, accepted == Err(Refused::Full));
            hold.close();
            accepted
        };
        let accepted = match when {
            When::Now => enter(Delay::Now, trigger, turn),
            When::After(delay) => enter(Delay::After(delay, policy), trigger, turn),
            When::At(due) => enter(Delay::At(due, policy), trigger, turn),
            When::RateLimited if self.keeps_own() && self.takes(trigger.said_priority()) => {
                let (now, resets) =
                    (reading.unwrap_or_else(|| self.now()), in_backoff == Some(InBackoff::Reset));
                let (delay, asking) = self.ask_in_turn(trigger, hash, now, resets, turn)?;
                enter(Delay::Asked(delay, policy, asking), trigger, turn)
            }
            When::RateLimited => self.with_limit(|limit| enter(Delay::Limited(limit, policy), trigger, turn)),
        };
        let accepted = accepted?;
        if !matches!(when, When::Now) {
            self.tell(Metrics::retried);
        }
        Ok(accepted.added)
    }

    /// Asks a limiter that keeps its own counts, if there is room for the trigger.
    fn ask_in_turn(
        &self,
        trigger: &Trigger<K, V>,
        hash: u32,
        now: Instant,
        resets: bool,
        turn: &mut Turn<'_>,
    ) -> Result<(Duration, Asking), Refused> {
        let Some(key) = trigger.key() else { unreachable!("a trigger has its key until it is accepted") };
        let mut hold = self.hold_to_add(Some(now));
        let ahead = turn.ahead(&hold);
        let asking = hold.core.behind(ahead, |core| core.ask_for(key, hash));
        let resets = resets && hold.core.has_to_reset(key, hash);
        if asking.is_err() {
            turn.tried(&mut hold, hash, asking.as_ref().err() == Some(&Refused::Full));
        }
        hold.close();
        let asking = asking?;
        Ok((self.asked(key, now, asking, resets), asking))
    }

    /// Adds a trigger of a batch separately, because it asks a user's limiter only if there is room.
    pub(crate) fn add_by_itself(
        &self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        wish: Wish,
        reading: Option<Instant>,
    ) -> Result<Added, Refused> {
        self.try_add(trigger, hash, wish, reading, &mut Turn::default())
    }
}
