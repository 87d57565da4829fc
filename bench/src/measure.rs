//! Time, memory, processor time and percentiles.

use rustix::time::{ClockId, clock_gettime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Processor time of this process so far: all threads, user and system.
#[must_use]
pub fn cpu_time() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Times what it was started before.
#[derive(Debug)]
pub struct Stopwatch {
    cpu: Duration,
    start: Instant,
}

/// Time taken by a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Time on the wall.
    pub wall: Duration,
    /// Processor time, of all threads together.
    pub cpu: Duration,
}

impl Stopwatch {
    /// Starts it.
    #[must_use]
    pub fn start() -> Self {
        Self { cpu: cpu_time(), start: Instant::now() }
    }

    /// Time since the start.
    #[must_use]
    pub fn stop(&self) -> Spent {
        // in the reverse order: reading the processor time is a system call
        let wall = self.start.elapsed();
        Spent { wall, cpu: cpu_time() - self.cpu }
    }
}

/// Resident memory of this process in bytes.
///
/// # Panics
///
/// If there is no `/proc/self/statm`.
#[must_use]
pub fn rss_bytes() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("memory is measured on Linux only");
    let pages: i64 =
        statm.split_whitespace().nth(1).and_then(|p| p.parse().ok()).expect("statm's second number");
    pages * rustix::param::page_size() as i64
}

/// Samples in nanoseconds, sorted.
#[derive(Debug)]
pub struct Percentiles(Vec<u64>);

impl Percentiles {
    /// Sorts the samples.
    ///
    /// # Panics
    ///
    /// If there are none.
    #[must_use]
    pub fn of(mut samples: Vec<u64>) -> Self {
        assert!(!samples.is_empty(), "nothing was sampled");
        samples.sort_unstable();
        Self(samples)
    }

    /// The smallest sample that at least the share `q` of all is not above
    /// ("nearest rank"), in microseconds; 1.0 is the maximum.
    #[must_use]
    pub fn us(&self, q: f64) -> f64 {
        let rank = (q * self.0.len() as f64).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1] as f64 / 1e3
    }
}

/// The system's allocator, which counts bytes when it is told to.
///
/// What it hands out costs a load and a branch more while it does not count. A
/// program that measures makes it its `#[global_allocator]`; where it does not,
/// nothing is counted.
#[derive(Debug)]
pub struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATED: AtomicU64 = AtomicU64::new(0);

fn count(more: usize, less: usize) {
    if COUNTS.load(Relaxed) {
        ALLOCATED.fetch_add((more as u64).wrapping_sub(less as u64), Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator as it is; the
// counter beside it touches no memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller keeps `realloc`'s contract.
        unsafe { System.realloc(block, layout, size) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Allocations made and not freed since [`allocations`] was called.
#[derive(Debug)]
pub struct Allocations(());

impl Allocations {
    /// Bytes as they were asked for, without what the allocator adds; below zero
    /// where more was freed.
    #[must_use]
    pub fn bytes(&self) -> i64 {
        ALLOCATED.load(Relaxed) as i64
    }
}

/// Starts to count bytes from zero, where [`Counting`] is the allocator.
#[must_use]
pub fn allocations() -> Allocations {
    ALLOCATED.store(0, Relaxed);
    COUNTS.store(true, Relaxed);
    Allocations(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_by_nearest_rank() {
        let p = Percentiles::of((1..=100).rev().map(|i| i * 1000).collect());
        assert_eq!((p.us(0.5), p.us(0.99), p.us(1.0)), (50.0, 99.0, 100.0));
        let one = Percentiles::of(vec![7000]);
        assert_eq!((one.us(0.0), one.us(0.5), one.us(1.0)), (7.0, 7.0, 7.0));
        let two = Percentiles::of(vec![2000, 1000]);
        assert_eq!((two.us(0.5), two.us(0.51)), (1.0, 2.0));
    }

    #[test]
    fn this_process_has_memory_and_spends_time() {
        assert!(rss_bytes() > 0);
        assert!(cpu_time() > Duration::ZERO);
    }
}
