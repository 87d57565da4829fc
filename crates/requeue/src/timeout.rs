//! [`Timeout`]: a wait for keys with a deadline.

use crate::wait::TimeLimit;
use crate::waiting::Deadline;

/// A wait with a deadline, made by [`Get::timeout`](crate::Get::timeout) and
/// [`GetMany::timeout`](crate::GetMany::timeout): await it, or call `wait` on it.
///
/// Returns what the wait returns if there is a key; otherwise an error: the queue is shut down, or the time is up.
///
/// # Cancel safety
///
/// That of the wait.
///
/// ```
/// # use requeue::GetError;
/// # use std::time::Duration;
/// # let q = requeue::WorkQueue::new();
/// q.add_many(["a", "b", "c"]).all()?;
/// let soon = Duration::from_millis(1);
/// assert_eq!(*q.get().timeout(soon).wait()?.key(), "a");
/// assert_eq!(q.get_many(8).timeout(soon).wait()?.len(), 2);
/// assert_eq!(q.get().timeout(soon).wait().err(), Some(GetError::Empty));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a Timeout does nothing unless it is awaited or waited on"]
pub struct Timeout<F> {
    pub(crate) get: F,
    pub(crate) deadline: Deadline,
}

impl<F> Timeout<F> {
    pub(crate) fn new(get: F, limit: TimeLimit) -> Self {
        Self { get, deadline: Deadline::new(limit) }
    }
}

/// Implements [`Timeout`] of one kind of wait, in the file of that.
macro_rules! timeout {
    ($get:ident, $got:ident, $call:literal) => {
        impl<'q, K, V> Timeout<$get<'q, K, V>> {
            /// Makes the wait own its reference to the queue: see [`Get::into_owned`](crate::Get::into_owned).
            ///
            /// ```
            /// # use requeue::{GetError, WorkQueue};
            /// # use std::time::Duration;
            /// let q = WorkQueue::<u32>::new();
            #[doc = concat!("let get = q.", $call, ".timeout(Duration::from_millis(1)).into_owned();")]
            /// let got = std::thread::spawn(move || get.wait().map(drop));
            /// assert_eq!(got.join().unwrap(), Err(GetError::Empty));
            /// ```
            pub fn into_owned(self) -> Timeout<$get<'static, K, V>> {
                Timeout::new(self.get.into_owned(), self.deadline.limit)
            }

            /// Blocks until there is a key, the queue is worked off, or the time is up.
            ///
            /// # Errors
            ///
            /// [`GetError::ShutDown`] and [`GetError::Empty`].
            ///
            /// ```
            /// # use requeue::{GetError, WorkQueue};
            /// # use std::time::Duration;
            /// let q = WorkQueue::<u32>::new();
            /// q.shut_down();
            #[doc = concat!("let got = q.", $call, ".timeout(Duration::MAX).wait();")]
            /// assert_eq!(got.err(), Some(GetError::ShutDown));
            /// ```
            pub fn wait(mut self) -> Result<$got<'q, K, V>, GetError> {
                let $get { waiting, ask } = &mut self.get;
                waiting.block(ask, Some(self.deadline.limit)).and_then(|got| got.ok_or(GetError::ShutDown))
            }
        }

        impl<'q, K: Send + Sync + 'static, V: Send + 'static> Future for Timeout<$get<'q, K, V>> {
            type Output = Result<$got<'q, K, V>, GetError>;

            fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                let Self { get: $get { waiting, ask }, deadline } = &mut *self;
                waiting
                    .poll(ask, cx, Some(deadline))
                    .map(|outcome| outcome.and_then(|got| got.ok_or(GetError::ShutDown)))
            }
        }
    };
}

pub(crate) use timeout;

debug!([F] Timeout<F>, |timeout| { limit: timeout.deadline.limit, .. });
