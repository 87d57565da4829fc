//! State of each key in a line with priorities, or in an aged one, in addition to its place: the levels of
//! its triggers, the number with which it entered the line, and its age.

use super::overdue::{AgeClock, Overdue};
use super::ranked::{RANKS, level_of, rank};
use crate::arena::CHUNK;
use crate::chain::{Link, List};
use crate::column::Column;
use crate::prefetch::prefetch;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

/// The levels of a key's triggers. Each counts only in the state that it belongs to, so that it need not be
/// reset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LevelsOf {
    /// The level of a key that is ready or dirty.
    pub(super) pending: i16,
    /// The level of its timer.
    pub(super) timer: i16,
    /// The level of its run. Equals `pending` while the key is in line, so that it need not be written when
    /// the key is handed out.
    pub(super) run: i16,
}

#[derive(Debug, Default)]
struct Mark {
    /// The number with which the key entered the line.
    entered: u64,
    levels: LevelsOf,
    /// The key is in line in `Known::raised`.
    raised: bool,
}

/// State of the keys of a line in addition to their places.
#[derive(Debug)]
pub(crate) struct Known {
    priorities: bool,
    /// Whether a key that enters has such state.
    keeps: bool,
    marks: Column<Mark>,
    /// The number of the next key that enters.
    next: u64,
    /// Keys that were raised while in line: by the number of their list, and within it by the number with
    /// which they entered the line. No list is empty.
    raised: BTreeMap<u32, BTreeMap<u64, u32>>,
    aged: bool,
    /// In an aged line, all its keys in the order in which they became ready, and since when each is ready by
    /// `clock`.
    ages: List,
    links: Column<Link>,
    /// The clock by which all keys age.
    pub(super) clock: AgeClock,
    /// When a key is overdue, with `max_wait`.
    pub(super) max_wait: Option<Overdue>,
    /// Number of keys handed out by priority before the next overdue one.
    before_overdue: u32,
    /// Number of ready keys by rank, for metrics.
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

    /// Whether a key that enters has such state.
    #[inline]
    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }

    #[inline]
    pub(super) fn levels(&self, slot: u32) -> Option<&LevelsOf> {
        self.marks.get(slot).map(|mark| &mark.levels)
    }

    /// The levels of a key, to be changed. `None` in a line without priorities.
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

    /// Notes that a key enters the line at this level. Returns since when it is ready, by
    /// [`clock`](Self::clock).
    #[inline(always)] // as `Core::trigger`
    pub(super) fn enters(&mut self, slot: u32, level: i16, since: Instant) -> Instant {
        if self.priorities {
            let mark = self.marks.entry(slot);
            mark.entered = self.next;
            (mark.levels.pending, mark.levels.run) = (level, level);
            // prefetch the mark in the slot behind, which the level's next key is likely to have
            prefetch(core::ptr::from_ref(mark) as usize + 64);
            self.next += 1;
        }
        if self.aged { self.ages.enter(&mut self.links, slot, self.clock.at(since)).since } else { since }
    }

    /// Notes that a key leaves the line: it is handed out, or cancelled.
    #[inline]
    pub(super) fn leaves(&mut self, slot: u32) {
        if self.aged {
            if let Some(&link) = self.links.get(slot) {
                self.ages.leave(&mut self.links, link);
            }
        }
    }

    /// The key that has been in line longest. `None` in a line that is not aged.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.ages.oldest()
    }

    /// The oldest key that may be served, if it is overdue and this hand-out goes to an overdue key. Call it
    /// only if a key is handed out now. `oldest` is given the oldest key in line, and returns the oldest that
    /// may be served; both with the time since when they are ready.
    #[inline]
    pub(super) fn overdue<T>(
        &mut self,
        now: Instant,
        oldest: impl FnOnce(u32, Instant) -> Option<(T, Instant)>,
    ) -> Option<T> {
        let max_wait = self.max_wait?;
        let first = self.ages.oldest()?;
        let (since, now) = (self.links.get(first)?.since, self.clock.at(now));
        // if the oldest of all keys is not overdue, none is
        let oldest = || if max_wait.is(since, now) { oldest(first, since) } else { None };
        max_wait.takes(&mut self.before_overdue, now, oldest)
    }

    /// Whether the key is in line as a raised one.
    #[inline]
    pub(super) fn is_raised(&self, slot: u32) -> bool {
        self.marks.get(slot).is_some_and(|mark| mark.raised)
    }

    /// Puts a key in line, which has left the list of its old level, among the keys that were raised to this
    /// list.
    pub(super) fn raise(&mut self, slot: u32, list: u32, level: i16) {
        let mark = self.marks.entry(slot);
        (mark.levels.pending, mark.levels.run, mark.raised) = (level, level, true);
        self.raised.entry(list).or_default().insert(mark.entered, slot);
    }

    /// Removes a key that was raised to this list.
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

    /// Number of keys raised to this list that entered before this number; at most `most`.
    pub(super) fn raised_before(&self, list: u32, entered: u64, most: usize) -> usize {
        self.raised.get(&list).map_or(0, |raised| raised.range(..entered).take(most).count())
    }

    /// The key of a list with raised keys that became ready first: the one at its head, or a raised one.
    pub(super) fn first_of(&self, list: u32, head: Option<u32>) -> Option<u32> {
        let raised = self.raised.get(&list).and_then(BTreeMap::first_key_value);
        let Some((entered, raised)) = raised else { return head };
        head.filter(|slot| self.entered(*slot) < *entered).or(Some(*raised))
    }

    /// Makes the line count the ready keys of each level, for metrics.
    pub(super) fn counts_depths(&mut self) {
        if self.priorities {
            self.depths = Some(Box::new(Column::new()));
        }
    }

    /// Changes the number of ready keys at this level by `by`.
    #[inline]
    pub(super) fn count_depth(&mut self, level: i16, by: i32) {
        if let Some(depths) = &mut self.depths {
            let depth = depths.entry(rank(level));
            *depth = depth.wrapping_add_signed(by);
        }
    }

    /// Appends the levels from this rank on that have ready keys, at most `most`, and how many. Returns the
    /// rank at which the next page begins.
    pub(super) fn depths(&self, from: u32, most: usize, into: &mut Vec<(i16, usize)>) -> Option<u32> {
        let (mut rank, end) = (from, into.len() + most);
        while rank < RANKS {
            match self.depths.as_ref()?.get(rank) {
                // a page that was never written has no ready keys
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
