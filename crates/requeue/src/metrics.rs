//! What a queue tells about itself.

use std::sync::Weak;
use std::time::Duration;

pub use requeue_core::Gauges;

/// Where a queue's gauges are read.
///
/// They are computed when they are asked for, from the queue's state at that
/// moment: nothing ticks, and they are true at and after shutdown too.
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
    /// The gauges now. Reads the queue's clock once and takes its lock.
    fn gauges(&self) -> Gauges;
}

/// A sink for a queue's metrics, given to [`Builder::metrics`](crate::Builder::metrics).
///
/// Every method does nothing by default. They are called without the queue's
/// lock, from whatever thread called the queue; a panic in one is caught and
/// goes no further than the panic hook, because a metric must not lose a key.
///
/// The names are Kubernetes': see [the table](crate#metrics) for which call
/// feeds which.
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
pub trait Metrics: Send + Sync + 'static {
    /// So many keys became ready or dirty: `workqueue_adds_total`.
    fn added(&self, keys: u64) {
        let _ = keys;
    }
    /// An add_after or add_rate_limited was accepted: `workqueue_retries_total`.
    fn retried(&self) {}
    /// A key was handed out that long after the first trigger of its run:
    /// `workqueue_queue_duration_seconds`.
    fn handed_out(&self, waited: Duration) {
        let _ = waited;
    }
    /// A run ended that took that long: `workqueue_work_duration_seconds`.
    fn run_ended(&self, took: Duration) {
        let _ = took;
    }
    /// Called once, when the queue `name` is built: where to read
    /// `workqueue_depth`, `workqueue_unfinished_work_seconds` and
    /// `workqueue_longest_running_processor_seconds`. Once the queue is gone
    /// the reference cannot be upgraded any more.
    fn attach(&self, name: &str, gauges: Weak<dyn ReadGauges>) {
        let _ = (name, gauges);
    }
}

impl<M: Metrics + ?Sized> Metrics for std::sync::Arc<M> {
    fn added(&self, keys: u64) {
        (**self).added(keys);
    }
    fn retried(&self) {
        (**self).retried();
    }
    fn handed_out(&self, waited: Duration) {
        (**self).handed_out(waited);
    }
    fn run_ended(&self, took: Duration) {
        (**self).run_ended(took);
    }
    fn attach(&self, name: &str, gauges: Weak<dyn ReadGauges>) {
        (**self).attach(name, gauges);
    }
}
