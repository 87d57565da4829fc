//! Default limiters: client-go's, and controller-runtime's.

use super::bucket::Bucket;
use super::counts::Curve;
use super::exponential::Doubling;
use super::exponential::Exponential;
use super::rate_limiter::{Keeps, RateLimiter, sealed};
use requeue_core::Instant;
use std::time::Duration;

const CONTROLLER_BASE: Duration = Duration::from_millis(5);
const ITEM_BASE: Duration = Duration::from_millis(1);
const MAX: Duration = Duration::from_secs(1000);
/// Tokens per second.
const RATE: f64 = 10.0;
const BURST: u32 = 100;

/// The default limiter of controllers: the longer of a per-key back-off from 5 ms, doubling up to 1,000 s,
/// and one bucket for all keys of 10 retries per second after the first
/// 100. client-go's `DefaultTypedControllerRateLimiter`, with its figures.
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::default_controller};
/// let limiter = default_controller();
/// let delays: Vec<_> = (0..4).map(|_| limiter.when(&"a", Instant::ORIGIN).as_millis()).collect();
/// assert_eq!(delays, [5, 10, 20, 40]);
/// ```
///
/// The bucket is shared by all keys. It protects a server that is down, and it makes keys wait for each
/// other: of 1,000 that fail at once, each for the first time, the last comes back after 90 s.
/// [`default_controller_without_bucket`] has no bucket.
///
/// ```
/// # use requeue::{Instant, RateLimiter, limiter::default_controller};
/// let limiter = default_controller();
/// let last = (0..1_000).map(|key| limiter.when(&key, Instant::ORIGIN)).max();
/// assert_eq!(last.map(|delay| delay.as_secs()), Some(90));
/// ```
#[must_use]
#[doc(alias("DefaultControllerRateLimiter", "DefaultTypedControllerRateLimiter"))]
pub fn default_controller<K>() -> (Exponential<K>, Bucket) {
    (exponential(CONTROLLER_BASE), bucket())
}

/// Each key backs off from 1 ms, doubling, up to 1,000 s; no overall limit. client-go's
/// `DefaultTypedItemBasedRateLimiter`, with its figures.
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::default_per_item};
/// let limiter = default_per_item();
/// let delays: Vec<_> = (0..4).map(|_| limiter.when(&"a", Instant::ORIGIN).as_millis()).collect();
/// assert_eq!(delays, [1, 2, 4, 8]);
/// ```
#[must_use]
#[doc(alias("DefaultItemBasedRateLimiter", "DefaultTypedItemBasedRateLimiter"))]
pub fn default_per_item<K>() -> Exponential<K> {
    exponential(ITEM_BASE)
}

/// [`default_controller`] without its bucket: each key backs off from 5 ms, doubling, up to 1,000 s, and keys
/// that fail together do not wait for each other.
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::default_controller_without_bucket};
/// let limiter = default_controller_without_bucket();
/// let delays: Vec<_> = (0..4).map(|_| limiter.when(&7, Instant::ORIGIN).as_millis()).collect();
/// assert_eq!(delays, [5, 10, 20, 40]);
/// let last = (100..1_100).map(|key| limiter.when(&key, Instant::ORIGIN)).max();
/// assert_eq!(last.map(|delay| delay.as_millis()), Some(5));
/// ```
///
/// controller-runtime gives these figures to a controller that has its priority queue (`UsePriorityQueue`)
/// and no limiter of its own. client-go has no name for them; users call it "disable the bucket rate
/// limiter", hence this name. [`default_per_item`] has no bucket either, but begins at 1 ms. Nothing protects
/// a server that is down: use [`default_controller`] for that.
#[must_use]
#[doc(alias("NewTypedItemExponentialFailureRateLimiter", "UsePriorityQueue"))]
pub fn default_controller_without_bucket<K>() -> Exponential<K> {
    exponential(CONTROLLER_BASE)
}

fn exponential<K>(base: Duration) -> Exponential<K> {
    Exponential::new(base, MAX).expect("the default maximum is above the base")
}

fn bucket() -> Bucket {
    Bucket::new(RATE, BURST).expect("the default rate and burst are above 0")
}

/// [`default_controller`] for a queue, which keeps the counts itself. It works for keys of any type, even
/// those that cannot be cloned into a map.
pub(crate) fn counted_controller() -> (DefaultBackoff, Bucket) {
    let curve = Doubling::new(CONTROLLER_BASE, MAX).expect("the default maximum is above the base");
    (DefaultBackoff(curve), bucket())
}

/// The back-off of the default queue: [`Exponential`] without a map of counts, which the queue keeps.
#[derive(Debug)]
pub(crate) struct DefaultBackoff(Doubling);

impl<K: ?Sized> RateLimiter<K> for DefaultBackoff {
    keeps_no_records!(self: Keeps::Count { expire_after: None }, |failures, _| self.0.delay(failures));
}
