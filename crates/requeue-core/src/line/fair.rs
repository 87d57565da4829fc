//! Fairness between groups (rule B3): who goes next where groups take turns.
//!
//! The groups that may be served stand in a ring. The one in front has its turn: it gets as many
//! keys out as its weight says, and goes to the back. One that has no key left, or that
//! reaches its cap, leaves the ring and its turn; when it has a key again, or one of
//! its runs has ended, it comes to the back and its next turn is a whole one. So nobody ever
//! passes over a group that may not be served, and while one waits in the ring each
//! other has one turn at most.
//!
//! Where groups are divided once more (tenants, then namespaces), what stands in the ring of a
//! tenant are its namespaces, and the tenant stands in the outer ring while its own is not
//! empty. A turn of the tenant goes on where its last one ended.
//!
//! With priorities there is such a ring for each level, and a group stands in the rings of all
//! levels at which it has keys: each of these is a [`Node`]. With priorities within groups there
//! is one ring, and the keys of a group stand in a tree by priority.
//!
//! With `max_wait` the groups that may be served are also known by their oldest key, in a tree.
//!
//! To enter, to be taken in turn and to leave cost the same whatever the number of keys, of
//! groups and of weights (with priorities or `max_wait`, the way through a tree more). A
//! group that reaches or leaves its cap costs a step for each level at which it has keys.
//!
//! `group.rs` is which groups there are, `caps.rs` which of them may not be served now, `pause.rs` that
//! some are paused, `node.rs`
//! their rings, `keys.rs` what is known of a key, `age.rs` which key is the oldest, `tell.rs` what
//! metrics are told. Here keys enter the line and leave it.

mod age;
mod caps;
mod group;
mod keys;
mod node;
mod pause;
mod rate;
mod tell;

use self::age::Age;
use self::group::{Group, Tier};
use self::keys::Marks;
use self::node::{Node, Nodes, Rings};
use super::groups::Groups;
use super::levels::{Asked, rank};
use crate::Instant;
use crate::arena::Marked;
use crate::chain::List;
use crate::column::Column;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::num::NonZeroU64;
use core::time::Duration;

/// No group, no node.
const NONE: u32 = u32::MAX;

/// The group of a key, and whether it is shut; and the number with which the key entered the line.
#[derive(Clone, Copy, Debug)]
struct Place {
    group: u32,
    shut: bool,
    entered: u64,
}

/// What a queue with groups was built with.
pub(super) struct Rules {
    /// Triggers may have priorities.
    pub(super) priorities: bool,
    /// These count within a group, and not before the turns of groups.
    pub(super) within: bool,
    pub(super) max_wait: Option<Duration>,
    /// The oldest key is at hand also without that.
    pub(super) aged: bool,
}

impl Rules {
    #[inline]
    fn is_aged(&self) -> bool {
        self.aged || self.max_wait.is_some()
    }
}

/// Where [`Fair::ahead`] has looked; only for guesses.
struct Look {
    /// The outermost node that was in front.
    front: u32,
    /// The outermost node that is to be looked at next.
    at: u32,
    /// The keys that were found last, by the number of the call.
    found: [u32; FAR],
    calls: usize,
    /// How many calls later a key is told once more.
    again: usize,
}

/// How many turns ahead [`Fair::ahead`] looks, where there are so many groups.
const FAR: usize = 8;
/// After how many turns it counts these anew: a group that has left the ring has brought it nearer.
const ANEW: usize = 64;

/// The line of a queue with groups.
pub(super) struct Fair<K> {
    rules: Rules,
    /// The outermost groups first. There is one at least.
    tiers: Vec<Tier<K>>,
    marks: Marks,
    nodes: Nodes,
    rings: Rings,
    /// The nodes that their groups do not always have, by tier, group and rank.
    others: BTreeMap<(usize, u32, u32), u32>,
    /// In an aged line all keys in it by age.
    ages: List,
    links: Column<Age>,
    /// With `max_wait` the outermost groups as [`Elders::all`](group::Elders::all) has those within a group.
    elders: BTreeMap<u64, u32>,
    /// With priorities and metrics how many ready keys there are, by rank.
    depths: Column<u32>,
    counts_depths: bool,
    look: Look,
    /// The number of the next key that enters.
    entered: u64,
    servable: usize,
    /// Groups have rates.
    rated: bool,
    /// The groups that have no token, by the instant of the next; and those that are to be looked at
    /// when their buckets are full.
    dry: BTreeMap<(Instant, u64), (usize, u32)>,
    filling: BTreeMap<(Instant, u64), (usize, u32)>,
    /// Tells those apart that have the same instant.
    turn: u64,
    /// The latest instant that [`refill`](Self::refill) was told.
    now: Instant,
    /// The groups that are paused, in the order of their pauses; and the number of the next one.
    paused: BTreeMap<NonZeroU64, (usize, u32)>,
    next_pause: NonZeroU64,
    /// A group that was made for a key whose next group is being asked for: users' code
    /// has panicked if it still stands here at the next call.
    half: Option<(usize, u32)>,
}

impl<K> Fair<K> {
    pub(super) fn new(groups: Groups<K>, rules: Rules) -> Box<Self> {
        let rated = groups.tiers.iter().any(|naming| naming.is_rated());
        let tiers = groups.tiers.into_iter();
        Box::new(Self {
            tiers: tiers.map(|naming| Tier::new(naming)).collect(),
            marks: Marks::new(),
            nodes: Nodes::new(),
            rings: Rings::new(rules.priorities && !rules.within),
            others: BTreeMap::new(),
            ages: List::EMPTY,
            links: Column::new(),
            elders: BTreeMap::new(),
            depths: Column::new(),
            counts_depths: false,
            look: Look { front: NONE, at: NONE, found: [NONE; FAR], calls: 0, again: 1 },
            entered: 0,
            servable: 0,
            rated,
            dry: BTreeMap::new(),
            filling: BTreeMap::new(),
            turn: 0,
            now: Instant::ORIGIN,
            paused: BTreeMap::new(),
            next_pause: NonZeroU64::MIN,
            half: None,
            rules,
        })
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How many keys may be handed out now, one after the other until caps are reached.
    #[inline]
    pub(super) fn servable(&self) -> usize {
        self.servable
    }

    #[inline]
    pub(super) fn asked(&self, slot: u32) -> Option<&Asked> {
        self.marks.get(slot).map(|mark| &mark.asked)
    }

    #[inline]
    pub(super) fn asked_mut(&mut self, slot: u32) -> &mut Asked {
        &mut self.marks.entry(slot).asked
    }

    #[inline]
    fn innermost(&self) -> usize {
        self.tiers.len() - 1
    }

    #[inline]
    fn group(&mut self, tier: usize, group: u32) -> &mut Group {
        self.tiers[tier].groups.entry(group)
    }

    pub(super) fn free_page(&mut self, chunk: u32) {
        self.marks.free_page(chunk);
        self.links.free_page(chunk);
    }

    /// Lets a key in at the level at which it is pending. It is ready `since` then.
    pub(super) fn enter(&mut self, slot: u32, since: Instant) {
        // the page is there since the key's group is known
        let Some(mark) = self.marks.get(slot) else { return };
        self.enter_at(slot, (mark.group, 0), since, mark.asked.pending);
    }

    /// A key becomes [known](Self::know) and ready at this level, and is let in. Users' code, as there.
    #[inline]
    pub(super) fn enter_new(&mut self, slot: u32, key: &K, since: Instant, level: i16) {
        let group = self.group_of(key);
        self.enter_at(slot, (group, 1), since, level);
    }

    /// Lets a key of this group in that becomes ready at this level, and that is `new` to the group if that
    /// is 1.
    #[inline(always)]
    fn enter_at(&mut self, slot: u32, (group, new): (u32, u32), since: Instant, level: i16) {
        let entered = self.entered;
        self.entered += 1;
        let shut = self.count(group, 1, new);
        self.put(slot, Place { group, shut, entered }, level, self.rules.within);
        if self.rules.is_aged() {
            self.age(slot, group, since);
        }
    }

    /// Takes the key that goes next at this time, and starts its run.
    #[inline]
    pub(super) fn pop(&mut self, now: Instant) -> Option<Marked> {
        if self.rules.max_wait.is_some() {
            if let Some(slot) = self.overdue(now) {
                self.leave(slot);
                let started = self.start(slot);
                self.charge_for(slot, now);
                return Some(started);
            }
        }
        let mut at = self.rings.front()?;
        for _ in 0..self.innermost() {
            at = self.nodes.get(at)?.ring.0;
        }
        let node = self.nodes.get_mut(at)?;
        if !node.tree.is_empty() {
            return self.pop_from_tree(at, now);
        }
        let slot = node.keys.first;
        self.marks.settle();
        let mark = self.marks.get_mut(slot)?;
        mark.node = NONE;
        mark.asked.run = mark.asked.pending;
        let (behind, run) = (mark.after, mark.asked.run);
        node.keys.pop(behind);
        let (number, up) = (node.group, node.up);
        let group = self.tiers.last_mut()?.groups.get_mut(number)?;
        let mut shut = group.takes_turn(node);
        if node.left == 0 {
            let (rank, next) = (node.rank, node.after);
            self.rings.of(&mut self.nodes, up, rank).0 = next;
        }
        if up != NONE {
            shut |= self.take_turns(up, self.innermost());
        }
        if behind == NONE {
            self.emptied(at);
        }
        if self.counts_depths {
            self.count_depth(run, -1);
        }
        self.popped(slot, number, shut);
        if self.rated {
            self.charge(self.innermost(), number, now);
        }
        Some(Marked::new(slot, run))
    }

    #[inline(never)]
    fn pop_from_tree(&mut self, at: u32, now: Instant) -> Option<Marked> {
        let slot = self.front(at)?;
        let shut = self.take_turns(at, self.tiers.len());
        self.take_out_for_good(slot);
        let mark = self.marks.get_mut(slot)?;
        mark.asked.run = mark.asked.pending;
        let (number, run) = (mark.group, mark.asked.run);
        self.popped(slot, number, shut);
        if self.rated {
            self.charge(self.innermost(), number, now);
        }
        Some(Marked::new(slot, run))
    }

    /// A key of this group was taken in its turn; whether a group has come to its cap.
    #[inline(always)]
    fn popped(&mut self, slot: u32, group: u32, shut: bool) {
        self.servable -= 1;
        if self.rules.is_aged() {
            self.forget_age(slot, group);
        }
        if shut {
            self.shut_what_is_full(self.innermost(), group);
        }
    }

    /// A key of this node goes, and is held: that is one of the turn of the node, which is of the last of
    /// these tiers, and of each that it is in, and where the turn is over the next one's begins.
    /// Returns whether a group has come to its cap.
    #[inline(never)]
    fn take_turns(&mut self, mut at: u32, tiers: usize) -> bool {
        let mut shut = false;
        for tier in self.tiers[..tiers].iter_mut().rev() {
            let Some(node) = self.nodes.get_mut(at) else { break };
            let Some(group) = tier.groups.get_mut(node.group) else { break };
            shut |= group.takes_turn(node);
            let (over, up, rank, after) = (node.left == 0, node.up, node.rank, node.after);
            if over {
                self.rings.of(&mut self.nodes, up, rank).0 = after;
            }
            at = up;
        }
        shut
    }

    /// As [`Line::ahead`](super::Line::ahead): the key of a group whose turn is some turns ahead, and one
    /// of which this said the same, when half of them have passed.
    #[inline]
    pub(super) fn ahead(&mut self) -> (Option<u32>, Option<u32>) {
        let Some(front) = self.rings.front() else { return (None, None) };
        if core::mem::replace(&mut self.look.front, front) == front {
            return self.ahead_in_turn(front);
        }
        let stands = |node: &&Node| node.in_ring && self.look.calls % ANEW != 0;
        let mut node = match self.nodes.get(self.look.at).filter(stands) {
            Some(node) => node,
            None => {
                self.look_from(front);
                let Some(node) = self.nodes.get(self.look.at) else { return (None, None) };
                node
            }
        };
        self.look.at = node.after;
        self.nodes.prefetch(node.after);
        for _ in 0..self.innermost() {
            node = self.nodes.get(node.ring.0).unwrap_or(node);
        }
        let later = node.keys.first;
        self.marks.prefetch(later);
        if let Some(tier) = self.tiers.last() {
            tier.groups.prefetch(node.group);
        }
        let look = &mut self.look;
        let sooner = look.found[look.calls.wrapping_sub(look.again) % FAR];
        look.found[look.calls % FAR] = later;
        look.calls = look.calls.wrapping_add(1);
        (Some(later), Some(sooner))
    }

    /// The node that is looked at next is as far behind the one in front as there are others.
    #[cold]
    fn look_from(&mut self, front: u32) {
        let (mut at, mut turns) = (front, 0);
        while let Some(&Node { after, .. }) = self.nodes.get(at) {
            if turns == FAR || after == front {
                break;
            }
            (at, turns) = (after, turns + 1);
        }
        (self.look.at, self.look.again) = (at, turns.div_ceil(2));
    }

    /// The same while the turn of the outermost group in front goes on. The marks need not be settled for
    /// a guess.
    #[cold]
    fn ahead_in_turn(&self, front: u32) -> (Option<u32>, Option<u32>) {
        let mut node = self.nodes.get(front);
        for _ in 0..self.innermost() {
            node = node.and_then(|node| self.nodes.get(node.ring.0));
        }
        let first = node.map(|node| node.keys.first);
        let second = first.and_then(|first| Some(self.marks.get(first)?.after));
        if let Some(second) = second {
            self.marks.prefetch(second);
        }
        (second, first)
    }

    /// Takes a key out of the line, wherever it stands; false if it does not stand in it.
    pub(super) fn leave(&mut self, slot: u32) -> bool {
        let Some(mark) = self.marks.get(slot) else { return false };
        if mark.node == NONE {
            return false;
        }
        let group = mark.group;
        self.take_out_for_good(slot);
        self.count(group, -1, 0);
        if self.rules.is_aged() {
            self.forget_age(slot, group);
        }
        true
    }

    /// The key, which is ready or dirty, is asked for at this level too.
    pub(super) fn raise(&mut self, slot: u32, level: i16) {
        let mark = self.marks.entry(slot);
        if level <= mark.asked.pending {
            return;
        }
        let (node, number, entered) = (mark.node, mark.group, mark.entered);
        if node == NONE {
            mark.asked.pending = level;
        } else if self.rules.within {
            // its group keeps its place
            let before = core::mem::replace(&mut mark.asked.pending, level);
            if self.counts_depths {
                self.count_depth(before, -1);
                self.count_depth(level, 1);
            }
            let tree = &mut self.nodes.entry(node).tree;
            tree.remove(&(Reverse(before), entered));
            tree.insert((Reverse(level), entered), slot);
        } else {
            self.take_out_for_good(slot);
            let tier = self.innermost();
            let place = Place { group: number, shut: self.group(tier, number).is_shut(), entered };
            self.put(slot, place, level, true);
        }
    }

    /// Puts a key that is in no node into that of its group and level; into its tree, or at the
    /// end of its list.
    #[inline(always)]
    fn put(&mut self, slot: u32, place: Place, level: i16, in_tree: bool) {
        let Place { group, shut, entered } = place;
        // so that nobody waits for the group to know the node
        let own = group;
        let of_node = rank(if self.rules.within { 0 } else { level });
        let (at, node) = match self.nodes.get_mut(own) {
            Some(node) if node.rank == of_node => (own, node),
            _ => {
                let at = self.other_node_of(self.innermost(), group, of_node, own);
                (at, self.nodes.entry(at))
            }
        };
        let first = node.is_empty();
        let mark = if in_tree {
            node.tree.insert((Reverse(level), entered), slot);
            self.marks.entry(slot)
        } else {
            node.keys.push(&mut self.marks, slot)
        };
        (mark.group, mark.node, mark.in_tree) = (group, at, in_tree);
        (mark.entered, mark.asked.pending) = (entered, level);
        if self.counts_depths {
            self.count_depth(level, 1);
        }
        if first && !shut {
            self.join(self.innermost(), at);
        }
    }

    /// Takes a key out of the node that it stands in. Returns this, and whether it was the last.
    fn take_out(&mut self, slot: u32) -> Option<(u32, bool)> {
        let mark = self.marks.get_mut(slot)?;
        let at = core::mem::replace(&mut mark.node, NONE);
        let (in_tree, key) = (mark.in_tree, (Reverse(mark.asked.pending), mark.entered));
        if self.counts_depths {
            self.count_depth(key.0.0, -1);
        }
        let node = self.nodes.get_mut(at)?;
        if in_tree {
            node.tree.remove(&key);
        } else {
            node.keys.remove(&mut self.marks, slot);
        }
        Some((at, node.is_empty()))
    }

    /// Takes a key out of the node that it stands in, and not for its turn.
    fn take_out_for_good(&mut self, slot: u32) {
        if let Some((at, true)) = self.take_out(slot) {
            self.emptied(at);
        }
    }

    /// The last key has left a node.
    #[inline]
    fn emptied(&mut self, at: u32) {
        if self.nodes.get(at).is_some_and(|node| node.in_ring) {
            self.part(self.innermost(), at);
        }
        self.drop_if_spare(self.innermost(), at);
    }

    /// The key that goes first of those in a node.
    #[inline(never)]
    fn front(&self, at: u32) -> Option<u32> {
        let node = self.nodes.get(at)?;
        let listed = Some(node.keys.first).filter(|first| *first != NONE);
        let Some(((_, entered), slot)) = node.tree.first_key_value() else { return listed };
        let older = |slot: &u32| self.marks.get(*slot).is_some_and(|mark| mark.entered < *entered);
        listed.filter(older).or(Some(*slot))
    }
}

#[cfg(test)]
#[path = "tests/fair.rs"]
mod tests;
