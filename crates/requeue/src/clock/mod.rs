//! Sources of time, and wake-ups at an instant.
//!
//! A queue reads only its own clock, and asks it two things: the time, and a wake-up at an instant.
//! [`SystemClock`] uses the system's time; [`FakeClock`] stands still until a test moves it; `TokioClock`
//! (feature `tokio`) follows a runtime's time. Writing another takes a few lines: see [`Clock`].
//!
//! A wake-up goes through a [`Waker`], so that one mechanism serves tasks and threads. It is returned as an
//! [`Alarm`], so that a wait that ends early leaves nothing behind. A waiting thread sleeps on a [`Parker`],
//! whose waker it hands out. Because a sleeping thread can watch the time itself, a clock may implement that
//! ([`Clock::park_until`]) and save the alarm.

use crate::panics::{in_drop, quietly};
use requeue_core::Instant;
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
pub use self::tokio::TokioClock;

/// A source of time, which also wakes callers at an instant.
///
/// A clock that runs sixty times faster than the system's:
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
    /// The current time. It should not go backwards; if it does, the queue keeps using the latest instant
    /// that it has seen.
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

    /// Wakes `waker` once this clock shows `at` or later, unless the [`Alarm`] is dropped before. If that is
    /// already so, it wakes before it returns. [`Instant::NEVER`] does not come.
    ///
    /// A wake-up that comes too early, or while its alarm is being dropped, costs the waiter one look at the
    /// clock and does no other harm. A late wake-up makes keys late. A missing wake-up leaves keys unserved.
    ///
    /// The queue calls this, and drops the alarm, without holding its lock. A clock must call wakers without
    /// holding its own.
    ///
    /// # What runs on the clock's thread
    ///
    /// The thread that calls wakers serves every queue and task that waits for this clock, one after another,
    /// so no waker may block. The queue's own wakers do not: they wake a thread or a task and set their next
    /// alarm through [`now`](Self::now) and `wake_at`. They fire no timer, call no
    /// [`Metrics`](crate::Metrics) and drop no key. The wakers of users' tasks, and the clock itself, must be
    /// short too.
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

    /// Like [`wake_at`](Self::wake_at), for a wake-up that no caller waits for. The queue uses it to check,
    /// some milliseconds after it woke a task, whether that task has come. It sets such an alarm only if
    /// others wait as well as the task.
    ///
    /// The default calls `wake_at`, and is right for every real clock. A clock for tests that counts alarms
    /// as waiting callers leaves these out, as [`FakeClock`] does; a clock that wraps another passes the call
    /// on.
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

    /// Whether time passes by itself and alarms fire on time, as with [`SystemClock`]. On such a clock a look for a key may read
    /// no time while keys are in line, and rely on an alarm instead. The default, `false`, is right for clocks for tests, which
    /// show an instant exactly. A clock that wraps another passes the call on.
    ///
    /// ```
    /// use requeue::{Clock, FakeClock, SystemClock};
    /// assert!(SystemClock.is_real() && !FakeClock::new().is_real());
    /// ```
    fn is_real(&self) -> bool {
        false
    }

    /// Blocks the calling thread until this clock shows `at`, `parker` is woken, or spuriously. The default
    /// sets an alarm that wakes the parker. A clock that runs at the system's pace can sleep instead
    /// ([`Parker::park_timeout`]) and save the alarm.
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

// Shared and boxed clocks, also `dyn Clock`.
for_pointers! {
    Clock for (Arc, Box) {
        fn now(&self) -> Instant;
        fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm;
        fn watch_at(&self, at: Instant, waker: &Waker) -> Alarm;
        fn is_real(&self) -> bool;
        fn park_until(&self, at: Instant, parker: &Parker);
    }
}

/// A wake-up requested of a [`Clock`]. Dropping it cancels the wake-up.
///
/// Once it has fired, dropping it does nothing. A wake-up that has begun while the alarm is being dropped may
/// still arrive. The default alarm has nothing to cancel: it has already fired, or never will.
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
#[derive(Default)]
#[must_use = "dropping an alarm takes it back"]
pub struct Alarm(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Alarm {
    /// An alarm that runs `take_back` when it is dropped. Called by clocks. `take_back` must not panic,
    /// because the drop may be part of an unwinding.
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
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // dropping it drops a waker, which is users' code
        if let Some(take_back) = self.0.take() {
            in_drop(take_back);
        }
    }
}

debug!([] Alarm, |alarm| { set: alarm.0.is_some() });

/// A wake-up of a waiting task at one instant, requested of the clock once per task.
#[derive(Default)]
pub(crate) struct TaskAlarm(Option<(Waker, Alarm)>);

impl TaskAlarm {
    /// Has the clock wake the task at this instant.
    pub(crate) fn set(&mut self, clock: &dyn Clock, at: Instant, task: &Waker) {
        if !at.is_never() && self.0.as_ref().is_none_or(|(waker, _)| !waker.will_wake(task)) {
            let alarm = clock.wake_at(at, task);
            // the new one is set before the old one is removed, so that a clock's thread need not start again
            self.0 = Some((task.clone(), alarm));
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Cancels the wake-up. A panic in the drop of the task's waker is caught.
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
        // dropping the alarm drops a waker, whose drop is users' code
        if self.0.is_some() {
            in_drop(|| drop(self.0.take()));
        }
    }
}
