//! [`Snapshot`]: the keys of a queue, in pages.

use crate::hold::Shared;
use crate::panics::in_drop;
use crate::queue::WorkQueue;
use requeue_core::{Instant, KeyRef, KeyState, Only, Stats};
use std::fmt;
use std::hash::{BuildHasher, Hash};

/// Default number of keys per page ([`Snapshot::page`]).
const PAGE: usize = 1_000;

/// An iterator over the keys that the queue knows, one [`Page`] per step: see [`WorkQueue::snapshot`].
///
/// ```
/// use requeue::{Only, WorkQueue};
/// let q = WorkQueue::new();
/// q.add_many(["a", "b", "c"]).all()?;
/// let _held = q.try_get()?;
/// let mut keys = Vec::new();
/// for page in q.snapshot().only(Only::Ready).page(1) {
///     assert_eq!((page.totals.ready, page.totals.held), (2, 1));
///     keys.extend(page.keys.into_iter().map(|(key, _)| key));
/// }
/// keys.sort();
/// assert_eq!(keys, ["b", "c"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a snapshot looks at nothing until it is asked for its pages"]
pub struct Snapshot<'q, K, V = ()> {
    shared: &'q Shared<K, V>,
    /// Where the next page begins; `None` after the last.
    from: Option<u32>,
    most: usize,
    only: Option<Only>,
}

/// A part of the queue's keys, all at one instant.
///
/// ```
/// # let q = requeue::WorkQueue::new();
/// q.add("a")?;
/// let page = q.snapshot().next().expect("there is always a page");
/// let (key, state) = &page.keys[0];
/// assert!(*key == "a" && state.ready && page.totals.ready == 1 && page.next.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Page<K> {
    /// The keys with their states, in no particular order.
    pub keys: Vec<(K, KeyState)>,
    /// Totals of the whole queue.
    pub totals: Stats,
    /// Instant of the page, on the queue's clock.
    pub at: Instant,
    /// Where the next page begins: a number for [`Snapshot::resume`]. It stays valid whatever comes and goes
    /// meanwhile. `None` if this is the last.
    pub next: Option<u32>,
}

impl<K, V> Snapshot<'_, K, V> {
    /// Restricts the snapshot to keys in this state.
    ///
    /// ```
    /// # use requeue::{Only, WorkQueue};
    /// # let q = WorkQueue::new();
    /// q.add("a")?;
    /// let page = q.snapshot().only(Only::Waiting).next().expect("there is always a page");
    /// assert!(page.keys.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn only(self, only: Only) -> Self {
        Self { only: Some(only), ..self }
    }

    /// Sets the maximum number of keys per page: 1,000 by default; 0 counts as 1. Other callers wait for the
    /// lock while a page is read.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_many(["a", "b", "c"]).all()?;
    /// assert!(q.snapshot().page(2).all(|page| page.keys.len() <= 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn page(self, most: usize) -> Self {
        Self { most: most.max(1), ..self }
    }

    /// Continues where a page of an earlier snapshot of this queue said: [`Page::next`]. A number that no page
    /// returned is no error: the snapshot goes on somewhere, or is over.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_many(["a", "b"]).all()?;
    /// let first = q.snapshot().page(1).next().expect("there is always a page");
    /// let rest = q.snapshot().resume(first.next.expect("there is more"));
    /// assert_eq!(rest.map(|page| page.keys.len()).sum::<usize>(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(self, from: u32) -> Self {
        Self { from: Some(from), ..self }
    }
}

/// Keys that are lent until they have been cloned: cloning is user code and happens outside the lock.
struct Lent<'q, K, V> {
    shared: &'q Shared<K, V>,
    keys: Vec<(KeyRef<K>, KeyState)>,
}

impl<K, V> Drop for Lent<'_, K, V> {
    fn drop(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        in_drop(|| {
            let mut hold = self.shared.lock();
            self.keys.drain(..).for_each(|(loan, _)| hold.core.take_back(loan));
            hold.unlock();
        });
    }
}

impl<K: Clone, V> Iterator for Snapshot<'_, K, V> {
    type Item = Page<K>;

    /// The next page. Only the last one may be empty.
    fn next(&mut self) -> Option<Page<K>> {
        let mut from = self.from?;
        let shared = self.shared;
        let at = shared.now();
        loop {
            let mut lent = Lent { shared, keys: Vec::with_capacity(self.most.min(PAGE)) };
            let mut hold = shared.look_at(at);
            let keys = &mut lent.keys;
            let next = hold.core.page(from, self.most, self.only, |loan, state| keys.push((loan, state)));
            let totals = hold.stats();
            hold.unlock();
            if let (true, Some(next)) = (lent.keys.is_empty(), next) {
                from = next;
                continue;
            }
            let keys = lent.keys.iter().map(|(loan, state)| (loan.get().clone(), *state)).collect();
            self.from = next;
            return Some(Page { keys, totals, at, next });
        }
    }
}

impl<K, V> fmt::Debug for Snapshot<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("from", &self.from)
            .field("most", &self.most)
            .field("only", &self.only)
            .finish_non_exhaustive()
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> WorkQueue<K, V, S> {
    /// The keys that the queue knows, with their states, in pages. Each page is of one instant, with the
    /// totals of that instant, and takes one lock hold (and one more to give the keys back).
    ///
    /// Keys may come and go between two pages. A key that is known all the time is listed once. A key that
    /// comes or goes meanwhile may be listed, left out, or listed twice.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # let q = WorkQueue::new();
    /// q.add("a")?;
    /// q.add_after("b", std::time::Duration::from_secs(9))?;
    /// for page in q.snapshot() {
    ///     for (key, state) in page.keys {
    ///         println!("{key}: ready {}, waits until {:?}", state.ready, state.waiting_until);
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot<'_, K, V>
    where
        K: Clone,
    {
        Snapshot { shared: &self.shared, from: Some(0), most: PAGE, only: None }
    }
}
