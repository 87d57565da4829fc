//! How workers are started: as many as are wanted at once, and one at a time where their number follows the work.
//!
//! A set on demand (`workers(0..=256)`) is *short* if every worker has a key and one more may come. Then it keeps a **watcher**:
//! an entry among those who wait for a key, which takes none. When the watcher is woken, a worker is started, which looks for a
//! key as any other does. Until that one has a key it can serve what comes, so the set is not short, and no other worker is
//! started: that is why a thousand keys at once do not start a thousand threads at once. A worker that waits makes the set not
//! short either, and the watcher goes. Whether there is to be a watcher is compared at each change of the set
//! ([`State::is_watcher_stale`]), in the hold of its lock that changes it.
//!
//! [`State::is_watcher_stale`]: super::set::State::is_watcher_stale

use super::set::{Source, WorkerSet};
use crate::Instant;
use crate::clock::{Alarm, Clock, SystemClock};
use crate::hold::Seen;
use crate::panics::quietly;
use crate::sync::Mutex;
use crate::wait::WaiterId;
use std::io;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

/// How long no worker is started, by the system's clock, after the system had no thread for one.
const AFTER_SHORTAGE: Duration = Duration::from_millis(100);

/// Starts workers: on threads, on an executor, or in a future.
pub(super) trait Spawner: Send + Sync {
    /// Starts the worker with this number; false if it was turned away, in which case it has
    /// left again, as after an error. As long as it has not left, it keeps `supply`:
    /// the last to leave starts the next one.
    fn spawn(self: Arc<Self>, at: usize, supply: Arc<WorkerSupply>) -> io::Result<bool>;
    /// The worker has ended: nobody is left, and nobody will come.
    fn ended(&self) {}
}

/// How more workers are started. A worker's handle has it, the workers have it, and so has
/// the watcher while there is one. The set does not keep it alive, for it holds the handler,
/// which is to go with the last worker; it is emptied when that one has left and none will come.
pub(super) struct WorkerSupply {
    pub(super) set: Arc<WorkerSet>,
    spawner: Mutex<Option<Arc<dyn Spawner>>>,
    watcher: Mutex<Watcher>,
}

/// The first caller that finds that it must be started or ended updates it. Others
/// that come meanwhile only set `again`, and the first one then looks once more: so the last update
/// is by the latest state of the set, and a wake-up within that call causes no recursion.
#[derive(Default)]
struct Watcher {
    /// A caller updates it.
    updating: bool,
    again: bool,
    /// Among those who wait; `None` while it is updated.
    place: Option<WaiterId>,
    /// Set where the system had no thread.
    retry: Option<Alarm>,
}

impl WorkerSupply {
    pub(super) fn new(queue: Arc<dyn Source>, idle_timeout: Duration) -> Arc<Self> {
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

    /// Starts the watcher or ends it, as the set wants, and starts one worker if keys wait and the set is
    /// short. Not under any lock.
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
            return queue.end_lookout(place);
        }
        match queue.clone().keep_lookout(place, self.clone().into()) {
            Seen::Nothing => {}
            Seen::Keys => *retry = self.start_one(),
            Seen::Over => self.set.abandon(),
        }
    }

    /// Starts one worker. If the system has no thread for it, that is a shortage of ours and
    /// no failure of the key, which stays where it is in line: the alarm is for another attempt.
    fn start_one(self: &Arc<Self>) -> Option<Alarm> {
        let (spawner, at) = (self.spawner()?, self.set.vacancy_on_demand()?);
        match quietly(|| spawner.spawn(at, self.clone())) {
            // a task that was turned away has said so itself
            Some(Ok(_)) | None => None,
            Some(Err(_)) => {
                self.set.has_no_thread(true);
                let at = SystemClock.now() + AFTER_SHORTAGE;
                Some(SystemClock.wake_at(at, &Waker::from(Arc::new(Retry { supply: self.clone(), at }))))
            }
        }
    }
}

/// The watcher is woken: a key may be ready, or the queue is over.
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
        self.supply.set.has_no_thread(false);
        // a clock that has no thread either wakes at once, from within `update_watcher`, and another attempt
        // now would be one of very many: the next who changes anything in the set makes it
        if SystemClock.now() >= self.at {
            self.supply.update_watcher();
        }
    }
}

#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/supply.rs"]
mod tests;
