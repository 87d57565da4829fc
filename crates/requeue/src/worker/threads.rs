//! Workers on threads: take a key, call the handler, end the run.

use super::limit::Limits;
use super::next::WorkerLoop;
use super::outcome::{IntoOutcome, Outcome};
use super::run::Run;
use super::shared::{AFTER_PANIC, HandlerEnd, WorkerShared, call};
use super::supply::{Spawner, WorkerSupply};
use crate::blocking::ThisThread;
use crate::failure::Failure;
use crate::panics::quietly;
use crate::wait::{Sleeper, Step};
use std::io;
use std::sync::Arc;

/// The threads of one worker.
pub(super) struct Threads<K: 'static, V: 'static, F> {
    shared: WorkerShared<K, V>,
    limits: Option<Arc<Limits<K, V>>>,
    handler: F,
}

impl<K, V, F, O> Threads<K, V, F>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> O + Send + Sync + 'static,
    O: IntoOutcome,
{
    pub(super) fn new(shared: WorkerShared<K, V>, handler: F) -> Self {
        shared.set.note_threads();
        let limit = shared.rules.time_limit;
        let limits =
            limit.map(|limit| Arc::new(Limits::new(limit, shared.queue.clock.clone(), &shared.rules)));
        Self { shared, limits, handler }
    }

    fn thread_name(&self) -> String {
        match self.shared.queue.name.as_str() {
            "" => "requeue-worker".to_string(),
            // a NUL in a thread's name would be refused
            name => format!("requeue-{}", name.replace('\0', "?")),
        }
    }

    /// The loop of one thread.
    fn work(&self, at: usize) {
        let mut worker = WorkerLoop::new(&self.shared, at);
        loop {
            // users' code that panics as a key is taken (a clock, an order) must not end the thread
            match quietly(|| self.next(&mut worker)) {
                Some(Some(run)) => self.run(&mut worker, run),
                // the worker has left
                Some(None) => break,
                // it has panicked
                None => {
                    worker.look_failed(&self.shared);
                    std::thread::sleep(AFTER_PANIC);
                }
            }
        }
        drop(worker);
        self.worker_left();
    }

    /// Ends the watching of time limits if no thread is left. Called when one has left, or could not be started.
    fn worker_left(&self) {
        if let (Some(limits), 0) = (&self.limits, self.shared.set.workers()) {
            limits.end();
        }
    }

    /// Waits for the next key. `None` if the worker has left.
    #[inline]
    fn next(&self, worker: &mut WorkerLoop<K, V>) -> Option<Run<K, V>> {
        let thread = ThisThread::default();
        let waker = || thread.waker();
        loop {
            match worker.next(&self.shared, waker, Sleeper::Thread) {
                Step::Ready(run) => return run,
                Step::Sleep(until) => thread.sleep(until, &*self.shared.queue.clock),
            }
        }
    }

    /// Calls the handler and ends the run.
    #[inline]
    fn run(&self, worker: &mut WorkerLoop<K, V>, run: Run<K, V>) {
        if let Some(limits) = &self.limits {
            return self.run_limited(limits, worker, run);
        }
        worker.handler_ended(&self.shared, HandlerEnd::of(self.call(run)));
    }

    #[inline]
    fn call(&self, run: Run<K, V>) -> Result<Outcome, Failure> {
        call(|| (self.handler)(run).into_outcome())
    }

    fn run_limited(&self, limits: &Arc<Limits<K, V>>, worker: &mut WorkerLoop<K, V>, run: Run<K, V>) {
        let Some(cell) = &worker.cell else { return };
        let began = cell.began;
        if let Some(began) = began {
            limits.watch(began, cell);
        }
        let said = self.call(run);
        let reported = worker.cell.as_ref().is_some_and(|cell| cell.return_now());
        let is_late = reported
            || began.is_some_and(|began| self.shared.now().is_some_and(|now| limits.is_over(began, now)));
        let late = is_late.then(|| limits.failure());
        worker.handler_ended(
            &self.shared,
            HandlerEnd { late: late.as_ref(), reported, ..HandlerEnd::of(said) },
        );
    }
}

impl<K, V, F, O> Spawner for Threads<K, V, F>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> O + Send + Sync + 'static,
    O: IntoOutcome,
{
    fn spawn(self: Arc<Self>, at: usize, supply: Arc<WorkerSupply>) -> io::Result<bool> {
        let thread = std::thread::Builder::new().name(self.thread_name());
        let this = self.clone();
        let work = move || {
            this.work(at);
            drop(supply);
        };
        match thread.spawn(work) {
            Ok(_) => Ok(true),
            Err(error) => {
                self.shared.set.leave(at);
                self.worker_left();
                Err(error)
            }
        }
    }
}
