//! Executors, as a worker sees them.

use std::future::Future;
use std::pin::Pin;

/// An executor that workers run on: anything that can run a future beside others.
///
/// A closure is one, and with the feature `tokio` so is `tokio::runtime::Handle`:
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

/// Tokio: tasks end with the runtime; what they were working on goes back to the queue as failed.
///
/// ```
/// use requeue::{WorkQueue, Worker};
/// use std::time::Duration;
/// use tokio::runtime::Handle;
///
/// #[tokio::main(flavor = "current_thread")]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let q = WorkQueue::<String>::new();
///     let worker = Worker::of(&q).workers(16).start_on(Handle::current(), |run| async move {
///         tokio::task::yield_now().await;
///         println!("look at {}", run.key());
///     })?;
///     q.add_ref("/")?;
///     assert_eq!(worker.drain(Duration::from_secs(10)).await.done, 1);
///     Ok(())
/// }
/// ```
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
impl Spawn for tokio::runtime::Handle {
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        // a runtime that has been shut down drops it
        drop(Self::spawn(self, task));
    }
}
