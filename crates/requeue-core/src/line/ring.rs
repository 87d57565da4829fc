//! A line of slot numbers, from any place of which a slot can be removed.
//!
//! The line is a list of blocks; it grows and shrinks a block at a time, so that no push ever copies a long
//! line. A slot in line remembers the number of its block (its *place*, see [`Places`]). A removal searches
//! that one block, and puts a [`HOLE`] in place of the slot. So no entry stays after its key has left the
//! line: each is a hole, or a slot that is in line there. A slot that is used again for another key has no
//! older entry by which the new key could be popped too early.
//!
//! Invariants between two calls:
//!
//! 1. The blocks are linked one behind the other from `first` to `last`. The first one is used from `front`
//!    on, the last one up to `back`, each one between them (a *middle* block) as a whole.
//! 2. `holes` of a block counts the holes in its used part, and `len` all other entries of
//!    all used parts.
//! 3. A slot is in the line at most once, and its place is the number of its block, cut to the bits that a
//!    place has. So two blocks may have the same place, and both are searched: only one has the slot in its
//!    used part.
//! 4. A middle block has an entry that is no hole, and two neighbouring middle blocks together have more than
//!    `BLOCK` such entries. So there are at most as many holes as other entries, plus three blocks, and a pop
//!    passes fewer than `BLOCK` holes in each of at most two blocks.
//! 5. While `len` is 0 the used parts have nothing but holes, so there is no middle block;
//!    before the first push there is no block at all. (Numbers are given back when the line begins anew, which an
//!    empty line does at the end of its block: to look for that at each pop would cost 4 instructions. Until then a
//!    number costs 12 bytes for 512 keys that were in line at once.)
//!
//! No call searches more than a few blocks, whatever the length of the line: `leave` searches one, and one
//! more for each 8 million slots in line, because a place stores only the last bits of a block's number. A
//! join of two blocks moves at most half a block's slots, and happens at most as often as a block is made:
//! once in `BLOCK` pushes.

use crate::shrink;
use crate::slots::Places;
use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

/// An entry that is no slot's.
const HOLE: u32 = u32::MAX;
/// No block's number.
const NONE: u32 = u32::MAX;

/// A part of the line.
#[derive(Debug)]
struct Block<const BLOCK: usize> {
    entries: [u32; BLOCK],
    /// Number of holes in the used part.
    holes: usize,
    /// The numbers of the blocks before and behind this one.
    before: u32,
    behind: u32,
}

/// A line that is popped at the front or at the back, and from which any slot can be removed. A block has 2
/// KiB.
#[derive(Debug)]
#[repr(C)] // fields that every call uses come last: the arena follows, and its first fields are used with them
pub(crate) struct Ring<const BLOCK: usize = 512> {
    /// Numbers without a block, the lowest first. Those from `blocks.len()` on do not count.
    vacant: BinaryHeap<Reverse<u32>>,
    /// The block that was freed last, to be used for the next one.
    spare: Option<Box<Block<BLOCK>>>,
    /// The blocks by number; `None` for a number that no block has.
    blocks: Vec<Option<Box<Block<BLOCK>>>>,
    first: u32,
    last: u32,
    /// Where in the first block the front is, and where in the last one the next slot goes.
    front: usize,
    back: usize,
    /// Number of slots in line.
    len: usize,
}

impl<const BLOCK: usize> Default for Ring<BLOCK> {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            first: 0,
            last: 0,
            front: 0,
            back: 0,
            len: 0,
            vacant: BinaryHeap::new(),
            spare: None,
        }
    }
}

impl<const BLOCK: usize> Ring<BLOCK> {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn block(&self, number: u32) -> Option<&Block<BLOCK>> {
        self.blocks.get(number as usize)?.as_deref()
    }

    #[inline]
    fn block_mut(&mut self, number: u32) -> Option<&mut Block<BLOCK>> {
        self.blocks.get_mut(number as usize)?.as_deref_mut()
    }

    /// Pushes a slot that is in no line.
    #[inline]
    pub(crate) fn push_back(&mut self, places: &mut impl Places, slot: u32) {
        let place = self.push_unplaced(places, slot);
        places.set_place(slot, place);
    }

    /// [`push_back`](Self::push_back) without [`set_place`](Places::set_place): returns the place for the caller to store.
    #[inline(always)]
    pub(crate) fn push_unplaced(&mut self, places: &mut impl Places, slot: u32) -> u32 {
        debug_assert!(places.place(slot).is_none(), "a slot stands in one line, once");
        let back = self.back;
        let Some(entry) = self.block_mut(self.last).and_then(|block| block.entries.get_mut(back)) else {
            return self.push_in_a_new_block(places, slot);
        };
        *entry = slot;
        self.back += 1;
        self.len += 1;
        self.last
    }

    fn push_in_a_new_block(&mut self, places: &mut impl Places, slot: u32) -> u32 {
        if self.len == 0 && !self.blocks.is_empty() {
            self.restart();
            return self.push_unplaced(places, slot);
        }
        let full = if self.blocks.is_empty() { NONE } else { self.last };
        let mut block = self.take_block();
        block.entries[0] = slot;
        block.before = full;
        let number = self.new_block(block);
        (self.last, self.back) = (number, 1);
        self.len += 1;
        if let Some(block) = self.block_mut(full) {
            block.behind = number;
            self.join_with_a_neighbour(places, full);
        }
        number
    }

    /// Takes the slot at the front. The caller must clear its place.
    #[inline(always)]
    pub(crate) fn pop_front(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mut slot = *self.block(self.first)?.entries.get(self.front)?;
        if slot == HOLE {
            slot = self.pass_holes_at_the_front()?;
        }
        self.front += 1;
        self.len -= 1;
        if self.front == BLOCK {
            self.block_end(self.first);
        }
        Some(slot)
    }

    /// [`pop_front`](Self::pop_front) at the other end.
    #[inline]
    pub(crate) fn pop_back(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mut slot = *self.block(self.last)?.entries.get(self.back - 1)?;
        if slot == HOLE {
            slot = self.pass_holes_at_the_back()?;
        }
        self.back -= 1;
        self.len -= 1;
        if self.back == 0 {
            self.block_end(self.last);
        }
        Some(slot)
    }

    /// Removes the front's or the back's block, whose last entry was popped.
    fn block_end(&mut self, number: u32) {
        if self.len == 0 { self.restart() } else { self.remove_block(number) }
    }

    /// Moves the front past holes to the first slot, and returns it. The line must not be empty.
    fn pass_holes_at_the_front(&mut self) -> Option<u32> {
        loop {
            let front = self.front;
            let block = self.block_mut(self.first)?;
            let slot = *block.entries.get(front)?;
            if slot != HOLE {
                return Some(slot);
            }
            block.holes -= 1;
            self.front += 1;
            if self.front == BLOCK {
                self.remove_block(self.first);
            }
        }
    }

    /// Moves the back past holes to behind the last slot, and returns it. The line must not be empty.
    fn pass_holes_at_the_back(&mut self) -> Option<u32> {
        loop {
            let back = self.back;
            let block = self.block_mut(self.last)?;
            let slot = *block.entries.get(back - 1)?;
            if slot != HOLE {
                return Some(slot);
            }
            block.holes -= 1;
            self.back -= 1;
            if self.back == 0 {
                self.remove_block(self.last);
            }
        }
    }

    /// Removes a slot. Any slot number is allowed; returns `false` if the slot is not in this line.
    pub(crate) fn leave<P: Places>(&mut self, places: &mut P, slot: u32) -> bool {
        let Some((number, at)) = self.find(places, slot) else { return false };
        let Some(block) = self.block_mut(number) else { return false };
        block.entries[at] = HOLE;
        block.holes += 1;
        self.len -= 1;
        places.clear_place(slot);
        self.tidy(places, number);
        true
    }

    /// The block that has this slot, and the index in it. Any slot number is allowed.
    #[inline]
    fn find<P: Places>(&self, places: &P, slot: u32) -> Option<(u32, usize)> {
        for number in (places.place(slot)?..self.blocks.len()).step_by(P::NUMBERS) {
            let number = number as u32;
            let used = self.used(number);
            let from = used.start;
            let Some(block) = self.block(number) else { continue };
            if let Some(at) = position(&block.entries[used], slot) {
                return Some((number, from + at));
            }
        }
        None
    }

    /// Number of slots before and behind this one. Both are exact if an end of the line is within `most`
    /// blocks: then they and the slot make up the whole line. Otherwise they are lower bounds. Any slot
    /// number is allowed; `None` if the slot is not in this line.
    pub(crate) fn around(&self, places: &impl Places, slot: u32, most: usize) -> Option<(usize, usize)> {
        let (number, at) = self.find(places, slot)?;
        let (used, entries) = (self.used(number), &self.block(number)?.entries);
        let count = |part: &[u32]| part.iter().filter(|slot| **slot != HOLE).count();
        let (mut before, mut behind) = (count(&entries[used.start..at]), count(&entries[at + 1..used.end]));
        let (mut left, mut right) = (number, number);
        for _ in 0..=most {
            if left == self.first {
                return Some((before, self.len - 1 - before));
            }
            if right == self.last {
                return Some((self.len - 1 - behind, behind));
            }
            (left, right) = (self.block(left)?.before, self.block(right)?.behind);
            before += self.slots_in(left);
            behind += self.slots_in(right);
        }
        Some((before, behind))
    }

    /// Number of consecutive slots from the front for which `like` holds; at most `most`.
    pub(crate) fn count_while(&self, most: usize, like: impl Fn(u32) -> bool) -> usize {
        let (mut number, mut counted) = (self.first, 0);
        while let Some(block) = self.block(number) {
            for slot in block.entries[self.used(number)].iter().filter(|slot| **slot != HOLE) {
                if counted == most || !like(*slot) {
                    return counted;
                }
                counted += 1;
            }
            number = block.behind;
        }
        counted
    }

    /// Restores the invariants after a slot has left this block.
    fn tidy(&mut self, places: &mut impl Places, number: u32) {
        if self.len == 0 {
            self.restart();
        } else if self.slots_in(number) == 0 {
            self.remove_block(number);
        } else {
            self.join_with_a_neighbour(places, number);
        }
    }

    /// The slot at the front.
    pub(crate) fn front(&self) -> Option<u32> {
        let mut number = self.first;
        while let Some(block) = self.block(number) {
            let mut entries = block.entries[self.used(number)].iter();
            if let Some(slot) = entries.find(|slot| **slot != HOLE) {
                return Some(*slot);
            }
            number = block.behind;
        }
        None
    }

    /// Entries of the front's block, from the front on: slots and holes.
    #[inline]
    pub(crate) fn ahead(&self) -> &[u32] {
        let used = self.used(self.first);
        self.block(self.first).and_then(|block| block.entries.get(used)).unwrap_or_default()
    }

    /// The slot at this distance behind the front in the front's block, or any number if the block ends
    /// before.
    #[inline]
    pub(crate) fn guess(&self, behind: usize) -> u32 {
        self.block(self.first)
            .and_then(|block| block.entries.get(self.front + behind))
            .map_or(HOLE, |slot| *slot)
    }

    /// The used part of a block.
    #[inline]
    fn used(&self, number: u32) -> Range<usize> {
        let from = if number == self.first { self.front } else { 0 };
        let to = if number == self.last { self.back } else { BLOCK };
        from..to
    }

    fn slots_in(&self, number: u32) -> usize {
        self.block(number).map_or(0, |block| self.used(number).len() - block.holes)
    }

    /// Joins a middle block, which has lost a slot or has just become a middle block, with a neighbouring
    /// middle block, if they fit into one. One join is enough: with the block on the other side there were
    /// too many already.
    fn join_with_a_neighbour(&mut self, places: &mut impl Places, number: u32) {
        let Some(&Block { before, behind, .. }) = self.block(number) else { return };
        for (one, next) in [(before, number), (number, behind)] {
            let middle = [one, next].iter().all(|at| *at != NONE && *at != self.first && *at != self.last);
            if middle && self.slots_in(one) + self.slots_in(next) <= BLOCK {
                self.join(places, one, next);
                return;
            }
        }
    }

    /// Moves the slots of two neighbouring middle blocks into the one that has more of them, because each
    /// moved slot is told its new place.
    fn join(&mut self, places: &mut impl Places, one: u32, next: u32) {
        let (stays, goes) = if self.slots_in(one) < self.slots_in(next) { (next, one) } else { (one, next) };
        let mut entries = [HOLE; BLOCK];
        let mut len = 0;
        for number in [one, next] {
            let Some(block) = self.block(number) else { return };
            for slot in block.entries.iter().filter(|slot| **slot != HOLE) {
                entries[len] = *slot;
                len += 1;
                if number == goes {
                    places.set_place(*slot, stays);
                }
            }
        }
        let Some(block) = self.block_mut(stays) else { return };
        block.entries = entries;
        block.holes = BLOCK - len;
        self.remove_block(goes);
    }

    /// A block without holes or neighbours.
    fn take_block(&mut self) -> Box<Block<BLOCK>> {
        let new = || Box::new(Block { entries: [HOLE; BLOCK], holes: 0, before: NONE, behind: NONE });
        let mut block = self.spare.take().unwrap_or_else(new);
        (block.holes, block.before, block.behind) = (0, NONE, NONE);
        block
    }

    /// Gives a block a number: the lowest that there is, so that the list of numbers can
    /// become shorter again.
    fn new_block(&mut self, block: Box<Block<BLOCK>>) -> u32 {
        if let Some(Reverse(number)) = self.vacant.pop() {
            if let Some(vacant) = self.blocks.get_mut(number as usize) {
                *vacant = Some(block);
                return number;
            }
            // all the others are higher
            self.vacant.clear();
        }
        self.blocks.push(Some(block));
        (self.blocks.len() - 1) as u32
    }

    /// Takes a block out of the line that is not the only one.
    fn remove_block(&mut self, number: u32) {
        let Some(block) = self.blocks[number as usize].take() else { return };
        match self.block_mut(block.before) {
            Some(before) => before.behind = block.behind,
            None => (self.first, self.front) = (block.behind, 0),
        }
        match self.block_mut(block.behind) {
            Some(behind) => behind.before = block.before,
            None => (self.last, self.back) = (block.before, BLOCK),
        }
        self.spare = Some(block);
        self.vacant.push(Reverse(number));
        while let Some(None) = self.blocks.last() {
            self.blocks.pop();
        }
        self.shrink();
    }

    /// The line is empty: it begins anew at the start of a block.
    fn restart(&mut self) {
        self.front = 0;
        self.back = 0;
        if let [Some(only)] = &mut *self.blocks {
            only.holes = 0;
        } else {
            self.keep_one_block();
        }
    }

    fn keep_one_block(&mut self) {
        self.blocks.swap(0, self.last as usize);
        self.blocks.truncate(1);
        if let Some(block) = self.block_mut(0) {
            (block.holes, block.before, block.behind) = (0, NONE, NONE);
        }
        (self.first, self.last) = (0, 0);
        self.vacant.clear();
        self.shrink();
    }

    fn shrink(&mut self) {
        shrink::shrink(&mut self.blocks);
        if let Some(to) = shrink::shrink_to(self.vacant.len(), self.vacant.capacity()) {
            self.vacant.shrink_to(to);
        }
    }
}

/// The index of a slot among entries. Compares sixteen at a time, without a branch for each.
fn position(entries: &[u32], slot: u32) -> Option<usize> {
    const AT_ONCE: usize = 16;
    let has_it = |some: &[u32]| some.iter().fold(false, |found, entry| found | (*entry == slot));
    let from = entries.chunks(AT_ONCE).position(has_it)? * AT_ONCE;
    entries[from..].iter().position(|entry| *entry == slot).map(|at| from + at)
}

#[cfg(test)]
#[path = "tests/ring.rs"]
mod tests;
