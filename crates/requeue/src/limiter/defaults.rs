//! The limiters that controllers start with: client-go's.

use super::exponential::Curve;
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
/// after 90 s. [`default_per_item`] has no bucket.
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

fn exponential<K>(base: Duration) -> Exponential<K> {
    Exponential::new(base, MAX).expect("the default maximum is above the base")
}

fn bucket() -> Bucket {
    Bucket::new(RATE, BURST).expect("the default rate and burst are above 0")
}

/// [`default_controller`] for a queue, which keeps the counts itself: it works for
/// keys of any type, also for those that cannot be cloned into a map.
#[derive(Debug)]
pub(crate) struct CountedController {
    curve: Curve,
    bucket: Bucket,
}

impl CountedController {
    pub(crate) fn new() -> Self {
        let curve = Curve::new(CONTROLLER_BASE, MAX).expect("the default maximum is above the base");
        Self { curve, bucket: bucket() }
    }
}

impl<K: ?Sized> RateLimiter<K> for CountedController {
    /// Not asked by a queue. Each call is the first.
    fn when(&self, key: &K, now: Instant) -> Duration {
        self.bucket.when(key, now).max(self.curve.delay(0))
    }
    fn forget(&self, _: &K) {}
    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
    fn keeps(&self, _: sealed::Token) -> Keeps {
        Keeps::Count { expire_after: None }
    }
    fn when_counted(&self, failures: u32, now: Instant, token: sealed::Token) -> Duration {
        RateLimiter::<K>::when_counted(&self.bucket, failures, now, token).max(self.curve.delay(failures))
    }
}
