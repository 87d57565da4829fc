//! What the stores beside the arena ask of its slots.

/// Where the slots live: the table keeps their numbers alone.
pub(crate) trait Slots {
    /// The hash of a slot's key.
    fn hash(&self, slot: u32) -> u32;
    /// Says that the hash of a slot will be asked for soon.
    fn prefetch(&self, slot: u32);
}

/// A key that is looked for in the table, and entered where it is not found.
pub(crate) trait Newcomer: Slots {
    /// Whether the slot has this key.
    fn is_in(&self, slot: u32) -> bool;
    /// Puts the key into a slot of its own, and returns that.
    fn enter(&mut self) -> u32;
}

/// Where slots remember the block that they stand in.
pub(crate) trait Places {
    /// How many block numbers a place can tell from each other.
    const NUMBERS: usize;
    /// The place of a slot, whose number may be anything; `None` if it stands in no line.
    fn place(&self, slot: u32) -> Option<usize>;
    /// The slot stands in this block from now on.
    fn set_place(&mut self, slot: u32, block: u32);
    /// The slot stands in no line any more.
    fn clear_place(&mut self, slot: u32);
}
