//! The system's monotonic clock, and the one thread that rings its alarms.
//!
//! Blocking callers sleep by themselves, so the thread exists only while
//! somebody waits who cannot: an async task, or a clock that is built on this
//! one. It is one for the whole process, because an alarm costs it a map entry
//! while another thread would cost a stack.

use super::alarms::{AlarmId, Alarms};
use super::{Alarm, Clock, reading};
use crate::Instant;
#[cfg(not(requeue_loom))]
use crate::Parker;
use crate::panics::quietly;
// Not through `crate::sync`: what lives in a static cannot be loom's.
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;
use std::task::Waker;
use std::time::{Duration, Instant as StdInstant, SystemTime};

/// How many wakers are taken out in one hold of the timer's lock.
const BATCH: usize = 64;

/// How long the thread stays without an alarm: ending and starting it costs some
/// 50 us, which tasks that wait, work and wait again would pay for each key, and so
/// would an `add` that wakes one of several tasks and sets the watch over it.
const LINGER: Duration = Duration::from_millis(20);

/// The system's monotonic clock: the one that a queue uses unless it is given
/// another.
///
/// It is the clock of [`std::time::Instant`], counted in nanoseconds from an origin that is
/// the same for all `SystemClock`s of a process, so their instants may be
/// compared. It never goes backwards and does not follow changes of the date.
/// Whether it goes on while the machine is suspended is the operating system's
/// choice: on Linux it stands still (`CLOCK_MONOTONIC`), so a delay is a delay
/// of running time; [`std::time::Instant`] names the source elsewhere.
///
/// A blocking wait sleeps in the thread that waits. The first alarm that is set
/// through [`wake_at`](Clock::wake_at) starts one thread, `requeue-timer`, which
/// serves the whole process and ends 20 ms after its last alarm has rung or was
/// dropped, unless another one is set meanwhile. Queues with tasks that wait use it
/// for their timers, and for a look whether a woken task has come. Where the thread cannot be
/// started, the waker is woken at once: whoever waits looks, finds that it is too
/// early and asks again, so nothing is late for it and the next attempt comes by
/// itself, at the price of a wait that is busy.
///
/// That thread calls one waker after the other. Those of queues only wake others; no
/// sink of [`Metrics`](crate::Metrics), no drop of a key and no handler runs on it.
/// What runs on it are the wakers of the tasks that wait, and the methods of a clock of
/// one's own that is built on this one. An executor's wakers are short; a waker of one's
/// own that blocks, or runs the task itself, delays the alarms of all queues of the
/// process for as long. One that panics is caught.
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
    /// The instant of this clock that [`std::time::Instant`] calls `at`. On Linux the two are
    /// compared once in a process, and this is right to half of what a reading takes, some ten
    /// nanoseconds. [`Instant::ORIGIN`] for one that lies before this clock's origin.
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

    /// What [`std::time::Instant`] calls this instant of this clock; `None` for
    /// [`Instant::NEVER`], and where the platform cannot express it.
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

    /// The instant of this clock at which the system's date will be, or was, `date`, as the
    /// two stand now: a date that is set anew later moves nothing, and neither does a
    /// suspend. The latest [`Instant`] before [`NEVER`](Instant::NEVER) for what is too
    /// far away, [`ORIGIN`](Instant::ORIGIN) for what is too long ago.
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

    /// What the system's date will be, or was, at this instant of this clock, as the two
    /// stand now; `None` for [`Instant::NEVER`], and where the platform cannot express it.
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

    #[cfg(not(requeue_loom))]
    fn park_until(&self, at: Instant, parker: &Parker) {
        if at.is_never() {
            parker.park();
        } else {
            parker.park_timeout(at.saturating_since(self.now()));
        }
    }
}

/// Whether the process's timer thread runs: true from the moment an alarm is
/// set until the thread has found no alarm left and does nothing any more.
#[doc(hidden)]
#[must_use]
pub fn timer_thread_running() -> bool {
    TIMER.running()
}

static TIMER: Timer = Timer::new(|timer| {
    std::thread::Builder::new().name("requeue-timer".to_owned()).spawn(|| timer.run()).map(drop)
});

type Spawn = fn(&'static Timer) -> io::Result<()>;

/// The alarms and the thread that rings them.
struct Timer {
    state: Mutex<State>,
    /// Told when the thread sleeps longer than it should.
    changed: Condvar,
    spawn: Spawn,
}

struct State {
    alarms: Alarms,
    /// The thread exists. It ends only by making this false under the lock with
    /// no alarm set, and it is started under the lock: so an alarm is never set
    /// without a thread to ring it, and there are never two.
    running: bool,
    /// Until when the thread sleeps. `None` while it is awake: it then looks
    /// at the alarms again before it sleeps, and need not be told.
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
            return Alarm::none();
        }
        if at <= SystemClock.now() {
            waker.wake_by_ref();
            return Alarm::none();
        }
        // Cloning a waker is foreign code: not under the lock.
        let waker = waker.clone();
        match self.set(at, waker) {
            Ok(id) => Alarm::on_drop(move || drop(self.take_back(id))),
            Err(waker) => {
                waker.wake();
                Alarm::none()
            }
        }
    }

    /// Sets an alarm; gives the waker back where no thread can be had to ring it.
    fn set(&'static self, at: Instant, waker: Waker) -> Result<AlarmId, Waker> {
        let mut state = self.state.lock();
        if !state.running {
            // Under the lock, which the new thread waits for. Started outside,
            // a failure would have to be told to those who relied on it meanwhile.
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

    /// An alarm that leaves others behind does not disturb the thread, even if
    /// it was the soonest: it then wakes once in vain; waking it now would cost that every time.
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
                // Beyond what the system can say, so beyond the machine's life.
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
