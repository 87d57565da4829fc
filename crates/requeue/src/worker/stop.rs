//! How a worker ends: stop, drain, the report.

use super::set::{DrainWaitsFor, WorkerSet};
use crate::blocking::block_on;
use crate::clock::Alarm;
use crate::drain::DrainOptions;
use crate::panics::quietly;
use crate::wait::{Step, TimeLimit};
use requeue_core::{DrainBase, Instant};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How a worker ended.
///
/// ```
/// # use requeue::{WorkQueue, Worker};
/// # use std::time::Duration;
/// let q = WorkQueue::new();
/// let worker = Worker::of(&q).start_threads(|_| ())?;
/// q.add_after("a", Duration::from_secs(3600))?;
/// let report = worker.drain(Duration::MAX).wait();
/// assert_eq!((report.complete, report.done, report.unfinished), (false, 0, 1));
/// assert_eq!(q.take_unfinished()[0].key, "a");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// Whether all runs of this worker ended in time. After a drain: whether also the runs outside this
    /// worker have ended, no key is left, and none was left [unfinished](Self::unfinished).
    pub complete: bool,
    /// Runs that ended since the worker was started, failed ones included, without
    /// those that were cancelled.
    pub done: u64,
    /// Runs that were cancelled at the deadline: blocking handlers were told, async
    /// ones dropped.
    pub cancelled: usize,
    /// The cancelled runs that still go on when the report is made: a blocking handler,
    /// and an async one that is being polled, cannot be ended from outside.
    pub still_running: usize,
    /// Keys that are held as the report is made: by this worker's handlers, by another worker of the queue,
    /// or by a guard.
    pub held: usize,
    /// Keys in line as the report is made.
    pub ready: usize,
    /// Keys that wait for their timers as the report is made.
    pub waiting: usize,
    /// Keys that the drain has left unfinished and that were not taken yet: their run failed and its retry was refused, or
    /// their timer was dropped. [`WorkQueue::take_unfinished`](crate::WorkQueue::take_unfinished) gives them.
    pub unfinished: usize,
    /// The queue is the front of an engine, whose store has the unfinished keys too: the next process goes on with them.
    pub durable: bool,
    /// Waiting keys that the drain dropped.
    pub dropped: u64,
    /// Triggers from outside that were refused since the drain began.
    pub refused: u64,
    /// Retries of holders that were refused since the drain began: so many runs failed
    /// and were not tried again.
    pub refused_retries: u64,
}

/// A worker that ends: await it or [`wait`](Self::wait) on it for the report.
///
/// # Cancel safety
///
/// The worker takes no more keys, or the queue drains, from the moment this is made; a worker that has just
/// taken a key still runs it. Dropping this takes nothing back, but then the running handlers are not
/// cancelled at the deadline.
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
    set: Arc<WorkerSet>,
    drain: Option<DrainBase>,
    deadline: Instant,
    /// False for `join`, which only waits.
    brings_it_about: bool,
    /// The place among those who wait for the end of the workers.
    place: Option<usize>,
    /// The place among those who wait for the end of the queue.
    drain_place: Option<usize>,
    alarm: Option<Alarm>,
}

impl Stop {
    pub(super) fn begin(set: Arc<WorkerSet>, drain: Option<DrainOptions>, timeout: Duration) -> Self {
        let now = set.queue.clock().now();
        let limit = drain.map_or(Some(TimeLimit::After(timeout)), |options| options.limit);
        let deadline = limit.map_or(Instant::NEVER, |mut limit| limit.at(Some(now)));
        let drain = drain.map(|options| set.queue.begin_drain(options, now));
        if drain.is_none() {
            set.stop_taking();
        }
        let mut stop = Self::watch(set);
        (stop.drain, stop.deadline, stop.brings_it_about) = (drain, deadline, true);
        stop
    }

    /// Waits for the workers' end without bringing it about.
    pub(super) fn watch(set: Arc<WorkerSet>) -> Self {
        Self {
            set,
            drain: None,
            deadline: Instant::NEVER,
            brings_it_about: false,
            place: None,
            drain_place: None,
            alarm: None,
        }
    }

    /// Blocks until the worker's runs have ended, or the deadline.
    ///
    /// In async code await it instead: a blocked thread polls no handlers. For that
    /// reason it does not wait for a [`WorkerFuture`](crate::WorkerFuture) to drop its
    /// handlers past the deadline, which awaiting does: they count as still running.
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
        block_on(&mut self, |stop| stop.set.queue.clock(), |stop, thread| stop.step(|| thread.waker(), false))
    }

    /// `patient`: the caller can wait until workers have been polled that drop their handlers at
    /// that poll.
    fn step<'w>(&mut self, waker: impl Fn() -> &'w Waker, patient: bool) -> Step<StopReport> {
        let now = self.set.queue.clock().now();
        let waker = waker();
        let late = now >= self.deadline;
        let until = Some(self.deadline).filter(|at| !at.is_never() && !late);
        if late {
            // past the deadline of a drain nothing more is taken either
            self.set.stop_taking();
            self.set.cancel_all();
        }
        // cloned before the state is read: each change from here on wakes this
        let clone = waker.clone();
        let mut state = self.set.state.lock();
        let old = state.stops.set(&mut self.place, clone);
        let has_workers = state.has_workers();
        drop(state);
        quietly(|| drop(old));
        let waits = match &self.drain {
            _ if late => false,
            None => has_workers && !self.brings_it_about,
            // a drain is complete when the queue's last run has ended, also one outside this worker
            Some(base) => match self.set.queue.drain_waits_for(base, now, &mut self.drain_place, waker) {
                DrainWaitsFor::Keys => has_workers,
                DrainWaitsFor::Runs => true,
                DrainWaitsFor::Nothing => false,
            },
        };
        if waits {
            return Step::Sleep(until);
        }
        if self.brings_it_about {
            // a drain ends its workers too, those that wait for a key or were resized to 0
            self.set.stop_taking();
        }
        if self.set.state.lock().is_awaited(late, patient) {
            return Step::Sleep(until);
        }
        self.leave();
        if self.drain.is_some() {
            self.set.queue.tell_unfinished();
        }
        Step::Ready(self.set.report(self.set.queue.report(self.drain.as_ref(), now)))
    }
}

impl Stop {
    /// Removes this stop from the callers that wait for the workers and for the drain.
    fn leave(&mut self) {
        if let Some(place) = self.place.take() {
            let old = self.set.state.lock().stops.leave(place);
            quietly(|| drop(old));
        }
        if let Some(place) = self.drain_place.take() {
            self.set.queue.leave_drain(place);
        }
    }
}

impl Future for Stop {
    type Output = StopReport;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<StopReport> {
        match self.step(|| cx.waker(), true) {
            Step::Ready(report) => {
                self.alarm = None;
                Poll::Ready(report)
            }
            Step::Sleep(until) => {
                self.alarm = until.map(|at| self.set.queue.clock().wake_at(at, cx.waker()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.leave();
    }
}

debug!([] Stop, |stop| { deadline: stop.deadline, .. });
