//! [`AwaitedRun`]: the run that a trigger has asked for, as a future (rule B12).

use crate::add::Add;
use crate::adding::{Kept, refused};
use crate::blocking::ThisThread;
use crate::error::AddError;
use crate::hold::Shared;
use crate::metrics::RunEnd;
use crate::queue::WorkQueue;
use crate::sync::Mutex;
use requeue_core::{Awaiter, NoRun, Trigger, TriggerOptions};
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The run that a trigger has asked for, made by [`WorkQueue::await_run`]: await it, or call [`wait`](Self::wait).
///
/// It ends with the end of the first run that begins after the trigger, and no earlier than the trigger's delay says. A
/// failed run is such an end too, [`RunEnd::Retry`]: the retry answers those that trigger the key meanwhile. Callers that
/// await the same key share its run. A run that is [put back](crate::Item::put_back) has not ended: the next run answers.
///
/// # Errors
///
/// [`NoRun`] if no run follows: the key was cancelled, or the trigger was dropped by a shutdown or for room. The end of the
/// queue is such a shutdown.
///
/// # Cancel safety
///
/// Dropping it does not take the trigger back: the key runs all the same.
///
/// ```
/// # use requeue::{Add, RunEnd, WorkQueue};
/// let q = WorkQueue::new();
/// let run = q.await_run("a", Add::now())?;
/// q.try_get()?.give_up("no such object");
/// assert_eq!(run.wait(), Ok(RunEnd::GiveUp));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "to know how the run ends, await this or call wait()"]
pub struct AwaitedRun(Arc<Mutex<Progress>>);

enum Progress {
    /// Not ended; the waker of the caller, once it waits.
    Waits(Option<Waker>),
    Ended(Result<RunEnd, NoRun>),
}

/// The queue's end of an [`AwaitedRun`]. Dropped with nothing told, it tells [`NoRun::Dropped`].
///
/// An engine hands it to the queue in memory together with the trigger.
///
/// ```
/// # use requeue::{NoRun, engine::RunTeller};
/// let (teller, run) = RunTeller::pair();
/// drop(teller);
/// assert_eq!(run.wait(), Err(NoRun::Dropped));
/// ```
pub struct RunTeller(Arc<Mutex<Progress>>);

impl RunTeller {
    /// A run to be awaited, and the queue's end of it.
    ///
    /// ```
    /// # use requeue::{RunEnd, Source, WorkQueue, engine::RunTeller};
    /// let q = WorkQueue::<u32>::new();
    /// q.add(4711)?;
    /// let (teller, run) = RunTeller::pair();
    /// assert!(q.front().joins(&q, &4711, &mut Some(teller)));
    /// q.try_get()?.succeed();
    /// assert_eq!(run.wait(), Ok(RunEnd::Done));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pair() -> (Self, AwaitedRun) {
        let progress = Arc::new(Mutex::new(Progress::Waits(None)));
        (Self(progress.clone()), AwaitedRun(progress))
    }

    fn tell(&self, how: Result<RunEnd, NoRun>) {
        let mut progress = self.0.lock();
        if let Progress::Waits(waker) = &mut *progress {
            let waker = waker.take();
            *progress = Progress::Ended(how);
            drop(progress);
            // users' code
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl Awaiter for RunTeller {
    fn ended(self: Box<Self>, how: Result<RunEnd, NoRun>) {
        self.tell(how);
    }

    fn is_awaited(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Drop for RunTeller {
    /// Answers the rest: the queue is gone without having answered them.
    fn drop(&mut self) {
        self.tell(Err(NoRun::Dropped));
    }
}

impl AwaitedRun {
    /// Blocks until the run has ended.
    ///
    /// # Errors
    ///
    /// [`NoRun`] if no run follows.
    ///
    /// ```
    /// # use requeue::{Add, NoRun, WorkQueue};
    /// let q = WorkQueue::new();
    /// let run = q.await_run("a", Add::now())?;
    /// q.cancel("a");
    /// assert_eq!(run.wait(), Err(NoRun::Cancelled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(self) -> Result<RunEnd, NoRun> {
        let thread = ThisThread::default();
        loop {
            match self.look(thread.waker()) {
                Some(how) => return how,
                None => thread.park(),
            }
        }
    }

    /// How the run has ended; if it has not, the waker is woken once it does.
    fn look(&self, waker: &Waker) -> Option<Result<RunEnd, NoRun>> {
        // users' code, which must not run under the lock
        let mut clone = Some(waker.clone());
        let mut progress = self.0.lock();
        match &mut *progress {
            Progress::Ended(how) => Some(*how),
            Progress::Waits(old) => {
                std::mem::swap(old, &mut clone);
                drop(progress);
                None
            }
        }
    }
}

impl Future for AwaitedRun {
    type Output = Result<RunEnd, NoRun>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.look(cx.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}

debug!([] AwaitedRun, |run| { ended: matches!(*run.0.lock(), Progress::Ended(_)) });
debug!([] RunTeller, |teller| { told: matches!(*teller.0.lock(), Progress::Ended(_)) });

impl<K: Hash + Eq, V, S: BuildHasher> WorkQueue<K, V, S> {
    /// Asks for a run of `key` like [`add_with`](Self::add_with), and returns that run to be awaited: see [`AwaitedRun`].
    ///
    /// Many callers that await one key share one run. A cache that loads an entry in the handler loads it once, however many
    /// ask for it at the same time (*single flight*; the example `single_flight`).
    ///
    /// # Errors
    ///
    /// Like [`add_with`](Self::add_with).
    ///
    /// ```
    /// use requeue::{Add, RunEnd, WorkQueue, Worker};
    /// let q = WorkQueue::new();
    /// let worker = Worker::of(&q).start_threads(|run| println!("look at {}", run.key()))?;
    /// let (first, second) = (q.await_run("a", Add::now())?, q.await_run("a", Add::now())?);
    /// assert_eq!((first.wait()?, second.wait()?), (RunEnd::Done, RunEnd::Done));
    /// # drop(worker);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn await_run(&self, key: K, how: Add<V>) -> Result<AwaitedRun, AddError<K, V>> {
        let hash = self.hash(&key);
        let Add { value, options } = how;
        self.shared.await_run(Trigger::new(key, value), hash, &options)
    }
}

impl<K: Eq, V> Shared<K, V> {
    fn await_run(
        &self,
        trigger: Trigger<K, V>,
        hash: u32,
        options: &TriggerOptions,
    ) -> Result<AwaitedRun, AddError<K, V>> {
        let (teller, run) = RunTeller::pair();
        let mut trigger = Kept(trigger);
        let accepted = self.try_trigger(&mut trigger.0, hash, options, None, None, |core, accepted| {
            core.await_run(accepted.ticket, Box::new(teller));
        });
        accepted.map(|_| run).map_err(|reason| refused(&mut trigger.0, reason))
    }
}
