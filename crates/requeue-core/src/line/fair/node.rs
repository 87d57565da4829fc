//! Groups at a level, which take turns.

use super::group::Group;
use super::keys::Keys;
use super::{Fair, NONE};
use crate::arena::Arena;
use crate::column::Column;
use crate::line::levels::{Ranks, rank};
use crate::prefetch::prefetch;
use alloc::collections::BTreeMap;
use core::cmp::Reverse;

/// A group at a level.
#[derive(Debug)]
#[repr(C)] // see `Party`
pub(super) struct Node {
    /// The nodes beside it in its ring, which may be itself.
    pub(super) before: u32,
    pub(super) after: u32,
    pub(super) group: u32,
    /// The node whose ring it stands in; none if it is the outermost one. It counts while it
    /// stands there.
    pub(super) up: u32,
    /// How many keys its turn has left; 0 if its turn has not begun.
    pub(super) left: u32,
    /// The nodes within it; none of the innermost ones.
    pub(super) ring: Ring,
    /// The rank of the level.
    rank: u16,
    pub(super) in_ring: bool,
    /// Of the innermost ones its keys, in the order in which they became ready.
    pub(super) keys: Keys,
}

/// Of a node keys that were raised to its level, or all keys where priorities count within groups.
pub(super) type Tree = BTreeMap<(Reverse<i16>, u64), u32>;

impl Default for Node {
    fn default() -> Self {
        Self {
            before: NONE,
            after: NONE,
            group: NONE,
            rank: 0,
            up: NONE,
            in_ring: false,
            left: 0,
            ring: Ring::default(),
            keys: Keys::NONE,
        }
    }
}

impl Node {
    /// A key goes in the turn of this node, whose group has this weight.
    #[inline(always)]
    pub(super) fn takes_turn(&mut self, weight: u32) {
        self.left = if self.left == 0 { weight } else { self.left } - 1;
    }

    /// The rank of the level.
    #[inline]
    pub(super) fn rank(&self) -> u32 {
        u32::from(self.rank)
    }

    fn at(group: u32, rank: u32) -> Self {
        Self { group, rank: rank as u16, ..Self::default() }
    }
}

/// A group of the innermost tier, and the node that it always has, in two cache lines beside each other, because who
/// enters a key or takes one wants both: in the second line are the keys.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Party {
    pub(super) group: Group,
    pub(super) node: Node,
}

const _: () = assert!(size_of::<Party>() == 128);

/// Of the number of a node: it is not the one that an innermost group always has.
const OTHER: u32 = 1 << 31;

/// All nodes, and the innermost groups. The node that such a group always has has the group's number.
pub(super) struct Nodes {
    own: Column<Party>,
    others: Column<Node>,
    /// The trees of the nodes that have one, apart from them because most queues have none.
    own_trees: Column<Tree>,
    other_trees: Column<Tree>,
    /// The numbers of the others that are taken.
    taken: Arena<()>,
}

impl Nodes {
    pub(super) const fn new() -> Self {
        Self {
            own: Column::new(),
            others: Column::new(),
            own_trees: Column::new(),
            other_trees: Column::new(),
            taken: Arena::new(usize::MAX),
        }
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&Node> {
        if at & OTHER == 0 { self.own.get(at).map(|own| &own.node) } else { self.others.get(at ^ OTHER) }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Node> {
        if at & OTHER == 0 {
            self.party(at).map(|own| &mut own.node)
        } else {
            self.others.get_mut(at ^ OTHER)
        }
    }

    /// The node of this number, which is made if it is not there.
    #[inline]
    pub(super) fn entry(&mut self, at: u32) -> &mut Node {
        if at & OTHER == 0 { &mut self.own.entry(at).node } else { self.others.entry(at ^ OTHER) }
    }

    /// Whether nothing stands in a node.
    #[inline]
    pub(super) fn is_empty(&self, at: u32) -> bool {
        let lists_none = |node: &Node| node.keys.is_empty() && node.ring.0 == NONE;
        self.get(at).is_none_or(lists_none) && self.tree(at).is_none_or(BTreeMap::is_empty)
    }

    /// The tree of a node, if there is a place for one.
    #[inline]
    pub(super) fn tree(&self, at: u32) -> Option<&Tree> {
        if at & OTHER == 0 { self.own_trees.get(at) } else { self.other_trees.get(at ^ OTHER) }
    }

    #[inline]
    pub(super) fn tree_mut(&mut self, at: u32) -> &mut Tree {
        if at & OTHER == 0 { self.own_trees.entry(at) } else { self.other_trees.entry(at ^ OTHER) }
    }

    /// An innermost group with its own node.
    #[inline(always)]
    pub(super) fn party(&mut self, group: u32) -> Option<&mut Party> {
        self.own.get_mut(group)
    }

    /// An innermost group, for which there is room from now on.
    #[inline]
    pub(super) fn group(&mut self, group: u32) -> &mut Group {
        &mut self.own.entry(group).group
    }

    /// The same of a number that may be none.
    #[inline]
    pub(super) fn known_group(&self, group: u32) -> Option<&Group> {
        self.own.get(group).map(|own| &own.group)
    }

    /// Asks for the memory of the node of an innermost group, and of the group.
    #[inline]
    pub(super) fn prefetch(&self, at: u32) {
        if let Some(own) = self.own.get(at) {
            prefetch(core::ptr::from_ref(&own.group) as usize);
            prefetch(core::ptr::from_ref(&own.node) as usize);
        }
    }

    /// How many nodes there are that are not the ones that innermost groups have.
    #[cfg(test)]
    pub(super) fn spare(&self) -> usize {
        self.taken.len()
    }

    /// The node of an innermost group that is new.
    pub(super) fn make_own(&mut self, group: u32) -> u32 {
        debug_assert!(group & OTHER == 0, "there is no memory for so many groups");
        self.own.entry(group).node = Node::at(group, rank(0));
        group
    }

    pub(super) fn make_other(&mut self, group: u32, rank: u32) -> u32 {
        let at = self.taken.insert((), 0, 0);
        *self.others.entry(at) = Node::at(group, rank);
        at | OTHER
    }

    /// Frees a node that is empty.
    pub(super) fn free(&mut self, at: u32) {
        if at & OTHER == 0 {
            return;
        }
        self.others.take(at ^ OTHER);
        if let Some(chunk) = self.taken.remove(at ^ OTHER).and_then(|removed| removed.freed_chunk) {
            self.others.free_page(chunk);
            self.other_trees.free_page(chunk);
        }
    }

    /// Frees what is kept of a chunk of innermost groups that are no more.
    pub(super) fn free_page(&mut self, chunk: u32) {
        self.own.free_page(chunk);
        self.own_trees.free_page(chunk);
    }
}

/// Nodes that take turns: the one in front, and through their links all others. The one before it
/// is the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring(pub(super) u32);

impl Default for Ring {
    fn default() -> Self {
        Self(NONE)
    }
}

impl Ring {
    /// Lets a node in at the back.
    fn join(&mut self, nodes: &mut Nodes, at: u32) {
        let front = self.0;
        let back = nodes.get(front).map_or(at, |node| node.before);
        if front == NONE {
            self.0 = at;
        } else {
            nodes.entry(front).before = at;
            nodes.entry(back).after = at;
        }
        let node = nodes.entry(at);
        (node.before, node.after) = (back, if front == NONE { at } else { front });
    }

    /// Takes a node out.
    fn part(&mut self, nodes: &mut Nodes, at: u32) {
        let &mut Node { before, after, .. } = nodes.entry(at);
        if after == at {
            self.0 = NONE;
            return;
        }
        nodes.entry(before).after = after;
        nodes.entry(after).before = before;
        if self.0 == at {
            self.0 = after;
        }
    }
}

/// The outermost rings.
#[derive(Debug)]
pub(super) struct Rings {
    /// There is one for each level.
    levels: bool,
    /// The one, if there is one for all levels.
    pub(super) one: Ring,
    /// The others, and the levels at which somebody may be served.
    each: Column<Ring>,
    used: Ranks,
}

impl Rings {
    pub(super) const fn new(levels: bool) -> Self {
        Self { levels, one: Ring(NONE), each: Column::new(), used: Ranks::NONE }
    }

    /// The node whose turn it is.
    #[inline]
    pub(super) fn front(&self) -> Option<u32> {
        let Ring(front) = if self.levels { *self.each.get(self.used.highest()?)? } else { self.one };
        Some(front)
    }

    /// The node whose turn it is at one level, at which somebody may be served.
    #[inline]
    pub(super) fn front_at(&self, rank: u32) -> Option<u32> {
        self.each.get(rank).map(|ring| ring.0)
    }

    /// The ring within a node, or the outermost one of a level.
    #[inline(always)]
    pub(super) fn of<'a>(&'a mut self, nodes: &'a mut Nodes, up: u32, rank: u32) -> &'a mut Ring {
        match nodes.get_mut(up) {
            Some(node) => &mut node.ring,
            None if self.levels => self.each.entry(rank),
            None => &mut self.one,
        }
    }

    /// Somebody may be served at this level, or nobody.
    #[inline]
    fn is_used(&mut self, rank: u32, used: bool) {
        if !self.levels {
            return;
        }
        if used { self.used.insert(rank) } else { self.used.remove(rank) }
    }
}

impl<K> Fair<K> {
    /// A node comes to the back of its ring: it has keys, and its group is not shut.
    pub(super) fn join(&mut self, tier: usize, at: u32) {
        let Some(node) = self.nodes.get(at) else { return };
        let (group, rank) = (node.group, node.rank());
        let up = if tier == 0 {
            NONE
        } else {
            let within = self.group(tier, group).within;
            self.node_of(tier - 1, within, rank)
        };
        let node = self.nodes.entry(at);
        (node.up, node.in_ring, node.left) = (up, true, 0);
        let mut ring = *self.rings.of(&mut self.nodes, up, rank);
        let first = ring.0 == NONE;
        ring.join(&mut self.nodes, at);
        if !first {
            return;
        }
        *self.rings.of(&mut self.nodes, up, rank) = ring;
        if tier == 0 {
            self.rings.is_used(rank, true);
        } else {
            let outer = self.nodes.get(up).map_or(NONE, |node| node.group);
            if !self.group(tier - 1, outer).is_shut() {
                self.join(tier - 1, up);
            }
        }
    }

    /// A node leaves its ring, and its turn.
    pub(super) fn part(&mut self, tier: usize, at: u32) {
        let node = self.nodes.entry(at);
        (node.in_ring, node.left) = (false, 0);
        let (up, rank) = (node.up, node.rank());
        let mut ring = *self.rings.of(&mut self.nodes, up, rank);
        ring.part(&mut self.nodes, at);
        *self.rings.of(&mut self.nodes, up, rank) = ring;
        if ring.0 != NONE {
            return;
        }
        if tier == 0 {
            self.rings.is_used(rank, false);
        } else {
            if self.nodes.get(up).is_some_and(|node| node.in_ring) {
                self.part(tier - 1, up);
            }
            self.drop_if_spare(tier - 1, up);
        }
    }

    /// The node of a group at a level.
    #[inline]
    pub(super) fn node_of(&mut self, tier: usize, group: u32, rank: u32) -> u32 {
        let own = self.own_node(tier, group);
        if self.nodes.get(own).is_some_and(|node| node.rank() == rank) {
            return own;
        }
        self.other_node_of(tier, group, rank, own)
    }

    /// The node of an innermost group at a level, if it is there.
    pub(super) fn node_at(&self, group: u32, rank: u32) -> Option<u32> {
        match self.nodes.get(group)?.rank() == rank {
            true => Some(group),
            false => self.others.get(&(self.innermost(), group, rank)).copied(),
        }
    }

    #[inline(never)]
    pub(super) fn other_node_of(&mut self, tier: usize, group: u32, rank: u32, own: u32) -> u32 {
        if let Some(other) = self.others.get(&(tier, group, rank)) {
            return *other;
        }
        if self.nodes.is_empty(own) {
            self.nodes.entry(own).rank = rank as u16;
            return own;
        }
        let other = self.nodes.make_other(group, rank);
        self.others.insert((tier, group, rank), other);
        other
    }

    /// Frees a node that is empty, unless its group always has it.
    #[inline]
    pub(super) fn drop_if_spare(&mut self, tier: usize, at: u32) {
        if at & OTHER != 0 {
            self.drop_if_not_own(tier, at);
        }
    }

    #[inline(never)]
    fn drop_if_not_own(&mut self, tier: usize, at: u32) {
        let Some(node) = self.nodes.get(at) else { return };
        let (group, rank) = (node.group, node.rank());
        if self.own_node(tier, group) != at {
            self.others.remove(&(tier, group, rank));
            self.nodes.free(at);
        }
    }
}
