//! Workers without an executor: all of them inside one future.
//!
//! Each worker has a waker of its own, which notes the worker's number and wakes the future. A poll of the future polls the
//! workers that were noted, and no others.

use super::async_worker::AsyncWorker;
use super::handle::Worker;
use super::outcome::IntoOutcome;
use super::pool_size::PoolSize;
use super::run::Run;
use super::set::{Ends, WorkerSet};
use super::shared::WorkerShared;
use super::stop::StopReport;
use super::supply::{Spawner, WorkerSupply};
use crate::failure::Failure;
use crate::panics::{quietly, wake_each};
use crate::sync::{Mutex, atomic};
use atomic::Ordering::{AcqRel, Acquire, Release};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

/// Workers inside one future, made by [`WorkerBuilder::run`](crate::WorkerBuilder::run). They work while it is polled.
///
/// It runs as many handlers concurrently as there are workers, all on the thread that polls it, and polls
/// only those that were woken. It ends, with a report, when it was stopped or the queue is shut down and
/// worked off; [`worker`](Self::worker) gives the handle that stops and resizes it. With no workers it waits
/// to be resized or stopped. Its report has no part in a drain: what that dropped and refused is told where
/// it was asked for.
///
/// # Cancel safety
///
/// Dropping it cancels the handlers that run: their runs have failed, and their keys and
/// values go back to the queue.
///
/// ```
/// use requeue::{Run, WorkQueue, Worker};
/// use std::rc::Rc;
/// use std::time::Duration;
///
/// let q = WorkQueue::<String>::new();
/// let seen = Rc::new(std::cell::Cell::new(0)); // a handler need not be Send
/// let count = seen.clone();
/// let workers = Worker::of(&q).workers(4).run(move |run: Run<String>| {
///     let count = count.clone();
///     async move {
///         println!("look at {}", run.key());
///         count.set(count.get() + 1);
///     }
/// })?;
/// q.add_ref("a")?;
/// q.shut_down();
/// let report = smol::block_on(workers);
/// assert_eq!((report.done, seen.get()), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the workers do nothing unless this is polled"]
pub struct WorkerFuture<K: 'static, V: 'static, F, Fut> {
    shared: WorkerShared<K, V>,
    handler: F,
    /// By number.
    workers: Vec<Option<Owned<K, V, Fut>>>,
    wakeups: Arc<Wakeups>,
    supply: Arc<WorkerSupply>,
}

struct Owned<K: 'static, V: 'static, Fut> {
    worker: AsyncWorker<K, V, Fut>,
    wakeup: Arc<Wakeup>,
    /// `wakeup` as a waker.
    waker: Waker,
}

/// The wake-ups of the future.
struct Wakeups {
    set: Arc<WorkerSet>,
    state: Mutex<Woken>,
    /// It is being polled.
    polled: atomic::AtomicBool,
}

#[derive(Default)]
struct Woken {
    /// Numbers of workers that were woken.
    woken: Vec<usize>,
    /// Numbers of workers to be started.
    spawned: Vec<usize>,
    /// The future was dropped: no worker can be started.
    dropped: bool,
    /// The waker of the future's last poll; taken by the first wake-up after it.
    outer: Option<Waker>,
}

impl Wakeups {
    fn wake(&self, why: impl FnOnce(&mut Woken)) {
        let mut woken = self.state.lock();
        why(&mut woken);
        let outer = woken.outer.take();
        drop(woken);
        wake_each(outer);
    }
}

impl Spawner for Wakeups {
    fn spawn(self: Arc<Self>, at: usize, _: Arc<WorkerSupply>) -> io::Result<bool> {
        let mut spawned = false;
        self.wake(|woken| {
            spawned = !woken.dropped;
            woken.spawned.extend(spawned.then_some(at));
        });
        if !spawned {
            self.set.leave(at);
        }
        Ok(spawned)
    }
    fn ended(&self) {
        self.wake(|_| ());
    }
}

/// The waker of one worker.
struct Wakeup {
    at: usize,
    /// Its number is in `woken` already.
    noted: atomic::AtomicBool,
    wakeups: Arc<Wakeups>,
}

impl Wakeup {
    fn note(&self) {
        if !self.noted.swap(true, AcqRel) {
            self.wakeups.wake(|woken| woken.woken.push(self.at));
        }
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.note();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.note();
    }
}

/// Wakes the future, which drops the handler in its next poll: a handler that is not `Send` must be dropped on the thread that
/// polls it.
impl Ends for Wakeup {
    fn end(&self) {
        self.note();
    }
    fn ends_soon(&self) -> bool {
        // a future that is being polled may be stuck in one of its handlers
        !self.wakeups.polled.load(Acquire)
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static, F, Fut> WorkerFuture<K, V, F, Fut> {
    pub(super) fn new(
        shared: WorkerShared<K, V>,
        workers: PoolSize,
        supply: Arc<WorkerSupply>,
        handler: F,
    ) -> io::Result<Self> {
        let wakeups = Arc::new(Wakeups {
            set: shared.set.clone(),
            state: Mutex::new(Woken::default()),
            polled: atomic::AtomicBool::new(false),
        });
        supply.open(wakeups.clone());
        // no worker is started here yet, so the only error is a number of workers that is too large
        shared.set.resize(workers, &supply)?;
        Ok(Self { shared, handler, workers: Vec::new(), wakeups, supply })
    }

    /// The handle of these workers, which may go anywhere: it resizes and stops them.
    ///
    /// ```
    /// use requeue::{Run, WorkQueue, Worker};
    /// use std::time::Duration;
    /// let q = WorkQueue::<String>::new();
    /// let workers = Worker::of(&q).run(|run: Run<String>| async move { drop(run) })?;
    /// let handle = workers.worker();
    /// std::thread::spawn(move || {
    ///     handle.resize(2).expect("no thread is needed");
    ///     handle.stop(Duration::from_secs(10)).wait()
    /// });
    /// assert!(smol::block_on(workers).complete);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "this gives the handle and changes nothing"]
    pub fn worker(&self) -> Worker {
        Worker::new(self.shared.set.clone(), self.supply.clone())
    }

    /// Starts the worker with this number.
    fn start(&mut self, at: usize) {
        let wakeups = self.wakeups.clone();
        let wakeup = Arc::new(Wakeup { at, noted: atomic::AtomicBool::new(true), wakeups });
        self.shared.set.ends_with(at, Arc::downgrade(&wakeup) as Weak<dyn Ends>);
        if self.workers.len() <= at {
            self.workers.resize_with(at + 1, || None);
        }
        let (worker, waker) = (AsyncWorker::new(&self.shared, at), Waker::from(wakeup.clone()));
        self.workers[at] = Some(Owned { worker, wakeup, waker });
    }

    fn report(&self) -> StopReport {
        let queue = &self.shared.set.queue;
        self.shared.set.report(queue.report(None, queue.clock().now()))
    }
}

impl<K, V, F, Fut> Future for WorkerFuture<K, V, F, Fut>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> Fut,
    Fut: Future<Output: IntoOutcome>,
{
    type Output = StopReport;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<StopReport> {
        let this = &mut *self;
        let waker = cx.waker().clone();
        let mut state = this.wakeups.state.lock();
        let old = state.outer.replace(waker);
        let mut woken = std::mem::take(&mut state.woken);
        let spawned = std::mem::take(&mut state.spawned);
        drop(state);
        quietly(|| drop(old));
        for &at in &spawned {
            this.start(at);
        }
        woken.extend(spawned);
        this.wakeups.polled.store(true, Release);
        for at in woken {
            // a worker that has left may still be woken
            let Some(Some(Owned { worker, wakeup, waker })) = this.workers.get_mut(at) else { continue };
            wakeup.noted.store(false, Release);
            let cx = &mut Context::from_waker(waker);
            if worker.poll(&this.shared, &this.handler, cx).is_ready() {
                this.workers[at] = None;
            }
        }
        this.wakeups.polled.store(false, Release);
        if this.shared.set.has_ended() { Poll::Ready(this.report()) } else { Poll::Pending }
    }
}

impl<K, V, F, Fut> Unpin for WorkerFuture<K, V, F, Fut> {}

impl<K, V, F, Fut> Drop for WorkerFuture<K, V, F, Fut> {
    fn drop(&mut self) {
        let mut woken = self.wakeups.state.lock();
        woken.dropped = true;
        let spawned = std::mem::take(&mut woken.spawned);
        let outer = woken.outer.take();
        drop(woken);
        quietly(|| drop(outer));
        let set = &self.shared.set;
        set.abandon();
        spawned.into_iter().for_each(|at| set.leave(at));
        for (at, owned) in self.workers.iter_mut().enumerate() {
            let Some(Owned { mut worker, .. }) = owned.take() else { continue };
            worker.abandon(&self.shared, Failure::Cancelled);
            quietly(|| drop(worker));
            set.leave(at);
        }
    }
}

debug!([K, V, F, Fut] WorkerFuture<K, V, F, Fut>, |future| {
    workers: future.shared.set.workers(),
    ..
});
