//! A clock for tests, which moves only when told to and counts its waiters.

use super::alarms::Alarms;
use super::{Alarm, Clock};
use crate::clock::Parker;
use crate::panics::FirstPanic;
use crate::sync::Mutex;
use requeue_core::Instant;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

/// The last instant that a fake clock shows: [`Instant::NEVER`] is later than
/// every instant of every clock.
const LAST: Instant = Instant::from_nanos(u64::MAX - 1);

/// A clock for tests: it stands still until it is told to move, and counts the callers that wait for it.
///
/// Clones share the time. Moving the clock fires every alarm that is due, ordered by instant and then by when
/// it was set. The alarms fire after the time has moved, outside any lock, on the thread that moved it.
/// Blocking and async waits behave alike.
///
/// A test that needs a waiter to be there before it goes on calls [`wait_for_alarms`](Self::wait_for_alarms)
/// instead of sleeping.
///
/// ```
/// use requeue::{Clock, FakeClock, Parker};
/// use std::time::Duration;
///
/// let clock = FakeClock::new();
/// let due = clock.now() + Duration::from_secs(1800);
/// std::thread::scope(|s| {
///     let waiter = s.spawn(|| {
///         let parker = Parker::current();
///         while clock.now() < due {
///             clock.park_until(due, &parker);
///         }
///     });
///     clock.wait_for_alarms(1);
///     clock.advance(Duration::from_secs(1800));
///     waiter.join().unwrap();
/// });
/// ```
#[derive(Clone)]
#[doc(alias("FakePassiveClock"))]
pub struct FakeClock {
    state: Arc<Mutex<State>>,
}

struct State {
    /// At most [`LAST`].
    now: Instant,
    /// The alarms of [`wake_at`](Clock::wake_at). All are later than `now`, except while a move of the clock
    /// fires those that are due.
    alarms: Alarms,
    /// The alarms of `watch_at`. No caller waits for them, so they are not counted.
    watches: Alarms,
    /// Callers of `wait_for_alarms`, with the number that each waits for.
    watchers: Vec<(usize, Waker)>,
}

impl FakeClock {
    /// A clock that shows [`Instant::ORIGIN`].
    ///
    /// ```
    /// use requeue::{Clock, FakeClock, Instant};
    /// assert_eq!(FakeClock::new().now(), Instant::ORIGIN);
    /// ```
    #[must_use]
    #[doc(alias("NewFakeClock", "NewFakePassiveClock"))]
    pub fn new() -> Self {
        let (alarms, watches) = (Alarms::new(), Alarms::new());
        let state = State { now: Instant::ORIGIN, alarms, watches, watchers: Vec::new() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Moves the clock forward, in one jump, and fires the alarms that have come due. It stops one nanosecond
    /// before [`Instant::NEVER`].
    ///
    /// # Panics
    ///
    /// If a waker panics. All other wakers are woken first; then the first panic is resumed.
    ///
    /// ```
    /// use requeue::{Clock, FakeClock, Instant};
    /// use std::time::Duration;
    /// let clock = FakeClock::new();
    /// clock.clone().advance(Duration::from_nanos(3));
    /// assert_eq!(clock.now(), Instant::from_nanos(3));
    /// ```
    #[doc(alias("Step", "Sleep"))]
    pub fn advance(&self, by: Duration) {
        self.turn(|state| state.now + by);
    }

    /// Sets the clock to an instant, which may be earlier: a test can let the clock jump back. Alarms that
    /// have fired stay fired; the others wait for their instant, however far away it is now. The clock stops
    /// one nanosecond before [`Instant::NEVER`].
    ///
    /// # Panics
    ///
    /// Like [`advance`](Self::advance).
    ///
    /// ```
    /// use requeue::{Clock, FakeClock, Instant};
    /// let clock = FakeClock::new();
    /// clock.set(Instant::from_nanos(9));
    /// clock.set(Instant::from_nanos(2));
    /// assert_eq!(clock.now(), Instant::from_nanos(2));
    /// ```
    #[doc(alias("SetTime"))]
    pub fn set(&self, now: Instant) {
        self.turn(|_| now);
    }

    /// Number of alarms that are set: neither fired nor dropped. A blocking or async wait with a deadline
    /// sets one; a wait without a deadline sets none. An alarm at [`Instant::NEVER`] counts, although it
    /// never fires. An alarm that no caller waits for ([`watch_at`](Clock::watch_at)) does not count.
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
    #[must_use]
    #[doc(alias("HasWaiters", "Waiters"))]
    pub fn alarms(&self) -> usize {
        self.state.lock().alarms.len()
    }

    /// The instant of the next alarm, if one will ever fire. [`set`](Self::set) the clock to it to step from
    /// alarm to alarm.
    ///
    /// ```
    /// use requeue::{Clock, FakeClock, Instant};
    /// use std::task::Waker;
    /// let clock = FakeClock::new();
    /// let _alarms = [9, 5].map(|nanos| clock.wake_at(Instant::from_nanos(nanos), Waker::noop()));
    /// assert_eq!(clock.next_alarm(), Some(Instant::from_nanos(5)));
    /// while let Some(at) = clock.next_alarm() {
    ///     clock.set(at);
    /// }
    /// assert_eq!(clock.now(), Instant::from_nanos(9));
    /// ```
    #[must_use]
    pub fn next_alarm(&self) -> Option<Instant> {
        self.state.lock().alarms.soonest()
    }

    /// Blocks until at least `n` alarms are set, that is, until `n` callers wait for this clock. Use it
    /// instead of a sleep. It blocks for ever if the callers do not come, and it blocks the thread: on a
    /// runtime with one thread, where the waiters are tasks of that thread, yield and check
    /// [`alarms`](Self::alarms) instead.
    ///
    /// ```
    /// use requeue::{Clock, FakeClock, Instant};
    /// use std::task::Waker;
    /// let clock = FakeClock::new();
    /// std::thread::scope(|s| {
    ///     let alarm = s.spawn(|| clock.wake_at(Instant::from_nanos(5), Waker::noop()));
    ///     clock.wait_for_alarms(1);
    ///     assert_eq!(clock.next_alarm(), Some(Instant::from_nanos(5)));
    ///     drop(alarm.join());
    /// });
    /// ```
    pub fn wait_for_alarms(&self, n: usize) {
        let parker = Parker::current();
        loop {
            // Cloned before the lock, dropped after it.
            let mine = parker.waker().clone();
            {
                let mut state = self.state.lock();
                // Removes the entry of an earlier round that ended without a cause.
                state.watchers.retain(|(_, w)| !w.will_wake(&mine));
                if state.alarms.len() >= n {
                    return;
                }
                state.watchers.push((n, mine));
            }
            parker.park();
        }
    }
}

impl State {
    /// Removes the next alarm that is due. Alarms that a caller waits for go first.
    fn pop_due(&mut self) -> Option<Waker> {
        self.alarms.pop_due(self.now).or_else(|| self.watches.pop_due(self.now))
    }
}

impl FakeClock {
    /// Moves the time to `to`, and fires the alarms that are due then.
    fn turn(&self, to: impl FnOnce(&mut State) -> Instant) {
        let mut due = {
            let mut state = self.state.lock();
            state.now = to(&mut state).min(LAST);
            state.pop_due()
        };
        let mut first = FirstPanic::default();
        while let Some(waker) = due {
            first.catch(|| waker.wake());
            // One at a time, so that an alarm that this waker cancelled does not fire.
            due = self.state.lock().pop_due();
        }
        first.resume();
    }

    /// Sets an alarm in the set that `among` selects. Dropping the alarm removes it there.
    fn set_among(&self, at: Instant, waker: &Waker, among: fn(&mut State) -> &mut Alarms) -> Alarm {
        let mine = waker.clone();
        let mut state = self.state.lock();
        if at <= state.now {
            drop(state);
            mine.wake();
            return Alarm::default();
        }
        let id = among(&mut state).set(at, mine);
        let set = state.alarms.len();
        let (told, wait): (Vec<_>, Vec<_>) = state.watchers.drain(..).partition(|&(n, _)| n <= set);
        state.watchers = wait;
        drop(state);
        for (_, watcher) in told {
            watcher.wake();
        }
        // Weak: a waker may own the task that owns the alarm, and the clock owns
        // the waker.
        let state: Weak<Mutex<State>> = Arc::downgrade(&self.state);
        Alarm::on_drop(move || {
            let taken_back = state.upgrade().and_then(|state| among(&mut state.lock()).take_back(id));
            drop(taken_back);
        })
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Instant {
        self.state.lock().now
    }

    fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm {
        self.set_among(at, waker, |state| &mut state.alarms)
    }

    fn watch_at(&self, at: Instant, waker: &Waker) -> Alarm {
        self.set_among(at, waker, |state| &mut state.watches)
    }
}

/// [`FakeClock::new`].
impl Default for FakeClock {
    fn default() -> Self {
        Self::new()
    }
}

debug!([] FakeClock, |clock| { now: clock.now(), alarms: clock.alarms() });

#[cfg(all(test, not(requeue_loom)))]
#[path = "tests/fake.rs"]
mod tests;
