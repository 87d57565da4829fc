//! The threads of a worker: take a key, call the handler, end the run.

use super::limit::Limits;
use super::outcome::{Failure, IntoOutcome, Outcome};
use super::roster::Roster;
use super::run::{Cell, Run, Told};
use super::{Rules, report};
use crate::clock::{Parker, quietly};
use crate::get::Get;
use crate::item::{Ending, Item, Owner};
use crate::shared::Shared;
use crate::wait::Step;
use std::any::Any;
use std::cell::OnceCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// What all threads of one worker share.
struct Crew<K: 'static, V: 'static, F> {
    queue: Arc<Shared<K, V>>,
    roster: Arc<Roster>,
    rules: Rules<K>,
    limits: Option<Arc<Limits<K, V>>>,
    handler: F,
}

/// Starts the threads.
pub(super) fn start<K, V, F, O>(
    queue: Arc<Shared<K, V>>,
    threads: usize,
    rules: Rules<K>,
    handler: F,
) -> io::Result<Arc<Roster>>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
    F: Fn(Run<K, V>) -> O + Send + Sync + 'static,
    O: IntoOutcome,
{
    let roster = Arc::new(Roster::new(queue.clone(), threads));
    queue.tell_of_workers(&roster);
    let limits = rules.time_limit.map(|limit| Arc::new(Limits::new(limit, queue.clock.clone(), &rules)));
    let crew = Arc::new(Crew { queue, roster: roster.clone(), rules, limits, handler });
    let mut failed = None;
    for place in 0..threads {
        if failed.is_some() {
            crew.leave(place);
            continue;
        }
        let thread = std::thread::Builder::new().name(crew.thread_name());
        let this = crew.clone();
        if let Err(error) = thread.spawn(move || this.work(place)) {
            failed = Some(error);
            roster.stop_taking();
            crew.leave(place);
        }
    }
    failed.map_or(Ok(roster), Err)
}

impl<K, V, F> Crew<K, V, F>
where
    K: Send + Sync + 'static,
    V: Send + 'static,
{
    fn thread_name(&self) -> String {
        match self.queue.name.as_str() {
            "" => "requeue-worker".to_string(),
            // a NUL in a thread's name would be refused
            name => format!("requeue-{}", name.replace('\0', "?")),
        }
    }

    fn leave(&self, place: usize) {
        self.roster.leave(place);
        if let (Some(limits), 0) = (&self.limits, self.roster.threads()) {
            limits.end();
        }
    }

    /// The loop of one thread.
    fn work<O>(&self, place: usize)
    where
        F: Fn(Run<K, V>) -> O,
        O: IntoOutcome,
    {
        loop {
            // users' code that panics, as a key is taken (a clock, an order) or as a
            // run ends (merge, a limiter), must not end the thread
            let mut taken = Err(());
            quietly(|| taken = Ok(self.take(place)));
            match taken {
                Ok(Some(item)) => {
                    quietly(|| self.run(place, item));
                    self.roster.run_ended(place);
                }
                Ok(None) => break,
                // it may do so again at once: that must not become a busy loop
                Err(()) => std::thread::sleep(AFTER_PANIC),
            }
        }
        self.leave(place);
    }

    /// Waits for a key, or for the worker to be stopped.
    fn take(&self, place: usize) -> Option<Item<'static, K, V>> {
        let mut get = Get::new(Owner::Owned(self.queue.clone()), None);
        let parker = OnceCell::new();
        let waker = || parker.get_or_init(Parker::current).waker();
        loop {
            if !self.roster.looks(place) {
                return None;
            }
            match get.step(waker) {
                Step::Ready(item) => return item,
                Step::Sleep(until) => {
                    // whoever stops the worker from here on wakes this thread
                    if self.roster.rests(place, waker().clone()) {
                        self.queue.sleep(until, &parker);
                    }
                }
            }
        }
    }

    /// One run: the handler, and what its outcome asks for.
    fn run<O>(&self, place: usize, item: Item<'static, K, V>)
    where
        F: Fn(Run<K, V>) -> O,
        O: IntoOutcome,
    {
        let attempt = item.attempt();
        let told = Arc::new(Told::default());
        self.roster.run_begins(place, &told);
        let cell = Arc::new(Cell::new(item, told.clone()));
        let began = self.limits.as_ref().map(|limits| {
            let now = self.queue.now();
            limits.watch(now, &cell);
            now
        });
        let run = Run::new(cell.clone());
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.handler)(run).into_outcome()));
        let reported = told.return_now();
        let mut payload = cell.left.lock().take();

        let late = match (&self.limits, began) {
            (Some(limits), Some(began)) if reported || limits.is_over(began) => Some(limits.failure()),
            _ => None,
        };
        let verdict = self.verdict(cell.guard.key(), outcome, late.as_ref(), reported, attempt);
        match Arc::try_unwrap(cell) {
            Ok(mut cell) => self.end(cell.guard.ending().1, verdict, &mut payload),
            // the handler kept its run: it goes on reading the key
            Err(cell) => {
                if let Some(ending) = cell.guard.keeping() {
                    self.end(ending, verdict, &mut payload);
                }
            }
        }
    }

    /// What becomes of the key, with failures reported: one that is past its time
    /// limit may have been already.
    fn verdict(
        &self,
        key: &K,
        outcome: Result<Outcome, Box<dyn Any + Send>>,
        late: Option<&Failure>,
        reported: bool,
        attempt: u32,
    ) -> Verdict {
        let (mut last, mut instead) = (false, None);
        let said = match outcome {
            Ok(Outcome::Done) if late.is_none() => return Verdict::Succeed,
            Ok(Outcome::Again(delay)) if late.is_none() => return Verdict::Again(delay),
            Ok(Outcome::Done | Outcome::Again(_)) => None,
            Ok(Outcome::Retry(error)) => Some(Failure::Error(error)),
            Ok(Outcome::RetryAfter(delay, error)) => {
                instead = late.is_none().then_some(delay);
                Some(Failure::Error(error))
            }
            Ok(Outcome::GiveUp(error)) => {
                last = late.is_none();
                Some(Failure::Error(error))
            }
            Err(panic) => {
                let failure = Failure::Panic(message(&*panic));
                // a payload may panic when it is dropped, and so may an error below
                quietly(|| drop(panic));
                Some(failure)
            }
        };
        if let Some(failure) = late.or(said.as_ref()) {
            if !reported {
                report(self.rules.on_failure.as_ref(), key, failure);
            }
            last |= self.rules.max_attempts > 0 && attempt >= self.rules.max_attempts;
            if last {
                report(self.rules.on_give_up.as_ref(), key, failure);
            }
        }
        quietly(|| drop(said));
        if last { Verdict::GiveUp } else { Verdict::Retry(instead) }
    }

    fn end(&self, mut ending: Ending<'_, K>, verdict: Verdict, payload: &mut Option<V>) {
        let queue = &*self.queue;
        let refused = match verdict {
            Verdict::Succeed => return ending.succeed(queue),
            Verdict::GiveUp => return ending.give_up(queue),
            Verdict::Again(delay) => ending.again(queue, delay).is_err(),
            Verdict::Retry(instead) => {
                let retried = catch_unwind(AssertUnwindSafe(|| {
                    ending.retry(queue, instead, payload, &mut None).is_err()
                }));
                retried.unwrap_or_else(|panic| {
                    // a limiter that cannot say when: the key is given up, not lost
                    // without a word
                    let failure = Failure::Panic(format!("the limiter panicked: {}", message(&*panic)));
                    quietly(|| drop(panic));
                    if let Some(key) = ending.key() {
                        report(self.rules.on_give_up.as_ref(), key, &failure);
                    }
                    true
                })
            }
        };
        if refused {
            // shut down, and counted as refused
            ending.done(queue);
        }
    }
}

/// How long a thread waits after users' code panicked as it took a key.
const AFTER_PANIC: Duration = Duration::from_millis(10);

/// How a run is to end.
#[derive(Clone, Copy)]
enum Verdict {
    /// Forgotten and done: it succeeded.
    Succeed,
    /// The same, after a failure.
    GiveUp,
    Again(Duration),
    /// With a delay instead of the limiter's.
    Retry(Option<Duration>),
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_string()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "something that is not text".to_string()
    }
}
