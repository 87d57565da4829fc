//! Where time comes from, and how a waiting caller is woken at an instant.
//!
//! A queue reads no clock but its own, and asks it two things: what time is it,
//! and wake me then. [`SystemClock`] answers with the system's time;
//! [`FakeClock`] stands still until a test moves it;
//! `TokioClock` (feature `tokio`) follows a runtime's time.
//! Others are a few lines: see [`Clock`].
//!
//! The wake-up goes through a [`Waker`], so that one mechanism serves tasks and
//! threads, and comes back as an [`Alarm`], so that a wait that ends early leaves
//! nothing behind. A thread that waits sleeps on a [`Parker`], whose waker it
//! hands out; and because a sleeping thread can watch the time by itself, a clock
//! may say how ([`Clock::park_until`]) and spare itself the alarm.

use crate::Instant;
use crate::panics::{in_drop, quietly};
use std::sync::Arc;
use std::task::Waker;

mod alarms;
mod fake;
mod park;
mod reading;
#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/rings.rs"]
mod rings;
mod system;
#[cfg(feature = "tokio")]
mod tokio;

pub use self::fake::FakeClock;
pub use self::park::Parker;
pub use self::system::SystemClock;
#[doc(hidden)]
pub use self::system::timer_thread_running;
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use self::tokio::{TokioClock, TokioClockError};

/// A source of time: what the queue reads, and what wakes those who wait.
///
/// A clock of one's own, here one that runs sixty times faster than the
/// system's:
///
/// ```
/// use requeue::{Alarm, Clock, Instant, Parker, SystemClock};
/// use std::{task::Waker, time::Duration};
///
/// struct Fast(SystemClock, Instant);
///
/// impl Clock for Fast {
///     fn now(&self) -> Instant {
///         self.1 + self.0.now().saturating_since(self.1) * 60
///     }
///     fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm {
///         self.0.wake_at(self.1 + at.saturating_since(self.1) / 60, waker)
///     }
/// }
///
/// let clock = Fast(SystemClock, SystemClock.now());
/// let due = clock.now() + Duration::from_millis(60); // one real millisecond
/// let parker = Parker::current();
/// while clock.now() < due {
///     clock.park_until(due, &parker);
/// }
/// ```
#[doc(alias("PassiveClock", "WithTicker", "WithDelayedExecution", "WithTickerAndDelayedExecution"))]
pub trait Clock: Send + Sync + 'static {
    /// The time now. It should not go backwards; where it does, the queue goes
    /// on counting from the latest instant that it has seen.
    ///
    /// ```
    /// use requeue::{Clock, FakeClock};
    /// use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let before = clock.now();
    /// clock.advance(Duration::from_millis(1));
    /// assert_eq!(clock.now().saturating_since(before), Duration::from_millis(1));
    /// ```
    fn now(&self) -> Instant;

    /// Wakes `waker` once this clock shows `at` or later (at once, before it
    /// returns, where it already does), unless the [`Alarm`] is dropped before.
    /// [`Instant::NEVER`] does not come.
    ///
    /// Waking too early, or for an alarm that is being dropped at the same time,
    /// costs whoever waits one look at the clock and does no other harm; waking
    /// too late makes keys late; not waking leaves them lying.
    ///
    /// The queue calls this, and drops the alarm, without holding its lock. A
    /// clock calls wakers without holding its own.
    ///
    /// # What runs where the clock rings
    ///
    /// The thread that calls the wakers calls them for every queue and task that
    /// waits for this clock, one after another, so none of them may block. Of the
    /// queue's own wakers that is true: they wake a thread or a task and ask the
    /// clock, by [`now`](Self::now) and `wake_at`, for their next alarm. They fire no
    /// timer, tell no [`Metrics`](crate::Metrics) and drop no key. What users add to
    /// that thread is theirs to keep short: the wakers of their tasks, and the clock.
    ///
    /// ```
    /// use requeue::{Clock, FakeClock, Parker};
    /// use std::time::Duration;
    /// let clock = FakeClock::new();
    /// let parker = Parker::current();
    /// let due = clock.now() + Duration::from_secs(5);
    /// let _alarm = clock.wake_at(due, parker.waker());
    /// clock.advance(Duration::from_secs(5));
    /// parker.park(); // returns at once: it was woken
    /// ```
    #[doc(alias("After", "AfterFunc", "NewTimer", "Timer"))]
    fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm;

    /// [`wake_at`](Self::wake_at) for something that no caller waits for: with it the
    /// queue asks some milliseconds after it woke a task whether that task has come.
    /// It sets such an alarm only where others wait beside the task.
    ///
    /// The default is `wake_at`, and is right for every clock that tells the time. A
    /// clock for tests that counts alarms, to know how many callers wait, leaves these
    /// out, as [`FakeClock`] does; a clock that wraps one passes the call on.
    ///
    /// ```
    /// use requeue::{Clock, FakeClock, Instant, Parker};
    /// let (clock, parker) = (FakeClock::new(), Parker::current());
    /// let _alarm = clock.watch_at(Instant::from_nanos(5), parker.waker());
    /// assert_eq!(clock.alarms(), 0, "nobody waits for it");
    /// clock.set(Instant::from_nanos(5));
    /// parker.park(); // it has rung
    /// ```
    fn watch_at(&self, at: Instant, waker: &Waker) -> Alarm {
        self.wake_at(at, waker)
    }

    /// Blocks the calling thread until this clock shows `at`, or `parker` is
    /// woken, or spuriously. By default an alarm that wakes the parker; a clock
    /// that runs at the system's pace saves the alarm by sleeping itself
    /// ([`Parker::park_timeout`]).
    ///
    /// ```
    /// use requeue::{Clock, Parker, SystemClock};
    /// use std::time::Duration;
    /// let parker = Parker::current();
    /// let due = SystemClock.now() + Duration::from_millis(1);
    /// while SystemClock.now() < due {
    ///     SystemClock.park_until(due, &parker);
    /// }
    /// ```
    fn park_until(&self, at: Instant, parker: &Parker) {
        let _alarm = self.wake_at(at, parker.waker());
        parker.park();
    }
}

/// A shared clock is a clock.
impl<C: Clock + ?Sized> Clock for Arc<C> {
    forward! { self => **self;
        fn now(&self) -> Instant;
        fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm;
        fn watch_at(&self, at: Instant, waker: &Waker) -> Alarm;
        fn park_until(&self, at: Instant, parker: &Parker);
    }
}

/// A wake-up that was asked of a [`Clock`]; dropping it takes it back.
///
/// Once it has rung, dropping it does nothing. A wake-up that has begun while
/// the alarm is being dropped may still arrive.
///
/// ```
/// use requeue::{Clock, FakeClock, Instant};
/// use std::task::Waker;
/// let clock = FakeClock::new();
/// let alarm = clock.wake_at(Instant::from_nanos(5), Waker::noop());
/// assert_eq!(clock.alarms(), 1);
/// drop(alarm);
/// assert_eq!(clock.alarms(), 0);
/// ```
#[must_use = "dropping an alarm takes it back"]
pub struct Alarm(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Alarm {
    /// An alarm that runs `take_back` when it is dropped. To be called by
    /// clocks; `take_back` must not panic, for the drop may be part of an
    /// unwinding.
    ///
    /// ```
    /// use requeue::Alarm;
    /// use std::sync::mpsc;
    /// let (told, taken_back) = mpsc::channel();
    /// let alarm = Alarm::on_drop(move || told.send("taken back").unwrap());
    /// drop(alarm);
    /// assert_eq!(taken_back.try_recv(), Ok("taken back"));
    /// ```
    pub fn on_drop(take_back: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(take_back)))
    }

    /// An alarm that has nothing to take back: it has rung already, or never will.
    ///
    /// ```
    /// drop(requeue::Alarm::none());
    /// ```
    pub fn none() -> Self {
        Self(None)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // with it goes a waker, which is users' code
        if let Some(take_back) = self.0.take() {
            in_drop(take_back);
        }
    }
}

debug!([] Alarm, |alarm| { set: alarm.0.is_some() });

/// A wake-up at one instant for whichever task waits, asked of a clock once for each task.
#[derive(Default)]
pub(crate) struct TaskAlarm(Option<(Waker, Alarm)>);

impl TaskAlarm {
    /// Sees to it that the clock wakes the task at this instant, if that ever comes.
    pub(crate) fn set(&mut self, clock: &dyn Clock, at: Instant, task: &Waker) {
        if !at.is_never() && self.0.as_ref().is_none_or(|(waker, _)| !waker.will_wake(task)) {
            let alarm = clock.wake_at(at, task);
            // the new one is set before the old one goes, so that a clock's
            // thread need not start again
            self.0 = Some((task.clone(), alarm));
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Takes it back. A panic of what the task's waker does as it is dropped goes no further.
    #[inline]
    pub(crate) fn end(&mut self) {
        if let Some(alarm) = self.0.take() {
            quietly(|| drop(alarm));
        }
    }
}

impl Drop for TaskAlarm {
    #[inline]
    fn drop(&mut self) {
        // with the alarm goes a waker, whose drop is users' code
        if self.0.is_some() {
            in_drop(|| drop(self.0.take()));
        }
    }
}
