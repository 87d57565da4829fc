//! Who works, and how it ends: stop, drain, the report.

use super::run::Told;
use crate::clock::{Alarm, Clock, Parker};
use crate::drain::DrainOptions;
use crate::shared::{Shared, wake_each};
use crate::sync::Mutex;
use crate::wait::{Step, WakerSet};
use crate::{Instant, ReadWorkers, Stats, WorkerCounts};
use requeue_core::DrainBase;
use std::cell::OnceCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What a worker's end needs of its queue, whatever its keys are.
pub(super) trait Source: Send + Sync {
    fn clock(&self) -> &dyn Clock;
    fn begin_drain(&self, options: DrainOptions, now: Instant) -> DrainBase;
    fn stats(&self, now: Instant) -> Stats;
    /// Waiting keys dropped and triggers refused since a drain began.
    fn lost(&self, base: &DrainBase, now: Instant) -> (u64, u64);
}

impl<K: Send + Sync, V: Send> Source for Shared<K, V> {
    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }
    fn begin_drain(&self, options: DrainOptions, now: Instant) -> DrainBase {
        self.begin_drain(options, now).0
    }
    fn stats(&self, now: Instant) -> Stats {
        self.enter_at(now).core.stats()
    }
    fn lost(&self, base: &DrainBase, now: Instant) -> (u64, u64) {
        let counts = self.enter_at(now).core.drain_counts(base);
        (counts.dropped, counts.refused)
    }
}

/// One thread of a worker.
#[derive(Debug, Default)]
struct Place {
    /// Wakes it when it waits for a key.
    waker: Option<Waker>,
    /// What the handler that it runs is told.
    running: Option<Arc<Told>>,
    /// It looks for a key, and may have got one: for a moment only.
    looking: bool,
}

#[derive(Debug, Default)]
struct State {
    places: Vec<Place>,
    /// Threads that have not ended.
    alive: usize,
    /// No more keys are taken.
    stopping: bool,
    /// The deadline has come: runs that begin all the same are told at once.
    cancelling: bool,
    /// Runs that ended.
    done: u64,
    stops: WakerSet,
}

/// What the threads of a worker and its handle share.
pub(super) struct Roster {
    queue: Arc<dyn Source>,
    state: Mutex<State>,
}

impl Roster {
    pub(super) fn new(queue: Arc<dyn Source>, threads: usize) -> Self {
        let places = std::iter::repeat_with(Place::default).take(threads).collect();
        Self { queue, state: Mutex::new(State { places, alive: threads, ..State::default() }) }
    }

    pub(super) fn threads(&self) -> usize {
        self.state.lock().alive
    }

    /// A thread looks for a key; false if it is to take no more.
    pub(super) fn looks(&self, place: usize) -> bool {
        let mut state = self.state.lock();
        state.places[place].looking = !state.stopping;
        !state.stopping
    }

    /// A thread found no key and rests; false if it is to look again, because the
    /// worker was stopped meanwhile.
    pub(super) fn rests(&self, place: usize, waker: Waker) -> bool {
        let (rests, old) = self.settles(place, |state| {
            let old = state.places[place].waker.replace(waker);
            (!state.stopping, old)
        });
        drop(old);
        rests
    }

    /// A thread got a key: it can be told to end. Where the worker has stopped
    /// meanwhile and the deadline has come, it is told at once.
    pub(super) fn run_begins(&self, place: usize, told: &Arc<Told>) {
        self.settles(place, |state| {
            state.places[place].running = Some(told.clone());
            if state.cancelling {
                told.cancel();
            }
        });
    }

    /// A look has ended: those who make a report may have waited for that.
    fn settles<R>(&self, place: usize, how: impl FnOnce(&mut State) -> R) -> R {
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        state.places[place].looking = false;
        let result = how(&mut state);
        if state.cancelling {
            state.stops.take_all(&mut wakers);
        }
        drop(state);
        wake_each(wakers);
        result
    }

    pub(super) fn run_ended(&self, place: usize) {
        let mut state = self.state.lock();
        state.done += 1;
        let told = state.places[place].running.take();
        drop(state);
        drop(told);
    }

    /// A thread has ended.
    pub(super) fn leave(&self, place: usize) {
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        let gone = std::mem::take(&mut state.places[place]);
        state.alive -= 1;
        if state.alive == 0 || state.cancelling {
            state.stops.take_all(&mut wakers);
        }
        drop(state);
        drop(gone);
        wake_each(wakers);
    }

    /// Lets the threads take no more keys.
    pub(super) fn stop_taking(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        let wakers: Vec<Waker> = state.places.iter_mut().filter_map(|p| p.waker.take()).collect();
        drop(state);
        wake_each(wakers);
    }

    /// Tells all that run to end; returns how many.
    fn cancel_all(&self) -> usize {
        let mut state = self.state.lock();
        state.cancelling = true;
        state.places.iter().filter_map(|p| p.running.as_ref()).map(|told| told.cancel()).count()
    }
}

impl ReadWorkers for Roster {
    fn workers(&self) -> WorkerCounts {
        let state = self.state.lock();
        let busy = state.places.iter().filter(|place| place.running.is_some()).count();
        WorkerCounts { workers: state.alive, busy }
    }
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roster").field("state", &self.state).finish_non_exhaustive()
    }
}

/// How a worker ended.
///
/// ```
/// # use requeue::{WorkQueue, Worker};
/// # use std::time::Duration;
/// let q = WorkQueue::new();
/// let worker = Worker::of(&q).start_threads(|_| ())?;
/// q.add_after("a", Duration::from_secs(3600))?;
/// let report = worker.drain(Duration::MAX).wait();
/// assert_eq!((report.complete, report.done, report.dropped), (true, 0, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// Whether all runs ended in time, and, after a drain, no key is left.
    pub complete: bool,
    /// Runs that the worker ended since it was started.
    pub done: u64,
    /// Runs that were told to end at the deadline.
    pub cancelled: usize,
    /// Runs that go on as the report is made: a blocking handler cannot be
    /// ended from outside.
    pub still_running: usize,
    /// Keys in line as the report is made.
    pub ready: usize,
    /// Keys that wait for their timers as the report is made.
    pub waiting: usize,
    /// Waiting keys that the drain dropped.
    pub dropped: u64,
    /// Triggers that were refused since the drain began, retries among them.
    pub refused: u64,
}

/// A worker that ends: await it or [`wait`](Self::wait) on it for the report.
///
/// # Cancel safety
///
/// The worker takes no more keys, or the queue drains, from the moment this is
/// made; a thread that was just taking a key still runs it. Dropping it takes nothing back, but nobody tells the running handlers
/// at the deadline then.
///
/// ```
/// # use requeue::{WorkQueue, Worker};
/// # use std::time::Duration;
/// let q = WorkQueue::<u32>::new();
/// let worker = Worker::of(&q).start_threads(|_| ())?;
/// let stop = worker.stop(Duration::from_secs(10)); // nothing is taken from here on
/// assert!(stop.wait().complete);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the worker is ending; await this or call wait() to know how it ended"]
pub struct Stop {
    roster: Arc<Roster>,
    drain: Option<DrainBase>,
    deadline: Instant,
    /// Runs that were told to end, once the deadline has come.
    cancelled: usize,
    place: Option<usize>,
    alarm: Option<Alarm>,
}

impl Stop {
    pub(super) fn begin(roster: Arc<Roster>, drain: Option<DrainOptions>, deadline: Duration) -> Self {
        let now = roster.queue.clock().now();
        let drain = match drain {
            Some(options) => Some(roster.queue.begin_drain(options, now)),
            None => {
                roster.stop_taking();
                None
            }
        };
        Self { roster, drain, deadline: now + deadline, cancelled: 0, place: None, alarm: None }
    }

    /// Waits for the threads' end without bringing it about.
    pub(super) fn watch(roster: Arc<Roster>) -> Self {
        Self { roster, drain: None, deadline: Instant::NEVER, cancelled: 0, place: None, alarm: None }
    }

    /// Blocks until the worker's runs have ended, or the deadline.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// let q = WorkQueue::<u32>::new();
    /// let worker = Worker::of(&q).start_threads(|_| ())?;
    /// let report = worker.stop(std::time::Duration::MAX).wait();
    /// assert_eq!((report.complete, report.still_running), (true, 0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn wait(mut self) -> StopReport {
        let parker = OnceCell::new();
        let current = || parker.get_or_init(Parker::current);
        loop {
            match self.step(|| current().waker()) {
                Step::Ready(report) => return report,
                Step::Sleep(Some(at)) => self.roster.queue.clock().park_until(at, current()),
                Step::Sleep(None) => current().park(),
            }
        }
    }

    fn step<'w>(&mut self, waker: impl Fn() -> &'w Waker) -> Step<StopReport> {
        let now = self.roster.queue.clock().now();
        let waker = waker().clone();
        if now >= self.deadline {
            // past the deadline of a drain nothing more is taken either
            self.roster.stop_taking();
            self.cancelled = self.roster.cancel_all().max(self.cancelled);
        }
        let mut state = self.roster.state.lock();
        // a thread that looks for a key tells in a moment whether it runs
        let looking = state.places.iter().any(|p| p.looking);
        if state.alive > 0 && (now < self.deadline || looking) {
            let old = state.stops.set(&mut self.place, waker);
            drop(state);
            drop(old);
            let until = Some(self.deadline).filter(|at| !at.is_never() && now < self.deadline);
            return Step::Sleep(until);
        }
        let old = self.place.take().and_then(|place| state.stops.leave(place));
        drop(state);
        drop(old);
        Step::Ready(self.report(now))
    }

    fn report(&self, now: Instant) -> StopReport {
        let (dropped, refused) = match &self.drain {
            Some(base) => self.roster.queue.lost(base, now),
            None => (0, 0),
        };
        let stats = self.roster.queue.stats(now);
        let state = self.roster.state.lock();
        let left = self.drain.is_some() && (stats.ready > 0 || stats.waiting > 0);
        let still_running = state.places.iter().filter(|p| p.running.is_some()).count();
        StopReport {
            complete: still_running == 0 && !left,
            done: state.done,
            cancelled: self.cancelled,
            still_running,
            ready: stats.ready,
            waiting: stats.waiting,
            dropped,
            refused,
        }
    }
}

impl Future for Stop {
    type Output = StopReport;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<StopReport> {
        match self.step(|| cx.waker()) {
            Step::Ready(report) => {
                self.alarm = None;
                Poll::Ready(report)
            }
            Step::Sleep(until) => {
                self.alarm = until.map(|at| self.roster.queue.clock().wake_at(at, cx.waker()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            let old = self.roster.state.lock().stops.leave(place);
            drop(old);
        }
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
