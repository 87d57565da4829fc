//! Keys in the order in which something happened to them, so that the oldest is at hand and any
//! of them can be taken out: a list through a column.

use crate::Instant;
use crate::column::Column;

/// No slot: the end of a list.
const NONE: u32 = u32::MAX;

/// What is kept of a key in a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Since when it is in the list.
    pub(crate) since: Instant,
    before: u32,
    after: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self { since: Instant::ORIGIN, before: NONE, after: NONE }
    }
}

/// An entry of a column that has a link. It is in one list at most.
pub(crate) trait Linked: Default {
    fn link(&mut self) -> &mut Link;
}

/// Keys in the order in which they came.
#[derive(Debug)]
pub(crate) struct List {
    oldest: u32,
    newest: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { oldest: NONE, newest: NONE };

    /// The key that came first.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Enters a key that is in no list, at the end; the entry's other fields keep their values. A timer
    /// that fires late may bring a key whose instant is before that of the last one; it
    /// counts from the same instant as that one, so that the first is always the oldest.
    #[inline]
    pub(crate) fn enter<'a, T: Linked>(
        &mut self,
        column: &'a mut Column<T>,
        slot: u32,
        mut since: Instant,
    ) -> &'a mut T {
        let newest = core::mem::replace(&mut self.newest, slot);
        if newest == NONE {
            self.oldest = slot;
        } else {
            let last = column.entry(newest).link();
            last.after = slot;
            since = since.max(last.since);
        }
        let entry = column.entry(slot);
        *entry.link() = Link { since, before: newest, after: NONE };
        entry
    }

    /// Takes out the key that has this link.
    #[inline]
    pub(crate) fn leave<T: Linked>(&mut self, column: &mut Column<T>, Link { before, after, .. }: Link) {
        if before == NONE {
            self.oldest = after;
        } else {
            column.entry(before).link().after = after;
        }
        if after == NONE {
            self.newest = before;
        } else {
            column.entry(after).link().before = before;
        }
    }
}
