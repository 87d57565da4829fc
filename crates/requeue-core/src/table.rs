//! The table from hashes to slots: extendible hashing, a directory of small hash tables.
//!
//! One large table would stop every caller while it grows, for tens of milliseconds at a million keys. Here a
//! full segment splits in two, and two nearly empty buddies merge: one call moves at most a segment of
//! [`FULL_SIZE`] buckets, and a million keys give their memory back as they go. The scheme is that of Fagin,
//! Nievergelt, Pippenger and Strong, "Extendible hashing" (ACM TODS 4(3), 1979).

pub(crate) use crate::segment::Found;
use crate::segment::{HashPos, Segment};
use crate::shrink;
use crate::slots::{Insert, Slots};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Buckets of a segment that splits instead of growing: 1,536 places, of which 1,200 are then taken.
const FULL_SIZE: usize = 128;
/// Entries of a segment that splits.
const SPLIT_AT: usize = 1200;
/// Maximum number of entries of two buddies that merge: so far below [`SPLIT_AT`] that a table whose size
/// varies does not keep splitting and merging.
const MERGE_AT: usize = SPLIT_AT / 4;

/// A segment and its depth: how many leading bits of the hash all its entries share.
#[derive(Debug)]
struct Part {
    segment: Segment,
    depth: u32,
}

#[derive(Debug)]
#[repr(C)] // fields that every call uses come first, so that they share cache lines
pub(crate) struct Table {
    /// `1 << depth` numbers of segments, indexed by the hash's leading bits. A
    /// segment of a smaller depth stands there several times, side by side.
    directory: Vec<u32>,
    /// Number of bits of a hash that are not leading ones: 32 less the directory's depth.
    shift: u32,
    parts: Vec<Part>,
    /// Number of segments of each depth; shows when the directory can halve.
    at_depth: Box<[u32; 33]>,
    /// Number of key lookups, for the test of what each call costs.
    #[cfg(requeue_counted)]
    probes: core::cell::Cell<u64>,
}

#[inline]
fn leading(hash: u32, bits: u32) -> usize {
    (u64::from(hash) >> (32 - bits)) as usize
}

impl Table {
    pub(crate) fn new() -> Self {
        let mut at_depth = Box::new([0; 33]);
        at_depth[0] = 1;
        Self {
            directory: alloc::vec![0],
            shift: 32,
            parts: alloc::vec![Part { segment: Segment::new(1), depth: 0 }],
            at_depth,
            #[cfg(requeue_counted)]
            probes: core::cell::Cell::new(0),
        }
    }

    #[cfg(requeue_counted)]
    pub(crate) fn probes(&self) -> u64 {
        self.probes.get()
    }

    /// Counts a lookup.
    #[inline]
    fn probed(&self) {
        #[cfg(requeue_counted)]
        self.probes.set(self.probes.get() + 1);
    }

    /// Number of leading bits of a hash that the directory uses.
    fn depth(&self) -> u32 {
        32 - self.shift
    }

    #[inline]
    fn part_no(&self, hash: u32) -> usize {
        self.directory[(u64::from(hash) >> self.shift) as usize] as usize
    }

    #[inline]
    fn segment(&self, hash: u32) -> &Segment {
        &self.parts[self.part_no(hash)].segment
    }

    /// Prefetches the memory that looking up this hash will touch.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        self.segment(hash).prefetch(hash);
    }

    /// The slot with this hash that `is_it` accepts.
    #[inline(always)] // a call of it costs a key of a group 25 instructions of 1,070
    pub(crate) fn find(&self, hash: u32, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.probed();
        self.segment(hash).find(HashPos::of(hash), is_it)
    }

    /// The slot of a key with this hash, which is entered if it is missing. `None`, and nothing has changed,
    /// if [`find_or_enter_slowly`](Self::find_or_enter_slowly) must be called.
    #[inline(always)]
    pub(crate) fn find_or_enter(&mut self, key: &mut impl Insert, hash: u32) -> Option<Found> {
        self.probed();
        let no = self.part_no(hash);
        self.parts[no].segment.find_or_enter(HashPos::of(hash), key)
    }

    /// Slow path of [`find_or_enter`](Self::find_or_enter): the home bucket cannot decide, or has no room.
    pub(crate) fn find_or_enter_slowly(&mut self, key: &mut impl Insert, hash: u32) -> Found {
        if let Some(slot) = self.segment(hash).find(HashPos::of(hash), |slot| key.is_in(slot)) {
            return Found::Known(slot);
        }
        let slot = key.enter();
        self.enter(hash, slot, key);
        Found::New(slot)
    }

    /// Enters a missing slot.
    #[inline]
    pub(crate) fn enter(&mut self, hash: u32, slot: u32, of: &impl Slots) {
        let mut no = self.part_no(hash);
        while self.parts[no].segment.is_full() {
            let buckets = self.parts[no].segment.buckets();
            if buckets >= FULL_SIZE && self.may_split(no) {
                self.split(no, of);
                no = self.part_no(hash);
            } else {
                self.parts[no].segment.resize(buckets * 2, of);
            }
        }
        self.parts[no].segment.enter(HashPos::of(hash), slot);
    }

    /// Whether splitting still separates entries. With a hasher that maps all keys to a few values it does
    /// not, and the directory must not grow for it: such a segment grows in one piece instead.
    fn may_split(&self, no: usize) -> bool {
        let fair = self.parts.len().ilog2();
        self.parts[no].depth < (fair + 4).min(28)
    }

    #[cold]
    fn split(&mut self, no: usize, of: &impl Slots) {
        let old_depth = self.parts[no].depth;
        if old_depth == self.depth() {
            self.directory = self.directory.iter().flat_map(|&s| [s, s]).collect();
            self.shift -= 1;
        }
        let depth = old_depth + 1;
        // a segment that grew in one piece may have more buckets than others
        let half = || Part { segment: Segment::new(self.parts[no].segment.buckets()), depth };
        let (mut zero, mut one) = (half(), half());
        let all = &self.parts[no].segment;
        all.slots().for_each(|slot| of.prefetch(slot));
        let mut some = None;
        for slot in all.slots() {
            let hash = of.hash(slot);
            some = Some(hash);
            let side = if leading(hash, depth) & 1 == 0 { &mut zero } else { &mut one };
            side.segment.enter(HashPos::of(hash), slot);
        }
        let new_no = self.parts.len() as u32;
        self.parts[no] = zero;
        self.parts.push(one);
        self.at_depth[old_depth as usize] -= 1;
        self.at_depth[depth as usize] += 2;
        // every directory entry of the upper half now names the new segment
        let Some(hash) = some else { return };
        let upper = (leading(hash, old_depth) << 1 | 1) << (self.depth() - depth);
        let width = 1usize << (self.depth() - depth);
        self.directory[upper..upper + width].fill(new_no);
    }

    /// Removes a slot that was entered with this hash.
    #[inline(always)]
    pub(crate) fn remove(&mut self, hash: u32, slot: u32, of: &impl Slots) {
        self.probed();
        let no = self.part_no(hash);
        let home = HashPos::of(hash);
        let Part { segment, depth } = &mut self.parts[no];
        if !segment.remove(home, slot) {
            debug_assert!(false, "slot {slot} is not in the table");
            return;
        }
        // looking at the buddy now and then is enough
        let left = segment.len();
        if *depth > 0 && left % 16 == 0 && left <= MERGE_AT {
            self.merge(hash, of);
        }
    }

    /// Merges the segment of `hash` with its buddies as long as they fit.
    #[cold]
    fn merge(&mut self, hash: u32, of: &impl Slots) {
        loop {
            let no = self.part_no(hash);
            // one that grew in one piece
            if self.parts[no].segment.buckets() > FULL_SIZE {
                self.parts[no].segment.resize(FULL_SIZE, of);
            }
            let depth = self.parts[no].depth;
            if depth == 0 {
                break;
            }
            let prefix = leading(hash, depth);
            let buddy = self.directory[(prefix ^ 1) << (self.depth() - depth)] as usize;
            if self.parts[buddy].depth != depth
                || self.parts[no].segment.len() + self.parts[buddy].segment.len() > MERGE_AT
            {
                break;
            }
            let gone = core::mem::replace(&mut self.parts[buddy].segment, Segment::new(1));
            let kept = &mut self.parts[no];
            kept.depth = depth - 1;
            kept.segment.absorb(&gone, of);
            self.at_depth[depth as usize] -= 2;
            self.at_depth[depth as usize - 1] += 1;
            let first = (prefix >> 1) << (self.depth() - depth + 1);
            let width = 1usize << (self.depth() - depth + 1);
            self.directory[first..first + width].fill(no as u32);
            self.forget_part(buddy, of);
            while self.depth() > 0 && self.at_depth[self.depth() as usize] == 0 {
                self.directory = self.directory.iter().copied().step_by(2).collect();
                self.shift += 1;
            }
        }
    }

    /// Drops an empty segment; the last one takes its number.
    fn forget_part(&mut self, no: usize, of: &impl Slots) {
        let last = self.parts.len() - 1;
        self.parts.swap_remove(no);
        if no != last {
            let moved = &self.parts[no];
            // only a segment with an entry knows its place in the directory; for an empty one the directory
            // is searched
            match moved.segment.slots().next() {
                Some(slot) => {
                    let first = leading(of.hash(slot), moved.depth) << (self.depth() - moved.depth);
                    let width = 1usize << (self.depth() - moved.depth);
                    self.directory[first..first + width].fill(no as u32);
                }
                None => {
                    for entry in self.directory.iter_mut().filter(|e| **e as usize == last) {
                        *entry = no as u32;
                    }
                }
            }
        }
        shrink::shrink(&mut self.parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<F: Fn(u32) -> u32> Slots for F {
        fn hash(&self, slot: u32) -> u32 {
            self(slot)
        }
        fn prefetch(&self, _: u32) {}
    }

    /// A slot that is missing in the table.
    struct New<F>(u32, F);

    impl<F: Fn(u32) -> u32> Slots for New<F> {
        fn hash(&self, slot: u32) -> u32 {
            (self.1)(slot)
        }
        fn prefetch(&self, _: u32) {}
    }

    impl<F: Fn(u32) -> u32> Insert for New<F> {
        fn is_in(&self, _: u32) -> bool {
            false
        }
        fn enter(&mut self) -> u32 {
            self.0
        }
    }

    fn put(t: &mut Table, hash: u32, slot: u32, hash_of: impl Fn(u32) -> u32) {
        let mut new = New(slot, hash_of);
        if t.find_or_enter(&mut new, hash).is_none() {
            t.find_or_enter_slowly(&mut new, hash);
        }
    }

    fn mix(i: u32) -> u32 {
        let mut x = i.wrapping_add(0x9e37_79b9).wrapping_mul(0x85eb_ca6b);
        x ^= x >> 15;
        x = x.wrapping_mul(0xc2b2_ae35);
        x ^ (x >> 16)
    }

    fn len(t: &Table) -> usize {
        t.parts.iter().map(|part| part.segment.len()).sum()
    }

    fn check(t: &Table) {
        assert_eq!(t.directory.len(), 1 << t.depth());
        assert_eq!(t.at_depth.iter().sum::<u32>() as usize, t.parts.len());
        for (no, s) in t.parts.iter().enumerate() {
            let stands = t.directory.iter().filter(|e| **e as usize == no).count();
            assert_eq!(stands, 1 << (t.depth() - s.depth), "segment {no}");
        }
    }

    #[test]
    fn grows_and_shrinks_and_finds_every_slot() {
        let n = if cfg!(miri) { 3_000 } else { 200_000u32 };
        let mut t = Table::new();
        for i in 0..n {
            put(&mut t, mix(i), i, mix);
        }
        check(&t);
        assert!(t.parts.len() > n as usize / SPLIT_AT);
        for i in 0..n {
            assert_eq!(t.find(mix(i), |s| s == i), Some(i));
            assert_eq!(t.find(mix(i), |_| false), None);
        }
        for i in (0..n).filter(|i| i % 3 != 0).chain((0..n).filter(|i| i % 3 == 0)) {
            t.remove(mix(i), i, &mix);
            assert_eq!(t.find(mix(i), |s| s == i), None);
            if i % 4099 == 0 {
                check(&t);
            }
        }
        check(&t);
        assert_eq!(len(&t), 0);
        assert!(t.parts.len() < 8, "{} segments are left", t.parts.len());
        assert!(t.directory.len() < 32);
    }

    #[test]
    fn segments_merge_long_before_they_are_empty() {
        let n = if cfg!(miri) { 3_000 } else { 20_000u32 };
        let mut t = Table::new();
        for i in 0..n {
            put(&mut t, mix(i), i, mix);
        }
        for i in (0..n).filter(|i| i % 10 != 0) {
            t.remove(mix(i), i, &mix);
        }
        check(&t);
        assert!(t.parts.len() <= 1 + len(&t) / 100, "{} segments of {}", t.parts.len(), len(&t));
    }

    #[test]
    fn segments_of_many_depths_stand_beside_each_other() {
        // half of the keys share the first bits of their hashes, and come and go first or last
        let (most, shared) = if cfg!(miri) { (3_000, 1_500) } else { (40_000u32, 20_000) };
        let hash = |i: u32| if i < shared { mix(i) >> 5 } else { mix(i) };
        for goes_first in [0, shared] {
            let mut t = Table::new();
            for i in 0..most {
                put(&mut t, hash(i), i, hash);
                if i % 997 == 0 {
                    check(&t);
                }
            }
            assert!((0..most).all(|i| t.find(hash(i), |s| s == i) == Some(i)));
            for i in (goes_first..goes_first + shared).chain(shared - goes_first..most - goes_first) {
                t.remove(hash(i), i, &hash);
                if i % 997 == 0 {
                    check(&t);
                }
            }
            check(&t);
            assert_eq!(len(&t), 0);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too long, and nothing in here is unsafe")]
    fn a_hasher_that_sends_all_keys_to_one_value_does_not_grow_the_directory() {
        let mut t = Table::new();
        let n = 5_000;
        for i in 0..n {
            put(&mut t, 7, i, |_| 7);
        }
        check(&t);
        // five bits more than this many different keys need
        assert!(t.directory.len() <= 128, "{}", t.directory.len());
        assert_eq!(t.find(7, |s| s == n - 7), Some(n - 7));
        for i in 0..n {
            t.remove(7, i, &|_| 7);
        }
        check(&t);
        assert_eq!(len(&t), 0);
        let buckets: usize = t.parts.iter().map(|part| part.segment.buckets()).sum();
        assert!(buckets <= 2 * FULL_SIZE, "{buckets} buckets are left");
    }

    #[test]
    fn no_call_moves_more_than_a_segment() {
        let moved = core::cell::Cell::new(0u32);
        let counted = |i: u32| {
            moved.set(moved.get() + 1);
            mix(i)
        };
        let mut t = Table::new();
        let n = if cfg!(miri) { 3_000 } else { 100_000u32 };
        for i in 0..n {
            moved.set(0);
            put(&mut t, mix(i), i, counted);
            assert!(moved.get() as usize <= 2 * SPLIT_AT, "{} moved", moved.get());
        }
        for i in 0..n {
            moved.set(0);
            t.remove(mix(i), i, &counted);
            assert!(moved.get() as usize <= 2 * SPLIT_AT, "{} moved", moved.get());
        }
    }
}
