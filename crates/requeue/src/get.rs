//! Waiting for a key.

use crate::ending::{after_end, done_in_drop, end_in_hold};
use crate::error::GetError;
use crate::hold::{Hold, Shared};
use crate::item::Item;
use crate::owner::Owner;
use crate::panics::quietly;
use crate::timeout::{Timeout, timeout};
use crate::wait::TimeLimit;
use crate::waiting::{LookRemains, PollResult, Poller, Waiting};
use requeue_core::{Ended, Got, Handout, Instant, RunEnd, RunRef};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Waits for a key: await it, or call [`wait`](Self::wait) on it.
///
/// Made by [`WorkQueue::get`](crate::WorkQueue::get) and [`Item::next`]. Returns `None` once the queue is
/// shut down and no ready or dirty key is left.
///
/// It does not end when all producers are gone, as long as a [`WorkQueue`](crate::WorkQueue) lives, even the
/// one it was made from. Shut the queue down, or use a [`Getter`](crate::Getter).
///
/// Poll it or drop it. A woken future that is kept without being polled delays the other waiters for its key
/// by 4 to 8 ms; then the next of them is woken. In a `select!` loop that works between two polls, make a new
/// one each time around.
///
/// # Cancel safety
///
/// A key is taken only in the poll that returns it. Dropping the future at any point loses no key and no
/// wake-up. If it is polled again after an answer, it waits for the next key.
///
/// ```
/// # let q = requeue::WorkQueue::new();
/// let get = q.get(); // nothing yet: it waits when it is polled
/// q.add("a")?;
/// assert_eq!(get.wait().map(|item| *item.key()), Some("a"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a Get does nothing unless it is awaited or waited on"]
pub struct Get<'q, K, V = ()> {
    pub(crate) waiting: Waiting<'q, K, V>,
    pub(crate) ask: One<K>,
}

/// Asks for one key. Its methods are `inline(always)`: their arguments are large and would otherwise go
/// through memory (`Item::next` took 60 instructions more).
pub(crate) struct One<K> {
    /// A run to be ended before the key is taken.
    ending: Option<RunRef<K>>,
}

impl<'q, K: 'q, V: 'q> Poller<'q, K, V> for One<K> {
    type Got = Item<'q, K, V>;
    type Taken = Handout<K, V>;
    type Remains = Remains<K, V>;

    #[inline(always)]
    fn ends_at_once(&mut self, hold: &mut Hold<'_, K, V>, remains: &mut Self::Remains) -> bool {
        remains.try_fast_end(hold, &mut self.ending)
    }

    #[inline(always)]
    fn take(
        &mut self,
        hold: &mut Hold<'_, K, V>,
        _: &Owner<'q, K, V>,
        remains: &mut Self::Remains,
    ) -> PollResult<Self::Taken> {
        remains.end(hold, &mut self.ending, false);
        match hold.get() {
            Got::Item(handout) => PollResult::Keys(handout),
            Got::Empty | Got::ShutDown => {
                // the run that was ended may have been the last one that a drain waited for
                hold.core.conclude();
                PollResult::Nothing
            }
        }
    }

    #[inline(always)]
    fn got(taken: Self::Taken, owner: &Owner<'q, K, V>) -> Self::Got {
        Item::new(owner.clone(), taken)
    }
}

/// Remains of the run that was ended: mostly the key alone; rare parts stand apart.
pub(crate) struct Remains<K, V> {
    key: Option<K>,
    worked: Option<Duration>,
    in_full: Option<Ended<K, V>>,
}

impl<K, V> Remains<K, V> {
    /// Ends the run, if there is one and nothing else is known of its key. `false`: the run has not ended.
    #[inline(always)]
    fn try_fast_end(&mut self, hold: &mut Hold<'_, K, V>, run: &mut Option<RunRef<K>>) -> bool {
        // only in the hold: what runs before may panic, and the run must still be there
        if run.is_none() {
            return true;
        }
        if hold.owner().journal.is_some() {
            return false;
        }
        let Some((key, worked)) = hold.core.try_fast_end(run) else { return false };
        (self.key, self.worked) = (Some(key), worked);
        true
    }

    /// Ends a run, if there is one, as done or as succeeded.
    #[inline(always)]
    pub(crate) fn end(&mut self, hold: &mut Hold<'_, K, V>, run: &mut Option<RunRef<K>>, succeeded: bool) {
        if !self.try_fast_end(hold, run) {
            self.in_full = end_in_hold(hold.owner(), hold, run, succeeded, &mut None);
        }
    }
}

impl<K, V> LookRemains<K, V, Handout<K, V>> for Remains<K, V> {
    #[inline(always)]
    fn hand_out(self, taken: &Handout<K, V>, hold: Hold<'_, K, V>, waker: Option<Waker>) {
        let (shared, Self { key, worked, in_full }) = (hold.owner(), self);
        hold.unlock_with(taken, worked, waker);
        Self { key, worked: None, in_full }.drop_after(shared);
    }

    #[inline(always)]
    fn drop_after(self, shared: &Shared<K, V>) {
        let Self { key, worked, in_full } = self;
        shared.tell_worked(worked, RunEnd::Done);
        // a key that panics as it is dropped must not take the next one from the caller
        if std::mem::needs_drop::<K>() {
            quietly(|| drop(key));
        }
        if let Some(ended) = in_full {
            quietly(|| after_end(shared, ended));
        }
    }
}

impl<K, V> Default for Remains<K, V> {
    #[inline]
    fn default() -> Self {
        Self { key: None, worked: None, in_full: None }
    }
}

impl<K, V> Hold<'_, K, V> {
    /// Ends the hold in which a key was taken, and a run ended that took this long. The guard is made after
    /// it, in the caller's place: nothing in here unwinds, or the key would be held for ever.
    #[inline(always)]
    fn unlock_with(self, taken: &Handout<K, V>, worked: Option<Duration>, waker: Option<Waker>) {
        self.unlock_telling(|shared| {
            shared.tell_waited(taken.waited);
            shared.tell_worked(worked, RunEnd::Done);
        });
        if let Some(waker) = waker {
            quietly(|| drop(waker));
        }
    }
}

/// [`WorkQueue::get_blocking`](crate::WorkQueue::get_blocking).
#[inline]
pub(crate) fn get_blocking<K, V>(shared: &Arc<Shared<K, V>>) -> Option<Item<'_, K, V>> {
    let mut reading = None;
    let mut hold = shared.look_for_key(&mut reading);
    match hold.get() {
        Got::Item(taken) => {
            hold.unlock_with(&taken, None, None);
            Some(Item::new(Owner::Borrowed(shared), taken))
        }
        Got::Empty | Got::ShutDown => Get::new(Owner::Borrowed(shared), None).wait_in(hold, reading),
    }
}

/// [`WorkQueue::try_get`](crate::WorkQueue::try_get).
#[inline]
pub(crate) fn try_get<K, V>(shared: &Arc<Shared<K, V>>) -> Result<Item<'_, K, V>, GetError> {
    let mut hold = shared.look_for_key(&mut None);
    match hold.get() {
        Got::Item(taken) => {
            hold.unlock_with(&taken, None, None);
            Ok(Item::new(Owner::Borrowed(shared), taken))
        }
        nothing => {
            hold.unlock();
            Err(if let Got::ShutDown = nothing { GetError::ShutDown } else { GetError::Empty })
        }
    }
}

impl<'q, K, V> Item<'q, K, V> {
    /// Ends the run and waits for the next key in one lock hold: at the first poll, or when the returned
    /// future is dropped.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// q.add("b")?;
    /// let a = q.try_get()?;
    /// let b = a.next().wait().expect("b is ready");
    /// assert_eq!(*b.key(), "b");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the run and loses no key.
    #[inline]
    pub fn next(mut self) -> Get<'q, K, V> {
        // before the run is taken: if this panics, the guard must still have it
        self.let_value_go();
        Get::new(self.guard.owner.clone(), self.guard.run.take())
    }
}

impl<'q, K, V> Get<'q, K, V> {
    #[inline]
    pub(crate) fn new(owner: Owner<'q, K, V>, ending: Option<RunRef<K>>) -> Self {
        Self { waiting: Waiting::new(owner), ask: One { ending } }
    }

    /// Blocks until there is a key, or the queue is shut down and worked off.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::new();
    /// q.add("a")?;
    /// q.shut_down();
    /// assert_eq!(q.get().wait().map(|item| *item.key()), Some("a"));
    /// assert!(q.get().wait().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use = "dropping the item ends its run as done; `None` means that the queue is shut down and worked off"]
    pub fn wait(mut self) -> Option<Item<'q, K, V>> {
        self.waiting.wait(&mut self.ask)
    }

    /// Like [`wait`](Self::wait), continuing a look in a lock hold that has begun.
    #[inline(never)]
    pub(crate) fn wait_in(
        mut self,
        hold: Hold<'_, K, V>,
        reading: Option<Instant>,
    ) -> Option<Item<'q, K, V>> {
        self.waiting.wait_in(&mut self.ask, hold, reading)
    }

    /// Makes the wait own its reference to the queue, so that it can be moved into a task or kept in a
    /// struct. It is no handle: it does not keep the queue open. A wait that was already polled goes to the
    /// back of the waiters.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # smol::block_on(async {
    /// let q = WorkQueue::new();
    /// let run = smol::spawn(q.get().into_owned());
    /// q.add("a")?;
    /// assert_eq!(run.await.map(|item| *item.key()), Some("a"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn into_owned(mut self) -> Get<'static, K, V> {
        Get::new(self.waiting.owner().into_owned(), self.ask.ending.take())
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
    /// assert_eq!(q.get().timeout(Duration::ZERO).wait().err(), Some(GetError::Empty));
    /// assert_eq!(q.get().timeout(clock.now()).wait().err(), Some(GetError::Empty));
    /// # Ok::<(), requeue::BuildError>(())
    /// ```
    pub fn timeout(self, limit: impl Into<TimeLimit>) -> Timeout<Self> {
        Timeout::new(self, limit.into())
    }
}

impl<'q, K: Send + Sync + 'static, V: Send + 'static> Future for Get<'q, K, V> {
    type Output = Option<Item<'q, K, V>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { waiting, ask } = &mut *self;
        waiting.poll(ask, cx, None).map(|outcome| outcome.unwrap_or(None))
    }
}

impl<K, V> Unpin for Get<'_, K, V> {}

impl<K, V> Drop for Get<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        // the run of a wait that was never polled
        if self.ask.ending.is_some() {
            done_in_drop(self.waiting.shared(), &mut self.ask.ending, false);
        }
    }
}

debug!([K, V] Get<'_, K, V>, |get| { waiting: get.waiting.is_entered(), .. });

timeout!(Get, Item, "get()");
