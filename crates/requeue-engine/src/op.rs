//! [`Op`]: a call of an engine, awaited or waited for.

use crate::EngineError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A running call of an engine: await it, or [`wait`](Self::wait) for it.
///
/// The call has already begun. If this is dropped, the call still completes, and its result is lost.
///
/// ```
/// # use requeue::{Added, WorkQueue};
/// # use requeue_engine::{AddFailed, AsyncQueue};
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
/// # use requeue_engine::{Call, EngineError, Op};
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
    /// # use requeue_engine::{Call, EngineError, Op};
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
    /// # use requeue_engine::{Call, EngineError, Op};
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
    /// # use requeue_engine::{Call, EngineError, Op};
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
    /// # use requeue_engine::{EngineError, Op};
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

impl<T: 'static, E: 'static> Op<T, E> {
    /// The call, with its value changed by `f`.
    ///
    /// ```
    /// # use requeue_engine::{EngineError, Op};
    /// let ended: Op<u32> = Ok(7).into();
    /// assert_eq!(ended.map(|seven| seven + 1).wait()?, 8);
    /// # Ok::<(), EngineError>(())
    /// ```
    pub fn map<U>(self, f: impl FnOnce(T) -> U + Send + 'static) -> Op<U, E> {
        match self.0 {
            State::Ended(ended) => Op(State::Ended(ended.map(|ended| ended.map(f)))),
            State::Goes(call) => Op::of(Mapped(call, Some(f))),
        }
    }
}

/// A call, and what changes its value.
struct Mapped<T, E, F>(Box<dyn Call<T, E>>, Option<F>);

impl<T, U, E, F: FnOnce(T) -> U + Send> Call<U, E> for Mapped<T, E, F> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<U, E>> {
        let Self(call, f) = self;
        call.poll(cx).map(|ended| ended.map(f.take().expect("it is not polled after its end")))
    }

    fn wait(self: Box<Self>) -> Result<U, E> {
        let Self(call, f) = *self;
        call.wait().map(f.expect("it is not waited for after its end"))
    }
}

impl<T, E> From<Result<T, E>> for Op<T, E> {
    /// A call that has ended.
    fn from(ended: Result<T, E>) -> Self {
        Self(State::Ended(Some(ended)))
    }
}

// the result is moved out, never pinned
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

impl<T, E> fmt::Debug for Op<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op").field("ended", &matches!(self.0, State::Ended(_))).finish_non_exhaustive()
    }
}
