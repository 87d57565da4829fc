//! The guard that `get` returns: a key that is held, until it is done.

use crate::RefusedItem;
use crate::get::Get;
use crate::shared::{Shared, Unfinished, drop_quietly};
use requeue_core::{Ended, Handout, How, Refused, RefusedEnd, RetryDelay, RunRef};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Whose queue a guard or a waiting caller belongs to: borrowed from a handle,
/// or with a reference of its own. Neither is a handle: it does not keep the
/// queue open.
pub(crate) enum Owner<'q, K, V> {
    Borrowed(&'q Arc<Shared<K, V>>),
    Owned(Arc<Shared<K, V>>),
}

impl<K, V> Owner<'_, K, V> {
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared<K, V>> {
        match self {
            Self::Borrowed(shared) => shared,
            Self::Owned(shared) => shared,
        }
    }

    pub(crate) fn into_owned(self) -> Owner<'static, K, V> {
        Owner::Owned(match self {
            Self::Borrowed(shared) => shared.clone(),
            Self::Owned(shared) => shared,
        })
    }
}

impl<K, V> Clone for Owner<'_, K, V> {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(shared) => Self::Borrowed(shared),
            Self::Owned(shared) => Self::Owned(shared.clone()),
        }
    }
}

/// A held key. Dropping it says done.
///
/// As long as it exists no other worker gets the key; a trigger that comes
/// meanwhile makes the key ready again when this ends. It may be sent to
/// another thread; [`into_owned`](Self::into_owned) lets it outlive the handle
/// that it came from.
///
/// ```
/// use requeue::WorkQueue;
/// let q = WorkQueue::new();
/// q.add("a")?;
/// let item = q.try_get()?;
/// assert_eq!((*item.key(), item.attempt()), ("a", 1));
/// drop(item); // done
/// assert_eq!(q.stats().held, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping an item says that its key is done"]
pub struct Item<'q, K, V = ()> {
    guard: Guard<'q, K, V>,
    value: Option<V>,
    attempt: u32,
}

/// The part of an item that ends the run, however the item goes.
pub(crate) struct Guard<'q, K, V> {
    pub(crate) owner: Owner<'q, K, V>,
    /// `None` once the run was ended, or is somebody else's to end.
    run: Option<RunRef<K>>,
}

impl<'q, K, V> Guard<'q, K, V> {
    /// Ends the run with what needs no limiter.
    #[inline]
    fn end(&mut self, how: How<'_>, value: Option<V>) -> Result<Duration, RefusedEnd<V>> {
        let Some(run) = self.run.take() else { return Ok(Duration::ZERO) };
        let shared = self.owner.shared();
        // a delay counts from now; without one the time matters only if timers do
        let mut reading = matches!(how, How::Again(_) | How::Retry(_)).then(|| shared.now());
        let ended = shared.enter(&mut reading).core.end(run, how, value);
        self.ended(ended)
    }

    fn ended(
        &mut self,
        ended: Result<Ended<K, V>, (RunRef<K>, RefusedEnd<V>)>,
    ) -> Result<Duration, RefusedEnd<V>> {
        match ended {
            Ok(ended) => {
                let delay = ended.delay;
                Self::settle_ended(self.owner.shared(), Some(ended));
                Ok(delay)
            }
            Err((run, refused)) => {
                self.run = Some(run);
                Err(refused)
            }
        }
    }

    /// What follows the end of a run outside the lock: the metrics hear of it,
    /// and what is left of it is dropped.
    #[inline]
    pub(crate) fn settle_ended(shared: &Shared<K, V>, ended: Option<Ended<K, V>>) {
        let Some(ended) = ended else { return };
        if let Some(took) = ended.worked {
            shared.tell(|m| m.run_ended(took));
        }
        if ended.key.is_some() || ended.value.is_some() {
            drop_quietly(ended);
        }
    }

    /// Ends the run with a failure, and puts its payload back. With `instead`
    /// the limiter is asked all the same, and its delay replaced.
    fn retry(&mut self, instead: Option<Duration>, payload: &mut Option<V>) -> Result<Duration, Refused> {
        let shared = self.owner.shared().clone();
        let counted = shared.with_limit(|limit| {
            self.end(
                How::Retry(match instead {
                    None => RetryDelay::Limited(limit),
                    Some(delay) => RetryDelay::Instead(limit, delay),
                }),
                payload.take(),
            )
        });
        let ended = match (counted, &self.run) {
            (Some(ended), _) => ended,
            (None, None) => return Ok(Duration::ZERO),
            (None, Some(run)) => {
                let now = shared.now();
                // a panic of the limiter leaves run and payload with the guard
                let (asked, asking) = shared.ask(run.key(), now, Some(run))?;
                let how = How::Retry(RetryDelay::Asked(instead.unwrap_or(asked), asking));
                match self.run.take() {
                    None => return Ok(Duration::ZERO),
                    Some(run) => {
                        let ended = shared.enter_at(now).core.end(run, how, payload.take());
                        self.ended(ended)
                    }
                }
            }
        };
        match ended {
            Ok(delay) => {
                shared.tell(|m| m.retried());
                Ok(delay)
            }
            Err(refused) => {
                *payload = refused.value;
                Err(refused.reason)
            }
        }
    }

    /// Ends the run without a failure; the key comes again.
    fn again(&mut self, delay: Duration) -> Result<(), Refused> {
        let shared = self.owner.shared().clone();
        if shared.keeps_own() {
            // a limiter forgets outside the lock, and not for a refused call
            let Some(run) = &self.run else { return Ok(()) };
            shared.enter_at(shared.now()).core.admits_holder(run)?;
            shared.forget_own(run.key());
        }
        self.end(How::Again(delay), None).map_err(|refused| refused.reason)?;
        shared.tell(|m| m.retried());
        Ok(())
    }

    /// Ends the run as a guard that was dropped without a word does.
    fn abandon(&mut self, payload: &mut Option<V>) {
        if self.run.is_none() {
            return;
        }
        if self.owner.shared().unfinished == Unfinished::Retry && self.retry(None, payload).is_ok() {
            return;
        }
        let _ = self.end(How::Done, None);
    }

    /// Tells a limiter that keeps its own counts to forget the key; where the
    /// queue counts, the end of the run does it.
    fn forget(&self) {
        if let Some(run) = &self.run {
            self.owner.shared().forget_own(run.key());
        }
    }
}

impl<'q, K, V> Item<'q, K, V> {
    #[inline]
    pub(crate) fn new(owner: Owner<'q, K, V>, handout: Handout<K, V>) -> Self {
        if let Some(waited) = handout.waited {
            owner.shared().tell(|m| m.handed_out(waited));
        }
        Self {
            guard: Guard { owner, run: Some(handout.run) },
            value: handout.value,
            attempt: handout.attempt,
        }
    }

    /// The key.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add(7)?;
    /// assert_eq!(q.try_get()?.key(), &7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        match &self.guard.run {
            Some(run) => run.key(),
            // only the methods that consume the item take the run
            None => unreachable!("an item has its run until it is consumed"),
        }
    }

    /// The value that was merged from the run's triggers, if one of them had one.
    ///
    /// ```
    /// let q = requeue::WorkQueue::merging(|old: &mut String, new: String| *old += &new).build()?;
    /// q.add_value("a", "x".to_string())?;
    /// q.add_value("a", "y".to_string())?;
    /// assert_eq!(q.try_get()?.value().map(String::as_str), Some("xy"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn value(&self) -> Option<&V> {
        self.value.as_ref()
    }

    /// Takes the value out. A retry then has nothing to put back.
    ///
    /// ```
    /// let q = requeue::WorkQueue::merging(|_: &mut u8, _| ()).build()?;
    /// q.add_value("a", 1)?;
    /// let mut item = q.try_get()?;
    /// assert_eq!((item.take_value(), item.take_value()), (Some(1), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the value is gone from the item"]
    pub fn take_value(&mut self) -> Option<V> {
        self.value.take()
    }

    /// Puts a value into the item, for a retry to put back; returns what was there.
    ///
    /// ```
    /// let q = requeue::WorkQueue::merging(|old: &mut u8, new| *old += new).build()?;
    /// q.add_value("a", 9)?;
    /// let mut item = q.try_get()?;
    /// assert_eq!(item.set_value(4), Some(9)); // five of nine are done
    /// assert!(item.retry().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_value(&mut self, value: V) -> Option<V> {
        self.value.replace(value)
    }

    /// Which run in a row of failing ones this is: 1 for the first, one more
    /// after each [`retry`](Self::retry). It restarts at 1 when the key is
    /// triggered otherwise while it runs or waits out a failure.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::builder().limiter(requeue::limiter::WithMaxWait::new(
    /// #     requeue::limiter::default_per_item(), std::time::Duration::ZERO)).build()?;
    /// q.add("a")?;
    /// q.try_get()?.retry().expect("the queue is open");
    /// assert_eq!(q.try_get()?.attempt(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Ends the run. The same as dropping the item where the queue was built
    /// with the default [`Unfinished::Done`].
    ///
    /// Failures on record stay: see [`succeed`](Self::succeed).
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// q.try_get()?.done();
    /// assert_eq!(q.stats().held, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn done(mut self) {
        let _ = self.guard.end(How::Done, None);
    }

    /// Ends the run and forgets the key's failures.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_rate_limited("a")?;
    /// # q.add("a")?;
    /// q.try_get()?.succeed();
    /// assert_eq!(q.num_requeues(&"a"), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn succeed(mut self) {
        self.guard.forget();
        let _ = self.guard.end(How::Succeed, None);
    }

    /// Ends the run as a failure that is not tried again: the key is forgotten.
    /// A trigger that came during the run still gets its run, at attempt 1.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// q.try_get()?.give_up();
    /// assert!(q.state("a").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn give_up(self) {
        self.succeed();
    }

    /// Ends the run as a failure: the limiter says when the key comes back, and
    /// the value that was not taken goes back, in front of what came meanwhile.
    /// Returns the delay.
    ///
    /// # Errors
    ///
    /// The item, if the queue takes no retries any more, or the run was ended
    /// by [`done`](crate::WorkQueue::done): nothing has changed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let q = requeue::WorkQueue::builder().limiter(requeue::limiter::default_per_item()).build()?;
    /// q.add("a")?;
    /// let delay = q.try_get()?.retry().expect("the queue is open");
    /// assert_eq!(delay, Duration::from_millis(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry(self) -> Result<Duration, RefusedItem<'q, K, V>> {
        self.retry_with(None)
    }

    /// [`retry`](Self::retry) with a delay of its own: the limiter is asked and
    /// counts, and its delay is replaced.
    ///
    /// # Errors
    ///
    /// As for [`retry`](Self::retry).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// let hour = Duration::from_secs(3600);
    /// assert_eq!(q.try_get()?.retry_after(hour).ok(), Some(hour));
    /// assert_eq!(q.num_requeues(&"a"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry_after(self, delay: Duration) -> Result<Duration, RefusedItem<'q, K, V>> {
        self.retry_with(Some(delay))
    }

    fn retry_with(mut self, instead: Option<Duration>) -> Result<Duration, RefusedItem<'q, K, V>> {
        match self.guard.retry(instead, &mut self.value) {
            Ok(delay) => Ok(delay),
            Err(reason) => Err(RefusedItem { item: self, reason }),
        }
    }

    /// Ends the run without a failure, and the key comes again after `delay`
    /// (zero: at once). Its failures are forgotten.
    ///
    /// # Errors
    ///
    /// As for [`retry`](Self::retry).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let q = requeue::WorkQueue::new();
    /// q.add("poll")?;
    /// assert!(q.try_get()?.requeue_after(Duration::from_secs(300)).is_ok());
    /// assert_eq!(q.stats().waiting, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn requeue_after(mut self, delay: Duration) -> Result<(), RefusedItem<'q, K, V>> {
        self.guard.again(delay).map_err(|reason| RefusedItem { item: self, reason })
    }

    /// Ends the run and waits for the next key, in one lock hold: at the first
    /// poll, or when the returned future is dropped.
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
    pub fn next(mut self) -> Get<'q, K, V> {
        Get::new(self.guard.owner.clone(), self.guard.run.take())
    }

    /// The same item with a reference to the queue of its own, to be moved into
    /// a task. It is not a handle: it does not keep the queue open.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// let item = q.try_get()?.into_owned();
    /// std::thread::spawn(move || item.done()).join().unwrap();
    /// assert_eq!(q.stats().held, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_owned(mut self) -> Item<'static, K, V> {
        Item {
            guard: Guard { owner: self.guard.owner.clone().into_owned(), run: self.guard.run.take() },
            value: self.value.take(),
            attempt: self.attempt,
        }
    }

    /// Takes key and value out and leaves the run open: whoever has them owes
    /// the queue a [`done`](crate::WorkQueue::done). For code ported from
    /// client-go, where key and done go separate ways.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// let (key, _) = q.try_get()?.detach();
    /// assert!(q.state("a").is_some_and(|s| s.held));
    /// q.done(&key)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the key stays held until done is said of it"]
    pub fn detach(mut self) -> (K, Option<V>)
    where
        K: Clone,
    {
        let key = self.key().clone();
        if let Some(run) = self.guard.run.take() {
            let shared = self.guard.owner.shared();
            let ended = shared.enter(&mut None).core.detach(run);
            Guard::settle_ended(shared, Some(ended));
        }
        (key, self.value.take())
    }

    /// Whether the run was ended by [`done`](crate::WorkQueue::done): the item
    /// does nothing any more, but its key stays readable.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// let item = q.try_get()?;
    /// q.done("a")?;
    /// assert!(item.is_inert());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_inert(&self) -> bool {
        let shared = self.guard.owner.shared();
        self.guard.run.as_ref().is_none_or(|run| shared.enter(&mut None).core.is_inert(run))
    }
}

impl<K, V> Drop for Item<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        if self.guard.run.is_none() {
            return;
        }
        let Self { guard, value, .. } = self;
        if std::thread::panicking() {
            // users' code (merge, their order, their limiter) may panic too, and
            // a second panic would abort: it is caught, and the run still ends
            let _ = catch_unwind(AssertUnwindSafe(|| guard.abandon(value)));
            let _ = catch_unwind(AssertUnwindSafe(|| guard.end(How::Done, None)));
            drop_quietly(value.take());
        } else {
            guard.abandon(value);
        }
    }
}

impl<K, V> fmt::Debug for Item<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}
