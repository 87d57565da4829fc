//! Which keys are integers, and the word that stands for each.

/// The key as a word, if it is one of Rust's own integers of at most 64 bits. Two such keys
/// of one type are equal just when their words are. The compiler answers this for each type
/// of keys, so that nothing is left of it where keys are something else.
///
/// A type that is made of an integer (`struct Id(u64)`) is not one: nobody but its author
/// knows how its `Eq` compares. `NonZeroU64`, `char` and `bool` could be added to the list;
/// nobody has asked for them.
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
