//! Rings of nodes that take turns, and the keys of each node.
//!
//! A node is a group, or a group at a level. If levels count before the turns of groups, there is a ring for
//! each level, and a group is in the rings of all levels at which it has keys. Otherwise there is one ring,
//! which has each group's own node: the one with the group's number.

use super::NONE;
use super::group::Group;
use crate::arena::Arena;
use crate::column::Column;
use crate::line::keys::Keys;
use crate::line::ranked::{Ranked, rank};
use crate::prefetch::prefetch;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;

/// The keys of a group at a level, and its place in a ring.
#[derive(Debug)]
#[repr(C)] // see `GroupEntry`
pub(super) struct RingNode {
    /// Its neighbours in its ring, which may be itself.
    pub(super) before: u32,
    pub(super) after: u32,
    pub(super) group: u32,
    /// Number of keys left in its turn; 0 if its turn has not begun.
    pub(super) left: u32,
    /// Number of its keys that were raised to its level.
    pub(super) raised: u32,
    /// The rank of the level.
    rank: u16,
    pub(super) in_ring: bool,
    /// Its other keys, in the order in which they became ready.
    pub(super) keys: Keys,
}

impl Default for RingNode {
    fn default() -> Self {
        Self::at(NONE, rank(0))
    }
}

impl RingNode {
    fn at(group: u32, rank: u32) -> Self {
        Self {
            before: NONE,
            after: NONE,
            group,
            left: 0,
            raised: 0,
            rank: rank as u16,
            in_ring: false,
            keys: Keys::NONE,
        }
    }

    /// Counts a key that is handed out in the turn of this node, whose group has this weight. Returns whether
    /// the turn is over.
    #[inline]
    pub(super) fn takes_turn(&mut self, weight: u32) -> bool {
        self.left = if self.left == 0 { weight } else { self.left } - 1;
        self.left == 0
    }

    /// The rank of the level.
    #[inline]
    pub(super) fn rank(&self) -> u32 {
        u32::from(self.rank)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.raised == 0
    }
}

/// A group and its own node, in two neighbouring cache lines, because each push and each pop of a key touches
/// both: the second line has the keys.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct GroupEntry {
    pub(super) group: Group,
    pub(super) node: RingNode,
}

const _: () = assert!(size_of::<GroupEntry>() == 128);

/// Set in the number of a node that is not a group's own.
const OTHER: u32 = 1 << 31;

/// All groups and nodes. A group's own node has the group's number.
pub(super) struct Nodes {
    groups: Column<GroupEntry>,
    others: Column<RingNode>,
    /// The other nodes of each group that has keys at several levels, by rank. None of them is empty.
    by_rank: Column<BTreeMap<u16, u32>>,
    /// The numbers of `others` in use.
    taken: Arena<()>,
}

impl Nodes {
    pub(super) const fn new() -> Self {
        Self {
            groups: Column::new(),
            others: Column::new(),
            by_rank: Column::new(),
            taken: Arena::new(usize::MAX),
        }
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&RingNode> {
        if at & OTHER == 0 { self.groups.get(at).map(|own| &own.node) } else { self.others.get(at ^ OTHER) }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut RingNode> {
        if at & OTHER == 0 {
            self.groups.get_mut(at).map(|own| &mut own.node)
        } else {
            self.others.get_mut(at ^ OTHER)
        }
    }

    /// The node of this number, which is made if it is missing.
    #[inline]
    pub(super) fn entry(&mut self, at: u32) -> &mut RingNode {
        if at & OTHER == 0 { &mut self.groups.entry(at).node } else { self.others.entry(at ^ OTHER) }
    }

    /// A group with its own node, if it is known.
    #[inline]
    pub(super) fn of_group(&mut self, group: u32) -> Option<&mut GroupEntry> {
        self.groups.get_mut(group)
    }

    /// A group, which is made if it is missing.
    #[inline]
    pub(super) fn group(&mut self, group: u32) -> &mut Group {
        &mut self.groups.entry(group).group
    }

    /// The group of this number, if there is one. Any number is allowed.
    #[inline]
    pub(super) fn known_group(&self, group: u32) -> Option<&Group> {
        self.groups.get(group).map(|entry| &entry.group)
    }

    /// Prefetches the memory of a group and of its own node.
    #[inline]
    pub(super) fn prefetch(&self, group: u32) {
        if let Some(entry) = self.groups.get(group) {
            prefetch(core::ptr::from_ref(&entry.group) as usize);
            prefetch(core::ptr::from_ref(&entry.node) as usize);
        }
    }

    /// Makes a new group.
    pub(super) fn make_group(&mut self, number: u32, group: Group) {
        debug_assert!(number & OTHER == 0, "there is no memory for so many groups");
        *self.groups.entry(number) = GroupEntry { group, node: RingNode::at(number, rank(0)) };
    }

    /// The node of a group at a level, if there is one.
    pub(super) fn at_rank(&self, group: u32, rank: u32) -> Option<u32> {
        match self.get(group)?.rank() == rank {
            true => Some(group),
            false => self.by_rank.get(group)?.get(&(rank as u16)).copied(),
        }
    }

    /// The node of a group at a level, which is made if it is missing, for a key that is about to enter it.
    /// `ready` already counts that key.
    #[inline]
    pub(super) fn make_at_rank(&mut self, group: u32, rank: u32, ready: u32) -> u32 {
        let own = self.entry(group);
        if own.rank() == rank {
            return group;
        }
        if ready == 1 {
            own.rank = rank as u16;
            return group;
        }
        self.make_other(group, rank)
    }

    fn make_other(&mut self, group: u32, rank: u32) -> u32 {
        let other = match self.by_rank.entry(group).entry(rank as u16) {
            Entry::Occupied(other) => return *other.get(),
            Entry::Vacant(other) => other,
        };
        let own = &mut self.groups.entry(group).node;
        if own.is_empty() {
            own.rank = rank as u16;
            return group;
        }
        let at = self.taken.insert((), 0, 0);
        *self.others.entry(at) = RingNode::at(group, rank);
        other.insert(at | OTHER);
        at | OTHER
    }

    /// The node of a group's highest level. It is empty if the group has no key in line.
    #[inline]
    pub(super) fn highest(&self, group: u32) -> u32 {
        let others = self.by_rank.get(group).and_then(BTreeMap::last_key_value);
        let above = |(rank, other): (&u16, &u32)| {
            self.get(group).is_none_or(|own| own.is_empty() || own.rank < *rank).then_some(*other)
        };
        others.and_then(above).unwrap_or(group)
    }

    /// The nodes of a group that are not its own.
    pub(super) fn others_of(&self, group: u32) -> impl Iterator<Item = u32> + '_ {
        self.by_rank.get(group).into_iter().flat_map(|others| others.values().copied())
    }

    /// Frees a node that is empty and in no ring, unless it is its group's own.
    #[inline]
    pub(super) fn free_other(&mut self, at: u32) {
        if at & OTHER != 0 {
            self.free(at ^ OTHER);
        }
    }

    fn free(&mut self, at: u32) {
        // its contents stay until another node has its number
        let Some(&RingNode { group, rank, .. }) = self.others.get(at) else { return };
        if let Some(others) = self.by_rank.get_mut(group) {
            others.remove(&rank);
        }
        if let Some(chunk) = self.taken.remove(at).and_then(|removed| removed.freed_chunk) {
            self.others.free_page(chunk);
        }
    }

    /// Frees the state of a chunk of forgotten groups.
    pub(super) fn free_page(&mut self, chunk: u32) {
        self.groups.free_page(chunk);
        self.by_rank.free_page(chunk);
    }

    /// Number of nodes that are not a group's own.
    #[cfg(test)]
    pub(super) fn others(&self) -> usize {
        self.taken.len()
    }
}

/// Nodes that take turns: the one in front, and through their links all others. The one before it
/// is the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnRing(pub(super) u32);

impl Default for TurnRing {
    fn default() -> Self {
        Self(NONE)
    }
}

impl TurnRing {
    /// Enters a node at the back.
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

    /// Removes a node.
    fn part(&mut self, nodes: &mut Nodes, at: u32) {
        let &mut RingNode { before, after, .. } = nodes.entry(at);
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

/// The one ring, or one for each level.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) one: TurnRing,
    levels: Option<Box<Ranked<TurnRing>>>,
}

impl Rings {
    pub(super) fn new(levels: bool) -> Self {
        Self { one: TurnRing(NONE), levels: levels.then(|| Box::new(Ranked::new())) }
    }

    /// The node whose turn it is.
    #[inline]
    pub(super) fn front(&self) -> u32 {
        match &self.levels {
            None => self.one.0,
            Some(levels) => levels.top().map_or(NONE, |(_, ring)| ring.0),
        }
    }

    /// The node whose turn it is at one level, which must have a node.
    #[inline]
    pub(super) fn front_at(&self, rank: u32) -> Option<u32> {
        self.levels.as_deref()?.get(rank).map(|ring| ring.0)
    }

    /// The ring of the nodes of this level.
    #[inline]
    pub(super) fn of(&mut self, rank: u32) -> &mut TurnRing {
        match &mut self.levels {
            None => &mut self.one,
            Some(levels) => levels.entry(rank),
        }
    }

    /// Enters a node, which has keys and whose group is not shut, at the back of its ring.
    pub(super) fn join(&mut self, nodes: &mut Nodes, at: u32) {
        let node = nodes.entry(at);
        (node.in_ring, node.left) = (true, 0);
        let rank = node.rank();
        let ring = match &mut self.levels {
            None => &mut self.one,
            Some(levels) => levels.begin_if(rank, |ring| ring.0 == NONE),
        };
        ring.join(nodes, at);
    }

    /// Removes a node from its ring, and ends its turn.
    pub(super) fn part(&mut self, nodes: &mut Nodes, at: u32) {
        let node = nodes.entry(at);
        (node.in_ring, node.left) = (false, 0);
        let rank = node.rank();
        let ring = self.of(rank);
        ring.part(nodes, at);
        let empty = ring.0 == NONE;
        if let (true, Some(levels)) = (empty, &mut self.levels) {
            levels.end(rank);
        }
    }
}
