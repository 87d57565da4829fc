//! [`Worker`]: the handle of a queue's workers.

use super::builder::WorkerBuilder;
use super::pool_size::PoolSize;
use super::set::WorkerSet;
use super::stop::Stop;
use super::supply::WorkerSupply;
use crate::drain::DrainOptions;
use crate::source::Source;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Workers that work a queue off with one handler: on threads, in tasks of any
/// executor, or inside one future.
///
/// Made by [`Worker::of`]. It is not a handle of the queue: when the queue's last
/// handle goes, the workers end once the queue is worked off. Dropping this
/// detaches them: they go on until then.
///
/// Where handlers are async, one that is cancelled, because its task was dropped, or
/// because the worker was stopped and its deadline came, has failed: its key goes back to
/// the queue, with the value that it had not taken. The same holds for one that panics or is
/// past its time limit.
///
/// ```
/// use requeue::{Outcome, WorkQueue, Worker};
/// use std::time::Duration;
///
/// let q = WorkQueue::<String>::new();
/// let worker = Worker::of(&q).workers(4).max_attempts(3).start_threads(|run| {
///     match run.key().parse::<u32>() {
///         Ok(_) => Outcome::Done,
///         Err(e) => Outcome::GiveUp(e.into()),
///     }
/// })?;
/// q.add_ref("7")?;
/// q.add_ref("seven")?;
/// let report = worker.drain(Duration::from_secs(10)).wait();
/// assert_eq!((report.complete, report.done), (true, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Worker {
    pub(super) set: Arc<WorkerSet>,
    pub(super) supply: Arc<WorkerSupply>,
}

impl Worker {
    /// Begins to build a worker for a queue, or for an engine.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// let q = WorkQueue::<u32>::new();
    /// let worker = Worker::of(&q).workers(2).start_threads(|run| println!("{}", run.key()))?;
    /// # drop(worker);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn of<Q: Source>(source: &Q) -> WorkerBuilder<Q::Key, Q::Value> {
        WorkerBuilder::new(source.front().shared)
    }

    pub(super) fn new(set: Arc<WorkerSet>, supply: Arc<WorkerSupply>) -> Self {
        Self { set, supply }
    }

    /// From now on this many keys are worked on at once: a number, or a range within which
    /// the number follows the work ([`WorkerBuilder::workers`]). New workers begin at once;
    /// surplus ones leave, those that wait for a key now and others after their run. 0
    /// is a pause: keys stay in line until the next resize. Once the worker has been
    /// stopped, or its queue is worked off, this changes nothing.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread; those that were started work. Or if the number
    /// is larger than 1,048,576 (2^20) or the range is empty; then nothing has changed.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// let q = WorkQueue::new();
    /// let worker = Worker::of(&q).workers(0).start_threads(|run| println!("{}", run.key()))?;
    /// q.add(1)?;
    /// assert_eq!(q.len(), 1); // paused
    /// worker.resize(4)?;
    /// assert_eq!(worker.workers(), 4);
    /// worker.resize(1..=16)?; // those beyond the first leave when they are idle for long
    /// # worker.drain(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resize(&self, workers: impl Into<PoolSize>) -> io::Result<()> {
        self.set.resize(workers.into(), &self.supply)
    }

    /// The number of workers: those that are to leave after their run are counted until they have left, and
    /// those that the executor turned away are not.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # let q = WorkQueue::<u32>::new();
    /// let worker = Worker::of(&q).workers(3).start_threads(|_| ())?;
    /// assert_eq!(worker.workers(), 3);
    /// worker.stop(std::time::Duration::MAX).wait();
    /// assert_eq!(worker.workers(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn workers(&self) -> usize {
        self.set.workers()
    }

    /// Stops taking keys and waits for the runs that go on; the queue stays open
    /// and ready keys stay in it. Await the result or call [`wait`](Stop::wait).
    ///
    /// When `timeout` has passed, on the queue's clock, runs that still go on are
    /// cancelled and the report is made: blocking handlers are told (see
    /// [`Run::cancelled`](crate::Run::cancelled)), async ones are dropped. Zero cancels them at once;
    /// [`Duration::MAX`] waits for ever.
    ///
    /// The report waits for runs. A task that only waits for a key leaves when its executor
    /// polls it next, which the report does not wait for and [`join`](Self::join) does;
    /// threads have left before it, if all runs ended in time.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # use std::time::Duration;
    /// let q = WorkQueue::<u32>::new();
    /// let worker = Worker::of(&q).workers(2).start_threads(|_| ())?;
    /// let report = worker.stop(Duration::MAX).wait();
    /// assert!(report.complete && !q.shutting_down());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stop(&self, timeout: Duration) -> Stop {
        Stop::begin(self.set.clone(), None, timeout)
    }

    /// Refuses triggers, works the ready keys off, and until the timeout those that wait out a failure or
    /// fail meanwhile; and waits until the queue's last run has ended, wherever it is: with this worker,
    /// another worker of the queue, or a guard. The timeout is as for [`stop`](Self::stop); once it has
    /// passed no more keys are taken, and the report says how many keys are still
    /// [held](crate::StopReport::held).
    ///
    /// All other timers are dropped. A key whose timer is dropped, or whose retry is refused, is not done: the report
    /// counts it as [unfinished](crate::StopReport::unfinished), [`on_give_up`](WorkerBuilder::on_give_up) hears of it, and
    /// [`WorkQueue::take_unfinished`](crate::WorkQueue::take_unfinished) gives it. With [`Duration::MAX`] no retries are
    /// waited for: a key may fail for ever.
    ///
    /// So with [`Duration::MAX`] this waits for ever if the caller itself keeps a guard of
    /// this queue. If this worker was resized to 0, ready keys stay in line, and the report
    /// comes at once.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # use std::time::Duration;
    /// let q = WorkQueue::new();
    /// let worker = Worker::of(&q).start_threads(|_| ())?;
    /// q.add(1).expect("open");
    /// assert_eq!(worker.drain(Duration::MAX).wait().done, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// [`DrainOptions`] say what becomes of waiting keys otherwise:
    ///
    /// ```
    /// # use requeue::{DrainOptions, WaitingKeys, WorkQueue, Worker};
    /// # use std::time::Duration;
    /// let q = WorkQueue::new();
    /// let worker = Worker::of(&q).start_threads(|_| ())?;
    /// q.add_after(1, Duration::from_secs(3600)).expect("open");
    /// assert_eq!(worker.drain(DrainOptions::default().waiting_keys(WaitingKeys::RunNow)).wait().done, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn drain(&self, options: impl Into<DrainOptions>) -> Stop {
        Stop::begin(self.set.clone(), Some(options.into()), Duration::MAX)
    }

    /// Blocks until there are no workers any more: because the queue was shut down and
    /// is worked off, or they were stopped, or resized to 0. (Workers on demand that are all
    /// idle may come back: they are not gone.) The handler and the hooks are dropped by the last of them, which
    /// may be a moment after this has returned, with all that they have captured: what is to be done at the end
    /// of a program is not to be left to a drop of that. Not to be called where it blocks the executor that they run on.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// let q = WorkQueue::new();
    /// let worker = Worker::of(&q).start_threads(|_| ())?;
    /// q.add(1).expect("open");
    /// q.shut_down();
    /// worker.join();
    /// assert!(q.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join(&self) {
        Stop::watch(self.set.clone()).wait();
    }
}

debug!([] Worker, |worker| { workers: worker.workers(), .. });
