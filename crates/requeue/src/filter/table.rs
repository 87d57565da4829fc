//! The tables of published keys: each bucket is a cache line of several entries.
//!
//! A bucket has several ways, because a table of single entries works well only when mostly empty: with 100
//! keys in 1,024 entries, one key in ten would share its entry with another, and the two would overwrite each
//! other with every add. With four ways in a line the reader finds the key for the price of one line.
//!
//! Entries are written only under the queue's mutex. If a table is too small, a larger one follows. The old
//! table stays where it is, because readers may be in it, and its entries stay valid until they are
//! withdrawn.

use super::barrier::adder_barrier;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64 as Counter, AtomicUsize};

/// Entries per bucket: a line of 64 bytes holds four entries of two words.
const WAYS: usize = if cfg!(requeue_loom) { 2 } else { 4 };
/// Number of buckets of each table.
const BUCKETS: [usize; LEVELS] = if cfg!(requeue_loom) { [1, 2, 4] } else { [256, 1_024, 4_096] };
pub(super) const LEVELS: usize = 3;

/// Room for one key, read like a sequence lock.
struct Entry {
    /// 0 while the entry is free, otherwise a number that is used only once.
    number: AtomicU64,
    key: AtomicU64,
}

impl Entry {
    fn new() -> Self {
        Self { number: AtomicU64::new(0), key: AtomicU64::new(0) }
    }

    /// Whether the entry holds this key after the caller's barrier.
    #[inline]
    fn is_pending(&self, key: u64) -> bool {
        let number = self.number.load(Acquire);
        // `key` was entered under that number, or later: then the number has been struck out before (released
        // by the store of the key), and the second look sees that
        if number == 0 || self.key.load(Acquire) != key {
            return false;
        }
        adder_barrier();
        self.number.load(Relaxed) == number
    }

    fn is_free(&self) -> bool {
        self.number.load(Relaxed) == 0
    }

    fn holds(&self, key: u64) -> bool {
        !self.is_free() && self.key.load(Relaxed) == key
    }

    fn fill(&self, key: u64, number: u64) {
        self.key.store(key, Release);
        self.number.store(number, Release);
    }

    fn clear(&self) {
        self.number.store(0, Relaxed);
    }
}

#[repr(align(64))]
struct Bucket([Entry; WAYS]);

/// Counts of entries written. Guarded by the queue's mutex, and atomic only because it stands beside it; for
/// that reason not the models' atomics.
#[derive(Debug, Default)]
struct Ledger {
    /// Number of entries written.
    entered: Counter,
    /// Number of entries overwritten by other keys since a larger table was last requested.
    ousted: AtomicUsize,
    /// Whether a larger table is needed: the caller that sees this creates it. A hint, and not guarded.
    too_small: AtomicBool,
}

pub(super) struct Tables {
    levels: [OnceLock<Box<[Bucket]>>; LEVELS],
    ledger: Ledger,
}

impl Tables {
    pub(super) fn new() -> Self {
        Self { levels: [const { OnceLock::new() }; LEVELS], ledger: Ledger::default() }
    }

    /// Creates a table, if it does not exist.
    pub(super) fn make(&self, level: usize) {
        if self.levels[level].get().is_none() {
            let bucket = |_| Bucket(std::array::from_fn(|_| Entry::new()));
            // made before it is set: no thread must wait for the one that makes it
            let _ = self.levels[level].set((0..BUCKETS[level]).map(bucket).collect());
        }
    }

    /// The entries where a key with this hash may be, if the table exists.
    #[inline]
    fn bucket(&self, level: usize, hash: u32) -> Option<&[Entry; WAYS]> {
        let buckets = self.levels.get(level)?.get()?;
        buckets.get(hash as usize & (buckets.len() - 1)).map(|Bucket(entries)| entries)
    }

    /// Whether a table holds the key after the caller's barrier.
    #[inline]
    pub(super) fn is_pending(&self, level: usize, key: u64, hash: u32) -> bool {
        self.bucket(level, hash).is_some_and(|entries| entries.iter().any(|entry| entry.is_pending(key)))
    }

    /// Whether the table in use has turned out to be too small.
    #[inline]
    pub(super) fn is_too_small(&self) -> bool {
        self.ledger.too_small.load(Relaxed)
    }

    /// Like [`is_too_small`](Self::is_too_small), but clears the flag: only one caller gets `true`.
    pub(super) fn was_too_small(&self) -> bool {
        self.ledger.too_small.swap(false, Relaxed)
    }

    /// Enters a key.
    pub(super) fn enter(&self, level: usize, key: u64, hash: u32) {
        let Some(entries) = self.bucket(level, hash) else { return };
        if entries.iter().any(|entry| entry.holds(key)) {
            return;
        }
        let Ledger { entered, ousted, too_small } = &self.ledger;
        let number = entered.load(Relaxed) + 1;
        entered.store(number, Relaxed);
        let entry = entries.iter().find(|entry| entry.is_free()).unwrap_or_else(|| {
            let count = ousted.load(Relaxed) + 1;
            let enough = count > BUCKETS[level] * WAYS / 4;
            ousted.store(if enough { 0 } else { count }, Relaxed);
            if enough && level + 1 < LEVELS {
                too_small.store(true, Relaxed);
            }
            &entries[number as usize % WAYS]
        });
        // callers that found the other key there took it for pending, which it is; its own hand-out comes
        // with a barrier all the same
        entry.clear();
        entry.fill(key, number);
    }

    /// Clears a key's entries in the first `levels` tables.
    pub(super) fn withdraw(&self, levels: usize, key: u64, hash: u32) {
        for level in 0..levels {
            let Some(entries) = self.bucket(level, hash) else { break };
            entries.iter().filter(|entry| entry.holds(key)).for_each(Entry::clear);
        }
    }

    /// Number of tables.
    #[cfg(test)]
    pub(super) fn made(&self) -> usize {
        self.levels.iter().filter(|table| table.get().is_some()).count()
    }

    /// Number of entries of a key in a table.
    #[cfg(test)]
    pub(super) fn entries_of(&self, level: usize, key: u64, hash: u32) -> usize {
        self.bucket(level, hash).map_or(0, |entries| entries.iter().filter(|e| e.holds(key)).count())
    }
}
