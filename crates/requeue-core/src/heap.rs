//! The timers: an indexed 4-ary heap, so that a key's timer can be moved or
//! taken away, and no call ever looks at more than the heap's height.
//!
//! Prototypes put it beside wheels, rings and pairing heaps: the wheels are
//! faster on average and stop everybody for milliseconds when they cascade; a
//! heap's worst call is its height. Four children a node keep it shallow and
//! put the children that are compared side by side in memory.

use crate::Instant;
use crate::column::Column;
use crate::roomy;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Nodes a page: the heap grows a page at a time, so that it never copies.
const PAGE: usize = 1024;

/// A timer: 16 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    due: u64,
    /// Which of the calls that set equal instants came first (rule D5). It
    /// wraps: what must be told apart is much closer than 2^31 calls.
    seq: u32,
    slot: u32,
}

impl Node {
    #[inline]
    fn before(&self, other: &Self) -> bool {
        self.due < other.due || (self.due == other.due && (self.seq.wrapping_sub(other.seq) as i32) < 0)
    }
}

#[derive(Debug)]
pub(crate) struct Heap {
    pages: Vec<Box<[Node]>>,
    len: usize,
    next_seq: u32,
    /// Where in the heap a slot's timer stands, plus one; 0: it has none.
    at: Column<u32>,
}

impl Heap {
    pub(crate) const fn new() -> Self {
        Self { pages: Vec::new(), len: 0, next_seq: 0, at: Column::new() }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The slot of the soonest timer and its due instant.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u32, Instant)> {
        (self.len > 0).then(|| {
            let node = self.node(0);
            (node.slot, Instant::from_nanos(node.due))
        })
    }

    /// A slot whose timer is cheap to take away, for dropping all of them.
    pub(crate) fn last(&self) -> Option<u32> {
        self.len.checked_sub(1).map(|i| self.node(i).slot)
    }

    /// When the slot's timer is due, if it has one.
    #[inline]
    pub(crate) fn due(&self, slot: u32) -> Option<Instant> {
        self.position(slot).map(|i| Instant::from_nanos(self.node(i).due))
    }

    /// Sets the slot's timer, anew or to another instant.
    #[inline]
    pub(crate) fn set(&mut self, slot: u32, due: Instant) {
        let node = Node { due: due.as_nanos(), seq: self.next_seq, slot };
        self.next_seq = self.next_seq.wrapping_add(1);
        match self.position(slot) {
            Some(i) => self.settle(i, node),
            None => {
                let i = self.len;
                if i == self.pages.len() * PAGE {
                    self.pages.push(alloc::vec![Node::default(); PAGE].into());
                }
                self.len += 1;
                self.sift_up(i, node);
            }
        }
    }

    /// Takes the slot's timer away; false if it has none.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        let Some(i) = self.position(slot) else { return false };
        *self.at.entry(slot) = 0;
        self.len -= 1;
        let last = *self.node(self.len);
        if i < self.len {
            self.settle(i, last);
        }
        // a page is kept beyond the last one that is used
        if self.len + 2 * PAGE <= self.pages.len() * PAGE {
            self.pages.pop();
            if let Some(to) = roomy::shrink_to(self.pages.len(), self.pages.capacity()) {
                self.pages.shrink_to(to);
            }
        }
        true
    }

    /// The arena freed this chunk of slots: none of them has a timer.
    pub(crate) fn free_page(&mut self, chunk: u32) {
        self.at.free_page(chunk);
    }

    #[inline]
    fn position(&self, slot: u32) -> Option<usize> {
        self.at.get(slot).and_then(|i| (*i as usize).checked_sub(1))
    }

    #[inline]
    fn node(&self, i: usize) -> &Node {
        &self.pages[i / PAGE][i % PAGE]
    }

    #[inline]
    fn put(&mut self, i: usize, node: Node) {
        self.pages[i / PAGE][i % PAGE] = node;
        *self.at.entry(node.slot) = i as u32 + 1;
    }

    /// Puts a node where `i` is a hole, and moves it to its place.
    fn settle(&mut self, i: usize, node: Node) {
        if i > 0 && node.before(self.node((i - 1) / 4)) {
            self.sift_up(i, node);
        } else {
            self.sift_down(i, node);
        }
    }

    fn sift_up(&mut self, mut i: usize, node: Node) {
        while i > 0 {
            let parent = (i - 1) / 4;
            let above = *self.node(parent);
            if !node.before(&above) {
                break;
            }
            self.put(i, above);
            i = parent;
        }
        self.put(i, node);
    }

    fn sift_down(&mut self, mut i: usize, node: Node) {
        loop {
            let first = 4 * i + 1;
            if first >= self.len {
                break;
            }
            let mut least = first;
            for child in first + 1..(first + 4).min(self.len) {
                if self.node(child).before(self.node(least)) {
                    least = child;
                }
            }
            let below = *self.node(least);
            if !below.before(&node) {
                break;
            }
            self.put(i, below);
            i = least;
        }
        self.put(i, node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn agrees_with_a_sorted_map_under_random_setting_and_removing() {
        let mut heap = Heap::new();
        // (due, order of setting) -> slot, and back
        let mut map = BTreeMap::new();
        let mut of = BTreeMap::<u32, (u64, u32)>::new();
        let mut seed = 1u64;
        let rounds = if cfg!(miri) { 2_000 } else { 60_000u32 };
        for round in 0..rounds {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let slot = (seed >> 33) as u32 % 3000;
            match (seed >> 60) % 5 {
                0 => {
                    let first = map.pop_first();
                    assert_eq!(heap.first().map(|(s, d)| (d.as_nanos(), s)), first.map(|((d, _), s)| (d, s)));
                    if let Some((_, slot)) = first {
                        of.remove(&slot);
                        assert!(heap.remove(slot));
                    }
                }
                1 => {
                    let had = of.remove(&slot);
                    if let Some(key) = had {
                        map.remove(&key);
                    }
                    assert_eq!(heap.remove(slot), had.is_some());
                }
                _ => {
                    // few distinct instants: ties are the rule
                    let due = (seed >> 20) % 50;
                    if let Some(key) = of.insert(slot, (due, round)) {
                        map.remove(&key);
                    }
                    map.insert((due, round), slot);
                    heap.set(slot, Instant::from_nanos(due));
                }
            }
            assert_eq!(heap.len(), map.len());
            assert_eq!(heap.due(slot).map(Instant::as_nanos), of.get(&slot).map(|k| k.0));
        }
        while let Some((_, slot)) = map.pop_first() {
            assert_eq!(heap.first().map(|f| f.0), Some(slot));
            heap.remove(slot);
        }
        assert_eq!((heap.first(), heap.last()), (None, None));
    }

    #[test]
    fn d5_the_order_of_equal_instants_survives_the_counter_wrapping() {
        let mut heap = Heap::new();
        heap.next_seq = u32::MAX - 1;
        for slot in 0..4 {
            heap.set(slot, Instant::from_nanos(9));
        }
        for slot in 0..4 {
            assert_eq!(heap.first(), Some((slot, Instant::from_nanos(9))));
            heap.remove(slot);
        }
    }

    #[test]
    fn q13_pages_are_freed_as_timers_go() {
        let mut heap = Heap::new();
        for slot in 0..if cfg!(miri) { 5_000 } else { 100_000 } {
            heap.set(slot, Instant::from_nanos(u64::from(slot)));
        }
        while let Some(slot) = heap.last() {
            heap.remove(slot);
        }
        assert!(heap.pages.len() <= 2);
    }
}
