//! The system's monotonic clock, and the thread that fires its alarms.
//!
//! Blocking callers sleep by themselves, so the thread exists only while a waiter cannot: an async task, or a
//! clock built on this one. There is one thread for the process, because an alarm costs it a map entry and
//! another thread would cost a stack.

use super::alarms::{AlarmId, Alarms};
use super::{Alarm, Clock, reading};
#[cfg(not(requeue_loom))]
use crate::clock::Parker;
use crate::panics::quietly;
use requeue_core::Instant;
// Not through `crate::sync`: what lives in a static cannot be loom's.
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;
use std::task::Waker;
use std::time::{Duration, Instant as StdInstant, SystemTime};

/// Maximum number of wakers taken out in one hold of the timer's lock.
const BATCH: usize = 64;

/// How long the thread stays alive without an alarm. Restarting it costs about 50 us, which tasks that wait,
/// work and wait again would pay for each key, and so would an `add` that wakes one of several tasks and sets
/// the watch over it.
const LINGER: Duration = Duration::from_millis(20);

/// The system's monotonic clock, and the default clock of a queue.
///
/// It is the clock of [`std::time::Instant`], counted in nanoseconds from an origin that all `SystemClock`s
/// of a process share, so their instants can be compared. It never goes backwards and does not follow changes
/// of the date. Whether it runs while the machine is suspended depends on the operating system: on Linux it
/// stands still (`CLOCK_MONOTONIC`), so a delay is a delay of running time; see [`std::time::Instant`] for
/// other systems.
///
/// A blocking wait sleeps in the waiting thread. The first alarm set through [`wake_at`](Clock::wake_at)
/// starts one thread, `requeue-timer`. It serves the whole process and ends 20 ms after its last alarm has
/// fired or was dropped. Queues with waiting tasks use it for their timers, and to check whether a woken task
/// has come; a busy queue with timers uses it to learn that one comes near. If the thread cannot be started, the waker is woken at once: the waiter finds that it is too
/// early and asks again, so nothing is late, but the wait is busy.
///
/// The thread calls one waker after the other. A queue's wakers only wake others: no
/// [`Metrics`](crate::Metrics) sink, no drop of a key and no handler runs on it. The wakers of waiting tasks
/// do, and the methods of a clock that is built on this one. An executor's wakers are short. A user's waker
/// that blocks, or runs the task itself, delays the alarms of all queues of the process for that time. A
/// panic of a waker is caught.
///
/// ```
/// use requeue::{Clock, SystemClock};
/// let (a, b) = (SystemClock, SystemClock);
/// let earlier = a.now();
/// assert!(b.now() >= earlier);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias("RealClock"))]
pub struct SystemClock;

impl SystemClock {
    /// Converts a [`std::time::Instant`] to an instant of this clock. On Linux the two clocks are compared
    /// once per process; the error is at most half a reading, about ten nanoseconds. Returns
    /// [`Instant::ORIGIN`] for an instant before this clock's origin.
    ///
    /// ```
    /// use requeue::{Add, SystemClock, WorkQueue};
    /// use std::time::{Duration, Instant};
    /// let q = WorkQueue::new();
    /// let due = Instant::now() + Duration::from_secs(3600);
    /// q.add_with("a", Add::at(SystemClock::from_std(due)))?;
    /// let state = q.state("a").expect("it waits");
    /// assert_eq!(state.waiting_until.and_then(SystemClock::to_std), Some(due));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn from_std(at: StdInstant) -> Instant {
        Instant::from_nanos(reading::from_std(at))
    }

    /// Converts an instant of this clock to a [`std::time::Instant`]; `None` for [`Instant::NEVER`], and if
    /// the platform cannot express it.
    ///
    /// ```
    /// use requeue::{Instant, SystemClock};
    /// let now = std::time::Instant::now();
    /// assert!(SystemClock::to_std(SystemClock::from_std(now)).is_some());
    /// assert_eq!(SystemClock::to_std(Instant::NEVER), None);
    /// ```
    #[must_use]
    pub fn to_std(at: Instant) -> Option<StdInstant> {
        if at.is_never() {
            return None;
        }
        reading::to_std(at.as_nanos())
    }

    /// Converts a date to an instant of this clock, by how the two stand now: a later change of the date or a
    /// suspend does not move the result. Returns the latest [`Instant`] before [`NEVER`](Instant::NEVER) if
    /// the date is too far away, and [`ORIGIN`](Instant::ORIGIN) if it is too long ago.
    ///
    /// ```
    /// use requeue::{Add, SystemClock, WorkQueue};
    /// use std::time::{Duration, SystemTime};
    /// let q = WorkQueue::new();
    /// let expires = SystemTime::now() + Duration::from_secs(3600); // of a certificate, say
    /// q.add_with("a", Add::at(SystemClock::from_system_time(expires)))?;
    /// assert_eq!(q.stats().waiting, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn from_system_time(date: SystemTime) -> Instant {
        let now = Self.now().as_nanos();
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Instant::from_nanos(match date.duration_since(SystemTime::now()) {
            Ok(ahead) => now.saturating_add(nanos(ahead)).min(u64::MAX - 1),
            Err(ago) => now.saturating_sub(nanos(ago.duration())),
        })
    }

    /// Converts an instant of this clock to a date, by how the two stand now; `None` for [`Instant::NEVER`],
    /// and if the platform cannot express it.
    ///
    /// ```
    /// use requeue::{SystemClock, WorkQueue};
    /// use std::time::{Duration, SystemTime};
    /// let q = WorkQueue::new();
    /// q.add_after("a", Duration::from_secs(3600))?;
    /// let due = q.state("a").and_then(|state| state.waiting_until).expect("it waits");
    /// let date = SystemClock::to_system_time(due).expect("this century");
    /// assert!(date > SystemTime::now()); // "next try at …", for people
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_system_time(at: Instant) -> Option<SystemTime> {
        if at.is_never() {
            return None;
        }
        let (now, date) = (Self.now(), SystemTime::now());
        if at >= now {
            date.checked_add(at.saturating_since(now))
        } else {
            date.checked_sub(now.saturating_since(at))
        }
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Instant {
        Instant::from_nanos(reading::nanos())
    }

    fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm {
        TIMER.wake_at(at, waker)
    }

    fn is_real(&self) -> bool {
        true
    }

    #[cfg(not(requeue_loom))]
    fn park_until(&self, at: Instant, parker: &Parker) {
        if at.is_never() {
            parker.park();
        } else {
            parker.park_timeout(at.saturating_since(self.now()));
        }
    }
}

/// Whether the process's timer thread runs: from when an alarm is set until the thread has found no alarm
/// left and ends.
#[doc(hidden)]
#[must_use]
pub fn timer_thread_running() -> bool {
    TIMER.running()
}

static TIMER: Timer = Timer::new(|timer| {
    std::thread::Builder::new().name("requeue-timer".to_owned()).spawn(|| timer.run()).map(drop)
});

type Spawn = fn(&'static Timer) -> io::Result<()>;

/// The alarms, and the state of the thread that fires them.
struct Timer {
    state: Mutex<State>,
    /// Notified when the thread sleeps longer than it should.
    changed: Condvar,
    spawn: Spawn,
}

struct State {
    alarms: Alarms,
    /// The thread exists. It ends only by setting this to false under the lock with no alarm set, and it is
    /// started under the lock. So an alarm always has a thread, and there are never two.
    running: bool,
    /// Until when the thread sleeps. `None`: it is awake, looks at the alarms before it sleeps, and need not
    /// be notified.
    asleep_until: Option<Instant>,
}

impl Timer {
    const fn new(spawn: Spawn) -> Self {
        Self {
            state: Mutex::new(State { alarms: Alarms::new(), running: false, asleep_until: None }),
            changed: Condvar::new(),
            spawn,
        }
    }

    fn wake_at(&'static self, at: Instant, waker: &Waker) -> Alarm {
        if at.is_never() {
            return Alarm::default();
        }
        if at <= SystemClock.now() {
            waker.wake_by_ref();
            return Alarm::default();
        }
        // Cloning a waker is foreign code: not under the lock.
        let waker = waker.clone();
        match self.set(at, waker) {
            Ok(id) => Alarm::on_drop(move || drop(self.take_back(id))),
            Err(waker) => {
                waker.wake();
                Alarm::default()
            }
        }
    }

    /// Sets an alarm. Returns the waker if no thread can be started.
    fn set(&'static self, at: Instant, waker: Waker) -> Result<AlarmId, Waker> {
        let mut state = self.state.lock();
        if !state.running {
            // Under the lock, which the new thread waits for. If it were started outside, a failure would
            // have to be reported to callers that relied on it meanwhile.
            if (self.spawn)(self).is_err() {
                return Err(waker);
            }
            state.running = true;
        }
        let id = state.alarms.set(at, waker);
        let oversleeps = state.asleep_until.is_some_and(|until| at < until);
        drop(state);
        if oversleeps {
            self.changed.notify_one();
        }
        Ok(id)
    }

    /// Removes an alarm without disturbing the thread, even if it was the soonest: the thread then wakes once
    /// for nothing, which is cheaper than waking it each time.
    fn take_back(&self, id: AlarmId) -> Option<Waker> {
        let mut state = self.state.lock();
        let waker = state.alarms.take_back(id)?;
        let ends = state.alarms.is_empty() && state.asleep_until.is_some();
        drop(state);
        if ends {
            self.changed.notify_one();
        }
        Some(waker)
    }

    fn run(&self) {
        let mut due = Vec::new();
        let mut lingers_until = None;
        let mut state = self.state.lock();
        loop {
            let now = SystemClock.now();
            while due.len() < BATCH {
                let Some(waker) = state.alarms.pop_due(now) else {
                    break;
                };
                due.push(waker);
            }
            if !due.is_empty() {
                MutexGuard::unlocked(&mut state, || {
                    for waker in due.drain(..) {
                        quietly(|| waker.wake());
                    }
                });
                continue;
            }
            let at = match state.alarms.soonest() {
                Some(at) => {
                    lingers_until = None;
                    at
                }
                None => *lingers_until.get_or_insert(now + LINGER),
            };
            if at <= now {
                state.running = false;
                return;
            }
            state.asleep_until = Some(at);
            match SystemClock::to_std(at) {
                Some(at) => drop(self.changed.wait_until(&mut state, at)),
                // Beyond what the system can represent, so beyond the machine's life.
                None => self.changed.wait(&mut state),
            }
            state.asleep_until = None;
        }
    }

    fn running(&self) -> bool {
        self.state.lock().running
    }
}

#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/system.rs"]
mod tests;
