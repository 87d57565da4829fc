//! The metrics as a scrape sees them.

use crate::Names;
use crate::histogram::Counted;
use crate::sink::{Reading, locked};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use requeue::RunEnd;
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

/// A metric, with where its value is in a reading.
struct Family {
    /// Without the suffixes that the type brings.
    name: &'static str,
    help: &'static str,
    value: Value,
}

enum Value {
    Count(fn(&Reading) -> u64),
    Keys(fn(&Reading) -> usize),
    Seconds(fn(&Reading) -> f64),
    Durations(fn(&Reading) -> &Counted<1>),
    /// How long runs took, of all outcomes.
    Runs,
    /// How many runs had each outcome.
    Outcomes,
    /// How many keys are ready, by priority where there are priorities.
    Depth,
    /// How many keys are ready, or held, of each group that has a name.
    Groups(usize),
}

/// The help texts of the first seven are Kubernetes', but for the depth, which counts
/// less than Kubernetes'.
const FAMILIES: [Family; 19] = [
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
        help: "How long the key that has been ready the longest has been so; 0 if none is ready",
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
        value: Value::Keys(|q| q.workers.workers),
    },
    Family {
        name: "requeue_busy_workers",
        help: "Workers of this queue that have a key",
        value: Value::Keys(|q| q.workers.busy),
    },
    Family {
        name: "requeue_group_ready_keys",
        help: "Keys of a group that are ready, by the tier of the group and its name",
        value: Value::Groups(0),
    },
    Family {
        name: "requeue_group_held_keys",
        help: "Keys of a group that workers have, by the tier of the group and its name",
        value: Value::Groups(1),
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
        if matches!(self.value, Value::Groups(_)) && queues.iter().all(|queue| queue.groups.is_empty()) {
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
                    for ((tier, group), counts) in &queue.groups {
                        let tier = tier.to_string();
                        let labels = [&labels[..], &[("tier", &tier), ("group", group)]].concat();
                        keys(&mut metric.encode_family(&labels)?, counts[*which])?;
                    }
                }
                Value::Seconds(read) => metric.encode_family(&labels)?.encode_gauge(&read(queue))?,
                Value::Durations(read) => durations(&mut metric.encode_family(&labels)?, read(queue))?,
                Value::Runs => durations(&mut metric.encode_family(&labels)?, &queue.worked)?,
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
    fn metric_type(&self) -> MetricType {
        match self {
            Self::Count(_) | Self::Outcomes => MetricType::Counter,
            Self::Keys(_) | Self::Seconds(_) | Self::Depth | Self::Groups(_) => MetricType::Gauge,
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
