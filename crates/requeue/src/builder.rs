//! Building a queue with settings.

use crate::adders::OnDropped;
use crate::clock::{Clock, SystemClock};
use crate::error::BuildError;
use crate::fairness::Fairness;
use crate::hash::RandomState;
use crate::hold::Shared;
use crate::journal::Journal;
use crate::limiter::{Keeps, RateLimiter, counted_controller, sealed::Token};
use crate::metrics::{Gauges, Metrics};
use crate::queue::WorkQueue;
use requeue_core::{Bound, Config, Core, Debounce, InBackoff, MaxWait, Merge, Order, Rate};
use std::hash::Hash;
use std::sync::Arc;
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

/// Settings of a builder except the hasher, whose type can change.
pub(crate) struct Settings<K, V> {
    name: String,
    labels: Vec<(String, String)>,
    config: Config<K, V>,
    clock: Arc<dyn Clock>,
    limiter: Box<dyn RateLimiter<K>>,
    metrics: Option<(Arc<dyn Metrics>, Attach<K, V>)>,
    retry_dropped: bool,
    priorities: bool,
    max_wait: Option<Duration>,
    overdue_every: Option<u32>,
    bound: Option<usize>,
    on_dropped: Option<OnDropped<K, V>>,
    pub(crate) fairness: Fairness<K>,
    pub(crate) journal: Option<Arc<dyn Journal<K, V>>>,
    /// Keys per second, and burst.
    rate: Option<(f64, u32)>,
}

/// Label names that the queue's own metrics use or that Prometheus reserves.
const OWN_LABELS: [&str; 6] = ["name", "le", "quantile", "outcome", "priority", "group"];

/// Whether Prometheus accepts a label of this name.
fn is_label(name: &str) -> bool {
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    begins_well
        && !name.starts_with("__")
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Makes the function that reads a queue's gauges. Created where `K` and `V` are known to be `'static`.
type Attach<K, V> = fn(&Arc<Shared<K, V>>) -> Arc<dyn Fn() -> Option<Gauges> + Send + Sync>;

impl<K: Hash + Eq> WorkQueue<K> {
    /// A queue with the defaults: first in first out, the system's clock, no metrics, and client-go's default
    /// limiter for controllers. That limiter slows all keys down together when many fail: see
    /// [`add_rate_limited`](Self::add_rate_limited).
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

    /// A builder for a queue with other settings.
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
    /// A builder for a queue whose keys carry values. `merge` joins the values of one key at each trigger,
    /// the older value first. It runs under the queue's lock, and so does the drop of the value that it does
    /// not keep: both must be short and must not call the queue.
    ///
    /// If `merge` panics, the panic reaches the caller, the trigger is not accepted, and the key keeps what
    /// `merge` left of the older value.
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
            retry_dropped: false,
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
    /// Sets the queue's name: the label of its metrics.
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

    /// Adds a constant label to the queue's metrics, in addition to its [`name`](Self::name). Use it to tell
    /// queues of the same name apart, for example by cluster or shard. Call it once for each label. The
    /// labels go to the metrics sink ([`Metrics::attach`]); without a sink they have no effect.
    ///
    /// [`build`](Self::build) refuses a name that Prometheus does not accept (ASCII letters, digits and `_`,
    /// not starting with a digit or `__`), a second label of the same name, and the names that queue metrics
    /// use: `name`, `le`, `quantile`, `outcome`, `priority` and `group`. Values may be anything.
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

    /// Sets the source of time. The default is [`SystemClock`].
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

    /// Sets the limiter, which decides the delay of retries and of
    /// [`add_rate_limited`](WorkQueue::add_rate_limited).
    ///
    /// The default is client-go's for controllers (`DefaultTypedControllerRateLimiter`): the longer of a
    /// per-key exponential back-off from 5 ms to 1,000 s and one bucket for all keys of 10 per second with a
    /// burst of 100.
    ///
    /// Because the bucket is shared, the last of 1,000 keys that fail at once comes back after 90 s.
    /// [`default_controller_without_bucket`](crate::limiter::default_controller_without_bucket) is that
    /// limiter without the bucket.
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

    /// Sets the order of the ready line. The default is first in first out.
    ///
    /// ```
    /// let q = requeue::WorkQueue::<u32>::builder().order(requeue::Order::Lifo).build()?;
    /// q.add(1)?;
    /// q.add(2)?;
    /// assert_eq!(*q.try_get()?.key(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// An order of your own:
    ///
    /// ```
    /// use requeue::{Order, ReadyOrder, Ticket, WorkQueue};
    /// #[derive(Default)]
    /// struct Smallest(std::collections::BTreeSet<(u32, Ticket)>);
    /// impl ReadyOrder<u32> for Smallest {
    ///     fn push(&mut self, key: &u32, ticket: Ticket) { self.0.insert((*key, ticket)); }
    ///     fn pop(&mut self) -> Option<Ticket> { self.0.pop_first().map(|(_, t)| t) }
    /// }
    /// let q = WorkQueue::builder().order(Order::Custom(Box::new(Smallest::default()))).build()?;
    /// for key in [3, 1, 2] { q.add(key)?; }
    /// assert_eq!(*q.try_get()?.key(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("NewDelayingQueueWithCustomQueue"))]
    pub fn order(mut self, order: Order<K>) -> Self {
        self.settings.config.order = order;
        self
    }

    /// Allows triggers to have a priority, any `i16`: [`Add::priority`]. Higher priorities go first, and keys
    /// of one priority in the order in which they became ready. Off by default: such a queue pays nothing for
    /// it, and refuses a trigger with a priority.
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
    /// * [`Item::priority`] and [`Run::priority`](crate::Run::priority) return it.
    ///
    /// By itself this can starve a key: it is not handed out while keys of higher priority arrive as fast as
    /// they are worked off. [`max_wait`](Self::max_wait) gives such keys a share of the hand-outs.
    ///
    /// A hundred levels cost no more than one: the highest level is found in three words, for any number of
    /// levels and keys.
    ///
    /// # Example: as Kubernetes' controllers do it
    ///
    /// controller-runtime gives priority -100 to the objects of the initial list and of a periodic resync, so
    /// that new changes go first:
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
    /// With an [`order`](Self::order) other than first in first out, [`build`](Self::build) returns
    /// [`BuildError::OrderAndPriorities`].
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
    /// * A backlog older than `max_wait` does not reverse the order: of 8 hand-outs, 7 still go to the
    ///   highest priority.
    /// * With [groups](Self::group_by) an overdue key waits for its group's turn, so the bounds on turns
    ///   still hold. One of every 8 hand-outs goes to the priority of the oldest overdue key that may be
    ///   served, and within it to the group whose turn it is. With
    ///   [`priorities_within_groups`](Self::priorities_within_groups), one of every 8 hand-outs of each group
    ///   goes to the group's oldest overdue key. Without priorities the oldest key of a group goes first
    ///   anyway, and `max_wait` changes nothing.
    ///
    /// A key's age counts from when it became ready. For a timer that is its due instant, but no earlier than
    /// the last key that became ready before the timer was looked at. A trigger that raises the key's
    /// priority does not change its age. The age stands still while the queue or the key's group is
    /// [paused](crate::WorkQueue::pause). It starts anew when a pause of the key itself ends, because the key
    /// goes to the back of the line. It goes on while
    /// a group is at its cap or a rate has no token.
    ///
    /// With zero, every ready key is overdue. A time that is never reached, such as `Duration::MAX`, has no
    /// effect.
    ///
    /// Such a queue reads its clock in every call except redundant adds of integers, like one with metrics.
    ///
    /// # Errors
    ///
    /// Without priorities or groups, [`build`](Self::build) returns [`BuildError::MaxWaitWithoutPriorities`].
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

    /// Sets how many hand-outs there are for each one that goes to an overdue key, with
    /// [`max_wait`](Self::max_wait): 8 by default. A smaller number works an old backlog off sooner, but
    /// keeps urgent keys waiting longer meanwhile.
    ///
    /// # Errors
    ///
    /// With less than 2, [`build`](Self::build) returns [`BuildError::OverdueEvery`]: all hand-outs would go
    /// to overdue keys.
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

    /// Debounces immediate triggers: [`add`](WorkQueue::add) and similar calls, and delays of zero. Off by
    /// default. A trigger can override it.
    ///
    /// A trigger opens a window for its key, and each further trigger pushes the window's end back. The
    /// window ends when no trigger has come for the debounce's `quiet`, and at the latest `max` after the
    /// first. Then the key becomes ready, once. With [`leading`](crate::Debounce::leading) the first trigger
    /// runs at once, and those that come in its window give one more run.
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
    /// * [`state`](WorkQueue::state), [`stats`](WorkQueue::stats) and snapshots report a key with an open
    ///   window as waiting. After a leading run they do so for the rest of its window.
    /// * [`shut_down`](WorkQueue::shut_down) and drains close windows: their keys become ready, and are not dropped. A
    ///   drain that waits for waiting keys waits until windows end.
    /// * [`cancel`](WorkQueue::cancel) takes the window away.
    ///
    /// Such a queue reads its clock in every call except redundant adds of integers, like one with metrics.
    /// [`Add::debounced`](crate::Add::debounced) overrides the setting for one trigger.
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

    /// Sets the maximum number of keys that the queue knows: distinct keys that are ready, waiting or held. A
    /// trigger of another key then finds the queue full.
    ///
    /// * [`add`](WorkQueue::add) and its like are refused with
    ///   [`Refused::Full`](crate::Refused::Full), and give the key back.
    /// * [`add_when_room`](WorkQueue::add_when_room) waits.
    /// * With [`drop_oldest`](Self::drop_oldest) the key that has been ready longest makes room.
    ///
    /// A trigger of a key that is ready, waiting or held never needs room. A retry does not either: its key
    /// is held. Keys that are known only because they failed, are paused, or still have a guard do not count.
    /// The bound is never exceeded, even by concurrent calls: an
    /// [`add_rate_limited`](WorkQueue::add_rate_limited) takes its place before a user's limiter is asked.
    ///
    /// A [`restore`](WorkQueue::restore) needs room like any trigger.
    ///
    /// # Errors
    ///
    /// With zero, [`build`](Self::build) returns [`BuildError::BoundOfZero`].
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

    /// When the queue is at its [`bound`](Self::bound), lets a new key replace the key that has been ready
    /// longest. That key is [cancelled](WorkQueue::cancel), with its timer and its value, and `on_dropped` is
    /// called, so that no key is lost silently. Its failures stay on record. If no key is ready, the trigger
    /// is refused. Priority does not count here: the oldest key goes, even with the highest priority. A key
    /// that is itself [paused](WorkQueue::pause) is not dropped. Keys of a paused queue are, and those of
    /// a group that is paused, at its cap or without a token.
    ///
    /// `on_dropped` runs in the call that added the new key, after the add and outside the lock; it may call
    /// the queue. A panic of it is caught.
    ///
    /// On such a queue redundant adds of integers take the lock.
    ///
    /// # Errors
    ///
    /// Without a bound, [`build`](Self::build) returns [`BuildError::DropOldestWithoutBound`]; with a
    /// [custom order](Order::Custom), [`BuildError::DropOldestAndOwnOrder`].
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

    /// Limits the dispatch rate to `keys` keys per second, with a burst of `burst`. The default is no limit,
    /// which costs nothing.
    ///
    /// This is the rate of runs, not of triggers: a key is charged when it is handed out, so triggers that
    /// coalesce cost nothing, and neither does a cancelled key. The limit is a token bucket: it holds `burst`
    /// tokens, starts full, and each key takes one. In any time `t` at most `burst + keys * t` keys are
    /// handed out. The arithmetic is exact, as in [`TokenBucket`](crate::limiter::TokenBucket).
    ///
    /// * Without a token, a queue with ready keys behaves like an empty one: getters wait, one of them wakes
    ///   up for the next token, and [`WorkQueue::try_get`] returns "empty". [`WorkQueue::len`] still counts
    ///   the ready keys.
    /// * A batch gets as many keys as there are tokens.
    /// * The order of keys does not change.
    /// * A token that was taken does not come back, however the run ends.
    /// * A drain, and work after [`WorkQueue::shut_down`], keep to the rate too. Give a drain a deadline if
    ///   it may be in a hurry, or [lift](WorkQueue::lift_rate) the rate.
    ///
    /// Such a queue reads its clock in every get, and not to add a key or to end a run. For a ready key,
    /// [`WorkQueue::explain`] reports when the next token is available.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) returns [`BuildError::Rate`] if no key could ever be handed out (a rate or
    /// burst of 0, a negative rate, NaN, less than one key in 580 years), or if the rate is infinite.
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
    /// assert_eq!(q.explain("c").to_string(), "ready, next in line; the rate admits a key in 100 ms");
    /// clock.advance(Duration::from_millis(100));
    /// assert_eq!(q.try_get()?.key(), &"c");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("throttle", "qps"))]
    pub fn rate(mut self, keys: f64, burst: u32) -> Self {
        self.settings.rate = Some((keys, burst));
        self
    }

    /// Lets a run that starts absorb the timer that its key had before it started, including a back-off's.
    /// Timers set during the run stay. Off by default: the timer's run comes too, as in client-go.
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

    /// Sets the default [`InBackoff`]: what triggers do for a key that waits out a failure, and during a run
    /// that fails. [`InBackoff::Run`] by default, as in client-go.
    /// [`Add::in_backoff`](crate::Add::in_backoff) overrides it for one trigger.
    ///
    /// [`add_rate_limited`](WorkQueue::add_rate_limited) ignores this setting: it is the call that begins a
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

    /// Sets how a run ends whose guard is dropped before a call has ended it: with `true` it is a
    /// [retry](crate::Item::retry), by default it is [done](crate::Item::done).
    ///
    /// The limiter is asked as for any retry, and the value goes back. If the queue accepts no retries any more, it is
    /// done, and counted as a refused retry. Use this for guards that are held across an `.await` in tasks that
    /// can be cancelled: otherwise their drop marks unfinished work done. (Items still in a batch when a panic
    /// unwinds through it are always put back: see [`Items`](crate::Items).)
    ///
    /// ```
    /// # use requeue::{FakeClock, WorkQueue};
    /// let q = WorkQueue::builder().retry_dropped(true).clock(FakeClock::new()).build()?;
    /// q.add("a")?;
    /// drop(q.try_get()?);
    /// assert_eq!((q.num_requeues(&"a"), q.stats().waiting), (1, 1), "it comes back");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry_dropped(mut self, retry: bool) -> Self {
        self.settings.retry_dropped = retry;
        self
    }

    /// Sets the sink of the queue's metrics; see [`Metrics`]. Without a sink no timestamps are kept, and no
    /// clock is read for them.
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
            let shared = Arc::downgrade(shared);
            Arc::new(move || shared.upgrade().map(|shared| shared.gauges()))
        }));
        self
    }

    /// Sets the hasher. The default is [`RandomState`].
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
    /// [`BuildError`] names the setting to change.
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
        let mut shared = Shared::new(
            core,
            settings.clock,
            settings.limiter,
            metrics,
            settings.retry_dropped,
            settings.name,
        );
        shared.on_dropped = settings.on_dropped;
        shared.takes_back = settings.journal.as_ref().is_some_and(|journal| journal.takes_back());
        shared.journal = settings.journal;
        let queue = WorkQueue::from_parts(shared, hasher);
        if let Some(attach) = attach {
            let gauges = attach(&queue.shared);
            queue.shared.tell_metrics(|m| m.attach(&queue.shared.name, &settings.labels, gauges));
        }
        queue
    }
}

impl<K, V> Settings<K, V> {
    /// Refuses settings that exclude each other, and writes settings that several calls make into `config`.
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
            self.config.rate = Some(Rate::per_second(keys, burst).ok_or_else(asked)?);
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
