//! What limiters remember of single keys: a map whose stale entries go by
//! themselves.
//!
//! A key that failed once and was then deleted is never forgotten by anybody, so
//! entries must be able to expire. Nothing scans the map: a hand, like that of a
//! clock, looks at two entries at each call, so no call is slow. At most one entry
//! is added a call, so where every call brings a new key the map settles where
//! half of its entries are stale. The map is split by hash, which keeps threads
//! apart and the pauses of a growing table short.

use crate::sync::Mutex;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hash};

const SHARDS: usize = 16;
/// How many entries the hand looks at in a call.
const LOOKS: usize = 2;
/// Below this many entries capacity is not given back.
const SMALL: usize = 64;

/// One `R` a key.
pub(super) struct Records<K, R, S> {
    hasher: S,
    shards: Box<[Apart<K, R>]>,
}

/// Two cache lines, which processors fetch together, for no other shard.
#[repr(align(128))]
struct Apart<K, R>(Mutex<Shard<K, R>>);

struct Shard<K, R> {
    /// Places in `entries`, by hash.
    places: HashTable<usize>,
    entries: Vec<Entry<K, R>>,
    /// The place that the hand looks at next; may lie past the end.
    hand: usize,
}

struct Entry<K, R> {
    hash: u64,
    key: K,
    record: R,
}

/// Entries that the hand took out: dropped only without the lock, as the drop of
/// a key is users' code.
type Swept<K, R> = [Option<Entry<K, R>>; LOOKS];

impl<K, R, S> Records<K, R, S> {
    pub(super) fn new(hasher: S) -> Self {
        let shards = (0..SHARDS)
            .map(|_| Apart(Mutex::new(Shard { places: HashTable::new(), entries: Vec::new(), hand: 0 })))
            .collect();
        Self { hasher, shards }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().entries.len()).sum()
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<K, R>> {
        // Not the lowest bits nor the seven highest: the table itself uses those.
        &self.shards[(hash >> 48) as usize % SHARDS].0
    }
}

impl<K: Hash + Eq, R, S: BuildHasher> Records<K, R, S> {
    /// Runs `f` on the record of `key`, which is a fresh one where there is none
    /// or where it is stale.
    pub(super) fn update<T>(
        &self,
        key: &K,
        fresh: impl Fn() -> R,
        stale: impl Fn(&R) -> bool,
        f: impl FnOnce(&mut R) -> T,
    ) -> T
    where
        K: Clone,
    {
        let hash = self.hasher.hash_one(key);
        let mut own = None;
        let (result, _swept) = loop {
            let mut shard = self.shard(hash).lock();
            let place = match shard.find(hash, key) {
                Some(place) => place,
                None => match own.take() {
                    Some(key) => shard.insert(Entry { hash, key, record: fresh() }),
                    None => {
                        // The clone is users' code: without the lock, then look again.
                        drop(shard);
                        own = Some(key.clone());
                        continue;
                    }
                },
            };
            let record = &mut shard.entries[place].record;
            if stale(record) {
                *record = fresh();
            }
            let result = f(record);
            break (result, shard.sweep(stale));
        };
        result
    }

    /// Reads the record of `key`.
    pub(super) fn read<T>(&self, key: &K, f: impl FnOnce(&R) -> T) -> Option<T> {
        let hash = self.hasher.hash_one(key);
        let shard = self.shard(hash).lock();
        let place = shard.find(hash, key)?;
        Some(f(&shard.entries[place].record))
    }

    pub(super) fn forget(&self, key: &K) {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash).lock();
        let entry = shard.find(hash, key).map(|place| shard.remove(place));
        drop(shard);
        drop(entry);
    }
}

impl<K: Eq, R> Shard<K, R> {
    fn find(&self, hash: u64, key: &K) -> Option<usize> {
        let same = |&place: &usize| {
            let entry = &self.entries[place];
            entry.hash == hash && entry.key == *key
        };
        self.places.find(hash, same).copied()
    }
}

impl<K, R> Shard<K, R> {
    fn insert(&mut self, entry: Entry<K, R>) -> usize {
        let place = self.entries.len();
        let entries = &self.entries;
        // The hashes are kept: growing runs none of the users' code.
        self.places.insert_unique(entry.hash, place, |&place| entries[place].hash);
        self.entries.push(entry);
        place
    }

    fn remove(&mut self, place: usize) -> Entry<K, R> {
        let entry = self.entries.swap_remove(place);
        if let Ok(found) = self.places.find_entry(entry.hash, |&at| at == place) {
            found.remove();
        }
        if let Some(moved) = self.entries.get(place) {
            let from = self.entries.len();
            if let Some(at) = self.places.find_mut(moved.hash, |&at| at == from) {
                *at = place;
            }
        }
        let len = self.entries.len();
        if len >= SMALL / 4 && len < self.entries.capacity() / 4 {
            self.entries.shrink_to(len * 2);
            let entries = &self.entries;
            self.places.shrink_to(len * 2, |&place| entries[place].hash);
        }
        entry
    }

    fn sweep(&mut self, stale: impl Fn(&R) -> bool) -> Swept<K, R> {
        let mut swept = [const { None }; LOOKS];
        for taken in &mut swept {
            if self.hand >= self.entries.len() {
                self.hand = 0;
            }
            if self.entries.get(self.hand).is_some_and(|entry| stale(&entry.record)) {
                *taken = Some(self.remove(self.hand));
            }
            // Also past an entry that moved here: the last one is the newest.
            self.hand += 1;
        }
        swept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Every place is found by its hash, and only once.
    fn check<K: Hash + Eq, R, S: BuildHasher>(records: &Records<K, R, S>) {
        for shard in &records.shards {
            let shard = shard.0.lock();
            assert_eq!(shard.places.len(), shard.entries.len());
            for (place, entry) in shard.entries.iter().enumerate() {
                assert_eq!(shard.find(entry.hash, &entry.key), Some(place));
            }
        }
    }

    proptest! {
        #[test]
        fn records_are_those_of_a_plain_map(steps in proptest::collection::vec((0u8..3, 0u16..200), 0..500)) {
            let records = Records::new(crate::RandomState::new());
            let mut model = HashMap::new();
            for (step, key) in steps {
                match step {
                    0 => { records.forget(&key); model.remove(&key); }
                    1 => prop_assert_eq!(records.read(&key, |&n: &u32| n), model.get(&key).copied()),
                    _ => {
                        records.update(&key, || 0, |_| false, |n| *n += 1);
                        *model.entry(key).or_insert(0) += 1;
                    }
                }
            }
            check(&records);
            prop_assert_eq!(records.len(), model.len());
        }

        #[test]
        fn stale_records_go_and_no_others(keys in proptest::collection::vec(0u16..300, 0..800)) {
            let records = Records::new(crate::RandomState::new());
            let mut model = HashMap::new();
            // A record is stale 100 calls after it was last touched.
            for (now, key) in keys.into_iter().enumerate() {
                records.update(&key, || now, |&at| at + 100 <= now, |at| *at = now);
                model.insert(key, now);
                for (key, at) in &model {
                    if at + 100 > now {
                        prop_assert_eq!(records.read(key, |&at| at), Some(*at));
                    }
                }
            }
            check(&records);
        }
    }

    #[test]
    fn memory_follows_the_number_of_records() {
        let records = Records::new(crate::RandomState::new());
        for key in 0..100_000u32 {
            records.update(&key, || (), |()| false, |()| ());
        }
        for key in 0..100_000u32 {
            records.forget(&key);
        }
        let kept: usize = records.shards.iter().map(|shard| shard.0.lock().entries.capacity()).sum();
        assert!(kept <= SHARDS * SMALL, "room for {kept}");
        check(&records);
    }

    #[test]
    fn a_key_is_cloned_and_dropped_without_the_lock() {
        use std::sync::OnceLock;
        static RECORDS: OnceLock<Records<Nosy, (), crate::RandomState>> = OnceLock::new();
        /// A key that calls the map from its own code.
        #[derive(PartialEq, Eq, Hash)]
        struct Nosy(u32);
        fn look() {
            let _ = RECORDS.get().map(Records::len);
        }
        impl Clone for Nosy {
            fn clone(&self) -> Self {
                look();
                Self(self.0)
            }
        }
        impl Drop for Nosy {
            fn drop(&mut self) {
                look();
            }
        }
        let records = RECORDS.get_or_init(|| Records::new(crate::RandomState::new()));
        for n in 0..100 {
            records.update(&Nosy(n), || (), |()| true, |()| ());
        }
        records.forget(&Nosy(99));
    }
}
