//! A counter for calls that take no lock, from many threads at once.
//!
//! Adds of a pending key mostly write no memory that other threads write. A single counter would be such
//! memory. So each thread has a stripe, shared only if there are many threads.

use std::array::from_fn;
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

const STRIPES: usize = 16;

/// A value on cache lines of its own, for concurrent writers: two lines, because processors fetch them in
/// pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// A striped counter.
#[derive(Debug)]
pub(crate) struct Striped([Apart<AtomicU64>; STRIPES]);

impl Default for Striped {
    fn default() -> Self {
        Self(from_fn(|_| Apart::default()))
    }
}

impl Striped {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0[stripe()].0.fetch_add(n, Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Relaxed)).sum()
    }
}

/// The calling thread's stripe.
#[inline]
fn stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(THREADS.fetch_add(1, Relaxed) % STRIPES);
        }
        mine.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_among_more_threads_than_stripes() {
        let counter = Striped::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * STRIPES {
                scope.spawn(|| (0..100).for_each(|_| counter.add(3)));
            }
        });
        assert_eq!(counter.read(), 2 * STRIPES as u64 * 100 * 3);
    }
}
