//! [`Add`]: the options of a trigger.

use requeue_core::{Debounce, Delay, InBackoff, Instant, Policy, TriggerOptions};
use std::time::Duration;

/// The options of a trigger: when it is due, its value and priority, and what it does to a timer or a
/// back-off that the key already has.
///
/// If the key already has a timer, the earlier of the two stays. [`latest`](Self::latest),
/// [`replace`](Self::replace) and [`keep`](Self::keep) change that. They concern only the timer that this
/// trigger sets, so [`Add::now`] has no such methods. A delay of zero, or an instant that has passed, is an
/// [`add`](crate::WorkQueue::add) under each of them: the key becomes ready, and a timer that is set stays
/// set.
///
/// ```
/// use requeue::{Add, WorkQueue};
/// use std::time::Duration;
/// let q = WorkQueue::<&str>::new();
/// // run half a second after the last call, at the latest five seconds after the first
/// q.add_with("save", Add::after(Duration::from_millis(500)).latest(Duration::from_secs(5)))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "an Add does nothing until it is given to add_with"]
pub struct Add<V = ()> {
    pub(crate) value: Option<V>,
    pub(crate) options: TriggerOptions,
}

impl<V> Add<V> {
    #[inline]
    fn new(delay: Delay) -> Self {
        Self { value: None, options: TriggerOptions::after(delay) }
    }

    #[inline]
    fn with(mut self, set: impl FnOnce(&mut TriggerOptions)) -> Self {
        set(&mut self.options);
        self
    }

    /// An immediate trigger, like [`add`](crate::WorkQueue::add). It sets no timer: options about timers
    /// ([`latest`](Self::latest), [`replace`](Self::replace), [`keep`](Self::keep)) have no effect on it.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// # let q = WorkQueue::new();
    /// let soon = std::time::Duration::from_secs(1);
    /// q.add_many_with([("a", Add::now()), ("b", Add::after(soon))]).all()?;
    /// assert_eq!((q.len(), q.stats().waiting), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn now() -> Self {
        Self::new(Delay::Now)
    }

    /// A debounced trigger: it opens a window for its key, or pushes the end of an open window back. The
    /// key runs once, when the window ends; [`Debounce`] says when that is. [`Builder::debounce`] debounces all
    /// immediate triggers of a queue; `Debounce::new(Duration::ZERO)` switches that off for this
    /// trigger. The call reads the clock.
    ///
    /// [`Builder::debounce`]: crate::Builder::debounce
    ///
    /// ```
    /// # use requeue::{Add, Added, Debounce, FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).build()?;
    /// let saved = Debounce::new(Duration::from_millis(500)).max(Duration::from_secs(2));
    /// assert_eq!(q.add_with("page.html", Add::debounced(saved))?, Added::Waiting);
    /// clock.advance(Duration::from_millis(400));
    /// q.add_with("page.html", Add::debounced(saved))?;
    /// clock.advance(Duration::from_millis(400));
    /// assert!(q.is_empty());
    /// clock.advance(Duration::from_millis(100));
    /// assert_eq!(*q.try_get()?.key(), "page.html");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn debounced(debounce: Debounce) -> Self {
        Self::new(Delay::Now).with(|options| options.debounce = Some(debounce))
    }

    /// A trigger after a delay, like [`add_after`](crate::WorkQueue::add_after). A delay of zero means now.
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// # let q = WorkQueue::<&str>::new();
    /// q.add_with("a", Add::after(std::time::Duration::from_secs(1)))?;
    /// assert_eq!(q.stats().waiting, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn after(delay: Duration) -> Self {
        Self::new(Delay::After(delay, Policy::Earliest))
    }

    /// A trigger at an instant of the queue's clock; an instant that has passed means now.
    /// [`SystemClock::from_std`](crate::SystemClock::from_std) and
    /// [`SystemClock::from_system_time`](crate::SystemClock::from_system_time) convert the types of
    /// `std::time`.
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
        Self::new(Delay::At(due, Policy::Earliest))
    }

    /// A trigger after the limiter's delay, like [`add_rate_limited`](crate::WorkQueue::add_rate_limited).
    ///
    /// ```
    /// # use requeue::{Add, WorkQueue};
    /// # let q = WorkQueue::<&str>::new();
    /// q.add_with("a", Add::rate_limited())?;
    /// assert_eq!(q.num_requeues(&"a"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rate_limited() -> Self {
        Self::new(Delay::Limited(Policy::Earliest))
    }

    /// Sets the value, which merges into the value that the key already has.
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

    /// Sets the priority, on a queue built with [`priorities`](crate::Builder::priorities). Higher priorities
    /// go first. The default is 0.
    ///
    /// A delayed trigger applies its priority when its timer fires, and not to an earlier run of the key. If
    /// several triggers share a timer, the highest priority counts, whichever instant stays.
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
        self.with(|options| options.priority = priority)
    }

    /// If the key has a timer, the later instant stays, but these calls move it no further than `max` after
    /// the first of them. This is a debounce that never starves. A later timer that another call has set,
    /// such as a retry's, stays.
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
        self.with(|options| options.delay.set_policy(Policy::Latest { max }))
    }

    /// If the key has a timer, the new instant replaces the old one.
    ///
    /// A delay of zero sets no timer, so it replaces none: the key becomes ready now, and runs again when its
    /// old timer is due.
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
        self.with(|options| options.delay.set_policy(Policy::Replace))
    }

    /// If the key has a timer, it stays unchanged.
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
        self.with(|options| options.delay.set_policy(Policy::Keep))
    }

    /// Sets the trigger's [`InBackoff`]: what it does if the key waits out a failure, or if the key's current
    /// run fails. The default is the queue's setting, [`Builder::in_backoff`].
    ///
    /// With [`Respect`](InBackoff::Respect) a delayed trigger joins the back-off's run too, whatever its
    /// delay. With [`Reset`](InBackoff::Reset) its timer replaces the back-off's. A
    /// [`rate_limited`](Self::rate_limited) trigger always asks the limiter, which counts it.
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
        self.with(|options| options.in_backoff = Some(in_backoff))
    }

    /// The value, if it has one. For a trigger that is given up.
    ///
    /// ```
    /// # use requeue::Add;
    /// assert_eq!(Add::now().value(7).into_value(), Some(7));
    /// ```
    #[must_use]
    pub fn into_value(self) -> Option<V> {
        self.value
    }
}

debug!([V] Add<V>, |add| {
    delay: add.options.delay,
    in_backoff: add.options.in_backoff,
    value: add.value.is_some(),
    priority: add.options.priority,
    debounce: add.options.debounce
});
