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

/// Error of [`try_get`](crate::WorkQueue::try_get), and of a [`Get`](crate::Get) with a time limit.
///
/// ```
/// # use requeue::{GetError, WorkQueue};
/// # use std::time::Duration;
/// let q = WorkQueue::<u32>::new();
/// assert_eq!(q.try_get().err(), Some(GetError::Empty));
/// assert_eq!(q.get().timeout(Duration::ZERO).wait().err(), Some(GetError::Empty));
/// q.shut_down();
/// assert_eq!(q.try_get().err(), Some(GetError::ShutDown));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GetError {
    /// No key is ready now, or none was until the end of the time limit.
    Empty,
    /// The queue is shut down, and no key will be ready any more.
    ShutDown,
}

messages!(GetError {
    Empty => "no key is ready",
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
    /// `every` is less than 2: all hand-outs would go to overdue keys.
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
    NoName => "a queue with metrics needs a name: call .name(\"…\") on the builder",
    OrderAndPriorities => "priorities exclude another order: remove .order(…), or .priorities()",
    BoundOfZero => "bound must be at least 1: with 0 the queue would accept no key",
    DropOldestWithoutBound => ".drop_oldest(…) needs a bound: call .bound(…) on the builder, or remove .drop_oldest(…)",
    DropOldestAndOwnOrder => "with a custom order the oldest key is unknown: remove .drop_oldest(…), or .order(…)",
    EngineAndBound => "`.bound(…)` is not supported with an engine: remove it, or limit adds yourself",
    MaxWaitWithoutPriorities => ".max_wait(…) needs priorities or groups: \
        call .priorities() or .group_by(…) on the builder, or remove .max_wait(…)",
    OverdueEvery { asked } => "invalid .overdue_every({asked}): use at least 2, so that other keys are handed out too",
    OrderAndGroups => "groups exclude another order: remove .order(…), or .group_by(…)",
    NothingWithinGroups => ".priorities_within_groups() needs priorities and groups: \
        call .priorities() and .group_by(…) on the builder, or remove it",
    GroupCapZero => "group cap must be at least 1: with 0 its keys would never run",
    Rate { asked } => "invalid dispatch rate {asked}: use a finite, positive rate and a burst of at least 1 \
        (for no limit remove .rate(…))",
    LabelName { name } => "invalid label name {name:?}: use ASCII letters, digits and _, not starting with a digit or __",
    LabelTaken { name } => "duplicate label {name:?}: use each name once, and none of the metrics' own: \
        name, le, quantile, outcome, priority, group",
});
