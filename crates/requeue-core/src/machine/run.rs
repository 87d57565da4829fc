//! Runs of keys: handed out, and ended with an outcome.

use super::shutdown::Phase;
use super::trigger::{Asking, Limit, Policy, Refused};
use super::{
    BACKOFF, Core, DIRTY, DIRTY_RESPECTS, EndedEarly, GROUPED, GUARDLESS, HAS_SIDE_DATA, HELD, OF_A_RUN,
    PENDING, READY, RESET, TIMED, TIMER_RESPECTS, WINDOW,
};
use crate::arena::{KeyRef, Marked};
use crate::count::one_more;
use crate::line::{ENTRY_AHEAD, SLOT_AHEAD};
use crate::slots::Slots;
use core::borrow::Borrow;
use core::fmt;
use core::time::Duration;

/// A run that was handed out: the loan of its key and its number. Give it back through [`Core::end`] or
/// [`Core::give_back`]; if it is dropped, its key stays held.
#[derive(Debug)]
#[must_use = "a run that is not ended keeps its key held for ever"]
pub struct RunRef<K> {
    key: KeyRef<K>,
    number: u64,
}

impl<K> RunRef<K> {
    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        self.key.get()
    }

    /// The number of the key's slot: see [`Core::slot_of`].
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.key.slot()
    }

    /// The priority with which it was handed out: 0 if the queue has no priorities.
    #[inline]
    #[must_use]
    pub fn priority(&self) -> i16 {
        self.key.mark()
    }
}

/// Result of [`Core::get`].
#[derive(Debug)]
#[must_use]
pub struct Handout<K, V> {
    /// The run.
    pub run: RunRef<K>,
    /// The merged payload.
    pub value: Option<V>,
    /// Attempt of the run: 1 for a first run; one more for each retry in a row that led to this one.
    pub attempt: u32,
    /// Time from the run's first trigger to now, if timestamps are kept.
    pub waited: Option<Duration>,
}

/// The answer of [`Core::get`].
#[derive(Debug)]
#[must_use]
pub enum Got<K, V> {
    /// A key.
    Item(Handout<K, V>),
    /// No key is ready now.
    Empty,
    /// No key is ready, and none will be.
    ShutDown,
}

/// How a run ends.
#[derive(Clone, Copy, Debug)]
pub enum How<'a> {
    /// Done; the record of failures stays.
    Done,
    /// Done, and the failures are forgotten.
    Succeed,
    /// A failure that is not retried: like [`Succeed`](Self::Succeed), with another name.
    GiveUp,
    /// Not a failure: forgets the failures, and the key comes again after the delay.
    Again(Duration),
    /// A failure: the key comes back.
    Retry(RetryDelay<'a>),
}

/// The delay of a failed key.
#[derive(Clone, Copy, Debug)]
pub enum RetryDelay<'a> {
    /// The delay of a limiter that uses the key's own count.
    Limited(Limit<'a>),
    /// This delay; the limiter is asked and counts.
    Instead(Limit<'a>, Duration),
    /// The delay of a limiter that was asked outside the lock.
    Asked(Duration, Asking),
}

/// End of a run, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RunEnd {
    /// It was done, or dropped, or its retry was refused.
    #[default]
    Done,
    /// Not a failure, and the key comes again.
    Again,
    /// A failure, and the key comes again.
    Retry,
    /// A failure that is not retried.
    GiveUp,
}

impl RunEnd {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Done, Self::Again, Self::Retry, Self::GiveUp];

    /// Its name in metrics: `done`, `again`, `retry`, `give_up`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Again => "again",
            Self::Retry => "retry",
            Self::GiveUp => "give_up",
        }
    }
}

impl From<&How<'_>> for RunEnd {
    fn from(how: &How<'_>) -> Self {
        match how {
            How::Done | How::Succeed => Self::Done,
            How::GiveUp => Self::GiveUp,
            How::Again(_) => Self::Again,
            How::Retry(_) => Self::Retry,
        }
    }
}

/// A run that has ended.
#[derive(Debug)]
#[must_use = "drop the contents outside the lock"]
pub struct Ended<K, V> {
    /// The key, if it has no references left.
    pub key: Option<K>,
    /// The payload, if no run is left to hand it to.
    pub value: Option<V>,
    /// Time of the run, if timestamps are kept; `None` also if it had been ended before.
    pub worked: Option<Duration>,
    /// How it ended.
    pub end: RunEnd,
    /// The delay of a retried key.
    pub delay: Duration,
}

/// A retry that was refused: the run goes on.
#[derive(Debug)]
pub struct RefusedEnd<V> {
    /// The payload that was to go back.
    pub value: Option<V>,
    /// The reason.
    pub reason: Refused,
}

/// Error of `done` for a key that is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NotHeld;

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("done was called for a key that is not held: get it first, and call done once")
    }
}

impl core::error::Error for NotHeld {}

/// Number of keys up to which a line with turns does not prefetch: all is then in the second cache at least,
/// and prefetching would cost more than it saves.
pub(super) const NEAR: usize = 16_384;
/// Number of keys up to which nothing is prefetched: all is then in the cache.
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
        let at = if self.line.is_plain() {
            let Some(slot) = self.line.pop_plain() else { return self.no_key() };
            slot.into()
        } else {
            let Some(at) = self.line.pop_in_turn(&mut self.arena, self.now) else { return self.no_key() };
            at
        };
        self.prefetch_next();
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
                self.prefetch_next();
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

    /// Prefetches the memory that the next keys' runs will touch, if there are enough keys.
    #[inline(always)]
    fn prefetch_next(&mut self) {
        if self.ready > SLOT_AHEAD && self.arena.len() > AT_HAND {
            self.prefetch_further();
        }
    }

    /// Prefetches the next keys' slots, and for the nearer ones their places in the table.
    fn prefetch_further(&mut self) {
        let Some(ahead) = self.line.ahead() else {
            if self.arena.len() > NEAR {
                self.prefetch_in_turns();
            }
            return;
        };
        if let Some(slot) = ahead.get(SLOT_AHEAD) {
            self.arena.prefetch(*slot);
        }
        if let Some(hash) = ahead.get(ENTRY_AHEAD).and_then(|slot| self.arena.hash_if_occupied(*slot)) {
            self.table.prefetch(hash);
        }
    }

    #[inline(never)]
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
        // what was in line was ready
        self.end_pending(slot, flags | READY, withdraw);
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
            value = self.values.take(slot);
            attempt = self.records.get(slot).map_or(1, |r| r.retries.saturating_add(1));
        }
        Handout { run: RunRef { key, number }, value, attempt, waited }
    }

    /// Ends a run. If it was already ended under its guard, nothing changes, and the payload comes back dead.
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
        let slot = run.key.slot();
        if !self.ended_early.is_empty() && self.is_inert(&run) {
            if let How::Again(_) | How::Retry(_) = how {
                return Err((run, self.refuse_end(how, value, Refused::NotHeld)));
            }
            let mut ended = self.give_back(run);
            ended.value = value;
            return Ok(ended);
        }
        if let How::Again(_) | How::Retry(_) = how {
            if !self.takes_end(how) {
                self.note_refusal(slot, &how);
                return Err((run, self.refuse_end(how, value, Refused::ShutDown)));
            }
        }
        self.arena.give_back(run.key);
        let mut ended = self.end_run(slot, how, value);
        ended.key = self.release(slot);
        Ok(ended)
    }

    /// Like [`end`](Self::end) with [`How::Done`] or, if it `succeeded`, [`How::Succeed`], without a payload:
    /// it cannot be refused.
    ///
    /// # Panics
    ///
    /// If the run belongs to another queue.
    #[inline(always)]
    pub fn finish(&mut self, run: RunRef<K>, succeeded: bool) -> Ended<K, V> {
        let mut run = Some(run);
        match self.try_finish_fast(&mut run) {
            Some((key, worked)) => Ended { key: Some(key), worked, ..Ended::default() },
            None => self.finish_in_full(&mut run, succeeded, None),
        }
    }

    /// Fast path of [`finish`](Self::finish), for a key with no other state than this run: takes the run,
    /// removes the key, and returns it with the time of the run, if timestamps are kept. Otherwise nothing
    /// changes.
    #[inline(always)]
    pub fn try_finish_fast(&mut self, run: &mut Option<RunRef<K>>) -> Option<(K, Option<Duration>)> {
        let removed = self.arena.give_back_and_remove(run, |run| &run.key, HELD)?;
        self.held -= 1;
        self.runs_done += 1;
        // before the page that the timestamps are in may go
        let worked = self.times.as_mut().map(|times| times.ended(removed.slot, self.now));
        Some((self.forget_slot(removed), worked))
    }

    /// Like [`try_finish_fast`](Self::try_finish_fast), for a key in a group.
    #[inline(always)]
    pub fn finish_grouped(&mut self, run: &mut Option<RunRef<K>>) -> Option<(K, Option<Duration>)> {
        let group = run.as_ref()?.key.group();
        let removed = self.arena.give_back_and_remove(run, |run| &run.key, HELD | GROUPED)?;
        let slot = removed.slot;
        self.held -= 1;
        self.runs_done += 1;
        // before the pages that these are in may go
        let worked = self.times.as_mut().map(|times| times.ended(slot, self.now));
        let group = self.line.fair_mut().and_then(|(fair, _)| fair.ended_for_good(slot, group));
        let key = self.forget_slot(removed);
        if let (Some(group), Some((fair, _))) = (group, self.line.fair_mut()) {
            fair.drop_group(group);
        }
        Some((key, worked))
    }

    /// Slow path of [`finish`](Self::finish), for a run that [`try_finish_fast`](Self::try_finish_fast) left,
    /// with its payload if a retry [was refused](Self::was_refused). If there is no run nothing has ended.
    #[inline(never)]
    pub fn finish_in_full(
        &mut self,
        run: &mut Option<RunRef<K>>,
        succeeded: bool,
        value: Option<V>,
    ) -> Ended<K, V> {
        if let Some((key, worked)) = self.finish_grouped(run) {
            return Ended { key: Some(key), value, worked, ..Ended::default() };
        }
        let Some(run) = run.take() else { return Ended { value, ..Ended::default() } };
        match self.end(run, if succeeded { How::Succeed } else { How::Done }, value) {
            Ok(ended) => ended,
            Err(_) => unreachable!("only retries are refused"),
        }
    }

    /// Takes a run back as if its key had not been handed out, except that the key goes to the back of the
    /// line, with its payload, its failures and this run's attempt. (A dirty key starts again at attempt 1,
    /// as at any end of a run.) It counts as neither an end nor an add. For a run that was already ended this
    /// is [`give_back`](Self::give_back).
    ///
    /// It works on a queue that is shut down too, even if getters have seen that it [is over](Self::is_over):
    /// it then is not any more, and the next get takes this key.
    ///
    /// # Panics
    ///
    /// If the run belongs to another queue, or merge panics: then the key is in line, with what merge left of
    /// the payload.
    pub fn put_back(&mut self, run: RunRef<K>, value: Option<V>) -> Ended<K, V> {
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
        self.refusals.remove(&slot);
        self.line.ended(slot);
        if flags & DIRTY != 0 {
            self.dirty -= 1;
            self.restart_attempts(slot);
        }
        self.ready += 1;
        self.arena.set_flags(slot, flags & !OF_A_RUN | READY);
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
        if self.is_inert(run) {
            return Err(self.refuse_end(how, value, Refused::NotHeld));
        }
        if let How::Again(_) | How::Retry(_) = how {
            if !self.takes_end(how) {
                self.note_refusal(run.slot(), &how);
                return Err(self.refuse_end(how, value, Refused::ShutDown));
            }
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

    #[cold]
    fn make_inert(&mut self, slot: u32) {
        let before = self.runs;
        let inert = self.ended_early.entry(slot).or_insert(EndedEarly { before, guards: 0 });
        inert.before = before;
        inert.guards = one_more(inert.guards);
        self.note(slot);
    }

    /// Whether a holder's retry is accepted. A retry whose limiter is being asked was accepted before.
    fn takes_end(&self, how: How<'_>) -> bool {
        match how {
            How::Retry(RetryDelay::Asked(..)) => true,
            // a drain that works failed keys off drops other timers
            How::Again(after) if self.only_retries && !after.is_zero() => false,
            _ => self.accepts(true),
        }
    }

    fn refuse_end(&mut self, how: How<'_>, value: Option<V>, reason: Refused) -> RefusedEnd<V> {
        if let How::Retry(RetryDelay::Asked(_, asking)) = how {
            self.unask(asking);
        }
        self.refused_retries += u64::from(reason == Refused::ShutDown);
        RefusedEnd { value, reason }
    }

    /// Ends the run. The only user code called here is `merge`, and the state is complete before it is
    /// called: if it panics the run has ended.
    #[inline]
    fn end_run(&mut self, slot: u32, how: How<'_>, value: Option<V>) -> Ended<K, V> {
        if let How::Retry(RetryDelay::Limited(limit) | RetryDelay::Instead(limit, _)) = how {
            self.expire_some(limit);
        }
        if let How::Again(_) | How::Retry(_) = how {
            self.fire_if_due(slot);
        }
        let now = self.now;
        let mut flags = self.arena.flags(slot);
        debug_assert!(flags & HELD != 0, "only a held key's run ends");
        let mut afresh = false;
        let mut unfinished = false;
        // a run that asked to come again without a failure is done with its payload
        let mut keeps_payload = true;
        if let Some(refusal) = self.take_refusal(slot, &how) {
            keeps_payload = refusal.is_failure();
            if flags & DIRTY == 0 && self.ledger.is_some() {
                self.list_refused(slot, refusal);
                unfinished = true;
            }
        }
        if flags & (DIRTY_RESPECTS | TIMER_RESPECTS | RESET | TIMED | GROUPED | WINDOW) != 0 {
            afresh = self.settle(slot, &how);
            flags = self.arena.flags(slot);
            if flags & WINDOW != 0 {
                self.window_at_end(slot, flags);
                flags = self.arena.flags(slot);
            }
            if flags & (DIRTY | TIMED) == TIMED {
                self.now_only_waits(flags & !HELD);
            }
        }
        self.held -= 1;
        self.runs_done += 1;
        let worked = self.times.as_mut().map(|t| t.ended(slot, now));
        let dirty = flags & DIRTY != 0;
        self.arena.set_flags(slot, flags & !OF_A_RUN);
        // the retry's priority; read now, because entering the line overwrites it
        let priority = self.line.run_priority(slot);
        if dirty {
            self.dirty -= 1;
            self.ready += 1;
            self.arena.set_flags(slot, self.arena.flags(slot) | READY);
            if let Some(times) = &mut self.times {
                times.readied(slot, now);
            }
            self.line.enter(&mut self.arena, slot, now);
        }

        let mut delay = None;
        let mut goes_back = None;
        let mut dead = None;
        let mut failed = false;
        match how {
            How::Done => self.restart_attempts(slot),
            How::Succeed | How::GiveUp | How::Again(_) => {
                self.forget_failures(slot);
                self.restart_attempts(slot);
                if let How::Again(after) = how {
                    delay = Some(after);
                }
            }
            How::Retry(retry) => {
                failed = true;
                delay = if afresh { self.no_delay(retry) } else { self.retry_delay(slot, retry) };
                let record = self.record_of(slot);
                record.retries = if dirty { 0 } else { record.retries.saturating_add(1) };
                if delay.is_none() && !dirty && (self.ledger.is_some() || self.outlived.is_some()) {
                    self.list_dropped_retry(slot, priority);
                    unfinished = true;
                }
            }
        }
        if keeps_payload && (delay.is_some() || dirty || unfinished) {
            goes_back = value;
        } else {
            dead = value;
        }
        if let Some(after) = delay {
            if !after.is_zero() {
                let from = match how {
                    How::Retry(RetryDelay::Asked(_, asking)) => asking.at,
                    _ => now,
                };
                let plan = self.plan_timer(slot, from, after, Policy::Earliest);
                let moved = self.set_timer(slot, plan, priority);
                if failed {
                    self.arena.set_flags(slot, self.arena.flags(slot) | BACKOFF);
                    if !moved {
                        // a timer that is not the outcome's own readies it
                        self.restart_attempts(slot);
                    }
                }
            } else if dirty {
                self.line.raise_to(&mut self.arena, slot, priority);
            } else {
                self.make_ready(slot, now, priority);
                self.line.enter(&mut self.arena, slot, now);
            }
        }
        self.merge_back(slot, goes_back);
        if dead.is_none() {
            dead = self.dead_value(slot);
        } else if let Some(also) = self.dead_value(slot) {
            self.discard(None, Some(also));
        }
        Ended { key: None, value: dead, worked, end: RunEnd::from(&how), delay: delay.unwrap_or_default() }
    }

    /// The delay of a retry that is a fresh start.
    fn no_delay(&mut self, retry: RetryDelay<'_>) -> Option<Duration> {
        match retry {
            RetryDelay::Limited(_) | RetryDelay::Instead(..) => Some(Duration::ZERO),
            RetryDelay::Asked(_, asking) => self.unask(asking).then_some(Duration::ZERO),
        }
    }

    fn count_failure(&mut self, slot: u32, limit: Limit<'_>) -> Duration {
        let failures = if limit.counts { self.failures(slot) } else { 0 };
        let (delay, failed) = self.ask_limit(failures, limit);
        self.record(slot, failed);
        delay
    }

    /// The delay of the failed key; `None` if a shutdown dropped the retry while its limiter was asked.
    fn retry_delay(&mut self, slot: u32, retry: RetryDelay<'_>) -> Option<Duration> {
        match retry {
            RetryDelay::Limited(limit) => Some(self.count_failure(slot, limit)),
            RetryDelay::Instead(limit, delay) => {
                self.count_failure(slot, limit);
                Some(delay)
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

impl<K, V> Default for Ended<K, V> {
    /// A result with nothing ended.
    #[inline]
    fn default() -> Self {
        Self { key: None, value: None, worked: None, end: RunEnd::Done, delay: Duration::ZERO }
    }
}
