//! The known groups: each is created with its first key, and removed with its last.

use super::{Fair, NONE};
use crate::line::groups::{Named, Ruled};
use crate::line::rate::Bucket;
use crate::time::Instant;
use alloc::boxed::Box;
use core::num::NonZeroU64;

/// The group of a key, while the key is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupOf(pub(super) u32);

impl Default for GroupOf {
    fn default() -> Self {
        Self(NONE)
    }
}

/// State of a group that is touched for each of its keys.
#[derive(Debug, Default)]
#[repr(C)] // see `GroupEntry`
pub(super) struct Group {
    pub(super) weight: u32,
    /// Maximum number of its keys that may be held, and the number that are. `cap` is 0 while the group is
    /// held back, and [`Rest::most`] otherwise, so that one comparison with `held` covers caps, pauses and
    /// rates.
    pub(super) cap: u32,
    pub(super) held: u32,
    /// Number of its known keys; one more while it is paused.
    pub(super) known: u32,
    /// Number of its keys in line.
    pub(super) ready: u32,
}

/// State of a group that is seldom used.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Its cap while it is not held back.
    pub(super) most: u32,
    /// The number of its pause, if it is paused.
    pub(super) paused: Option<NonZeroU64>,
    /// Its tokens, if it has a rate.
    pub(super) bucket: Option<Box<Bucket>>,
    /// Its place in [`Fair::dry`](super::Fair::dry), if it has no token.
    pub(super) dry: Option<(Instant, u64)>,
    /// The group is to be looked at when its bucket is full: it may have no key by then.
    pub(super) filling: bool,
    /// Number of its ready keys that are paused, and so not in line.
    pub(super) paused_ready: u32,
}

impl Group {
    /// Counts a key as handed out. Returns whether the group has reached its cap.
    #[inline]
    pub(super) fn serves(&mut self) -> bool {
        self.ready -= 1;
        self.held += 1;
        self.is_shut()
    }

    /// Counts the end of a run. Returns whether the group has left its cap.
    #[inline]
    fn ends(&mut self) -> bool {
        self.held -= 1;
        self.held + 1 == self.cap
    }

    /// Whether none of its keys may be handed out now.
    #[inline]
    pub(super) fn is_shut(&self) -> bool {
        self.held >= self.cap
    }
}

impl Rest {
    /// Whether a pause or its rate keeps its keys from being handed out.
    pub(super) fn is_held_back(&self) -> bool {
        self.dry.is_some() || self.paused.is_some()
    }
}

impl<K> Fair<K> {
    /// Counts a key that becomes known in its group. Calls user code. If it panics, nothing has changed,
    /// except what the next call repairs.
    pub(crate) fn know(&mut self, slot: u32, key: &K) {
        let number = self.name(key);
        self.nodes.group(number).known += 1;
        self.half = None;
        *self.groups_of.entry(slot) = GroupOf(number);
    }

    /// The number of the group of a key that becomes known, which does not count the key yet. Calls user
    /// code. If it panics, nothing has changed, except what the next call repairs.
    #[inline]
    pub(crate) fn name(&mut self, key: &K) -> u32 {
        if self.half.is_some() {
            self.drop_half();
        }
        let Named { number, new } = self.naming.name(key);
        if new {
            self.make_group(number);
        }
        number
    }

    /// The group of a key that is likely to become known, if the last one did. Prefetches the group's memory.
    #[inline]
    pub(crate) fn prefetch_group(&mut self, key: &K) -> Option<u32> {
        if !self.expects_new {
            return None;
        }
        let number = self.name(key);
        self.nodes.prefetch(number);
        Some(number)
    }

    /// Notes that an added key was known already. If [`prefetch_group`](Self::prefetch_group) made a group
    /// for it, because the user's function now returns another group, the next call removes that group.
    #[inline]
    pub(crate) fn was_known(&mut self) {
        self.expects_new = false;
    }

    pub(super) fn drop_half(&mut self) {
        if let Some(number) = self.half.take() {
            self.drop_group(number);
        }
    }

    pub(super) fn make_group(&mut self, number: u32) {
        let Ruled { weight, cap, shown, rate } = self.naming.rules_of_the_last();
        let bucket = rate.filter(|_| self.rated).map(|rate| Box::new(Bucket::new(rate)));
        self.nodes.make_group(number, Group { weight, cap, ..Group::default() });
        *self.rests.entry(number) = Rest { most: cap, bucket, ..Rest::default() };
        if shown.is_some() {
            *self.shown.entry(number) = shown;
        }
        self.half = Some(number);
    }

    /// Takes the group of a key that is to be forgotten, for [`forget`](Self::forget).
    pub(crate) fn take_group(&mut self, slot: u32) -> Option<u32> {
        let of = core::mem::take(self.groups_of.get_mut(slot)?);
        Some(of.0).filter(|group| *group != NONE)
    }

    /// Counts a forgotten key of this group. The group is removed with its last key.
    pub(crate) fn forget(&mut self, number: u32) {
        let group = self.nodes.group(number);
        group.known -= 1;
        if group.known == 0 {
            self.drop_group(number);
        }
    }

    /// Counts the end of a key's run in its group.
    pub(crate) fn ended(&mut self, slot: u32) {
        let number = self.group_of(slot);
        if self.nodes.of_group(number).is_some_and(|entry| entry.group.ends()) {
            self.shut_or_open(number, false);
        }
    }

    /// Counts the last run of a key that is to be forgotten. Returns its group if this was the group's last
    /// key: then [`drop_group`](Self::drop_group) must be called after the key was forgotten.
    #[inline]
    pub(crate) fn ended_for_good(&mut self, slot: u32, number: Option<u32>) -> Option<u32> {
        let number = number.unwrap_or_else(|| self.group_of(slot));
        let group = &mut self.nodes.of_group(number)?.group;
        let opens = group.ends();
        group.known -= 1;
        let goes = group.known == 0;
        if opens {
            self.shut_or_open(number, false);
        }
        goes.then_some(number)
    }

    pub(crate) fn drop_group(&mut self, number: u32) {
        if (self.rated || self.rests.entry(number).filling) && self.keeps_bucket(number) {
            return;
        }
        *self.nodes.group(number) = Group::default();
        self.rests.take(number);
        self.shown.take(number);
        let Self { naming, nodes, rests, shown, ages, .. } = self;
        if let Some(ages) = ages {
            ages.forget(number);
        }
        naming.forget(number, &mut |chunk| {
            rests.free_page(chunk);
            shown.free_page(chunk);
            nodes.free_page(chunk);
            if let Some(ages) = ages {
                ages.free_groups(chunk);
            }
        });
    }
}
