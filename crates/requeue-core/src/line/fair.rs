//! Fairness between groups (rule B3): the line of a queue in which groups take turns.
//!
//! The groups that may be served are in a ring. The one in front has its turn: as many of its keys are handed
//! out as its weight says, and it moves to the back. A group that has no key left, or that reaches its cap,
//! leaves the ring and ends its turn; when it has a key again, or one of its runs has ended, it joins at the
//! back, and its next turn is a whole one. So no call has to pass over a group that may not be served, and
//! while a group waits in the ring each other has at most one turn.
//!
//! With priorities there is such a ring for each level, and a group is in the rings of all levels at which it
//! has keys (`node.rs`). With priorities within groups there is one ring, and in its turn a group has a key
//! of its highest level handed out.
//!
//! `enter` and `pop` are O(1) in the number of keys, of groups and of weights. With priorities they also
//! search a tree of the group's levels, if it has keys at several; with `max_wait` they move the group in a
//! heap, when another key is the oldest of its group (`ages.rs`). `leave` costs the same, and a search of one
//! block for each 100,000 keys in line (`keys.rs`). A group that reaches or leaves its cap costs a step for
//! each level at which it has keys.
//!
//! `group.rs` has the known groups, `hold_back.rs` those that may not be served now. In this file keys enter
//! and leave the line.

mod ages;
mod group;
mod hold_back;
mod node;

use self::ages::Ages;
use self::group::{GroupOf, Rest};
use self::node::{GroupEntry, Nodes, RingNode, Rings};
use super::ahead::{ENTRY_AHEAD, SLOT_AHEAD};
use super::groups::{GroupGauges, Naming, PAGE};
use super::keys::Blocks;
use super::known::Known;
use super::ranked::rank;
use crate::arena::Marked;
use crate::column::Column;
use crate::slots::Places;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU64;

/// No group, no node.
const NONE: u32 = u32::MAX;

/// The position of [`Fair::ahead`], for prefetch hints only.
struct Look {
    /// The node that was in front.
    front: u32,
    /// The node to look at next.
    at: u32,
    /// The keys found last, by the number of the call.
    found: [u32; FAR],
    calls: usize,
    /// Number of calls after which a key is returned once more.
    again: usize,
}

/// Number of turns that [`Fair::ahead`] looks ahead, if there are that many groups.
const FAR: usize = 8;
/// Number of turns after which it counts them anew, because a group that has left the ring has reduced the
/// distance.
const ANEW: usize = 64;

/// The line of a queue with groups.
pub(crate) struct Fair<K> {
    naming: Box<dyn Naming<K>>,
    /// Priorities count within a group, and not before the turns of groups.
    within: bool,
    groups_of: Column<GroupOf>,
    nodes: Nodes,
    blocks: Blocks,
    rings: Rings,
    rests: Column<Rest>,
    /// Names of the groups in metrics. Groups without a name are not written.
    shown: Column<Option<Arc<str>>>,
    /// With `max_wait`.
    ages: Option<Box<Ages>>,
    look: Look,
    servable: usize,
    /// Groups have rates.
    rated: bool,
    /// The groups that have no token, by the instant of the next one; and those to be looked at when their
    /// buckets are full.
    dry: BTreeMap<(Instant, u64), u32>,
    filling: BTreeMap<(Instant, u64), u32>,
    /// The second part of the next key of `dry` or `filling`: their instants may be equal.
    turn: u64,
    /// The latest instant passed to [`refill`](Self::refill).
    now: Instant,
    /// The groups that are paused, in the order of their pauses; and the number of the next one.
    paused: BTreeMap<NonZeroU64, u32>,
    next_pause: NonZeroU64,
    /// A group that was created for a key not yet counted in it. If this is still set at the next call, user
    /// code panicked, and the group is removed.
    half: Option<u32>,
    /// Whether the last key that was added was new: then the next one is likely to be.
    expects_new: bool,
}

impl<K> Fair<K> {
    /// With priorities `within` groups, the line must have priorities.
    pub(super) fn new(naming: Box<dyn Naming<K>>, known: &Known, within: bool) -> Box<Self> {
        let levels = known.has_priorities() && !within;
        Box::new(Self {
            rated: naming.is_rated(),
            naming,
            within,
            groups_of: Column::new(),
            nodes: Nodes::new(),
            blocks: Blocks::new(),
            rings: Rings::new(levels),
            rests: Column::new(),
            shown: Column::new(),
            ages: known.max_wait.map(|_| Box::new(Ages::new(within))),
            look: Look { front: NONE, at: NONE, found: [NONE; FAR], calls: 0, again: 1 },
            servable: 0,
            dry: BTreeMap::new(),
            filling: BTreeMap::new(),
            turn: 0,
            now: Instant::ORIGIN,
            paused: BTreeMap::new(),
            next_pause: NonZeroU64::MIN,
            half: None,
            expects_new: true,
        })
    }

    /// Number of keys in groups that may be served now. Caps may be reached before all of them are handed
    /// out.
    #[inline]
    pub(super) fn servable(&self) -> usize {
        self.servable
    }

    /// The group of a key.
    #[inline]
    fn group_of(&self, slot: u32) -> u32 {
        self.groups_of.get(slot).map_or(NONE, |group| group.0)
    }

    pub(super) fn free_page(&mut self, chunk: u32) {
        self.groups_of.free_page(chunk);
        if let Some(ages) = &mut self.ages {
            ages.free_page(chunk);
        }
    }

    /// Enters a key, which is ready `since` then, at the level at which it is pending.
    pub(super) fn enter(&mut self, known: &mut Known, places: &mut impl Places, slot: u32, since: Instant) {
        let (group, level) = (self.group_of(slot), known.pending(slot));
        if let Some(place) = self.insert_at(known, slot, (group, 0), since, level) {
            places.set_place(slot, place);
        }
    }

    /// Enters a key that becomes known and ready at this level, in a group that was [named](Self::name).
    /// Returns its place, if it has one.
    #[inline]
    pub(crate) fn insert_new(
        &mut self,
        known: &mut Known,
        slot: u32,
        group: u32,
        since: Instant,
        level: i16,
    ) -> Option<u32> {
        self.expects_new = true;
        self.half = None;
        match self.groups_of.get_mut(slot) {
            Some(of) => *of = GroupOf(group),
            None => self.write_in_a_new_page(slot, group),
        }
        self.insert_at(known, slot, (group, 1), since, level)
    }

    fn write_in_a_new_page(&mut self, slot: u32, group: u32) {
        *self.groups_of.entry(slot) = GroupOf(group);
    }

    /// Enters a key of this group that becomes ready at this level. `new` is 1 if the group does not count
    /// the key yet, else 0. Returns its place, if the group is known.
    #[inline]
    fn insert_at(
        &mut self,
        known: &mut Known,
        slot: u32,
        (number, new): (u32, u32),
        since: Instant,
        level: i16,
    ) -> Option<u32> {
        let GroupEntry { group, node } = self.nodes.of_group(number)?;
        group.ready += 1;
        group.known += new;
        let (ready, shut) = (group.ready, group.is_shut());
        if !shut {
            self.servable += 1;
        }
        if known.keeps() {
            return Some(self.insert_kept(known, slot, (number, ready, shut), since, level));
        }
        // without priorities a group has no other node
        let place = node.keys.push(&mut self.blocks, slot);
        if ready == 1 && !shut {
            self.rings.join(&mut self.nodes, number);
        }
        Some(place)
    }

    /// The rest of [`insert_at`](Self::insert_at) in a line with [state of each key](Known::keeps).
    fn insert_kept(
        &mut self,
        known: &mut Known,
        slot: u32,
        (number, ready, shut): (u32, u32, bool),
        since: Instant,
        level: i16,
    ) -> u32 {
        let since = known.enters(slot, level, since);
        let at = self.nodes.make_at_rank(number, rank(level), ready);
        let node = self.nodes.entry(at);
        let first = node.is_empty();
        let place = node.keys.push(&mut self.blocks, slot);
        self.came(at, first, (number, ready, shut));
        if let Some(ages) = &mut self.ages {
            ages.enters(slot, (number, shut), known.entered(slot), since);
        }
        place
    }

    /// Has a node, or its group, join its ring after a key has entered it; `first` if the node was empty.
    #[inline]
    fn came(&mut self, at: u32, first: bool, (number, ready, shut): (u32, u32, bool)) {
        let (at, joins) = if self.within { (number, ready == 1) } else { (at, first) };
        if joins && !shut {
            self.rings.join(&mut self.nodes, at);
        }
    }

    /// Has a node, or its group, leave its ring if its last key has left.
    #[inline]
    fn went(&mut self, at: u32, number: u32) {
        let last = self.nodes.get(at).is_some_and(RingNode::is_empty);
        let (stood, parts) =
            if self.within { (number, self.nodes.group(number).ready == 0) } else { (at, last) };
        if parts && self.nodes.get(stood).is_some_and(|node| node.in_ring) {
            self.rings.part(&mut self.nodes, stood);
        }
        if last {
            self.nodes.free_other(at);
        }
    }

    /// Takes the next key at this time.
    #[inline]
    pub(super) fn pop(&mut self, known: &mut Known, now: Instant) -> Option<Marked> {
        let at = self.rings.front();
        if known.keeps() | self.rated {
            return self.pop_in_full(known, at, now);
        }
        let GroupEntry { group, node } = self.nodes.of_group(at)?;
        let slot = node.keys.head();
        node.keys.pop(&mut self.blocks);
        let shut = group.serves();
        let over = node.takes_turn(group.weight);
        let (empty, after) = (node.keys.is_empty(), node.after);
        self.servable -= 1;
        if over {
            self.rings.one.0 = after;
        }
        if empty {
            self.rings.part(&mut self.nodes, at);
        }
        if shut {
            self.shut_or_open(at, true);
        }
        Some(Marked::from(slot).in_group(at))
    }

    /// Like [`pop`](Self::pop), with levels, ages or rates: in the turn of this node, unless the hand-out
    /// goes to the level of an overdue key.
    #[inline(never)]
    fn pop_in_full(&mut self, known: &mut Known, at: u32, now: Instant) -> Option<Marked> {
        let at = match self.overdue_level(known, now) {
            Some(rank) => self.rings.front_at(rank)?,
            None => at,
        };
        let number = self.nodes.get(at)?.group;
        let from = if self.within { self.node_in_turn(known, number, now)? } else { at };
        let slot = self.pop_from(known, from)?;
        let group = self.nodes.group(number);
        let (shut, weight) = (group.serves(), group.weight);
        let node = self.nodes.entry(at);
        if node.takes_turn(weight) {
            let (rank, after) = (node.rank(), node.after);
            self.rings.of(rank).0 = after;
        }
        self.servable -= 1;
        self.went(from, number);
        known.leaves(slot);
        if let Some(ages) = &mut self.ages {
            ages.leaves(slot, (number, shut));
        }
        if shut {
            self.shut_or_open(number, true);
        }
        if self.rated {
            self.charge(number, now);
        }
        Some(Marked::new(slot, known.pending(slot)).in_group(number))
    }

    /// The level of the overdue key to which this hand-out goes, if it goes to one. Call it only if a key is
    /// handed out now.
    #[inline]
    fn overdue_level(&mut self, known: &mut Known, now: Instant) -> Option<u32> {
        let ages = self.ages.as_deref().filter(|_| !self.within && self.servable > 0)?;
        let oldest = known.overdue(now, |_, _| ages.oldest())?;
        Some(rank(known.pending(oldest)))
    }

    /// With priorities within groups: the node from which the group's next key is handed out. It is that of
    /// its oldest key, if that is overdue and this hand-out of the group goes to an overdue key, else that of
    /// its highest level.
    #[inline]
    fn node_in_turn(&mut self, known: &Known, number: u32, now: Instant) -> Option<u32> {
        let overdue = self.ages.as_deref_mut().zip(known.max_wait).and_then(|(ages, max_wait)| {
            let (oldest, [since, now], before_overdue) = ages.oldest_of(number, known.clock.at(now))?;
            max_wait.takes(before_overdue, now, || Some((oldest, since)))
        });
        match overdue {
            Some(slot) => self.nodes.at_rank(number, rank(known.pending(slot))),
            None => Some(self.nodes.highest(number)),
        }
    }

    /// Takes the key of a node that became ready first. The caller must clear its place.
    #[inline]
    fn pop_from(&mut self, known: &mut Known, at: u32) -> Option<u32> {
        let node = self.nodes.get_mut(at)?;
        let head = Some(node.keys.head()).filter(|head| *head != NONE);
        let first = if node.raised == 0 { head } else { known.first_of(at, head) }?;
        if head == Some(first) {
            node.keys.pop(&mut self.blocks);
        } else {
            node.raised -= 1;
            known.unraise(first, at);
        }
        Some(first)
    }

    /// Prefetch hints for [`Line::ahead_in_turns`](super::Line::ahead_in_turns): a key of a group whose turn
    /// is some turns ahead, and the key that was returned so when twice as many turns were ahead of it.
    #[inline]
    pub(super) fn ahead(&mut self) -> (u32, u32) {
        let front = self.rings.front();
        if core::mem::replace(&mut self.look.front, front) == front {
            return self.ahead_in_turn(front);
        }
        let stands = |node: &&RingNode| node.in_ring && self.look.calls % ANEW != 0;
        let node = match self.nodes.get(self.look.at).filter(stands) {
            Some(node) => node,
            None => {
                self.look_from(front);
                let Some(node) = self.nodes.get(self.look.at) else { return (NONE, NONE) };
                node
            }
        };
        self.look.at = node.after;
        self.nodes.prefetch(node.after);
        let later = node.keys.head();
        node.keys.prefetch(&self.blocks);
        let look = &mut self.look;
        let sooner = look.found[look.calls.wrapping_sub(look.again) % FAR];
        look.found[look.calls % FAR] = later;
        look.calls = look.calls.wrapping_add(1);
        (later, sooner)
    }

    /// Sets the node to look at next: [`FAR`] turns behind the front, or the last one if there are fewer.
    fn look_from(&mut self, front: u32) {
        let (mut at, mut turns) = (front, 0);
        while let Some(&RingNode { after, .. }) = self.nodes.get(at) {
            if turns == FAR || after == front {
                break;
            }
            (at, turns) = (after, turns + 1);
        }
        (self.look.at, self.look.again) = (at, turns.div_ceil(2));
    }

    /// [`ahead`](Self::ahead) while the turn of the node in front goes on.
    fn ahead_in_turn(&self, front: u32) -> (u32, u32) {
        let Some(node) = self.nodes.get(front) else { return (NONE, NONE) };
        let (first, behind) = (node.keys.ahead(), node.keys.behind(&self.blocks));
        let at = |ahead: usize| first.iter().chain(behind).nth(ahead).copied().unwrap_or(NONE);
        (at(SLOT_AHEAD), at(ENTRY_AHEAD))
    }

    /// Removes a key from the line. Returns `false` if it is not in line.
    pub(super) fn leave(&mut self, known: &mut Known, places: &mut impl Places, slot: u32) -> bool {
        let Some(at) = self.node_with(known, places, slot) else { return false };
        let number = self.group_of(slot);
        let group = self.nodes.group(number);
        group.ready -= 1;
        let shut = group.is_shut();
        if !shut {
            self.servable -= 1;
        }
        self.take_out(known, places, slot, at);
        self.went(at, number);
        known.leaves(slot);
        if let Some(ages) = &mut self.ages {
            ages.leaves(slot, (number, shut));
        }
        true
    }

    /// Raises the key, which is ready or dirty, to this higher level. Returns `false`, and changes nothing,
    /// if it is not in line.
    pub(super) fn raise(
        &mut self,
        known: &mut Known,
        places: &mut impl Places,
        slot: u32,
        level: i16,
    ) -> bool {
        let Some(from) = self.node_with(known, places, slot) else { return false };
        let number = self.group_of(slot);
        let group = self.nodes.group(number);
        let (ready, shut) = (group.ready, group.is_shut());
        self.take_out(known, places, slot, from);
        // with priorities within groups, the group still has this key, and keeps its place in the ring
        self.went(from, number);
        let to = self.nodes.make_at_rank(number, rank(level), ready);
        let node = self.nodes.entry(to);
        let first = node.is_empty();
        node.raised += 1;
        known.raise(slot, to, level);
        if !self.within {
            self.came(to, first, (number, ready, shut));
        }
        true
    }

    /// The node that has this key, if it is in line.
    fn node_with(&self, known: &Known, places: &impl Places, slot: u32) -> Option<u32> {
        let at = self.nodes.at_rank(self.group_of(slot), rank(known.pending(slot)))?;
        let stands = known.is_raised(slot)
            || places.place(slot).is_some()
                && (self.nodes.get(at)?.keys.has_at_an_end(slot) || self.blocks.has(places, slot));
        stands.then_some(at)
    }

    /// Removes a key from its node, out of turn.
    fn take_out(&mut self, known: &mut Known, places: &mut impl Places, slot: u32, at: u32) {
        let node = self.nodes.entry(at);
        if known.is_raised(slot) {
            node.raised -= 1;
            known.unraise(slot, at);
        } else {
            node.keys.remove(&mut self.blocks, places, slot);
        }
    }

    /// Changes the number of paused ready keys in the key's group by `by`.
    pub(super) fn count_paused_ready(&mut self, slot: u32, by: i32) {
        let number = self.group_of(slot);
        if number != NONE {
            let rest = self.rests.entry(number);
            rest.paused_ready = rest.paused_ready.wrapping_add_signed(by);
        }
    }

    /// Appends the groups with a name from this number on, as far as one lock hold looks. Returns the number
    /// at which the next page begins.
    pub(crate) fn told_groups(&self, from: u32, into: &mut Vec<GroupGauges>) -> Option<u32> {
        let end = if self.naming.is_shown() { self.naming.numbers() } else { 0 };
        let to = from.saturating_add(PAGE);
        for number in from..end.min(to) {
            let Some(name) = self.shown.get(number).and_then(Option::as_ref) else { continue };
            let known = self.nodes.known_group(number).zip(self.rests.get(number));
            let Some((group, rest)) = known else { continue };
            into.push(GroupGauges {
                name: name.clone(),
                ready: (group.ready + rest.paused_ready) as usize,
                held: group.held as usize,
            });
        }
        (to < end).then_some(to)
    }
}

#[cfg(test)]
#[path = "tests/fair.rs"]
mod tests;
