//! [`Metrics`] and [`Gauges`]: what a queue reports about itself.

use crate::engine_gauges::EngineGauges;
use std::sync::Arc;
use std::time::Duration;

pub use requeue_core::{GroupGauges, RunEnd};

/// Values of the gauges of a queue, as [`Metrics::attach`] gets them.
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
    /// Called once, when the queue `name` is built, with its [constant labels](crate::Builder::label), checked and
    /// in the order given, and the source of its [`Gauges`]: `workqueue_depth`,
    /// `workqueue_unfinished_work_seconds`, `workqueue_longest_running_processor_seconds` and the others.
    ///
    /// `gauges` computes them from the queue's state: nothing ticks, and they are right during and after
    /// shutdown too. It returns `None` once the queue is gone, and does not keep it alive. It reads the queue's
    /// clock once, and takes its lock: once for each 256 priorities and groups. The gauges of an engine are in
    /// memory: it does not wait for an unreachable store.
    ///
    /// ```
    /// use requeue::{Gauges, Metrics, WorkQueue};
    /// use std::sync::{Arc, Mutex};
    ///
    /// type Read = Arc<dyn Fn() -> Option<Gauges> + Send + Sync>;
    /// #[derive(Default)]
    /// struct Page(Mutex<Option<(String, Read)>>);
    /// impl Metrics for Page {
    ///     fn attach(&self, name: &str, labels: &[(String, String)], gauges: Read) {
    ///         *self.0.lock().unwrap() = Some((format!("{name} {labels:?}"), gauges));
    ///     }
    /// }
    /// let page = Arc::new(Page::default());
    /// let q = WorkQueue::builder().name("pods").label("cluster", "eu-1").metrics(page.clone()).build()?;
    /// q.add("a")?;
    /// let (name, gauges) = page.0.lock().unwrap().take().unwrap();
    /// assert_eq!(name, r#"pods [("cluster", "eu-1")]"#);
    /// assert_eq!(gauges().map(|gauges| gauges.depth), Some(1));
    /// drop(q);
    /// assert!(gauges().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewDepthMetric", "NewUnfinishedWorkSecondsMetric", "ConstLabels"))]
    #[doc(alias("NewLongestRunningProcessorSecondsMetric"))]
    fn attach(
        &self,
        name: &str,
        labels: &[(String, String)],
        gauges: Arc<dyn Fn() -> Option<Gauges> + Send + Sync>,
    ) {
        let _ = (name, labels, gauges);
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
        fn attach(&self, name: &str, labels: &[(String, String)], gauges: Arc<dyn Fn() -> Option<Gauges> + Send + Sync>);
    }
}
