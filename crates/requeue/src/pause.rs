//! Pause and resume (rule B7), and the lifting of a dispatch rate (rule B6).

use crate::WorkQueue;
use crate::hold::Shared;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

impl<K: Eq, V> Shared<K, V> {
    fn pause_key(&self, key: K, hash: u32) -> bool {
        // dropped without the lock, if it was known
        let mut key = Some(key);
        self.enter(&mut None).with(|hold| hold.core.pause_key(&mut key, hash))
    }
}

impl<K, V> Shared<K, V> {
    fn resume_key<Q>(&self, key: &Q, hash: u32) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let (was, gone) = self.enter(&mut None).with(|hold| hold.core.resume_key(key, hash));
        drop(gone);
        was
    }
}

impl<K, V, S> WorkQueue<K, V, S> {
    /// Hands out no key until [`resume`](Self::resume): getters wait, and [`try_get`](Self::try_get) returns
    /// "empty". Current runs go on, triggers are accepted, and timers fire: keys become ready and count in
    /// [`len`](Self::len). Each keeps its place in line, and does not age for
    /// [`max_wait`](crate::Builder::max_wait).
    ///
    /// A drain and [`shut_down`](Self::shut_down) lift all pauses, so that the remaining keys can be worked
    /// off. After that a pause returns `false` and changes nothing. [`close`](Self::close) alone does
    /// neither.
    ///
    /// The cost does not depend on the number of ready keys. Pauses do not add up: one `resume` ends any
    /// number of them.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::new();
    /// q.add("a")?;
    /// assert!(q.pause());
    /// assert!(q.try_get().is_err());
    /// assert_eq!(q.len(), 1);
    /// q.resume();
    /// assert_eq!(q.try_get()?.key(), &"a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self) -> bool {
        self.shared.enter(&mut None).with(|hold| hold.core.pause())
    }

    /// Hands out keys again; `false` if the queue was not paused. Keys that are themselves paused stay
    /// paused.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::<u64>::new();
    /// q.pause();
    /// assert!(q.resume() && !q.resume());
    /// ```
    pub fn resume(&self) -> bool {
        self.shared.enter(&mut None).with(|hold| hold.core.resume())
    }

    /// Lifts the [rate](crate::Builder::rate) for good, and those of [groups](crate::GroupRules::rate): keys
    /// are then handed out as fast as they are asked for. `false` if there was none. For a drain in a hurry,
    /// which otherwise keeps to the rate.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::builder().rate(0.001, 1).build()?;
    /// q.add_many(["a", "b"]).all()?;
    /// assert_eq!(q.try_get_many(2)?.len(), 1);
    /// assert!(q.lift_rate() && !q.lift_rate());
    /// assert_eq!(q.try_get_many(2)?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lift_rate(&self) -> bool {
        let lifted = self.shared.enter(&mut None).with(|hold| hold.core.lift_rate());
        if lifted {
            // groups that have waited for their tokens, a batch a lock hold
            self.shared.enter(&mut None).close();
        }
        lifted
    }

    /// Whether the queue is paused as a whole.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::<u64>::new();
    /// q.pause();
    /// assert!(q.is_paused());
    /// q.shut_down(); // lifts it
    /// assert!(!q.is_paused());
    /// ```
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.shared.hold(None).with(|hold| hold.core.is_paused())
    }
}

impl<K, V, S> WorkQueue<K, V, S> {
    /// Hands out no key of this key's [group](crate::Builder::group_by) until
    /// [`resume_group`](Self::resume_group). `key` is any key of the group, which the queue need not know.
    ///
    /// The keys of a paused group stay ready, count in [`len`](Self::len), and do not age for
    /// [`max_wait`](crate::Builder::max_wait); triggers, timers and current runs go on. The group leaves the
    /// turns like one at its cap. A group without a known key can be paused too. The queue remembers each
    /// paused group until it is resumed.
    ///
    /// Returns `false`, and changes nothing, if the queue has no groups, or if a drain or
    /// [`shut_down`](Self::shut_down) has begun: these lift all pauses. The cost does not depend on the
    /// number of the group's keys. Pauses of one group do not add up.
    ///
    /// ```
    /// # use requeue::{Paused, WorkQueue};
    /// fn tenant(key: &&str) -> String {
    ///     key.split('/').next().unwrap_or_default().to_owned()
    /// }
    /// let q = WorkQueue::builder().group_by(tenant).build()?;
    /// q.add_many(["noisy/1", "noisy/2", "small/1"]).all()?;
    /// assert!(q.pause_group(&"noisy/"));
    /// assert_eq!(q.try_get()?.key(), &"small/1");
    /// assert!(q.try_get().is_err() && q.len() == 2);
    /// assert_eq!(q.state("noisy/1").and_then(|state| state.paused), Some(Paused::Group));
    /// q.resume_group(&"noisy/");
    /// assert_eq!(q.try_get()?.key(), &"noisy/1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the group function panics. Then nothing has changed.
    pub fn pause_group(&self, key: &K) -> bool {
        self.shared.enter(&mut None).with(|hold| hold.core.pause_group(key))
    }

    /// Hands out the keys of this key's group again; `false` if it was not paused. The group goes behind
    /// those that wait for their turn; its keys keep their order.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::<u32>::builder().group_by(|key| key / 10).build()?;
    /// q.pause_group(&42);
    /// assert!(q.resume_group(&40) && !q.resume_group(&40));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Like [`pause_group`](Self::pause_group).
    pub fn resume_group(&self, key: &K) -> bool {
        self.shared.enter(&mut None).with(|hold| hold.core.resume_group(key))
    }

    /// Whether this key's group is paused.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::<u32>::builder().group_by(|key| key / 10).build()?;
    /// q.pause_group(&42);
    /// assert!(q.is_group_paused(&40) && !q.is_group_paused(&50));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Like [`pause_group`](Self::pause_group).
    #[must_use]
    pub fn is_group_paused(&self, key: &K) -> bool {
        self.shared.enter(&mut None).with(|hold| hold.core.is_group_paused(key))
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> WorkQueue<K, V, S> {
    /// Stops handing out this key until [`resume_key`](Self::resume_key). An unknown key can be paused too,
    /// and is known from then on: [`state`](Self::state), [`snapshot`](Self::snapshot) and
    /// [`explain`](Self::explain) report it.
    ///
    /// If the key is held its run goes on, and its next run waits: a dirty or retried key becomes ready and
    /// is not handed out. A ready key leaves the line but still counts in [`len`](Self::len). Triggers,
    /// [`cancel`](Self::cancel) and timers work as usual. A custom order is told that the key
    /// [leaves](crate::ReadyOrder::leave) the line, and nothing more of it until it is resumed.
    ///
    /// A drain and [`shut_down`](Self::shut_down) lift all pauses. After that a pause returns `false` and
    /// changes nothing. The cost is that of a [`cancel`](Self::cancel), however many keys there are.
    ///
    /// ```
    /// # use requeue::{Paused, WorkQueue};
    /// let q = WorkQueue::new();
    /// q.pause_key("a");
    /// q.add_many(["a", "b"]).all()?;
    /// assert_eq!(q.state("a").and_then(|state| state.paused), Some(Paused::Key));
    /// assert_eq!(q.try_get()?.key(), &"b");
    /// assert!(q.try_get().is_err());
    /// q.resume_key("a");
    /// assert_eq!(q.try_get()?.key(), &"a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the user's `Hash`, `Eq` or order panics. Then nothing has changed.
    pub fn pause_key(&self, key: K) -> bool {
        let hash = self.hash(&key);
        self.shared.pause_key(key, hash)
    }

    /// Hands out this key again; `false` if it was not paused. If it is ready it goes to the back of the line
    /// (of its priority, if there are priorities) as if it had become ready now, and its age begins anew.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::new();
    /// q.add_many(["a", "b"]).all()?;
    /// q.pause_key("a");
    /// assert!(q.resume_key("a"));
    /// assert_eq!(q.try_get()?.key(), &"b");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If `Hash` or `Eq` panics. Then nothing has changed.
    pub fn resume_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        self.shared.resume_key(key, hash)
    }
}
