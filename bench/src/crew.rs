//! Producers and consumers, as threads, as tasks, or as some of each.
//!
//! Tasks run on Tokio's multi-threaded runtime with two workers. Tokio's own
//! channels make a task yield after 128 operations; no other queue does, so
//! every producer and consumer that is a task does it here.

use crate::measure::{Spent, Stopwatch};
use crate::queues::{AsyncFifo, Fifo};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};

/// After how many operations a task yields.
const BUDGET: u32 = 128;

/// How a consumer ends a run and gets the next key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Two calls.
    Plain,
    /// One call.
    Next,
}

impl Form {
    /// Values of the parameter `form`.
    pub const WORDS: [&'static str; 2] = ["plain", "next"];

    /// The one of that name.
    #[must_use]
    pub fn named(word: &str) -> Self {
        if word == "next" { Self::Next } else { Self::Plain }
    }
}

/// The kind of producers and consumers.
#[derive(Debug)]
pub struct Crew {
    /// For tasks; without one, all are threads.
    runtime: Option<Runtime>,
    /// Every other one is a thread all the same.
    mixed: bool,
}

/// Producers or consumers at work.
#[derive(Debug)]
pub struct Running<S> {
    threads: Vec<thread::JoinHandle<S>>,
    tasks: Vec<tokio::task::JoinHandle<S>>,
    runtime: Option<Handle>,
}

/// A runtime for tasks, with two workers.
///
/// # Panics
///
/// If its threads cannot be started.
#[must_use]
pub fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_time().build().expect("a runtime with two threads")
}

/// Starts a thread with a small stack, as a program with thousands of threads would.
///
/// # Panics
///
/// If it cannot be started.
pub fn spawn<S: Send + 'static>(f: impl FnOnce() -> S + Send + 'static) -> thread::JoinHandle<S> {
    thread::Builder::new().stack_size(64 << 10).spawn(f).expect("a thread: see ulimit -u and the pids cgroup")
}

/// The share of the one with this number, of `of`, in `n` operations.
pub(crate) fn share(n: usize, of: usize, which: usize) -> usize {
    n / of + usize::from(which < n % of)
}

/// Lets this many threads do `n` operations between them, all at once; each gets its number and its share.
pub(crate) fn on_threads(threads: usize, n: usize, work: impl Fn(usize, usize) + Sync) -> Spent {
    let barrier = Barrier::new(threads + 1);
    thread::scope(|scope| {
        for which in 0..threads {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                barrier.wait();
                work(which, share(n, threads, which));
                barrier.wait();
            });
        }
        barrier.wait();
        let watch = Stopwatch::start();
        barrier.wait();
        watch.stop()
    })
}

impl Crew {
    /// Values of the parameter `mode`.
    pub const MODES: [&'static str; 3] = ["threads", "tasks", "mixed"];

    /// One of these modes. In the last the first producer is a thread and the first
    /// consumer a task, and then it alternates.
    #[must_use]
    pub fn new(mode: &str) -> Self {
        Self { runtime: (mode != "threads").then(runtime), mixed: mode == "mixed" }
    }

    /// The runtime, where there are tasks.
    #[must_use]
    pub fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }

    /// Starts each of `all` as a thread or a task; in a mixed crew `first` is 0 if the first is a thread,
    /// else 1.
    fn start<T, S>(
        &self,
        first: usize,
        all: Vec<T>,
        threads: impl FnOnce(Vec<T>) -> Running<S>,
        task: impl Fn(&Runtime, T) -> tokio::task::JoinHandle<S>,
    ) -> Running<S> {
        let Some(runtime) = &self.runtime else {
            return threads(all);
        };
        let (mut some, mut rest) = (Vec::new(), Vec::new());
        for (i, one) in all.into_iter().enumerate() {
            if self.mixed && i % 2 == first { some.push(one) } else { rest.push(one) }
        }
        let mut running = threads(some);
        running.tasks = rest.into_iter().map(|one| task(runtime, one)).collect();
        running.runtime = Some(runtime.handle().clone());
        running
    }

    /// Starts a consumer for each state, which `on_key` is given with each key
    /// before its run ends.
    pub fn consume<Q, S, F>(&self, q: &Arc<Q>, form: Form, states: Vec<S>, on_key: F) -> Running<S>
    where
        Q: AsyncFifo,
        S: Send + 'static,
        F: Fn(&mut S, &Q::Key) + Copy + Send + Sync + 'static,
    {
        let task = |runtime: &Runtime, state| {
            let q = Arc::clone(q);
            match form {
                Form::Plain => runtime.spawn(plain_task(q, state, on_key)),
                Form::Next => runtime.spawn(next_task(q, state, on_key)),
            }
        };
        self.start(1, states, |states| consume_in_threads(q, form, states, on_key), task)
    }

    /// Starts a producer for each iterator, which adds what it gives.
    pub fn produce<Q, I>(&self, q: &Arc<Q>, keys: Vec<I>) -> Running<()>
    where
        Q: Fifo,
        I: Iterator<Item = Q::Key> + Send + 'static,
    {
        let task = |runtime: &Runtime, keys: I| {
            let q = Arc::clone(q);
            runtime.spawn(async move {
                let mut left = BUDGET;
                for key in keys {
                    q.add(key);
                    spend(&mut left).await;
                }
            })
        };
        self.start(0, keys, |keys| produce_in_threads(q, keys), task)
    }
}

impl<S: 'static> Running<S> {
    fn threads(threads: Vec<thread::JoinHandle<S>>) -> Self {
        Self { threads, tasks: Vec::new(), runtime: None }
    }

    /// Waits for the end of all, and returns their states.
    ///
    /// # Panics
    ///
    /// If one of them has.
    pub fn join(self) -> Vec<S> {
        let threads = self.threads.into_iter().map(|thread| thread.join().expect("it ends well"));
        let tasks = self.tasks.into_iter().zip(self.runtime.iter().cycle());
        let tasks = tasks.map(|(task, runtime)| runtime.block_on(task).expect("it ends well"));
        threads.chain(tasks).collect()
    }
}

/// [`Crew::consume`] for a queue that has no tasks.
pub fn consume_in_threads<Q, S, F>(q: &Arc<Q>, form: Form, states: Vec<S>, on_key: F) -> Running<S>
where
    Q: Fifo,
    S: Send + 'static,
    F: Fn(&mut S, &Q::Key) + Copy + Send + Sync + 'static,
{
    let start = |state| {
        let q = Arc::clone(q);
        spawn(move || match form {
            Form::Plain => plain_thread(&*q, state, on_key),
            Form::Next => next_thread(&*q, state, on_key),
        })
    };
    Running::threads(states.into_iter().map(start).collect())
}

/// [`Crew::produce`] for a queue that has no tasks.
pub fn produce_in_threads<Q, I>(q: &Arc<Q>, keys: Vec<I>) -> Running<()>
where
    Q: Fifo,
    I: Iterator<Item = Q::Key> + Send + 'static,
{
    let start = |keys: I| {
        let q = Arc::clone(q);
        spawn(move || keys.for_each(|key| q.add(key)))
    };
    Running::threads(keys.into_iter().map(start).collect())
}

fn plain_thread<Q: Fifo, S>(q: &Q, mut state: S, on_key: impl Fn(&mut S, &Q::Key)) -> S {
    while let Some(item) = q.get() {
        on_key(&mut state, Q::key(&item));
        q.done(item);
    }
    state
}

fn next_thread<Q: Fifo, S>(q: &Q, mut state: S, on_key: impl Fn(&mut S, &Q::Key)) -> S {
    let mut got = q.get();
    while let Some(item) = got {
        on_key(&mut state, Q::key(&item));
        got = q.next(item);
    }
    state
}

async fn plain_task<Q, S, F>(q: Arc<Q>, mut state: S, on_key: F) -> S
where
    Q: AsyncFifo,
    F: Fn(&mut S, &Q::Key),
{
    let mut left = BUDGET;
    while let Some(item) = q.get_async().await {
        on_key(&mut state, Q::key(&item));
        q.done(item);
        spend(&mut left).await;
    }
    state
}

async fn next_task<Q, S, F>(q: Arc<Q>, mut state: S, on_key: F) -> S
where
    Q: AsyncFifo,
    F: Fn(&mut S, &Q::Key),
{
    let mut left = BUDGET;
    let mut got = q.get_async().await;
    while let Some(item) = got {
        on_key(&mut state, Q::key(&item));
        spend(&mut left).await;
        got = q.next_async(item).await;
    }
    state
}

async fn spend(left: &mut u32) {
    *left -= 1;
    if *left == 0 {
        *left = BUDGET;
        tokio::task::yield_now().await;
    }
}

/// Progress of several consumers: each writes its own number on its own cache line, and a caller that waits
/// for all of it looks now and then.
#[derive(Debug)]
pub struct Tally(Vec<Mine>);

/// A consumer's number.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Mine(AtomicU64);

impl Tally {
    /// Counters at zero, one per consumer.
    #[must_use]
    pub fn new(consumers: usize) -> Arc<Self> {
        Arc::new(Self((0..consumers).map(|_| Mine::default()).collect()))
    }

    /// Adds one to what this consumer has done.
    #[inline]
    pub fn count(&self, consumer: usize) {
        let mine = &self.0[consumer].0;
        mine.store(mine.load(Relaxed) + 1, Relaxed);
    }

    /// Waits until they have done that much together, to 0.1 ms.
    pub fn wait_for(&self, n: u64) {
        while self.0.iter().map(|mine| mine.0.load(Relaxed)).sum::<u64>() < n {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixed_crew_has_threads_and_tasks() {
        let crew = Crew::new("mixed");
        let count = |of: Vec<u32>| {
            let running = crew.start(
                0,
                of,
                |some| Running::threads(some.into_iter().map(|n| spawn(move || n)).collect()),
                |runtime, n| runtime.spawn(async move { n + 100 }),
            );
            running.join()
        };
        assert_eq!(count(vec![1, 2, 3, 4, 5]), [1, 3, 5, 102, 104]);
        assert_eq!(count(vec![1]), [1]);
        assert_eq!(count(vec![]), [0; 0]);
    }
}
