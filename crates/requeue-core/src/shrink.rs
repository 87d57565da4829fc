//! Shrinking of indexes that have grown.

use alloc::vec::Vec;

/// Gives back what the index no longer needs.
pub(crate) fn shrink<T>(index: &mut Vec<T>) {
    if let Some(to) = shrink_to(index.len(), index.capacity()) {
        index.shrink_to(to);
    }
}

/// The capacity that an index of `len` entries should shrink to; `None` while
/// its `capacity` is no great waste. It halves at most at each quarter, so
/// that shrinking costs no more than the growing did.
pub(crate) fn shrink_to(len: usize, capacity: usize) -> Option<usize> {
    (capacity > 64 && len < capacity / 4).then_some(len * 2)
}

#[cfg(test)]
mod tests {
    use super::shrink_to;

    #[test]
    fn an_index_shrinks_when_less_than_a_quarter_of_it_is_used() {
        assert_eq!(shrink_to(25, 100), None);
        assert_eq!(shrink_to(24, 100), Some(48));
        assert_eq!(shrink_to(0, 64), None);
        assert_eq!(shrink_to(0, 65), Some(0));
        assert_eq!(shrink_to(300, 100), None);
    }
}
