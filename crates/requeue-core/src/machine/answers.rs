//! Answers: what the state machine says of a trigger, a run, a key or the whole queue.

use super::options::{How, InBackoff};
use crate::arena::KeyRef;
use crate::line::Ticket;
use crate::time::Instant;
use core::fmt;
use core::time::Duration;

/// Effect of an accepted trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Added {
    /// The key became ready: it went to the back of the line.
    Ready,
    /// The key is held and became dirty: it goes to the back of the line when
    /// its run ends.
    Dirty,
    /// The key's timer was set, or moved.
    Waiting,
    /// A pending run already covers it: the key was ready or dirty, its timer stayed unchanged, or the
    /// trigger joined the window of a debounce. (A higher priority has still raised the key's.)
    Coalesced,
}

/// The reason why a trigger was refused. A refused trigger changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refused {
    /// The queue is shut down, drains, or was closed.
    ShutDown,
    /// The run to be ended with a retry has already ended, by `done(&key)`.
    NotHeld,
    /// The trigger has a priority other than 0, and the queue was built without priorities.
    NoPriorities,
    /// The key to be restored has failures, and the queue's limiter counts failures itself.
    CountedElsewhere,
    /// The queue is at its bound.
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShutDown => "the queue is shut down and accepts no more keys",
            Self::NotHeld => "the run has already ended: done was called for its key",
            Self::NoPriorities => {
                "the queue was built without priorities: call .priorities() on its builder, \
                 or give the key no priority but 0"
            }
            Self::CountedElsewhere => {
                "the queue's limiter counts failures itself: restore them there, and the key without them"
            }
            Self::Full => {
                "the queue is full: add the key when others are done, wait for room, or give the queue \
                 a larger .bound(…)"
            }
        })
    }
}

impl core::error::Error for Refused {}

/// An accepted trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its effect.
    pub added: Added,
    /// The delay, zero for an immediate trigger.
    pub delay: Duration,
    /// Identifies the key as long as the lock is held.
    pub ticket: Ticket,
}

impl Accepted {
    /// An accepted trigger that a shutdown dropped while its limiter was asked.
    pub(super) const DROPPED: Self =
        Self { added: Added::Waiting, delay: Duration::ZERO, ticket: Ticket::NONE };
}

/// A run that was handed out: the loan of its key and its number. Give it back through [`Core::end`](super::Core::end) or
/// [`Core::give_back`](super::Core::give_back); if it is dropped, its key stays held.
#[derive(Debug)]
#[must_use = "a run that is not ended keeps its key held for ever"]
pub struct RunRef<K> {
    pub(super) key: KeyRef<K>,
    pub(super) number: u64,
}

impl<K> RunRef<K> {
    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &K {
        self.key.get()
    }

    /// The number of the key's slot: see [`Core::slot_of`](super::Core::slot_of).
    #[must_use]
    pub fn slot(&self) -> u32 {
        self.key.slot()
    }

    /// The number of the run: larger than that of each run that was handed out before.
    #[inline]
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The priority with which it was handed out: 0 if the queue has no priorities.
    #[inline]
    #[must_use]
    pub fn priority(&self) -> i16 {
        self.key.mark()
    }
}

/// Result of [`Core::get`](super::Core::get).
#[derive(Debug)]
#[must_use]
pub struct Handout<K, V> {
    /// The run.
    pub run: RunRef<K>,
    /// The merged value.
    pub value: Option<V>,
    /// Attempt of the run: 1 for a first run; one more for each retry in a row that led to this one.
    pub attempt: u32,
    /// Time from the run's first trigger to now, if timestamps are kept.
    pub waited: Option<Duration>,
}

/// The answer of [`Core::get`](super::Core::get).
#[derive(Debug)]
#[must_use]
pub enum Got<K, V> {
    /// A key.
    Item(Handout<K, V>),
    /// No key is ready now.
    Empty,
    /// No key is ready, and none will be.
    ShutDown,
}

/// A run that has ended.
#[derive(Debug)]
#[must_use = "drop the contents outside the lock"]
pub struct Ended<K, V> {
    /// The key, if it has no references left.
    pub key: Option<K>,
    /// The value, if no run is left to hand it to.
    pub value: Option<V>,
    /// Time of the run, if timestamps are kept; `None` also if it had been ended before.
    pub worked: Option<Duration>,
    /// How it ended.
    pub end: RunEnd,
    /// The delay of a retried key.
    pub delay: Duration,
}

impl<K, V> Default for Ended<K, V> {
    /// A result with nothing ended.
    #[inline]
    fn default() -> Self {
        Self { key: None, value: None, worked: None, end: RunEnd::Done, delay: Duration::ZERO }
    }
}

/// End of a run, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RunEnd {
    /// It was done, or dropped, or its retry was refused.
    #[default]
    Done,
    /// Not a failure, and the key comes again.
    Again,
    /// A failure, and the key comes again.
    Retry,
    /// A failure that is not retried.
    GiveUp,
}

impl RunEnd {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Done, Self::Again, Self::Retry, Self::GiveUp];

    /// Its name in metrics: `done`, `again`, `retry`, `give_up`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Again => "again",
            Self::Retry => "retry",
            Self::GiveUp => "give_up",
        }
    }
}

impl From<&How<'_>> for RunEnd {
    fn from(how: &How<'_>) -> Self {
        match how {
            How::Done | How::Succeed => Self::Done,
            How::GiveUp => Self::GiveUp,
            How::Again(_) => Self::Again,
            How::Retry(_) => Self::Retry,
        }
    }
}

/// The reason why there was no run for a caller that awaited one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoRun {
    /// The key was cancelled.
    Cancelled,
    /// The trigger was dropped: by a shutdown, or for room.
    Dropped,
}

impl fmt::Display for NoRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "the key was cancelled before its run began: add it again if it is to run",
            Self::Dropped => "the trigger was dropped by a shutdown or for room: no run follows it",
        })
    }
}

impl core::error::Error for NoRun {}

/// A retry that was refused: the run goes on.
#[derive(Debug)]
pub struct RefusedEnd<V> {
    /// The value that was to go back.
    pub value: Option<V>,
    /// The reason.
    pub reason: Refused,
}

/// Error of `done` for a key that is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NotHeld;

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("done was called for a key that is not held: get it first, and call done once")
    }
}

impl core::error::Error for NotHeld {}

/// Numbers of keys by state, and of waiting callers, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stats {
    /// Keys in line.
    pub ready: usize,
    /// Keys that workers have.
    pub held: usize,
    /// Held keys that were triggered during their run.
    pub dirty: usize,
    /// Keys with a timer, even if they are also in line or held.
    pub waiting: usize,
    /// Keys that are themselves paused, in any state.
    pub paused: usize,
    /// Distinct keys that the queue keeps: those above, those known only by their failures (until expired
    /// ones are found), and those known only by a guard whose run was ended.
    pub known: usize,
    /// Number of further keys that have room; `None` if the queue has no bound. Another caller may take the
    /// room first.
    pub room: Option<usize>,
    /// Callers that wait for room: each sleeps, or has been woken and has not tried yet. Counted by the
    /// queue: the machine leaves it 0.
    pub adders: usize,
    /// Callers that wait for a key and have not been woken: each sleeps. Counted by the queue: the machine
    /// leaves it 0.
    pub waiters: usize,
}

/// State of a key, as the queue knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct KeyState {
    /// It is in line.
    pub ready: bool,
    /// A worker has it.
    pub held: bool,
    /// When it was handed out, if the queue keeps timestamps (a queue with metrics does).
    pub held_since: Option<Instant>,
    /// It was triggered while held, and becomes ready when its run ends.
    pub dirty: bool,
    /// When its timer is due.
    pub waiting_until: Option<Instant>,
    /// When the window of a debounce ends and makes it ready, if an open window owes a run. `waiting_until`
    /// is no later.
    pub window_until: Option<Instant>,
    /// When the window of a debounce ends, if an open window owes no run: the run of its first trigger has
    /// come, and a trigger until then would wait for this instant. `waiting_until` is no later.
    pub quiet_until: Option<Instant>,
    /// Number of requeues since it was last forgotten, if the queue counts (see
    /// [`num_requeues`](super::Core::num_requeues)).
    pub failures: u32,
    /// The attempt of its current or next run: 1 plus the number of retries in a row that led to it.
    pub attempt: u32,
    /// It waits out a failure: a trigger that respects a back-off joins the run at `waiting_until`.
    pub backing_off: bool,
    /// Effect of the triggers during its run, if that run fails: the strongest of them, or `Run` if there
    /// were none.
    pub if_it_fails: InBackoff,
    /// The pause that keeps it from being handed out, should it be ready: of several, the narrowest.
    pub paused: Option<Paused>,
    /// Its group has as many keys held as its cap allows: a ready key of it waits for one of these runs to end.
    pub group_is_full: bool,
    /// When the rate of its group has the next token, if the group has none now.
    pub group_token: Option<Instant>,
    /// The priority of its next run, if it is ready or dirty; otherwise that of its current run, or of its
    /// timer. 0 if the queue has no priorities.
    pub priority: i16,
}

/// Counts of keys, and their times, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyGauges {
    /// Keys in line.
    pub depth: usize,
    /// Keys with a timer, even if they are also in line or held.
    pub waiting: usize,
    /// Keys that workers have.
    pub held: usize,
    /// Held keys that were triggered during their run.
    pub dirty: usize,
    /// Time in line of the key that has been there longest; zero if there is none.
    pub oldest_ready: Duration,
    /// Sum of the times of all current runs.
    pub unfinished_work: Duration,
    /// Time of the longest current run.
    pub longest_running: Duration,
}

/// Counts since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Keys that became ready or dirty.
    pub adds: u64,
    /// Accepted triggers that changed nothing, because a pending run already covered them.
    pub coalesced: u64,
}

/// The kind of pause that keeps a key from being handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Paused {
    /// The whole queue is paused.
    Queue,
    /// The key's group is paused.
    Group,
    /// The key itself is paused.
    Key,
}

/// Selects the keys of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Only {
    /// Keys in line.
    Ready,
    /// Keys that workers have.
    Held,
    /// Held keys that were triggered during their run.
    Dirty,
    /// Keys with a timer, even if they are also in line or held.
    Waiting,
    /// Keys with failures on record, if the queue counts them.
    Failed,
    /// Keys that are themselves paused.
    Paused,
    /// Keys of a paused group that are not themselves paused.
    GroupPaused,
}

impl Only {
    /// Whether a key in this state is selected.
    #[must_use]
    pub fn is(self, state: &KeyState) -> bool {
        match self {
            Self::Ready => state.ready,
            Self::Held => state.held,
            Self::Dirty => state.dirty,
            Self::Waiting => state.waiting_until.is_some(),
            Self::Failed => state.failures > 0,
            Self::Paused => state.paused == Some(Paused::Key),
            Self::GroupPaused => state.paused == Some(Paused::Group),
        }
    }
}

/// Result of [`Core::cancel`](super::Core::cancel): at least one of `ready`, `dirty`, `waiting_until` and `unfinished` is set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancelled<V = ()> {
    /// It was in line.
    pub ready: bool,
    /// It was triggered while held, and would have become ready when its run ended.
    pub dirty: bool,
    /// When its timer would have been due.
    pub waiting_until: Option<Instant>,
    /// It was in the list of keys that drains have left unfinished.
    pub unfinished: bool,
    /// The merged value that its next run would have got.
    pub value: Option<V>,
}

/// Result of `shut_down`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ShutDown {
    /// Keys in line, which are still handed out.
    pub ready: usize,
    /// Keys that workers have.
    pub held: usize,
    /// Held keys that get one more run.
    pub dirty: usize,
    /// Waiting keys whose timers were dropped.
    pub dropped: usize,
    /// Triggers from outside refused so far.
    pub refused: u64,
    /// Retries of holders refused so far: this many runs were not tried again.
    pub refused_retries: u64,
}

/// The counts at the start of a drain.
#[derive(Clone, Copy, Debug)]
pub struct DrainBase {
    pub(super) done: u64,
    pub(super) dropped: u64,
    pub(super) refused: u64,
    pub(super) refused_retries: u64,
    pub(super) releases: u64,
}

/// Report of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Drained {
    /// Whether everything was worked off: nothing is left, and no key was left [unfinished](Self::unfinished)
    /// since the first drain of this queue began.
    pub complete: bool,
    /// Unfinished keys of all drains of this queue that were not taken yet: their run failed and its retry
    /// was refused, or their timer was dropped.
    pub unfinished: usize,
    /// Whether unfinished keys are also in an engine's store, for the next process.
    pub durable: bool,
    /// Runs that ended since the drain began.
    pub done: u64,
    /// Waiting keys that were dropped since.
    pub dropped: u64,
    /// Triggers from outside that were refused since.
    pub refused: u64,
    /// Retries of holders refused since: this many runs were not tried again.
    pub refused_retries: u64,
    /// Keys in line now.
    pub ready: usize,
    /// Keys that workers have now.
    pub held: usize,
    /// Keys that wait for their timers now.
    pub waiting: usize,
}

/// The reason why a key is unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnfinishedReason {
    /// Its run failed, and the retry was refused.
    RetryRefused,
    /// Its timer was dropped, or a run asked for a later one and was refused.
    TimerDropped,
}

/// A key with work left, and its state: a drain leaves it, and `WorkQueue::restore` takes it. An engine makes
/// one for each key of its store.
///
/// ```
/// # use requeue_core::UnfinishedKey;
/// let mut key: UnfinishedKey<_, u32> = UnfinishedKey::new("a");
/// key.failures = 3;
/// key.value = Some(7);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnfinishedKey<K, V = ()> {
    /// The key.
    pub key: K,
    /// The merged value of its next run.
    pub value: Option<V>,
    /// Number of requeues through the limiter since it was last forgotten: [`KeyState::failures`]. A limiter
    /// that counts no failures, such as a token bucket, ignores it.
    pub failures: u32,
    /// The attempt of its next run, counted from 1: [`KeyState::attempt`]. 0 counts as 1.
    pub attempt: u32,
    /// When it is due. Without one, or if that has passed, a restored key is ready. A drain leaves `None` if only
    /// the limiter could say: a refused retry does not ask it.
    pub due: Option<Instant>,
    /// The priority of its next run, or of its timer.
    pub priority: i16,
    /// Its run failed, and a drain refused the retry. `false`: a drain dropped its timer, or no drain left it.
    pub retry_refused: bool,
}

impl<K, V> UnfinishedKey<K, V> {
    /// A key that is ready, at its first attempt, without failures or a value. Set the fields for another
    /// state.
    pub fn new(key: K) -> Self {
        Self { key, value: None, failures: 0, attempt: 1, due: None, priority: 0, retry_refused: false }
    }
}
