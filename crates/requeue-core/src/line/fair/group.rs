//! The groups that there are: they come with their first key, and go with their last.

use super::{Fair, NONE};
use crate::Instant;
use crate::line::groups::{Named, Ruled};
use crate::line::rate::Bucket;
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

/// State of a group, while keys of it are known, that each of its keys touches.
#[derive(Debug, Default)]
#[repr(C)] // see `GroupEntry`
pub(super) struct Group {
    pub(super) weight: u32,
    /// How many of its keys may be held, and how many are. `cap` is 0 while it is held back, and
    /// [`Rest::most`] otherwise, so that one comparison with `held` covers caps, pauses and rates.
    pub(super) cap: u32,
    pub(super) held: u32,
    /// How many keys of it are known; one more while it is paused.
    pub(super) known: u32,
    /// Its keys in line.
    pub(super) ready: u32,
}

/// State of a group that is seldom asked for.
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
    /// It is to be looked at once its bucket is full: no key of it may be known.
    pub(super) filling: bool,
    /// Its ready keys that are paused, and do not stand in line.
    pub(super) paused_ready: u32,
}

impl Group {
    /// A key of it goes in its turn, and is held. Returns whether the group has come to its cap.
    #[inline]
    pub(super) fn serves(&mut self) -> bool {
        self.ready -= 1;
        self.held += 1;
        self.is_shut()
    }

    /// A run of one of its keys ends. Returns whether the group has left its cap.
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
    /// Whether something but its cap keeps its keys from being handed out.
    pub(super) fn is_held_back(&self) -> bool {
        self.dry.is_some() || self.paused.is_some()
    }
}

impl<K> Fair<K> {
    /// A key becomes known. Users' code: if it panics nothing has changed, but for what the next
    /// call sets right.
    pub(crate) fn know(&mut self, slot: u32, key: &K) {
        let number = self.name(key);
        self.nodes.group(number).known += 1;
        self.half = None;
        *self.groups_of.entry(slot) = GroupOf(number);
    }

    /// The number of the group of a key that becomes known: it has yet to count there. Users' code, as
    /// above.
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

    /// The group of a key that is likely to become known, if the last one did. Asks for the group's memory.
    #[inline]
    pub(crate) fn prefetch_group(&mut self, key: &K) -> Option<u32> {
        if !self.expects_new {
            return None;
        }
        let number = self.name(key);
        self.nodes.prefetch(number);
        Some(number)
    }

    /// A key was added that is known already. If its group was made for it by
    /// [`prefetch_group`](Self::prefetch_group), because a function of users' tells another one now, that goes with the
    /// next call.
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

    /// The key will be known no more: returns what [`forget`](Self::forget) wants.
    pub(crate) fn take_group(&mut self, slot: u32) -> Option<u32> {
        let of = core::mem::take(self.groups_of.get_mut(slot)?);
        Some(of.0).filter(|group| *group != NONE)
    }

    /// A key of this group is known no more. The group goes with its last key.
    pub(crate) fn forget(&mut self, number: u32) {
        let group = self.nodes.group(number);
        group.known -= 1;
        if group.known == 0 {
            self.drop_group(number);
        }
    }

    /// The run of a key has ended.
    pub(crate) fn ended(&mut self, slot: u32) {
        let number = self.group_of(slot);
        if self.nodes.of_group(number).is_some_and(|entry| entry.group.ends()) {
            self.shut_or_open(number, false);
        }
    }

    /// The last run of a key ends, which will be known no more. Returns its group if it goes with the
    /// key: then [`drop_group`](Self::drop_group) is to be called once nobody knows the key any more.
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
