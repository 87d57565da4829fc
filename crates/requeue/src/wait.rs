//! Who waits for a key, and who is woken: the policy, without a lock or a clock.
//!
//! Threads and tasks wait alike, as wakers in one list, newest first: the one
//! that waited least is the one whose stack is still warm.
//!
//! **Ready keys.** A key that becomes ready wakes one waiter, and while that
//! one is on its way others are not woken for the next keys: it passes the
//! wake-up on once it has taken its own. (One wake-up a key collapses when many
//! wait; ARCHITECTURE.md has the figures.) A task that was woken and does not come,
//! because it is stuck elsewhere, must not hold up the others for ever: while one
//! is in flight each doubling of the number of ready keys wakes one more. A thread
//! does come, for it has nothing else to do.
//!
//! **Timers.** One thread of those that wait, the leader, sleeps no longer than
//! to the soonest timer; the others sleep until they are woken. Where no thread
//! leads, the queue's own alarm does ([`bell`](crate::bell)): no task is relied
//! on to come when the time has. Whenever somebody waits and a timer is set there
//! is a leader or an alarm that is not later than the timer. Whoever breaks that,
//! by setting a sooner timer or by leaving, mends it before the lock is released
//! ([`Waiters::wakes`]). Ready keys wake followers before the leader.
//!
//! Wakers are cloned before the lock is taken and woken or dropped after it is
//! released: they are users' code.

use crate::Instant;
use std::task::Waker;

const NONE: u32 = u32::MAX;

/// How many lock holds a woken waiter may stay away for before it counts as
/// lost: a future that was forgotten must not slow the others for good.
const GIVEN_UP_AFTER: u32 = 1_000;

/// Which entry a waiting caller has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WaiterId(u32);

#[derive(Debug)]
enum State {
    /// In the list.
    Waiting,
    /// Woken to take a key, and counted in `in_flight` while this is the flight.
    Notified(u32),
    /// Woken because the queue is over.
    Released,
    /// Nobody's.
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

/// Wakers to be woken once the lock is released: one for a ready key and one
/// that is to lead, or everybody.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    pub(crate) for_key: Option<Waker>,
    pub(crate) to_lead: Option<Waker>,
    /// Everybody, or more for further keys.
    pub(crate) all: Vec<Waker>,
}

/// Those who wait for a key.
#[derive(Debug)]
pub(crate) struct Waiters {
    entries: Vec<Entry>,
    free: u32,
    newest: u32,
    /// How many entries are somebody's.
    taken: usize,
    /// How many are `Waiting`.
    waiting: usize,
    /// How many were woken for a key and have not come yet.
    in_flight: usize,
    /// How many of those are tasks.
    tasks_in_flight: usize,
    /// Changes when those in flight are given up; see `GIVEN_UP_AFTER`.
    flight: u32,
    /// Lock holds that somebody was in flight for.
    looks: u32,
    /// With how many ready keys one more is woken although tasks are in flight.
    more_at: usize,
    /// Who sleeps towards the soonest timer, and until when: a thread, or whoever
    /// was woken to see to it and has not come yet. It is `Waiting`.
    leader: Option<(u32, Instant)>,
    /// When the queue's alarm rings: it is set, or somebody is about to.
    alarm: Option<Instant>,
}

/// Who sleeps: a thread can watch the time by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleeper {
    Thread,
    Task,
}

impl Waiters {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: NONE,
            newest: NONE,
            taken: 0,
            waiting: 0,
            in_flight: 0,
            tasks_in_flight: 0,
            flight: 0,
            looks: 0,
            more_at: 0,
            leader: None,
            alarm: None,
        }
    }

    /// How many wait and were not woken.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Enters a caller in the list; `next` is when the queue's soonest timer is
    /// due. Returns until when a thread may sleep, or for when the alarm is to
    /// be set for a task; `None` where somebody else sees to it.
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
        (WaiterId(at), self.lead(at, next, who))
    }

    /// Whether the entry waits with a waker that wakes the same task.
    pub(crate) fn is_current(&self, id: &WaiterId, waker: &Waker) -> bool {
        let entry = &self.entries[id.0 as usize];
        matches!(entry.state, State::Waiting) && entry.waker.as_ref().is_some_and(|w| w.will_wake(waker))
    }

    /// The caller goes on waiting as it did. Returns what `enter` does.
    pub(crate) fn stay(&mut self, id: &WaiterId, next: Option<Instant>, who: Sleeper) -> Option<Instant> {
        self.lead(id.0, next, who)
    }

    /// The caller waits again, with this waker. Returns the waker it had, to be
    /// dropped outside the lock, and what `enter` does.
    pub(crate) fn again(
        &mut self,
        id: &WaiterId,
        waker: Waker,
        next: Option<Instant>,
        who: Sleeper,
    ) -> (Option<Waker>, Option<Instant>) {
        if !matches!(self.entries[id.0 as usize].state, State::Waiting) {
            self.arrived(id);
            self.link(id.0);
        }
        let entry = &mut self.entries[id.0 as usize];
        entry.who = who;
        let old = entry.waker.replace(waker);
        (old, self.lead(id.0, next, who))
    }

    /// A woken caller is here: its wake-up is not in flight any more.
    pub(crate) fn arrived(&mut self, id: &WaiterId) {
        let entry = &mut self.entries[id.0 as usize];
        if let State::Notified(flight) = entry.state {
            entry.state = State::Released;
            if flight == self.flight {
                self.in_flight -= 1;
                self.tasks_in_flight -= usize::from(entry.who == Sleeper::Task);
                self.looks = 0;
            }
        }
    }

    /// For when the queue's alarm is to be set, which the caller does after this
    /// lock hold.
    pub(crate) fn alarm(&mut self, next: Option<Instant>) -> Option<Instant> {
        let led = self.leader.is_some_and(|(leader, _)| self.entries[leader as usize].waker.is_some());
        self.alarm = next.filter(|_| self.waiting > 0 && !led);
        self.alarm
    }

    /// Whether an alarm is set although nobody waits: one that was set while a
    /// task that is working now waited stays for its next wait, but must not
    /// outlive those that give up.
    pub(crate) fn alarm_is_idle(&self) -> bool {
        self.alarm.is_some() && self.waiting == 0
    }

    /// The caller waits no longer: it got a key, or an answer, or gave up.
    #[expect(clippy::needless_pass_by_value, reason = "whoever leaves has no entry any more")]
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
        // the entries of a crowd that has gone
        if self.taken == 0 && self.entries.len() > 64 {
            self.entries = Vec::new();
            self.free = NONE;
        }
        waker
    }

    /// Makes a thread the leader if none leads, or brings its alarm up to date if
    /// it does. For a task the queue's alarm is set unless somebody leads already.
    fn lead(&mut self, at: u32, next: Option<Instant>, who: Sleeper) -> Option<Instant> {
        match self.leader {
            // one that was woken to lead and has not come may be stuck: whoever is
            // here leads in its place
            Some((leader, _)) if leader != at && self.entries[leader as usize].waker.is_some() => None,
            _ if who == Sleeper::Thread => {
                self.leader = next.map(|due| (at, due));
                next
            }
            _ => {
                self.leader = None;
                let due = next.filter(|due| self.alarm.is_none_or(|set| *due < set))?;
                self.alarm = Some(due);
                Some(due)
            }
        }
    }

    /// Who is to be woken now, given the number of ready keys, the soonest
    /// timer, and whether the queue is over. Called before every unlock.
    #[inline]
    pub(crate) fn wakes(&mut self, ready: usize, next: Option<Instant>, over: bool, wakes: &mut Wakes) {
        if self.waiting == 0 {
            return;
        }
        if over {
            wakes.all = self.release_all();
            return;
        }
        if self.in_flight > 0 {
            self.looks += 1;
            if self.looks >= GIVEN_UP_AFTER {
                self.flight = self.flight.wrapping_add(1);
                self.in_flight = 0;
                self.tasks_in_flight = 0;
                self.looks = 0;
            }
        }
        if ready == 0 {
            // the next line counts from its own beginning: how long an earlier one
            // was must not hold up whoever waits beside a waiter that does not come
            self.more_at = 2;
        } else if self.in_flight == 0 {
            self.more_at = ready.saturating_mul(2);
            wakes.for_key = self.notify_one();
        } else if self.tasks_in_flight > 0 {
            // a batch may double the line several times in one hold
            while ready >= self.more_at && self.waiting > 0 {
                self.more_at = self.more_at.saturating_mul(2).max(2);
                let woken = self.notify_one();
                match wakes.for_key {
                    None => wakes.for_key = woken,
                    Some(_) => wakes.all.extend(woken),
                }
            }
        }
        let Some(due) = next else { return };
        if self.alarm.is_some_and(|set| set <= due) {
            return;
        }
        match self.leader {
            Some((leader, until)) if due < until => {
                self.leader = Some((leader, due));
                wakes.to_lead = self.entries[leader as usize].waker.take();
            }
            Some(_) => {}
            None if self.newest != NONE => {
                self.leader = Some((self.newest, due));
                wakes.to_lead = self.entries[self.newest as usize].waker.take();
            }
            None => {}
        }
    }

    /// Wakes the newest follower, or the leader if there is nobody else.
    fn notify_one(&mut self) -> Option<Waker> {
        let mut at = self.newest;
        if self.leader.is_some_and(|(leader, _)| leader == at) {
            let older = self.entries[at as usize].older;
            if older != NONE {
                at = older;
            }
        }
        self.unlink(at);
        let entry = &mut self.entries[at as usize];
        self.in_flight += 1;
        self.tasks_in_flight += usize::from(entry.who == Sleeper::Task);
        entry.state = State::Notified(self.flight);
        entry.waker.take()
    }

    fn release_all(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::with_capacity(self.waiting);
        while self.newest != NONE {
            let at = self.newest;
            self.unlink(at);
            let entry = &mut self.entries[at as usize];
            entry.state = State::Released;
            wakers.extend(entry.waker.take());
        }
        wakers
    }

    fn link(&mut self, at: u32) {
        let newest = std::mem::replace(&mut self.newest, at);
        if newest != NONE {
            self.entries[newest as usize].newer = at;
        }
        let entry = &mut self.entries[at as usize];
        entry.state = State::Waiting;
        entry.newer = NONE;
        entry.older = newest;
        self.waiting += 1;
    }

    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, .. } = self.entries[at as usize];
        if newer == NONE {
            self.newest = older;
        } else {
            self.entries[newer as usize].older = older;
        }
        if older != NONE {
            self.entries[older as usize].newer = newer;
        }
        self.waiting -= 1;
        if self.leader.is_some_and(|(leader, _)| leader == at) {
            self.leader = None;
        }
    }
}

/// Those who wait for one event and are all woken by it: drains, stops.
#[derive(Debug, Default)]
pub(crate) struct WakerSet {
    /// `None` inside: woken, or nobody's place.
    wakers: Vec<Option<Waker>>,
    /// Places that nobody has.
    free: Vec<usize>,
}

impl WakerSet {
    /// Enters a caller, or renews its waker; returns the one it had, to be
    /// dropped outside the lock.
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

/// What a poll of something that waits says: an answer, or until when the
/// caller may sleep (for as long as nobody wakes it, where there is no instant).
#[derive(Debug)]
pub(crate) enum Step<T> {
    Ready(T),
    Sleep(Option<Instant>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    impl Count {
        fn get(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    struct Crowd {
        waiters: Waiters,
        counts: Vec<Arc<Count>>,
        ids: Vec<WaiterId>,
    }

    fn at(nanos: u64) -> Option<Instant> {
        Some(Instant::from_nanos(nanos))
    }

    impl Crowd {
        fn of(n: usize, next: Option<Instant>) -> Self {
            Self::of_such(n, next, Sleeper::Thread)
        }
        fn of_such(n: usize, next: Option<Instant>, who: Sleeper) -> Self {
            let mut crowd = Self { waiters: Waiters::new(), counts: Vec::new(), ids: Vec::new() };
            for _ in 0..n {
                let count = Arc::new(Count::default());
                crowd.ids.push(crowd.waiters.enter(count.clone().into(), next, who).0);
                crowd.counts.push(count);
            }
            crowd
        }
        fn wakes(&mut self, ready: usize, next: Option<Instant>, over: bool) -> Vec<usize> {
            let before: Vec<usize> = self.counts.iter().map(|c| c.get()).collect();
            let mut wakes = Wakes::default();
            self.waiters.wakes(ready, next, over, &mut wakes);
            wakes.for_key.into_iter().chain(wakes.to_lead).chain(wakes.all).for_each(Waker::wake);
            (0..before.len()).filter(|&i| self.counts[i].get() > before[i]).collect()
        }
    }

    #[test]
    fn one_wake_up_is_in_flight_until_the_woken_one_arrives() {
        let mut c = Crowd::of(4, None);
        assert_eq!(c.wakes(1, None, false), [3], "the newest");
        assert_eq!(c.wakes(1, None, false), [] as [usize; 0]);
        c.waiters.arrived(&WaiterId(3));
        assert_eq!(c.wakes(1, None, false), [2], "it passes on");
    }

    #[test]
    fn a_woken_task_that_never_comes_does_not_hold_up_the_rest() {
        let mut c = Crowd::of_such(4, None, Sleeper::Task);
        let woken: Vec<Vec<usize>> = (1..=9).map(|ready| c.wakes(ready, None, false)).collect();
        let at: Vec<usize> = (1..=9).filter(|&r| !woken[r - 1].is_empty()).collect();
        assert_eq!(at, [1, 2, 4, 8]);
    }

    #[test]
    fn a_woken_thread_comes_and_nobody_is_woken_beside_it() {
        let mut c = Crowd::of(4, None);
        assert_eq!(c.wakes(1, None, false), [3]);
        assert_eq!(c.wakes(1_000, None, false), [] as [usize; 0]);
        c.waiters.arrived(&WaiterId(3));
        assert_eq!(c.wakes(999, None, false), [2], "it passes on");
    }

    #[test]
    fn whether_a_waiter_is_a_task_is_known_from_its_last_wait() {
        let mut c = Crowd::of(3, None);
        let waker = c.counts[2].clone().into();
        c.waiters.again(&WaiterId(2), waker, None, Sleeper::Task);
        assert_eq!(c.wakes(1, None, false), [2]);
        assert_eq!(c.wakes(2, None, false), [1], "2 may be stuck");
        c.waiters.arrived(&WaiterId(2));
        assert_eq!((c.waiters.in_flight, c.waiters.tasks_in_flight), (1, 0));
        assert_eq!(c.wakes(1_000, None, false), [] as [usize; 0], "1 comes");
    }

    #[test]
    fn a_batch_wakes_one_or_one_for_each_doubling_beside_one_that_does_not_come() {
        let mut c = Crowd::of_such(8, None, Sleeper::Task);
        assert_eq!(c.wakes(32, None, false), [7], "one is enough: it passes on");
        c.waiters.arrived(&WaiterId(7));
        assert_eq!(c.wakes(31, None, false), [6]);
        // 6 never comes; the line is worked off and grows again
        assert_eq!(c.wakes(0, None, false), [] as [usize; 0]);
        assert_eq!(c.wakes(9, None, false), [3, 4, 5], "at 2, 4 and 8");
        assert_eq!(c.wakes(usize::MAX, None, false), [0, 1, 2], "whoever there is");
    }

    #[test]
    fn a_line_that_was_long_once_does_not_hold_up_those_who_wait_at_a_short_one() {
        let mut c = Crowd::of_such(3, None, Sleeper::Task);
        assert_eq!(c.wakes(1, None, false), [2], "this one never comes");
        assert_eq!(c.wakes(1_000, None, false), [0, 1]);
        // these work the line off and wait again
        for at in 0..2 {
            let waker = c.counts[at as usize].clone().into();
            c.waiters.again(&WaiterId(at), waker, None, Sleeper::Task);
        }
        assert_eq!(c.wakes(0, None, false), [] as [usize; 0]);
        assert_eq!(c.wakes(1, None, false), [] as [usize; 0]);
        assert_eq!(c.wakes(2, None, false), [1], "not at two thousand");
    }

    #[test]
    fn the_first_leads_and_only_a_sooner_timer_wakes_it() {
        let mut c = Crowd::of(3, at(100));
        assert_eq!(c.waiters.leader, Some((0, Instant::from_nanos(100))));
        assert_eq!(c.wakes(0, at(100), false), [] as [usize; 0]);
        assert_eq!(c.wakes(0, at(150), false), [] as [usize; 0]);
        assert_eq!(c.wakes(0, at(50), false), [0]);
        assert_eq!(c.wakes(0, at(50), false), [] as [usize; 0]);
    }

    #[test]
    fn a_follower_takes_the_key_and_the_leader_goes_on_leading() {
        let mut c = Crowd::of(2, at(100));
        assert_eq!(c.wakes(1, at(100), false), [1]);
        assert_eq!(c.waiters.leader.map(|l| l.0), Some(0));
        // nobody else is there: the leader is woken too
        c.waiters.arrived(&WaiterId(1));
        assert_eq!(c.wakes(1, at(100), false), [0]);
        assert_eq!(c.waiters.leader, None);
    }

    #[test]
    fn a_leader_that_leaves_is_replaced_before_the_unlock() {
        let mut c = Crowd::of(3, at(100));
        let leader = c.ids.remove(0);
        drop(c.waiters.leave(leader));
        assert_eq!(c.wakes(0, at(100), false), [2]);
        assert_eq!(c.waiters.leader.map(|l| l.0), Some(2));
    }

    #[test]
    fn waiters_learn_of_the_first_timer_though_one_is_in_flight() {
        let mut c = Crowd::of(3, None);
        assert_eq!(c.wakes(1, None, false), [2]);
        // 2 is stuck; a timer is set
        assert_eq!(c.wakes(1, at(9), false), [1]);
        assert_eq!(c.waiters.leader.map(|l| l.0), Some(1));
    }

    #[test]
    fn everybody_is_released_when_the_queue_is_over() {
        let mut c = Crowd::of(3, at(9));
        assert_eq!(c.wakes(0, None, true), [0, 1, 2]);
        for id in std::mem::take(&mut c.ids) {
            c.waiters.leave(id);
        }
        assert_eq!((c.waiters.waiting(), c.waiters.in_flight, c.waiters.leader), (0, 0, None));
    }

    #[test]
    fn a_cancelled_one_that_had_been_chosen_passes_it_on() {
        let mut c = Crowd::of(2, None);
        assert_eq!(c.wakes(1, None, false), [1]);
        let chosen = c.ids.pop().expect("two");
        c.waiters.leave(chosen);
        assert_eq!(c.wakes(1, None, false), [0]);
    }

    #[test]
    fn one_that_was_woken_and_forgotten_is_given_up_in_the_end() {
        let mut c = Crowd::of(3, None);
        assert_eq!(c.wakes(1, None, false), [2]);
        for _ in 0..GIVEN_UP_AFTER {
            c.wakes(0, None, false);
        }
        assert_eq!(c.wakes(1, None, false), [1]);
        // if it comes after all it is counted no second time
        c.waiters.arrived(&WaiterId(2));
        assert_eq!(c.waiters.in_flight, 1);
    }

    #[test]
    fn where_tasks_wait_the_alarm_is_set_once_and_again_for_a_sooner_timer() {
        let mut c = Crowd::of(0, None);
        let enter = |c: &mut Crowd, next| {
            let count = Arc::new(Count::default());
            let (id, set) = c.waiters.enter(count.clone().into(), next, Sleeper::Task);
            c.counts.push(count);
            c.ids.push(id);
            set
        };
        assert_eq!(enter(&mut c, at(100)), at(100));
        assert_eq!(enter(&mut c, at(100)), None, "it is set");
        assert_eq!(c.wakes(0, at(100), false), [] as [usize; 0]);
        assert_eq!(c.wakes(0, at(50), false), [1], "to set it anew");
        let waker = c.counts[1].clone().into();
        assert_eq!(c.waiters.again(&WaiterId(1), waker, at(50), Sleeper::Task).1, at(50));
        // it rings, and is set for the next while anybody waits
        assert_eq!(c.waiters.alarm(at(200)), at(200));
        assert_eq!(c.wakes(1, at(200), false), [1]);
        assert_eq!(c.wakes(2, at(200), false), [0]);
        assert!(c.waiters.alarm_is_idle(), "both work, and come again");
        assert_eq!(c.waiters.alarm(at(300)), None);
    }

    #[test]
    fn a_thread_leads_although_the_alarm_is_set_and_takes_over_when_it_has_rung() {
        let mut c = Crowd::of(0, None);
        let (task, set) = c.waiters.enter(Waker::noop().clone(), at(100), Sleeper::Task);
        assert_eq!(set, at(100));
        let (thread, sleep) = c.waiters.enter(Waker::noop().clone(), at(100), Sleeper::Thread);
        assert_eq!(sleep, at(100));
        assert_eq!(c.waiters.alarm(at(200)), None, "somebody leads");
        assert_eq!(c.waiters.stay(&task, at(200), Sleeper::Task), None);
        drop((c.waiters.leave(thread), c.waiters.leave(task)));
    }

    #[test]
    fn whoever_comes_leads_in_place_of_one_that_was_told_to_and_did_not_come() {
        let mut c = Crowd::of(1, None);
        assert_eq!(c.wakes(0, at(100), false), [0], "told to lead");
        let (id, sleep) = c.waiters.enter(Waker::noop().clone(), at(100), Sleeper::Thread);
        assert_eq!(sleep, at(100));
        // it comes after all: a follower
        let waker = c.counts[0].clone().into();
        assert_eq!(c.waiters.again(&WaiterId(0), waker, at(100), Sleeper::Thread).1, None);
        drop(c.waiters.leave(id));
    }

    #[test]
    fn a_crowd_that_has_gone_leaves_no_memory() {
        let mut c = Crowd::of(10_000, None);
        for id in std::mem::take(&mut c.ids) {
            drop(c.waiters.leave(id));
        }
        assert_eq!(c.waiters.entries.capacity(), 0);
        let (id, _) = c.waiters.enter(Waker::noop().clone(), None, Sleeper::Thread);
        assert_eq!(id, WaiterId(0));
    }
}
