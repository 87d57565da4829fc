//! Overdue keys: `max_wait` of B2.

use super::{Model, Nanos};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// "With `max_wait` a key that has been ready for that long is overdue."
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxWait {
    /// Age at which a key is overdue.
    pub after: Nanos,
    /// "Of every n hand-outs one goes to the oldest overdue key."
    pub every: u32,
}

impl MaxWait {
    /// "8 unless told otherwise."
    #[must_use]
    pub fn of(after: std::time::Duration) -> Self {
        Self { after: u64::try_from(after.as_nanos()).unwrap_or(u64::MAX), every: 8 }
    }
}

/// The model's state for the ages of keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Ages {
    /// Pauses of each group, and of the queue (`None`): their beginning, and their end once they are over.
    pauses: BTreeMap<Option<u64>, Vec<(Nanos, Option<Nanos>)>>,
    /// Number of hand-outs by priority until the next one that goes to an overdue key: of the queue, or of
    /// each group that has a key in line.
    others: BTreeMap<Option<u64>, u32>,
}

impl Model {
    /// The queue, or a group, is paused from now on.
    pub(super) fn pause_begins(&mut self, group: Option<u64>) {
        let pauses = self.ages.pauses.entry(group).or_default();
        if pauses.last().is_none_or(|(_, until)| until.is_some()) {
            pauses.push((self.now, None));
        }
    }

    /// Records the end of a pause.
    pub(super) fn pause_ends(&mut self, group: Option<u64>) {
        let last = self.ages.pauses.get_mut(&group).and_then(|pauses| pauses.last_mut());
        if let Some((_, until)) = last {
            until.get_or_insert(self.now);
        }
    }

    /// How long a key in line could have been served: "not while the queue, its group or the key is paused".
    fn age(&self, key: u64) -> Nanos {
        let group = self.fair().map(|fair| Some(fair.groups.group(key)));
        let mut pauses: Vec<_> = std::iter::once(None)
            .chain(group)
            .filter_map(|group| self.ages.pauses.get(&group))
            .flatten()
            .map(|(from, until)| (*from, until.unwrap_or(self.now)))
            .collect();
        pauses.sort_unstable();
        let (mut at, mut age) = (self.keys[&key].in_line_since, 0);
        for (from, until) in pauses {
            age += from.saturating_sub(at);
            at = at.max(until);
        }
        age + self.now.saturating_sub(at)
    }

    /// Position in line of the key that this hand-out of the queue, or of this group, goes to because it is
    /// overdue: the oldest of those that `may` be served. If there is one, a key is handed out now.
    pub(super) fn overdue(
        &mut self,
        max_wait: Option<MaxWait>,
        group: Option<u64>,
        may: impl Fn(u64) -> bool,
    ) -> Option<usize> {
        let MaxWait { after, every } = max_wait?;
        let served = (0..self.line.len()).filter(|at| may(self.line[*at]));
        let (Reverse(age), oldest) = served.map(|at| (Reverse(self.age(self.line[at])), at)).min()?;
        let others = self.ages.others.entry(group).or_default();
        if *others > 0 {
            *others -= 1;
            return None;
        }
        (age >= after).then(|| {
            *others = every - 1;
            oldest
        })
    }

    /// A group without a key in line begins anew.
    pub(super) fn forget_hand_outs(&mut self) {
        let Some(fair) = self.fair() else { return };
        let line: Vec<_> = self.line.iter().map(|key| fair.groups.group(*key)).collect();
        self.ages.others.retain(|group, _| group.is_none_or(|group| line.contains(&group)));
    }
}
