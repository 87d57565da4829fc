//! Groups that take turns (rule B3), as a queue is built with them.

use crate::Builder;
use requeue_core::GroupRules;
use std::hash::Hash;

impl<K, V, S> Builder<K, V, S> {
    /// Keys belong to groups, and groups take turns: a tenant with a million ready keys does not
    /// keep the others waiting. `group` tells the group of a key. Off by default: such a queue
    /// pays nothing for it.
    ///
    /// * Each group that has a ready key gets one key handed out in a turn, or as many as its
    ///   weight says ([`group_by_with`](Self::group_by_with)), and goes behind the others.
    ///   Within a group keys go in the order in which they became ready.
    /// * **While a group waits, each other group `h` gets at most `w(h)` keys handed out**, its
    ///   weight: so many in all, however many keys come and whatever other groups come and go.
    /// * **Of two groups that always have ready keys, the numbers of keys handed out, each divided
    ///   by the group's weight, never differ by more than 2** since any moment.
    /// * A group that has no ready key loses what is left of its turn. It costs nothing then, and
    ///   is forgotten with its last key, unless it is [paused](crate::WorkQueue::pause_group) or
    ///   its [bucket](crate::GroupRules::rate) is not full.
    /// * With [priorities](Self::priorities) the highest priority goes first, and groups take
    ///   turns within each priority; or the other way round:
    ///   [`priorities_within_groups`](Self::priorities_within_groups). The two bounds hold
    ///   for groups at the same priority.
    /// * With [`max_wait`](Self::max_wait) an overdue key waits for the turn of its group, so both
    ///   bounds hold all the same.
    /// * A call for several keys at once ([`get_many`](crate::WorkQueue::get_many)) gets what as many
    ///   calls for one would get.
    ///
    /// To add a key and to get one costs the same whatever the number of groups and keys.
    ///
    /// # Groups within groups
    ///
    /// Each further call divides the groups that there are so far: tenants take turns, and in a
    /// tenant's turn its namespaces do. Both bounds then hold for tenants among each other and
    /// for the namespaces of a tenant among each other.
    ///
    /// # Users' code
    ///
    /// `group` runs under the queue's lock, once for each key that becomes known (and again when the
    /// key comes back later), and so do `Hash`, `Eq` and the drop of what it returns. They must
    /// be short and must not call the queue. If `group` panics, the panic reaches whoever
    /// called, and the trigger is not accepted. A key must always tell the same group.
    ///
    /// A queue that knows more than 16,384 keys asks `group` while it waits for the memory that says
    /// whether the key is known, if the key before was new: so it may also ask for one that is known.
    ///
    /// # Errors
    ///
    /// With an [`order`](Self::order) other than first in first out, or an order of one's
    /// own, [`build`](Self::build) says [`BuildError::OrderAndGroups`](crate::BuildError::OrderAndGroups).
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

    /// [`group_by`](Self::group_by) with weights, and with a cap on how many keys of a group may be
    /// held at the same time.
    ///
    /// The ready keys of a group that is at its cap stay ready (they count in
    /// [`len`](crate::WorkQueue::len)) and are not handed out: a `get` takes a key of another
    /// group, or waits until one of the runs has ended. The group then comes behind those that
    /// wait. Caps hold while the queue is drained, too.
    ///
    /// # Errors
    ///
    /// As [`group_by`](Self::group_by), and for a [`cap`](GroupRules::cap) of 0
    /// [`BuildError::GroupCapZero`](crate::BuildError::GroupCapZero).
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
        self.settings.fairness.then_by(group, rules);
        self
    }

    /// On a queue with [priorities](Self::priorities) and [groups](Self::group_by), priorities count
    /// within a group: groups take turns whatever the priorities of their keys, and in its turn
    /// a group has its key of the highest priority handed out. By default it is the other way
    /// round: a key of a higher priority goes before those of all groups.
    ///
    /// # Errors
    ///
    /// Without priorities or without groups [`build`](Self::build) says
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
