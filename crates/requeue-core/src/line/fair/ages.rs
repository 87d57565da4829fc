//! The ages of the keys of each group, with `max_wait`.
//!
//! An overdue key never takes another group's turn, so groups stay fair with `max_wait`. With priorities
//! within groups, one of every few hand-outs of a group goes to its oldest overdue key. Otherwise one of
//! every few hand-outs of all goes to the level of the oldest overdue key that may be served, and there to
//! the group whose turn it is. Without priorities no key passes another one of its group, and none is
//! overdue.
//!
//! The keys of a group are in a list in the order in which they became ready. The groups that may be served
//! are in a heap by their oldest keys, and move there only when another key is the oldest.
//!
//! Each group has a clock, which follows that of the queue and stops while the group is paused. A key's age
//! is the time that has passed on its group's clock.

use crate::chain::{Link, Linked, List};
use crate::column::Column;
use crate::heap::{Heap, Index, Node, Store};
use crate::line::overdue::AgeClock;
use crate::time::Instant;

/// A key in the list of its group, with the time since when it is ready, by the group's clock.
#[derive(Debug, Default)]
struct Age {
    link: Link,
    /// The last bits of the number with which it entered the line.
    entered: u32,
}

impl Linked for Age {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// The keys of a group in line by age.
#[derive(Debug)]
struct GroupAges {
    keys: List,
    clock: AgeClock,
    /// With priorities within groups: number of its keys handed out by priority before the next overdue one.
    /// 0 again when no key of it is in line.
    before_overdue: u32,
}

impl Default for GroupAges {
    fn default() -> Self {
        Self { keys: List::EMPTY, clock: AgeClock::default(), before_overdue: 0 }
    }
}

pub(super) struct Ages {
    keys: Column<Age>,
    groups: Column<GroupAges>,
    /// The groups that may be served, the one with the oldest key first, by the queue's clock. Empty with
    /// priorities within groups.
    oldest: Heap,
    places: Index,
    within: bool,
}

impl Ages {
    pub(super) fn new(within: bool) -> Self {
        Self {
            keys: Column::new(),
            groups: Column::new(),
            oldest: Heap::new(Store::Near),
            places: Index::new(),
            within,
        }
    }

    /// Notes that a key of a group enters the line with this number. It is ready `since` then, by the queue's
    /// clock.
    pub(super) fn enters(&mut self, slot: u32, (number, shut): (u32, bool), entered: u64, since: Instant) {
        let group = self.groups.entry(number);
        let first = group.keys.oldest().is_none();
        let age = group.keys.enter(&mut self.keys, slot, group.clock.at(since));
        age.entered = entered as u32;
        if first {
            self.oldest_changed(number, shut);
        }
    }

    /// Notes that a key of a group leaves the line.
    pub(super) fn leaves(&mut self, slot: u32, (number, shut): (u32, bool)) {
        let Some(&Age { link, .. }) = self.keys.get(slot) else { return };
        let group = self.groups.entry(number);
        let was_oldest = group.keys.oldest() == Some(slot);
        group.keys.leave(&mut self.keys, link);
        if was_oldest {
            if group.keys.oldest().is_none() {
                group.before_overdue = 0;
            }
            self.oldest_changed(number, shut);
        }
    }

    /// Moves a group in the heap: another key is its oldest, or the group was shut or opened.
    pub(super) fn oldest_changed(&mut self, number: u32, shut: bool) {
        if self.within {
            return;
        }
        if let Some((_, place)) = self.places.find(number) {
            self.oldest.take(&mut self.places, place);
            self.places.clear(number);
        }
        let Some(group) = self.groups.get(number) else { return };
        if let Some(Age { link, entered }) =
            group.keys.oldest().and_then(|slot| self.keys.get(slot)).filter(|_| !shut)
        {
            let node = Node { due: group.clock.was(link.since).as_nanos(), seq: *entered, slot: number };
            // all numbers of keys in line are below the next one, and the heap compares them as distances from it
            if entered.wrapping_sub(self.places.next_seq) as i32 >= 0 {
                self.places.next_seq = entered.wrapping_add(1);
            }
            self.oldest.push(&mut self.places, node);
        }
    }

    /// The oldest key that may be served, and since when it is ready, by the queue's clock.
    pub(super) fn oldest(&self) -> Option<(u32, Instant)> {
        let node = self.oldest.first()?;
        let slot = self.groups.get(node.slot)?.keys.oldest()?;
        Some((slot, Instant::from_nanos(node.due)))
    }

    /// The oldest key of a group; since when it is ready, and the time now, both by the group's clock; and
    /// the number of the group's keys handed out by priority before the next overdue one. `now` is by the
    /// queue's clock.
    pub(super) fn oldest_of(&mut self, number: u32, now: Instant) -> Option<(u32, [Instant; 2], &mut u32)> {
        let group = self.groups.get_mut(number)?;
        let oldest = group.keys.oldest()?;
        let since = self.keys.get(oldest)?.link.since;
        Some((oldest, [since, group.clock.at(now)], &mut group.before_overdue))
    }

    /// Stops or starts the clock of a group that is paused or resumed. `now` is by the queue's clock.
    pub(super) fn pause(&mut self, number: u32, now: Instant, paused: bool) {
        let clock = &mut self.groups.entry(number).clock;
        if paused { clock.stop(now) } else { clock.go_on(now) }
    }

    /// Removes the state of a forgotten group.
    pub(super) fn forget(&mut self, number: u32) {
        self.groups.take(number);
    }

    /// Frees the state of a chunk of forgotten groups.
    pub(super) fn free_groups(&mut self, chunk: u32) {
        self.groups.free_page(chunk);
        self.places.free_page(chunk);
    }

    /// Frees the state of the slots of a chunk.
    pub(super) fn free_page(&mut self, chunk: u32) {
        self.keys.free_page(chunk);
    }

    /// Whether no group has a key in line that may be served.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.oldest.first().is_none()
    }
}
