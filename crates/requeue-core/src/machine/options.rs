//! Options: what a call, a trigger or the end of a run may ask of the state machine, and what a queue is made with.

use crate::line::{Order, Rate};
use crate::time::Instant;
use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

/// The key and the value of a trigger. The call takes out of it what it keeps. The rest belongs to the caller, to be dropped
/// outside the lock, even if user code panicked.
#[derive(Debug)]
pub struct Trigger<K, V = ()> {
    pub(super) key: Option<K>,
    pub(super) value: Option<V>,
}

impl<K, V> Trigger<K, V> {
    /// A trigger of a key, with or without a value.
    #[inline]
    pub fn new(key: K, value: Option<V>) -> Self {
        Self { key: Some(key), value }
    }

    /// The key, until the queue has taken it.
    #[inline]
    pub fn key(&self) -> Option<&K> {
        self.key.as_ref()
    }

    /// Takes the parts that the queue did not take: key and value of a refused trigger, or a key that the
    /// queue already has.
    #[inline]
    pub fn take(&mut self) -> (Option<K>, Option<V>) {
        (self.key.take(), self.value.take())
    }

    /// Whether the queue has taken all of it.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.key.is_none() && self.value.is_none()
    }
}

/// The options of a trigger. Calls get them by reference, so that none is copied on the way.
#[derive(Clone, Copy, Debug)]
pub struct TriggerOptions {
    /// When the key is to run.
    pub delay: Delay,
    /// The priority: higher ones go first.
    pub priority: i16,
    /// The effect on a back-off; without it the queue's setting applies.
    pub in_backoff: Option<InBackoff>,
    /// The debounce of an immediate trigger; without it the queue's setting applies.
    pub debounce: Option<Debounce>,
    /// The run that it asks for stands for that of the key's timer too (rule D6's `timers absorbed`, for one trigger).
    pub absorbs: bool,
}

impl TriggerOptions {
    /// An immediate trigger without options.
    pub const NOW: Self =
        Self { delay: Delay::Now, priority: 0, in_backoff: None, debounce: None, absorbs: false };

    /// A trigger with this delay, and no other option.
    #[inline]
    #[must_use]
    pub fn after(delay: Delay) -> Self {
        Self { delay, ..Self::NOW }
    }

    /// The policy of its timer, and whether it resets, if a limiter is to decide its delay.
    #[inline]
    #[must_use]
    pub fn limited(&self) -> Option<(Policy, bool)> {
        match self.delay {
            Delay::Limited(policy) => Some((policy, self.in_backoff == Some(InBackoff::Reset))),
            _ => None,
        }
    }

    /// Whether it has a delay, be it zero.
    #[inline]
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        !matches!(self.delay, Delay::Now)
    }

    /// Whether it has neither a delay nor a debounce of its own: it reads no clock.
    #[inline]
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        matches!(self.delay, Delay::Now) && self.debounce.is_none()
    }

    /// Whether it has no option at all.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.is_immediate() && self.priority == 0 && self.in_backoff.is_none() && !self.absorbs
    }
}

/// The delay of a trigger.
#[derive(Clone, Copy, Debug)]
pub enum Delay {
    /// Now.
    Now,
    /// After this time; zero is now.
    After(Duration, Policy),
    /// At this instant; one that has passed is now.
    At(Instant, Policy),
    /// The delay of a limiter that uses the key's own count.
    Limited(Policy),
    /// The delay of a limiter that was asked outside the lock, see [`Core::ask`](super::Core::ask).
    Asked(Duration, Policy, Asking),
}

impl Delay {
    /// Whether the trigger has none, or one of zero.
    pub(super) fn is_none(&self) -> bool {
        match self {
            Self::Now => true,
            Self::After(delay, _) => delay.is_zero(),
            Self::At(..) | Self::Limited(_) | Self::Asked(..) => false,
        }
    }

    /// Whether it is immediate, and no limiter decides.
    pub(super) fn is_now(&self, now: Instant) -> bool {
        match self {
            Self::Now => true,
            Self::After(delay, _) => delay.is_zero(),
            Self::At(at, _) => *at <= now,
            Self::Limited(_) | Self::Asked(..) => false,
        }
    }

    /// Sets the effect on a timer that the key has. An immediate trigger sets no timer.
    #[inline]
    pub fn set_policy(&mut self, to: Policy) {
        match self {
            Self::Now => {}
            Self::After(_, policy)
            | Self::At(_, policy)
            | Self::Limited(policy)
            | Self::Asked(_, policy, _) => {
                *policy = to;
            }
        }
    }

    /// Whether a limiter decides the delay.
    pub(super) fn is_limited(&self) -> bool {
        matches!(self, Self::Limited(_) | Self::Asked(..))
    }
}

/// Effect of a new timer on one that the key already has (rule D6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The earlier instant stays.
    #[default]
    Earliest,
    /// The later instant stays, but none later than `max` after the first such call: a debounce.
    Latest {
        /// Maximum time from the window's first trigger to the run.
        max: Duration,
    },
    /// The new instant replaces the old one.
    Replace,
    /// The old instant stays.
    Keep,
}

/// A built-in limiter as the state machine sees it: a function of the count.
#[derive(Clone, Copy)]
pub struct Limit<'a> {
    /// The delay of a key with this number of earlier failures. Must not panic.
    pub delay: &'a dyn Fn(u32, Instant) -> Duration,
    /// Whether the limiter counts at all.
    pub counts: bool,
    /// Time from the end of its last delay until a count expires.
    pub expire_after: Option<Duration>,
}

impl Limit<'_> {
    /// No limiter: for calls whose delay none decides.
    pub const NONE: Limit<'static> = Limit { delay: &no_delay, counts: false, expire_after: None };
}

fn no_delay(_: u32, _: Instant) -> Duration {
    Duration::ZERO
}

impl fmt::Debug for Limit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// A limiter call in progress outside the lock: for a shutdown that comes meanwhile the trigger counts as a
/// waiting key.
#[derive(Clone, Copy, Debug)]
#[must_use = "to be handed back by the trigger it was taken for, or by `unask`"]
pub struct Asking {
    pub(super) epoch: u64,
    /// A place is reserved for the trigger: see [`Core::ask_for`](super::Core::ask_for).
    pub(super) place: bool,
    /// The reading passed to the limiter: its delay counts from here, however long it takes.
    pub(super) at: Instant,
}

/// Effect of a trigger on a key that waits out a failure, or whose run fails after the trigger came (rule
/// B5). Of several triggers the strongest wins: reset, then run, then respect. No trigger counts as a failure
/// by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InBackoff {
    /// It asks for a run as if there were no failure: the key is ready now, at attempt 1. The failures stay, and so does the
    /// back-off's timer, which brings a further run unless the run that begins absorbs it.
    #[default]
    Run,
    /// It joins the run after the back-off.
    Respect,
    /// The back-off's timer is removed, the failures are forgotten, and the trigger runs as if the key had
    /// never failed.
    Reset,
}

/// A debounce: the key runs once no trigger has come for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a debounce does nothing until it is given to a queue or a trigger"]
pub struct Debounce {
    pub(super) quiet: Duration,
    pub(super) max: Duration,
    pub(super) leading: bool,
}

impl Debounce {
    /// A debounce with this quiet time: the key runs when no trigger has come for `quiet`, at the latest 10
    /// times as long after the first one. Zero is no debounce: the key runs at once.
    pub const fn new(quiet: Duration) -> Self {
        Self { quiet, max: quiet.saturating_mul(10), leading: false }
    }

    /// Sets the maximum time from the first trigger of the window to the run, however many come. A maximum
    /// shorter than `quiet` ends each window after `max`; zero is no debounce.
    pub const fn max(self, max: Duration) -> Self {
        Self { max, ..self }
    }

    /// Lets the first trigger run at once and open a window: those that come in it give one more run, at its
    /// end.
    pub const fn leading(self) -> Self {
        Self { leading: true, ..self }
    }

    /// The quiet time.
    #[must_use]
    pub const fn quiet(&self) -> Duration {
        self.quiet
    }

    /// Maximum time that a window is open.
    #[must_use]
    pub const fn longest(&self) -> Duration {
        self.max
    }

    /// Whether the first trigger runs at once.
    #[must_use]
    pub const fn is_leading(&self) -> bool {
        self.leading
    }

    /// Whether it debounces anything.
    pub(super) fn is_on(&self) -> bool {
        !self.quiet.is_zero() && !self.max.is_zero()
    }
}

/// The earlier state of a key that is put back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Number of requeues since it was last forgotten.
    pub failures: u32,
    /// The attempt of its next run; 0 counts as 1.
    pub attempt: u32,
    /// When its timer is due; without one it is ready.
    pub due: Option<Instant>,
    /// The priority of its next run.
    pub priority: i16,
}

/// How a run ends.
#[derive(Clone, Copy, Debug)]
pub enum How<'a> {
    /// Done; the record of failures stays.
    Done,
    /// Done, and the failures are forgotten.
    Succeed,
    /// A failure that is not retried: like [`Succeed`](Self::Succeed), with another name.
    GiveUp,
    /// Not a failure: forgets the failures, and the key comes again after the delay.
    Again(Duration),
    /// A failure: the key comes back.
    Retry(RetryDelay<'a>),
}

/// The delay of a failed key.
#[derive(Clone, Copy, Debug)]
pub enum RetryDelay<'a> {
    /// The delay of a limiter that uses the key's own count. If one is given, that replaces it: the limiter is asked and counts.
    Limited(Limit<'a>, Option<Duration>),
    /// The delay of a limiter that was asked outside the lock.
    Asked(Duration, Asking),
}

/// Effect of a drain on keys that wait for their timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitingKeys {
    /// A drain with a deadline waits for keys that wait out a failure, and holders may still retry; it drops
    /// all other timers. Without a deadline this is [`Drop`](Self::Drop), because a key may fail for ever.
    #[default]
    WaitForRetries,
    /// Their timers are dropped. Their keys are unfinished.
    Drop,
    /// They run now, in the order of their instants.
    RunNow,
    /// The drain waits for them, and holders may still retry. Not on a queue that is already shut down: it
    /// has no waiting keys and accepts no retries.
    Wait,
}

/// The maximum number of keys that a queue knows, and the fate of a trigger that finds no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bound {
    /// Maximum number of keys that are ready, waiting or held.
    pub keys: usize,
    /// Lets the key that has been ready longest make room for a new one. Not with a user's order. If no key
    /// is ready, or without this, the trigger is refused.
    pub drop_oldest: bool,
}

/// Merges two values of one key: the older first.
pub type Merge<V> = Box<dyn Fn(&mut V, V) + Send + Sync>;

/// Settings of a queue; fixed when it is made.
pub struct Config<K, V = ()> {
    /// The order of the ready line.
    pub order: Order<K>,
    /// The dispatch rate, if there is one.
    pub rate: Option<Rate>,
    /// Merge function of values; without it the newer replaces the older.
    pub merge: Option<Merge<V>>,
    /// Whether a run that starts absorbs the timer that was set before it started.
    pub timers_absorbed: bool,
    /// Default effect of triggers in a back-off.
    pub in_backoff: InBackoff,
    /// The limiter keeps the failures itself, and is told outside the lock what to forget:
    /// [`Core::take_forgotten`](super::Core::take_forgotten).
    pub failures_elsewhere: bool,
    /// Whether to keep the timestamps that metrics need.
    pub timestamps: bool,
    /// The bound on known keys, if there is one.
    pub bound: Option<Bound>,
    /// Default debounce of immediate triggers.
    pub debounce: Option<Debounce>,
}

impl<K, V> Default for Config<K, V> {
    fn default() -> Self {
        Self {
            order: Order::Fifo,
            rate: None,
            merge: None,
            timers_absorbed: false,
            in_backoff: InBackoff::default(),
            failures_elsewhere: false,
            timestamps: false,
            bound: None,
            debounce: None,
        }
    }
}

impl<K, V> fmt::Debug for Config<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("order", &self.order)
            .field("rate", &self.rate)
            .field("merge", &self.merge.is_some())
            .field("timers_absorbed", &self.timers_absorbed)
            .field("in_backoff", &self.in_backoff)
            .field("timestamps", &self.timestamps)
            .field("bound", &self.bound)
            .field("debounce", &self.debounce)
            .finish()
    }
}
