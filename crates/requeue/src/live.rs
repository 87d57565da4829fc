//! Rules that are changed on a live queue (rule B13): the next decision uses the new value, and no key is lost.
//!
//! Workers have such a call of their own, [`Worker::resize`](crate::Worker::resize).

use crate::queue::WorkQueue;
use requeue_core::Rate;
use std::time::Duration;

impl<K, V, S> WorkQueue<K, V, S> {
    /// Changes the [dispatch rate](crate::Builder::rate), also of a queue that was built without one; `None` ends it, and leaves
    /// the [rates of groups](crate::GroupRules::rate). Tokens that have come stay, as far as the new burst holds them; a part of
    /// one is lost.
    ///
    /// ```
    /// # use requeue::{FakeClock, Rate, WorkQueue};
    /// let q = WorkQueue::builder().clock(FakeClock::new()).build()?;
    /// q.add_many(["a", "b", "c", "d"]).all()?;
    /// q.set_rate(Rate::per_second(10.0, 2));
    /// assert_eq!(q.try_get_many(4)?.len(), 2);
    /// q.set_rate(None);
    /// assert_eq!(q.try_get_many(4)?.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_rate(&self, rate: Option<Rate>) {
        self.shared.look_at(self.shared.now()).with(|hold| hold.core.set_rate(rate));
    }

    /// Changes the [bound](crate::Builder::bound) of a queue that was built with one; otherwise returns `false` and changes
    /// nothing. The queue keeps the keys that it knows: with a lower bound it has no room until enough of them are gone. A bound
    /// of 0 counts as 1.
    ///
    /// ```
    /// # use requeue::{Refused, WorkQueue};
    /// let q = WorkQueue::builder().bound(1).build()?;
    /// q.add("a")?;
    /// assert_eq!(q.add("b").unwrap_err().reason, Refused::Full);
    /// assert!(q.set_bound(2));
    /// q.add("b")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_bound(&self, keys: usize) -> bool {
        self.shared.hold(None).with(|hold| hold.core.set_bound(keys))
    }

    /// Changes after how long in line a key is overdue, on a queue that was built with [priorities](crate::Builder::priorities)
    /// and [`max_wait`](crate::Builder::max_wait); otherwise returns `false` and changes nothing.
    ///
    /// ```
    /// # use requeue::{Add, FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// let (clock, hour) = (FakeClock::new(), Duration::from_secs(3_600));
    /// let q = WorkQueue::builder().clock(clock.clone()).priorities().max_wait(hour).build()?;
    /// q.add("old")?;
    /// clock.advance(Duration::from_secs(60));
    /// q.add_with("urgent", Add::now().priority(9))?;
    /// assert!(q.set_max_wait(Duration::from_secs(30)));
    /// assert_eq!(*q.try_get()?.key(), "old");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_max_wait(&self, after: Duration) -> bool {
        self.shared.hold(None).with(|hold| hold.core.set_max_wait(after))
    }

    /// Asks the functions of [`GroupRules`](crate::GroupRules) anew for each group that has keys: their weights, caps and rates
    /// may have changed. A group keeps its tokens, as far as the new burst holds them; names in metrics stay. Does nothing on a
    /// queue without groups. A rate needs a function of rates when the queue is built.
    ///
    /// The functions run under the queue's lock, for at most 256 groups a hold.
    ///
    /// # Panics
    ///
    /// If one of the functions panics. Then the groups before have their new rules.
    ///
    /// ```
    /// # use requeue::{GroupRules, WorkQueue};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    /// let cap = Arc::new(AtomicUsize::new(1));
    /// let read = cap.clone();
    /// let rules = GroupRules::new().cap_of(move |_| read.load(Relaxed));
    /// let q = WorkQueue::builder().group_by_with(|key: &u32| key / 10, rules).build()?;
    /// q.add_many([11, 12]).all()?;
    /// let first = q.try_get()?;
    /// assert!(q.try_get().is_err());
    /// cap.store(2, Relaxed);
    /// q.reload_group_rules();
    /// assert_eq!(*q.try_get()?.key(), 12);
    /// # drop(first);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reload_group_rules(&self) {
        let (now, mut from) = (self.shared.now(), Some(0));
        while let Some(group) = from {
            from = self.shared.look_at(now).with(|hold| hold.core.reload_groups(group));
        }
    }
}
