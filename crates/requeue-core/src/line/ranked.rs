//! Levels: a value for each priority, and the highest one in use.
//!
//! The highest level is found in three words, however many levels there are.

use crate::column::Column;

/// A level as a number from 0 on, in the same order.
#[inline]
pub(super) fn rank(level: i16) -> u32 {
    (i32::from(level) - i32::from(i16::MIN)).unsigned_abs()
}

/// Number of ranks.
pub(super) const RANKS: u32 = 1 << 16;

/// The level of a rank.
pub(super) fn level_of(rank: u32) -> i16 {
    // each of RANKS numbers is a level
    (i64::from(rank) + i64::from(i16::MIN)) as i16
}

/// A set of ranks.
#[derive(Debug)]
struct Ranks {
    /// A bit a rank.
    ranks: [u64; 1024],
    /// A bit for each word of `ranks` that is not 0.
    words: [u64; 16],
    /// A bit for each word of `words` that is not 0.
    top: u64,
}

impl Ranks {
    /// The words that have a rank's bit.
    #[inline]
    fn words_of(&mut self, rank: u32) -> Option<(&mut u64, &mut u64)> {
        self.ranks.get_mut((rank >> 6) as usize).zip(self.words.get_mut((rank >> 12) as usize))
    }

    #[inline]
    fn insert(&mut self, rank: u32) {
        let Some((ranks, words)) = self.words_of(rank) else { return };
        *ranks |= 1 << (rank & 63);
        *words |= 1 << ((rank >> 6) & 63);
        self.top |= 1 << (rank >> 12);
    }

    #[inline]
    fn remove(&mut self, rank: u32) {
        let Some((ranks, words)) = self.words_of(rank) else { return };
        *ranks &= !(1 << (rank & 63));
        if *ranks == 0 {
            *words &= !(1 << ((rank >> 6) & 63));
            if *words == 0 {
                self.top &= !(1 << (rank >> 12));
            }
        }
    }

    #[inline]
    fn highest(&self) -> Option<u32> {
        let top = self.top.checked_ilog2()?;
        // a bit set above means that a bit is set below
        let word = top << 6 | (*self.words.get(top as usize)? | 1).ilog2();
        Some(word << 6 | (*self.ranks.get(word as usize)? | 1).ilog2())
    }
}

/// A value for each rank, of which some are in use.
#[derive(Debug)]
pub(super) struct Ranked<T> {
    used: Ranks,
    /// The highest rank in use, if one is.
    top: u32,
    each: Column<T>,
}

impl<T: Default> Ranked<T> {
    pub(super) const fn new() -> Self {
        Self { used: Ranks { ranks: [0; 1024], words: [0; 16], top: 0 }, top: 0, each: Column::new() }
    }

    /// The value of this rank, if it was made.
    #[inline]
    pub(super) fn get(&self, rank: u32) -> Option<&T> {
        self.each.get(rank)
    }

    /// [`get`](Self::get), to change it.
    #[inline]
    pub(super) fn get_mut(&mut self, rank: u32) -> Option<&mut T> {
        self.each.get_mut(rank)
    }

    /// The value of this rank, which is made if it is missing.
    #[inline]
    pub(super) fn entry(&mut self, rank: u32) -> &mut T {
        self.each.entry(rank)
    }

    /// The highest rank in use, and its value. If none is in use, a rank that is not.
    #[inline]
    pub(super) fn top(&self) -> Option<(u32, &T)> {
        Some((self.top, self.each.get(self.top)?))
    }

    /// [`top`](Self::top), to change it.
    #[inline]
    pub(super) fn top_mut(&mut self) -> Option<(u32, &mut T)> {
        Some((self.top, self.each.get_mut(self.top)?))
    }

    /// The value of this rank, which is made if it is missing. If `begins` returns `true` for it, the rank is
    /// marked as in use; otherwise it must be in use already.
    #[inline]
    pub(super) fn begin_if(&mut self, rank: u32, begins: impl FnOnce(&T) -> bool) -> &mut T {
        let value = self.each.entry(rank);
        if begins(value) {
            self.used.insert(rank);
            self.top = self.top.max(rank);
        }
        value
    }

    /// Marks a rank as no longer in use.
    #[inline]
    pub(super) fn end(&mut self, rank: u32) {
        self.used.remove(rank);
        if rank == self.top {
            self.top = self.used.highest().unwrap_or(0);
        }
    }

    /// The ranks in use from this one on.
    pub(super) fn from(&self, rank: u32) -> impl Iterator<Item = u32> + '_ {
        let first = rank >> 6;
        let words = self.used.ranks.iter().enumerate().skip(first as usize).filter(|(_, word)| **word != 0);
        words
            .flat_map(|(at, word)| {
                (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| (at as u32) << 6 | bit)
            })
            .skip_while(move |other| *other < rank)
    }
}
