//! An indexed 4-ary heap of timers: a timer can be moved or removed, and each call visits at most the heap's
//! height.
//!
//! Prototypes compared it with wheels, rings and pairing heaps. Wheels are faster on average, but stop all
//! callers for milliseconds when they cascade; the worst call of a heap costs its height. With four children
//! per node it is shallow, and the children share a cache line. A large heap is slow because of memory: each
//! level is a cache line that is not in the cache, and the index must be updated for each timer that moves.
//! So [`timers`](crate::timers) keeps its heaps small.

use crate::column::Column;
use crate::shrink;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Groups per page: the heap grows a page at a time, so that it never copies.
const PAGE: usize = 256;

/// Number of places per store that the index can represent: a place and the number of its store share 32
/// bits. Few in unit tests, to test the limit.
const PLACES: usize = if cfg!(test) { 1 << 18 } else { 1 << 30 };

/// Asserts that a store may have this many places, before it creates them.
pub(crate) fn assert_places(places: usize) {
    assert!(places <= PLACES, "a queue keeps at most {PLACES} timers");
}

/// Place of the soonest timer. It is last in a group of its own, so that the children of every place fill one
/// group: place `i` has those of group `i - 2`, and a group's parent has place `group + 2`.
pub(crate) const ROOT: usize = 3;

/// A timer: 16 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Node {
    pub(crate) due: u64,
    /// Order of the calls that set equal instants (rule D5). It wraps around: two timers that are compared
    /// are never 2^32 calls apart.
    pub(crate) seq: u32,
    pub(crate) slot: u32,
}

/// The stores of timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Near = 1,
    Far = 2,
    Buckets = 3,
}

/// State shared by the stores: the place of each slot's timer, and the number of the next call.
#[derive(Debug)]
pub(crate) struct Index {
    /// The place in a store, times four, plus the store; 0: the slot has no timer.
    at: Column<u32>,
    pub(crate) next_seq: u32,
}

impl Index {
    pub(crate) const fn new() -> Self {
        Self { at: Column::new(), next_seq: 0 }
    }

    #[inline]
    pub(crate) fn find(&self, slot: u32) -> Option<(Store, usize)> {
        let at = *self.at.get(slot)?;
        let store = match at % 4 {
            0 => return None,
            1 => Store::Near,
            2 => Store::Far,
            _ => Store::Buckets,
        };
        Some((store, at as usize / 4))
    }

    #[inline]
    pub(crate) fn put(&mut self, slot: u32, store: Store, place: usize) {
        *self.at.entry(slot) = (place as u32) << 2 | store as u32;
    }

    /// Removes the slot's entry.
    #[inline]
    pub(crate) fn clear(&mut self, slot: u32) {
        *self.at.entry(slot) = 0;
    }

    /// Removes the entries of a chunk of slots that the arena freed.
    pub(crate) fn free_page(&mut self, chunk: u32) {
        self.at.free_page(chunk);
    }

    /// Sort key of a timer: one number, so that a comparison is no branch, which would be mispredicted every
    /// other time.
    #[inline]
    fn rank(&self, node: &Node) -> u128 {
        // all calls were before the next one: the earlier ones are further below it
        u128::from(node.due) << 32 | u128::from(node.seq.wrapping_sub(self.next_seq))
    }
}

/// Four siblings in a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Group([Node; 4]);

#[derive(Debug)]
pub(crate) struct Heap {
    pages: Vec<Box<[Group; PAGE]>>,
    /// One past the last place in use.
    end: usize,
    store: Store,
}

impl Heap {
    pub(crate) const fn new(store: Store) -> Self {
        Self { pages: Vec::new(), end: ROOT, store }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end - ROOT
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&Node> {
        (self.end > ROOT).then(|| self.node(ROOT))
    }

    /// A timer that is cheap to remove.
    pub(crate) fn last(&self) -> Option<&Node> {
        (self.end > ROOT).then(|| self.node(self.end - 1))
    }

    #[inline]
    pub(crate) fn node(&self, place: usize) -> &Node {
        &self.group(place / 4).0[place % 4]
    }

    #[inline]
    pub(crate) fn push(&mut self, index: &mut Index, node: Node) {
        let place = self.end;
        if place >= self.pages.len() * PAGE * 4 {
            assert_places((self.pages.len() + 1) * PAGE * 4);
            self.pages.push(new_page());
        }
        self.end += 1;
        self.sift_up(index, place, node);
    }

    /// Removes the timer at this place. Its index entry stays.
    #[inline]
    pub(crate) fn take(&mut self, index: &mut Index, place: usize) -> Node {
        let taken = *self.node(place);
        self.end -= 1;
        let last = *self.node(self.end);
        if place < self.end {
            if place > ROOT && index.rank(&last) < index.rank(self.node(place / 4 + 2)) {
                self.sift_up(index, place, last);
            } else {
                self.sift_down(index, place, last);
            }
        }
        // a page is kept beyond the last one that is used
        if self.end + 2 * PAGE * 4 <= self.pages.len() * PAGE * 4 {
            self.free_last_page();
        }
        taken
    }

    fn free_last_page(&mut self) {
        self.pages.pop();
        shrink::shrink(&mut self.pages);
    }

    #[inline]
    fn group(&self, group: usize) -> &Group {
        &self.pages[group / PAGE][group % PAGE]
    }

    #[inline]
    fn put(&mut self, index: &mut Index, place: usize, node: Node) {
        self.pages[place / 4 / PAGE][place / 4 % PAGE].0[place % 4] = node;
        index.put(node.slot, self.store, place);
    }

    fn sift_up(&mut self, index: &mut Index, mut place: usize, node: Node) {
        let rank = index.rank(&node);
        while place > ROOT {
            let parent = place / 4 + 2;
            let above = *self.node(parent);
            if rank >= index.rank(&above) {
                break;
            }
            self.put(index, place, above);
            place = parent;
        }
        self.put(index, place, node);
    }

    fn sift_down(&mut self, index: &mut Index, mut place: usize, node: Node) {
        let rank = index.rank(&node);
        loop {
            let group = place - 2;
            let first = 4 * group;
            if first >= self.end {
                break;
            }
            let siblings = &self.group(group).0;
            let least = if first + 4 <= self.end {
                let [a, b, c, d] = siblings.each_ref().map(|n| index.rank(n));
                let (left, low) = (usize::from(b < a), b.min(a));
                let (right, high) = (2 + usize::from(d < c), d.min(c));
                if high < low { right } else { left }
            } else {
                let taken = 0..self.end - first;
                taken.min_by_key(|&n| index.rank(&siblings[n])).unwrap_or(0)
            };
            let below = siblings[least];
            if index.rank(&below) >= rank {
                break;
            }
            self.put(index, place, below);
            place = first + least;
        }
        self.put(index, place, node);
    }

    #[cfg(test)]
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }
}

fn new_page() -> Box<[Group; PAGE]> {
    match alloc::vec![Group::default(); PAGE].into_boxed_slice().try_into() {
        Ok(page) => page,
        Err(_) => unreachable!("it has the length of a page"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "a quarter of a million pushes take it ten minutes, and none is unsafe")]
    #[should_panic(expected = "a queue keeps at most 262144 timers")]
    fn a_heap_makes_no_place_that_its_index_cannot_tell() {
        let (mut index, mut heap) = (Index::new(), Heap::new(Store::Near));
        // the last ones are the latest: no sifting
        for slot in 0..=PLACES as u32 {
            heap.push(&mut index, Node { due: u64::from(slot), seq: slot, slot });
        }
    }
}
