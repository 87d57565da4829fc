//! What can be refused, and what comes back with it.

use std::fmt;

pub use requeue_core::{Added, NotHeld, Refused};

/// A refused trigger: nothing has changed, and key and value come back.
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

impl<K, V> fmt::Debug for AddError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddError").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<K, V> fmt::Display for AddError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<K, V> std::error::Error for AddError<K, V> {}

/// What a trigger returns: what became of it, or the refused key.
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

/// Why [`try_get`](crate::WorkQueue::try_get) has no key.
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

impl fmt::Display for TryGetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no key is ready",
            Self::ShutDown => "the queue is shut down and worked off",
        })
    }
}

impl std::error::Error for TryGetError {}

/// Why [`get().timeout(d)`](crate::Get::timeout) has no key.
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

impl fmt::Display for GetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimedOut => "no key was ready in time",
            Self::ShutDown => "the queue is shut down and worked off",
        })
    }
}

impl std::error::Error for GetError {}

/// Why a queue cannot be built.
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
    /// Metrics were asked for, and the queue's name is empty.
    NoName,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoName => {
                "a queue with metrics needs a name, which becomes the label of its metrics: \
                 call .name(\"…\") on the builder"
            }
        })
    }
}

impl std::error::Error for BuildError {}
