//! [`Slots`], [`Insert`] and [`Places`]: access of other stores to the arena's slots.

/// Access to the slots of the table's numbers.
pub(crate) trait Slots {
    /// The hash of a slot's key.
    fn hash(&self, slot: u32) -> u32;
    /// Prefetches the hash of a slot.
    fn prefetch(&self, slot: u32);
}

/// A key to be looked up in the table, and entered if it is missing.
pub(crate) trait Insert: Slots {
    /// Whether the slot has this key.
    fn is_in(&self, slot: u32) -> bool;
    /// Puts the key into a slot of its own, and returns that.
    fn enter(&mut self) -> u32;
}

/// Access to the slots' places: the block that each is in.
pub(crate) trait Places {
    /// Number of block numbers that a place can represent.
    const NUMBERS: usize;
    /// The place at any slot number; `None` if it is in no line.
    fn place(&self, slot: u32) -> Option<usize>;
    /// Sets the block of the slot.
    fn set_place(&mut self, slot: u32, block: u32);
    /// Records that the slot is in no line any more.
    fn clear_place(&mut self, slot: u32);
}
