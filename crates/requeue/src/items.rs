//! [`Items`]: keys that are taken and ended together.

use crate::ending::{self, after_end};
use crate::error::Refused;
use crate::hold::{Hold, Later, Shared};
use crate::item::Item;
use crate::metrics::Metrics;
use crate::owner::Owner;
use crate::panics::{FirstPanic, quietly};
use requeue_core::{Ended, How, Instant, RetryDelay, RunRef};
use std::mem::{needs_drop, take};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::vec;

/// Held keys that were taken in one lock hold, and can be ended in one.
///
/// It is a slice of [`Item`]s. Dropping it drops them in one lock hold: each run is done, or retried if the
/// queue was built with [`retry_dropped`](crate::Builder::retry_dropped). (If a user's limiter must be asked, one after the other.)
///
/// When a panic unwinds through it, the items still in it are put back, whatever the queue was built with:
/// their keys go to the back of the line, with their values, attempts and failures, as if they had not been
/// handed out. So a panic over one key of a batch does not mark the others done. An item that was taken out
/// ends by itself. This is so during a drain too, which waits for these keys: getters that have seen the end
/// must come again.
///
/// While it exists no other worker gets these keys. Keys behind a slow one wait for it, so take as many as
/// are worked off together.
///
/// ```
/// # use requeue::{FakeClock, WorkQueue};
/// # let q = WorkQueue::builder().clock(FakeClock::new()).build()?;
/// q.add_many(["a", "b", "c"]).all()?;
/// let mut items = q.try_get_many(32)?;
/// assert!(items.iter().map(|item| *item.key()).eq(["a", "b", "c"]));
/// // one of them is to come again, the others are done
/// assert!(items.swap_remove(1).retry().is_ok());
/// items.succeed();
/// assert_eq!((q.stats().held, q.stats().waiting), (0, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping items ends their runs as done"]
pub struct Items<'q, K, V = ()> {
    pub(crate) owner: Owner<'q, K, V>,
    /// May contain an item of another queue, swapped in by the user. It is ended by itself.
    pub(crate) items: Vec<Item<'q, K, V>>,
    unwinds: Unwinds,
}

/// Detects a panic that began after this was made and unwinds through the value that contains it. A value
/// made and dropped while another panic unwinds does not count.
#[derive(Clone, Copy)]
struct Unwinds {
    before: bool,
}

impl Unwinds {
    #[inline]
    fn new() -> Self {
        Self { before: std::thread::panicking() }
    }
    #[inline]
    fn now(self) -> bool {
        !self.before && std::thread::panicking()
    }
}

impl<'q, K, V> Items<'q, K, V> {
    #[inline]
    pub(crate) fn new(owner: Owner<'q, K, V>, items: Vec<Item<'q, K, V>>) -> Self {
        Self { owner, items, unwinds: Unwinds::new() }
    }

    /// Ends all runs, in one lock hold. By default, dropping the items does so too: see [`Builder::retry_dropped`](crate::Builder::retry_dropped).
    ///
    /// The keys' failures stay on record; [`succeed`](Self::succeed) also forgets them.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_many([1, 2, 3]).all()?;
    /// q.try_get_many(3)?.done();
    /// assert_eq!(q.stats().held, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn done(mut self) {
        finish(self.owner.shared(), &mut self.items, false);
    }

    /// Ends all runs and forgets the keys' failures, in one lock hold.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_rate_limited("a")?;
    /// q.add_many(["a", "b"]).all()?;
    /// q.try_get_many(2)?.succeed();
    /// assert_eq!(q.num_requeues(&"a"), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn succeed(mut self) {
        let shared = self.owner.shared();
        for item in &self.items {
            if item.is_of(shared) {
                shared.forget_own(item.key());
            }
        }
        finish(shared, &mut self.items, true);
    }

    /// Takes an item out, to end it differently from the rest. The last one takes its place.
    ///
    /// # Panics
    ///
    /// If `index` is out of range.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_many(["a", "b", "c"]).all()?;
    /// let mut items = q.try_get_many(3)?;
    /// let a = items.swap_remove(0);
    /// assert!(items.iter().map(|item| *item.key()).eq(["c", "b"]));
    /// items.done();
    /// assert_eq!((*a.key(), q.stats().held), ("a", 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn swap_remove(&mut self, index: usize) -> Item<'q, K, V> {
        self.items.swap_remove(index)
    }

    /// Takes the first item out, to be ended by itself. So a batch can be worked off one by one, and the rest
    /// still be ended together. `None` once all are taken out. (It moves up those behind it: for thousands of
    /// items, use [`into_iter`](IntoIterator::into_iter).)
    ///
    /// ```
    /// # let q = requeue::WorkQueue::builder().clock(requeue::FakeClock::new()).build()?;
    /// q.add_many(["a", "b", "c"]).all()?;
    /// let mut items = q.try_get_many(3)?;
    /// while let Some(item) = items.pop_front() {
    ///     if *item.key() == "b" {
    ///         drop(item.retry());
    ///         break; // the rest is not looked at
    ///     }
    ///     item.succeed();
    /// }
    /// items.done();
    /// assert_eq!((q.stats().held, q.stats().waiting), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pop_front(&mut self) -> Option<Item<'q, K, V>> {
        if self.items.is_empty() { None } else { Some(self.items.remove(0)) }
    }

    /// Makes the items own their references to the queue, so that they can be moved into a task. They are no
    /// handles: they do not keep the queue open.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_many(["a", "b"]).all()?;
    /// let items = q.try_get_many(2)?.into_owned();
    /// std::thread::spawn(move || items.done()).join().unwrap();
    /// assert_eq!(q.stats().held, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_owned(mut self) -> Items<'static, K, V> {
        let owner = self.owner.clone().into_owned();
        Items::new(owner, take(&mut self.items).into_iter().map(Item::into_owned).collect())
    }
}

/// Whether a run that ended leaves work after the hold.
fn leaves_something<K, V>(shared: &Shared<K, V>) -> bool {
    needs_drop::<K>() || needs_drop::<V>() || shared.metrics.is_some()
}

/// Allocates, before the hold, room for the remains of this number of runs.
#[inline]
pub(crate) fn room_for_ended<K, V>(shared: &Shared<K, V>, runs: usize) -> Vec<Ended<K, V>> {
    Vec::with_capacity(if leaves_something(shared) { runs } else { 0 })
}

/// In a hold: ends the runs of the items that belong to this queue, and tells the journal if `told`. Calls no
/// user code.
#[inline]
pub(crate) fn end_in_hold<K, V>(
    hold: &mut Hold<'_, K, V>,
    shared: &Arc<Shared<K, V>>,
    items: &mut [Item<'_, K, V>],
    succeeded: bool,
    told: bool,
    left: &mut Vec<Ended<K, V>>,
) {
    let leaves = leaves_something(shared);
    if told && shared.journal.is_some() {
        for item in items {
            let (mut run, mut value) = (item.take_run(shared), item.take_value());
            let ended = ending::end_in_hold(shared, hold, &mut run, succeeded, &mut value);
            value.into_iter().for_each(|value| drop(item.set_value(value)));
            left.extend(ended.filter(|_| leaves));
        }
        return;
    }
    let core = &mut hold.core;
    let any_refused = core.has_refusals();
    for item in items {
        if let Some(run) = item.take_run(shared) {
            if !told && !core.is_inert(&run) {
                shared.tell_journal(|journal| journal.refused(run.key()));
            }
            let refused = any_refused && core.was_refused(&run);
            let mut run = Some(run);
            let finished = if refused { None } else { core.try_fast_end(&mut run) };
            let ended = match (finished, run) {
                (None, Some(run)) => {
                    let mut value = if refused { item.take_value() } else { None };
                    ending::end(core, run, succeeded, &mut value, refused)
                }
                (finished, _) => {
                    let (key, worked) = finished.unzip();
                    Ended { key, worked: worked.flatten(), ..Ended::default() }
                }
            };
            if leaves {
                left.push(ended);
            }
        }
    }
}

#[inline]
fn finish<K, V>(shared: &Arc<Shared<K, V>>, items: &mut [Item<'_, K, V>], succeeded: bool) {
    let mut left = room_for_ended(shared, items.len());
    let mut hold = shared.hold(None);
    end_in_hold(&mut hold, shared, items, succeeded, true, &mut left);
    hold.unlock();
    after_ends(shared, left);
}

/// Work after the end of several runs, outside the lock. If one user drop panics, the others still run.
#[inline]
pub(crate) fn after_ends<K, V>(shared: &Shared<K, V>, left: Vec<Ended<K, V>>) {
    if left.is_empty() {
        return;
    }
    let mut first = FirstPanic::default();
    for ended in left {
        first.catch(|| after_end(shared, ended));
    }
    first.resume();
}

/// Ends the runs of all items whose guards were dropped, or puts them back if a panic unwinds.
fn let_go_all<K, V>(shared: &Arc<Shared<K, V>>, items: &mut [Item<'_, K, V>], unwinds: Unwinds) {
    if !items.iter().any(Item::owes_its_end) {
        return;
    }
    if leave_for_later(shared, items, |run, value| match unwinds.now() {
        true => Later::PutBack { run, value },
        false => Later::End { run, value },
    }) {
        return;
    }
    if unwinds.now() {
        put_back_all(shared, items);
        // those of other queues
        for item in items.iter_mut().filter(|item| item.owes_its_end()) {
            let (other, item) = (item.shared().clone(), std::slice::from_mut(item));
            if !leave_for_later(&other, item, |run, value| Later::PutBack { run, value }) {
                put_back_all(&other, item);
            }
        }
        return;
    }
    if !shared.retry_dropped {
        return done_all(shared, items);
    }
    let mut first = FirstPanic::default();
    match first.catch(|| shared.now()) {
        None => force_end(shared, items),
        // the limiter is asked for each without the lock
        Some(now) if shared.keeps_own() => {
            for item in items.iter_mut().filter(|item| item.is_of(shared)) {
                first.catch(|| item.let_go(now));
            }
        }
        Some(now) => retry_all(shared, items, now, &mut first),
    }
    first.resume();
}

/// Notes the runs of this queue's items for later if user code drops them under its lock; then panics with words, unless a
/// panic unwinds already.
fn leave_for_later<K, V>(
    shared: &Arc<Shared<K, V>>,
    items: &mut [Item<'_, K, V>],
    later: impl Fn(RunRef<K>, Option<V>) -> Later<K, V>,
) -> bool {
    let leaves = shared.is_held_here();
    if leaves {
        for item in items {
            if let Some(run) = item.take_run(shared) {
                shared.note_later(later(run, item.take_value()));
            }
        }
        shared.refuses_itself();
    }
    leaves
}

/// Puts the keys of this queue's items back while a panic unwinds. A merge that panics ends the hold, and the
/// rest gets another.
fn put_back_all<K, V>(shared: &Arc<Shared<K, V>>, items: &mut [Item<'_, K, V>]) {
    let mut left = Vec::new();
    let mut clock_works = true;
    let mut rest = items.iter_mut();
    while rest.len() > 0 {
        let before = rest.len();
        quietly(|| {
            let mut hold = if clock_works { shared.hold(None) } else { shared.lock() };
            for item in rest.by_ref() {
                let Some(run) = item.take_run(shared) else { continue };
                let slot = run.slot();
                let mut ended = hold.core.put_back(run, item.take_value(), false);
                shared.tell_end(&mut hold.core, &mut ended, |_| Some(slot));
                // only where the run had been ended under its guard
                if ended.key.is_some() || ended.value.is_some() || ended.worked.is_some() {
                    left.push(ended);
                }
            }
            hold.unlock();
        });
        // before any item was reached only the clock can have panicked
        clock_works &= rest.len() < before;
    }
    for Ended { key, value, worked, end, .. } in left {
        shared.tell_worked(worked, end);
        quietly(|| drop(key));
        quietly(|| drop(value));
    }
}

/// Marks all items done, in a drop.
pub(crate) fn done_all<K, V>(shared: &Arc<Shared<K, V>>, items: &mut [Item<'_, K, V>]) {
    if leave_for_later(shared, items, |run, _| Later::Done(run)) {
        return;
    }
    let mut first = FirstPanic::default();
    if first.catch(|| finish(shared, items, false)).is_none() {
        force_end(shared, items);
    }
    first.resume();
}

/// Ends all runs without reading the clock or calling user code.
fn force_end<K, V>(shared: &Arc<Shared<K, V>>, items: &mut [Item<'_, K, V>]) {
    let mut left = room_for_ended(shared, items.len());
    let mut hold = shared.lock();
    end_in_hold(&mut hold, shared, items, false, false, &mut left);
    hold.unlock();
    quietly(|| after_ends(shared, left));
}

/// Ends all runs with a failure. Runs whose retry is refused are done. A merge that panics ends the hold, and
/// the rest gets another.
fn retry_all<K, V>(
    shared: &Arc<Shared<K, V>>,
    items: &mut [Item<'_, K, V>],
    now: Instant,
    first: &mut FirstPanic,
) {
    let mut left = room_for_ended(shared, items.len());
    let leaves = leaves_something(shared);
    let mut retried = 0;
    let mut rest = items.iter_mut();
    while rest.len() > 0 {
        let hold = || {
            shared.with_limit(|limit| {
                let mut hold = shared.hold(Some(now));
                let core = &mut hold.core;
                for item in rest.by_ref() {
                    let Some(run) = item.take_run(shared) else { continue };
                    let slot = run.slot();
                    retried += 1;
                    let ended = match core.end(
                        run,
                        How::Retry(RetryDelay::Limited(limit, None)),
                        item.take_value(),
                    ) {
                        Ok(mut ended) => {
                            shared.tell_end(core, &mut ended, |_| Some(slot));
                            ended
                        }
                        Err((run, refused)) => {
                            retried -= 1;
                            // of a run that has ended under its guard it has heard
                            if refused.reason != Refused::NotHeld {
                                shared.tell_journal(|journal| journal.refused(run.key()));
                            }
                            ending::end(core, run, false, &mut { refused.value }, true)
                        }
                    };
                    if leaves {
                        left.push(ended);
                    }
                }
                hold.unlock();
            });
        };
        first.catch(hold);
    }
    for _ in 0..retried {
        shared.tell_metrics(Metrics::retried);
    }
    first.catch(|| after_ends(shared, left));
}

impl<K, V> Drop for Items<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        // the items themselves, with their values, go after this
        let_go_all(self.owner.shared(), &mut self.items, self.unwinds);
    }
}

impl<'q, K, V> Deref for Items<'q, K, V> {
    type Target = [Item<'q, K, V>];
    fn deref(&self) -> &Self::Target {
        &self.items
    }
}

impl<K, V> DerefMut for Items<'_, K, V> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.items
    }
}

debug!([K, V] Items<'_, K, V>, |items| { len: items.items.len(), .. });

impl<'a, 'q, K, V> IntoIterator for &'a Items<'q, K, V> {
    type Item = &'a Item<'q, K, V>;
    type IntoIter = std::slice::Iter<'a, Item<'q, K, V>>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

impl<'a, 'q, K, V> IntoIterator for &'a mut Items<'q, K, V> {
    type Item = &'a mut Item<'q, K, V>;
    type IntoIter = std::slice::IterMut<'a, Item<'q, K, V>>;
    fn into_iter(self) -> Self::IntoIter {
        self.items.iter_mut()
    }
}

impl<'q, K, V> IntoIterator for Items<'q, K, V> {
    type Item = Item<'q, K, V>;
    type IntoIter = IntoItems<'q, K, V>;
    fn into_iter(mut self) -> IntoItems<'q, K, V> {
        IntoItems {
            owner: self.owner.clone(),
            items: take(&mut self.items).into_iter(),
            unwinds: self.unwinds,
        }
    }
}

/// Iterator over the items of [`Items`]: each ends by itself. Items that are not taken are ended in one lock
/// hold when this is dropped, or put back if a panic unwinds through it, as for [`Items`].
///
/// ```
/// # let q = requeue::WorkQueue::new();
/// q.add_many(["a", "b", "c"]).all()?;
/// let mut items = q.try_get_many(3)?.into_iter();
/// let a = items.next().expect("three");
/// drop(items);
/// assert_eq!((*a.key(), q.stats().held), ("a", 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping items ends their runs as done"]
pub struct IntoItems<'q, K, V = ()> {
    owner: Owner<'q, K, V>,
    items: vec::IntoIter<Item<'q, K, V>>,
    unwinds: Unwinds,
}

impl<'q, K, V> Iterator for IntoItems<'q, K, V> {
    type Item = Item<'q, K, V>;
    fn next(&mut self) -> Option<Item<'q, K, V>> {
        self.items.next()
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl<K, V> DoubleEndedIterator for IntoItems<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.items.next_back()
    }
}

impl<K, V> ExactSizeIterator for IntoItems<'_, K, V> {}

impl<K, V> std::iter::FusedIterator for IntoItems<'_, K, V> {}

impl<K, V> Drop for IntoItems<'_, K, V> {
    fn drop(&mut self) {
        let_go_all(self.owner.shared(), self.items.as_mut_slice(), self.unwinds);
    }
}

debug!([K, V] IntoItems<'_, K, V>, |items| { len: items.items.len(), .. });
