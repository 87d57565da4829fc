//! The guard that `get` returns: a key that is held, until it is done.

use crate::clock::quietly;
use crate::get::Get;
use crate::shared::{Call, Shared, Unfinished, in_drop};
use crate::{Instant, Metrics, RefusedItem};
use requeue_core::{Core, Ended, Handout, How, Limit, Refused, RefusedEnd, RetryDelay, RunRef};
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
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
/// A task that holds it across an `.await` and is cancelled there drops it, and that says
/// done although the work was not finished: the key does not come back by itself. Where
/// tasks may be cancelled (a `select!`, a time-out, an aborted task), build the queue with
/// [`Unfinished::Retry`], which makes that drop a retry, or use a
/// [`Worker`](crate::Worker), which does so too.
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

/// The run that is to be ended: with its guard, or under a guard that somebody
/// else still reads the key through and that becomes inert.
pub(crate) enum Ending<'a, K> {
    Taking(&'a mut Option<RunRef<K>>),
    Keeping(&'a RunRef<K>),
}

impl<K> Ending<'_, K> {
    fn run(&self) -> Option<&RunRef<K>> {
        match self {
            Self::Taking(run) => run.as_ref(),
            Self::Keeping(run) => Some(run),
        }
    }

    /// The key, while the run has not been ended.
    pub(crate) fn key(&self) -> Option<&K> {
        self.run().map(RunRef::key)
    }

    /// Whether the run has been ended, be it in a call that panicked after that.
    pub(crate) fn has_ended<V>(&self, shared: &Shared<K, V>) -> bool {
        self.run().is_none_or(|run| shared.lock().core.is_inert(run))
    }

    /// Ends the run with what needs no limiter to be asked. `reading` is the time
    /// that a delay counts from. A refused end leaves the run as it was.
    fn end<V>(
        &mut self,
        shared: &Shared<K, V>,
        how: How<'_>,
        value: Option<V>,
        mut reading: Option<Instant>,
    ) -> Result<Duration, RefusedEnd<V>> {
        let ended = match self {
            Self::Keeping(run) => shared.hold(&mut reading).core.end_keeping(run, how, value)?,
            Self::Taking(slot) => {
                let mut session = shared.hold(&mut reading);
                // only now: what runs before may panic, and the guard must still have it
                let Some(run) = slot.take() else { return Ok(Duration::ZERO) };
                let ended = session.core.end(run, how, value);
                drop(session);
                match ended {
                    Ok(ended) => ended,
                    Err((run, refused)) => {
                        **slot = Some(run);
                        return Err(refused);
                    }
                }
            }
        };
        let delay = ended.delay;
        settle_ended(shared, Some(ended));
        Ok(delay)
    }

    /// Ends the run with a failure, and puts its payload back. With `instead`
    /// the limiter is asked all the same, and its delay replaced. If a limiter
    /// panics, or the retry is refused, run and payload stay.
    pub(crate) fn retry<V>(
        &mut self,
        shared: &Shared<K, V>,
        instead: Option<Duration>,
        payload: &mut Option<V>,
        reading: &mut Option<Instant>,
    ) -> Result<Duration, Refused> {
        self.retry_noting(shared, instead, payload, reading, &Cell::new(None))
    }

    /// The same, and notes the limiter's delay as soon as it is known: where merge panics
    /// after that, the run has ended all the same.
    pub(crate) fn retry_noting<V>(
        &mut self,
        shared: &Shared<K, V>,
        instead: Option<Duration>,
        payload: &mut Option<V>,
        reading: &mut Option<Instant>,
        asked: &Cell<Option<Duration>>,
    ) -> Result<Duration, Refused> {
        let Some(run) = self.run() else { return Ok(Duration::ZERO) };
        let now = *reading.get_or_insert_with(|| shared.now());
        let ended = if shared.keeps_own() {
            let (delay, asking) = shared.ask(run.key(), now, Some(run))?;
            asked.set(Some(delay));
            let how = How::Retry(RetryDelay::Asked(instead.unwrap_or(delay), asking));
            self.end(shared, how, payload.take(), Some(now))
        } else {
            shared.with_limit(|limit| {
                let delay = |failures, now| {
                    let delay = (limit.delay)(failures, now);
                    asked.set(Some(delay));
                    delay
                };
                let limit = Limit { delay: &delay, ..limit };
                let retry = match instead {
                    None => RetryDelay::Limited(limit),
                    Some(delay) => RetryDelay::Instead(limit, delay),
                };
                self.end(shared, How::Retry(retry), payload.take(), Some(now))
            })
        };
        match ended {
            Ok(delay) => {
                shared.tell(Metrics::retried);
                Ok(delay)
            }
            Err(refused) => {
                *payload = refused.value;
                Err(refused.reason)
            }
        }
    }

    /// Ends the run without a failure; the key comes again.
    pub(crate) fn again<V>(&mut self, shared: &Shared<K, V>, delay: Duration) -> Result<(), Refused> {
        let now = Some(shared.now());
        let how = How::Again(delay);
        if let (true, Some(run)) = (shared.keeps_own(), self.run()) {
            // a limiter forgets outside the lock, and not for a refused call: the
            // key stays lent meanwhile
            Ending::Keeping(run).end(shared, how, None::<V>, now).map_err(|refused| refused.reason)?;
            shared.forget_own(run.key());
            let _ = self.end(shared, How::Done, None::<V>, now);
        } else {
            self.end(shared, how, None, now).map_err(|refused| refused.reason)?;
        }
        shared.tell(Metrics::retried);
        Ok(())
    }

    /// Ends the run and forgets the key's failures.
    pub(crate) fn succeed<V>(&mut self, shared: &Shared<K, V>) {
        if let Some(run) = self.run() {
            shared.forget_own(run.key());
        }
        self.finish(shared, true, None);
    }

    /// Ends the run as a failure that is not tried again.
    pub(crate) fn give_up<V>(&mut self, shared: &Shared<K, V>) {
        if shared.metrics.is_none() {
            return self.succeed(shared);
        }
        // what metrics are told of plain ends is that they were done
        if let Some(run) = self.run() {
            shared.forget_own(run.key());
        }
        let _ = self.end(shared, How::GiveUp, None::<V>, None);
    }

    #[inline]
    pub(crate) fn done<V>(&mut self, shared: &Shared<K, V>) {
        self.finish(shared, false, None);
    }

    /// Ends the run with what cannot be refused; nothing if there is none.
    #[inline]
    fn finish<V>(&mut self, shared: &Shared<K, V>, succeeded: bool, reading: Option<Instant>) {
        if shared.metrics.is_some() {
            self.finish_metered(shared, succeeded, reading);
        } else {
            self.finish_as::<false, V>(shared, succeeded, reading);
        }
    }

    #[inline(never)]
    fn finish_metered<V>(&mut self, shared: &Shared<K, V>, succeeded: bool, reading: Option<Instant>) {
        self.finish_as::<true, V>(shared, succeeded, reading);
    }

    #[inline]
    fn finish_as<const METERED: bool, V>(
        &mut self,
        shared: &Shared<K, V>,
        succeeded: bool,
        mut reading: Option<Instant>,
    ) {
        if let Self::Taking(slot) = self {
            let plain =
                shared.plainly::<METERED, _>(Call::Other, &mut reading, |core| finish_plainly(core, slot));
            let mut session = match plain {
                Ok(key) => return drop_key(key),
                Err(session) => session,
            };
            // only now: what runs before may panic, and the guard must still have it
            let Some(run) = slot.take() else { return };
            let ended = session.core.finish(run, succeeded);
            drop(session);
            settle_ended(shared, Some(ended));
        } else {
            let how = if succeeded { How::Succeed } else { How::Done };
            let _ = self.end(shared, how, None, reading);
        }
    }
}

/// [`Core::finish_plainly`] of a run that stays in its place if it has another end.
#[inline]
pub(crate) fn finish_plainly<K, V>(core: &mut Core<K, V>, run: &mut Option<RunRef<K>>) -> Option<K> {
    match core.finish_plainly(run.take()?) {
        Ok(key) => Some(key),
        Err(same) => {
            *run = Some(same);
            None
        }
    }
}

/// Drops a key that nobody knows any more, outside the lock.
#[inline]
pub(crate) fn drop_key<K>(key: K) {
    if std::mem::needs_drop::<K>() {
        in_drop(|| drop(key));
    }
}

/// What follows the end of a run outside the lock: the metrics hear of it, and
/// what is left of it is dropped.
#[inline]
pub(crate) fn settle_ended<K, V>(shared: &Shared<K, V>, ended: Option<Ended<K, V>>) {
    let Some(ended) = ended else { return };
    shared.tell_worked(ended.worked, ended.end);
    if std::mem::needs_drop::<(K, V)>() && (ended.key.is_some() || ended.value.is_some()) {
        in_drop(|| drop(ended));
    }
}

impl<K, V> Guard<'_, K, V> {
    #[inline]
    pub(crate) fn ending(&mut self) -> (&Arc<Shared<K, V>>, Ending<'_, K>) {
        (self.owner.shared(), Ending::Taking(&mut self.run))
    }

    /// The run, to be ended although somebody else still reads the key through
    /// this guard; `None` if it has none any more.
    pub(crate) fn keeping(&self) -> Option<Ending<'_, K>> {
        self.run.as_ref().map(Ending::Keeping)
    }

    pub(crate) fn key(&self) -> &K {
        match &self.run {
            Some(run) => run.key(),
            // only what consumes the guard, or its item, takes the run
            None => unreachable!("a guard has its run until it is consumed"),
        }
    }

    /// What dropping the guard does; nothing if its run was taken.
    ///
    /// Users' code (merge, a limiter, a clock) may panic: the run ends all the
    /// same, and during unwinding a second panic would abort.
    #[inline]
    pub(crate) fn let_go(&mut self, payload: &mut Option<V>, reading: Option<Instant>) {
        let Self { owner, run } = self;
        let shared = owner.shared();
        if run.is_some() {
            end_in_drop(shared, run, |run| abandon(shared, run, payload, reading));
        }
        if payload.is_some() {
            in_drop(|| drop(payload.take()));
        }
    }
}

/// Ends a run as a guard that was dropped without a word does.
#[inline]
fn abandon<K, V>(
    shared: &Shared<K, V>,
    run: &mut Option<RunRef<K>>,
    payload: &mut Option<V>,
    mut reading: Option<Instant>,
) {
    let mut ending = Ending::Taking(run);
    // one reading for both, where both are asked
    if shared.unfinished == Unfinished::Done || ending.retry(shared, None, payload, &mut reading).is_err() {
        ending.finish(shared, false, reading);
    }
}

/// Ends a run without reading the clock or asking anybody.
#[cold]
fn end_whatever_panics<K, V>(shared: &Shared<K, V>, run: &mut Option<RunRef<K>>) {
    if let Some(run) = run.take() {
        let ended = shared.lock().core.end(run, How::Done, None).ok();
        quietly(|| settle_ended(shared, ended));
    }
}

/// What dropping something that owes the end of a run does: `end`, and if that
/// panics before the run has ended, the end alone.
#[inline]
pub(crate) fn end_in_drop<K, V>(
    shared: &Shared<K, V>,
    run: &mut Option<RunRef<K>>,
    end: impl FnOnce(&mut Option<RunRef<K>>),
) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| end(run))) {
        end_whatever_panics(shared, run);
        if !std::thread::panicking() {
            resume_unwind(panic);
        }
        quietly(|| drop(panic));
    }
}

impl<'q, K, V> Item<'q, K, V> {
    #[inline]
    pub(crate) fn new(owner: Owner<'q, K, V>, handout: Handout<K, V>) -> Self {
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
        self.guard.key()
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

    /// The number of this run: 1 for the first, one more after each
    /// [`retry`](Self::retry). It is 1 again after a run that ended otherwise, and when
    /// somebody triggers the key while it runs or while it waits for its retry.
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
    /// It keeps the key's failures on record, as client-go's `Done` does: the next
    /// [`retry`](Self::retry), be it in a year, waits as long as if they had just been.
    /// [`succeed`](Self::succeed) is done and forgets them.
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
        let (shared, mut ending) = self.guard.ending();
        ending.done(shared);
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
        let (shared, mut ending) = self.guard.ending();
        ending.succeed(shared);
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
    pub fn give_up(mut self) {
        let (shared, mut ending) = self.guard.ending();
        ending.give_up(shared);
    }

    /// Ends the run as a failure: the limiter says when the key comes back, and
    /// the value that was not taken goes back, in front of what came meanwhile.
    /// Returns the delay. (With the default limiter the last of 1,000 keys that fail at once
    /// waits 90 s: see [`add_rate_limited`](crate::WorkQueue::add_rate_limited).)
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
        let (shared, mut ending) = self.guard.ending();
        let retried = ending.retry(shared, instead, &mut self.value, &mut None);
        retried.map_err(|reason| RefusedItem { item: self, reason })
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
    /// assert!(q.try_get()?.again(Duration::from_secs(300)).is_ok());
    /// assert_eq!(q.stats().waiting, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "requeue_after")]
    #[doc(alias = "RequeueAfter")]
    pub fn again(mut self, delay: Duration) -> Result<(), RefusedItem<'q, K, V>> {
        let (shared, mut ending) = self.guard.ending();
        let again = ending.again(shared, delay);
        again.map_err(|reason| RefusedItem { item: self, reason })
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
    #[inline]
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
    /// Where nobody says it, the key stays held: it never runs again, a drain does not
    /// complete, and once a trigger has made it dirty getters go on waiting after
    /// [`shut_down`](crate::WorkQueue::shut_down), because its next run is still to come.
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
        let shared = self.guard.owner.shared();
        let mut session = shared.hold(&mut None);
        let ended = self.guard.run.take().map(|run| session.core.detach(run));
        drop(session);
        settle_ended(shared, ended);
        (key, self.value.take())
    }

    /// Its queue.
    pub(crate) fn shared(&self) -> &Arc<Shared<K, V>> {
        self.guard.owner.shared()
    }

    /// Whether it is an item of this queue.
    #[inline]
    pub(crate) fn is_of(&self, shared: &Arc<Shared<K, V>>) -> bool {
        Arc::ptr_eq(self.shared(), shared)
    }

    /// Whether the run has not been ended, or taken out, through this item.
    #[inline]
    pub(crate) fn owes_its_end(&self) -> bool {
        self.guard.run.is_some()
    }

    /// Takes the run out of an item of this queue, to be ended by the caller in
    /// its lock hold.
    #[inline]
    pub(crate) fn take_run(&mut self, shared: &Arc<Shared<K, V>>) -> Option<RunRef<K>> {
        if self.is_of(shared) { self.guard.run.take() } else { None }
    }

    /// What dropping the item does, at an instant that was read already.
    pub(crate) fn let_go(&mut self, now: Instant) {
        self.guard.let_go(&mut self.value, Some(now));
    }

    /// The guard and the value apart, for a worker.
    pub(crate) fn into_parts(mut self) -> (Guard<'q, K, V>, Option<V>, u32) {
        let guard = Guard { owner: self.guard.owner.clone(), run: self.guard.run.take() };
        (guard, self.value.take(), self.attempt)
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
        self.guard.run.as_ref().is_none_or(|run| shared.lock().core.is_inert(run))
    }
}

impl<K, V> Drop for Item<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        self.guard.let_go(&mut self.value, None);
    }
}

impl<K, V> fmt::Debug for Item<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Item").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}
