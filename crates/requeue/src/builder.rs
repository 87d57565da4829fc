//! Building a queue to order.

use crate::clock::{Clock, SystemClock};
use crate::hold::Shared;
use crate::limiter::{CountedController, RateLimiter};
use crate::metrics::{Metrics, ReadGauges};
use crate::unfinished::Unfinished;
use crate::{BuildError, RandomState, WorkQueue};
use requeue_core::{Config, Core, Merge, Order, ReadyOrder};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};

/// Builds a [`WorkQueue`]; made by [`WorkQueue::builder`] and
/// [`WorkQueue::merging`].
///
/// ```
/// use requeue::{limiter, WorkQueue};
/// use std::time::Duration;
/// let q = WorkQueue::<String>::builder()
///     .name("orders")
///     .limiter(limiter::Exponential::new(Duration::from_millis(5), Duration::from_secs(60))?)
///     .timers_absorbed(true)
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until build()"]
#[doc(alias(
    "QueueConfig",
    "TypedQueueConfig",
    "DelayingQueueConfig",
    "TypedDelayingQueueConfig",
    "RateLimitingQueueConfig",
    "TypedRateLimitingQueueConfig"
))]
pub struct Builder<K, V = (), S = RandomState> {
    name: String,
    config: Config<K, V>,
    clock: Arc<dyn Clock>,
    limiter: Box<dyn RateLimiter<K>>,
    metrics: Option<(Arc<dyn Metrics>, Attach<K, V>)>,
    unfinished: Unfinished,
    hasher: S,
}

/// Turns a queue into where its gauges are read. Made where `K` and `V` are
/// known to outlive everything.
type Attach<K, V> = fn(&Arc<Shared<K, V>>) -> Weak<dyn ReadGauges>;

impl<K: Hash + Eq> WorkQueue<K> {
    /// A queue with the defaults: first in first out, the system's clock, no metrics, and the
    /// limiter that client-go gives controllers. That limiter slows all keys together when
    /// many fail: see [`add_rate_limited`](Self::add_rate_limited).
    ///
    /// ```
    /// let q = requeue::WorkQueue::<String>::new();
    /// assert!(q.is_empty());
    /// ```
    #[must_use]
    #[doc(alias("New", "NewTyped", "NewDelayingQueue", "NewTypedDelayingQueue", "TypedNewDelayingQueue"))]
    pub fn new() -> Self {
        Builder::new(None).queue()
    }

    /// A queue built to order.
    ///
    /// ```
    /// use requeue::{FakeClock, Order, WorkQueue};
    /// let q = WorkQueue::<u64>::builder().order(Order::Lifo).clock(FakeClock::new()).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias(
        "NewNamed",
        "NewWithConfig",
        "NewTypedWithConfig",
        "NewDelayingQueueWithConfig",
        "NewTypedDelayingQueueWithConfig",
        "NewRateLimitingQueueWithConfig",
        "NewTypedRateLimitingQueueWithConfig"
    ))]
    pub fn builder() -> Builder<K> {
        Builder::new(None)
    }
}

impl<K: Hash + Eq, V> WorkQueue<K, V> {
    /// A queue whose keys carry values. Values of one key merge with `merge`,
    /// the older first, at each trigger; it runs under the queue's lock, so it
    /// must be short and must not call the queue.
    ///
    /// If `merge` panics, the panic reaches whoever called, the trigger is not
    /// accepted, and the key keeps what `merge` left of the older value.
    ///
    /// ```
    /// use std::collections::BTreeSet;
    /// use requeue::WorkQueue;
    /// let q = WorkQueue::merging(|old: &mut BTreeSet<&str>, new| old.extend(new)).build()?;
    /// q.add_value("user:7", BTreeSet::from(["name"]))?;
    /// q.add_value("user:7", BTreeSet::from(["mail"]))?;
    /// q.add("user:7")?; // "look again", no value
    /// let mut item = q.get_blocking().expect("not shut down");
    /// assert_eq!(item.take_value(), Some(BTreeSet::from(["mail", "name"])));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn merging(merge: impl Fn(&mut V, V) + Send + Sync + 'static) -> Builder<K, V> {
        Builder::new(Some(Box::new(merge)))
    }
}

impl<K, V> Builder<K, V> {
    pub(crate) fn new(merge: Option<Merge<V>>) -> Self {
        Self {
            name: String::new(),
            config: Config { merge, ..Config::default() },
            clock: Arc::new(SystemClock),
            limiter: Box::new(CountedController::new()),
            metrics: None,
            unfinished: Unfinished::default(),
            hasher: RandomState::default(),
        }
    }
}

impl<K, V, S> Builder<K, V, S> {
    /// The queue's name: the label of its metrics.
    ///
    /// ```
    /// let q = requeue::WorkQueue::<u32>::builder().name("pods").build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewNamedDelayingQueue", "NewNamedRateLimitingQueue"))]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Where all time comes from: [`SystemClock`] by default.
    ///
    /// ```
    /// let q = requeue::WorkQueue::<u32>::builder().clock(requeue::FakeClock::new()).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewDelayingQueueWithCustomClock"))]
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// Who decides when a key comes back that is added through
    /// [`add_rate_limited`](WorkQueue::add_rate_limited) or retried.
    ///
    /// By default what client-go gives controllers: per-key exponential back-off
    /// from 5 ms to 1,000 s, and a bucket of 10 a second with a burst of 100 for
    /// all keys, whichever is longer
    /// (`DefaultTypedControllerRateLimiter`).
    ///
    /// That bucket is one for all keys: when 1,000 of them fail at once, the last comes
    /// back after 90 s.
    /// [`default_per_item`](crate::limiter::default_per_item) has none.
    ///
    /// ```
    /// use requeue::limiter::Bucket;
    /// let q = requeue::WorkQueue::<u32>::builder().limiter(Bucket::new(5.0, 1)?).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewRateLimitingQueue", "NewTypedRateLimitingQueue"))]
    pub fn limiter(self, limiter: impl RateLimiter<K> + 'static) -> Self {
        Self { limiter: Box::new(limiter), ..self }
    }

    /// The order of the ready line: first in first out by default.
    ///
    /// ```
    /// let q = requeue::WorkQueue::<u32>::builder().order(requeue::Order::Lifo).build()?;
    /// q.add(1)?;
    /// q.add(2)?;
    /// assert_eq!(*q.try_get()?.key(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn order(mut self, order: Order<K>) -> Self {
        self.config.order = order;
        self
    }

    /// An order of one's own: `order(Order::Custom(Box::new(order)))`.
    ///
    /// ```
    /// use requeue::{ReadyOrder, Ticket, WorkQueue};
    /// #[derive(Default)]
    /// struct Smallest(std::collections::BTreeSet<(u32, Ticket)>);
    /// impl ReadyOrder<u32> for Smallest {
    ///     fn push(&mut self, key: &u32, ticket: Ticket) { self.0.insert((*key, ticket)); }
    ///     fn pop(&mut self) -> Option<Ticket> { self.0.pop_first().map(|(_, t)| t) }
    /// }
    /// let q = WorkQueue::builder().custom_order(Smallest::default()).build()?;
    /// for key in [3, 1, 2] { q.add(key)?; }
    /// assert_eq!(*q.try_get()?.key(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewDelayingQueueWithCustomQueue"))]
    pub fn custom_order(self, order: impl ReadyOrder<K> + 'static) -> Self {
        self.order(Order::Custom(Box::new(order)))
    }

    /// A run that starts absorbs the timer that its key had before it started,
    /// back-offs too; timers set during the run stay. Off by default: the
    /// timer's run comes too, as in client-go.
    ///
    /// ```
    /// use requeue::{FakeClock, WorkQueue};
    /// use std::time::Duration;
    /// let q = WorkQueue::builder().timers_absorbed(true).build()?;
    /// q.add_after("a", Duration::from_secs(9))?;
    /// q.add("a")?;
    /// q.try_get()?.done();
    /// assert_eq!(q.stats().waiting, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timers_absorbed(mut self, absorbed: bool) -> Self {
        self.config.timers_absorbed = absorbed;
        self
    }

    /// What a guard that is dropped without a word does: [`Unfinished::Done`] by
    /// default.
    ///
    /// ```
    /// use requeue::{Unfinished, WorkQueue};
    /// let q = WorkQueue::builder().unfinished(Unfinished::Retry).build()?;
    /// q.add("a")?;
    /// drop(q.try_get()?);
    /// assert_eq!(q.num_requeues(&"a"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unfinished(self, unfinished: Unfinished) -> Self {
        Self { unfinished, ..self }
    }

    /// Where the queue's metrics go; see [`Metrics`]. Without it no timestamps
    /// are kept and no clock is read for them.
    ///
    /// ```
    /// struct Nothing;
    /// impl requeue::Metrics for Nothing {}
    /// let q = requeue::WorkQueue::<u32>::builder().name("pods").metrics(Nothing).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metrics(mut self, metrics: impl Metrics) -> Self
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
    {
        self.config.timestamps = true;
        self.metrics = Some((Arc::new(metrics), |shared| {
            let gauges: Weak<Shared<K, V>> = Arc::downgrade(shared);
            gauges
        }));
        self
    }

    /// Another hasher, instead of [`RandomState`].
    ///
    /// ```
    /// use std::hash::{BuildHasherDefault, DefaultHasher};
    /// let hasher = BuildHasherDefault::<DefaultHasher>::default();
    /// let q = requeue::WorkQueue::<u32>::builder().hasher(hasher).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hasher<T>(self, hasher: T) -> Builder<K, V, T> {
        Builder {
            hasher,
            name: self.name,
            config: self.config,
            clock: self.clock,
            limiter: self.limiter,
            metrics: self.metrics,
            unfinished: self.unfinished,
        }
    }

    /// Builds the queue.
    ///
    /// # Errors
    ///
    /// [`BuildError`], which says what to change.
    ///
    /// ```
    /// # struct Nothing;
    /// # impl requeue::Metrics for Nothing {}
    /// let unnamed = requeue::WorkQueue::<u32>::builder().metrics(Nothing).build();
    /// assert_eq!(unnamed.unwrap_err(), requeue::BuildError::NoName);
    /// ```
    pub fn build(self) -> Result<WorkQueue<K, V, S>, BuildError> {
        if self.metrics.is_some() && self.name.is_empty() {
            return Err(BuildError::NoName);
        }
        Ok(self.queue())
    }

    pub(crate) fn queue(self) -> WorkQueue<K, V, S> {
        let (metrics, attach) = self.metrics.unzip();
        let shared = Shared::new(
            Core::new(self.config),
            self.clock,
            self.limiter,
            metrics,
            self.unfinished,
            self.name,
        );
        let queue = WorkQueue::from_parts(shared, self.hasher);
        if let Some(attach) = attach {
            let gauges = attach(&queue.shared);
            queue.shared.tell(|m| m.attach(&queue.shared.name, gauges));
        }
        queue
    }
}

impl<K, V, S> fmt::Debug for Builder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
