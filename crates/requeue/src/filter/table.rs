//! Where published keys stand: small tables of entries, a cache line a bucket.
//!
//! A bucket has several ways, because a table of single entries is at its best
//! when it is mostly empty: of 100 keys in 1,024 entries one in ten would share
//! its entry with another, and the two would oust each other with every add. Of
//! four ways in a line the reader finds the right one for the price of the line.
//!
//! Entries are written under the queue's mutex only. A table that is too small is
//! followed by a larger one; it stays where it is, because readers may be in it,
//! and what stands in it stays valid until it is withdrawn.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// Entries a bucket: a line of 64 bytes of two words each.
const WAYS: usize = if cfg!(requeue_loom) { 2 } else { 4 };
/// How many buckets the tables have, one after the other.
const BUCKETS: [usize; LEVELS] = if cfg!(requeue_loom) { [1, 2, 4] } else { [256, 1_024, 4_096] };
pub(super) const LEVELS: usize = 3;

/// One entry; says of itself whether it holds a key.
pub(super) trait Entry: Default {
    /// What is entered.
    type Mark: Copy;
    /// What it is found again by.
    type Name: Copy;

    fn name(mark: Self::Mark) -> Self::Name;

    fn is_free(&self) -> bool;
    fn holds(&self, name: Self::Name) -> bool;
    /// Fills a free entry. `number` was given to none before.
    fn fill(&self, mark: Self::Mark, hash: u32, number: u64);
    fn clear(&self);
}

#[repr(align(64))]
pub(super) struct Bucket<E>([E; WAYS]);

impl<E> Bucket<E> {
    #[inline]
    pub(super) fn entries(&self) -> &[E; WAYS] {
        &self.0
    }
}

/// What is counted as entries are written: guarded by the queue's mutex, and atomic
/// only because it stands beside it. For the same reason no models' atomics.
#[derive(Debug, Default)]
struct Ledger {
    /// Entries written.
    entered: AtomicU64,
    /// Keys that had to give way to others since the table was last followed by
    /// a larger one.
    ousted: AtomicUsize,
    /// Whether these have become so many that a larger table is to follow: whoever
    /// sees this makes it. A hint, and not guarded.
    too_small: AtomicBool,
}

pub(super) struct Tables<E> {
    levels: [OnceLock<Box<[Bucket<E>]>>; LEVELS],
    ledger: Ledger,
}

impl<E: Entry> Tables<E> {
    pub(super) fn new() -> Self {
        Self { levels: [const { OnceLock::new() }; LEVELS], ledger: Ledger::default() }
    }

    /// Makes a table; nothing if it is there.
    pub(super) fn make(&self, level: usize) {
        if self.levels[level].get().is_none() {
            let bucket = |_| Bucket(std::array::from_fn(|_| E::default()));
            // made before it is set: nobody must wait for somebody who makes it
            let _ = self.levels[level].set((0..BUCKETS[level]).map(bucket).collect());
        }
    }

    /// The bucket of a hash, if there is such a table.
    #[inline]
    pub(super) fn bucket(&self, level: usize, hash: u32) -> Option<&Bucket<E>> {
        let buckets = self.levels.get(level)?.get()?;
        buckets.get(hash as usize & (buckets.len() - 1))
    }

    /// Whether the table in use has shown to be too small.
    #[inline]
    pub(super) fn is_too_small(&self) -> bool {
        self.ledger.too_small.load(Relaxed)
    }

    /// The same, and from here on it is not: one caller is told.
    pub(super) fn was_too_small(&self) -> bool {
        self.ledger.too_small.swap(false, Relaxed)
    }

    /// Enters a key.
    pub(super) fn enter(&self, level: usize, hash: u32, mark: E::Mark) {
        let Some(Bucket(entries)) = self.bucket(level, hash) else { return };
        if entries.iter().any(|e| e.holds(E::name(mark))) {
            return;
        }
        let Ledger { entered, ousted, too_small } = &self.ledger;
        let number = entered.load(Relaxed) + 1;
        entered.store(number, Relaxed);
        let entry = entries.iter().find(|e| e.is_free()).unwrap_or_else(|| {
            let count = ousted.load(Relaxed) + 1;
            let enough = count > BUCKETS[level] * WAYS / 4;
            ousted.store(if enough { 0 } else { count }, Relaxed);
            if enough && level + 1 < LEVELS {
                too_small.store(true, Relaxed);
            }
            &entries[number as usize % WAYS]
        });
        // those who found the other key there took it for pending, as it is; its
        // own hand-out comes with a barrier all the same
        entry.clear();
        entry.fill(mark, hash, number);
    }

    /// Clears what a key has in the first so many tables.
    pub(super) fn withdraw(&self, levels: usize, hash: u32, name: E::Name) {
        for level in 0..levels {
            let Some(Bucket(entries)) = self.bucket(level, hash) else { break };
            entries.iter().filter(|e| e.holds(name)).for_each(E::clear);
        }
    }

    #[cfg(test)]
    pub(super) fn made(&self) -> usize {
        self.levels.iter().filter(|table| table.get().is_some()).count()
    }
}
