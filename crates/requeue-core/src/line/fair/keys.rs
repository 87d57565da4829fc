//! What is known of a key beside its place in line, and the list of a node's keys.

use super::NONE;
use crate::column::Column;
use crate::line::levels::Asked;
use core::ops::{Deref, DerefMut};

/// What is known of a key beside its place in line.
#[derive(Debug)]
pub(super) struct Mark {
    /// The keys beside it in the list of its node. What stands before the first one does not count.
    pub(super) before: u32,
    pub(super) after: u32,
    /// The number with which it entered the line.
    pub(super) entered: u64,
    /// Its group, of the innermost ones, while it is known.
    pub(super) group: u32,
    /// The node in which it stands, while it stands in line.
    pub(super) node: u32,
    /// It stands in the node's tree, and not in its list.
    pub(super) in_tree: bool,
    pub(super) asked: Asked,
}

impl Default for Mark {
    fn default() -> Self {
        Self {
            before: NONE,
            after: NONE,
            entered: 0,
            group: NONE,
            node: NONE,
            in_tree: false,
            asked: Asked::default(),
        }
    }
}

/// The marks of all keys. Where a key comes behind another one, that one's mark hears of it at the
/// next step of any list ([`settle`](Self::settle)) and not at once. Of a million keys it is mostly in
/// no cache, and a write to it that is still on its way would hold up the release of the queue's lock;
/// until the next step it has come.
#[derive(Debug)]
pub(super) struct Marks {
    each: Column<Mark>,
    /// A key, and the one that came behind it, if its mark does not tell yet.
    late: (u32, u32),
}

impl Marks {
    pub(super) const fn new() -> Self {
        Self { each: Column::new(), late: (NONE, NONE) }
    }

    /// All marks tell who comes behind them from here on. Who reads or changes `before` or `after`
    /// calls this first.
    #[inline(always)]
    pub(super) fn settle(&mut self) {
        let (before, after) = self.late;
        if before != NONE {
            self.late.0 = NONE;
            if let Some(mark) = self.each.get_mut(before) {
                mark.after = after;
            }
        }
    }
}

impl Deref for Marks {
    type Target = Column<Mark>;
    #[inline(always)]
    fn deref(&self) -> &Column<Mark> {
        &self.each
    }
}

impl DerefMut for Marks {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Column<Mark> {
        &mut self.each
    }
}

/// Keys in the order of their coming, through their marks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Keys {
    pub(super) const NONE: Self = Self { first: NONE, last: NONE };

    /// Lets a key in at the end.
    #[inline(always)]
    pub(super) fn push<'a>(&mut self, marks: &'a mut Marks, slot: u32) -> &'a mut Mark {
        marks.settle();
        let before = core::mem::replace(&mut self.last, slot);
        if before == NONE {
            self.first = slot;
        } else {
            marks.prefetch(before);
            marks.late = (before, slot);
        }
        let mark = marks.entry(slot);
        (mark.before, mark.after) = (before, NONE);
        mark
    }

    /// Takes out the first key, behind which this one stands. The marks are settled.
    #[inline]
    pub(super) fn pop(&mut self, after: u32) {
        self.first = after;
        if after == NONE {
            self.last = NONE;
        }
    }

    /// Takes out a key.
    pub(super) fn remove(&mut self, marks: &mut Marks, slot: u32) {
        marks.settle();
        let Some(&Mark { before, after, .. }) = marks.get(slot) else { return };
        if self.first == slot {
            return self.pop(after);
        }
        if let Some(mark) = marks.get_mut(before) {
            mark.after = after;
        }
        match marks.get_mut(after) {
            Some(mark) => mark.before = before,
            None => self.last = before,
        }
    }
}
