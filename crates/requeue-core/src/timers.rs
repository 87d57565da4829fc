//! The timers of a queue: three stores by distance, which together keep one exact order by instant and then
//! by call (rule D5).
//!
//! ```text
//!   near      a heap: whatever is due before the edge, and so all that is due
//!   buckets   half a millisecond each, unordered: what is due in the 4.3 s after the edge
//!   far       a heap: the rest
//! ```
//!
//! A heap of a million timers costs half a microsecond for each one that fires: it has ten levels, the lower
//! ones are cache lines that are not in the cache, and the index must be updated in ten other lines. So only
//! the few timers that are due next are in a heap. When a bucket's turn comes its timers move into that heap
//! one by one, so that no call has to move all of them, however many are due in one half millisecond. Until
//! then it is unknown which of them is the first, only that none is due earlier than the bucket's soonest. If
//! there are few timers all are in the near heap, and the buckets take no memory.

use crate::buckets::{BUCKETS, Buckets, bucket};
use crate::heap::{Heap, Index, Node, ROOT, Store};
use crate::time::Instant;

/// Number of timers in one heap up to which the buckets are not worth their memory.
const FEW: usize = 512;

/// The edge while the buckets are not in use: all timers are near.
const NO_EDGE: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Timers {
    index: Index,
    /// All timers due in buckets before `edge`, and perhaps others.
    near: Heap,
    /// Of the `BUCKETS` buckets from `edge` on.
    buckets: Buckets,
    far: Heap,
    /// A number of a bucket. It only grows while the buckets are in use.
    edge: u64,
}

/// An instant, and the order among equal ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) due: Instant,
    seq: u32,
}

impl Place {
    /// Sort key of a place.
    pub(crate) fn rank(self) -> (Instant, u32) {
        (self.due, self.seq)
    }
}

/// Result of [`Timers::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This slot's timer is the soonest, and due then.
    Due(u32, Instant),
    /// One timer was moved to the near heap, or the edge was moved. Call [`next`](Timers::next) again.
    Moved,
    /// Nothing is due by then.
    Nothing,
}

impl Timers {
    pub(crate) const fn new() -> Self {
        Self {
            index: Index::new(),
            near: Heap::new(Store::Near),
            buckets: Buckets::new(),
            far: Heap::new(Store::Far),
            edge: NO_EDGE,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.near.len() + self.buckets.len() + self.far.len()
    }

    /// Lower bound of the timers' instants. One is due then, unless many timers of one half millisecond, the
    /// soonest among them, were removed.
    #[inline]
    pub(crate) fn soonest(&self) -> Option<Instant> {
        let near = self.near.first().map(|node| node.due);
        if self.edge == NO_EDGE {
            return near.map(Instant::from_nanos);
        }
        // the buckets are closed before the last timer is removed
        Some(Instant::from_nanos(near.unwrap_or(u64::MAX).min(self.soonest_beyond())))
    }

    /// The timer due by `until`, if it can be found without much work: at most one timer is moved.
    #[inline]
    pub(crate) fn next(&mut self, until: Instant) -> Next {
        let until = until.as_nanos();
        if let Some(&Node { due, slot, .. }) = self.near.first() {
            if self.edge == NO_EDGE || bucket(due) < self.edge {
                return if due <= until { Next::Due(slot, Instant::from_nanos(due)) } else { Next::Nothing };
            }
        }
        self.approach(until)
    }

    /// Brings the soonest timers near, when no near timer is known to be the soonest.
    fn approach(&mut self, until: u64) -> Next {
        let near = self.near.first().map_or(u64::MAX, |node| node.due);
        let beyond = self.soonest_beyond();
        if self.len() == 0 || near.min(beyond) > until {
            return Next::Nothing;
        }
        let nothing_beyond = self.buckets.len() + self.far.len() == 0;
        if nothing_beyond || bucket(beyond) > self.edge {
            // nothing beyond is due in the bucket at the edge any more
            self.edge = if nothing_beyond || bucket(near) < bucket(beyond) {
                bucket(near) + 1
            } else {
                bucket(beyond)
            };
            return Next::Moved;
        }
        let far = self.far.first().is_some_and(|node| node.due == beyond);
        let node =
            if far { self.far.take(&mut self.index, ROOT) } else { self.buckets.take_soon(&mut self.index) };
        self.near.push(&mut self.index, node);
        self.close_if_few();
        Next::Moved
    }

    /// Lower bound of the timers that are not near.
    #[inline]
    fn soonest_beyond(&self) -> u64 {
        self.buckets.soonest().min(self.far.first().map_or(u64::MAX, |node| node.due))
    }

    /// A slot whose timer is cheap to remove, for dropping all of them.
    pub(crate) fn last(&self) -> Option<u32> {
        self.near.last().or_else(|| self.buckets.last()).or_else(|| self.far.last()).map(|node| node.slot)
    }

    /// When the slot's timer is due, if it has one.
    #[inline]
    pub(crate) fn due(&self, slot: u32) -> Option<Instant> {
        self.place(slot).map(|place| place.due)
    }

    /// The place of the slot's timer, if it has one.
    #[inline]
    pub(crate) fn place(&self, slot: u32) -> Option<Place> {
        let (store, place) = self.index.find(slot)?;
        let node = match store {
            Store::Near => self.near.node(place),
            Store::Far => self.far.node(place),
            Store::Buckets => self.buckets.node(place),
        };
        Some(Place { due: Instant::from_nanos(node.due), seq: node.seq })
    }

    /// Sets the slot's timer, anew or to another instant. `now` decides only in which store it is.
    #[inline]
    pub(crate) fn set(&mut self, slot: u32, due: Instant, now: Instant) {
        let place = self.new_place(due);
        self.set_place(slot, place, now);
    }

    /// The place of a timer that is set by this call.
    #[inline]
    pub(crate) fn new_place(&mut self, due: Instant) -> Place {
        let seq = self.index.next_seq;
        self.index.next_seq = seq.wrapping_add(1);
        Place { due, seq }
    }

    /// Whether a timer in this place fires before one in the other.
    pub(crate) fn is_before(&self, place: Place, other: Place) -> bool {
        let rank = |place: Place| (place.due, place.seq.wrapping_sub(self.index.next_seq));
        rank(place) < rank(other)
    }

    /// Sets the slot's timer to a place that it, or another of its timers, was given before.
    #[inline]
    pub(crate) fn set_place(&mut self, slot: u32, place: Place, now: Instant) {
        self.take(slot);
        let node = Node { due: place.due.as_nanos(), seq: place.seq, slot };
        if self.edge == NO_EDGE && self.near.len() >= FEW {
            self.buckets.open();
            self.edge = bucket(now.as_nanos());
        }
        let at = bucket(node.due);
        if at >= self.edge.saturating_add(BUCKETS as u64) {
            // the edge may have been left behind where nothing was due for long
            self.edge = self.edge.max(bucket(now.as_nanos()).min(bucket(self.soonest_beyond())));
        }
        if at < self.edge {
            self.near.push(&mut self.index, node);
        } else if at - self.edge < BUCKETS as u64 {
            self.buckets.push(&mut self.index, node);
        } else {
            self.far.push(&mut self.index, node);
        }
    }

    /// Removes the slot's timer; false if it has none.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        let had = self.take(slot);
        if had {
            self.index.clear(slot);
            self.close_if_few();
        }
        had
    }

    /// Removes the slot's timer from its store; its index entry stays.
    #[inline]
    fn take(&mut self, slot: u32) -> bool {
        let Some((store, place)) = self.index.find(slot) else { return false };
        match store {
            Store::Near => self.near.take(&mut self.index, place),
            Store::Far => self.far.take(&mut self.index, place),
            Store::Buckets => self.buckets.take(&mut self.index, place),
        };
        true
    }

    /// Closes the buckets once all timers are near, and few.
    #[inline]
    fn close_if_few(&mut self) {
        if self.edge != NO_EDGE
            && self.near.len() <= FEW / 2
            && self.buckets.len() == 0
            && self.far.len() == 0
        {
            self.buckets.close();
            self.edge = NO_EDGE;
        }
    }

    /// Removes the timers of a chunk of slots that the arena freed.
    pub(crate) fn free_page(&mut self, chunk: u32) {
        self.index.free_page(chunk);
    }
}

#[cfg(test)]
#[path = "tests/timers.rs"]
mod tests;
