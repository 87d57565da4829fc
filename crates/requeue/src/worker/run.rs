//! A run of a key, as a handler gets it.

use super::status::WorkerStatus;
use crate::ending::Guard;
use crate::hold::Shared;
use crate::journal::Fence;
use crate::owner::Owner;
use crate::sync::{Mutex, atomic};
use atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use requeue_core::{Instant, RunRef};
use std::any::Any;
use std::sync::Arc;

/// The part of a run that worker and handler share.
pub(super) struct RunCell<K: 'static, V: 'static> {
    pub(super) guard: Guard<'static, K, V>,
    pub(super) attempt: u32,
    /// The number of the run, where an engine gives one.
    fence: Fence,
    /// The status of its worker, and the number of the run there.
    pub(super) status: Arc<WorkerStatus>,
    run: u64,
    /// When it began, if the worker wants to know and the clock could say.
    pub(super) began: Option<Instant>,
    /// The value that the handler left, once it has dropped its [`Run`].
    pub(super) returned_value: Mutex<Option<V>>,
    /// The handler was told to end, by its time limit.
    cancelled: atomic::AtomicBool,
    /// Which came first: the end of the time limit or the handler's return. Only of blocking handlers with a time limit.
    end: atomic::AtomicU8,
}

const RUNS: u8 = 0;
const OVERRAN: u8 = 1;
const RETURNED: u8 = 2;

impl<K, V> RunCell<K, V> {
    pub(super) fn new(queue: Arc<Shared<K, V>>, status: Arc<WorkerStatus>) -> Self {
        Self {
            guard: Guard { owner: Owner::Owned(queue), run: None },
            attempt: 0,
            fence: Fence(0),
            status,
            run: 0,
            began: None,
            returned_value: Mutex::new(None),
            cancelled: atomic::AtomicBool::new(false),
            end: atomic::AtomicU8::new(RUNS),
        }
    }

    /// Begins a run, the worker's one with this number.
    #[inline]
    pub(super) fn begin(&mut self, run: RunRef<K>, attempt: u32, number: u64, began: Option<Instant>) {
        (self.attempt, self.run) = (attempt, number);
        self.fence = self.guard.owner.shared().fence(&run);
        self.guard.run = Some(run);
        self.began = began;
        self.cancelled.store(false, Relaxed);
        self.end.store(RUNS, Relaxed);
    }

    /// Takes the run out, to be ended, and the value that its handler has left.
    #[inline]
    pub(super) fn take_run(&mut self) -> (Option<RunRef<K>>, Option<V>) {
        (self.guard.run.take(), self.returned_value.get_mut().take())
    }

    /// Whether no [`Run`] and no watcher of time limits refers to it.
    #[inline]
    pub(super) fn is_unique(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1 && Arc::weak_count(self) == 0
    }

    /// Tells the handler to end.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Release);
    }
    /// Notes that the handler is past the time limit. `false` if it has returned.
    pub(super) fn overrun(&self) -> bool {
        self.cancel();
        self.end.compare_exchange(RUNS, OVERRAN, AcqRel, Acquire).is_ok()
    }
    /// Notes that the handler has returned. `true` if it was found past the time limit before.
    pub(super) fn return_now(&self) -> bool {
        self.end.swap(RETURNED, AcqRel) == OVERRAN
    }
    pub(super) fn has_returned(&self) -> bool {
        self.end.load(Acquire) == RETURNED
    }
}

impl<K, V> Drop for RunCell<K, V> {
    fn drop(&mut self) {
        let mut value = self.returned_value.get_mut().take();
        self.guard.let_go(&mut value, None);
    }
}

/// A run of a key, as a worker's handler gets it.
///
/// The worker ends the run with the handler's outcome. A value that was not
/// [taken](Self::take_value) goes back to the queue if the run failed. A handler
/// may keep this beyond its return, to read the key; the run has ended then, and a
/// value that is still in here cannot go back.
///
/// ```
/// use requeue::{Run, WorkQueue, Worker};
/// let q = WorkQueue::<String>::new();
/// q.add_ref("a")?;
/// let worker = Worker::of(&q).workers(1).start_threads(|run: Run<String>| {
///     assert_eq!((run.key().as_str(), run.attempt()), ("a", 1));
/// })?;
/// assert!(worker.drain(std::time::Duration::MAX).wait().complete);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Run<K: 'static, V: 'static = ()> {
    cell: Arc<RunCell<K, V>>,
    value: Option<V>,
}

impl<K, V> Run<K, V> {
    #[inline]
    pub(super) fn new(cell: Arc<RunCell<K, V>>, value: Option<V>) -> Self {
        Self { cell, value }
    }

    /// The key.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # let q = WorkQueue::<u32>::new();
    /// let worker = Worker::of(&q).start_threads(|run| println!("look at {}", run.key()))?;
    /// # worker.drain(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn key(&self) -> &K {
        self.cell.guard.key()
    }

    /// The value that was merged from the run's triggers, if one of them had one.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// let q = WorkQueue::merging(|sum: &mut u32, more| *sum += more).build()?;
    /// q.add_value("a", 1)?;
    /// q.add_value("a", 2)?;
    /// let worker = Worker::of(&q).start_threads(|run| assert_eq!(run.value(), Some(&3)))?;
    /// # worker.drain(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn value(&self) -> Option<&V> {
        self.value.as_ref()
    }

    /// Takes the value out: a failed run then has nothing to put back, unless
    /// [`set_value`](Self::set_value) says so.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # let q = WorkQueue::merging(|all: &mut Vec<u8>, more| all.extend(more)).build()?;
    /// # q.add_value("a", vec![1])?;
    /// let worker = Worker::of(&q).start_threads(|mut run| {
    ///     let bytes: Vec<u8> = run.take_value().unwrap_or_default();
    ///     println!("{}: {} bytes", run.key(), bytes.len());
    /// })?;
    /// # worker.drain(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the value is gone from the run"]
    pub fn take_value(&mut self) -> Option<V> {
        self.value.take()
    }

    /// Sets what goes back if the run fails; returns what was there.
    ///
    /// ```
    /// # use requeue::{Outcome, WorkQueue, Worker};
    /// # let q = WorkQueue::merging(|all: &mut Vec<u8>, more| all.extend(more)).build()?;
    /// # q.add_value("a", vec![1, 2])?;
    /// let worker = Worker::of(&q).start_threads(|mut run| {
    ///     let mut left: Vec<u8> = run.take_value().unwrap_or_default();
    ///     match left.pop() {
    ///         None => Outcome::Done,
    ///         Some(_done) => {
    ///             run.set_value(left); // only what is left goes back
    ///             Outcome::Retry("not finished".into())
    ///         }
    ///     }
    /// })?;
    /// # worker.drain(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_value(&mut self, value: V) -> Option<V> {
        self.value.replace(value)
    }

    /// Which run in a row of failing ones this is, from 1: see [`Item::attempt`](crate::Item::attempt).
    ///
    /// ```
    /// # use requeue::{Outcome, WorkQueue, Worker};
    /// # let q = WorkQueue::<u32>::new();
    /// let worker = Worker::of(&q).start_threads(|run| match run.attempt() {
    ///     1..=3 => Outcome::Retry("not yet".into()),
    ///     _ => Outcome::GiveUp("too often".into()),
    /// })?;
    /// # worker.drain(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.cell.attempt
    }

    /// The number of the thread or task that has the key, from 1 on. [`explain`](crate::WorkQueue::explain)
    /// tells the same number.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// let q = WorkQueue::new();
    /// q.add("a")?;
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let worker = Worker::of(&q).workers(1).start_threads(move |run| Ok(tell.send(run.worker())?))?;
    /// assert_eq!(told.recv()?, 1);
    /// # worker.drain(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn worker(&self) -> usize {
        self.cell.status.at + 1
    }

    /// The priority with which the key was handed out: see [`Item::priority`](crate::Item::priority). Whatever the
    /// handler's outcome, a run that follows from it has the same one.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue, Worker};
    /// let q = WorkQueue::builder().priorities().build()?;
    /// q.add_with("a", Add::now().priority(-100))?;
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let worker = Worker::of(&q).start_threads(move |run| Ok(tell.send(run.priority())?))?;
    /// assert_eq!(told.recv()?, -100);
    /// # worker.drain(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn priority(&self) -> i16 {
        self.cell.guard.priority()
    }

    /// The number of this run, larger than that of each run of the key before it: see
    /// [`Item::fence`](crate::Item::fence).
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// let q = WorkQueue::new();
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let worker = Worker::of(&q).start_threads(move |run| Ok(tell.send(run.fence())?))?;
    /// q.add("a")?;
    /// let first = told.recv()?;
    /// q.add("a")?;
    /// assert!(told.recv()? > first);
    /// # worker.drain(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.cell.fence
    }

    /// The engine, for its own calls for its runs.
    pub(crate) fn engine(&self) -> Option<&dyn Any> {
        self.cell.guard.journal()?.engine()
    }

    /// Whether the handler should return: it is past the worker's time limit,
    /// the worker was stopped and its deadline has come,
    /// [`cancel_run`](crate::WorkQueue::cancel_run) was called for its key, or the run is another process's by now (an engine
    /// whose lease is lost). A blocking handler
    /// cannot be ended from outside; one that runs long should look here. An async
    /// one is dropped instead.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # use std::time::Duration;
    /// let q = WorkQueue::new();
    /// let worker = Worker::of(&q).start_threads(|run| while !run.cancelled() {
    ///     std::thread::yield_now(); // a piece of the work
    /// })?;
    /// q.add("endless")?;
    /// # while q.stats().held == 0 { std::thread::yield_now() }
    /// let report = worker.stop(Duration::ZERO).wait();
    /// assert_eq!(report.cancelled, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn cancelled(&self) -> bool {
        let RunCell { cancelled, status, run, .. } = &*self.cell;
        cancelled.load(Acquire) || status.was_told(*run) || status.how_cancelled(*run).is_some()
    }
}

impl<K, V> Drop for Run<K, V> {
    #[inline]
    fn drop(&mut self) {
        if self.value.is_some() {
            *self.cell.returned_value.lock() = self.value.take();
        }
    }
}

debug!([K, V] Run<K, V>, |run| { attempt: run.attempt(), cancelled: run.cancelled(), .. });
