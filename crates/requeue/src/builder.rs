//! Building a queue with settings.

use crate::adders::OnDropped;
use crate::clock::{Clock, SystemClock};
use crate::fairness::Fairness;
use crate::hold::Shared;
use crate::journal::Journal;
use crate::limiter::{Keeps, RateLimiter, counted_controller, dispatch, sealed::Token};
use crate::metrics::{Metrics, ReadGauges};
use crate::unfinished::Unfinished;
use crate::{BuildError, RandomState, WorkQueue};
use requeue_core::{Bound, Config, Core, Debounce, InBackoff, MaxWait, Merge, Order, ReadyOrder};
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

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
#[doc(alias("QueueConfig", "TypedQueueConfig", "DelayingQueueConfig", "TypedDelayingQueueConfig"))]
#[doc(alias("RateLimitingQueueConfig", "TypedRateLimitingQueueConfig"))]
pub struct Builder<K, V = (), S = RandomState> {
    pub(crate) settings: Settings<K, V>,
    hasher: S,
}

/// What a builder knows but for the hasher, whose type can change.
pub(crate) struct Settings<K, V> {
    name: String,
    labels: Vec<(String, String)>,
    config: Config<K, V>,
    clock: Arc<dyn Clock>,
    limiter: Box<dyn RateLimiter<K>>,
    metrics: Option<(Arc<dyn Metrics>, Attach<K, V>)>,
    unfinished: Unfinished,
    priorities: bool,
    max_wait: Option<Duration>,
    overdue_every: Option<u32>,
    bound: Option<usize>,
    on_dropped: Option<OnDropped<K, V>>,
    pub(crate) fairness: Fairness<K>,
    pub(crate) journal: Option<Arc<dyn Journal<K, V>>>,
    /// Keys a second, and how many at once.
    rate: Option<(f64, u32)>,
}

/// The labels that the metrics of queues have themselves, and those that Prometheus gives
/// a meaning.
const OWN_LABELS: [&str; 7] = ["name", "le", "quantile", "outcome", "priority", "tier", "group"];

/// Whether Prometheus takes a label of this name.
fn is_label(name: &str) -> bool {
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    begins_well
        && !name.starts_with("__")
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
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

    /// A queue built with settings.
    ///
    /// ```
    /// use requeue::{FakeClock, Order, WorkQueue};
    /// let q = WorkQueue::<u64>::builder().order(Order::Lifo).clock(FakeClock::new()).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewNamed", "NewWithConfig", "NewTypedWithConfig"))]
    #[doc(alias("NewDelayingQueueWithConfig", "NewTypedDelayingQueueWithConfig"))]
    #[doc(alias("NewRateLimitingQueueWithConfig", "NewTypedRateLimitingQueueWithConfig"))]
    pub fn builder() -> Builder<K> {
        Builder::new(None)
    }
}

impl<K: Hash + Eq, V> WorkQueue<K, V> {
    /// A queue whose keys carry values. Values of one key merge with `merge`,
    /// the older first, at each trigger. It runs under the queue's lock, and so does the
    /// drop of what it does not keep: both must be short and must not call the queue.
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
        let settings = Settings {
            name: String::new(),
            labels: Vec::new(),
            config: Config { merge, ..Config::default() },
            clock: Arc::new(SystemClock),
            limiter: Box::new(counted_controller()),
            metrics: None,
            unfinished: Unfinished::default(),
            priorities: false,
            max_wait: None,
            overdue_every: None,
            bound: None,
            on_dropped: None,
            fairness: Fairness::default(),
            journal: None,
            rate: None,
        };
        Self { settings, hasher: RandomState::default() }
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
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// A constant label of the queue's metrics, beside its [`name`](Self::name): what tells
    /// this queue from those of the same name elsewhere, as a cluster or a shard. Call it once for
    /// each label. The sink is told of them ([`Metrics::attach_labels`]); without one they
    /// mean nothing.
    ///
    /// [`build`](Self::build) refuses a name that Prometheus does not take (it takes letters of
    /// ASCII, digits and `_`, no digit first, no `__` first), a second label of the same name, and
    /// `name`, `le`, `quantile`, `outcome`, `priority`, `tier` and `group`, which metrics of queues
    /// have themselves. Values
    /// may be anything.
    ///
    /// ```
    /// # use requeue::{BuildError, WorkQueue};
    /// let q = WorkQueue::<u32>::builder().name("pods").label("cluster", "eu-1").build()?;
    /// let wrong = WorkQueue::<u32>::builder().label("is-eu", "yes").build().unwrap_err();
    /// assert_eq!(wrong, BuildError::LabelName { name: "is-eu".to_owned() });
    /// # Ok::<(), BuildError>(())
    /// ```
    #[doc(alias("ConstLabels"))]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.labels.push((name.into(), value.into()));
        self
    }

    /// Where all time comes from: [`SystemClock`] by default.
    ///
    /// ```
    /// let q = requeue::WorkQueue::<u32>::builder().clock(requeue::FakeClock::new()).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewDelayingQueueWithCustomClock"))]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.settings.clock = Arc::new(clock);
        self
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
    /// [`default_controller_without_bucket`](crate::limiter::default_controller_without_bucket)
    /// is the same without it.
    ///
    /// ```
    /// use requeue::limiter::Bucket;
    /// let q = requeue::WorkQueue::<u32>::builder().limiter(Bucket::new(5.0, 1)?).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewRateLimitingQueue", "NewTypedRateLimitingQueue"))]
    pub fn limiter(mut self, limiter: impl RateLimiter<K> + 'static) -> Self {
        self.settings.limiter = Box::new(limiter);
        self
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
        self.settings.config.order = order;
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

    /// Triggers may have a priority, any `i16`: [`Add::priority`]. Higher ones go first, and
    /// keys of one priority in the order in which they became ready. Off by default: such a
    /// queue pays nothing for it, and refuses a trigger with a priority.
    ///
    /// * A trigger without a priority has 0.
    /// * A trigger for a key that is ready, dirty or waiting raises the key's priority, and never
    ///   lowers it. A key that is raised keeps its age: it goes before keys of its new
    ///   priority that became ready after it.
    /// * A timer applies its priority when it fires. Until then, and for a run that the key
    ///   comes to earlier, it counts for nothing.
    /// * A key that is triggered while it is held takes the highest priority of those
    ///   triggers, and not that of the run that goes on.
    /// * A retry keeps the priority of the run that failed, and so does "again".
    /// * [`Item::priority`] and [`Run::priority`](crate::Run::priority) tell it.
    ///
    /// By itself this can starve a key: while higher ones come as fast as they are worked off,
    /// it is not handed out. [`max_wait`](Self::max_wait) gives such keys a share of the hand-outs.
    ///
    /// A hundred levels cost no more than one: to find the highest takes a look at three
    /// words, however many levels and keys there are.
    ///
    /// # Example: as Kubernetes' controllers do it
    ///
    /// controller-runtime gives the objects of the initial list, and those of a periodic
    /// resync, the priority -100, so that what has just changed goes before them:
    ///
    /// ```
    /// use requeue::{Add, WorkQueue};
    /// use std::time::Duration;
    ///
    /// /// `handler.LowPriority` of controller-runtime.
    /// const LOW_PRIORITY: i16 = -100;
    ///
    /// let q = WorkQueue::builder().priorities().max_wait(Duration::from_secs(60)).build()?;
    /// // the initial list
    /// q.add_many_with(["pod-1", "pod-2", "pod-3"].map(|pod| (pod, Add::now().priority(LOW_PRIORITY)))).all()?;
    /// // a pod is changed: its key goes before the others
    /// q.add("pod-3")?;
    /// // a resync lowers nothing
    /// q.add_with("pod-3", Add::now().priority(LOW_PRIORITY))?;
    ///
    /// let item = q.try_get()?;
    /// assert_eq!((*item.key(), item.priority()), ("pod-3", 0));
    /// assert_eq!(*q.try_get()?.key(), "pod-1");
    /// # drop(item);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// With an [`order`](Self::order) other than first in first out, or an order of one's
    /// own, [`build`](Self::build) says [`BuildError::OrderAndPriorities`].
    ///
    /// [`Add::priority`]: crate::Add::priority
    /// [`Item::priority`]: crate::Item::priority
    pub fn priorities(mut self) -> Self {
        self.settings.priorities = true;
        self
    }

    /// Bounds how long higher priorities can keep a ready key waiting. A key that has been ready for
    /// `max_wait` is overdue. While keys are overdue, one of every 8 hand-outs goes to the oldest of them
    /// ([`overdue_every`](Self::overdue_every) changes the 8), and the others go by priority.
    ///
    /// * An overdue key with `m` older overdue ones is handed out within `8 * (m + 1)` further
    ///   hand-outs.
    /// * A backlog that is older than `max_wait` does not turn the order round: of 8 hand-outs, 7
    ///   still go to the highest priority.
    /// * With [groups](Self::group_by) an overdue key waits for the turn of its group, so
    ///   the bounds on turns hold as without `max_wait`. One of every 8 hand-outs goes to the priority of the
    ///   oldest overdue key that may be served, and there to the group whose turn it is. With
    ///   [`priorities_within_groups`](Self::priorities_within_groups), one of every 8 hand-outs of each group goes
    ///   to the group's oldest overdue key. Without priorities the oldest key of a group goes first anyway, and
    ///   `max_wait` changes nothing.
    ///
    /// A key's age counts from when it became ready (for a timer, from its due instant, but not
    /// from before another key that became ready until the timer was looked at). A trigger that raises the
    /// key does not change it. The age does not count while the [queue](crate::WorkQueue::pause) or
    /// the key's [group](crate::WorkQueue::pause_group) is paused, and begins anew when a
    /// [pause of the key](crate::WorkQueue::pause_key) ends, because the key goes to the back of the line. A group at
    /// its cap, or a rate without a token, does not stop it.
    ///
    /// With zero every ready key is overdue. A time that is never reached, such as
    /// `Duration::MAX`, is as none.
    ///
    /// Such a queue reads its clock in every call, as one with metrics does, but for redundant
    /// adds of integers.
    ///
    /// # Errors
    ///
    /// Without priorities or groups [`build`](Self::build) says
    /// [`BuildError::MaxWaitWithoutPriorities`].
    ///
    /// ```
    /// # use requeue::{Add, FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let minute = Duration::from_secs(60);
    /// let q = WorkQueue::builder().clock(clock.clone()).priorities().max_wait(minute).build()?;
    /// q.add_many_with(["old", "less old"].map(|key| (key, Add::now().priority(-100)))).all()?;
    /// clock.advance(minute);
    /// q.add_with("urgent", Add::now().priority(100))?;
    /// assert_eq!(*q.try_get()?.key(), "old");
    /// assert_eq!(*q.try_get()?.key(), "urgent");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.settings.max_wait = Some(max_wait);
        self
    }

    /// With [`max_wait`](Self::max_wait), how many hand-outs there are for each one that goes to an overdue
    /// key: 8 by default. A smaller number works an old backlog off sooner, and keeps urgent keys waiting
    /// longer meanwhile. Without `max_wait` it changes nothing.
    ///
    /// # Errors
    ///
    /// With less than 2, [`build`](Self::build) says [`BuildError::OverdueEvery`]: all hand-outs would go to
    /// overdue keys.
    ///
    /// ```
    /// use requeue::WorkQueue;
    /// use std::time::Duration;
    /// let builder = WorkQueue::<String>::builder().priorities();
    /// // up to half of the hand-outs may go to overdue keys
    /// let q = builder.max_wait(Duration::from_secs(60)).overdue_every(2).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn overdue_every(mut self, hand_outs: u32) -> Self {
        self.settings.overdue_every = Some(hand_outs);
        self
    }

    /// Triggers for now are debounced that say nothing else about it: [`add`](WorkQueue::add) and
    /// its like, and delays of zero. Off by default.
    ///
    /// A trigger opens a window for its key, and each further one pushes the window's end back: it
    /// ends when no trigger has come for the debounce's `quiet`, at the latest its `max` after the
    /// first. Then the key becomes ready, once. With [`leading`](crate::Debounce::leading) the first trigger
    /// runs at once, and those that come in the window that it opens give one more run.
    ///
    /// * A trigger for a key that is ready, or dirty, joins that run, and opens no window. One for
    ///   a held key opens a window, which may end during the run: then the key is dirty.
    /// * Timers ([`add_after`](WorkQueue::add_after) and its like, retries) are not moved by windows, and do not
    ///   move them. If one of them comes first, or a trigger that is not debounced, that run
    ///   is the window's too, and the window closes.
    /// * Values merge at each trigger. A window applies the highest priority of its triggers when it
    ///   ends.
    /// * In a [back-off](crate::InBackoff) a trigger that respects it joins the back-off's run; one
    ///   that does not runs when its window ends; one that resets ends the back-off at once.
    /// * [`state`](WorkQueue::state), [`stats`](WorkQueue::stats) and snapshots tell of a key with an open window as
    ///   waiting; so they do for the rest of the window after a leading run.
    /// * [`shut_down`](WorkQueue::shut_down) and drains close windows: their keys become ready, and are not dropped. A
    ///   drain that waits for waiting keys waits until windows end.
    /// * [`cancel`](WorkQueue::cancel) takes the window away.
    ///
    /// Such a queue reads its clock in every call, as one with metrics does, but for redundant adds
    /// of integers. A trigger has the last word with [`AddNow::debounce`](crate::AddNow::debounce).
    ///
    /// ```
    /// # use requeue::{Debounce, FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let debounce = Debounce::new(Duration::from_secs(1)).max(Duration::from_secs(5));
    /// let q = WorkQueue::builder().clock(clock.clone()).debounce(debounce).build()?;
    /// for _ in 0..5 {
    ///     q.add("a")?;
    ///     assert!(q.try_get().is_err());
    ///     clock.advance(Duration::from_millis(900)); // never a second of quiet
    /// }
    /// q.add("a")?;
    /// clock.advance(Duration::from_millis(500)); // but 5 s since the first
    /// assert_eq!(*q.try_get()?.key(), "a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn debounce(mut self, debounce: Debounce) -> Self {
        self.settings.config.debounce = Some(debounce);
        self
    }

    /// How many keys the queue knows at most: distinct ones that are ready, waiting or held. A
    /// trigger of another key finds the queue full then.
    ///
    /// * [`add`](WorkQueue::add) and its like are refused with
    ///   [`Refused::Full`](crate::Refused::Full), and give the key back.
    /// * [`add_when_room`](WorkQueue::add_when_room) waits.
    /// * With [`drop_oldest`](Self::drop_oldest) the key that has been ready longest makes room.
    ///
    /// A trigger of a key that is ready, waiting or held never needs room, and neither does a
    /// retry: the key is held. What is known of a key only because it failed, because it is paused, or
    /// because somebody still has its guard, does not count. The bound is never exceeded, whatever happens at once:
    /// an [`add_rate_limited`](WorkQueue::add_rate_limited) takes its place before a
    /// limiter of the user's own is asked.
    ///
    /// A [`restore`](WorkQueue::restore) needs room as any trigger.
    ///
    /// # Errors
    ///
    /// With zero [`build`](Self::build) says [`BuildError::BoundOfZero`].
    ///
    /// ```
    /// # use requeue::{Refused, WorkQueue};
    /// let q = WorkQueue::builder().bound(2).build()?;
    /// q.add_many(["a", "b", "a"]).all()?;
    /// let refused = q.add("c").unwrap_err();
    /// assert_eq!((refused.key, refused.reason), ("c", Refused::Full));
    /// q.try_get()?.done();
    /// q.add("c")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bound(mut self, keys: usize) -> Self {
        self.settings.bound = Some(keys);
        self
    }

    /// In a queue with a [`bound`](Self::bound) that is full, the key that has been ready longest
    /// makes room for a new one: it is [cancelled](WorkQueue::cancel), with its timer and its
    /// value, and `on_dropped` is told, so that no key is lost silently. Its failures
    /// stay on record. If no key is ready, the trigger is refused as without this. Priority does not
    /// count here: the oldest goes, also if its priority is the highest. A key that is
    /// [paused](WorkQueue::pause_key) by itself is not dropped; in a queue that is paused, or a
    /// group that is paused, at its cap or without a token, keys are.
    ///
    /// `on_dropped` runs in the call that added the new key, after it, and without the lock; it may
    /// call the queue. A panic of it is caught.
    ///
    /// On such a queue redundant adds of integers take the lock too.
    ///
    /// # Errors
    ///
    /// Without a bound [`build`](Self::build) says [`BuildError::DropOldestWithoutBound`], and
    /// with a [`custom_order`](Self::custom_order) [`BuildError::DropOldestAndOwnOrder`].
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use std::sync::{Arc, Mutex};
    /// let lost = Arc::new(Mutex::new(Vec::new()));
    /// let log = lost.clone();
    /// let q = WorkQueue::builder()
    ///     .bound(2)
    ///     .drop_oldest(move |key: &&str, _| log.lock().unwrap().push(*key))
    ///     .build()?;
    /// q.add_many(["a", "b", "c"]).all()?;
    /// assert_eq!(*lost.lock().unwrap(), ["a"]);
    /// assert_eq!(*q.try_get()?.key(), "b");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drop_oldest(mut self, on_dropped: impl Fn(&K, Option<V>) + Send + Sync + 'static) -> Self {
        self.settings.on_dropped = Some(Box::new(on_dropped));
        self
    }

    /// Hands out at most `keys` keys a second, and at most `burst` of them at once. Without this
    /// there is no limit, and nothing is paid for it.
    ///
    /// It is the rate of runs, and not of triggers: a key is charged when it is handed out, so
    /// that triggers which coalesce cost nothing, nor does a key that is cancelled. The limit
    /// is a token bucket: it holds `burst` tokens and is full at first, and each key takes one;
    /// in any time `t` at most `burst + keys * t` are handed out. The arithmetic is exact, as in
    /// [`TokenBucket`](crate::limiter::TokenBucket).
    ///
    /// * Without a token a queue with ready keys says what an empty one says: getters wait, and
    ///   one of them wakes up when the next token is there; [`WorkQueue::try_get`] says "empty".
    ///   [`WorkQueue::len`] counts the ready keys, as ever.
    /// * A batch gets as many keys as there are tokens.
    /// * The order of keys is as without it.
    /// * A token that was taken does not come back, whatever becomes of the run.
    /// * A drain, and what is worked off after [`WorkQueue::shut_down`], keep to it too. Give a
    ///   drain that may be in a hurry a deadline, or [lift](WorkQueue::lift_rate) the rate.
    ///
    /// Such a queue reads its clock in every call, as one with metrics does, but for redundant
    /// adds of integers. [`WorkQueue::explain`] says of a ready key when the next token is there.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) says [`BuildError::Rate`] if no key could ever be handed out (a
    /// rate or a burst of 0, a negative rate, no number, less than a key in 580 years), or if it
    /// is no limit (infinite).
    ///
    /// ```
    /// # use requeue::{FakeClock, WorkQueue};
    /// # use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).rate(10.0, 2).build()?;
    /// q.add_many(["a", "b", "c"]).all()?;
    /// let items = q.try_get_many(10)?;
    /// assert_eq!(items.len(), 2); // the burst
    /// assert!(q.try_get().is_err());
    /// assert_eq!(q.explain("c").to_string(), "ready, next in line; the rate lets a key go in 100 ms");
    /// clock.advance(Duration::from_millis(100));
    /// assert_eq!(q.try_get()?.key(), &"c");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("throttle", "qps"))]
    pub fn rate(mut self, keys: f64, burst: u32) -> Self {
        self.settings.rate = Some((keys, burst));
        self
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
        self.settings.config.timers_absorbed = absorbed;
        self
    }

    /// What triggers do for a key that waits out a failure, and during a run that fails, where
    /// they do not say so themselves with [`Add::in_backoff`](crate::Add::in_backoff):
    /// [`InBackoff::Run`] by default, as in client-go.
    ///
    /// [`add_rate_limited`](WorkQueue::add_rate_limited) is not asked: it is what begins a
    /// back-off.
    ///
    /// ```
    /// use requeue::{FakeClock, InBackoff, WorkQueue};
    /// use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let q = WorkQueue::builder().clock(clock.clone()).in_backoff(InBackoff::Respect).build()?;
    /// q.add("web")?;
    /// let item = q.try_get()?;
    /// q.add("web")?; // the handler writes the object's status, and this is the echo
    /// item.retry_after(Duration::from_secs(5)).expect("open");
    /// assert!(q.try_get().is_err()); // the echo has joined the run that comes after 5 s
    /// clock.advance(Duration::from_secs(5));
    /// assert_eq!(q.try_get()?.attempt(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn in_backoff(mut self, in_backoff: InBackoff) -> Self {
        self.settings.config.in_backoff = in_backoff;
        self
    }

    /// What a guard does that is dropped before its run was ended by a call:
    /// [`Unfinished::Done`] by default.
    ///
    /// ```
    /// use requeue::{Unfinished, WorkQueue};
    /// let q = WorkQueue::builder().unfinished(Unfinished::Retry).build()?;
    /// q.add("a")?;
    /// drop(q.try_get()?);
    /// assert_eq!(q.num_requeues(&"a"), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unfinished(mut self, unfinished: Unfinished) -> Self {
        self.settings.unfinished = unfinished;
        self
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
        self.settings.config.timestamps = true;
        self.settings.metrics = Some((Arc::new(metrics), |shared| {
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
        Builder { settings: self.settings, hasher }
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
    pub fn build(mut self) -> Result<WorkQueue<K, V, S>, BuildError> {
        self.settings.check()?;
        Ok(self.queue())
    }

    pub(crate) fn queue(self) -> WorkQueue<K, V, S> {
        let Self { mut settings, hasher } = self;
        settings.config.failures_elsewhere = settings.limiter.keeps(Token(())) == Keeps::Own;
        let (metrics, attach) = settings.metrics.unzip();
        let mut core = Core::new(settings.config);
        if settings.journal.is_some() {
            core.set_outlived();
        }
        let mut shared =
            Shared::new(core, settings.clock, settings.limiter, metrics, settings.unfinished, settings.name);
        shared.on_dropped = settings.on_dropped;
        shared.takes_back = settings.journal.as_ref().is_some_and(|journal| journal.takes_back());
        shared.journal = settings.journal;
        let queue = WorkQueue::from_parts(shared, hasher);
        if !settings.labels.is_empty() {
            queue.shared.tell(|m| m.attach_labels(&settings.labels));
        }
        if let Some(attach) = attach {
            let gauges = attach(&queue.shared);
            queue.shared.tell(|m| m.attach(&queue.shared.name, gauges));
        }
        queue
    }
}

impl<K, V> Settings<K, V> {
    /// Refuses settings that do not go together, and writes into `config` what several of them say.
    fn check(&mut self) -> Result<(), BuildError> {
        if self.metrics.is_some() && self.name.is_empty() {
            return Err(BuildError::NoName);
        }
        if let Some(asked) = self.overdue_every.filter(|every| *every < 2) {
            return Err(BuildError::OverdueEvery { asked });
        }
        let of = |after| self.overdue_every.map_or(MaxWait::new(after), |every| MaxWait { after, every });
        let max_wait = self.max_wait.map(of);
        if let Some(order) = self.fairness.take_order(&self.config.order, self.priorities, max_wait)? {
            self.config.order = order;
        }
        match (self.priorities, &self.config.order) {
            (_, Order::Fair { .. }) => {}
            (false, _) if max_wait.is_some() => return Err(BuildError::MaxWaitWithoutPriorities),
            (false, _) => {}
            (true, Order::Fifo) => self.config.order = Order::Priority { max_wait },
            (true, _) => return Err(BuildError::OrderAndPriorities),
        }
        if self.bound.is_some() && self.journal.is_some() {
            return Err(BuildError::EngineAndBound);
        }
        let drop_oldest = self.on_dropped.is_some();
        match self.bound {
            Some(0) => return Err(BuildError::BoundOfZero),
            None if drop_oldest => return Err(BuildError::DropOldestWithoutBound),
            _ if drop_oldest && matches!(self.config.order, Order::Custom(_)) => {
                return Err(BuildError::DropOldestAndOwnOrder);
            }
            bound => self.config.bound = bound.map(|keys| Bound { keys, drop_oldest }),
        }
        if let Some((keys, burst)) = self.rate {
            let asked = || BuildError::Rate { asked: format!("{keys:?} keys a second, {burst} at once,") };
            self.config.rate = Some(dispatch(keys, burst).ok_or_else(asked)?);
        }
        for (at, (name, _)) in self.labels.iter().enumerate() {
            if !is_label(name) {
                return Err(BuildError::LabelName { name: name.clone() });
            }
            let is_taken = self.labels[..at].iter().any(|(other, _)| other == name);
            if is_taken || OWN_LABELS.contains(&&**name) {
                return Err(BuildError::LabelTaken { name: name.clone() });
            }
        }
        Ok(())
    }
}

debug!([K, V, S] Builder<K, V, S>, |builder| {
    name: builder.settings.name,
    config: builder.settings.config,
    ..
});
