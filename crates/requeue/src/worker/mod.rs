//! The worker: the loop around `get` that everybody writes by hand, written once.
//!
//! A handler gets a [`Run`] and returns an [`Outcome`]; the worker does the
//! rest: retries through the queue's limiter, attempts, panics, time limits,
//! payloads of failed runs, and an end with a report.

mod limit;
mod outcome;
mod roster;
mod run;
mod threads;

pub use self::outcome::{BoxError, Failure, IntoOutcome, Outcome};
pub use self::roster::{Stop, StopReport};
pub use self::run::Run;

use self::roster::Roster;
use crate::clock::quietly;
use crate::drain::DrainOptions;
use crate::shared::Shared;
use crate::{WaitingKeys, WorkQueue};
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// How long a failure count is kept of a key that never comes back, unless
/// [`WorkerBuilder::expire_failures_after`] says otherwise.
const EXPIRE_FAILURES_AFTER: Duration = Duration::from_secs(3600);

/// Threads that work a queue off with one handler.
///
/// Made by [`Worker::of`]. It is not a handle of the queue: when the queue's last
/// handle goes, its threads end once the queue is worked off. Dropping the
/// worker detaches it: its threads go on until then.
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
    roster: Arc<Roster>,
}

impl Worker {
    /// Begins to build a worker for a queue.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// let q = WorkQueue::<u32>::new();
    /// let worker = Worker::of(&q).workers(2).start_threads(|run| println!("{}", run.key()))?;
    /// # drop(worker);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn of<K, V, S>(queue: &WorkQueue<K, V, S>) -> WorkerBuilder<K, V> {
        WorkerBuilder {
            queue: queue.shared.clone(),
            threads: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            rules: Rules { time_limit: None, max_attempts: 0, on_failure: None, on_give_up: None },
            expire_failures_after: Some(EXPIRE_FAILURES_AFTER),
        }
    }

    /// Stops taking keys and waits for the runs that go on; the queue stays open
    /// and ready keys stay in it. Await the result or call [`wait`](Stop::wait).
    ///
    /// At the deadline, that long from now on the queue's clock, runs that still
    /// go on are told (see [`Run::cancelled`]) and the report is made. Zero
    /// tells them at once; [`Duration::MAX`] waits for ever.
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
    pub fn stop(&self, deadline: Duration) -> Stop {
        Stop::begin(self.roster.clone(), None, deadline)
    }

    /// Shuts the queue down, drops its timers, and works the ready keys off. The
    /// deadline is as for [`stop`](Self::stop); past it no more keys are taken.
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
    pub fn drain(&self, deadline: Duration) -> Stop {
        self.drain_waiting(WaitingKeys::Drop, deadline)
    }

    /// [`drain`](Self::drain), saying what becomes of keys that wait for timers.
    ///
    /// ```
    /// # use requeue::{WaitingKeys, WorkQueue, Worker};
    /// # use std::time::Duration;
    /// let q = WorkQueue::new();
    /// let worker = Worker::of(&q).start_threads(|_| ())?;
    /// q.add_after(1, Duration::from_secs(3600)).expect("open");
    /// assert_eq!(worker.drain_waiting(WaitingKeys::RunNow, Duration::MAX).wait().done, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn drain_waiting(&self, waiting: WaitingKeys, deadline: Duration) -> Stop {
        let options = DrainOptions::default().waiting_keys(waiting).deadline(deadline);
        Stop::begin(self.roster.clone(), Some(options), deadline)
    }

    /// Blocks until every thread has ended: because the queue was shut down and
    /// is worked off, or the worker was stopped.
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
        Stop::watch(self.roster.clone()).wait();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("threads", &self.roster.threads()).finish_non_exhaustive()
    }
}

type Hook<K> = Arc<dyn Fn(&K, &Failure) + Send + Sync>;

/// What a worker does with failures.
struct Rules<K> {
    time_limit: Option<Duration>,
    /// 0: no maximum.
    max_attempts: u32,
    on_failure: Option<Hook<K>>,
    on_give_up: Option<Hook<K>>,
}

/// Calls a hook; its panic ends nothing.
fn report<K>(hook: Option<&Hook<K>>, key: &K, failure: &Failure) {
    if let Some(hook) = hook {
        quietly(|| hook(key, failure));
    }
}

/// Builds a [`Worker`].
///
/// ```
/// use requeue::{WorkQueue, Worker};
/// use std::time::Duration;
/// let q = WorkQueue::<String>::new();
/// let worker = Worker::of(&q)
///     .workers(8)
///     .time_limit(Duration::from_secs(30))
///     .max_attempts(10)
///     .on_give_up(|key, why| eprintln!("{key}: {why}"))
///     .start_threads(|run| println!("look at {}", run.key()))?;
/// assert!(worker.drain(Duration::MAX).wait().complete);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a worker does nothing until it is started"]
pub struct WorkerBuilder<K, V = ()> {
    queue: Arc<Shared<K, V>>,
    threads: usize,
    rules: Rules<K>,
    expire_failures_after: Option<Duration>,
}

impl<K, V> WorkerBuilder<K, V> {
    /// How many keys are worked on at once; the machine's cores by default. With
    /// 0 nothing is worked on.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # let q = WorkQueue::<u32>::new();
    /// let one_at_a_time = Worker::of(&q).workers(1).start_threads(|_| ())?;
    /// # drop(one_at_a_time);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn workers(self, workers: usize) -> Self {
        Self { threads: workers, ..self }
    }

    /// How long a run may take. One that takes longer has failed: that is
    /// reported at once, the handler is told ([`Run::cancelled`]), and its key
    /// stays held until it has returned.
    ///
    /// ```
    /// # use requeue::{FakeClock, WorkQueue, Worker};
    /// # use std::sync::mpsc;
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).build()?;
    /// let (tell, told) = mpsc::channel();
    /// let worker = Worker::of(&q)
    ///     .time_limit(Duration::from_secs(30))
    ///     .on_failure(move |key, why| tell.send(format!("{key}: {why}")).unwrap())
    ///     .start_threads(|run| while !run.cancelled() { std::thread::yield_now() })?;
    /// q.add("a")?;
    /// clock.wait_for_alarms(1); // the limit is being watched
    /// clock.advance(Duration::from_secs(30));
    /// assert_eq!(told.recv()?, "a: the handler took longer than 30s");
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.rules.time_limit = Some(limit);
        self
    }

    /// How many runs in a row may fail before the key is given up; 0, the
    /// default, is no maximum.
    ///
    /// ```
    /// # use requeue::{limiter, WorkQueue, Worker};
    /// # use std::sync::mpsc;
    /// let q = WorkQueue::builder().limiter(limiter::default_per_item()).build()?;
    /// let (tell, told) = mpsc::channel();
    /// let worker = Worker::of(&q)
    ///     .max_attempts(3)
    ///     .on_failure(move |_, _| tell.send(()).unwrap())
    ///     .start_threads(|_| Err::<(), _>("not yet"))?;
    /// q.add("a")?;
    /// for _ in 0..3 {
    ///     told.recv()?;
    /// }
    /// worker.drain(std::time::Duration::MAX).wait();
    /// # assert!(told.try_recv().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.rules.max_attempts = attempts;
        self
    }

    /// Called for each failed run, from the worker's threads, before the key
    /// goes back or is given up. A panic in it is caught.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # let q = WorkQueue::<u32>::new();
    /// let worker = Worker::of(&q)
    ///     .on_failure(|key, why| eprintln!("{key} comes back: {why}"))
    ///     .start_threads(|_| Err::<(), _>("not yet"))?;
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_failure(mut self, hook: impl Fn(&K, &Failure) + Send + Sync + 'static) -> Self {
        self.rules.on_failure = Some(Arc::new(hook));
        self
    }

    /// Called for each key that is given up, from the worker's threads. A panic
    /// in it is caught.
    ///
    /// ```
    /// # use requeue::{Outcome, WorkQueue, Worker};
    /// # use std::sync::mpsc;
    /// # let q = WorkQueue::new();
    /// let (tell, told) = mpsc::channel();
    /// let worker = Worker::of(&q)
    ///     .on_give_up(move |key, why| tell.send(format!("{key}: {why}")).unwrap())
    ///     .start_threads(|_| Outcome::GiveUp("no such object".into()))?;
    /// q.add("a")?;
    /// assert_eq!(told.recv()?, "a: no such object");
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_give_up(mut self, hook: impl Fn(&K, &Failure) + Send + Sync + 'static) -> Self {
        self.rules.on_give_up = Some(Arc::new(hook));
        self
    }

    /// How long after the end of its last delay a key's failure count is kept,
    /// for keys that never come back; an hour by default, `None` for ever. It
    /// holds for the whole queue, where the limiter leaves the counting to the
    /// queue and has no time of its own.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # let q = WorkQueue::<u32>::new();
    /// let day = std::time::Duration::from_secs(24 * 3600);
    /// let worker = Worker::of(&q).expire_failures_after(Some(day)).start_threads(|_| ())?;
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expire_failures_after(self, after: Option<Duration>) -> Self {
        Self { expire_failures_after: after, ..self }
    }

    /// Starts the threads. The handler is called on them, for one key at a time
    /// each; it may panic, which fails its run and nothing else.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread; those that started are ended again.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// let q = WorkQueue::<String>::new();
    /// // an Err is a retry; see IntoOutcome for what else a handler may return
    /// let worker = Worker::of(&q).start_threads(|run| std::fs::metadata(run.key()).map(drop))?;
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_threads<F, O>(self, handler: F) -> io::Result<Worker>
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
        F: Fn(Run<K, V>) -> O + Send + Sync + 'static,
        O: IntoOutcome,
    {
        self.queue.enter(&mut None).core.expire_failures_after(self.expire_failures_after);
        let roster = threads::start(self.queue, self.threads, self.rules, handler)?;
        Ok(Worker { roster })
    }
}

impl<K, V> fmt::Debug for WorkerBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("workers", &self.threads)
            .field("time_limit", &self.rules.time_limit)
            .field("max_attempts", &self.rules.max_attempts)
            .finish_non_exhaustive()
    }
}
