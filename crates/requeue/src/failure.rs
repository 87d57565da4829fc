//! Why runs fail.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Any error, as handlers return them.
///
/// ```
/// use requeue::{BoxError, IntoOutcome, Outcome};
/// fn reconcile(key: &str) -> Result<(), BoxError> {
///     if key.is_empty() {
///         return Err("the key is empty".into()); // as any error: `?` does it too
///     }
///     Ok(())
/// }
/// let Outcome::Retry(error) = reconcile("").into_outcome() else { panic!("it has failed") };
/// assert_eq!(error.to_string(), "the key is empty");
/// ```
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why a run failed.
///
/// ```
/// use requeue::Failure;
/// let failure = Failure::Panic("index out of bounds".to_string());
/// assert_eq!(failure.to_string(), "the handler panicked: index out of bounds");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The handler returned this error, or [`Item::give_up`](crate::Item::give_up) got it. Where a key is given
    /// up because the limiter or the clock panicked as the worker was to retry it, the error says that.
    Error(BoxError),
    /// The handler panicked, with this message.
    Panic(String),
    /// The handler took longer than the worker's time limit.
    TimeLimit(Duration),
    /// An async handler was dropped before it had returned: its task was cancelled,
    /// or the worker was stopped and its deadline came. Or
    /// [`cancel_run`](crate::WorkQueue::cancel_run) was called for the key.
    Cancelled,
    /// A drain has refused the retry of a failed run, and left the key
    /// [unfinished](crate::WorkQueue::take_unfinished). Only
    /// [`on_give_up`](crate::WorkerBuilder::on_give_up) hears of it so.
    RetryRefused,
    /// A drain has dropped the key's timer, or refused a later one that its run asked for, and left the key
    /// [unfinished](crate::WorkQueue::take_unfinished). Only
    /// [`on_give_up`](crate::WorkerBuilder::on_give_up) hears of it so.
    TimerDropped,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => error.fmt(f),
            Self::Panic(message) => write!(f, "the handler panicked: {message}"),
            Self::TimeLimit(limit) => write!(f, "the handler took longer than {limit:?}"),
            Self::Cancelled => f.write_str("the handler was cancelled before it had returned"),
            Self::RetryRefused => f.write_str("its retry was refused by a shutdown"),
            Self::TimerDropped => f.write_str("its timer was dropped by a shutdown"),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Error(error) => error.source(),
            _ => None,
        }
    }
}
