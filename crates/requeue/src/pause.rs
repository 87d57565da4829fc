//! Pause and resume (rule B7), and the lifting of a dispatch rate (rule B6).

use crate::queue::WorkQueue;
use requeue_core::Paused;
use std::hash::{BuildHasher, Hash};

/// The part of a queue that [`WorkQueue::pause`] stops.
///
/// ```
/// # use requeue::{Scope, WorkQueue};
/// let q = WorkQueue::<u32>::builder().group_by(|key| key / 10).build()?;
/// q.pause(Scope::GroupOf(42)); // 40 to 49
/// q.pause(Scope::Key(7));
/// assert!(q.paused(Scope::GroupOf(&40)) && !q.paused(Scope::Queue));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope<K> {
    /// All keys.
    Queue,
    /// The keys of this key's [group](crate::Builder::group_by). The queue need not know the key.
    GroupOf(K),
    /// This key.
    Key(K),
}

impl<K: Hash + Eq, V, S: BuildHasher> WorkQueue<K, V, S> {
    /// Hands out no key of the scope until [`resume`](Self::resume). Getters wait, and
    /// [`try_get`](Self::try_get) returns "empty", if no other key is ready. Current runs go on, triggers are
    /// accepted, and timers fire: keys become ready and count in [`len`](Self::len).
    ///
    /// Returns `false`, and changes nothing, if a drain or [`shut_down`](Self::shut_down) has begun: these lift
    /// all pauses, so that the remaining keys can be worked off. [`close`](Self::close) does not. Pauses of one
    /// scope do not add up: one `resume` ends any number of them.
    ///
    /// * [`Scope::Queue`]: each key keeps its place in line, and does not age for
    ///   [`max_wait`](crate::Builder::max_wait).
    /// * [`Scope::GroupOf`]: the group leaves the turns like one at its cap, and its keys do not age. A group
    ///   without a known key can be paused too; the queue remembers it until it is resumed. Returns `false` on
    ///   a queue without groups.
    /// * [`Scope::Key`]: a ready key leaves the line. If it is held its run goes on, and its next run waits. An
    ///   unknown key can be paused too, and is known from then on: [`state`](Self::state),
    ///   [`snapshot`](Self::snapshot) and [`explain`](Self::explain) report it. [`cancel`](Self::cancel) works
    ///   as usual. A custom order is told that the key [leaves](crate::ReadyOrder::leave) the line, and nothing
    ///   more of it until it is resumed.
    ///
    /// The cost does not depend on the number of keys.
    ///
    /// ```
    /// # use requeue::{Paused, Scope, WorkQueue};
    /// fn tenant(key: &&str) -> String {
    ///     key.split('/').next().unwrap_or_default().to_owned()
    /// }
    /// let q = WorkQueue::builder().group_by(tenant).build()?;
    /// q.add_many(["noisy/1", "noisy/2", "small/1"]).all()?;
    /// assert!(q.pause(Scope::GroupOf("noisy/")));
    /// assert_eq!(q.try_get()?.key(), &"small/1");
    /// assert!(q.try_get().is_err() && q.len() == 2);
    /// assert_eq!(q.state("noisy/1").and_then(|state| state.paused), Some(Paused::Group));
    ///
    /// q.resume(Scope::GroupOf(&"noisy/"));
    /// q.pause(Scope::Key("noisy/1"));
    /// assert_eq!(q.try_get()?.key(), &"noisy/2");
    ///
    /// q.resume(Scope::Key(&"noisy/1"));
    /// q.pause(Scope::Queue);
    /// assert!(q.try_get().is_err() && q.len() == 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the user's `Hash`, `Eq`, group function or order panics. Then nothing has changed.
    pub fn pause(&self, scope: Scope<K>) -> bool {
        match scope {
            Scope::Queue => self.shared.hold_to_look(&mut None).with(|hold| hold.core.pause()),
            Scope::GroupOf(key) => {
                self.shared.hold_to_look(&mut None).with(|hold| hold.core.pause_group(&key))
            }
            Scope::Key(key) => {
                let hash = self.hash(&key);
                // dropped without the lock, if it was known
                let mut key = Some(key);
                self.shared.hold_to_look(&mut None).with(|hold| hold.core.pause_key(&mut key, hash))
            }
        }
    }

    /// Hands out the keys of the scope again; `false` if it was not paused. Pauses of other scopes stay: a key
    /// that is itself paused stays paused when the queue is resumed.
    ///
    /// A group goes behind those that wait for their turn, and its keys keep their order. A key that is ready
    /// goes to the back of the line (of its priority, if there are priorities) as if it had become ready now,
    /// and its age begins anew.
    ///
    /// ```
    /// # use requeue::{Scope, WorkQueue};
    /// let q = WorkQueue::new();
    /// q.add_many(["a", "b"]).all()?;
    /// q.pause(Scope::Key("a"));
    /// assert!(q.resume(Scope::Key(&"a")) && !q.resume(Scope::Key(&"a")));
    /// assert_eq!(q.try_get()?.key(), &"b");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// Like [`pause`](Self::pause).
    pub fn resume(&self, scope: Scope<&K>) -> bool {
        match scope {
            Scope::Queue => self.shared.hold_to_look(&mut None).with(|hold| hold.core.resume()),
            Scope::GroupOf(key) => {
                self.shared.hold_to_look(&mut None).with(|hold| hold.core.resume_group(key))
            }
            Scope::Key(key) => {
                let hash = self.hash(key);
                let (was, gone) =
                    self.shared.hold_to_look(&mut None).with(|hold| hold.core.resume_key(key, hash));
                drop(gone);
                was
            }
        }
    }

    /// Whether the scope itself is paused. [`state`](Self::state) tells of a key what pauses it: the queue, its
    /// group, or a pause of its own.
    ///
    /// ```
    /// # use requeue::{Scope, WorkQueue};
    /// let q = WorkQueue::<u64>::new();
    /// q.pause(Scope::Queue);
    /// q.pause(Scope::Key(1));
    /// assert!(q.paused(Scope::Queue) && q.paused(Scope::Key(&1)) && !q.paused(Scope::Key(&2)));
    /// q.shut_down(); // lifts both
    /// assert!(!q.paused(Scope::Queue) && !q.paused(Scope::Key(&1)));
    /// ```
    ///
    /// # Panics
    ///
    /// Like [`pause`](Self::pause).
    #[must_use]
    pub fn paused(&self, scope: Scope<&K>) -> bool {
        match scope {
            Scope::Queue => self.shared.hold(None).with(|hold| hold.core.is_paused()),
            Scope::GroupOf(key) => {
                self.shared.hold_to_look(&mut None).with(|hold| hold.core.is_group_paused(key))
            }
            Scope::Key(key) => self.state(key).is_some_and(|state| state.paused == Some(Paused::Key)),
        }
    }
}

impl<K, V, S> WorkQueue<K, V, S> {
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
        let lifted = self.shared.hold_to_look(&mut None).with(|hold| hold.core.lift_rate());
        if lifted {
            // groups that have waited for their tokens, a batch a lock hold
            self.shared.hold_to_look(&mut None).unlock();
        }
        lifted
    }
}
