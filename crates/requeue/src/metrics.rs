//! [`Metrics`] and [`Gauges`]: what a queue reports about itself.

use crate::engine_gauges::EngineGauges;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use requeue_core::{GroupGauges, RunEnd};

/// Values of the gauges of a queue: [`ReadGauges::gauges`].
///
/// The numbers of keys and the times are of one instant. A queue with more than 256 priorities or groups reads
/// those in several lock holds: with more of them, these answers are not of one instant.
///
/// ```
/// # use requeue::Gauges;
/// fn urgent(gauges: &Gauges) -> usize {
///     let depths = gauges.depth_by_priority.iter().flatten();
///     depths.filter(|(priority, _)| *priority > 0).map(|(_, keys)| keys).sum()
/// }
/// assert_eq!(urgent(&Gauges::default()), 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// Ready keys.
    pub depth: usize,
    /// Number of ready keys per priority, the lowest first, without priorities that have none. Paused keys are
    /// included, so the sum is `depth`. `None` on a queue without priorities.
    pub depth_by_priority: Option<Vec<(i16, usize)>>,
    /// Keys with a timer, even if they are also ready or held.
    pub waiting: usize,
    /// Keys that workers have.
    pub held: usize,
    /// Held keys that were triggered during their run.
    pub dirty: usize,
    /// Time in line of the key that has been there longest; zero if there is none.
    pub oldest_ready: Duration,
    /// Sum of the times of all current runs.
    pub unfinished_work: Duration,
    /// Time of the longest current run.
    pub longest_running: Duration,
    /// Number of ready and held keys per group, for groups that
    /// [`GroupRules::metrics`](crate::GroupRules::metrics) names and that have known keys. Groups with the same
    /// name are listed separately.
    pub groups: Vec<GroupGauges>,
    /// Number of threads or tasks of the queue's [`Worker`](crate::Worker)s that have not ended.
    pub workers: usize,
    /// Number of workers that have a key.
    pub busy_workers: usize,
    /// Gauges of the queue's engine. `None` if the queue is in memory only, or its engine has none.
    pub engine: Option<EngineGauges>,
}

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
    /// The current gauges. Reads the queue's clock once, and takes its lock: once for each 256 priorities and
    /// groups. The gauges of an engine are in memory: this does not wait for an unreachable store.
    ///
    /// ```
    /// # use requeue::ReadGauges;
    /// fn is_stuck(queue: &dyn ReadGauges) -> bool {
    ///     queue.gauges().longest_running.as_secs() > 300
    /// }
    /// ```
    fn gauges(&self) -> Gauges;
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
    /// q.try_get()?.give_up("no such object");
    /// assert_eq!(*sink.0.lock().unwrap(), [RunEnd::Done, RunEnd::GiveUp]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewWorkDurationMetric"))]
    fn run_ended(&self, took: Duration, end: RunEnd) {
        let _ = (took, end);
    }
    /// Called once, when the queue `name` is built, with the source of its [`Gauges`]: `workqueue_depth`,
    /// `workqueue_unfinished_work_seconds`, `workqueue_longest_running_processor_seconds` and the others. Once
    /// the queue is gone the reference cannot be upgraded.
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
}

for_pointers! {
    Metrics for (Arc, Box) {
        fn added(&self, keys: u64);
        fn coalesced(&self, triggers: u64);
        fn dropped(&self, keys: u64);
        fn retried(&self);
        fn timer_fired(&self, late: Duration);
        fn handed_out(&self, waited: Duration);
        fn run_ended(&self, took: Duration, end: RunEnd);
        fn attach(&self, name: &str, gauges: Weak<dyn ReadGauges>);
        fn attach_labels(&self, labels: &[(String, String)]);
    }
}
