//! Many short lists of keys, each in the order of their coming.
//!
//! The first keys of a list stand in the list itself, and so do the last ones; those between them stand in blocks.
//! To let a key in and to take one out touch the list alone, but for every seventh, which brings a block or
//! takes one. Links from key to key, or a separate list of blocks, would be in another cache line for each key or
//! each list, which with a million keys is seldom in the cache. A key in a block remembers the number of its block (its
//! *place*, see [`Places`]), as one in a [`Ring`](crate::line::ring::Ring) does, and one that stands in the list itself any
//! number: to leave is to look into the list and through one block, and through one more for each 100,000
//! keys in line, because a place stores only the last bits of a block's number.
//!
//! What holds between two calls:
//!
//! 1. While there is a key, there is one in `front`. Those in the blocks, from `first` to `last`, come behind
//!    those in `front`, and those in `back` behind all others.
//! 2. Each block has a key, and its keys are those of its used part.
//! 3. While there is a key in `back`, `next` is the number of the block that those in `back` will stand in, and
//!    their place. While there is no key at all nobody has that number, and there is no block.

use crate::arena::Arena;
use crate::column::Column;
use crate::prefetch::prefetch;
use crate::slots::Places;

/// No key, no block.
const NONE: u32 = u32::MAX;

/// How many keys a block has room for, and each end of a list.
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

    /// How many there are.
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

    /// Whether a key stands in a block, whose slot's number may be anything.
    pub(super) fn has<P: Places>(&self, places: &P, slot: u32) -> bool {
        self.find(places, slot).is_some()
    }
}

/// Keys in the order of their coming.
#[derive(Clone, Copy, Debug)]
#[repr(C)] // who takes a key wants all but `back`, and who lets one in all but `front`
pub(super) struct Keys {
    /// The used part of `front`. Both are 0 while there is no key.
    from: u8,
    to: u8,
    /// How many stand in `back`.
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

    /// The key that came first; a number that no slot has if there is none.
    #[inline]
    pub(super) fn head(&self) -> u32 {
        self.ahead().first().copied().unwrap_or(NONE)
    }

    /// Some keys that came first.
    #[inline]
    pub(super) fn ahead(&self) -> &[u32] {
        part(&self.front, self.from, self.to)
    }

    /// Those that come behind them, or some of them.
    pub(super) fn behind<'a>(&'a self, blocks: &'a Blocks) -> &'a [u32] {
        blocks.each.get(self.first).map_or(part(&self.back, 0, self.waiting), Block::used)
    }

    /// Asks for the memory that [`pop`](Self::pop) will touch.
    #[inline]
    pub(super) fn prefetch(&self, blocks: &Blocks) {
        if self.to - self.from <= 1 {
            blocks.prefetch(self.first);
        }
    }

    /// Whether a key stands in one of the ends.
    pub(super) fn has_at_an_end(&self, slot: u32) -> bool {
        self.ahead().contains(&slot) || part(&self.back, 0, self.waiting).contains(&slot)
    }

    /// Lets a key in at the end; returns its place.
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

    /// [`push`](Self::push) where nothing stands in `back`.
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

    /// Takes out the first key, which is there. It has its place still.
    #[inline]
    pub(super) fn pop(&mut self, blocks: &mut Blocks) {
        self.from += 1;
        if self.from == self.to {
            self.refill(blocks);
        }
    }

    /// Nothing is left in `front`: what comes behind it moves there.
    fn refill(&mut self, blocks: &mut Blocks) {
        if let Some(block) = blocks.each.get_mut(self.first) {
            (self.front, self.from, self.to) = (block.keys, block.from, block.to);
            // nobody must find a key there any more
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

    /// Takes out a key that stands here.
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

    /// Takes out a block that has no key any more.
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
