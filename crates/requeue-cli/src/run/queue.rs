//! The command's queue.

use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use requeue::limiter::{Bucket, Exponential, FastSlow, Jitter, RateLimiter};
use requeue::{Builder, Drain, DrainOptions, Drained, GroupRules, WaitingKeys, WorkQueue};
use requeue_postgres::QueueBuilder;
use requeue_prometheus::QueueSink;

use crate::config::{self, Groups, Rate, Retry};
use crate::input::cause::Cause;
use crate::input::keys::Key;

/// A queue of keys, each with the cause of its run, if known.
pub(crate) type Queue = WorkQueue<Key, Cause>;

/// A change of a queue's builder by the options.
pub(crate) type Shape = Box<dyn FnOnce(Builder<Key, Cause>) -> Builder<Key, Cause> + Send>;

/// Stores the options of a queue on a server, for all processes.
pub(crate) fn at_server(
    builder: QueueBuilder<Key, Cause>,
    options: &config::Queue,
    lease: Option<Duration>,
) -> QueueBuilder<Key, Cause> {
    let builder = lease.into_iter().fold(builder, QueueBuilder::lease);
    let builder = builder.backoff(options.retry.base_delay, options.retry.max_delay);
    let builder = match options.rate {
        None => builder,
        Some(Rate::NoLimit) => builder.no_dispatch_rate(),
        Some(Rate::Most(rate)) => builder.dispatch_rate(rate, at_once(rate)),
    };
    let Some(Groups { by, cap, .. }) = options.groups.clone() else { return builder };
    let rules =
        cap.into_iter().fold(requeue_postgres::GroupRules::new(), |rules, most| rules.cap(most.get()));
    builder.group_by_with(move |key: &Key| by.group(key), rules)
}

/// A builder change that only adds `sink` for the metrics.
pub(crate) fn told_to(name: &str, sink: Option<Arc<QueueSink>>) -> Shape {
    let name = name.to_owned();
    Box::new(move |builder| match sink {
        None => builder,
        Some(sink) => builder.name(name).metrics(sink),
    })
}

/// Burst of a rate: a hundredth of a second's worth, so that nothing is lost by waking up late.
fn at_once(rate: f64) -> u32 {
    ((rate / 100.0) as u32).max(1)
}

/// The settings of the options, for a queue in memory or in a file.
///
/// # Errors
///
/// The library's error on the options, beyond earlier checks.
pub(crate) fn shape(options: &config::Queue) -> Result<Shape, Box<dyn Error + Send + Sync>> {
    let limited = limited(&options.retry)?;
    let groups = options.groups.clone();
    let &config::Queue { priorities, max_wait, overdue_every, absorb, rate, bound, in_backoff, .. } = options;
    Ok(Box::new(move |builder| {
        let builder = limited(builder.timers_absorbed(absorb).in_backoff(in_backoff));
        let builder = groups.into_iter().fold(builder, |builder, Groups { by, cap, rate }| {
            let rules = cap.into_iter().fold(GroupRules::new(), |rules, most| rules.cap(most.get()));
            let rules = rate.into_iter().fold(rules, |rules, rate| rules.rate(rate, at_once(rate)));
            builder.group_by_with(move |key: &Key| by.group(key), rules)
        });
        let builder = if priorities { builder.priorities() } else { builder };
        let builder = match rate {
            None | Some(Rate::NoLimit) => builder,
            Some(Rate::Most(rate)) => builder.rate(rate, at_once(rate)),
        };
        let builder = max_wait.into_iter().fold(builder, Builder::max_wait);
        let builder = overdue_every.into_iter().fold(builder, Builder::overdue_every);
        bound.into_iter().fold(builder, |builder, keys| builder.bound(keys.get()))
    }))
}

/// A builder change that adds the limiter of retries.
fn limited(retry: &Retry) -> Result<Shape, Box<dyn Error + Send + Sync>> {
    // Two of us that failed at the same moment must not come back at the same moment.
    let seed = RandomState::new().hash_one(std::process::id());
    fn with(limiter: impl RateLimiter<Key> + 'static) -> Shape {
        Box::new(move |builder| builder.limiter(limiter))
    }
    if let Some(limiter) = &retry.limiter {
        return Ok(with((limiter.clone().seeded(seed).build()?, counts())));
    }
    let (base, max) = retry.delays();
    let back_off = Jitter::new(Exponential::new(base, max)?, retry.jitter, seed)?;
    Ok(match retry.rate {
        None => with(back_off),
        Some((rate, burst)) => with((back_off, Bucket::new(rate, burst)?)),
    })
}

/// A limiter without delays that counts the failures of each key for `REQUEUE_FAILURES`, which not every
/// limiter counts.
fn counts() -> FastSlow<Key> {
    FastSlow::new(Duration::ZERO, Duration::ZERO, 0)
}

/// The fate of keys that wait for a retry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Retries {
    WorkOff,
    Drop,
}

/// Whether a drain ended because no key is ready, held or waiting. Keys that it dropped or refused are
/// reported elsewhere: in a file or on a server they are left for the next process, and otherwise the ends of
/// their runs report them.
pub(crate) fn nothing_is_left(drained: &Drained) -> bool {
    drained.ready + drained.held + drained.waiting == 0
}

/// Begins the end: no more keys come from outside. Waiting on the answer ends when the workers have worked
/// everything off, the queue is shut down, or `limit` is over.
pub(crate) fn drain(queue: &Queue, retries: Retries, limit: Option<Duration>) -> Drain<'_, Key, Cause> {
    let waiting = match retries {
        Retries::WorkOff => WaitingKeys::Wait,
        Retries::Drop => WaitingKeys::Drop,
    };
    let options = DrainOptions::default().waiting_keys(waiting);
    queue.drain(match limit {
        Some(limit) => options.timeout(limit),
        None => options,
    })
}
