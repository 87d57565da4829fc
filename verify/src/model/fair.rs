//! Groups that take turns (B3).

use super::{MaxWait, Model, Order, Rate};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// One level of groups: key `k` belongs to group `k / divisor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// Number of neighbouring keys in a group.
    pub divisor: u64,
    /// The weights of the groups, in turn.
    pub weights: [u32; 4],
    /// Maximum number of held keys per group, in turn.
    pub caps: [usize; 4],
    /// Rate limit of each group's hand-outs (B6).
    pub rate: Option<Rate>,
}

impl Grouping {
    /// Groups of so many keys, all alike and without a cap.
    #[must_use]
    pub fn of(divisor: u64) -> Self {
        Self { divisor, weights: [1; 4], caps: [usize::MAX; 4], rate: None }
    }

    /// The group of a key.
    #[must_use]
    pub fn group(&self, key: u64) -> u64 {
        key / self.divisor
    }

    /// A group's weight.
    #[must_use]
    pub fn weight(&self, group: u64) -> u32 {
        self.weights[group as usize % 4]
    }

    /// A group's cap.
    #[must_use]
    pub fn cap(&self, group: u64) -> usize {
        self.caps[group as usize % 4]
    }
}

/// The groups of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fair {
    /// Which they are.
    pub groups: Grouping,
    /// Triggers may have priorities.
    pub priorities: bool,
    /// Priorities count within a group: by default they go before the turns of groups.
    pub within: bool,
    /// Age at which keys are overdue, and their share of the hand-outs: within the turn of their group.
    pub max_wait: Option<MaxWait>,
}

impl Fair {
    /// Groups without anything else.
    #[must_use]
    pub fn of(groups: Grouping) -> Self {
        Self { groups, priorities: false, within: false, max_wait: None }
    }

    /// Whether groups have rates.
    #[must_use]
    pub fn is_rated(&self) -> bool {
        self.groups.rate.is_some()
    }
}

/// A group that waits for its turn, and how many keys the turn has left that it is in; 0 before it.
type Turn = (u64, u32);

/// The rings: for each priority, its members, the next one in front.
pub(super) type Turns = BTreeMap<i16, Vec<Turn>>;

/// Reasons why groups are not served.
struct Held {
    /// Number of held keys per group.
    keys: BTreeMap<u64, usize>,
    /// Groups that are paused, or have no token.
    back: BTreeSet<u64>,
}

/// Whether the key's group has fewer held keys than it may, and is not held back.
fn is_open(fair: &Fair, held: &Held, key: u64) -> bool {
    let group = fair.groups.group(key);
    let has_room = held.keys.get(&group).copied().unwrap_or(0) < fair.groups.cap(group).max(1);
    has_room && !held.back.contains(&group)
}

impl Model {
    pub(super) fn fair(&self) -> Option<Fair> {
        match self.options.order {
            Order::Fair(fair) => Some(fair),
            _ => None,
        }
    }

    /// Whether triggers may have priorities.
    pub(super) fn has_priorities(&self) -> bool {
        matches!(self.options.order, Order::Priority { .. })
            || self.fair().is_some_and(|fair| fair.priorities)
    }

    /// Number of keys that may be handed out now, until the next cap is reached. Groups at their cap of held
    /// keys do not count.
    pub(super) fn open(&self) -> usize {
        let Some(fair) = self.fair() else { return self.line.len() };
        let held = self.held_of(&fair);
        self.line.iter().filter(|key| is_open(&fair, &held, **key)).count()
    }

    /// Number of held keys per group.
    fn held_of(&self, fair: &Fair) -> Held {
        let mut held = BTreeMap::new();
        for (key, _) in self.keys.iter().filter(|(_, entry)| entry.run.is_some()) {
            *held.entry(fair.groups.group(*key)).or_default() += 1;
        }
        let dry = self.dry.iter().map(|(.., group)| *group);
        Held { keys: held, back: self.paused_groups.iter().copied().chain(dry).collect() }
    }

    /// Number of ready keys per priority (M).
    #[must_use]
    pub fn depths(&self) -> Option<Vec<(i16, usize)>> {
        let mut depths = BTreeMap::<_, usize>::new();
        for entry in self.keys.values().filter(|entry| entry.ready) {
            *depths.entry(entry.priority).or_default() += 1;
        }
        self.has_priorities().then(|| depths.into_iter().collect())
    }

    /// The groups that have a ready or a held key, of those that have a name: name, and how many
    /// of each (M). A group of an odd number is called by it.
    #[must_use]
    pub fn groups(&self) -> Vec<(String, usize, usize)> {
        let Some(fair) = self.fair() else { return Vec::new() };
        let mut groups = BTreeMap::<_, [usize; 2]>::new();
        for (key, entry) in self.keys.iter().filter(|(_, entry)| entry.ready || entry.run.is_some()) {
            let group = fair.groups.group(*key);
            if group % 2 == 1 {
                groups.entry(group).or_default()[usize::from(!entry.ready)] += 1;
            }
        }
        let mut groups: Vec<_> =
            groups.into_iter().map(|(group, [ready, held])| (group.to_string(), ready, held)).collect();
        groups.sort_unstable();
        groups
    }

    /// The priority of the ring in which a key's group stands for it.
    fn ring_of(&self, fair: &Fair, key: u64) -> i16 {
        if fair.within { 0 } else { self.keys[&key].priority }
    }

    /// Sorts the groups into rings: a group that has a key in line and may be served is in a ring, in the
    /// order of arrival; the others leave it, and lose their turn.
    pub(super) fn sort_turns(&mut self) {
        let Some(fair) = self.fair() else { return };
        self.forget_hand_outs();
        let held = self.held_of(&fair);
        let open = self.line.iter().filter(|key| is_open(&fair, &held, **key));
        let standing: Vec<(i16, u64)> =
            open.map(|key| (self.ring_of(&fair, *key), fair.groups.group(*key))).collect();
        for (ring, turns) in &mut self.turns {
            turns.retain(|(group, _)| standing.contains(&(*ring, *group)));
        }
        for (ring, group) in standing {
            let turns = self.turns.entry(ring).or_default();
            if turns.iter().all(|(other, _)| *other != group) {
                turns.push((group, 0));
            }
        }
        self.turns.retain(|_, turns| !turns.is_empty());
    }

    /// Position in line of the next key.
    pub(super) fn next_in_turn(&mut self, fair: &Fair) -> Option<usize> {
        let (line, held) = (self.line.clone(), self.held_of(fair));
        let open = line.iter().filter(|key| is_open(fair, &held, **key));
        let highest = open.map(|key| self.ring_of(fair, *key)).max()?;
        // without priorities nobody passes another of its group
        let max_wait = fair.max_wait.filter(|_| fair.priorities);
        let of_all = max_wait.filter(|_| !fair.within);
        let overdue = self.overdue(of_all, None, |key| is_open(fair, &held, key));
        let ring = overdue.map_or(highest, |at| self.ring_of(fair, line[at]));
        let turns = self.turns.get_mut(&ring).expect("somebody stands in it");
        let (group, left) = &mut turns[0];
        let group = *group;
        *left = if *left == 0 { fair.groups.weight(group).max(1) } else { *left } - 1;
        if *left == 0 {
            turns.rotate_left(1);
        }
        let in_group = max_wait.filter(|_| fair.within);
        if let Some(at) = self.overdue(in_group, Some(group), |key| fair.groups.group(key) == group) {
            return Some(at);
        }
        let of_group = (0..line.len()).filter(|at| fair.groups.group(line[*at]) == group);
        let of_ring = of_group.filter(|at| self.ring_of(fair, line[*at]) == ring);
        of_ring.min_by_key(|at| (Reverse(self.keys[&line[*at]].priority), *at))
    }
}
