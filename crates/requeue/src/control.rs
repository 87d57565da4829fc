//! Calls that change what the queue does with a key (rule B7).

use crate::cancel_run::CancelRun;
use crate::queue::WorkQueue;
use requeue_core::Cancelled;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

impl<K: Hash + Eq, V, S: BuildHasher> WorkQueue<K, V, S> {
    /// Cancels everything that asks for a run of `key`: it is no longer ready, dirty or waiting, and its
    /// value is taken. Returns what was there, or `None` if there was nothing.
    ///
    /// A current run goes on, and its retry is accepted. The failures stay on record:
    /// [`forget`](Self::forget) clears them. A key that is added again goes to the
    /// back of the line, and its next run is attempt 1.
    ///
    /// An [`add`](Self::add) that returns before this call begins is cancelled with the rest; one that begins
    /// after this call has returned gives a run. An [`add_rate_limited`](Self::add_rate_limited) whose
    /// limiter is being asked meanwhile comes after it.
    ///
    /// A drain ends when this takes the last key. From a key that a drain has left [unfinished](Self::take_unfinished) it takes that,
    /// and the value. For custom orders see
    /// [`ReadyOrder::leave`](crate::ReadyOrder::leave).
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use std::time::Duration;
    /// let q = WorkQueue::<String>::new();
    /// q.add_ref("a")?;
    /// q.add_after("a".to_string(), Duration::from_secs(9))?;
    /// let cancelled = q.cancel("a").expect("it was ready");
    /// assert!(cancelled.ready && cancelled.waiting_until.is_some());
    /// assert!(q.is_empty() && q.cancel("a").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the user's `Hash`, `Eq` or order panics. Then nothing has changed.
    pub fn cancel<Q>(&self, key: &Q) -> Option<Cancelled<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let mut hold = self.shared.hold_to_look(&mut None);
        let (cancelled, gone) = hold.cancel(key, hash);
        self.shared.tell_known(&hold.core, gone.as_ref(), |core| core.slot_of(key, hash));
        hold.unlock();
        drop(gone);
        cancelled
    }

    /// Asks the run of `key` to end, if a [`Worker`](crate::Worker) has it: an async handler is dropped, a blocking one
    /// is told by [`Run::cancelled`](crate::Run::cancelled) and keeps the key until it has returned. The run ends with
    /// [`Failure::Cancelled`](crate::Failure::Cancelled), even if its handler returns success afterwards: the limiter decides
    /// when the key comes back, unless it was the last attempt. A trigger that came during the run still gets its run.
    ///
    /// Returns whether a worker had a run of the key. If so, its handler may just have returned: then the run ends as it
    /// said. A key that is held by an [`Item`](crate::Item) is left alone.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # use std::sync::mpsc;
    /// let q = WorkQueue::new();
    /// let (tell, told) = mpsc::channel();
    /// let worker = Worker::of(&q)
    ///     .on_failure(move |key, why| tell.send(format!("{key}: {why}")).unwrap())
    ///     .start_threads(|run| while !run.cancelled() { std::thread::yield_now() })?;
    /// q.add("endless")?;
    /// while !q.cancel_run("endless") { std::thread::yield_now() }
    /// assert_eq!(told.recv()?, "endless: the handler was cancelled before it had returned");
    /// # while q.cancel("endless").is_none() { std::thread::yield_now() }
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_run<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.shared.cancel_run(key, self.hash(key), CancelRun::Retry)
    }

    /// Like [`cancel_run`](Self::cancel_run), and gives the key up: its failures are forgotten, and it does not come back
    /// by itself.
    ///
    /// ```
    /// # use requeue::{WorkQueue, Worker};
    /// # use std::sync::mpsc;
    /// let q = WorkQueue::new();
    /// let (tell, told) = mpsc::channel();
    /// let worker = Worker::of(&q)
    ///     .on_give_up(move |key, why| tell.send(format!("{key}: {why}")).unwrap())
    ///     .start_threads(|run| while !run.cancelled() { std::thread::yield_now() })?;
    /// q.add("endless")?;
    /// while !q.give_up_run("endless") { std::thread::yield_now() }
    /// assert_eq!(told.recv()?, "endless: the handler was cancelled before it had returned");
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn give_up_run<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.shared.cancel_run(key, self.hash(key), CancelRun::GiveUp)
    }
}
