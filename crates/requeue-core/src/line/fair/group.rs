//! Which groups there are: they come with their first key, and go with their last.

use super::age::Elders;
use super::keys::Seat;
use super::node::Party;
use super::{Fair, NONE};
use crate::column::Column;
use crate::line::groups::{Named, Naming, Ruled};
use crate::line::levels::rank;
use crate::line::rate::Bucket;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use core::num::NonZeroU64;

/// A group while keys of it are known: what each key of it touches.
#[derive(Debug, Default)]
#[repr(C)] // see `Party`
pub(super) struct Group {
    /// The group of the tier above that it is in.
    pub(super) within: u32,
    pub(super) weight: u32,
    /// How many of its keys may be held, and how many are. `cap` is 0 while it is held back, and
    /// [`Rest::most`] otherwise, so that one comparison with `held` covers caps, pauses and rates.
    pub(super) cap: u32,
    pub(super) held: u32,
    /// How many keys of it are known, or groups within it; one more while it is paused.
    pub(super) known: u32,
    /// Its keys in line.
    pub(super) ready: u32,
}

/// What is seldom asked of a group.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// What its cap is while it is not held back.
    pub(super) most: u32,
    /// The number of its pause, if it is paused.
    pub(super) paused: Option<NonZeroU64>,
    /// Its tokens, if it has a rate.
    pub(super) bucket: Option<Box<Bucket>>,
    /// It has no token.
    pub(super) dry: bool,
    /// It is to be looked at once its bucket is full: no key of it may be known.
    pub(super) filling: bool,
    /// Its keys in line that a group within it shuts out.
    pub(super) shut_out: u32,
    /// Its ready keys that do not stand in line.
    pub(super) aside: u32,
    /// The node that it always has.
    pub(super) node: u32,
}

impl Group {
    /// A key of it that may be served goes, and is held. Returns whether the group has come to its cap.
    #[inline(always)]
    pub(super) fn serves(&mut self) -> bool {
        self.ready -= 1;
        self.held += 1;
        self.is_shut()
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
        self.dry || self.paused.is_some()
    }
}

pub(super) struct Tier<K> {
    pub(super) naming: Box<dyn Naming<K>>,
    /// Those of the innermost tier stand [elsewhere](super::node::Nodes).
    pub(super) groups: Column<Group>,
    pub(super) rests: Column<Rest>,
    /// With `max_wait`.
    pub(super) elders: Column<Elders>,
    /// What metrics call them; nothing is written where they call none.
    pub(super) shown: Column<Option<Arc<str>>>,
}

impl<K> Tier<K> {
    pub(super) fn new(naming: Box<dyn Naming<K>>) -> Self {
        Self {
            naming,
            groups: Column::new(),
            rests: Column::new(),
            elders: Column::new(),
            shown: Column::new(),
        }
    }
}

impl<K> Fair<K> {
    /// A key becomes known. Users' code: if it panics nothing has changed, but for what the next
    /// call sets right.
    pub(crate) fn know(&mut self, slot: u32, key: &K) {
        let group = self.name(key);
        let tier = self.innermost();
        self.group(tier, group).known += 1;
        self.half = None;
        *self.seats.entry(slot) = Seat(group);
    }

    /// The number of the group of a key that becomes known: it has yet to count there. Users' code, as
    /// above.
    #[inline(always)]
    pub(in crate::line) fn name(&mut self, key: &K) -> u32 {
        if self.half.is_some() {
            self.drop_half();
        }
        let mut within = NONE;
        for tier in 0..self.innermost() {
            within = self.know_group(tier, key, within);
        }
        self.know_group(self.innermost(), key, within)
    }

    /// The same of a key that is likely to become known, if the last one did. Asks for the group's memory.
    #[inline(always)]
    pub(crate) fn foresee(&mut self, key: &K) -> Option<u32> {
        if !self.expects_new {
            return None;
        }
        let group = self.name(key);
        self.nodes.prefetch(group);
        Some(group)
    }

    /// A key was added that is known already. If its group was [foreseen](Self::foresee) and made for it,
    /// because a function of users' tells another one now, that goes with the next call.
    #[inline]
    pub(crate) fn was_known(&mut self) {
        self.expects_new = false;
    }

    /// The number of the key's group in this tier, which is made if it is not known.
    #[inline]
    fn know_group(&mut self, tier: usize, key: &K, within: u32) -> u32 {
        let Named { number, new } = self.tiers[tier].naming.name(key, within);
        if new {
            self.make_group(tier, number, within);
        }
        number
    }

    #[cold]
    pub(super) fn drop_half(&mut self) {
        if let Some((tier, group)) = self.half.take() {
            self.drop_group(tier, group);
        }
    }

    #[inline(never)]
    pub(super) fn make_group(&mut self, tier: usize, number: u32, within: u32) {
        let Ruled { weight, cap, shown, rate } = self.tiers[tier].naming.rules_of_the_last();
        let innermost = tier == self.innermost();
        let nodes = &mut self.nodes;
        let node = if innermost { nodes.make_own(number) } else { nodes.make_other(number, rank(0)) };
        let bucket = rate.filter(|_| self.rated).map(|rate| Box::new(Bucket::new(rate)));
        *self.group(tier, number) = Group { within, weight, cap, ..Group::default() };
        *self.rest(tier, number) = Rest { most: cap, bucket, node, ..Rest::default() };
        let above = if tier > 0 {
            self.group(tier - 1, within).known += 1;
            self.tiers[tier - 1].shown.get(within).cloned().flatten()
        } else {
            None
        };
        if let Some(shown) = shown {
            let shown = above.map_or(shown.clone(), |above| format!("{above}/{shown}").into());
            *self.tiers[tier].shown.entry(number) = Some(shown);
        }
        self.half = Some((tier, number));
    }

    /// The key will be known no more: returns what [`forget`](Self::forget) wants.
    pub(crate) fn take_group(&mut self, slot: u32) -> Option<u32> {
        let seat = core::mem::take(self.seats.get_mut(slot)?);
        Some(seat.0).filter(|group| *group != NONE)
    }

    /// A key of this group is known no more. The group goes with its last key.
    pub(crate) fn forget(&mut self, group: u32) {
        let tier = self.innermost();
        let Group { known, .. } = self.group(tier, group);
        *known -= 1;
        if *known == 0 {
            self.drop_group(tier, group);
        }
    }

    /// The last run of a key ends, which will be known no more. Returns its group if it goes with the
    /// key: then [`drop_innermost`](Self::drop_innermost) is to be called
    /// once nobody knows the key any more.
    #[inline]
    pub(crate) fn ended_for_good(&mut self, slot: u32, group: Option<u32>) -> Option<u32> {
        let number = group.unwrap_or_else(|| self.group_of(slot));
        let Party { group, .. } = self.nodes.party(number)?;
        let mut opens = group.is_shut();
        group.held -= 1;
        group.known -= 1;
        let (within, goes) = (group.within, group.known == 0);
        if within != NONE {
            opens |= self.ended_outer(within);
        }
        if opens {
            self.open_what_has_room(self.innermost(), number);
        }
        goes.then_some(number)
    }

    /// What [`ended_for_good`](Self::ended_for_good) returned goes.
    #[inline(never)]
    pub(crate) fn drop_innermost(&mut self, group: u32) {
        self.drop_group(self.innermost(), group);
    }

    #[inline(never)]
    pub(super) fn drop_group(&mut self, tier: usize, number: u32) {
        if (self.rated || self.rest(tier, number).filling) && self.keeps_bucket(tier, number) {
            return;
        }
        let Group { within, .. } = core::mem::take(self.group(tier, number));
        let Rest { node, .. } = core::mem::take(self.rest(tier, number));
        self.nodes.free(node);
        let innermost = tier == self.innermost();
        let (Tier { naming, groups, rests, elders, shown }, nodes) = (&mut self.tiers[tier], &mut self.nodes);
        shown.take(number);
        elders.take(number);
        naming.forget(number, &mut |chunk| {
            rests.free_page(chunk);
            elders.free_page(chunk);
            shown.free_page(chunk);
            if innermost {
                nodes.free_page(chunk);
            } else {
                groups.free_page(chunk);
            }
        });
        if tier > 0 {
            let outer = self.group(tier - 1, within);
            outer.known -= 1;
            if outer.known == 0 {
                self.drop_group(tier - 1, within);
            }
        }
    }
}
