//! Fairness between groups (rule B3): who goes next where groups take turns.
//!
//! The groups that may be served stand in a ring. The one in front has its turn: it gets as many
//! keys out as its weight says, and goes to the back. One that has no key left, or that
//! reaches its cap, leaves the ring and its turn; when it has a key again, or one of
//! its runs has ended, it comes to the back and its next turn is a whole one. So no call ever
//! has to pass over a group that may not be served, and while a group waits in the ring each
//! other has one turn at most.
//!
//! Where groups are divided once more (tenants, then namespaces), what stands in the ring of a
//! tenant are its namespaces, and the tenant stands in the outer ring while its own is not
//! empty. At its next turn the tenant continues with the namespace at which it stopped.
//!
//! With priorities there is such a ring for each level, and a group stands in the rings of all
//! levels at which it has keys: each of these is a [`Node`]. With priorities within groups there
//! is one ring, and the keys of a group stand in a tree by priority.
//!
//! With `max_wait` keys may be overdue (`age.rs`). Such a key waits for its group's turn as all others do.
//!
//! To enter and to be taken in turn cost the same whatever the number of keys, of groups and of weights
//! (with priorities or `max_wait`, the way through a tree more), and so does to leave, but for one
//! block that is looked through for each 100,000 keys in line (`keys.rs`). A group that reaches or
//! leaves its cap costs a step for each level at which it has keys.
//!
//! `group.rs` is which groups there are, `caps.rs` which of them may not be served now, `pause.rs` that
//! some are paused, `node.rs`
//! their rings, `keys.rs` what is known of a key, `age.rs` how old keys are, `tell.rs` what
//! metrics are told. Here keys enter the line and leave it.

mod age;
mod caps;
mod group;
mod keys;
mod node;
mod pause;
mod rate;
mod tell;

use self::age::{Age, When};
use self::group::{Group, Rest, Tier};
use self::keys::{Blocks, Mark, Seat};
use self::node::{Node, Nodes, Party, Rings};
use super::groups::Groups;
use super::levels::{Asked, rank};
use super::overdue::{AgeClock, Overdue};
use super::{ENTRY_AHEAD, SLOT_AHEAD};
use crate::Instant;
use crate::arena::Marked;
use crate::chain::List;
use crate::column::Column;
use crate::slots::Places;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::num::NonZeroU64;

/// No group, no node.
const NONE: u32 = u32::MAX;

/// What a queue with groups was built with.
pub(super) struct Rules {
    /// Triggers may have priorities.
    pub(super) priorities: bool,
    /// These count within a group, and not before the turns of groups.
    pub(super) within: bool,
    /// There only with priorities.
    pub(super) max_wait: Option<Overdue>,
    /// The oldest key is known also without that.
    pub(super) aged: bool,
}

impl Rules {
    #[inline]
    fn is_aged(&self) -> bool {
        self.aged || self.max_wait.is_some()
    }

    /// Whether anything is known of a key but its group.
    #[inline]
    fn has_marks(&self) -> bool {
        self.priorities || self.is_aged()
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
pub(crate) struct Fair<K> {
    rules: Rules,
    /// The outermost groups first. There is one at least.
    tiers: Vec<Tier<K>>,
    seats: Column<Seat>,
    marks: Column<Mark>,
    /// Whether the marks are kept ([`Rules::has_marks`]).
    marked: bool,
    nodes: Nodes,
    blocks: Blocks,
    rings: Rings,
    /// The nodes that their groups do not always have, by tier, group and rank.
    others: BTreeMap<(usize, u32, u32), u32>,
    /// In an aged line all keys in it by age.
    ages: List,
    links: Column<Age>,
    /// With `max_wait` the outermost groups as [`Elders`](age::Elders) has those within a group.
    elders: BTreeMap<When, u32>,
    /// The clock by which keys age.
    clock: AgeClock,
    /// With `max_wait` how many keys are handed out by priority before the next one that is overdue.
    before_overdue: u32,
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
    /// The second part of the next key of `dry` or `filling`: their instants may be equal.
    turn: u64,
    /// The latest instant that [`refill`](Self::refill) was told.
    now: Instant,
    /// The groups that are paused, in the order of their pauses; and the number of the next one.
    paused: BTreeMap<NonZeroU64, (usize, u32)>,
    next_pause: NonZeroU64,
    /// A group that was created for a key not yet counted in it. If this is still set at the next call, users'
    /// code panicked, and the group is removed.
    half: Option<(usize, u32)>,
    /// Whether the last key that was added was new: then the next one is likely to be.
    expects_new: bool,
}

impl<K> Fair<K> {
    pub(super) fn new(groups: Groups<K>, mut rules: Rules) -> Box<Self> {
        rules.max_wait = rules.max_wait.filter(|_| rules.priorities);
        let rated = groups.tiers.iter().any(|naming| naming.is_rated());
        let tiers = groups.tiers.into_iter();
        Box::new(Self {
            tiers: tiers.map(|naming| Tier::new(naming)).collect(),
            seats: Column::new(),
            marks: Column::new(),
            marked: rules.has_marks(),
            nodes: Nodes::new(),
            blocks: Blocks::new(),
            rings: Rings::new(rules.priorities && !rules.within),
            others: BTreeMap::new(),
            ages: List::EMPTY,
            links: Column::new(),
            elders: BTreeMap::new(),
            clock: AgeClock::default(),
            before_overdue: 0,
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
            expects_new: true,
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

    /// The same, to be changed; there is none in a queue without priorities.
    #[inline]
    pub(super) fn asked_mut(&mut self, slot: u32) -> Option<&mut Asked> {
        self.rules.priorities.then(|| &mut self.marks.entry(slot).asked)
    }

    /// The level at which a key is ready or dirty.
    #[inline]
    fn pending(&self, slot: u32) -> i16 {
        self.asked(slot).map_or(0, |asked| asked.pending)
    }

    /// The group of a key, of the innermost ones.
    #[inline]
    fn group_of(&self, slot: u32) -> u32 {
        self.seats.get(slot).map_or(NONE, |seat| seat.0)
    }

    #[inline]
    fn innermost(&self) -> usize {
        self.tiers.len() - 1
    }

    /// The groups of the innermost tier stand with their nodes.
    #[inline]
    fn group(&mut self, tier: usize, group: u32) -> &mut Group {
        if tier == self.innermost() { self.nodes.group(group) } else { self.tiers[tier].groups.entry(group) }
    }

    /// The same of a number that may be none.
    #[inline]
    fn known_group(&self, tier: usize, group: u32) -> Option<&Group> {
        if tier == self.innermost() {
            self.nodes.known_group(group)
        } else {
            self.tiers.get(tier)?.groups.get(group)
        }
    }

    /// What is seldom asked of a group.
    #[inline]
    fn rest(&mut self, tier: usize, group: u32) -> &mut Rest {
        self.tiers[tier].rests.entry(group)
    }

    /// The same of a number that may be none.
    #[inline]
    fn known_rest(&self, tier: usize, group: u32) -> Option<&Rest> {
        self.tiers.get(tier)?.rests.get(group)
    }

    /// The node that a group always has.
    #[inline]
    fn own_node(&mut self, tier: usize, group: u32) -> u32 {
        if tier == self.innermost() { group } else { self.rest(tier, group).node }
    }

    pub(super) fn free_page(&mut self, chunk: u32) {
        self.seats.free_page(chunk);
        self.marks.free_page(chunk);
        self.links.free_page(chunk);
    }

    /// Lets a key in at the level at which it is pending. It is ready `since` then.
    pub(super) fn enter(&mut self, places: &mut impl Places, slot: u32, since: Instant) {
        let (group, level) = (self.group_of(slot), self.pending(slot));
        if let Some(place) = self.enter_at(slot, (group, 0), since, level) {
            places.set_place(slot, place);
        }
    }

    /// A key of a group that was [named](Self::name) becomes known and ready at this level, and is let in.
    /// Returns its place, if it has one.
    #[inline(always)]
    pub(crate) fn enter_new(&mut self, slot: u32, group: u32, since: Instant, level: i16) -> Option<u32> {
        self.expects_new = true;
        self.half = None;
        match self.seats.get_mut(slot) {
            Some(seat) => *seat = Seat(group),
            None => self.seat_in_a_new_page(slot, group),
        }
        self.enter_at(slot, (group, 1), since, level)
    }

    #[cold]
    fn seat_in_a_new_page(&mut self, slot: u32, group: u32) {
        *self.seats.entry(slot) = Seat(group);
    }

    /// Lets a key of this group in that becomes ready at this level, and that is `new` to the group if that
    /// is 1. Returns its place, if it has one.
    #[inline(always)]
    fn enter_at(&mut self, slot: u32, (number, new): (u32, u32), since: Instant, level: i16) -> Option<u32> {
        let Party { group, node } = self.nodes.party(number)?;
        group.ready += 1;
        group.known += new;
        let (shut, within) = (group.is_shut(), group.within);
        let mut place = None;
        let mut joins = false;
        if !self.marked {
            // without priorities a group has no other node
            joins = node.keys.is_empty() && !shut;
            place = Some(node.keys.push(&mut self.blocks, slot));
        }
        if within != NONE {
            self.count_outer(within, 1, !shut);
        } else if !shut {
            self.servable += 1;
        }
        if self.marked {
            return self.put_marked(slot, (number, shut), since, level);
        }
        if joins {
            self.join(self.innermost(), number);
        }
        place
    }

    /// The rest of that in a queue that keeps [marks](Rules::has_marks).
    #[inline(never)]
    fn put_marked(&mut self, slot: u32, group: (u32, bool), since: Instant, level: i16) -> Option<u32> {
        let mark = self.marks.entry(slot);
        mark.entered = self.entered;
        mark.asked.stands_at(level);
        self.entered += 1;
        let place = if self.rules.within {
            self.put_in_tree(slot, group, level);
            None
        } else {
            Some(self.put_in_list(slot, group, level))
        };
        if self.rules.is_aged() {
            self.age(slot, group.0, since);
        }
        place
    }

    /// Takes the key that goes next at this time, and starts its run.
    #[inline]
    pub(super) fn pop(&mut self, now: Instant) -> Option<Marked> {
        let at = self.innermost_of(self.rings.front()?)?;
        if self.marked | self.rated {
            return self.pop_in_full(at, now);
        }
        let Party { group, node } = self.nodes.party(at)?;
        let slot = node.keys.head();
        node.keys.pop(&mut self.blocks);
        let mut shut = group.serves();
        node.takes_turn(group.weight);
        let (over, empty, up, after) = (node.left == 0, node.keys.is_empty(), node.up, node.after);
        self.servable -= 1;
        if up != NONE {
            if over {
                self.nodes.entry(up).ring.0 = after;
            }
            shut |= self.take_turns(up, self.innermost());
        } else if over {
            self.rings.one.0 = after;
        }
        if empty {
            self.emptied(at);
        }
        if shut {
            self.shut_what_is_full(self.innermost(), at);
        }
        Some(Marked::from(slot).in_group(at))
    }

    /// The innermost node whose turn it is within this outermost one.
    #[inline(always)]
    fn innermost_of(&self, mut at: u32) -> Option<u32> {
        for _ in 0..self.innermost() {
            at = self.nodes.get(at)?.ring.0;
        }
        Some(at)
    }

    /// Like [`pop`](Self::pop), where keys have levels, or grow old, or groups have rates: of this node, unless
    /// the hand-out goes to an overdue key.
    #[inline(never)]
    fn pop_in_full(&mut self, at: u32, now: Instant) -> Option<Marked> {
        let at = match self.overdue_level(now) {
            Some(rank) => self.innermost_of(self.rings.front_at(rank)?)?,
            None => at,
        };
        let number = self.nodes.get(at)?.group;
        let overdue = self.overdue_within(number, now);
        let slot = overdue.or_else(|| self.front(at))?;
        let shut = self.take_turns(at, self.tiers.len());
        let node = self.nodes.get_mut(at)?;
        if node.keys.head() == slot {
            node.keys.pop(&mut self.blocks);
        } else {
            let mark = self.marks.get_mut(slot)?;
            mark.in_tree = NONE;
            let tree = self.nodes.tree_mut(at);
            if overdue.is_some() {
                tree.remove(&(Reverse(mark.asked.pending), mark.entered));
            } else {
                tree.pop_first();
            }
        }
        if self.nodes.is_empty(at) {
            self.emptied(at);
        }
        let run = self.pending(slot);
        if self.counts_depths {
            self.count_depth(run, -1);
        }
        self.servable -= 1;
        if self.rules.is_aged() {
            self.forget_age(slot, number);
        }
        if shut {
            self.shut_what_is_full(self.innermost(), number);
        }
        if self.rated {
            self.charge(self.innermost(), number, now);
        }
        Some(Marked::new(slot, run))
    }

    /// A key of this node goes, and is held: that is one of the turn of the node, which is of the last of
    /// these tiers, and of each that it is in, and where the turn is over the next one's begins.
    /// Returns whether a group has come to its cap.
    #[inline(never)]
    fn take_turns(&mut self, mut at: u32, tiers: usize) -> bool {
        let mut shut = false;
        for tier in (0..tiers).rev() {
            let Some(&Node { group, .. }) = self.nodes.get(at) else { break };
            let group = self.group(tier, group);
            shut |= group.serves();
            let weight = group.weight;
            let node = self.nodes.entry(at);
            node.takes_turn(weight);
            let (over, up, rank, after) = (node.left == 0, node.up, node.rank(), node.after);
            if over {
                self.rings.of(&mut self.nodes, up, rank).0 = after;
            }
            at = up;
        }
        shut
    }

    /// As [`Line::ahead_in_turns`](super::Line::ahead_in_turns): the key of a group whose turn is some turns
    /// ahead, and one of which this said the same, when half of them have passed.
    #[inline]
    pub(super) fn ahead(&mut self) -> (u32, u32) {
        let Some(front) = self.rings.front() else { return (NONE, NONE) };
        if core::mem::replace(&mut self.look.front, front) == front {
            return self.ahead_in_turn(front);
        }
        let stands = |node: &&Node| node.in_ring && self.look.calls % ANEW != 0;
        let mut node = match self.nodes.get(self.look.at).filter(stands) {
            Some(node) => node,
            None => {
                self.look_from(front);
                let Some(node) = self.nodes.get(self.look.at) else { return (NONE, NONE) };
                node
            }
        };
        self.look.at = node.after;
        self.nodes.prefetch(node.after);
        for _ in 0..self.innermost() {
            node = self.nodes.get(node.ring.0).unwrap_or(node);
        }
        let later = node.keys.head();
        node.keys.prefetch(&self.blocks);
        let look = &mut self.look;
        let sooner = look.found[look.calls.wrapping_sub(look.again) % FAR];
        look.found[look.calls % FAR] = later;
        look.calls = look.calls.wrapping_add(1);
        (later, sooner)
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

    /// The same while the turn of the outermost group in front goes on.
    #[cold]
    fn ahead_in_turn(&self, front: u32) -> (u32, u32) {
        let mut node = self.nodes.get(front);
        for _ in 0..self.innermost() {
            node = node.and_then(|node| self.nodes.get(node.ring.0));
        }
        let Some(keys) = node.map(|node| &node.keys) else { return (NONE, NONE) };
        let (first, behind) = (keys.ahead(), keys.behind(&self.blocks));
        let at = |ahead: usize| first.iter().chain(behind).nth(ahead).copied().unwrap_or(NONE);
        (at(SLOT_AHEAD), at(ENTRY_AHEAD))
    }

    /// Takes a key out of the line, wherever it stands; false if it does not stand in it.
    pub(super) fn leave(&mut self, places: &mut impl Places, slot: u32) -> bool {
        let Some(node) = self.node_with(places, slot) else { return false };
        let group = self.group_of(slot);
        self.take_out(places, slot, node);
        self.count_out(group);
        if self.rules.is_aged() {
            self.forget_age(slot, group);
        }
        true
    }

    /// The node in which a key stands, if it stands in one.
    fn node_with(&self, places: &impl Places, slot: u32) -> Option<u32> {
        let in_tree = self.marks.get(slot).map_or(NONE, |mark| mark.in_tree);
        if in_tree != NONE {
            return Some(in_tree);
        }
        places.place(slot)?;
        let at = self.node_at(self.group_of(slot), rank(self.pending(slot)))?;
        (self.nodes.get(at)?.keys.has_in_node(slot) || self.blocks.has(places, slot)).then_some(at)
    }

    /// The key, which is ready or dirty, is asked for at this level too.
    pub(super) fn raise(&mut self, places: &mut impl Places, slot: u32, level: i16) {
        let before = self.pending(slot);
        if level <= before {
            return;
        }
        let node = self.node_with(places, slot);
        if let Some(node) = node.filter(|_| !self.rules.within) {
            self.take_out(places, slot, node);
        }
        let Some(asked) = self.asked_mut(slot) else { return };
        let Some(node) = node else {
            asked.pending = level;
            return;
        };
        asked.stands_at(level);
        if self.rules.within {
            // its group keeps its place
            if self.counts_depths {
                self.count_depth(before, -1);
                self.count_depth(level, 1);
            }
            let entered = self.entered(slot);
            let tree = self.nodes.tree_mut(node);
            tree.remove(&(Reverse(before), entered));
            tree.insert((Reverse(level), entered), slot);
        } else {
            let (tier, group) = (self.innermost(), self.group_of(slot));
            let shut = self.group(tier, group).is_shut();
            self.put_in_tree(slot, (group, shut), level);
        }
    }

    /// The number with which a key entered the line, in a line that has [marks](Rules::has_marks).
    fn entered(&self, slot: u32) -> u64 {
        self.marks.get(slot).map_or(0, |mark| mark.entered)
    }

    /// Puts a key that is in no node at the end of the list of its group's at this level. The group may be
    /// shut. Returns the key's place.
    fn put_in_list(&mut self, slot: u32, (group, shut): (u32, bool), level: i16) -> u32 {
        let tier = self.innermost();
        let at = self.node_of(tier, group, rank(level));
        let first = self.nodes.is_empty(at);
        let place = self.nodes.entry(at).keys.push(&mut self.blocks, slot);
        if self.counts_depths {
            self.count_depth(level, 1);
        }
        if first && !shut {
            self.join(tier, at);
        }
        place
    }

    /// The same into the tree of the node, where it has no place.
    #[inline(never)]
    fn put_in_tree(&mut self, slot: u32, (group, shut): (u32, bool), level: i16) {
        let tier = self.innermost();
        let at = self.node_of(tier, group, rank(if self.rules.within { 0 } else { level }));
        let mark = self.marks.entry(slot);
        mark.in_tree = at;
        let key = (Reverse(level), mark.entered);
        let first = self.nodes.is_empty(at);
        self.nodes.tree_mut(at).insert(key, slot);
        if self.counts_depths {
            self.count_depth(level, 1);
        }
        if first && !shut {
            self.join(tier, at);
        }
    }

    /// Takes a key out of the node that it stands in, and not for its turn.
    fn take_out(&mut self, places: &mut impl Places, slot: u32, at: u32) {
        let pending = self.marks.get(slot).map_or(0, |mark| mark.asked.pending);
        match self.marks.get_mut(slot).filter(|mark| mark.in_tree != NONE) {
            Some(mark) => {
                mark.in_tree = NONE;
                self.nodes.tree_mut(at).remove(&(Reverse(pending), mark.entered));
            }
            None => self.nodes.entry(at).keys.remove(&mut self.blocks, places, slot),
        }
        let empty = self.nodes.is_empty(at);
        if self.counts_depths {
            self.count_depth(pending, -1);
        }
        if empty {
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
        let listed = Some(self.nodes.get(at)?.keys.head()).filter(|head| *head != NONE);
        let first_in_tree = self.nodes.tree(at).and_then(BTreeMap::first_key_value);
        let Some(((_, entered), slot)) = first_in_tree else { return listed };
        let older = |slot: &u32| self.marks.get(*slot).is_some_and(|mark| mark.entered < *entered);
        listed.filter(older).or(Some(*slot))
    }
}

#[cfg(test)]
#[path = "tests/fair.rs"]
mod tests;
