//! Keys that a drain leaves unfinished (rule Q11): their retry was refused, or their timer was dropped.
//!
//! The list exists from the first drain on. Its keys stay in their slots, with their values and failures,
//! until they are taken. So a key need not be cloned, and the list is never longer than the number of known
//! keys. A key in the list may also be ready or held, if a timer was dropped beside a run that is still to
//! come.
//!
//! A refused retry is recorded while its run goes on (`refusals`), with or without a list. The end of the run
//! decides: a key whose run is then done without another one to come is unfinished; one that has succeeded
//! all the same, or was given up, is not.

use super::answers::RunRef;
use super::answers::{Accepted, KeyState, UnfinishedKey, UnfinishedReason};
use super::flags::{BACKOFF, DIRTY, HELD, READY, WINDOW};
use super::ledger::{Entry, Outlived, Refusal};
use super::options::{Delay, How, RetryDelay, Trigger, TriggerOptions};
use super::state::{BATCH, Core};
use crate::arena::{CHUNK, KeyRef};
use crate::line::PAUSED;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::time::Duration;

/// Maximum number of slots that one lock hold examines.
const EXAMINED: usize = 1_024;

impl<K, V> Core<K, V> {
    /// Starts the list of unfinished keys.
    pub(super) fn open_ledger(&mut self) {
        let ledger = self.ledger.get_or_insert_with(Box::default);
        ledger.scanned = 0;
        ledger.windows.clear();
    }

    /// Drops triggers whose limiters are being asked.
    pub(super) fn askings_are_dropped(&mut self, askings: usize) {
        if let Some(ledger) = &mut self.ledger {
            ledger.coming += askings;
        }
    }

    /// Handles a trigger that was dropped, after its limiter has answered or panicked.
    pub(super) fn note_dropped_asking(&mut self) {
        if let Some(ledger) = &mut self.ledger {
            ledger.coming = ledger.coming.saturating_sub(1);
        }
    }

    /// Number of keys in the list.
    #[must_use]
    pub fn unfinished(&self) -> usize {
        self.ledger.as_ref().map_or(0, |ledger| ledger.entries.len() + ledger.coming)
    }

    /// Whether any key has been in the list.
    pub(super) fn leaves_unfinished(&self) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.next > 0 || ledger.coming > 0)
    }

    /// Whether the key of this slot is in the list, or a store is still told of it.
    #[inline]
    pub(super) fn is_listed(&self, slot: u32) -> bool {
        self.ledger.as_ref().is_some_and(|ledger| ledger.numbers.contains_key(&slot))
            || self.outlived.as_ref().is_some_and(|outlived| outlived.contains_key(&slot))
    }

    /// Declares that a store outlives the queue: [`known_of`](Self::known_of) then still reports what a
    /// shutdown drops of ready or held keys, because the end of their run replaces the store's state of them.
    pub fn set_outlived(&mut self) {
        self.outlived.get_or_insert_with(BTreeMap::new);
    }

    /// Records this run, so that the store is told of it whenever it is told of its key.
    fn outlive(&mut self, slot: u32, due: Option<Instant>, priority: i16) {
        let Some(outlived) = &mut self.outlived else { return };
        outlived.insert(slot, Outlived { due, priority });
        self.note(slot);
    }

    /// The state of the key in this slot, as a store is told of it.
    pub(super) fn outlived_state(&self, slot: u32) -> Option<KeyState> {
        let Some(&Outlived { due, priority }) = self.outlived.as_ref().and_then(|all| all.get(&slot)) else {
            return self.state_of(slot);
        };
        let mut state = self.state_at(slot);
        if !state.ready && !state.held {
            state.priority = priority;
        }
        match due {
            None => state.ready = true,
            Some(due) => state.waiting_until = Some(state.waiting_until.map_or(due, |other| other.min(due))),
        }
        Some(state)
    }

    /// Adds an unfinished key to the list.
    fn list(&mut self, mut entry: Entry) {
        let slot = entry.slot;
        let Some(ledger) = &mut self.ledger else { return };
        let number = *ledger.numbers.entry(slot).or_insert(ledger.next);
        if let Some(before) = ledger.entries.get(&number) {
            // a refused retry next to a timer: the earlier instant, and no instant means now
            entry.due = before.due.min(entry.due);
            entry.priority = entry.priority.max(before.priority);
            if before.reason == UnfinishedReason::RetryRefused {
                (entry.reason, entry.attempt) = (before.reason, before.attempt);
            }
        } else {
            ledger.next += 1;
            ledger.untold.push_back(number);
        }
        ledger.entries.insert(number, entry);
        self.note(slot);
    }

    /// The attempt of the key's next run, if this one was not the last.
    fn next_attempt(&self, slot: u32) -> u32 {
        self.records.get(slot).map_or(0, |record| record.attempts_before).saturating_add(1)
    }

    /// Drops the timer of this slot, for a shutdown. If a drain has begun the key enters the list, unless a run is to come that
    /// would have absorbed the timer.
    pub(super) fn drop_timer(&mut self, slot: u32) {
        let flags = self.arena.flags(slot);
        let runs = flags & (READY | DIRTY) != 0 || self.window_until(slot, flags, true).is_some();
        if self.timers_absorbed && runs {
            self.clear_timer(slot);
            return self.let_go(slot);
        }
        if self.outlived.is_some() && flags & (READY | HELD) != 0 {
            self.outlive(slot, self.own_due(slot), self.line.timer_priority(slot));
        }
        if self.ledger.is_some() {
            // another run that comes first restarts the attempts
            let backs_off = flags & (BACKOFF | READY | HELD) == BACKOFF;
            self.list(Entry {
                slot,
                due: self.own_due(slot),
                attempt: if backs_off { self.next_attempt(slot) } else { 1 },
                priority: self.line.timer_priority(slot),
                reason: UnfinishedReason::TimerDropped,
            });
        }
        self.clear_timer(slot);
        self.let_go(slot);
    }

    /// Records that a run asked for another one, with or without a value, and was refused.
    pub(super) fn note_refusal(&mut self, slot: u32, how: &How<'_>, has_value: bool) {
        let (after, reason) = match how {
            How::Again(after) => (Some(*after), UnfinishedReason::TimerDropped),
            How::Retry(RetryDelay::Limited(_, Some(after))) => (Some(*after), UnfinishedReason::RetryRefused),
            _ => (None, UnfinishedReason::RetryRefused),
        };
        let due = self.due_after(after);
        let keeps_value = has_value || reason == UnfinishedReason::RetryRefused;
        self.refusals.insert(slot, Refusal { due, reason, keeps_value });
        // its end takes the long way
        self.note(slot);
    }

    fn due_after(&self, after: Option<Duration>) -> Option<Instant> {
        after.filter(|after| !after.is_zero()).map(|after| self.now + after)
    }

    /// Records that the retry of this run, which [`ask`](Self::ask) has just refused, was to come after this
    /// delay whatever the limiter says.
    pub fn refused_to_come_after(&mut self, run: &RunRef<K>, delay: Duration) {
        let due = self.due_after(Some(delay));
        if let Some(refusal) = self.refusals.get_mut(&run.slot()) {
            refusal.due = due;
        }
    }

    /// Takes the value of a run that goes on without it. If the run's request for another run was refused
    /// and the value was to go back with that run, it is merged back into the key at once. Otherwise it
    /// stays in `value`.
    ///
    /// # Panics
    ///
    /// If merge panics. The key keeps what merge left of the value.
    pub fn leave_value(&mut self, run: &RunRef<K>, value: &mut Option<V>) {
        if self.refusals.get(&run.slot()).is_some_and(|refusal| refusal.keeps_value) && !self.is_inert(run) {
            self.merge_back(run.slot(), value.take());
        }
    }

    /// Whether the run asked for another one, and was refused.
    #[must_use]
    pub fn was_refused(&self, run: &RunRef<K>) -> bool {
        self.refusals.contains_key(&run.slot()) && !self.is_inert(run)
    }

    /// Whether [`was_refused`](Self::was_refused) holds for any run.
    #[inline]
    #[must_use]
    pub fn has_refusals(&self) -> bool {
        !self.refusals.is_empty()
    }

    /// Takes the recorded refusal of a run that ends. `None` also if the run ends in another way than done, which replaces
    /// what was refused.
    #[inline]
    pub(super) fn take_refusal(&mut self, slot: u32, how: &How<'_>) -> Option<Refusal> {
        if self.refusals.is_empty() {
            return None;
        }
        self.refusals.remove(&slot).filter(|_| matches!(how, How::Done))
    }

    /// Lists the key of a current run that is about to end, whose request was refused and which has no run to
    /// come.
    pub(super) fn list_refused(&mut self, slot: u32, Refusal { due, reason, .. }: Refusal) {
        let attempt = match reason {
            UnfinishedReason::RetryRefused => self.next_attempt(slot).saturating_add(1),
            UnfinishedReason::TimerDropped => 1,
        };
        self.list(Entry { slot, due, attempt, priority: self.line.run_priority(slot), reason });
    }

    /// Lists the key of a failed run whose retry a shutdown has dropped while the limiter was asked.
    pub(super) fn list_dropped_retry(&mut self, slot: u32, priority: i16) {
        let (attempt, reason) = (self.next_attempt(slot), UnfinishedReason::RetryRefused);
        self.outlive(slot, None, priority);
        self.list(Entry { slot, due: None, attempt, priority, reason });
    }

    /// Removes the key of this slot from the list. Returns whether it was there.
    pub(super) fn unlist(&mut self, slot: u32) -> bool {
        let outlived = self.outlived.as_mut().and_then(|outlived| outlived.remove(&slot)).is_some();
        let Some(ledger) = &mut self.ledger else { return outlived };
        let number = ledger.numbers.remove(&slot);
        number.and_then(|number| ledger.entries.remove(&number)).is_some() || outlived
    }

    /// Does a part of a drain that keeps the timers of failed keys: drops the others, and closes windows in
    /// the order in which they would have ended. True if there is more.
    pub(super) fn keep_retries_only(&mut self) -> bool {
        let (mut slots, mut changes) = (EXAMINED, BATCH);
        while slots > 0 && changes > 0 {
            let Some(slot) = self.ledger.as_ref().map(|ledger| ledger.scanned) else { return false };
            if slot >= self.arena.slots() {
                return self.close_found(changes);
            }
            slots -= 1;
            let is_empty = self.arena.is_chunk_empty(slot);
            let next = if is_empty { (slot / CHUNK as u32 + 1) * CHUNK as u32 } else { slot + 1 };
            if let Some(ledger) = &mut self.ledger {
                ledger.scanned = next;
            }
            let Some(flags) = self.arena.flags_if_occupied(slot).filter(|_| !is_empty) else { continue };
            if let Some(place) = self.window_place(slot, flags) {
                if let Some(ledger) = &mut self.ledger {
                    ledger.windows.insert(place.rank(), slot);
                }
            }
            if flags & BACKOFF == 0 && self.own_due(slot).is_some() {
                self.dropped += 1;
                self.drop_timer(slot);
                changes -= 1;
            }
        }
        true
    }

    /// Closes windows that [`keep_retries_only`](Self::keep_retries_only) found; true if there are more.
    fn close_found(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let Some((_, slot)) = self.ledger.as_mut().and_then(|ledger| ledger.windows.pop_first()) else {
                return false;
            };
            // it may have ended meanwhile, and its key may have gone
            if self.arena.flags_if_occupied(slot).is_some_and(|flags| flags & WINDOW != 0) {
                self.shut_window(slot);
            }
        }
        true
    }

    /// Lends the unreported keys of the list to `each`, at most `most`. Returns how many. A run that ends
    /// after the answer of a drain is `late`: before that nothing is lent to it.
    ///
    /// Each loan must be [given back](Self::take_back).
    pub fn lend_unfinished(
        &mut self,
        late: bool,
        most: usize,
        mut each: impl FnMut(KeyRef<K>, UnfinishedReason),
    ) -> usize {
        let Some(ledger) = &mut self.ledger else { return 0 };
        if late && !ledger.answered {
            return 0;
        }
        ledger.answered = true;
        let mut lent = 0;
        while lent < most {
            let Some(number) = ledger.untold.pop_front() else { break };
            // one that was taken or cancelled is not there any more
            if let Some(entry) = ledger.entries.get(&number) {
                each(self.arena.lend_in_place(entry.slot), entry.reason);
                lent += 1;
            }
        }
        lent
    }

    /// Takes keys out of the list, at most `most`, from this number on. Returns the number to continue from,
    /// `None` after the last. A key that is ready, held or lent stays in the list.
    pub fn take_unfinished(
        &mut self,
        from: u64,
        most: usize,
        mut each: impl FnMut(UnfinishedKey<K, V>),
    ) -> Option<u64> {
        let mut next = from;
        for _ in 0..most {
            let (&number, &entry) = self.ledger.as_ref()?.entries.range(next..).next()?;
            next = number + 1;
            let Entry { slot, due, attempt, priority, reason } = entry;
            let busy =
                self.arena.flags(slot) & (READY | HELD | PAUSED) != 0 || self.timers.due(slot).is_some();
            if busy || self.arena.is_lent(slot) {
                continue;
            }
            self.unlist(slot);
            let failures = self.failures(slot);
            self.forget_failures(slot);
            self.restart_attempts(slot);
            let value = self.values.take(slot);
            if let Some(key) = self.release(slot) {
                let retry_refused = reason == UnfinishedReason::RetryRefused;
                each(UnfinishedKey { key, value, failures, attempt, due, priority, retry_refused });
            }
        }
        Some(next)
    }
}

impl<K: Eq, V> Core<K, V> {
    /// Handles a trigger that was dropped while its limiter was asked. If a drain dropped it, its key enters
    /// the list.
    pub(super) fn list_late(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        options: &TriggerOptions,
    ) -> Accepted {
        if let (true, Delay::Asked(after, _, asking)) = (self.ledger.is_some(), options.delay) {
            let (slot, _) = self.find_or_know(&mut trigger.key, hash);
            self.suspect(Some(slot));
            self.merge_in(slot, trigger.value.take());
            let (due, reason) = (Some(asking.at + after), UnfinishedReason::TimerDropped);
            self.list(Entry { slot, due, attempt: 1, priority: options.priority, reason });
            self.suspect(None);
        }
        Accepted::DROPPED
    }
}
