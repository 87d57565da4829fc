//! The limiters that controllers start with: client-go's, and controller-runtime's.

use super::counts::Curve;
use super::exponential::Doubling;
use super::{Bucket, Exponential, Keeps, RateLimiter, sealed};
use crate::Instant;
use std::time::Duration;

const CONTROLLER_BASE: Duration = Duration::from_millis(5);
const ITEM_BASE: Duration = Duration::from_millis(1);
const MAX: Duration = Duration::from_secs(1000);
/// Tokens a second.
const RATE: f64 = 10.0;
const BURST: u32 = 100;

/// What a controller wants unless it knows better: each key backs off from 5 ms,
/// doubling, up to 1,000 s, and overall 10 retries a second pass after the first
/// 100. The longer of the two. client-go's `DefaultTypedControllerRateLimiter`,
/// its figures included.
///
/// ```
/// use requeue::{Instant, RateLimiter, limiter::default_controller};
/// let limiter = default_controller();
/// let delays: Vec<_> = (0..4).map(|_| limiter.when(&"a", Instant::ORIGIN).as_millis()).collect();
/// assert_eq!(delays, [5, 10, 20, 40]);
/// ```
///
/// The bucket is one for all keys. It spares a server that is down, and it makes keys wait
/// for each other: of 1,000 that fail at once, each for the first time, the last comes back
/// after 90 s. [`default_controller_without_bucket`] is the same without it.
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

/// Each key backs off from 1 ms, doubling, up to 1,000 s; nothing overall.
/// client-go's `DefaultTypedItemBasedRateLimiter`, its figures included.
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

/// What [`default_controller`] is without its bucket: each key backs off from 5 ms,
/// doubling, up to 1,000 s, and keys that fail together do not wait for each other.
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
/// controller-runtime gives these figures to a controller that has its priority queue
/// (`UsePriorityQueue`) and no limiter of its own. client-go has them under no name, so
/// users who are rid of the bucket call it that, as in "disable the bucket rate limiter":
/// hence the name here. [`default_per_item`] has no bucket either, but begins at 1 ms.
/// Nothing is left that spares a server which is down: one that must be spared wants
/// [`default_controller`].
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

/// [`default_controller`] for a queue, which keeps the counts itself: it works for
/// keys of any type, also for those that cannot be cloned into a map.
pub(crate) fn counted_controller() -> (Counted, Bucket) {
    let curve = Doubling::new(CONTROLLER_BASE, MAX).expect("the default maximum is above the base");
    (Counted(curve), bucket())
}

/// [`Exponential`] without a map of counts.
#[derive(Debug)]
pub(crate) struct Counted(Doubling);

impl<K: ?Sized> RateLimiter<K> for Counted {
    keeps_no_records!(self: Keeps::Count { expire_after: None }, |failures, _| self.0.delay(failures));
}
