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
use crate::item::{Item, Owner};
use crate::limiter::{Keeps, RateLimiter, sealed::Token};
use crate::metrics::{Gauges, Metrics, ReadGauges};
use crate::sync::{Mutex, MutexGuard, atomic};
use crate::wait::{Waiters, WakerSet, Wakes};
use crate::{AddError, AddResult, Instant};
use atomic::Ordering::Relaxed;
use requeue_core::{
    Asking, Config, Core, Delay, DrainBase, Handout, Limit, Policy, Refused, RunRef, Trigger,
};
use std::cell::OnceCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

/// What a guard that is dropped without a word does.
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
    /// It is [`retry`](crate::Item::retry): the limiter is asked, and the payload
    /// goes back. Where a retry is refused it is done, and counted as refused.
    /// For guards that live in tasks which may be cancelled.
    Retry,
}

pub(crate) struct State<K, V> {
    pub(crate) core: Core<K, V>,
    pub(crate) waiters: Waiters,
    pub(crate) drains: WakerSet,
    /// What the drains have been told of: how many releases, and until when
    /// waiting keys are waited for.
    pub(crate) told: (u64, Option<Instant>),
}

pub(crate) struct Shared<K, V> {
    state: Mutex<State<K, V>>,
    pub(crate) bell: Bell,
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
            state: Mutex::new(State {
                core,
                waiters: Waiters::new(),
                drains: WakerSet::default(),
                told: (0, None),
            }),
            bell: Bell::new(),
            clock,
            limiter,
            metrics,
            unfinished,
            name,
            handles: atomic::AtomicUsize::new(1),
        }
    }

    /// Takes the lock with whatever is due at `reading` done. The clock is read
    /// if it was not and the time matters.
    #[inline]
    pub(crate) fn enter(&self, reading: &mut Option<Instant>) -> Session<'_, K, V> {
        if reading.is_none() && self.timed.load(Relaxed) {
            *reading = Some(self.clock.now());
        }
        let mut session = self.lock();
        loop {
            match *reading {
                // the clock is not read under the lock: it is users' code
                None if session.core.is_timed() => {
                    drop(session);
                    *reading = Some(self.clock.now());
                }
                now => {
                    if !session.core.settle(now.unwrap_or(Instant::ORIGIN)) {
                        return session;
                    }
                    drop(session);
                }
            }
            session = self.lock();
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
        Session { shared: self, state: Some(self.state.lock()) }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
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
        let asking = self.enter_at(now).core.ask(run)?;
        let unasked = Unask { shared: self, asking };
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

    /// A trigger from outside. `reading` is the time that its delay counts from.
    #[inline]
    pub(crate) fn add(
        &self,
        key: K,
        hash: u32,
        value: Option<V>,
        delay: Delay<'_>,
        mut reading: Option<Instant>,
    ) -> AddResult<K, V>
    where
        K: Eq,
    {
        let delayed = !matches!(delay, Delay::Now);
        // declared before the lock is taken, so that what is left of it is dropped
        // after it is released, also where users' code panics
        let mut trigger = DropsQuietly(Some(Trigger::new(key, value)));
        let accepted = match &mut trigger.0 {
            Some(trigger) => self.enter(&mut reading).core.add(trigger, hash, delay),
            None => unreachable!("it was put there"),
        };
        match (accepted, trigger.0.take().map(Trigger::into_parts).unwrap_or_default()) {
            (Ok(accepted), _spare) => {
                if delayed {
                    self.tell(Metrics::retried);
                }
                Ok(accepted.added)
            }
            (Err(reason), (Some(key), value)) => Err(AddError { key, value, reason }),
            (Err(_), (None, _)) => unreachable!("a refused trigger keeps its key"),
        }
    }

    /// add_rate_limited.
    pub(crate) fn add_limited(&self, key: K, hash: u32, value: Option<V>, policy: Policy) -> AddResult<K, V>
    where
        K: Eq,
    {
        let now = self.now();
        if !self.keeps_own() {
            return self
                .with_limit(|limit| self.add(key, hash, value, Delay::Limited(limit, policy), Some(now)));
        }
        match self.ask(&key, now, None) {
            Ok((delay, asking)) => self.add(key, hash, value, Delay::Asked(delay, policy, asking), Some(now)),
            Err(reason) => Err(AddError { key, value, reason }),
        }
    }

    /// What `shut_down` does; once more where a handle is dropped.
    pub(crate) fn shut_down(&self, now: Instant) -> requeue_core::ShutDown {
        let dropped = self.enter_at(now).core.shut_down();
        self.finish_sweep(now);
        dropped
    }

    /// Begins a drain; returns where the counts stood, and its deadline.
    pub(crate) fn begin_drain(&self, options: DrainOptions, now: Instant) -> (DrainBase, Instant) {
        let deadline = options.deadline.map_or(Instant::NEVER, |d| now + d);
        let base = self.enter_at(now).core.begin_drain(options.waiting, deadline);
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
        let State { core, waiters, drains, told } = &mut *state;
        let mut wakes = Wakes::default();
        waiters.wakes(core.len(), core.next_wake(), core.is_over(), &mut wakes);
        if !drains.is_empty() {
            let now = (core.releases(), core.waiting_until());
            if core.is_drained() || now != *told {
                *told = now;
                drains.take_all(&mut wakes.all);
            }
        }
        let adds = if self.metrics.is_some() { core.take_adds() } else { 0 };
        let trash = core.take_trash();
        let idle = waiters.alarm_is_idle() && core.next_wake().is_none();
        drop(state);
        wakes.deliver();
        if idle {
            self.tend(None);
        }
        if adds > 0 {
            self.tell(|m| m.added(adds));
        }
        // keys that went by themselves: whoever happened to call has nothing to do
        // with a panic of their drop, nor must it take the key that was handed out
        for (key, value) in trash {
            quietly(|| drop(key));
            quietly(|| drop(value));
        }
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

/// Takes an asking back when the limiter that was asked panics.
struct Unask<'a, K, V> {
    shared: &'a Shared<K, V>,
    asking: Asking,
}

impl<K, V> Drop for Unask<'_, K, V> {
    fn drop(&mut self) {
        // without letting time pass: that is not ours to do while unwinding
        self.shared.lock().core.unask(self.asking);
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
        if let Some(waited) = waited {
            shared.tell(|m| m.handed_out(waited));
        }
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
        state.core.conclude();
        let timed = state.core.is_timed();
        if timed != self.shared.timed.load(Relaxed) {
            self.shared.timed.store(timed, Relaxed);
        }
        // most calls have nobody to wake and nothing to tell
        if state.waiters.waiting() > 0
            || !state.drains.is_empty()
            || state.core.has_trash()
            || state.waiters.alarm_is_idle()
            || self.shared.metrics.is_some()
        {
            self.shared.unlock_and_follow_up(state);
        }
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

impl Wakes {
    /// Wakes everybody. A waker that panics must not keep the rest asleep, nor
    /// take the key from the call that woke it.
    #[inline]
    fn deliver(self) {
        let Self { for_key, to_lead, all } = self;
        wake_each(for_key.into_iter().chain(to_lead).chain(all));
    }
}

/// Wakes all of them: one that panics must not keep the rest asleep.
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        quietly(|| waker.wake());
    }
}
