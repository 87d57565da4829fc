//! How workers are started: the least number at once, and further ones on demand, one at a time.
//!
//! A set on demand (`workers(0..=256)`) is *short* if every worker has a key and one more may be started. A short set keeps a
//! **watcher**: an entry among the waiters for a key, which takes none. When the watcher is woken, one worker is started, which
//! looks for a key. Until it has one the set is not short, and no other worker is started. So a thousand keys at once do not
//! start a thousand threads at once. A set with a worker that waits for a key is not short, and has no watcher. Each change of
//! the set checks whether the watcher must be started or ended ([`State::is_watcher_stale`]).
//!
//! [`State::is_watcher_stale`]: super::set::State::is_watcher_stale

use super::set::{ErasedQueue, WorkerSet};
use crate::clock::{Alarm, Clock, SystemClock};
use crate::hold::Seen;
use crate::panics::quietly;
use crate::sync::Mutex;
use crate::wait::WaiterId;
use requeue_core::Instant;
use std::io;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

/// How long no worker is started, by the system's clock, after the system had no thread for one.
const AFTER_SHORTAGE: Duration = Duration::from_millis(100);

/// Starts workers: on threads, on an executor, or in a future.
pub(super) trait Spawner: Send + Sync {
    /// Starts the worker with this number. `false` if an executor turned it away. Then, as after an error, it has left. A worker
    /// keeps `supply` until it leaves, so that the last to leave can start the next one.
    fn spawn(self: Arc<Self>, at: usize, supply: Arc<WorkerSupply>) -> io::Result<bool>;
    /// Called when the last worker has left and none will be started.
    fn ended(&self) {}
}

/// Starts further workers. It is kept by the handle, by the workers, and by the watcher. The set does not keep it, because it
/// holds the handler, which goes with the last worker: it is emptied when that one has left and none will be started.
pub(super) struct WorkerSupply {
    pub(super) set: Arc<WorkerSet>,
    spawner: Mutex<Option<Arc<dyn Spawner>>>,
    watcher: Mutex<Watcher>,
}

/// The state of the watcher. One caller at a time updates it. Callers that come meanwhile only set `again`, and the first one
/// then looks once more: so the last update sees the latest state of the set, and a wake-up within it causes no recursion.
#[derive(Default)]
struct Watcher {
    /// A caller updates it.
    updating: bool,
    again: bool,
    /// Its place among the waiters; `None` while it is updated.
    place: Option<WaiterId>,
    /// Set where the system had no thread.
    retry: Option<Alarm>,
}

impl WorkerSupply {
    pub(super) fn new(queue: Arc<dyn ErasedQueue>, idle_timeout: Duration) -> Arc<Self> {
        Arc::new_cyclic(|supply: &Weak<Self>| Self {
            set: Arc::new(WorkerSet::new(queue, supply.clone(), idle_timeout)),
            spawner: Mutex::new(None),
            watcher: Mutex::new(Watcher::default()),
        })
    }

    pub(super) fn open(&self, spawner: Arc<dyn Spawner>) {
        *self.spawner.lock() = Some(spawner);
    }

    pub(super) fn close(&self) {
        let spawner = self.spawner.lock().take();
        if let Some(spawner) = spawner {
            spawner.ended();
        }
    }

    pub(super) fn spawner(&self) -> Option<Arc<dyn Spawner>> {
        self.spawner.lock().clone()
    }

    /// Starts or ends the watcher. Also starts one worker, if the set is short of workers and a key is ready.
    /// Must not be called under a lock.
    pub(super) fn update_watcher(self: &Arc<Self>) {
        let mut watcher = self.watcher.lock();
        watcher.again = watcher.updating;
        if std::mem::replace(&mut watcher.updating, true) {
            return;
        }
        let (mut place, mut retry) = (watcher.place.take(), watcher.retry.take());
        drop(watcher);
        loop {
            // users' code may panic: a clock, an executor that is given a task
            quietly(|| self.watch(&mut place, &mut retry));
            let mut watcher = self.watcher.lock();
            if !std::mem::take(&mut watcher.again) {
                (watcher.updating, watcher.place, watcher.retry) = (false, place, retry);
                return;
            }
        }
    }

    fn watch(self: &Arc<Self>, place: &mut Option<WaiterId>, retry: &mut Option<Alarm>) {
        let queue = &self.set.queue;
        if !self.set.begins_to_watch() {
            return queue.stop_watching(place);
        }
        match queue.clone().watch_for_work(place, self.clone().into()) {
            Seen::Nothing => {}
            Seen::Keys => *retry = self.start_one(),
            Seen::Over => self.set.abandon(),
        }
    }

    /// Starts one worker. If the system has no thread for it, the key stays in line, and the alarm that is returned wakes for
    /// another attempt.
    fn start_one(self: &Arc<Self>) -> Option<Alarm> {
        let (spawner, at) = (self.spawner()?, self.set.vacancy_on_demand()?);
        match quietly(|| spawner.spawn(at, self.clone())) {
            // a task that was turned away has said so itself
            Some(Ok(_)) | None => None,
            Some(Err(_)) => {
                self.set.note_no_thread(true);
                let at = SystemClock.now() + AFTER_SHORTAGE;
                Some(SystemClock.wake_at(at, &Waker::from(Arc::new(Retry { supply: self.clone(), at }))))
            }
        }
    }
}

/// Wakes the watcher: a key may be ready, or the queue is over.
impl Wake for WorkerSupply {
    fn wake(self: Arc<Self>) {
        self.set.watcher_is_woken();
        self.update_watcher();
    }
}

/// Wakes the set for another attempt to start a thread.
struct Retry {
    supply: Arc<WorkerSupply>,
    at: Instant,
}

impl Wake for Retry {
    fn wake(self: Arc<Self>) {
        self.supply.set.note_no_thread(false);
        // A clock that has no thread either wakes at once, from within `update_watcher`. An attempt now would be one of very
        // many: the next change of the set makes it.
        if SystemClock.now() >= self.at {
            self.supply.update_watcher();
        }
    }
}

#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/supply.rs"]
mod tests;
