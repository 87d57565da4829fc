//! How a trigger says what it wants: [`Add`].

use crate::Instant;
use requeue_core::Policy;
use std::fmt;
use std::time::Duration;

/// What a trigger asks for, beyond the key: when, with what value, and what
/// happens to a timer that the key has already.
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
        Self { when, policy: Policy::default(), value: None }
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
        AddNow { value: None }
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
}

impl<V> fmt::Debug for Add<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Add")
            .field("when", &self.when)
            .field("policy", &self.policy)
            .field("value", &self.value.is_some())
            .finish()
    }
}

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
        Self { value: Some(value) }
    }
}

impl<V> From<AddNow<V>> for Add<V> {
    #[inline]
    fn from(now: AddNow<V>) -> Self {
        Self { when: When::Now, policy: Policy::default(), value: now.value }
    }
}

impl<V> fmt::Debug for AddNow<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddNow").field("value", &self.value.is_some()).finish()
    }
}
