//! Waiting for several keys at once.

use crate::error::GetError;
use crate::hold::{Hold, Shared};
use crate::item::Item;
use crate::items::{Items, after_ends, done_all, end_in_hold, room_for_ended};
use crate::owner::Owner;
use crate::panics::quietly;
use crate::timeout::{Timeout, timeout};
use crate::wait::TimeLimit;
use crate::waiting::{LookRemains, PollResult, Poller, Waiting};
use requeue_core::Ended;
use std::future::Future;
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Maximum number of keys to allocate for before it is known how many there are.
const AT_ONCE: usize = 256;

/// Waits for keys, several at once: await it, or call [`wait`](Self::wait) on it.
///
/// Made by [`WorkQueue::get_many`](crate::WorkQueue::get_many) and [`Items::next`]. It waits until one key is
/// ready, and then returns all that are ready, up to the number asked for. Returns `None` once the queue is
/// shut down and no ready or dirty key is left.
///
/// If asked for 0 keys, it does not wait, and returns no items or `None`.
///
/// Poll it or drop it, like a [`Get`](crate::Get).
///
/// # Cancel safety
///
/// Keys are taken only in the poll that returns them. Dropping the future at any point loses no key and no
/// wake-up. If it is polled again after an answer, it waits for the next keys.
///
/// ```
/// # let q = requeue::WorkQueue::new();
/// let get = q.get_many(2); // nothing yet: it waits when it is polled
/// q.add_many(["a", "b", "c"]).all()?;
/// assert_eq!(get.wait().map(|items| items.len()), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a GetMany does nothing unless it is awaited or waited on"]
pub struct GetMany<'q, K, V = ()> {
    pub(crate) waiting: Waiting<'q, K, V>,
    pub(crate) ask: Several<'q, K, V>,
}

/// Asks for several keys.
pub(crate) struct Several<'q, K, V> {
    most: usize,
    /// The runs to be ended before keys are taken, all of this queue and with no user data but the keys;
    /// afterwards empty, and room for keys.
    items: Vec<Item<'q, K, V>>,
    /// Room was made in this look for as many keys as were ready.
    asked: bool,
}

/// Remains of a batch after its hold.
pub(crate) struct BatchRemains<K, V> {
    ended: Vec<Ended<K, V>>,
    /// How long each taken key has waited, for the metrics.
    waited: Vec<Duration>,
}

impl<K, V> Default for BatchRemains<K, V> {
    fn default() -> Self {
        Self { ended: Vec::new(), waited: Vec::new() }
    }
}

impl<'q, K: 'q, V: 'q> Poller<'q, K, V> for Several<'q, K, V> {
    type Got = Items<'q, K, V>;
    type Taken = Items<'q, K, V>;
    type Remains = BatchRemains<K, V>;

    #[inline]
    fn make_room(&mut self, keys: usize, shared: &Shared<K, V>, remains: &mut Self::Remains) {
        self.asked = keys > 0;
        if !self.items.is_empty() {
            remains.ended = room_for_ended(shared, self.items.len());
        } else {
            self.items.reserve_exact(keys.max(self.most.min(AT_ONCE)));
        }
        if shared.metrics.is_some() {
            remains.waited.reserve_exact(self.items.capacity());
        }
    }

    #[inline]
    fn take(
        &mut self,
        hold: &mut Hold<'_, K, V>,
        owner: &Owner<'q, K, V>,
        remains: &mut Self::Remains,
    ) -> PollResult<Self::Taken> {
        let Self { most, items, asked } = self;
        if !items.is_empty() {
            end_in_hold(hold, owner.shared(), items, false, true, &mut remains.ended);
            items.clear();
            // these may have been the last runs that a drain waited for
            hold.core.conclude();
        }
        let ready = (*most).min(hold.core.servable());
        if ready == 0 {
            return if *most > 0 || hold.core.is_over() {
                PollResult::Nothing
            } else {
                PollResult::Keys(Items::new(owner.clone(), Vec::new()))
            };
        }
        // once: producers may add faster than room is made
        if ready > items.capacity() && !*asked {
            return PollResult::NoRoom(ready);
        }
        let taken = hold.get_up_to(ready.min(items.capacity()), |handout| {
            if let Some(waited) = handout.waited {
                remains.waited.push(waited);
            }
            items.push(Item::new(owner.clone(), handout));
        });
        match taken {
            0 => PollResult::Nothing,
            _ => PollResult::Keys(Items::new(owner.clone(), take(items))),
        }
    }

    #[inline]
    fn got(taken: Self::Taken, _: &Owner<'q, K, V>) -> Self::Got {
        taken
    }
}

impl<'q, K, V> LookRemains<K, V, Items<'q, K, V>> for BatchRemains<K, V> {
    #[inline]
    fn hand_out(self, _: &Items<'q, K, V>, hold: Hold<'_, K, V>, waker: Option<Waker>) {
        let shared = hold.owner();
        hold.unlock();
        if let Some(waker) = waker {
            quietly(|| drop(waker));
        }
        // a key that panics as it is dropped must not take these from the caller
        quietly(|| LookRemains::<K, V, Items<'q, K, V>>::drop_after(self, shared));
    }

    #[inline]
    fn drop_after(self, shared: &Shared<K, V>) {
        for waited in self.waited {
            shared.tell_metrics(|m| m.handed_out(waited));
        }
        after_ends(shared, self.ended);
    }
}

/// `try_get` for several keys.
#[inline]
pub(crate) fn try_get_many<K, V>(
    shared: &Arc<Shared<K, V>>,
    most: usize,
) -> Result<Items<'_, K, V>, GetError> {
    let owner = Owner::Borrowed(shared);
    let mut ask = Several { most, items: Vec::new(), asked: false };
    let mut remains = BatchRemains::default();
    let mut reading = None;
    let mut keys = 0;
    loop {
        ask.make_room(keys, shared, &mut remains);
        let mut hold = shared.look_for_key(&mut reading);
        match ask.take(&mut hold, &owner, &mut remains) {
            PollResult::Keys(taken) => {
                remains.hand_out(&taken, hold, None);
                return Ok(taken);
            }
            PollResult::Nothing => {
                let over = hold.core.is_over();
                hold.unlock();
                return Err(if over { GetError::ShutDown } else { GetError::Empty });
            }
            PollResult::NoRoom(more) => {
                hold.unlock();
                keys = more;
            }
        }
    }
}

impl<'q, K, V> Items<'q, K, V> {
    /// Ends all runs and waits for the next keys, at most `most`, in one lock hold: at the first poll, or
    /// when the returned future is dropped.
    ///
    /// The memory of these items is reused for the next, so a loop allocates only once.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_many(0..100).all()?;
    /// q.shut_down();
    /// let mut runs = 0;
    /// let mut next = q.get_many(32).wait();
    /// while let Some(items) = next {
    ///     runs += items.len();
    ///     next = items.next(32).wait();
    /// }
    /// assert_eq!(runs, 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the runs and loses no key.
    pub fn next(mut self, most: usize) -> GetMany<'q, K, V> {
        let shared = self.owner.shared();
        // the users' values are dropped here, not in the hold that ends the runs
        for item in &mut self.items {
            item.let_value_go();
        }
        if self.items.iter().any(|item| !item.is_of(shared)) {
            self.items.retain(|item| item.is_of(shared));
        }
        GetMany::new(self.owner.clone(), most, take(&mut self.items))
    }
}

impl<'q, K, V> GetMany<'q, K, V> {
    pub(crate) fn new(owner: Owner<'q, K, V>, most: usize, ending: Vec<Item<'q, K, V>>) -> Self {
        Self { waiting: Waiting::new(owner), ask: Several { most, items: ending, asked: false } }
    }

    /// Blocks until there is a key, or the queue is shut down and worked off.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::new();
    /// q.add_many(["a", "b"]).all()?;
    /// q.shut_down();
    /// assert_eq!(q.get_many(32).wait().map(|items| items.len()), Some(2));
    /// assert!(q.get_many(32).wait().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use = "dropping the items ends their runs as done; `None` means that the queue is shut down and worked off"]
    pub fn wait(mut self) -> Option<Items<'q, K, V>> {
        self.waiting.wait(&mut self.ask)
    }

    /// Makes the wait own its reference to the queue: see [`Get::into_owned`](crate::Get::into_owned).
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::new();
    /// let get = q.get_many(8).into_owned();
    /// let runs = std::thread::spawn(move || get.wait().map(|items| items.len()));
    /// q.add(1)?;
    /// assert_eq!(runs.join().unwrap(), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_owned(mut self) -> GetMany<'static, K, V> {
        let ending = take(&mut self.ask.items).into_iter().map(Item::into_owned).collect();
        GetMany::new(self.waiting.owner().into_owned(), self.ask.most, ending)
    }

    /// Gives up at `limit`: when a [`Duration`] has passed since the first poll, by the queue's clock, or at
    /// an [`Instant`](crate::Instant) of that clock. With [`Duration::ZERO`], and with an instant in the past,
    /// it does not wait.
    ///
    /// ```
    /// # use requeue::{Clock, FakeClock, GetError, WorkQueue};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::<u32>::builder().clock(clock.clone()).build()?;
    /// assert_eq!(q.get_many(32).timeout(Duration::ZERO).wait().err(), Some(GetError::Empty));
    /// assert_eq!(q.get_many(32).timeout(clock.now()).wait().err(), Some(GetError::Empty));
    /// # Ok::<(), requeue::BuildError>(())
    /// ```
    pub fn timeout(self, limit: impl Into<TimeLimit>) -> Timeout<Self> {
        Timeout::new(self, limit.into())
    }
}

impl<'q, K: Send + Sync + 'static, V: Send + 'static> Future for GetMany<'q, K, V> {
    type Output = Option<Items<'q, K, V>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { waiting, ask } = &mut *self;
        waiting.poll(ask, cx, None).map(|outcome| outcome.unwrap_or(None))
    }
}

impl<K, V> Unpin for GetMany<'_, K, V> {}

impl<K, V> Drop for GetMany<'_, K, V> {
    fn drop(&mut self) {
        if !self.ask.items.is_empty() {
            // never polled: their runs were ended with done
            done_all(self.waiting.shared(), &mut self.ask.items);
        }
    }
}

debug!([K, V] GetMany<'_, K, V>, |many| { most: many.ask.most, waiting: many.waiting.is_entered(), .. });

timeout!(GetMany, Items, "get_many(8)");
