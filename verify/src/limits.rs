//! Observers passed into a queue under test: a clock that counts, limiters that record, a metrics sink that
//! remembers.

use crate::probe::{Hook, Key};
use requeue::{Alarm, Clock, FakeClock, Gauges, Instant, Metrics, Parker, RateLimiter, RunEnd};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fake clock that counts how often it is read, and can move at each reading.
#[derive(Clone, Default)]
pub struct TestClock {
    fake: FakeClock,
    reads: Arc<AtomicUsize>,
    /// Nanoseconds that pass after each reading.
    drift: Arc<AtomicU64>,
    /// Runs inside of each reading.
    on_read: Arc<Hook>,
}

impl fmt::Debug for TestClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestClock").field("reads", &self.reads()).finish_non_exhaustive()
    }
}

impl TestClock {
    /// The fake clock underneath.
    #[must_use]
    pub fn fake(&self) -> &FakeClock {
        &self.fake
    }
    /// Number of readings.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
    /// The instant that it shows, without counting.
    #[must_use]
    pub fn at(&self) -> Instant {
        self.fake.now()
    }
    /// From now on, time passes by `step` after each reading: a caller that reads twice in one call sees two
    /// instants.
    pub fn drift(&self, step: Duration) {
        self.drift.store(u64::try_from(step.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
    /// Hook that runs inside each reading.
    #[must_use]
    pub fn on_read(&self) -> &Hook {
        &self.on_read
    }
    /// Number of times that `call` reads this clock.
    pub fn reads_of<T>(&self, call: impl FnOnce() -> T) -> usize {
        let before = self.reads();
        let _ = call();
        self.reads() - before
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.on_read.run_now();
        let now = self.fake.now();
        let drift = self.drift.load(Ordering::SeqCst);
        if drift > 0 {
            self.fake.advance(Duration::from_nanos(drift));
        }
        now
    }
    fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm {
        self.fake.wake_at(at, waker)
    }
    fn watch_at(&self, at: Instant, waker: &Waker) -> Alarm {
        self.fake.watch_at(at, waker)
    }
    fn park_until(&self, at: Instant, parker: &Parker) {
        self.fake.park_until(at, parker);
    }
}

/// A call that a [`Scripted`] limiter got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `when`, and the instant that it was given.
    When(u64, Instant),
    /// `forget`.
    Forget(u64),
    /// `num_requeues`.
    NumRequeues(u64),
}

/// A limiter of a user's own: counts per key, gives the same delay to each, and
/// records every call.
pub struct Scripted {
    delay: Mutex<Duration>,
    counts: Mutex<BTreeMap<u64, u32>>,
    asked: Mutex<Vec<Asked>>,
    /// Runs inside of `when`.
    pub on_when: Hook,
    /// Runs inside of `forget`.
    pub on_forget: Hook,
    /// Runs inside of `num_requeues`.
    pub on_num_requeues: Hook,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("delay", &*locked(&self.delay)).finish_non_exhaustive()
    }
}

impl Scripted {
    /// A limiter that answers `delay`.
    #[must_use]
    pub fn new(delay: Duration) -> Arc<Self> {
        Arc::new(Self {
            delay: Mutex::new(delay),
            counts: Mutex::default(),
            asked: Mutex::default(),
            on_when: Hook::default(),
            on_forget: Hook::default(),
            on_num_requeues: Hook::default(),
        })
    }
    /// From now on the limiter returns `delay`.
    pub fn set(&self, delay: Duration) {
        *locked(&self.delay) = delay;
    }
    /// The calls that it got since this was last asked.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut locked(&self.asked))
    }
    /// Number of calls of `when` since the last time.
    pub fn take_whens(&self) -> usize {
        self.take_asked().iter().filter(|call| matches!(call, Asked::When(..))).count()
    }
}

impl RateLimiter<Key> for Scripted {
    fn when(&self, key: &Key, now: Instant) -> Duration {
        locked(&self.asked).push(Asked::When(key.id, now));
        self.on_when.run_now();
        *locked(&self.counts).entry(key.id).or_default() += 1;
        *locked(&self.delay)
    }
    fn forget(&self, key: &Key) {
        locked(&self.asked).push(Asked::Forget(key.id));
        self.on_forget.run_now();
        locked(&self.counts).remove(&key.id);
    }
    fn num_requeues(&self, key: &Key) -> u32 {
        locked(&self.asked).push(Asked::NumRequeues(key.id));
        self.on_num_requeues.run_now();
        locked(&self.counts).get(&key.id).copied().unwrap_or(0)
    }
}

/// Totals of the calls to a [`Metered`] sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Keys that became ready or dirty.
    pub adds: u64,
    /// Accepted add_after and add_rate_limited, and their like.
    pub retries: u64,
    /// The queue duration of each run that started.
    pub waited: Vec<Duration>,
    /// The work duration of each run that ended.
    pub worked: Vec<Duration>,
    /// The end of each run.
    pub ends: Vec<RunEnd>,
    /// Accepted triggers that changed nothing.
    pub coalesced: u64,
    /// The lateness of each timer that fired.
    pub late: Vec<Duration>,
    /// Keys dropped to make room for others.
    pub dropped: u64,
}

/// Reads the gauges of a queue; `None` once it is gone.
type ReadGauges = Arc<dyn Fn() -> Option<Gauges> + Send + Sync>;

/// A metrics sink that records all calls.
#[derive(Default)]
pub struct Metered {
    told: Mutex<Told>,
    gauges: Mutex<Option<ReadGauges>>,
    /// Runs inside of each push.
    pub on_push: Hook,
}

impl fmt::Debug for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metered").field("told", &self.told()).finish_non_exhaustive()
    }
}

impl Metered {
    /// A sink without records.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }
    /// All records.
    #[must_use]
    pub fn told(&self) -> Told {
        locked(&self.told).clone()
    }
    /// Counts of the records: adds, retries, hand-outs, ends.
    #[must_use]
    pub fn counts(&self) -> (u64, u64, usize, usize) {
        let told = self.told();
        (told.adds, told.retries, told.waited.len(), told.worked.len())
    }
    /// All gauges as the queue computes them now. `None` after the queue is gone.
    #[must_use]
    pub fn all_gauges(&self) -> Option<Gauges> {
        let gauges = locked(&self.gauges).clone()?;
        gauges()
    }
    /// Number of ready keys per priority, as the queue counts them now; `None` without priorities.
    #[must_use]
    pub fn depths(&self) -> Option<Vec<(i16, usize)>> {
        self.all_gauges()?.depth_by_priority
    }
    /// The groups that have a ready or a held key: name, and how many of each.
    #[must_use]
    pub fn groups(&self) -> Vec<(String, usize, usize)> {
        let groups = self.all_gauges().map(|gauges| gauges.groups).unwrap_or_default().into_iter();
        let busy = groups.filter(|group| group.ready + group.held > 0);
        let mut groups: Vec<_> =
            busy.map(|group| (group.name.to_string(), group.ready, group.held)).collect();
        groups.sort_unstable();
        groups
    }
    /// Three of the gauges: depth, unfinished work, longest running.
    #[must_use]
    pub fn gauges(&self) -> Option<(usize, Duration, Duration)> {
        let gauges = self.all_gauges()?;
        Some((gauges.depth, gauges.unfinished_work, gauges.longest_running))
    }
    fn push(&self, tell: impl FnOnce(&mut Told)) {
        tell(&mut locked(&self.told));
        self.on_push.run_now();
    }
}

impl Metrics for Metered {
    fn added(&self, keys: u64) {
        self.push(|told| told.adds += keys);
    }
    fn retried(&self) {
        self.push(|told| told.retries += 1);
    }
    fn handed_out(&self, waited: Duration) {
        self.push(|told| told.waited.push(waited));
    }
    fn run_ended(&self, took: Duration, end: RunEnd) {
        self.push(|told| {
            told.worked.push(took);
            told.ends.push(end);
        });
    }
    fn coalesced(&self, triggers: u64) {
        self.push(|told| told.coalesced += triggers);
    }
    fn dropped(&self, keys: u64) {
        self.push(|told| told.dropped += keys);
    }
    fn timer_fired(&self, late: Duration) {
        self.push(|told| told.late.push(late));
    }
    fn attach(&self, _: &str, _: &[(String, String)], gauges: ReadGauges) {
        *locked(&self.gauges) = Some(gauges);
    }
}
