//! The queue behind its handles: one mutex around the state machine and the list of waiters, and the rules
//! for what happens around a lock hold.
//!
//! Before a hold: hash, read the clock (once a call, and only if time matters), clone wakers, ask users'
//! limiters. In it: the state machine. After it, in this order: wake, tell the metrics, drop keys and values.
//! A [`Hold`] is one such hold; its end does what comes after, even if a panic of user code unwinds through
//! it.
//!
//! The ways to take the lock:
//!
//! | | for | reads the clock | fires timers |
//! |---|---|---|---|
//! | [`hold_to_look`](Shared::hold_to_look) | a look | if the time matters | those that are due |
//! | [`look_for_key`](Shared::look_for_key) | a look for a key | if the time matters, and no key is in line or a timer can be due | as above |
//! | [`look_at`](Shared::look_at) | a look at an instant that was read | no | as above |
//! | [`hold`](Shared::hold) | any other call, such as the end of a run | if every call needs the time | no |
//! | [`hold_to_add`](Shared::hold_to_add) | an add, which steps back for other callers | as above | no |
//! | [`lock`](Shared::lock) | steps that user code must not be able to prevent | no | no |
//! | [`with_waiters`](Shared::with_waiters) | the list of waiters alone: no work follows | no | no |

mod alarms;
mod far;
mod gauges;
mod later;
mod telling;
mod work_watcher;

use self::alarms::QueueAlarms;
use self::far::{FarAlarm, FarState, Plan};
pub(crate) use self::later::Later;
use self::later::Laters;
pub(crate) use self::work_watcher::Seen;
use crate::adders::{Adders, OnDropped};
use crate::cancel_run::CancelRun;
use crate::clock::Clock;
use crate::engine_gauges::ReadEngine;
use crate::failure::Failure;
use crate::filter::Filter;
use crate::journal::Journal;
use crate::limiter::{Keeps, RateLimiter, sealed::Token};
use crate::lock::{Caller, Held, Lock, Locked, Plain};
use crate::metrics::Metrics;
use crate::panics::{in_drop, quietly, wake_each};
use crate::sync::{Mutex, atomic};
use crate::wait::{Waiters, WakerSet, Wakes};
use atomic::Ordering::Relaxed;
use requeue_core::{Cancelled, Config, Core, Got, Handout, Instant, Limit, Stats};
use std::borrow::Borrow;
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

#[repr(C)] // the time and the front of `core`, which each call touches, stand beside the lock
pub(crate) struct State<K, V> {
    /// The time, if it was read for this lock hold.
    reading: Option<Instant>,
    pub(crate) core: Core<K, V>,
    waiters: Waiters,
    drains: WakerSet,
    pub(crate) adders: Adders,
    /// State last announced to drains: the number of releases, and until when waiting keys are waited for.
    drain_notice: (u64, Option<Instant>),
    far: FarState,
}

impl<K, V> State<K, V> {
    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.core.stats();
        stats.adders = self.adders.len();
        stats.waiters = self.waiters.waiting();
        stats
    }
}

/// Work to do when a lock hold ends. Noted in the state machine, beside the state machine's own such work, so
/// that the usual case, no work, is [one test](Core::is_quiescent).
mod pending_work {
    /// A caller may be waiting for keys or for the end, or an alarm may be set. Set by a caller that begins
    /// to wait, cleared by the end of a hold that finds no waiter.
    pub(super) const WAITERS: u8 = 1;
    /// There are metrics to tell. Never cleared.
    pub(super) const METRICS: u8 = 1 << 1;
}

/// Callback for a key that is given up by hand, or that a drain leaves unfinished.
pub(crate) type OnGiveUp<K> = dyn Fn(&K, &Failure) + Send + Sync;

/// Takes the queue's lock and calls its argument with the slot of a key, if the key is held.
pub(crate) type InHold<'a> = dyn FnMut(&mut dyn FnMut(u32)) + 'a;

/// A set of workers that can be asked which of them has a key.
pub(crate) trait Holders: Send + Sync {
    /// Numbers of workers that have not ended, and of those of them that have a key.
    fn alive_and_busy(&self) -> (usize, usize);

    /// The numbers of the workers that have the key of this slot. More than one only if the run of one was ended from
    /// outside ([`WorkQueue::done`](crate::WorkQueue::done)), and its handler has not returned.
    fn who_has(&self, slot: u32, who: &mut Vec<usize>);

    /// Tells the current runs to end.
    fn cancel_runs(&self);

    /// Tells the run of a key to end, if one of the workers has it.
    fn cancel_run(&self, in_hold: &mut InHold<'_>, how: CancelRun) -> bool;
}

#[repr(C)] // what each call reads stands together, apart from the lock
pub(crate) struct Shared<K, V> {
    state: Lock<State<K, V>>,
    pub(crate) metrics: Option<Arc<dyn Metrics>>,
    /// The engine that writes down what is known of keys.
    pub(crate) journal: Option<Arc<dyn Journal<K, V>>>,
    /// Value of [`Journal::takes_back`].
    pub(crate) takes_back: bool,
    /// Whether [time mattered](Core::time_matters) when that last changed. A hint: the truth is checked under the
    /// lock.
    time_matters: atomic::AtomicBool,
    /// Whether every call needs the time: for metrics, or because keys grow old.
    pub(crate) stamps: bool,
    pub(crate) keeps: Keeps,
    /// A run whose guard is dropped is retried.
    pub(crate) retry_dropped: bool,
    /// Keys whose further adds need no lock.
    pub(crate) filter: Filter,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limiter: Box<dyn RateLimiter<K>>,
    pub(crate) alarms: QueueAlarms,
    far: FarAlarm,
    /// Callback for keys that were dropped for room.
    pub(crate) on_dropped: Option<OnDropped<K, V>>,
    /// Whether keys have priorities.
    pub(crate) priorities: bool,
    /// Whether it has a bound.
    pub(crate) bounded: bool,
    pub(crate) name: String,
    /// Added to a run's number for its fence: the time of day when the queue was built, in nanoseconds.
    first_fence: u64,
    /// Where the figures of an engine are read.
    pub(crate) engine: OnceLock<Weak<dyn ReadEngine>>,
    /// Workers that may have keys, to ask which of them has one.
    holders: Mutex<Vec<Weak<dyn Holders>>>,
    /// Callbacks of this queue's workers.
    give_up_hooks: Mutex<Vec<Weak<OnGiveUp<K>>>>,
    /// Drops that could not have the lock.
    laters: Laters<K, V>,
    /// Number of handles that keep the queue open.
    pub(crate) handles: atomic::AtomicUsize,
}

/// The time of day, in nanoseconds.
fn since_epoch() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

impl<K, V> Shared<K, V> {
    pub(crate) fn new(
        mut core: Core<K, V>,
        clock: Arc<dyn Clock>,
        limiter: Box<dyn RateLimiter<K>>,
        metrics: Option<Arc<dyn Metrics>>,
        retry_dropped: bool,
        name: String,
    ) -> Self {
        core.note_beside(pending_work::METRICS, metrics.is_some());
        // where each look reads the clock anyway, no alarm spares it that
        let spares = clock.is_real() && core.has_timers_alone();
        Self {
            stamps: core.needs_every_reading(),
            priorities: core.has_priorities(),
            bounded: core.room().is_some(),
            keeps: limiter.keeps(Token(())),
            time_matters: atomic::AtomicBool::new(core.time_matters()),
            state: Lock::new(State {
                core,
                waiters: Waiters::new(),
                drains: WakerSet::default(),
                adders: Adders::default(),
                drain_notice: (0, None),
                far: FarState::default(),
                reading: None,
            }),
            alarms: QueueAlarms::new(),
            far: FarAlarm::new(spares),
            on_dropped: None,
            journal: None,
            takes_back: false,
            filter: Filter::new(),
            clock,
            limiter,
            metrics,
            retry_dropped,
            name,
            engine: OnceLock::new(),
            holders: Mutex::new(Vec::new()),
            give_up_hooks: Mutex::new(Vec::new()),
            laters: Laters::new(),
            handles: atomic::AtomicUsize::new(1),
            first_fence: since_epoch(),
        }
    }

    /// Takes the lock for a look, and does what is due at `reading`. Reads the clock if the caller has not
    /// and the time matters.
    #[inline(always)]
    pub(crate) fn hold_to_look(&self, reading: &mut Option<Instant>) -> Hold<'_, K, V> {
        if reading.is_some() || self.time_matters.load(Relaxed) {
            let now = *reading.get_or_insert_with(|| self.clock.now());
            let mut hold = self.lock();
            hold.reading = Some(now);
            return if hold.core.advance(now) { self.advance_more(hold, reading) } else { hold };
        }
        let hold = self.lock();
        if hold.core.is_up_to_date() { hold } else { self.advance_more(hold, reading) }
    }

    /// Like [`hold_to_look`](Self::hold_to_look), for a look for a key: it reads no clock if keys are in line and no timer can be due
    /// (`far.rs`).
    #[inline(always)]
    pub(crate) fn look_for_key(&self, reading: &mut Option<Instant>) -> Hold<'_, K, V> {
        if reading.is_none() && self.time_matters.load(Relaxed) && self.far.may_spare {
            return self.look_beside_timers(reading);
        }
        self.hold_to_look(reading)
    }

    #[inline(never)]
    fn look_beside_timers(&self, reading: &mut Option<Instant>) -> Hold<'_, K, V> {
        if self.far.spares.load(Relaxed) {
            let mut hold = self.lock();
            let State { core, far, .. } = &mut *hold;
            if far.spares_look(&self.far, core) {
                return hold;
            }
            self.far.spares.store(false, Relaxed);
            hold.unlock();
        }
        let now = *reading.get_or_insert_with(|| self.clock.now());
        let mut hold = self.hold_to_look(reading);
        let State { core, far, .. } = &mut *hold;
        match far.looked(now, core) {
            Some(plan) if self.far.begins_to_set() => self.set_far_alarm(hold, &plan, reading),
            _ => hold,
        }
    }

    /// Sets the alarm, which lets further looks go without a reading. Must not be called under the lock,
    /// because a clock is user code.
    #[cold]
    fn set_far_alarm<'a>(
        &'a self,
        hold: Hold<'a, K, V>,
        plan: &Plan,
        reading: &mut Option<Instant>,
    ) -> Hold<'a, K, V> {
        hold.unlock();
        let is_set = quietly(|| self.far.set(&*self.clock, plan.at)).is_some();
        let mut hold = self.hold_to_look(reading);
        if hold.far.note_set(&self.far, plan, is_set) {
            return hold;
        }
        hold.unlock();
        self.far.end();
        self.hold_to_look(reading)
    }

    /// Takes the lock for a call that is not a look, such as the end of a run. It fires nothing, and reads
    /// the clock, if the caller has not, only if every call needs the time.
    #[inline]
    pub(crate) fn hold(&self, reading: Option<Instant>) -> Hold<'_, K, V> {
        self.hold_by(reading, Caller::Other)
    }

    /// Like [`hold`](Self::hold), for a call that adds keys: other waiting callers mostly get the lock first
    /// (`lock/mod.rs`).
    #[inline]
    pub(crate) fn hold_to_add(&self, reading: Option<Instant>) -> Hold<'_, K, V> {
        self.hold_by(reading, Caller::Adds)
    }

    #[inline]
    fn hold_by(&self, reading: Option<Instant>, by: Caller) -> Hold<'_, K, V> {
        if reading.is_some() || self.stamps {
            return self.hold_timed(reading, by);
        }
        self.lock_by(by)
    }

    #[inline(never)]
    fn hold_timed(&self, reading: Option<Instant>, by: Caller) -> Hold<'_, K, V> {
        let now = reading.unwrap_or_else(|| self.clock.now());
        let mut hold = self.lock_by(by);
        hold.reading = Some(now);
        if hold.core.begin(now) { self.advance_more(hold, &mut Some(now)) } else { hold }
    }

    /// Slow path of [`hold_to_look`](Self::hold_to_look), with the lock held: the time was not read, or more is due than
    /// one hold handles.
    #[cold]
    fn advance_more<'a>(&'a self, mut hold: Hold<'a, K, V>, reading: &mut Option<Instant>) -> Hold<'a, K, V> {
        loop {
            let unread = reading.is_none() && hold.core.time_matters();
            hold.unlock();
            // not under the lock: a clock is users' code
            if unread {
                *reading = Some(self.clock.now());
            }
            hold = self.lock();
            hold.reading = *reading;
            let unread = reading.is_none() && hold.core.time_matters();
            if !unread && !hold.core.advance(reading.unwrap_or(Instant::ORIGIN)) {
                return hold;
            }
        }
    }

    /// Like [`hold_to_look`](Self::hold_to_look), at an instant that was already read.
    pub(crate) fn look_at(&self, now: Instant) -> Hold<'_, K, V> {
        self.hold_to_look(&mut Some(now))
    }

    /// Takes the lock without letting time pass: for steps that user code must not be able to prevent.
    #[inline]
    pub(crate) fn lock(&self) -> Hold<'_, K, V> {
        self.lock_by(Caller::Other)
    }

    #[inline]
    fn lock_by(&self, by: Caller) -> Hold<'_, K, V> {
        let mut hold = Held::new(self, by);
        hold.reading = None;
        hold
    }

    /// Ends a lock hold. Returns whether there was more to do.
    #[inline(always)]
    fn release_and_follow_up(&self, state: Plain<'_, State<K, V>>) -> bool {
        let is_more = !state.core.is_quiescent();
        if is_more {
            self.release_and_more(state);
        } else {
            state.release();
        }
        is_more
    }

    /// Ends a lock hold and does the remaining work.
    #[inline(never)]
    fn release_and_more(&self, mut state: Plain<'_, State<K, V>>) {
        if state.core.is_just_noted(pending_work::METRICS) {
            let counts = state.core.take_counts();
            state.release();
            self.tell_counts(counts);
        } else {
            // Its calls of user code catch panics one by one. A panic of our own must not unwind either: a
            // get has taken its key by now, and has not made the guard yet.
            quietly(|| self.release_and_follow_up_in_full(state));
        }
    }

    /// Takes the lock only to look after waiters: no time passes, nothing is told or dropped. `f` gets the
    /// number of keys that may be handed out, when the soonest timer is due, and whether the queue is over.
    pub(crate) fn with_waiters<R>(
        &self,
        f: impl FnOnce(&mut Waiters, usize, Option<Instant>, bool) -> R,
    ) -> R {
        let State { core, waiters, .. } = &mut *self.state.lock();
        f(waiters, core.servable(), core.next_wake(), core.is_over())
    }

    /// Wakes the waiters after a lock hold, and brings the alarms up to date. `reading` is the time, if it
    /// was read.
    #[inline]
    pub(crate) fn deliver(&self, wakes: Wakes, reading: Option<Instant>) {
        let Wakes { for_key, to_lead, more, update_alarms } = wakes;
        // a waker that panics must not keep the rest asleep, nor take the key from
        // the call that woke it
        wake_each(for_key.into_iter().chain(to_lead).chain(more));
        if update_alarms {
            // nor must a clock
            quietly(|| self.update_alarms(reading));
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// See [`WorkQueue::counted`](crate::WorkQueue::counted).
    #[cfg(all(requeue_counted, not(requeue_loom)))]
    pub(crate) fn counted(&self) -> (u64, u64) {
        (crate::sync::locks(), self.state.lock_uncounted().core.probes())
    }

    /// Calls `f` with the limiter as a function of the key's count, for a limiter
    /// that does not keep its own. The default queue has `(DefaultBackoff, Bucket)`: see `limiter/defaults.rs`.
    pub(crate) fn with_limit<R>(&self, f: impl FnOnce(Limit<'_>) -> R) -> R {
        let delay = |failures, now| self.limiter.when_counted(failures, now, Token(()));
        let (counts, expire_after) = match self.keeps {
            Keeps::Count { expire_after } => (true, expire_after),
            Keeps::Nothing | Keeps::Own => (false, None),
        };
        f(Limit { delay: &delay, counts, expire_after })
    }

    /// Whether the limiter keeps its own counts.
    pub(crate) fn keeps_own(&self) -> bool {
        self.keeps == Keeps::Own
    }

    /// Tells a limiter that keeps its own counts to forget the key.
    pub(crate) fn forget_own(&self, key: &K) {
        if self.keeps_own() {
            self.limiter.forget(key);
        }
    }

    /// Shuts the queue down. Also called when a handle is dropped.
    pub(crate) fn shut_down(&self, now: Instant) -> requeue_core::ShutDown {
        let mut hold = self.look_at(now);
        self.filter.close();
        let dropped = hold.core.shut_down();
        hold.unlock();
        self.sweep(now);
        dropped
    }

    /// Closes the queue.
    pub(crate) fn close(&self) {
        let mut hold = self.hold(None);
        self.filter.close();
        hold.core.close();
        hold.unlock();
    }

    /// Completes a shutdown's work on all timers, one batch per lock hold.
    pub(crate) fn sweep(&self, now: Instant) {
        self.look_at(now).unlock();
        // users' code may have caught the panic of a drop
        self.make_up_for_drops();
    }

    /// Ends a lock hold and does the work that follows it.
    #[inline(never)]
    fn release_and_follow_up_in_full(&self, mut state: Plain<'_, State<K, V>>) {
        let State { core, waiters, drains, adders, drain_notice, reading, far } = &mut *state;
        let reading = *reading;
        core.conclude();
        // usually none
        let somebody = waiters.waiting() > 0 || !drains.is_empty() || !adders.is_empty();
        let wakes = somebody.then(|| {
            let mut wakes = waiters.wakes(core.servable(), core.next_wake(), core.is_over());
            if !drains.is_empty() {
                let now = (core.releases(), core.waiting_until());
                if core.is_drained() || now != *drain_notice {
                    *drain_notice = now;
                    drains.take_all(&mut wakes.more);
                }
            }
            if !adders.is_empty() {
                // a call that does not find the queue open is refused
                let room = if core.shutting_down() { None } else { core.room_to_make() };
                adders.wake(room.unwrap_or(usize::MAX), &mut wakes.more);
                core.take_entered().into_iter().for_each(|hash| adders.wake_known(hash, &mut wakes.more));
            }
            wakes
        });
        if adders.is_empty() {
            core.note_entered(false);
        }
        let ends_far = set(&self.time_matters, core.take_time_matters()) && self.far.may_spare;
        if ends_far {
            far.note_end();
        }
        let told = self.metrics.is_some().then(|| (core.take_counts(), core.take_late()));
        if waiters.waiting() == 0 && !waiters.alarm_is_idle() && drains.is_empty() && adders.is_empty() {
            core.note_beside(pending_work::WAITERS, false);
        }
        let (trash, answers) = (core.take_trash(), core.take_answers());
        let forgotten = core.take_forgotten();
        let dropped = core.take_dropped();
        // no alarm outlives the queue, nor the last timer if no caller waits
        let idle =
            waiters.has_alarms() && (core.is_over() || waiters.alarm_is_idle() && core.next_wake().is_none());
        state.release();
        if ends_far {
            self.far.end();
        }
        if let Some(mut wakes) = wakes {
            wakes.update_alarms |= idle;
            self.deliver(wakes, reading);
        } else if idle {
            quietly(|| self.update_alarms(None));
        }
        if let Some((counts, late)) = told {
            self.tell_counts(counts);
            self.tell_late(&late);
        }
        if let Some(keys) = forgotten {
            self.forget_all(keys);
        }
        if !dropped.is_empty() {
            self.tell_of_dropped(dropped);
        }
        for (awaiter, how) in answers {
            quietly(|| awaiter.ended(how));
        }
        // keys that were dropped by the queue: this caller is not responsible for a panic of their drop, and
        // it must not lose the key that was handed out
        for (key, value) in trash {
            quietly(|| drop(key));
            quietly(|| drop(value));
        }
    }

    /// Tells a limiter that keeps its own counts which keys were reset.
    fn forget_all(&self, keys: Vec<K>) {
        for key in keys {
            quietly(|| self.limiter.forget(&key));
            quietly(|| drop(key));
        }
    }
}

debug!([K, V] Shared<K, V>, |shared| { name: shared.name, .. });

impl<K, V> Drop for Shared<K, V> {
    fn drop(&mut self) {
        let core = std::mem::replace(&mut self.state.get_mut().core, Core::new(Config::default()));
        in_drop(|| drop(core));
    }
}

/// One lock hold. [`unlock`](Self::unlock) ends it and does the work that follows it.
pub(crate) type Hold<'a, K, V> = Held<'a, Shared<K, V>>;

impl<K, V> Locked for Shared<K, V> {
    type Value = State<K, V>;

    #[inline]
    fn the_lock(&self) -> &Lock<State<K, V>> {
        &self.state
    }

    /// Ends a hold that was not unlocked because a panic of user code unwinds through it. The state is repaired
    /// in this hold, so that no other hold sees it broken.
    #[cold]
    fn end(held: Plain<'_, State<K, V>>, shared: &Self) {
        shared.release_and_follow_up(held);
        shared.make_up_for_drops();
    }
}

impl<'a, K, V> Hold<'a, K, V> {
    /// Takes the next key. Keys cease to be pending only through this, [`get_up_to`](Self::get_up_to) and
    /// [`cancel`](Self::cancel).
    #[inline(always)]
    pub(crate) fn get(&mut self) -> Got<K, V> {
        let shared = self.owner();
        loop {
            match self.core.get_and(|key, hash| shared.filter.withdraw(key, hash)) {
                // by reference to the key: a handout that is passed on goes through memory, in each queue
                Got::Item(handout) if shared.takes_back && !shared.may_begin(handout.run.key()) => {
                    self.forget_handout(handout);
                }
                got => return got,
            }
        }
    }

    /// Forgets a key whose run may not begin.
    #[cold]
    fn forget_handout(&mut self, handout: Handout<K, V>) {
        let shared = self.owner();
        shared.tell_journal(|journal| journal.refused(handout.run.key()));
        self.core.take_back_handout(handout, |key, hash| shared.filter.withdraw(key, hash));
    }

    /// Takes the next keys, at most `most`. Returns how many.
    #[inline]
    pub(crate) fn get_up_to(&mut self, most: usize, each: impl FnMut(Handout<K, V>)) -> usize {
        if self.owner().takes_back {
            let next = || match self.get() {
                Got::Item(handout) => Some(handout),
                Got::Empty | Got::ShutDown => None,
            };
            return std::iter::from_fn(next).take(most).map(each).count();
        }
        let filter = &self.owner().filter;
        self.core.get_up_to(most, |key, hash| filter.withdraw(key, hash), each)
    }

    /// Cancels what asks for a run of the key; see [`Core::cancel`].
    pub(crate) fn cancel<Q>(&mut self, key: &Q, hash: u32) -> (Option<Cancelled<V>>, Option<K>)
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let filter = &self.owner().filter;
        self.core.cancel(key, hash, |key, hash| filter.withdraw(key, hash))
    }

    /// Ends the hold, and does the work that follows it.
    #[inline(always)]
    pub(crate) fn unlock(self) {
        self.owner().release_and_follow_up(self.into_plain());
    }

    /// Like [`unlock`](Self::unlock), and tells the metrics. With metrics, each hold has [more to
    /// do](pending_work::METRICS) at its end; without, nothing is checked, which saves 3 instructions for each
    /// thing that may be told.
    #[inline(always)]
    pub(crate) fn unlock_telling(self, tell: impl FnOnce(&Shared<K, V>)) {
        let shared = self.owner();
        if shared.release_and_follow_up(self.into_plain()) {
            tell(shared);
        }
    }

    /// Ends a hold in which a waiter has left. Returns `true` if an alarm is set that no caller waits for any
    /// more: [`update_alarms`](Shared::update_alarms) then removes it.
    #[must_use = "an alarm without a waiter must be cancelled"]
    pub(crate) fn unlock_after_leaving(mut self) -> bool {
        let idle = self.waiters().has_idle_alarms();
        self.unlock();
        idle
    }

    /// Runs one call in this hold, and ends the hold.
    #[inline]
    pub(crate) fn with<R>(mut self, call: impl FnOnce(&mut State<K, V>) -> R) -> R {
        let answer = call(&mut self);
        self.unlock();
        answer
    }

    /// Waiters for keys. When the hold ends, those to be woken are found.
    pub(crate) fn waiters(&mut self) -> &mut Waiters {
        self.core.note_beside(pending_work::WAITERS, true);
        &mut self.waiters
    }

    /// Waiters for the end of the queue. When the hold ends, they are woken if it has come.
    pub(crate) fn drains(&mut self) -> &mut WakerSet {
        self.core.note_beside(pending_work::WAITERS, true);
        if self.drains.is_empty() {
            // a new waiter has just looked: only later changes are news
            self.drain_notice = (self.core.releases(), self.core.waiting_until());
        }
        &mut self.drains
    }

    /// Waiters for room. When the hold ends, those that now fit, or whose key is now known, are woken.
    pub(crate) fn adders(&mut self) -> &mut Adders {
        self.core.note_beside(pending_work::WAITERS, true);
        self.core.note_entered(true);
        &mut self.adders
    }
}

/// Sets a hint, and returns whether it is cleared by that. Reads it first: mostly it is set already, and all threads share its
/// cache line.
#[inline]
fn set(hint: &atomic::AtomicBool, to: bool) -> bool {
    let changes = hint.load(Relaxed) != to;
    if changes {
        hint.store(to, Relaxed);
    }
    changes && !to
}
