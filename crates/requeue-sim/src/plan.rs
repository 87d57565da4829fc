//! [`Plan`]: what a handler does with a run.

use crate::Call;
use crate::trace::Seconds;
use requeue::Instant;
use std::fmt;
use std::time::Duration;

/// How a run ends.
///
/// ```
/// use requeue_sim::{End, Plan};
/// assert_eq!(Plan::<u32>::retry().end(), End::Retry);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// It succeeded, and the failures are forgotten: `Item::succeed`.
    Done,
    /// It is done, and its worker gets the next key, or waits for it, in the same call: `Item::next`. As with
    /// `Item::done`, failures are not forgotten. If the next key is ready, its end is reported when that key
    /// is handed out. While other runs of its [batch](crate::Sim::batches) go on, it is only done.
    Next,
    /// It failed: `Item::retry`.
    Retry,
    /// It failed, and is due again after this delay: `Item::retry_after`.
    RetryAfter(Duration),
    /// It succeeded, and is due again after this delay: `Item::again`.
    Again(Duration),
    /// It failed for good: `Item::give_up`.
    GiveUp,
    /// A panic unwinds through the guard.
    Panic,
    /// The guard is dropped without an outcome.
    Drop,
    /// The guard is leaked (`mem::forget`): the key stays held for ever.
    Leak,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Next => f.write_str("done, and next"),
            Self::Retry => f.write_str("retry"),
            Self::RetryAfter(delay) => write!(f, "retry after {}", Seconds(*delay)),
            Self::Again(delay) => write!(f, "again after {}", Seconds(*delay)),
            Self::GiveUp => f.write_str("gives up"),
            Self::Panic => f.write_str("panics"),
            Self::Drop => f.write_str("drops its guard"),
            Self::Leak => f.write_str("leaks its guard"),
        }
    }
}

/// A handler's behaviour in a run: how it ends, after how long, and its calls meanwhile.
///
/// ```
/// use requeue_sim::{Plan, Trigger};
/// use std::time::Duration;
///
/// // fails after 20 ms; after 5 ms of them it has written its own object, which is an event
/// let plan = Plan::<_>::retry()
///     .taking(Duration::from_millis(20))
///     .calling(Duration::from_millis(5), Trigger::now("web-1"));
/// assert_eq!(plan.takes(), Duration::from_millis(20));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handler returns its plan"]
pub struct Plan<K, V = ()> {
    pub(crate) end: End,
    pub(crate) takes: Duration,
    /// In the order of their offsets, once the run has begun.
    pub(crate) calls: Vec<(Duration, Call<K, V>)>,
}

impl<K, V> Plan<K, V> {
    /// A run that ends at once, in this way.
    ///
    /// ```
    /// use requeue_sim::{End, Plan};
    /// assert_eq!(Plan::<u32>::ending(End::GiveUp).end(), End::GiveUp);
    /// ```
    pub fn ending(end: End) -> Self {
        Self { end, takes: Duration::ZERO, calls: Vec::new() }
    }

    /// It succeeds.
    ///
    /// ```
    /// use requeue_sim::{End, Plan};
    /// assert_eq!(Plan::<u32>::done().end(), End::Done);
    /// ```
    pub fn done() -> Self {
        Self::ending(End::Done)
    }

    /// It fails, and the limiter decides when it is due again.
    ///
    /// ```
    /// use requeue_sim::{End, Plan};
    /// assert_eq!(Plan::<u32>::retry().end(), End::Retry);
    /// ```
    pub fn retry() -> Self {
        Self::ending(End::Retry)
    }

    /// It succeeds, and is due again after this delay.
    ///
    /// ```
    /// use requeue_sim::{End, Plan};
    /// use std::time::Duration;
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(Plan::<u32>::again(minute).end(), End::Again(minute));
    /// ```
    pub fn again(delay: Duration) -> Self {
        Self::ending(End::Again(delay))
    }

    /// Sets how long it takes.
    ///
    /// ```
    /// use requeue_sim::Plan;
    /// use std::time::Duration;
    /// let second = Duration::from_secs(1);
    /// assert_eq!(Plan::<u32>::done().taking(second).takes(), second);
    /// ```
    pub fn taking(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }

    /// Adds a call to the queue, this long after it began. A call later than its end is made at its end.
    ///
    /// ```
    /// use requeue_sim::{Plan, Trigger};
    /// use std::time::Duration;
    /// // at its beginning it asks for a run of another key
    /// let plan = Plan::<_>::done().calling(Duration::ZERO, Trigger::now("owner"));
    /// # drop(plan);
    /// ```
    pub fn calling(mut self, after: Duration, call: impl Into<Call<K, V>>) -> Self {
        self.calls.push((after, call.into()));
        self
    }

    /// How it ends.
    ///
    /// ```
    /// use requeue_sim::{End, Plan};
    /// assert_eq!(Plan::<u32>::done().end(), End::Done);
    /// ```
    #[must_use]
    pub fn end(&self) -> End {
        self.end
    }

    /// How long it takes.
    ///
    /// ```
    /// use requeue_sim::Plan;
    /// assert!(Plan::<u32>::done().takes().is_zero());
    /// ```
    #[must_use]
    pub fn takes(&self) -> Duration {
        self.takes
    }
}

/// A run of a key.
///
/// ```
/// use requeue_sim::{Plan, Run, Sim};
/// use requeue::WorkQueue;
/// let sim = Sim::new(|clock| WorkQueue::<u32>::builder().clock(clock).build().unwrap())
///     .handler(|run: &Run<u32>, _| if run.attempt < 3 { Plan::retry() } else { Plan::done() });
/// # drop(sim);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run<K, V = ()> {
    /// The key.
    pub key: K,
    /// The value that was handed out with it: [`Item::value`](requeue::Item::value).
    pub value: Option<V>,
    /// Number of this run of the key, from 1.
    pub number: u64,
    /// Number of this run in a row of failing ones, from 1: `Item::attempt`.
    pub attempt: u32,
    /// Its priority: `Item::priority`.
    pub priority: i16,
    /// Number of its worker, from 0.
    pub worker: usize,
    /// When it began.
    pub began: Instant,
    /// How long the key had been ready.
    pub waited: Duration,
}
