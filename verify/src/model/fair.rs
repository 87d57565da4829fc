//! Groups that take turns (B3).

use super::{MaxWait, Model, Order, Rate};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// One level of groups: key `k` belongs to group `k / divisor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Number of neighbouring keys in a group.
    pub divisor: u64,
    /// The weights of the groups, in turn.
    pub weights: [u32; 4],
    /// Maximum number of held keys per group, in turn.
    pub caps: [usize; 4],
    /// Rate limit of each group's hand-outs (B6).
    pub rate: Option<Rate>,
}

impl Tier {
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
    /// The outer groups.
    pub outer: Tier,
    /// The groups within each of them.
    pub inner: Option<Tier>,
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
    pub fn of(outer: Tier) -> Self {
        Self { outer, inner: None, priorities: false, within: false, max_wait: None }
    }

    pub(super) fn tiers(&self) -> Vec<Tier> {
        std::iter::once(self.outer).chain(self.inner).collect()
    }

    /// Whether groups have rates.
    #[must_use]
    pub fn is_rated(&self) -> bool {
        self.tiers().iter().any(|tier| tier.rate.is_some())
    }

    /// The groups of a key, the outermost first.
    pub(super) fn path(&self, key: u64) -> Vec<u64> {
        self.tiers().iter().map(|tier| tier.group(key)).collect()
    }
}

/// A group that waits for its turn, and how many keys the turn has left that it is in; 0 before it.
type Turn = (u64, u32);

/// The rings: for each priority, and for each group that is divided, its members, the next one in front.
pub(super) type Turns = BTreeMap<(i16, Vec<u64>), Vec<Turn>>;

/// Reasons why groups are not served.
struct Held {
    /// Number of held keys per group.
    keys: BTreeMap<Vec<u64>, usize>,
    /// Groups that are paused, or have no token.
    back: BTreeSet<Vec<u64>>,
}

/// Whether none of the key's groups, from this tier on, has as many held keys as it may, or is
/// held back.
fn is_open(fair: &Fair, held: &Held, key: u64, from: usize) -> bool {
    let (path, tiers) = (fair.path(key), fair.tiers());
    let has_room = |at| held.keys.get(&path[..=at]).copied().unwrap_or(0) < tiers[at].cap(path[at]).max(1);
    (from..path.len()).all(|at| has_room(at) && !held.back.contains(&path[..=at]))
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
        self.line.iter().filter(|key| is_open(&fair, &held, **key, 0)).count()
    }

    /// Number of held keys per group.
    fn held_of(&self, fair: &Fair) -> Held {
        let mut held = BTreeMap::new();
        for (key, entry) in &self.keys {
            let path = fair.path(*key);
            for at in (0..path.len()).filter(|_| entry.run.is_some()) {
                *held.entry(path[..=at].to_vec()).or_default() += 1;
            }
        }
        Held {
            keys: held,
            back: self
                .paused_groups
                .iter()
                .chain(self.dry.iter().map(|(.., group)| group))
                .cloned()
                .collect(),
        }
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

    /// The groups that have a ready or a held key, of those that have a name: tier, name, and how many
    /// of each (M). A group of an odd number is called by it; within one that has a name it is
    /// called by both.
    #[must_use]
    pub fn groups(&self) -> Vec<(usize, String, usize, usize)> {
        let Some(fair) = self.fair() else { return Vec::new() };
        let mut groups = BTreeMap::<_, [usize; 2]>::new();
        for (key, entry) in self.keys.iter().filter(|(_, entry)| entry.ready || entry.run.is_some()) {
            let path = fair.path(*key);
            for at in (0..path.len()).filter(|at| path[*at] % 2 == 1) {
                let group = groups.entry(path[..=at].to_vec()).or_default();
                group[usize::from(!entry.ready)] += 1;
            }
        }
        let called = |path: &[u64]| {
            let above = (path.len() == 2 && path[0] % 2 == 1).then(|| format!("{}/", path[0]));
            format!("{}{}", above.unwrap_or_default(), path[path.len() - 1])
        };
        let mut groups: Vec<_> = groups
            .into_iter()
            .map(|(path, [ready, held])| (path.len() - 1, called(&path), ready, held))
            .collect();
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
        let mut standing: Vec<((i16, Vec<u64>), u64)> = Vec::new();
        for key in &self.line {
            let path = fair.path(*key);
            for at in 0..path.len() {
                if is_open(&fair, &held, *key, at) {
                    standing.push(((self.ring_of(&fair, *key), path[..at].to_vec()), path[at]));
                }
            }
        }
        for (ring, turns) in &mut self.turns {
            turns.retain(|(group, _)| standing.contains(&(ring.clone(), *group)));
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
        let open = line.iter().filter(|key| is_open(fair, &held, **key, 0));
        let highest = open.map(|key| self.ring_of(fair, *key)).max()?;
        // without priorities nobody passes another of its group
        let max_wait = fair.max_wait.filter(|_| fair.priorities);
        let of_all = max_wait.filter(|_| !fair.within);
        let overdue = self.overdue(of_all, &[], |key| is_open(fair, &held, key, 0));
        let ring = overdue.map_or(highest, |at| self.ring_of(fair, line[at]));
        let mut path = Vec::new();
        for tier in fair.tiers() {
            let turns = self.turns.get_mut(&(ring, path.clone())).expect("somebody stands in it");
            let (group, left) = &mut turns[0];
            let group = *group;
            *left = if *left == 0 { tier.weight(group).max(1) } else { *left } - 1;
            if *left == 0 {
                turns.rotate_left(1);
            }
            path.push(group);
        }
        let in_group = max_wait.filter(|_| fair.within);
        if let Some(at) = self.overdue(in_group, &path, |key| fair.path(key) == path) {
            return Some(at);
        }
        let of_group = (0..line.len()).filter(|at| fair.path(line[*at]) == path);
        let of_ring = of_group.filter(|at| self.ring_of(fair, line[*at]) == ring);
        of_ring.min_by_key(|at| (Reverse(self.keys[&line[*at]].priority), *at))
    }
}
