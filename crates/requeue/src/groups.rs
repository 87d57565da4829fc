//! The builder's methods for groups that take turns (rule B3).

use crate::builder::Builder;
use requeue_core::GroupRules;
use std::hash::Hash;

impl<K, V, S> Builder<K, V, S> {
    /// Divides keys into groups that take turns: a tenant with a million ready keys does not keep the others
    /// waiting. `group` returns the group of a key. Off by default: such a queue pays nothing for it.
    ///
    /// * In its turn, a group with ready keys gets one key handed out, or as many as its weight says
    ///   ([`group_by_with`](Self::group_by_with)), and goes behind the others. Within a group, keys go in the
    ///   order in which they became ready.
    /// * **While a group waits, each other group `h` gets at most `w(h)` keys handed out**, its weight,
    ///   however many keys come and whatever other groups come and go.
    /// * **Of two groups that always have ready keys, the numbers of keys handed out, each divided
    ///   by the group's weight, never differ by more than 2** since any moment.
    /// * A group without a ready key loses the rest of its turn. It then costs nothing, and is forgotten with
    ///   its last key, unless it is [paused](crate::WorkQueue::pause) or its
    ///   [bucket](crate::GroupRules::rate) is not full.
    /// * With [priorities](Self::priorities) the highest priority goes first, and groups take
    ///   turns within each priority; or the other way round:
    ///   [`priorities_within_groups`](Self::priorities_within_groups). The two bounds hold
    ///   for groups at the same priority.
    /// * With [`max_wait`](Self::max_wait) an overdue key waits for its group's turn, so both bounds still
    ///   hold.
    /// * A call for several keys ([`get_many`](crate::WorkQueue::get_many)) gets the keys that as many single
    ///   calls would get.
    ///
    /// Adding and getting a key cost the same for any number of groups and keys.
    ///
    /// A key is in one group. The last call of this or of [`group_by_with`](Self::group_by_with) counts.
    ///
    /// # Users' code
    ///
    /// `group` runs under the queue's lock, once for each key that becomes known (and again when the key
    /// comes back later); so do `Hash`, `Eq` and the drop of its result. They must be short and must not call
    /// the queue. If `group` panics, the panic reaches the caller, and the trigger is not accepted. A key
    /// must always have the same group.
    ///
    /// In a queue with more than 16,384 keys, `group` may also be asked for a key that is already known: it
    /// runs while the memory that says whether the key is known is being loaded.
    ///
    /// # Errors
    ///
    /// With an [`order`](Self::order) other than first in first out, [`build`](Self::build) returns
    /// [`BuildError::OrderAndGroups`](crate::BuildError::OrderAndGroups).
    ///
    /// ```
    /// use requeue::WorkQueue;
    /// fn tenant(key: &&str) -> String {
    ///     key.split('/').next().unwrap_or_default().to_owned()
    /// }
    /// let q = WorkQueue::builder().group_by(tenant).build()?;
    /// q.add_many(["noisy/1", "noisy/2", "noisy/3", "small/1", "other/1"]).all()?;
    /// let order: Vec<_> = std::iter::from_fn(|| q.try_get().ok()).map(|item| *item.key()).collect();
    /// assert_eq!(order, ["noisy/1", "small/1", "other/1", "noisy/2", "noisy/3"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn group_by<G>(self, group: impl Fn(&K) -> G + Send + 'static) -> Self
    where
        G: Hash + Eq + Send + Sync + 'static,
    {
        self.group_by_with(group, GroupRules::new())
    }

    /// Like [`group_by`](Self::group_by), with weights, and with a cap on how many keys of a group may be
    /// held at the same time.
    ///
    /// The ready keys of a group at its cap stay ready (they count in [`len`](crate::WorkQueue::len)) and are
    /// not handed out: a `get` takes a key of another group, or waits until one of the runs has ended. The
    /// group then goes behind those that wait. Caps also hold while the queue is drained.
    ///
    /// # Errors
    ///
    /// Like [`group_by`](Self::group_by), and [`BuildError::GroupCapZero`](crate::BuildError::GroupCapZero)
    /// for a [`cap`](GroupRules::cap) of 0.
    ///
    /// ```
    /// use requeue::{GroupRules, WorkQueue};
    /// // 'a' gets three keys in a turn, and no letter more than two at the same time
    /// let rules = GroupRules::new().weight(|first: &char| if *first == 'a' { 3 } else { 1 }).cap(2);
    /// let first = |key: &&str| key.chars().next().unwrap_or(' ');
    /// let q = WorkQueue::builder().group_by_with(first, rules).build()?;
    /// q.add_many(["a1", "a2", "a3", "b1"]).all()?;
    /// let (a1, a2, b1) = (q.try_get()?, q.try_get()?, q.try_get()?);
    /// assert_eq!([*a1.key(), *a2.key(), *b1.key()], ["a1", "a2", "b1"]);
    /// assert!(q.try_get().is_err() && q.len() == 1);
    /// a1.done();
    /// assert_eq!(*q.try_get()?.key(), "a3");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn group_by_with<G>(mut self, group: impl Fn(&K) -> G + Send + 'static, rules: GroupRules<G>) -> Self
    where
        G: Hash + Eq + Send + Sync + 'static,
    {
        self.settings.fairness.group_by(group, rules);
        self
    }

    /// Lets priorities count only within a group, on a queue with [priorities](Self::priorities) and
    /// [groups](Self::group_by): groups take turns whatever the priorities of their keys, and in its turn a
    /// group has its key of the highest priority handed out. By default it is the other way round: a key of a
    /// higher priority goes before those of all groups.
    ///
    /// # Errors
    ///
    /// Without priorities or without groups, [`build`](Self::build) returns
    /// [`BuildError::NothingWithinGroups`](crate::BuildError::NothingWithinGroups).
    ///
    /// ```
    /// use requeue::{Add, WorkQueue};
    /// let tenth = |key: &u32| key / 10;
    /// let q = WorkQueue::builder().group_by(tenth).priorities().priorities_within_groups().build()?;
    /// for (key, priority) in [(11, 0), (12, 9), (13, 5), (21, 0)] {
    ///     q.add_with(key, Add::now().priority(priority))?;
    /// }
    /// let order: Vec<_> = std::iter::from_fn(|| q.try_get().ok()).map(|item| *item.key()).collect();
    /// assert_eq!(order, [12, 21, 13, 11]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn priorities_within_groups(mut self) -> Self {
        self.settings.fairness.within = true;
        self
    }
}
