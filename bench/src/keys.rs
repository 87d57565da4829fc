//! The keys that are measured with.

use std::fmt::Debug;
use std::hash::Hash;

/// A kind of keys: the `i`th is the same in all programs.
pub trait Key: Hash + Eq + Clone + Debug + Send + Sync + 'static {
    /// Its value of the parameter `key`.
    const NAME: &'static str;
    /// Number of a key's bytes on the heap.
    const ON_HEAP: usize;
    /// The `i`th key.
    fn nth(i: u64) -> Self;
}

/// splitmix64's finisher of `i`: no order, no two alike.
impl Key for u64 {
    const NAME: &'static str = "u64";
    const ON_HEAP: usize = 0;
    fn nth(i: u64) -> Self {
        scramble(i)
    }
}

/// 31 bytes, as a namespaced name in Kubernetes.
impl Key for String {
    const NAME: &'static str = "string";
    const ON_HEAP: usize = 31;
    fn nth(i: u64) -> Self {
        // to the byte, whatever `format!` has set aside
        format!("default/deployment-{i:012}").into_boxed_str().into_string()
    }
}

/// The first `n` keys from the `first`th on.
#[must_use]
pub fn keys<K: Key>(first: usize, n: usize) -> Vec<K> {
    (first..first + n).map(|i| K::nth(i as u64)).collect()
}

/// One step of splitmix64 (Steele, Lea, Flood 2014), from the state `i`.
#[must_use]
#[inline]
pub fn scramble(i: u64) -> u64 {
    let mut z = i.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The `i` of [`scramble`]`(i)`: which key this is.
#[must_use]
#[inline]
pub fn unscramble(key: u64) -> u64 {
    // each step's inverse: a shift undone by shifting on, an odd factor by its
    // inverse modulo 2^64
    let mut z = key ^ (key >> 31) ^ (key >> 62);
    z = z.wrapping_mul(0x3196_42B2_D24D_8EC3);
    z = z ^ (z >> 27) ^ (z >> 54);
    z = z.wrapping_mul(0x96DE_1B17_3F11_9089);
    z = z ^ (z >> 30) ^ (z >> 60);
    z.wrapping_sub(0x9E37_79B9_7F4A_7C15)
}

/// xorshift64*: which of the hot keys a producer touches next, and delays.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A sequence that depends on the seed only.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(scramble(seed) | 1)
    }

    /// The next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `n`, which is below 2^32.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() >> 32) * n) >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_is_the_known_one() {
        // the first outputs of the reference implementation, seeded with 0
        assert_eq!(scramble(0), 0xE220_A839_7B1D_CDAF);
        assert_eq!(scramble(0x9E37_79B9_7F4A_7C15), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn a_key_tells_which_it_is() {
        for i in (0..1000).chain([1 << 40, u64::MAX]) {
            assert_eq!(unscramble(scramble(i)), i);
        }
    }

    #[test]
    fn strings_have_31_bytes() {
        assert_eq!(String::nth(1234), "default/deployment-000000001234");
        assert_eq!(String::nth(1234).len(), 31);
    }

    #[test]
    fn random_numbers_stay_below() {
        let mut random = Random::new(1);
        let seen: std::collections::HashSet<u64> = (0..1000).map(|_| random.below(10)).collect();
        assert_eq!(seen.len(), 10);
        assert!(seen.iter().all(|n| *n < 10));
    }
}
