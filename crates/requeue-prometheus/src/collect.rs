//! The metrics of a scrape.

use crate::Names;
use crate::histogram::Counted;
use crate::sink::{Reading, locked};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use requeue::RunEnd;
use requeue::engine::{EngineGauges, StoreGauges};
use std::fmt::{Error, Result};
use std::sync::{Arc, Weak};

/// Reads all queues of a registry at each scrape.
#[derive(Debug)]
pub(crate) struct Queues(pub(crate) Arc<Names>);

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result {
        let known: Vec<_> = {
            let names = locked(&self.0.by_name);
            names.iter().filter_map(|(name, stats)| Some((name.clone(), Weak::upgrade(stats)?))).collect()
        };
        let queues: Vec<Reading> = known.into_iter().map(|(name, stats)| stats.read(name)).collect();
        for family in FAMILIES {
            family.encode(&mut encoder, &queues)?;
        }
        Ok(())
    }
}

/// A metric, and where its value is in a reading.
struct Family {
    /// Without the suffixes that the type adds.
    name: &'static str,
    help: &'static str,
    value: Value,
}

enum Value {
    Count(fn(&Reading) -> u64),
    Keys(fn(&Reading) -> usize),
    Seconds(fn(&Reading) -> f64),
    Durations(fn(&Reading) -> &Counted<1>),
    /// Durations of runs, of all outcomes.
    Runs,
    /// Number of runs per outcome.
    Outcomes,
    /// Number of ready keys, by priority if there are priorities.
    Depth,
    /// Number of keys that are ready, or held, of each named group.
    Groups(usize),
    /// A value of an engine's store. It is not exported while the store is down.
    Store(fn(&StoreGauges) -> Option<f64>),
    /// An engine's figure about itself.
    Engine(fn(&EngineGauges) -> f64),
    EngineCount(fn(&EngineGauges) -> u64),
}

#[allow(clippy::cast_precision_loss, reason = "gauges of Prometheus are floats, exact up to 2^53")]
fn number(count: u64) -> Option<f64> {
    Some(count as f64)
}

/// All metrics. The help texts of the first seven are Kubernetes', except for the depth, which counts less
/// than Kubernetes'.
const FAMILIES: [Family; 36] = [
    Family {
        name: "workqueue_depth",
        help: "Current depth of workqueue: keys that are ready to be handed out",
        value: Value::Depth,
    },
    Family {
        name: "workqueue_adds",
        help: "Total number of adds handled by workqueue",
        value: Value::Count(|q| q.adds),
    },
    Family {
        name: "workqueue_queue_duration_seconds",
        help: "How long in seconds an item stays in workqueue before being requested",
        value: Value::Durations(|q| &q.waited),
    },
    Family {
        name: "workqueue_work_duration_seconds",
        help: "How long in seconds processing an item from workqueue takes",
        value: Value::Runs,
    },
    Family {
        name: "workqueue_unfinished_work_seconds",
        help: "How many seconds of work has been done that is in progress and hasn't been observed by work_duration. \
               Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate \
               at which this increases",
        value: Value::Seconds(|q| q.unfinished_work.as_secs_f64()),
    },
    Family {
        name: "workqueue_longest_running_processor_seconds",
        help: "How many seconds has the longest running processor for workqueue been running",
        value: Value::Seconds(|q| q.longest_running.as_secs_f64()),
    },
    Family {
        name: "workqueue_retries",
        help: "Total number of retries handled by workqueue",
        value: Value::Count(|q| q.retries),
    },
    Family {
        name: "requeue_waiting_keys",
        help: "Keys with a timer: delayed, or waiting out a failure",
        value: Value::Keys(|q| q.waiting),
    },
    Family { name: "requeue_held_keys", help: "Keys that workers have", value: Value::Keys(|q| q.held) },
    Family {
        name: "requeue_dirty_keys",
        help: "Keys that workers have and that were triggered meanwhile: each gets one more run",
        value: Value::Keys(|q| q.dirty),
    },
    Family {
        name: "requeue_oldest_ready_seconds",
        help: "Age of the key that has been ready the longest; 0 if none is ready",
        value: Value::Seconds(|q| q.oldest_ready.as_secs_f64()),
    },
    Family {
        name: "requeue_timer_lateness_seconds",
        help: "How long after its instant a timer fired: a delayed key became ready",
        value: Value::Durations(|q| &q.late),
    },
    Family {
        name: "requeue_coalesced_triggers",
        help: "Triggers that were accepted and changed nothing, because what was pending covers them",
        value: Value::Count(|q| q.coalesced),
    },
    Family {
        name: "requeue_dropped_keys",
        help: "Keys that made room for others on a queue with a bound that drops the oldest",
        value: Value::Count(|q| q.dropped),
    },
    Family {
        name: "requeue_runs",
        help: "Runs that ended, by outcome: done, again (no failure, comes again), retry (failed, comes again), \
               give_up (failed, does not)",
        value: Value::Outcomes,
    },
    Family {
        name: "requeue_workers",
        help: "Workers of this queue that have not ended",
        value: Value::Keys(|q| q.workers),
    },
    Family {
        name: "requeue_busy_workers",
        help: "Workers of this queue that have a key",
        value: Value::Keys(|q| q.busy_workers),
    },
    Family {
        name: "requeue_group_ready_keys",
        help: "Keys of a group that are ready, by the name of the group",
        value: Value::Groups(0),
    },
    Family {
        name: "requeue_group_held_keys",
        help: "Keys of a group that workers have, by the name of the group",
        value: Value::Groups(1),
    },
    Family {
        name: "requeue_engine_up",
        help: "Whether the store of the engine has answered the last look, which is no older than 15 seconds",
        value: Value::Engine(|e| f64::from(u8::from(e.up))),
    },
    Family {
        name: "requeue_engine_ready_keys",
        help: "Keys in line in the store, of all processes together",
        value: Value::Store(|s| number(s.ready)),
    },
    Family {
        name: "requeue_engine_held_keys",
        help: "Keys with a worker of any process",
        value: Value::Store(|s| number(s.held)),
    },
    Family {
        name: "requeue_engine_waiting_keys",
        help: "Keys with a timer in the store",
        value: Value::Store(|s| number(s.waiting)),
    },
    Family {
        name: "requeue_engine_inbox_keys",
        help: "Triggers of users' transactions that no process has taken in yet",
        value: Value::Store(|s| number(s.inbox)),
    },
    Family {
        name: "requeue_engine_dead_keys",
        help: "Keys whose last run gave up, and that are kept",
        value: Value::Store(|s| number(s.dead)),
    },
    Family {
        name: "requeue_engine_oldest_ready_seconds",
        help: "Age of the first key in line in the store; 0 if there is none",
        value: Value::Store(|s| Some(s.oldest_ready.as_secs_f64())),
    },
    Family {
        name: "requeue_engine_paused",
        help: "Whether the queue is paused, in all processes",
        value: Value::Store(|s| Some(f64::from(u8::from(s.paused)))),
    },
    Family {
        name: "requeue_engine_owners",
        help: "Processes that have a lease on the queue",
        value: Value::Store(|s| number(s.owners)),
    },
    Family {
        name: "requeue_engine_expired_owners",
        help: "Processes whose lease is over and whose keys have not been given back yet",
        value: Value::Store(|s| number(s.expired_owners)),
    },
    Family {
        name: "requeue_engine_shortest_lease_seconds",
        help: "What is left of the lease that ends first; absent if no process has one",
        value: Value::Store(|s| s.shortest_lease.map(|left| left.as_secs_f64())),
    },
    Family {
        name: "requeue_engine_oldest_snapshot_seconds",
        help: "For how long the oldest transaction of the database has kept its snapshot: what died since can't be cleaned away",
        value: Value::Store(|s| Some(s.oldest_snapshot.as_secs_f64())),
    },
    Family {
        name: "requeue_lease_held",
        help: "Whether this process has a lease on the queue",
        value: Value::Engine(|e| f64::from(u8::from(e.lease.held))),
    },
    Family {
        name: "requeue_lease_seconds",
        help: "How long a lease of this process is",
        value: Value::Engine(|e| e.lease.length.as_secs_f64()),
    },
    Family {
        name: "requeue_lease_beat_age_seconds",
        help: "How long ago this process sent the last extension of its lease that was answered; 0 without a lease",
        value: Value::Engine(|e| e.lease.since_beat.as_secs_f64()),
    },
    Family {
        name: "requeue_leases_lost",
        help: "How often this process has lost its lease",
        value: Value::EngineCount(|e| e.leases_lost),
    },
    Family {
        name: "requeue_ends_refused",
        help: "Ends of runs that changed nothing, because others had the key by then or the lease was lost",
        value: Value::EngineCount(|e| e.ends_refused),
    },
];

impl Reading {
    /// The labels of all its series.
    fn labels(&self) -> Vec<(&str, &str)> {
        let constant = self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        [("name", self.name.as_str())].into_iter().chain(constant).collect()
    }
}

impl Family {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>, queues: &[Reading]) -> Result {
        if !self.value.is_told(queues) {
            return Ok(());
        }
        let mut metric = encoder.encode_descriptor(self.name, self.help, None, self.value.metric_type())?;
        for queue in queues {
            let mut labels = queue.labels();
            match &self.value {
                Value::Count(read) => count(&mut metric.encode_family(&labels)?, read(queue))?,
                Value::Keys(read) => keys(&mut metric.encode_family(&labels)?, read(queue))?,
                Value::Depth => match &queue.depths {
                    None => keys(&mut metric.encode_family(&labels)?, queue.depth)?,
                    Some(depths) => {
                        for (priority, depth) in depths {
                            let priority = priority.to_string();
                            let labels = [&labels[..], &[("priority", &priority)]].concat();
                            keys(&mut metric.encode_family(&labels)?, *depth)?;
                        }
                    }
                },
                Value::Groups(which) => {
                    for (group, counts) in &queue.groups {
                        let labels = [&labels[..], &[("group", group)]].concat();
                        keys(&mut metric.encode_family(&labels)?, counts[*which])?;
                    }
                }
                Value::Seconds(read) => metric.encode_family(&labels)?.encode_gauge(&read(queue))?,
                Value::Durations(read) => durations(&mut metric.encode_family(&labels)?, read(queue))?,
                Value::Runs => durations(&mut metric.encode_family(&labels)?, &queue.worked)?,
                Value::Store(read) => {
                    if let Some(value) = queue.engine.as_ref().and_then(|it| it.store.as_ref()).and_then(read)
                    {
                        metric.encode_family(&labels)?.encode_gauge(&value)?;
                    }
                }
                Value::Engine(read) => {
                    if let Some(engine) = &queue.engine {
                        metric.encode_family(&labels)?.encode_gauge(&read(engine))?;
                    }
                }
                Value::EngineCount(read) => {
                    if let Some(engine) = &queue.engine {
                        count(&mut metric.encode_family(&labels)?, read(engine))?;
                    }
                }
                Value::Outcomes => {
                    for (end, runs) in RunEnd::ALL.iter().zip(queue.worked.kinds) {
                        labels.push(("outcome", end.name()));
                        count(&mut metric.encode_family(&labels)?, runs)?;
                        labels.pop();
                    }
                }
            }
        }
        Ok(())
    }
}

impl Value {
    /// Whether it is exported. A metric that only some queues have is left out if no queue has it.
    fn is_told(&self, queues: &[Reading]) -> bool {
        match self {
            Self::Groups(_) => queues.iter().any(|queue| !queue.groups.is_empty()),
            Self::Store(_) | Self::Engine(_) | Self::EngineCount(_) => {
                queues.iter().any(|queue| queue.engine.is_some())
            }
            _ => true,
        }
    }

    fn metric_type(&self) -> MetricType {
        match self {
            Self::Count(_) | Self::Outcomes | Self::EngineCount(_) => MetricType::Counter,
            Self::Keys(_)
            | Self::Seconds(_)
            | Self::Depth
            | Self::Groups(_)
            | Self::Store(_)
            | Self::Engine(_) => MetricType::Gauge,
            Self::Durations(_) | Self::Runs => MetricType::Histogram,
        }
    }
}

fn count(metric: &mut MetricEncoder<'_>, value: u64) -> Result {
    metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

fn keys(metric: &mut MetricEncoder<'_>, keys: usize) -> Result {
    // a gauge's integers have a sign
    metric.encode_gauge(&i64::try_from(keys).map_err(|_| Error)?)
}

fn durations<const KINDS: usize>(metric: &mut MetricEncoder<'_>, counted: &Counted<KINDS>) -> Result {
    metric.encode_histogram::<NoLabelSet>(counted.seconds, counted.count(), &counted.buckets, None)
}
