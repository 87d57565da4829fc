//! A small hash table from hashes to slot numbers. Each bucket fills a cache line: a lookup touches one line,
//! rarely two.
//!
//! A bucket has twelve places. Each place has a tag, one byte of the hash, so that a lookup compares twelve
//! entries with a few instructions and reads a key's slot only if a tag matches. An entry that finds its home
//! bucket full goes on to the next one, and is counted by each full bucket that it passed. A lookup ends at
//! the first bucket that no entry went on from, and removing an entry leaves no mark. The layout is that of
//! F14 (N. Bronson and X. Shi, "Open-sourcing F14 for faster, more memory-efficient hash tables", Meta,
//! 2019), with buckets probed one after the other.

use crate::bytes::{equal, without};
use crate::prefetch::prefetch;
use crate::slots::{Insert, Slots};
use alloc::boxed::Box;

/// Entries per bucket.
const PLACES: usize = 12;

/// Twelve entries in one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// Twelve tags, one per place: the entry's, which is never 0, or 0 if the place is empty. The four bytes
    /// behind them count the entries that found this bucket full and went on to the next one.
    head: [u8; 16],
    slots: [u32; PLACES],
}

const EMPTY: Bucket = Bucket { head: [0; 16], slots: [0; PLACES] };

/// A set of places of one bucket, one bit each. Bit `PLACES` is set at first, so that the search for the
/// lowest bit never begins with 0. Higher bits are undefined.
#[derive(Clone, Copy)]
struct Places(u32);

impl Places {
    #[inline]
    fn new(bits: u32) -> Self {
        Self(bits | 1 << PLACES)
    }

    #[inline]
    fn first(self) -> Option<usize> {
        let at = self.0.trailing_zeros() as usize;
        (at < PLACES).then_some(at)
    }

    #[inline]
    fn without_first(self) -> Self {
        Self(self.0 & self.0.wrapping_sub(1))
    }
}

impl Iterator for Places {
    type Item = usize;
    #[inline]
    fn next(&mut self) -> Option<usize> {
        let first = self.first();
        *self = self.without_first();
        first
    }
}

impl Bucket {
    /// The places with this tag; with 0, the empty ones.
    #[inline]
    fn with_tag(&self, tag: u8) -> Places {
        Places::new(equal(&self.head, tag))
    }

    /// Puts an entry into an empty place, if there is one.
    #[inline]
    fn put(&mut self, tag: u8, slot: u32) -> bool {
        let Some(at) = self.with_tag(0).next() else { return false };
        self.head[at] = tag;
        self.slots[at] = slot;
        true
    }

    /// Removes the entry with this tag and slot, if it is here.
    #[inline(always)] // a call of it costs a worker's run 12 instructions of 920
    fn take(&mut self, tag: u8, slot: u32) -> bool {
        let mut places = self.with_tag(tag);
        while let Some(at) = places.first() {
            if self.slots[at] == slot {
                self.head = without(self.head, at);
                return true;
            }
            places = places.without_first();
        }
        false
    }

    #[inline]
    fn overflowed(&self) -> u32 {
        let [.., a, b, c, d] = self.head;
        u32::from_le_bytes([a, b, c, d])
    }

    fn set_overflowed(&mut self, entries: u32) {
        self.head[PLACES..].copy_from_slice(&entries.to_le_bytes());
    }

    fn entries(&self) -> impl Iterator<Item = u32> + '_ {
        let empty = self.with_tag(0);
        Places::new(!empty.0).map(|at| self.slots[at])
    }
}

/// Result of a search that enters a missing key.
#[derive(Clone, Copy)]
pub(crate) enum Found {
    Known(u32),
    New(u32),
}

/// The position of a hash: where its entries belong.
#[derive(Clone, Copy)]
pub(crate) struct HashPos(u64);

impl HashPos {
    /// Spreads the 32 bits that are kept of a hash over 64, because the table's directory
    /// has used the highest of them. (The factor is 2^64 divided by the golden ratio.)
    #[inline]
    pub(crate) fn of(hash: u32) -> Self {
        Self(u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[inline]
    fn tag(self) -> u8 {
        (self.0 >> 56) as u8 | 1
    }

    #[inline]
    fn bucket(self, buckets: usize) -> usize {
        (self.0 >> 24) as usize & (buckets - 1)
    }
}

/// One hash table. It grows by doubling; its owner decides when.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Number of entries at which it is full.
    full_at: usize,
    /// The buckets; their number is a power of two.
    buckets: Box<[Bucket]>,
    len: usize,
}

impl Segment {
    /// An empty table with this number of buckets, a power of two.
    pub(crate) fn new(buckets: usize) -> Self {
        debug_assert!(buckets.is_power_of_two());
        let full_at = buckets * PLACES * 25 / 32;
        Self { full_at, buckets: alloc::vec![EMPTY; buckets].into_boxed_slice(), len: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Whether more entries would make lookups slow: 25 of 32 places are taken.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len >= self.full_at
    }

    #[inline]
    fn after(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    /// Prefetches the line of entries with this hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        prefetch(core::ptr::from_ref(&self.buckets[HashPos::of(hash).bucket(self.buckets.len())]) as usize);
    }

    #[inline]
    fn home(&self, home: HashPos) -> &Bucket {
        &self.buckets[home.bucket(self.buckets.len())]
    }

    #[inline]
    fn home_mut(&mut self, home: HashPos) -> &mut Bucket {
        let at = home.bucket(self.buckets.len());
        &mut self.buckets[at]
    }

    /// The slot with this position that `is_it` accepts.
    #[inline(always)]
    pub(crate) fn find(&self, home: HashPos, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let bucket = self.home(home);
        for at in bucket.with_tag(home.tag()) {
            if is_it(bucket.slots[at]) {
                return Some(bucket.slots[at]);
            }
        }
        if bucket.overflowed() == 0 { None } else { self.find_further(home, is_it) }
    }

    /// Searches behind the home bucket, from which entries went on.
    #[inline(never)]
    fn find_further(&self, home: HashPos, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let first = home.bucket(self.buckets.len());
        let mut at = self.after(first);
        // once around at most: it may be that entries went on from every bucket
        while at != first {
            let bucket = &self.buckets[at];
            let found = bucket.with_tag(home.tag()).map(|at| bucket.slots[at]).find(|slot| is_it(*slot));
            if found.is_some() || bucket.overflowed() == 0 {
                return found;
            }
            at = self.after(at);
        }
        None
    }

    /// The slot of a key with this position, which is entered if it is missing. `None` if the home bucket
    /// alone cannot decide or do that; then nothing has changed.
    #[inline(always)]
    pub(crate) fn find_or_enter(&mut self, home: HashPos, key: &mut impl Insert) -> Option<Found> {
        let at = home.bucket(self.buckets.len());
        let bucket = &mut self.buckets[at];
        for at in bucket.with_tag(home.tag()) {
            if key.is_in(bucket.slots[at]) {
                return Some(Found::Known(bucket.slots[at]));
            }
        }
        if bucket.overflowed() > 0 || self.len >= self.full_at {
            return None;
        }
        let at = bucket.with_tag(0).next()?;
        let slot = key.enter();
        bucket.head[at] = home.tag();
        bucket.slots[at] = slot;
        self.len += 1;
        Some(Found::New(slot))
    }

    /// Enters a missing slot. There must be an empty place.
    #[inline]
    pub(crate) fn enter(&mut self, home: HashPos, slot: u32) {
        self.len += 1;
        if !self.home_mut(home).put(home.tag(), slot) {
            self.place_further(home, slot);
        }
    }

    /// Enters a slot behind the home bucket, which is full.
    fn place_further(&mut self, home: HashPos, slot: u32) {
        let mut at = home.bucket(self.buckets.len());
        loop {
            let bucket = &mut self.buckets[at];
            bucket.set_overflowed(bucket.overflowed() + 1);
            at = self.after(at);
            if self.buckets[at].put(home.tag(), slot) {
                return;
            }
        }
    }

    /// Removes a slot with this position; false if it is missing.
    #[inline(always)]
    pub(crate) fn remove(&mut self, home: HashPos, slot: u32) -> bool {
        if !self.home_mut(home).take(home.tag(), slot) && !self.remove_further(home, slot) {
            return false;
        }
        self.len -= 1;
        true
    }

    /// Removes a slot behind the home bucket.
    #[inline(never)]
    fn remove_further(&mut self, home: HashPos, slot: u32) -> bool {
        let first = home.bucket(self.buckets.len());
        let mut at = first;
        while self.buckets[at].overflowed() > 0 {
            at = self.after(at);
            if at == first {
                return false;
            }
            if self.buckets[at].take(home.tag(), slot) {
                let mut passed = first;
                while passed != at {
                    let bucket = &mut self.buckets[passed];
                    bucket.set_overflowed(bucket.overflowed() - 1);
                    passed = self.after(passed);
                }
                return true;
            }
        }
        false
    }

    /// All slots, in no particular order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.buckets.iter().flat_map(Bucket::entries)
    }

    /// Moves all entries into a table with this number of buckets.
    #[cold]
    pub(crate) fn resize(&mut self, buckets: usize, of: &impl Slots) {
        let old = core::mem::replace(self, Self::new(buckets));
        self.absorb(&old, of);
    }

    /// Enters all the slots of another table.
    pub(crate) fn absorb(&mut self, other: &Self, of: &impl Slots) {
        other.slots().for_each(|slot| of.prefetch(slot));
        other.slots().for_each(|slot| self.enter(HashPos::of(of.hash(slot)), slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_bucket_fits_a_cache_line() {
        assert_eq!((size_of::<Bucket>(), align_of::<Bucket>()), (64, 64));
    }

    #[test]
    fn tags_are_found_at_their_places_and_nowhere_else() {
        let mut bucket = EMPTY;
        // neighbours that differ in one bit are where an inexact comparison errs
        let mut taken = Vec::new();
        while let Some(at) = bucket.with_tag(0).next() {
            assert!(!taken.contains(&at), "place {at} is taken");
            taken.push(at);
            bucket.head[at] = 0x80 | (at as u8 & 1);
        }
        assert_eq!(taken.len(), PLACES);
        for tag in 0x80..=0xff {
            let places: Vec<usize> = bucket.with_tag(tag).collect();
            let mut sorted = places.clone();
            sorted.sort_unstable();
            let parity = usize::from(tag & 1);
            let wanted: Vec<usize> =
                if tag > 0x81 { Vec::new() } else { (0..PLACES).filter(|at| at % 2 == parity).collect() };
            assert_eq!(sorted, wanted, "tag {tag:#x}");
        }
        for at in [7, 8] {
            bucket.head[at] = 0;
            assert_eq!(bucket.with_tag(0).next(), Some(at));
            bucket.head[at] = 0x83;
            assert_eq!(bucket.with_tag(0x83).last(), Some(at));
            bucket.head[at] = 0x80;
        }
        assert_eq!(bucket.with_tag(0).next(), None);
    }

    #[test]
    fn entries_that_went_on_are_found_and_leave_no_mark() {
        let (mut segment, home) = (Segment::new(4), HashPos::of(5));
        // all of one hash: they fill one bucket after the other, around the end
        let n = (4 * PLACES) as u32;
        for slot in 0..n {
            segment.enter(home, slot);
        }
        assert!(segment.find(home, |slot| slot == n).is_none());
        for slot in 0..n {
            assert_eq!(segment.find(home, |s| s == slot), Some(slot));
            assert!(segment.remove(home, slot));
            assert!(segment.find(home, |s| s == slot).is_none());
            assert!(!segment.remove(home, slot));
        }
        assert_eq!(segment.len(), 0);
        assert!(segment.buckets.iter().all(|b| b.head == [0; 16]));
    }

    #[test]
    fn a_table_is_full_when_25_of_32_places_are_taken() {
        for (buckets, full) in [(1, 9), (4, 37), (128, 1_200)] {
            let mut segment = Segment::new(buckets);
            for hash in 0..full {
                assert!(!segment.is_full(), "{hash} of {full}");
                segment.enter(HashPos::of(hash), hash);
            }
            assert!(segment.is_full());
        }
    }

    #[test]
    fn hashes_are_spread_over_buckets_and_tags() {
        let (mut buckets, mut tags) = ([0; 64], [0; 256]);
        for hash in 0..12_800u32 {
            let home = HashPos::of(hash);
            buckets[home.bucket(64)] += 1;
            tags[usize::from(home.tag())] += 1;
        }
        assert!(buckets.iter().all(|n| (150..250).contains(n)), "{buckets:?}");
        // a tag is never 0: its lowest bit is set
        let (with, without): (Vec<_>, Vec<_>) = (0..256).partition(|tag| tag % 2 == 1);
        assert!(with.iter().all(|tag| (50..150).contains(&tags[*tag])), "{tags:?}");
        assert!(without.iter().all(|tag| tags[*tag] == 0), "{tags:?}");
    }
}
