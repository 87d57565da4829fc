//! Undone runs: when this process no longer leads, the object of a run is in the queue as before it, with its
//! failures and its attempt, and the run counts neither as a success nor as a failure.
//!
//! The queue's worker has no such end. So the run is ended here, by its key, which leaves the failures on
//! record, and the key is restored; the worker then finds the run ended. The metrics of the queue see a run
//! after which the object comes again.

use crate::{Causes, ObjectKey};
use requeue::{Clock, Gauges, Metrics, Outcome, Run, RunEnd, UnfinishedKey, WorkQueue};
use requeue_prometheus::QueueSink;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

thread_local! {
    /// This thread is putting a run back.
    static PUTS_BACK: Cell<bool> = const { Cell::new(false) };
}

/// The outcome given to the worker for a run that was put back.
#[derive(Debug, thiserror::Error)]
#[error("this process does not lead")]
pub(crate) struct PutBack;

/// Number of runs that were put back, which the worker counts as ended.
#[derive(Debug, Default)]
pub(crate) struct PutBacks {
    all: AtomicU64,
    dropped: AtomicUsize,
}

impl PutBacks {
    /// `dropped`: the reconciler had been called.
    pub(crate) fn count(&self, dropped: bool) {
        self.all.fetch_add(1, Ordering::Relaxed);
        self.dropped.fetch_add(dropped.into(), Ordering::Relaxed);
    }

    pub(crate) fn all(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }

    pub(crate) fn dropped(&self) -> usize {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Puts the object of a run back, to be handed out after this time at the earliest.
pub(crate) fn put_back(
    queue: &WorkQueue<ObjectKey, Causes>,
    clock: &impl Clock,
    run: &Run<ObjectKey, Causes>,
    causes: Option<Causes>,
    after: Option<Duration>,
) -> Outcome {
    let mut known = UnfinishedKey::new(run.key().clone());
    (known.attempt, known.priority, known.value) = (run.attempt(), run.priority(), causes);
    known.due = after.map(|after| clock.now() + after);
    let _puts_back = PutsBack::begin();
    // Both are refused only when the controller ends: then the next start lists the object.
    _ = queue.done(run.key());
    drop(queue.restore(known));
    Outcome::GiveUp(PutBack.into())
}

/// Clears the mark, even if the queue panics.
struct PutsBack;

impl PutsBack {
    fn begin() -> Self {
        PUTS_BACK.set(true);
        Self
    }
}

impl Drop for PutsBack {
    fn drop(&mut self) {
        PUTS_BACK.set(false);
    }
}

/// The sink of a controller's queue.
pub(crate) struct Sink(pub(crate) QueueSink);

impl Metrics for Sink {
    fn added(&self, keys: u64) {
        if !PUTS_BACK.get() {
            self.0.added(keys);
        }
    }
    fn coalesced(&self, triggers: u64) {
        if !PUTS_BACK.get() {
            self.0.coalesced(triggers);
        }
    }
    fn dropped(&self, keys: u64) {
        self.0.dropped(keys);
    }
    fn retried(&self) {
        self.0.retried();
    }
    fn timer_fired(&self, late: Duration) {
        self.0.timer_fired(late);
    }
    fn handed_out(&self, waited: Duration) {
        self.0.handed_out(waited);
    }
    fn run_ended(&self, took: Duration, end: RunEnd) {
        self.0.run_ended(took, if PUTS_BACK.get() { RunEnd::Again } else { end });
    }
    fn attach(
        &self,
        name: &str,
        labels: &[(String, String)],
        gauges: Arc<dyn Fn() -> Option<Gauges> + Send + Sync>,
    ) {
        self.0.attach(name, labels, gauges);
    }
}
