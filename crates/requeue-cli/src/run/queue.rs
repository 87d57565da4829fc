//! The command's queue.

use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use requeue::limiter::{Bucket, Exponential, FastSlow, Jitter, LimiterError, RateLimiter};
use requeue::{Builder, Drain, DrainOptions, Drained, WaitingKeys, WorkQueue};
use requeue_postgres::{GroupRules, QueueBuilder};
use requeue_prometheus::QueueSink;

use crate::args::{Engine, Rate, Run};
use crate::group_by::{at_once, with_groups};
use crate::report::run_stats::Key;
use crate::run::intake::Cause;
use crate::run::state::State;

/// A queue of keys, each with the cause of its run, if known.
pub(crate) type Queue = WorkQueue<Key, Cause>;

/// A queue, and its file if it is in one.
pub(crate) type Opened = (Queue, Option<Arc<State>>);

/// A change of a queue's builder by the options.
pub(crate) type Shape = Box<dyn FnOnce(Builder<Key, Cause>) -> Builder<Key, Cause> + Send>;

/// Opens the queue of the options, with `sink` for its metrics; and its file, if it has one.
///
/// # Errors
///
/// The exit status, and the reason: the library's error on the options, or the problem with the file.
pub(crate) fn open(args: &Run, sink: Option<Arc<QueueSink>>) -> Result<Opened, (u8, String)> {
    let engine = args.engine();
    let shape = match engine {
        Some(Engine::Server(_)) => told_to(args, sink),
        _ => shape(args, sink).map_err(|e| (1, e.to_string()))?,
    };
    let Some(engine) = engine else {
        let built = shape(WorkQueue::merging(Cause::merge)).build();
        return Ok((built.map_err(|e| (1, e.to_string()))?, None));
    };
    let state = State::open(&engine, args, shape)?;
    Ok((state.queue(), Some(Arc::new(state))))
}

/// Stores the options of a queue on a server, for all processes.
pub(crate) fn at_server(builder: QueueBuilder<Key, Cause>, args: &Run) -> QueueBuilder<Key, Cause> {
    let builder = args.lease().into_iter().fold(builder, QueueBuilder::lease);
    let builder = builder.backoff(args.base_delay, args.max_delay);
    let builder = match args.rate {
        None => builder,
        Some(Rate::NoLimit) => builder.no_dispatch_rate(),
        Some(Rate::Most(rate)) => builder.dispatch_rate(rate, at_once(rate)),
    };
    let Some(group_by) = args.group_by.clone() else { return builder };
    let rules = args.group_cap.into_iter().fold(GroupRules::new(), |rules, most| rules.cap(most.get()));
    builder.group_by_with(move |key: &Key| group_by.group(key), rules)
}

/// A builder change that only adds `sink` for the metrics.
fn told_to(args: &Run, sink: Option<Arc<QueueSink>>) -> Shape {
    let name = args.metrics_name();
    Box::new(move |builder| match sink {
        None => builder,
        Some(sink) => builder.name(name).metrics(sink),
    })
}

/// The settings of the options, for a queue in memory or in a file.
///
/// # Errors
///
/// The library's error on the options, beyond earlier checks.
fn shape(args: &Run, sink: Option<Arc<QueueSink>>) -> Result<Shape, Box<dyn Error + Send + Sync>> {
    // Two of us that failed at the same moment must not come back at the same moment.
    let seed = RandomState::new().hash_one(std::process::id());
    let limited: Shape = match (&args.limiter, args.retry_rate) {
        (Some(limiter), _) => limited((limiter.clone().seeded(seed).build()?, counts())),
        (None, None) => limited(back_off(args, seed)?),
        (None, Some(rate)) => {
            let burst = args.retry_burst.unwrap_or(1);
            limited((back_off(args, seed)?, Bucket::new(rate, burst)?))
        }
    };
    let (grouped, told) = (with_groups(args), told_to(args, sink));
    let priority = args.has_priorities();
    let (in_backoff, rate) = (args.in_backoff.into(), args.rate);
    let absorb = args.absorb;
    let (max_wait, overdue_every, bound) = (args.max_wait, args.overdue_every, args.bound);
    Ok(Box::new(move |builder| {
        let builder = grouped(limited(builder.timers_absorbed(absorb).in_backoff(in_backoff)));
        let builder = if priority { builder.priorities() } else { builder };
        let builder = match rate {
            None | Some(Rate::NoLimit) => builder,
            Some(Rate::Most(rate)) => builder.rate(rate, at_once(rate)),
        };
        let builder = max_wait.into_iter().fold(builder, Builder::max_wait);
        let builder = overdue_every.into_iter().fold(builder, Builder::overdue_every);
        let builder = bound.into_iter().fold(builder, |builder, keys| builder.bound(keys.get()));
        told(builder)
    }))
}

fn limited(limiter: impl RateLimiter<Key> + 'static) -> Shape {
    Box::new(move |builder| builder.limiter(limiter))
}

fn back_off(args: &Run, seed: u64) -> Result<Jitter<Exponential<Key>>, LimiterError> {
    Jitter::new(Exponential::new(args.base_delay(), args.max_delay())?, args.jitter(), seed)
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
