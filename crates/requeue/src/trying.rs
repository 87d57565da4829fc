//! One try of a trigger. On a queue with a bound it may be the turn of one that waits for room (rule B8).

use crate::hold::{Hold, Shared};
use crate::metrics::Metrics;
use requeue_core::{Accepted, Asking, Core, Delay, Instant, Limit, Refused, Trigger, TriggerOptions};
use std::task::Waker;
use std::time::Duration;

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

    /// In the hold of a try: enters the trigger among those that wait for room if the queue is `full`, else takes it out.
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
    /// Tries a trigger once, in its `turn` if it may wait for room. Its delay counts from `reading`, or from now. Calls `then`
    /// in the hold if the trigger is accepted.
    #[inline]
    pub(crate) fn try_trigger(
        &self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        options: &TriggerOptions,
        reading: Option<Instant>,
        turn: Option<&mut Turn<'_>>,
        then: impl FnOnce(&mut Core<K, V>, Accepted),
    ) -> Result<Accepted, Refused> {
        if options.is_immediate() {
            let call = |core: &mut Core<K, V>| core.trigger(trigger, hash, options, &Limit::NONE);
            return self.in_turn(hash, reading, turn, call, then);
        }
        let now = reading.unwrap_or_else(|| self.now());
        self.try_timed(trigger, hash, options, now, turn, then)
    }

    /// Calls the state machine in a hold, in the trigger's turn, and then `then` if the trigger is accepted.
    #[inline(always)] // as `Core::trigger`
    fn in_turn(
        &self,
        hash: u32,
        reading: Option<Instant>,
        turn: Option<&mut Turn<'_>>,
        call: impl FnOnce(&mut Core<K, V>) -> Result<Accepted, Refused>,
        then: impl FnOnce(&mut Core<K, V>, Accepted),
    ) -> Result<Accepted, Refused> {
        let mut hold = self.hold_to_add(reading);
        let accepted = match turn {
            None => call(&mut hold.core),
            Some(turn) => {
                let ahead = turn.ahead(&hold);
                let accepted = hold.core.behind(ahead, call);
                turn.tried(&mut hold, hash, accepted == Err(Refused::Full));
                accepted
            }
        };
        if let Ok(accepted) = accepted {
            then(&mut hold.core, accepted);
        }
        hold.unlock();
        accepted
    }

    /// Tries a trigger with a delay or a debounce. A limiter that decides its delay and keeps its own counts is asked first,
    /// outside the lock.
    fn try_timed(
        &self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        options: &TriggerOptions,
        now: Instant,
        mut turn: Option<&mut Turn<'_>>,
        then: impl FnOnce(&mut Core<K, V>, Accepted),
    ) -> Result<Accepted, Refused> {
        let at = Some(now);
        let accepted = match options.limited() {
            None => {
                let call = |core: &mut Core<K, V>| core.take_in(trigger, hash, options, &Limit::NONE);
                self.in_turn(hash, at, turn, call, then)
            }
            Some((policy, resets)) if self.keeps_own() && self.takes(options.priority) => {
                let (delay, asking) = self.ask_in_turn(trigger, hash, now, resets, turn.as_deref_mut())?;
                let asked = TriggerOptions { delay: Delay::Asked(delay, policy, asking), ..*options };
                let call = |core: &mut Core<K, V>| core.take_in(trigger, hash, &asked, &Limit::NONE);
                self.in_turn(hash, at, turn, call, then)
            }
            Some(_) => self.with_limit(|limit| {
                self.in_turn(hash, at, turn, |core| core.take_in(trigger, hash, options, &limit), then)
            }),
        };
        if accepted.is_ok() && options.is_delayed() {
            self.tell_metrics(Metrics::retried);
        }
        accepted
    }

    /// Asks a limiter that keeps its own counts, if the trigger is accepted in its turn.
    fn ask_in_turn(
        &self,
        trigger: &Trigger<K, V>,
        hash: u32,
        now: Instant,
        resets: bool,
        turn: Option<&mut Turn<'_>>,
    ) -> Result<(Duration, Asking), Refused> {
        let Some(key) = trigger.key() else { unreachable!("a trigger has its key until it is accepted") };
        let mut hold = self.hold_to_add(Some(now));
        let ahead = turn.as_ref().map_or(0, |turn| turn.ahead(&hold));
        let asking = hold.core.behind(ahead, |core| core.ask_for(key, hash));
        let resets = resets && hold.core.has_to_reset(key, hash);
        if let (Err(refused), Some(turn)) = (&asking, turn) {
            turn.tried(&mut hold, hash, *refused == Refused::Full);
        }
        hold.unlock();
        let asking = asking?;
        Ok((self.asked(key, now, asking, resets), asking))
    }
}
