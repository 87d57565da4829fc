//! requeue itself.

use crate::fair::{self, Virtual};
use crate::queues::{AsyncFifo, Bucket, Delaying, Exponential, Fifo, Limiter, Metered, RateLimited};
use crate::{
    Args, Key, Line, Usage, backoff, contended, control, cycle, far_timers, floor, idle, memory, metrics,
    redundant, stops, stress, timers, turns, wakeups, workers,
};
use parking_lot::Mutex;
use requeue::limiter::{self, TokenBucket};
use requeue::{Clock, FakeClock, Instant, Item, RateLimiter, SystemClock, WorkQueue};
use requeue_prometheus::QueueMetrics;
use requeue_prometheus::prometheus_client::registry::Registry;
use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

/// requeue's name in what is printed.
pub const NAME: &str = "requeue";

impl<K: Key> Fifo for WorkQueue<K> {
    const NAME: &'static str = NAME;
    type Key = K;
    type Item<'q> = Item<'q, K>;

    fn new() -> Self {
        Self::new()
    }
    #[inline]
    fn add(&self, key: K) {
        let _ = WorkQueue::add(self, key);
    }
    #[inline]
    fn add_ref(&self, key: &K) {
        let _ = WorkQueue::add_ref(self, key);
    }
    #[inline]
    fn get(&self) -> Option<Item<'_, K>> {
        self.get_blocking()
    }
    const BATCHES: bool = true;
    #[inline]
    fn add_many(&self, keys: impl Iterator<Item = K>) {
        let _ = WorkQueue::add_many(self, keys);
    }
    #[inline]
    fn work_off(&self, most: usize) -> usize {
        let items = self.try_get_many(most).expect("keys are ready");
        let got = items.len();
        items.done();
        got
    }
    #[inline]
    fn key<'i>(item: &'i Item<'_, K>) -> &'i K {
        item.key()
    }
    #[inline]
    fn done(&self, item: Item<'_, K>) {
        item.done();
    }
    #[inline]
    fn next<'q>(&'q self, item: Item<'q, K>) -> Option<Item<'q, K>> {
        item.next().wait()
    }
    fn shut_down(&self, _: usize) {
        let _ = WorkQueue::shut_down(self);
    }
}

impl<K: Key> AsyncFifo for WorkQueue<K> {
    #[inline]
    fn get_async(&self) -> impl Future<Output = Option<Item<'_, K>>> + Send {
        WorkQueue::get(self)
    }
    #[inline]
    fn next_async<'q>(&'q self, item: Item<'q, K>) -> impl Future<Output = Option<Item<'q, K>>> + Send {
        item.next()
    }
}

impl<K: Key> Delaying for WorkQueue<K> {
    #[inline]
    fn add_after(&self, key: K, delay: Duration) {
        let _ = WorkQueue::add_after(self, key, delay);
    }
}

const BASE: Duration = Duration::from_millis(1);
const MAX: Duration = Duration::from_secs(1000);

fn exponential<K>() -> limiter::Exponential<K> {
    limiter::Exponential::new(BASE, MAX).expect("1 ms is below 1,000 s")
}

impl<K: Key> RateLimited for WorkQueue<K> {
    fn limited(by: Limiter) -> Self {
        let builder = WorkQueue::builder();
        let builder = match by {
            Limiter::Builtin => builder.limiter(exponential()),
            Limiter::Own => builder.limiter(Own(Mutex::default())),
        };
        builder.build().expect("nothing is missing")
    }
    #[inline]
    fn add_rate_limited(&self, key: K) {
        let _ = WorkQueue::add_rate_limited(self, key);
    }
}

/// A limiter as a user ported from client-go would write it.
struct Own<K>(Mutex<HashMap<K, u32>>);

impl<K: Key> RateLimiter<K> for Own<K> {
    fn when(&self, key: &K, _: Instant) -> Duration {
        let mut failures = self.0.lock();
        let failures = match failures.get_mut(key) {
            Some(known) => known,
            None => failures.entry(key.clone()).or_insert(0),
        };
        let delay = BASE.checked_mul(1_u32.checked_shl(*failures).unwrap_or(u32::MAX));
        *failures += 1;
        delay.unwrap_or(MAX).min(MAX)
    }
    fn forget(&self, key: &K) {
        self.0.lock().remove(key);
    }
    fn num_requeues(&self, key: &K) -> u32 {
        self.0.lock().get(key).copied().unwrap_or(0)
    }
}

impl<K: Key> Exponential for limiter::Exponential<K> {
    const NAME: &'static str = NAME;
    type Key = K;
    fn new() -> Self {
        exponential()
    }
    fn when(&self, key: &K) -> Duration {
        RateLimiter::when(self, key, Instant::ORIGIN)
    }
}

impl Bucket for TokenBucket {
    const NAME: &'static str = NAME;
    fn new(per_second: f64, burst: u32) -> Self {
        TokenBucket::new(per_second, burst).expect("a rate")
    }
    #[inline]
    fn reserve(&self) -> Duration {
        TokenBucket::reserve(self, 1, SystemClock.now()).delay()
    }
}

impl<K: Key> Metered for WorkQueue<K> {
    fn metered() -> Self {
        let sink = QueueMetrics::register(&mut Registry::default()).queue("bench").expect("the first");
        WorkQueue::builder().name("bench").metrics(sink).build().expect("it has a name")
    }
}

/// A queue on a fake clock.
#[derive(Debug)]
pub struct Slow {
    q: WorkQueue<u64>,
    clock: FakeClock,
}

impl Virtual for Slow {
    const NAME: &'static str = NAME;
    fn new() -> Self {
        let clock = FakeClock::new();
        let q = WorkQueue::builder().clock(clock.clone()).build().expect("nothing is missing");
        Self { q, clock }
    }
    fn add(&mut self, key: u64) {
        let _ = self.q.add(key);
    }
    fn get(&mut self) -> u64 {
        let item = self.q.try_get().expect("a key is ready");
        item.detach().0
    }
    fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
    }
    fn done(&mut self, key: u64) {
        self.q.done(&key).expect("it is held");
    }
}

type U = WorkQueue<u64>;
type S = WorkQueue<String>;

/// Measures requeue.
///
/// # Errors
///
/// If the arguments are wrong.
pub fn dispatch(args: &mut Args) -> Result<Line, Usage> {
    if let Some(other) = args.implementation().filter(|name| name != NAME) {
        return Err(Usage::Wrong(format!("this program measures {NAME}, not {other}")));
    }
    match args.workload() {
        "cycle" => cycle::run::<U, S>(args),
        "cyclefloor" => floor::cycle(args),
        "redundantfloor" => floor::redundant(args),
        "timerfloor" => floor::timers(args),
        "soonerreference" => floor::sooner(args),
        "bucketreference" => floor::bucket(args),
        "metricsreference" => floor::metrics(args),
        "contended" => contended::run::<U>(args),
        "redundant" => redundant::run::<U, S>(args),
        "timers" => timers::run::<U>(args),
        "sooner" => timers::sooner::<U>(args),
        "backoff" => backoff::run::<U, S>(args),
        "when" => backoff::when::<limiter::Exponential<u64>, limiter::Exponential<String>>(args),
        "bucket" => backoff::bucket::<TokenBucket>(args),
        "wakeups" => wakeups::run::<U>(args),
        "memory" => memory::run::<U, S>(args),
        "metrics" => metrics::run::<U, S>(args),
        "idle" => idle::run::<U>(args),
        "stops" => stops::run::<U>(args),
        "fartimers" => far_timers::run::<U, S>(args),
        "control" => control::run(args),
        "turns" => turns::run(args),
        "workers" => workers::run(args),
        "fair" => fair::run::<Slow>(args),
        "stress" => stress::run::<U>(args),
        _ => Err(args.unknown(crate::WORKLOADS)),
    }
}
