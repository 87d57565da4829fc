//! Entries for keys that are integers: the key itself, read as a sequence lock.

use super::barrier::adder_barrier;
use super::table::Entry;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A key that fits a word.
pub(super) struct Word {
    /// 0 while the entry is free, else a number that no other entering has ever had.
    number: AtomicU64,
    key: AtomicU64,
}

impl Word {
    /// Whether the entry holds this key after a barrier of the caller's.
    #[inline]
    pub(super) fn is_pending(&self, key: u64) -> bool {
        let number = self.number.load(Acquire);
        // `key` is what was entered under that number, or later: then the number
        // has been struck out before (released by the store of the key), and the
        // second look sees that
        if number == 0 || self.key.load(Acquire) != key {
            return false;
        }
        adder_barrier();
        self.number.load(Relaxed) == number
    }
}

impl Default for Word {
    fn default() -> Self {
        Self { number: AtomicU64::new(0), key: AtomicU64::new(0) }
    }
}

impl Entry for Word {
    type Mark = u64;
    type Name = u64;

    fn name(mark: u64) -> u64 {
        mark
    }
    fn is_free(&self) -> bool {
        self.number.load(Relaxed) == 0
    }
    fn holds(&self, key: u64) -> bool {
        !self.is_free() && self.key.load(Relaxed) == key
    }
    fn fill(&self, key: u64, _: u32, number: u64) {
        self.key.store(key, Release);
        self.number.store(number, Release);
    }
    fn clear(&self) {
        self.number.store(0, Relaxed);
    }
}
