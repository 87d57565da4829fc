//! A call that is being written: waited for or awaited.

use crate::writer::Writer;
use requeue::engine::Call;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// What has become of a call.
pub(crate) struct Answer<T, E> {
    state: Mutex<State<T, E>>,
    told: Condvar,
}

/// The answer once it is there, and the waker of a task that waits for it.
type State<T, E> = (Option<Result<T, E>>, Option<Waker>);

impl<T, E> Default for Answer<T, E> {
    fn default() -> Self {
        Self { state: Mutex::new((None, None)), told: Condvar::new() }
    }
}

impl<T, E> Answer<T, E> {
    pub(crate) fn tell(&self, what: Result<T, E>) {
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
}

/// A call that is noted, and not written yet.
pub(crate) struct Writing<T, E> {
    answer: Arc<Answer<T, E>>,
    writer: Arc<Writer>,
    /// Somebody sees to it that it is written.
    asked: bool,
}

impl<T, E> Writing<T, E> {
    pub(crate) fn new(answer: Arc<Answer<T, E>>, writer: Arc<Writer>) -> Self {
        Self { answer, writer, asked: false }
    }
}

impl<T: Send, E: Send> Call<T, E> for Writing<T, E> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let mut state = self.answer.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = state.0.take() {
            return Poll::Ready(told);
        }
        state.1 = Some(cx.waker().clone());
        drop(state);
        if !std::mem::replace(&mut self.asked, true) {
            self.writer.ask();
        }
        Poll::Pending
    }

    fn wait(mut self: Box<Self>) -> Result<T, E> {
        if !std::mem::replace(&mut self.asked, true) {
            self.writer.lead();
        }
        let mut state = self.answer.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(told) = state.0.take() {
                return told;
            }
            state = self.answer.told.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T, E> Drop for Writing<T, E> {
    fn drop(&mut self) {
        if !self.asked {
            self.writer.ask();
        }
    }
}
