//! The answer to an engine's call, waited for or awaited.

use crate::op::Call;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// The result of a call. The side that does the work [tells](Self::tell) it, and an [`Op`](crate::Op) of the
/// call receives it.
///
/// ```
/// # use requeue_engine::{Answer, EngineError, Op};
/// # use std::sync::Arc;
/// let answer = Arc::new(Answer::default());
/// let tells = answer.clone();
/// std::thread::spawn(move || tells.tell(Ok(7)));
/// let op: Op<u32> = Op::of(answer);
/// assert_eq!(op.wait()?, 7);
/// # Ok::<(), EngineError>(())
/// ```
pub struct Answer<T, E> {
    state: Mutex<State<T, E>>,
    told: Condvar,
}

/// The answer, if it has come, and the waker of a task that waits for it.
type State<T, E> = (Option<Result<T, E>>, Option<Waker>);

impl<T, E> fmt::Debug for Answer<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.state.lock().is_ok_and(|state| state.0.is_some());
        f.debug_struct("Answer").field("told", &told).finish_non_exhaustive()
    }
}

impl<T, E> Default for Answer<T, E> {
    fn default() -> Self {
        Self { state: Mutex::new((None, None)), told: Condvar::new() }
    }
}

impl<T, E> Answer<T, E> {
    /// Sets the result and wakes the waiter. Called once.
    ///
    /// ```
    /// # use requeue_engine::{Answer, EngineError, Op};
    /// # use std::sync::Arc;
    /// let answer = Arc::new(Answer::<u32, EngineError>::default());
    /// answer.tell(Err(EngineError::ShutDown));
    /// assert!(Op::of(answer).wait().is_err());
    /// ```
    pub fn tell(&self, what: Result<T, E>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(what);
        let waker = state.1.take();
        drop(state);
        self.told.notify_one();
        if let Some(waker) = waker {
            // it is users' code
            drop(catch_unwind(AssertUnwindSafe(|| waker.wake())));
        }
    }

    /// Polls for the result; the waker is woken when it has come.
    ///
    /// ```
    /// # use requeue_engine::{Answer, EngineError};
    /// # use std::task::{Context, Waker};
    /// let answer = Answer::<u32, EngineError>::default();
    /// assert!(answer.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// ```
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = state.0.take() {
            return Poll::Ready(told);
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Blocks the calling thread until the answer has come.
    ///
    /// # Errors
    ///
    /// What the call failed with.
    ///
    /// ```
    /// # use requeue_engine::{Answer, EngineError};
    /// let answer = Answer::<u32, EngineError>::default();
    /// answer.tell(Ok(7));
    /// assert_eq!(answer.wait()?, 7);
    /// # Ok::<(), EngineError>(())
    /// ```
    pub fn wait(&self) -> Result<T, E> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(told) = state.0.take() {
                return told;
            }
            state = self.told.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T: Send, E: Send> Call<T, E> for Arc<Answer<T, E>> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        Answer::poll(self, cx)
    }

    fn wait(self: Box<Self>) -> Result<T, E> {
        Answer::wait(&self)
    }
}
