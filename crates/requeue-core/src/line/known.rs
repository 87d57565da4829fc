//! State that a line with priorities, or an aged one, keeps of each key beside its place: the levels at which it is asked
//! for, the number with which it entered the line, and its age.

use super::overdue::{AgeClock, Overdue};
use super::ranked::{RANKS, level_of, rank};
use crate::Instant;
use crate::arena::CHUNK;
use crate::chain::{Link, List};
use crate::column::Column;
use crate::prefetch::prefetch;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

/// The levels at which a key is asked for. Each counts only while there is what it is the level
/// of, so that nobody has to take it away.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LevelsOf {
    /// While it is ready or dirty.
    pub(super) pending: i16,
    /// Of its timer.
    pub(super) timer: i16,
    /// Of its run. While it stands in line this is what `pending` is, so that nobody has to write it as
    /// the key is handed out.
    pub(super) run: i16,
}

#[derive(Debug, Default)]
struct Mark {
    /// The number with which the key entered the line.
    entered: u64,
    levels: LevelsOf,
    /// It stands in line in `Known::raised`.
    raised: bool,
}

/// State of the keys of a line beside their places.
#[derive(Debug)]
pub(crate) struct Known {
    priorities: bool,
    /// Whether anything is kept of a key that enters.
    keeps: bool,
    marks: Column<Mark>,
    /// The number of the next key that enters.
    next: u64,
    /// Keys that were raised while they stood in line: by the number of the list that they came to, those of each list by the
    /// number with which they entered the line. No list is empty.
    raised: BTreeMap<u32, BTreeMap<u64, u32>>,
    aged: bool,
    /// In an aged line all keys in it, in the order in which they became ready, and since when each is ready by `clock`.
    ages: List,
    links: Column<Link>,
    /// The clock by which all keys age.
    pub(super) clock: AgeClock,
    /// When a key is overdue, in a line in which keys are passed over.
    pub(super) max_wait: Option<Overdue>,
    /// How many keys are handed out by priority before the next one that is overdue.
    before_overdue: u32,
    /// With metrics how many keys are ready, by rank.
    depths: Option<Box<Column<u32>>>,
}

impl Known {
    /// An `aged` line knows its oldest key, as one with `max_wait` does.
    pub(super) fn new(priorities: bool, max_wait: Option<Overdue>, aged: bool) -> Self {
        let aged = aged || max_wait.is_some();
        Self {
            priorities,
            keeps: priorities || aged,
            marks: Column::new(),
            next: 0,
            raised: BTreeMap::new(),
            aged,
            ages: List::EMPTY,
            links: Column::new(),
            clock: AgeClock::default(),
            max_wait,
            before_overdue: 0,
            depths: None,
        }
    }

    /// Whether triggers may have priorities.
    #[inline]
    pub(super) fn has_priorities(&self) -> bool {
        self.priorities
    }

    /// Whether anything is kept of a key that enters.
    #[inline]
    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }

    #[inline]
    pub(super) fn levels(&self, slot: u32) -> Option<&LevelsOf> {
        self.marks.get(slot).map(|mark| &mark.levels)
    }

    /// The levels of a key, to be changed; there are none in a line without priorities.
    #[inline]
    pub(super) fn levels_mut(&mut self, slot: u32) -> Option<&mut LevelsOf> {
        self.priorities.then(|| &mut self.marks.entry(slot).levels)
    }

    /// The level at which a key is ready or dirty.
    #[inline]
    pub(super) fn pending(&self, slot: u32) -> i16 {
        self.levels(slot).map_or(0, |levels| levels.pending)
    }

    /// The number with which a key entered the line.
    #[inline]
    pub(super) fn entered(&self, slot: u32) -> u64 {
        self.marks.get(slot).map_or(0, |mark| mark.entered)
    }

    /// A key enters the line at this level; returns since when it is ready, by [`clock`](Self::clock).
    #[inline(always)] // as `Core::trigger`
    pub(super) fn enters(&mut self, slot: u32, level: i16, since: Instant) -> Instant {
        if self.priorities {
            let mark = self.marks.entry(slot);
            mark.entered = self.next;
            (mark.levels.pending, mark.levels.run) = (level, level);
            // that of the level's next key, if it is in the slot behind: others come meanwhile
            prefetch(core::ptr::from_ref(mark) as usize + 64);
            self.next += 1;
        }
        if self.aged { self.ages.enter(&mut self.links, slot, self.clock.at(since)).since } else { since }
    }

    /// A key leaves the line: it is handed out, or not any more asked for.
    #[inline]
    pub(super) fn leaves(&mut self, slot: u32) {
        if self.aged {
            if let Some(&link) = self.links.get(slot) {
                self.ages.leave(&mut self.links, link);
            }
        }
    }

    /// The key that has stood in line longest. Only a line that is aged knows it.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.ages.oldest()
    }

    /// The oldest key that may be served, if it is overdue and this hand-out goes to such a key. A key is handed out now, if
    /// there is one. `oldest` is given the oldest key in line, and tells the one that may be served; each with since when it
    /// is ready.
    #[inline]
    pub(super) fn overdue<T>(
        &mut self,
        now: Instant,
        oldest: impl FnOnce(u32, Instant) -> Option<(T, Instant)>,
    ) -> Option<T> {
        let max_wait = self.max_wait?;
        let first = self.ages.oldest()?;
        let (since, now) = (self.links.get(first)?.since, self.clock.at(now));
        // if the oldest of all keys is not overdue none is
        let oldest = || if max_wait.is(since, now) { oldest(first, since) } else { None };
        max_wait.takes(&mut self.before_overdue, now, oldest)
    }

    /// Whether the key stands in line among those that were raised.
    #[inline]
    pub(super) fn is_raised(&self, slot: u32) -> bool {
        self.marks.get(slot).is_some_and(|mark| mark.raised)
    }

    /// A key in line is asked for at this level too, and has left the list of its old one: it stands among those that were
    /// raised to this list.
    pub(super) fn raise(&mut self, slot: u32, list: u32, level: i16) {
        let mark = self.marks.entry(slot);
        (mark.levels.pending, mark.levels.run, mark.raised) = (level, level, true);
        self.raised.entry(list).or_default().insert(mark.entered, slot);
    }

    /// A key that was raised to this list leaves it.
    pub(super) fn unraise(&mut self, slot: u32, list: u32) {
        let mark = self.marks.entry(slot);
        mark.raised = false;
        if let Entry::Occupied(mut raised) = self.raised.entry(list) {
            raised.get_mut().remove(&mark.entered);
            if raised.get().is_empty() {
                raised.remove();
            }
        }
    }

    /// How many keys that were raised to this list entered before this number, `most` at the most.
    pub(super) fn raised_before(&self, list: u32, entered: u64, most: usize) -> usize {
        self.raised.get(&list).map_or(0, |raised| raised.range(..entered).take(most).count())
    }

    /// Of a list, to which keys were raised, the key that became ready first: the one at its head, or one that was raised.
    pub(super) fn first_of(&self, list: u32, head: Option<u32>) -> Option<u32> {
        let raised = self.raised.get(&list).and_then(BTreeMap::first_key_value);
        let Some((entered, raised)) = raised else { return head };
        head.filter(|slot| self.entered(*slot) < *entered).or(Some(*raised))
    }

    /// There are metrics, so that the ready keys of each level are counted.
    pub(super) fn counts_depths(&mut self) {
        if self.priorities {
            self.depths = Some(Box::new(Column::new()));
        }
    }

    /// A key more or less is ready at this level.
    #[inline]
    pub(super) fn count_depth(&mut self, level: i16, by: i32) {
        if let Some(depths) = &mut self.depths {
            let depth = depths.entry(rank(level));
            *depth = depth.wrapping_add_signed(by);
        }
    }

    /// The levels from this rank on at which keys are ready, `most` or fewer, and how many; returns
    /// where the next page begins.
    pub(super) fn depths(&self, from: u32, most: usize, into: &mut Vec<(i16, usize)>) -> Option<u32> {
        let (mut rank, end) = (from, into.len() + most);
        while rank < RANKS {
            match self.depths.as_ref()?.get(rank) {
                // of a page that nobody wrote none is there
                None => rank |= CHUNK as u32 - 1,
                Some(0) => {}
                Some(_) if into.len() == end => return Some(rank),
                Some(depth) => into.push((level_of(rank), *depth as usize)),
            }
            rank += 1;
        }
        None
    }

    pub(super) fn free_page(&mut self, chunk: u32) {
        self.marks.free_page(chunk);
        self.links.free_page(chunk);
    }
}
