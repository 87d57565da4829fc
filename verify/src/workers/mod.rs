//! The conformance suite of workers: every promise of W about a worker as a function with the kind of worker
//! as a parameter.
//!
//! All handlers here are async. A worker on threads runs each to its end with `block_on`, so that one suite
//! serves threads, executors, and the future without an executor. Tests of handlers that can be dropped are
//! in [`w_dropped`], which only the async fronts run.

#![allow(missing_docs, reason = "the tests' names are sentences")]

use crate::wake::block_on;
use requeue::{
    Alarm, Clock, FakeClock, InBackoff, Instant, IntoOutcome, Outcome, Run, Stop, StopReport, WorkQueue,
    Worker, WorkerBuilder,
};
use smol::channel::{Receiver, Sender, unbounded};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Duration;

pub mod b_cancel;
pub mod w_demand;
pub mod w_drains;
pub mod w_dropped;
pub mod w_ends;
pub mod w_resize;
pub mod w_runs;

/// Makes a test of a function of this suite for a kind of worker.
#[macro_export]
macro_rules! worker_test {
    ($front:ty, $file:ident, $name:ident) => {
        #[test]
        fn $name() {
            $crate::watchdog::run(stringify!($name), $crate::workers::$file::$name::<$front>);
        }
    };
}

/// A way to run workers.
pub trait Front {
    /// Whether handlers that must end are dropped, and not only asked to end.
    const DROPS: bool = true;

    /// Starts the workers.
    fn start<K, V, H, Fut>(builder: WorkerBuilder<K, V>, handler: H) -> Worker
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
        H: Fn(Run<K, V>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static;

    /// Waits for the workers' end as callers of this front do.
    fn report(stop: Stop) -> StopReport {
        block_on(stop)
    }
}

/// Workers on threads.
#[derive(Debug)]
pub struct Threads;

impl Front for Threads {
    const DROPS: bool = false;

    fn start<K, V, H, Fut>(builder: WorkerBuilder<K, V>, handler: H) -> Worker
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
        H: Fn(Run<K, V>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        builder.start_threads(move |run| block_on(handler(run))).expect("threads")
    }

    fn report(stop: Stop) -> StopReport {
        stop.wait()
    }
}

/// Workers in tasks of a Tokio runtime with two threads.
#[derive(Debug)]
pub struct OnTokio;

impl Front for OnTokio {
    fn start<K, V, H, Fut>(builder: WorkerBuilder<K, V>, handler: H) -> Worker
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
        H: Fn(Run<K, V>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
        let runtime = RUNTIME.get_or_init(|| {
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime")
        });
        builder.start_on(runtime.handle().clone(), handler).expect("not too many")
    }
}

/// Workers in tasks of smol's executor.
#[derive(Debug)]
pub struct OnSmol;

impl Front for OnSmol {
    fn start<K, V, H, Fut>(builder: WorkerBuilder<K, V>, handler: H) -> Worker
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
        H: Fn(Run<K, V>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        builder.start_on(|task| smol::spawn(task).detach(), handler).expect("not too many")
    }
}

/// Workers inside one future, which a thread drives with nothing but a waker.
#[derive(Debug)]
pub struct InOneFuture;

impl Front for InOneFuture {
    fn start<K, V, H, Fut>(builder: WorkerBuilder<K, V>, handler: H) -> Worker
    where
        K: Send + Sync + 'static,
        V: Send + 'static,
        H: Fn(Run<K, V>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let workers = builder.run(handler).expect("not too many");
        let handle = workers.worker();
        std::thread::spawn(move || block_on(workers));
        handle
    }
}

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The queue that most tests work on.
pub type Lists = WorkQueue<u64, Vec<u32>>;

/// A queue with a fake clock whose values are lists; back-offs of 1, 2, 4 … ms.
#[must_use]
pub fn queue() -> (Lists, FakeClock) {
    queue_that(InBackoff::Run)
}

/// A queue with this default behaviour of triggers in a back-off.
pub(crate) fn queue_that(in_backoff: InBackoff) -> (Lists, FakeClock) {
    let clock = FakeClock::new();
    let q = WorkQueue::merging(|old: &mut Vec<u32>, new: Vec<u32>| old.extend(new))
        .clock(clock.clone())
        .limiter(requeue::limiter::default_per_item())
        .in_backoff(in_backoff)
        .build()
        .expect("a queue");
    (q, clock)
}

/// Waits until another thread has made `holds` true. The watchdog reports one that never comes.
pub fn until(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}

/// A fake clock with a hook at its next reading: for events in the middle of a worker's look for a key, which
/// reads the clock before it takes one.
#[derive(Clone, Default)]
pub struct Meanwhile {
    /// The time.
    pub time: FakeClock,
    then: Arc<Mutex<Option<Then>>>,
}

type Then = Box<dyn FnOnce() + Send>;

impl Meanwhile {
    /// Sets the hook of the next reading, which runs once, before the time is returned.
    pub fn at_the_next_reading(&self, then: impl FnOnce() + Send + 'static) {
        *self.then() = Some(Box::new(then));
    }
    /// Whether the reading has begun that was to do something.
    #[must_use]
    pub fn has_been_read(&self) -> bool {
        self.then().is_none()
    }
    fn then(&self) -> MutexGuard<'_, Option<Then>> {
        self.then.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for Meanwhile {
    fn now(&self) -> Instant {
        let then = self.then().take();
        if let Some(then) = then {
            then();
        }
        self.time.now()
    }
    fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm {
        self.time.wake_at(at, waker)
    }
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meanwhile").field("time", &self.time).finish_non_exhaustive()
    }
}

/// Waits until `key` waits for its timer and somebody watches that.
pub(crate) fn until_waiting(q: &Lists, clock: &FakeClock, key: u64) {
    until(|| {
        let due = q.state(&key).and_then(|state| state.waiting_until);
        due.is_some() && clock.next_alarm() == due
    });
}

/// Lets a test hold handlers until it decides how each of their runs ends.
#[derive(Debug)]
pub struct Puppets {
    began: Receiver<(u64, u32)>,
    end: Sender<Outcome>,
}

/// A handler's future that waits for the test's word.
pub type Held = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A handler that reports each run and ends as the test decides.
pub fn puppets() -> (Puppets, impl Fn(Run<u64, Vec<u32>>) -> Held + Send + Sync + 'static) {
    let (tell, began) = unbounded();
    let (end, ends) = unbounded();
    let handler = move |run: Run<u64, Vec<u32>>| -> Held {
        let (tell, ends) = (tell.clone(), ends.clone());
        Box::pin(async move {
            let _ = tell.try_send((*run.key(), run.attempt()));
            let outcome = ends.recv().await.unwrap_or(Outcome::Done);
            drop(run);
            outcome
        })
    };
    (Puppets { began, end }, handler)
}

/// Starts workers whose runs end as the test decides.
pub(crate) fn led<F: Front>(builder: WorkerBuilder<u64, Vec<u32>>) -> (Puppets, Worker) {
    let (puppets, handler) = puppets();
    (puppets, F::start(builder, handler))
}

impl Puppets {
    /// Adds key 1, whose first run fails. Its second one begins.
    pub(crate) fn fail_once(&self, q: &Lists, clock: &FakeClock) {
        q.add(1).expect("open");
        self.run(1, 1);
        self.end(Outcome::Retry("not yet".into()));
        clock.wait_for_alarms(1);
        clock.advance(ms(1));
        self.run(1, 2);
    }
    /// Waits for the next run, which must be this one.
    pub fn run(&self, key: u64, attempt: u32) {
        assert_eq!(self.next(), (key, attempt), "key and attempt of the next run");
    }
    /// Waits for the next run.
    #[must_use]
    pub fn next(&self) -> (u64, u32) {
        self.began.recv_blocking().expect("a run")
    }
    /// Waits for so many runs, whichever they are.
    pub fn skip(&self, runs: usize) {
        for _ in 0..runs {
            let _ = self.next();
        }
    }
    /// Whether a run has begun that was not reported yet.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.began.is_empty()
    }
    /// Ends a current run.
    pub fn end(&self, outcome: Outcome) {
        self.end.try_send(outcome).expect("the handler waits");
    }
}
