//! Waiting for a key: one body for threads and tasks.

use crate::clock::{Alarm, Parker};
use crate::item::{Ending, Item, Owner, end_in_drop, settle_ended};
use crate::shared::{Session, in_drop};
use crate::wait::{Sleeper, Step, WaiterId};
use crate::{GetError, Instant};
use requeue_core::{Got, How, RunRef};
use std::cell::OnceCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Waits for a key: await it, or call [`wait`](Self::wait) on it.
///
/// Made by [`WorkQueue::get`](crate::WorkQueue::get) and
/// [`Item::next`]. It gives `None` once the queue is shut down and
/// neither a ready nor a dirty key is left.
///
/// Dropping producers does not end it: a handle that is kept for getting keeps
/// the queue open, so shut the queue down.
///
/// Poll it or drop it: one that has been woken and is left alive without being
/// polled keeps its wake-up to itself, and others that wait may not be woken for
/// that key before the next one comes. In a `select!` loop that works between two
/// polls, make it anew each time around.
///
/// # Cancel safety
///
/// A key is taken only in the poll that returns it. Dropping this at any point
/// loses no key and no wake-up. Polled again after it gave an answer, it waits
/// for the next key.
///
/// ```
/// # let q = requeue::WorkQueue::new();
/// let get = q.get(); // nothing yet: it waits when it is polled
/// q.add("a")?;
/// assert_eq!(get.wait().map(|item| *item.key()), Some("a"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a Get does nothing unless it is awaited or waited on"]
pub struct Get<'q, K, V = ()> {
    owner: Owner<'q, K, V>,
    /// A run that is to be ended before a key is taken.
    ending: Option<RunRef<K>>,
    waiter: Option<WaiterId>,
    /// The wake-up at a task's deadline that was asked of the clock, for when and
    /// for whom.
    alarm: Option<(Instant, Waker, Alarm)>,
}

impl<'q, K, V> Get<'q, K, V> {
    pub(crate) fn new(owner: Owner<'q, K, V>, ending: Option<RunRef<K>>) -> Self {
        Self { owner, ending, waiter: None, alarm: None }
    }

    /// Blocks until there is a key, or the queue is shut down and worked off.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::new();
    /// q.add("a")?;
    /// q.shut_down();
    /// assert_eq!(q.get().wait().map(|item| *item.key()), Some("a"));
    /// assert!(q.get().wait().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(mut self) -> Option<Item<'q, K, V>> {
        self.block(None).unwrap_or(None)
    }

    /// The same with a deadline: `timeout` after the first poll, on the queue's
    /// clock. [`Duration::ZERO`] does not wait.
    ///
    /// ```
    /// # use requeue::{GetError, WorkQueue};
    /// # use std::time::Duration;
    /// let q = WorkQueue::<u32>::new();
    /// let got = q.get().timeout(Duration::from_millis(1)).wait();
    /// assert_eq!(got.err(), Some(GetError::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timeout(self, timeout: Duration) -> GetTimeout<'q, K, V> {
        GetTimeout { get: self, limit: Limit::After(timeout) }
    }

    /// The same with a deadline on the queue's clock. One in the past does not
    /// wait.
    ///
    /// ```
    /// # use requeue::{Clock, FakeClock, GetError, WorkQueue};
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::<u32>::builder().clock(clock.clone()).build()?;
    /// assert_eq!(q.get().deadline(clock.now()).wait().err(), Some(GetError::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deadline(self, at: Instant) -> GetTimeout<'q, K, V> {
        GetTimeout { get: self, limit: Limit::At(at) }
    }

    /// One look at the queue: a key, the end, or until when a thread may sleep
    /// (or for when the alarm is to be set, for a task), the deadline aside.
    ///
    /// The clock is read once at most, whatever this takes. A waker is asked for
    /// and cloned, without the lock, only when there is something to wait for.
    pub(crate) fn step<'w>(
        &mut self,
        waker: impl Fn() -> &'w Waker,
        limit: Option<&mut Limit>,
        who: Sleeper,
        reading: &mut Option<Instant>,
    ) -> Step<Outcome<'q, K, V>> {
        let shared = self.owner.shared();
        if limit.is_some() {
            *reading = Some(shared.now());
        }
        let deadline = limit.map(|l| l.at(*reading));
        let mut clone: Option<Waker> = None;
        let mut ended = None;
        loop {
            let mut session = shared.enter(reading);
            if let Some(run) = self.ending.take() {
                ended = session.core.end(run, How::Done, None).ok();
            }
            if let Some(id) = &self.waiter {
                session.waiters.arrived(id);
            }
            let over = match session.core.get() {
                Got::Item(handout) => {
                    let old = self.waiter.take().and_then(|id| session.waiters.leave(id));
                    let item = session.hand_out(self.owner.clone(), handout, old);
                    settle_ended(shared, ended);
                    return Step::Ready(Ok(Some(item)));
                }
                Got::ShutDown => Some(Ok(None)),
                Got::Empty if deadline.is_some_and(|at| reading.is_some_and(|now| now >= at)) => {
                    Some(Err(GetError::TimedOut))
                }
                Got::Empty => None,
            };
            if let Some(answer) = over {
                let old = self.waiter.take().and_then(|id| session.waiters.leave(id));
                let idle = session.waiters.alarm_is_idle();
                drop(session);
                drop(old);
                if idle {
                    shared.tend(None);
                }
                settle_ended(shared, ended);
                return Step::Ready(answer);
            }
            if self.waiter.is_none() && clone.is_none() {
                // neither made nor cloned under the lock: a clone is users' code
                drop(session);
                clone = Some(waker().clone());
                continue;
            }
            match Self::register(&mut self.waiter, session, waker(), clone.take(), who) {
                Ok((lead, old)) => {
                    drop(old);
                    settle_ended(shared, ended);
                    return Step::Sleep(lead);
                }
                Err(NeedsClone) => clone = Some(waker().clone()),
            }
        }
    }

    /// Enters the caller among those who wait, if a waker of its own is at
    /// hand; returns what [`Waiters::enter`](crate::wait::Waiters::enter) does and
    /// a waker to be dropped.
    fn register(
        waiter: &mut Option<WaiterId>,
        mut session: Session<'_, K, V>,
        waker: &Waker,
        clone: Option<Waker>,
        who: Sleeper,
    ) -> Result<(Option<Instant>, Option<Waker>), NeedsClone> {
        let next = session.core.next_wake();
        let (sleep, old) = match (&*waiter, clone) {
            (Some(id), clone) if session.waiters.is_current(id, waker) => {
                (session.waiters.stay(id, next, who), clone)
            }
            (_, None) => return Err(NeedsClone),
            (Some(id), Some(clone)) => {
                let (old, sleep) = session.waiters.again(id, clone, next, who);
                (sleep, old)
            }
            (None, Some(clone)) => {
                let (id, sleep) = session.waiters.enter(clone, next, who);
                *waiter = Some(id);
                (sleep, None)
            }
        };
        drop(session);
        Ok((sleep, old))
    }

    fn block(&mut self, mut limit: Option<Limit>) -> Outcome<'q, K, V> {
        let parker = OnceCell::new();
        loop {
            let waker = || parker.get_or_init(Parker::current).waker();
            match self.step(waker, limit.as_mut(), Sleeper::Thread, &mut None) {
                Step::Ready(outcome) => return outcome,
                Step::Sleep(lead) => {
                    let until = lead.into_iter().chain(limit.and_then(Limit::deadline)).min();
                    self.owner.shared().sleep(until, &parker);
                }
            }
        }
    }
}

impl<'q, K, V> Get<'q, K, V>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
{
    fn poll_limited(
        &mut self,
        cx: &mut Context<'_>,
        mut limit: Option<&mut Limit>,
    ) -> Poll<Outcome<'q, K, V>> {
        let mut reading = None;
        match self.step(|| cx.waker(), limit.as_deref_mut(), Sleeper::Task, &mut reading) {
            Step::Ready(outcome) => {
                self.alarm = None;
                Poll::Ready(outcome)
            }
            Step::Sleep(lead) => {
                if lead.is_some() {
                    self.owner.shared().set_bell(reading);
                }
                if let Some(at) = limit.and_then(|limit| limit.deadline()) {
                    self.set_alarm(at, cx.waker());
                }
                Poll::Pending
            }
        }
    }

    /// Sees to it that the clock wakes the task at its deadline.
    fn set_alarm(&mut self, at: Instant, task: &Waker) {
        let set = self.alarm.as_ref().is_some_and(|(until, waker, _)| *until == at && waker.will_wake(task));
        if !set {
            let alarm = self.owner.shared().clock.wake_at(at, task);
            // the new one is set before the old one goes, so that a clock's
            // thread does not end in between
            self.alarm = Some((at, task.clone(), alarm));
        }
    }
}

/// A waker must be cloned before the caller can be entered.
struct NeedsClone;

/// What a wait with or without a deadline gives.
pub(crate) type Outcome<'q, K, V> = Result<Option<Item<'q, K, V>>, GetError>;

impl<'q, K, V> Future for Get<'q, K, V>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
{
    type Output = Option<Item<'q, K, V>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_limited(cx, None).map(|outcome| outcome.unwrap_or(None))
    }
}

impl<K, V> Unpin for Get<'_, K, V> {}

impl<K, V> Drop for Get<'_, K, V> {
    fn drop(&mut self) {
        let shared = self.owner.shared();
        if let Some(id) = self.waiter.take() {
            // leaving takes no time, and no clock that panics may leave an entry
            // behind that nobody answers for; a wake-up that this one had is
            // passed on as the lock hold ends
            let mut session = shared.lock();
            let old = session.waiters.leave(id);
            let idle = session.waiters.alarm_is_idle();
            drop(session);
            in_drop(|| drop(old));
            if idle {
                in_drop(|| shared.tend(None));
            }
        }
        if self.ending.is_some() {
            // never polled
            end_in_drop(shared, &mut self.ending, |run| Ending::Taking(run).done(shared));
        }
    }
}

impl<K, V> fmt::Debug for Get<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Get").field("waiting", &self.waiter.is_some()).finish_non_exhaustive()
    }
}

/// When a wait gives up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// So long after the first poll.
    After(Duration),
    At(Instant),
}

impl Limit {
    /// When it is, once it is known; not if it never comes.
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::At(at) if !at.is_never() => Some(at),
            Self::At(_) | Self::After(_) => None,
        }
    }

    fn at(&mut self, now: Option<Instant>) -> Instant {
        if let (Self::After(d), Some(now)) = (*self, now) {
            *self = Self::At(now + d);
        }
        match *self {
            Self::At(at) => at,
            Self::After(_) => Instant::NEVER,
        }
    }
}

/// [`Get`] with a deadline: await it, or call [`wait`](Self::wait) on it.
///
/// It gives a key, else says that the queue is shut down, else that the time is up.
///
/// # Cancel safety
///
/// As [`Get`]'s.
///
/// ```
/// # use requeue::GetError;
/// # use std::time::Duration;
/// # let q = requeue::WorkQueue::new();
/// q.add("a")?;
/// let soon = Duration::from_millis(1);
/// assert_eq!(*q.get().timeout(soon).wait()?.key(), "a");
/// assert_eq!(q.get().timeout(soon).wait().err(), Some(GetError::TimedOut));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a GetTimeout does nothing unless it is awaited or waited on"]
pub struct GetTimeout<'q, K, V = ()> {
    get: Get<'q, K, V>,
    limit: Limit,
}

impl<'q, K, V> GetTimeout<'q, K, V> {
    /// Blocks until there is a key, the queue is worked off, or the time is up.
    ///
    /// # Errors
    ///
    /// [`GetError::ShutDown`] and [`GetError::TimedOut`].
    ///
    /// ```
    /// # use requeue::{GetError, WorkQueue};
    /// # use std::time::Duration;
    /// let q = WorkQueue::<u32>::new();
    /// q.shut_down();
    /// let got = q.get().timeout(Duration::MAX).wait();
    /// assert_eq!(got.err(), Some(GetError::ShutDown));
    /// ```
    pub fn wait(mut self) -> Result<Item<'q, K, V>, GetError> {
        let limit = self.limit;
        self.get.block(Some(limit)).and_then(|item| item.ok_or(GetError::ShutDown))
    }
}

impl<'q, K, V> Future for GetTimeout<'q, K, V>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
{
    type Output = Result<Item<'q, K, V>, GetError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.get
            .poll_limited(cx, Some(&mut this.limit))
            .map(|outcome| outcome.and_then(|item| item.ok_or(GetError::ShutDown)))
    }
}

impl<K, V> fmt::Debug for GetTimeout<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetTimeout").field("limit", &self.limit).finish_non_exhaustive()
    }
}
