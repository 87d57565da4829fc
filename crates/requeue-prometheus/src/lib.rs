//! Prometheus metrics of [`requeue`]'s work queues, through [`prometheus_client`], the official client, under
//! Kubernetes' names: dashboards and alerts made for controllers work unchanged.
//!
//! A registry must be of the version of `prometheus-client` that this crate is built with: 0.25 or 0.26.
//! Import it from here, as [`requeue_prometheus::prometheus_client`](prometheus_client), and the versions
//! match. A program that depends on `prometheus-client` itself may get a second version, and then the error
//! "expected `Registry`, found a different `Registry`". `cargo update -p prometheus-client@0.26.0 --precise
//! 0.25.2` unifies them.
//!
//! ```
//! use requeue::WorkQueue;
//! use requeue_prometheus::QueueMetrics;
//! use requeue_prometheus::prometheus_client::{encoding::text::encode, registry::Registry};
//!
//! let mut registry = Registry::default();
//! let metrics = QueueMetrics::register(&mut registry); // once a registry
//! let pods = WorkQueue::builder().name("pods").metrics(metrics.queue("pods")?).build()?;
//! let nodes = WorkQueue::builder().name("nodes").metrics(metrics.queue("nodes")?).build()?;
//!
//! pods.add("web-1")?;
//! nodes.add("a")?;
//! nodes.get_blocking().expect("a is ready").done();
//!
//! let mut text = String::new(); // what a scrape gets
//! encode(&mut text, &registry)?;
//! assert!(text.contains("workqueue_depth{name=\"pods\"} 1\n"));
//! assert!(text.contains("workqueue_work_duration_seconds_count{name=\"nodes\"} 1\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is exported
//!
//! Each series has the label `name`, with the queue's name, followed by the queue's constant labels
//! ([`Builder::label`](requeue::Builder::label)):
//!
//! ```
//! # use requeue::WorkQueue;
//! # use requeue_prometheus::QueueMetrics;
//! # use requeue_prometheus::prometheus_client::{encoding::text::encode, registry::Registry};
//! # let mut registry = Registry::default();
//! # let metrics = QueueMetrics::register(&mut registry);
//! let builder = WorkQueue::<u64>::builder().name("pods").label("cluster", "eu-1");
//! let pods = builder.metrics(metrics.queue("pods")?).build()?;
//! # let mut text = String::new();
//! # encode(&mut text, &registry)?;
//! assert!(text.contains("workqueue_depth{name=\"pods\",cluster=\"eu-1\"} 0\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | metric | type | what it says |
//! |---|---|---|
//! | `workqueue_depth` | gauge | keys that are ready. (Kubernetes' also counts held keys that were triggered again: here those are `requeue_dirty_keys`.) Of a queue with priorities there is a series for each priority at which keys are ready, and for 0, with the label `priority`, as controller-runtime has it |
//! | `workqueue_adds_total` | counter | keys that became ready, or dirty |
//! | `workqueue_queue_duration_seconds` | histogram | from the first trigger of a run to its start |
//! | `workqueue_work_duration_seconds` | histogram | how long runs took |
//! | `workqueue_unfinished_work_seconds` | gauge | how long the runs that go on have taken together |
//! | `workqueue_longest_running_processor_seconds` | gauge | how long the longest of them has taken |
//! | `workqueue_retries_total` | counter | accepted `add_after` and `add_rate_limited`, and what holders put back |
//! | `requeue_waiting_keys` | gauge | keys with a timer |
//! | `requeue_held_keys` | gauge | keys that workers have |
//! | `requeue_dirty_keys` | gauge | those of them that get one more run |
//! | `requeue_oldest_ready_seconds` | gauge | how long the key that has been ready the longest has been so |
//! | `requeue_timer_lateness_seconds` | histogram | how long after its instant a timer fired |
//! | `requeue_coalesced_triggers_total` | counter | triggers that changed nothing |
//! | `requeue_dropped_keys_total` | counter | keys that made room on a queue that [drops the oldest](requeue::Builder::drop_oldest) |
//! | `requeue_runs_total` | counter | runs that ended, with the label `outcome`: `done`, `again`, `retry`, `give_up` |
//! | `requeue_workers` | gauge | threads, or tasks, of the queue's [`Worker`](requeue::Worker)s |
//! | `requeue_busy_workers` | gauge | those of them that have a key |
//! | `requeue_group_ready_keys` | gauge | ready keys of a group, with the label `group` (its name): only of groups to which [`GroupRules::metrics`](requeue::GroupRules::metrics) gives a name, while keys of theirs are known |
//! | `requeue_group_held_keys` | gauge | keys of such a group that workers have |
//!
//! These series describe the queue in this process. A queue of an engine that many processes work on
//! (`requeue-postgres`) also has series of its store. They describe the whole queue, and each process reports
//! the same values, so do not add them up: `max by (job, name) (requeue_engine_ready_keys)`. The engine looks
//! at the store every 5 seconds, and a scrape does not wait for it. While the store does not answer,
//! `requeue_engine_up` is 0 and the store's other series are absent.
//!
//! | metric | type | what it says |
//! |---|---|---|
//! | `requeue_engine_up` | gauge | 1 if the store has answered the last look, which is no older than 15 s, else 0 |
//! | `requeue_engine_ready_keys` | gauge | keys in line. This and the next four are counted up to 10,000 |
//! | `requeue_engine_held_keys` | gauge | keys with a worker of any process |
//! | `requeue_engine_waiting_keys` | gauge | keys with a timer |
//! | `requeue_engine_inbox_keys` | gauge | triggers of users' transactions that no process has taken in yet |
//! | `requeue_engine_dead_keys` | gauge | keys whose last run gave up |
//! | `requeue_engine_oldest_ready_seconds` | gauge | how long the first key in line has been there; 0 if there is none |
//! | `requeue_engine_paused` | gauge | 1 if the queue is paused, else 0 |
//! | `requeue_engine_owners` | gauge | processes that have a lease |
//! | `requeue_engine_expired_owners` | gauge | processes whose lease is over and whose keys have not been given back yet |
//! | `requeue_engine_shortest_lease_seconds` | gauge | what is left of the lease that ends first; absent if there is none |
//! | `requeue_engine_oldest_snapshot_seconds` | gauge | for how long the oldest transaction of the database has kept its snapshot; 0 if there is none |
//! | `requeue_lease_held` | gauge | 1 if this process has a lease, else 0: one that has not wanted a key yet has none |
//! | `requeue_lease_seconds` | gauge | how long a lease of this process is |
//! | `requeue_lease_beat_age_seconds` | gauge | how long ago this process sent the last extension of its lease that was answered |
//! | `requeue_leases_lost_total` | counter | how often this process has lost its lease |
//! | `requeue_ends_refused_total` | counter | ends of this process's runs that changed nothing: refused, because others had the key by then, or lost with the lease |
//!
//! The seven metrics that Kubernetes has use its names. All others have a prefix of their own, so that they
//! cannot clash with future names of Kubernetes.
//!
//! The histograms' buckets are controller-runtime's, twelve powers of ten from 10 ns to 1,000 s; Kubernetes'
//! ten are the first of them.
//!
//! # When it is counted
//!
//! Gauges are read from the queue during the scrape, all of a queue in one hold of its lock: they are right
//! during and after shutdown too, and nothing ticks. Counters and histograms are updated at each call, after
//! the queue's lock was released: one or two atomic additions.
//!
//! The repository's folder `contrib` has a dashboard and alert rules.

mod collect;
mod histogram;
mod sink;
mod striped;

pub use prometheus_client;
pub use sink::QueueSink;

use collect::Queues;
use prometheus_client::registry::Registry;
use sink::{Stats, locked};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

/// The metrics of the queues of one registry: each queue gets its sink here.
///
/// A clone is another handle to the same metrics.
///
/// ```
/// use requeue_prometheus::{QueueMetrics, prometheus_client::registry::Registry};
/// let mut registry = Registry::default();
/// let metrics = QueueMetrics::register(&mut registry);
/// let q = requeue::WorkQueue::<u64>::builder().name("pods").metrics(metrics.queue("pods")?).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    names: Arc<Names>,
}

/// The sinks that exist, by name.
#[derive(Default)]
struct Names {
    by_name: Mutex<BTreeMap<String, Weak<Stats>>>,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(locked(&self.by_name).keys()).finish()
    }
}

/// Frees a name when its sink is dropped.
fn forget(names: &Names, name: &str) {
    locked(&names.by_name).remove(name);
}

impl QueueMetrics {
    /// Registers the metrics of work queues, without any queue yet.
    ///
    /// Call it once per registry, for any number of queues: with two of these in one registry each scrape
    /// would contain the metrics twice, which Prometheus refuses. (A registry cannot be asked for its
    /// contents, so this is not checked.)
    ///
    /// Names and labels are Kubernetes' if the registry has neither a prefix nor labels of its own.
    ///
    /// ```
    /// use requeue_prometheus::{QueueMetrics, prometheus_client::registry::Registry};
    /// let mut registry = Registry::default();
    /// let metrics = QueueMetrics::register(&mut registry);
    /// ```
    #[must_use = "queues get their sinks from it"]
    pub fn register(registry: &mut Registry) -> Self {
        let names = Arc::<Names>::default();
        registry.register_collector(Box::new(Queues(names.clone())));
        Self { names }
    }

    /// Creates the sink of one queue, which is exported with `name` as the value of the label `name`. Give
    /// the queue this name too.
    ///
    /// # Errors
    ///
    /// [`NameError`] if the name is empty, or is used by another sink that still exists.
    ///
    /// ```
    /// use requeue_prometheus::{NameError, QueueMetrics, prometheus_client::registry::Registry};
    /// let metrics = QueueMetrics::register(&mut Registry::default());
    /// let pods = metrics.queue("pods")?;
    /// assert_eq!(metrics.queue("pods").unwrap_err(), NameError::Taken("pods".to_owned()));
    /// drop(pods);
    /// assert!(metrics.queue("pods").is_ok());
    /// # Ok::<(), NameError>(())
    /// ```
    pub fn queue(&self, name: impl Into<String>) -> Result<QueueSink, NameError> {
        let name = name.into();
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        let stats = Arc::<Stats>::default();
        match locked(&self.names.by_name).entry(name.clone()) {
            Entry::Occupied(_) => return Err(NameError::Taken(name)),
            Entry::Vacant(place) => place.insert(Arc::downgrade(&stats)),
        };
        Ok(QueueSink::new(name, stats, self.names.clone()))
    }
}

/// Error of [`QueueMetrics::queue`].
///
/// ```
/// use requeue_prometheus::{QueueMetrics, prometheus_client::registry::Registry};
/// let metrics = QueueMetrics::register(&mut Registry::default());
/// let first = metrics.queue("pods")?;
/// assert_eq!(
///     metrics.queue("pods").unwrap_err().to_string(),
///     "this registry already has a queue \"pods\": give each queue a different name",
/// );
/// # Ok::<(), requeue_prometheus::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// A queue in the same registry has this name.
    Taken(String),
    /// The name is empty, so its series would be ambiguous.
    Empty,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(name) => {
                write!(f, "this registry already has a queue {name:?}: give each queue a different name")
            }
            Self::Empty => f.write_str("a queue with metrics needs a name: give it one that is not empty"),
        }
    }
}

impl Error for NameError {}

/// The example of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
