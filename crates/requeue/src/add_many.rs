//! Many triggers in one lock hold.
//!
//! The keys and their hashes are collected into one allocation before the lock is taken, because the caller's
//! iterator and the hasher are user code. Each result is written beside its trigger, and the allocation goes
//! back to the caller as the answer. A batch therefore costs one allocation, and none under the lock except
//! for the keys themselves.

use crate::add::{Add, When};
use crate::adding::{Unask, refused};
use crate::error::{AddResult, Added, Refused};
use crate::hold::Shared;
use crate::panics::{FirstPanic, quietly};
use crate::trying::Wish;
use crate::{Instant, Metrics};
use requeue_core::{Asking, Debounce, Delay, InBackoff, Policy, Trigger};
use std::fmt;
use std::mem::take;
use std::vec;

/// A trigger of a batch and its result.
struct Entry<K, V> {
    trigger: Trigger<K, V>,
    when: When,
    policy: Policy,
    in_backoff: Option<InBackoff>,
    debounce: Option<Debounce>,
    hash: u32,
    /// `when` is the answer of a limiter that was asked outside the lock.
    asked: bool,
    /// `Err` until the trigger is accepted.
    result: Result<Added, Refused>,
}

impl<K, V> Entry<K, V> {
    fn into_result(mut self) -> AddResult<K, V> {
        self.result.map_err(|reason| refused(&mut self.trigger, reason))
    }

    /// Whether the limiter decides the delay.
    fn is_limited(&self) -> bool {
        matches!(self.when, When::RateLimited)
    }
}

/// The results of a batch, in the order of its triggers. Returned by
/// [`WorkQueue::add_many`](crate::WorkQueue::add_many).
///
/// Read the results in place with [`iter`](Self::iter), or all at once with [`all`](Self::all). As an
/// [`IntoIterator`] of [`AddResult`]s it gives refused keys and values back.
///
/// ```
/// use requeue::{Added, WorkQueue};
/// let q = WorkQueue::new();
/// let added = q.add_many(["a", "b", "a"]);
/// assert!(added.iter().eq([Ok(Added::Ready), Ok(Added::Ready), Ok(Added::Coalesced)]));
/// added.all()?;
///
/// q.shut_down();
/// let refused = q.add_many(["c", "d"]).into_iter().filter_map(Result::err);
/// assert!(refused.map(|refused| refused.key).eq(["c", "d"]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "refused keys are in here: see all()"]
pub struct AddedMany<K, V = ()> {
    entries: Vec<Entry<K, V>>,
}

impl<K, V> AddedMany<K, V> {
    /// Collects the triggers of a batch, before any of them is accepted.
    pub(crate) fn collect<A: Into<Add<V>>>(
        triggers: impl Iterator<Item = (K, A)>,
        hash: impl Fn(&K) -> u32,
    ) -> Self {
        let entries = triggers.map(|(key, how)| {
            let Add { when, policy, value, in_backoff, priority, debounce } = how.into();
            let hash = hash(&key);
            let trigger = Trigger::new(key, value).priority(priority);
            let result = Err(Refused::ShutDown);
            Entry { trigger, when, policy, in_backoff, debounce, hash, asked: false, result }
        });
        Self { entries: entries.collect() }
    }

    /// `Ok` if all triggers were accepted.
    ///
    /// # Errors
    ///
    /// The reason of the first trigger that was refused.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_many(["a", "b"]).all()?;
    /// q.close();
    /// assert_eq!(q.add_many(["c"]).all(), Err(requeue::Refused::ShutDown));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn all(&self) -> Result<(), Refused> {
        self.iter().try_for_each(|result| result.map(drop))
    }

    /// The result of each trigger, in order.
    ///
    /// ```
    /// # use requeue::{Added, WorkQueue};
    /// let q = WorkQueue::new();
    /// let new = q.add_many([1, 2, 1]).iter().filter(|added| *added == Ok(Added::Ready)).count();
    /// assert_eq!(new, 2);
    /// ```
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Result<Added, Refused>> + ExactSizeIterator + '_ {
        self.entries.iter().map(|entry| entry.result)
    }

    /// Number of triggers.
    ///
    /// ```
    /// let q = requeue::WorkQueue::new();
    /// assert_eq!(q.add_many(["a", "a"]).len(), 2);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the batch was empty.
    ///
    /// ```
    /// let q = requeue::WorkQueue::<u32>::new();
    /// assert!(q.add_many([]).is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Prefetch distance: how many triggers ahead the table's cache lines are requested.
const AHEAD: usize = 16;

impl<K: Eq, V> Shared<K, V> {
    /// Adds a batch of triggers in one lock hold.
    #[inline]
    pub(crate) fn add_many(&self, batch: &mut AddedMany<K, V>) {
        let entries = &mut batch.entries[..];
        if entries.is_empty() {
            return;
        }
        let timed = entries.iter().any(|entry| !matches!(entry.when, When::Now) || entry.debounce.is_some());
        let reading = timed.then(|| self.now());
        if self.bounded && self.keeps_own() && entries.iter().any(Entry::is_limited) {
            return self.add_each(entries, reading);
        }
        let mut panic = FirstPanic::default();
        let (enter, mut asked) = match reading {
            Some(now) if self.keeps_own() => self.ask_many(entries, now, &mut panic),
            _ => (entries.len(), None),
        };
        // reported after the hold, also if users' code panics in it
        let mut retried = Retried { shared: self, calls: 0 };
        self.with_limit(|limit| {
            let mut hold = self.hold_to_add(reading);
            let core = &mut hold.core;
            entries.iter().take(AHEAD).for_each(|entry| core.prefetch(entry.hash));
            for at in 0..enter {
                if let Some(ahead) = entries.get(at + AHEAD) {
                    core.prefetch(ahead.hash);
                }
                let Entry { trigger, when, policy, in_backoff, debounce, hash, asked: was_asked, result } =
                    &mut entries[at];
                let delay = match (*when, &mut asked) {
                    (When::Now, _) => Delay::Now,
                    (When::After(delay), Some(unask)) if *was_asked => {
                        unask.left -= 1;
                        Delay::Asked(delay, *policy, unask.asking)
                    }
                    (When::After(delay), _) => Delay::After(delay, *policy),
                    (When::At(due), _) => Delay::At(due, *policy),
                    (When::RateLimited, _) => Delay::Limited(limit, *policy),
                };
                let accepted = match (*in_backoff, *debounce) {
                    (in_backoff, Some(debounce)) => core.add_debounced(trigger, *hash, in_backoff, debounce),
                    (None, None) => core.add(trigger, *hash, delay),
                    (Some(in_backoff), None) => core.add_in_backoff(trigger, *hash, delay, in_backoff),
                };
                *result = accepted.map(|accepted| accepted.added);
                retried.calls += u64::from(result.is_ok() && !matches!(*when, When::Now));
            }
            hold.close();
        });
        drop(retried);
        drop(asked);
        panic.resume();
    }

    /// Adds the triggers one by one: whether there is room for a trigger, and so whether the limiter is
    /// asked, depends on those before it.
    #[cold]
    fn add_each(&self, entries: &mut [Entry<K, V>], reading: Option<Instant>) {
        for Entry { trigger, when, policy, in_backoff, debounce, hash, result, .. } in entries {
            let wish = Wish { when: *when, policy: *policy, in_backoff: *in_backoff, debounce: *debounce };
            *result = self.add_by_itself(trigger, *hash, wish, reading);
        }
    }

    /// Asks a limiter that keeps its own counts, in the order of the triggers and outside the lock. Returns
    /// how many triggers to add: if the limiter panics, those before the one it panicked at.
    #[cold]
    fn ask_many(
        &self,
        entries: &mut [Entry<K, V>],
        now: Instant,
        panic: &mut FirstPanic,
    ) -> (usize, Option<Unask<'_, K, V>>) {
        let limited = entries.iter().filter(|entry| self.asks_for(entry)).count();
        if limited == 0 {
            return (entries.len(), None);
        }
        let mut asking: Option<Asking> = None;
        let mut hold = self.hold_to_add(Some(now));
        if !hold.core.shutting_down() {
            // all in one hold, so all askings are alike
            for _ in 0..limited {
                asking = hold.core.ask(None).ok();
            }
        }
        hold.close();
        // refused: the next hold returns the reason
        let Some(asking) = asking else { return (entries.len(), None) };
        let unask = Unask { shared: self, asking, left: limited };
        for (at, entry) in entries.iter_mut().enumerate() {
            if !self.asks_for(entry) {
                continue;
            }
            let Entry { trigger, when, in_backoff, asked, .. } = entry;
            if let Some(key) = trigger.key() {
                let asked_for = || {
                    if *in_backoff == Some(InBackoff::Reset) {
                        self.limiter.forget(key);
                    }
                    self.limiter.when(key, now)
                };
                let Some(delay) = panic.catch(asked_for) else {
                    return (at, Some(unask));
                };
                *when = When::After(delay);
                *asked = true;
            }
        }
        (entries.len(), Some(unask))
    }
}

impl<K, V> Shared<K, V> {
    /// Whether the limiter decides about a trigger. A trigger that is refused anyway does not reach it.
    fn asks_for(&self, entry: &Entry<K, V>) -> bool {
        entry.is_limited() && self.takes(entry.trigger.said_priority())
    }
}

/// On drop, tells the metrics how many delayed triggers were accepted.
struct Retried<'a, K, V> {
    shared: &'a Shared<K, V>,
    calls: u64,
}

impl<K, V> Drop for Retried<'_, K, V> {
    fn drop(&mut self) {
        for _ in 0..self.calls {
            self.shared.tell(Metrics::retried);
        }
    }
}

impl<K, V> Drop for AddedMany<K, V> {
    #[inline]
    fn drop(&mut self) {
        // what a panic in the middle of a batch left
        if !self.entries.is_empty() && std::thread::panicking() {
            for entry in take(&mut self.entries) {
                quietly(|| drop(entry));
            }
        }
    }
}

impl<K, V> fmt::Debug for AddedMany<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<K, V> IntoIterator for AddedMany<K, V> {
    type Item = AddResult<K, V>;
    type IntoIter = IntoAdded<K, V>;
    fn into_iter(mut self) -> IntoAdded<K, V> {
        IntoAdded { entries: take(&mut self.entries).into_iter() }
    }
}

/// Iterator over the results of a batch, with refused keys. Made by taking an [`AddedMany`] apart.
///
/// ```
/// # let q = requeue::WorkQueue::new();
/// for result in q.add_many(["a", "b"]) {
///     if let Err(refused) = result {
///         eprintln!("{}: {}", refused.key, refused.reason);
///     }
/// }
/// # assert_eq!(q.len(), 2);
/// ```
pub struct IntoAdded<K, V = ()> {
    entries: vec::IntoIter<Entry<K, V>>,
}

impl<K, V> Iterator for IntoAdded<K, V> {
    type Item = AddResult<K, V>;
    fn next(&mut self) -> Option<AddResult<K, V>> {
        self.entries.next().map(Entry::into_result)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl<K, V> DoubleEndedIterator for IntoAdded<K, V> {
    fn next_back(&mut self) -> Option<AddResult<K, V>> {
        self.entries.next_back().map(Entry::into_result)
    }
}

impl<K, V> ExactSizeIterator for IntoAdded<K, V> {}

impl<K, V> std::iter::FusedIterator for IntoAdded<K, V> {}

debug!([K, V] IntoAdded<K, V>, |added| { len: added.entries.len(), .. });
