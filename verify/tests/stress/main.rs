//! Threads and tasks mixed, on the system's clock, at random moments.
//!
//! In its short form, which runs with all tests, this takes a few seconds. `REQUEUE_STRESS=n` makes it n
//! times as long, and `REQUEUE_SEED` begins with another seed than 1; a failure names the seed of its round.
//!
//! The first read of a handler is a plain one, with a relaxed load: a read-modify-write would itself be the
//! barrier whose absence the test must find.

mod accounts;

use requeue::limiter::Exponential;
use requeue::{Add, Debounce, DrainOptions, GroupRules, InBackoff, Scope, WaitingKeys, WorkQueue};
use requeue_verify::fronts::{smol_executor, tokio_runtime};
use requeue_verify::wake::{block_on, poll_once};
use requeue_verify::watchdog::run_for;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

/// Runs `round` with ever new seeds: `rounds` times in the short form.
fn stress(name: &'static str, rounds: u64, round: fn(Random)) {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let (factor, first) = (number("REQUEUE_STRESS").unwrap_or(1), number("REQUEUE_SEED").unwrap_or(1));
    run_for(name, Duration::from_secs(300 + 60 * factor), move || {
        for seed in first..first + rounds * factor {
            // Told by the harness only where the test fails.
            println!("seed {seed}");
            round(Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1));
        }
    });
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 33) % n
    }
    fn fork(&mut self) -> Self {
        Self(self.next() | 1)
    }
    /// Passes a little time, or none.
    fn dawdle(&mut self) {
        match self.below(8) {
            0 => thread::yield_now(),
            1 => (0..self.below(200)).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
    }
}

/// One of the ways to wait for a key.
#[derive(Clone, Copy, Debug)]
enum Way {
    Thread,
    Bare,
    Tokio,
    Smol,
}

const WAYS: [Way; 4] = [Way::Thread, Way::Tokio, Way::Smol, Way::Bare];

/// Takes keys in this way until the queue ends, in a separate thread or task. The handler gets the guard. The
/// channel is closed when all consumers are gone.
fn consume(
    way: Way,
    q: &WorkQueue<u64>,
    done: std::sync::mpsc::Sender<()>,
    mut handler: impl FnMut(requeue::Item<'static, u64>) + Send + 'static,
) {
    let q = q.clone();
    let mut tasks = {
        move |item: Option<requeue::Item<'_, u64>>| {
            let more = item.is_some();
            let handled = catch_unwind(AssertUnwindSafe(|| {
                item.into_iter().for_each(|item| handler(item.into_owned()));
            }));
            if handled.is_err() {
                // A task's panic would go nowhere. Its message has been printed.
                std::process::abort();
            }
            more
        }
    };
    match way {
        Way::Thread => drop(thread::spawn(move || {
            while tasks(q.get_blocking()) {}
            drop(done);
        })),
        Way::Bare => drop(thread::spawn(move || {
            while tasks(block_on(q.get())) {}
            drop(done);
        })),
        Way::Tokio => drop(tokio_runtime().spawn(async move {
            while tasks(q.get().await) {}
            drop(done);
        })),
        Way::Smol => {
            smol_threads();
            smol_executor()
                .spawn(async move {
                    while tasks(q.get().await) {}
                    drop(done);
                })
                .detach();
        }
    }
}

/// Two threads that run smol's tasks, for all tests.
fn smol_threads() {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if !STARTED.swap(true, Relaxed) {
        for _ in 0..2 {
            thread::spawn(|| smol::block_on(smol_executor().run(std::future::pending::<()>())));
        }
    }
}

/// A queue of the usual kind, or one with groups that take turns, with caps or without.
fn some_queue(random: &mut Random) -> WorkQueue<u64> {
    let (groups, cap) = (1 + random.below(4), 1 + random.below(2) as usize);
    let rules = GroupRules::new().weight(|group: &u64| *group as u32);
    let rules = match random.below(4) {
        0 | 1 => return WorkQueue::new(),
        2 => rules,
        _ => rules.cap(cap),
    };
    WorkQueue::builder().group_by_with(move |key: &u64| key % groups, rules).build().expect("a queue")
}

/// Shared state of producers and handlers: written values, seen values, and holders.
struct Board {
    /// For each producer and key, the value written last.
    written: Vec<Vec<AtomicU64>>,
    /// For each producer and key, the value that a run saw last. Only the key's holder writes it.
    seen: Vec<Vec<AtomicU64>>,
    held: Vec<AtomicBool>,
    runs: AtomicUsize,
}

impl Board {
    fn new(producers: usize, keys: usize) -> Arc<Self> {
        let cells = || (0..producers).map(|_| (0..keys).map(|_| AtomicU64::new(0)).collect()).collect();
        Arc::new(Self {
            written: cells(),
            seen: cells(),
            held: (0..keys).map(|_| AtomicBool::new(false)).collect(),
            runs: AtomicUsize::new(0),
        })
    }

    fn run(&self, key: u64) {
        let key = usize::try_from(key).expect("a small key");
        for (written, seen) in self.written.iter().zip(&self.seen) {
            let value = written[key].load(Relaxed);
            assert!(value >= seen[key].load(Relaxed), "key {key}: an older write than an earlier run saw");
            seen[key].store(value, Relaxed);
        }
        assert!(!self.held[key].load(Relaxed), "key {key} is held twice");
        self.held[key].store(true, Relaxed);
        if key % 3 == 0 {
            thread::yield_now();
        }
        assert!(self.held[key].load(Relaxed), "key {key} is held twice");
        self.held[key].store(false, Relaxed);
        self.runs.fetch_add(1, Relaxed);
    }
}

#[test]
fn stress_single_flight_and_freshness_with_threads_and_tasks_mixed() {
    stress("stress_single_flight_and_freshness_with_threads_and_tasks_mixed", 3, |mut random| {
        const PRODUCERS: usize = 4;
        const ADDS: u64 = 4_000;
        let keys = 1 + random.below(12) as usize;
        let q = some_queue(&mut random);
        let board = Board::new(PRODUCERS, keys);
        let (done, all_done) = std::sync::mpsc::channel();
        for way in WAYS.into_iter().cycle().take(2 + random.below(4) as usize) {
            let board = Arc::clone(&board);
            consume(way, &q, done.clone(), move |item| {
                board.run(*item.key());
                item.done();
            });
        }
        drop(done);
        let produce = |producer: usize, q: WorkQueue<u64>, mut random: Random| {
            let board = Arc::clone(&board);
            move || {
                for value in 1..=ADDS {
                    let key = random.below(keys as u64);
                    board.written[producer][key as usize].store(value, Relaxed);
                    match random.below(3) {
                        0 => q.add_ref(&key).map_err(drop),
                        1 => q
                            .add_after(key, Duration::ZERO)
                            .map(drop)
                            .map_err(drop)
                            .map(|()| requeue::Added::Ready),
                        _ => q.add(key).map_err(drop),
                    }
                    .expect("the queue is open");
                    random.dawdle();
                }
            }
        };
        let tasks: Vec<_> = (2..PRODUCERS)
            .map(|at| {
                let mut produce = produce(at, q.clone(), random.fork());
                tokio_runtime().spawn(async move { produce() })
            })
            .collect();
        let threads: Vec<_> = (0..2).map(|at| thread::spawn(produce(at, q.clone(), random.fork()))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a producer"));
        tasks.into_iter().for_each(|task| tokio_runtime().block_on(task).expect("a producer"));
        assert!(q.drain(DrainOptions::default()).wait().complete);
        assert!(all_done.recv().is_err(), "all consumers have left");
        for (written, seen) in board.written.iter().zip(&board.seen) {
            for (key, (written, seen)) in written.iter().zip(seen).enumerate() {
                assert_eq!(seen.load(Relaxed), written.load(Relaxed), "key {key}: no run saw the last write");
            }
        }
    });
}

#[test]
fn stress_each_producers_keys_keep_their_order() {
    stress("stress_each_producers_keys_keep_their_order", 2, |mut random| {
        const KEYS: u64 = 5_000;
        for way in WAYS {
            let q = WorkQueue::<u64>::new();
            let (done, all_done) = std::sync::mpsc::channel();
            let order = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&order);
            consume(way, &q, done, move |item| seen.lock().unwrap().push(*item.key()));
            thread::scope(|s| {
                for producer in 0..3 {
                    let (q, mut random) = (&q, random.fork());
                    s.spawn(move || {
                        for key in 0..KEYS {
                            q.add(producer * KEYS + key).expect("open");
                            random.dawdle();
                        }
                    });
                }
            });
            q.shut_down();
            assert!(all_done.recv().is_err());
            let order = order.lock().unwrap();
            assert_eq!(order.len() as u64, 3 * KEYS, "{way:?}");
            for producer in 0..3 {
                let own: Vec<u64> = order.iter().copied().filter(|key| key / KEYS == producer).collect();
                assert!(own.is_sorted(), "{way:?}: producer {producer}'s keys came out of order");
            }
        }
    });
}

#[test]
fn stress_getters_that_are_cancelled_at_any_poll_lose_nothing() {
    stress("stress_getters_that_are_cancelled_at_any_poll_lose_nothing", 3, |mut random| {
        const KEYS: u64 = 3_000;
        let q = some_queue(&mut random);
        let runs: Vec<AtomicUsize> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
        let count = |key: u64| runs[key as usize].fetch_add(1, Relaxed);
        thread::scope(|s| {
            // Those who only ever try and leave.
            for _ in 0..2 {
                let (q, mut random) = (&q, random.fork());
                s.spawn(move || {
                    while !q.shutting_down() {
                        let mut gets: Vec<_> = (0..1 + random.below(4)).map(|_| q.get()).collect();
                        for get in &mut gets {
                            if let Poll::Ready(Some(item)) = poll_once(get) {
                                count(*item.key());
                            }
                        }
                        random.dawdle();
                        // Some leave after they were woken, some before.
                        while !gets.is_empty() {
                            drop(gets.remove(random.below(gets.len() as u64) as usize));
                        }
                    }
                });
            }
            // Those who wait: in the end they must have been woken for the rest.
            for way in 0..2 {
                let q = &q;
                s.spawn(move || {
                    loop {
                        let item = if way == 0 { q.get_blocking() } else { block_on(q.get()) };
                        let Some(item) = item else { break };
                        count(*item.key());
                    }
                });
            }
            for key in 0..KEYS {
                if key % 3 == 0 {
                    q.add_after(key, Duration::from_micros(random.below(300))).expect("open");
                } else {
                    q.add(key).expect("open");
                }
                random.dawdle();
            }
            let options = DrainOptions::default().waiting_keys(WaitingKeys::Wait);
            assert!(q.drain(options).wait().complete);
        });
        for (key, runs) in runs.iter().enumerate() {
            assert_eq!(runs.load(Relaxed), 1, "key {key}");
        }
    });
}

#[test]
fn stress_a_bound_holds_and_loses_no_key_while_threads_and_tasks_wait_for_room() {
    stress("stress_a_bound_holds_and_loses_no_key_while_threads_and_tasks_wait_for_room", 3, |mut random| {
        const KEYS: u64 = 1_500;
        let bound = 1 + random.below(4) as usize;
        let q = WorkQueue::<u64>::builder().bound(bound).build().unwrap();
        let runs: Arc<Vec<AtomicUsize>> = Arc::new((0..4 * KEYS).map(|_| AtomicUsize::new(0)).collect());
        let (done, all_done) = std::sync::mpsc::channel();
        for way in WAYS {
            let runs = Arc::clone(&runs);
            consume(way, &q, done.clone(), move |item| {
                runs[*item.key() as usize].fetch_add(1, Relaxed);
                item.done();
            });
        }
        drop(done);
        thread::scope(|s| {
            for adder in 0..4 {
                let (q, mut random) = (&q, random.fork());
                s.spawn(move || {
                    for key in adder * KEYS..(adder + 1) * KEYS {
                        let how = if random.below(4) == 0 {
                            Add::after(Duration::from_micros(20))
                        } else {
                            Add::now()
                        };
                        // those who give up in between must not take a turn with them
                        if random.below(4) == 0 {
                            let mut left = q.add_when_room(key, Add::now());
                            if poll_once(&mut left).is_ready() {
                                continue;
                            }
                            random.dawdle();
                        }
                        let add = q.add_when_room(key, how);
                        if adder % 2 == 0 { add.wait() } else { block_on(add) }.expect("open");
                        assert!(q.stats().room.is_some_and(|room| room <= bound));
                        random.dawdle();
                    }
                });
            }
        });
        let options = DrainOptions::default().waiting_keys(WaitingKeys::Wait);
        let drained = q.drain(options).wait();
        // retries that it refused are in the list of unfinished keys
        assert_eq!((drained.ready, drained.held, drained.waiting), (0, 0, 0), "{drained:?}");
        assert!(all_done.recv().is_err());
        for (key, runs) in runs.iter().enumerate() {
            assert_eq!(runs.load(Relaxed), 1, "key {key}");
        }
    });
}

/// A trigger with a random selection of options.
fn some_add<V>(random: &mut Random) -> Add<V> {
    let us = |random: &mut Random| Duration::from_micros(random.below(200));
    let priority = random.below(5) as i16 - 2;
    let add = match random.below(4) {
        0 => Add::debounced(Debounce::new(us(random)).max(us(random))),
        1 => Add::debounced(Debounce::new(us(random)).leading()),
        _ => Add::now(),
    };
    let add = add.priority(priority);
    let add = match random.below(4) {
        0 => add.in_backoff(InBackoff::Respect),
        1 => add.in_backoff(InBackoff::Reset),
        _ => add,
    };
    if random.below(4) == 0 { Add::after(us(random)).priority(priority) } else { add }
}

/// Whatever may be done to a queue from outside, until `over`.
fn meddle(q: &WorkQueue<u64>, keys: u64, over: &AtomicBool, mut random: Random) {
    while !over.load(Relaxed) {
        let key = random.below(keys);
        match random.below(11) {
            0 => {
                q.pause(Scope::Queue);
                random.dawdle();
                q.resume(Scope::Queue);
            }
            8 => drop(q.pause(Scope::GroupOf(key))),
            9 | 10 => drop(q.resume(Scope::GroupOf(&key))),
            1 | 2 => drop(q.pause(Scope::Key(key))),
            3 | 4 => drop(q.resume(Scope::Key(&key))),
            5 => drop(q.cancel(&key)),
            6 => assert!(q.snapshot().page(3).all(|page| page.keys.len() <= 3)),
            _ => drop(q.explain(&key).to_string()),
        }
        random.dawdle();
    }
    q.resume(Scope::Queue);
    (0..keys).for_each(|key| _ = (q.resume(Scope::Key(&key)), q.resume(Scope::GroupOf(&key))));
}

#[test]
fn stress_all_features_at_once_keep_single_flight_caps_and_the_bound_and_lose_no_last_trigger() {
    let name = "stress_all_features_at_once_keep_single_flight_caps_and_the_bound_and_lose_no_last_trigger";
    stress(name, 3, |mut random| {
        const PRODUCERS: usize = 3;
        const ADDS: u64 = 1_500;
        const GROUPS: u64 = 3;
        const CAP: usize = 2;
        let keys = 4 + random.below(12);
        let bound = 2 + random.below(keys) as usize;
        let rules = GroupRules::new().cap(CAP).weight(|group| *group as u32);
        let rules = if random.below(2) == 0 { rules } else { rules.rate(40_000.0, 5) };
        let q = WorkQueue::<u64>::builder()
            .priorities()
            .group_by_with(|key: &u64| key % GROUPS, rules)
            .max_wait(Duration::from_micros(random.below(3_000)))
            .rate(100_000.0, 20)
            .bound(bound)
            .limiter(Exponential::new(Duration::from_micros(20), Duration::from_millis(1)).unwrap())
            .build()
            .unwrap();
        let board = Board::new(PRODUCERS, keys as usize);
        let held: Arc<Vec<AtomicUsize>> = Arc::new((0..GROUPS).map(|_| AtomicUsize::new(0)).collect());
        let (done, all_done) = std::sync::mpsc::channel();
        for way in WAYS {
            let (board, held, mut random) = (Arc::clone(&board), Arc::clone(&held), random.fork());
            consume(way, &q, done.clone(), move |item| {
                let group = &held[(*item.key() % GROUPS) as usize];
                assert!(group.fetch_add(1, Relaxed) < CAP, "more keys of a group are held than its cap");
                board.run(*item.key());
                group.fetch_sub(1, Relaxed);
                match random.below(6) {
                    0 => drop(item.retry()),
                    1 => drop(item.again(Duration::from_micros(30))),
                    2 => drop(item),
                    _ => item.succeed(),
                }
            });
        }
        drop(done);
        let over = AtomicBool::new(false);
        thread::scope(|s| {
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|producer| {
                    let (q, board, mut random) = (&q, &board, random.fork());
                    s.spawn(move || {
                        for value in 1..=ADDS {
                            let key = random.below(keys);
                            board.written[producer][key as usize].store(value, Relaxed);
                            let add = some_add(&mut random);
                            match random.below(3) {
                                0 => drop(q.add_with(key, add)),
                                1 => drop(q.add_when_room(key, add).timeout(Duration::from_millis(1)).wait()),
                                _ => drop(block_on(q.add_when_room(key, add))),
                            }
                            assert!(q.stats().room.is_some_and(|room| room <= bound));
                            random.dawdle();
                        }
                    })
                })
                .collect();
            let (q, over, random) = (&q, &over, random.fork());
            s.spawn(move || meddle(q, keys, over, random));
            producers.into_iter().for_each(|producer| producer.join().expect("a producer"));
            over.store(true, Relaxed);
        });
        for key in 0..keys {
            (0..PRODUCERS)
                .for_each(|producer| board.written[producer][key as usize].store(ADDS + 1, Relaxed));
            q.add_when_room(key, Add::now()).wait().expect("open");
        }
        let options = DrainOptions::default().waiting_keys(WaitingKeys::RunNow);
        let drained = q.drain(options).wait();
        // retries that it refused are in the list of unfinished keys
        assert_eq!((drained.ready, drained.held, drained.waiting), (0, 0, 0), "{drained:?}");
        assert!(all_done.recv().is_err(), "all consumers have left");
        for (key, seen) in board.seen.iter().flat_map(|seen| seen.iter().enumerate()) {
            assert_eq!(seen.load(Relaxed), ADDS + 1, "key {key}: no run saw the last write");
        }
    });
}

/// Ends a queue at a random moment in one of its ways; how many waiting keys were
/// dropped by that.
fn end(q: &WorkQueue<u64>, way: u64) -> u64 {
    let drain = |waiting| q.drain(DrainOptions::default().waiting_keys(waiting)).wait();
    match way {
        0 => q.shut_down().dropped as u64,
        1 => drain(WaitingKeys::Drop).dropped,
        2 => drain(WaitingKeys::RunNow).dropped,
        _ => drain(WaitingKeys::Wait).dropped,
    }
}

#[test]
fn stress_every_accepted_key_runs_whenever_the_queue_ends() {
    stress("stress_every_accepted_key_runs_whenever_the_queue_ends", 30, |mut random| {
        let q = some_queue(&mut random);
        let (done, all_done) = std::sync::mpsc::channel();
        let runs = Arc::new(AtomicU64::new(0));
        for way in WAYS.into_iter().cycle().skip(random.below(4) as usize).take(3) {
            let runs = Arc::clone(&runs);
            consume(way, &q, done.clone(), move |item| {
                runs.fetch_add(1, Relaxed);
                item.done();
            });
        }
        drop(done);
        let accepted = AtomicU64::new(0);
        let (moment, way) = (random.below(3_000), random.below(4));
        let dropped = thread::scope(|s| {
            for producer in 0..2 {
                let (q, accepted, mut random) = (&q, &accepted, random.fork());
                s.spawn(move || {
                    for key in 0.. {
                        let key = producer << 32 | key;
                        let added = match random.below(3) {
                            0 => q.add_after(key, Duration::from_micros(1 + random.below(100))),
                            1 => q.add_with(key, Add::after(Duration::from_millis(1)).replace()),
                            _ => q.add(key),
                        };
                        if added.is_err() {
                            break;
                        }
                        accepted.fetch_add(1, Relaxed);
                        random.dawdle();
                    }
                });
            }
            let ender = s.spawn(|| {
                while runs.load(Relaxed) < moment {
                    thread::yield_now();
                }
                end(&q, way)
            });
            ender.join().expect("the end")
        });
        assert!(all_done.recv().is_err());
        let accepted = accepted.load(Relaxed);
        assert_eq!(
            runs.load(Relaxed) + dropped,
            accepted,
            "accepted, and neither run nor counted as dropped"
        );
        let left = q.stats();
        assert_eq!((left.ready, left.held, left.waiting), (0, 0, 0));
    });
}

#[test]
fn stress_retries_are_worked_off_by_a_drain_that_waits() {
    stress("stress_retries_are_worked_off_by_a_drain_that_waits", 6, |mut random| {
        const KEYS: u64 = 200;
        let limiter = Exponential::new(Duration::from_micros(10), Duration::from_micros(500));
        let q = WorkQueue::<u64>::builder().limiter(limiter.expect("a limiter")).build().expect("a queue");
        let (done, all_done) = std::sync::mpsc::channel();
        let succeeded: Arc<Vec<AtomicUsize>> = Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect());
        for way in WAYS {
            let (succeeded, mut random) = (Arc::clone(&succeeded), random.fork());
            consume(way, &q, done.clone(), move |item| {
                if random.below(3) > 0 && item.attempt() < 20 {
                    item.retry().expect("a drain that waits takes retries");
                } else {
                    succeeded[*item.key() as usize].fetch_add(1, Relaxed);
                    item.succeed();
                }
            });
        }
        drop(done);
        for key in 0..KEYS {
            q.add(key).expect("open");
            random.dawdle();
        }
        let drains: Vec<_> = (0..2)
            .map(|_| {
                let q = q.clone();
                thread::spawn(move || q.drain(DrainOptions::default().waiting_keys(WaitingKeys::Wait)).wait())
            })
            .collect();
        for drain in drains {
            assert!(drain.join().expect("a drain").complete);
        }
        assert!(all_done.recv().is_err());
        for (key, succeeded) in succeeded.iter().enumerate() {
            assert_eq!(succeeded.load(Relaxed), 1, "key {key}");
        }
    });
}

#[test]
fn stress_timers_are_never_early_and_none_is_forgotten() {
    stress("stress_timers_are_never_early_and_none_is_forgotten", 4, |mut random| {
        const KEYS: u64 = 2_000;
        let q = WorkQueue::<u64>::new();
        let now = || requeue::Clock::now(&requeue::SystemClock);
        let due: Arc<Vec<AtomicU64>> = Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect());
        let (done, all_done) = std::sync::mpsc::channel();
        let runs = Arc::new(AtomicU64::new(0));
        for way in WAYS {
            let (due, runs) = (Arc::clone(&due), Arc::clone(&runs));
            consume(way, &q, done.clone(), move |item| {
                let due = due[*item.key() as usize].load(Relaxed);
                assert!(now().as_nanos() >= due, "key {} came early", item.key());
                runs.fetch_add(1, Relaxed);
            });
        }
        drop(done);
        for key in 0..KEYS {
            let delay = Duration::from_micros(random.below(3_000));
            // Read before the call: the timer counts from a reading not earlier.
            due[key as usize].store((now() + delay).as_nanos(), Relaxed);
            q.add_after(key, delay).expect("open");
            random.dawdle();
        }
        // Nobody calls anything while they come due.
        while runs.load(Relaxed) < KEYS {
            thread::yield_now();
        }
        q.shut_down();
        assert!(all_done.recv().is_err());
        assert_eq!(runs.load(Relaxed), KEYS);
    });
}

/// A key that notices being compared after its drop, and counts those alive.
struct Counted {
    number: u64,
    text: String,
    alive: Arc<AtomicI64>,
}

impl Counted {
    fn new(number: u64, alive: &Arc<AtomicI64>) -> Self {
        alive.fetch_add(1, Relaxed);
        Self { number, text: format!("key {number}, longer than what stands inline"), alive: alive.clone() }
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(self.number, &self.alive)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // a comparison with this key after its drop sees another text
        self.text.clear();
        self.alive.fetch_sub(1, Relaxed);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        assert!(
            self.text.starts_with("key") && other.text.starts_with("key"),
            "a key was read after its drop"
        );
        self.text == other.text
    }
}

impl Eq for Counted {}

impl std::hash::Hash for Counted {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.number);
    }
}

/// In each round the key is published, a write and an add that may find it without the lock race the
/// hand-out, and the last run must have seen the write.
fn fresh_against_the_hand_out<K: std::hash::Hash + Eq + Clone + Send + Sync>(random: &mut Random, key: &K) {
    // each takes two switches of threads, which is minutes for 10,000 where forty others want the core
    const ROUNDS: u64 = 2_500;
    let q = WorkQueue::<K>::new();
    // lines of their own: the wait for one is part of what may go wrong
    #[repr(align(128))]
    struct Line(AtomicU64);
    let [go, data, seen] = [(); 3].map(|()| Line(AtomicU64::new(0)));
    thread::scope(|s| {
        let mut consumer = random.fork();
        s.spawn({
            let (q, go, data, seen) = (&q, &go, &data, &seen);
            move || {
                let mut round = 0;
                while round < ROUNDS {
                    let last = std::mem::replace(&mut round, go.0.load(Relaxed));
                    if last == round {
                        // where others want the core, the producer may be one of them
                        thread::yield_now();
                    }
                    (0..consumer.below(60)).for_each(|_| std::hint::spin_loop());
                    while let Ok(item) = q.try_get() {
                        let written = data.0.load(Relaxed);
                        seen.0.store(written, Relaxed);
                        item.done();
                    }
                }
            }
        });
        for round in 1..=ROUNDS {
            q.add(key.clone()).map_err(drop).expect("open");
            q.add_ref(key).expect("open");
            go.0.store(round, Relaxed);
            (0..random.below(60)).for_each(|_| std::hint::spin_loop());
            data.0.store(round, Relaxed);
            q.add_ref(key).expect("open");
            while q.stats().known > 0 {
                thread::yield_now();
                // in the last round the consumer may have left
                if let Some(item) = (round == ROUNDS).then(|| q.try_get().ok()).flatten() {
                    seen.0.store(data.0.load(Relaxed), Relaxed);
                    item.done();
                }
            }
            let seen = seen.0.load(Relaxed);
            if seen < round {
                // lets the consumer go, which others wait for
                go.0.store(ROUNDS, Relaxed);
            }
            assert_eq!(seen, round, "the last run saw less than was written");
        }
    });
}

#[test]
fn stress_what_is_written_before_a_redundant_add_is_seen() {
    stress("stress_what_is_written_before_a_redundant_add_is_seen", 2, |mut random| {
        fresh_against_the_hand_out(&mut random, &7u64);
        fresh_against_the_hand_out(&mut random, &"a key that is compared under the lock".to_owned());
    });
}

#[test]
fn stress_keys_that_are_added_while_they_are_held_are_dropped_once() {
    stress("stress_keys_that_are_added_while_they_are_held_are_dropped_once", 3, |mut random| {
        const ADDS: u64 = 20_000;
        let keys = 1 + random.below(40);
        let alive = Arc::new(AtomicI64::new(0));
        let q = WorkQueue::<Counted>::new();
        let held: Vec<AtomicBool> = (0..keys).map(|_| AtomicBool::new(false)).collect();
        thread::scope(|s| {
            for _ in 0..3 {
                let (q, held, mut random) = (&q, &held, random.fork());
                s.spawn(move || {
                    while let Some(item) = q.get_blocking() {
                        let own = &held[item.key().number as usize];
                        assert!(!own.swap(true, Relaxed), "held twice");
                        random.dawdle();
                        assert!(item.key().text.starts_with("key"), "a key was dropped while it was held");
                        own.store(false, Relaxed);
                        item.done();
                    }
                });
            }
            let producers: Vec<_> = (0..4)
                .map(|_| {
                    let (q, alive, mut random) = (&q, alive.clone(), random.fork());
                    s.spawn(move || {
                        let own: Vec<Counted> =
                            (0..keys).map(|number| Counted::new(number, &alive)).collect();
                        for _ in 0..ADDS {
                            let key = &own[random.below(keys) as usize];
                            match random.below(4) {
                                0 => q.add(key.clone()).map_err(drop),
                                _ => q.add_ref(key).map_err(drop),
                            }
                            .expect("the queue is open");
                        }
                    })
                })
                .collect();
            producers.into_iter().for_each(|producer| producer.join().expect("a producer"));
            q.shut_down();
        });
        assert_eq!(q.stats().known, 0);
        assert_eq!(alive.load(Relaxed), 0, "keys are alive, or were dropped twice");
    });
}
