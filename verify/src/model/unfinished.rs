//! The list of keys that drains leave unfinished (Q11).

use super::{Model, Nanos, Phase, Refused, Run};
use std::collections::BTreeMap;

/// A key of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The key.
    pub key: u64,
    /// The value that its next run would have got.
    pub value: Option<Vec<u32>>,
    /// The limiter's record.
    pub failures: u32,
    /// The attempt that its next run would have been.
    pub attempt: u32,
    /// Instant when it would have been due, if known.
    pub due: Option<Nanos>,
    /// The priority of its next run.
    pub priority: i16,
    /// Its retry was refused; else its timer was dropped.
    pub refused: bool,
}

/// The state of an unfinished key that its entry in the queue does not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    due: Option<Nanos>,
    attempt: u32,
    priority: i16,
    refused: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct List {
    keys: BTreeMap<u64, Left>,
    all: usize,
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
    pub(super) fn had_any(&self) -> bool {
        self.all > 0
    }
    /// "The list": each key once.
    fn enter(&mut self, key: u64, left: Left) {
        self.all += 1;
        self.keys
            .entry(key)
            .and_modify(|before| {
                let (refused, attempt) =
                    if before.refused { (true, before.attempt) } else { (left.refused, left.attempt) };
                *before = Left {
                    due: before.due.min(left.due),
                    priority: before.priority.max(left.priority),
                    attempt,
                    refused,
                };
            })
            .or_insert(left);
    }
}

impl Model {
    pub(super) fn is_listed(&self, key: u64) -> bool {
        self.list.as_ref().is_some_and(|list| list.keys.contains_key(&key))
    }

    /// Takes a key out of the list; whether it was there.
    pub(super) fn unlist(&mut self, key: u64) -> bool {
        self.list.as_mut().is_some_and(|list| list.keys.remove(&key).is_some())
    }

    /// "Whose timer is dropped": it is in the list, once a drain has begun.
    pub(super) fn drop_timer(&mut self, key: u64) {
        let entry = self.keys.get_mut(&key).expect("a timer belongs to a key");
        let timer = entry.timer.take().expect("it has a timer");
        let next = timer.by_outcome && entry.run.is_none() && !entry.ready;
        let attempt = if next { entry.failed + 1 } else { 1 };
        // "a run that starts absorbs the timers that were set before it started" (D6): one that is to come has this one
        let runs = entry.ready || entry.dirty || entry.window.as_ref().is_some_and(|window| window.owes);
        if let Some(list) = self.list.as_mut().filter(|_| !(runs && self.options.absorbed)) {
            let left = Left { due: Some(timer.due), attempt, priority: timer.priority, refused: false };
            list.enter(key, left);
        }
        self.tidy(key);
    }

    /// Refuses a holder's request for another run of its key `after` that time. "Whose run failed and whose
    /// retry is refused": the end of the run decides.
    pub(super) fn refuse(&mut self, run: &Run, failed: bool, after: Option<Nanos>) -> Refused {
        self.refused_retries += 1;
        let due = after.filter(|after| *after > 0).map(|after| self.now.saturating_add(after));
        let attempt = if failed { run.attempt + 1 } else { 1 };
        let entry = self.keys.get_mut(&run.key).expect("it is held");
        entry.refused = Some(Left { due, attempt, priority: run.priority, refused: failed });
        Refused::Over
    }

    /// After a run: if its request was refused, and no run is to come, its key is unfinished. The value of a
    /// failed run goes back to the key, for the list or for the next run.
    pub(super) fn may_be_unfinished(&mut self, run: &Run) {
        let entry = self.keys.get_mut(&run.key).expect("it is held");
        let Some(left) = entry.refused.take() else { return };
        let comes = entry.dirty;
        if !comes && self.list.is_none() {
            return;
        }
        if let Some(mut old) = run.value.clone().filter(|_| left.refused) {
            old.extend(entry.slot.take().unwrap_or_default());
            entry.slot = Some(old);
        }
        if let (false, Some(list)) = (comes, &mut self.list) {
            list.enter(run.key, left);
        }
    }

    /// Whether an `again` after that time is refused by a drain that works off failed keys only.
    pub(super) fn refuses_again(&self, delay: Nanos) -> bool {
        self.phase == Phase::ShutDown || self.only_retries && delay > 0
    }

    /// Takes the list, but for keys that are ready or held, and those that are `lent`.
    pub fn take_unfinished(&mut self, counts: bool, lent: impl Fn(u64) -> bool) -> Vec<Unfinished> {
        let Some(list) = &self.list else { return Vec::new() };
        let stays = |key: &u64| {
            let entry = self.keys.get(key);
            lent(*key) || entry.is_some_and(|e| e.ready || e.run.is_some() || e.paused || e.due().is_some())
        };
        let keys: Vec<(u64, Left)> =
            list.keys.iter().map(|(key, left)| (*key, *left)).filter(|(key, _)| !stays(key)).collect();
        let take = |(key, left): (u64, Left)| {
            let Left { due, attempt, priority, refused } = left;
            self.unlist(key);
            let value = self.keys.get_mut(&key).and_then(|entry| entry.slot.take());
            self.tidy(key);
            let failures = if counts { self.num_requeues(key) } else { 0 };
            if counts {
                self.forget(key);
            }
            Unfinished { key, value, failures, attempt, due, priority, refused }
        };
        keys.into_iter().map(take).collect()
    }
}
