//! How old keys are, and with `max_wait` which of them are overdue.
//!
//! An overdue key never takes another group's turn, so what fairness promises holds with `max_wait` too. Where
//! priorities count within groups, one of every few hand-outs of a group goes to its oldest overdue key. Otherwise
//! one of every few hand-outs of all goes to the level of the oldest overdue key that may be served, and there to the group whose
//! turn it is. Without priorities no key passes another one of its group, and nothing is overdue.
//!
//! Each group has a clock, which stands while the group is paused and goes by that of the group that it is in; the
//! outermost ones go by that of the queue. A key's age is what has passed on its group's clock.

use super::Fair;
use crate::Instant;
use crate::chain::{Link, Linked};
use crate::column::Column;
use crate::line::levels::rank;
use crate::line::overdue::AgeClock;
use alloc::collections::BTreeMap;

/// An instant, and a number that tells those of one instant apart.
pub(super) type When = (Instant, u64);

/// Per-key state of an aged line.
#[derive(Debug, Default)]
pub(super) struct Age {
    link: Link,
    /// Since when it is ready, by the clock of its group.
    since: Instant,
}

impl Linked for Age {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// Per-group state of a line with `max_wait`.
#[derive(Debug, Default)]
pub(super) struct Elders {
    /// Its keys in line, by since when they are ready; or the groups within it that may be served, by when the
    /// oldest key of each became ready. Both by this group's clock.
    all: BTreeMap<When, u32>,
    /// Where the group stands itself in the tree above.
    eldest: Option<When>,
    clock: AgeClock,
    /// Where priorities count within groups: how many of its keys are handed out by priority before the next one that is
    /// overdue. It begins anew when no key of it is in line.
    before_overdue: u32,
}

impl<K> Fair<K> {
    /// The key that has stood in line longest. Only a line that is aged knows it.
    pub(in crate::line) fn oldest(&self) -> Option<u32> {
        self.ages.oldest()
    }

    /// The clock by which the outermost groups go.
    pub(in crate::line) fn age_clock(&mut self) -> &mut AgeClock {
        &mut self.clock
    }

    /// The time on a group's clock when the queue's shows this. Of no group it is the queue's.
    fn clock_of(&self, tier: usize, number: u32, shown: Instant) -> Instant {
        let Some(group) = self.known_group(tier, number) else { return shown };
        let outer = if tier > 0 { self.clock_of(tier - 1, group.within, shown) } else { shown };
        self.tiers[tier].elders.get(number).map_or(outer, |elders| elders.clock.at(outer))
    }

    /// A group is paused, or no longer so: its clock stops, or goes on.
    pub(super) fn pause_clock(&mut self, tier: usize, number: u32, now: Instant, paused: bool) {
        if self.rules.max_wait.is_none() {
            return;
        }
        let (group, shown) = (self.group(tier, number).within, self.clock.at(now));
        let outer = if tier > 0 { self.clock_of(tier - 1, group, shown) } else { shown };
        let clock = &mut self.tiers[tier].elders.entry(number).clock;
        if paused { clock.stop(outer) } else { clock.go_on(outer) }
    }

    /// The level to which this hand-out goes if it goes to an overdue key. A key is handed out now.
    #[inline]
    pub(super) fn overdue_level(&mut self, now: Instant) -> Option<u32> {
        let max_wait = self.rules.max_wait.filter(|_| !self.rules.within)?;
        if self.before_overdue > 0 {
            self.before_overdue -= 1;
            return None;
        }
        let (&(since, _), &at) = self.elders.first_key_value()?;
        if !max_wait.is(since, self.clock.at(now)) {
            return None;
        }
        let oldest_in =
            |elders: &Column<Elders>, at| elders.get(at)?.all.first_key_value().map(|(_, at)| *at);
        let slot = self.tiers.iter().try_fold(at, |at, tier| oldest_in(&tier.elders, at))?;
        self.before_overdue = max_wait.between;
        Some(rank(self.pending(slot)))
    }

    /// The oldest key of an innermost group, if it is overdue and this hand-out, which is one of the group, goes
    /// to such a key.
    #[inline]
    pub(super) fn overdue_within(&mut self, group: u32, now: Instant) -> Option<u32> {
        let max_wait = self.rules.max_wait.filter(|_| self.rules.within)?;
        let tier = self.innermost();
        let elders = self.tiers[tier].elders.get_mut(group)?;
        if elders.before_overdue > 0 {
            elders.before_overdue -= 1;
            return None;
        }
        let (&(since, _), &oldest) = elders.all.first_key_value()?;
        if !max_wait.is(since, self.clock_of(tier, group, self.clock.at(now))) {
            return None;
        }
        self.tiers[tier].elders.entry(group).before_overdue = max_wait.between;
        Some(oldest)
    }

    /// A key has entered the line.
    #[inline(never)]
    pub(super) fn age(&mut self, slot: u32, group: u32, since: Instant) {
        let since = self.ages.enter(&mut self.links, slot, self.clock.at(since)).link.since;
        if self.rules.max_wait.is_some() {
            let since = self.clock_of(self.innermost(), group, since);
            self.links.entry(slot).since = since;
            self.age_in_group((since, self.entered(slot)), group, Some(slot));
        }
    }

    /// A key has left the line.
    #[inline(never)]
    pub(super) fn forget_age(&mut self, slot: u32, group: u32) {
        let Some(&Age { link, since }) = self.links.get(slot) else { return };
        self.ages.leave(&mut self.links, link);
        if self.rules.max_wait.is_some() {
            self.age_in_group((since, self.entered(slot)), group, None);
        }
    }

    /// A key has entered its group, or one has left it.
    fn age_in_group(&mut self, when: When, group: u32, enters: Option<u32>) {
        let tier = self.innermost();
        let elders = self.tiers[tier].elders.entry(group);
        match enters {
            Some(slot) => _ = elders.all.insert(when, slot),
            None => {
                elders.all.remove(&when);
                if elders.all.is_empty() {
                    elders.before_overdue = 0;
                }
            }
        }
        self.eldest_changed(tier, group);
    }

    /// Updates the age under which the tree above stores this group. Where priorities count within groups nobody
    /// looks at the trees above.
    pub(super) fn eldest_changed(&mut self, tier: usize, number: u32) {
        if self.rules.within {
            return;
        }
        let group = self.group(tier, number);
        let (within, shut) = (group.within, group.is_shut());
        let elders = self.tiers[tier].elders.entry(number);
        let first = elders.all.first_key_value().filter(|_| !shut);
        let eldest = first.map(|(&(since, entered), _)| (elders.clock.was(since), entered));
        let before = core::mem::replace(&mut elders.eldest, eldest);
        if before == eldest {
            return;
        }
        let above =
            if tier == 0 { &mut self.elders } else { &mut self.tiers[tier - 1].elders.entry(within).all };
        if let Some(before) = before {
            above.remove(&before);
        }
        if let Some(eldest) = eldest {
            above.insert(eldest, number);
        }
        if tier > 0 {
            self.eldest_changed(tier - 1, within);
        }
    }
}
