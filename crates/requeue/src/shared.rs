//! The queue behind its handles: one mutex around the state machine and the
//! list of those who wait, and the discipline of what happens around a lock hold.
//!
//! Before a hold: hash, read the clock (once a call, and only where time
//! matters), clone wakers, ask users' limiters. In it: the state machine. After
//! it, in this order: wake, tell the metrics, drop keys and values. A
//! [`Session`] is one such hold; its `Drop` does what comes after, so that no
//! early return and no panic of users' code can skip it.

use crate::bell::Bell;
use crate::clock::{Clock, Parker, quietly};
use crate::drain::DrainOptions;
use crate::filter::{Filter, Open};
use crate::item::{Item, Owner};
use crate::limiter::{Keeps, RateLimiter, sealed::Token};
use crate::lock::Lock;
use crate::metrics::{Gauges, Metrics, ReadGauges, ReadWorkers};
use crate::sync::{MutexGuard, atomic};
use crate::wait::{Waiters, WakerSet, Wakes};
use crate::{AddError, AddResult, Instant};
use atomic::Ordering::Relaxed;
use requeue_core::{
    Accepted, Added, Asking, Config, Core, Counts, Delay, DrainBase, Got, Handout, Limit, Policy, Refused,
    RunEnd, RunRef, Trigger,
};
use std::borrow::Borrow;
use std::cell::OnceCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

/// What a guard that is dropped without a word does. (Items that are still in a batch when
/// a panic unwinds through it are put back whatever this says: see [`Items`](crate::Items).)
///
/// ```
/// # use requeue::{Unfinished, WorkQueue};
/// let q = WorkQueue::builder().unfinished(Unfinished::Retry).build()?;
/// q.add("a")?;
/// drop(q.try_get()?);
/// assert_eq!(q.stats().waiting, 1, "it comes back");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unfinished {
    /// It is [`done`](crate::Item::done).
    #[default]
    Done,
    /// It is [`retry`](crate::Item::retry): the limiter is asked, and the value goes back.
    /// Where the queue takes no retries any more it is done, and counted as a refused retry.
    /// This is for guards that are held across an `.await` in tasks that may be cancelled:
    /// without it their drop says done of work that was not finished.
    Retry,
}

pub(crate) struct State<K, V> {
    pub(crate) core: Core<K, V>,
    pub(crate) waiters: Waiters,
    pub(crate) drains: WakerSet,
    /// What the drains have been told of: how many releases, and until when
    /// waiting keys are waited for.
    pub(crate) told: (u64, Option<Instant>),
    /// The time, if it was read for this lock hold.
    reading: Option<Instant>,
    /// The last lock hold found the state machine quiescent and nobody waiting,
    /// and left it so. What the plain calls do keeps it so, and therefore they end
    /// without a look around, but for what metrics are told; every other hold takes
    /// this away and looks as it ends.
    calm: bool,
}

/// Whether a call is a look, before which whatever is due fires: see the contract.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// It takes a key, or tells of the queue.
    Look,
    /// It adds, or ends a run.
    Other,
}

pub(crate) struct Shared<K, V> {
    state: Lock<State<K, V>>,
    pub(crate) bell: Bell,
    /// Keys whose further adds need no lock.
    pub(crate) filter: Filter<K>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limiter: Box<dyn RateLimiter<K>>,
    pub(crate) keeps: Keeps,
    pub(crate) metrics: Option<Arc<dyn Metrics>>,
    pub(crate) unfinished: Unfinished,
    pub(crate) name: String,
    /// Handles that keep the queue open.
    pub(crate) handles: atomic::AtomicUsize,
    /// Whether the last lock hold left something to which the time matters. A
    /// hint: the truth is looked at under the lock.
    timed: atomic::AtomicBool,
    /// The same of a state that is not calm. Always, if there are metrics.
    troubled: atomic::AtomicBool,
}

impl<K, V> Shared<K, V> {
    pub(crate) fn new(
        core: Core<K, V>,
        clock: Arc<dyn Clock>,
        limiter: Box<dyn RateLimiter<K>>,
        metrics: Option<Arc<dyn Metrics>>,
        unfinished: Unfinished,
        name: String,
    ) -> Self {
        Self {
            keeps: limiter.keeps(Token(())),
            timed: atomic::AtomicBool::new(core.is_timed()),
            troubled: atomic::AtomicBool::new(true),
            state: Lock::new(State {
                core,
                waiters: Waiters::new(),
                drains: WakerSet::default(),
                told: (0, None),
                reading: None,
                calm: false,
            }),
            bell: Bell::new(),
            filter: Filter::new(),
            clock,
            limiter,
            metrics,
            unfinished,
            name,
            handles: atomic::AtomicUsize::new(1),
        }
    }

    /// Takes the lock for a look: with whatever is due at `reading` done. The clock is
    /// read if it was not and the time matters.
    #[inline]
    pub(crate) fn enter(&self, reading: &mut Option<Instant>) -> Session<'_, K, V> {
        if reading.is_none() && self.timed.load(Relaxed) {
            *reading = Some(self.clock.now());
        }
        self.settle(self.lock(), reading)
    }

    /// Takes the lock for a call that is no look, an add or the end of a run: it fires
    /// nothing, and reads the clock only if the metrics want the time.
    #[inline]
    pub(crate) fn hold(&self, reading: &mut Option<Instant>) -> Session<'_, K, V> {
        if reading.is_none() && self.metrics.is_some() {
            *reading = Some(self.clock.now());
        }
        self.begin(self.lock(), reading)
    }

    /// [`hold`](Self::hold) at an instant that was read already.
    pub(crate) fn hold_at(&self, now: Instant) -> Session<'_, K, V> {
        self.hold(&mut Some(now))
    }

    #[inline]
    fn begin<'a>(
        &'a self,
        mut session: Session<'a, K, V>,
        reading: &mut Option<Instant>,
    ) -> Session<'a, K, V> {
        session.reading = *reading;
        if session.core.begin(*reading) { self.settle(session, reading) } else { session }
    }

    /// Fast path of a call that does not wait: runs `op` under the lock when nobody
    /// waits and the state machine is quiescent. `op` does what the call mostly comes to,
    /// with one key, or says that it is not that, and has then done nothing.
    ///
    /// # Errors
    ///
    /// The lock as [`enter`](Self::enter) or [`hold`](Self::hold) take it, for the full
    /// path, if `op` has not done it.
    ///
    /// `METERED`: the queue has metrics. To such a one the time always matters, and
    /// they are told. Whoever calls both forms does so in functions of their own: in
    /// one, what the metrics need would cost all other queues registers. (A queue
    /// that has metrics may be called as if it had none, which is slower.)
    #[inline]
    pub(crate) fn plainly<const METERED: bool, R>(
        &self,
        call: Call,
        reading: &mut Option<Instant>,
        op: impl FnOnce(&mut Core<K, V>) -> Option<R>,
    ) -> Result<R, Session<'_, K, V>> {
        if METERED || call == Call::Look && self.timed.load(Relaxed) {
            reading.get_or_insert_with(|| self.clock.now());
        }
        if !METERED && self.troubled.load(Relaxed) {
            return Err(match call {
                Call::Look => self.enter(reading),
                Call::Other => self.hold(reading),
            });
        }
        let mut state = self.state.lock();
        if let Some(now) = *reading {
            state.core.pass(now);
        }
        let nothing_due = match (call, *reading) {
            (Call::Other, _) => true,
            (Call::Look, Some(_)) => !state.core.is_due(),
            // a timer may have been set since the hint was read
            (Call::Look, None) => !state.core.has_timers(),
        };
        if state.calm && nothing_due {
            if METERED {
                state.core.last_times();
            }
            if let Some(done) = op(&mut state.core) {
                if METERED {
                    let (waited, worked) = state.core.last_times();
                    self.unlock_and_tell(state);
                    self.tell_waited(waited);
                    // what ends otherwise does not end plainly
                    self.tell_worked(worked, RunEnd::Done);
                }
                return Ok(done);
            }
        }
        let session = self.session(state);
        Err(match call {
            Call::Look => self.settle(session, reading),
            Call::Other => self.begin(session, reading),
        })
    }

    /// Ends a lock hold that left the state calm, in a queue that has metrics.
    #[inline]
    fn unlock_and_tell(&self, mut state: MutexGuard<'_, State<K, V>>) {
        let counts = state.core.take_counts();
        drop(state);
        self.tell_counts(counts);
    }

    /// The same of a hold that fired the last timers.
    #[cold]
    fn unlock_and_tell_late(&self, mut state: MutexGuard<'_, State<K, V>>) {
        let late = state.core.take_late();
        self.unlock_and_tell(state);
        self.tell_late(&late);
    }

    /// The next key, on the [fast path](Self::plainly) of a get.
    #[inline]
    pub(crate) fn get_plainly(&self, core: &mut Core<K, V>) -> Option<Handout<K, V>> {
        core.get_plainly(|key, hash| self.filter.withdraw(key, hash))
    }

    #[inline]
    fn settle<'a>(
        &'a self,
        mut session: Session<'a, K, V>,
        reading: &mut Option<Instant>,
    ) -> Session<'a, K, V> {
        let more = match *reading {
            None => session.core.is_timed() || session.core.settle(Instant::ORIGIN),
            Some(now) => {
                session.reading = *reading;
                session.core.settle(now)
            }
        };
        if more { self.settle_more(session, reading) } else { session }
    }

    /// The lock was taken and something stands in the way: time that was not
    /// read, or more that is due than one hold does.
    #[cold]
    fn settle_more<'a>(
        &'a self,
        mut session: Session<'a, K, V>,
        reading: &mut Option<Instant>,
    ) -> Session<'a, K, V> {
        loop {
            let unread = reading.is_none() && session.core.is_timed();
            drop(session);
            // not under the lock: a clock is users' code
            if unread {
                *reading = Some(self.clock.now());
            }
            session = self.lock();
            session.reading = *reading;
            let unread = reading.is_none() && session.core.is_timed();
            if !unread && !session.core.settle(reading.unwrap_or(Instant::ORIGIN)) {
                return session;
            }
        }
    }

    /// [`enter`](Self::enter) at an instant that was read already.
    pub(crate) fn enter_at(&self, now: Instant) -> Session<'_, K, V> {
        self.enter(&mut Some(now))
    }

    /// A lock hold that lets no time pass: for what users' code must not be able
    /// to prevent.
    #[inline]
    pub(crate) fn lock(&self) -> Session<'_, K, V> {
        self.session(self.state.lock())
    }

    #[inline]
    fn session<'a>(&'a self, mut state: MutexGuard<'a, State<K, V>>) -> Session<'a, K, V> {
        state.calm = false;
        state.reading = None;
        Session { shared: self, state: Some(state) }
    }

    /// A lock hold that concerns nobody but those who wait: no time passes, nothing is
    /// told or dropped. `f` gets the number of ready keys, when the soonest timer is
    /// due, and whether the queue is over.
    pub(crate) fn with_waiters<R>(
        &self,
        f: impl FnOnce(&mut Waiters, usize, Option<Instant>, bool) -> R,
    ) -> R {
        let State { core, waiters, .. } = &mut *self.state.lock();
        f(waiters, core.len(), core.next_wake(), core.is_over())
    }

    /// After a lock hold: wakes everybody and brings the alarms up to date. `reading`
    /// is the time, if it was read.
    #[inline]
    pub(crate) fn deliver(&self, wakes: Wakes, reading: Option<Instant>) {
        let Wakes { for_key, to_lead, more, tend } = wakes;
        // a waker that panics must not keep the rest asleep, nor take the key from
        // the call that woke it
        wake_each(for_key.into_iter().chain(to_lead).chain(more));
        if tend {
            // nor must a clock
            quietly(|| self.tend(reading));
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

    /// Blocks the calling thread, after a step that said so.
    pub(crate) fn sleep(&self, until: Option<Instant>, parker: &OnceCell<Parker>) {
        let parker = parker.get_or_init(Parker::current);
        match until {
            Some(at) => self.clock.park_until(at, parker),
            None => parker.park(),
        }
    }

    /// Calls `f` with the limiter as a function of the key's count, for a limiter
    /// that does not keep its own.
    pub(crate) fn with_limit<R>(&self, f: impl FnOnce(Limit<'_>) -> R) -> R {
        let delay = |failures, now| self.limiter.when_counted(failures, now, Token(()));
        let (counts, expire_after) = match self.keeps {
            Keeps::Count { expire_after } => (true, expire_after),
            Keeps::Nothing | Keeps::Own => (false, None),
        };
        f(Limit { delay: &delay, counts, expire_after })
    }

    /// Asks a limiter that keeps its own counts, without the lock. A shutdown
    /// may overtake it, and it may panic: the state machine is told before and
    /// after.
    pub(crate) fn ask(
        &self,
        key: &K,
        now: Instant,
        run: Option<&RunRef<K>>,
    ) -> Result<(Duration, Asking), Refused> {
        let asking = self.hold_at(now).core.ask(run)?;
        let unasked = Unask { shared: self, asking, left: 1 };
        let delay = self.limiter.when(key, now);
        std::mem::forget(unasked);
        Ok((delay, asking))
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

    /// Whether adding the key changes nothing, as far as can be told without the
    /// lock: see `filter/mod.rs`.
    #[inline]
    fn is_redundant<Q>(&self, open: Open, key: &Q, hash: u32) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        // also where users' `Eq` panics
        let _look = LooksAtLimbo(self);
        self.filter.finds(open, key, hash)
    }

    /// An immediate trigger from outside without a payload.
    #[inline]
    pub(crate) fn add_now(&self, key: K, hash: u32) -> AddResult<K, V>
    where
        K: Eq,
    {
        match self.filter.open() {
            None => self.add_now_in_lock(key, hash),
            Some(open) if self.metrics.is_some() => self.add_through_filter::<true>(open, key, hash),
            Some(open) => self.add_through_filter::<false>(open, key, hash),
        }
    }

    /// Apart, and what it does not mostly do apart from this, so that what needs
    /// few registers saves few; and the key goes by value, for one that has an address
    /// makes a redundant add 102 instructions instead of 80. `METERED` as in
    /// [`plainly`](Self::plainly).
    #[inline(never)]
    fn add_through_filter<const METERED: bool>(&self, open: Open, key: K, hash: u32) -> AddResult<K, V>
    where
        K: Eq,
    {
        // an `Eq` that panics unwinds through here
        let mut key = DropsQuietly(Some(key));
        let Some(look_for) = &key.0 else { unreachable!("it was put there") };
        if self.is_redundant(open, look_for, hash) {
            if METERED {
                self.tell_redundant();
            }
            return Ok(Added::Coalesced);
        }
        match key.0.take() {
            Some(key) => self.add_beside_filter(key, hash),
            None => unreachable!("it was put there"),
        }
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

    #[inline]
    fn add_now_in_lock(&self, key: K, hash: u32) -> AddResult<K, V>
    where
        K: Eq,
    {
        if self.metrics.is_some() { self.add_metered(key, hash) } else { self.add_as::<false>(key, hash) }
    }

    #[inline(never)]
    fn add_metered(&self, key: K, hash: u32) -> AddResult<K, V>
    where
        K: Eq,
    {
        self.add_as::<true>(key, hash)
    }

    #[inline]
    fn add_as<const METERED: bool>(&self, key: K, hash: u32) -> AddResult<K, V>
    where
        K: Eq,
    {
        // declared before the lock is taken, so that what is left of it is dropped
        // after it is released, also where users' code panics
        let mut key = DropsQuietly(Some(key));
        let plain = self.plainly::<METERED, _>(Call::Other, &mut None, |core| {
            // the next redundant ones of its key need no lock
            core.add_plainly(&mut key.0, hash, |core, ticket| self.filter.publish(core, ticket))
        });
        match plain {
            Ok(added) => Ok(added),
            Err(session) => self
                .add_in(DropsQuietly(Some(Trigger::of(key.0.take(), None))), session, hash, Delay::Now)
                .map(|accepted| accepted.added),
        }
    }

    /// A trigger from outside. `reading` is the time that its delay counts from.
    #[inline]
    pub(crate) fn add(
        &self,
        key: K,
        hash: u32,
        value: Option<V>,
        delay: Delay<'_>,
        reading: Option<Instant>,
    ) -> AddResult<K, V>
    where
        K: Eq,
    {
        self.add_at(key, hash, value, delay, reading).map(|accepted| accepted.added)
    }

    /// [`add`](Self::add), telling the delay too.
    #[inline]
    fn add_at(
        &self,
        key: K,
        hash: u32,
        value: Option<V>,
        delay: Delay<'_>,
        mut reading: Option<Instant>,
    ) -> Result<Accepted, AddError<K, V>>
    where
        K: Eq,
    {
        // as in `add_now`
        let trigger = DropsQuietly(Some(Trigger::new(key, value)));
        let session = self.hold(&mut reading);
        self.add_in(trigger, session, hash, delay)
    }

    fn add_in(
        &self,
        trigger: DropsQuietly<Trigger<K, V>>,
        session: Session<'_, K, V>,
        hash: u32,
        delay: Delay<'_>,
    ) -> Result<Accepted, AddError<K, V>>
    where
        K: Eq,
    {
        // in this order, so that the lock is released first
        let (mut trigger, mut session) = (trigger, session);
        let mut plain = matches!(delay, Delay::Now);
        let accepted = match &mut trigger.0 {
            Some(trigger) => {
                plain &= trigger.plain().is_some();
                session.core.add(trigger, hash, delay)
            }
            None => unreachable!("it was put there"),
        };
        session.end_of_add(accepted.as_ref().ok().filter(|_| plain));
        match (accepted, trigger.0.take().map(Trigger::into_parts).unwrap_or_default()) {
            (Ok(accepted), _spare) => {
                if !matches!(delay, Delay::Now) {
                    self.tell(Metrics::retried);
                }
                Ok(accepted)
            }
            (Err(reason), (Some(key), value)) => Err(AddError { key, value, reason }),
            (Err(_), (None, _)) => unreachable!("a refused trigger keeps its key"),
        }
    }

    /// [`add`](Self::add) by reference: `None` if the key is not known.
    #[inline]
    pub(crate) fn add_known<Q>(
        &self,
        key: &Q,
        hash: u32,
        reading: &mut Option<Instant>,
    ) -> Result<Option<Added>, Refused>
    where
        K: Eq + Borrow<Q>,
        Q: Eq + ?Sized,
    {
        if let Some(open) = self.filter.open() {
            if self.is_redundant(open, key, hash) {
                self.tell_redundant();
                return Ok(Some(Added::Coalesced));
            }
            self.filter.grow_if_too_small();
        }
        self.add_known_in_lock(key, hash, reading)
    }

    #[inline(never)]
    fn add_known_in_lock<Q>(
        &self,
        key: &Q,
        hash: u32,
        reading: &mut Option<Instant>,
    ) -> Result<Option<Added>, Refused>
    where
        K: Eq + Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let mut session = self.hold(reading);
        let known = session.core.add_known(key, hash, Delay::Now)?;
        session.end_of_add(known.as_ref());
        Ok(known.map(|accepted| accepted.added))
    }

    /// add_rate_limited.
    pub(crate) fn add_limited(
        &self,
        key: K,
        hash: u32,
        value: Option<V>,
        policy: Policy,
    ) -> Result<Accepted, AddError<K, V>>
    where
        K: Eq,
    {
        let now = self.now();
        if !self.keeps_own() {
            return self
                .with_limit(|limit| self.add_at(key, hash, value, Delay::Limited(limit, policy), Some(now)));
        }
        match self.ask(&key, now, None) {
            Ok((delay, asking)) => {
                self.add_at(key, hash, value, Delay::Asked(delay, policy, asking), Some(now))
            }
            Err(reason) => Err(AddError { key, value, reason }),
        }
    }

    /// What `shut_down` does; once more where a handle is dropped.
    pub(crate) fn shut_down(&self, now: Instant) -> requeue_core::ShutDown {
        let mut session = self.enter_at(now);
        self.filter.close();
        let dropped = session.core.shut_down();
        drop(session);
        self.finish_sweep(now);
        dropped
    }

    /// What `close` does.
    pub(crate) fn close(&self) {
        let mut session = self.hold(&mut None);
        self.filter.close();
        session.core.close();
    }

    /// Begins a drain; returns where the counts stood, and its deadline.
    pub(crate) fn begin_drain(&self, options: DrainOptions, now: Instant) -> (DrainBase, Instant) {
        let deadline = options.limit.map_or(Instant::NEVER, |mut limit| limit.at(Some(now)));
        let mut session = self.enter_at(now);
        self.filter.close();
        let base = session.core.begin_drain(options.waiting, deadline);
        drop(session);
        self.finish_sweep(now);
        (base, deadline)
    }

    /// Does what a shutdown left to be done to all timers, a batch a lock hold.
    pub(crate) fn finish_sweep(&self, now: Instant) {
        drop(self.enter_at(now));
    }

    /// Ends a lock hold, and does what follows from it.
    #[inline(never)]
    fn unlock_and_follow_up(&self, mut state: MutexGuard<'_, State<K, V>>) {
        let State { core, waiters, drains, told, reading, calm: _ } = &mut *state;
        let reading = *reading;
        core.conclude();
        // mostly nobody
        let somebody = waiters.waiting() > 0 || !drains.is_empty();
        let wakes = somebody.then(|| {
            let mut wakes = Wakes::default();
            waiters.wakes(core.len(), core.next_wake(), core.is_over(), &mut wakes);
            if !drains.is_empty() {
                let now = (core.releases(), core.waiting_until());
                if core.is_drained() || now != *told {
                    *told = now;
                    drains.take_all(&mut wakes.more);
                }
            }
            wakes
        });
        set(&self.timed, core.is_timed());
        set(&self.troubled, true);
        let told = self.metrics.is_some().then(|| (core.take_counts(), core.take_late()));
        if core.has_limbo() {
            self.filter.retry_limbo(core);
        }
        let trash = core.take_trash();
        // no alarm outlives the queue, nor the last timer if nobody waits
        let idle =
            waiters.has_alarms() && (core.is_over() || waiters.alarm_is_idle() && core.next_wake().is_none());
        drop(state);
        if let Some(mut wakes) = wakes {
            wakes.tend |= idle;
            self.deliver(wakes, reading);
        } else if idle {
            self.tend(None);
        }
        if let Some((counts, late)) = told {
            self.tell_counts(counts);
            self.tell_late(&late);
        }
        // keys that went by themselves: whoever happened to call has nothing to do
        // with a panic of their drop, nor must it take the key that was handed out
        for (key, value) in trash {
            quietly(|| drop(key));
            quietly(|| drop(value));
        }
    }

    #[inline]
    fn tell_counts(&self, counts: Counts) {
        if counts.adds > 0 {
            self.tell(|m| m.added(counts.adds));
        }
        if counts.coalesced > 0 {
            self.tell(|m| m.coalesced(counts.coalesced));
        }
    }

    /// Tells the metrics of an add that took no lock.
    #[inline]
    fn tell_redundant(&self) {
        self.tell(|m| m.coalesced(1));
    }

    /// Tells the metrics of timers that fired.
    fn tell_late(&self, late: &[Duration]) {
        for late in late {
            self.tell(|m| m.timer_fired(*late));
        }
    }

    /// Tells the metrics of a key that was handed out.
    #[inline]
    fn tell_waited(&self, waited: Option<Duration>) {
        if let Some(waited) = waited {
            self.tell(|m| m.handed_out(waited));
        }
    }

    /// Tells the metrics of a run that ended.
    #[inline]
    pub(crate) fn tell_worked(&self, worked: Option<Duration>, end: RunEnd) {
        if let Some(took) = worked {
            self.tell(|m| m.run_ended(took, end));
        }
    }

    /// Tells the metrics where to read how many workers there are.
    pub(crate) fn tell_of_workers<W: ReadWorkers + 'static>(&self, workers: &Arc<W>) {
        let workers: Weak<W> = Arc::downgrade(workers);
        self.tell(|m| m.attach_workers(workers));
    }

    /// Tells the metrics something. A sink that panics loses a number, not a key.
    #[inline]
    pub(crate) fn tell(&self, what: impl FnOnce(&dyn Metrics)) {
        if let Some(metrics) = &self.metrics {
            quietly(|| what(&**metrics));
        }
    }
}

impl<K: Send + Sync, V: Send> ReadGauges for Shared<K, V> {
    fn gauges(&self) -> Gauges {
        self.enter_at(self.now()).core.gauges()
    }
}

impl<K, V> fmt::Debug for Shared<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Has those who read a key without the lock, when they have done so, look
/// whether one was kept for them that is to be dropped.
struct LooksAtLimbo<'a, K, V>(&'a Shared<K, V>);

impl<K, V> Drop for LooksAtLimbo<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        if self.0.filter.owes_a_look() {
            let mut session = self.0.lock();
            self.0.filter.retry_limbo(&mut session.core);
        }
    }
}

/// Takes askings back whose triggers do not come: the limiter panicked.
pub(crate) struct Unask<'a, K, V> {
    pub(crate) shared: &'a Shared<K, V>,
    pub(crate) asking: Asking,
    /// How many.
    pub(crate) left: usize,
}

impl<K, V> Drop for Unask<'_, K, V> {
    fn drop(&mut self) {
        if self.left > 0 {
            // without letting time pass: that is not ours to do while unwinding
            let mut session = self.shared.lock();
            for _ in 0..self.left {
                session.core.unask(self.asking);
            }
        }
    }
}

/// Something of users' whose drop during unwinding must not panic again.
struct DropsQuietly<T>(Option<T>);

impl<T> Drop for DropsQuietly<T> {
    fn drop(&mut self) {
        if self.0.is_some() {
            in_drop(|| drop(self.0.take()));
        }
    }
}

impl<K, V> Drop for Shared<K, V> {
    fn drop(&mut self) {
        let core = std::mem::replace(&mut self.state.get_mut().core, Core::new(Config::default()));
        in_drop(|| drop(core));
    }
}

/// One lock hold; what follows from it happens when it is dropped.
pub(crate) struct Session<'a, K, V> {
    shared: &'a Shared<K, V>,
    /// `None` only while it is being dropped.
    state: Option<MutexGuard<'a, State<K, V>>>,
}

impl<K, V> Session<'_, K, V> {
    /// Takes the next key. With [`get_up_to`](Self::get_up_to) and
    /// [`Shared::get_plainly`] the door through which keys leave the state machine:
    /// nobody else asks it for keys.
    #[inline]
    pub(crate) fn get(&mut self) -> Got<K, V> {
        let filter = &self.shared.filter;
        self.core.get_and(|key, hash| filter.withdraw(key, hash))
    }

    /// Takes the next keys, `most` or as many as there are; returns how many.
    #[inline]
    pub(crate) fn get_up_to(&mut self, most: usize, each: impl FnMut(Handout<K, V>)) -> usize {
        let filter = &self.shared.filter;
        self.core.get_up_to(most, |key, hash| filter.withdraw(key, hash), each)
    }

    /// Ends the hold of a trigger without delay and payload. If it was redundant
    /// the next ones of its key may be told without the lock.
    #[inline]
    fn end_of_add(mut self, accepted: Option<&Accepted>) {
        if let Some(Accepted { added: Added::Coalesced, ticket, .. }) = accepted {
            self.shared.filter.publish(&mut self.core, *ticket);
        }
    }

    /// Ends the hold with a key that was handed out. Its guard is made first: a
    /// panic of what follows the hold (the drop of another key, or of the waker
    /// that the getter waited with) must not leave the key held for ever.
    #[inline]
    pub(crate) fn hand_out<'q>(
        self,
        owner: Owner<'q, K, V>,
        handout: Handout<K, V>,
        waker: Option<Waker>,
    ) -> Item<'q, K, V> {
        let shared = self.shared;
        let waited = handout.waited;
        let item = Item::new(owner, handout);
        drop(self);
        drop(waker);
        shared.tell_waited(waited);
        item
    }
}

impl<K, V> Deref for Session<'_, K, V> {
    type Target = State<K, V>;
    #[inline]
    fn deref(&self) -> &State<K, V> {
        self.state.as_deref().expect("the lock is held until the session is dropped")
    }
}

impl<K, V> DerefMut for Session<'_, K, V> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State<K, V> {
        self.state.as_deref_mut().expect("the lock is held until the session is dropped")
    }
}

impl<K, V> Drop for Session<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        state.calm = state.core.is_quiescent()
            && state.waiters.waiting() == 0
            && !state.waiters.alarm_is_idle()
            && state.drains.is_empty();
        if state.calm {
            if self.shared.metrics.is_some() {
                if state.core.has_late() {
                    self.shared.unlock_and_tell_late(state);
                } else {
                    self.shared.unlock_and_tell(state);
                }
            } else {
                set(&self.shared.timed, state.core.is_timed());
                set(&self.shared.troubled, false);
            }
        } else {
            self.shared.unlock_and_follow_up(state);
        }
    }
}

/// Sets a hint. Most often it is so already, and its line is everybody's.
#[inline]
fn set(hint: &atomic::AtomicBool, to: bool) {
    if hint.load(Relaxed) != to {
        hint.store(to, Relaxed);
    }
}

/// Does what a `Drop` does. During unwinding a panic of users' code is caught: a
/// second one would abort the process.
#[inline]
pub(crate) fn in_drop(what: impl FnOnce()) {
    if std::thread::panicking() {
        quietly(what);
    } else {
        what();
    }
}

/// Wakes all of them: one that panics must not keep the rest asleep.
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        quietly(|| waker.wake());
    }
}
