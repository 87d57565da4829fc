//! Waiting for room in a queue with a bound (rule B8).

use crate::add::Add;
use crate::adding::{Kept, refused};
use crate::blocking::block_on;
use crate::error::{AddError, Added};
use crate::hold::{Later, Shared};
use crate::owner::Owner;
use crate::panics::{in_drop, quietly};
use crate::queue::WorkQueue;
use crate::trying::Turn;
use crate::wait::{Step, TimeLimit};
use crate::waiting::Deadline;
use requeue_core::{Refused, Trigger, TriggerOptions};
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A trigger that waits for room for its key: await it, or call [`wait`](Self::wait) on it.
///
/// Made by [`WorkQueue::add_when_room`]. It returns the trigger's result, or gives the key and value back.
/// Waiting triggers are accepted one after another, in the order in which they began to wait (when first
/// polled). A trigger that does not wait can go before them, if there is room when it comes.
///
/// Poll it or drop it: a woken future that is kept without being polled holds up those that began to wait
/// after it. In a `select!` loop that works between two polls, make a new one each time around.
///
/// # Cancel safety
///
/// The trigger is accepted in the poll that returns the result, not before. If the future is dropped earlier,
/// nothing is added, the key and the value are dropped with it, and the next waiting trigger gets its turn.
/// It returns a result only once.
///
/// ```
/// use requeue::{Add, WorkQueue};
/// let q = WorkQueue::builder().bound(1).build()?;
/// q.add("a")?;
/// std::thread::scope(|s| {
///     s.spawn(|| q.get_blocking().expect("a is ready").done());
///     q.add_when_room("b", Add::now()).wait() // until "a" is done
/// })?;
/// assert_eq!(*q.try_get()?.key(), "b");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "an AddWhenRoom does nothing unless it is awaited or waited on"]
pub struct AddWhenRoom<'q, K, V = ()> {
    place: Place<'q, K, V>,
    trigger: Kept<K, V>,
    options: TriggerOptions,
    hash: u32,
    deadline: Option<Deadline>,
}

/// A place among the callers that wait for room.
struct Place<'q, K, V> {
    owner: Owner<'q, K, V>,
    ticket: Option<u64>,
}

impl<K, V> Shared<K, V> {
    /// Gives up a place among the callers that wait for room. Its turn passes on as the lock hold ends.
    pub(crate) fn leave_room(&self, ticket: u64) {
        if self.defers(|| Later::Adder(ticket)) {
            return;
        }
        let mut hold = self.lock();
        let old = hold.adders().leave(&mut Some(ticket));
        hold.unlock();
        in_drop(|| drop(old));
    }
}

impl<K, V> Drop for Place<'_, K, V> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.owner.shared().leave_room(ticket);
        }
    }
}

impl<'q, K, V> AddWhenRoom<'q, K, V> {
    /// Waits until `limit` at most, then fails with [`Refused::Full`]: for a
    /// [`Duration`](std::time::Duration) from the first poll, or until an [`Instant`](crate::Instant), both
    /// of the queue's clock. With [`Duration::ZERO`](std::time::Duration::ZERO), and with an instant in the
    /// past, it does not wait.
    ///
    /// ```
    /// # use requeue::{Add, Clock, FakeClock, Refused, WorkQueue};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).bound(1).build()?;
    /// q.add("a")?;
    /// let refused = q.add_when_room("b", Add::now()).timeout(Duration::ZERO).wait().unwrap_err();
    /// assert_eq!((refused.key, refused.reason), ("b", Refused::Full));
    /// let refused = q.add_when_room("b", Add::now()).timeout(clock.now()).wait().unwrap_err();
    /// assert_eq!(refused.reason, Refused::Full);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timeout(self, limit: impl Into<TimeLimit>) -> Self {
        Self { deadline: Some(Deadline::new(limit.into())), ..self }
    }

    /// Makes the wait own its reference to the queue, so that it can be moved into a task or a thread. That
    /// reference does not keep the queue open. A place among the waiting callers is given up.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// let q = WorkQueue::builder().bound(1).build()?;
    /// q.add("a")?;
    /// let add = q.add_when_room("b", Add::now()).into_owned();
    /// let added = std::thread::spawn(move || add.wait().is_ok());
    /// q.try_get()?.done();
    /// assert!(added.join().unwrap());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_owned(self) -> AddWhenRoom<'static, K, V> {
        let Self { place, trigger, options, hash, deadline } = self;
        let owner = place.owner.clone().into_owned();
        let deadline = deadline.map(|deadline| Deadline::new(deadline.limit));
        AddWhenRoom { place: Place { owner, ticket: None }, trigger, options, hash, deadline }
    }
}

impl<K: Eq, V> AddWhenRoom<'_, K, V> {
    /// Blocks until the trigger is accepted, or refused: because the queue is shut down or
    /// closed, or the time is up.
    ///
    /// A handler that waits here for room in the queue that it works for may wait for itself.
    ///
    /// # Errors
    ///
    /// [`AddError`] with key and value, as for any trigger; [`Refused::Full`] only with a
    /// [`timeout`](Self::timeout).
    ///
    /// ```
    /// # use requeue::{Add, Added, WorkQueue};
    /// let q = WorkQueue::builder().bound(2).build()?;
    /// assert_eq!(q.add_when_room("a", Add::now()).wait()?, Added::Ready);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(mut self) -> Result<Added, AddError<K, V>> {
        block_on(&mut self, |add| &*add.place.owner.shared().clock, |add, thread| add.step(|| thread.waker()))
    }

    fn step<'w>(&mut self, waker: impl Fn() -> &'w Waker) -> Step<Result<Added, AddError<K, V>>> {
        let Self { place: Place { owner, ticket }, trigger: Kept(trigger), options, hash, deadline } = self;
        let shared = owner.shared();
        let timed = deadline.is_some() || !options.is_immediate();
        let reading = timed.then(|| shared.now());
        let until = deadline.as_mut().map(|deadline| deadline.limit.at(reading));
        let waits = until.is_none_or(|until| reading.is_some_and(|now| now < until));
        let mut clone = None;
        loop {
            let waker = waits.then(&waker);
            let mut turn = Turn { ticket: Some(&mut *ticket), waker, clone: clone.take(), ..Turn::default() };
            let answer = shared.try_trigger(trigger, *hash, options, reading, Some(&mut turn), |_, _| ());
            let (waits, old) = (turn.waits, (turn.old.take(), turn.clone.take()));
            quietly(|| drop(old));
            match (answer, waker) {
                (Ok(accepted), _) => return Step::Ready(Ok(accepted.added)),
                (Err(Refused::Full), Some(_)) if waits => {
                    return Step::Sleep(until.filter(|until| !until.is_never()));
                }
                (Err(Refused::Full), Some(waker)) => clone = Some(waker.clone()),
                (Err(reason), _) => return Step::Ready(Err(refused(trigger, reason))),
            }
        }
    }
}

impl<K: Eq, V> Future for AddWhenRoom<'_, K, V> {
    type Output = Result<Added, AddError<K, V>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Added, AddError<K, V>>> {
        if self.trigger.0.key().is_none() {
            return Poll::Pending;
        }
        match self.step(|| cx.waker()) {
            Step::Ready(answer) => {
                if let Some(deadline) = self.deadline.take() {
                    quietly(|| drop(deadline));
                }
                Poll::Ready(answer)
            }
            Step::Sleep(_) => {
                let Self { place, deadline, .. } = &mut *self;
                if let Some(deadline) = deadline {
                    deadline.set_alarm(&*place.owner.shared().clock, cx.waker());
                }
                Poll::Pending
            }
        }
    }
}

impl<K, V> Unpin for AddWhenRoom<'_, K, V> {}

impl<K, V> fmt::Debug for AddWhenRoom<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddWhenRoom")
            .field("waiting", &self.place.ticket.is_some())
            .field("delayed", &self.options.is_delayed())
            .finish_non_exhaustive()
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> WorkQueue<K, V, S> {
    /// Asks for a run of `key` with the options of `how`, and waits for room if the queue is full: await it,
    /// call [`wait`](AddWhenRoom::wait) or [`timeout`](AddWhenRoom::timeout) on it.
    ///
    /// It acts like [`add_with`](Self::add_with), and does not wait, in three cases: the key is known, the
    /// queue has no [`bound`](crate::Builder::bound), or the queue [drops the oldest
    /// key](crate::Builder::drop_oldest) and a key is ready. A wait also ends when the key becomes known, or
    /// when a key becomes ready that can be dropped. If no caller waits for keys, a key that a timer makes
    /// ready is seen at the next call that looks.
    ///
    /// # Errors
    ///
    /// [`AddError`] with key and value: that of [`add_with`](Self::add_with), also if the queue is shut down
    /// or closed during the wait.
    ///
    /// # Cancel safety
    ///
    /// If it is dropped before it returned the accepted trigger, nothing was added.
    ///
    /// ```
    /// # use requeue::{Add, Refused, WorkQueue};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let q = WorkQueue::builder().bound(1).build()?;
    /// q.add("a")?;
    /// let (added, ()) = tokio::join!(
    ///     q.add_when_room("b", Add::now()),
    ///     async { q.get().await.expect("a is ready").done() },
    /// );
    /// added?;
    /// assert_eq!(q.get().await.map(|item| *item.key()), Some("b"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_when_room(&self, key: K, how: Add<V>) -> AddWhenRoom<'_, K, V> {
        let hash = self.hash(&key);
        let Add { value, options } = how;
        AddWhenRoom {
            place: Place { owner: Owner::Borrowed(&self.shared), ticket: None },
            trigger: Kept(Trigger::new(key, value)),
            options,
            hash,
            deadline: None,
        }
    }
}
