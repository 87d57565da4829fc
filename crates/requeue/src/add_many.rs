//! Many triggers in one lock hold.
//!
//! The keys and their hashes are collected into one allocation before the lock is taken, because the caller's
//! iterator and the hasher are user code. Each result is written beside its trigger, and the allocation goes
//! back to the caller as the answer. A batch therefore costs one allocation, and none under the lock except
//! for the keys themselves.

use crate::add::Add;
use crate::adding::refused;
use crate::asking::Unask;
use crate::error::{AddError, Added, Refused};
use crate::hold::Shared;
use crate::metrics::Metrics;
use crate::panics::{FirstPanic, quietly};
use requeue_core::{Asking, Delay, Instant, Policy, Trigger, TriggerOptions};
use std::fmt;
use std::mem::take;
use std::vec;

/// A trigger of a batch and its result.
struct Entry<K, V> {
    trigger: Trigger<K, V>,
    options: TriggerOptions,
    hash: u32,
    /// `Err` until the trigger is accepted.
    result: Result<Added, Refused>,
}

impl<K, V> Entry<K, V> {
    fn into_result(mut self) -> Result<Added, AddError<K, V>> {
        self.result.map_err(|reason| refused(&mut self.trigger, reason))
    }
}

/// The results of a batch, in the order of its triggers. Returned by
/// [`WorkQueue::add_many`](crate::WorkQueue::add_many).
///
/// Read the results in place with [`iter`](Self::iter), or all at once with [`all`](Self::all). As an
/// [`IntoIterator`] it gives the result of each trigger, with refused keys and values.
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
    pub(crate) fn collect(triggers: impl Iterator<Item = (K, Add<V>)>, hash: impl Fn(&K) -> u32) -> Self {
        let entries = triggers.map(|(key, Add { value, options })| {
            let hash = hash(&key);
            Entry { trigger: Trigger::new(key, value), options, hash, result: Err(Refused::ShutDown) }
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
}

/// Prefetch distance: how many triggers ahead the table's cache lines are requested.
const AHEAD: usize = 16;

impl<K: Eq, V> Shared<K, V> {
    /// Adds a batch of triggers in one lock hold.
    #[inline]
    pub(crate) fn trigger_many(&self, batch: &mut AddedMany<K, V>) {
        let entries = &mut batch.entries[..];
        if entries.is_empty() {
            return;
        }
        let timed = entries.iter().any(|entry| !entry.options.is_immediate());
        let reading = timed.then(|| self.now());
        let mut panic = FirstPanic::default();
        let (count, unask) = match reading.filter(|_| self.keeps_own()) {
            Some(_) if self.bounded && entries.iter().any(|entry| self.asks_for(entry).is_some()) => {
                // whether there is room for a trigger, and so whether the limiter is asked, depends on those before it
                for Entry { trigger, options, hash, result } in entries {
                    let accepted = self.try_trigger(trigger, *hash, options, reading, None, |_, _| ());
                    *result = accepted.map(|accepted| accepted.added);
                }
                return;
            }
            Some(now) => self.ask_many(entries, now, &mut panic),
            None => (entries.len(), None),
        };
        // reported after the hold, also if users' code panics in it
        let mut retried = Retried { shared: self, calls: 0 };
        let mut unask = unask;
        self.with_limit(|limit| {
            let mut hold = self.hold_to_add(reading);
            let core = &mut hold.core;
            entries.iter().take(AHEAD).for_each(|entry| core.prefetch(entry.hash));
            for at in 0..count {
                if let Some(ahead) = entries.get(at + AHEAD) {
                    core.prefetch(ahead.hash);
                }
                let Entry { trigger, options, hash, result } = &mut entries[at];
                if let (Some(unask), Delay::Asked(..)) = (&mut unask, options.delay) {
                    unask.left -= 1;
                }
                *result = core.trigger(trigger, *hash, options, &limit).map(|accepted| accepted.added);
                retried.calls += u64::from(timed && result.is_ok() && options.is_delayed());
            }
            hold.unlock();
        });
        drop(retried);
        drop(unask);
        panic.resume();
    }

    /// Asks a limiter that keeps its own counts, in the order of the triggers and outside the lock. Returns
    /// how many triggers to add: if the limiter panics, those before the one it panicked at.
    fn ask_many(
        &self,
        entries: &mut [Entry<K, V>],
        now: Instant,
        panic: &mut FirstPanic,
    ) -> (usize, Option<Unask<'_, K, V>>) {
        let limited = entries.iter().filter(|entry| self.asks_for(entry).is_some()).count();
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
        hold.unlock();
        // refused: the next hold returns the reason
        let Some(asking) = asking else { return (entries.len(), None) };
        let unask = Unask { shared: self, asking, left: limited };
        for (at, entry) in entries.iter_mut().enumerate() {
            let Some((policy, resets)) = self.asks_for(entry) else { continue };
            let Some(key) = entry.trigger.key() else { continue };
            let asked_for = || {
                if resets {
                    self.limiter.forget(key);
                }
                self.limiter.when(key, now)
            };
            let Some(delay) = panic.catch(asked_for) else {
                return (at, Some(unask));
            };
            entry.options.delay = Delay::Asked(delay, policy, asking);
        }
        (entries.len(), Some(unask))
    }
}

impl<K, V> Shared<K, V> {
    /// The timer's policy, and whether the trigger resets, if the limiter decides its delay. A trigger that is refused
    /// anyway does not reach the limiter.
    fn asks_for(&self, entry: &Entry<K, V>) -> Option<(Policy, bool)> {
        entry.options.limited().filter(|_| self.takes(entry.options.priority))
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
            self.shared.tell_metrics(Metrics::retried);
        }
    }
}

impl<K, V> Drop for AddedMany<K, V> {
    #[inline]
    fn drop(&mut self) {
        // the rest of a batch in which a call panicked
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
    type Item = Result<Added, AddError<K, V>>;
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
    type Item = Result<Added, AddError<K, V>>;
    fn next(&mut self) -> Option<Result<Added, AddError<K, V>>> {
        self.entries.next().map(Entry::into_result)
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl<K, V> DoubleEndedIterator for IntoAdded<K, V> {
    fn next_back(&mut self) -> Option<Result<Added, AddError<K, V>>> {
        self.entries.next_back().map(Entry::into_result)
    }
}

impl<K, V> ExactSizeIterator for IntoAdded<K, V> {}

impl<K, V> std::iter::FusedIterator for IntoAdded<K, V> {}

debug!([K, V] IntoAdded<K, V>, |added| { len: added.entries.len(), .. });
