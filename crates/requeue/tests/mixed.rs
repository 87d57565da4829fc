//! All features of a queue at once, drawn at random: at quiet points no caller sleeps that could go on.

use requeue::limiter::Exponential;
use requeue::{
    Add, AddWhenRoom, Clock, Debounce, DrainOptions, FakeClock, Get, GroupRules, InBackoff, Item, Scope,
    UnfinishedKey, WaitingKeys, WorkQueue,
};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Whether a future is to be polled.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// A future, polled only when it was woken.
struct Task<F> {
    future: F,
    woken: Arc<Woken>,
}

impl<F: Future + Unpin> Task<F> {
    fn new(future: F) -> Self {
        Self { future, woken: Arc::new(Woken(AtomicBool::new(true))) }
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(SeqCst)
    }

    /// Polls it if it was woken; returns its answer, if there is one.
    fn poll(&mut self) -> Option<F::Output> {
        if !self.woken.0.swap(false, SeqCst) {
            return None;
        }
        let waker = Waker::from(self.woken.clone());
        match Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }
}

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }
    fn ms(&mut self) -> Duration {
        MS * self.below(20) as u32
    }
    /// True once in `n` times.
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A queue and its users, all in one thread.
struct World {
    q: WorkQueue<u64, u64>,
    clock: FakeClock,
    random: Random,
    keys: u64,
    /// Behaviour of the user functions: normal, panicking, or answering differently than before.
    mood: Arc<AtomicU64>,
    priorities: bool,
    getters: Vec<Task<Get<'static, u64, u64>>>,
    adders: Vec<(u64, Task<AddWhenRoom<'static, u64, u64>>)>,
    held: Vec<Item<'static, u64, u64>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let clock = FakeClock::new();
        let keys = 1 + random.below(8);
        let limiter = Exponential::new(MS, MS * 50).expect("a limiter");
        let mood = Arc::new(AtomicU64::new(0));
        let (merges, groups_by) = (mood.clone(), mood.clone());
        let builder = WorkQueue::merging(move |old: &mut u64, new: u64| {
            in_this_mood(&merges);
            *old += new;
        });
        let mut builder = builder.clock(clock.clone()).limiter(limiter);
        let priorities = random.one_in(2);
        if priorities {
            builder = builder.priorities();
        }
        let groups = random.one_in(2);
        if groups {
            let (groups, cap) = (1 + random.below(3), 1 + random.below(2) as usize);
            let mut rules = GroupRules::new().weight(|group: &u64| *group as u32 % 3 + 1);
            if random.one_in(2) {
                rules = rules.cap(cap);
            }
            if random.one_in(3) {
                rules = rules.rate(150.0, 1 + random.below(2) as u32);
            }
            builder =
                builder.group_by_with(move |key: &u64| (key + in_this_mood(&groups_by)) % groups, rules);
            if priorities && random.one_in(2) {
                builder = builder.priorities_within_groups();
            }
        }
        if (groups || priorities) && random.one_in(2) {
            builder = builder.max_wait(random.ms());
        }
        if random.one_in(3) {
            builder = builder.rate(200.0, 1 + random.below(3) as u32);
        }
        let bounded = random.one_in(2);
        if bounded {
            builder = builder.bound(1 + random.below(4) as usize);
        }
        if bounded && random.one_in(2) {
            builder = builder.drop_oldest(|_, _| ());
        }
        if random.one_in(4) {
            builder = builder.debounce(Debounce::new(random.ms()).max(random.ms() * 2));
        }
        builder = match random.below(3) {
            0 => builder.in_backoff(InBackoff::Respect),
            1 => builder.in_backoff(InBackoff::Reset),
            _ => builder,
        };
        let q = builder.timers_absorbed(random.one_in(4)).build().expect("a queue");
        let (getters, adders, held) = (Vec::new(), Vec::new(), Vec::new());
        Self { q, clock, random, keys, mood, priorities, getters, adders, held }
    }

    fn add(&mut self) -> Add<u64> {
        let priority =
            if self.priorities { [i16::MIN, -1, 0, 1, i16::MAX][self.random.below(5) as usize] } else { 0 };
        let (quiet, max) = (self.random.ms(), self.random.ms());
        let mut add: Add<u64> = match self.random.below(8) {
            0 => Add::debounced(Debounce::new(quiet).max(max)),
            1 => Add::debounced(Debounce::new(quiet).leading()),
            2 => Add::debounced(Debounce::new(Duration::MAX).max(max)),
            3 => Add::after(quiet),
            4 => Add::after(quiet).replace(),
            5 => Add::after(quiet).latest(max),
            _ => Add::now(),
        };
        if self.priorities {
            add = add.priority(priority);
        }
        match self.random.below(6) {
            0 => add.in_backoff(InBackoff::Respect),
            1 => add.in_backoff(InBackoff::Reset),
            2 => add.in_backoff(InBackoff::Run),
            3 | 4 => add.value(1),
            _ => add,
        }
    }

    fn end(&mut self, item: Item<'static, u64, u64>) {
        match self.random.below(6) {
            0 => drop(item.retry()),
            1 => drop(item.again(self.random.ms())),
            2 => drop(item),
            3 => item.give_up("hopeless"),
            4 => item.done(),
            _ => item.succeed(),
        }
    }

    fn step(&mut self) {
        let key = self.random.below(self.keys);
        match self.random.below(26) {
            0..4 => drop(self.add().pipe(|add| self.q.add_with(key, add))),
            4 | 5 => {
                let add = self.add();
                self.adders.push((key, Task::new(self.q.add_when_room(key, add).into_owned())));
            }
            6 if !self.adders.is_empty() => {
                let at = self.random.below(self.adders.len() as u64) as usize;
                drop(self.adders.swap_remove(at));
            }
            7 | 8 => self.getters.push(Task::new(self.q.get().into_owned())),
            9 if !self.getters.is_empty() => {
                let at = self.random.below(self.getters.len() as u64) as usize;
                drop(self.getters.swap_remove(at));
            }
            10..14 if !self.held.is_empty() => {
                let at = self.random.below(self.held.len() as u64) as usize;
                let item = self.held.swap_remove(at);
                self.end(item);
            }
            14 => drop(self.q.cancel(&key)),
            15 if self.random.one_in(3) => drop(self.q.pause(Scope::Queue)),
            16 => drop(self.q.resume(Scope::Queue)),
            17 => drop(self.q.pause(Scope::Key(key))),
            18 => drop(self.q.resume(Scope::Key(&key))),
            // false without groups
            23 => drop(self.q.pause(Scope::GroupOf(key))),
            24 => drop(self.q.resume(Scope::GroupOf(&key))),
            19 => {
                let due = self.clock.now() + self.random.ms();
                let failures = self.random.below(3) as u32;
                let mut restored = UnfinishedKey::new(key);
                (restored.failures, restored.value) = (failures, Some(3));
                restored.due = (failures == 0).then_some(due);
                drop(self.q.restore(restored));
            }
            20 => self.clock.advance(self.random.ms()),
            21 => {
                let adds: Vec<_> =
                    (0..self.random.below(4)).map(|at| ((key + at) % self.keys, self.add())).collect();
                drop(self.q.add_many_with(adds));
            }
            22 => {
                let most = 1 + self.random.below(100) as usize;
                let q = self.q.clone();
                if let Ok(items) = q.try_get_many(most) {
                    let mut items = items.into_owned();
                    while let Some(item) = items.pop_front() {
                        if self.random.one_in(2) {
                            self.held.push(item);
                        } else {
                            self.end(item);
                        }
                    }
                }
            }
            _ => drop(self.q.snapshot().page(2).count()),
        }
        if self.random.one_in(3) {
            self.poll_some();
        }
    }

    /// A step in which user functions may panic.
    fn moody_step(&mut self) {
        let mood = if self.random.one_in(4) { self.random.below(3) } else { 0 };
        self.mood.store(mood, SeqCst);
        let stepped = catch_unwind(AssertUnwindSafe(|| self.step()));
        self.mood.store(0, SeqCst);
        if let Err(panic) = stepped {
            if panic.downcast_ref() != Some(&"as told") {
                resume_unwind(panic);
            }
        }
    }

    /// Polls some of those that were woken.
    fn poll_some(&mut self) {
        let (mut getters, mut adders) = (std::mem::take(&mut self.getters), std::mem::take(&mut self.adders));
        getters.retain_mut(|task| match if self.random.one_in(2) { None } else { Some(task.poll()) } {
            Some(Some(item)) => {
                self.held.extend(item);
                false
            }
            None | Some(None) => true,
        });
        adders.retain_mut(|(_, task)| self.random.one_in(2) || task.poll().is_none());
        (self.getters, self.adders) = (getters, adders);
    }

    /// Polls all that are woken, until none is.
    fn settle(&mut self) {
        while self.getters.iter().any(Task::is_woken) || self.adders.iter().any(|(_, task)| task.is_woken()) {
            let held = &mut self.held;
            self.getters.retain_mut(|task| {
                task.poll().is_none_or(|item| {
                    held.extend(item);
                    false
                })
            });
            self.adders.retain_mut(|(_, task)| task.poll().is_none());
        }
    }

    /// Checks that no caller sleeps that could go on.
    fn check(&mut self) {
        // whatever is due fires as somebody looks
        _ = self.q.len();
        self.settle();
        if !self.adders.is_empty() {
            let room = self.q.stats().room;
            assert_eq!(room, Some(0), "there is room, and {} wait for it", self.adders.len());
            for (key, _) in &self.adders {
                let refused = self.q.add_with(*key, Add::now());
                assert!(
                    refused.is_err(),
                    "key {key} waits for room, and another trigger of it does not: {refused:?}"
                );
            }
        }
        if !self.getters.is_empty() {
            if let Ok(item) = self.q.try_get() {
                panic!("key {} may be had, and {} wait", item.key(), self.getters.len());
            }
        }
    }

    /// Ends everything, even if a drain begins while everything is held back.
    fn drain(mut self) {
        let drain = DrainOptions::default().waiting_keys(WaitingKeys::Wait);
        let mut drain = Task::new(self.q.drain(drain).into_owned());
        for round in 0.. {
            assert!(round < 10_000, "a drain never ends: {:?}", self.q.stats());
            if drain.poll().is_some() {
                break;
            }
            self.settle();
            for item in std::mem::take(&mut self.held) {
                item.done();
            }
            if self.getters.is_empty() && round % 2 == 0 {
                self.getters.push(Task::new(self.q.get().into_owned()));
            }
            self.check_getters();
            self.clock.advance(MS * 7);
        }
        self.settle();
        assert!(self.getters.is_empty() && self.adders.is_empty(), "somebody waits for a queue that is over");
        let stats = self.q.stats();
        assert_eq!((stats.ready, stats.held, stats.waiting), (0, 0, 0));
        assert_eq!(self.clock.alarms(), 0, "no alarm outlives the queue");
    }

    fn check_getters(&mut self) {
        self.settle();
        if !self.getters.is_empty() {
            if let Ok(item) = self.q.try_get() {
                panic!("key {} may be had, and {} wait", item.key(), self.getters.len());
            }
        }
    }
}

/// Panics without a message, or says how differently to answer.
fn in_this_mood(mood: &AtomicU64) -> u64 {
    match mood.load(SeqCst) {
        1 => resume_unwind(Box::new("as told")),
        mood => mood,
    }
}

/// For calls that need `self` twice.
trait Pipe: Sized {
    fn pipe<R>(self, f: impl FnOnce(Self) -> R) -> R {
        f(self)
    }
}
impl<T> Pipe for T {}

#[test]
fn nobody_sleeps_at_a_quiet_point_who_could_go_on() {
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    let first: u64 = number("REQUEUE_SEED", 1);
    let mut failed = 0;
    for seed in first..first + number("REQUEUE_WORLDS", 300) {
        let run = || {
            let mut world = World::new(seed);
            for step in 0..200 {
                world.moody_step();
                if step % 10 == 9 {
                    world.check();
                }
            }
            world.drain();
        };
        if catch_unwind(run).is_err() {
            println!("seed {seed}");
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "seeds that failed");
}
