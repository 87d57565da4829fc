//! [`Restore`]: a key that is put back with its earlier state.

use crate::hold::Shared;
use crate::{AddError, Added, Instant, Refused, WorkQueue};
use requeue_core::{Restored, Trigger, UnfinishedKey};
use std::fmt;
use std::hash::{BuildHasher, Hash};

/// A key and its earlier state, for [`WorkQueue::restore`].
///
/// ```
/// use requeue::{Clock, FakeClock, Restore, WorkQueue, limiter};
/// use std::time::Duration;
///
/// let clock = FakeClock::new();
/// let q = WorkQueue::merging(|old: &mut u32, new| *old += new)
///     .clock(clock.clone())
///     .limiter(limiter::default_per_item())
///     .build()?;
/// let due = clock.now() + Duration::from_secs(9);
/// q.restore(Restore::new("a").failures(3).attempt(4).due(due).value(7))?;
/// let state = q.state("a").expect("it waits");
/// assert_eq!((state.waiting_until, state.failures, state.attempt), (Some(due), 3, 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a Restore does nothing until it is given to restore"]
pub struct Restore<K, V = ()> {
    key: K,
    value: Option<V>,
    known: Restored,
}

impl<K, V> Restore<K, V> {
    /// A key that is ready, without failures or a value.
    ///
    /// ```
    /// # use requeue::{Restore, WorkQueue};
    /// # let q = WorkQueue::new();
    /// q.restore(Restore::new("a"))?;
    /// assert_eq!(q.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(key: K) -> Self {
        Self { key, value: None, known: Restored { failures: 0, attempt: 1, due: None, priority: 0 } }
    }

    /// Sets the number of requeues since it was last forgotten: [`KeyState::failures`]. A limiter that counts
    /// no failures, such as a token bucket, ignores it.
    ///
    /// [`KeyState::failures`]: crate::KeyState::failures
    ///
    /// ```
    /// # use requeue::{Restore, WorkQueue};
    /// # let q = WorkQueue::new();
    /// q.restore(Restore::new("a").failures(3))?;
    /// assert_eq!(q.num_requeues("a"), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn failures(mut self, failures: u32) -> Self {
        self.known.failures = failures;
        self
    }

    /// Sets the attempt of its next run, counted from 1: [`KeyState::attempt`]. 0 counts as 1.
    ///
    /// [`KeyState::attempt`]: crate::KeyState::attempt
    ///
    /// ```
    /// # use requeue::{Restore, WorkQueue};
    /// # let q = WorkQueue::new();
    /// q.restore(Restore::new("a").attempt(4))?;
    /// assert_eq!(q.try_get()?.attempt(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.known.attempt = attempt;
        self
    }

    /// Sets when its timer is due, an instant of the queue's clock. Without one, or if it has passed, the key
    /// is ready.
    ///
    /// ```
    /// # use requeue::{Clock, FakeClock, Restore, WorkQueue};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).build()?;
    /// q.restore(Restore::new("a").due(clock.now() + Duration::from_secs(9)))?;
    /// assert_eq!((q.len(), q.stats().waiting), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn due(mut self, due: Instant) -> Self {
        self.known.due = Some(due);
        self
    }

    /// Sets the priority of its next run, or of its timer; 0 by default.
    ///
    /// ```
    /// # use requeue::{Restore, WorkQueue};
    /// let q = WorkQueue::builder().priorities().build()?;
    /// q.restore(Restore::new("a"))?;
    /// q.restore(Restore::new("b").priority(5))?;
    /// assert_eq!(q.try_get()?.priority(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn priority(mut self, priority: i16) -> Self {
        self.known.priority = priority;
        self
    }

    /// Sets the value of its next run.
    ///
    /// ```
    /// # use requeue::{Restore, WorkQueue};
    /// let q = WorkQueue::merging(|old: &mut u32, new| *old += new).build()?;
    /// q.restore(Restore::new("a").value(7))?;
    /// assert_eq!(q.try_get()?.value(), Some(&7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn value(mut self, value: V) -> Self {
        self.value = Some(value);
        self
    }
}

/// An unfinished key of another queue, to go on here as it would have there.
///
/// ```
/// use requeue::{DrainOptions, WorkQueue};
/// use std::time::Duration;
/// let (old, new) = (WorkQueue::new(), WorkQueue::new());
/// old.add_after("a", Duration::from_secs(3600))?;
/// assert_eq!(old.drain(DrainOptions::default().timeout(Duration::ZERO)).wait().unfinished, 1);
/// for key in old.take_unfinished() {
///     new.restore(key.into())?;
/// }
/// assert_eq!(new.stats().waiting, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<K, V> From<UnfinishedKey<K, V>> for Restore<K, V> {
    fn from(unfinished: UnfinishedKey<K, V>) -> Self {
        let UnfinishedKey { key, value, failures, attempt, due, priority, .. } = unfinished;
        Self { key, value, known: Restored { failures, attempt, due, priority } }
    }
}

impl<K, V> fmt::Debug for Restore<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Restore").field("known", &self.known).finish_non_exhaustive()
    }
}

impl<K: Eq, V> Shared<K, V> {
    fn restore(&self, restore: Restore<K, V>, hash: u32) -> Result<Added, AddError<K, V>> {
        let Restore { key, value, known } = restore;
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
    /// # use requeue::{Added, Restore, WorkQueue};
    /// # let q = WorkQueue::new();
    /// assert_eq!(q.restore(Restore::new("a").failures(2).attempt(3))?, Added::Ready);
    /// let item = q.try_get()?;
    /// assert_eq!((item.attempt(), q.num_requeues("a")), (3, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn restore(&self, restore: Restore<K, V>) -> Result<Added, AddError<K, V>> {
        let hash = self.hash(&restore.key);
        self.shared.restore(restore, hash)
    }
}
