//! Many short lists of keys, each in the order in which they were pushed.
//!
//! The first keys of a list are stored in the list itself, and so are the last ones; those between them are
//! in blocks. A push or a pop touches the list alone, except every seventh, which adds or removes a block.
//! Links from key to key, or a separate list of blocks, would be in another cache line for each key or each
//! list, which with a million keys is seldom in the cache. A key in a block remembers the number of its block
//! (its *place*, see [`Places`]), as one in a [`Ring`](crate::line::ring::Ring) does; the place of a key in
//! the list itself may be any number. A removal searches the list and one block, and one more block for each
//! 100,000 keys in line, because a place stores only the last bits of a block's number.
//!
//! Invariants between two calls:
//!
//! 1. While there is a key, there is one in `front`. Those in the blocks, from `first` to `last`, come behind
//!    those in `front`, and those in `back` behind all others.
//! 2. Each block has a key, and its keys are those of its used part.
//! 3. While there is a key in `back`, `next` is the number of the block that the keys of `back` will move to,
//!    and their place. An empty list has no such number and no block.

use crate::arena::Arena;
use crate::column::Column;
use crate::prefetch::prefetch;
use crate::slots::Places;

/// No key, no block.
const NONE: u32 = u32::MAX;

/// Number of keys for which a block, and each end of a list, has room.
const ROOM: usize = 7;

/// A part of a list.
#[derive(Debug)]
struct Block {
    keys: [u32; ROOM],
    /// The used part of `keys`.
    from: u8,
    to: u8,
    /// The blocks beside it. Of the first one only that behind it counts.
    before: u32,
    after: u32,
}

impl Default for Block {
    fn default() -> Self {
        Self { keys: [NONE; ROOM], from: 0, to: 0, before: NONE, after: NONE }
    }
}

impl Block {
    #[inline]
    fn used(&self) -> &[u32] {
        part(&self.keys, self.from, self.to)
    }
}

#[inline]
fn part(keys: &[u32; ROOM], from: u8, to: u8) -> &[u32] {
    keys.get(usize::from(from)..usize::from(to)).unwrap_or_default()
}

/// The blocks of all lists.
pub(super) struct Blocks {
    each: Column<Block>,
    /// The numbers that are taken.
    taken: Arena<()>,
}

impl Blocks {
    pub(super) const fn new() -> Self {
        Self { each: Column::new(), taken: Arena::new(usize::MAX) }
    }

    /// Number of blocks.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.taken.len()
    }

    /// The number of a block that has yet to be written.
    fn reserve(&mut self) -> u32 {
        self.taken.insert((), 0, 0)
    }

    fn free(&mut self, number: u32) {
        if let Some(chunk) = self.taken.remove(number).and_then(|removed| removed.freed_chunk) {
            self.each.free_page(chunk);
        }
    }

    #[inline]
    fn prefetch(&self, number: u32) {
        if let Some(block) = self.each.get(number) {
            let first = core::ptr::from_ref(block) as usize;
            prefetch(first);
            prefetch(first + size_of::<Block>() - 1);
        }
    }

    /// The number of the block that has this key, and the index in it. Any slot number is allowed.
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

    /// Whether a key is in a block. Any slot number is allowed.
    pub(super) fn has<P: Places>(&self, places: &P, slot: u32) -> bool {
        self.find(places, slot).is_some()
    }
}

/// Keys in the order in which they were pushed.
#[derive(Clone, Copy, Debug)]
#[repr(C)] // a pop touches all but `back`, and a push all but `front`
pub(super) struct Keys {
    /// The used part of `front`. Both are 0 while there is no key.
    from: u8,
    to: u8,
    /// Number of keys in `back`.
    waiting: u8,
    /// The first and the last block, if there are any.
    first: u32,
    last: u32,
    front: [u32; ROOM],
    next: u32,
    back: [u32; ROOM],
}

impl Keys {
    pub(super) const NONE: Self = Self {
        from: 0,
        to: 0,
        waiting: 0,
        first: NONE,
        last: NONE,
        front: [NONE; ROOM],
        next: NONE,
        back: [NONE; ROOM],
    };

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.to == 0
    }

    /// The first key; [`NONE`] if the list is empty.
    #[inline]
    pub(super) fn head(&self) -> u32 {
        self.ahead().first().copied().unwrap_or(NONE)
    }

    /// Some of the first keys, in order.
    #[inline]
    pub(super) fn ahead(&self) -> &[u32] {
        part(&self.front, self.from, self.to)
    }

    /// The keys behind those of [`ahead`](Self::ahead), or some of them.
    pub(super) fn behind<'a>(&'a self, blocks: &'a Blocks) -> &'a [u32] {
        blocks.each.get(self.first).map_or(part(&self.back, 0, self.waiting), Block::used)
    }

    /// Prefetches the memory that [`pop`](Self::pop) will touch.
    #[inline]
    pub(super) fn prefetch(&self, blocks: &Blocks) {
        if self.to - self.from <= 1 {
            blocks.prefetch(self.first);
        }
    }

    /// Whether a key is in one of the ends.
    pub(super) fn has_at_an_end(&self, slot: u32) -> bool {
        self.ahead().contains(&slot) || part(&self.back, 0, self.waiting).contains(&slot)
    }

    /// Pushes a key to the end. Returns its place.
    #[inline]
    pub(super) fn push(&mut self, blocks: &mut Blocks, slot: u32) -> u32 {
        if self.next == NONE {
            return self.push_without_next(blocks, slot);
        }
        if let Some(key) = self.back.get_mut(usize::from(self.waiting)) {
            *key = slot;
            self.waiting += 1;
            return self.next;
        }
        self.push_behind_a_full_back(blocks, slot)
    }

    /// [`push`](Self::push) while `back` is empty.
    #[inline]
    fn push_without_next(&mut self, blocks: &mut Blocks, slot: u32) -> u32 {
        if self.first == NONE {
            if let Some(key) = self.front.get_mut(usize::from(self.to)) {
                *key = slot;
                self.to += 1;
                // any place will do
                return 0;
            }
        }
        self.begin_back(blocks, slot)
    }

    fn begin_back(&mut self, blocks: &mut Blocks, slot: u32) -> u32 {
        self.next = blocks.reserve();
        self.back[0] = slot;
        self.waiting = 1;
        self.next
    }

    fn push_behind_a_full_back(&mut self, blocks: &mut Blocks, slot: u32) -> u32 {
        *blocks.each.entry(self.next) =
            Block { keys: self.back, from: 0, to: self.waiting, before: self.last, after: NONE };
        match blocks.each.get_mut(self.last) {
            Some(last) => last.after = self.next,
            None => self.first = self.next,
        }
        self.last = self.next;
        self.begin_back(blocks, slot)
    }

    /// Removes the first key, which must exist. The caller must clear its place.
    #[inline]
    pub(super) fn pop(&mut self, blocks: &mut Blocks) {
        self.from += 1;
        if self.from == self.to {
            self.refill(blocks);
        }
    }

    /// Refills the empty `front` from the first block, or from `back` if there is no block.
    fn refill(&mut self, blocks: &mut Blocks) {
        if let Some(block) = blocks.each.get_mut(self.first) {
            (self.front, self.from, self.to) = (block.keys, block.from, block.to);
            // a search must find no key there any more
            block.to = block.from;
            let after = block.after;
            blocks.free(self.first);
            self.first = after;
            if after == NONE {
                self.last = NONE;
            }
            return;
        }
        (self.front, self.from, self.to) = (self.back, 0, self.waiting);
        self.waiting = 0;
        if self.to == 0 && self.next != NONE {
            blocks.free(core::mem::replace(&mut self.next, NONE));
        }
    }

    /// Removes a key of this list, and clears its place.
    pub(super) fn remove<P: Places>(&mut self, blocks: &mut Blocks, places: &mut P, slot: u32) {
        if let Some(at) = self.ahead().iter().position(|key| *key == slot) {
            let from = usize::from(self.from);
            self.front.copy_within(from..from + at, from + 1);
            self.pop(blocks);
        } else if let Some(at) = part(&self.back, 0, self.waiting).iter().position(|key| *key == slot) {
            self.back.copy_within(at + 1.., at);
            self.waiting -= 1;
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

    /// Removes an empty block.
    fn unlink(&mut self, blocks: &mut Blocks, number: u32) {
        let Some(&Block { before, after, .. }) = blocks.each.get(number) else { return };
        let before = if number == self.first { NONE } else { before };
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
#[path = "tests/keys.rs"]
mod tests;
