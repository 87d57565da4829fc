//! [`Feed`]: the way into the queue, with the priority and back-off option of each kind of trigger.

use crate::echo::{Echoes, Version};
use crate::put_back::{PutBacks, put_back};
use crate::{Cause, Causes, Config, ObjectKey};
use requeue::{Add, InBackoff, Outcome, Run, TokioClock, WorkQueue};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Priority of lists and resyncs, which go behind changes. Kubernetes uses this number too.
pub(crate) const LOW: i16 = -100;

/// One reason to reconcile one object.
#[derive(Debug)]
pub(crate) struct Trigger {
    pub(crate) key: ObjectKey,
    pub(crate) cause: Cause,
    /// Version of the object, if this is a watch event of the object.
    pub(crate) version: Option<Version>,
    /// The object was unknown before.
    pub(crate) is_new: bool,
    /// The trigger is a related object that the object owns.
    pub(crate) is_owned: bool,
}

impl Trigger {
    pub(crate) fn new(key: ObjectKey, cause: Cause) -> Self {
        Self { key, cause, version: None, is_new: false, is_owned: false }
    }

    pub(crate) fn by(self, version: Option<Version>) -> Self {
        Self { version, ..self }
    }
}

/// Puts triggers into the queue of a controller.
#[derive(Clone)]
pub(crate) struct Feed {
    queue: WorkQueue<ObjectKey, Causes>,
    clock: TokioClock,
    echoes: Arc<Echoes>,
    failures: Arc<LastFailures>,
    given_up: Arc<Mutex<HashSet<ObjectKey>>>,
    put_backs: Arc<PutBacks>,
    on_change: InBackoff,
    on_status: InBackoff,
    on_owned: InBackoff,
    on_watched: InBackoff,
    managed_fields: bool,
}

impl Feed {
    pub(crate) fn new(
        queue: WorkQueue<ObjectKey, Causes>,
        clock: TokioClock,
        echoes: Arc<Echoes>,
        config: &Config,
    ) -> Self {
        let Config { on_change, on_status, on_owned, on_watched, managed_fields, .. } = *config;
        Self {
            queue,
            clock,
            echoes,
            failures: Arc::default(),
            given_up: Arc::default(),
            put_backs: Arc::default(),
            on_change,
            on_status,
            on_owned,
            on_watched,
            managed_fields,
        }
    }

    /// Objects whose last run gave up. The queue does not know them, because they wait for no timer. But a
    /// change of their status must not run them, or an object that gives up and writes its status would run
    /// by its own echo.
    fn given_up(&self) -> MutexGuard<'_, HashSet<ObjectKey>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the current run of this object gives up.
    pub(crate) fn gives_up(&self, key: &ObjectKey) {
        self.given_up().insert(key.clone());
    }

    /// Triggers the object, unless the event is the echo of its own run.
    pub(crate) fn trigger(&self, trigger: Trigger) {
        if let Some(trigger) = self.echoes.pass(trigger) {
            self.add(trigger);
        }
    }

    /// Triggers the object because this process leads again.
    pub(crate) fn sweep(&self, key: ObjectKey) {
        self.trigger(Trigger::new(key, Cause::Listed));
    }

    /// Undoes a run: the object waits as before it, and is handed out after this time at the earliest.
    /// Without a time, its reconciler had been called.
    pub(crate) fn put_back(
        &self,
        run: &Run<ObjectKey, Causes>,
        causes: Option<Causes>,
        after: Option<Duration>,
    ) -> Outcome {
        self.put_backs.count(after.is_none());
        put_back(&self.queue, &self.clock, run, causes, after)
    }

    pub(crate) fn put_backs(&self) -> &PutBacks {
        &self.put_backs
    }

    fn add(&self, Trigger { key, cause, is_owned, .. }: Trigger) {
        let (priority, in_backoff) = match cause {
            Cause::Listed => (LOW, InBackoff::Respect),
            Cause::Swept { .. } => (LOW, self.on_watched),
            Cause::Changed | Cause::Asked => (0, self.on_change),
            Cause::Related { .. } if is_owned => (0, self.on_owned),
            Cause::Related { .. } => (0, self.on_watched),
            Cause::StatusChanged | Cause::Requeued | Cause::Retry { .. } => (0, self.on_status),
        };
        let is_status = matches!(cause, Cause::StatusChanged);
        if is_status && in_backoff == InBackoff::Respect && self.given_up().contains(&key) {
            return;
        }
        let how = Add::now().priority(priority).in_backoff(in_backoff).value(Causes::of(cause));
        // Refused only when the controller ends: then no run is to come.
        drop(self.queue.add_with(key, how));
    }

    /// Removes a deleted object: it no longer runs, and all its state is forgotten.
    pub(crate) fn gone(&self, key: &ObjectKey) {
        self.echoes.gone(key);
        self.queue.cancel(key);
        self.queue.forget(key);
        self.failures.set(key, None);
        self.given_up().remove(key);
    }

    /// Keeps the triggers of this key until the guard is dropped.
    pub(crate) fn run_begins(&self, key: &ObjectKey) -> DuringRun<'_> {
        self.echoes.begin(key);
        self.given_up().remove(key);
        DuringRun { feed: self, key: key.clone() }
    }

    /// Whether objects keep their [`Config::managed_fields`].
    pub(crate) fn managed_fields(&self) -> bool {
        self.managed_fields
    }

    pub(crate) fn failures(&self) -> &Arc<LastFailures> {
        &self.failures
    }

    pub(crate) fn echoes(&self) -> &Arc<Echoes> {
        &self.echoes
    }
}

/// A current run. When it ends, even by a panic, its time limit or a drop, the triggers that came meanwhile
/// go to the queue while the key is still held there: so it runs once more.
pub(crate) struct DuringRun<'f> {
    feed: &'f Feed,
    key: ObjectKey,
}

impl Drop for DuringRun<'_> {
    fn drop(&mut self) {
        for trigger in self.feed.echoes.end(&self.key) {
            self.feed.add(trigger);
        }
    }
}

/// Message of the last run of each failing object.
#[derive(Default)]
pub(crate) struct LastFailures(Mutex<HashMap<ObjectKey, Box<str>>>);

impl LastFailures {
    /// Sets the result of the last run; `None` is success.
    pub(crate) fn set(&self, key: &ObjectKey, failure: Option<String>) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match failure {
            Some(failure) => drop(failures.insert(key.clone(), failure.into())),
            None => drop(failures.remove(key)),
        }
    }

    pub(crate) fn of(&self, key: &ObjectKey) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).map(ToString::to_string)
    }
}
