//! [`QueueSink`]: the metrics of one queue.

use crate::histogram::{Counted, Histogram};
use crate::striped::{Apart, Striped};
use crate::{Names, forget};
use requeue::engine::EngineGauges;
use requeue::{Gauges, GroupGauges, Metrics, RunEnd};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const ENDS: usize = RunEnd::ALL.len();

/// Index of an end in [`RunEnd::ALL`].
#[inline]
fn kind(end: RunEnd) -> usize {
    match end {
        RunEnd::Again => 1,
        RunEnd::Retry => 2,
        RunEnd::GiveUp => 3,
        // a test ensures that no other end is mistaken for this one
        _ => 0,
    }
}

/// A queue's metrics: give it to [`Builder::metrics`](requeue::Builder::metrics).
///
/// Made by [`QueueMetrics::queue`](crate::QueueMetrics::queue). The queue's series are exported as long as
/// this exists: as long as the queue, if it was given away. Then its name is free again. To keep the counts
/// of a queue that is gone, put this in an [`Arc`] and keep a clone.
///
/// Several queues that share one such `Arc` are one queue to Prometheus: their counts and depths are added
/// up, and the [labels](requeue::Builder::label) are those of the latest queue that has any.
///
/// An update is one or two atomic additions. It takes no lock, reads no clock and allocates nothing, except
/// when a queue or a worker is built.
///
/// ```
/// use requeue_prometheus::{QueueMetrics, prometheus_client::registry::Registry};
/// use requeue::WorkQueue;
/// use std::sync::Arc;
///
/// let metrics = QueueMetrics::register(&mut Registry::default());
/// let sink = Arc::new(metrics.queue("pods")?);
/// let q = WorkQueue::builder().name("pods").metrics(sink.clone()).build()?;
/// q.add("web")?;
/// drop(q);
/// assert_eq!(sink.name(), "pods"); // still exported, with one add
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct QueueSink {
    name: String,
    stats: Arc<Stats>,
    names: Arc<Names>,
}

impl QueueSink {
    pub(crate) fn new(name: String, stats: Arc<Stats>, names: Arc<Names>) -> Self {
        Self { name, stats, names }
    }

    /// The value of the label `name`.
    ///
    /// ```
    /// # use requeue_prometheus::{QueueMetrics, prometheus_client::registry::Registry};
    /// let metrics = QueueMetrics::register(&mut Registry::default());
    /// assert_eq!(metrics.queue("pods")?.name(), "pods");
    /// # Ok::<(), requeue_prometheus::NameError>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for QueueSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueSink").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for QueueSink {
    fn drop(&mut self) {
        forget(&self.names, &self.name);
    }
}

impl Metrics for QueueSink {
    #[inline]
    fn added(&self, keys: u64) {
        self.stats.adds.0.fetch_add(keys, Relaxed);
    }
    #[inline]
    fn coalesced(&self, triggers: u64) {
        self.stats.coalesced.add(triggers);
    }
    fn dropped(&self, keys: u64) {
        self.stats.dropped.fetch_add(keys, Relaxed);
    }
    #[inline]
    fn retried(&self) {
        self.stats.retries.0.fetch_add(1, Relaxed);
    }
    #[inline]
    fn timer_fired(&self, late: Duration) {
        self.stats.late.0.observe(0, late);
    }
    #[inline]
    fn handed_out(&self, waited: Duration) {
        self.stats.waited.0.observe(0, waited);
    }
    #[inline]
    fn run_ended(&self, took: Duration, end: RunEnd) {
        self.stats.worked.0.observe(kind(end), took);
    }
    fn attach(&self, _: &str, labels: &[(String, String)], gauges: ReadGauges) {
        if !labels.is_empty() {
            *locked(&self.stats.labels) = labels.to_vec();
        }
        // forgets the queues that are gone
        drop(self.stats.read_gauges());
        locked(&self.stats.gauges).push(gauges);
    }
}

/// Reads the gauges of a queue; `None` once it is gone.
type ReadGauges = Arc<dyn Fn() -> Option<Gauges> + Send + Sync>;

/// The numbers behind a sink. Numbers that different threads write are on separate cache lines.
#[derive(Default)]
pub(crate) struct Stats {
    adds: Apart<AtomicU64>,
    retries: Apart<AtomicU64>,
    waited: Apart<Histogram>,
    worked: Apart<Histogram<ENDS>>,
    late: Apart<Histogram>,
    coalesced: Striped,
    dropped: AtomicU64,
    /// Sources of gauges; mostly one.
    gauges: Mutex<Vec<ReadGauges>>,
    /// Labels in addition to the name.
    labels: Mutex<Vec<(String, String)>>,
}

/// All numbers of one queue, for one scrape; its gauges are of one moment.
pub(crate) struct Reading {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) adds: u64,
    pub(crate) retries: u64,
    pub(crate) coalesced: u64,
    pub(crate) dropped: u64,
    pub(crate) waited: Counted<1>,
    pub(crate) worked: Counted<ENDS>,
    pub(crate) late: Counted<1>,
    pub(crate) depth: usize,
    /// Depth by priority, if a queue has priorities. Keys of queues without priorities then count as priority
    /// 0, for which there is always a number.
    pub(crate) depths: Option<BTreeMap<i16, usize>>,
    /// Number of ready and held keys of each group, by name.
    pub(crate) groups: BTreeMap<Arc<str>, [usize; 2]>,
    pub(crate) waiting: usize,
    pub(crate) held: usize,
    pub(crate) dirty: usize,
    pub(crate) oldest_ready: Duration,
    pub(crate) unfinished_work: Duration,
    pub(crate) longest_running: Duration,
    pub(crate) workers: usize,
    pub(crate) busy_workers: usize,
    /// `None` if the keys are in memory only.
    pub(crate) engine: Option<EngineGauges>,
}

/// Combines the gauges of two queues that are one to Prometheus.
fn both(one: EngineGauges, other: EngineGauges) -> EngineGauges {
    let mut both = one;
    both.up &= other.up;
    both.store = both.store.zip(other.store).map(|(mut both, other)| {
        both.ready += other.ready;
        both.held += other.held;
        both.waiting += other.waiting;
        both.inbox += other.inbox;
        both.dead += other.dead;
        both.oldest_ready = both.oldest_ready.max(other.oldest_ready);
        both.paused |= other.paused;
        both.owners += other.owners;
        both.expired_owners += other.expired_owners;
        both.shortest_lease = both.shortest_lease.into_iter().chain(other.shortest_lease).min();
        both.oldest_snapshot = both.oldest_snapshot.max(other.oldest_snapshot);
        both
    });
    // the one that is worse
    if other.lease.since_beat > both.lease.since_beat {
        both.lease = other.lease;
    }
    both.leases_lost += other.leases_lost;
    both.ends_refused += other.ends_refused;
    both
}

impl Stats {
    /// The gauges of all queues. Queues that are gone are forgotten.
    fn read_gauges(&self) -> Vec<Gauges> {
        // the queues are asked without a lock of ours: they may be users' code, or
        // end here
        let queues = locked(&self.gauges).clone();
        let read: Vec<Option<Gauges>> = queues.iter().map(|gauges| gauges()).collect();
        for (gone, _) in queues.iter().zip(&read).filter(|(_, gauges)| gauges.is_none()) {
            locked(&self.gauges).retain(|gauges| !Arc::ptr_eq(gauges, gone));
        }
        read.into_iter().flatten().collect()
    }

    pub(crate) fn read(&self, name: String) -> Reading {
        let gauges = self.read_gauges();
        let mut plain = 0;
        let mut depths: Option<BTreeMap<i16, usize>> = None;
        let mut groups = BTreeMap::<_, [usize; 2]>::new();
        for gauges in &gauges {
            if let Some(of_queue) = &gauges.depth_by_priority {
                let depths = depths.get_or_insert_with(|| BTreeMap::from([(0, 0)]));
                for (priority, keys) in of_queue {
                    *depths.entry(*priority).or_default() += keys;
                }
            } else {
                plain += gauges.depth;
            }
            for GroupGauges { name, ready, held, .. } in &gauges.groups {
                let group = groups.entry(name.clone()).or_default();
                group[0] += ready;
                group[1] += held;
            }
        }
        if let Some(depths) = &mut depths {
            *depths.entry(0).or_default() += plain;
        }
        let sum = |number: fn(&Gauges) -> usize| gauges.iter().map(number).sum();
        let longest = |time: fn(&Gauges) -> Duration| gauges.iter().map(time).max().unwrap_or_default();
        Reading {
            name,
            labels: locked(&self.labels).clone(),
            adds: self.adds.0.load(Relaxed),
            retries: self.retries.0.load(Relaxed),
            coalesced: self.coalesced.read(),
            dropped: self.dropped.load(Relaxed),
            waited: self.waited.0.read(),
            worked: self.worked.0.read(),
            late: self.late.0.read(),
            depth: sum(|g| g.depth),
            depths,
            groups,
            waiting: sum(|g| g.waiting),
            held: sum(|g| g.held),
            dirty: sum(|g| g.dirty),
            oldest_ready: longest(|g| g.oldest_ready),
            unfinished_work: gauges
                .iter()
                .fold(Duration::ZERO, |all, g| all.saturating_add(g.unfinished_work)),
            longest_running: longest(|g| g.longest_running),
            workers: sum(|g| g.workers),
            busy_workers: sum(|g| g.busy_workers),
            engine: gauges.iter().filter_map(|g| g.engine.clone()).reduce(both),
        }
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_a_place_of_its_own() {
        assert_eq!(RunEnd::ALL.map(kind), [0, 1, 2, 3]);
    }
}
