//! The outcomes that a handler returns, and the reports of runs that have ended or failed.

use crate::failure::{BoxError, Failure};
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// How a run ended.
///
/// ```
/// use requeue::Outcome;
/// use std::time::Duration;
/// let poll = Outcome::Again(Duration::from_secs(300));
/// let hopeless = Outcome::GiveUp("no such object".into());
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// It is done; the failures of the key are forgotten, as with [`Item::succeed`](crate::Item::succeed).
    Done,
    /// Not a failure: the failures are forgotten, a value that was not taken is dropped, and the
    /// key comes again after the delay.
    Again(Duration),
    /// Not a failure, and not done: like [`Again`](Self::Again), but a value that was not taken goes back, in
    /// front of those that came meanwhile.
    Postpone(Duration),
    /// It failed: the limiter says when the key comes back.
    Retry(BoxError),
    /// It failed: the limiter is asked and counts, but the key comes back after
    /// this delay.
    RetryAfter(Duration, BoxError),
    /// It failed and is not tried again: it is reported, and the key forgotten.
    /// If it was triggered meanwhile it still runs once more, at attempt 1.
    GiveUp(BoxError),
}

/// The clone of an error keeps its text and those of its sources, and not its type.
impl Clone for Outcome {
    fn clone(&self) -> Self {
        match self {
            Self::Done => Self::Done,
            Self::Again(delay) => Self::Again(*delay),
            Self::Postpone(delay) => Self::Postpone(*delay),
            Self::Retry(error) => Self::Retry(ErrorText::of(&**error)),
            Self::RetryAfter(delay, error) => Self::RetryAfter(*delay, ErrorText::of(&**error)),
            Self::GiveUp(error) => Self::GiveUp(ErrorText::of(&**error)),
        }
    }
}

/// An error of which only the text is known, and its sources'.
struct ErrorText {
    display: String,
    debug: String,
    source: Option<BoxError>,
}

impl ErrorText {
    fn of(error: &dyn Error) -> BoxError {
        let (display, debug) = (error.to_string(), format!("{error:?}"));
        Box::new(Self { display, debug, source: error.source().map(Self::of) })
    }
}

impl fmt::Display for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.display)
    }
}

impl fmt::Debug for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.debug)
    }
}

impl Error for ErrorText {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// A type that a handler may return: `()`, an [`Outcome`], or a `Result<_, BoxError>` of
/// either, whose `Err` is a [`Retry`](Outcome::Retry).
///
/// The error is [`BoxError`] and no other, so that the compiler knows what `?` turns an
/// error into: a handler that ends with `Ok(())` or `Ok(outcome)` needs no annotation,
/// blocking or async.
///
/// ```
/// use requeue::{Outcome, WorkQueue, Worker};
/// use std::time::Duration;
/// let q = WorkQueue::<String>::new();
/// let worker = Worker::of(&q).start_threads(|run| {
///     let seconds: u64 = run.key().parse()?; // any error: the key comes back
///     Ok(Outcome::Again(Duration::from_secs(seconds)))
/// })?;
/// # drop(worker);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// A function with an error type of its own is called with `Ok(f()?)`:
///
/// ```
/// # use requeue::{WorkQueue, Worker};
/// fn sync(key: &str) -> Result<(), std::num::ParseIntError> {
///     key.parse::<u32>().map(drop)
/// }
/// # let q = WorkQueue::<String>::new();
/// let worker = Worker::of(&q).start_threads(|run| Ok(sync(run.key())?))?;
/// # drop(worker);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Given as it is, the compiler says so:
///
/// ```compile_fail,E0277
/// # use requeue::{WorkQueue, Worker};
/// # fn sync(key: &str) -> Result<(), std::num::ParseIntError> {
/// #     key.parse::<u32>().map(drop)
/// # }
/// # let q = WorkQueue::<String>::new();
/// let worker = Worker::of(&q).start_threads(|run| sync(run.key()))?;
/// # drop(worker);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// and so it does where an async handler is given to
/// [`start_threads`](crate::WorkerBuilder::start_threads), which calls blocking ones:
///
/// ```compile_fail,E0277
/// # use requeue::{WorkQueue, Worker};
/// # let q = WorkQueue::<String>::new();
/// let worker = Worker::of(&q).start_threads(|run| async move { println!("{}", run.key()) })?;
/// # drop(worker);
/// # Ok::<(), std::io::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "this handler returns `{Self}`",
    note = "a handler returns `()`, `requeue::Outcome`, or `Result<_, requeue::BoxError>` of either",
    note = "if it returns a `Result` with an error type of its own: write `Ok(result?)`, which turns the error into a `BoxError`",
    note = "if it is an async handler (it returns a future): give it to `start_on(executor, handler)` or `run(handler)`, because `start_threads` calls blocking ones"
)]
pub trait IntoOutcome {
    /// The outcome that this stands for.
    ///
    /// ```
    /// use requeue::{BoxError, IntoOutcome, Outcome};
    /// use std::time::Duration;
    /// let polled: Result<Outcome, BoxError> = Ok(Outcome::Again(Duration::from_secs(300)));
    /// assert!(matches!(polled.into_outcome(), Outcome::Again(_)));
    /// ```
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

/// The only one for a `Result`: where there were another, `?` would not know its error.
impl<T: IntoOutcome> IntoOutcome for Result<T, BoxError> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => Outcome::Retry(error),
        }
    }
}

/// The fate of a key when a run of it has ended.
///
/// ```
/// use requeue::Fate;
/// use std::time::Duration;
/// let text = |fate| match fate {
///     Fate::Retry(delay) | Fate::Again(delay) => format!("comes back in {delay:?}"),
///     other => format!("{other:?}"),
/// };
/// assert_eq!(text(Fate::Again(Duration::from_secs(5))), "comes back in 5s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// The run succeeded, and the failures of the key are forgotten.
    Done,
    /// The run did not fail, and the key comes again after this delay.
    Again(Duration),
    /// The run failed, and the key comes back after this delay.
    Retry(Duration),
    /// The run failed and the key is not tried again.
    GaveUp,
    /// The key was to come back, but the queue is shut down and refused it. It was
    /// counted as refused.
    Refused,
}

/// A report of a run that has ended: see
/// [`WorkerBuilder::on_end`](crate::WorkerBuilder::on_end).
///
/// ```
/// # use requeue::RunReport;
/// fn print(key: &String, run: &RunReport<'_>) {
///     println!("{key}: attempt {}: {:?} after {:?}", run.attempt, run.fate, run.took);
/// }
/// # let _ = requeue::Worker::of(&requeue::WorkQueue::new()).on_end(print);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunReport<'a> {
    /// Which run in a row of failing ones it was, from 1: see
    /// [`Run::attempt`](crate::Run::attempt).
    pub attempt: u32,
    /// Why it failed, if it did.
    pub failure: Option<&'a Failure>,
    /// The fate of the key.
    pub fate: Fate,
    /// How long the run took, on the queue's clock: from the moment at which the worker had
    /// the key until its handler had returned or was dropped. Zero where the clock panicked.
    pub took: Duration,
}
