//! client-go's algorithm in Rust, with the standard library only: one mutex, a condition variable, sets that
//! hash with SipHash, a heap in its own thread behind a channel of 1,000 for delays, and a map of failures.
//!
//! It is the result of a plain translation; requeue has to be worth more than that.

use requeue_bench::Key;
use requeue_bench::fair::Virtual;
use requeue_bench::queues::{AsyncFifo, Bucket, Delaying, Exponential, Fifo, Limiter, Metered, RateLimited};
use requeue_bench::sink::Sink;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The state under the lock: client-go's `Typed`.
#[derive(Debug)]
pub struct State<K> {
    line: VecDeque<K>,
    dirty: HashSet<K>,
    processing: HashSet<K>,
    /// No key comes in any more.
    pub shutting_down: bool,
    metrics: Option<Told<K>>,
}

impl<K: Key> State<K> {
    /// Nothing.
    pub fn new() -> Self {
        Self {
            line: VecDeque::new(),
            dirty: HashSet::new(),
            processing: HashSet::new(),
            shutting_down: false,
            metrics: None,
        }
    }

    /// Whether the key has come into the line.
    pub fn add(&mut self, key: K) -> bool {
        if self.shutting_down || self.dirty.contains(&key) {
            return false;
        }
        self.insert(key)
    }

    /// Like `add`, but clones the key only if it is new.
    fn add_ref(&mut self, key: &K) -> bool {
        if self.shutting_down || self.dirty.contains(key) {
            return false;
        }
        self.insert(key.clone())
    }

    fn insert(&mut self, key: K) -> bool {
        if let Some(metrics) = &mut self.metrics {
            metrics.add(&key);
        }
        self.dirty.insert(key.clone());
        if self.processing.contains(&key) {
            return false;
        }
        self.line.push_back(key);
        true
    }

    /// The next key, if there is one.
    pub fn get(&mut self) -> Option<K> {
        let key = self.line.pop_front()?;
        if let Some(metrics) = &mut self.metrics {
            metrics.get(&key);
        }
        self.processing.insert(key.clone());
        self.dirty.remove(&key);
        Some(key)
    }

    /// Whether the key has come into the line again.
    pub fn done(&mut self, key: &K) -> bool {
        if let Some(metrics) = &mut self.metrics {
            metrics.done(key);
        }
        self.processing.remove(key);
        if !self.dirty.contains(key) {
            return false;
        }
        self.line.push_back(key.clone());
        true
    }
}

/// client-go's `defaultQueueMetrics`: times in maps outside the queue.
struct Told<K> {
    sink: Sink,
    added: HashMap<K, Instant>,
    started: HashMap<K, Instant>,
}

impl<K> fmt::Debug for Told<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Told").field("sink", &self.sink).finish_non_exhaustive()
    }
}

impl<K: Key> Told<K> {
    fn add(&mut self, key: &K) {
        self.sink.added(1);
        if !self.added.contains_key(key) {
            self.added.insert(key.clone(), Instant::now());
        }
    }

    fn get(&mut self, key: &K) {
        self.started.insert(key.clone(), Instant::now());
        if let Some(at) = self.added.remove(key) {
            self.sink.handed_out(at.elapsed());
        }
    }

    fn done(&mut self, key: &K) {
        if let Some(at) = self.started.remove(key) {
            self.sink.run_ended(at.elapsed());
        }
    }
}

#[derive(Debug)]
struct Shared<K> {
    state: Mutex<State<K>>,
    cond: Condvar,
}

impl<K: Key> Shared<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, key: K) {
        let pushed = self.state().add(key);
        if pushed {
            self.cond.notify_one();
        }
    }
}

/// The queue.
#[derive(Debug)]
pub struct Port<K> {
    shared: Arc<Shared<K>>,
    /// Leads to the thread that has the heap, which begins with the first delay
    /// and ends when this is dropped.
    delays: OnceLock<SyncSender<Waiting<K>>>,
    limiter: ExponentialMap<K>,
}

impl<K: Key> Fifo for Port<K> {
    const NAME: &'static str = "mutex";
    type Key = K;
    type Item<'q> = K;

    fn new() -> Self {
        Self {
            shared: Arc::new(Shared { state: Mutex::new(State::new()), cond: Condvar::new() }),
            delays: OnceLock::new(),
            limiter: Exponential::new(),
        }
    }
    fn add(&self, key: K) {
        self.shared.add(key);
    }
    fn add_ref(&self, key: &K) {
        let pushed = self.shared.state().add_ref(key);
        if pushed {
            self.shared.cond.notify_one();
        }
    }
    fn get(&self) -> Option<K> {
        let state = self.shared.state();
        let waiting = |state: &mut State<K>| state.line.is_empty() && !state.shutting_down;
        self.shared.cond.wait_while(state, waiting).unwrap_or_else(PoisonError::into_inner).get()
    }
    fn key(item: &K) -> &K {
        item
    }
    fn done(&self, key: K) {
        let mut state = self.shared.state();
        // a thread that waits for the end of all runs is told as well
        let tell = state.done(&key) || state.processing.is_empty();
        drop(state);
        if tell {
            self.shared.cond.notify_one();
        }
    }
    fn shut_down(&self, _: usize) {
        self.shared.state().shutting_down = true;
        self.shared.cond.notify_all();
    }
}

/// Only so that it can have delays: it blocks the thread, and no workload with
/// tasks is run with it.
impl<K: Key> AsyncFifo for Port<K> {
    async fn get_async(&self) -> Option<K> {
        self.get()
    }
}

/// A key in the heap: the earliest is the greatest.
#[derive(Debug)]
struct Waiting<K> {
    ready_at: Instant,
    key: K,
}

impl<K> Ord for Waiting<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.ready_at.cmp(&self.ready_at)
    }
}

impl<K> PartialOrd for Waiting<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> PartialEq for Waiting<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<K> Eq for Waiting<K> {}

impl<K: Key> Delaying for Port<K> {
    fn add_after(&self, key: K, delay: Duration) {
        if self.shared.state().shutting_down {
            return;
        }
        if delay.is_zero() {
            return self.add(key);
        }
        let delays = self.delays.get_or_init(|| {
            let (tx, rx) = sync_channel(1000);
            let shared = Arc::clone(&self.shared);
            thread::spawn(move || waiting_loop(&shared, &rx));
            tx
        });
        let _ = delays.send(Waiting { ready_at: Instant::now() + delay, key });
    }
}

/// client-go's loop of that name. Its heap moves an entry that becomes due sooner;
/// the standard library's cannot, so the later entry stays in it as garbage.
fn waiting_loop<K: Key>(shared: &Shared<K>, rx: &Receiver<Waiting<K>>) {
    let mut heap: BinaryHeap<Waiting<K>> = BinaryHeap::new();
    let mut known: HashMap<K, Instant> = HashMap::new();
    loop {
        let now = Instant::now();
        while heap.peek().is_some_and(|first| first.ready_at <= now) {
            let Some(first) = heap.pop() else { break };
            if known.get(&first.key) == Some(&first.ready_at) {
                known.remove(&first.key);
                shared.add(first.key);
            }
        }
        let received = match heap.peek() {
            Some(first) => rx.recv_timeout(first.ready_at.saturating_duration_since(now)),
            None => rx.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let entry = match received {
            Ok(entry) => entry,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let mut next = Some(entry);
        while let Some(entry) = next {
            if entry.ready_at <= Instant::now() {
                shared.add(entry.key);
            } else if known.get(&entry.key).is_none_or(|at| *at > entry.ready_at) {
                known.insert(entry.key.clone(), entry.ready_at);
                heap.push(entry);
            }
            next = rx.try_recv().ok();
        }
    }
}

const BASE: Duration = Duration::from_millis(1);
const MAX: Duration = Duration::from_secs(1000);

/// client-go's `ItemExponentialFailureRateLimiter`.
#[derive(Debug)]
pub struct ExponentialMap<K> {
    failures: Mutex<HashMap<K, u32>>,
}

impl<K: Key> Exponential for ExponentialMap<K> {
    const NAME: &'static str = "mutex";
    type Key = K;

    fn new() -> Self {
        Self { failures: Mutex::default() }
    }
    fn when(&self, key: &K) -> Duration {
        let mut all = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failures = match all.get_mut(key) {
            Some(known) => known,
            None => all.entry(key.clone()).or_insert(0),
        };
        let delay = BASE.checked_mul(1_u32.checked_shl(*failures).unwrap_or(u32::MAX));
        *failures += 1;
        delay.unwrap_or(MAX).min(MAX)
    }
}

/// A limiter is always a map here, built-in or the user's own.
impl<K: Key> RateLimited for Port<K> {
    fn limited(_: Limiter) -> Self {
        Self::new()
    }
    fn add_rate_limited(&self, key: K) {
        let delay = self.limiter.when(&key);
        self.add_after(key, delay);
    }
}

impl<K: Key> Metered for Port<K> {
    fn metered() -> Self {
        let (port, sink) = (Self::new(), Sink::default());
        port.shared.state().metrics = Some(Told { sink, added: HashMap::new(), started: HashMap::new() });
        port
    }
}

/// The arithmetic of golang.org/x/time/rate under a mutex.
#[derive(Debug)]
pub struct MutexBucket {
    per_second: f64,
    burst: f64,
    tokens: Mutex<(f64, Instant)>,
}

impl Bucket for MutexBucket {
    const NAME: &'static str = "mutex";

    fn new(per_second: f64, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { per_second, burst, tokens: Mutex::new((burst, Instant::now())) }
    }
    fn reserve(&self) -> Duration {
        let now = Instant::now();
        let mut state = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let (tokens, last) = *state;
        let gained = now.saturating_duration_since(last).as_secs_f64() * self.per_second;
        let left = (tokens + gained).min(self.burst) - 1.0;
        *state = (left, now.max(last));
        Duration::from_secs_f64((-left / self.per_second).max(0.0))
    }
}

/// It reads no clock for keys without a delay, so its time need not be moved.
impl Virtual for Port<u64> {
    const NAME: &'static str = "mutex";

    fn new() -> Self {
        <Self as Fifo>::new()
    }
    fn add(&mut self, key: u64) {
        Fifo::add(self, key);
    }
    fn get(&mut self) -> u64 {
        Fifo::get(self).expect("a key is ready")
    }
    fn advance(&mut self, _: Duration) {}
    fn done(&mut self, key: u64) {
        Fifo::done(self, key);
    }
}
