//! Groups with a rate (rule B6): one without a token is held back until the next is due.
//!
//! A group whose last key goes is known until its bucket is full; after that it may be forgotten, because a
//! new group starts with a full bucket too. If it were forgotten before, groups that leave and come back would have
//! more than their rate.

use super::Fair;
use crate::Instant;
use crate::line::rate::Bucket;

impl<K> Fair<K> {
    /// Whether groups have rates.
    pub(crate) fn is_rated(&self) -> bool {
        self.rated
    }

    /// A key of this group was handed out: takes a token of it, and of those that it is in.
    #[cold]
    pub(super) fn charge(&mut self, tier: usize, number: u32, now: Instant) {
        let within = self.group(tier, number).within;
        if tier > 0 {
            self.charge(tier - 1, within, now);
        }
        let Some(bucket) = self.rest(tier, number).bucket.as_deref_mut() else { return };
        bucket.take(now);
        if let Some(next) = bucket.next(now) {
            self.turn += 1;
            self.dry.insert((next, self.turn), (tier, number));
            self.hold_back(tier, number, |rest| rest.dry = true);
        }
    }

    /// Time has passed: groups whose token is there may be served again, by instant, then by who
    /// came to be without one first. `most` of them; true if some are left.
    pub(in crate::line) fn refill(&mut self, now: Instant, most: usize) -> bool {
        // without a rate all of them have waited for long enough
        self.now = if self.rated { now } else { Instant::NEVER };
        for _ in 0..most {
            let is_due = |(at, _): &(Instant, u64)| *at <= self.now;
            if let Some(entry) = self.dry.first_entry().filter(|entry| is_due(entry.key())) {
                let (tier, number) = entry.remove();
                self.hold_back(tier, number, |rest| rest.dry = false);
            } else if let Some(entry) = self.filling.first_entry().filter(|entry| is_due(entry.key())) {
                let (tier, number) = entry.remove();
                self.rest(tier, number).filling = false;
                if self.group(tier, number).known == 0 {
                    self.drop_group(tier, number);
                }
            } else {
                return false;
            }
        }
        true
    }

    /// The last key of a group has gone: whether the group is known until its bucket is full.
    #[cold]
    pub(super) fn keeps_bucket(&mut self, tier: usize, number: u32) -> bool {
        let now = self.now;
        let rest = self.rest(tier, number);
        let Some(full) = rest.bucket.as_deref().map(Bucket::full_at).filter(|full| *full > now) else {
            return rest.filling;
        };
        if !core::mem::replace(&mut rest.filling, true) {
            self.turn += 1;
            self.filling.insert((full, self.turn), (tier, number));
        }
        true
    }

    /// When the next group has a token again.
    pub(crate) fn next_group(&self) -> Option<Instant> {
        self.dry.first_key_value().map(|((at, _), _)| *at)
    }

    /// When the groups of this key have a token again, if one of them has none.
    pub(crate) fn group_token(&self, slot: u32, now: Instant) -> Option<Instant> {
        let mut at = self.group_of(slot);
        let groups = (0..self.tiers.len()).rev().map_while(|tier| {
            let (group, rest) = self.known_group(tier, at).zip(self.known_rest(tier, at))?;
            at = group.within;
            let bucket = rest.bucket.as_deref().filter(|_| self.rated && rest.dry);
            Some(bucket.and_then(|bucket| bucket.next(now)))
        });
        groups.flatten().max()
    }

    /// Groups have no rates from now on; false if they had none.
    pub(in crate::line) fn lift_rates(&mut self) -> bool {
        core::mem::replace(&mut self.rated, false)
    }
}
