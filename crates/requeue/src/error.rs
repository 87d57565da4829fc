//! Errors of the public calls, with the key and value that come back.

use std::fmt;

pub use requeue_core::{Added, NotHeld, Refused};

/// A refused trigger, with its key and value. Nothing has changed.
///
/// ```
/// # use requeue::{WorkQueue, Refused};
/// let q = WorkQueue::<String>::new();
/// q.shut_down();
/// let refused = q.add("a".to_string()).unwrap_err();
/// assert_eq!((refused.key.as_str(), refused.reason), ("a", Refused::ShutDown));
/// ```
pub struct AddError<K, V = ()> {
    /// The key.
    pub key: K,
    /// Its value, if the trigger had one.
    pub value: Option<V>,
    /// Why it was refused.
    pub reason: Refused,
}

debug!([K, V] AddError<K, V>, |error| { reason: error.reason, .. });

impl<K, V> fmt::Display for AddError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<K, V> std::error::Error for AddError<K, V> {}

/// Result of a trigger: its effect, or the refused key.
///
/// ```
/// # use requeue::{AddResult, Added, WorkQueue};
/// fn feed(q: &WorkQueue<String>) -> AddResult<String> {
///     q.add("a".to_string())
/// }
/// assert_eq!(feed(&WorkQueue::new())?, Added::Ready);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type AddResult<K, V = ()> = Result<Added, AddError<K, V>>;

/// Error of [`try_get`](crate::WorkQueue::try_get).
///
/// ```
/// # use requeue::{TryGetError, WorkQueue};
/// let q = WorkQueue::<u32>::new();
/// assert_eq!(q.try_get().err(), Some(TryGetError::Empty));
/// q.shut_down();
/// assert_eq!(q.try_get().err(), Some(TryGetError::ShutDown));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TryGetError {
    /// No key is ready now.
    Empty,
    /// The queue is shut down, and no key will be ready any more.
    ShutDown,
}

messages!(TryGetError {
    Empty => "no key is ready",
    ShutDown => "the queue is shut down and worked off",
});

/// Error of [`get().timeout(d)`](crate::Get::timeout).
///
/// ```
/// # use requeue::{GetError, WorkQueue};
/// # use std::time::Duration;
/// let q = WorkQueue::<u32>::new();
/// assert_eq!(q.get().timeout(Duration::ZERO).wait().err(), Some(GetError::TimedOut));
/// q.shut_down();
/// assert_eq!(q.get().timeout(Duration::ZERO).wait().err(), Some(GetError::ShutDown));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GetError {
    /// No key was ready in time.
    TimedOut,
    /// The queue is shut down, and no key will be ready any more.
    ShutDown,
}

messages!(GetError {
    TimedOut => "no key was ready in time",
    ShutDown => "the queue is shut down and worked off",
});

/// Error of [`Builder::build`](crate::Builder::build).
///
/// ```
/// # struct Nothing;
/// # impl requeue::Metrics for Nothing {}
/// let unnamed = requeue::WorkQueue::<u32>::builder().metrics(Nothing).build().unwrap_err();
/// assert!(unnamed.to_string().contains("call .name("));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// Metrics need a name, and the queue's is empty.
    NoName,
    /// Priorities exclude another order.
    OrderAndPriorities,
    /// A maximum wait needs priorities or groups: without them no key is passed over.
    MaxWaitWithoutPriorities,
    /// With less than 2, all hand-outs would go to overdue keys.
    OverdueEvery {
        /// The number given.
        asked: u32,
    },
    /// A bound of 0 keys accepts no trigger.
    BoundOfZero,
    /// Dropping the oldest key needs a bound.
    DropOldestWithoutBound,
    /// Dropping the oldest key excludes a custom order.
    DropOldestAndOwnOrder,
    /// An engine's front cannot have a bound.
    EngineAndBound,
    /// Groups exclude another order.
    OrderAndGroups,
    /// Priorities within groups need both priorities and groups.
    NothingWithinGroups,
    /// A group with a cap of 0 would never run a key.
    GroupCapZero,
    /// The dispatch rate would hand out no key, or is infinite.
    Rate {
        /// The rate given.
        asked: String,
    },
    /// Prometheus does not accept this label name.
    LabelName {
        /// The name.
        name: String,
    },
    /// The label was given twice, or the queue's own metrics use the name.
    LabelTaken {
        /// The name.
        name: String,
    },
}

messages!(BuildError {
    NoName => "a queue with metrics needs a name, which becomes the label of its metrics: \
        call .name(\"…\") on the builder",
    OrderAndPriorities => "priorities are an order, first in first out within each of them: \
        leave out .order(…) and .custom_order(…), or .priorities()",
    BoundOfZero => "a bound of 0 takes no key at all: give .bound(…) at least 1, or leave it out",
    DropOldestWithoutBound => "only a queue with a bound drops keys for room: \
        call .bound(…) on the builder too, or leave out .drop_oldest(…)",
    DropOldestAndOwnOrder => "with an order of your own the queue does not choose which key to drop: \
        leave out .drop_oldest(…), or .custom_order(…)",
    EngineAndBound => "an engine keeps no bound: leave out .bound(…), or count in front of the queue",
    MaxWaitWithoutPriorities => "only a queue with priorities or groups passes keys over: \
        call .priorities() or .group_by(…) on the builder too, or leave out .max_wait(…)",
    OverdueEvery { asked } => "invalid .overdue_every({asked}): use at least 2, so that other keys are handed out too",
    OrderAndGroups => "groups that take turns are an order, first in first out within each of them: \
        leave out .order(…) and .custom_order(…), or .group_by(…)",
    NothingWithinGroups => "priorities within groups need priorities and groups: call .priorities() and \
        .group_by(…) on the builder too, or leave out .priorities_within_groups()",
    GroupCapZero => "a group of which no key may be held is never served: give .cap(…) at least 1",
    Rate { asked } => "a dispatch rate of {asked} is none: take a finite number of keys a second that is \
        above 5.5e-11 (a key in 580 years), and a burst of at least 1 key; without a limit leave out .rate(…)",
    LabelName { name } => "a label cannot be called {name:?}: take letters (a-z, A-Z), digits and _, \
        begin with no digit, and not with __, which Prometheus keeps for itself",
    LabelTaken { name } => "there is a label {name:?} already: give each label once, and none that is called \
        name, le, quantile, outcome, priority, tier or group, which the metrics have themselves",
});
