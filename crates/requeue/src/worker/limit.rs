//! Time limits of blocking handlers. One thread watches them; the first run starts it.

use super::rules::{Hook, Rules, report};
use super::run::RunCell;
use super::shared::AFTER_PANIC;
use crate::clock::{Clock, Parker};
use crate::failure::Failure;
use crate::panics::{quietly, wake_each};
use crate::sync::Mutex;
use requeue_core::Instant;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

struct State<K: 'static, V: 'static> {
    /// Runs, ordered by the end of their limits.
    runs: VecDeque<Watched<K, V>>,
    /// Wakes the watching thread, once it has started.
    waker: Option<Waker>,
    started: bool,
    ended: bool,
}

/// A run that is watched until it is past its limit or has returned.
struct Watched<K: 'static, V: 'static> {
    until: Instant,
    /// Upgraded only for a report, and dropped without a lock: it may be the
    /// last that holds key and value.
    cell: Weak<RunCell<K, V>>,
}

impl<K, V> Watched<K, V> {
    fn has_returned(&self) -> bool {
        self.cell.upgrade().is_none_or(|cell| cell.has_returned())
    }
}

/// Watches the runs of one worker.
pub(super) struct Limits<K: 'static, V: 'static> {
    limit: Duration,
    clock: Arc<dyn Clock>,
    on_failure: Vec<Hook<K>>,
    state: Mutex<State<K, V>>,
}

impl<K: Send + Sync + 'static, V: Send + 'static> Limits<K, V> {
    pub(super) fn new(limit: Duration, clock: Arc<dyn Clock>, rules: &Rules<K, V>) -> Self {
        let state = State { runs: VecDeque::new(), waker: None, started: false, ended: false };
        Self { limit, clock, on_failure: rules.on_failure.clone(), state: Mutex::new(state) }
    }

    /// Watches a run that begins, unless its limit never comes. If the watching thread cannot be started, the next run tries
    /// again; the limit is checked after the handler's return anyway.
    pub(super) fn watch(self: &Arc<Self>, began: Instant, cell: &Arc<RunCell<K, V>>) {
        let until = began + self.limit;
        if until.is_never() {
            return;
        }
        let mut state = self.state.lock();
        state.ended = false;
        // runs that have returned leave from the front, so that the list is about as long as the number of threads
        while state.runs.front().is_some_and(Watched::has_returned) {
            state.runs.pop_front();
        }
        let idle = state.runs.front().is_none_or(|first| until < first.until);
        let cell = Arc::downgrade(cell);
        // at the end, unless the clock went backwards
        let place = state.runs.iter().rposition(|run| run.until <= until).map_or(0, |before| before + 1);
        state.runs.insert(place, Watched { until, cell });
        if !state.started {
            let this = self.clone();
            let thread = std::thread::Builder::new().name("requeue-limits".to_string());
            state.started = thread.spawn(move || this.run()).is_ok();
            return;
        }
        let waker = if idle { state.waker.clone() } else { None };
        drop(state);
        wake_each(waker);
    }

    /// Whether a run that began then is past its limit at `now`.
    pub(super) fn is_over(&self, began: Instant, now: Instant) -> bool {
        now >= began + self.limit
    }

    pub(super) fn failure(&self) -> Failure {
        Failure::TimeLimit(self.limit)
    }

    /// Ends the watching, because the last thread has left. A resize may have started others since: the watching goes on while
    /// a run of theirs does.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let waker = state.waker.clone();
        drop(state);
        wake_each(waker);
    }

    fn run(&self) {
        let parker = Parker::current();
        loop {
            // users' code that panics (a clock) must not end the watching
            match quietly(|| self.look(&parker)) {
                Some(true) => return,
                Some(false) => {}
                None => std::thread::sleep(AFTER_PANIC),
            }
        }
    }

    /// Reports the runs that are past their limits, and sleeps until the next may be. `true` if there is nothing to watch any
    /// more.
    fn look(&self, parker: &Parker) -> bool {
        let now = self.clock.now();
        let mut over = Vec::new();
        let mut state = self.state.lock();
        if state.ended {
            state.runs.retain(|run| !run.has_returned());
            if state.runs.is_empty() {
                // the next run starts another one
                state.started = false;
                state.waker = None;
                return true;
            }
        }
        state.waker.get_or_insert_with(|| parker.waker().clone());
        while state.runs.front().is_some_and(|run| run.until <= now || run.has_returned()) {
            over.extend(state.runs.pop_front());
        }
        let next = state.runs.front().map(|run| run.until);
        drop(state);
        for run in over {
            let Some(cell) = run.cell.upgrade() else { continue };
            if cell.overrun() {
                report(&self.on_failure, cell.guard.key(), &self.failure());
            }
            // it may be the last that has the key, whose drop is users' code
            quietly(|| drop(cell));
        }
        match next {
            Some(at) => self.clock.park_until(at, parker),
            None => parker.park(),
        }
        false
    }
}

#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/limit.rs"]
mod tests;
