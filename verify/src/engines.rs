//! The rules of engines (docs/ENGINES.md), as tests that take the engine as a parameter: [`engine_rules!`](crate::engine_rules)
//! runs them. Those of [`in_process`] hold for a queue in memory too.

#![allow(missing_docs, reason = "the tests' names are sentences")]

use requeue::{AsyncQueue, Clock as _, KeyState, Outcome, Run, Source, Worker};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A place where queues are kept: an engine, as one process has it.
pub trait Engine: Default {
    /// A queue whose values merge: newer ones go behind older ones. It has priorities.
    type Queue: AsyncQueue<String, Vec<u32>>
        + Source<Key = String, Value = Vec<u32>>
        + Clone
        + Send
        + Sync
        + 'static;

    /// Opens the queue as the next process does, after the one before has closed it.
    fn open(&self) -> Self::Queue;
    /// State of a key.
    fn state(queue: &Self::Queue, key: &str) -> Option<State>;
    /// Whether the key was there.
    fn cancel(queue: &Self::Queue, key: &str) -> bool;
    fn pause(queue: &Self::Queue, paused: bool);
    fn shut_down(queue: &Self::Queue);
}

/// An engine whose queues may have groups, which take turns.
pub trait Grouped: Engine {
    /// Opens the queue. A key's group is the part before its `/`. At most `cap` keys of each group may be
    /// held, and one group has this weight.
    fn open_with_groups(&self, cap: usize, weight: (&'static str, u32)) -> Self::Queue;
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
    fence: Option<u64>,
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
                fence: run.fence().map(|fence| fence.0),
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
fn is_idle<E: Engine>(queue: &E::Queue, name: &str) -> bool {
    E::state(queue, name).is_none_or(|it| !it.ready && !it.held && !it.dirty && it.due_in.is_none())
}

/// Rules that concern one process.
pub mod in_process {
    use super::*;
    use requeue::{Add, Added};

    pub fn e1_tasks_and_threads_add_to_one_queue<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let queue = &queue;
                threads.spawn(move || {
                    for n in 0..25 {
                        let add = queue.add(format!("{thread}-{n}"));
                        let added = if thread % 2 == 0 { add.wait() } else { smol::block_on(add) };
                        assert_eq!(added.expect("it takes keys"), Added::Ready);
                    }
                });
            }
        });
        let work = Work::on(&queue, |_| Outcome::Done);
        let mut keys = work.keys(100);
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 100);
        assert_eq!(work.stop(), []);
    }

    pub fn e5_triggers_of_a_ready_key_are_one_run_and_those_during_a_run_one_more<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        for _ in 0..5 {
            queue.add(key("a")).wait().expect("open");
        }
        let held = Held::on(&queue, || Outcome::Done);
        held.begins();
        assert_eq!(queue.add(key("a")).wait().expect("open"), Added::Dirty);
        for _ in 0..5 {
            assert_eq!(queue.add(key("a")).wait().expect("open"), Added::Coalesced);
        }
        held.goes_on();
        held.begins();
        held.goes_on();
        until("the end of both runs", || is_idle::<E>(&queue, "a"));
        assert!(held.begun.try_recv().is_err(), "a third run");
        assert!(held.worker.stop(LONG).wait().complete);
    }

    pub fn e8_the_earlier_timer_of_a_key_stays<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        queue.add_after(key("a"), HOUR).wait().expect("open");
        let due = || E::state(&queue, "a").expect("it waits").due_in.expect("a timer");
        assert!(due() > HOUR / 2);
        queue.add_after(key("a"), 2 * HOUR).wait().expect("open");
        assert!(due() <= HOUR && due() > HOUR / 2);
        queue.add_after(key("a"), HOUR / 4).wait().expect("open");
        assert!(due() <= HOUR / 4);
        queue.add_after(key("b"), Duration::from_millis(1)).wait().expect("open");
        let work = Work::on(&queue, |_| Outcome::Done);
        assert_eq!(work.next().key, "b");
        assert_eq!(work.stop(), []);
    }

    pub fn e18_a_trigger_that_is_refused_gives_key_and_value_back<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        E::shut_down(&queue);
        let failed =
            queue.add_with(key("a"), Add::now().value(vec![1]).into()).wait().expect_err("it is shut down");
        assert_eq!((&*failed.key, failed.value), ("a", Some(vec![1])));
        assert!(E::state(&queue, "a").is_none());
    }

    pub fn e19_an_add_that_nobody_waits_for_is_accepted_all_the_same<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        drop(queue.add(key("a")));
        // accepted after it, for they stand in one line
        queue.add(key("b")).wait().expect("open");
        let work = Work::on(&queue, |_| Outcome::Done);
        assert_eq!(work.keys(2), ["a", "b"]);
        assert_eq!(work.stop(), []);
    }

    pub fn e20_a_run_that_panics_puts_its_key_back_as_a_failure<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        queue.add(key("a")).wait().expect("open");
        let runs = Arc::new(Mutex::new(Vec::new()));
        let saw = runs.clone();
        let worker = Worker::of(&queue).workers(1).start_threads(move |run: Run<String, Vec<u32>>| {
            saw.lock().expect("no panic").push(run.attempt());
            assert!(run.attempt() > 1, "the first one");
        });
        until("the second run", || *runs.lock().expect("no panic") == [1, 2]);
        until("its end", || is_idle::<E>(&queue, "a"));
        assert!(worker.expect("threads").stop(LONG).wait().complete);
    }

    pub fn e23_values_of_a_key_merge_the_older_first<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        for value in [1, 2] {
            queue.add_with(key("a"), Add::now().value(vec![value]).into()).wait().expect("open");
        }
        queue.add(key("b")).wait().expect("open");
        let work = Work::on(&queue, |_| Outcome::Done);
        assert_eq!([work.next().value, work.next().value], [Some(vec![1, 2]), None]);
        assert_eq!(work.stop(), []);
    }

    pub fn e24_a_paused_queue_hands_out_nothing_until_it_is_resumed<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        E::pause(&queue, true);
        queue.add(key("a")).wait().expect("open");
        let work = Work::on(&queue, |_| Outcome::Done);
        assert_eq!(work.stop(), []);
        E::pause(&queue, false);
        let work = Work::on(&queue, |_| Outcome::Done);
        assert_eq!(work.next().key, "a");
        assert_eq!(work.stop(), []);
    }

    pub fn e29_what_is_cancelled_does_not_run<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        queue.add_after(key("late"), HOUR).wait().expect("open");
        for name in ["a", "b"] {
            queue.add(key(name)).wait().expect("open");
        }
        assert!(E::cancel(&queue, "late") && E::cancel(&queue, "a") && !E::cancel(&queue, "a"));
        let work = Work::on(&queue, |_| Outcome::Done);
        assert_eq!(work.next().key, "b");
        assert_eq!(work.stop(), []);
        assert!(is_idle::<E>(&queue, "late"));
    }
}

/// Rules for data that outlives a process.
pub mod durable {
    use super::*;
    use requeue::Add;

    pub fn e1_what_was_accepted_is_there_for_the_next_process_in_the_order_of_the_line<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        for name in ["b", "a", "c", "a"] {
            queue.add(key(name)).wait().expect("open");
        }
        queue.add_after(key("late"), HOUR).wait().expect("open");
        drop(queue);
        let queue = engine.open();
        let work = Work::on(&queue, |_| Outcome::Done);
        assert_eq!(work.keys(3), ["b", "a", "c"]);
        assert_eq!(work.stop(), []);
        drop(queue);
        // what has ended does not run again
        let queue = engine.open();
        assert!(["a", "b", "c"].iter().all(|name| is_idle::<E>(&queue, name)));
        assert!(E::state(&queue, "late").is_some_and(|state| state.due_in.is_some()));
    }

    pub fn e2_a_trigger_during_a_run_is_a_run_of_the_next_process<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        queue.add(key("a")).wait().expect("open");
        let held = Held::on(&queue, || Outcome::Done);
        held.begins();
        queue.add(key("a")).wait().expect("open");
        let stop = held.worker.stop(LONG);
        held.go_on.send(()).expect("a run waits");
        assert!(stop.wait().complete);
        drop((held, queue));
        let queue = engine.open();
        let work = Work::on(&queue, |_| Outcome::Done);
        assert_eq!(work.next().key, "a");
        assert_eq!(work.stop(), []);
    }

    pub fn e9_failures_attempt_value_and_priority_are_as_they_were<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        for (value, priority) in [(1, 0), (2, 7)] {
            let add = Add::now().value(vec![value]).priority(priority);
            queue.add_with(key("a"), add.into()).wait().expect("open");
        }
        let work = Work::on(&queue, |_| Outcome::Retry("not yet".into()));
        let mut saw = vec![work.next(), work.next()];
        saw.extend(work.stop());
        for (saw, attempt) in saw.iter().zip(1..) {
            assert_eq!((saw.attempt, saw.priority, &saw.value), (attempt, 7, &Some(vec![1, 2])), "{saw:?}");
        }
        let runs = u32::try_from(saw.len()).expect("few");
        drop(queue);
        let queue = engine.open();
        let state = E::state(&queue, "a").expect("it is to run again");
        assert_eq!((state.failures, state.attempt, state.priority), (runs, runs + 1, 7));
        queue.add_with(key("a"), Add::now().value(vec![3]).into()).wait().expect("open");
        let work = Work::on(&queue, |_| Outcome::Done);
        assert_eq!(work.next().value, Some(vec![1, 2, 3]));
        work.stop();
    }

    pub fn e9_a_retry_that_came_too_late_is_not_lost<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        queue.add(key("a")).wait().expect("open");
        let held = Held::on(&queue, || Outcome::Retry("cut short".into()));
        held.begins();
        E::shut_down(&queue);
        held.goes_on();
        held.worker.join();
        drop((held, queue));
        let queue = engine.open();
        let work = Work::on(&queue, |_| Outcome::Done);
        assert_eq!(work.next().key, "a");
        assert_eq!(work.stop(), []);
    }

    pub fn e10_fences_grow_from_run_to_run_over_processes_also_where_the_key_was_gone<E: Engine>() {
        let engine = E::default();
        let mut last = 0;
        for _ in 0..3 {
            let queue = engine.open();
            let work = Work::on(&queue, |_| Outcome::Done);
            for _ in 0..3 {
                queue.add(key("a")).wait().expect("open");
                let fence = work.next().fence.expect("each run has one");
                assert!(fence > last, "{fence} after {last}");
                last = fence;
                until("its end", || is_idle::<E>(&queue, "a"));
            }
            assert_eq!(work.stop(), []);
        }
    }

    pub fn e19_an_add_that_nobody_waits_for_is_there_for_the_next_process<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        drop(queue.add(key("a")));
        queue.add(key("b")).wait().expect("open");
        drop(queue);
        let queue = engine.open();
        let work = Work::on(&queue, |_| Outcome::Done);
        assert_eq!(work.keys(2), ["a", "b"]);
        assert_eq!(work.stop(), []);
    }

    pub fn e24_a_pause_holds_for_the_next_process<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        E::pause(&queue, true);
        queue.add(key("a")).wait().expect("open");
        drop(queue);
        let queue = engine.open();
        assert_eq!(Work::on(&queue, |_| Outcome::Done).stop(), []);
        E::pause(&queue, false);
        let work = Work::on(&queue, |_| Outcome::Done);
        assert_eq!(work.next().key, "a");
        assert_eq!(work.stop(), []);
    }

    pub fn e29_what_was_cancelled_does_not_come_back_with_the_next_process<E: Engine>() {
        let engine = E::default();
        let queue = engine.open();
        queue.add(key("a")).wait().expect("open");
        queue.add_after(key("late"), HOUR).wait().expect("open");
        assert!(E::cancel(&queue, "a") && E::cancel(&queue, "late"));
        drop(queue);
        let queue = engine.open();
        assert!(is_idle::<E>(&queue, "a") && is_idle::<E>(&queue, "late"));
    }
}

/// Rules of groups.
pub mod grouped {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    pub fn b3_while_a_group_waits_each_other_has_a_turn_of_its_weight<E: Grouped>() {
        let engine = E::default();
        let queue = engine.open_with_groups(9, ("b", 3));
        E::pause(&queue, true);
        let weights = [("a", 1), ("b", 3), ("c", 1)];
        for (group, weight) in weights {
            for n in 0..weight * 20 {
                queue.add(format!("{group}/{n}")).wait().expect("open");
            }
        }
        let work = Work::on(&queue, |_| Outcome::Done);
        E::pause(&queue, false);
        let order: Vec<String> = work.keys(100).iter().map(|key| group(key)).collect();
        assert_eq!(work.stop(), []);
        for (waits, _) in weights {
            for (other, weight) in weights.into_iter().filter(|(other, _)| *other != waits) {
                let mut since = 0;
                // to its last key it always waits
                let last = order.iter().rposition(|group| group == waits).expect("it ran");
                for group in &order[..last] {
                    since = if group == waits { 0 } else { since + i32::from(group == other) };
                    assert!(since <= weight, "{other} got {since} keys while {waits} waited");
                }
            }
        }
    }

    pub fn b3_no_more_keys_of_a_group_are_held_than_its_cap<E: Grouped>() {
        let engine = E::default();
        let queue = engine.open_with_groups(2, ("b", 1));
        let (held, most, both) = (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(2));
        let all = Arc::new((held, most, both));
        let (tell, ran) = mpsc::channel();
        let worker = Worker::of(&queue).workers(4).start_threads({
            let all = all.clone();
            move |_: Run<String, Vec<u32>>| {
                let (held, most, both) = &*all;
                most.fetch_max(held.fetch_add(1, SeqCst) + 1, SeqCst);
                // two at a time, for as long as it takes
                both.wait();
                std::thread::yield_now();
                both.wait();
                held.fetch_sub(1, SeqCst);
                tell.send(()).expect("the test goes on");
            }
        });
        for n in 0..40 {
            queue.add(format!("a/{n}")).wait().expect("open");
        }
        for _ in 0..40 {
            ran.recv_timeout(LONG).expect("two runs at once");
        }
        assert_eq!(all.1.load(SeqCst), 2);
        assert!(worker.expect("threads").stop(LONG).wait().complete);
    }
}

/// Makes a test of each rule for this engine: of all, of those of one process, or of those of groups.
#[macro_export]
macro_rules! engine_rules {
    ($engine:ty, in_process) => {
        $crate::engine_rules!($engine, in_process:
            e1_tasks_and_threads_add_to_one_queue
            e5_triggers_of_a_ready_key_are_one_run_and_those_during_a_run_one_more
            e8_the_earlier_timer_of_a_key_stays
            e18_a_trigger_that_is_refused_gives_key_and_value_back
            e19_an_add_that_nobody_waits_for_is_accepted_all_the_same
            e20_a_run_that_panics_puts_its_key_back_as_a_failure
            e23_values_of_a_key_merge_the_older_first
            e24_a_paused_queue_hands_out_nothing_until_it_is_resumed
            e29_what_is_cancelled_does_not_run
        );
    };
    ($engine:ty, grouped) => {
        $crate::engine_rules!($engine, grouped:
            b3_while_a_group_waits_each_other_has_a_turn_of_its_weight
            b3_no_more_keys_of_a_group_are_held_than_its_cap
        );
    };
    ($engine:ty) => {
        $crate::engine_rules!($engine, in_process);
        $crate::engine_rules!($engine, durable:
            e1_what_was_accepted_is_there_for_the_next_process_in_the_order_of_the_line
            e2_a_trigger_during_a_run_is_a_run_of_the_next_process
            e9_failures_attempt_value_and_priority_are_as_they_were
            e9_a_retry_that_came_too_late_is_not_lost
            e10_fences_grow_from_run_to_run_over_processes_also_where_the_key_was_gone
            e19_an_add_that_nobody_waits_for_is_there_for_the_next_process
            e24_a_pause_holds_for_the_next_process
            e29_what_was_cancelled_does_not_come_back_with_the_next_process
        );
    };
    ($engine:ty, $part:ident: $($rule:ident)*) => {
        $(#[test]
        fn $rule() {
            $crate::engines::$part::$rule::<$engine>();
        })*
    };
}
