//! The status of one worker: whether it looks for a key, its current run, and the number of its runs.
//!
//! The worker writes its runs in the hold of the queue's lock in which it takes a key or ends a run. So a run takes no lock but
//! the queue's, and a reader with that lock sees all workers at one moment. Metrics read without the lock, and may be one run late.
//!
//! `looking` is written outside of those holds, because a look begins before its hold. [`set`](super::set) explains how a call
//! that stops the worker sees it.

use crate::cancel_run::CancelRun;
use crate::sync::{Mutex, atomic};
use atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use atomic::{AtomicBool, AtomicU64, fence};
use std::task::Waker;

/// No run: no arena has this many keys.
const IDLE: u64 = u64::MAX;
/// A run whose handler has returned. The queue ends it in a hold of its own, and the worker notes that in a later one: between
/// the two the number of its key may be another key's already.
const ENDING: u64 = u64::MAX - 1;

/// The state of one worker. On cache lines of its own, because the worker writes it twice a run.
#[repr(align(128))]
pub(super) struct WorkerStatus {
    /// The number of the worker, from 0.
    pub(super) at: usize,
    /// The number of its latest run, from 1.
    runs: AtomicU64,
    /// The number that the queue has given to the key of its run, [`ENDING`], or [`IDLE`].
    key: AtomicU64,
    /// The latest run that was told to end.
    told: AtomicU64,
    /// Twice the number of the latest run that `cancel_run` told to end, and one more if its key is to be given up.
    asked: AtomicU64,
    /// Number of its runs that were told to end and have ended.
    cancelled_runs: AtomicU64,
    /// It looks for a key at this moment, and may have got one.
    looking: AtomicBool,
    /// Wakes it while it waits for a key.
    waker: Mutex<Option<Waker>>,
}

/// Numbers of a worker's runs.
#[derive(Default)]
pub(super) struct RunCounts {
    /// Runs that ended by themselves.
    pub(super) done: u64,
    /// Runs that were told to end, whether they have ended or not.
    pub(super) cancelled: u64,
    pub(super) running: u64,
}

impl WorkerStatus {
    pub(super) fn new(at: usize) -> Self {
        Self {
            at,
            runs: AtomicU64::new(0),
            key: AtomicU64::new(IDLE),
            told: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            cancelled_runs: AtomicU64::new(0),
            looking: AtomicBool::new(false),
            waker: Mutex::new(None),
        }
    }

    /// Notes that the worker takes this key. In a hold of the queue's lock.
    #[inline]
    pub(super) fn begin_run(&self, key: u32) {
        self.runs.store(self.runs.load(Relaxed) + 1, Relaxed);
        self.key.store(u64::from(key), Relaxed);
    }

    /// Notes that the run is about to end: it can't be cancelled any more.
    pub(super) fn begin_ending(&self) {
        self.key.store(ENDING, Relaxed);
    }

    /// Notes that the worker's run, if any, has ended. In a hold of the queue's lock.
    #[inline]
    pub(super) fn note_idle(&self) {
        if self.is_told() {
            self.cancelled_runs.store(self.cancelled_runs.load(Relaxed) + 1, Relaxed);
        }
        self.key.store(IDLE, Relaxed);
    }

    /// Tells the run to end. `false` if there is none, or it was told before. In a hold of the queue's lock.
    pub(super) fn tell_to_end(&self) -> bool {
        let tells = self.has_run() && !self.is_told();
        if tells {
            self.told.store(self.run(), Release);
        }
        tells
    }

    /// In a hold of the queue's lock: asks its run to end, apart from the worker's own end. False if it has none.
    pub(super) fn cancel(&self, how: CancelRun) -> bool {
        let cancels = self.has_run();
        if cancels {
            self.asked.fetch_max(self.run() * 2 + u64::from(how == CancelRun::GiveUp), Release);
        }
        cancels
    }

    /// How this run was asked to end, if it was.
    #[inline]
    pub(super) fn how_cancelled(&self, run: u64) -> Option<CancelRun> {
        let asked = self.asked.load(Acquire);
        let how = if asked % 2 == 0 { CancelRun::Retry } else { CancelRun::GiveUp };
        (asked / 2 == run).then_some(how)
    }

    /// Whether it has a run that is to end.
    #[inline]
    pub(super) fn is_to_end(&self) -> bool {
        self.is_told() || (self.has_run() && self.how_cancelled(self.run()).is_some())
    }

    /// The number of its latest run.
    #[inline]
    pub(super) fn run(&self) -> u64 {
        self.runs.load(Relaxed)
    }

    #[inline]
    pub(super) fn has_run(&self) -> bool {
        self.key.load(Relaxed) != IDLE
    }

    /// Whether it has the key with this number of the queue's.
    pub(super) fn has_key(&self, key: u32) -> bool {
        self.key.load(Relaxed) == u64::from(key)
    }

    /// Whether it has a run that was told to end.
    #[inline]
    pub(super) fn is_told(&self) -> bool {
        self.has_run() && self.was_told(self.run())
    }

    /// Whether this run was told to end, or a later one.
    #[inline]
    pub(super) fn was_told(&self, run: u64) -> bool {
        self.told.load(Acquire) >= run
    }

    pub(super) fn counts(&self) -> RunCounts {
        let (running, told) = (u64::from(self.has_run()), u64::from(self.is_told()));
        let ended = self.cancelled_runs.load(Relaxed);
        RunCounts { done: self.run() - running - ended, cancelled: ended + told, running }
    }

    /// Notes whether the worker looks for a key. Called before it reads `control`.
    #[inline]
    pub(super) fn set_looking(&self, looking: bool) {
        self.looking.store(looking, Relaxed);
        fence(SeqCst);
    }

    pub(super) fn is_looking(&self) -> bool {
        self.looking.load(Relaxed)
    }

    /// Sets the waker of a worker that waits for a key. Returns a waker to be dropped.
    pub(super) fn waits(&self, waker: &Waker) -> Option<Waker> {
        let is_current = |known: &Option<Waker>| known.as_ref().is_some_and(|known| known.will_wake(waker));
        if is_current(&self.waker.lock()) {
            return None;
        }
        // not cloned under the lock: that is users' code
        let waker = waker.clone();
        self.waker.lock().replace(waker)
    }

    /// Takes the waker; `None` while the worker has a run.
    pub(super) fn take_waker(&self) -> Option<Waker> {
        if self.has_run() { None } else { self.waker.lock().take() }
    }

    /// Clears the status of a worker that has left, so that the next worker can use it. Returns its waker, to
    /// be dropped outside the lock.
    #[must_use = "dropping a waker is users' code, which is not called under a lock"]
    pub(super) fn clear(&self) -> Option<Waker> {
        self.set_looking(false);
        self.waker.lock().take()
    }
}
