//! A key that is put back with its earlier state: [`WorkQueue::restore`].

use crate::error::{AddError, Added, Refused};
use crate::hold::Shared;
use crate::queue::WorkQueue;
use requeue_core::{Restored, Trigger, UnfinishedKey};
use std::hash::{BuildHasher, Hash};

impl<K: Eq, V> Shared<K, V> {
    fn restore(&self, unfinished: UnfinishedKey<K, V>, hash: u32) -> Result<Added, AddError<K, V>> {
        let UnfinishedKey { key, value, failures, attempt, due, priority, .. } = unfinished;
        let known = Restored { failures, attempt, due, priority };
        if known.failures > 0 && self.keeps_own() {
            return Err(AddError { key, value, reason: Refused::CountedElsewhere });
        }
        let timed = known.due.is_some() || known.failures > 0;
        let reading = timed.then(|| self.now());
        self.with_limit(|limit| {
            self.pass(Trigger::new(key, value), reading, |core, trigger| {
                core.restore(trigger, hash, known, &limit)
            })
        })
        .map(|accepted| accepted.added)
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> WorkQueue<K, V, S> {
    /// Puts a key back with its earlier state: the [`state`](Self::state) that it had in an earlier life of
    /// the queue, and its value. An engine calls this for the keys of its store when it opens.
    ///
    /// It is a trigger, and acts like any other on a key that is already ready, waiting or held: its value
    /// merges as the newer one, and the earlier of two timers stays. The larger number of failures stays. The
    /// attempt applies only to a key that was none of these. With a due instant or failures it reads the
    /// clock.
    ///
    /// # Errors
    ///
    /// [`AddError`] with key and value, if the queue is shut down or closed; if there are failures and a
    /// user's limiter counts them itself ([`Refused::CountedElsewhere`]); if there is a priority and the
    /// queue has none ([`Refused::NoPriorities`]); or if the queue has a bound and is full
    /// ([`Refused::Full`]).
    ///
    /// # Panics
    ///
    /// If user code panics, as in [`add_with`](Self::add_with). The key is not restored then.
    ///
    /// ```
    /// use requeue::{Added, UnfinishedKey, WorkQueue};
    /// # let q = WorkQueue::new();
    /// let mut stored = UnfinishedKey::new("a");
    /// (stored.failures, stored.attempt) = (2, 3);
    /// assert_eq!(q.restore(stored)?, Added::Ready);
    /// let item = q.try_get()?;
    /// assert_eq!((item.attempt(), q.num_requeues("a")), (3, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The unfinished keys of a queue go on in another as they would have there:
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use std::time::Duration;
    /// let (old, new) = (WorkQueue::new(), WorkQueue::new());
    /// old.add_after("a", Duration::from_secs(3600))?;
    /// assert_eq!(old.drain(Duration::ZERO).wait().unfinished, 1);
    /// for key in old.take_unfinished() {
    ///     new.restore(key)?;
    /// }
    /// assert_eq!(new.stats().waiting, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore(&self, key: UnfinishedKey<K, V>) -> Result<Added, AddError<K, V>> {
        let hash = self.hash(&key.key);
        self.shared.restore(key, hash)
    }
}
