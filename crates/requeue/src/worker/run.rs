//! What a handler gets: a run of a key.

use crate::ending::Guard;
use crate::journal::Fence;
use crate::sync::{Mutex, atomic};
use crate::{Instant, Item};
use atomic::Ordering::{AcqRel, Acquire, Release};
use std::any::Any;
use std::sync::Arc;

/// What worker and handler share of a run.
pub(super) struct Cell<K: 'static, V: 'static> {
    pub(super) guard: Guard<'static, K, V>,
    pub(super) attempt: u32,
    /// The number of the run, where an engine gives one.
    fence: Option<Fence>,
    /// The place of its worker.
    place: usize,
    /// When it began, if the worker wants to know and the clock could say.
    pub(super) began: Option<Instant>,
    /// The payload that the handler left, once it has dropped its [`Run`].
    pub(super) left: Mutex<Option<V>>,
    pub(super) told: Arc<Told>,
}

impl<K, V> Cell<K, V> {
    pub(super) fn new(
        item: Item<'static, K, V>,
        place: usize,
        told: Arc<Told>,
        began: Option<Instant>,
    ) -> Self {
        let fence = item.shared().journal.as_ref().map(|journal| journal.fence(item.key()));
        let (guard, payload, attempt) = item.into_parts();
        Self { guard, attempt, fence, place, began, left: Mutex::new(payload), told }
    }
}

impl<K, V> Drop for Cell<K, V> {
    fn drop(&mut self) {
        let mut payload = self.left.lock().take();
        self.guard.let_go(&mut payload, None);
    }
}

/// What a handler is told while it runs.
#[derive(Debug, Default)]
pub(super) struct Told {
    cancelled: atomic::AtomicBool,
    /// The slot of the run's key.
    pub(super) slot: Option<u32>,
    /// Who was first: the time limit or the handler.
    end: atomic::AtomicU8,
}

const RUNS: u8 = 0;
const OVERRAN: u8 = 1;
const RETURNED: u8 = 2;

impl Told {
    pub(super) fn of<K, V>(item: &Item<'_, K, V>) -> Self {
        Self { slot: item.slot(), ..Self::default() }
    }
    /// The run should end: the time is up, or the worker is being stopped.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Release);
    }
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Acquire)
    }
    /// The handler is past the time limit; false if it has returned.
    pub(super) fn overrun(&self) -> bool {
        self.cancel();
        self.end.compare_exchange(RUNS, OVERRAN, AcqRel, Acquire).is_ok()
    }
    /// The handler has returned; true if it had been found past the time limit.
    pub(super) fn return_now(&self) -> bool {
        self.end.swap(RETURNED, AcqRel) == OVERRAN
    }
    pub(super) fn has_returned(&self) -> bool {
        self.end.load(Acquire) == RETURNED
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
    cell: Arc<Cell<K, V>>,
    value: Option<V>,
}

impl<K, V> Run<K, V> {
    pub(super) fn new(cell: Arc<Cell<K, V>>) -> Self {
        let value = cell.left.lock().take();
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

    /// Which run in a row of failing ones this is, from 1: see [`Item::attempt`].
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

    /// The number of the worker that has the key, from 1 on: each thread, task or seat of a
    /// [`Worker`](crate::Worker) has one while it is there. It is the one that
    /// [`explain`](crate::WorkQueue::explain) tells.
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
        self.cell.place + 1
    }

    /// The priority with which the key was handed out: see [`Item::priority`]. Whatever the
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

    /// The number of this run, if its worker works for an engine: larger than that of each run of the key before it.
    /// Whoever is written to can refuse a smaller number than it has seen. `None` in memory.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// let q = WorkQueue::new();
    /// let worker = Worker::of(&q).start_threads(|run| assert!(run.fence().is_none()))?;
    /// q.add("a")?;
    /// # worker.drain(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.cell.fence
    }

    /// What the engine that the worker works for says by [`Journal::engine`](crate::engine::Journal::engine): its own calls
    /// for its runs find so what they need. `None` in memory.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// let q = WorkQueue::new();
    /// let worker = Worker::of(&q).start_threads(|run| assert!(run.engine().is_none()))?;
    /// q.add("a")?;
    /// # worker.drain(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn engine(&self) -> Option<&dyn Any> {
        self.cell.guard.journal()?.engine()
    }

    /// Whether the handler should return: it is past the worker's time limit,
    /// the worker was stopped and its deadline has come, or the run is another process's by now (an engine
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
        self.cell.told.is_cancelled()
    }
}

impl<K, V> Drop for Run<K, V> {
    fn drop(&mut self) {
        *self.cell.left.lock() = self.value.take();
    }
}

debug!([K, V] Run<K, V>, |run| { attempt: run.attempt(), cancelled: run.cancelled(), .. });
