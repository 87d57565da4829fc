//! How many keys go before one that stands in line: for people who ask why it does not run.

/// How many keys before a key is handed out its slot is prefetched, and its entry in the table.
pub(crate) const SLOT_AHEAD: usize = 8;
pub(crate) const ENTRY_AHEAD: usize = 4;

/// How many blocks of a ring, and how many levels, are looked at to find that out: some 0.1 ms
/// under the lock where none of it is at hand.
pub(super) const STEPS: usize = 256;

/// How many keys go before one that is in line, as things stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ahead {
    /// The number of keys, or a lower bound if it is not `exact`. What comes to stand before it later
    /// is not among them, nor are those that go out of turn because they have waited for the
    /// longest time that the queue allows.
    pub keys: usize,
    /// Whether it is the number. It always is within some 60,000 keys of either end of the line,
    /// of a level's where there are priorities (there: 16,000, and of its level and those above it fewer
    /// than 256 keys that were raised, and 256 levels). Further in, nobody counts under the lock.
    pub exact: bool,
}
