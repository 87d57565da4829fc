//! The queue under test as the suite sees it.
//!
//! Every call can fail for a reason that is not the queue's own: an engine that
//! keeps its keys in a store has such reasons, and its calls wait. So each
//! answers a [`Fallible`], and may block until the engine has answered. The
//! suite's tests go through [`Subject`], which takes that layer off.

use crate::limits::Metered;
use crate::probe::{Key, Value};
use requeue::{FakeClock, Instant, RateLimiter};
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// What went wrong below the queue: a store, a connection. The in-memory queue
/// never says it.
#[derive(Clone, Debug)]
pub struct Failed(pub String);

/// The answer of an engine, or why there is none.
pub type Fallible<T> = Result<T, Failed>;

/// A `get`, or a drain, that is polled by hand.
pub type Polled<'q, T> = Pin<Box<dyn Future<Output = Fallible<T>> + Send + 'q>>;

/// How a queue under test is built. What is left at its default is what the
/// queue does by default.
#[derive(Default)]
pub struct Config {
    /// The clock: a fake one that counts how often it is read.
    pub clock: TestClock,
    /// The order of the ready line.
    pub order: Line,
    /// `timers absorbed` (D6).
    pub absorbed: bool,
    /// A guard that is dropped without a word ends as `retry` does (Q12).
    pub unfinished_retries: bool,
    /// The limiter; the queue's default otherwise.
    pub limiter: Option<Limiter>,
    /// A per-key exponential limiter of the library's own, instead.
    pub exponential: Option<Exponential>,
    /// The metrics sink.
    pub metrics: Option<Arc<Metered>>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("order", &self.order)
            .field("absorbed", &self.absorbed)
            .finish_non_exhaustive()
    }
}

/// The parameters of a per-key exponential limiter.
#[derive(Clone, Copy, Debug)]
pub struct Exponential {
    /// The first delay.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
    /// How long after the end of its last delay a record expires.
    pub expire_after: Option<Duration>,
}

/// The order of the ready line (B10).
#[derive(Default)]
pub enum Line {
    /// The default.
    #[default]
    Fifo,
    /// The newest first.
    Lifo,
    /// The user's own.
    Own(Box<dyn OwnOrder>),
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "Fifo",
            Self::Lifo => "Lifo",
            Self::Own(_) => "Own",
        })
    }
}

/// An order of the user's own, in the original's three words.
pub trait OwnOrder: Send {
    /// `key` became ready.
    fn push(&mut self, key: u64);
    /// `key`, which is ready, was added again.
    fn touch(&mut self, key: u64);
    /// The key to hand out next.
    fn pop(&mut self) -> Option<u64>;
}

/// A limiter that the test and the queue share.
#[derive(Clone)]
pub struct Limiter(pub Arc<dyn RateLimiter<Key>>);

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Limiter")
    }
}

impl RateLimiter<Key> for Limiter {
    fn when(&self, key: &Key, now: Instant) -> Duration {
        self.0.when(key, now)
    }
    fn forget(&self, key: &Key) {
        self.0.forget(key);
    }
    fn num_requeues(&self, key: &Key) -> u32 {
        self.0.num_requeues(key)
    }
}

pub use crate::limits::TestClock;

/// How a trigger asks for a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// `add`.
    #[default]
    Now,
    /// `add_after`, and what it does with a timer that is there already.
    After(Duration, Policy),
    /// `add_rate_limited`.
    RateLimited,
}

/// What `add_after` does with a timer that is there already (D6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The earlier of the two.
    #[default]
    Earliest,
    /// The later of the two, at most this long after the first.
    Latest(Duration),
    /// The new one.
    Replace,
    /// The one that is there.
    Keep,
}

/// What became of a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The key became ready.
    Ready,
    /// The key is held and became dirty.
    Dirty,
    /// A timer was set or moved.
    Waiting,
    /// Joined a run or timer that was pending already.
    Coalesced,
}

/// A trigger that was refused, with what the caller handed in.
#[derive(Debug)]
pub struct Rejected {
    /// The key, back.
    pub key: Key,
    /// The value, back.
    pub value: Option<Value>,
}

/// Why `try_get` hands nothing out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// No key is ready now.
    Empty,
    /// No key will come any more.
    ShutDown,
    /// The deadline came first.
    TimedOut,
}

/// What `state` tells of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// In the ready line.
    pub ready: bool,
    /// A worker has it.
    pub held: bool,
    /// Held, and due for one more run.
    pub dirty: bool,
    /// When its timer fires.
    pub due: Option<Instant>,
}

/// What `stats` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys in the ready line.
    pub ready: usize,
    /// Keys that workers have.
    pub held: usize,
    /// Of these, dirty ones.
    pub dirty: usize,
    /// Keys with a timer.
    pub waiting: usize,
}

/// What `shut_down` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Down {
    /// Ready keys that are still handed out.
    pub ready: usize,
    /// Keys that are held.
    pub held: usize,
    /// Waiting keys that were dropped.
    pub dropped: usize,
    /// Triggers from outside that were refused so far.
    pub refused: usize,
    /// Retries of holders that were refused so far.
    pub refused_retries: usize,
}

/// What a drain does with waiting keys (D9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiters {
    /// Drops them.
    #[default]
    Drop,
    /// Makes them ready.
    RunNow,
    /// Waits for them, and for the retries of holders (Q14).
    Wait,
}

/// What a drain answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Nothing was left.
    pub complete: bool,
    /// Runs that ended since it began.
    pub done: usize,
    /// Waiting keys that were dropped since.
    pub dropped: usize,
    /// Triggers from outside that were refused since.
    pub refused: usize,
    /// Retries of holders that were refused since.
    pub refused_retries: usize,
    /// Ready as it returns.
    pub ready: usize,
    /// Held as it returns.
    pub held: usize,
    /// Waiting as it returns.
    pub waiting: usize,
}

/// The queue under test: a handle, whose clones are the same queue.
pub trait Adapter: Clone + Send + Sync + 'static {
    /// What `get` hands out.
    type Held<'q>: Held<'q>;
    /// What a get of several keys hands out.
    type Many<'q>: Many<'q, One = Self::Held<'q>>;

    /// Builds the queue.
    fn build(config: Config) -> Fallible<Self>;

    /// A trigger: the shortest call of the queue that says it.
    fn trigger(&self, key: Key, when: When, value: Option<Value>) -> Fallible<Result<Accepted, Rejected>>;
    /// Several triggers at once: the shortest call of the queue that says them.
    fn trigger_many(&self, batch: Vec<Asked>) -> Fallible<Vec<Result<Accepted, Rejected>>>;
    /// `add` by reference.
    fn add_ref(&self, key: &Key) -> Fallible<Result<Accepted, ()>>;
    /// `forget`.
    fn forget(&self, key: &Key) -> Fallible<()>;
    /// `num_requeues`.
    fn num_requeues(&self, key: &Key) -> Fallible<u32>;

    /// `get` in this front's own manner of waiting.
    fn get(&self) -> Fallible<Option<Self::Held<'_>>>;
    /// `get` with a deadline.
    fn get_timeout(&self, limit: Duration) -> Fallible<Result<Self::Held<'_>, Nothing>>;
    /// `get` that does not wait.
    fn try_get(&self) -> Fallible<Result<Self::Held<'_>, Nothing>>;
    /// `get` to be polled by hand.
    fn getting(&self) -> Polled<'_, Option<Self::Held<'_>>>;
    /// `get` with a deadline, to be polled by hand.
    fn getting_timeout(&self, limit: Duration) -> Polled<'_, Result<Self::Held<'_>, Nothing>>;
    /// `get` of several keys, in this front's own manner of waiting.
    fn get_many(&self, most: usize) -> Fallible<Option<Self::Many<'_>>>;
    /// The same with a deadline.
    fn get_many_timeout(&self, most: usize, limit: Duration) -> Fallible<Result<Self::Many<'_>, Nothing>>;
    /// The same without waiting.
    fn try_get_many(&self, most: usize) -> Fallible<Result<Self::Many<'_>, Nothing>>;
    /// The same, to be polled by hand.
    fn getting_many(&self, most: usize) -> Polled<'_, Option<Self::Many<'_>>>;
    /// `done` by key; whether the key was held.
    fn done(&self, key: &Key) -> Fallible<bool>;

    /// `len`.
    fn len(&self) -> Fallible<usize>;
    /// `is_empty`.
    fn is_empty(&self) -> Fallible<bool>;
    /// `stats`.
    fn counts(&self) -> Fallible<Counts>;
    /// `state`; the failures that it tells are compared with `num_requeues`.
    fn state(&self, key: &Key) -> Fallible<Option<Seen>>;

    /// `close`.
    fn close(&self) -> Fallible<()>;
    /// `shutting_down`.
    fn shutting_down(&self) -> Fallible<bool>;
    /// `shut_down`.
    fn shut_down(&self) -> Fallible<Down>;
    /// Begins a drain, which is then waited for by polling.
    fn drain(&self, waiters: Waiters, deadline: Option<Duration>) -> Polled<'_, Drained>;
    /// Waits for a drain in this front's own manner.
    fn drain_wait(&self, waiters: Waiters, deadline: Option<Duration>) -> Fallible<Drained>;
}

/// A key that was handed out: a guard, whose drop is `done`.
pub trait Held<'q>: Sized + Send + 'q {
    /// The guard that can leave its queue's scope.
    type Owned: Held<'static>;
    /// The key.
    fn key(&self) -> &Key;
    /// The merged value.
    fn value(&self) -> Option<&Value>;
    /// Takes the merged value out.
    fn take_value(&mut self) -> Option<Value>;
    /// Which attempt this run is.
    fn attempt(&self) -> u32;
    /// Ends the run.
    fn done(self) -> Fallible<()>;
    /// Ends the run and forgets the failures.
    fn succeed(self) -> Fallible<()>;
    /// Ends the run as a failure; refused, the guard comes back.
    fn retry(self) -> Fallible<Result<Duration, Self>>;
    /// [`retry`](Self::retry) with a delay of one's own.
    fn retry_after(self, delay: Duration) -> Fallible<Result<Duration, Self>>;
    /// Ends the run and asks for another after `delay`; no failure.
    fn again(self, delay: Duration) -> Fallible<Result<(), Self>>;
    /// Ends the run, forgets the failures, and gives the key up.
    fn give_up(self) -> Fallible<()>;
    /// Ends the run and gets the next key, in this front's manner of waiting.
    fn next(self) -> Fallible<Option<Self>>;
    /// [`next`](Self::next), to be polled by hand.
    fn nexting(self) -> Polled<'q, Option<Self>>;
    /// The guard that can leave its queue's scope.
    fn into_owned(self) -> Self::Owned;
    /// Takes key and value out; `done` by key is promised.
    fn detach(self) -> Fallible<(Key, Option<Value>)>;
}

/// One trigger of a batch.
pub type Asked = (Key, When, Option<Value>);

/// Keys that were handed out together; their drop is that of each.
pub trait Many<'q>: Sized + Send + 'q {
    /// One of them.
    type One: Held<'q>;
    /// The keys, in the order in which they were handed out.
    fn keys(&self) -> Vec<u64>;
    /// Takes the merged value out of one of them.
    fn take_value(&mut self, index: usize) -> Option<Value>;
    /// Each by itself; what the iterator leaves is dropped with it.
    fn singles(self) -> impl Iterator<Item = Self::One>;
    /// Ends all runs.
    fn done(self) -> Fallible<()>;
    /// Ends all runs and forgets the failures.
    fn succeed(self) -> Fallible<()>;
    /// Ends all runs and gets the next keys, in this front's manner of waiting.
    fn next(self, most: usize) -> Fallible<Option<Self>>;
    /// [`next`](Self::next), to be polled by hand.
    fn nexting(self, most: usize) -> Polled<'q, Option<Self>>;
}

/// What an engine answered.
///
/// # Panics
///
/// Where the engine failed: the suite runs on engines that work.
pub fn sound<T>(answer: Fallible<T>) -> T {
    match answer {
        Ok(answer) => answer,
        Err(failed) => panic!("the engine under the queue failed: {failed:?}"),
    }
}

/// A queue under test and its clock, with calls as short as the tests want them.
#[derive(Clone, Debug)]
pub struct Subject<A> {
    /// The queue.
    pub queue: A,
    /// Its clock.
    pub clock: TestClock,
}

impl<A: Adapter> Subject<A> {
    /// A queue with every option at its default.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Config::default())
    }

    /// A queue built as `config` says.
    #[must_use]
    pub fn with(config: Config) -> Self {
        let clock = config.clock.clone();
        Self { queue: sound(A::build(config)), clock }
    }

    /// A queue with this limiter.
    #[must_use]
    pub fn limited(limiter: impl RateLimiter<Key> + 'static) -> Self {
        Self::with(Config { limiter: Some(Limiter(Arc::new(limiter))), ..Config::default() })
    }

    /// Any trigger.
    pub fn trigger(
        &self,
        key: impl Into<Key>,
        when: When,
        value: Option<Value>,
    ) -> Result<Accepted, Rejected> {
        sound(self.queue.trigger(key.into(), when, value))
    }

    /// `add` that is accepted.
    pub fn add(&self, key: impl Into<Key>) -> Accepted {
        self.trigger(key, When::Now, None).expect("the queue takes triggers")
    }

    /// Several triggers at once.
    pub fn trigger_many(&self, batch: Vec<Asked>) -> Vec<Result<Accepted, Rejected>> {
        sound(self.queue.trigger_many(batch))
    }

    /// `add` of several keys at once, that are accepted.
    pub fn add_many(&self, keys: impl IntoIterator<Item = u64>) -> Vec<Accepted> {
        let batch = keys.into_iter().map(|key| (key.into(), When::Now, None)).collect();
        self.trigger_many(batch).into_iter().map(|added| added.expect("the queue takes triggers")).collect()
    }

    /// `try_get` of several keys that finds some.
    pub fn take_many(&self, most: usize) -> A::Many<'_> {
        match self.try_get_many(most) {
            Ok(items) => items,
            Err(nothing) => panic!("no keys are handed out: {nothing:?}"),
        }
    }

    /// `try_get` of several keys.
    pub fn try_get_many(&self, most: usize) -> Result<A::Many<'_>, Nothing> {
        sound(self.queue.try_get_many(most))
    }

    /// `add` that is refused.
    pub fn refuses(&self, key: impl Into<Key>) -> bool {
        self.trigger(key, When::Now, None).is_err()
    }

    /// `add_value` of one number, that is accepted.
    pub fn add_value(&self, key: impl Into<Key>, item: u32) -> Accepted {
        self.trigger(key, When::Now, Some(Value::of(item))).expect("the queue takes triggers")
    }

    /// `add_after` that is accepted.
    pub fn add_after(&self, key: impl Into<Key>, delay: Duration) -> Accepted {
        self.add_after_with(key, delay, Policy::Earliest)
    }

    /// `add_after` with a policy, that is accepted.
    pub fn add_after_with(&self, key: impl Into<Key>, delay: Duration, policy: Policy) -> Accepted {
        self.trigger(key, When::After(delay, policy), None).expect("the queue takes triggers")
    }

    /// `add_rate_limited` that is accepted.
    pub fn add_rate_limited(&self, key: impl Into<Key>) -> Accepted {
        self.trigger(key, When::RateLimited, None).expect("the queue takes triggers")
    }

    /// `get` that finds a key.
    pub fn get(&self) -> A::Held<'_> {
        sound(self.queue.get()).expect("a key, not the end")
    }

    /// `get` that may find the end.
    pub fn get_or_end(&self) -> Option<A::Held<'_>> {
        sound(self.queue.get())
    }

    /// `try_get`.
    pub fn try_get(&self) -> Result<A::Held<'_>, Nothing> {
        sound(self.queue.try_get())
    }

    /// `try_get` that finds `key`.
    pub fn take(&self, key: u64) -> A::Held<'_> {
        match self.try_get() {
            Ok(item) => {
                assert_eq!(item.key().id, key, "another key was handed out");
                item
            }
            Err(nothing) => panic!("key {key} is not handed out: {nothing:?}"),
        }
    }

    /// Asserts that `try_get` finds nothing now, but may find something later.
    pub fn is_idle(&self) {
        self.says(Nothing::Empty);
    }

    /// Asserts that `try_get` says that the queue is shut down.
    pub fn is_over(&self) {
        self.says(Nothing::ShutDown);
    }

    fn says(&self, expected: Nothing) {
        match self.try_get() {
            Ok(item) => panic!("{expected:?} expected, but key {} was handed out", item.key().id),
            Err(nothing) => assert_eq!(nothing, expected),
        }
    }

    /// Hands out and ends runs until nothing is ready; the keys in their order.
    pub fn work_off(&self) -> Vec<u64> {
        let mut keys = Vec::new();
        while let Ok(item) = self.try_get() {
            keys.push(item.key().id);
            sound(item.done());
        }
        keys
    }

    /// `done` by key; whether the key was held.
    pub fn done(&self, key: u64) -> bool {
        sound(self.queue.done(&key.into()))
    }

    /// `forget`.
    pub fn forget(&self, key: u64) {
        sound(self.queue.forget(&key.into()));
    }

    /// `num_requeues`.
    pub fn num_requeues(&self, key: u64) -> u32 {
        sound(self.queue.num_requeues(&key.into()))
    }

    /// `len`.
    pub fn len(&self) -> usize {
        sound(self.queue.len())
    }

    /// `is_empty`.
    pub fn is_empty(&self) -> bool {
        sound(self.queue.is_empty())
    }

    /// `stats`.
    pub fn counts(&self) -> Counts {
        sound(self.queue.counts())
    }

    /// `state`.
    pub fn state(&self, key: u64) -> Option<Seen> {
        sound(self.queue.state(&key.into()))
    }

    /// Asserts what `stats` tells, in the order ready, held, dirty, waiting.
    pub fn has(&self, ready: usize, held: usize, dirty: usize, waiting: usize) {
        assert_eq!(self.counts(), Counts { ready, held, dirty, waiting });
        assert_eq!(self.len(), ready, "len is the number of ready keys");
    }

    /// `shutting_down`.
    pub fn shutting_down(&self) -> bool {
        sound(self.queue.shutting_down())
    }

    /// `close`.
    pub fn close(&self) {
        sound(self.queue.close());
    }

    /// `shut_down`.
    pub fn shut_down(&self) -> Down {
        sound(self.queue.shut_down())
    }

    /// `shut_down_with_drain`, waited for in this front's own manner.
    pub fn drain_wait(&self, waiters: Waiters) -> Drained {
        sound(self.queue.drain_wait(waiters, None))
    }

    /// A drain that is polled by hand. It has begun when this returns.
    pub fn drain(&self, waiters: Waiters) -> Polled<'_, Drained> {
        self.queue.drain(waiters, None)
    }

    /// A `get` that is polled by hand.
    pub fn getting(&self) -> Polled<'_, Option<A::Held<'_>>> {
        self.queue.getting()
    }
}

impl<A: Adapter> Default for Subject<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for TestClock {
    type Target = FakeClock;
    fn deref(&self) -> &FakeClock {
        self.fake()
    }
}

/// Milliseconds, the unit of most delays in the suite.
#[must_use]
pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Lets an answer go that the test does not look at.
pub fn ignore<T>(_: T) {}
