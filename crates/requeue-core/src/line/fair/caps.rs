//! What keeps a group from being served: as many of its keys are held as it may have at a time.

use super::group::{Group, Rest};
use super::node::Party;
use super::{Fair, NONE};
use alloc::vec::Vec;

impl<K> Fair<K> {
    /// Whether the key's group, or one that this is in, has as many keys held as it may.
    pub(crate) fn is_at_cap(&self, slot: u32) -> bool {
        let mut at = self.group_of(slot);
        let groups = (0..self.tiers.len()).rev().map_while(|tier| {
            let (group, rest) = self.known_group(tier, at).zip(self.known_rest(tier, at))?;
            at = group.within;
            Some(group.held >= rest.most)
        });
        groups.fold(false, |shut, this| shut | this)
    }

    /// The run of a key has ended.
    pub(in crate::line) fn ended(&mut self, slot: u32) {
        let number = self.group_of(slot);
        let Some(Party { group, .. }) = self.nodes.party(number) else { return };
        let mut opens = group.is_shut();
        group.held -= 1;
        let within = group.within;
        if within != NONE {
            opens |= self.ended_outer(within);
        }
        if opens {
            self.open_what_has_room(self.innermost(), number);
        }
    }

    /// The run of a key has ended that is in this group of the last but one tier. Returns whether a group
    /// was at its cap.
    #[inline(never)]
    pub(super) fn ended_outer(&mut self, mut at: u32) -> bool {
        let (mut opens, innermost) = (false, self.innermost());
        for tier in self.tiers[..innermost].iter_mut().rev() {
            let Some(group) = tier.groups.get_mut(at) else { break };
            opens |= group.is_shut();
            group.held -= 1;
            at = group.within;
        }
        opens
    }

    /// A run of this group has ended: of it, and of those that it is in, some have just left their
    /// caps. From outside to inside, so that each key is counted in once.
    #[inline(never)]
    pub(super) fn open_what_has_room(&mut self, tier: usize, number: u32) {
        let &mut Group { within, held, cap, .. } = self.group(tier, number);
        if tier > 0 {
            self.open_what_has_room(tier - 1, within);
        }
        if held + 1 == cap {
            self.shut_or_open(tier, number, false);
        }
    }

    /// A key of this group has left the line, and not for its turn.
    pub(super) fn count_out(&mut self, number: u32) {
        let Some(Party { group, .. }) = self.nodes.party(number) else { return };
        group.ready -= 1;
        let (within, open) = (group.within, !group.is_shut());
        self.count_outer(within, -1, open);
    }

    /// So many keys more or less of a group within this one, of the last but one tier, are in line; whether
    /// that group does not shut them out. Where there is no such tier this is only counted in all.
    #[inline(never)]
    pub(super) fn count_outer(&mut self, mut at: u32, by: i32, mut open: bool) {
        let innermost = self.innermost();
        for tier in self.tiers[..innermost].iter_mut().rev() {
            let Some(group) = tier.groups.get_mut(at) else { break };
            group.ready = group.ready.wrapping_add_signed(by);
            if !open {
                let shut_out = &mut tier.rests.entry(at).shut_out;
                *shut_out = shut_out.wrapping_add_signed(by);
            }
            open &= !group.is_shut();
            at = group.within;
        }
        if open {
            self.servable = self.servable.wrapping_add_signed(by as isize);
        }
    }

    /// Of this group, and of those that it is in, some have just come to their caps. From outside to
    /// inside, so that each key is counted out once.
    #[inline(never)]
    pub(super) fn shut_what_is_full(&mut self, tier: usize, number: u32) {
        let &mut Group { within, held, cap, .. } = self.group(tier, number);
        if tier > 0 {
            self.shut_what_is_full(tier - 1, within);
        }
        if held == cap {
            self.shut_or_open(tier, number, true);
        }
    }

    /// Something holds a group back, or ceases to, or its cap changes.
    pub(super) fn hold_back(&mut self, tier: usize, number: u32, change: impl FnOnce(&mut Rest)) {
        let rest = self.rest(tier, number);
        change(rest);
        let cap = if rest.is_held_back() { 0 } else { rest.most };
        let group = self.group(tier, number);
        let was_shut = group.is_shut();
        group.cap = cap;
        let shut = group.is_shut();
        if shut != was_shut {
            self.shut_or_open(tier, number, shut);
        }
    }

    /// A group has come to its cap, or has left it.
    #[inline(never)]
    fn shut_or_open(&mut self, tier: usize, number: u32, shut: bool) {
        let (own, &Group { ready, within, .. }) = (self.own_node(tier, number), &*self.group(tier, number));
        // nothing is within an innermost one
        let shut_out = if tier == self.innermost() { 0 } else { self.rest(tier, number).shut_out };
        let keys = ready - shut_out;
        let (by, mut at) = (if shut { -i64::from(keys) } else { i64::from(keys) }, within);
        let mut open = true;
        for outer in self.tiers[..tier].iter_mut().rev() {
            let Some(group) = outer.groups.get_mut(at) else { return };
            let shut_out = &mut outer.rests.entry(at).shut_out;
            *shut_out = shut_out.wrapping_sub(by as u32);
            at = group.within;
            if group.is_shut() {
                open = false;
                break;
            }
        }
        if open {
            self.servable = self.servable.wrapping_add_signed(by as isize);
        }
        self.shut_or_open_node(tier, own, shut);
        if !self.others.is_empty() {
            let others = self.others.range((tier, number, 0)..=(tier, number, u32::MAX));
            let others: Vec<u32> = others.map(|(_, node)| *node).collect();
            others.into_iter().for_each(|at| self.shut_or_open_node(tier, at, shut));
        }
        if self.rules.max_wait.is_some() {
            self.eldest_changed(tier, number);
        }
    }

    fn shut_or_open_node(&mut self, tier: usize, at: u32, shut: bool) {
        match self.nodes.get(at).map(|node| node.in_ring) {
            Some(true) if shut => self.part(tier, at),
            Some(false) if !shut && !self.nodes.is_empty(at) => self.join(tier, at),
            _ => {}
        }
    }
}
