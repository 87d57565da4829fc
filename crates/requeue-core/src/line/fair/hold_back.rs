//! Caps on held keys (rule B3), pauses (rule B7) and rates (rule B6), which keep groups from being served.
//!
//! A group that may not be served is *shut*: it leaves the rings, and joins them at the back when it may be
//! served again.
//!
//! A paused group stays known until it is resumed, even without keys: its pause counts as one of them. A
//! group with a rate stays known after its last key until its bucket is full; then it may be forgotten,
//! because a new group starts with a full bucket too. If it were forgotten earlier, groups that leave and
//! come back would exceed their rate.

use super::Fair;
use super::group::Rest;
use crate::line::groups::{PAGE, Ruled};
use crate::line::rate::Bucket;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;

impl<K> Fair<K> {
    /// Applies `change` to a group, and shuts or opens the group if it is now held back or no longer.
    pub(super) fn hold_back(&mut self, number: u32, change: impl FnOnce(&mut Rest)) {
        let rest = self.rests.entry(number);
        change(rest);
        let cap = if rest.is_held_back() { 0 } else { rest.most };
        let group = self.nodes.group(number);
        let was_shut = group.is_shut();
        group.cap = cap;
        let shut = group.is_shut();
        if shut != was_shut {
            self.shut_or_open(number, shut);
        }
    }

    /// Shuts a group, so that it may not be served, or opens it again.
    pub(super) fn shut_or_open(&mut self, number: u32, shut: bool) {
        let ready = self.nodes.group(number).ready;
        if shut {
            self.servable -= ready as usize;
        } else {
            self.servable += ready as usize;
        }
        if ready > 0 {
            self.shut_or_open_node(number, shut);
            if !self.within {
                let others: Vec<u32> = self.nodes.others_of(number).collect();
                others.into_iter().for_each(|at| self.shut_or_open_node(at, shut));
            }
        }
        if let Some(ages) = &mut self.ages {
            ages.oldest_changed(number, shut);
        }
    }

    fn shut_or_open_node(&mut self, at: u32, shut: bool) {
        let Some(node) = self.nodes.get(at) else { return };
        // with priorities within groups, each group with a key is in the ring with its own node
        let stands = !shut && (self.within || !node.is_empty());
        match (node.in_ring, stands) {
            (true, false) => self.rings.part(&mut self.nodes, at),
            (false, true) => self.rings.join(&mut self.nodes, at),
            _ => {}
        }
    }

    /// Whether the key's group has as many keys held as it may.
    pub(crate) fn is_at_cap(&self, slot: u32) -> bool {
        let number = self.group_of(slot);
        let known = self.nodes.known_group(number).zip(self.rests.get(number));
        known.is_some_and(|(group, rest)| group.held >= rest.most)
    }

    /// Whether the key's group is paused. Calls user code, and changes nothing.
    pub(crate) fn is_group_paused(&self, key: &K) -> bool {
        let rest = self.naming.find(key).and_then(|number| self.rests.get(number));
        rest.is_some_and(|rest| rest.paused.is_some())
    }

    /// Whether the group of a key that is known is paused.
    pub(crate) fn is_in_paused_group(&self, slot: u32) -> bool {
        self.rests.get(self.group_of(slot)).is_some_and(|rest| rest.paused.is_some())
    }

    /// Pauses the key's group, at a time of the queue's [`AgeClock`](crate::line::overdue::AgeClock). Calls
    /// user code. If it panics, nothing has changed, except what the next call repairs.
    pub(crate) fn pause_group(&mut self, key: &K, now: Instant) {
        let number = self.name(key);
        self.half = None;
        if self.rests.entry(number).paused.is_none() {
            self.nodes.group(number).known += 1;
            let pause = self.next_pause;
            self.next_pause = pause.saturating_add(1);
            self.paused.insert(pause, number);
            if let Some(ages) = &mut self.ages {
                ages.pause(number, now, true);
            }
            self.hold_back(number, |rest| rest.paused = Some(pause));
        }
    }

    /// Lifts the pause of the key's group. Returns `false` if it was not paused. Calls user code. If it
    /// panics, nothing has changed.
    pub(crate) fn resume_group(&mut self, key: &K, now: Instant) -> bool {
        let rest = self.naming.find(key).and_then(|number| self.rests.get(number));
        let Some(pause) = rest.and_then(|rest| rest.paused) else { return false };
        self.lift_group(pause, now);
        true
    }

    /// Lifts the pause of the group that was paused first. Returns `false` if none is paused.
    pub(crate) fn lift_first_group(&mut self, now: Instant) -> bool {
        let first = self.paused.first_key_value().map(|(pause, _)| *pause);
        first.map(|pause| self.lift_group(pause, now)).is_some()
    }

    fn lift_group(&mut self, pause: NonZeroU64, now: Instant) {
        let Some(number) = self.paused.remove(&pause) else { return };
        if let Some(ages) = &mut self.ages {
            ages.pause(number, now, false);
        }
        self.hold_back(number, |rest| rest.paused = None);
        self.forget(number);
    }

    /// Whether any group is paused.
    pub(crate) fn has_paused_groups(&self) -> bool {
        !self.paused.is_empty()
    }

    /// Whether groups have rates.
    pub(crate) fn is_rated(&self) -> bool {
        self.rated
    }

    /// Takes a token of a group, of which a key was handed out.
    pub(super) fn charge(&mut self, number: u32, now: Instant) {
        let Some(bucket) = self.rests.entry(number).bucket.as_deref_mut() else { return };
        bucket.take(now);
        if let Some(next) = bucket.next(now) {
            self.dry_until(number, next);
        }
    }

    /// Holds a group back until it has a token, at `next`.
    fn dry_until(&mut self, number: u32, next: Instant) {
        self.turn += 1;
        let place = (next, self.turn);
        self.dry.insert(place, number);
        self.hold_back(number, |rest| rest.dry = Some(place));
    }

    /// Reads the rules of groups again, from this number on, as far as one lock hold looks. Returns the
    /// number at which the next page begins. Calls user code. If it panics, the groups before have their new
    /// rules.
    pub(crate) fn reload(&mut self, from: u32, now: Instant) -> Option<u32> {
        let (end, to) = (self.naming.numbers(), from.saturating_add(PAGE));
        for number in from..end.min(to) {
            if self.nodes.known_group(number).is_some() {
                if let Some(ruled) = self.naming.rules_of(number) {
                    self.rule(number, &ruled, now);
                }
            }
        }
        (to < end).then_some(to)
    }

    /// Gives a group these rules. It keeps its tokens, up to the new burst.
    fn rule(&mut self, number: u32, &Ruled { weight, cap, rate, .. }: &Ruled, now: Instant) {
        self.nodes.group(number).weight = weight;
        let rest = self.rests.entry(number);
        match (rest.bucket.as_deref_mut(), rate.filter(|_| self.rated)) {
            (Some(bucket), Some(rate)) => bucket.set(rate, now),
            (_, rate) => rest.bucket = rate.map(|rate| Box::new(Bucket::new(rate))),
        }
        let next = rest.bucket.as_deref().and_then(|bucket| bucket.next(now));
        if let Some(place) = rest.dry.take() {
            self.dry.remove(&place);
        }
        self.hold_back(number, |rest| rest.most = cap);
        if let Some(next) = next {
            self.dry_until(number, next);
        }
    }

    /// Opens at most `most` groups that have a token again, in the order of the tokens' instants, then of
    /// when they ran out. Returns `true` if some are left.
    pub(crate) fn refill(&mut self, now: Instant, most: usize) -> bool {
        // without a rate, all of them have waited long enough
        self.now = if self.rated { now } else { Instant::NEVER };
        for _ in 0..most {
            let is_due = |(at, _): &(Instant, u64)| *at <= self.now;
            if let Some(entry) = self.dry.first_entry().filter(|entry| is_due(entry.key())) {
                let number = entry.remove();
                self.hold_back(number, |rest| rest.dry = None);
            } else if let Some(entry) = self.filling.first_entry().filter(|entry| is_due(entry.key())) {
                let number = entry.remove();
                self.rests.entry(number).filling = false;
                if self.nodes.group(number).known == 0 {
                    self.drop_group(number);
                }
            } else {
                return false;
            }
        }
        true
    }

    /// Whether a group whose last key has gone stays known, until its bucket is full. Then it is looked at
    /// again.
    pub(super) fn keeps_bucket(&mut self, number: u32) -> bool {
        let now = self.now;
        let rest = self.rests.entry(number);
        let Some(full) = rest.bucket.as_deref().map(Bucket::full_at).filter(|full| *full > now) else {
            return rest.filling;
        };
        if !core::mem::replace(&mut rest.filling, true) {
            self.turn += 1;
            self.filling.insert((full, self.turn), number);
        }
        true
    }

    /// The instant at which the next group has a token again.
    pub(crate) fn next_group(&self) -> Option<Instant> {
        self.dry.first_key_value().map(|((at, _), _)| *at)
    }

    /// The instant at which the group of this key has a token again, if it has none.
    pub(crate) fn group_token(&self, slot: u32, now: Instant) -> Option<Instant> {
        let rest = self.rests.get(self.group_of(slot)).filter(|rest| self.rated && rest.dry.is_some())?;
        rest.bucket.as_deref()?.next(now)
    }

    /// Lifts the rates of groups. Returns `false` if they had none.
    pub(crate) fn lift_rates(&mut self) -> bool {
        core::mem::replace(&mut self.rated, false)
    }
}
