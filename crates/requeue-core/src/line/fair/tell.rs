//! What metrics are told: how many keys of each level are ready, and of each group.

use super::{Fair, NONE};
use crate::arena::CHUNK;
use crate::line::levels::{RANKS, level_of, rank};
use crate::line::tell::{GroupGauges, PAGE};
use alloc::vec::Vec;

impl<K> Fair<K> {
    /// A ready key that has this level came to stand, or ceased to stand, where nothing takes it
    /// from.
    pub(in crate::line) fn set_aside(&mut self, slot: u32, by: i32) {
        let (mut at, pending) = (self.group_of(slot), self.pending(slot));
        for tier in (0..self.tiers.len()).rev() {
            if at == NONE {
                break;
            }
            let rest = self.rest(tier, at);
            rest.aside = rest.aside.wrapping_add_signed(by);
            at = self.group(tier, at).within;
        }
        if self.counts_depths {
            self.count_depth(pending, by);
        }
    }

    /// There are metrics, so that the ready keys of each level are counted.
    pub(crate) fn counts_depths(&mut self) {
        self.counts_depths = self.rules.priorities;
    }

    /// A key more or less is ready at this level.
    pub(super) fn count_depth(&mut self, level: i16, by: i32) {
        let depth = self.depths.entry(rank(level));
        *depth = depth.wrapping_add_signed(by);
    }

    /// The levels from this rank on at which keys are ready, `most` or fewer, and how many; returns
    /// where the next page begins.
    pub(in crate::line) fn depths(
        &self,
        from: u32,
        most: usize,
        into: &mut Vec<(i16, usize)>,
    ) -> Option<u32> {
        let (mut rank, end) = (from, into.len() + most);
        while rank < RANKS {
            match self.depths.get(rank) {
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

    /// The groups of a tier that have a name, from this number on, as far as one lock hold looks;
    /// and where the next page begins.
    pub(crate) fn told_groups(
        &self,
        (tier, from): (usize, u32),
        into: &mut Vec<GroupGauges>,
    ) -> Option<(usize, u32)> {
        let at = self.tiers.get(tier)?;
        let end = if at.naming.is_shown() { at.naming.numbers() } else { 0 };
        let to = from.saturating_add(PAGE);
        for number in from..end.min(to) {
            let Some(name) = at.shown.get(number).and_then(Option::as_ref) else { continue };
            let known = self.known_group(tier, number).zip(self.known_rest(tier, number));
            let Some((group, rest)) = known else { continue };
            into.push(GroupGauges {
                tier,
                name: name.clone(),
                ready: (group.ready + rest.aside) as usize,
                held: group.held as usize,
            });
        }
        Some(if to < end { (tier, to) } else { (tier + 1, 0) }).filter(|(tier, _)| *tier < self.tiers.len())
    }
}
