//! The limiters' records per key: a map whose stale entries expire.
//!
//! A key that failed once and was then deleted is never forgotten by a caller, so entries must expire.
//! Nothing scans the map: each call checks the next two entries, in a circle, so no call is slow. A call adds
//! at most one entry, so if every call brings a new key, the map settles with half of its entries stale.

use crate::sync::Mutex;
use requeue_core::Map;
use std::hash::{BuildHasher, Hash};

/// Number of entries that a call checks.
const LOOKS: usize = 2;

/// A map with one `R` per key.
pub(super) struct Records<K, R, S> {
    hasher: S,
    kept: Mutex<Kept<K, R>>,
}

struct Kept<K, R> {
    map: Map<K, R>,
    /// Index of the entry to check next; may lie past the end.
    next: u32,
}

impl<K, R, S> Records<K, R, S> {
    pub(super) fn new(hasher: S) -> Self {
        Self { hasher, kept: Mutex::new(Kept { map: Map::default(), next: 0 }) }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.lock().map.len()
    }
}

impl<K: Hash + Eq, R, S: BuildHasher> Records<K, R, S> {
    /// Hashes to 32 bits, each of which depends on many, however weak the user's hasher is. (The factor is
    /// 2^64 divided by the golden ratio.)
    #[inline]
    fn hash(&self, key: &K) -> u32 {
        let product = u128::from(self.hasher.hash_one(key)) * 0x9e37_79b9_7f4a_7c15;
        (product >> 64) as u32 ^ (product >> 32) as u32
    }

    /// Runs `f` on the record of `key`, or on a fresh one if there is none or it is stale. Without `stale`,
    /// no record is.
    #[inline]
    pub(super) fn update<T>(
        &self,
        key: &K,
        fresh: impl Fn() -> R,
        stale: Option<impl Fn(&R) -> bool>,
        f: impl FnOnce(&mut R) -> T,
    ) -> T
    where
        K: Clone,
    {
        let hash = self.hash(key);
        // Clones and drops of keys are users' code: without the lock. Where there is nothing
        // to drop a clone is sure to be cheap, and made before anybody knows whether it is wanted.
        let mut own = (!std::mem::needs_drop::<K>()).then(|| key.clone());
        let (result, _swept) = loop {
            let mut kept = self.kept.lock();
            let at = match kept.map.find(hash, key) {
                Some(at) => at,
                None => match own.take() {
                    Some(key) => kept.map.insert(hash, key, fresh()),
                    None => {
                        drop(kept);
                        own = Some(key.clone());
                        continue;
                    }
                },
            };
            let record = kept.map.record(at);
            let Some(stale) = stale else { break (f(record), Vec::new()) };
            if stale(record) {
                *record = fresh();
            }
            break (f(record), kept.sweep(stale));
        };
        result
    }

    /// Reads the record of `key`.
    pub(super) fn read<T>(&self, key: &K, f: impl FnOnce(&R) -> T) -> Option<T> {
        let hash = self.hash(key);
        let map = &mut self.kept.lock().map;
        let at = map.find(hash, key)?;
        Some(f(map.record(at)))
    }

    pub(super) fn forget(&self, key: &K) {
        let hash = self.hash(key);
        let mut kept = self.kept.lock();
        let entry = kept.map.find(hash, key).and_then(|at| kept.map.remove(at));
        drop(kept);
        drop(entry);
    }
}

impl<K, R> Kept<K, R> {
    /// Removes stale entries among those to be checked next. (Nearly always none, and then it allocates
    /// nothing.)
    #[inline]
    fn sweep(&mut self, stale: impl Fn(&R) -> bool) -> Vec<(K, R)> {
        let mut swept = Vec::new();
        for _ in 0..LOOKS {
            if self.next as usize >= self.map.len() {
                self.next = 0;
            }
            if !self.map.is_empty() && stale(self.map.record(self.next)) {
                swept.extend(self.map.remove(self.next));
            }
            // Also past an entry that moved here: the last one is the newest.
            self.next += 1;
        }
        swept
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::hash::{BuildHasherDefault, Hasher};
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    const NEVER_STALE: Option<fn(&u32) -> bool> = None;

    proptest! {
        #[test]
        fn records_are_those_of_a_plain_map(steps in proptest::collection::vec((0u8..3, 0u16..200), 0..500)) {
            let records = Records::new(crate::hash::RandomState::default());
            let mut model = HashMap::new();
            for (step, key) in steps {
                match step {
                    0 => { records.forget(&key); model.remove(&key); }
                    1 => prop_assert_eq!(records.read(&key, |&n: &u32| n), model.get(&key).copied()),
                    _ => {
                        records.update(&key, || 0, NEVER_STALE, |n| *n += 1);
                        *model.entry(key).or_insert(0) += 1;
                    }
                }
            }
            prop_assert_eq!(records.len(), model.len());
        }

        #[test]
        fn stale_records_go_and_no_others(keys in proptest::collection::vec(0u16..300, 0..800)) {
            let records = Records::new(crate::hash::RandomState::default());
            let mut model = HashMap::new();
            // A record is stale 100 calls after it was last touched.
            for (now, key) in keys.into_iter().enumerate() {
                records.update(&key, || now, Some(|&at: &usize| at + 100 <= now), |at| *at = now);
                model.insert(key, now);
                for (key, at) in &model {
                    if at + 100 > now {
                        prop_assert_eq!(records.read(key, |&at| at), Some(*at));
                    }
                }
            }
        }
    }

    /// A hasher that returns the number itself.
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
        const KEYS: usize = 50_000;
        let records = Records::<u64, (), _>::new(BuildHasherDefault::<Itself>::default());
        // they differ in the lowest bits, or in the highest
        for shift in [0, 40] {
            // the highest bits of a hash choose the segment
            let mut segments = [0; 16];
            for key in 0..KEYS as u64 {
                segments[records.hash(&(key << shift)) as usize >> 28] += 1;
            }
            let fair = KEYS / segments.len();
            assert!(segments.iter().all(|n| (fair / 2..fair * 2).contains(n)), "{segments:?}");
        }
    }

    #[test]
    fn keys_of_one_hash_are_kept_apart() {
        /// A key whose hash is always the same.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        struct Same(u32);
        impl Hash for Same {
            fn hash<H: Hasher>(&self, _: &mut H) {}
        }
        let records = Records::new(BuildHasherDefault::<Itself>::default());
        for n in 0..600u32 {
            records.update(&Same(n), || n, NEVER_STALE, |_| ());
        }
        for n in 0..300 {
            records.forget(&Same(n * 2));
        }
        for n in 0..600 {
            assert_eq!(records.read(&Same(n), |&n| n), (n % 2 == 1).then_some(n));
        }
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
        let records = Records::new(crate::hash::RandomState::default());
        for _ in 0..9 {
            records.update(&Counted("a".to_string()), || 0, NEVER_STALE, |_| ());
        }
        assert_eq!(CLONES.load(SeqCst), 1);
    }

    #[test]
    fn a_key_is_cloned_and_dropped_without_the_lock() {
        use std::sync::OnceLock;
        static RECORDS: OnceLock<Records<Nosy, (), crate::hash::RandomState>> = OnceLock::new();
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
        let records = RECORDS.get_or_init(|| Records::new(crate::hash::RandomState::default()));
        for n in 0..100 {
            records.update(&Nosy(n), || (), Some(|(): &()| true), |()| ());
        }
        records.forget(&Nosy(99));
    }
}
