//! [`Call`]: what producers ask of the queue.

use requeue::{Add, Debounce, InBackoff, Instant, UnfinishedKey, WaitingKeys};
use std::time::Duration;

/// When the run of a trigger is due.
///
/// ```
/// use requeue_sim::{Trigger, When};
/// assert_eq!(Trigger::<_>::now("a").when, When::Now);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum When {
    /// Now: `add`.
    Now,
    /// After a delay: `add_after`.
    After(Duration),
    /// At an instant: [`Add::at`].
    At(Instant),
    /// After the limiter's delay: `add_rate_limited`.
    RateLimited,
}

/// The effect on a timer that the key already has: see [`Add`].
///
/// ```
/// use requeue_sim::{Timer, Trigger};
/// use std::time::Duration;
/// let trigger = Trigger::<_>::after("a", Duration::from_secs(1));
/// assert_eq!(trigger.timer, Timer::Earliest);
/// assert_eq!(trigger.keep().timer, Timer::Keep);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timer {
    /// The earlier of both stays.
    Earliest,
    /// The later of both stays, but no later than this time after the first.
    Latest(Duration),
    /// The new one replaces it.
    Replace,
    /// It stays as it is.
    Keep,
}

/// A trigger: a call that asks for a run of a key. It has the options of [`Add`], which it becomes, in a form
/// that can be written to a trace and read from it.
///
/// ```
/// use requeue::InBackoff;
/// use requeue_sim::Trigger;
/// let event = Trigger::<_>::now("web-1").in_backoff(InBackoff::Respect).priority(10);
/// assert_eq!((event.key, event.priority), ("web-1", 10));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trigger<K, V = ()> {
    /// The key.
    pub key: K,
    /// Its value, if it has one.
    pub value: Option<V>,
    /// When the run is due.
    pub when: When,
    /// The effect on a timer that is set.
    pub timer: Timer,
    /// The priority.
    pub priority: i16,
    /// Its option for a key whose last run failed; `None` for the queue's setting.
    pub in_backoff: Option<InBackoff>,
    /// The debounce of an immediate trigger; `None` for the queue's setting. A delayed trigger has none.
    pub debounce: Option<Debounce>,
}

impl<K, V> Trigger<K, V> {
    fn new(key: K, when: When) -> Self {
        let value = None;
        Self { key, value, when, timer: Timer::Earliest, priority: 0, in_backoff: None, debounce: None }
    }

    /// A run now.
    ///
    /// ```
    /// use requeue_sim::{Trigger, When};
    /// assert_eq!(Trigger::<_>::now(1).when, When::Now);
    /// ```
    #[must_use]
    pub fn now(key: K) -> Self {
        Self::new(key, When::Now)
    }

    /// A run after a delay.
    ///
    /// ```
    /// use requeue_sim::{Trigger, When};
    /// use std::time::Duration;
    /// let second = Duration::from_secs(1);
    /// assert_eq!(Trigger::<_>::after(1, second).when, When::After(second));
    /// ```
    #[must_use]
    pub fn after(key: K, delay: Duration) -> Self {
        Self::new(key, When::After(delay))
    }

    /// A run at an instant of the simulation's time, which may have passed.
    ///
    /// ```
    /// use requeue::Instant;
    /// use requeue_sim::{Trigger, When};
    /// let at = Instant::from_nanos(7);
    /// assert_eq!(Trigger::<_>::at(1, at).when, When::At(at));
    /// ```
    #[must_use]
    pub fn at(key: K, due: Instant) -> Self {
        Self::new(key, When::At(due))
    }

    /// A run after the limiter's delay.
    ///
    /// ```
    /// use requeue_sim::{Trigger, When};
    /// assert_eq!(Trigger::<_>::rate_limited(1).when, When::RateLimited);
    /// ```
    #[must_use]
    pub fn rate_limited(key: K) -> Self {
        Self::new(key, When::RateLimited)
    }

    /// Sets a value, which the queue merges into the key's: [`Add::value`].
    ///
    /// ```
    /// # use requeue_sim::Trigger;
    /// assert_eq!(Trigger::now(1).value(7).value, Some(7));
    /// ```
    #[must_use]
    pub fn value(self, value: V) -> Self {
        Self { value: Some(value), ..self }
    }

    /// Sets the priority: [`Add::priority`].
    ///
    /// ```
    /// # use requeue_sim::Trigger;
    /// assert_eq!(Trigger::<_>::now(1).priority(-100).priority, -100);
    /// ```
    #[must_use]
    pub fn priority(self, priority: i16) -> Self {
        Self { priority, ..self }
    }

    /// Sets its option for a key in back-off: [`Add::in_backoff`].
    ///
    /// ```
    /// # use requeue_sim::Trigger;
    /// use requeue::InBackoff;
    /// assert_eq!(Trigger::<_>::now(1).in_backoff(InBackoff::Reset).in_backoff, Some(InBackoff::Reset));
    /// ```
    #[must_use]
    pub fn in_backoff(self, in_backoff: InBackoff) -> Self {
        Self { in_backoff: Some(in_backoff), ..self }
    }

    /// Sets a debounce of its own: [`Add::debounced`](requeue::Add::debounced). Only immediate triggers
    /// are debounced.
    ///
    /// ```
    /// # use requeue_sim::Trigger;
    /// # use std::time::Duration;
    /// use requeue::Debounce;
    /// let quiet = Debounce::new(Duration::from_millis(500));
    /// assert_eq!(Trigger::<_>::now(1).debounce(quiet).debounce, Some(quiet));
    /// ```
    #[must_use]
    pub fn debounce(self, debounce: Debounce) -> Self {
        Self { debounce: Some(debounce), ..self }
    }

    /// Lets the later instant stay, within `max` of the first: [`Add::latest`].
    ///
    /// ```
    /// # use requeue_sim::{Timer, Trigger};
    /// # use std::time::Duration;
    /// let (quiet, max) = (Duration::from_secs(1), Duration::from_secs(5));
    /// assert_eq!(Trigger::<_>::after(1, quiet).latest(max).timer, Timer::Latest(max));
    /// ```
    #[must_use]
    pub fn latest(self, max: Duration) -> Self {
        Self { timer: Timer::Latest(max), ..self }
    }

    /// Lets the new instant replace the old one: [`Add::replace`].
    ///
    /// ```
    /// # use requeue_sim::{Timer, Trigger};
    /// # use std::time::Duration;
    /// assert_eq!(Trigger::<_>::after(1, Duration::from_secs(1)).replace().timer, Timer::Replace);
    /// ```
    #[must_use]
    pub fn replace(self) -> Self {
        Self { timer: Timer::Replace, ..self }
    }

    /// Lets the old instant stay: [`Add::keep`].
    ///
    /// ```
    /// # use requeue_sim::{Timer, Trigger};
    /// # use std::time::Duration;
    /// assert_eq!(Trigger::<_>::after(1, Duration::from_secs(1)).keep().timer, Timer::Keep);
    /// ```
    #[must_use]
    pub fn keep(self) -> Self {
        Self { timer: Timer::Keep, ..self }
    }

    /// The options in the queue's form, without the key.
    pub(crate) fn how(&self) -> Add<V>
    where
        V: Clone,
    {
        let add = match self.when {
            When::Now => match self.debounce {
                Some(debounce) => Add::debounced(debounce),
                None => Add::after(Duration::ZERO),
            },
            When::After(delay) => Add::after(delay),
            When::At(due) => Add::at(due),
            When::RateLimited => Add::rate_limited(),
        };
        let add = match self.timer {
            Timer::Earliest => add,
            Timer::Latest(max) => add.latest(max),
            Timer::Replace => add.replace(),
            Timer::Keep => add.keep(),
        };
        let add = self.value.iter().cloned().fold(add, Add::value).priority(self.priority);
        self.in_backoff.into_iter().fold(add, Add::in_backoff)
    }
}

/// A key that is put back with its earlier state: [`UnfinishedKey`] in a form that can be written to a
/// trace and read from it.
///
/// ```
/// use requeue_sim::Restored;
/// use std::time::Duration;
/// let stored = Restored::<_>::new("web-1").failures(2).attempt(3).due(Duration::from_secs(5)).priority(10);
/// assert_eq!((stored.key, stored.failures, stored.attempt), ("web-1", 2, Some(3)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored<K, V = ()> {
    /// The key.
    pub key: K,
    /// Its value, if it has one.
    pub value: Option<V>,
    /// Its failures in a row.
    pub failures: u32,
    /// The attempt of its next run, if it is given.
    pub attempt: Option<u32>,
    /// Time after the call when it is due; `None`: ready at once.
    pub due: Option<Duration>,
    /// The priority.
    pub priority: i16,
}

impl<K, V> Restored<K, V> {
    /// A key that is ready, with no other state.
    ///
    /// ```
    /// use requeue_sim::Restored;
    /// assert_eq!(Restored::<_>::new(1).due, None);
    /// ```
    #[must_use]
    pub fn new(key: K) -> Self {
        Self { key, value: None, failures: 0, attempt: None, due: None, priority: 0 }
    }

    /// Sets a value: [`UnfinishedKey::value`].
    ///
    /// ```
    /// assert_eq!(requeue_sim::Restored::new(1).value("old").value, Some("old"));
    /// ```
    #[must_use]
    pub fn value(self, value: V) -> Self {
        Self { value: Some(value), ..self }
    }

    /// Sets its failures in a row: [`UnfinishedKey::failures`].
    ///
    /// ```
    /// assert_eq!(requeue_sim::Restored::<_>::new(1).failures(4).failures, 4);
    /// ```
    #[must_use]
    pub fn failures(self, failures: u32) -> Self {
        Self { failures, ..self }
    }

    /// Sets the attempt of its next run: [`UnfinishedKey::attempt`].
    ///
    /// ```
    /// assert_eq!(requeue_sim::Restored::<_>::new(1).attempt(4).attempt, Some(4));
    /// ```
    #[must_use]
    pub fn attempt(self, attempt: u32) -> Self {
        Self { attempt: Some(attempt), ..self }
    }

    /// Sets when it is due, after the call: [`UnfinishedKey::due`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// let second = Duration::from_secs(1);
    /// assert_eq!(requeue_sim::Restored::<_>::new(1).due(second).due, Some(second));
    /// ```
    #[must_use]
    pub fn due(self, after: Duration) -> Self {
        Self { due: Some(after), ..self }
    }

    /// Sets its priority: [`UnfinishedKey::priority`].
    ///
    /// ```
    /// assert_eq!(requeue_sim::Restored::<_>::new(1).priority(7).priority, 7);
    /// ```
    #[must_use]
    pub fn priority(self, priority: i16) -> Self {
        Self { priority, ..self }
    }

    /// The key in the queue's form.
    pub(crate) fn at(&self, now: Instant) -> UnfinishedKey<K, V>
    where
        K: Clone,
        V: Clone,
    {
        let mut key = UnfinishedKey::new(self.key.clone());
        (key.failures, key.priority, key.value) = (self.failures, self.priority, self.value.clone());
        key.attempt = self.attempt.unwrap_or(key.attempt);
        key.due = self.due.map(|after| now + after);
        key
    }
}

/// A call of a producer, or of a handler during its run; or a change of the workers.
///
/// ```
/// use requeue_sim::{Call, Trigger};
/// let call: Call<&str> = Trigger::now("a").into();
/// assert_eq!(call.key(), Some(&"a"));
/// assert_eq!(Call::<u32>::ShutDown.key(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call<K, V = ()> {
    /// A run of a key.
    Add(Trigger<K, V>),
    /// Like [`Add`](Self::Add), but waits for room if the queue is full, at most for this time
    /// ([`Duration::MAX`] is for ever): [`WorkQueue::add_when_room`](requeue::WorkQueue::add_when_room). The
    /// wait blocks neither the producer nor the run that calls it.
    AddWhenRoom(Trigger<K, V>, Duration),
    /// Runs of several keys at once: [`WorkQueue::add_many_with`](requeue::WorkQueue::add_many_with).
    /// Invariants see an [`Add`](Self::Add) for each of them, after all were added.
    AddMany(Vec<Trigger<K, V>>),
    /// [`WorkQueue::restore`](requeue::WorkQueue::restore).
    Restore(Restored<K, V>),
    /// [`WorkQueue::cancel`](requeue::WorkQueue::cancel).
    Cancel(K),
    /// [`WorkQueue::forget`](requeue::WorkQueue::forget).
    Forget(K),
    /// [`WorkQueue::pause`](requeue::WorkQueue::pause) of the queue.
    Pause,
    /// [`WorkQueue::resume`](requeue::WorkQueue::resume) of the queue.
    Resume,
    /// [`WorkQueue::pause`](requeue::WorkQueue::pause) of the key.
    PauseKey(K),
    /// [`WorkQueue::resume`](requeue::WorkQueue::resume) of the key.
    ResumeKey(K),
    /// [`WorkQueue::pause`](requeue::WorkQueue::pause) of the key's group.
    PauseGroup(K),
    /// [`WorkQueue::resume`](requeue::WorkQueue::resume) of the key's group.
    ResumeGroup(K),
    /// [`WorkQueue::lift_rate`](requeue::WorkQueue::lift_rate).
    LiftRate,
    /// [`WorkQueue::close`](requeue::WorkQueue::close).
    Close,
    /// [`WorkQueue::shut_down`](requeue::WorkQueue::shut_down).
    ShutDown,
    /// [`WorkQueue::drain`](requeue::WorkQueue::drain): what becomes of waiting keys, and
    /// how long the drain waits at most ([`Duration::MAX`] is for ever).
    /// [`Event::Drained`](crate::Event::Drained) reports its end.
    Drain(WaitingKeys, Duration),
    /// Sets the number of workers. A surplus worker leaves at once if it waits, or after its run if it has a
    /// key.
    Workers(usize),
    /// Cancels the wait of this worker, counted from 0, which then starts a new one, like a task whose wait
    /// is cancelled. No effect if it does not wait.
    CancelGet(usize),
}

impl<K, V> Call<K, V> {
    /// The key of the call, if it has one.
    ///
    /// ```
    /// use requeue_sim::Call;
    /// assert_eq!(Call::<_>::Cancel(7).key(), Some(&7));
    /// ```
    #[must_use]
    pub fn key(&self) -> Option<&K> {
        match self {
            Self::Add(trigger) | Self::AddWhenRoom(trigger, _) => Some(&trigger.key),
            Self::Restore(restored) => Some(&restored.key),
            Self::Cancel(key) | Self::Forget(key) => Some(key),
            Self::PauseKey(key) | Self::ResumeKey(key) => Some(key),
            Self::PauseGroup(key) | Self::ResumeGroup(key) => Some(key),
            Self::AddMany(triggers) => match &**triggers {
                [trigger] => Some(&trigger.key),
                _ => None,
            },
            Self::Pause | Self::Resume | Self::LiftRate | Self::Close | Self::ShutDown => None,
            Self::Drain(..) | Self::Workers(_) | Self::CancelGet(_) => None,
        }
    }

    /// All keys of the call.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        let several = match self {
            Self::AddMany(triggers) => &**triggers,
            _ => &[],
        };
        let one = if several.is_empty() { self.key() } else { None };
        one.into_iter().chain(several.iter().map(|trigger| &trigger.key))
    }

    /// The call without these keys; `None` if nothing is left of it.
    pub(crate) fn without(&self, gone: impl Fn(&K) -> bool) -> Option<Self>
    where
        K: Clone,
        V: Clone,
    {
        match self {
            Self::AddMany(triggers) => {
                let left: Vec<_> = triggers.iter().filter(|trigger| !gone(&trigger.key)).cloned().collect();
                (!left.is_empty()).then_some(Self::AddMany(left))
            }
            _ => (!self.key().is_some_and(gone)).then(|| self.clone()),
        }
    }
}

impl<K, V> From<Trigger<K, V>> for Call<K, V> {
    fn from(trigger: Trigger<K, V>) -> Self {
        Self::Add(trigger)
    }
}

impl<K, V> From<Restored<K, V>> for Call<K, V> {
    fn from(restored: Restored<K, V>) -> Self {
        Self::Restore(restored)
    }
}
