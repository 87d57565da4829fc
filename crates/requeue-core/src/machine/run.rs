//! Runs of keys: handed out, and ended with an outcome.

use super::answers::{Ended, Got, Handout, NotHeld, Refused, RefusedEnd, RunEnd, RunRef, UnfinishedReason};
use super::flags::{
    BACKOFF, COUNTED_WAITING, DIRTY, DIRTY_RESPECTS, GROUPED, GUARDLESS, HAS_SIDE_DATA, HELD, OF_A_RUN,
    PENDING, READY, RESET, TIMER_RESPECTS, WINDOW,
};
use super::options::{How, Policy, RetryDelay};
use super::state::{Core, EndedEarly, NEAR, Phase};
use crate::arena::{Marked, Removed};
use crate::count::one_more;
use crate::line::{ENTRY_AHEAD, SLOT_AHEAD};
use crate::slots::Slots;
use core::borrow::Borrow;
use core::time::Duration;

/// Number of keys up to which nothing is prefetched in a plain line: all is then in the cache.
const AT_HAND: usize = 1_024;

/// Does nothing: for callers without a filter.
fn unpublished<K>(_: &K, _: u32) {}

impl<K, V> Core<K, V> {
    /// Hands out the next key.
    #[inline]
    pub fn get(&mut self) -> Got<K, V> {
        self.get_and(unpublished)
    }

    /// Hands out the next key. If it was published, `withdraw` gets it and its hash: it must be withdrawn
    /// before the lock is released.
    #[inline(always)]
    pub fn get_and(&mut self, withdraw: impl FnOnce(&K, u32)) -> Got<K, V> {
        // not `pop`: two ends in one branch here keep what it returns out of memory (5 instructions)
        let (at, few) = if self.line.is_plain() {
            let Some(slot) = self.line.pop_plain() else { return self.no_key() };
            (slot.into(), AT_HAND)
        } else {
            let Some(at) = self.line.pop_in_turn(&mut self.arena, self.now) else { return self.no_key() };
            (at, NEAR)
        };
        self.prefetch_next(few);
        Got::Item(self.hand_out(at, withdraw))
    }

    #[inline]
    fn no_key(&self) -> Got<K, V> {
        if self.is_over() { Got::ShutDown } else { Got::Empty }
    }

    /// Hands out the next keys, at most `most`, each to `each`. Returns how many. If none,
    /// [`is_over`](Self::is_over) says whether any will come. `withdraw` is for `requeue`, which lets some
    /// keys be looked up without the lock; other callers do nothing in it.
    ///
    /// # Panics
    ///
    /// If a user's order panics. Then nothing has been handed out: it is asked for all the keys before
    /// anything changes.
    #[inline]
    pub fn get_up_to(
        &mut self,
        most: usize,
        mut withdraw: impl FnMut(&K, u32),
        mut each: impl FnMut(Handout<K, V>),
    ) -> usize {
        let most = most.min(self.line.servable_at(self.now));
        self.line.choose(&mut self.arena, most);
        // of a few keys all is in the cache
        let far = self.arena.len() > AT_HAND;
        for taken in 0..most {
            let Some(at) = self.line.pop(&mut self.arena, self.now) else { return taken };
            if far {
                self.prefetch_next(if self.line.is_plain() { AT_HAND } else { NEAR });
            }
            each(self.hand_out(at, &mut withdraw));
        }
        most
    }

    /// Prefetches the memory that an add of a key with this hash will touch, unless there are so few keys
    /// that all of it is in the cache.
    #[inline]
    pub fn prefetch(&self, hash: u32) {
        if self.arena.len() > AT_HAND {
            self.table.prefetch(hash);
        }
    }

    /// Prefetches the memory that the next keys' runs will touch, if there are more keys than `few`.
    #[inline(always)]
    fn prefetch_next(&mut self, few: usize) {
        if self.ready > SLOT_AHEAD && self.arena.len() > few {
            self.prefetch_further();
        }
    }

    /// Prefetches the next keys' slots, and for the nearer ones their places in the table.
    fn prefetch_further(&mut self) {
        let Some(ahead) = self.line.ahead() else { return self.prefetch_in_turns() };
        if let Some(slot) = ahead.get(SLOT_AHEAD) {
            self.arena.prefetch(*slot);
        }
        if let Some(hash) = ahead.get(ENTRY_AHEAD).and_then(|slot| self.arena.hash_if_occupied(*slot)) {
            self.table.prefetch(hash);
        }
    }

    #[inline(never)] // its registers cost a plain get 13 instructions
    fn prefetch_in_turns(&mut self) {
        let (later, sooner) = self.line.ahead_in_turns();
        self.arena.prefetch(later);
        if let Some(hash) = self.arena.hash_if_occupied(sooner) {
            self.table.prefetch(hash);
        }
    }

    #[inline(always)]
    fn hand_out(&mut self, at: Marked, withdraw: impl FnOnce(&K, u32)) -> Handout<K, V> {
        let slot = at.slot();
        let (key, flags) = self.arena.lend(at, |flags| (flags | HELD) & !(PENDING | BACKOFF | GUARDLESS));
        // a key in line was ready
        self.leave_pending(slot, flags | READY, withdraw);
        self.held += 1;
        let number = self.runs;
        self.runs += 1;
        let now = self.now;
        let waited = self.times.as_mut().map(|t| t.started(slot, now));
        let (mut value, mut attempt) = (None, 1);
        if flags & HAS_SIDE_DATA != 0 {
            if self.timers_absorbed {
                self.clear_timer(slot);
            }
            self.awaited_run_begins(slot);
            value = self.values.take(slot);
            attempt = self.records.get(slot).map_or(1, |r| r.attempts_before.saturating_add(1));
        }
        Handout { run: RunRef { key, number }, value, attempt, waited }
    }

    /// Ends a run. If it was already ended under its guard, nothing changes, and the value comes back dead.
    ///
    /// # Errors
    ///
    /// A refused retry gives the run back: it goes on.
    ///
    /// # Panics
    ///
    /// If the run belongs to another queue, or merge panics.
    pub fn end(
        &mut self,
        run: RunRef<K>,
        how: How<'_>,
        value: Option<V>,
    ) -> Result<Ended<K, V>, (RunRef<K>, RefusedEnd<V>)> {
        if let Some(reason) = self.refuses(&run, how, value.is_some()) {
            return Err((run, RefusedEnd { value, reason }));
        }
        if self.is_inert(&run) {
            return Ok(Ended { value, ..self.give_back(run) });
        }
        let slot = run.key.slot();
        self.arena.give_back(run.key);
        let mut ended = self.end_run(slot, how, value);
        ended.key = self.release(slot);
        Ok(ended)
    }

    /// The fast end, done or succeeded: for a key with no other state than this run, and perhaps its group. It takes the
    /// run, removes the key, and returns it with the time of the run, if timestamps are kept. Otherwise nothing changes,
    /// and the caller calls [`end`](Self::end).
    ///
    /// # Panics
    ///
    /// If the run belongs to another queue.
    #[inline(always)]
    pub fn try_fast_end(&mut self, run: &mut Option<RunRef<K>>) -> Option<(K, Option<Duration>)> {
        let at = run.as_ref()?.key.at();
        let flags = if at.is_in_group() { HELD | GROUPED } else { HELD };
        let removed = self.arena.give_back_and_remove(run, |run| &run.key, flags)?;
        self.held -= 1;
        self.runs_done += 1;
        // before the pages that these are in may go
        let worked = self.times.as_mut().map(|times| times.ended(removed.slot, self.now));
        if at.is_in_group() {
            return Some((self.forget_in_group(removed, at.group()), worked));
        }
        Some((self.forget_slot(removed), worked))
    }

    /// The rest of [`try_fast_end`](Self::try_fast_end) for a key in a group.
    fn forget_in_group(&mut self, removed: Removed<K>, group: Option<u32>) -> K {
        let group = self.line.fair_mut().and_then(|(fair, _)| fair.ended_for_good(removed.slot, group));
        let key = self.forget_slot(removed);
        if let (Some(group), Some((fair, _))) = (group, self.line.fair_mut()) {
            fair.drop_group(group);
        }
        key
    }

    /// Takes a run back as if its key had not been handed out, except that the key goes to the back of the
    /// line, with its value, its failures and this run's attempt, or the next one if `counted`. (A dirty key
    /// starts again at attempt 1, as at any end of a run.) It counts as neither an end nor an add. For a run that was already ended this
    /// is [`give_back`](Self::give_back).
    ///
    /// It works on a queue that is shut down too, even if getters have seen that it [is over](Self::is_over):
    /// it then is not any more, and the next get takes this key.
    ///
    /// # Panics
    ///
    /// If the run belongs to another queue, or merge panics: then the key is in line, with what merge left of
    /// the value.
    pub fn put_back(&mut self, run: RunRef<K>, value: Option<V>, counted: bool) -> Ended<K, V> {
        if self.is_inert(&run) {
            return Ended { value, ..self.give_back(run) };
        }
        let (slot, mut priority) = (run.key.slot(), run.priority());
        self.arena.give_back(run.key);
        if self.arena.flags(slot) & WINDOW != 0 {
            priority = self.cover(slot, priority);
        }
        let flags = self.arena.flags(slot);
        self.held -= 1;
        self.awaited_run_is_put_back(slot);
        self.refusals.remove(&slot);
        self.line.ended(slot);
        if flags & DIRTY != 0 {
            self.dirty -= 1;
            self.restart_attempts(slot);
        }
        self.ready += 1;
        self.arena.set_flags(slot, flags & !OF_A_RUN | READY);
        if counted && flags & DIRTY == 0 {
            let record = self.record_of(slot);
            record.attempts_before = record.attempts_before.saturating_add(1);
        }
        if let Some(times) = &mut self.times {
            times.put_back(slot, self.now);
        }
        if flags & DIRTY == 0 {
            self.line.pend(slot, priority);
        } else {
            self.line.raise_to(&mut self.arena, slot, priority);
        }
        self.line.enter(&mut self.arena, slot, self.now);
        // users' code, so the state is set before it
        self.merge_back(slot, value);
        Ended::default()
    }

    /// Like [`end`](Self::end), but leaves the key lent: the guard is inert from here on, and
    /// [`give_back`](Self::give_back) takes it.
    ///
    /// # Errors
    ///
    /// Like [`end`](Self::end).
    ///
    /// # Panics
    ///
    /// If the run belongs to another queue. Then nothing has changed.
    pub fn end_keeping(
        &mut self,
        run: &RunRef<K>,
        how: How<'_>,
        value: Option<V>,
    ) -> Result<Ended<K, V>, RefusedEnd<V>> {
        self.arena.check(&run.key);
        let refused = self
            .refuses(run, how, value.is_some())
            .or_else(|| self.is_inert(run).then_some(Refused::NotHeld));
        if let Some(reason) = refused {
            return Err(RefusedEnd { value, reason });
        }
        let slot = run.key.slot();
        self.make_inert(slot);
        Ok(self.end_run(slot, how, value))
    }

    /// Ends the run of a key that was handed out without a guard, or whose guard is to become inert.
    ///
    /// # Errors
    ///
    /// [`NotHeld`] if the key is not held. Then nothing has changed.
    pub fn done<Q: Eq + ?Sized>(&mut self, key: &Q, hash: u32) -> Result<Ended<K, V>, NotHeld>
    where
        K: Borrow<Q>,
    {
        let slot = self.find(hash, key).ok_or(NotHeld)?;
        let flags = self.arena.flags(slot);
        if flags & HELD == 0 {
            return Err(NotHeld);
        }
        if flags & GUARDLESS == 0 {
            self.make_inert(slot);
        }
        let mut ended = self.end_run(slot, How::Done, None);
        ended.key = self.release(slot);
        Ok(ended)
    }

    /// Takes the guard from a run: the caller promises [`done`](Self::done) instead. For a run that was
    /// already ended this is `give_back`.
    ///
    /// # Panics
    ///
    /// If the run belongs to another queue.
    pub fn detach(&mut self, run: RunRef<K>) -> Ended<K, V> {
        if self.is_inert(&run) {
            return self.give_back(run);
        }
        let slot = run.key.slot();
        self.arena.give_back(run.key);
        self.arena.set_flags(slot, self.arena.flags(slot) | GUARDLESS);
        Ended::default()
    }

    /// Takes back the loan of a run that has ended.
    ///
    /// # Panics
    ///
    /// If the run belongs to another queue.
    pub fn give_back(&mut self, run: RunRef<K>) -> Ended<K, V> {
        let slot = run.key.slot();
        self.arena.give_back(run.key);
        if let Some(inert) = self.ended_early.get_mut(&slot) {
            inert.guards -= 1;
            if inert.guards == 0 {
                self.ended_early.remove(&slot);
            }
        }
        Ended { key: self.release(slot), ..Ended::default() }
    }

    /// Whether the run was already ended, so that its guard has no effect.
    #[must_use]
    pub fn is_inert(&self, run: &RunRef<K>) -> bool {
        self.ended_early.get(&run.key.slot()).is_some_and(|inert| run.number < inert.before)
    }

    fn make_inert(&mut self, slot: u32) {
        let before = self.runs;
        let inert = self.ended_early.entry(slot).or_insert(EndedEarly { before, guards: 0 });
        inert.before = before;
        inert.guards = one_more(inert.guards);
        self.note(slot);
    }

    /// The reason to refuse an end that asks for another run, which is noted.
    fn refuses(&mut self, run: &RunRef<K>, how: How<'_>, has_value: bool) -> Option<Refused> {
        let accepts = match how {
            How::Done | How::Succeed | How::GiveUp => return None,
            // it was accepted before its limiter was asked
            How::Retry(RetryDelay::Asked(..)) => true,
            // a drain that works failed keys off drops other timers
            How::Again(after) if self.only_retries && !after.is_zero() => false,
            How::Again(_) | How::Retry(_) => self.accepts(true),
        };
        let inert = self.is_inert(run);
        if accepts && !inert {
            return None;
        }
        if let How::Retry(RetryDelay::Asked(_, asking)) = how {
            self.unask(asking);
        }
        if inert {
            return Some(Refused::NotHeld);
        }
        self.note_refusal(run.slot(), &how, has_value);
        self.refused_retries += 1;
        Some(Refused::ShutDown)
    }

    /// Ends the run. The only user code called here is `merge`, and the state is complete before it is
    /// called: if it panics the run has ended.
    #[inline]
    fn end_run(&mut self, slot: u32, how: How<'_>, value: Option<V>) -> Ended<K, V> {
        if let How::Retry(RetryDelay::Limited(limit, _)) = how {
            self.expire_some(&limit);
        }
        if let How::Again(_) | How::Retry(_) = how {
            // a call that sets a timer of its own takes a timer that is due as fired before it
            self.fire_if_due(slot);
        }
        let flags = self.arena.flags(slot);
        debug_assert!(flags & HELD != 0, "only a held key's run ends");
        let mut unfinished = false;
        // a run that asked to come again without giving its value back is done with it
        let mut keeps_value = true;
        let mut awaited = RunEnd::from(&how);
        if let Some(refusal) = self.take_refusal(slot, &how) {
            keeps_value = refusal.keeps_value;
            if refusal.reason == UnfinishedReason::RetryRefused {
                awaited = RunEnd::Retry;
            }
            if flags & DIRTY == 0 && self.ledger.is_some() {
                self.list_refused(slot, refusal);
                unfinished = true;
            }
        }
        let (flags, afresh) = self.settle_triggers(slot, flags, &how);
        self.held -= 1;
        self.runs_done += 1;
        let worked = self.times.as_mut().map(|t| t.ended(slot, self.now));
        let dirty = flags & DIRTY != 0;
        self.arena.set_flags(slot, flags & !OF_A_RUN);
        // the retry's priority; read now, because entering the line overwrites it
        let priority = self.line.run_priority(slot);
        if dirty {
            self.make_dirty_ready(slot);
        }
        let delay = self.delay_of(slot, how, dirty, afresh);
        if let (How::Retry(_), None, false) = (how, delay, dirty) {
            if self.ledger.is_some() || self.outlived.is_some() {
                self.list_dropped_retry(slot, priority);
                unfinished = true;
            }
        }
        let goes_back = keeps_value && (delay.is_some() || dirty || unfinished);
        let (goes_back, mut dead) = if goes_back { (value, None) } else { (None, value) };
        if let Some(after) = delay {
            self.come_again_after(slot, after, how, dirty, priority);
        }
        self.awaited_run_ended(slot, awaited);
        self.merge_back(slot, goes_back);
        if dead.is_none() {
            dead = self.dead_value(slot);
        } else if let Some(also) = self.dead_value(slot) {
            self.discard(None, Some(also));
        }
        Ended { key: None, value: dead, worked, end: RunEnd::from(&how), delay: delay.unwrap_or_default() }
    }

    /// Settles the triggers that came during a run of a key with these flags. Returns its flags after that, and whether its
    /// retry is a fresh start.
    #[inline]
    fn settle_triggers(&mut self, slot: u32, flags: u32, how: &How<'_>) -> (u32, bool) {
        if flags & (DIRTY_RESPECTS | TIMER_RESPECTS | RESET | COUNTED_WAITING | GROUPED | WINDOW) == 0 {
            return (flags, false);
        }
        let afresh = self.settle(slot, how);
        let mut flags = self.arena.flags(slot);
        if flags & WINDOW != 0 {
            self.window_at_end(slot, flags);
            flags = self.arena.flags(slot);
        }
        if flags & (DIRTY | COUNTED_WAITING) == COUNTED_WAITING {
            self.count_waiting(flags & !HELD);
        }
        (flags, afresh)
    }

    /// Makes a key that was dirty ready.
    #[inline]
    fn make_dirty_ready(&mut self, slot: u32) {
        self.dirty -= 1;
        self.ready += 1;
        self.arena.set_flags(slot, self.arena.flags(slot) | READY);
        if let Some(times) = &mut self.times {
            times.readied(slot, self.now);
        }
        self.line.enter(&mut self.arena, slot, self.now);
    }

    /// Counts the failure of a run, or forgets those before it. Returns after what delay the key comes again, if the run asks for
    /// that and no shutdown has dropped it.
    #[inline]
    fn delay_of(&mut self, slot: u32, how: How<'_>, dirty: bool, afresh: bool) -> Option<Duration> {
        if let How::Retry(retry) = how {
            let delay = if afresh { self.no_delay(retry) } else { self.retry_delay(slot, retry) };
            let record = self.record_of(slot);
            record.attempts_before = if dirty { 0 } else { record.attempts_before.saturating_add(1) };
            return delay;
        }
        if !matches!(how, How::Done) {
            self.forget_failures(slot);
        }
        self.restart_attempts(slot);
        if let How::Again(after) = how { Some(after) } else { None }
    }

    /// Lets a key come again whose run has ended, at once or after a delay.
    #[inline]
    fn come_again_after(&mut self, slot: u32, delay: Duration, how: How<'_>, dirty: bool, priority: i16) {
        if delay.is_zero() {
            if dirty {
                self.line.raise_to(&mut self.arena, slot, priority);
            } else {
                self.make_ready(slot, self.now, priority);
                self.line.enter(&mut self.arena, slot, self.now);
            }
            return;
        }
        let from = match how {
            How::Retry(RetryDelay::Asked(_, asking)) => asking.at,
            _ => self.now,
        };
        let plan = self.plan_timer(slot, self.own_due(slot), from, delay, Policy::Earliest);
        let moved = self.set_timer(slot, plan, priority);
        if let How::Retry(_) = how {
            self.arena.set_flags(slot, self.arena.flags(slot) | BACKOFF);
            if !moved {
                // an earlier timer, set before this run failed, comes first: its run is no retry
                self.restart_attempts(slot);
            }
        }
    }

    /// The delay of a retry that is a fresh start.
    fn no_delay(&mut self, retry: RetryDelay<'_>) -> Option<Duration> {
        match retry {
            RetryDelay::Limited(..) => Some(Duration::ZERO),
            RetryDelay::Asked(_, asking) => self.unask(asking).then_some(Duration::ZERO),
        }
    }

    /// The delay of the failed key; `None` if a shutdown dropped the retry while its limiter was asked.
    fn retry_delay(&mut self, slot: u32, retry: RetryDelay<'_>) -> Option<Duration> {
        match retry {
            RetryDelay::Limited(limit, instead) => {
                let delay = self.count_failure(slot, &limit);
                Some(instead.unwrap_or(delay))
            }
            RetryDelay::Asked(delay, asking) => {
                let live = self.unask(asking);
                // a drain that runs waiting keys now may have begun meanwhile
                let now = self.phase == Phase::ShutDown;
                live.then_some(if now { Duration::ZERO } else { delay })
            }
        }
    }
}
