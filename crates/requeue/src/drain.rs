//! Drains: shutting down and waiting until all is worked off.

use crate::blocking::block_on;
use crate::clock::Alarm;
use crate::failure::Failure;
use crate::hold::{Later, Shared};
use crate::owner::Owner;
use crate::panics::{in_drop, quietly};
use crate::wait::{Step, TimeLimit};
use requeue_core::{Core, DrainBase, Instant, UnfinishedReason};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub use requeue_core::{Drained, ShutDown, UnfinishedKey, WaitingKeys};

/// Options of a drain: what becomes of waiting keys, and how long it waits.
///
/// ```
/// use requeue::{DrainOptions, WaitingKeys};
/// use std::time::Duration;
/// let options = DrainOptions::default()
///     .waiting_keys(WaitingKeys::Wait)
///     .timeout(Duration::from_secs(20));
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct DrainOptions {
    pub(crate) waiting: WaitingKeys,
    /// Time limit; none by default.
    pub(crate) limit: Option<TimeLimit>,
}

impl DrainOptions {
    /// Sets what becomes of keys that wait for their timers. By default, a drain with a
    /// [`timeout`](Self::timeout) works off keys in back-off until then and drops all other timers; a drain
    /// without one drops all timers. Keys whose timers are dropped are
    /// [unfinished](crate::WorkQueue::take_unfinished). The latest drain decides for all.
    ///
    /// ```
    /// # use requeue::*;
    /// # let q = WorkQueue::new();
    /// q.add_after("a", std::time::Duration::from_secs(3600))?;
    /// let _drain = q.drain(DrainOptions::default().waiting_keys(WaitingKeys::RunNow));
    /// assert_eq!(q.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn waiting_keys(self, waiting: WaitingKeys) -> Self {
        Self { waiting, ..self }
    }

    /// Sets until when the drain waits at most: for a [`Duration`] from the call that begins it, or until an
    /// [`Instant`], for several shutdown steps with one deadline; both of the queue's clock. By default, and with
    /// [`Duration::MAX`], it waits for ever. With [`Duration::ZERO`], and with an instant in the past, it does
    /// not wait. The queue stays shut down afterwards.
    ///
    /// ```
    /// # use requeue::*;
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).build()?;
    /// q.add("a")?;
    /// let drained = q.drain(DrainOptions::default().timeout(Duration::ZERO)).wait();
    /// assert!(!drained.complete && drained.ready == 1);
    /// let drained = q.drain(DrainOptions::default().timeout(clock.now())).wait();
    /// assert!(!drained.complete && drained.ready == 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timeout(self, limit: impl Into<TimeLimit>) -> Self {
        Self { limit: Some(limit.into()), ..self }
    }
}

impl From<Duration> for DrainOptions {
    /// A drain with this [`timeout`](DrainOptions::timeout).
    fn from(timeout: Duration) -> Self {
        Self::default().timeout(timeout)
    }
}

impl From<Instant> for DrainOptions {
    /// A drain with this [`timeout`](DrainOptions::timeout).
    fn from(deadline: Instant) -> Self {
        Self::default().timeout(deadline)
    }
}

/// A drain that has begun. Await it, or call [`wait`](Self::wait), for its report.
///
/// The queue refuses triggers from the moment this is made, whether it is waited on or not.
///
/// # Cancel safety
///
/// Dropping it takes nothing back: the queue stays shut down, and a drain that waits for waiting keys still
/// shuts down when they are worked off, or at the deadline.
///
/// ```
/// # let q = requeue::WorkQueue::new();
/// q.add("a")?;
/// let drain = q.drain(requeue::DrainOptions::default());
/// assert!(q.add("b").is_err(), "refused from here on");
/// while let Some(item) = q.get_blocking() { item.done() }
/// let drained = drain.wait();
/// assert_eq!((drained.complete, drained.done, drained.refused), (true, 1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the queue is shutting down; await this or call wait() to know when all is worked off"]
pub struct Drain<'q, K, V = ()> {
    owner: Owner<'q, K, V>,
    base: DrainBase,
    deadline: Instant,
    /// The place among the callers that wait for drains.
    place: Option<usize>,
    alarm: Option<Alarm>,
}

/// Maximum number of unfinished keys reported, or taken, in one lock hold.
const LENT_AT_ONCE: usize = 256;

impl<K, V> Shared<K, V> {
    /// Begins a drain. Returns the counts at its start, and its deadline.
    pub(crate) fn begin_drain(&self, options: DrainOptions, now: Instant) -> (DrainBase, Instant) {
        let deadline = options.limit.map_or(Instant::NEVER, |mut limit| limit.at(Some(now)));
        let mut hold = self.look_at(now);
        self.filter.close();
        let base = hold.core.begin_drain(options.waiting, deadline);
        hold.unlock();
        self.sweep(now);
        (base, deadline)
    }

    /// The report of a drain up to now.
    pub(crate) fn drained(&self, core: &Core<K, V>, base: &DrainBase) -> Drained {
        let mut drained = core.drain_counts(base);
        drained.durable = self.journal.is_some();
        drained
    }

    /// Reports unfinished keys to the workers of this queue, each key once. A run that ends `late`, after a
    /// drain's answer, reports the keys it has left itself.
    pub(crate) fn tell_unfinished(&self, late: bool) {
        let hooks = self.give_up_hooks();
        // without a hook nothing is lent, and the list is only marked as reported
        let most = if hooks.is_empty() { 0 } else { LENT_AT_ONCE };
        loop {
            let mut lent = Vec::with_capacity(most);
            let mut hold = self.lock();
            hold.core.lend_unfinished(late, most, |loan, reason| lent.push((loan, reason)));
            hold.unlock();
            if lent.is_empty() {
                return;
            }
            for (loan, reason) in &lent {
                let failure = match reason {
                    UnfinishedReason::RetryRefused => Failure::RetryRefused,
                    UnfinishedReason::TimerDropped => Failure::TimerDropped,
                };
                for hook in &hooks {
                    quietly(|| hook(loan.get(), &failure));
                }
            }
            let mut hold = self.lock();
            lent.into_iter().for_each(|(loan, _)| hold.core.take_back(loan));
            hold.unlock();
        }
    }

    /// The keys that drains have left unfinished. Each is returned once.
    pub(crate) fn take_unfinished(&self) -> Vec<UnfinishedKey<K, V>> {
        self.tell_unfinished(false);
        let (mut from, mut all) = (Some(0), Vec::new());
        while let Some(at) = from {
            // there is room before the lock is taken
            all.reserve(LENT_AT_ONCE);
            from = self
                .hold_to_look(&mut None)
                .with(|hold| hold.core.take_unfinished(at, LENT_AT_ONCE, |key| all.push(key)));
        }
        all
    }

    /// Gives up a place among the callers that wait for drains. Returns its waker, to be dropped.
    pub(crate) fn leave_drain(&self, place: usize) -> Option<Waker> {
        if self.defers(|| Later::Drain(place)) {
            return None;
        }
        let mut hold = self.lock();
        let old = hold.drains().leave(place);
        hold.unlock();
        old
    }
}

impl<'q, K, V> Drain<'q, K, V> {
    pub(crate) fn begin(owner: Owner<'q, K, V>, options: DrainOptions) -> Self {
        let shared = owner.shared();
        let (base, deadline) = shared.begin_drain(options, shared.now());
        Self { owner, base, deadline, place: None, alarm: None }
    }

    /// Makes the drain own its reference to the queue, so that it can be moved into a task or a thread. Its
    /// time still counts from when it began.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// let drain = q.drain(requeue::DrainOptions::default()).into_owned();
    /// let drained = std::thread::spawn(move || drain.wait());
    /// q.try_get()?.done();
    /// assert_eq!(drained.join().unwrap().done, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_owned(self) -> Drain<'static, K, V> {
        let Self { ref owner, base, deadline, .. } = self;
        Drain { owner: owner.clone().into_owned(), base, deadline, place: None, alarm: None }
    }

    /// Blocks until all is worked off, `shut_down` releases the drain, or its
    /// deadline has come.
    ///
    /// ```
    /// let q = requeue::WorkQueue::<u32>::new();
    /// assert!(q.drain(requeue::DrainOptions::default()).wait().complete);
    /// ```
    pub fn wait(mut self) -> Drained {
        block_on(
            &mut self,
            |drain| &*drain.owner.shared().clock,
            |drain, thread| drain.step(|| thread.waker()),
        )
    }

    fn step<'w>(&mut self, waker: impl Fn() -> &'w Waker) -> Step<Drained> {
        let shared = self.owner.shared();
        let now = shared.now();
        let mut clone: Option<Waker> = None;
        loop {
            let mut hold = shared.look_at(now);
            if hold.core.drain_is_over(&self.base) || now >= self.deadline {
                let answer = shared.drained(&hold.core, &self.base);
                let old = self.place.take().and_then(|place| hold.drains().leave(place));
                hold.unlock();
                quietly(|| drop(old));
                shared.tell_unfinished(false);
                return Step::Ready(answer);
            }
            match clone.take() {
                Some(clone) => {
                    let old = hold.drains().set(&mut self.place, clone);
                    // the deadline of the latest drain ends this one too, and perhaps no other caller notices
                    // that it has come
                    let until = hold.core.waiting_until().map_or(self.deadline, |at| at.min(self.deadline));
                    hold.unlock();
                    quietly(|| drop(old));
                    return Step::Sleep(Some(until).filter(|at| !at.is_never()));
                }
                // not under the lock: a clone is users' code
                None => {
                    hold.unlock();
                    clone = Some(waker().clone());
                }
            }
        }
    }
}

impl<K, V> Future for Drain<'_, K, V> {
    type Output = Drained;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Drained> {
        match self.step(|| cx.waker()) {
            Step::Ready(drained) => {
                self.alarm = None;
                Poll::Ready(drained)
            }
            Step::Sleep(until) => {
                self.alarm = until.map(|at| self.owner.shared().clock.wake_at(at, cx.waker()));
                Poll::Pending
            }
        }
    }
}

impl<K, V> Unpin for Drain<'_, K, V> {}

impl<K, V> Drop for Drain<'_, K, V> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let old = self.owner.shared().leave_drain(place);
            in_drop(|| drop(old));
        }
    }
}

debug!([K, V] Drain<'_, K, V>, |drain| { deadline: drain.deadline, .. });
