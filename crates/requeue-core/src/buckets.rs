//! Timers in buckets of half a millisecond, unordered within a bucket: setting a timer appends it, and
//! removing one fills its place with another of its bucket.
//!
//! The buckets' contents are in one dense array of chunks, each of one bucket, linked both ways. When a chunk
//! becomes empty the last one of the array takes its place, so that memory is freed as timers go, whichever
//! remain.

use crate::heap::{Index, Node, Store, assert_places};
use crate::shrink;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Number of buckets: 4.3 seconds.
pub(crate) const BUCKETS: usize = 8_192;
/// A bucket's width, as a power of two of nanoseconds: 0.52 ms.
const SHIFT: u32 = 19;

/// Timers per chunk: two cache lines.
const CHUNK: usize = 8;
/// Chunks per page: the array grows a page at a time, so that it never copies.
const PAGE: usize = 128;
const NONE: u32 = u32::MAX;

/// The bucket of an instant, counted from the origin of time.
#[inline]
pub(crate) fn bucket(due: u64) -> u64 {
    due >> SHIFT
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Lower bound of the timers' instants. The soonest one is due then, unless it was removed while there
    /// were many.
    soonest: u64,
    len: u32,
    /// The chunk that is not full, or the last full one.
    last: u32,
}

const EMPTY: Bucket = Bucket { soonest: u64::MAX, len: 0, last: NONE };

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Chunk([Node; CHUNK]);

/// Links of a chunk in its bucket. All chunks but the last are full.
#[derive(Clone, Copy, Debug)]
struct Links {
    earlier: u32,
    later: u32,
}

#[derive(Debug)]
struct Page {
    chunks: [Chunk; PAGE],
    links: [Links; PAGE],
}

#[derive(Debug)]
pub(crate) struct Buckets {
    /// All buckets, or none while they are not in use.
    buckets: Vec<Bucket>,
    /// One bit per bucket, set if the bucket has timers.
    used: Vec<u64>,
    pages: Vec<Box<Page>>,
    /// Number of chunks in use: the first ones of the array.
    chunks: usize,
    len: usize,
    /// Value of [`soonest`](Self::soonest).
    soonest: u64,
}

impl Buckets {
    pub(crate) const fn new() -> Self {
        Self {
            buckets: Vec::new(),
            used: Vec::new(),
            pages: Vec::new(),
            chunks: 0,
            len: 0,
            soonest: u64::MAX,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Lower bound of the timers' instants; `u64::MAX` if there is none.
    #[inline]
    pub(crate) fn soonest(&self) -> u64 {
        self.soonest
    }

    pub(crate) fn open(&mut self) {
        self.buckets = alloc::vec![EMPTY; BUCKETS];
        self.used = alloc::vec![0; BUCKETS / 64];
    }

    /// Frees all memory. There must be no timers.
    pub(crate) fn close(&mut self) {
        debug_assert!(self.len == 0 && self.chunks == 0);
        *self = Self::new();
    }

    #[inline]
    pub(crate) fn node(&self, place: usize) -> &Node {
        let chunk = place / CHUNK;
        &self.pages[chunk / PAGE].chunks[chunk % PAGE].0[place % CHUNK]
    }

    /// A timer that is cheap to remove.
    pub(crate) fn last(&self) -> Option<&Node> {
        self.chunks.checked_sub(1).map(|chunk| self.node(chunk * CHUNK))
    }

    #[inline]
    pub(crate) fn push(&mut self, index: &mut Index, node: Node) {
        let at = Self::at(&node);
        let Bucket { soonest, len, last } = self.buckets[at];
        let lane = len as usize % CHUNK;
        let chunk = if lane == 0 { self.new_chunk(last) } else { last };
        self.buckets[at] = Bucket { soonest: soonest.min(node.due), len: len + 1, last: chunk };
        self.soonest = self.soonest.min(node.due);
        self.used[at / 64] |= 1 << (at % 64);
        self.len += 1;
        self.put(index, chunk as usize * CHUNK + lane, node);
    }

    /// Removes the timer at this place. Its index entry stays.
    pub(crate) fn take(&mut self, index: &mut Index, place: usize) -> Node {
        let taken = *self.node(place);
        let at = Self::at(&taken);
        self.drop_last(index, at, place);
        let Bucket { soonest, len, .. } = self.buckets[at];
        if taken.due == soonest || len == 0 {
            self.look_again(at);
        }
        taken
    }

    /// Removes a timer of the soonest instant's bucket. There must be one.
    #[inline]
    pub(crate) fn take_soon(&mut self, index: &mut Index) -> Node {
        debug_assert!(self.len > 0);
        let at = bucket(self.soonest) as usize % BUCKETS;
        let Bucket { len, last, .. } = self.buckets[at];
        let place = last as usize * CHUNK + (len as usize - 1) % CHUNK;
        let taken = *self.node(place);
        self.drop_last(index, at, place);
        // its instant may stay as the bound: all of the bucket follow at once
        if self.buckets[at].len == 0 {
            self.look_again(at);
        }
        taken
    }

    /// Fills `place` with the last timer of its bucket, which shrinks by one.
    #[inline]
    fn drop_last(&mut self, index: &mut Index, at: usize, place: usize) {
        let Bucket { len, last, .. } = self.buckets[at];
        let lane = (len as usize - 1) % CHUNK;
        let from = last as usize * CHUNK + lane;
        if from != place {
            let node = *self.node(from);
            self.put(index, place, node);
        }
        self.len -= 1;
        self.buckets[at].len -= 1;
        if lane == 0 {
            self.buckets[at].last = self.links(last).earlier;
            self.free_chunk(index, last);
        }
    }

    /// Updates `soonest` after the soonest timer of a bucket, or its last one, has gone.
    fn look_again(&mut self, at: usize) {
        let Bucket { soonest: was, len, last } = self.buckets[at];
        if len == 0 {
            self.buckets[at] = EMPTY;
            self.used[at / 64] &= !(1 << (at % 64));
        } else if len as usize <= 4 * CHUNK {
            let mut soonest = u64::MAX;
            let (mut chunk, mut left) = (last, len as usize);
            while left > 0 {
                let lanes = (left - 1) % CHUNK + 1;
                for lane in 0..lanes {
                    soonest = soonest.min(self.node(chunk as usize * CHUNK + lane).due);
                }
                left -= lanes;
                chunk = self.links(chunk).earlier;
            }
            self.buckets[at].soonest = soonest;
        }
        if was == self.soonest {
            self.soonest = self.used_from(at).map_or(u64::MAX, |at| self.buckets[at].soonest);
        }
    }

    /// The first bucket from this one on that has timers, circularly: all timers are due within a round.
    fn used_from(&self, at: usize) -> Option<usize> {
        let words = self.used.len();
        let from = u64::MAX << (at % 64);
        (0..=words).find_map(|n| {
            let word = (at / 64 + n) % words;
            let mask = if n == 0 {
                from
            } else if n == words {
                !from
            } else {
                u64::MAX
            };
            let used = self.used[word] & mask;
            (used != 0).then(|| word * 64 + used.trailing_zeros() as usize)
        })
    }

    #[inline]
    fn at(node: &Node) -> usize {
        bucket(node.due) as usize % BUCKETS
    }

    #[inline]
    fn put(&mut self, index: &mut Index, place: usize, node: Node) {
        let chunk = place / CHUNK;
        self.pages[chunk / PAGE].chunks[chunk % PAGE].0[place % CHUNK] = node;
        index.put(node.slot, Store::Buckets, place);
    }

    #[inline]
    fn links(&self, chunk: u32) -> Links {
        self.pages[chunk as usize / PAGE].links[chunk as usize % PAGE]
    }

    #[inline]
    fn links_mut(&mut self, chunk: u32) -> &mut Links {
        &mut self.pages[chunk as usize / PAGE].links[chunk as usize % PAGE]
    }

    #[inline]
    fn new_chunk(&mut self, earlier: u32) -> u32 {
        let chunk = self.chunks as u32;
        if self.chunks == self.pages.len() * PAGE {
            assert_places((self.pages.len() + 1) * PAGE * CHUNK);
            self.pages.push(new_page());
        }
        self.chunks += 1;
        *self.links_mut(chunk) = Links { earlier, later: NONE };
        if earlier != NONE {
            self.links_mut(earlier).later = chunk;
        }
        chunk
    }

    /// Frees the last chunk of a bucket, which is empty; the array's last chunk takes its place.
    fn free_chunk(&mut self, index: &mut Index, chunk: u32) {
        let earlier = self.links(chunk).earlier;
        if earlier != NONE {
            self.links_mut(earlier).later = NONE;
        }
        self.chunks -= 1;
        let from = self.chunks as u32;
        if from != chunk {
            let links = self.links(from);
            let nodes = self.pages[from as usize / PAGE].chunks[from as usize % PAGE];
            let at = Self::at(&nodes.0[0]);
            let mut taken = CHUNK;
            if links.later == NONE {
                self.buckets[at].last = chunk;
                taken = (self.buckets[at].len as usize - 1) % CHUNK + 1;
            } else {
                self.links_mut(links.later).earlier = chunk;
            }
            if links.earlier != NONE {
                self.links_mut(links.earlier).later = chunk;
            }
            *self.links_mut(chunk) = links;
            for (lane, node) in nodes.0.into_iter().enumerate().take(taken) {
                self.put(index, chunk as usize * CHUNK + lane, node);
            }
        }
        // a page is kept beyond the last one that is used
        if self.chunks + 2 * PAGE <= self.pages.len() * PAGE {
            self.pages.pop();
            shrink::shrink(&mut self.pages);
        }
    }

    #[cfg(test)]
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }
}

fn new_page() -> Box<Page> {
    Box::new(Page { chunks: [Chunk::default(); PAGE], links: [Links { earlier: NONE, later: NONE }; PAGE] })
}
