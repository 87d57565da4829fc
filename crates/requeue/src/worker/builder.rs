//! Building a worker.

use super::executor::Spawn;
use super::future::WorkerFuture;
use super::handle::Worker;
use super::outcome::{IntoOutcome, RunReport};
use super::pool_size::PoolSize;
use super::rules::{Rules, report};
use super::run::Run;
use super::shared::WorkerShared;
use super::supply::{Spawner, WorkerSupply};
use super::tasks::Tasks;
use super::threads::Threads;
use crate::failure::Failure;
use crate::hold::{OnGiveUp, Shared};
use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// How long a failure count is kept of a key that never comes back, unless
/// [`WorkerBuilder::expire_failures_after`] says otherwise.
const EXPIRE_FAILURES_AFTER: Duration = Duration::from_secs(3600);

/// How long a worker beyond the least waits for a key, unless
/// [`WorkerBuilder::idle_timeout`] says otherwise: as long as Tokio keeps an idle thread of its
/// pool for blocking calls.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

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
pub struct WorkerBuilder<K: 'static, V: 'static = ()> {
    queue: Arc<Shared<K, V>>,
    workers: PoolSize,
    idle_timeout: Duration,
    rules: Rules<K, V>,
    expire_failures_after: Option<Duration>,
}

impl<K, V> WorkerBuilder<K, V> {
    pub(super) fn new(queue: Arc<Shared<K, V>>) -> Self {
        Self {
            queue,
            workers: std::thread::available_parallelism().map_or(1, NonZeroUsize::get).into(),
            idle_timeout: IDLE_TIMEOUT,
            rules: Rules::default(),
            expire_failures_after: Some(EXPIRE_FAILURES_AFTER),
        }
    }

    /// Sets how many keys are worked on at once; the machine's cores by default. With 0 nothing is worked on
    /// until [`Worker::resize`] says otherwise. More than 1,048,576 (2^20) are an error when the worker is
    /// started.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # let q = WorkQueue::<u32>::new();
    /// let one_at_a_time = Worker::of(&q).workers(1).start_threads(|_| ())?;
    /// # drop(one_at_a_time);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Workers on demand
    ///
    /// A range, `0..=256` say, lets the number follow the work. As many as the lower end says
    /// begin at once and stay. A further one is started when a key waits and all others have
    /// one; the next only when that one has taken a key, so that many keys at once do not
    /// start many threads at once. One that has found no key for
    /// [a while](Self::idle_timeout) ends, down to the lower end. `1..` has no upper end (but
    /// 2^20): for async handlers, which cost little.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # let q = WorkQueue::<u32>::new();
    /// let worker = Worker::of(&q).workers(0..=256).start_threads(|run| println!("{}", run.key()))?;
    /// assert_eq!(worker.workers(), 0); // nothing to do yet
    /// q.add(1)?;
    /// # worker.drain(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// It is started by the call that finds no worker for the key: an `add`, a worker that has just taken a
    /// key, or the clock where a timer comes due. That call pays for starting a thread or calls
    /// [`Spawn::spawn`]. Where the system has no thread for it, that is no failure of the key: it stays in
    /// line until somebody is free, and another attempt is made every 100 ms. An executor that turns a task
    /// away is not asked again before the next resize.
    pub fn workers(self, workers: impl Into<PoolSize>) -> Self {
        Self { workers: workers.into(), ..self }
    }

    /// How long a worker that was [started on demand](Self::workers) waits for a key before it
    /// ends, on the queue's clock; 10 s by default. [`Duration::MAX`] is for ever: the number
    /// then only grows. Zero ends it as soon as it finds no key.
    ///
    /// ```
    /// # use requeue::{FakeClock, WorkQueue, Worker};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).build()?;
    /// let idle = Duration::from_secs(60);
    /// let worker = Worker::of(&q).workers(0..=4).idle_timeout(idle).start_threads(|_| ())?;
    /// q.add("a")?;
    /// clock.wait_for_alarms(1); // it has run the key, and waits for another
    /// assert_eq!(worker.workers(), 1);
    /// clock.advance(idle);
    /// # while worker.workers() > 0 { std::thread::yield_now() }
    /// assert_eq!(worker.workers(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn idle_timeout(self, timeout: Duration) -> Self {
        Self { idle_timeout: timeout, ..self }
    }

    /// How long a run may take, on the queue's clock. One that takes longer has
    /// failed, and that is reported at once. A blocking handler is told
    /// ([`Run::cancelled`]), and its key stays held until it has returned; an async one
    /// is dropped.
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

    /// Sets how many runs in a row may fail before the key is given up; 0, the default, is no maximum.
    ///
    /// ```
    /// # use requeue::{limiter, Outcome, WorkQueue, Worker};
    /// # use std::sync::mpsc;
    /// let q = WorkQueue::builder().limiter(limiter::default_per_item()).build()?;
    /// let (tell, told) = mpsc::channel();
    /// let worker = Worker::of(&q)
    ///     .max_attempts(3)
    ///     .on_failure(move |_, _| tell.send(()).unwrap())
    ///     .start_threads(|_| Outcome::Retry("not yet".into()))?;
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

    /// Adds a hook that is called for each run before its handler, on the thread that calls the handler. Its time
    /// counts to the run. Several hooks are called in the order in which they were added. A panic in one is caught.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # use std::sync::mpsc;
    /// # let q = WorkQueue::new();
    /// let (tell, told) = mpsc::channel();
    /// let worker = Worker::of(&q)
    ///     .on_start(move |run| tell.send((*run.key(), run.attempt())).unwrap())
    ///     .start_threads(|_| ())?;
    /// q.add("a")?;
    /// assert_eq!(told.recv()?, ("a", 1));
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_start(mut self, hook: impl Fn(&Run<K, V>) + Send + Sync + 'static) -> Self {
        self.rules.on_start.push(Box::new(hook));
        self
    }

    /// Adds a hook that is called for each failed run, on the thread where that shows, before the key
    /// goes back or is given up. A panic in it is caught.
    ///
    /// ```
    /// # use requeue::{Outcome, WorkQueue, Worker};
    /// # let q = WorkQueue::<u32>::new();
    /// let worker = Worker::of(&q)
    ///     .on_failure(|key, why| eprintln!("{key} comes back: {why}"))
    ///     .start_threads(|_| Outcome::Retry("not yet".into()))?;
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_failure(mut self, hook: impl Fn(&K, &Failure) + Send + Sync + 'static) -> Self {
        self.rules.on_failure.push(Arc::new(hook));
        self
    }

    /// Adds a hook that is called for each key that is given up, on the thread where its run ended. A
    /// panic in it is caught.
    ///
    /// It also hears of each key that [`Item::give_up`](crate::Item::give_up) gives up, on the thread that calls it. And
    /// of each key that a drain of the queue leaves unfinished, as [`Failure::RetryRefused`] or [`Failure::TimerDropped`]: once, before the
    /// drain's answer or report is given, on the thread that asks for that.
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
        self.rules.on_give_up.push(Arc::new(hook));
        self
    }

    /// Adds a hook that is called once for each run that has ended, whatever the way: its handler returned any
    /// outcome or panicked, was past its time limit, or was cancelled. It comes after the key
    /// went back, was given up or was done, on the thread where the run ended, and without
    /// the queue's lock. The report says [how long the run took](RunReport::took). Only here
    /// the delay of a retry is known, and whether the retry was taken at all. Another worker
    /// may have the key already. Several hooks are called in the order in which they were added, and a panic in one is
    /// caught.
    ///
    /// ```
    /// # use requeue::{Fate, Outcome, WorkQueue, Worker};
    /// # use std::sync::mpsc;
    /// # use std::time::Duration;
    /// # let q = WorkQueue::new();
    /// let (tell, told) = mpsc::channel();
    /// let worker = Worker::of(&q)
    ///     .on_end(move |key: &&str, run| tell.send((*key, run.attempt, run.fate)).unwrap())
    ///     .start_threads(|_| Outcome::RetryAfter(Duration::from_secs(60), "not yet".into()))?;
    /// q.add("a")?;
    /// assert_eq!(told.recv()?, ("a", 1, Fate::Retry(Duration::from_secs(60))));
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_end(mut self, hook: impl Fn(&K, &RunReport<'_>) + Send + Sync + 'static) -> Self {
        self.rules.on_end.push(Box::new(hook));
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
    /// If the system cannot start a thread, for more than 2^20 of them, or for an empty range;
    /// those that started are ended again.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// let q = WorkQueue::<String>::new();
    /// let worker = Worker::of(&q).start_threads(|run| {
    ///     let found = std::fs::metadata(run.key())?; // an Err is a retry
    ///     println!("{}: {} bytes", run.key(), found.len());
    ///     Ok(()) // see IntoOutcome for what else a handler may return
    /// })?;
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
        self.start(|shared| Arc::new(Threads::new(shared, handler)))
    }

    /// Starts the workers as tasks of an executor, whichever it is: a closure that
    /// spawns, or Tokio's `Handle` (feature `tokio`). See [`Spawn`] for what becomes of tasks that
    /// it drops.
    ///
    /// The handler is called for one key at a time in each task. It owns its [`Run`], so
    /// that what it returns may hold it across awaits. Where it is dropped before it has
    /// returned, its run has failed.
    ///
    /// # Errors
    ///
    /// For more than 1,048,576 (2^20) [`workers`](Self::workers), or an empty range; nothing was
    /// started then.
    ///
    /// ```
    /// use requeue::{Run, WorkQueue, Worker};
    /// use std::time::Duration;
    ///
    /// async fn reconcile(key: &str) -> Result<(), std::io::Error> {
    ///     println!("look at {key}");
    ///     Ok(())
    /// }
    ///
    /// let q = WorkQueue::<String>::new();
    /// let worker = Worker::of(&q).workers(16).time_limit(Duration::from_secs(30)).start_on(
    ///     |task| smol::spawn(task).detach(),
    ///     |run: Run<String>| async move {
    ///         reconcile(run.key()).await?; // an Err is a retry
    ///         Ok(())
    ///     },
    /// )?;
    /// q.add_ref("default/web")?;
    /// let report = smol::block_on(async { worker.drain(Duration::from_secs(10)).await });
    /// assert_eq!((report.complete, report.done), (true, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_on<F, Fut>(self, executor: impl Spawn, handler: F) -> io::Result<Worker>
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
        F: Fn(Run<K, V>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.start(|shared| Arc::new(Tasks::new(shared, executor, handler)))
    }

    /// The workers without an executor: one future that runs up to [`workers`](Self::workers) concurrent
    /// handlers, for a bare `block_on`, a `select!`, or a runtime of one thread. Handlers need not be `Send`;
    /// where all is, so is the future.
    ///
    /// # Errors
    ///
    /// Those of [`start_on`](Self::start_on).
    ///
    /// ```
    /// use requeue::{Run, WorkQueue, Worker};
    /// let q = WorkQueue::<String>::new();
    /// q.add_ref("a")?;
    /// q.shut_down();
    /// let report = smol::block_on(Worker::of(&q).run(|run: Run<String>| async move {
    ///     println!("look at {}", run.key());
    /// })?);
    /// assert_eq!(report.done, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run<F, Fut>(self, handler: F) -> io::Result<WorkerFuture<K, V, F, Fut>>
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
        F: Fn(Run<K, V>) -> Fut,
        Fut: Future<Output: IntoOutcome>,
    {
        let (shared, workers, supply) = self.shared();
        WorkerFuture::new(shared, workers, supply, handler)
    }
}

impl<K: Send + Sync + 'static, V: Send + 'static> WorkerBuilder<K, V> {
    /// Starts the workers by this spawner.
    fn start(self, spawner: impl FnOnce(WorkerShared<K, V>) -> Arc<dyn Spawner>) -> io::Result<Worker> {
        let (shared, workers, supply) = self.shared();
        let set = shared.set.clone();
        supply.open(spawner(shared));
        if let Err(error) = set.resize(workers, &supply) {
            set.stop_taking();
            return Err(error);
        }
        Ok(Worker::new(set, supply))
    }

    fn shared(self) -> (WorkerShared<K, V>, PoolSize, Arc<WorkerSupply>) {
        self.queue.lock().with(|hold| hold.core.expire_failures_after(self.expire_failures_after));
        let supply = WorkerSupply::new(self.queue.clone(), self.idle_timeout);
        let set = supply.set.clone();
        self.queue.register_holders(&set);
        if !self.rules.on_give_up.is_empty() {
            let hooks = self.rules.on_give_up.clone();
            let hears: Arc<OnGiveUp<K>> = Arc::new(move |key, failure| report(&hooks, key, failure));
            self.queue.hook_give_up(Arc::downgrade(&hears));
            let _ = set.kept_hook.set(Box::new(hears));
        }
        (WorkerShared { queue: self.queue, set, rules: self.rules }, self.workers, supply)
    }
}

debug!([K, V] WorkerBuilder<K, V>, |builder| {
    workers: builder.workers,
    time_limit: builder.rules.time_limit,
    max_attempts: builder.rules.max_attempts,
    ..
});
