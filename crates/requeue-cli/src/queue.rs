//! The queue, as the command uses it.

use std::error::Error;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use requeue::limiter::{Bucket, Exponential, FastSlow, Jitter, LimiterError};
use requeue::{Builder, Drain, DrainOptions, WaitingKeys, WorkQueue};
use requeue_prometheus::QueueSink;

use crate::args::Run;
use crate::group_by::{at_once, with_groups};
use crate::intake::Cause;
use crate::listen;
use crate::tally::Key;

/// Keys, each with what it is to be run for, where that is known.
pub(crate) type Queue = WorkQueue<Key, Cause>;

/// The queue that the options ask for, which tells `sink` what happens.
///
/// A run absorbs the timers that were set before it: a success after a failure is not
/// run again by the old back-off.
///
/// # Errors
///
/// What the library refuses of the options, beyond what was refused before.
pub(crate) fn build(args: &Run, sink: Option<Arc<QueueSink>>) -> Result<Queue, Box<dyn Error + Send + Sync>> {
    // Two of us that failed at the same moment must not come back at the same moment.
    let seed = RandomState::new().hash_one(std::process::id());
    let builder = WorkQueue::merging(Cause::merge).timers_absorbed(true).in_backoff(args.in_backoff.into());
    let builder = match (&args.limiter, args.retry_rate) {
        (Some(limiter), _) => builder.limiter((limiter.clone().seeded(seed).build()?, counts())),
        (None, None) => builder.limiter(back_off(args, seed)?),
        (None, Some(rate)) => {
            let burst = args.retry_burst.unwrap_or(1);
            builder.limiter((back_off(args, seed)?, Bucket::new(rate, burst)?))
        }
    };
    let builder = if args.priority { builder.priorities() } else { builder };
    let builder = with_groups(builder, args);
    let builder = match args.rate {
        Some(rate) => builder.rate(rate, at_once(rate)),
        None => builder,
    };
    let builder = args.max_wait.into_iter().fold(builder, Builder::max_wait);
    let builder = args.bound.into_iter().fold(builder, |builder, keys| builder.bound(keys.get()));
    let builder = match sink {
        None => builder,
        Some(sink) => builder.name(listen::NAME).metrics(sink),
    };
    Ok(builder.build()?)
}

fn back_off(args: &Run, seed: u64) -> Result<Jitter<Exponential<Key>>, LimiterError> {
    Jitter::new(Exponential::new(args.base_delay, args.max_delay)?, args.jitter, seed)
}

/// Asks for no delay and counts the failures of each key, which `REQUEUE_FAILURES`
/// tells and not every limiter counts.
fn counts() -> FastSlow<Key> {
    FastSlow::new(Duration::ZERO, Duration::ZERO, 0)
}

/// What becomes of keys that wait for a retry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Retries {
    WorkOff,
    Drop,
}

/// Begins the end: nothing comes in from outside any more. Waiting on the answer ends
/// when the workers have worked everything off, or somebody else shuts the queue down,
/// or `limit` is over.
pub(crate) fn drain(queue: &Queue, retries: Retries, limit: Option<Duration>) -> Drain<'_, Key, Cause> {
    let waiting = match retries {
        Retries::WorkOff => WaitingKeys::Wait,
        Retries::Drop => WaitingKeys::Drop,
    };
    let options = DrainOptions::default().waiting_keys(waiting);
    queue.shut_down_with(match limit {
        Some(limit) => options.timeout(limit),
        None => options,
    })
}
