//! Histograms of durations, counted without a lock.
//!
//! `prometheus_client`'s own histogram takes a mutex, a search and a division in each observation. Every run
//! of a key is two observations, so here one is two atomic additions: the bucket follows from the number of
//! decimal digits, and the sum is in nanoseconds.

use std::array::from_fn;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The upper bounds in seconds, inclusive: powers of ten from 10 ns to 1,000 s.
///
/// They are controller-runtime's (`prometheus.ExponentialBuckets(10e-9, 10, 12)`), whose
/// first ten are Kubernetes' own.
pub(crate) const BOUNDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3];

/// The last one has no bound.
const BUCKETS: usize = BOUNDS.len() + 1;

/// Index of the bucket for this number of nanoseconds: the first whose bound, 10^(i+1), is not below it.
#[inline]
fn bucket(nanos: u64) -> usize {
    let digits = nanos.saturating_sub(1).checked_ilog10().unwrap_or(0);
    (digits as usize).min(BUCKETS - 1)
}

#[inline]
fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(duration.subsec_nanos()))
}

/// A histogram of durations of `KINDS` kinds: each kind is counted separately, and all together are one
/// histogram.
#[derive(Debug)]
pub(crate) struct Histogram<const KINDS: usize = 1> {
    counts: [[AtomicU64; BUCKETS]; KINDS],
    nanos: AtomicU64,
    /// Number of overflows of `nanos`. (584 years of waiting are a million keys that waited for five hours.)
    wraps: AtomicU64,
}

/// Contents of a histogram at one moment.
#[derive(Debug)]
pub(crate) struct Counted<const KINDS: usize> {
    /// Count of each bucket, with its bound.
    pub(crate) buckets: [(f64, u64); BUCKETS],
    pub(crate) kinds: [u64; KINDS],
    pub(crate) seconds: f64,
}

impl<const KINDS: usize> Counted<KINDS> {
    pub(crate) fn count(&self) -> u64 {
        self.kinds.iter().sum()
    }
}

impl<const KINDS: usize> Default for Histogram<KINDS> {
    fn default() -> Self {
        Self {
            counts: from_fn(|_| from_fn(|_| AtomicU64::new(0))),
            nanos: AtomicU64::new(0),
            wraps: AtomicU64::new(0),
        }
    }
}

impl<const KINDS: usize> Histogram<KINDS> {
    #[inline]
    pub(crate) fn observe(&self, kind: usize, duration: Duration) {
        let nanos = nanos(duration);
        self.counts[kind][bucket(nanos)].fetch_add(1, Relaxed);
        let before = self.nanos.fetch_add(nanos, Relaxed);
        if before.checked_add(nanos).is_none() {
            self.wraps.fetch_add(1, Relaxed);
        }
    }

    /// Reads the contents. The count is that of the buckets; a concurrent observation may be in it and not
    /// yet in the sum.
    pub(crate) fn read(&self) -> Counted<KINDS> {
        let counts: [[u64; BUCKETS]; KINDS] = from_fn(|k| from_fn(|b| self.counts[k][b].load(Relaxed)));
        let wraps = self.wraps.load(Relaxed) as f64;
        let seconds = (self.nanos.load(Relaxed) as f64 + wraps * 2_f64.powi(64)) / 1e9;
        Counted {
            buckets: from_fn(|b| {
                let bound = BOUNDS.get(b).copied().unwrap_or(f64::INFINITY);
                (bound, counts.iter().map(|kind| kind[b]).sum())
            }),
            kinds: counts.map(|kind| kind.iter().sum()),
            seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(duration: Duration) -> f64 {
        let histogram = Histogram::<1>::default();
        histogram.observe(0, duration);
        let counted = histogram.read();
        assert_eq!(counted.count(), 1);
        let (bound, _) = counted.buckets.into_iter().find(|(_, count)| *count == 1).expect("it is in one");
        bound
    }

    #[test]
    fn a_bound_is_the_last_of_its_bucket() {
        for (i, bound) in BOUNDS.into_iter().enumerate() {
            let nanos = 10_u64.pow(i as u32 + 1);
            assert_eq!(nanos as f64 / 1e9, bound, "the bounds are what the digits say");
            assert_eq!(holds(Duration::from_nanos(nanos)), bound);
            let next = BOUNDS.get(i + 1).copied().unwrap_or(f64::INFINITY);
            assert_eq!(holds(Duration::from_nanos(nanos + 1)), next);
        }
        assert_eq!(holds(Duration::ZERO), 1e-8);
        assert_eq!(holds(Duration::from_nanos(1)), 1e-8);
        assert_eq!(holds(Duration::from_nanos(2)), 1e-8);
        assert_eq!(holds(Duration::MAX), f64::INFINITY);
    }

    #[test]
    fn kinds_are_counted_apart_and_are_one_histogram() {
        let histogram = Histogram::<2>::default();
        histogram.observe(0, Duration::from_millis(5));
        histogram.observe(1, Duration::from_millis(6));
        histogram.observe(1, Duration::from_secs(5));
        let counted = histogram.read();
        assert_eq!((counted.kinds, counted.count()), ([1, 2], 3));
        assert_eq!(counted.buckets[6], (1e-2, 2));
        assert_eq!(counted.buckets[9], (1e1, 1));
        assert!((counted.seconds - 5.011).abs() < 1e-9);
    }

    #[test]
    fn the_sum_goes_on_after_584_years() {
        let histogram = Histogram::<1>::default();
        let year = Duration::from_secs(365 * 24 * 3600);
        for _ in 0..4 {
            histogram.observe(0, year * 400);
        }
        let seconds = histogram.read().seconds;
        assert!((seconds / (year * 1600).as_secs_f64() - 1.0).abs() < 1e-9, "{seconds}");
    }
}
