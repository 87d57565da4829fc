//! The wake-up policy: which waiter is woken for a key. It has no lock and no clock.
//!
//! Waiters are in two lists, threads and tasks, newest first: the stack of the one that waited least is most
//! likely still in the cache. A woken thread comes for sure: it sleeps in this queue and has nothing else to
//! do. A task comes when its executor polls it, and that may be never: its future can be in a `select!` whose
//! other arm is running, or its runtime can be busy for seconds.
//!
//! **Ready keys.** A key that becomes ready wakes one waiter. Until that one comes, no others are woken for
//! the next keys: it passes the wake-up on once it has taken its own. (With one wake-up per key throughput
//! collapses when many wait; docs/EXPERIMENTS.md has the figures.) Threads are woken before tasks, but after
//! [`THREADS_A_TURN`] wake-ups of threads a task has its turn, so that neither kind starves.
//!
//! **The watch.** A wake-up of a task must not hold up the others for longer than two times [`WATCH`]. While
//! one is on its way and there is another waiter, an alarm of the queue's clock is set, the watch. If that
//! wake-up is still on its way when the alarm fires, it counts as lost and the next waiter is woken. If a
//! later wake-up is on its way, the watch is set again for that one; if none is, it stays off. So a queue
//! under load sets an alarm once per `WATCH`, and not once per wake-up. After a loss twice as many tasks are
//! woken at once, and twice as many threads go first, until a task answers in time: many tasks that are stuck
//! together cost a few rounds and not one round each.
//!
//! **Timers.** One waiting thread, the leader, sleeps no longer than to the soonest timer; the others sleep
//! until they are woken. If no thread waits, the queue's own alarm leads (`hold/alarms.rs`): when
//! it fires, a task is woken to look, and the watch makes sure that one comes. No task is ever told to watch
//! a timer. Whenever a caller waits and a timer is set, one of these holds as the lock is released: a leading
//! thread wakes up in time; the alarm fires in time; or it has fired for this timer and a wake-up is on its
//! way. A call that makes this untrue, by setting a sooner timer or by leaving, must restore it in the same
//! lock hold ([`Waiters::wakes`]). Ready keys wake followers before the leader.
//!
//! Wakers are cloned before the lock is taken, and woken or dropped after it is released: they are user code.

use requeue_core::Instant;
use std::task::Waker;
use std::time::Duration;

const NONE: u32 = u32::MAX;

/// Time until the watch fires. A wake-up of a task counts as lost after at least this time and at most twice
/// as long, because the watch may have been set for an earlier one.
pub(crate) const WATCH: Duration = Duration::from_millis(4);

/// Number of wake-ups in a row that go to threads while a task waits; the next one goes to a task. With two,
/// tasks get a third, more than the promised quarter.
const THREADS_A_TURN: u32 = 2;

/// Index of a waiting caller's entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WaiterId(u32);

#[derive(Debug)]
enum State {
    /// In the list of its kind.
    Waiting,
    /// Woken to look for a key. The number is the [`Waiters::flight`] of that wake-up.
    Notified(u32),
    /// In no list: woken because the queue is over, or back from a wake-up and looking.
    Released,
    /// Unused.
    Free,
}

#[derive(Debug)]
struct Entry {
    state: State,
    who: Sleeper,
    /// Taken out when it is woken.
    waker: Option<Waker>,
    /// Neighbours in the list (`Waiting`), or `older` the next free entry (`Free`).
    newer: u32,
    older: u32,
}

/// Work that follows a lock hold: wakers to wake once the lock is released (one for a ready key, one for a
/// new leader, or all), and whether the alarms are to be brought up to date.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    pub(crate) for_key: Option<Waker>,
    pub(crate) to_lead: Option<Waker>,
    /// All waiters when the queue is over; otherwise further tasks after wake-ups were lost, and drains with
    /// news.
    pub(crate) more: Vec<Waker>,
    /// [`Shared::update_alarms`](crate::hold::Shared::update_alarms) is to be called.
    pub(crate) update_alarms: bool,
}

/// The kind of a waiter: a thread can watch the time itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    Thread,
    Task,
}

/// The waiters of one kind.
#[derive(Debug)]
struct List {
    newest: u32,
    len: usize,
}

/// State of the alarm that checks whether a woken task has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    Off,
    /// Requested. The caller sets it after the lock hold, with the time at that point.
    Asked,
    /// It fires at this instant, to check this [`Waiters::flight`].
    Set(Instant, u32),
}

/// The callers that wait for a key.
#[derive(Debug)]
pub(crate) struct Waiters {
    entries: Vec<Entry>,
    free: u32,
    /// Number of entries in use.
    taken: usize,
    threads: List,
    tasks: List,
    /// The kind of waiter that the latest wake-up went to, until it arrives or counts as lost. Meanwhile no
    /// other waiter is woken for a key.
    in_flight: Option<Sleeper>,
    /// The number of the latest wake-up. A wake-up of several tasks has one number, and counts as arrived
    /// with the first task.
    flight: u32,
    /// Number of wake-ups of tasks lost since one was answered in time.
    lost: u32,
    /// Number of wake-ups that went to threads while tasks waited, since the latest of a task.
    threads_in_a_row: u32,
    watch: Watch,
    /// The thread that sleeps until the soonest timer, and until when; or a thread that was woken to do so
    /// and is on its way. It is `Waiting`.
    leader: Option<(u32, Instant)>,
    /// When the queue's alarm fires: it is set, or a caller is about to set it.
    alarm: Option<Instant>,
    /// The alarm has fired for this instant, and no getter has looked since. If the soonest timer is due no
    /// later than this, no new alarm is set for it: a getter is woken to look.
    fired: Option<Instant>,
}

/// Target times of the two alarms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AlarmTimes {
    pub(crate) timer: Option<Instant>,
    pub(crate) watch: Option<Instant>,
    /// The watch is to be set and the time was not given.
    pub(crate) wants_time: bool,
}

impl Waiters {
    pub(crate) const fn new() -> Self {
        const NOBODY: List = List { newest: NONE, len: 0 };
        Self {
            entries: Vec::new(),
            free: NONE,
            taken: 0,
            threads: NOBODY,
            tasks: NOBODY,
            in_flight: None,
            flight: 0,
            lost: 0,
            threads_in_a_row: 0,
            watch: Watch::Off,
            leader: None,
            alarm: None,
            fired: None,
        }
    }

    /// Number of waiters that were not woken.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.threads.len + self.tasks.len
    }

    /// Number of waiters, including those that were woken and have not looked yet.
    pub(crate) fn hungry(&self) -> usize {
        self.waiting() + usize::from(self.in_flight.is_some())
    }

    /// Enters a caller that has looked and found nothing; `next` is when the queue's soonest timer is due.
    /// Returns until when a leading thread may sleep; `None` for all others.
    pub(crate) fn enter(
        &mut self,
        waker: Waker,
        next: Option<Instant>,
        who: Sleeper,
    ) -> (WaiterId, Option<Instant>) {
        let entry = Entry { state: State::Free, who, waker: Some(waker), newer: NONE, older: NONE };
        let at = if self.free == NONE {
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        } else {
            let at = self.free;
            self.free = self.entries[at as usize].older;
            self.entries[at as usize] = entry;
            at
        };
        self.taken += 1;
        self.link(at);
        let id = WaiterId(at);
        let sleep = self.lead(&id, next);
        (id, sleep)
    }

    /// Whether the entry waits as this kind, with a waker that wakes the same task.
    pub(crate) fn is_current(&self, id: &WaiterId, waker: &Waker, who: Sleeper) -> bool {
        let entry = &self.entries[id.0 as usize];
        matches!(entry.state, State::Waiting)
            && entry.who == who
            && entry.waker.as_ref().is_some_and(|w| w.will_wake(waker))
    }

    /// Lets a caller that has looked wait again, with this waker. Returns the old waker, to be dropped
    /// outside the lock, and what `enter` does.
    pub(crate) fn again(
        &mut self,
        id: &WaiterId,
        waker: Waker,
        next: Option<Instant>,
        who: Sleeper,
    ) -> (Option<Waker>, Option<Instant>) {
        let waits = matches!(self.entries[id.0 as usize].state, State::Waiting);
        if !waits {
            self.arrived(id);
        } else if self.entries[id.0 as usize].who != who {
            self.unlink(id.0);
        }
        let entry = &mut self.entries[id.0 as usize];
        let linked = waits && entry.who == who;
        entry.who = who;
        let old = entry.waker.replace(waker);
        if !linked {
            self.link(id.0);
        }
        (old, self.lead(id, next))
    }

    /// Notes that the caller looks for a key. If it was woken, its wake-up has arrived.
    pub(crate) fn looks(&mut self, id: &WaiterId) {
        self.arrived(id);
        // all due timers are fired
        self.fired = None;
    }

    fn arrived(&mut self, id: &WaiterId) {
        let entry = &mut self.entries[id.0 as usize];
        if let State::Notified(flight) = entry.state {
            entry.state = State::Released;
            if flight == self.flight {
                if self.in_flight == Some(Sleeper::Task) {
                    self.lost = 0;
                }
                self.in_flight = None;
            }
        }
    }

    /// Target times for the alarms, which the caller sets after this lock hold. `next` is when the soonest
    /// timer is due, `now` the time, if it was read.
    pub(crate) fn alarms(&mut self, next: Option<Instant>, now: Option<Instant>, over: bool) -> AlarmTimes {
        let nobody = over || self.waiting() == 0;
        let led = self.leader.is_some_and(|(leader, _)| self.entries[leader as usize].waker.is_some());
        self.alarm = next.filter(|_| !nobody && !led && !self.has_fired_for(next));
        self.watch = match (self.watch, now) {
            _ if nobody => Watch::Off,
            (Watch::Asked, Some(now)) => Watch::Set(now + WATCH, self.flight),
            (watch, _) => watch,
        };
        let (watch, wants_time) = match self.watch {
            Watch::Set(at, _) => (Some(at), false),
            Watch::Asked => (None, true),
            Watch::Off => (None, false),
        };
        AlarmTimes { timer: self.alarm, watch, wants_time }
    }

    /// Notes that the alarms are not set: the clock panicked.
    pub(crate) fn no_alarms(&mut self) {
        (self.alarm, self.watch) = (None, Watch::Off);
    }

    /// Notes that the alarm for the soonest timer has fired, which is due `at`. No timer has fired yet: the
    /// woken caller fires it, or any caller that looks before.
    pub(crate) fn timer_alarm_fired(&mut self, at: Instant) {
        (self.alarm, self.fired) = (None, Some(at));
    }

    /// Notes that the watch has fired. If the wake-up that it was set for is still on its way, it is lost:
    /// its task may still arrive later.
    pub(crate) fn watch_fired(&mut self) {
        let watch = std::mem::replace(&mut self.watch, Watch::Off);
        let late = matches!(watch, Watch::Set(_, flight) if flight == self.flight);
        if late && self.in_flight == Some(Sleeper::Task) {
            self.flight = self.flight.wrapping_add(1);
            self.in_flight = None;
            self.lost = self.lost.saturating_add(1);
            self.threads_in_a_row = 0;
        }
    }

    /// Whether the alarm for timers is set although no caller waits. An alarm set for a task that is working
    /// now stays for its next wait, but must not outlive waiters that give up.
    pub(crate) fn alarm_is_idle(&self) -> bool {
        self.alarm.is_some() && self.waiting() == 0
    }

    /// Whether any alarm is set although no caller waits. The last waiter to leave cancels it.
    pub(crate) fn has_idle_alarms(&self) -> bool {
        self.waiting() == 0 && self.has_alarms()
    }

    /// Whether any alarm is set.
    pub(crate) fn has_alarms(&self) -> bool {
        self.alarm.is_some() || self.watch != Watch::Off
    }

    /// Removes a waiter that got a key, or an answer, or gave up. It may have given up without having looked.
    #[expect(clippy::needless_pass_by_value, reason = "a waiter that leaves has no entry any more")]
    pub(crate) fn leave(&mut self, id: WaiterId) -> Option<Waker> {
        self.arrived(&id);
        if matches!(self.entries[id.0 as usize].state, State::Waiting) {
            self.unlink(id.0);
        }
        let free = self.free;
        let entry = &mut self.entries[id.0 as usize];
        entry.state = State::Free;
        entry.older = free;
        self.free = id.0;
        let waker = entry.waker.take();
        self.taken -= 1;
        // frees the list after many waiters have left
        if self.taken == 0 && self.entries.len() > 64 {
            self.entries = Vec::new();
            self.free = NONE;
        }
        waker
    }

    /// Settles who leads, for a caller that has looked and waits, or goes on waiting: makes a thread the leader if
    /// there is none, or updates its deadline. For a task the queue's alarm is set as the lock hold ends. Returns
    /// what [`enter`](Self::enter) does.
    pub(crate) fn lead(&mut self, id: &WaiterId, next: Option<Instant>) -> Option<Instant> {
        self.fired = None;
        let at = id.0;
        if self.entries[at as usize].who == Sleeper::Task {
            return None;
        }
        match self.leader {
            // the one that was woken to lead is not here yet: a present one leads in its place
            Some((leader, _)) if leader != at && self.entries[leader as usize].waker.is_some() => None,
            _ => {
                self.leader = next.map(|due| (at, due));
                next
            }
        }
    }

    /// The waiters to wake now, given the number of ready keys, the soonest timer, and whether the queue is
    /// over. Called before every unlock.
    #[inline]
    pub(crate) fn wakes(&mut self, ready: usize, next: Option<Instant>, over: bool) -> Wakes {
        let mut wakes = Wakes::default();
        if self.waiting() == 0 {
            return wakes;
        }
        if over {
            wakes.more = self.release_all();
            return wakes;
        }
        if self.in_flight.is_none() && (ready > 0 || self.has_fired_for(next)) {
            self.notify(&mut wakes);
        }
        if let Some(due) = next {
            self.see_to(due, &mut wakes);
        }
        if self.in_flight == Some(Sleeper::Task) && self.watch == Watch::Off && self.waiting() > 0 {
            self.watch = Watch::Asked;
            wakes.update_alarms = true;
        }
        wakes
    }

    /// Whether the alarm has fired for the soonest timer and no caller has looked since.
    fn has_fired_for(&self, next: Option<Instant>) -> bool {
        self.fired.is_some_and(|fired| next.is_some_and(|due| due <= fired))
    }

    /// Makes sure that a caller looks when the soonest timer is due.
    fn see_to(&mut self, due: Instant, wakes: &mut Wakes) {
        if self.alarm.is_some_and(|set| set <= due) {
            return;
        }
        match self.leader {
            Some((_, until)) if until <= due => {}
            Some((leader, _)) => {
                self.leader = Some((leader, due));
                wakes.to_lead = self.entries[leader as usize].waker.take();
            }
            None if self.threads.len > 0 => {
                let newest = self.threads.newest;
                self.leader = Some((newest, due));
                wakes.to_lead = self.entries[newest as usize].waker.take();
            }
            // the wake-up of a caller that looks is on its way
            None if self.has_fired_for(Some(due)) => {}
            None => {
                self.alarm = Some(due);
                wakes.update_alarms = true;
            }
        }
    }

    /// Wakes a thread, or tasks: one, and twice as many after each lost wake-up.
    fn notify(&mut self, wakes: &mut Wakes) {
        let (threads, tasks) = (self.threads.len > 0, self.tasks.len > 0);
        let threads_first = self.threads_in_a_row < THREADS_A_TURN << self.lost.min(8);
        self.flight = self.flight.wrapping_add(1);
        if threads && (!tasks || threads_first) {
            self.threads_in_a_row += u32::from(tasks);
            self.in_flight = Some(Sleeper::Thread);
            let newest = self.threads.newest;
            let older = self.entries[newest as usize].older;
            let leads = self.leader.is_some_and(|(leader, _)| leader == newest);
            wakes.for_key = self.wake(if leads && older != NONE { older } else { newest });
        } else if tasks {
            self.threads_in_a_row = 0;
            self.in_flight = Some(Sleeper::Task);
            wakes.for_key = self.wake(self.tasks.newest);
            for _ in 1..1_u32 << self.lost.min(31) {
                if self.tasks.len == 0 {
                    break;
                }
                let woken = self.wake(self.tasks.newest);
                wakes.more.extend(woken);
            }
        }
    }

    /// Takes the waker of a waiter that is woken to look.
    fn wake(&mut self, at: u32) -> Option<Waker> {
        self.unlink(at);
        let entry = &mut self.entries[at as usize];
        entry.state = State::Notified(self.flight);
        entry.waker.take()
    }

    fn release_all(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::with_capacity(self.waiting());
        for who in [Sleeper::Thread, Sleeper::Task] {
            while self.list(who).len > 0 {
                let at = self.list(who).newest;
                self.unlink(at);
                let entry = &mut self.entries[at as usize];
                entry.state = State::Released;
                wakers.extend(entry.waker.take());
            }
        }
        wakers
    }

    fn list(&mut self, who: Sleeper) -> &mut List {
        match who {
            Sleeper::Thread => &mut self.threads,
            Sleeper::Task => &mut self.tasks,
        }
    }

    fn link(&mut self, at: u32) {
        let list = self.list(self.entries[at as usize].who);
        list.len += 1;
        let newest = std::mem::replace(&mut list.newest, at);
        if newest != NONE {
            self.entries[newest as usize].newer = at;
        }
        let entry = &mut self.entries[at as usize];
        entry.state = State::Waiting;
        entry.newer = NONE;
        entry.older = newest;
    }

    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, who, .. } = self.entries[at as usize];
        let list = self.list(who);
        list.len -= 1;
        if newer == NONE {
            list.newest = older;
        } else {
            self.entries[newer as usize].older = older;
        }
        if older != NONE {
            self.entries[older as usize].newer = newer;
        }
        if self.leader.is_some_and(|(leader, _)| leader == at) {
            self.leader = None;
        }
    }
}

/// The waiters of one event that wakes them all: drains, stops.
#[derive(Debug, Default)]
pub(crate) struct WakerSet {
    /// `None` inside: woken, or an unused place.
    wakers: Vec<Option<Waker>>,
    /// Unused places.
    free: Vec<usize>,
}

impl WakerSet {
    /// Enters a caller, or replaces its waker. Returns the old waker, to be dropped outside the lock.
    pub(crate) fn set(&mut self, place: &mut Option<usize>, waker: Waker) -> Option<Waker> {
        let at = *place.get_or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.wakers.push(None);
                self.wakers.len() - 1
            })
        });
        self.wakers[at].replace(waker)
    }

    pub(crate) fn leave(&mut self, place: usize) -> Option<Waker> {
        self.free.push(place);
        self.wakers[place].take()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.wakers.len() == self.free.len()
    }

    /// Moves all wakers out, to be woken outside the lock.
    pub(crate) fn take_all(&mut self, into: &mut Vec<Waker>) {
        into.extend(self.wakers.iter_mut().filter_map(Option::take));
    }
}

/// Result of one poll of a wait: an answer, or until when the caller may sleep (without an instant: until it
/// is woken).
#[derive(Debug)]
pub(crate) enum Step<T> {
    Ready(T),
    Sleep(Option<Instant>),
}

/// The time limit of a wait. Cannot be named outside: users write a [`Duration`] or an [`Instant`].
///
/// ```
/// # use requeue::{Clock, FakeClock, WorkQueue};
/// # use std::time::Duration;
/// let clock = FakeClock::new();
/// let q = WorkQueue::<u32>::builder().clock(clock.clone()).build()?;
/// assert!(q.get().timeout(Duration::ZERO).wait().is_err());
/// assert!(q.get().timeout(clock.now()).wait().is_err());
/// # Ok::<(), requeue::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum TimeLimit {
    /// Time since the first look.
    After(Duration),
    /// An instant of the queue's clock.
    At(Instant),
}

impl From<Duration> for TimeLimit {
    fn from(timeout: Duration) -> Self {
        Self::After(timeout)
    }
}

impl From<Instant> for TimeLimit {
    fn from(deadline: Instant) -> Self {
        Self::At(deadline)
    }
}

impl TimeLimit {
    /// The instant of the limit. The first look, which reads the time, fixes it.
    pub(crate) fn at(&mut self, now: Option<Instant>) -> Instant {
        if let (Self::After(timeout), Some(now)) = (*self, now) {
            *self = Self::At(now + timeout);
        }
        match *self {
            Self::At(at) => at,
            Self::After(_) => Instant::NEVER,
        }
    }
}

#[cfg(test)]
mod tests;
