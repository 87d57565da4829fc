//! Tests of the wake-up policy.

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

/// Test callers that wait, by number, and the time for setting alarms.
struct Crowd {
    waiters: Waiters,
    counts: Vec<Arc<Count>>,
    ids: Vec<WaiterId>,
    now: Instant,
}

fn at(nanos: u64) -> Option<Instant> {
    Some(Instant::from_nanos(nanos))
}

const NOBODY: [usize; 0] = [];

impl Crowd {
    fn of(n: usize, next: Option<Instant>) -> Self {
        Self::of_such(n, next, Sleeper::Thread)
    }
    fn of_such(n: usize, next: Option<Instant>, who: Sleeper) -> Self {
        let (waiters, counts, ids) = (Waiters::new(), Vec::new(), Vec::new());
        let mut crowd = Self { waiters, counts, ids, now: Instant::ORIGIN };
        for _ in 0..n {
            crowd.enter(who, next);
        }
        crowd
    }
    /// `threads` threads, then `tasks` tasks.
    fn mixed(threads: usize, tasks: usize) -> Self {
        let mut crowd = Self::of(threads, None);
        for _ in 0..tasks {
            crowd.enter(Sleeper::Task, None);
        }
        crowd
    }
    fn enter(&mut self, who: Sleeper, next: Option<Instant>) -> Option<Instant> {
        let count = Arc::new(Count::default());
        let (id, sleep) = self.waiters.enter(count.clone().into(), next, who);
        self.ids.push(id);
        self.counts.push(count);
        sleep
    }
    fn id(&self, i: usize) -> WaiterId {
        WaiterId(self.ids[i].0)
    }
    /// Caller `i` comes, finds nothing, and waits again.
    fn again(&mut self, i: usize, next: Option<Instant>, who: Sleeper) -> Option<Instant> {
        let (id, waker) = (self.id(i), self.counts[i].clone().into());
        self.waiters.looks(&id);
        self.waiters.again(&id, waker, next, who).1
    }
    /// Ends a lock hold. Returns who is woken, and sets the watch if it is requested.
    fn wakes(&mut self, ready: usize, next: Option<Instant>, over: bool) -> Vec<usize> {
        let before: Vec<usize> = self.counts.iter().map(|c| c.get()).collect();
        let wakes = self.waiters.wakes(ready, next, over);
        let Wakes { for_key, to_lead, more, update_alarms } = wakes;
        for_key.into_iter().chain(to_lead).chain(more).for_each(Waker::wake);
        if update_alarms {
            self.waiters.alarms(next, Some(self.now), over);
        }
        (0..before.len()).filter(|&i| self.counts[i].get() > before[i]).collect()
    }
    fn ready(&mut self, ready: usize) -> Vec<usize> {
        self.wakes(ready, None, false)
    }
    /// Fires the watch, if it is set. Returns who is woken.
    fn watch_rings(&mut self, ready: usize) -> Vec<usize> {
        let Watch::Set(at, _) = self.waiters.watch else { panic!("no watch is set") };
        self.now = at;
        self.waiters.watch_fired();
        self.ready(ready)
    }
}

#[test]
fn one_wake_up_is_in_flight_until_the_woken_one_arrives() {
    for who in [Sleeper::Thread, Sleeper::Task] {
        let mut c = Crowd::of_such(4, None, who);
        assert_eq!(c.ready(1), [3], "the newest");
        assert_eq!(c.ready(1_000), NOBODY, "however many keys are ready");
        c.waiters.looks(&WaiterId(3));
        assert_eq!(c.ready(999), [2], "it passes on");
    }
}

#[test]
fn d4_a_wake_up_that_a_task_does_not_answer_goes_to_the_next() {
    let mut c = Crowd::of_such(3, None, Sleeper::Task);
    assert_eq!(c.ready(1), [2]);
    assert_eq!(c.waiters.watch, Watch::Set(Instant::ORIGIN + WATCH, c.waiters.flight));
    assert_eq!(c.watch_rings(1), [0, 1], "after a loss two at once");
    // the first of the two is the answer
    c.waiters.looks(&WaiterId(0));
    assert_eq!((c.waiters.in_flight, c.waiters.lost), (None, 0));
    // and the late one changes nothing
    c.waiters.looks(&WaiterId(2));
    assert_eq!((c.waiters.in_flight, c.waiters.lost), (None, 0));
}

#[test]
fn d4_a_thread_goes_before_tasks_that_do_not_come() {
    let mut c = Crowd::mixed(2, 2);
    assert_eq!(c.ready(1), [1], "the newest thread");
    c.again(1, None, Sleeper::Thread);
    assert_eq!(c.ready(1), [1]);
    c.again(1, None, Sleeper::Thread);
    assert_eq!(c.ready(1), [3], "a task has its turn");
    assert_eq!(c.watch_rings(1), [1], "and does not come");
    assert_eq!(c.waiters.watch, Watch::Off, "a thread comes");
    // twice as many threads go first, until a task answers in time
    for round in 1..4 {
        c.again(1, None, Sleeper::Thread);
        assert_eq!(c.ready(1), [1], "round {round}");
    }
    c.again(1, None, Sleeper::Thread);
    assert_eq!(c.ready(1), [2]);
    c.again(2, None, Sleeper::Task);
    assert_eq!(c.waiters.lost, 0);
}

#[test]
fn q6_at_equal_numbers_neither_threads_nor_tasks_get_less_than_a_quarter() {
    let mut c = Crowd::mixed(4, 4);
    let mut by_tasks = 0;
    for _ in 0..1_000 {
        let woken = c.ready(1);
        let [woken] = woken[..] else { panic!("one key, one wake-up: {woken:?}") };
        by_tasks += usize::from(woken >= 4);
        c.again(woken, None, if woken < 4 { Sleeper::Thread } else { Sleeper::Task });
    }
    assert!((250..=750).contains(&by_tasks), "{by_tasks} of 1,000 wake-ups went to tasks");
}

#[test]
fn the_watch_is_set_once_for_all_wake_ups_until_it_rings() {
    let mut c = Crowd::of_such(2, None, Sleeper::Task);
    for _ in 0..100 {
        assert_eq!(c.ready(1), [1]);
        assert_eq!(c.waiters.watch, Watch::Set(Instant::ORIGIN + WATCH, 1), "as at first");
        c.again(1, None, Sleeper::Task);
    }
    assert_eq!(c.ready(1), [1]);
    // it was set for the first of them, and 1 is on its way for the 101st
    assert_eq!(c.watch_rings(1), NOBODY);
    assert_eq!(c.waiters.watch, Watch::Set(Instant::ORIGIN + WATCH * 2, 101));
    c.again(1, None, Sleeper::Task);
    // no caller is on the way
    assert_eq!(c.watch_rings(0), NOBODY);
    assert_eq!(c.waiters.watch, Watch::Off);
}

#[test]
fn no_watch_is_set_where_nobody_else_waits_and_one_is_when_somebody_comes() {
    let mut c = Crowd::of_such(1, None, Sleeper::Task);
    let wakes = c.waiters.wakes(1, None, false);
    assert!(wakes.for_key.is_some() && !wakes.update_alarms);
    assert_eq!(c.waiters.watch, Watch::Off);
    // a thread takes that key, and waits for the next
    c.enter(Sleeper::Thread, None);
    assert_eq!(c.ready(0), NOBODY);
    assert_eq!(c.watch_rings(1), [1]);
}

#[test]
fn a_wake_up_that_was_lost_for_a_key_that_is_gone_wakes_nobody() {
    let mut c = Crowd::of_such(2, None, Sleeper::Task);
    assert_eq!(c.ready(1), [1]);
    assert_eq!(c.watch_rings(0), NOBODY);
    assert_eq!(c.ready(1), [0], "nor does it hold up the next key");
}

#[test]
fn many_tasks_that_are_stuck_together_cost_a_few_rounds() {
    let mut c = Crowd::of_such(1_000, None, Sleeper::Task);
    assert_eq!(c.ready(1), [999]);
    let mut rounds = 0;
    while c.waiters.waiting() > 0 {
        assert!(!c.watch_rings(1).is_empty());
        rounds += 1;
    }
    assert_eq!(rounds, 9, "1 + 2 + 4 + ... reaches all of them");
}

#[test]
fn whether_a_waiter_is_a_task_is_known_from_its_last_wait() {
    let mut c = Crowd::of(2, None);
    c.again(1, None, Sleeper::Task);
    assert_eq!((c.waiters.threads.len, c.waiters.tasks.len), (1, 1));
    let waker = c.counts[1].clone().into();
    assert!(c.waiters.is_current(&WaiterId(1), &waker, Sleeper::Task));
    assert!(!c.waiters.is_current(&WaiterId(1), &waker, Sleeper::Thread));
    c.again(1, None, Sleeper::Thread);
    assert_eq!((c.waiters.threads.len, c.waiters.tasks.len), (2, 0));
}

#[test]
fn the_first_leads_and_only_a_sooner_timer_wakes_it() {
    let mut c = Crowd::of(3, at(100));
    assert_eq!(c.waiters.leader, Some((0, Instant::from_nanos(100))));
    assert_eq!(c.wakes(0, at(100), false), NOBODY);
    assert_eq!(c.wakes(0, at(150), false), NOBODY);
    assert_eq!(c.wakes(0, at(50), false), [0]);
    assert_eq!(c.wakes(0, at(50), false), NOBODY);
}

#[test]
fn a_follower_takes_the_key_and_the_leader_goes_on_leading() {
    let mut c = Crowd::of(2, at(100));
    assert_eq!(c.wakes(1, at(100), false), [1]);
    assert_eq!(c.waiters.leader.map(|l| l.0), Some(0));
    // there is no other caller: the leader is woken too
    c.waiters.looks(&WaiterId(1));
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
    assert_eq!(c.ready(1), [2]);
    // a timer is set before 2 arrives
    assert_eq!(c.wakes(1, at(9), false), [1]);
    assert_eq!(c.waiters.leader.map(|l| l.0), Some(1));
}

#[test]
fn everybody_is_released_when_the_queue_is_over() {
    let mut c = Crowd::mixed(2, 2);
    assert_eq!(c.wakes(0, None, true), [0, 1, 2, 3]);
    for id in std::mem::take(&mut c.ids) {
        c.waiters.leave(id);
    }
    assert_eq!((c.waiters.waiting(), c.waiters.in_flight, c.waiters.leader), (0, None, None));
}

#[test]
fn a_cancelled_one_that_had_been_chosen_passes_it_on() {
    for who in [Sleeper::Thread, Sleeper::Task] {
        let mut c = Crowd::of_such(2, None, who);
        assert_eq!(c.ready(1), [1]);
        let chosen = c.ids.pop().expect("two");
        c.waiters.leave(chosen);
        assert_eq!(c.ready(1), [0]);
    }
}

#[test]
fn d4_no_task_leads_and_the_alarm_is_set_anew_for_a_sooner_timer_without_it() {
    let mut c = Crowd::of(0, None);
    assert_eq!(c.enter(Sleeper::Task, at(100)), None);
    assert_eq!(c.wakes(0, at(100), false), NOBODY);
    assert_eq!((c.waiters.leader, c.waiters.alarm), (None, at(100)));
    assert!(!c.waiters.wakes(0, at(100), false).update_alarms, "it is set");
    assert_eq!(c.wakes(0, at(50), false), NOBODY, "no task is asked to");
    assert_eq!(c.waiters.alarm, at(50));
}

#[test]
fn d4_the_alarm_wakes_a_task_to_look_and_another_if_that_one_does_not_come() {
    let mut c = Crowd::of_such(3, at(100), Sleeper::Task);
    assert_eq!(c.wakes(0, at(100), false), NOBODY);
    c.waiters.timer_alarm_fired(Instant::from_nanos(100));
    assert_eq!(c.wakes(0, at(100), false), [2], "no key is ready yet: it looks");
    assert!(!c.waiters.wakes(0, at(100), false).update_alarms, "nothing is to be set anew");
    assert_eq!(c.waiters.alarm, None, "it has rung for this timer");
    // 2 is stuck
    c.waiters.watch_fired();
    assert_eq!(c.wakes(0, at(100), false), [0, 1]);
    c.waiters.looks(&WaiterId(1));
    // it fired that timer; the next is due later
    assert_eq!(c.wakes(0, at(200), false), NOBODY);
    assert_eq!(c.waiters.alarm, None, "nobody waits");
    c.again(1, at(200), Sleeper::Task);
    assert_eq!(c.wakes(0, at(200), false), NOBODY);
    assert_eq!(c.waiters.alarm, at(200));
}

#[test]
fn d4_a_timer_beyond_the_one_that_rang_does_not_wait_for_the_woken_task() {
    let mut c = Crowd::of_such(2, at(100), Sleeper::Task);
    c.wakes(0, at(100), false);
    c.waiters.timer_alarm_fired(Instant::from_nanos(100));
    assert_eq!(c.wakes(0, at(100), false), [1]);
    // another call fires the first, for example an add_after; 1 has not come
    assert_eq!(c.wakes(1, at(101), false), NOBODY);
    assert_eq!(c.waiters.alarm, at(101));
}

#[test]
fn a_clock_that_rings_early_has_the_alarm_set_again_by_whoever_was_woken() {
    let mut c = Crowd::of_such(2, at(100), Sleeper::Task);
    c.wakes(0, at(100), false);
    c.waiters.timer_alarm_fired(Instant::from_nanos(100));
    assert_eq!(c.wakes(0, at(100), false), [1]);
    // it looked and nothing is due
    c.again(1, at(100), Sleeper::Task);
    assert_eq!(c.wakes(0, at(100), false), NOBODY);
    assert_eq!((c.waiters.alarm, c.waiters.in_flight), (at(100), None));
}

#[test]
fn a_woken_task_that_leaves_without_a_look_passes_the_look_on() {
    let mut c = Crowd::of_such(2, at(100), Sleeper::Task);
    c.wakes(0, at(100), false);
    c.waiters.timer_alarm_fired(Instant::from_nanos(100));
    assert_eq!(c.wakes(0, at(100), false), [1]);
    let woken = c.ids.pop().expect("two");
    c.waiters.leave(woken);
    assert_eq!(c.wakes(0, at(100), false), [0]);
}

#[test]
fn a_thread_leads_although_the_alarm_is_set_and_takes_over_when_it_has_rung() {
    let mut c = Crowd::of_such(1, at(100), Sleeper::Task);
    c.wakes(0, at(100), false);
    assert_eq!(c.enter(Sleeper::Thread, at(100)), at(100));
    let alarms = c.waiters.alarms(at(200), None, false);
    assert_eq!(alarms, AlarmTimes { timer: None, watch: None, wants_time: false }, "a thread leads");
    assert_eq!(c.wakes(0, at(200), false), NOBODY, "until the first instant, then it looks");
    assert_eq!(c.again(1, at(200), Sleeper::Thread), at(200));
}

#[test]
fn d4_the_alarm_takes_over_from_the_last_thread() {
    let mut c = Crowd::mixed(1, 1);
    assert_eq!(c.wakes(0, at(100), false), [0], "the thread is told to lead");
    assert_eq!(c.again(0, at(100), Sleeper::Thread), at(100));
    let thread = c.ids.remove(0);
    drop(c.waiters.leave(thread));
    assert_eq!(c.wakes(0, at(100), false), NOBODY);
    assert_eq!((c.waiters.leader, c.waiters.alarm), (None, at(100)));
}

#[test]
fn whoever_comes_leads_in_place_of_one_that_was_told_to_and_is_not_here_yet() {
    let mut c = Crowd::of(1, None);
    assert_eq!(c.wakes(0, at(100), false), [0], "told to lead");
    assert_eq!(c.enter(Sleeper::Thread, at(100)), at(100));
    // it comes: a follower
    assert_eq!(c.again(0, at(100), Sleeper::Thread), None);
}

#[test]
fn alarms_are_taken_back_with_the_last_who_waits() {
    let mut c = Crowd::of_such(2, at(100), Sleeper::Task);
    assert!(!c.waiters.has_alarms() && !c.waiters.alarm_is_idle());
    assert_eq!(c.wakes(0, at(100), false), NOBODY);
    assert!(c.waiters.has_alarms() && !c.waiters.alarm_is_idle(), "they wait for the timer");
    assert!(!c.waiters.has_idle_alarms());
    assert_eq!(c.wakes(1, at(100), false), [1]);
    assert!(c.waiters.has_alarms());
    for id in std::mem::take(&mut c.ids) {
        drop(c.waiters.leave(id));
    }
    assert!(c.waiters.alarm_is_idle() && c.waiters.has_idle_alarms());
    let none = AlarmTimes { timer: None, watch: None, wants_time: false };
    assert_eq!(c.waiters.alarms(at(100), None, false), none);
    assert!(!c.waiters.has_alarms() && !c.waiters.has_idle_alarms());
}

#[test]
fn where_only_the_watch_is_set_there_is_an_alarm_too() {
    let mut c = Crowd::of_such(2, None, Sleeper::Task);
    assert_eq!(c.ready(1), [1]);
    assert!(c.waiters.has_alarms() && c.waiters.alarm.is_none());
}

#[test]
fn alarms_that_could_not_be_set_are_set_at_the_next_occasion() {
    let mut c = Crowd::of_such(2, at(100), Sleeper::Task);
    assert_eq!(c.wakes(1, at(100), false), [1]);
    c.waiters.no_alarms();
    assert!(!c.waiters.has_alarms());
    assert_eq!(c.wakes(1, at(100), false), NOBODY);
    assert_eq!((c.waiters.alarm, c.waiters.watch), (at(100), Watch::Set(Instant::ORIGIN + WATCH, 1)));
}

#[test]
fn a_leader_that_stays_sleeps_until_the_timer_that_is_the_soonest_by_now() {
    let mut c = Crowd::of(2, at(100));
    assert_eq!(c.waiters.lead(&WaiterId(0), at(50)), at(50));
    assert_eq!(c.waiters.leader, Some((0, Instant::from_nanos(50))));
    assert_eq!(c.waiters.lead(&WaiterId(1), at(50)), None);
}

#[test]
fn all_who_wait_for_one_event_are_woken_by_it_once() {
    let mut set = WakerSet::default();
    let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
    let mut places = [None; 2];
    assert!(set.is_empty());
    for (place, count) in places.iter_mut().zip(&counts) {
        assert!(set.set(place, count.clone().into()).is_none());
    }
    assert!(!set.is_empty() && places == [Some(0), Some(1)]);
    let old = set.set(&mut places[1], counts[2].clone().into());
    assert!(old.is_some_and(|old| old.will_wake(&counts[1].clone().into())), "it is given back");
    let mut woken = Vec::new();
    set.take_all(&mut woken);
    set.take_all(&mut woken);
    woken.into_iter().for_each(Waker::wake);
    assert_eq!(counts.iter().map(|count| count.get()).collect::<Vec<_>>(), [1, 0, 1]);
    assert!(set.leave(0).is_none(), "it was woken");
    assert!(set.set(&mut places[1], Waker::noop().clone()).is_none());
    assert!(!set.is_empty() && set.leave(1).is_some() && set.is_empty());
    let mut next = None;
    set.set(&mut next, Waker::noop().clone());
    assert_eq!((next, set.wakers.len()), (Some(1), 2), "a place that somebody left is taken again");
}

#[test]
fn a_crowd_that_has_gone_leaves_no_memory() {
    let mut c = Crowd::of(64, None);
    for _ in 0..2 {
        for id in std::mem::take(&mut c.ids) {
            drop(c.waiters.leave(id));
        }
        assert!(c.waiters.entries.capacity() >= 64, "what a few need is kept");
        for _ in 0..64 {
            c.enter(Sleeper::Thread, None);
        }
    }
    c.enter(Sleeper::Thread, None);
    for id in std::mem::take(&mut c.ids) {
        drop(c.waiters.leave(id));
    }
    assert_eq!(c.waiters.entries.capacity(), 0);
    let (id, _) = c.waiters.enter(Waker::noop().clone(), None, Sleeper::Thread);
    assert_eq!(id, WaiterId(0));
}
