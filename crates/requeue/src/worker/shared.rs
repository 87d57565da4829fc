//! The end of a run, on a thread or in a task: the effect on the key, the calls of hooks, and the value that goes back.
//!
//! | the handler's outcome | `Decision` | the machine's `How` | `RunEnd`, for metrics | `Fate`, for `on_end` |
//! |---|---|---|---|---|
//! | `Done` | `Succeed` | `Succeed` | `Done` | `Done` |
//! | `Again` | `Again` | `Again` | `Again` | `Again` |
//! | `Postpone` | `Postpone` | `Again`, with the value | `Again` | `Again` |
//! | `Retry`, a panic, dropped | `Retry(None)` | `Retry` | `Retry` | `Retry` |
//! | `RetryAfter` | `Retry(Some)` | `Retry` | `Retry` | `Retry` |
//! | `GiveUp`, or the last attempt failed | `GiveUp` | `GiveUp` | `GiveUp` | `GaveUp` |
//!
//! A run that is past its time limit or was cancelled has failed, whatever its outcome. A queue that is shut down refuses
//! `Again`, `Postpone` and `Retry`: the run then ends as `How::Done`, and its fate is `Refused`. `How::Done` forgets no failures
//! and is otherwise the end of `Item::done` and of dropped guards; no outcome of a handler is that.

use super::outcome::{Fate, Outcome, RunReport};
use super::rules::{Rules, report};
use super::run::{Run, RunCell};
use super::set::WorkerSet;
use crate::ending::{Ending, RetryProgress};
use crate::failure::Failure;
use crate::hold::Shared;
use crate::panics::{DropsQuietly, FirstPanic, quietly};
use requeue_core::Instant;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How long a worker waits, by the system's clock, after users' code panicked as
/// it took a key: it may do so again at once, and that must not become a busy loop.
pub(super) const AFTER_PANIC: Duration = Duration::from_millis(10);

/// The part that all workers of a [`Worker`](super::Worker) share, on threads and in tasks.
pub(super) struct WorkerShared<K: 'static, V: 'static> {
    pub(super) queue: Arc<Shared<K, V>>,
    pub(super) set: Arc<WorkerSet>,
    pub(super) rules: Rules<K, V>,
}

/// How a handler ended.
pub(super) struct HandlerEnd<'a> {
    /// Its outcome, or why it has none: it panicked, or was dropped before it returned.
    pub(super) said: Result<Outcome, Failure>,
    /// The run has failed, whatever the outcome: it is past its time limit, or was cancelled.
    pub(super) late: Option<&'a Failure>,
    /// The hook was told of `late` already.
    pub(super) reported: bool,
    /// A failure is the last.
    pub(super) gives_up: bool,
}

impl HandlerEnd<'_> {
    pub(super) fn of(said: Result<Outcome, Failure>) -> Self {
        Self { said, late: None, reported: false, gives_up: false }
    }

    pub(super) fn is_success(&self) -> bool {
        matches!(self.said, Ok(Outcome::Done)) && self.late.is_none()
    }
}

/// How a run is to end.
#[derive(Clone, Copy)]
enum Decision {
    /// Forgotten and done.
    Succeed,
    /// A failure that is not tried again: forgotten and done.
    GiveUp,
    /// Without the value.
    Again(Duration),
    /// With the value.
    Postpone(Duration),
    /// A failure. The limiter counts it and says when the key comes back, unless a delay is given in place of its own.
    Retry(Option<Duration>),
}

impl<K, V> WorkerShared<K, V> {
    /// The time; `None` where the clock, which may be users' code, panics: a run that
    /// begins or ends then is not lost for that, it has no time limit.
    pub(super) fn now(&self) -> Option<Instant> {
        quietly(|| self.queue.now())
    }

    /// When a run begins, where anything depends on it.
    pub(super) fn begins(&self) -> Option<Instant> {
        let wants_time = self.rules.time_limit.is_some() || !self.rules.on_end.is_empty();
        wants_time.then(|| self.now()).flatten()
    }

    /// Calls the hooks for a run that starts. A panic in one ends nothing else.
    #[inline]
    pub(super) fn run_starts(&self, run: &Run<K, V>) {
        for hook in &self.rules.on_start {
            quietly(|| hook(run));
        }
    }

    /// Whether a run that has succeeded can be ended with the look for the next key: nothing of users' is told of its end.
    #[inline]
    pub(super) fn ends_with_next_look(&self) -> bool {
        self.rules.on_end.is_empty() && !self.queue.keeps_own()
    }

    /// Ends a run whose handler is gone.
    pub(super) fn settle_run(&self, cell: Arc<RunCell<K, V>>, end: HandlerEnd<'_>) {
        let mut returned = cell.returned_value.lock().take();
        let value = DropsQuietly(&mut returned);
        let late = end.late;
        let (decision, said) = self.decide(cell.guard.key(), end, cell.attempt);
        cell.status.begin_ending();
        match (Arc::try_unwrap(cell), self.rules.on_end.is_empty()) {
            (Ok(mut cell), true) => {
                self.apply_decision(cell.guard.ending().1, decision, value.0);
            }
            // the handler kept its run, or hooks are told of it: both go on reading the key
            (Ok(cell), false) => self.end_keeping(&cell, decision, value.0, late.or(said.as_ref())),
            (Err(cell), _) => self.end_keeping(&cell, decision, value.0, late.or(said.as_ref())),
        }
        quietly(|| drop(said));
    }

    /// Ends a run whose key somebody reads after the end, and tells the hooks.
    fn end_keeping(
        &self,
        cell: &RunCell<K, V>,
        decision: Decision,
        value: &mut Option<V>,
        failure: Option<&Failure>,
    ) {
        let Some(ending) = cell.guard.keeping() else { return };
        // before the end, which may take the clock further than the run went
        let ended = (!self.rules.on_end.is_empty()).then(|| self.now()).flatten();
        let took =
            cell.began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended.saturating_since(began));
        // whatever of users' code panics meanwhile, the hooks are told of the end
        let mut panic = FirstPanic::default();
        let fate = panic.catch(|| self.apply_decision(ending, decision, value)).unwrap_or(match decision {
            Decision::GiveUp => Fate::GaveUp,
            _ => Fate::Done,
        });
        let report = RunReport { attempt: cell.attempt, failure, fate, took };
        for hook in &self.rules.on_end {
            quietly(|| hook(cell.guard.key(), &report));
        }
        panic.resume();
    }

    /// Decides what becomes of the key, and reports failures. Also the failure that the handler itself told of.
    fn decide(&self, key: &K, end: HandlerEnd<'_>, attempt: u32) -> (Decision, Option<Failure>) {
        let HandlerEnd { said, late, reported, gives_up } = end;
        let (mut last, mut instead) = (gives_up, None);
        let said = match said {
            Ok(Outcome::Done) if late.is_none() => return (Decision::Succeed, None),
            Ok(Outcome::Again(delay)) if late.is_none() => return (Decision::Again(delay), None),
            Ok(Outcome::Postpone(delay)) if late.is_none() => return (Decision::Postpone(delay), None),
            Ok(Outcome::Done | Outcome::Again(_) | Outcome::Postpone(_)) => None,
            Ok(Outcome::Retry(error)) => Some(Failure::Error(error)),
            Ok(Outcome::RetryAfter(delay, error)) => {
                instead = late.is_none().then_some(delay);
                Some(Failure::Error(error))
            }
            Ok(Outcome::GiveUp(error)) => {
                last |= late.is_none();
                Some(Failure::Error(error))
            }
            Err(failure) => Some(failure),
        };
        if let Some(failure) = late.or(said.as_ref()) {
            if !reported {
                report(&self.rules.on_failure, key, failure);
            }
            last |= self.rules.max_attempts > 0 && attempt >= self.rules.max_attempts;
            if last {
                report(&self.rules.on_give_up, key, failure);
                self.queue.tell_journal(|journal| journal.gives_up(key, failure));
            }
        }
        (if last { Decision::GiveUp } else { Decision::Retry(instead) }, said)
    }

    fn apply_decision(&self, mut ending: Ending<'_, K>, decision: Decision, value: &mut Option<V>) -> Fate {
        let queue = &*self.queue;
        let fate = match decision {
            Decision::Succeed => {
                ending.succeed(queue);
                return Fate::Done;
            }
            Decision::GiveUp => {
                ending.give_up(queue);
                return Fate::GaveUp;
            }
            Decision::Again(delay) | Decision::Postpone(delay) => {
                let mut dropped = None;
                let is_postponed = matches!(decision, Decision::Postpone(_));
                let goes_back = if is_postponed { &mut *value } else { &mut dropped };
                match ending.again(queue, delay, goes_back) {
                    Ok(()) => Fate::Again(delay),
                    Err(_) => Fate::Refused,
                }
            }
            Decision::Retry(instead) => self.retry(&mut ending, instead, value),
        };
        if fate == Fate::Refused {
            // shut down, and counted as refused
            ending.end_refused(queue, None, value);
            queue.tell_unfinished(true);
        }
        fate
    }

    /// Ends the run with a retry, whatever of users' code panics meanwhile.
    fn retry(&self, ending: &mut Ending<'_, K>, instead: Option<Duration>, value: &mut Option<V>) -> Fate {
        let (queue, progress) = (&*self.queue, RetryProgress::default());
        let panic = match catch_unwind(AssertUnwindSafe(|| ending.retry(queue, instead, value, &progress))) {
            Ok(Ok(delay)) => return Fate::Retry(delay),
            Ok(Err(_)) => return Fate::Refused,
            Err(panic) => text_of(panic),
        };
        if ending.has_ended(queue) {
            // merge has panicked, and the key comes back all the same
            return Fate::Retry(instead.or(progress.limiter_said.get()).unwrap_or_default());
        }
        // the time of the retry is unknown: the key is given up, not lost silently
        let who = if progress.reading.get().is_some() { "limiter" } else { "clock" };
        let failure = Failure::Error(format!("the {who} panicked: {panic}").into());
        if let Some(key) = ending.key() {
            report(&self.rules.on_give_up, key, &failure);
        }
        quietly(|| ending.give_up(queue));
        // a limiter that cannot forget either
        if !ending.has_ended(queue) {
            ending.end_refused(queue, None, &mut None);
        }
        Fate::GaveUp
    }
}

/// Calls a handler.
#[inline]
pub(super) fn call<T>(handler: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(handler)).map_err(|panic| Failure::Panic(text_of(panic)))
}

/// The text of a panic.
fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_string()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "something that is not text".to_string()
    };
    // a panic's payload may panic when it is dropped
    quietly(|| drop(panic));
    text
}
