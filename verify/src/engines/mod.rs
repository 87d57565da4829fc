//! The rules of engines (docs/ENGINES.md), as tests that take the engine as a parameter: [`engines!`](crate::engines!)
//! runs them. Those of [`in_process`] hold for a queue in memory too.

#![allow(missing_docs, reason = "the tests' names are sentences")]

use requeue::{Clock as _, KeyState, Outcome, Run, Source, Worker};
use requeue_engine::{DurableQueue, Store};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub mod durable;
pub mod grouped;
pub mod in_process;

/// Makes a test of a rule for an engine.
#[macro_export]
macro_rules! engine_test {
    ($engine:ty, $file:ident, $name:ident) => {
        #[test]
        fn $name() {
            if let Some(engine) = <$engine as $crate::engines::Engine>::start() {
                $crate::engines::$file::$name::<$engine>(engine);
            }
        }
    };
}

/// A place where queues are kept: an engine, as one process has it.
pub trait Engine: Sized {
    /// A queue whose values merge: newer ones go behind older ones. It has priorities.
    type Store: Store<Key = String, Value = Vec<u32>>;

    /// An engine without queues. `None`, with a message on standard error, if it is not installed.
    fn start() -> Option<Self>;
    /// Opens the queue as the next process does, after the one before has closed it.
    fn open(&self) -> DurableQueue<Self::Store>;
    /// State of a key.
    fn state(queue: &DurableQueue<Self::Store>, key: &str) -> Option<State>;
    fn pause(queue: &DurableQueue<Self::Store>, paused: bool);
}

/// An engine whose queues may have groups, which take turns.
pub trait Grouped: Engine {
    /// Opens the queue. A key's group is the part before its `/`. At most `cap` keys of each group may be
    /// held, and one group has this weight.
    fn open_with_groups(&self, cap: usize, weight: (&'static str, u32)) -> DurableQueue<Self::Store>;
}

/// The group of a key.
pub fn group(key: &str) -> String {
    key.split('/').next().unwrap_or_default().to_owned()
}

/// State of a key, as an engine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub ready: bool,
    pub held: bool,
    pub dirty: bool,
    /// Time until its timer fires.
    pub due_in: Option<Duration>,
    pub failures: u32,
    /// The attempt of its next run, counted from 1.
    pub attempt: u32,
    pub priority: i16,
}

impl State {
    /// State of a key in this queue in memory.
    pub fn of(queue: &impl Source, known: &KeyState) -> Self {
        let KeyState { ready, held, dirty, waiting_until, failures, attempt, priority, .. } = *known;
        let now = queue.front().clock().now();
        let due_in = waiting_until.map(|due| due.saturating_since(now));
        Self { ready, held, dirty, due_in, failures, attempt, priority }
    }
}

/// Observations of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Saw {
    key: String,
    attempt: u32,
    priority: i16,
    value: Option<Vec<u32>>,
    fence: u64,
}

/// Whatever is waited for comes within this time, however slow the machine is, unless it never comes.
const LONG: Duration = Duration::from_secs(300);
const HOUR: Duration = Duration::from_secs(3600);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "it does not come: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn key(name: &str) -> String {
    name.to_owned()
}

/// Workers that report each run.
struct Work {
    worker: Worker,
    saw: Receiver<Saw>,
}

impl Work {
    fn on<Q: Source<Key = String, Value = Vec<u32>>>(queue: &Q, outcome: fn(&Saw) -> Outcome) -> Self {
        let (tell, saw): (Sender<Saw>, _) = mpsc::channel();
        let worker = Worker::of(queue).workers(1).start_threads(move |run: Run<String, Vec<u32>>| {
            let saw = Saw {
                key: run.key().clone(),
                attempt: run.attempt(),
                priority: run.priority(),
                value: run.value().cloned(),
                fence: run.fence().0,
            };
            let outcome = outcome(&saw);
            tell.send(saw).expect("the test goes on");
            outcome
        });
        Self { worker: worker.expect("threads"), saw }
    }

    /// Runs the next key, and returns its observations.
    fn next(&self) -> Saw {
        self.saw.recv_timeout(LONG).expect("a run")
    }

    /// The keys of the next runs.
    fn keys(&self, runs: usize) -> Vec<String> {
        (0..runs).map(|_| self.next().key).collect()
    }

    /// Ends the current runs. Returns what they saw and was not reported.
    fn stop(self) -> Vec<Saw> {
        assert!(self.worker.stop(LONG).wait().complete);
        self.saw.try_iter().collect()
    }
}

/// Workers whose runs wait for permission to continue.
struct Held {
    worker: Worker,
    begun: Receiver<()>,
    go_on: Sender<()>,
}

impl Held {
    fn on<Q: Source<Key = String, Value = Vec<u32>>>(queue: &Q, outcome: fn() -> Outcome) -> Self {
        let (tell, begun) = mpsc::channel();
        let (go_on, may) = mpsc::channel();
        let may = Mutex::new(may);
        let worker = Worker::of(queue).workers(1).start_threads(move |_: Run<String, Vec<u32>>| {
            tell.send(()).expect("the test goes on");
            may.lock().expect("no panic").recv().expect("the test goes on");
            outcome()
        });
        Self { worker: worker.expect("threads"), begun, go_on }
    }

    fn begins(&self) {
        self.begun.recv_timeout(LONG).expect("a run");
    }

    fn goes_on(&self) {
        self.go_on.send(()).expect("a run waits");
    }
}

/// Nothing asks for a run of the key.
fn is_idle<E: Engine>(queue: &DurableQueue<E::Store>, name: &str) -> bool {
    E::state(queue, name).is_none_or(|it| !it.ready && !it.held && !it.dirty && it.due_in.is_none())
}

/// Cancels a key. Whether it was there.
fn cancel(queue: &DurableQueue<impl Store<Key = String>>, name: &str) -> bool {
    queue.cancel(&key(name)).wait().expect("it can be written").is_some()
}
