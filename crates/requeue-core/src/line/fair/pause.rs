//! Groups that are paused (rule B7): none of their keys is handed out.
//!
//! A group that is paused is known until it is resumed, although it may have no keys: its pause
//! counts as one of them.

use super::{Fair, NONE};
use crate::Instant;
use crate::line::groups::Named;
use core::num::NonZeroU64;

impl<K> Fair<K> {
    /// The number of the key's group in this tier, if it is known. Users' code; nothing changes.
    fn find(&self, key: &K, tier: usize) -> Option<u32> {
        let tiers = self.tiers.get(..=tier)?;
        tiers.iter().try_fold(NONE, |within, tier| tier.naming.find(key, within))
    }

    /// Whether the key's group in this tier is paused. Users' code; nothing changes.
    pub(crate) fn is_group_paused(&self, key: &K, tier: usize) -> bool {
        let rest = self.find(key, tier).and_then(|number| self.known_rest(tier, number));
        rest.is_some_and(|rest| rest.paused.is_some())
    }

    /// Whether a group of a key that is known is paused.
    pub(crate) fn is_in_paused_group(&self, slot: u32) -> bool {
        let mut at = self.group_of(slot);
        let groups = (0..self.tiers.len()).rev().map_while(|tier| {
            let (group, rest) = self.known_group(tier, at).zip(self.known_rest(tier, at))?;
            at = group.within;
            Some(rest.paused.is_some())
        });
        groups.fold(false, |paused, this| paused | this)
    }

    /// Pauses the key's group in this tier; false if there is no such tier. Users' code: if it panics
    /// nothing has changed, but for what the next call sets right.
    pub(crate) fn pause_group(&mut self, key: &K, tier: usize, now: Instant) -> bool {
        if tier >= self.tiers.len() {
            return false;
        }
        if self.half.is_some() {
            self.drop_half();
        }
        let mut number = NONE;
        for tier in 0..=tier {
            let within = number;
            let Named { number: found, new } = self.tiers[tier].naming.name(key, within);
            if new {
                self.make_group(tier, found, within);
            }
            number = found;
        }
        self.half = None;
        if self.rest(tier, number).paused.is_none() {
            self.group(tier, number).known += 1;
            let pause = self.next_pause;
            self.next_pause = pause.saturating_add(1);
            self.paused.insert(pause, (tier, number));
            self.pause_clock(tier, number, now, true);
            self.hold_back(tier, number, |rest| rest.paused = Some(pause));
        }
        true
    }

    /// Lifts the pause of the key's group in this tier; false if it was not paused. Users' code: if it
    /// panics nothing has changed.
    pub(crate) fn resume_group(&mut self, key: &K, tier: usize, now: Instant) -> bool {
        let Some(number) = self.find(key, tier) else { return false };
        let Some(pause) = self.rest(tier, number).paused else { return false };
        self.lift_group(pause, now);
        true
    }

    /// Lifts the pause of the group that was paused first; false if none is paused.
    pub(crate) fn lift_first_group(&mut self, now: Instant) -> bool {
        let first = self.paused.first_key_value().map(|(pause, _)| *pause);
        first.map(|pause| self.lift_group(pause, now)).is_some()
    }

    fn lift_group(&mut self, pause: NonZeroU64, now: Instant) {
        let Some((tier, number)) = self.paused.remove(&pause) else { return };
        self.pause_clock(tier, number, now, false);
        self.hold_back(tier, number, |rest| rest.paused = None);
        let group = self.group(tier, number);
        group.known -= 1;
        if group.known == 0 {
            self.drop_group(tier, number);
        }
    }

    /// Whether any group is paused.
    pub(in crate::line) fn has_paused_groups(&self) -> bool {
        !self.paused.is_empty()
    }
}
