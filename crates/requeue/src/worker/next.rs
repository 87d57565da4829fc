//! The loop of a worker: it ends one run and takes the key of the next in one hold of the queue's lock.
//!
//! ```text
//!   threads.rs run, async_worker.rs poll_run   the handler has returned, panicked, or was dropped
//!      └─► WorkerLoop::handler_ended   only notes a success; all else, and with hooks, ends here: shared.rs settle_run
//!   WorkerLoop::next                   takes the run that succeeded out of its cell
//!      └─► look                        opens the hold. Meanwhile the worker may be told to leave (set.rs)
//!             └─► NextKey::take        ends that run (get.rs Remains::end), then takes a key: Hold::get
//! ```
//!
//! | state | from when | until when |
//! |---|---|---|
//! | `succeeded` | the handler has returned `Done`, and nothing of users' is told of the end | the next `next` |
//! | `NextKey::ending` | that `next` | the hold of its look |
//! | `NextKey::has_run` | a key was taken | the hold of the next look, or `rest_after_run`: the status shows a run, which may have ended |
//! | `NextKey::may_refuse` | a look that begins with the end of a run | the next look |
//! | `NextKey::at_once` | a key was taken in the hold in which a run ended | the next look |
//! | `idle` | a spare worker has found no key | it has one |

use super::outcome::Outcome;
use super::run::{Run, RunCell};
use super::set::{LEAVE, Rest, WorkerSet};
use super::shared::{HandlerEnd, WorkerShared};
use super::status::WorkerStatus;
use crate::cancel_run::CancelRun;
use crate::ending::done_in_drop;
use crate::failure::Failure;
use crate::get::Remains;
use crate::hold::Hold;
use crate::owner::Owner;
use crate::panics::{DropsQuietly, quietly};
use crate::sync::atomic::Ordering::Relaxed;
use crate::wait::{Sleeper, Step};
use crate::waiting::{PollResult, Poller, Waiting};
use requeue_core::{Got, Handout, Instant, RunRef};
use std::mem::take;
use std::sync::Arc;
use std::task::Waker;

/// Asks the queue for the next key, and to end the run before.
pub(super) struct NextKey<K> {
    status: Arc<WorkerStatus>,
    set: Arc<WorkerSet>,
    /// A run that has succeeded and is to be ended.
    ending: Option<RunRef<K>>,
    /// The status has a run. The queue may have ended it already.
    has_run: bool,
    /// The look has begun with the end of a run, and `looking` is not set: it takes no key if workers must leave.
    may_refuse: bool,
    /// The key was taken in the hold in which the run before it ended.
    at_once: bool,
}

impl<'q, K: 'q, V: 'q> Poller<'q, K, V> for NextKey<K> {
    type Got = Handout<K, V>;
    type Taken = Handout<K, V>;
    type Remains = Remains<K, V>;

    #[inline]
    fn take(
        &mut self,
        hold: &mut Hold<'_, K, V>,
        _: &Owner<'q, K, V>,
        remains: &mut Self::Remains,
    ) -> PollResult<Self::Taken> {
        self.at_once = self.has_run;
        if self.has_run {
            remains.end(hold, &mut self.ending, true);
            self.status.note_idle();
            self.has_run = false;
        }
        let refuses = self.may_refuse && self.set.control.load(Relaxed) & LEAVE != 0;
        match if refuses { Got::Empty } else { hold.get() } {
            Got::Item(handout) => {
                self.status.begin_run(handout.run.slot());
                self.has_run = true;
                PollResult::Keys(handout)
            }
            Got::Empty | Got::ShutDown => {
                // the run that was ended may have been the last one that a drain waited for
                hold.core.conclude();
                PollResult::Nothing
            }
        }
    }

    #[inline]
    fn got(taken: Self::Taken, _: &Owner<'q, K, V>) -> Self::Got {
        taken
    }
}

/// The state that a worker keeps from run to run, on a thread or in a task.
pub(super) struct WorkerLoop<K: 'static, V: 'static> {
    pub(super) status: Arc<WorkerStatus>,
    waiting: Waiting<'static, K, V>,
    ask: NextKey<K>,
    /// The cell of the current run. All runs use one cell, unless a handler has kept its [`Run`].
    pub(super) cell: Option<Arc<RunCell<K, V>>>,
    /// The handler has succeeded: the next look ends the run.
    succeeded: bool,
    /// Until when the worker waits for a key, if it leaves then.
    idle: Option<Instant>,
}

impl<K, V> WorkerLoop<K, V> {
    pub(super) fn new(shared: &WorkerShared<K, V>, at: usize) -> Self {
        let (status, set) = (shared.set.status(at), shared.set.clone());
        let ask = NextKey {
            status: status.clone(),
            set,
            ending: None,
            has_run: false,
            may_refuse: false,
            at_once: false,
        };
        let waiting = Waiting::new(Owner::Owned(shared.queue.clone()));
        Self { status, waiting, ask, cell: None, succeeded: false, idle: None }
    }

    /// Ends the previous run, if it succeeded, and looks for a key. `None` if the worker has left.
    #[inline]
    pub(super) fn next<'w>(
        &mut self,
        shared: &WorkerShared<K, V>,
        waker: impl Fn() -> &'w Waker,
        who: Sleeper,
    ) -> Step<Option<Run<K, V>>> {
        let mut cell = self.cell.take();
        if self.succeeded && !cell.as_ref().is_some_and(RunCell::is_unique) {
            // the handler has kept its `Run` and goes on reading the key
            self.succeeded = false;
            if let Some(cell) = cell.take() {
                quietly(|| shared.settle_run(cell, HandlerEnd::of(Ok(Outcome::Done))));
            }
        }
        let mut unique = cell.as_mut().and_then(Arc::get_mut);
        let mut last_value = None;
        if let (true, Some(cell)) = (take(&mut self.succeeded), &mut unique) {
            (self.ask.ending, last_value) = cell.take_run();
        }
        let last_value = DropsQuietly(&mut last_value);
        match self.look(&shared.set, last_value.0, waker, who) {
            Step::Ready(Some(handout)) => {
                let (run, value, began) = (self.status.run(), handout.value, shared.begins());
                let cell = match unique {
                    Some(unique) => {
                        unique.begin(handout.run, handout.attempt, run, began);
                        cell
                    }
                    None => {
                        let mut new = RunCell::new(shared.queue.clone(), self.status.clone());
                        new.begin(handout.run, handout.attempt, run, began);
                        Some(Arc::new(new))
                    }
                };
                self.cell = cell;
                let run = self.cell.clone().map(|cell| Run::new(cell, value));
                if let Some(run) = &run {
                    shared.run_starts(run);
                }
                Step::Ready(run)
            }
            Step::Ready(None) => Step::Ready(None),
            Step::Sleep(until) => {
                self.cell = cell;
                Step::Sleep(until)
            }
        }
    }

    /// Looks for a key until there is one or the worker must wait or leave. Drops the value of the run before once that has
    /// ended: before the worker leaves, so that a stop has waited for users' code.
    #[inline]
    fn look<'w>(
        &mut self,
        set: &WorkerSet,
        last_value: &mut Option<V>,
        waker: impl Fn() -> &'w Waker,
        who: Sleeper,
    ) -> Step<Option<Handout<K, V>>> {
        loop {
            self.ask.may_refuse = self.ask.has_run;
            let mut is_spare = false;
            if !self.ask.has_run {
                match set.looks(&self.status) {
                    Some(spare) => is_spare = spare,
                    None => return Step::Ready(None),
                }
            }
            let step = self.waiting.look(&mut self.ask, &waker, None, who);
            if last_value.is_some() {
                quietly(|| drop(last_value.take()));
            }
            match step {
                Step::Ready(Ok(Some(handout))) => {
                    if !self.ask.at_once {
                        set.look_ended(&self.status);
                    }
                    self.idle = None;
                    return Step::Ready(Some(handout));
                }
                Step::Ready(_) => {
                    set.leave_as_over(&self.status);
                    return Step::Ready(None);
                }
                Step::Sleep(until) => {
                    let is_idle = is_spare && set.is_idle(&mut self.idle);
                    // a stop or resize from here on wakes this thread or task
                    match set.rests(&self.status, waker(), is_spare, is_idle) {
                        Rest::Rests => {
                            let idle = self.idle.filter(|at| is_spare && !at.is_never());
                            return Step::Sleep(until.into_iter().chain(idle).min());
                        }
                        Rest::LooksAgain => {}
                        Rest::HasLeft => return Step::Ready(None),
                    }
                }
            }
        }
    }

    /// Ends a run whose handler is gone: with the next look if it succeeded, otherwise now. A run that `cancel_run` told to end
    /// has failed, whatever its handler said.
    #[inline]
    pub(super) fn handler_ended(&mut self, shared: &WorkerShared<K, V>, mut end: HandlerEnd<'_>) {
        if let Some(how) = self.status.how_cancelled(self.status.run()) {
            end.late = end.late.or(Some(&Failure::Cancelled));
            end.gives_up = how == CancelRun::GiveUp;
        }
        if end.is_success() && shared.ends_with_next_look() {
            self.succeeded = true;
        } else if let Some(cell) = self.cell.take() {
            // users' code that panics as a run ends (merge, a limiter) must not end the worker
            quietly(|| shared.settle_run(cell, end));
        }
    }

    /// Notes that the run has ended, for a worker that may not look again soon.
    pub(super) fn rest_after_run(&mut self, set: &WorkerSet) {
        self.ask.has_run = false;
        set.run_ended(&self.status);
    }

    /// Cleans up after users' code (a clock, an order) has panicked in a look.
    pub(super) fn look_failed(&mut self, shared: &WorkerShared<K, V>) {
        let Self { ask, cell, .. } = self;
        if ask.ending.is_some() {
            quietly(|| done_in_drop(&shared.queue, &mut ask.ending, true));
        }
        // a run that was taken and has no handler ends as a dropped guard does
        quietly(|| drop(cell.take()));
        // the worker leaves the waiters, which passes on a wake-up that it was given
        quietly(|| self.waiting = Waiting::new(Owner::Owned(shared.queue.clone())));
        self.succeeded = false;
        if self.ask.has_run {
            self.rest_after_run(&shared.set);
        }
        shared.set.look_ended(&self.status);
    }
}
