//! [`Metrics`] and gauges: what a queue reports about itself.

use std::sync::Weak;
use std::time::Duration;

pub use requeue_core::{Gauges, GroupGauges, RunEnd};

/// A queue whose gauges can be read.
///
/// They are computed from the queue's state when they are read: nothing ticks, and they are right during and
/// after shutdown too.
///
/// ```
/// use requeue::{Metrics, ReadGauges, WorkQueue};
/// use std::sync::{Arc, Mutex, Weak};
///
/// #[derive(Default)]
/// struct Page(Mutex<Option<Weak<dyn ReadGauges>>>);
/// impl Metrics for Page {
///     fn attach(&self, _name: &str, gauges: Weak<dyn ReadGauges>) {
///         *self.0.lock().unwrap() = Some(gauges);
///     }
/// }
/// let page = Arc::new(Page::default());
/// let q = WorkQueue::builder().name("pods").metrics(page.clone()).build()?;
/// q.add("a")?;
/// let gauges = page.0.lock().unwrap().clone().and_then(|queue| queue.upgrade()).unwrap();
/// assert_eq!(gauges.gauges().depth, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ReadGauges: Send + Sync {
    /// The current gauges. Reads the queue's clock once and takes its lock.
    ///
    /// ```
    /// # use requeue::ReadGauges;
    /// fn is_stuck(queue: &dyn ReadGauges) -> bool {
    ///     queue.gauges().longest_running.as_secs() > 300
    /// }
    /// ```
    fn gauges(&self) -> Gauges;

    /// Number of ready keys per priority, the lowest first, without priorities that have none. Paused keys
    /// are included, so the sum is [`Gauges::depth`]. `None` on a queue without priorities.
    ///
    /// The queue keeps no counts for it, except one number per key in groups with priorities: it reads the
    /// line, 256 priorities per lock hold. With more of them the answer is not of one instant.
    ///
    /// ```
    /// # use requeue::ReadGauges;
    /// fn urgent(queue: &dyn ReadGauges) -> usize {
    ///     let depths = queue.depth_by_priority().unwrap_or_default();
    ///     depths.iter().filter(|(priority, _)| *priority > 0).map(|(_, keys)| keys).sum()
    /// }
    /// ```
    fn depth_by_priority(&self) -> Option<Vec<(i16, usize)>> {
        None
    }

    /// Number of ready and held keys per group, for groups that
    /// [`GroupRules::metrics`](crate::GroupRules::metrics) names and that have known keys. Groups with the
    /// same name are listed separately.
    ///
    /// The queue keeps no counts for it. It reads 256 groups per lock hold: with more of them the answer is
    /// not of one instant.
    ///
    /// ```
    /// # use requeue::ReadGauges;
    /// fn busiest(queue: &dyn ReadGauges) -> Option<std::sync::Arc<str>> {
    ///     queue.groups().into_iter().max_by_key(|group| group.held).map(|group| group.name)
    /// }
    /// ```
    fn groups(&self) -> Vec<GroupGauges> {
        Vec::new()
    }
}

/// Number of a queue's worker threads or tasks, and how many of them have a key.
///
/// ```
/// # use requeue::WorkerCounts;
/// let idle = |counts: WorkerCounts| counts.workers - counts.busy;
/// assert_eq!(idle(WorkerCounts { workers: 4, busy: 3 }), 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Number of workers that have not ended.
    pub workers: usize,
    /// Number of workers that have a key.
    pub busy: usize,
}

/// Workers whose counts can be read.
///
/// Implement it for workers of your own, and pass them to the sink ([`Metrics::attach_workers`]).
///
/// ```
/// use requeue::{Metrics, ReadWorkers, WorkerCounts};
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// use std::sync::Arc;
///
/// struct Loops { threads: usize, busy: AtomicUsize }
/// impl ReadWorkers for Loops {
///     fn workers(&self) -> WorkerCounts {
///         WorkerCounts { workers: self.threads, busy: self.busy.load(Relaxed) }
///     }
/// }
/// fn tell(sink: &impl Metrics, loops: &Arc<Loops>) {
///     let loops: Arc<dyn ReadWorkers> = loops.clone();
///     sink.attach_workers(Arc::downgrade(&loops));
/// }
/// ```
pub trait ReadWorkers: Send + Sync {
    /// The counts now.
    ///
    /// ```
    /// # use requeue::ReadWorkers;
    /// fn is_idle(crew: &dyn ReadWorkers) -> bool {
    ///     crew.workers().busy == 0
    /// }
    /// ```
    fn workers(&self) -> WorkerCounts;
}

/// State of an engine's store at its last look.
///
/// It describes the whole queue, not this process: each process that works on it reports the same.
///
/// ```
/// use requeue::StoreGauges;
/// use std::time::Duration;
/// let mut gauges = StoreGauges::default(); // an engine fills it in
/// gauges.expired_owners = 1;
/// let is_reaped = |gauges: &StoreGauges| gauges.expired_owners == 0;
/// assert!(!is_reaped(&gauges) && gauges.oldest_ready == Duration::ZERO);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreGauges {
    /// Keys in line. An engine may stop counting at a limit, here and below: see its documentation.
    pub ready: u64,
    /// Keys with a worker, in any process.
    pub held: u64,
    /// Keys with a timer, even if they are also in line or held.
    pub waiting: u64,
    /// Triggers of users' transactions that no process has read yet.
    pub inbox: u64,
    /// Keys whose last run gave up.
    pub dead: u64,
    /// How long the first key in line has been there; 0 if there is none.
    pub oldest_ready: Duration,
    /// Whether the queue is paused: none of its keys is handed out.
    pub paused: bool,
    /// Processes that have a lease.
    pub owners: u64,
    /// Processes whose lease has ended, and whose keys have not been given back yet.
    pub expired_owners: u64,
    /// Remaining time of the lease that ends first; `None` if no process has one.
    pub shortest_lease: Option<Duration>,
    /// Age of the database's oldest open snapshot; 0 if there is none. Rows that died since then cannot be
    /// vacuumed.
    pub oldest_snapshot: Duration,
}

/// A process's lease on a queue.
///
/// ```
/// use requeue::LeaseGauges;
/// let late = |lease: &LeaseGauges| lease.since_beat > lease.length / 2;
/// assert!(!late(&LeaseGauges::default()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseGauges {
    /// Whether the process has one. A process that has not asked for a key yet has none.
    pub held: bool,
    /// Length of a lease.
    pub length: Duration,
    /// Time since the last extension was sent that was answered; 0 without a lease.
    pub since_beat: Duration,
}

/// Gauges of an engine, beside those of its front.
///
/// ```
/// use requeue::EngineGauges;
/// let mut gauges = EngineGauges::default(); // an engine fills it in
/// gauges.up = true;
/// assert!(gauges.store.is_none()); // it has not looked yet
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineGauges {
    /// Whether the store answered the last look.
    pub up: bool,
    /// State of the store at that look; `None` if the store is not up.
    pub store: Option<StoreGauges>,
    /// The lease of this process.
    pub lease: LeaseGauges,
    /// How often this process has lost its lease.
    pub leases_lost: u64,
    /// Ends of runs that changed nothing: the store refused them because another process had the key by then,
    /// or they could not be sent before the lease was lost.
    pub ends_refused: u64,
}

/// An engine whose gauges can be read: [`Metrics::attach_engine`].
///
/// ```
/// # use requeue::{EngineGauges, ReadEngine};
/// struct File;
/// impl ReadEngine for File {
///     fn engine(&self) -> EngineGauges {
///         let mut gauges = EngineGauges::default();
///         gauges.up = true;
///         gauges
///     }
/// }
/// assert!(File.engine().up);
/// ```
pub trait ReadEngine: Send + Sync {
    /// The engine's current figures. They are in memory: this does not wait for an unreachable store.
    ///
    /// ```
    /// # use requeue::ReadEngine;
    /// fn is_away(engine: &dyn ReadEngine) -> bool {
    ///     !engine.engine().up
    /// }
    /// ```
    fn engine(&self) -> EngineGauges;
}

/// A sink for a queue's metrics, given to [`Builder::metrics`](crate::Builder::metrics).
///
/// Every method does nothing by default. They are called outside the queue's lock, on the thread that called
/// the queue. A panic in one is caught after the panic hook, because a metric must not lose a key. The call
/// waits until they return, so a sink that blocks slows this queue's callers. It does not delay other queues:
/// sinks do not run on the thread that fires the clock's alarms.
///
/// The names are Kubernetes', if it has one: see [the table](crate#metrics) for which call feeds which. The
/// crate `requeue-prometheus` has a sink that exports them to Prometheus.
///
/// ```
/// use requeue::{Metrics, WorkQueue};
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
///
/// #[derive(Default)]
/// struct Adds(AtomicU64);
/// impl Metrics for Adds {
///     fn added(&self, keys: u64) {
///         self.0.fetch_add(keys, Ordering::Relaxed);
///     }
/// }
/// let adds = Arc::new(Adds::default());
/// let q = WorkQueue::builder().name("pods").metrics(adds.clone()).build()?;
/// q.add("a")?;
/// q.add("a")?; // coalesces
/// assert_eq!(adds.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("MetricsProvider"))]
pub trait Metrics: Send + Sync + 'static {
    /// Number of keys that became ready or dirty: `workqueue_adds_total`.
    ///
    /// ```
    /// # use requeue::{Metrics, WorkQueue};
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
    /// #[derive(Default)]
    /// struct Sink(AtomicU64);
    /// impl Metrics for Sink {
    ///     fn added(&self, keys: u64) {
    ///         self.0.fetch_add(keys, Relaxed);
    ///     }
    /// }
    /// # let sink = Arc::new(Sink::default());
    /// # let q = WorkQueue::builder().name("pods").metrics(sink.clone()).build()?;
    /// q.add_many(["a", "b", "a"]).all()?;
    /// assert_eq!(sink.0.load(Relaxed), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewAddsMetric"))]
    fn added(&self, keys: u64) {
        let _ = keys;
    }
    /// Number of accepted triggers that changed nothing, because a pending run already covers them: those
    /// that return [`Added::Coalesced`](crate::Added).
    ///
    /// Also called for adds that take no lock, from many threads at once: a sink with a single counter makes
    /// them wait for each other.
    ///
    /// ```
    /// # use requeue::{Metrics, WorkQueue};
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
    /// #[derive(Default)]
    /// struct Sink(AtomicU64);
    /// impl Metrics for Sink {
    ///     fn coalesced(&self, triggers: u64) {
    ///         self.0.fetch_add(triggers, Relaxed);
    ///     }
    /// }
    /// # let sink = Arc::new(Sink::default());
    /// # let q = WorkQueue::builder().name("pods").metrics(sink.clone()).build()?;
    /// q.add_many(["a", "b", "a"]).all()?;
    /// assert_eq!(sink.0.load(Relaxed), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn coalesced(&self, triggers: u64) {
        let _ = triggers;
    }
    /// Number of keys that made room for others on a queue that [drops the
    /// oldest](crate::Builder::drop_oldest).
    ///
    /// ```
    /// # use requeue::{Metrics, WorkQueue};
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
    /// #[derive(Default)]
    /// struct Sink(AtomicU64);
    /// impl Metrics for Sink {
    ///     fn dropped(&self, keys: u64) {
    ///         self.0.fetch_add(keys, Relaxed);
    ///     }
    /// }
    /// # let sink = Arc::new(Sink::default());
    /// let builder = WorkQueue::builder().name("pods").bound(1).drop_oldest(|_, _| ());
    /// let q = builder.metrics(sink.clone()).build()?;
    /// q.add_many(["a", "b", "c"]).all()?;
    /// assert_eq!(sink.0.load(Relaxed), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn dropped(&self, keys: u64) {
        let _ = keys;
    }
    /// An `add_after` or `add_rate_limited` was accepted: `workqueue_retries_total`.
    ///
    /// ```
    /// # use requeue::{Metrics, WorkQueue};
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
    /// #[derive(Default)]
    /// struct Sink(AtomicU64);
    /// impl Metrics for Sink {
    ///     fn retried(&self) {
    ///         self.0.fetch_add(1, Relaxed);
    ///     }
    /// }
    /// # let sink = Arc::new(Sink::default());
    /// # let q = WorkQueue::builder().name("pods").metrics(sink.clone()).build()?;
    /// q.add_rate_limited("a")?;
    /// assert_eq!(sink.0.load(Relaxed), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewRetriesMetric"))]
    fn retried(&self) {}
    /// A timer fired, `late` after its instant: because all workers were busy (timers fire only when a call
    /// looks at the queue), or because the clock woke late.
    ///
    /// ```
    /// # use requeue::{FakeClock, Metrics, WorkQueue};
    /// # use std::sync::{Arc, Mutex};
    /// # use std::time::Duration;
    /// #[derive(Default)]
    /// struct Latest(Mutex<Duration>);
    /// impl Metrics for Latest {
    ///     fn timer_fired(&self, late: Duration) {
    ///         *self.0.lock().unwrap() = late;
    ///     }
    /// }
    /// # let (sink, clock) = (Arc::new(Latest::default()), FakeClock::new());
    /// # let q = WorkQueue::builder().name("pods").clock(clock.clone()).metrics(sink.clone()).build()?;
    /// q.add_after("a", Duration::from_secs(1))?;
    /// clock.advance(Duration::from_secs(3)); // nobody looks
    /// assert_eq!(q.len(), 1);
    /// assert_eq!(*sink.0.lock().unwrap(), Duration::from_secs(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn timer_fired(&self, late: Duration) {
        let _ = late;
    }
    /// A key was handed out, `waited` after the first trigger of its run: `workqueue_queue_duration_seconds`.
    ///
    /// ```
    /// # use requeue::{FakeClock, Metrics, WorkQueue};
    /// # use std::sync::{Arc, Mutex};
    /// # use std::time::Duration;
    /// #[derive(Default)]
    /// struct Longest(Mutex<Duration>);
    /// impl Metrics for Longest {
    ///     fn handed_out(&self, waited: Duration) {
    ///         let mut longest = self.0.lock().unwrap();
    ///         *longest = waited.max(*longest);
    ///     }
    /// }
    /// # let (sink, clock) = (Arc::new(Longest::default()), FakeClock::new());
    /// # let q = WorkQueue::builder().name("pods").clock(clock.clone()).metrics(sink.clone()).build()?;
    /// q.add("a")?;
    /// clock.advance(Duration::from_secs(2));
    /// q.try_get()?.done();
    /// assert_eq!(*sink.0.lock().unwrap(), Duration::from_secs(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewLatencyMetric"))]
    fn handed_out(&self, waited: Duration) {
        let _ = waited;
    }
    /// A run ended after `took`: `workqueue_work_duration_seconds`.
    ///
    /// ```
    /// # use requeue::{Metrics, RunEnd, WorkQueue};
    /// # use std::sync::{Arc, Mutex};
    /// # use std::time::Duration;
    /// #[derive(Default)]
    /// struct Ends(Mutex<Vec<RunEnd>>);
    /// impl Metrics for Ends {
    ///     fn run_ended(&self, _took: Duration, end: RunEnd) {
    ///         self.0.lock().unwrap().push(end);
    ///     }
    /// }
    /// # let sink = Arc::new(Ends::default());
    /// # let q = WorkQueue::builder().name("pods").metrics(sink.clone()).build()?;
    /// q.add_many(["a", "b"]).all()?;
    /// q.try_get()?.done();
    /// q.try_get()?.give_up();
    /// assert_eq!(*sink.0.lock().unwrap(), [RunEnd::Done, RunEnd::GiveUp]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewWorkDurationMetric"))]
    fn run_ended(&self, took: Duration, end: RunEnd) {
        let _ = (took, end);
    }
    /// Called once, when the queue `name` is built, with the source of `workqueue_depth`,
    /// `workqueue_unfinished_work_seconds`, `workqueue_longest_running_processor_seconds` and the other
    /// [`Gauges`]. Once the queue is gone the reference cannot be upgraded.
    ///
    /// ```
    /// # use requeue::{Metrics, ReadGauges, WorkQueue};
    /// # use std::sync::{Arc, Mutex, Weak};
    /// #[derive(Default)]
    /// struct Names(Mutex<Vec<String>>);
    /// impl Metrics for Names {
    ///     fn attach(&self, name: &str, _gauges: Weak<dyn ReadGauges>) {
    ///         self.0.lock().unwrap().push(name.to_owned());
    ///     }
    /// }
    /// let names = Arc::new(Names::default());
    /// let q = WorkQueue::<u64>::builder().name("pods").metrics(names.clone()).build()?;
    /// assert_eq!(*names.0.lock().unwrap(), ["pods"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewDepthMetric", "NewUnfinishedWorkSecondsMetric"))]
    #[doc(alias("NewLongestRunningProcessorSecondsMetric"))]
    fn attach(&self, name: &str, gauges: Weak<dyn ReadGauges>) {
        let _ = (name, gauges);
    }
    /// Called once, when the queue is built and before [`attach`](Self::attach), if it has [constant
    /// labels](crate::Builder::label): their checked names and values, in the order given.
    ///
    /// ```
    /// # use requeue::{Metrics, WorkQueue};
    /// # use std::sync::{Arc, Mutex};
    /// #[derive(Default)]
    /// struct Labels(Mutex<Vec<(String, String)>>);
    /// impl Metrics for Labels {
    ///     fn attach_labels(&self, labels: &[(String, String)]) {
    ///         *self.0.lock().unwrap() = labels.to_vec();
    ///     }
    /// }
    /// let sink = Arc::new(Labels::default());
    /// let builder = WorkQueue::<u64>::builder().name("pods").label("cluster", "eu-1");
    /// let q = builder.metrics(sink.clone()).build()?;
    /// assert_eq!(*sink.0.lock().unwrap(), [("cluster".to_owned(), "eu-1".to_owned())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("ConstLabels"))]
    fn attach_labels(&self, labels: &[(String, String)]) {
        let _ = labels;
    }
    /// Called once for each [`Worker`](crate::Worker) of the queue, when it starts, with the source of its
    /// numbers of threads or tasks and of busy ones. They are 0 once all have ended. Once the worker's handle
    /// is gone too the reference cannot be upgraded.
    ///
    /// ```
    /// # use requeue::{Metrics, ReadWorkers, WorkQueue, Worker};
    /// # use std::sync::{Arc, Mutex, Weak};
    /// #[derive(Default)]
    /// struct Crews(Mutex<Vec<Weak<dyn ReadWorkers>>>);
    /// impl Metrics for Crews {
    ///     fn attach_workers(&self, workers: Weak<dyn ReadWorkers>) {
    ///         self.0.lock().unwrap().push(workers);
    ///     }
    /// }
    /// let crews = Arc::new(Crews::default());
    /// let q = WorkQueue::<u64>::builder().name("pods").metrics(crews.clone()).build()?;
    /// let worker = Worker::of(&q).workers(3).start_threads(|_| ())?;
    /// let crew = crews.0.lock().unwrap()[0].upgrade().expect("they are there");
    /// assert_eq!((crew.workers().workers, crew.workers().busy), (3, 0));
    /// worker.stop(std::time::Duration::MAX).wait();
    /// assert_eq!(crew.workers().workers, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn attach_workers(&self, workers: Weak<dyn ReadWorkers>) {
        let _ = workers;
    }
    /// Called once, when a queue of an engine with figures is opened, with their source.
    ///
    /// ```
    /// # use requeue::{EngineGauges, Metrics, ReadEngine, Source, WorkQueue};
    /// # use std::sync::{Arc, Mutex, Weak};
    /// #[derive(Default)]
    /// struct Engines(Mutex<Vec<Weak<dyn ReadEngine>>>);
    /// impl Metrics for Engines {
    ///     fn attach_engine(&self, engine: Weak<dyn ReadEngine>) {
    ///         self.0.lock().unwrap().push(engine);
    ///     }
    /// }
    /// # struct File;
    /// # impl ReadEngine for File {
    /// #     fn engine(&self) -> EngineGauges { EngineGauges::default() }
    /// # }
    /// let engines = Arc::new(Engines::default());
    /// let q = WorkQueue::<u64>::builder().name("pods").metrics(engines.clone()).build()?;
    /// let engine: Arc<dyn ReadEngine> = Arc::new(File); // what an engine does when it opens a queue
    /// assert!(q.front().attach_engine(&engine));
    /// assert!(!engines.0.lock().unwrap()[0].upgrade().expect("it is there").engine().up);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn attach_engine(&self, engine: Weak<dyn ReadEngine>) {
        let _ = engine;
    }
}

impl<M: Metrics + ?Sized> Metrics for std::sync::Arc<M> {
    forward! { self => **self;
        fn added(&self, keys: u64);
        fn coalesced(&self, triggers: u64);
        fn dropped(&self, keys: u64);
        fn retried(&self);
        fn timer_fired(&self, late: Duration);
        fn handed_out(&self, waited: Duration);
        fn run_ended(&self, took: Duration, end: RunEnd);
        fn attach(&self, name: &str, gauges: Weak<dyn ReadGauges>);
        fn attach_labels(&self, labels: &[(String, String)]);
        fn attach_workers(&self, workers: Weak<dyn ReadWorkers>);
        fn attach_engine(&self, engine: Weak<dyn ReadEngine>);
    }
}

/// A boxed sink is a sink, also `Box<dyn Metrics>`.
impl<M: Metrics + ?Sized> Metrics for Box<M> {
    forward! { self => **self;
        fn added(&self, keys: u64);
        fn coalesced(&self, triggers: u64);
        fn dropped(&self, keys: u64);
        fn retried(&self);
        fn timer_fired(&self, late: Duration);
        fn handed_out(&self, waited: Duration);
        fn run_ended(&self, took: Duration, end: RunEnd);
        fn attach(&self, name: &str, gauges: Weak<dyn ReadGauges>);
        fn attach_labels(&self, labels: &[(String, String)]);
        fn attach_workers(&self, workers: Weak<dyn ReadWorkers>);
        fn attach_engine(&self, engine: Weak<dyn ReadEngine>);
    }
}
