//! How a trigger says what it wants: [`Add`].

use crate::Instant;
use requeue_core::{Debounce, InBackoff, Policy};
use std::time::Duration;

/// What a trigger asks for, beyond the key: when, with what value and priority, what
/// happens to a timer that the key has already, and what where its last run failed.
///
/// The earlier of two timers stays, unless [`latest`](Self::latest),
/// [`replace`](Self::replace) or [`keep`](Self::keep) say otherwise. They are about the
/// timer that this trigger sets. A trigger without one has nothing to say about timers:
/// [`Add::now`] has no such methods, and a delay of zero (or an instant that has come) is
/// an [`add`](crate::WorkQueue::add) under all of them. It makes the key ready, and a
/// timer that is set stays set.
///
/// ```
/// use requeue::{Add, WorkQueue};
/// use std::time::Duration;
/// let q = WorkQueue::<&str>::new();
/// // run half a second after the last call, at the latest five seconds after the first
/// q.add_with("save", Add::after(Duration::from_millis(500)).latest(Duration::from_secs(5)))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "an Add does nothing until it is given to add_with"]
pub struct Add<V = ()> {
    pub(crate) when: When,
    pub(crate) policy: Policy,
    pub(crate) value: Option<V>,
    /// Where it is `None` the queue's own say counts.
    pub(crate) in_backoff: Option<InBackoff>,
    pub(crate) priority: i16,
    /// Of a trigger for now; where it is `None` the queue's own say counts.
    pub(crate) debounce: Option<Debounce>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Now,
    After(Duration),
    At(Instant),
    RateLimited,
}

impl<V> Add<V> {
    fn new(when: When) -> Self {
        Self { when, policy: Policy::default(), value: None, in_backoff: None, priority: 0, debounce: None }
    }

    /// Now: what [`add`](crate::WorkQueue::add) does. It sets no timer, so it cannot say
    /// what becomes of one:
    ///
    /// ```compile_fail,E0599
    /// # use requeue::{Add, WorkQueue};
    /// # let q = WorkQueue::<&str>::new();
    /// q.add_with("a", Add::now().replace())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Where triggers of both kinds stand in one list, it is turned into an `Add`:
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// # let q = WorkQueue::new();
    /// let soon = std::time::Duration::from_secs(1);
    /// q.add_many_with([("a", Add::now().into()), ("b", Add::after(soon))]).all()?;
    /// assert_eq!((q.len(), q.stats().waiting), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn now() -> AddNow<V> {
        AddNow { value: None, in_backoff: None, priority: 0, debounce: None }
    }

    /// After a delay: what [`add_after`](crate::WorkQueue::add_after) does. Zero is now.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// # let q = WorkQueue::<&str>::new();
    /// q.add_with("a", Add::after(std::time::Duration::from_secs(1)))?;
    /// assert_eq!(q.stats().waiting, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn after(delay: Duration) -> Self {
        Self::new(When::After(delay))
    }

    /// At an instant of the queue's clock; one that has come is now. What
    /// `std::time` calls an instant or a date becomes one by
    /// [`SystemClock::from_std`](crate::SystemClock::from_std) and
    /// [`SystemClock::from_system_time`](crate::SystemClock::from_system_time).
    ///
    /// ```
    /// # use requeue::{Add, Clock, FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).build()?;
    /// let due = clock.now() + Duration::from_secs(60);
    /// q.add_with("a", Add::at(due))?;
    /// q.add_with("b", Add::at(due))?; // however long it took to come here
    /// assert_eq!(q.state("a").and_then(|state| state.waiting_until), Some(due));
    /// clock.set(due);
    /// assert_eq!(q.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at(due: Instant) -> Self {
        Self::new(When::At(due))
    }

    /// When the limiter says: what
    /// [`add_rate_limited`](crate::WorkQueue::add_rate_limited) does.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// # let q = WorkQueue::<&str>::new();
    /// q.add_with("a", Add::rate_limited())?;
    /// assert_eq!(q.num_requeues(&"a"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rate_limited() -> Self {
        Self::new(When::RateLimited)
    }

    /// With a value, which merges into what the key has already.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// let q = WorkQueue::merging(|old: &mut u32, new| *old += new).build()?;
    /// q.add_with("a", Add::after(std::time::Duration::ZERO).value(2))?;
    /// q.add_with("a", Add::now().value(3))?;
    /// assert_eq!(q.try_get()?.value(), Some(&5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn value(self, value: V) -> Self {
        Self { value: Some(value), ..self }
    }

    /// With a priority, on a queue that was built with
    /// [`priorities`](crate::Builder::priorities). Higher ones go first; without this call it
    /// is 0.
    ///
    /// A trigger with a delay has its priority when its timer fires: until then it says nothing
    /// of a run that the key comes to earlier. Where several triggers share a timer, the
    /// highest of them counts, whichever instant stays.
    ///
    /// A queue without priorities refuses a trigger with any priority but 0, with
    /// [`Refused::NoPriorities`](crate::Refused::NoPriorities).
    ///
    /// ```
    /// # use requeue::{Add, FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).priorities().build()?;
    /// q.add("usual")?;
    /// q.add_with("urgent", Add::after(Duration::from_secs(1)).priority(10))?;
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(*q.try_get()?.key(), "urgent");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn priority(self, priority: i16) -> Self {
        Self { priority, ..self }
    }

    /// If the key has a timer the later instant stays, but these calls set none later than
    /// `max` after the first of them: a debounce, which never starves. A timer that another
    /// call has set for later, a retry's say, stays where it is.
    ///
    /// ```
    /// # use requeue::{Add, FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).build()?;
    /// for _ in 0..10 {
    ///     q.add_with("a", Add::after(Duration::from_secs(2)).latest(Duration::from_secs(5)))?;
    ///     clock.advance(Duration::from_secs(1)); // never two seconds of quiet
    ///     if q.try_get().is_ok() { break }
    /// }
    /// assert_eq!(clock.now_since_origin(), Duration::from_secs(5));
    /// # trait Now { fn now_since_origin(&self) -> Duration; }
    /// # impl Now for FakeClock { fn now_since_origin(&self) -> Duration {
    /// #     requeue::Clock::now(self).saturating_since(requeue::Clock::now(&FakeClock::new())) } }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn latest(self, max: Duration) -> Self {
        Self { policy: Policy::Latest { max }, ..self }
    }

    /// If the key has a timer the new instant replaces the old one.
    ///
    /// A delay of zero sets no timer, so it replaces none: the key becomes ready now, and
    /// runs once more when its old timer is due.
    ///
    /// ```
    /// # use requeue::{Add, FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// # let clock = FakeClock::new();
    /// # let q = WorkQueue::builder().clock(clock.clone()).build()?;
    /// q.add_after("a", Duration::from_secs(1))?;
    /// q.add_with("a", Add::after(Duration::from_secs(9)).replace())?;
    /// clock.advance(Duration::from_secs(8));
    /// assert!(q.is_empty());
    /// q.add_with("a", Add::after(Duration::ZERO).replace())?;
    /// assert_eq!((q.len(), q.stats().waiting), (1, 1)); // as `add`: the timer stays
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace(self) -> Self {
        Self { policy: Policy::Replace, ..self }
    }

    /// If the key has a timer it stays as it is.
    ///
    /// ```
    /// # use requeue::{Add, Added, WorkQueue};
    /// # use std::time::Duration;
    /// # let q = WorkQueue::<&str>::new();
    /// q.add_after("a", Duration::from_secs(9))?;
    /// let added = q.add_with("a", Add::after(Duration::from_secs(1)).keep())?;
    /// assert_eq!(added, Added::Coalesced);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep(self) -> Self {
        Self { policy: Policy::Keep, ..self }
    }

    /// What this trigger does where its key waits out a failure, or where the key's run is on
    /// and fails: [`InBackoff`]. The queue's own say, [`Builder::in_backoff`], otherwise.
    ///
    /// With [`Respect`](InBackoff::Respect) a trigger with a delay joins the back-off's run too,
    /// whatever its delay. With [`Reset`](InBackoff::Reset) its timer replaces the back-off's.
    /// A [`rate_limited`](Self::rate_limited) one always asks the limiter, which counts it.
    ///
    /// [`Builder::in_backoff`]: crate::Builder::in_backoff
    ///
    /// ```
    /// # use requeue::{Add, Added, FakeClock, InBackoff, WorkQueue};
    /// # use std::time::Duration;
    /// # let clock = FakeClock::new();
    /// # let q = WorkQueue::builder().clock(clock.clone()).build()?;
    /// q.add("web")?;
    /// q.try_get()?.retry_after(Duration::from_secs(60)).expect("open");
    /// let resync = Add::after(Duration::from_secs(10)).in_backoff(InBackoff::Respect);
    /// assert_eq!(q.add_with("web", resync)?, Added::Coalesced);
    /// clock.advance(Duration::from_secs(59));
    /// assert!(q.try_get().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_backoff(self, in_backoff: InBackoff) -> Self {
        Self { in_backoff: Some(in_backoff), ..self }
    }

    /// The value, if it has one: of a trigger that is not to be.
    ///
    /// ```
    /// # use requeue::Add;
    /// assert_eq!(Add::from(Add::now().value(7)).into_value(), Some(7));
    /// ```
    #[must_use]
    pub fn into_value(self) -> Option<V> {
        self.value
    }
}

debug!([V] Add<V>, |add| {
    when: add.when,
    policy: add.policy,
    in_backoff: add.in_backoff,
    value: add.value.is_some(),
    priority: add.priority,
    debounce: add.debounce
});

/// A trigger for now, which sets no timer: [`Add::now`].
///
/// ```
/// # use requeue::{Add, WorkQueue};
/// # let q = WorkQueue::<&str>::new();
/// q.add_with("a", Add::now())?;
/// assert_eq!(q.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "an AddNow does nothing until it is given to add_with"]
pub struct AddNow<V = ()> {
    value: Option<V>,
    in_backoff: Option<InBackoff>,
    priority: i16,
    debounce: Option<Debounce>,
}

impl<V> AddNow<V> {
    /// With a value, which merges into what the key has already:
    /// [`add_value`](crate::WorkQueue::add_value) among other triggers.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// let q = WorkQueue::merging(|old: &mut u32, new| *old += new).build()?;
    /// q.add_many_with([("a", Add::now().value(2)), ("a", Add::now().value(3))]).all()?;
    /// assert_eq!(q.try_get()?.value(), Some(&5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn value(self, value: V) -> Self {
        Self { value: Some(value), ..self }
    }

    /// What this trigger does where its key waits out a failure, or where the key's run is on
    /// and fails: [`InBackoff`]. The queue's own say, [`Builder::in_backoff`], otherwise.
    ///
    /// [`Builder::in_backoff`]: crate::Builder::in_backoff
    ///
    /// ```
    /// # use requeue::{Add, FakeClock, InBackoff, WorkQueue};
    /// # use std::time::Duration;
    /// let q = WorkQueue::builder().clock(FakeClock::new()).build()?;
    /// q.add("web")?;
    /// q.try_get()?.retry_after(Duration::from_secs(1_000)).expect("open");
    ///
    /// // its status has changed: that is no reason to try again
    /// q.add_with("web", Add::now().in_backoff(InBackoff::Respect))?;
    /// assert_eq!((q.len(), q.num_requeues(&"web")), (0, 1));
    ///
    /// // somebody has changed what it should be: that is, and it starts afresh
    /// q.add_with("web", Add::now().in_backoff(InBackoff::Reset))?;
    /// assert_eq!((q.len(), q.num_requeues(&"web")), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_backoff(self, in_backoff: InBackoff) -> Self {
        Self { in_backoff: Some(in_backoff), ..self }
    }

    /// With a priority, on a queue that was built with
    /// [`priorities`](crate::Builder::priorities): see [`Add::priority`].
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// let q = WorkQueue::builder().priorities().build()?;
    /// q.add("usual")?;
    /// q.add_with("urgent", Add::now().priority(10))?;
    /// let item = q.try_get()?;
    /// assert_eq!((*item.key(), item.priority()), ("urgent", 10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn priority(self, priority: i16) -> Self {
        Self { priority, ..self }
    }

    /// Debounced: it opens a window for its key, or pushes the end of one back, and the key runs
    /// once, when the window ends. See [`Debounce`] for when that is. The queue's own say,
    /// [`Builder::debounce`], otherwise; with `Debounce::new(Duration::ZERO)` the trigger is not
    /// debounced, whatever the queue says. It reads the clock.
    ///
    /// [`Builder::debounce`]: crate::Builder::debounce
    ///
    /// ```
    /// # use requeue::{Add, Added, Debounce, FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).build()?;
    /// let saved = Debounce::new(Duration::from_millis(500)).max(Duration::from_secs(2));
    /// assert_eq!(q.add_with("page.html", Add::now().debounce(saved))?, Added::Waiting);
    /// clock.advance(Duration::from_millis(400));
    /// q.add_with("page.html", Add::now().debounce(saved))?;
    /// clock.advance(Duration::from_millis(400));
    /// assert!(q.is_empty());
    /// clock.advance(Duration::from_millis(100));
    /// assert_eq!(*q.try_get()?.key(), "page.html");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn debounce(self, debounce: Debounce) -> Self {
        Self { debounce: Some(debounce), ..self }
    }
}

impl<V> From<AddNow<V>> for Add<V> {
    #[inline]
    fn from(now: AddNow<V>) -> Self {
        let AddNow { value, in_backoff, priority, debounce } = now;
        Self { when: When::Now, policy: Policy::default(), value, in_backoff, priority, debounce }
    }
}

debug!([V] AddNow<V>, |now| {
    in_backoff: now.in_backoff,
    value: now.value.is_some(),
    priority: now.priority,
    debounce: now.debounce
});
