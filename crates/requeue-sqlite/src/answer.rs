//! A call that is being written: waited for or awaited.

use crate::writer::Writer;
use requeue_engine::{Answer, Call};
use std::sync::Arc;
use std::task::{Context, Poll};

/// A call that is noted, and not written yet.
pub(crate) struct Writing<T, E> {
    answer: Arc<Answer<T, E>>,
    writer: Arc<Writer>,
    /// Whether the write was requested.
    asked: bool,
}

impl<T, E> Writing<T, E> {
    pub(crate) fn new(answer: Arc<Answer<T, E>>, writer: Arc<Writer>) -> Self {
        Self { answer, writer, asked: false }
    }
}

impl<T: Send, E: Send> Call<T, E> for Writing<T, E> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        let told = self.answer.poll(cx);
        if told.is_pending() && !std::mem::replace(&mut self.asked, true) {
            self.writer.ask();
        }
        told
    }

    fn wait(mut self: Box<Self>) -> Result<T, E> {
        if !std::mem::replace(&mut self.asked, true) {
            self.writer.lead();
        }
        self.answer.wait()
    }
}

impl<T, E> Drop for Writing<T, E> {
    fn drop(&mut self) {
        if !self.asked {
            self.writer.ask();
        }
    }
}
