//! The state machine by itself: every answer and every count, rule by rule. The
//! promises to users are tested in `verify/`, through the queue.

mod common;

use common::Calls;
use requeue_core::{
    Accepted, Added, Config, Core, Delay, DrainBase, Ended, Got, Handout, How, Instant, Limit, Order, Policy,
    ReadyOrder, Refused, RetryDelay, RunRef, Ticket, Trigger, WaitingKeys,
};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);
const NOW: Delay = Delay::Now;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
fn after(n: u64) -> Delay {
    Delay::After(secs(n), Policy::Earliest)
}
fn at(n: u64) -> Instant {
    Instant::ORIGIN + secs(n)
}

/// A state machine with its clock, keys that are numbers, and values that are lists.
struct Q {
    core: Core<u32, Vec<u32>>,
    now: Instant,
}

impl Q {
    fn new() -> Self {
        Self::with(Config::default())
    }
    fn with(config: Config<u32, Vec<u32>>) -> Self {
        let merge = Box::new(|old: &mut Vec<u32>, new: Vec<u32>| old.extend(new));
        Self { core: Core::new(Config { merge: Some(merge), ..config }), now: Instant::ORIGIN }
    }
    /// The state machine with all that is due done.
    fn on(&mut self) -> &mut Core<u32, Vec<u32>> {
        while self.core.advance(self.now) {}
        &mut self.core
    }
    fn pass(&mut self, by: Duration) {
        self.now = self.now + by;
    }
    fn add(&mut self, key: u32, delay: Delay) -> Result<Added, Refused> {
        self.add_value(key, None, delay)
    }
    fn add_value(&mut self, key: u32, value: Option<Vec<u32>>, delay: Delay) -> Result<Added, Refused> {
        let given = value.clone();
        let mut trigger = Trigger::new(key, value);
        let accepted = self.on().add(&mut trigger, key, delay);
        if accepted.is_err() {
            assert_eq!(trigger.take(), (Some(key), given), "key and value come back");
        }
        accepted.map(|a| a.added)
    }
    fn accept_limited(&mut self, key: u32, limit: Limit<'_>) -> Accepted {
        let delay = Delay::Limited(Policy::Earliest);
        self.on().add_limited(&mut Trigger::new(key, None), key, delay, limit).expect("open")
    }
    fn get(&mut self) -> Handout<u32, Vec<u32>> {
        match self.on().get() {
            Got::Item(item) => item,
            other => panic!("no key, but {other:?}"),
        }
    }
    fn end(&mut self, run: RunRef<u32>, how: How<'_>) -> Ended<u32, Vec<u32>> {
        self.on().end(run, how, None).expect("taken")
    }
    /// All ready keys, said done.
    fn work_off(&mut self) -> Vec<u32> {
        let mut keys = Vec::new();
        while let Got::Item(item) = self.on().get() {
            keys.push(*item.run.key());
            let _ = self.end(item.run, How::Done);
        }
        keys
    }
    /// ready, held, dirty, waiting, known
    fn counts(&mut self) -> [usize; 5] {
        let s = self.on().stats();
        [s.ready, s.held, s.dirty, s.waiting, s.known]
    }
    fn drain(&mut self, waiting: WaitingKeys, deadline: Instant) -> DrainBase {
        let base = self.on().begin_drain(waiting, deadline);
        self.on().conclude();
        base
    }
}

fn doubling(failures: u32, _: Instant) -> Duration {
    SEC * 2u32.pow(failures)
}
fn limit(delay: &dyn Fn(u32, Instant) -> Duration) -> Limit<'_> {
    Limit { delay, counts: true, expire_after: None }
}

#[test]
fn q_a_key_goes_through_its_states_and_is_forgotten() {
    let mut q = Q::new();
    assert_eq!(q.core.state(&1, 1), None);
    assert_eq!(q.add(1, NOW), Ok(Added::Ready));
    assert_eq!(q.counts(), [1, 0, 0, 0, 1]);
    assert_eq!(q.add(1, NOW), Ok(Added::Coalesced));
    assert!(!q.core.is_empty());
    let state = q.core.state(&1, 1).expect("known");
    assert!(state.ready && !state.held && !state.dirty && state.waiting_until.is_none());
    let item = q.get();
    assert!(q.core.is_empty());
    assert_eq!((*item.run.key(), item.attempt, item.waited), (1, 1, None));
    let state = q.core.state(&1, 1).expect("known");
    assert!(!state.ready && state.held && state.held_since.is_none());
    assert_eq!(q.counts(), [0, 1, 0, 0, 1]);
    assert_eq!(q.add(1, NOW), Ok(Added::Dirty));
    assert_eq!(q.add(1, NOW), Ok(Added::Coalesced));
    assert_eq!(q.counts(), [0, 1, 1, 0, 1]);
    assert!(matches!(q.on().get(), Got::Empty), "never held twice");
    let ended = q.end(item.run, How::Done);
    assert_eq!((ended.key, ended.worked), (None, None));
    assert_eq!(q.counts(), [1, 0, 0, 0, 1]);
    let item = q.get();
    assert_eq!(q.end(item.run, How::Done).key, Some(1), "the key comes out to be dropped");
    assert_eq!(q.counts(), [0; 5]);
    assert_eq!(q.core.take_counts().adds, 2);
    assert_eq!(q.core.take_counts().adds, 0);
}

#[test]
fn q1_first_ready_first_out_and_lifo_last() {
    for (order, expected) in [(Order::Fifo, [1, 2, 3]), (Order::Lifo, [3, 2, 1])] {
        let mut q = Q::with(Config { order, ..Config::default() });
        for key in 1..=3 {
            q.add(key, NOW).expect("open");
        }
        assert_eq!(q.work_off(), expected);
    }
}

#[test]
fn q2_the_spare_key_comes_back_to_be_dropped() {
    let mut core = Core::<String>::new(Config::default());
    let mut add = |key: &str| {
        let mut trigger = Trigger::new(key.to_string(), None);
        let accepted = core.add(&mut trigger, 1, NOW).expect("open");
        (accepted.added, trigger.take().0)
    };
    assert_eq!(add("a"), (Added::Ready, None));
    assert_eq!(add("a"), (Added::Coalesced, Some("a".to_string())));
    // equal hashes do not make equal keys
    assert_eq!(add("b"), (Added::Ready, None));
    let mut add_known = |key| core.add_known(key, 1).map(|known| known.map(|accepted| accepted.added));
    assert_eq!(add_known("b"), Ok(Some(Added::Coalesced)));
    assert_eq!(add_known("c"), Ok(None));
    assert_eq!(core.len(), 2);
}

#[test]
fn d_timers_fire_in_the_order_of_their_instants_then_calls() {
    let mut q = Q::new();
    for (key, delay) in [(1, 3), (2, 1), (3, 3), (4, 2)] {
        assert_eq!(q.add(key, after(delay)), Ok(Added::Waiting));
    }
    assert_eq!(q.counts(), [0, 0, 0, 4, 4]);
    assert_eq!(q.core.state(&2, 2).and_then(|s| s.waiting_until), Some(at(1)));
    assert_eq!(q.core.next_wake(), Some(at(1)));
    q.pass(Duration::from_nanos(999_999_999));
    assert!(q.on().is_empty(), "never early");
    q.pass(Duration::from_nanos(1));
    assert_eq!(q.on().len(), 1);
    q.pass(secs(2));
    q.add(5, NOW).expect("open");
    assert_eq!(q.work_off(), [2, 4, 1, 3, 5]);
    assert_eq!(q.core.next_wake(), None);
}

#[test]
fn d_a_batch_a_hold_and_the_rest_in_the_next() {
    let mut q = Q::new();
    for key in 0..200 {
        q.add(key, after(1)).expect("open");
    }
    q.pass(SEC);
    assert!(q.core.advance(q.now));
    assert_eq!(q.core.len(), 64);
    assert!(q.core.advance(q.now) && q.core.advance(q.now));
    assert!(!q.core.advance(q.now));
    assert_eq!(q.core.len(), 200);
    // exactly a batch: nothing is left to be looked at
    for key in 1000..1064 {
        q.add(key, after(1)).expect("open");
    }
    q.pass(SEC);
    assert!(!q.core.advance(q.now));
}

#[test]
fn d_time_never_goes_back_and_never_is_never_due() {
    let mut q = Q::new();
    q.pass(secs(5));
    q.on();
    q.now = at(1);
    q.add(1, after(1)).expect("open");
    assert_eq!(q.core.next_wake(), Some(at(6)), "the delay counts from the latest instant");
    q.add(2, Delay::After(Duration::MAX, Policy::Earliest)).expect("open");
    q.now = Instant::NEVER;
    assert_eq!(q.work_off(), [1]);
    assert_eq!(q.core.next_wake(), None);
    assert_eq!(q.counts(), [0, 0, 0, 1, 1]);
}

#[test]
fn d6_policies() {
    let due = |q: &Q| q.core.state(&1, 1).and_then(|s| s.waiting_until);
    for (policy, delays, expected) in [
        (Policy::Earliest, [5, 3, 4], [5, 3, 3]),
        (Policy::Replace, [5, 3, 4], [5, 3, 4]),
        (Policy::Keep, [5, 3, 9], [5, 5, 5]),
        (Policy::Latest { max: secs(6) }, [5, 3, 9], [5, 5, 6]),
    ] {
        let mut q = Q::new();
        let mut last = None;
        for (delay, expected) in delays.into_iter().zip(expected) {
            let added = q.add(1, Delay::After(secs(delay), policy));
            assert_eq!(due(&q), Some(at(expected)), "{policy:?}");
            let changed = if last == Some(expected) { Added::Coalesced } else { Added::Waiting };
            assert_eq!(added, Ok(changed), "{policy:?}");
            last = Some(expected);
        }
        assert_eq!(q.add(1, Delay::After(Duration::ZERO, policy)), Ok(Added::Ready), "{policy:?}");
        assert_eq!(due(&q), Some(at(last.expect("three calls"))), "a timer that is set stays set");
    }
}

#[test]
fn d6_latest_counts_its_window_from_the_first_call_and_begins_anew() {
    let mut q = Q::new();
    let latest = Delay::After(secs(3), Policy::Latest { max: secs(5) });
    let due = |q: &Q| q.core.state(&1, 1).and_then(|s| s.waiting_until);
    q.add(1, latest).expect("open");
    q.pass(secs(2));
    q.add(1, latest).expect("open");
    assert_eq!(due(&q), Some(at(5)));
    q.pass(secs(3));
    assert_eq!(q.work_off(), [1]);
    q.add(1, latest).expect("open");
    assert_eq!(due(&q), Some(at(8)), "a window that is over does not count");
    // another policy replaces timer and window
    q.add(1, Delay::After(secs(4), Policy::Replace)).expect("open");
    q.pass(secs(3));
    q.add(1, latest).expect("open");
    assert_eq!(due(&q), Some(at(11)));
    // no time at all is now
    let mut q = Q::new();
    let at_once = Delay::After(secs(3), Policy::Latest { max: Duration::ZERO });
    assert_eq!(q.add(1, at_once), Ok(Added::Ready));
    q.work_off();
    q.pass(SEC);
    q.add(1, latest).expect("open");
    assert_eq!(due(&q), Some(at(4)), "and leaves no window");
}

#[test]
fn d6_a_timer_is_independent_of_ready_and_held() {
    let mut q = Q::new();
    q.add(1, after(1)).expect("open");
    q.add(1, NOW).expect("open");
    assert_eq!(q.counts(), [1, 0, 0, 1, 1]);
    q.pass(SEC);
    assert_eq!(q.counts(), [1, 0, 0, 0, 1], "it was ready anyway");
    let item = q.get();
    q.add(1, after(1)).expect("open");
    assert_eq!(q.counts(), [0, 1, 0, 1, 1]);
    q.pass(SEC);
    assert_eq!(q.counts(), [0, 1, 1, 0, 1]);
    let _ = q.end(item.run, How::Done);
    assert_eq!(q.work_off(), [1]);
}

#[test]
fn d6_timers_absorbed_by_the_run_that_starts() {
    for absorbed in [false, true] {
        let mut q = Q::with(Config { timers_absorbed: absorbed, ..Config::default() });
        q.add(1, after(9)).expect("open");
        q.add(1, NOW).expect("open");
        let item = q.get();
        assert_eq!(q.counts()[3], usize::from(!absorbed));
        q.add(1, after(5)).expect("open");
        assert_eq!(q.counts()[3], 1, "one that is set during the run stays");
        let _ = q.end(item.run, How::Done);
        assert_eq!(q.counts(), [0, 0, 0, 1, 1]);
    }
}

#[test]
fn b1_values_merge_older_first_and_die_with_the_last_reason() {
    let mut q = Q::new();
    q.add_value(1, Some(vec![1]), after(5)).expect("open");
    q.add_value(1, Some(vec![2]), NOW).expect("open");
    q.add_value(1, Some(vec![3]), NOW).expect("open");
    let item = q.get();
    assert_eq!(item.value, Some(vec![1, 2, 3]));
    // the value of a run goes back in front of what came meanwhile
    q.add_value(1, Some(vec![4]), NOW).expect("open");
    let retry = How::Retry(RetryDelay::Limited(limit(&doubling), None));
    let _ = q.on().end(item.run, retry, Some(vec![1])).expect("open");
    let item = q.get();
    assert_eq!(item.value, Some(vec![1, 4]));
    q.add_value(1, Some(vec![5]), after(1)).expect("open");
    let ended = q.on().end(item.run, How::Done, Some(vec![9])).expect("open");
    assert_eq!(ended.value, Some(vec![9]), "nothing puts it back, it comes out to be dropped");
    // the timer was the last reason
    assert_eq!(q.core.shut_down().dropped, 1);
    assert_eq!(q.counts(), [0, 0, 0, 0, 1], "its failure is on record");
    assert_eq!(q.core.take_trash(), [(None, Some(vec![5]))]);
    assert!(q.core.take_trash().is_empty());
}

#[test]
fn b1_a_value_lives_as_long_as_a_run_is_to_come() {
    let mut q = Q::new();
    q.add(1, NOW).expect("open");
    let one = q.get();
    q.add_value(1, Some(vec![1]), NOW).expect("open");
    let _ = q.end(one.run, How::Done);
    let one = q.get();
    assert_eq!(one.value, Some(vec![1]), "of a dirty key");
    // dirty and waiting, ready and waiting: the timers go, the runs come
    q.add_value(1, Some(vec![2]), NOW).expect("open");
    q.add_value(2, Some(vec![3]), NOW).expect("open");
    for key in [1, 2] {
        q.add(key, after(5)).expect("open");
    }
    assert_eq!(q.on().shut_down().dropped, 2);
    assert!(q.on().take_trash().is_empty());
    let two = q.get();
    let _ = q.end(one.run, How::Done);
    assert_eq!((two.value, q.get().value), (Some(vec![3]), Some(vec![2])));
}

#[test]
fn b1_without_merge_the_newer_replaces_the_older() {
    let mut core = Core::<u32, u32>::new(Config::default());
    for value in [1, 2] {
        core.add(&mut Trigger::new(1, Some(value)), 1, NOW).map(|_| ()).expect("open");
    }
    assert_eq!(core.take_trash(), [(None, Some(1))]);
    let Got::Item(item) = core.get() else { panic!("ready") };
    assert_eq!(item.value, Some(2));
}

#[test]
fn r_counts_failures_forgets_and_expires() {
    let mut q = Q::new();
    let l = limit(&doubling);
    for expected in [1, 2, 4] {
        let accepted = q.accept_limited(1, l);
        assert_eq!(accepted.delay, secs(expected));
    }
    assert_eq!(q.core.num_requeues(&1, 1), 3);
    assert_eq!(q.core.state(&1, 1).map(|s| (s.failures, s.attempt)), Some((3, 1)));
    assert_eq!(q.core.forget(&1, 1), None, "its timer stays");
    assert_eq!((q.core.num_requeues(&1, 1), q.counts()[3]), (0, 1));
    q.core.expire_failures_after(Some(secs(10)));
    q.accept_limited(1, l);
    q.pass(secs(10));
    assert_eq!(q.work_off(), [1]);
    assert_eq!((q.core.num_requeues(&1, 1), q.counts()[4]), (1, 1), "on record until 11 s");
    let state = q.core.state(&1, 1).expect("its failure is known");
    assert!(state.failures == 1 && !state.ready && !state.held);
    q.pass(SEC);
    q.on();
    assert_eq!(q.core.num_requeues(&1, 1), 0);
    assert_eq!(q.core.state(&1, 1), None);
    assert_eq!(q.core.forget(&1, 1), Some(1), "nothing else kept it");
    // a limiter that says when its counts expire goes first
    let own = Limit { expire_after: Some(SEC), ..l };
    q.accept_limited(2, own);
    let item = {
        q.pass(SEC);
        q.get()
    };
    let _ = q.end(item.run, How::Done);
    assert_eq!(q.core.num_requeues(&2, 2), 1);
    q.pass(SEC);
    q.on();
    assert_eq!(q.core.num_requeues(&2, 2), 0);
}

#[test]
fn r_the_clock_hand_frees_records_that_nobody_asks_for() {
    let mut q = Q::new();
    q.core.expire_failures_after(Some(SEC));
    let zero = |_: u32, _: Instant| Duration::ZERO;
    for key in 0..2_000 {
        q.accept_limited(key, limit(&zero));
    }
    q.work_off();
    assert_eq!(q.counts()[4], 2_000);
    q.pass(secs(2));
    for key in 10_000..12_000 {
        q.accept_limited(key, limit(&zero));
    }
    assert_eq!(q.counts()[4], 2_000, "the old ones are gone");
    assert_eq!(q.core.take_trash().len(), 2_000);
    for key in 0..2_000 {
        assert_eq!(q.core.num_requeues(&key, key), 0);
        assert_eq!(q.core.num_requeues(&(key + 10_000), key + 10_000), 1);
    }
}

#[test]
fn r_a_record_that_expires_at_once_is_no_trouble() {
    let mut q = Q::new();
    q.core.expire_failures_after(Some(Duration::ZERO));
    let zero = |_: u32, _: Instant| Duration::ZERO;
    for key in 0..100 {
        q.accept_limited(key % 3, limit(&zero));
        let item = q.get();
        let _ = q.end(item.run, How::Retry(RetryDelay::Limited(limit(&zero), None)));
        assert_eq!(q.work_off().len(), 1);
    }
    assert_eq!(q.core.num_requeues(&0, 0), 0);
}

#[test]
fn r_a_limiter_that_counts_nothing_leaves_no_record() {
    let mut q = Q::new();
    let second = |failures: u32, _: Instant| SEC * (failures + 1);
    let l = Limit { delay: &second, counts: false, expire_after: None };
    for _ in 0..2 {
        let accepted = q
            .on()
            .add_limited(&mut Trigger::new(1, None), 1, Delay::Limited(Policy::Replace), l)
            .expect("open");
        assert_eq!((accepted.added, accepted.delay), (Added::Waiting, SEC));
        q.pass(Duration::from_nanos(1));
    }
    assert_eq!(q.core.num_requeues(&1, 1), 0);
}

#[test]
fn w_attempts_count_retries_and_restart_at_fresh_triggers() {
    let fail = |q: &mut Q, item: Handout<u32, Vec<u32>>| {
        q.end(item.run, How::Retry(RetryDelay::Limited(limit(&doubling), None))).delay
    };
    let mut q = Q::new();
    q.add(1, NOW).expect("open");
    for attempt in 1..=3 {
        let item = q.get();
        assert_eq!(item.attempt, attempt);
        let delay = fail(&mut q, item);
        assert_eq!(q.core.state(&1, 1).map(|s| s.attempt), Some(attempt + 1));
        q.pass(delay);
    }
    // ready by its own back-off: another trigger changes nothing
    q.add(1, NOW).expect("open");
    let item = q.get();
    assert_eq!(item.attempt, 4);
    // a trigger while held
    q.add(1, NOW).expect("open");
    fail(&mut q, item);
    let item = q.get();
    assert_eq!(item.attempt, 1);
    let _ = q.end(item.run, How::Succeed);
    // the old back-off comes and is no attempt of anything
    q.pass(secs(60));
    let item = q.get();
    assert_eq!(item.attempt, 1);
    // a trigger that readies what waits out a failure
    let delay = fail(&mut q, item);
    q.add(1, NOW).expect("open");
    let item = q.get();
    assert_eq!(item.attempt, 1);
    // a timer set before the hand-out makes the held key dirty
    q.pass(delay);
    q.on();
    fail(&mut q, item);
    let item = q.get();
    assert_eq!(item.attempt, 1);
    // a sooner timer of somebody else takes the back-off's place
    let _ = q.end(item.run, How::Succeed);
    q.pass(secs(600));
    q.work_off();
    q.add(1, NOW).expect("open");
    let item = q.get();
    let _ = q.end(item.run, How::Retry(RetryDelay::Limited(limit(&doubling), Some(secs(9)))));
    q.add(1, after(20)).expect("open");
    assert_eq!(q.core.state(&1, 1).map(|s| s.waiting_until), Some(Some(q.now + secs(9))));
    q.add(1, after(2)).expect("open");
    q.pass(secs(2));
    assert_eq!(q.get().attempt, 1);
}

#[test]
fn w_a_timer_set_during_the_run_that_comes_before_the_back_off_restarts() {
    let mut q = Q::new();
    q.add(1, NOW).expect("open");
    let item = q.get();
    q.add(1, after(1)).expect("open");
    let ended = q.end(item.run, How::Retry(RetryDelay::Limited(limit(&doubling), Some(secs(5)))));
    assert_eq!(ended.delay, secs(5));
    q.pass(SEC);
    assert_eq!(q.get().attempt, 1);
}

#[test]
fn w_outcomes() {
    let mut q = Q::new();
    let l = limit(&doubling);
    let run = |q: &mut Q| {
        q.add(1, NOW).expect("open");
        q.get().run
    };
    let r = run(&mut q);
    let _ = q.end(r, How::Retry(RetryDelay::Limited(l, None)));
    let r = run(&mut q);
    let _ = q.end(r, How::Done);
    assert_eq!(q.core.num_requeues(&1, 1), 1, "done forgets nothing");
    let r = run(&mut q);
    let _ = q.end(r, How::Again(secs(7)));
    assert_eq!(q.core.num_requeues(&1, 1), 0, "again forgets");
    let r = run(&mut q);
    assert_eq!(q.end(r, How::Again(Duration::ZERO)).delay, Duration::ZERO);
    assert_eq!(q.counts(), [1, 0, 0, 1, 1], "again now, and the back-off of before");
    let r = q.get().run;
    let _ = q.end(r, How::Retry(RetryDelay::Limited(l, Some(Duration::ZERO))));
    let item = q.get();
    assert_eq!((item.attempt, q.core.num_requeues(&1, 1)), (2, 1));
    let _ = q.end(item.run, How::Succeed);
    assert_eq!((q.core.num_requeues(&1, 1), q.counts()), (0, [0, 0, 0, 1, 1]));
    // zero for a dirty key: it is ready once
    let r = run(&mut q);
    q.add(1, NOW).expect("open");
    let _ = q.end(r, How::Again(Duration::ZERO));
    assert_eq!(q.counts()[..3], [1, 0, 0]);
}

#[test]
fn q12_done_by_key_makes_the_guard_inert() {
    let mut q = Q::new();
    assert!(q.core.done(&1, 1).is_err());
    q.add(1, NOW).expect("open");
    assert!(q.core.done(&1, 1).is_err(), "ready is not held");
    let first = q.get();
    q.add(1, NOW).expect("open");
    assert_eq!(q.core.done(&1, 1).expect("held").key, None);
    assert!(q.core.is_inert(&first.run));
    let second = q.get();
    assert!(!q.core.is_inert(&second.run));
    q.core.done(&1, 1).map(|_| ()).expect("held");
    assert!(q.core.done(&1, 1).is_err());
    assert_eq!((first.run.key(), second.run.key()), (&1, &1), "readable still");
    assert_eq!(q.core.state(&1, 1), None, "lent, but not known");
    assert_eq!(q.counts()[4], 1);
    // a third run in the same slot, while two inert guards are out
    q.add(1, NOW).expect("open");
    let third = q.get();
    assert!(!q.core.is_inert(&third.run) && q.core.is_inert(&second.run));
    let retry = q.core.end(first.run, How::Again(SEC), Some(vec![1]));
    let (first, refused) = retry.map(|_| ()).expect_err("inert");
    assert_eq!((refused.reason, refused.value), (Refused::NotHeld, Some(vec![1])));
    let ended = q.core.end(first, How::Done, Some(vec![2])).expect("nothing to refuse");
    assert_eq!((ended.key, ended.value, ended.worked), (None, Some(vec![2]), None));
    assert_eq!(q.counts(), [0, 1, 0, 0, 1], "the third run goes on");
    assert_eq!(q.end(third.run, How::Done).key, None);
    assert_eq!(q.core.give_back(second.run).key, Some(1));
    assert_eq!(q.counts(), [0; 5]);
    // the slot is free of what was: its next guard is live
    q.add(2, NOW).expect("open");
    let next = q.get();
    assert!(!q.core.is_inert(&next.run));
    let _ = q.end(next.run, How::Done);
    assert_eq!(q.counts(), [0; 5]);
}

#[test]
fn q12_detach_promises_done() {
    let mut q = Q::new();
    q.add(1, NOW).expect("open");
    let run = q.get().run;
    assert_eq!(q.core.detach(run).key, None);
    assert_eq!(q.counts(), [0, 1, 0, 0, 1]);
    assert_eq!(q.core.done(&1, 1).expect("held").key, Some(1));
    // the next run has a guard again
    q.add(1, NOW).expect("open");
    let run = q.get().run;
    q.core.done(&1, 1).map(|_| ()).expect("held");
    assert!(q.core.is_inert(&run));
    assert_eq!(q.core.detach(run).key, Some(1), "an inert guard is only given back");
}

#[test]
fn w_a_run_can_end_while_its_key_stays_lent() {
    let mut q = Q::new();
    q.add(1, NOW).expect("open");
    let run = q.get().run;
    let ended = q.core.end_keeping(&run, How::Done, Some(vec![3])).expect("live");
    assert_eq!((ended.key, ended.value), (None, Some(vec![3])));
    assert_eq!(q.counts(), [0, 0, 0, 0, 1]);
    let refused = q.core.end_keeping(&run, How::Done, None).map(|_| ()).expect_err("ended");
    assert_eq!(refused.reason, Refused::NotHeld);
    assert_eq!(q.core.give_back(run).key, Some(1));
    q.add(1, NOW).expect("open");
    let run = q.get().run;
    q.core.shut_down();
    let refused = q.core.end_keeping(&run, How::Again(SEC), None).map(|_| ()).expect_err("shut down");
    assert_eq!(refused.reason, Refused::ShutDown);
    assert!(!q.core.is_inert(&run), "it goes on");
}

#[test]
#[should_panic(expected = "did not lend it")]
fn q12_a_run_of_another_queue_is_not_ended_while_its_guard_stays() {
    let (mut one, mut other) = (Q::new(), Q::new());
    for q in [&mut one, &mut other] {
        q.add(1, NOW).expect("open");
    }
    let (run, _others) = (one.get().run, other.get());
    let _ = other.core.end_keeping(&run, How::Done, None);
}

#[test]
fn q12_a_run_that_is_put_back_leaves_the_key_as_it_was_but_at_the_back_of_the_line() {
    let mut q = Q::new();
    q.add_value(1, Some(vec![1]), NOW).expect("open");
    q.add(2, NOW).expect("open");
    let one = q.get();
    q.add_value(1, Some(vec![2]), after(9)).expect("open");
    let base = q.drain(WaitingKeys::Wait, Instant::NEVER);
    let adds = q.core.take_counts().adds;
    assert_eq!(adds, 2);
    let ended = q.on().put_back(one.run, one.value, false);
    assert!(ended.key.is_none() && ended.worked.is_none());
    assert_eq!(q.core.take_counts().adds, 0);
    assert_eq!(q.core.drain_counts(&base).done, 0);
    assert_eq!(q.counts(), [2, 0, 0, 1, 2]);
    let two = q.get();
    assert_eq!(*two.run.key(), 2);
    let one = q.get();
    assert_eq!((*one.run.key(), one.attempt, one.value), (1, 1, Some(vec![1, 2])));
    // one that was ended under its guard is given back, and no more
    let _ = q.core.done(&1, 1).expect("it is held");
    let ended = q.on().put_back(one.run, Some(vec![3]), false);
    assert_eq!((ended.key, ended.value), (None, Some(vec![3])), "its timer keeps the key");
    assert_eq!(q.counts(), [0, 1, 0, 1, 2]);
    let _ = q.end(two.run, How::Done);
}

#[test]
fn q10_shut_down_refuses_drops_timers_and_hands_out_the_rest() {
    let mut q = Q::new();
    q.add(1, NOW).expect("open");
    let held = q.get();
    q.add(1, NOW).expect("open");
    q.add(2, NOW).expect("open");
    for key in 100..300 {
        q.add_value(key, Some(vec![key]), after(1)).expect("open");
    }
    assert!(!q.core.shutting_down());
    let base = q.drain(WaitingKeys::Wait, Instant::NEVER);
    let left = q.on().shut_down();
    assert_eq!((left.ready, left.held, left.dirty, left.dropped), (1, 1, 1, 200));
    assert_eq!(q.core.stats().waiting, 0, "as if all were dropped at once");
    assert_eq!(q.core.releases(), 1);
    assert!(q.core.drain_is_over(&base), "it releases drains");
    assert!(q.core.advance(q.now), "64 a hold");
    assert!(q.on().take_trash().is_empty());
    let mut list = Vec::new();
    assert_eq!(q.core.take_unfinished(0, 1_000, |key| list.push(key)), None);
    assert_eq!((list.len(), &list[0].value), (200, &Some(vec![list[0].key])), "a drain has begun");
    assert!(q.core.shutting_down());
    assert_eq!(q.add(3, NOW), Err(Refused::ShutDown));
    assert_eq!(q.core.add_known(&2, 2), Err(Refused::ShutDown));
    let (run, refused) = q.core.end(held.run, How::Again(SEC), None).map(|_| ()).expect_err("shut");
    assert_eq!(refused.reason, Refused::ShutDown);
    let counts = q.core.drain_counts(&base);
    assert_eq!((counts.complete, counts.done, counts.dropped), (false, 0, 200));
    assert_eq!((counts.refused, counts.refused_retries), (2, 1), "outside and holders apart");
    // a later drain counts from its own beginning
    let later = q.drain(WaitingKeys::Drop, Instant::NEVER);
    let counts = q.core.drain_counts(&later);
    assert_eq!((counts.done, counts.dropped, counts.refused, counts.refused_retries), (0, 0, 0, 0));
    assert_eq!(q.core.ask(Some(&run)).err(), Some(Refused::ShutDown));
    let since = q.core.drain_counts(&later);
    assert_eq!((since.refused, since.refused_retries), (0, 1));
    assert_eq!((counts.ready, counts.held, counts.waiting), (1, 1, 0));
    assert!(!q.core.is_over() && !q.core.is_drained());
    let two = q.get();
    assert!(matches!(q.on().get(), Got::Empty), "1 is dirty: it will be ready");
    let _ = q.end(run, How::Done);
    let one = q.get();
    assert!(q.core.is_over() && !q.core.is_drained());
    assert!(matches!(q.on().get(), Got::ShutDown));
    let _ = q.end(one.run, How::Done);
    let _ = q.end(two.run, How::Done);
    assert!(q.core.is_drained());
    assert_eq!(q.core.drain_counts(&base).done, 3);
    let again = q.on().shut_down();
    assert_eq!((again.ready, again.dropped, q.core.releases()), (0, 0, 2));
    assert_eq!((again.refused, again.refused_retries), (2, 2), "all that were refused so far");
    assert!(q.core.is_drained());
}

#[test]
fn q14_close_takes_what_holders_send_back() {
    let mut q = Q::new();
    q.add(1, NOW).expect("open");
    let item = q.get();
    q.on().close();
    assert!(q.core.shutting_down());
    assert_eq!(q.add(2, NOW), Err(Refused::ShutDown));
    let asking = q.core.ask(Some(&item.run)).expect("a holder may");
    assert!(q.core.unask(asking));
    let _ = q.end(item.run, How::Again(SEC));
    assert!(matches!(q.on().get(), Got::Empty));
    q.pass(SEC);
    assert_eq!(q.work_off(), [1]);
    assert!(matches!(q.on().get(), Got::Empty), "closed is not shut down");
    q.on().shut_down();
    assert!(matches!(q.on().get(), Got::ShutDown));
    q.on().close();
    assert!(matches!(q.on().get(), Got::ShutDown), "close takes no shutdown back");
}

#[test]
fn q14_a_drain_that_waits_ends_when_nothing_is_left() {
    let mut q = Q::new();
    q.add(1, after(1)).expect("open");
    assert_eq!(q.core.waiting_until(), None);
    let base = q.drain(WaitingKeys::Wait, at(60));
    assert_eq!(q.core.waiting_until(), Some(at(60)));
    assert_eq!(q.core.next_wake(), Some(at(1)));
    assert!(matches!(q.on().get(), Got::Empty));
    assert!(!q.core.drain_is_over(&base));
    assert_eq!(q.core.drain_counts(&base).waiting, 1);
    q.pass(SEC);
    let item = q.get();
    assert_eq!(q.core.next_wake(), Some(at(60)));
    let _ = q.end(item.run, How::Retry(RetryDelay::Limited(limit(&doubling), None)));
    q.core.conclude();
    assert!(!q.core.is_over(), "the retry waits");
    q.pass(SEC);
    let item = q.get();
    q.core.conclude();
    assert!(!q.core.is_over(), "it is held");
    let _ = q.end(item.run, How::Succeed);
    q.core.conclude();
    assert!(q.core.is_over() && q.core.is_drained() && q.core.drain_is_over(&base));
    assert!(q.core.drain_counts(&base).complete);
    assert_eq!(q.core.next_wake(), None);
    assert!(!q.core.time_matters());
}

#[test]
fn q14_a_drain_that_waits_shuts_down_at_its_deadline() {
    let mut q = Q::new();
    q.add(1, after(5)).expect("open");
    q.add(2, after(9)).expect("open");
    let base = q.drain(WaitingKeys::Wait, at(5));
    q.pass(secs(4));
    assert!(matches!(q.on().get(), Got::Empty));
    q.pass(SEC);
    // a timer at the deadline still counts as due
    assert_eq!(q.counts(), [1, 0, 0, 0, 2], "the list keeps its key");
    assert_eq!(q.core.drain_counts(&base).dropped, 1);
    let item = q.get();
    assert!(matches!(q.on().get(), Got::ShutDown));
    assert_eq!(q.core.ask(Some(&item.run)).err(), Some(Refused::ShutDown));
    // phases only move forward: a later drain that waits takes no retries
    q.drain(WaitingKeys::Wait, Instant::NEVER);
    assert!(q.core.ask(Some(&item.run)).is_err());
    assert!(matches!(q.on().get(), Got::ShutDown) && !q.core.is_drained());
    let _ = q.end(item.run, How::Done);
    assert!(q.core.is_drained());
}

#[test]
fn q11_a_drain_runs_waiting_keys_now_or_drops_them() {
    let mut q = Q::new();
    for key in 0..100 {
        q.add(key, after(u64::from(100 - key))).expect("open");
    }
    let base = q.on().begin_drain(WaitingKeys::RunNow, Instant::NEVER);
    assert!(!q.core.is_over(), "keys are on their way");
    assert!(q.core.advance(q.now), "64 a hold");
    assert_eq!(q.core.len(), 64);
    assert_eq!(q.work_off(), (0..100).rev().collect::<Vec<_>>(), "in the order of their instants");
    assert!(q.core.drain_is_over(&base));
    assert_eq!(q.core.drain_counts(&base).done, 100);

    let mut q = Q::new();
    q.add(1, after(1)).expect("open");
    let base = q.drain(WaitingKeys::Drop, Instant::NEVER);
    assert!(q.core.drain_is_over(&base));
    let counts = q.core.drain_counts(&base);
    assert_eq!((counts.complete, counts.unfinished, counts.dropped, counts.done), (false, 1, 1, 0));
}

#[test]
fn users_a_limiter_that_is_asked_without_the_lock_counts_as_a_waiting_key() {
    let asked = |d, asking| Delay::Asked(d, Policy::Earliest, asking);
    // in peace
    let mut q = Q::new();
    let asking = q.on().ask(None).expect("open");
    assert_eq!(q.add(1, asked(SEC, asking)), Ok(Added::Waiting));
    // dropped by a shutdown, and counted as one
    let asking = q.on().ask(None).expect("open");
    assert_eq!(q.on().shut_down().dropped, 2);
    assert!(q.core.is_over(), "nobody waits for what was dropped");
    assert_eq!(q.add(2, asked(SEC, asking)), Ok(Added::Waiting));
    assert_eq!(q.counts(), [0; 5]);
    assert_eq!(q.on().ask(None).map(|_| ()), Err(Refused::ShutDown));
    // a drain that waits for waiting keys waits for it, and for its key
    let mut q = Q::new();
    let (one, two) = (q.on().ask(None).expect("open"), q.on().ask(None).expect("open"));
    let base = q.drain(WaitingKeys::Wait, Instant::NEVER);
    assert_eq!(q.core.drain_counts(&base).waiting, 2);
    assert!(!q.core.is_over());
    assert_eq!(q.add(1, asked(SEC, one)), Ok(Added::Waiting));
    assert!(q.core.unask(two), "its limiter panicked");
    q.pass(SEC);
    assert_eq!(q.work_off(), [1]);
    q.core.conclude();
    assert!(q.core.is_drained());
    // one that runs waiting keys now runs it now
    let mut q = Q::new();
    let asking = q.on().ask(None).expect("open");
    q.drain(WaitingKeys::RunNow, Instant::NEVER);
    assert!(!q.core.is_over());
    assert_eq!(q.add(1, asked(SEC, asking)), Ok(Added::Ready));
    assert_eq!(q.work_off(), [1]);
    assert!(q.core.is_drained());
}

#[test]
fn users_a_retry_whose_limiter_is_asked_survives_or_is_dropped() {
    let held = |q: &mut Q| {
        q.add(1, NOW).expect("open");
        q.get().run
    };
    let retry = |asking| How::Retry(RetryDelay::Asked(SEC, asking));
    let mut q = Q::new();
    let run = held(&mut q);
    let asking = q.on().ask(Some(&run)).expect("open");
    assert_eq!(q.end(run, retry(asking)).delay, SEC);
    q.pass(SEC);
    assert_eq!(q.get().attempt, 2);

    let mut q = Q::new();
    let run = held(&mut q);
    let asking = q.on().ask(Some(&run)).expect("open");
    assert_eq!(q.on().shut_down().dropped, 1);
    assert_eq!(q.end(run, retry(asking)).key, Some(1), "the run has ended");
    assert!(q.core.is_drained());

    let mut q = Q::new();
    let run = held(&mut q);
    let asking = q.on().ask(Some(&run)).expect("open");
    q.drain(WaitingKeys::RunNow, Instant::NEVER);
    let _ = q.end(run, retry(asking));
    assert_eq!(q.work_off(), [1]);

    // the run was ended by key while its limiter was asked
    let mut q = Q::new();
    let run = held(&mut q);
    let asking = q.on().ask(Some(&run)).expect("open");
    q.core.done(&1, 1).map(|_| ()).expect("held");
    let (run, refused) = q.core.end(run, retry(asking), None).map(|_| ()).expect_err("inert");
    assert_eq!(refused.reason, Refused::NotHeld);
    assert_eq!(q.on().ask(Some(&run)).map(|_| ()), Err(Refused::NotHeld));
    let _ = q.core.give_back(run);
    let base = q.drain(WaitingKeys::Wait, Instant::NEVER);
    assert!(q.core.is_drained(), "no asking is left over");
    assert_eq!(q.core.drain_counts(&base).refused, 0);
}

#[test]
fn m_durations_and_gauges() {
    let mut q = Q::with(Config { timestamps: true, ..Config::default() });
    assert!(q.core.time_matters());
    q.add(1, NOW).expect("open");
    q.add(2, after(2)).expect("open");
    q.pass(secs(3));
    q.add(3, NOW).expect("open");
    assert_eq!(q.core.state(&3, 3).map(|s| s.held_since), Some(None));
    q.pass(secs(1));
    let items = [q.get(), q.get(), q.get()];
    let waited = items.each_ref().map(|i| (*i.run.key(), i.waited));
    // a timer's wait begins at its due instant
    assert_eq!(waited, [(1, Some(secs(4))), (2, Some(secs(2))), (3, Some(secs(1)))]);
    assert_eq!(q.core.state(&1, 1).and_then(|s| s.held_since), Some(at(4)));
    q.pass(secs(5));
    q.add(4, NOW).expect("open");
    let four = q.get();
    q.add(2, NOW).expect("open");
    q.pass(secs(2));
    q.on();
    let g = q.core.gauges();
    assert_eq!((g.depth, g.unfinished_work, g.longest_running), (0, secs(7 + 7 + 7 + 2), secs(7)));
    let [one, two, three] = items;
    assert_eq!(q.end(two.run, How::Done).worked, Some(secs(7)), "out of the middle");
    let g = q.core.gauges();
    assert_eq!((g.depth, g.unfinished_work, g.longest_running), (1, secs(7 + 7 + 2), secs(7)));
    let _ = q.end(one.run, How::Done);
    let _ = q.end(three.run, How::Done);
    assert_eq!(q.core.gauges().longest_running, secs(2));
    let two = q.get();
    assert_eq!(two.waited, Some(secs(2)), "a dirty key's wait includes the run it waited for");
    let _ = q.end(two.run, How::Done);
    let _ = q.end(four.run, How::Done);
    let g = q.core.gauges();
    assert_eq!((g.depth, g.unfinished_work, g.longest_running), (0, Duration::ZERO, Duration::ZERO));
    assert_eq!(q.core.take_counts().adds, 5);
}

#[test]
fn m_without_timestamps_nothing_is_timed_until_a_timer_is() {
    let mut q = Q::new();
    q.add(1, NOW).expect("open");
    assert!(!q.core.time_matters());
    q.add(1, after(1)).expect("open");
    assert!(q.core.time_matters());
    assert_eq!(q.core.gauges().depth, 1);
    assert_eq!(q.core.gauges().unfinished_work, Duration::ZERO);
}

/// Calls to an order: `+` pushed, `=` touched.
type Heard = Arc<Mutex<Vec<(char, u32)>>>;

/// First in, first out, unless it is told to misbehave.
#[derive(Default)]
struct Told {
    heard: Heard,
    line: VecDeque<Ticket>,
    loses: bool,
    repeats: bool,
}

impl ReadyOrder<u32> for Told {
    fn push(&mut self, key: &u32, ticket: Ticket) {
        self.heard.lock().expect("no panic").push(('+', *key));
        if !self.loses {
            self.line.push_back(ticket);
        }
    }
    fn touch(&mut self, key: &u32, _: Ticket) {
        self.heard.lock().expect("no panic").push(('=', *key));
    }
    fn pop(&mut self) -> Option<Ticket> {
        if self.repeats { self.line.front().copied() } else { self.line.pop_front() }
    }
}

fn with_order(order: Told) -> Q {
    Q::with(Config { order: Order::Custom(Box::new(order)), ..Config::default() })
}

#[test]
fn b10_a_users_order_hears_each_key_once_and_in_order() {
    let heard = Heard::default();
    let mut q = with_order(Told { heard: heard.clone(), ..Told::default() });
    q.add(1, after(1)).expect("open");
    q.add(2, NOW).expect("open");
    q.add(2, NOW).expect("open");
    q.pass(SEC);
    q.on();
    assert_eq!(heard.lock().expect("no panic").len(), 2, "time that passes calls no users' code");
    q.add(3, NOW).expect("open");
    q.add(1, NOW).expect("open");
    assert_eq!(*heard.lock().expect("no panic"), [('+', 2), ('=', 2), ('+', 1), ('+', 3), ('=', 1)]);
    assert_eq!(q.work_off(), [2, 1, 3]);
    q.add(1, NOW).expect("open");
    let item = q.get();
    q.add(1, NOW).expect("open");
    let _ = q.end(item.run, How::Done);
    assert_eq!(q.work_off(), [1]);
}

#[test]
fn b10_an_order_that_loses_or_repeats_keys_changes_the_order_and_nothing_else() {
    for (loses, repeats) in [(true, false), (false, true), (true, true)] {
        let mut q = with_order(Told { loses, repeats, ..Told::default() });
        for key in [3, 1, 2] {
            q.add(key, NOW).expect("open");
        }
        let mut keys = q.work_off();
        keys.sort_unstable();
        assert_eq!(keys, [1, 2, 3], "loses {loses}, repeats {repeats}");
        assert_eq!(q.counts(), [0; 5]);
    }
}

#[test]
fn users_code_that_panics_leaves_the_key_unaccepted_and_the_machine_sound() {
    struct Panics(Arc<Mutex<bool>>);
    impl ReadyOrder<u32> for Panics {
        fn push(&mut self, _: &u32, _: Ticket) {
            let panics = *self.0.lock().expect("not poisoned");
            assert!(!panics, "as told");
        }
        fn pop(&mut self) -> Option<Ticket> {
            None
        }
    }
    let panics = Arc::new(Mutex::new(true));
    let mut q =
        Q::with(Config { order: Order::Custom(Box::new(Panics(panics.clone()))), ..Config::default() });
    let caught = catch_unwind(AssertUnwindSafe(|| q.add_value(1, Some(vec![1]), NOW)));
    assert!(caught.is_err());
    assert_eq!(q.counts(), [0; 5]);
    assert_eq!(q.core.take_trash(), [(Some(1), None)]);
    *panics.lock().expect("not poisoned") = false;
    q.add(2, NOW).expect("open");
    assert_eq!(q.work_off(), [2]);
}

#[test]
fn users_a_merge_that_panics_leaves_what_it_left_and_the_run_ends() {
    let merge = Box::new(|old: &mut Vec<u32>, new: Vec<u32>| {
        old.push(0);
        assert!(new != [13], "as told");
        old.extend(new);
    });
    let mut q = Q { core: Core::new(Config { merge: Some(merge), ..Config::default() }), now: at(0) };
    q.add_value(1, Some(vec![1]), NOW).expect("open");
    let caught = catch_unwind(AssertUnwindSafe(|| q.add_value(1, Some(vec![13]), NOW)));
    assert!(caught.is_err());
    let item = q.get();
    assert_eq!(item.value, Some(vec![1, 0]));
    q.add_value(1, Some(vec![13]), NOW).expect("the slot was empty");
    let caught = catch_unwind(AssertUnwindSafe(|| {
        q.on()
            .end(item.run, How::Retry(RetryDelay::Limited(limit(&doubling), None)), Some(vec![1]))
            .map(|_| ())
    }));
    assert!(caught.is_err());
    assert_eq!(q.counts(), [1, 0, 0, 1, 1]);
    assert_eq!(q.get().value, Some(vec![1, 0]));
}

#[test]
fn q13_a_burst_comes_and_goes() {
    let n = if cfg!(miri) { 1_000 } else { 50_000u32 };
    let mut q = Q::with(Config { timestamps: true, ..Config::default() });
    for round in 0..2 {
        for key in 0..n {
            // spread as a hasher would
            let hash = key.wrapping_mul(0x9e37_79b9);
            let delay = if key % 2 == round { NOW } else { after(1) };
            q.on().add(&mut Trigger::new(key, Some(vec![key])), hash, delay).map(|_| ()).expect("open");
        }
        assert_eq!(q.counts()[4], n as usize);
        q.pass(SEC);
        let mut seen = 0;
        while let Got::Item(item) = q.on().get() {
            assert_eq!(item.value, Some(vec![*item.run.key()]));
            let _ = q.end(item.run, How::Done);
            seen += 1;
        }
        assert_eq!(seen, n);
        assert_eq!(q.counts(), [0; 5]);
    }
}

#[test]
fn debug_forms_say_something_without_asking_it_of_keys() {
    struct Opaque;
    let core = Core::<Opaque, Opaque>::new(Config::default());
    assert!(format!("{core:?}").contains("Open"));
    assert!(format!("{:?}", Config::<Opaque, Opaque>::default()).contains("Fifo"));
    assert!(format!("{:?}", limit(&doubling)).contains("counts"));
    assert_eq!(format!("{:?}", Order::<Opaque>::Lifo), "Lifo");
    let mut q = with_order(Told::default());
    q.add(1, NOW).expect("open");
    assert!(format!("{:?}", q.get().run).contains("slot"));
    assert_eq!(Refused::ShutDown.to_string(), "the queue is shut down and accepts no more keys");
    assert!(Refused::NotHeld.to_string().contains("already ended"));
    assert!(q.core.done(&9, 9).map(|_| ()).expect_err("unknown").to_string().contains("not held"));
}

#[test]
fn users_a_limiter_that_was_asked_before_a_shutdown_counts_neither_then_nor_later() {
    let mut q = Q::new();
    q.add(1, NOW).expect("open");
    q.add(2, NOW).expect("open");
    let (run, other) = (q.get().run, q.get().run);
    let trigger = q.on().ask(None).expect("open");
    let retry = q.on().ask(Some(&run)).expect("open");
    assert_eq!(q.on().shut_down().dropped, 2);
    let base = q.drain(WaitingKeys::Wait, Instant::NEVER);
    assert_eq!(q.core.ask(Some(&other)).err(), Some(Refused::ShutDown));
    assert_eq!(q.core.drain_counts(&base).waiting, 0);
    assert!(!q.core.unask(trigger));
    assert_eq!(q.core.drain_counts(&base).waiting, 0);
    let retry = How::Retry(RetryDelay::Asked(SEC, retry));
    assert_eq!(q.end(run, retry).key, None, "the run has ended, and its retry is gone");
    assert_eq!(q.core.unfinished(), 1, "it is in the list");
    let _ = q.end(other, How::Done);
    q.core.conclude();
    assert!(q.core.is_drained());
    assert_eq!(q.core.drain_counts(&base).waiting, 0);
}
