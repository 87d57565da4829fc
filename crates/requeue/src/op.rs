//! [`Op`] and [`EngineError`]: the calls of an engine, awaited or waited for.

use crate::{Add, AddError, Added, BoxError, Refused, WorkQueue};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Error of an engine's call, which says whether anything has changed.
///
/// ```
/// # use requeue::EngineError;
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
/// # use requeue::{AsyncQueue, EngineError, WorkQueue};
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

debug!([K, V] AddFailed<K, V>, |failed| { error: failed.error, .. });

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

/// A running call of an engine: await it, or [`wait`](Self::wait) for it.
///
/// The call has already begun. If this is dropped, the call still completes, and its result is lost.
///
/// ```
/// # use requeue::{AddFailed, AsyncQueue, Added, WorkQueue};
/// async fn feed(q: &impl AsyncQueue<String>) -> Result<Added, AddFailed<String>> {
///     q.add("a".into()).await
/// }
/// # let q = WorkQueue::<String>::new();
/// # assert!(smol::block_on(feed(&q)).is_ok());
/// assert_eq!(AsyncQueue::add(&q, "b".to_string()).wait()?, Added::Ready);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the call has begun, and only its result shows whether it succeeded"]
pub struct Op<T, E = EngineError>(State<T, E>);

enum State<T, E> {
    /// `None` once it was returned.
    Ended(Option<Result<T, E>>),
    Goes(Box<dyn Call<T, E>>),
}

/// The engine's implementation of an [`Op`].
///
/// ```
/// # use requeue::{EngineError, Op, engine::Call};
/// # use std::task::{Context, Poll};
/// struct Seven;
/// impl Call<u32, EngineError> for Seven {
///     fn poll(&mut self, _: &mut Context<'_>) -> Poll<Result<u32, EngineError>> {
///         Poll::Ready(Ok(7))
///     }
///     fn wait(self: Box<Self>) -> Result<u32, EngineError> {
///         Ok(7)
///     }
/// }
/// assert_eq!(Op::of(Seven).wait()?, 7);
/// # Ok::<(), EngineError>(())
/// ```
pub trait Call<T, E>: Send {
    /// The result, once the call has ended; otherwise the waker is woken when it ends. Not called after it
    /// returned one.
    ///
    /// ```
    /// # use requeue::{EngineError, Op, engine::Call};
    /// # use std::task::{Context, Poll};
    /// # struct Seven;
    /// # impl Call<u32, EngineError> for Seven {
    /// #     fn poll(&mut self, _: &mut Context<'_>) -> Poll<Result<u32, EngineError>> {
    /// #         Poll::Ready(Ok(7))
    /// #     }
    /// #     fn wait(self: Box<Self>) -> Result<u32, EngineError> {
    /// #         Ok(7)
    /// #     }
    /// # }
    /// assert_eq!(smol::block_on(Op::of(Seven))?, 7);
    /// # Ok::<(), EngineError>(())
    /// ```
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, E>>;

    /// Blocks the calling thread until the call ends.
    ///
    /// ```
    /// # use requeue::{EngineError, Op, engine::Call};
    /// # use std::task::{Context, Poll};
    /// # struct Seven;
    /// # impl Call<u32, EngineError> for Seven {
    /// #     fn poll(&mut self, _: &mut Context<'_>) -> Poll<Result<u32, EngineError>> {
    /// #         Poll::Ready(Ok(7))
    /// #     }
    /// #     fn wait(self: Box<Self>) -> Result<u32, EngineError> {
    /// #         Ok(7)
    /// #     }
    /// # }
    /// assert_eq!(Box::new(Seven).wait()?, 7);
    /// # Ok::<(), EngineError>(())
    /// ```
    fn wait(self: Box<Self>) -> Result<T, E>;
}

impl<T, E> Op<T, E> {
    /// A running call.
    ///
    /// ```
    /// # use requeue::{EngineError, Op, engine::Call};
    /// # use std::task::{Context, Poll};
    /// # struct Seven;
    /// # impl Call<u32, EngineError> for Seven {
    /// #     fn poll(&mut self, _: &mut Context<'_>) -> Poll<Result<u32, EngineError>> {
    /// #         Poll::Ready(Ok(7))
    /// #     }
    /// #     fn wait(self: Box<Self>) -> Result<u32, EngineError> {
    /// #         Ok(7)
    /// #     }
    /// # }
    /// assert_eq!(Op::of(Seven).wait()?, 7);
    /// # Ok::<(), EngineError>(())
    /// ```
    pub fn of(call: impl Call<T, E> + 'static) -> Self {
        Self(State::Goes(Box::new(call)))
    }

    /// Blocks the calling thread until the call has ended.
    ///
    /// # Errors
    ///
    /// The call's error.
    ///
    /// # Panics
    ///
    /// If it was awaited before, and has ended.
    ///
    /// ```
    /// # use requeue::{EngineError, Op};
    /// let ended: Op<u32> = Ok(7).into();
    /// assert_eq!(ended.wait()?, 7);
    /// # Ok::<(), EngineError>(())
    /// ```
    pub fn wait(self) -> Result<T, E> {
        match self.0 {
            State::Ended(Some(ended)) => ended,
            State::Ended(None) => panic!("the call has ended, and its result was returned"),
            State::Goes(call) => call.wait(),
        }
    }
}

impl<T, E> From<Result<T, E>> for Op<T, E> {
    /// A call that has ended.
    fn from(ended: Result<T, E>) -> Self {
        Self(State::Ended(Some(ended)))
    }
}

// what has ended is moved out, never pinned
impl<T, E> Unpin for Op<T, E> {}

impl<T, E> Future for Op<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = match &mut self.0 {
            State::Ended(ended) => return Poll::Ready(ended.take().expect("it is not polled after its end")),
            State::Goes(call) => call.poll(cx),
        };
        if ended.is_ready() {
            self.0 = State::Ended(None);
        }
        ended
    }
}

debug!([T, E] Op<T, E>, |op| { ended: matches!(op.0, State::Ended(_)), .. });

/// The adding side of a queue, in memory or an engine's.
///
/// ```
/// # use requeue::{AsyncQueue, EngineError, WorkQueue};
/// # use std::time::Duration;
/// async fn feed(q: &impl AsyncQueue<String>) -> Result<(), EngineError> {
///     q.add("a".into()).await?;
///     q.add_after("b".into(), Duration::from_secs(1)).await?;
///     Ok(())
/// }
/// smol::block_on(feed(&WorkQueue::new()))?; // in tests; in production an engine's queue
/// # Ok::<(), EngineError>(())
/// ```
pub trait AsyncQueue<K, V = ()> {
    /// Asks for a run of the key. When this has succeeded the trigger is as safe as the queue keeps it: an
    /// engine's survives the process.
    ///
    /// ```
    /// # use requeue::{Add, AsyncQueue, WorkQueue};
    /// # use std::time::Duration;
    /// # let q = WorkQueue::<u32>::new();
    /// AsyncQueue::add(&q, 7).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn add(&self, key: K) -> Op<Added, AddFailed<K, V>>;

    /// Asks for a run of the key after a delay.
    ///
    /// ```
    /// # use requeue::{Add, AsyncQueue, WorkQueue};
    /// # use std::time::Duration;
    /// # let q = WorkQueue::<u32>::new();
    /// AsyncQueue::add_after(&q, 7, Duration::from_secs(1)).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn add_after(&self, key: K, delay: Duration) -> Op<Added, AddFailed<K, V>>;

    /// Asks for a run of the key with the options of `how`.
    ///
    /// ```
    /// # use requeue::{Add, AsyncQueue, WorkQueue};
    /// # use std::time::Duration;
    /// # let q = WorkQueue::<u32>::new();
    /// AsyncQueue::add_with(&q, 7, Add::after(Duration::from_secs(1))).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn add_with(&self, key: K, how: Add<V>) -> Op<Added, AddFailed<K, V>>;
}

impl<K: Hash + Eq, V, S: BuildHasher> AsyncQueue<K, V> for WorkQueue<K, V, S> {
    fn add(&self, key: K) -> Op<Added, AddFailed<K, V>> {
        Self::add(self, key).map_err(AddFailed::from).into()
    }

    fn add_after(&self, key: K, delay: Duration) -> Op<Added, AddFailed<K, V>> {
        Self::add_after(self, key, delay).map_err(AddFailed::from).into()
    }

    fn add_with(&self, key: K, how: Add<V>) -> Op<Added, AddFailed<K, V>> {
        Self::add_with(self, key, how).map_err(AddFailed::from).into()
    }
}
