//! One async worker: what it does each time it is polled. Tasks and
//! [`WorkerFuture`](super::WorkerFuture) poll it, and drop it.

use super::crew::{AFTER_PANIC, Crew, End};
use super::outcome::{Failure, IntoOutcome};
use super::roster::Ends;
use super::run::{Cell, Run, Told};
use crate::Instant;
use crate::clock::{Alarm, Clock, SystemClock, TaskAlarm};
use crate::get::Get;
use crate::item::Item;
use crate::panics::quietly;
use crate::wait::Step;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// How many runs may end in one poll before the executor's other tasks get a turn:
/// handlers that never wait, on a queue that never empties, would keep its thread.
const RUNS_A_POLL: u32 = 32;

/// One async worker, on whatever polls it.
pub(super) struct Seat<K: 'static, V: 'static, Fut> {
    place: usize,
    /// While it waits for a key.
    get: Option<Get<'static, K, V>>,
    /// Until when it waits at most, if it leaves then, and the wake-up for that.
    idle: Option<Instant>,
    idle_alarm: TaskAlarm,
    /// The handler of the run that goes on, in an allocation that all runs use.
    handler: Pin<Box<Option<Fut>>>,
    run: Option<Going<K, V>>,
    /// Set after users' code panicked as a key was taken.
    rest: Option<Alarm>,
}

/// A run that goes on.
struct Going<K: 'static, V: 'static> {
    cell: Arc<Cell<K, V>>,
    /// The end of its time limit.
    until: Option<Instant>,
    /// The wake-up at that end.
    alarm: TaskAlarm,
}

impl<K: Send + Sync + 'static, V: Send + 'static, Fut> Seat<K, V, Fut> {
    /// Works until there is something to wait for; ready when the worker has left its
    /// place.
    pub(super) fn poll<F: Fn(Run<K, V>) -> Fut>(
        &mut self,
        crew: &Crew<K, V>,
        handler: &F,
        ends: &Arc<dyn Ends>,
        cx: &mut Context<'_>,
    ) -> Poll<()>
    where
        Fut: Future<Output: IntoOutcome>,
    {
        self.rest = None;
        for _ in 0..RUNS_A_POLL {
            if self.run.is_some() && self.poll_run(crew, cx).is_pending() {
                return Poll::Pending;
            }
            // users' code that panics, as a key is taken (a clock, an order) or as a
            // run ends (merge, a limiter), must not end the worker
            match quietly(|| self.take(crew, cx)) {
                Some(Poll::Pending) => return Poll::Pending,
                Some(Poll::Ready(None)) => return Poll::Ready(()),
                Some(Poll::Ready(Some(item))) => {
                    if quietly(|| self.begin(crew, handler, ends, item)) != Some(true) {
                        crew.roster.run_ended(self.place);
                    }
                }
                None => {
                    quietly(|| self.get = None);
                    crew.roster.looked(self.place);
                    let at = SystemClock.now() + AFTER_PANIC;
                    self.rest = Some(SystemClock.wake_at(at, cx.waker()));
                    return Poll::Pending;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes a key; `None` if the worker has left.
    fn take(&mut self, crew: &Crew<K, V>, cx: &mut Context<'_>) -> Poll<Option<Item<'static, K, V>>> {
        let get = self.get.get_or_insert_with(|| crew.get());
        let waker = cx.waker();
        let look = || match Pin::new(&mut *get).poll(cx) {
            Poll::Ready(item) => Step::Ready(item),
            Poll::Pending => Step::Sleep(None),
        };
        match crew.take(self.place, &mut self.idle, || waker, look) {
            Step::Ready(item) => {
                (self.get, self.idle) = (None, None);
                self.idle_alarm.end();
                Poll::Ready(item)
            }
            Step::Sleep(idle) => {
                if let Some(at) = idle {
                    quietly(|| self.idle_alarm.set(&*crew.queue.clock, at, waker));
                }
                Poll::Pending
            }
        }
    }

    /// Calls the handler, whose future is polled from now on; true if the run goes on.
    fn begin<F: Fn(Run<K, V>) -> Fut>(
        &mut self,
        crew: &Crew<K, V>,
        handler: &F,
        ends: &Arc<dyn Ends>,
        item: Item<'static, K, V>,
    ) -> bool {
        let told = Arc::new(Told::of(&item));
        crew.roster.run_begins(self.place, &told, Some(ends.clone()));
        let began = crew.begins();
        let cell = Arc::new(Cell::new(item, self.place, told, began));
        let until = began.zip(crew.rules.time_limit).map(|(began, limit)| began + limit);
        let run = Run::new(cell.clone());
        match catch_unwind(AssertUnwindSafe(|| handler(run))) {
            Ok(future) => {
                self.handler.set(Some(future));
                self.run = Some(Going { cell, until, alarm: TaskAlarm::default() });
                true
            }
            Err(panic) => {
                crew.finish(cell, End::Panicked(panic), None, false);
                false
            }
        }
    }

    fn poll_run(&mut self, crew: &Crew<K, V>, cx: &mut Context<'_>) -> Poll<()>
    where
        Fut: Future<Output: IntoOutcome>,
    {
        let Some(run) = &mut self.run else { return Poll::Ready(()) };
        if run.cell.told.is_cancelled() {
            self.abandon(crew, Failure::Cancelled);
            return Poll::Ready(());
        }
        // an alarm is set when a poll has found that there is something to wait for
        if run.alarm.is_set() && run.is_late(crew) {
            let failure = Failure::TimeLimit(crew.rules.time_limit.unwrap_or_default());
            self.abandon(crew, failure);
            return Poll::Ready(());
        }
        let handler = &mut self.handler;
        let returned = catch_unwind(AssertUnwindSafe(|| match handler.as_mut().as_pin_mut() {
            Some(future) => future.poll(cx).map(IntoOutcome::into_outcome),
            None => Poll::Pending,
        }));
        let end = match returned {
            Ok(Poll::Pending) => {
                if let Some(until) = run.until {
                    quietly(|| run.alarm.set(&*crew.queue.clock, until, cx.waker()));
                }
                return Poll::Pending;
            }
            Ok(Poll::Ready(outcome)) => End::Returned(outcome),
            Err(panic) => End::Panicked(panic),
        };
        let limit = crew.rules.time_limit.unwrap_or_default();
        let late = run.is_late(crew).then_some(Failure::TimeLimit(limit));
        self.end(crew, end, late.as_ref());
        Poll::Ready(())
    }
}

impl<K, V, Fut> Seat<K, V, Fut> {
    pub(super) fn new(place: usize) -> Self {
        Self {
            place,
            get: None,
            handler: Box::pin(None),
            idle: None,
            idle_alarm: TaskAlarm::default(),
            run: None,
            rest: None,
        }
    }

    /// Drops the handler of the run that goes on, which is a failure of its key.
    pub(super) fn abandon(&mut self, crew: &Crew<K, V>, failure: Failure) {
        let Some(run) = &self.run else { return };
        run.cell.told.cancel();
        self.end(crew, End::Dropped(failure), None);
    }

    fn end(&mut self, crew: &Crew<K, V>, end: End, late: Option<&Failure>) {
        let Some(Going { cell, mut alarm, .. }) = self.run.take() else { return };
        alarm.end();
        // first the handler, so that its payload is back when the run ends
        quietly(|| self.handler.set(None));
        quietly(|| crew.finish(cell, end, late, false));
        crew.roster.run_ended(self.place);
    }
}

impl<K, V> Going<K, V> {
    fn is_late(&self, crew: &Crew<K, V>) -> bool {
        self.until.is_some_and(|until| crew.now().is_some_and(|now| now >= until))
    }
}
