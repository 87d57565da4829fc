//! The metrics sink for queues without one of their own: the counters and histograms of a Prometheus client,
//! unchanged.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::fmt;
use std::time::Duration;

/// The metrics of a queue that Kubernetes counts, with its names and buckets.
pub struct Sink {
    adds: Counter,
    retries: Counter,
    waited: Histogram,
    worked: Histogram,
    _registry: Registry,
}

impl Default for Sink {
    fn default() -> Self {
        // as k8s.io/component-base/metrics/prometheus/workqueue
        let histogram = || Histogram::new(exponential_buckets(10e-9, 10.0, 10));
        let (adds, retries) = (Counter::default(), Counter::default());
        let (waited, worked) = (histogram(), histogram());
        let mut registry = Registry::default();
        registry.register("workqueue_adds", "adds", adds.clone());
        registry.register("workqueue_retries", "retries", retries.clone());
        registry.register("workqueue_queue_duration_seconds", "from add to get", waited.clone());
        registry.register("workqueue_work_duration_seconds", "from get to done", worked.clone());
        Self { adds, retries, waited, worked, _registry: registry }
    }
}

impl Sink {
    /// Counts keys that became ready.
    #[inline]
    pub fn added(&self, keys: u64) {
        self.adds.inc_by(keys);
    }
    /// A key comes back later.
    #[inline]
    pub fn retried(&self) {
        self.retries.inc();
    }
    /// A key was handed out that long after its trigger.
    #[inline]
    pub fn handed_out(&self, waited: Duration) {
        self.waited.observe(waited.as_secs_f64());
    }
    /// A run ended that took that long.
    #[inline]
    pub fn run_ended(&self, took: Duration) {
        self.worked.observe(took.as_secs_f64());
    }
    /// Number of keys that have become ready.
    #[must_use]
    pub fn adds(&self) -> u64 {
        self.adds.get()
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("adds", &self.adds()).finish_non_exhaustive()
    }
}
