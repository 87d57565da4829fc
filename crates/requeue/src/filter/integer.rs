//! Integer keys, and the word that represents each.

/// The key as a word, if it is one of Rust's integer types of at most 64 bits. Two such keys of one type are
/// equal exactly if their words are. The compiler evaluates this per key type, so other types pay nothing.
///
/// A type that wraps an integer (`struct Id(u64)`) does not count: only its author knows how its `Eq`
/// compares. `NonZeroU64`, `char` and `bool` could be added to the list.
#[inline(always)]
pub(crate) fn word<Q: ?Sized>(key: &Q) -> Option<u64> {
    macro_rules! read {
        ($($int:ty)*) => { $(
            if let Ok(integer) = castaway::cast!(key, &$int) {
                return Some(*integer as u64);
            }
        )* };
    }
    read!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize);
    None
}
