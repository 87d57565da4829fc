//! [`Ahead`]: the number of keys before one in line.

/// A key's slot, and its entry in the table, are prefetched when this many keys are before it.
pub(crate) const SLOT_AHEAD: usize = 8;
pub(crate) const ENTRY_AHEAD: usize = 4;

/// Maximum number of blocks of a ring, and of levels, that are counted: some 0.1 ms under the lock if none is
/// in the cache.
pub(super) const STEPS: usize = 256;

/// The number of keys that are handed out before one in line, as things are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ahead {
    /// The number of keys, or a lower bound if it is not `exact`. Keys that enter the line before it later
    /// are not counted, nor are those that go out of turn because they are overdue.
    pub keys: usize,
    /// Whether `keys` is exact. It always is within some 60,000 keys of either end of the line. With
    /// priorities: within 16,000 keys of an end of its level, with fewer than 256 raised keys in its level,
    /// and fewer than 256 levels in use above it. Farther in, the keys are not counted under the lock.
    pub exact: bool,
}
