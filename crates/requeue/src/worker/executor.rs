//! Executors, as a worker sees them.

#[cfg(feature = "tokio")]
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// An executor that workers run on: anything that can run a future beside others.
///
/// A closure is one, and so is `Tokio` (feature `tokio`):
///
/// ```
/// use requeue::{Run, WorkQueue, Worker};
/// let q = WorkQueue::<String>::new();
/// let worker = Worker::of(&q).workers(8).start_on(
///     |task| smol::spawn(task).detach(),
///     |run: Run<String>| async move { println!("look at {}", run.key()) },
/// )?;
/// # assert!(worker.drain(std::time::Duration::MAX).wait().complete);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// An executor may drop a task at any time. One that is dropped with a run in it has
/// failed that run, and is replaced by a new task, so that the worker keeps its number.
/// One that is dropped before `spawn` has returned, or before it was polled for the
/// first time, counts as turned away and is not replaced: [`Worker::workers`] says how
/// many there are.
///
/// [`Worker::workers`]: crate::Worker::workers
pub trait Spawn: Send + Sync + 'static {
    /// Runs the task, concurrently with the caller. It is called as the worker starts and grows, and where a
    /// task was dropped, from that drop: so an executor must not hold a lock of its own there that this takes
    /// as well. For workers on demand it is also called from whatever makes a key ready: an `add`, or the
    /// thread that rings the clock's alarms.
    ///
    /// ```
    /// use requeue::Spawn;
    /// use std::{future::Future, pin::Pin, sync::mpsc};
    ///
    /// type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
    ///
    /// /// An executor that somebody else drives.
    /// struct Sent(mpsc::Sender<Task>);
    ///
    /// impl Spawn for Sent {
    ///     fn spawn(&self, task: Task) {
    ///         let _ = self.0.send(task); // nobody there to take it: it is dropped
    ///     }
    /// }
    /// # let (send, tasks) = mpsc::channel();
    /// # let q = requeue::WorkQueue::<u32>::new();
    /// # let worker = requeue::Worker::of(&q).workers(2).start_on(Sent(send), |_| async {})?;
    /// # assert_eq!(tasks.try_iter().count(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);
}

impl<F: Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync + 'static> Spawn for F {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self(task);
    }
}

/// Tokio as a worker's executor: a handle of one runtime.
///
/// Its tasks end with the runtime; what they were working on goes back to the queue
/// as failed.
///
/// ```
/// use requeue::{Tokio, WorkQueue, Worker};
/// use std::time::Duration;
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let q = WorkQueue::<String>::new();
///     let worker = Worker::of(&q).workers(16).start_on(Tokio::new()?, |run| async move {
///         tokio::task::yield_now().await;
///         println!("look at {}", run.key());
///     })?;
///     q.add_ref("/")?;
///     assert_eq!(worker.drain(Duration::from_secs(10)).await.done, 1);
///     Ok(())
/// }
/// ```
#[cfg(feature = "tokio")]
#[derive(Clone)]
pub struct Tokio(tokio::runtime::Handle);

/// There is no Tokio runtime where [`Tokio::new`] was called.
///
/// ```
/// let error = requeue::Tokio::new().unwrap_err();
/// assert!(error.to_string().contains("Tokio::with_handle"));
/// ```
#[cfg(feature = "tokio")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoTokioRuntime;

#[cfg(feature = "tokio")]
impl fmt::Display for NoTokioRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no Tokio runtime here: call Tokio::new inside of one, \
             or pass its handle to Tokio::with_handle",
        )
    }
}

#[cfg(feature = "tokio")]
impl std::error::Error for NoTokioRuntime {}

#[cfg(feature = "tokio")]
impl Tokio {
    /// The runtime that the caller is in. It is known from then on, so that a worker can
    /// be resized from anywhere.
    ///
    /// # Errors
    ///
    /// [`NoTokioRuntime`] outside of a runtime.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), requeue::NoTokioRuntime> {
    /// let executor = requeue::Tokio::new()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn new() -> Result<Self, NoTokioRuntime> {
        tokio::runtime::Handle::try_current().map(Self).map_err(|_| NoTokioRuntime)
    }

    /// The runtime of this handle; the caller need not be in it.
    ///
    /// ```
    /// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// let executor = requeue::Tokio::with_handle(runtime.handle().clone());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn with_handle(runtime: tokio::runtime::Handle) -> Self {
        Self(runtime)
    }
}

#[cfg(feature = "tokio")]
impl Spawn for Tokio {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        // a runtime that has been shut down drops it
        drop(self.0.spawn(task));
    }
}

#[cfg(feature = "tokio")]
debug!([] Tokio, |_| { .. });
