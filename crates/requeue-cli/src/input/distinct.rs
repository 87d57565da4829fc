//! The number of distinct keys.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState};

/// Detects keys seen before, by a 64-bit fingerprint with a secret seed: among a million keys two are
/// confused with a probability of 3 in 100 million, and a key costs about 10 bytes of any length.
#[derive(Debug, Default)]
pub(crate) struct Distinct {
    seed: RandomState,
    seen: HashSet<u64, BuildHasherDefault<Itself>>,
}

impl Distinct {
    /// Returns true the first time.
    pub(crate) fn is_new(&mut self, key: &[u8]) -> bool {
        self.seen.insert(self.seed.hash_one(key))
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.seen.contains(&self.seed.hash_one(key))
    }

    /// Removes a key. Returns true if it was there.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.seen.remove(&self.seed.hash_one(key))
    }
}

/// A hasher for fingerprints, which are hashes already.
#[derive(Debug, Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are kept");
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_keys_are_counted_once() {
        let mut distinct = Distinct::default();
        assert!(distinct.is_new(b"a"));
        assert!(distinct.is_new(b"b"));
        assert!(!distinct.is_new(b"a"));
        assert!(distinct.contains(b"a") && !distinct.contains(b"c"));
        assert!(distinct.remove(b"a") && !distinct.remove(b"a"));
        assert!(distinct.is_new(b"a"));
    }
}
