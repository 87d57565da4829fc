//! [`Item`]: a held key, the guard that `get` returns.

use crate::ending::{Guard, RetryProgress, after_end, finish, put_back};
use crate::error::Refused;
use crate::failure::{BoxError, Failure};
use crate::hold::Shared;
use crate::journal::Fence;
use crate::owner::Owner;
use crate::panics::quietly;
use requeue_core::{Handout, Instant, RunRef};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A held key. Dropping it marks the run done.
///
/// While it exists no other worker gets the key; a trigger that comes meanwhile makes the key ready again
/// when this run ends. It can be sent to another thread; [`into_owned`](Self::into_owned) lets it outlive the
/// handle that it came from.
///
/// A task that is cancelled at an `.await` drops its item, which marks the run done although its work is not
/// finished: the key does not come back by itself. If tasks can be cancelled (a `select!`, a time-out, an
/// aborted task), build the queue with [`retry_dropped`](crate::Builder::retry_dropped), which turns that drop
/// into a retry. A [`Worker`](crate::Worker) does so too.
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
#[must_use = "dropping an item ends its run as done"]
pub struct Item<'q, K, V = ()> {
    pub(crate) guard: Guard<'q, K, V>,
    value: Option<V>,
    attempt: u32,
    /// It asked for another run, and was refused.
    was_refused: bool,
}

impl<'q, K, V> Item<'q, K, V> {
    #[inline]
    pub(crate) fn new(owner: Owner<'q, K, V>, handout: Handout<K, V>) -> Self {
        Self {
            guard: Guard { owner, run: Some(handout.run) },
            value: handout.value,
            attempt: handout.attempt,
            was_refused: false,
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

    /// The value merged from the run's triggers, if one of them had a value.
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

    /// Puts a value into the item, for a retry to put back. Returns the previous one.
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

    /// The number of this run: 1 for the first, one more after each [`retry`](Self::retry). It is 1 again
    /// after a run that ended otherwise, and if the key is triggered while it runs or waits for its retry.
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

    /// The number of this run: larger than that of each run that the queue has handed out before. A store that runs
    /// write to can refuse a smaller number than it has seen.
    ///
    /// In memory the numbers also grow over restarts of the process: they begin at the time of day, in
    /// nanoseconds, at which the queue was built. (They do not if the system's clock was set back meanwhile.) With an
    /// engine it is the store's number for the run of this key.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::new();
    /// q.add_many(["a", "b"]).all()?;
    /// let (a, b) = (q.try_get()?, q.try_get()?);
    /// assert!(a.fence() < b.fence());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.guard.run.as_ref().map_or(Fence(0), |run| self.shared().fence(run))
    }

    /// The priority with which the key was handed out: the highest of the triggers that led to this run, or 0
    /// on a queue without [`priorities`](crate::Builder::priorities). [`retry`](Self::retry) and
    /// [`again`](Self::again) keep it.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// let q = WorkQueue::builder().priorities().build()?;
    /// q.add_with("a", Add::now().priority(-100))?;
    /// q.add_with("a", Add::now().priority(7))?; // raises it
    /// q.add("a")?; // with priority 0, which lowers nothing
    /// assert_eq!(q.try_get()?.priority(), 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn priority(&self) -> i16 {
        self.guard.priority()
    }

    /// Ends the run. By default, dropping the item does so too: see
    /// [`Builder::retry_dropped`](crate::Builder::retry_dropped).
    ///
    /// The key's failures stay on record, as with client-go's `Done`: the next [`retry`](Self::retry), even
    /// in a year, waits as long as if they had just happened. [`succeed`](Self::succeed) also forgets them.
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
        finish(self.guard.owner.shared(), &mut self.guard.run, false, None, &mut self.value);
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

    /// Ends the run as a failure that is not retried: the key is forgotten. A trigger that came during the
    /// run still gets its run, at attempt 1.
    ///
    /// The reason goes to [`on_give_up`](crate::WorkerBuilder::on_give_up) of the queue's workers, as a
    /// [`Failure::Error`], and to the store of an engine. Metrics count the run as [`RunEnd::GiveUp`].
    ///
    /// [`RunEnd::GiveUp`]: crate::RunEnd::GiveUp
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # use std::sync::mpsc;
    /// let q = WorkQueue::new();
    /// let (tell, told) = mpsc::channel();
    /// let worker = Worker::of(&q)
    ///     .workers(0) // they only hear of it
    ///     .on_give_up(move |key, why| tell.send(format!("{key}: {why}")).unwrap())
    ///     .start_threads(|_| ())?;
    /// q.add("a")?;
    /// q.try_get()?.give_up("no such object");
    /// assert!(q.state("a").is_none());
    /// assert_eq!(told.recv()?, "a: no such object");
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn give_up(mut self, reason: impl Into<BoxError>) {
        let failure = Failure::Error(reason.into());
        let (shared, mut ending) = self.guard.ending();
        ending.give_up_for(shared, &failure);
        quietly(|| drop(failure));
    }

    /// Ends the run as a failure: the limiter decides when the key comes back. A value that was not taken
    /// goes back, before those that came meanwhile. Returns the delay. (With the default limiter the last of
    /// 1,000 keys that fail at once waits 90 s: see
    /// [`add_rate_limited`](crate::WorkQueue::add_rate_limited).)
    ///
    /// # Errors
    ///
    /// The item, if the queue accepts no retries any more, or if the run was ended by
    /// [`done`](crate::WorkQueue::done): nothing has changed.
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

    /// Like [`retry`](Self::retry), with a delay of its own: the limiter is asked and counts, and its delay
    /// is replaced.
    ///
    /// # Errors
    ///
    /// Like [`retry`](Self::retry).
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
        let retried = ending.retry(shared, instead, &mut self.value, &RetryProgress::default());
        self.was_refused = retried.is_err();
        retried.map_err(|reason| RefusedItem { item: self, reason })
    }

    /// Ends the run without a failure, to run again after `delay` (zero: at once). The key's failures are
    /// forgotten, and a value that was not [taken](Self::take_value) is dropped.
    ///
    /// # Errors
    ///
    /// Like [`retry`](Self::retry).
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
        let again = ending.again(shared, delay, &mut None);
        self.was_refused |= again.is_err();
        again.map_err(|reason| RefusedItem { item: self, reason })
    }

    /// Puts the key back into line, behind the keys that are ready, as if the run had been interrupted: its failures
    /// and its priority stay, no limiter is asked, and a value that was not [taken](Self::take_value) goes back. The
    /// run counts as an [attempt](Self::attempt), so that a key whose runs are always interrupted is noticed.
    ///
    /// It is never refused: the key runs again also if the queue is closed or shut down. Metrics count neither
    /// a run nor an add. For an item whose run was ended by [`done`](crate::WorkQueue::done) this does nothing.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// let q = WorkQueue::new();
    /// q.add("a")?;
    /// q.try_get()?.put_back();
    /// let item = q.try_get()?;
    /// assert_eq!((*item.key(), item.attempt(), q.num_requeues("a")), ("a", 2, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_back(mut self) {
        put_back(self.guard.owner.shared(), &mut self.guard.run, &mut self.value, true);
    }

    /// Makes the item own its reference to the queue, so that it can be moved into a task. It is no handle:
    /// it does not keep the queue open.
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
            was_refused: self.was_refused,
        }
    }

    /// Takes key and value out and leaves the run open: the caller must call
    /// [`done`](crate::WorkQueue::done). For code ported from client-go, where key and `Done` go separate
    /// ways.
    ///
    /// If `done` is not called, the key stays held: it never runs again, and a drain does not complete. Once
    /// a trigger has made it dirty, getters go on waiting after [`shut_down`](crate::WorkQueue::shut_down),
    /// because its next run is still to come.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// let (key, _) = q.try_get()?.detach();
    /// assert!(q.state("a").is_some_and(|s| s.held));
    /// q.done(&key)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the key stays held until its run is ended by its key"]
    pub fn detach(mut self) -> (K, Option<V>)
    where
        K: Clone,
    {
        let key = self.key().clone();
        let shared = self.guard.owner.shared();
        let mut hold = shared.hold(None);
        let ended = self.guard.run.take().map(|run| hold.core.detach(run));
        hold.unlock();
        if let Some(ended) = ended {
            after_end(shared, ended);
        }
        (key, self.value.take())
    }

    /// Before the run is ended without its value: that goes, or back to the key where a retry of the run was refused.
    #[inline]
    pub(crate) fn let_value_go(&mut self) {
        if self.was_refused {
            self.leave_value();
        }
        drop(self.value.take());
    }

    fn leave_value(&mut self) {
        let Self { guard: Guard { owner, run }, value, .. } = self;
        if let (Some(run), true) = (run, value.is_some()) {
            owner.shared().hold(None).with(|hold| hold.core.leave_value(run, value));
        }
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

    /// Whether this item still has its run to end.
    #[inline]
    pub(crate) fn owes_its_end(&self) -> bool {
        self.guard.run.is_some()
    }

    /// Takes the run out of an item of this queue. The caller ends it in its lock hold.
    #[inline]
    pub(crate) fn take_run(&mut self, shared: &Arc<Shared<K, V>>) -> Option<RunRef<K>> {
        if self.is_of(shared) { self.guard.run.take() } else { None }
    }

    /// Drops the item at an instant that was already read.
    pub(crate) fn let_go(&mut self, now: Instant) {
        self.guard.let_go(&mut self.value, Some(now));
    }

    /// Whether the run was ended by [`done`](crate::WorkQueue::done). The item then has no effect, but its
    /// key stays readable.
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
        self.guard.run.as_ref().is_none_or(|run| shared.lock().with(|hold| hold.core.is_inert(run)))
    }
}

impl<K, V> Drop for Item<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        // without a value to drop, the guard alone does what follows
        if self.guard.run.is_some() || std::mem::needs_drop::<V>() && self.value.is_some() {
            self.guard.let_go(&mut self.value, None);
        }
    }
}

debug!([K, V] Item<'_, K, V>, |item| { attempt: item.attempt, .. });

/// A refused retry: its run goes on, and the guard comes back.
///
/// ```
/// # use requeue::WorkQueue;
/// let q = WorkQueue::<&str>::new();
/// q.add("a")?;
/// let item = q.try_get()?;
/// q.shut_down();
/// let refused = item.retry().unwrap_err();
/// assert_eq!(refused.reason, requeue::Refused::ShutDown);
/// refused.item.done();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RefusedItem<'q, K, V = ()> {
    /// The guard.
    pub item: Item<'q, K, V>,
    /// The reason.
    pub reason: Refused,
}

impl<K, V> RefusedItem<'_, K, V> {
    /// The reason, for a `?` in a function whose error outlives the queue. The item is dropped, and its run
    /// done.
    ///
    /// ```
    /// # use requeue::{Refused, WorkQueue};
    /// fn fail(q: &WorkQueue<String>) -> Result<(), Refused> {
    ///     if let Ok(item) = q.try_get() {
    ///         item.retry().map_err(|refused| refused.into_reason())?;
    ///     }
    ///     Ok(())
    /// }
    /// # let q = WorkQueue::new();
    /// # q.add("a".to_string()).unwrap();
    /// # assert!(fail(&q).is_ok());
    /// ```
    #[must_use]
    pub fn into_reason(self) -> Refused {
        self.reason
    }
}

debug!([K, V] RefusedItem<'_, K, V>, |item| { reason: item.reason, .. });

impl<K, V> fmt::Display for RefusedItem<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<K, V> std::error::Error for RefusedItem<'_, K, V> {}
