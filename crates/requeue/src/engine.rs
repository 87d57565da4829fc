//! The seam for engines. Users find it in the crate `requeue-engine`, with all else that engines share.

pub use crate::awaited::RunTeller;
pub use crate::engine_gauges::{EngineGauges, LeaseGauges, ReadEngine, StoreGauges};
pub use crate::journal::{Journal, Known};
pub use crate::source::LocalQueue;

use crate::add::Add;
use crate::builder::Builder;
use crate::clock::Clock;
use crate::error::{AddError, Added, Refused};
use crate::metrics::Metrics;
use crate::queue::WorkQueue;
use crate::worker::Run;
use requeue_core::{Delay, InBackoff, Limit, Policy, Trigger, TriggerOptions};
use std::any::Any;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

/// A stored trigger: the part of a trigger that an engine writes.
///
/// ```
/// # use requeue::{Add, engine::StoredTrigger};
/// let asked = StoredTrigger::of(&Add::from(Add::<()>::now().priority(7)))?;
/// assert_eq!((asked.delay, asked.priority), (None, 7));
/// # Ok::<(), &'static str>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredTrigger {
    /// The delay. `None` and zero both mean now.
    pub delay: Option<Duration>,
    /// The priority.
    pub priority: i16,
    /// Whether the trigger absorbs the key's timer, even a retry's: its run also stands for the timer's run,
    /// and the timer is removed. With a delay, the new timer replaces the key's.
    pub absorbs: bool,
}

impl StoredTrigger {
    /// The part of a trigger that an engine can store.
    ///
    /// # Errors
    ///
    /// The name of an option that an engine cannot store: a limiter's delay, an instant of the queue's clock,
    /// a debounce, or a policy for timers other than the earliest.
    ///
    /// ```
    /// # use requeue::{Add, engine::StoredTrigger};
    /// # use std::time::Duration;
    /// let add = Add::<()>::after(Duration::from_secs(1));
    /// assert!(StoredTrigger::of(&add).is_ok());
    /// assert!(StoredTrigger::of(&add.keep()).is_err());
    /// ```
    pub fn of<V>(add: &Add<V>) -> Result<Self, &'static str> {
        let TriggerOptions { delay, in_backoff, priority, debounce, .. } = &add.options;
        if debounce.is_some() {
            return Err("a debounce is not supported with an engine: leave it out");
        }
        if in_backoff.is_some() {
            return Err("a back-off option of a trigger is not supported with an engine: leave it out");
        }
        let delay = match delay {
            Delay::Now => None,
            Delay::After(delay, Policy::Earliest) => Some(*delay),
            Delay::After(..) => {
                return Err("an engine keeps a key's earliest timer: leave out the policy");
            }
            Delay::At(..) => return Err("an instant is not supported with an engine: give a delay"),
            Delay::Limited(_) | Delay::Asked(..) => {
                return Err("a limiter is not supported with an engine: give a delay");
            }
        };
        Ok(Self { delay, priority: *priority, absorbs: false })
    }
}

/// Makes the queue the front of an engine, which writes down what is known of its keys.
///
/// The journal is told of each end of a run, and of cancelled and forgotten keys. It is told that a run has no
/// end ([`Journal::refused`]) if its retry was refused because the queue is shut down, or if its guard was
/// dropped while user code panics: the store then keeps the key as it was before that run, and the next process
/// runs it again. It is not told of waiting keys that a shutdown drops. Such a queue has no bound.
///
/// ```
/// # use requeue::{Fence, engine::{Journal, Known, with_journal}};
/// # struct Recorder;
/// # impl Journal<u32, ()> for Recorder {
/// # fn changed(&self, _: &u32, _: Option<Known<'_, ()>>) {}
/// # fn applied(&self, _: u64) {}
/// # fn gives_up(&self, _: &u32, _: &dyn std::fmt::Display) {}
/// # fn fence(&self, _: &u32) -> Fence { Fence(3) }
/// # }
/// # use requeue::WorkQueue;
/// let q = with_journal(WorkQueue::<u32>::builder(), std::sync::Arc::new(Recorder)).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn with_journal<K, V, S>(
    mut queue: Builder<K, V, S>,
    journal: Arc<dyn Journal<K, V>>,
) -> Builder<K, V, S> {
    queue.settings.journal = Some(journal);
    queue
}

/// The [`Journal::engine`] of the engine that the run's worker works for: the engine's own calls for its runs
/// need it. `None` in memory.
///
/// ```
/// # use requeue::{WorkQueue, Worker, engine::engine_of};
/// let q = WorkQueue::new();
/// let worker = Worker::of(&q).start_threads(|run| assert!(engine_of(&run).is_none()))?;
/// q.add("a")?;
/// # worker.drain(std::time::Duration::MAX).wait();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn engine_of<K, V>(run: &Run<K, V>) -> Option<&dyn Any> {
    run.engine()
}

impl<K, V> LocalQueue<K, V> {
    /// The queue's clock.
    ///
    /// ```
    /// # use requeue::{Source, WorkQueue};
    /// let q = WorkQueue::<u32>::new();
    /// assert!(q.front().clock().now() <= q.front().clock().now());
    /// ```
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.shared.clock.clone()
    }

    /// The reason why the queue would refuse any trigger with this priority now.
    ///
    /// ```
    /// # use requeue::{Refused, Source, WorkQueue};
    /// let q = WorkQueue::<u32>::new();
    /// assert_eq!((q.front().refuses(0), q.front().refuses(7)), (None, Some(Refused::NoPriorities)));
    /// ```
    #[must_use]
    pub fn refuses(&self, priority: i16) -> Option<Refused> {
        if !self.shared.takes(priority) {
            return Some(Refused::NoPriorities);
        }
        self.shared.lock().with(|hold| hold.core.shutting_down()).then_some(Refused::ShutDown)
    }

    /// Adds the key if that changes nothing that an engine has to write: the key is in line, or runs again
    /// after its run, and its priority is at least 0. Returns false if it was not added. If it was, the `teller` is taken,
    /// and told how that run ends.
    ///
    /// # Panics
    ///
    /// Like [`add`](WorkQueue::add).
    ///
    /// ```
    /// # use requeue::{Source, WorkQueue};
    /// let q = WorkQueue::<u32>::new();
    /// assert!(!q.front().joins(&q, &4711, &mut None));
    /// q.add(4711)?;
    /// assert!(q.front().joins(&q, &4711, &mut None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn joins<S>(&self, queue: &WorkQueue<K, V, S>, key: &K, teller: &mut Option<RunTeller>) -> bool
    where
        K: Hash + Eq,
        S: BuildHasher,
    {
        let hash = queue.hash(key);
        self.shared.hold_to_add(None).with(|hold| {
            let is_asked = hold
                .core
                .state(key, hash)
                .is_some_and(|state| (state.ready || state.dirty) && state.priority >= 0);
            let added = if is_asked { hold.core.add_known(key, hash) } else { Ok(None) };
            let Ok(Some(accepted)) = added else { return false };
            if let Some(teller) = teller.take() {
                hold.core.await_run(accepted.ticket, Box::new(teller));
            }
            true
        })
    }

    /// Number of keys that waiting callers lack.
    ///
    /// ```
    /// # use requeue::{Source, WorkQueue};
    /// let q = WorkQueue::<u32>::new();
    /// assert_eq!(q.front().wanted(), 0); // nobody waits
    /// ```
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.shared.with_waiters(|waiters, servable, _, _| waiters.hungry().saturating_sub(servable))
    }

    /// Tells the current runs of all workers of this queue to end: [`Run::cancelled`](crate::Run::cancelled)
    /// is true from then on, and async handlers are dropped. Such a run has failed. Later runs are not
    /// affected.
    ///
    /// For an engine whose runs were given to another process.
    ///
    /// ```
    /// # use requeue::{Source, WorkQueue, Worker};
    /// let q = WorkQueue::new();
    /// let worker = Worker::of(&q).max_attempts(1).start_threads(|run| while !run.cancelled() {
    ///     std::thread::yield_now(); // a piece of the work
    /// })?;
    /// q.add("endless")?;
    /// # while q.stats().held == 0 { std::thread::yield_now() }
    /// while q.stats().held == 1 {
    ///     q.front().cancel_runs();
    /// }
    /// # worker.stop(std::time::Duration::MAX).wait();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel_runs(&self) {
        self.shared.cancel_runs();
    }

    /// Sets where the queue's [`Gauges::engine`](crate::Gauges::engine) is read, as long as the `engine` lives.
    /// Returns false if the queue has no metrics. Call it once.
    ///
    /// ```
    /// # use requeue::{Source, WorkQueue, engine::{EngineGauges, ReadEngine}};
    /// # use std::sync::Arc;
    /// # struct File;
    /// # impl ReadEngine for File {
    /// #     fn engine(&self) -> EngineGauges { EngineGauges::default() }
    /// # }
    /// let engine: Arc<dyn ReadEngine> = Arc::new(File);
    /// assert!(!WorkQueue::<u32>::new().front().attach_engine(&engine));
    /// ```
    pub fn attach_engine(&self, engine: &Arc<dyn ReadEngine>) -> bool {
        let _ = self.shared.engine.set(Arc::downgrade(engine));
        self.shared.metrics.is_some()
    }

    /// Gives the queue a trigger that has been written. The `teller`, if there is one, is told how its run ends.
    ///
    /// # Errors
    ///
    /// Like [`add_with`](WorkQueue::add_with).
    ///
    /// # Panics
    ///
    /// Like [`add_with`](WorkQueue::add_with).
    ///
    /// ```
    /// # use requeue::{Add, Added, Source, WorkQueue, engine::StoredTrigger};
    /// let q = WorkQueue::<u32>::new();
    /// let asked = StoredTrigger::of(&Add::<()>::after(std::time::Duration::ZERO))?;
    /// assert_eq!(q.front().apply(&q, 4711, None, asked, 1, None)?, Added::Ready);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn apply<S>(
        &self,
        queue: &WorkQueue<K, V, S>,
        key: K,
        value: Option<V>,
        asked: StoredTrigger,
        ticket: u64,
        teller: Option<RunTeller>,
    ) -> Result<Added, AddError<K, V>>
    where
        K: Hash + Eq,
        S: BuildHasher,
    {
        let shared = &*self.shared;
        if !shared.takes(asked.priority) {
            return Err(AddError { key, value, reason: Refused::NoPriorities });
        }
        let hash = queue.hash(&key);
        let policy = if asked.absorbs { Policy::Replace } else { Policy::Earliest };
        let absorbs = asked.absorbs && asked.delay.is_none_or(|delay| delay.is_zero());
        let options = TriggerOptions {
            priority: asked.priority,
            in_backoff: absorbs.then_some(InBackoff::Run),
            absorbs,
            ..TriggerOptions::after(asked.delay.map_or(Delay::Now, |delay| Delay::After(delay, policy)))
        };
        let reading = asked.delay.map(|_| shared.now());
        let added = shared.pass(Trigger::new(key, value), reading, |core, trigger| {
            let added = core.trigger(trigger, hash, &options, &Limit::NONE);
            shared.tell_journal(|journal| journal.applied(ticket));
            if let (Ok(accepted), Some(teller)) = (&added, teller) {
                core.await_run(accepted.ticket, Box::new(teller));
            }
            added
        });
        if reading.is_some() && added.is_ok() {
            shared.tell_metrics(Metrics::retried);
        }
        added.map(|accepted| accepted.added)
    }
}
