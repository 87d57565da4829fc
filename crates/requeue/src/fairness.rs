//! A builder's settings for groups that take turns (rule B3); see `groups.rs`.

use crate::error::BuildError;
use crate::hash::RandomState;
use requeue_core::{GroupRules, Groups, MaxWait, Order};
use std::hash::Hash;

/// A builder's settings for groups.
pub(crate) struct Fairness<K> {
    groups: Option<Groups<K>>,
    pub(crate) within: bool,
    /// A cap of 0 was given.
    no_room: bool,
    /// An invalid rate was given.
    no_rate: Option<(f64, u32)>,
}

impl<K> Default for Fairness<K> {
    fn default() -> Self {
        Self { groups: None, within: false, no_room: false, no_rate: None }
    }
}

impl<K> Fairness<K> {
    /// Sets the function that returns the group of a key, and the rules of the groups.
    pub(crate) fn group_by<G>(&mut self, group: impl Fn(&K) -> G + Send + 'static, rules: GroupRules<G>)
    where
        G: Hash + Eq + Send + Sync + 'static,
    {
        self.no_room = rules.has_no_room();
        self.no_rate = rules.no_rate();
        self.groups = Some(Groups::by(group, rules, RandomState::default()));
    }

    /// The order of a queue with groups, if there are groups; `other` is the order given with them.
    pub(crate) fn take_order(
        &mut self,
        other: &Order<K>,
        priorities: bool,
        max_wait: Option<MaxWait>,
    ) -> Result<Option<Order<K>>, BuildError> {
        let Self { groups, within, no_room, no_rate } = std::mem::take(self);
        if within && (!priorities || groups.is_none()) {
            return Err(BuildError::NothingWithinGroups);
        }
        let Some(groups) = groups else { return Ok(None) };
        if !matches!(other, Order::Fifo) {
            return Err(BuildError::OrderAndGroups);
        }
        if no_room {
            return Err(BuildError::GroupCapZero);
        }
        if let Some((keys, burst)) = no_rate {
            return Err(BuildError::Rate {
                asked: format!("{keys:?} keys a second of a group, {burst} at once,"),
            });
        }
        Ok(Some(Order::Fair { groups, priorities, within, max_wait }))
    }
}
