//! Workers in tasks of an executor.
//!
//! At the deadline of a stop a run is ended from outside: its handler is dropped at once, even if the executor does not poll the
//! task. So between two polls the worker lies in a state that the task shares with the stop. During a poll the task has it.

use super::async_worker::AsyncWorker;
use super::executor::Spawn;
use super::outcome::IntoOutcome;
use super::run::Run;
use super::set::Ends;
use super::shared::WorkerShared;
use super::supply::{Spawner, WorkerSupply};
use crate::failure::Failure;
use crate::panics::{quietly, wake_each};
use crate::sync::{Mutex, MutexGuard, atomic};
use atomic::Ordering::AcqRel;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

/// The tasks of one worker.
pub(super) struct Tasks<K: 'static, V: 'static, F> {
    shared: WorkerShared<K, V>,
    spawn: Box<dyn Spawn>,
    handler: F,
}

impl<K, V, F> Tasks<K, V, F> {
    pub(super) fn new(shared: WorkerShared<K, V>, spawn: impl Spawn, handler: F) -> Self {
        Self { shared, spawn: Box::new(spawn), handler }
    }
}

/// State shared by a task and the calls that end its run.
struct TaskState<K: 'static, V: 'static, F, Fut> {
    tasks: Arc<Tasks<K, V, F>>,
    at: usize,
    inside: Mutex<Inside<K, V, Fut>>,
    /// [`POLLED`], [`SPAWNED`], [`REFUSED`].
    fate: atomic::AtomicU8,
}

struct Inside<K: 'static, V: 'static, Fut> {
    /// `None` while it is polled, or its run is being ended.
    worker: Option<AsyncWorker<K, V, Fut>>,
    /// The waker of the task's last poll.
    waker: Option<Waker>,
    /// The task was dropped: the call that has the worker leaves for it.
    dropped: bool,
}

/// It has been polled.
const POLLED: u8 = 1;
/// The call that spawned it has returned.
const SPAWNED: u8 = 2;
/// It was dropped. If one of the others is missing then, the executor did not take it.
const REFUSED: u8 = 4;

/// One worker, as the executor has it.
struct Task<K: 'static, V: 'static, F, Fut> {
    state: Arc<TaskState<K, V, F, Fut>>,
    /// Starts another task if the executor drops this one.
    spawner: Arc<dyn Spawner>,
    supply: Arc<WorkerSupply>,
    left: bool,
}

impl<K, V, F, Fut> Spawner for Tasks<K, V, F>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    fn spawn(self: Arc<Self>, at: usize, supply: Arc<WorkerSupply>) -> io::Result<bool> {
        let inside = Inside { worker: Some(AsyncWorker::new(&self.shared, at)), waker: None, dropped: false };
        let state = Arc::new(TaskState {
            tasks: self.clone(),
            at,
            inside: Mutex::new(inside),
            fate: atomic::AtomicU8::new(0),
        });
        let task = Task { state: state.clone(), spawner: self.clone(), supply, left: false };
        self.shared.set.ends_with(at, Arc::downgrade(&state) as Weak<dyn Ends>);
        self.spawn.spawn(Box::pin(task));
        Ok(state.fate.fetch_or(SPAWNED, AcqRel) & REFUSED == 0)
    }
}

/// Wakes the task, without the lock.
fn wake<K, V, Fut>(inside: MutexGuard<'_, Inside<K, V, Fut>>) {
    let waker = inside.waker.clone();
    drop(inside);
    wake_each(waker);
}

impl<K, V, F, Fut> Ends for TaskState<K, V, F, Fut>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    fn end(&self) {
        let mut inside = self.inside.lock();
        let Some(mut worker) = inside.worker.take() else {
            // it is being polled: another poll looks whether it was told to end
            return wake(inside);
        };
        drop(inside);
        // the run that was told to end may have ended, and another have begun
        if worker.is_to_end() {
            worker.abandon(&self.tasks.shared, Failure::Cancelled);
        }
        let mut inside = self.inside.lock();
        if inside.dropped {
            drop(inside);
            drop(worker);
            return self.tasks.shared.set.leave(self.at);
        }
        inside.worker = Some(worker);
        wake(inside);
    }

    fn ends_soon(&self) -> bool {
        false
    }
}

impl<K, V, F, Fut> Future for Task<K, V, F, Fut>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { state, left, .. } = &mut *self;
        if *left {
            return Poll::Ready(());
        }
        state.fate.fetch_or(POLLED, AcqRel);
        let mut inside = state.inside.lock();
        let mut old = None;
        if !inside.waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            // neither cloned nor dropped under the lock: a waker is users' code
            drop(inside);
            let waker = cx.waker().clone();
            inside = state.inside.lock();
            old = inside.waker.replace(waker);
        }
        let worker = inside.worker.take();
        drop(inside);
        quietly(|| drop(old));
        // the call that ends its run wakes the task when that is done
        let Some(mut worker) = worker else { return Poll::Pending };
        let polled = worker.poll(&state.tasks.shared, &state.tasks.handler, cx);
        if polled.is_ready() {
            *left = true;
        } else {
            state.inside.lock().worker = Some(worker);
        }
        polled
    }
}

impl<K, V, F, Fut> Drop for Task<K, V, F, Fut> {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        let TaskState { tasks, at, inside, fate } = &*self.state;
        let mut inside = inside.lock();
        inside.dropped = true;
        let (worker, waker) = (inside.worker.take(), inside.waker.take());
        drop(inside);
        quietly(|| drop(waker));
        // otherwise the call that ends its run leaves for it
        let Some(mut worker) = worker else { return };
        worker.abandon(&tasks.shared, Failure::Cancelled);
        quietly(|| drop(worker));
        // one atomic step: either `spawn` sees that the task was refused, or this sees that it was spawned
        let taken = fate.fetch_or(REFUSED, AcqRel) & (POLLED | SPAWNED) == POLLED | SPAWNED;
        if !taken {
            tasks.shared.set.turned_away(*at);
        } else if tasks.shared.set.is_replaced(*at) {
            // a worker that is turned away leaves by itself
            quietly(|| {
                let _ = self.spawner.clone().spawn(*at, self.supply.clone());
            });
        }
    }
}
