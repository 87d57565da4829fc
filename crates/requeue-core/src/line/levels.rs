//! Priorities (rule B2): who goes next among keys of different levels.
//!
//! A key enters the ring of its level at the back. One whose level is raised while it stands in
//! line keeps its age: it leaves its ring and stands in `raised` of its new level, by the number
//! with which it entered the line. Of a level the key with the lower number goes, be it in the
//! ring or raised; the numbers in a ring only rise. So keys of one level go in the order in
//! which they became ready, whenever they came to that level.
//!
//! To enter, and to be taken in turn, costs a look at three words that say which level is the
//! highest, however many levels and keys there are. To be raised, or to leave, costs the look
//! through one block that any ring takes, and the way through a tree of those that were raised.
//!
//! With `max_wait`, and where the oldest key makes room for new ones, all keys in line also stand in a
//! list by age, which a raise does not touch. With `max_wait` the oldest key is overdue once it has stood
//! there for so long, and one of every few hand-outs takes it, whatever its level.

use super::ahead::STEPS;
use super::overdue::{AgeClock, Overdue};
use super::ring::Ring;
use super::{ENTRY_AHEAD, SLOT_AHEAD};
use crate::Instant;
use crate::arena::{Arena, Marked};
use crate::chain::{Link, Linked, List};
use crate::column::Column;
use crate::prefetch::prefetch;
use crate::slots::Places;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How many levels without keys are kept for the next ones. Each has some 700 bytes.
const KEPT: usize = 128;

/// How many levels have a chunk of slots each for their new keys.
const HOMES: usize = 128;

/// The levels at which a key is asked for. Each counts only while there is what it is the level
/// of, so that nobody has to take it away.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    /// While it is ready or dirty.
    pub(super) pending: i16,
    /// Of its timer.
    pub(super) timer: i16,
    /// Of its run. While it stands in line this is what `pending` is, so that nobody has to write it as
    /// the key is handed out.
    pub(super) run: i16,
}

impl Asked {
    /// The key stands in line at this level.
    #[inline]
    pub(super) fn stands_at(&mut self, level: i16) {
        (self.pending, self.run) = (level, level);
    }
}

/// What is known of a key beside its place in line.
#[derive(Debug, Default)]
struct Mark {
    /// The number with which it entered the line.
    entered: u64,
    asked: Asked,
}

/// A key in the list by age.
#[derive(Debug, Default)]
struct Age(Link);

impl Linked for Age {
    #[inline]
    fn link(&mut self) -> &mut Link {
        &mut self.0
    }
}

/// The keys of one level: smaller blocks than those of a line that is alone.
#[derive(Debug, Default)]
struct Level {
    ring: Ring<128>,
    /// Those that were raised to it, by the number with which they entered the line.
    raised: BTreeMap<u64, u32>,
}

impl Level {
    #[inline]
    fn is_empty(&self) -> bool {
        self.ring.len() == 0 && self.raised.is_empty()
    }

    /// Takes the key that became ready first.
    #[inline]
    fn pop(&mut self, marks: &Column<Mark>) -> Option<u32> {
        if self.raised.is_empty() { self.ring.pop_front() } else { self.pop_older(marks) }
    }

    #[inline(never)]
    fn pop_older(&mut self, marks: &Column<Mark>) -> Option<u32> {
        let oldest = self.oldest(marks);
        if self.ring.front() == oldest {
            return self.ring.pop_front();
        }
        self.raised.pop_first();
        oldest
    }

    /// The key that became ready first.
    fn oldest(&self, marks: &Column<Mark>) -> Option<u32> {
        let front = self.ring.front();
        let Some((entered, raised)) = self.raised.first_key_value() else { return front };
        let older = |slot: &u32| marks.get(*slot).is_some_and(|mark| mark.entered < *entered);
        front.filter(older).or(Some(*raised))
    }

    /// Takes a key out, whose slot's number may be anything; false if it does not stand here.
    fn leave<K>(&mut self, arena: &mut Arena<K>, slot: u32, entered: u64) -> bool {
        if self.raised.get(&entered) == Some(&slot) {
            return self.raised.remove(&entered).is_some();
        }
        self.ring.leave(arena, slot)
    }
}

/// A level as a number from 0 on, in the same order.
#[inline]
pub(super) fn rank(level: i16) -> u32 {
    (i32::from(level) - i32::from(i16::MIN)).unsigned_abs()
}

/// How many ranks there are.
pub(super) const RANKS: u32 = 1 << 16;

/// The level of a rank.
pub(super) fn level_of(rank: u32) -> i16 {
    // of RANKS numbers each is one
    (i64::from(rank) + i64::from(i16::MIN)) as i16
}

/// A set of ranks whose highest is at hand.
#[derive(Debug)]
pub(super) struct Ranks {
    /// A bit a rank.
    ranks: [u64; 1024],
    /// A bit for each word of `ranks` that is not 0.
    words: [u64; 16],
    /// A bit for each word of `words` that is not 0.
    top: u64,
}

impl Ranks {
    pub(super) const NONE: Self = Self { ranks: [0; 1024], words: [0; 16], top: 0 };

    #[inline]
    pub(super) fn insert(&mut self, rank: u32) {
        let Some((ranks, words)) = self.words_of(rank) else { return };
        let first = *ranks == 0;
        *ranks |= 1 << (rank & 63);
        if first {
            *words |= 1 << ((rank >> 6) & 63);
            self.top |= 1 << (rank >> 12);
        }
    }

    /// The words that have a rank's bit.
    #[inline]
    fn words_of(&mut self, rank: u32) -> Option<(&mut u64, &mut u64)> {
        self.ranks.get_mut((rank >> 6) as usize).zip(self.words.get_mut((rank >> 12) as usize))
    }

    #[inline]
    pub(super) fn remove(&mut self, rank: u32) {
        let Some((ranks, words)) = self.words_of(rank) else { return };
        *ranks &= !(1 << (rank & 63));
        if *ranks == 0 {
            *words &= !(1 << ((rank >> 6) & 63));
            if *words == 0 {
                self.top &= !(1 << (rank >> 12));
            }
        }
    }

    /// Those from this one on.
    fn from(&self, rank: u32) -> impl Iterator<Item = u32> + '_ {
        let first = rank >> 6;
        let words = self.ranks.iter().enumerate().skip(first as usize).filter(|(_, word)| **word != 0);
        words
            .flat_map(|(at, word)| {
                (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (at as u32) << 6 | bit)
            })
            .skip_while(move |other| *other < rank)
    }

    #[inline]
    pub(super) fn highest(&self) -> Option<u32> {
        let top = self.top.checked_ilog2()?;
        // what is set above says that something is set below
        let word = top << 6 | (*self.words.get(top as usize)? | 1).ilog2();
        Some(word << 6 | (*self.ranks.get(word as usize)? | 1).ilog2())
    }
}

/// The line of a queue with priorities.
#[derive(Debug)]
pub(crate) struct Levels {
    /// The levels in which somebody stands.
    used: Ranks,
    /// The highest of them, if there is one.
    top: u32,
    levels: Column<Option<Box<Level>>>,
    /// How many of them are there although nobody stands in them.
    empty: usize,
    marks: Column<Mark>,
    /// In an aged line all keys in it, in the order in which they became ready.
    ages: List,
    links: Column<Age>,
    /// Whether it is aged: with `max_wait`, or where the oldest key may have to make room.
    aged: bool,
    max_wait: Option<Overdue>,
    /// How many keys are handed out by priority before the next one that is overdue.
    before_overdue: u32,
    /// The clock of the list by age.
    clock: AgeClock,
    /// The chunk in which the next new key of each level gets its slot, so that those that go one after the other
    /// stand side by side. Levels that are `HOMES` apart share one.
    homes: [u32; HOMES],
    /// The number of the next key that enters.
    entered: u64,
    len: usize,
    /// Ready keys that do not stand in line, by the rank of their level.
    aside: BTreeMap<u32, usize>,
}

impl Levels {
    pub(super) fn new(max_wait: Option<Overdue>, aged: bool) -> Box<Self> {
        Box::new(Self {
            used: Ranks::NONE,
            top: 0,
            levels: Column::new(),
            empty: 0,
            marks: Column::new(),
            ages: List::EMPTY,
            links: Column::new(),
            aged: aged || max_wait.is_some(),
            max_wait,
            before_overdue: 0,
            clock: AgeClock::default(),
            homes: [u32::MAX; HOMES],
            entered: 0,
            len: 0,
            aside: BTreeMap::new(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn home_of(&mut self, level: i16) -> &mut u32 {
        &mut self.homes[rank(level) as usize % HOMES]
    }

    pub(super) fn max_wait(&self) -> Option<Overdue> {
        self.max_wait
    }

    pub(super) fn age_clock(&mut self) -> &mut AgeClock {
        &mut self.clock
    }

    /// A ready key came to stand, or ceased to stand, where nothing takes it from.
    pub(super) fn set_aside(&mut self, slot: u32, by: i32) {
        let rank = rank(self.asked(slot).map_or(0, |asked| asked.pending));
        let aside = self.aside.entry(rank).or_default();
        *aside = aside.wrapping_add_signed(by as isize);
        if *aside == 0 {
            self.aside.remove(&rank);
        }
    }

    /// The levels from this rank on at which keys are ready, `most` or fewer, and how many; returns
    /// where the next page begins.
    pub(super) fn depths(&self, from: u32, most: usize, into: &mut Vec<(i16, usize)>) -> Option<u32> {
        let mut aside = self.aside.range(from..).peekable();
        let mut in_line = self.used.from(from).peekable();
        for _ in 0..most {
            let rank =
                in_line.peek().copied().into_iter().chain(aside.peek().map(|(rank, _)| **rank)).min()?;
            let standing = in_line.next_if_eq(&rank).and_then(|rank| self.levels.get(rank)?.as_deref());
            let standing = standing.map_or(0, |level| level.ring.len() + level.raised.len());
            let aside = aside.next_if(|(other, _)| **other == rank).map_or(0, |(_, keys)| *keys);
            into.push((level_of(rank), standing + aside));
        }
        in_line.peek().copied().into_iter().chain(aside.peek().map(|(rank, _)| **rank)).min()
    }

    /// The key that has stood in line longest. Only a line that is aged knows it.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.ages.oldest()
    }

    #[inline]
    pub(super) fn asked(&self, slot: u32) -> Option<&Asked> {
        self.marks.get(slot).map(|mark| &mark.asked)
    }

    #[inline]
    pub(super) fn asked_mut(&mut self, slot: u32) -> &mut Asked {
        &mut self.marks.entry(slot).asked
    }

    /// The key, which is ready or dirty, is asked for at this level too.
    pub(super) fn raise<K>(&mut self, arena: &mut Arena<K>, slot: u32, level: i16) {
        let mark = self.marks.entry(slot);
        if level <= mark.asked.pending {
            return;
        }
        let (from, entered) = (core::mem::replace(&mut mark.asked.pending, level), mark.entered);
        // it need not stand in line: a dirty key does not
        if self.leave_level(arena, slot, from, entered) {
            self.asked_mut(slot).stands_at(level);
            self.level(level).raised.insert(entered, slot);
        }
    }

    /// Lets a key in at the level at which it is pending. It is ready `since` then.
    pub(super) fn enter<K>(&mut self, arena: &mut Arena<K>, slot: u32, since: Instant) {
        let level = self.marks.get(slot).map_or(0, |mark| mark.asked.pending);
        self.enter_at(arena, slot, since, level);
    }

    /// Lets a key in that becomes ready at this level.
    #[inline]
    pub(super) fn enter_at<K>(&mut self, arena: &mut Arena<K>, slot: u32, since: Instant, level: i16) {
        let place = self.enter_new_at(arena, slot, since, level);
        arena.set_place(slot, place);
    }

    /// The same for a key that is being entered into the arena: returns its place, which is
    /// written there with the key.
    #[inline]
    pub(crate) fn enter_new_at<K>(
        &mut self,
        arena: &mut Arena<K>,
        slot: u32,
        since: Instant,
        level: i16,
    ) -> u32 {
        let mark = self.marks.entry(slot);
        mark.entered = self.entered;
        mark.asked.stands_at(level);
        // that of the level's next key, if it is in the slot behind: others come meanwhile
        prefetch(core::ptr::from_ref(mark) as usize + 64);
        self.entered += 1;
        self.len += 1;
        if self.aged {
            self.ages.enter(&mut self.links, slot, self.clock.at(since));
        }
        self.level(level).ring.push_unplaced(arena, slot)
    }

    /// Takes the key that goes next at this time, and starts its run.
    #[inline]
    pub(super) fn pop<K>(&mut self, arena: &mut Arena<K>, now: Instant) -> Option<Marked> {
        if self.max_wait.is_some() {
            if let Some(slot) = self.overdue(now) {
                self.leave(arena, slot);
                return Some(self.start(slot));
            }
        }
        let rank = self.top;
        let level = self.levels.get_mut(rank)?.as_deref_mut()?;
        let slot = level.pop(&self.marks)?;
        if level.is_empty() {
            self.emptied(rank);
        }
        self.left(slot);
        Some(Marked::new(slot, level_of(rank)))
    }

    /// As [`Line::ahead`](super::Line::ahead): of the highest level, those that were not raised.
    #[inline]
    pub(super) fn ahead(&self) -> (u32, u32) {
        match self.levels.get(self.top) {
            Some(Some(level)) => (level.ring.guess(SLOT_AHEAD), level.ring.guess(ENTRY_AHEAD)),
            _ => (u32::MAX, u32::MAX),
        }
    }

    /// How many keys go before this one as things stand, whatever its age: of a higher level, or
    /// of its own and older. False with a number that may be too small. `None` if it does not
    /// stand in line.
    pub(super) fn ahead_of<K>(&self, arena: &Arena<K>, slot: u32) -> Option<(usize, bool)> {
        let &Mark { asked: Asked { pending, .. }, entered, .. } = self.marks.get(slot)?;
        let level = self.levels.get(rank(pending))?.as_deref()?;
        let older = |other: u32| self.marks.get(other).is_some_and(|mark| mark.entered < entered);
        let raised = level.raised.range(..entered).take(STEPS).count();
        let (in_ring, mut exact) = if level.raised.get(&entered) == Some(&slot) {
            let before = level.ring.count_while(STEPS, older);
            (before, before < STEPS)
        } else {
            let (before, behind) = level.ring.around(arena, slot, STEPS)?;
            (before, before + behind + 1 == level.ring.len())
        };
        exact &= raised < STEPS;
        let mut ahead = in_ring + raised;
        for (steps, rank) in self.used.from(rank(pending) + 1).enumerate() {
            if steps == STEPS {
                return Some((ahead, false));
            }
            let level = self.levels.get(rank).and_then(|level| level.as_deref());
            ahead += level.map_or(0, |level| level.ring.len() + level.raised.len());
        }
        Some((ahead, exact))
    }

    /// The run of a key starts, which was taken out of the line; returns it with its level.
    fn start(&mut self, slot: u32) -> Marked {
        let Some(mark) = self.marks.get_mut(slot) else { return slot.into() };
        mark.asked.run = mark.asked.pending;
        Marked::new(slot, mark.asked.run)
    }

    /// The oldest key, if it is overdue and this hand-out goes to such a key. A key is handed out now, if there
    /// is one.
    #[inline]
    fn overdue(&mut self, now: Instant) -> Option<u32> {
        let max_wait = self.max_wait?;
        let oldest = self.ages.oldest()?;
        if self.before_overdue > 0 {
            self.before_overdue -= 1;
            return None;
        }
        let since = self.links.get(oldest)?.0.since;
        if !max_wait.is(since, self.clock.at(now)) {
            return None;
        }
        self.before_overdue = max_wait.between;
        Some(oldest)
    }

    /// Takes a key out of the line, wherever it stands; false if it does not stand in it.
    pub(super) fn leave<K>(&mut self, arena: &mut Arena<K>, slot: u32) -> bool {
        let Some(&Mark { asked: Asked { pending, .. }, entered, .. }) = self.marks.get(slot) else {
            return false;
        };
        let stood = self.leave_level(arena, slot, pending, entered);
        if stood {
            self.left(slot);
        }
        stood
    }

    /// Takes a key out of its level; false if it does not stand there.
    fn leave_level<K>(&mut self, arena: &mut Arena<K>, slot: u32, level: i16, entered: u64) -> bool {
        let rank = rank(level);
        let Some(Some(level)) = self.levels.get_mut(rank) else { return false };
        let stood = level.leave(arena, slot, entered);
        if stood && level.is_empty() {
            self.emptied(rank);
        }
        stood
    }

    /// A key has left its level, and the line.
    #[inline]
    fn left(&mut self, slot: u32) {
        self.len -= 1;
        if self.aged {
            if let Some(&Age(link)) = self.links.get(slot) {
                self.ages.leave(&mut self.links, link);
            }
        }
    }

    /// A level in which somebody is about to stand.
    #[inline]
    fn level(&mut self, level: i16) -> &mut Level {
        let rank = rank(level);
        let place = self.levels.entry(rank);
        if place.as_ref().is_none_or(|level| level.is_empty()) {
            self.empty -= usize::from(place.is_some());
            self.used.insert(rank);
            self.top = self.top.max(rank);
        }
        place.get_or_insert_default()
    }

    /// The last key has left a level.
    #[inline]
    fn emptied(&mut self, rank: u32) {
        self.used.remove(rank);
        if rank == self.top {
            self.top = self.used.highest().unwrap_or(0);
        }
        if self.empty < KEPT {
            self.empty += 1;
        } else {
            self.levels.take(rank);
        }
    }

    pub(super) fn free_page(&mut self, chunk: u32) {
        self.marks.free_page(chunk);
        self.links.free_page(chunk);
    }
}

#[cfg(test)]
#[path = "tests/levels.rs"]
mod tests;
