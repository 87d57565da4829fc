//! Lists of keys in the order of some event, with the oldest at hand and any of them removable: linked
//! through a column.

use crate::column::Column;
use crate::time::Instant;

/// No slot: the end of a list.
const NONE: u32 = u32::MAX;

/// Links of a key in a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// When it entered the list.
    pub(crate) since: Instant,
    before: u32,
    after: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self { since: Instant::ORIGIN, before: NONE, after: NONE }
    }
}

/// A column entry that has a link. It is in at most one list.
pub(crate) trait Linked: Default {
    fn link(&mut self) -> &mut Link;
}

impl Linked for Link {
    #[inline]
    fn link(&mut self) -> &mut Link {
        self
    }
}

/// Keys in the order in which they came.
#[derive(Debug)]
pub(crate) struct List {
    oldest: u32,
    newest: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { oldest: NONE, newest: NONE };

    /// The first key.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Appends a key that is in no list; the entry's other fields keep their values. A timer that fires late
    /// may bring a key with an earlier instant than the last one's; it then gets the last one's instant, so
    /// that the first key is always the oldest.
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

    /// Removes the key that has this link.
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
