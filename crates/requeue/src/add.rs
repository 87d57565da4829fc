//! How a trigger says what it wants: [`Add`].

use requeue_core::Policy;
use std::fmt;
use std::time::Duration;

/// What a trigger asks for, beyond the key: when, with what value, and what
/// happens to a timer that the key has already.
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
    RateLimited,
}

impl<V> Add<V> {
    fn new(when: When) -> Self {
        Self { when, policy: Policy::default(), value: None }
    }

    /// Now: what [`add`](crate::WorkQueue::add) does.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// # let q = WorkQueue::<&str>::new();
    /// q.add_with("a", Add::now())?;
    /// assert_eq!(q.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn now() -> Self {
        Self::new(When::Now)
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
    /// q.add_with("a", Add::now().value(2))?;
    /// q.add_with("a", Add::now().value(3))?;
    /// assert_eq!(q.try_get()?.value(), Some(&5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn value(self, value: V) -> Self {
        Self { value: Some(value), ..self }
    }

    /// If the key has a timer the later instant stays, but none later than `max`
    /// after the first such call: a debounce, which never starves.
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
    /// ```
    /// # use requeue::{Add, FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// # let clock = FakeClock::new();
    /// # let q = WorkQueue::builder().clock(clock.clone()).build()?;
    /// q.add_after("a", Duration::from_secs(1))?;
    /// q.add_with("a", Add::after(Duration::from_secs(9)).replace())?;
    /// clock.advance(Duration::from_secs(8));
    /// assert!(q.is_empty());
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
