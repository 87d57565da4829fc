//! Priorities (rule B2): the line of a queue with priorities and without groups.
//!
//! A key enters the ring of its level at the back. A key whose level is raised while it is in line keeps its
//! age: it moves from its ring to the keys that were raised to its new level, which are sorted by the number
//! with which they entered the line. The next key of a level is the one with the lowest number, in the ring
//! or raised; the numbers in a ring only rise. So the keys of a level are handed out in the order in which
//! they became ready, whenever they came to that level.
//!
//! With `max_wait`, the oldest key of all is overdue when it has been in line for that time, and one of every
//! few hand-outs takes it, whatever its level.

use super::ahead::{ENTRY_AHEAD, SLOT_AHEAD, STEPS};
use super::known::Known;
use super::ranked::{Ranked, level_of, rank};
use super::ring::Ring;
use crate::arena::{Arena, Marked};
use crate::time::Instant;
use alloc::boxed::Box;

/// Number of empty levels that are kept for the next ones. Each has some 700 bytes.
const KEPT: usize = 128;

/// Number of levels that have a chunk of slots each for their new keys.
const HOMES: usize = 128;

/// The keys of one level: smaller blocks than those of a line that is alone.
#[derive(Debug, Default)]
struct Level {
    ring: Ring<128>,
    /// Number of keys raised to it.
    raised: usize,
}

impl Level {
    #[inline]
    fn len(&self) -> usize {
        self.ring.len() + self.raised
    }
}

/// The line of a queue with priorities.
#[derive(Debug)]
pub(crate) struct Levels {
    levels: Ranked<Option<Box<Level>>>,
    /// Number of empty levels that are kept.
    empty: usize,
    /// The chunk in which the next new key of each level gets its slot, so that keys of a level are in
    /// neighbouring slots. Levels that are `HOMES` apart share a chunk.
    homes: [u32; HOMES],
    len: usize,
}

impl Levels {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self { levels: Ranked::new(), empty: 0, homes: [u32::MAX; HOMES], len: 0 })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn home_of(&mut self, level: i16) -> &mut u32 {
        &mut self.homes[rank(level) as usize % HOMES]
    }

    /// Raises the key, which is ready or dirty, to this higher level. Returns `false`, and changes nothing,
    /// if it is not in line.
    pub(super) fn raise<K>(
        &mut self,
        known: &mut Known,
        arena: &mut Arena<K>,
        slot: u32,
        level: i16,
    ) -> bool {
        let stood = self.leave_level(known, arena, slot);
        if stood {
            self.level(level).raised += 1;
            known.raise(slot, rank(level), level);
        }
        stood
    }

    /// Enters a key that becomes ready at this level. Returns its place, for the caller to store.
    #[inline(always)] // as `Core::trigger`
    pub(crate) fn enter<K>(
        &mut self,
        known: &mut Known,
        arena: &mut Arena<K>,
        slot: u32,
        since: Instant,
        level: i16,
    ) -> u32 {
        known.enters(slot, level, since);
        self.len += 1;
        self.level(level).ring.push_unplaced(arena, slot)
    }

    /// Takes the next key at this time.
    #[inline]
    pub(super) fn pop<K>(&mut self, known: &mut Known, arena: &mut Arena<K>, now: Instant) -> Option<Marked> {
        if known.max_wait.is_some() {
            if let Some(slot) = known.overdue(now, |oldest, since| Some((oldest, since))) {
                self.leave(known, arena, slot);
                return Some(Marked::new(slot, known.pending(slot)));
            }
        }
        let (rank, level) = self.levels.top_mut()?;
        let level = level.as_deref_mut()?;
        let slot = if level.raised == 0 {
            level.ring.pop_front()?
        } else {
            let first = known.first_of(rank, level.ring.front())?;
            if known.is_raised(first) {
                known.unraise(first, rank);
                level.raised -= 1;
                first
            } else {
                level.ring.pop_front()?
            }
        };
        if level.len() == 0 {
            self.emptied(rank);
        }
        self.len -= 1;
        known.leaves(slot);
        Some(Marked::new(slot, level_of(rank)))
    }

    /// Prefetch hints: two keys of the highest level that were not raised, the later one first.
    #[inline]
    pub(super) fn ahead(&self) -> (u32, u32) {
        match self.levels.top() {
            Some((_, Some(level))) => (level.ring.guess(SLOT_AHEAD), level.ring.guess(ENTRY_AHEAD)),
            _ => (u32::MAX, u32::MAX),
        }
    }

    /// Number of keys of higher levels, and of older keys of its own level; and whether the number is exact,
    /// not a lower bound. `None` if the key is not in line.
    pub(super) fn ahead_of<K>(&self, known: &Known, arena: &Arena<K>, slot: u32) -> Option<(usize, bool)> {
        let (rank, entered) = (rank(known.pending(slot)), known.entered(slot));
        let level = self.levels.get(rank)?.as_deref()?;
        let (in_ring, mut exact) = if known.is_raised(slot) {
            let before = level.ring.count_while(STEPS, |other| known.entered(other) < entered);
            (before, before < STEPS)
        } else {
            let (before, behind) = level.ring.around(arena, slot, STEPS)?;
            (before, before + behind + 1 == level.ring.len())
        };
        let raised = known.raised_before(rank, entered, STEPS);
        exact &= raised < STEPS;
        let mut ahead = in_ring + raised;
        for (steps, rank) in self.levels.from(rank + 1).enumerate() {
            if steps == STEPS {
                return Some((ahead, false));
            }
            let level = self.levels.get(rank).and_then(|level| level.as_deref());
            ahead += level.map_or(0, Level::len);
        }
        Some((ahead, exact))
    }

    /// Removes a key from the line. Returns `false` if it is not in line.
    pub(super) fn leave<K>(&mut self, known: &mut Known, arena: &mut Arena<K>, slot: u32) -> bool {
        let stood = self.leave_level(known, arena, slot);
        if stood {
            self.len -= 1;
            known.leaves(slot);
        }
        stood
    }

    /// Removes a key from its level. Returns `false` if it is not there.
    fn leave_level<K>(&mut self, known: &mut Known, arena: &mut Arena<K>, slot: u32) -> bool {
        let rank = rank(known.pending(slot));
        let Some(Some(level)) = self.levels.get_mut(rank) else { return false };
        if known.is_raised(slot) {
            known.unraise(slot, rank);
            level.raised -= 1;
        } else if !level.ring.leave(arena, slot) {
            return false;
        }
        if level.len() == 0 {
            self.emptied(rank);
        }
        true
    }

    /// The level, which is made or taken into use for a key that is about to enter it.
    #[inline]
    fn level(&mut self, level: i16) -> &mut Level {
        let empty = &mut self.empty;
        let begins = |place: &Option<Box<Level>>| {
            let begins = place.as_ref().is_none_or(|level| level.len() == 0);
            *empty -= usize::from(begins && place.is_some());
            begins
        };
        self.levels.begin_if(rank(level), begins).get_or_insert_default()
    }

    /// Marks a level as empty after its last key has left.
    #[inline]
    fn emptied(&mut self, rank: u32) {
        self.levels.end(rank);
        if self.empty < KEPT {
            self.empty += 1;
        } else {
            *self.levels.entry(rank) = None;
        }
    }
}

#[cfg(test)]
#[path = "tests/levels.rs"]
mod tests;
