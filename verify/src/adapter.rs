//! The queue under test as the suite sees it.
//!
//! Every call can fail for a reason that is not the queue's own: an engine keeps its keys in a store, whose
//! calls can fail and wait. So each call returns a [`Fallible`], and may block until the engine has answered.
//! The suite's tests use [`Subject`], which unwraps it.

use crate::limits::Metered;
pub use crate::model::{Accepted, Counts, Down, Drained, InBackoff, Rate, Waiters};
use crate::probe::{Key, Value};
use requeue::{Debounce, FakeClock, Instant, Only, RateLimiter};
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A failure below the queue: a store, a connection. The in-memory queue never returns it.
#[derive(Clone, Debug)]
pub struct Failed(pub String);

/// The answer of an engine, or why there is none.
pub type Fallible<T> = Result<T, Failed>;

/// A `get`, or a drain, that is polled by hand.
pub type Polled<'q, T> = Pin<Box<dyn Future<Output = Fallible<T>> + Send + 'q>>;

/// Options of a queue under test. An option left at its default has the queue's default behaviour.
#[derive(Default)]
pub struct Config {
    /// The clock: a fake one that counts how often it is read.
    pub clock: TestClock,
    /// The order of the ready line.
    pub order: Line,
    /// Rate limit of hand-outs (B6).
    pub rate: Option<Rate>,
    /// `timers absorbed` (D6).
    pub absorbed: bool,
    /// A guard that is dropped without a word ends as `retry` does (Q12).
    pub unfinished_retries: bool,
    /// Default behaviour of triggers in a back-off (B5).
    pub in_backoff: InBackoff,
    /// Default debounce of immediate triggers (B4).
    pub debounce: Option<Debounce>,
    /// Maximum number of known keys (B8).
    pub bound: Option<usize>,
    /// The oldest ready key is dropped to make room for another; dropped keys are reported here.
    pub dropped: Option<Dropped>,
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

/// The keys that made room, and their values.
pub type Dropped = Arc<Mutex<Vec<(u64, Option<Value>)>>>;

/// The parameters of a per-key exponential limiter.
#[derive(Clone, Copy, Debug)]
pub struct Exponential {
    /// The first delay.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
    /// Time from the end of a record's last delay until the record expires.
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
    /// The highest priority first, and some hand-outs for those that are overdue (B2).
    Priority(Option<MaxWait>),
    /// Groups take turns (B3).
    Fair(Fair),
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "Fifo",
            Self::Lifo => "Lifo",
            Self::Own(_) => "Own",
            Self::Priority(_) => "Priority",
            Self::Fair(_) => "Fair",
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
    /// `key`, which was ready, left the line without being handed out.
    fn left(&mut self, _key: u64) {}
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
pub use crate::model::{Fair, Grouping, MaxWait};

/// Kind of a trigger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// `add`.
    #[default]
    Now,
    /// `add_after`, and its effect on an existing timer.
    After(Duration, Policy),
    /// `add_rate_limited`.
    RateLimited,
    /// `add`, and its behaviour in a back-off.
    NowIn(InBackoff),
    /// `add_after`, and its behaviour in a back-off.
    AfterIn(Duration, Policy, InBackoff),
    /// `add_rate_limited`, and its behaviour in a back-off.
    RateLimitedIn(InBackoff),
}

impl When {
    /// Splits off the option for a back-off.
    #[must_use]
    pub fn parts(self) -> (Self, Option<InBackoff>) {
        match self {
            Self::Now | Self::After(..) | Self::RateLimited => (self, None),
            Self::NowIn(in_backoff) => (Self::Now, Some(in_backoff)),
            Self::AfterIn(delay, policy, in_backoff) => (Self::After(delay, policy), Some(in_backoff)),
            Self::RateLimitedIn(in_backoff) => (Self::RateLimited, Some(in_backoff)),
        }
    }

    /// Sets the option for a back-off.
    #[must_use]
    pub fn in_backoff(self, in_backoff: InBackoff) -> Self {
        match self.parts().0 {
            Self::After(delay, policy) => Self::AfterIn(delay, policy, in_backoff),
            Self::RateLimited => Self::RateLimitedIn(in_backoff),
            _ => Self::NowIn(in_backoff),
        }
    }

    /// Whether it reads the clock for a delay.
    #[must_use]
    pub fn has_delay(self) -> bool {
        self.parts().0 != Self::Now
    }
}

/// Effect of `add_after` on a timer that is already set (D6).
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

/// A refused trigger, with the key and the value that the caller passed.
#[derive(Debug)]
pub struct Rejected {
    /// The key of the caller.
    pub key: Key,
    /// The value of the caller.
    pub value: Option<Value>,
    /// Whether it was refused because the queue is full.
    pub full: bool,
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

/// Result of `state` for a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Whether it is in the ready line.
    pub ready: bool,
    /// A worker has it.
    pub held: bool,
    /// Held, and due for one more run.
    pub dirty: bool,
    /// Instant when its timer fires.
    pub due: Option<Instant>,
    /// Whether it was paused by itself.
    pub paused: bool,
    /// Whether one of its groups is paused, but not the key itself.
    pub group_paused: bool,
}

/// Earlier state of a key that is put back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The failures.
    pub failures: u32,
    /// The attempt of its next run.
    pub attempt: u32,
    /// Instant when its timer fires; `None` if it is ready.
    pub due: Option<Instant>,
    /// The priority of its next run.
    pub priority: i16,
}

/// A page of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys with their states, and their failures if the queue counts them.
    pub keys: Vec<(u64, Seen, u32)>,
    /// The totals.
    pub totals: Counts,
    /// Start of the next page.
    pub next: Option<u32>,
}

/// Result of `cancel`.
#[derive(Debug)]
pub struct Cancelled {
    /// Whether it was in the ready line.
    pub ready: bool,
    /// Whether it was held, with one more run due.
    pub dirty: bool,
    /// Instant when its timer would have fired.
    pub due: Option<Instant>,
    /// It was in the list of unfinished keys.
    pub unfinished: bool,
    /// Its value.
    pub value: Option<Value>,
}

/// A key that a drain left unfinished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedKey {
    /// The key.
    pub key: u64,
    /// The value that its next run would have got.
    pub value: Option<Vec<u32>>,
    /// The limiter's record.
    pub failures: u32,
    /// The attempt that its next run would have been.
    pub attempt: u32,
    /// Instant when it would have been due, if known.
    pub due: Option<Instant>,
    /// The priority of its next run.
    pub priority: i16,
    /// Its retry was refused; else its timer was dropped.
    pub refused: bool,
}

/// Functions of the suite that do not apply to a queue. Those that call what the queue [`lacks`] are left out by
/// that, and stand in no list.
#[derive(Clone, Copy, Debug)]
pub struct LeftOut {
    /// Why.
    pub why: &'static str,
    /// Their names.
    pub tests: &'static [&'static str],
}

thread_local! {
    static LACKED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Ends the test that runs in this thread, because the queue under test does not offer what it calls.
pub fn lacks(what: &'static str) -> ! {
    LACKED.set(Some(what));
    // without the panic hook: nothing is wrong
    resume_unwind(Box::new(what))
}

/// Takes the call that the test of this thread made although the queue under test lacks it, if it made one.
pub(crate) fn take_lacked() -> Option<&'static str> {
    LACKED.take()
}

/// The queue under test: a handle, whose clones refer to one queue.
pub trait Adapter: Clone + Send + Sync + 'static {
    /// Guard returned by `get`.
    type Held<'q>: Held<'q>;
    /// Guards returned by a get of several keys.
    type Many<'q>: Many<'q, One = Self::Held<'q>>;

    /// The functions of the suite that do not apply to this queue, by reason.
    fn leaves_out() -> &'static [LeftOut] {
        &[]
    }

    /// Builds the queue.
    fn build(config: Config) -> Fallible<Self>;

    /// Makes a trigger, by the shortest call of the queue that expresses it.
    fn trigger(&self, said: Said) -> Fallible<Result<Accepted, Rejected>>;
    /// Makes several triggers at once, by the shortest call of the queue that expresses them.
    fn trigger_many(&self, batch: Vec<Said>) -> Fallible<Vec<Result<Accepted, Rejected>>>;
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
    /// Like `get_many`, with a deadline.
    fn get_many_timeout(&self, most: usize, limit: Duration) -> Fallible<Result<Self::Many<'_>, Nothing>>;
    /// Like `get_many`, without waiting.
    fn try_get_many(&self, most: usize) -> Fallible<Result<Self::Many<'_>, Nothing>>;
    /// Like `get_many`, to be polled by hand.
    fn getting_many(&self, most: usize) -> Polled<'_, Option<Self::Many<'_>>>;
    /// `done` by key; whether the key was held.
    fn done(&self, key: &Key) -> Fallible<bool>;

    /// `len`.
    fn len(&self) -> Fallible<usize>;
    /// `is_empty`.
    fn is_empty(&self) -> Fallible<bool>;
    /// `stats`.
    fn counts(&self) -> Fallible<Counts>;
    /// `state`; the failures it reports are compared with `num_requeues`.
    fn state(&self, key: &Key) -> Fallible<Option<Seen>>;

    /// A page of a `snapshot`.
    fn page(&self, from: u32, most: usize, only: Option<Only>) -> Fallible<Page>;
    /// `restore`.
    fn restore(
        &self,
        key: Key,
        known: Restored,
        value: Option<Value>,
    ) -> Fallible<Result<Accepted, Rejected>>;
    /// `add_when_room`, to be polled by hand, for at most so long.
    fn adding(&self, said: Said, limit: Option<Duration>) -> Polled<'_, Result<Accepted, Rejected>>;
    /// `add_when_room` in this front's own manner of waiting.
    fn add_wait(&self, said: Said, limit: Option<Duration>) -> Fallible<Result<Accepted, Rejected>>;
    /// `room`.
    fn room(&self) -> Fallible<Option<usize>>;
    /// `cancel`; with `forget` the failures are forgotten too.
    fn cancel(&self, key: &Key, forget: bool) -> Fallible<Option<Cancelled>>;
    /// `pause`, or `resume`.
    fn pause(&self, pause: bool) -> Fallible<bool>;
    /// `lift_rate`.
    fn lift_rate(&self) -> Fallible<bool>;
    /// `is_paused`.
    fn is_paused(&self) -> Fallible<bool>;
    /// `pause_key`.
    fn pause_key(&self, key: Key) -> Fallible<bool>;
    /// `resume_key`.
    fn resume_key(&self, key: &Key) -> Fallible<bool>;
    /// `pause_group`, or `resume_group`.
    fn pause_group(&self, key: &Key, pause: bool) -> Fallible<bool>;
    /// `is_group_paused`.
    fn is_group_paused(&self, key: &Key) -> Fallible<bool>;

    /// `close`.
    fn close(&self) -> Fallible<()>;
    /// `shutting_down`.
    fn shutting_down(&self) -> Fallible<bool>;
    /// `shut_down`.
    fn shut_down(&self) -> Fallible<Down>;
    /// Begins a drain, which is then waited for by polling.
    fn drain(&self, waiters: Waiters, deadline: Option<Duration>) -> Polled<'_, Drained>;
    /// Takes the list of unfinished keys.
    fn take_unfinished(&self) -> Fallible<Vec<UnfinishedKey>>;
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
    /// The priority with which it was handed out.
    fn priority(&self) -> i16;
    /// Ends the run.
    fn done(self) -> Fallible<()>;
    /// Ends the run and forgets the failures.
    fn succeed(self) -> Fallible<()>;
    /// Ends the run as a failure; refused, the guard comes back.
    fn retry(self) -> Fallible<Result<Duration, Self>>;
    /// [`retry`](Self::retry) with an explicit delay.
    fn retry_after(self, delay: Duration) -> Fallible<Result<Duration, Self>>;
    /// Ends the run and asks for another after `delay`; no failure.
    fn again(self, delay: Duration) -> Fallible<Result<(), Self>>;
    /// Ends the run, forgets the failures, and gives the key up.
    fn give_up(self) -> Fallible<()>;
    /// Puts the key back into line, with the attempt counted.
    fn put_back(self) -> Fallible<()>;
    /// Ends the run and gets the next key, in this front's manner of waiting.
    fn next(self) -> Fallible<Option<Self>>;
    /// [`next`](Self::next), to be polled by hand.
    fn nexting(self) -> Polled<'q, Option<Self>>;
    /// The guard that can leave its queue's scope.
    fn into_owned(self) -> Self::Owned;
    /// Takes key and value out; `done` by key is promised.
    fn detach(self) -> Fallible<(Key, Option<Value>)>;
}

/// A trigger without a priority of its own.
pub type Asked = (Key, When, Option<Value>);

/// All options of a trigger.
#[derive(Debug)]
pub struct Said {
    /// The key.
    pub key: Key,
    /// The kind of trigger.
    pub when: When,
    /// The value, if any.
    pub value: Option<Value>,
    /// The priority.
    pub priority: i16,
    /// The debounce of an immediate trigger, if it has one of its own.
    pub debounce: Option<Debounce>,
}

impl From<Asked> for Said {
    fn from((key, when, value): Asked) -> Self {
        Self { key, when, value, priority: 0, debounce: None }
    }
}

impl Said {
    /// Sets the priority.
    #[must_use]
    pub fn priority(self, priority: i16) -> Self {
        Self { priority, ..self }
    }

    /// Debounced so.
    #[must_use]
    pub fn debounce(self, debounce: Option<Debounce>) -> Self {
        Self { debounce, ..self }
    }

    /// Whether it reads the clock for itself.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.when.has_delay() || self.debounce.is_some()
    }
}

/// Keys that were handed out together; their drop is that of each.
pub trait Many<'q>: Sized + Send + 'q {
    /// One of the items.
    type One: Held<'q>;
    /// The keys, in the order in which they were handed out.
    fn keys(&self) -> Vec<u64>;
    /// Takes the merged value out of one of them.
    fn take_value(&mut self, index: usize) -> Option<Value>;
    /// Each item separately; items that the iterator has not returned are dropped with it.
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

/// Unwraps the answer of an engine.
///
/// # Panics
///
/// If the engine failed: the suite runs on working engines.
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

    /// A queue with these options.
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
        self.say((key.into(), when, value).into())
    }

    /// Makes any trigger, with all its options.
    pub fn say(&self, said: Said) -> Result<Accepted, Rejected> {
        sound(self.queue.trigger(said))
    }

    /// A queue that debounces.
    #[must_use]
    pub fn debouncing(debounce: Debounce) -> Self {
        Self::with(Config { debounce: Some(debounce), ..Config::default() })
    }

    /// `add` that is debounced so, and accepted.
    pub fn add_debounced(&self, key: impl Into<Key>, debounce: Debounce) -> Accepted {
        let said = Said::from((key.into(), When::Now, None)).debounce(Some(debounce));
        self.say(said).expect("the queue takes triggers")
    }

    /// `add` with a priority, that is accepted.
    pub fn add_at(&self, key: impl Into<Key>, priority: i16) -> Accepted {
        self.ask_at(key, When::Now, priority)
    }

    /// A trigger with a priority, that is accepted.
    pub fn ask_at(&self, key: impl Into<Key>, when: When, priority: i16) -> Accepted {
        let said = Said::from((key.into(), when, None)).priority(priority);
        self.say(said).expect("the queue takes triggers")
    }

    /// `add` that is accepted.
    pub fn add(&self, key: impl Into<Key>) -> Accepted {
        self.trigger(key, When::Now, None).expect("the queue takes triggers")
    }

    /// Several triggers at once.
    pub fn trigger_many(&self, batch: Vec<impl Into<Said>>) -> Vec<Result<Accepted, Rejected>> {
        sound(self.queue.trigger_many(batch.into_iter().map(Into::into).collect()))
    }

    /// `add` of several keys at once, that are accepted.
    pub fn add_many(&self, keys: impl IntoIterator<Item = u64>) -> Vec<Accepted> {
        let batch = keys.into_iter().map(|key| (Key::from(key), When::Now, None));
        self.trigger_many(batch.collect())
            .into_iter()
            .map(|added| added.expect("the queue takes triggers"))
            .collect()
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

    /// A queue with priorities.
    #[must_use]
    pub fn with_priorities(max_wait: Option<Duration>) -> Self {
        Self::with(Config { order: Line::Priority(max_wait.map(MaxWait::of)), ..Config::default() })
    }

    /// A queue with groups.
    #[must_use]
    pub fn with_groups(fair: Fair) -> Self {
        Self::with(Config { order: Line::Fair(fair), ..Config::default() })
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

    /// `add` with a back-off option, which is accepted.
    pub fn add_in(&self, key: impl Into<Key>, in_backoff: InBackoff) -> Accepted {
        self.trigger(key, When::NowIn(in_backoff), None).expect("the queue takes triggers")
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

    /// `try_get` that finds `key` with this priority, and holds it.
    pub fn take_at(&self, key: u64, priority: i16) -> A::Held<'_> {
        let item = self.take(key);
        assert_eq!(item.priority(), priority, "the priority of key {key}");
        item
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

    /// Asserts that `try_get` reports a shutdown.
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

    /// A page of a `snapshot`.
    pub fn page(&self, from: u32, most: usize, only: Option<Only>) -> Page {
        sound(self.queue.page(from, most, only))
    }

    /// The keys of a `snapshot`, in pages of so many.
    pub fn snapshot(&self, most: usize, only: Option<Only>) -> Vec<u64> {
        let (mut from, mut keys) = (Some(0), Vec::new());
        while let Some(at) = from {
            let page = self.page(at, most, only);
            assert!(page.keys.len() <= most.max(1), "a page is no longer than it was asked to be");
            keys.extend(page.keys.into_iter().map(|(key, ..)| key));
            from = page.next;
        }
        keys.sort_unstable();
        keys
    }

    /// A queue with a bound.
    #[must_use]
    pub fn bounded(keys: usize) -> Self {
        Self::with(Config { bound: Some(keys), ..Config::default() })
    }

    /// A queue with a bound that drops the oldest key, and the report of dropped keys.
    #[must_use]
    pub fn dropping(keys: usize, config: Config) -> (Self, Dropped) {
        let dropped = Dropped::default();
        let config = Config { bound: Some(keys), dropped: Some(dropped.clone()), ..config };
        (Self::with(config), dropped)
    }

    /// `add_when_room` that is polled by hand.
    pub fn adding(&self, said: impl Into<Said>) -> Polled<'_, Result<Accepted, Rejected>> {
        self.queue.adding(said.into(), None)
    }

    /// `room`.
    pub fn room(&self) -> Option<usize> {
        sound(self.queue.room())
    }

    /// `add` that is refused because the queue is full.
    pub fn is_full_for(&self, key: u64) -> bool {
        let Err(refused) = self.trigger(key, When::Now, None) else { return false };
        assert_eq!((refused.key.id, refused.full), (key, true));
        true
    }

    /// `restore`.
    pub fn restore(
        &self,
        key: impl Into<Key>,
        known: Restored,
        value: Option<Value>,
    ) -> Result<Accepted, Rejected> {
        sound(self.queue.restore(key.into(), known, value))
    }

    /// `cancel`.
    pub fn cancel(&self, key: impl Into<Key>) -> Option<Cancelled> {
        sound(self.queue.cancel(&key.into(), false))
    }

    /// `cancel` and `forget`.
    pub fn cancel_and_forget(&self, key: impl Into<Key>) -> Option<Cancelled> {
        sound(self.queue.cancel(&key.into(), true))
    }

    /// `pause`.
    pub fn pause(&self) -> bool {
        sound(self.queue.pause(true))
    }

    /// `resume`.
    pub fn resume(&self) -> bool {
        sound(self.queue.pause(false))
    }

    /// `lift_rate`.
    pub fn lift_rate(&self) -> bool {
        sound(self.queue.lift_rate())
    }

    /// `is_paused`.
    pub fn is_paused(&self) -> bool {
        sound(self.queue.is_paused())
    }

    /// `pause_key`.
    pub fn pause_key(&self, key: impl Into<Key>) -> bool {
        sound(self.queue.pause_key(key.into()))
    }

    /// `resume_key`.
    pub fn resume_key(&self, key: impl Into<Key>) -> bool {
        sound(self.queue.resume_key(&key.into()))
    }

    /// `pause_group`.
    pub fn pause_group(&self, key: impl Into<Key>) -> bool {
        sound(self.queue.pause_group(&key.into(), true))
    }

    /// `resume_group`.
    pub fn resume_group(&self, key: impl Into<Key>) -> bool {
        sound(self.queue.pause_group(&key.into(), false))
    }

    /// `is_group_paused`.
    pub fn is_group_paused(&self, key: impl Into<Key>) -> bool {
        sound(self.queue.is_group_paused(&key.into()))
    }

    /// Asserts the counts of `stats`, in the order ready, held, dirty, waiting.
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

    /// `drain`, waited for in this front's own manner.
    pub fn drain_wait(&self, waiters: Waiters) -> Drained {
        sound(self.queue.drain_wait(waiters, None))
    }

    /// The list of unfinished keys, which is taken, in the order of the keys.
    pub fn take_unfinished(&self) -> Vec<UnfinishedKey> {
        let mut list = sound(self.queue.take_unfinished());
        list.sort_by_key(|unfinished| unfinished.key);
        list
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
