//! [`EngineError`]: why an engine's call failed, and whether anything has changed.

use requeue::{AddError, BoxError, Refused};
use std::error::Error;
use std::fmt;

/// Error of an engine's call, which says whether anything has changed.
///
/// ```
/// # use requeue_engine::EngineError;
/// fn may_be_called_again(error: &EngineError) -> bool {
///     matches!(error, EngineError::NotApplied(_) | EngineError::Unknown(_))
/// }
/// assert!(may_be_called_again(&EngineError::NotApplied("the disk is full".into())));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum EngineError {
    /// Nothing has changed. The call can be repeated.
    NotApplied(BoxError),
    /// Unknown whether it happened: the store failed before it answered. Adding a key again is harmless; a
    /// value that is added again may be merged twice.
    Unknown(BoxError),
    /// The queue is shut down. Nothing has changed.
    ShutDown,
    /// The process has lost the key: it was not heard of for the time of its lease, and others have the key.
    /// Nothing has changed.
    LeaseLost,
    /// The store's schema needs a newer program. Nothing has changed.
    Version {
        /// The store's version: the oldest program that it serves.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// A key or a value cannot be encoded or decoded.
    Codec(BoxError),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotApplied(why) => write!(f, "nothing has changed: {why}"),
            Self::Unknown(why) => write!(f, "it may have happened or not: {why}"),
            Self::ShutDown => f.write_str("the queue is shut down"),
            Self::LeaseLost => {
                f.write_str("nothing has changed: the run's lease is lost, and another process has the key")
            }
            Self::Version { found, known } => {
                write!(
                    f,
                    "the store's schema has version {found}, and this program knows up to {known}: use a newer release of the program"
                )
            }
            Self::Codec(why) => write!(f, "cannot encode or decode a key or value: {why}"),
        }
    }
}

impl Error for EngineError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotApplied(why) | Self::Unknown(why) | Self::Codec(why) => Some(&**why),
            Self::ShutDown | Self::LeaseLost | Self::Version { .. } => None,
        }
    }
}

/// A failed trigger of an engine, with its key and value.
///
/// ```
/// # use requeue::WorkQueue;
/// # use requeue_engine::{AsyncQueue, EngineError};
/// let q = WorkQueue::<u32>::new();
/// q.shut_down();
/// let failed = AsyncQueue::add(&q, 7).wait().unwrap_err();
/// assert!(failed.key == 7 && matches!(failed.error, EngineError::ShutDown));
/// ```
pub struct AddFailed<K, V = ()> {
    /// The key.
    pub key: K,
    /// The value, if there was one.
    pub value: Option<V>,
    /// The error.
    pub error: EngineError,
}

impl<K, V> fmt::Debug for AddFailed<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddFailed").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<K, V> fmt::Display for AddFailed<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<K, V> Error for AddFailed<K, V> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl<K, V> From<AddFailed<K, V>> for EngineError {
    fn from(failed: AddFailed<K, V>) -> Self {
        failed.error
    }
}

impl<K, V> From<AddError<K, V>> for AddFailed<K, V> {
    fn from(refused: AddError<K, V>) -> Self {
        let AddError { key, value, reason } = refused;
        let error = match reason {
            Refused::ShutDown => EngineError::ShutDown,
            reason => EngineError::NotApplied(reason.into()),
        };
        Self { key, value, error }
    }
}
