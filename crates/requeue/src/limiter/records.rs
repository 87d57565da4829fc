//! What limiters remember of single keys: a map whose stale entries go by
//! themselves.
//!
//! A key that failed once and was then deleted is never forgotten by anybody, so
//! entries must be able to expire. Nothing scans the map: a hand, like that of a
//! clock, looks at two entries at each call, so no call is slow. At most one entry
//! is added a call, so where every call brings a new key the map settles where
//! half of its entries are stale. A map whose entries do not expire has no hand.
//!
//! The map is split by hash, which keeps threads apart. Each part holds its entries
//! side by side, so that a new one goes to the end, which is in the cache, and the
//! hand walks straight on; and eight bytes an entry say where it stands. Neither
//! ever moves in one piece, which would stop everybody for 24 ms on the way to a
//! million keys: the entries stand in chunks, and the places in small tables of
//! which one at a time, in turn, splits in two. That is linear hashing (Litwin,
//! "Linear hashing: a new tool for file and table addressing", VLDB 1980); no call
//! moves more than a table.

use crate::sync::Mutex;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hash};

const SHARDS: usize = 16;
/// How many entries the hand looks at in a call.
const LOOKS: usize = 2;
/// Entries a chunk.
const CHUNK: usize = 256;
/// Entries for each table at which one of them splits.
const SPLIT_AT: usize = 384;
/// Fewer entries for each table, and the last one is merged: far enough below
/// [`SPLIT_AT`] that a map that hovers does not split and merge in turn.
const MERGE_AT: usize = SPLIT_AT / 4;

/// One `R` a key.
pub(super) struct Records<K, R, S> {
    hasher: S,
    shards: Box<[Apart<K, R>]>,
}

/// Two cache lines, which processors fetch together, for no other shard.
#[repr(align(128))]
struct Apart<K, R>(Mutex<Shard<K, R>>);

struct Shard<K, R> {
    places: Places,
    /// All chunks but the last are full; the last is empty only if it is the first.
    chunks: Vec<Vec<Entry<K, R>>>,
    len: usize,
    /// The entry that the hand looks at next; may lie past the end.
    hand: usize,
}

struct Entry<K, R> {
    hash: u32,
    key: K,
    record: R,
}

/// Entries that the hand took out: dropped only without the lock, as the drop of
/// a key is users' code. (Nearly always none, and then it allocates nothing.)
type Swept<K, R> = Vec<Entry<K, R>>;

impl<K, R, S> Records<K, R, S> {
    pub(super) fn new(hasher: S) -> Self {
        let shard = || Shard { places: Places::new(), chunks: vec![Vec::new()], len: 0, hand: 0 };
        Self { hasher, shards: (0..SHARDS).map(|_| Apart(Mutex::new(shard()))).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().len).sum()
    }

    #[inline]
    fn shard(&self, hash: u32) -> &Mutex<Shard<K, R>> {
        // the highest bits: the tables are told by the lowest
        &self.shards[(hash >> 28) as usize % SHARDS].0
    }
}

impl<K: Hash + Eq, R, S: BuildHasher> Records<K, R, S> {
    /// 32 bits, each of which depends on many, whatever the user's hasher is worth.
    #[inline]
    fn hash(&self, key: &K) -> u32 {
        let product = u128::from(self.hasher.hash_one(key)) * u128::from(GOLDEN);
        (product >> 64) as u32 ^ (product >> 32) as u32
    }

    /// Runs `f` on the record of `key`, which is a fresh one where there is none
    /// or where it is stale.
    #[inline]
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
        let (result, _swept) = self.change(key, &fresh, |shard, at| {
            let record = shard.record(at);
            if stale(record) {
                *record = fresh();
            }
            let result = f(record);
            (result, shard.sweep(&stale))
        });
        result
    }

    /// [`update`](Self::update) where no record is ever stale.
    #[inline]
    pub(super) fn update_lasting<T>(&self, key: &K, fresh: impl Fn() -> R, f: impl FnOnce(&mut R) -> T) -> T
    where
        K: Clone,
    {
        self.change(key, fresh, |shard, at| f(shard.record(at)))
    }

    /// Runs `f` under the lock, with the place of `key`'s entry.
    #[inline]
    fn change<T>(&self, key: &K, fresh: impl Fn() -> R, f: impl FnOnce(&mut Shard<K, R>, u32) -> T) -> T
    where
        K: Clone,
    {
        let hash = self.hash(key);
        // The clone is users' code: without the lock. Where there is nothing to drop
        // it is sure to be cheap, and made before anybody knows whether it is wanted.
        let mut own = (!std::mem::needs_drop::<K>()).then(|| key.clone());
        let result = loop {
            let mut shard = self.shard(hash).lock();
            let at = match shard.find(hash, key) {
                Some(at) => at,
                None => match own.take() {
                    Some(key) => shard.push(Entry { hash, key, record: fresh() }),
                    None => {
                        drop(shard);
                        own = Some(key.clone());
                        continue;
                    }
                },
            };
            break f(&mut shard, at);
        };
        drop(own);
        result
    }

    /// Reads the record of `key`.
    pub(super) fn read<T>(&self, key: &K, f: impl FnOnce(&R) -> T) -> Option<T> {
        let hash = self.hash(key);
        let mut shard = self.shard(hash).lock();
        let at = shard.find(hash, key)?;
        Some(f(shard.record(at)))
    }

    pub(super) fn forget(&self, key: &K) {
        let hash = self.hash(key);
        let mut shard = self.shard(hash).lock();
        let entry = shard.find(hash, key).and_then(|at| shard.remove(at));
        drop(shard);
        drop(entry);
    }
}

impl<K: Eq, R> Shard<K, R> {
    #[inline]
    fn find(&self, hash: u32, key: &K) -> Option<u32> {
        self.places.find(hash, |at| self.entry(at).key == *key)
    }
}

impl<K, R> Shard<K, R> {
    #[inline]
    fn entry(&self, at: u32) -> &Entry<K, R> {
        &self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    #[inline]
    fn record(&mut self, at: u32) -> &mut R {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK].record
    }

    #[inline]
    fn push(&mut self, entry: Entry<K, R>) -> u32 {
        let at = u32::try_from(self.len).expect("a limiter remembers at most 2^32 keys of a sixteenth");
        self.places.insert(Place { hash: entry.hash, at });
        if self.len == self.chunks.len() * CHUNK {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        if let Some(last) = self.chunks.last_mut() {
            last.push(entry);
        }
        self.len += 1;
        at
    }

    /// Takes an entry out; the last one moves to its place.
    fn remove(&mut self, at: u32) -> Option<Entry<K, R>> {
        let mut entry = self.chunks.last_mut()?.pop()?;
        self.len -= 1;
        let last = self.len as u32;
        if at != last {
            self.places.change(entry.hash, last, at);
            let place = &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK];
            entry = std::mem::replace(place, entry);
        }
        self.places.remove(entry.hash, at);
        if self.len % CHUNK == 0 && self.chunks.len() > 1 {
            self.chunks.pop();
            if self.chunks.len() < self.chunks.capacity() / 4 {
                self.chunks.shrink_to_fit();
            }
        } else if self.len == 0 {
            self.chunks[0].shrink_to(CHUNK / 16);
        }
        Some(entry)
    }

    #[inline]
    fn sweep(&mut self, stale: impl Fn(&R) -> bool) -> Swept<K, R> {
        let mut swept = Vec::new();
        for _ in 0..LOOKS {
            if self.hand >= self.len {
                self.hand = 0;
            }
            let at = self.hand as u32;
            if self.len > 0 && stale(&self.entry(at).record) {
                swept.extend(self.remove(at));
            }
            // Also past an entry that moved here: the last one is the newest.
            self.hand += 1;
        }
        swept
    }
}

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Where an entry stands. The hash is here too, so that tables can split and grow
/// without looking at the entries.
#[derive(Clone, Copy)]
struct Place {
    hash: u32,
    at: u32,
}

impl Place {
    /// What hashbrown wants: it takes the bucket from the low bits and a tag from the
    /// top seven, and none of these may be those that the table was chosen by.
    #[inline]
    fn stretch(hash: u32) -> u64 {
        (u64::from(hash).wrapping_mul(GOLDEN)).rotate_left(20)
    }

    fn stretched(&self) -> u64 {
        Self::stretch(self.hash)
    }
}

/// The places of a shard's entries by hash.
struct Places {
    /// Never empty. With `2^n <= tables.len() < 2^(n+1)`, a place is in the table
    /// whose number is the last `n + 1` bits of its hash, or if there is no such
    /// table the last `n` bits.
    tables: Vec<HashTable<Place>>,
    len: usize,
}

impl Places {
    fn new() -> Self {
        Self { tables: vec![HashTable::new()], len: 0 }
    }

    /// The number of the table for `hash`.
    #[inline]
    fn table(&self, hash: u32) -> usize {
        let tables = self.tables.len();
        let bits = tables.ilog2();
        let no = hash as usize & ((2 << bits) - 1);
        if no < tables { no } else { no - (1 << bits) }
    }

    #[inline]
    fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let same = |place: &Place| place.hash == hash && is_it(place.at);
        Some(self.tables[self.table(hash)].find(Place::stretch(hash), same)?.at)
    }

    #[inline]
    fn insert(&mut self, place: Place) {
        if self.len >= SPLIT_AT * self.tables.len() {
            self.split();
        }
        let no = self.table(place.hash);
        self.tables[no].insert_unique(place.stretched(), place, Place::stretched);
        self.len += 1;
    }

    /// The entry that stood at `from` stands at `to`.
    fn change(&mut self, hash: u32, from: u32, to: u32) {
        let no = self.table(hash);
        let place = self.tables[no].find_mut(Place::stretch(hash), |place| place.at == from);
        place.expect("an entry has a place").at = to;
    }

    /// Strikes the place of an entry that is gone. Another one may stand there by now:
    /// then both have the place, and the hash tells them apart, or there is nothing
    /// to tell apart.
    fn remove(&mut self, hash: u32, at: u32) {
        let no = self.table(hash);
        let same = |place: &Place| place.hash == hash && place.at == at;
        let Ok(place) = self.tables[no].find_entry(Place::stretch(hash), same) else { return };
        place.remove();
        self.len -= 1;
        if self.tables.len() > 1 {
            if self.len < MERGE_AT * self.tables.len() {
                self.merge();
            }
        } else if self.len < self.tables[0].capacity() / 4 {
            self.tables[0].shrink_to_fit(Place::stretched);
        }
    }

    /// The table that a further one is split from.
    fn parent_of_next(&self) -> usize {
        self.tables.len() - (1 << self.tables.len().ilog2())
    }

    /// Splits the table whose turn it is.
    #[cold]
    fn split(&mut self) {
        let bits = self.tables.len().ilog2();
        let parent = self.parent_of_next();
        let mut moved = HashTable::with_capacity(SPLIT_AT);
        for place in self.tables[parent].extract_if(|place| place.hash >> bits & 1 == 1) {
            moved.insert_unique(place.stretched(), place, Place::stretched);
        }
        self.tables.push(moved);
    }

    /// Merges the last table into the one that it was split from.
    #[cold]
    fn merge(&mut self) {
        let Some(last) = self.tables.pop() else { return };
        let parent = self.parent_of_next();
        let kept = &mut self.tables[parent];
        for place in last {
            kept.insert_unique(place.stretched(), place, Place::stretched);
        }
        kept.shrink_to(SPLIT_AT, Place::stretched);
        if self.tables.len() < self.tables.capacity() / 4 {
            self.tables.shrink_to_fit();
        }
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::hash::{BuildHasherDefault, Hasher};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// Every place is found by its hash, and only once.
    fn check<K: Hash + Eq, R, S: BuildHasher>(records: &Records<K, R, S>) {
        for shard in &records.shards {
            let shard = shard.0.lock();
            assert_eq!(shard.places.tables.iter().map(HashTable::len).sum::<usize>(), shard.len);
            assert_eq!(shard.chunks.iter().map(Vec::len).sum::<usize>(), shard.len);
            for at in 0..shard.len as u32 {
                let entry = shard.entry(at);
                assert_eq!(shard.find(entry.hash, &entry.key), Some(at));
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
        let room = || {
            let shards = records.shards.iter().map(|shard| shard.0.lock());
            shards.map(|s| (s.chunks.capacity(), s.places.tables.capacity())).collect::<Vec<_>>()
        };
        let most = room();
        for key in 0..50_000u32 {
            records.forget(&key);
        }
        assert_eq!(room(), most, "half as many may soon be as many again");
        for key in 50_000..100_000u32 {
            records.forget(&key);
        }
        for shard in &records.shards {
            let shard = shard.0.lock();
            let Shard { chunks, places: Places { tables, .. }, .. } = &*shard;
            assert!(chunks.len() == 1 && chunks.capacity() <= 8 && (1..=16).contains(&chunks[0].capacity()));
            assert!(tables.len() == 1 && tables.capacity() <= 8 && tables[0].capacity() <= 64);
        }
        check(&records);
    }

    /// The hash of a number is that number.
    #[derive(Default)]
    struct Itself(u64);
    impl Hasher for Itself {
        fn write(&mut self, _: &[u8]) {}
        fn write_u64(&mut self, n: u64) {
            self.0 = n;
        }
        fn finish(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn keys_are_spread_however_poor_their_hasher_is() {
        const KEYS: u64 = 50_000;
        // they differ in the lowest bits, or in the highest
        for shift in [0, 40] {
            let records = Records::new(BuildHasherDefault::<Itself>::default());
            for key in 0..KEYS {
                records.update_lasting(&(key << shift), || (), |()| ());
            }
            for shard in &records.shards {
                let shard = shard.0.lock();
                let fair = KEYS as usize / SHARDS;
                assert!((fair / 2..fair * 2).contains(&shard.len), "{} of {KEYS} in one shard", shard.len);
                assert!(shard.places.tables.iter().all(|table| table.len() < 3 * SPLIT_AT));
            }
        }
    }

    #[test]
    fn keys_of_one_hash_are_kept_apart() {
        /// Hashes everything to the same.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        struct Same(u64);
        impl Hash for Same {
            fn hash<H: Hasher>(&self, _: &mut H) {}
        }
        let records = Records::new(BuildHasherDefault::<Itself>::default());
        for n in 0..600 {
            records.update(&Same(n), || n, |_| false, |_| ());
        }
        for n in 0..300 {
            records.forget(&Same(n * 2));
        }
        for n in 0..600 {
            assert_eq!(records.read(&Same(n), |&n| n), (n % 2 == 1).then_some(n));
        }
        check(&records);
        // all are in one shard, which keeps its room for chunks and in the first until nothing is left
        let room = || {
            let shards = records.shards.iter().map(|shard| shard.0.lock());
            shards.map(|shard| (shard.chunks.capacity(), shard.chunks[0].capacity())).max()
        };
        let most = room();
        for n in 0..299 {
            records.forget(&Same(n * 2 + 1));
            assert_eq!(room(), most);
        }
        records.forget(&Same(599));
        assert!(room() < most);
    }

    #[test]
    fn there_are_as_many_tables_as_the_places_want() {
        let mut places = Places::new();
        let hash = |at: u32| at.wrapping_mul(GOLDEN as u32);
        for at in 0..10 * SPLIT_AT as u32 {
            places.insert(Place { hash: hash(at), at });
            assert_eq!(
                places.tables.len(),
                places.len.div_ceil(SPLIT_AT),
                "each is filled before one splits"
            );
        }
        let (mut tables, mut room) = (places.tables.len(), places.tables.capacity());
        for at in 0..10 * SPLIT_AT as u32 {
            places.remove(hash(at), at);
            assert_eq!(places.len as u32, 10 * SPLIT_AT as u32 - 1 - at);
            tables -= usize::from(tables > 1 && places.len < tables * MERGE_AT);
            assert_eq!(places.tables.len(), tables, "one merges as soon as they are a quarter full, {at}");
            assert!(places.tables.iter().all(|table| table.len() < 3 * SPLIT_AT));
            if tables < room / 4 {
                room = places.tables.capacity();
            }
            assert_eq!(places.tables.capacity(), room, "while a quarter of it is used, {tables}");
        }
        assert!(tables == 1 && room < 4);
    }

    #[test]
    fn a_table_gives_room_back_when_it_is_a_quarter_full_and_no_sooner() {
        let mut places = Places::new();
        for at in 0..200 {
            places.insert(Place { hash: at, at });
        }
        let room = places.tables[0].capacity();
        for at in (room as u32 / 4..200).rev() {
            places.remove(at, at);
            assert_eq!(places.tables[0].capacity(), room, "{at} are left");
        }
        places.remove(0, 0);
        assert!(places.tables[0].capacity() < room);
    }

    #[test]
    fn a_key_that_is_there_already_is_not_cloned() {
        static CLONES: AtomicUsize = AtomicUsize::new(0);
        #[derive(PartialEq, Eq, Hash)]
        struct Counted(String);
        impl Clone for Counted {
            fn clone(&self) -> Self {
                CLONES.fetch_add(1, SeqCst);
                Self(self.0.clone())
            }
        }
        let records = Records::new(crate::RandomState::new());
        for _ in 0..9 {
            records.update(&Counted("a".to_string()), || (), |()| false, |()| ());
        }
        assert_eq!(CLONES.load(SeqCst), 1);
    }

    #[test]
    fn no_table_grows_large_and_none_is_moved_at_once() {
        let records = Records::new(crate::RandomState::new());
        for key in 0..200_000u32 {
            records.update_lasting(&key, || (), |()| ());
        }
        check(&records);
        for shard in &records.shards {
            let places = &shard.0.lock().places;
            assert!(places.tables.len() >= places.len / SPLIT_AT);
            // a table that waits for its turn to split has twice what the others have
            assert!(places.tables.iter().all(|table| table.len() < 3 * SPLIT_AT));
        }
        for key in 0..200_000u32 {
            records.forget(&key);
            if key % 20_011 == 0 {
                check(&records);
            }
        }
        assert_eq!(records.len(), 0);
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
