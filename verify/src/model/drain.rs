//! Closing, shutting down and draining (Q10, Q11, Q14, D9).

use super::unfinished::List;
use super::{Kind, Model, Nanos, Phase};
use std::collections::BTreeMap;

/// One call of `drain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrainId(u64);

/// Effect of a drain on waiting keys (D9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiters {
    /// Drops them.
    #[default]
    Drop,
    /// Makes them ready now.
    RunNow,
    /// Waits for them.
    Wait,
    /// "A drain with a deadline works off keys that wait out a failure until the deadline", and drops the others.
    Retries,
}

/// Result of `shut_down`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Down {
    /// Ready keys.
    pub ready: usize,
    /// Held keys.
    pub held: usize,
    /// Waiting keys that were dropped.
    pub dropped: usize,
    /// Triggers from outside that were refused so far.
    pub refused: usize,
    /// Retries of holders that were refused so far.
    pub refused_retries: usize,
}

/// Result of a drain: "what was done since it began, what it dropped, which outside triggers and (apart)
/// which holders' retries it refused since, and what is ready, held and waiting as it returns" (Q11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Nothing was left, and no key is unfinished.
    pub complete: bool,
    /// Keys in the list.
    pub unfinished: usize,
    /// Runs that ended.
    pub done: usize,
    /// Waiting keys that were dropped.
    pub dropped: usize,
    /// Triggers from outside that were refused.
    pub refused: usize,
    /// Retries of holders that were refused.
    pub refused_retries: usize,
    /// Ready as it returns.
    pub ready: usize,
    /// Held as it returns.
    pub held: usize,
    /// Waiting as it returns.
    pub waiting: usize,
}

#[derive(Clone, Debug)]
struct Drain {
    deadline: Option<Nanos>,
    answer: Drained,
    /// Triggers and retries that had been refused when it began.
    refused_before: (usize, usize),
    over: bool,
}

/// The drains that were begun.
#[derive(Clone, Debug, Default)]
pub(super) struct Drains {
    all: BTreeMap<DrainId, Drain>,
}

impl Drains {
    fn under_way(&mut self) -> impl Iterator<Item = &mut Drain> {
        self.all.values_mut().filter(|drain| !drain.over)
    }
    pub(super) fn run_ended(&mut self) {
        self.under_way().for_each(|drain| drain.answer.done += 1);
    }
    fn dropped(&mut self, keys: usize) {
        self.under_way().for_each(|drain| drain.answer.dropped += keys);
    }
}

impl Model {
    /// `close`: "refuses triggers from outside and still takes those that a
    /// holder makes for the key that it holds" (Q14).
    pub fn close(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closed;
        }
    }

    /// `shutting_down`: "true from the close".
    #[must_use]
    pub fn shutting_down(&self) -> bool {
        self.phase != Phase::Open
    }

    /// `shut_down`: "drops the timers and releases them all" (Q11).
    pub fn shut_down(&mut self) -> Down {
        self.lift_pauses();
        let dropped = self.drop_timers();
        self.phase = Phase::ShutDown;
        (self.drain_waits, self.only_retries) = (None, false);
        let left = self.counts();
        let answers: Vec<DrainId> = self.drains.all.keys().copied().collect();
        for id in answers {
            self.end_drain(id);
        }
        Down {
            ready: left.ready,
            held: left.held,
            dropped,
            refused: self.refused,
            refused_retries: self.refused_retries,
        }
    }

    fn drop_timers(&mut self) -> usize {
        self.drop_timers_but(|_| false)
    }

    /// Drops all timers but those that are kept.
    fn drop_timers_but(&mut self, kept: impl Fn(&super::Timer) -> bool) -> usize {
        let (mut timers, windows): (Vec<_>, Vec<_>) =
            self.timers().into_iter().partition(|(.., kind)| *kind == Kind::Timer);
        timers.retain(|(_, _, key, _)| self.keys[key].timer.as_ref().is_some_and(|timer| !kept(timer)));
        for (_, _, key, _) in &timers {
            self.drop_timer(*key);
        }
        // "An open debounce window is no timer: it closes and its key becomes ready" (D9)
        for (_, _, key, _) in windows {
            self.end_window(key);
        }
        self.drains.dropped(timers.len());
        timers.len()
    }

    /// Begins a drain. "The latest decides about waiting keys".
    pub fn drain(&mut self, waiters: Waiters, deadline: Option<Nanos>) -> DrainId {
        let id = DrainId(self.drains.all.len() as u64);
        let deadline = deadline.map(|limit| self.now.saturating_add(limit));
        self.lift_pauses();
        let refused_before = (self.refused, self.refused_retries);
        let drain = Drain { deadline, answer: Drained::default(), refused_before, over: false };
        self.drains.all.insert(id, drain);
        // "The queue's phases only move forward: a drain that waits, called on a queue
        // that is shut down, waits for what is left and takes no retries" (Q14).
        let asked = match waiters {
            Waiters::Wait => true,
            Waiters::Retries => deadline.is_some_and(|deadline| deadline < Nanos::MAX),
            Waiters::Drop | Waiters::RunNow => false,
        };
        let waits = asked && self.phase != Phase::ShutDown;
        self.drain_waits = waits.then(|| deadline.unwrap_or(Nanos::MAX));
        self.only_retries = waits && waiters == Waiters::Retries;
        // "it accounts for every key"
        self.list.get_or_insert_with(List::default);
        match waiters {
            Waiters::Retries if waits => {
                self.drop_timers_but(|timer| timer.back_off);
                self.phase = Phase::Closed;
            }
            Waiters::Drop | Waiters::Retries => {
                self.drop_timers();
                self.phase = Phase::ShutDown;
            }
            Waiters::RunNow => {
                while let Some((_, _, key, kind)) = self.timers().first().copied() {
                    self.fire(key, kind);
                }
                self.phase = Phase::ShutDown;
            }
            Waiters::Wait if waits => self.phase = Phase::Closed,
            Waiters::Wait => {}
        }
        self.drains_may_end();
        id
    }

    /// Result of a drain; `None` while it waits.
    #[must_use]
    pub fn drained(&self, id: DrainId) -> Option<Drained> {
        let drain = &self.drains.all[&id];
        drain.over.then_some(drain.answer)
    }

    /// "Complete when nothing is ready, dirty or held"; one that waits for
    /// waiting keys, when nothing is waiting either.
    pub(super) fn drains_may_end(&mut self) {
        // "Shuts down when nothing is ready, dirty, held or waiting, or at its
        // deadline" (Q14); of several drains that wait, the latest decides.
        if self.drain_waits.is_some_and(|deadline| deadline <= self.now) {
            (self.drain_waits, self.only_retries) = (None, false);
            self.phase = Phase::ShutDown;
            self.drop_timers();
        }
        let left = self.counts();
        // "a window of a debounce that owes no run is not waited for"
        let waiting = self
            .keys
            .values()
            .any(|entry| entry.timer.is_some() || entry.window.as_ref().is_some_and(|window| window.owes));
        let idle = left.ready == 0 && left.held == 0 && (self.drain_waits.is_none() || !waiting);
        if idle && self.drain_waits.is_some() {
            (self.drain_waits, self.only_retries) = (None, false);
            self.phase = Phase::ShutDown;
            self.drop_timers();
        }
        let now = self.now;
        let ids: Vec<DrainId> =
            self.drains.all.iter().filter(|(_, drain)| !drain.over).map(|(id, _)| *id).collect();
        for id in ids {
            let passed = self.drains.all[&id].deadline.is_some_and(|deadline| deadline <= now);
            if idle || passed {
                self.end_drain(id);
            }
        }
    }

    fn end_drain(&mut self, id: DrainId) {
        let left = self.counts();
        let refused = (self.refused, self.refused_retries);
        let drain = self.drains.all.get_mut(&id).expect("it was begun");
        if drain.over {
            return;
        }
        drain.over = true;
        drain.answer.refused = refused.0 - drain.refused_before.0;
        drain.answer.refused_retries = refused.1 - drain.refused_before.1;
        drain.answer.ready = left.ready;
        drain.answer.held = left.held;
        drain.answer.waiting = left.waiting;
        let nothing = left.ready == 0 && left.held == 0 && left.waiting == 0;
        let list = self.list.as_ref().expect("a drain has begun");
        drain.answer.unfinished = list.len();
        // "`complete` is true only if that list is empty and nothing is left"
        drain.answer.complete = nothing && !list.had_any();
    }
}
