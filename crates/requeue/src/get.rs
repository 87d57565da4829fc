//! Waiting for a key: one body for threads and tasks.

use crate::clock::{Alarm, Parker};
use crate::item::{Ending, Item, Owner, drop_key, end_in_drop, finish_plainly, settle_ended};
use crate::shared::{Session, Shared, in_drop};
use crate::wait::{Step, WaiterId};
use crate::{GetError, Instant};
use requeue_core::{Core, Got, Handout, RunRef};
use std::cell::OnceCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
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
    /// The wake-up that was asked of the clock.
    alarm: Option<Alarm>,
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
    #[inline]
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

    /// One look at the queue: a key, the end, or how long to sleep.
    ///
    /// The clock is read once at most, whatever this takes. A waker is asked for
    /// and cloned, without the lock, only when there is something to wait for.
    #[inline]
    pub(crate) fn step<'w>(
        &mut self,
        waker: impl Fn() -> &'w Waker,
        limit: Option<&mut Limit>,
    ) -> Step<Outcome<'q, K, V>> {
        let shared = self.owner.shared();
        let mut reading = limit.is_some().then(|| shared.now());
        let deadline = limit.map(|l| l.at(reading));
        let mut ended = None;
        let mut session = if self.waiter.is_none() {
            match shared.plainly(&mut reading, (&mut self.ending, &mut ended), end_and_get_plainly) {
                Ok(handout) => {
                    let item = Item::new(self.owner.clone(), handout);
                    if let Some(key) = ended {
                        drop_key(key);
                    }
                    return Step::Ready(Ok(Some(item)));
                }
                Err(session) => session,
            }
        } else {
            shared.enter(&mut reading)
        };
        // only now: what runs before may panic, and the run must still be there
        let more = self.ending.take().map(|run| session.core.finish(run, false));
        let step = match Self::take(&self.owner, &mut self.waiter, session) {
            Ok(item) => Step::Ready(Ok(Some(item))),
            Err(session) => Self::stay(&self.owner, &mut self.waiter, session, reading, deadline, waker),
        };
        settle_ended(shared, more);
        step
    }

    /// Hands out a key, if there is one.
    #[inline]
    fn take<'a>(
        owner: &Owner<'q, K, V>,
        waiter: &mut Option<WaiterId>,
        mut session: Session<'a, K, V>,
    ) -> Result<Item<'q, K, V>, Session<'a, K, V>> {
        if let Some(id) = waiter {
            session.waiters.arrived(id);
        }
        match session.core.get() {
            Got::Item(handout) => {
                let old = waiter.take().and_then(|id| session.waiters.leave(id));
                Ok(session.hand_out(owner.clone(), handout, old))
            }
            Got::Empty | Got::ShutDown => Err(session),
        }
    }

    /// What a look comes to that found no key.
    #[inline(never)]
    fn stay<'a, 'w>(
        owner: &'a Owner<'q, K, V>,
        waiter: &mut Option<WaiterId>,
        mut session: Session<'a, K, V>,
        mut reading: Option<Instant>,
        deadline: Option<Instant>,
        waker: impl Fn() -> &'w Waker,
    ) -> Step<Outcome<'q, K, V>> {
        let shared = owner.shared();
        let mut clone: Option<Waker> = None;
        loop {
            let over = if session.core.is_over() {
                Some(Ok(None))
            } else if deadline.is_some_and(|at| reading.is_some_and(|now| now >= at)) {
                Some(Err(GetError::TimedOut))
            } else {
                None
            };
            if let Some(answer) = over {
                let old = waiter.take().and_then(|id| session.waiters.leave(id));
                drop(session);
                drop(old);
                return Step::Ready(answer);
            }
            // neither made nor cloned under the lock: a clone is users' code
            if waiter.is_none() && clone.is_none() {
                drop(session);
                clone = Some(waker().clone());
            } else {
                match Self::register(waiter, session, waker(), clone.take()) {
                    Ok((lead, old)) => {
                        drop(old);
                        let deadline = deadline.filter(|at| !at.is_never());
                        return Step::Sleep(lead.into_iter().chain(deadline).min());
                    }
                    Err(NeedsClone) => clone = Some(waker().clone()),
                }
            }
            session = match Self::take(owner, waiter, shared.enter(&mut reading)) {
                Ok(item) => return Step::Ready(Ok(Some(item))),
                Err(session) => session,
            };
        }
    }

    /// Enters the caller among those who wait, if a waker of its own is at
    /// hand; returns how long it may sleep and a waker to be dropped.
    fn register(
        waiter: &mut Option<WaiterId>,
        mut session: Session<'_, K, V>,
        waker: &Waker,
        clone: Option<Waker>,
    ) -> Result<(Option<Instant>, Option<Waker>), NeedsClone> {
        let next = session.core.next_wake();
        let (sleep, old) = match (&*waiter, clone) {
            (Some(id), clone) if session.waiters.is_current(id, waker) => {
                (session.waiters.stay(id, next), clone)
            }
            (_, None) => return Err(NeedsClone),
            (Some(id), Some(clone)) => {
                let (old, sleep) = session.waiters.again(id, clone, next);
                (sleep, old)
            }
            (None, Some(clone)) => {
                let (id, sleep) = session.waiters.enter(clone, next);
                *waiter = Some(id);
                (sleep, None)
            }
        };
        drop(session);
        Ok((sleep, old))
    }

    #[inline]
    fn block(&mut self, mut limit: Option<Limit>) -> Outcome<'q, K, V> {
        let parker = OnceCell::new();
        loop {
            match self.step(|| parker.get_or_init(Parker::current).waker(), limit.as_mut()) {
                Step::Ready(outcome) => return outcome,
                Step::Sleep(until) => self.owner.shared().sleep(until, &parker),
            }
        }
    }
}

impl<'q, K, V> Get<'q, K, V>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
{
    fn poll_limited(&mut self, cx: &mut Context<'_>, limit: Option<&mut Limit>) -> Poll<Outcome<'q, K, V>> {
        let timed = limit.is_some();
        match self.step(|| cx.waker(), limit) {
            Step::Ready(outcome) => {
                self.alarm = None;
                Poll::Ready(outcome)
            }
            Step::Sleep(until) => {
                // the new alarm is set before the old one goes, so that a clock's
                // thread does not end in between
                self.alarm = until.map(|at| self.set_alarm(at, timed.then(|| cx.waker().clone())));
                Poll::Pending
            }
        }
    }

    fn set_alarm(&self, at: Instant, task: Option<Waker>) -> Alarm {
        let shared = self.owner.shared();
        let waiter = self.waiter.as_ref().map_or(u32::MAX, WaiterId::number);
        let ring = Ring { queue: Arc::downgrade(shared), waiter, task };
        shared.clock.wake_at(at, &Arc::new(ring).into())
    }
}

/// What the alarm of a waiting task wakes: the queue, because the task may be
/// stuck elsewhere and others wait too; and the task, if it has a deadline.
struct Ring<K, V> {
    queue: Weak<Shared<K, V>>,
    waiter: u32,
    task: Option<Waker>,
}

impl<K: Send + Sync + 'static, V: Send + 'static> Wake for Ring<K, V> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(queue) = self.queue.upgrade() {
            // an alarm may ring early: what is due is for the clock to say
            queue.enter_at(queue.now()).waiters.abdicate(self.waiter);
        }
        if let Some(task) = &self.task {
            task.wake_by_ref();
        }
    }
}

/// Ends a run, if there is one, and takes the next key; neither if it cannot do both.
#[inline(always)]
fn end_and_get_plainly<K, V>(
    core: &mut Core<K, V>,
    (ending, ended): (&mut Option<RunRef<K>>, &mut Option<K>),
) -> Option<Handout<K, V>> {
    if ending.is_some() {
        if !core.has_plain() {
            return None;
        }
        *ended = Some(finish_plainly(core, ending)?);
    }
    core.get_plainly()
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
            let old = shared.lock().waiters.leave(id);
            in_drop(|| drop(old));
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
