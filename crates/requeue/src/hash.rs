//! The default hasher of the queue and of the limiters that count per key.

use std::hash::{BuildHasher, Hasher};

/// The default hasher: fast, and seeded anew in each process, so that keys cannot be prepared to collide.
///
/// It is foldhash's quality variant, which its author calls *minimally* DoS-resistant: it resists keys
/// prepared in advance, but not an attacker who can time single operations of a running process. If that
/// matters, give the queue [`std::hash::RandomState`] (SipHash) through
/// [`Builder::hasher`](crate::Builder::hasher).
///
/// ```
/// use std::hash::BuildHasher;
/// let state = requeue::RandomState::default();
/// assert_eq!(state.hash_one("a"), state.hash_one("a"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct RandomState(foldhash::quality::RandomState);

impl BuildHasher for RandomState {
    type Hasher = KeyHasher;
    #[inline]
    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(self.0.build_hasher())
    }
}

/// The hasher that [`RandomState`] builds. Cannot be named outside.
///
/// ```
/// use std::hash::{BuildHasher, Hasher};
/// let state = requeue::RandomState::default();
/// let mut hasher = state.build_hasher();
/// hasher.write_u64(7);
/// assert_eq!(hasher.finish(), state.hash_one(7u64));
/// ```
#[derive(Clone)]
pub struct KeyHasher(foldhash::quality::FoldHasher<'static>);

debug!([] KeyHasher, |_| { .. });

/// Passes integers on whole: foldhash folds a `u64` in one step, but eight bytes in a loop.
macro_rules! pass_on {
    ($($name:ident: $int:ty),*) => {$(
        #[inline]
        fn $name(&mut self, i: $int) {
            self.0.$name(i);
        }
    )*};
}

impl Hasher for KeyHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0.finish()
    }
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
    pass_on!(write_u8: u8, write_u16: u16, write_u32: u32, write_u64: u64, write_u128: u128, write_usize: usize);
}
