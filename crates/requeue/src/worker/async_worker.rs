//! One async worker. Tasks and [`WorkerFuture`](super::WorkerFuture) poll it and drop it.

use super::next::WorkerLoop;
use super::outcome::{IntoOutcome, Outcome};
use super::run::Run;
use super::shared::{AFTER_PANIC, HandlerEnd, WorkerShared, call};
use crate::clock::{Alarm, Clock, SystemClock, TaskAlarm};
use crate::failure::Failure;
use crate::panics::quietly;
use crate::wait::{Sleeper, Step};
use requeue_core::Instant;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The largest number of runs in one poll. Then the executor's other tasks get a turn: handlers that never wait, on a queue that
/// never empties, would keep its thread.
const RUNS_A_POLL: u32 = 32;

/// One async worker.
pub(super) struct AsyncWorker<K: 'static, V: 'static, Fut> {
    worker: WorkerLoop<K, V>,
    /// The wake-up of a worker that leaves when it is idle for long.
    idle_alarm: TaskAlarm,
    /// The handler's future, in an allocation that all runs use.
    handler: Pin<Box<Option<Fut>>>,
    /// The end of the run's time limit, and the wake-up for that.
    until: Option<Instant>,
    alarm: TaskAlarm,
    /// Set after users' code panicked as a key was taken.
    rest: Option<Alarm>,
}

impl<K: Send + Sync + 'static, V: Send + 'static, Fut> AsyncWorker<K, V, Fut> {
    /// Works until it must wait. Ready when the worker has left.
    pub(super) fn poll<F: Fn(Run<K, V>) -> Fut>(
        &mut self,
        shared: &WorkerShared<K, V>,
        handler: &F,
        cx: &mut Context<'_>,
    ) -> Poll<()>
    where
        Fut: Future<Output: IntoOutcome>,
    {
        self.rest = None;
        for _ in 0..RUNS_A_POLL {
            if self.handler.is_some() && self.poll_run(shared, cx).is_pending() {
                return Poll::Pending;
            }
            // users' code that panics as a key is taken (a clock, an order) must not end the worker
            match quietly(|| self.next(shared, cx)) {
                Some(Poll::Pending) => return Poll::Pending,
                Some(Poll::Ready(None)) => return Poll::Ready(()),
                Some(Poll::Ready(Some(run))) => self.begin(shared, handler, run),
                None => {
                    self.worker.look_failed(shared);
                    let at = SystemClock.now() + AFTER_PANIC;
                    self.rest = Some(SystemClock.wake_at(at, cx.waker()));
                    return Poll::Pending;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Looks for the next key; `None` if the worker has left.
    #[inline]
    fn next(&mut self, shared: &WorkerShared<K, V>, cx: &mut Context<'_>) -> Poll<Option<Run<K, V>>> {
        let waker = cx.waker();
        shared.queue.install_alarms();
        match self.worker.next(shared, || waker, Sleeper::Task) {
            Step::Ready(run) => {
                self.idle_alarm.end();
                Poll::Ready(run)
            }
            Step::Sleep(idle) => {
                if let Some(at) = idle {
                    quietly(|| self.idle_alarm.set(&*shared.queue.clock, at, waker));
                }
                Poll::Pending
            }
        }
    }

    /// Calls the handler, whose future is polled from now on.
    #[inline]
    fn begin<F: Fn(Run<K, V>) -> Fut>(&mut self, shared: &WorkerShared<K, V>, handler: &F, run: Run<K, V>) {
        match call(|| handler(run)) {
            Ok(future) => {
                self.handler.set(Some(future));
                let began = self.worker.cell.as_ref().and_then(|cell| cell.began);
                self.until = began.zip(shared.rules.time_limit).map(|(began, limit)| began + limit);
            }
            Err(panic) => self.worker.handler_ended(shared, HandlerEnd::of(Err(panic))),
        }
    }

    #[inline]
    fn poll_run(&mut self, shared: &WorkerShared<K, V>, cx: &mut Context<'_>) -> Poll<()>
    where
        Fut: Future<Output: IntoOutcome>,
    {
        if self.is_to_end() {
            self.abandon(shared, Failure::Cancelled);
            return Poll::Ready(());
        }
        // an alarm is set when a poll has found that there is something to wait for
        if self.alarm.is_set() && self.is_late(shared) {
            self.abandon(shared, Failure::TimeLimit(shared.rules.time_limit.unwrap_or_default()));
            return Poll::Ready(());
        }
        let handler = &mut self.handler;
        let polled = call(|| match handler.as_mut().as_pin_mut() {
            Some(future) => future.poll(cx).map(IntoOutcome::into_outcome),
            None => Poll::Pending,
        });
        let said = match polled {
            Ok(Poll::Pending) => {
                if let Some(until) = self.until {
                    quietly(|| self.alarm.set(&*shared.queue.clock, until, cx.waker()));
                }
                return Poll::Pending;
            }
            Ok(Poll::Ready(outcome)) => Ok(outcome),
            Err(panic) => Err(panic),
        };
        let late =
            self.is_late(shared).then(|| Failure::TimeLimit(shared.rules.time_limit.unwrap_or_default()));
        self.handler_ended(shared, said, late.as_ref());
        Poll::Ready(())
    }
}

impl<K, V, Fut> AsyncWorker<K, V, Fut> {
    pub(super) fn new(shared: &WorkerShared<K, V>, at: usize) -> Self {
        Self {
            worker: WorkerLoop::new(shared, at),
            idle_alarm: TaskAlarm::default(),
            handler: Box::pin(None),
            until: None,
            alarm: TaskAlarm::default(),
            rest: None,
        }
    }

    /// Drops the handler of the current run, which has failed by that.
    pub(super) fn abandon(&mut self, shared: &WorkerShared<K, V>, failure: Failure) {
        if self.handler.is_none() {
            return;
        }
        if let Some(cell) = &self.worker.cell {
            cell.cancel();
        }
        self.handler_ended(shared, Err(failure), None);
        // the caller may not poll it soon
        self.worker.rest_after_run(&shared.set);
    }

    /// Whether its run was told to end.
    pub(super) fn is_to_end(&self) -> bool {
        self.worker.status.is_to_end()
    }

    #[inline]
    fn handler_ended(
        &mut self,
        shared: &WorkerShared<K, V>,
        said: Result<Outcome, Failure>,
        late: Option<&Failure>,
    ) {
        self.alarm.end();
        // first the handler, so that its value is back when the run ends
        quietly(|| self.handler.set(None));
        self.worker.handler_ended(shared, HandlerEnd { late, ..HandlerEnd::of(said) });
    }

    fn is_late(&self, shared: &WorkerShared<K, V>) -> bool {
        self.until.is_some_and(|until| shared.now().is_some_and(|now| now >= until))
    }
}
