//! The oldest key: of all in line, and with `max_wait` of those that may be served.

use super::Fair;
use crate::Instant;
use crate::chain::{Link, Linked};

/// A key in the list by age, which there is with `max_wait`.
#[derive(Debug, Default)]
pub(super) struct Age(pub(super) Link);

impl Linked for Age {
    fn link(&mut self) -> &mut Link {
        &mut self.0
    }
}

impl<K> Fair<K> {
    /// The key that has stood in line longest. Only a line that is aged knows it.
    pub(in crate::line) fn oldest(&self) -> Option<u32> {
        self.ages.oldest()
    }

    /// The oldest key of those that may be served, if it has been ready for so long that it goes
    /// before all others.
    pub(super) fn overdue(&self, now: Instant) -> Option<u32> {
        let max_wait = self.rules.max_wait?;
        let (_, mut at) = self.elders.first_key_value()?;
        for tier in &self.tiers {
            (_, at) = tier.elders.get(*at)?.all.first_key_value()?;
        }
        let since = self.links.get(*at)?.0.since;
        (now.saturating_since(since) >= max_wait).then_some(*at)
    }

    /// A key has entered the line.
    #[inline(never)]
    pub(super) fn age(&mut self, slot: u32, group: u32, since: Instant) {
        self.ages.enter(&mut self.links, slot, since);
        self.age_in_group(slot, group, true);
    }

    /// A key has left the line.
    #[inline(never)]
    pub(super) fn forget_age(&mut self, slot: u32, group: u32) {
        if let Some(&Age(link)) = self.links.get(slot) {
            self.ages.leave(&mut self.links, link);
        }
        self.age_in_group(slot, group, false);
    }

    /// A key has entered its group, or has left it.
    fn age_in_group(&mut self, slot: u32, group: u32, enters: bool) {
        if self.rules.max_wait.is_none() {
            return;
        }
        let entered = self.entered(slot);
        let tier = self.innermost();
        let elders = &mut self.tiers[tier].elders.entry(group).all;
        if enters {
            elders.insert(entered, slot);
        } else {
            elders.remove(&entered);
        }
        self.eldest_changed(tier, group);
    }

    /// Updates the age under which the outer tree stores this group.
    pub(super) fn eldest_changed(&mut self, tier: usize, number: u32) {
        let group = self.group(tier, number);
        let (within, shut) = (group.within, group.is_shut());
        let elders = self.tiers[tier].elders.entry(number);
        let eldest = elders.all.first_key_value().map(|(entered, _)| *entered).filter(|_| !shut);
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
