//! The keys of a node in the order of their coming, and what is known of a key beside its place in line.
//!
//! The first key of a node stands in the node, those behind it in blocks that fill a cache line
//! each: to let a key in writes the last one, and to take one out reads the first. Links from key to
//! key would be in a line of their own for each key, which of a million keys is mostly in no cache. A key
//! remembers the number of its block (its *place*, see [`Places`]), as one in a
//! [`Ring`](crate::line::ring::Ring) does: to leave is to look through that block, and through one
//! more for each 200,000 keys in line, whose blocks look the same to a place.
//!
//! What holds between two calls: a block has a key, and its keys are those of its used part. While there is
//! no key in the node there is no block.

use super::NONE;
use crate::arena::Arena;
use crate::column::Column;
use crate::line::levels::Asked;
use crate::slots::Places;

/// How many keys a block has room for.
const ROOM: usize = 12;

/// The group of a key, of the innermost ones, while it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat(pub(super) u32);

impl Default for Seat {
    fn default() -> Self {
        Self(NONE)
    }
}

/// What is known of a key in a queue with priorities, or in an aged line.
#[derive(Debug)]
pub(super) struct Mark {
    /// The number with which it entered the line.
    pub(super) entered: u64,
    /// The node in whose tree it stands, if it stands in one.
    pub(super) in_tree: u32,
    pub(super) asked: Asked,
}

impl Default for Mark {
    fn default() -> Self {
        Self { entered: 0, in_tree: NONE, asked: Asked::default() }
    }
}

/// A part of a node's list, in one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Block {
    keys: [u32; ROOM],
    /// The used part of `keys`.
    from: u16,
    to: u16,
    node: u32,
    /// The blocks beside it.
    before: u32,
    after: u32,
}

const _: () = assert!(size_of::<Block>() == 64);

impl Default for Block {
    fn default() -> Self {
        Self { keys: [NONE; ROOM], from: 0, to: 0, node: NONE, before: NONE, after: NONE }
    }
}

impl Block {
    #[inline]
    fn used(&self) -> &[u32] {
        self.keys.get(usize::from(self.from)..usize::from(self.to)).unwrap_or_default()
    }
}

/// The blocks of all nodes.
pub(super) struct Blocks {
    each: Column<Block>,
    /// The numbers that are taken.
    taken: Arena<()>,
}

impl Blocks {
    pub(super) const fn new() -> Self {
        Self { each: Column::new(), taken: Arena::new(usize::MAX) }
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.taken.len()
    }

    /// A block of this node that has a key.
    fn make(&mut self, node: u32, before: u32, key: u32) -> u32 {
        let number = self.taken.insert((), 0, 0);
        let block = self.each.entry(number);
        block.keys[0] = key;
        (block.from, block.to, block.node, block.before, block.after) = (0, 1, node, before, NONE);
        number
    }

    fn free(&mut self, number: u32) {
        if let Some(chunk) = self.taken.remove(number).and_then(|removed| removed.freed_chunk) {
            self.each.free_page(chunk);
        }
    }

    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        self.each.prefetch(number);
    }

    /// The keys of a block.
    pub(super) fn behind(&self, number: u32) -> &[u32] {
        self.each.get(number).map_or(&[], Block::used)
    }

    /// Where a key stands, whose slot's number may be anything: the number of the block, and where in it.
    fn find<P: Places>(&self, places: &P, slot: u32) -> Option<(u32, usize)> {
        for number in (places.place(slot)?..self.taken.slots() as usize).step_by(P::NUMBERS) {
            let number = number as u32;
            let Some(block) = self.each.get(number) else { continue };
            if let Some(at) = block.used().iter().position(|key| *key == slot) {
                return Some((number, usize::from(block.from) + at));
            }
        }
        None
    }

    /// The node in one of whose blocks a key stands, whose slot's number may be anything.
    pub(super) fn node_of<P: Places>(&self, places: &P, slot: u32) -> Option<u32> {
        let (number, _) = self.find(places, slot)?;
        self.each.get(number).map(|block| block.node)
    }
}

/// Keys in the order of their coming.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    /// The key that came first.
    pub(super) head: u32,
    /// The blocks of those behind it, the first and the last one, if there are any.
    pub(super) first: u32,
    last: u32,
}

impl Keys {
    pub(super) const NONE: Self = Self { head: NONE, first: NONE, last: NONE };

    /// Lets a key in at the end of the list of this node; returns its place.
    #[inline(always)]
    pub(super) fn push(&mut self, blocks: &mut Blocks, node: u32, slot: u32) -> u32 {
        if self.head == NONE {
            self.head = slot;
            // it stands in no block, so any will do
            return 0;
        }
        if let Some(block) = blocks.each.get_mut(self.last) {
            if let Some(key) = block.keys.get_mut(usize::from(block.to)) {
                *key = slot;
                block.to += 1;
                return self.last;
            }
        }
        self.push_in_a_new_block(blocks, node, slot)
    }

    #[inline(never)]
    fn push_in_a_new_block(&mut self, blocks: &mut Blocks, node: u32, slot: u32) -> u32 {
        let number = blocks.make(node, self.last, slot);
        match blocks.each.get_mut(self.last) {
            Some(last) => last.after = number,
            None => self.first = number,
        }
        self.last = number;
        number
    }

    /// Takes out the first key, which is there. It has its place still.
    #[inline(always)]
    pub(super) fn pop(&mut self, blocks: &mut Blocks) {
        self.head = NONE;
        let Some(block) = blocks.each.get_mut(self.first) else { return };
        self.head = block.keys.get(usize::from(block.from)).copied().unwrap_or(NONE);
        block.from += 1;
        if block.from == block.to {
            self.unlink(blocks, self.first);
        }
    }

    /// Takes out a key that stands here.
    pub(super) fn remove<P: Places>(&mut self, blocks: &mut Blocks, places: &mut P, slot: u32) {
        if self.head == slot {
            self.pop(blocks);
        } else if let Some((number, at)) = blocks.find(places, slot) {
            let Some(block) = blocks.each.get_mut(number) else { return };
            block.keys.copy_within(at + 1..usize::from(block.to), at);
            block.to -= 1;
            if block.from == block.to {
                self.unlink(blocks, number);
            }
        }
        places.clear_place(slot);
    }

    /// Takes out a block that has no key any more.
    #[inline(never)]
    fn unlink(&mut self, blocks: &mut Blocks, number: u32) {
        let Some(&Block { before, after, .. }) = blocks.each.get(number) else { return };
        blocks.free(number);
        match blocks.each.get_mut(before) {
            Some(block) => block.after = after,
            None => self.first = after,
        }
        match blocks.each.get_mut(after) {
            Some(block) => block.before = before,
            None => self.last = before,
        }
    }
}

#[cfg(test)]
#[path = "../tests/keys.rs"]
mod tests;
