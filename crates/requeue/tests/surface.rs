//! Public items other than the calls of the queue: numbers of runs, clones, boxed parts.

#![cfg(not(requeue_loom))]

use requeue::{
    Add, Clock, FakeClock, Fence, GroupRules, Instant, Metrics, Outcome, RunEnd, WorkQueue, Worker,
};
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};

#[test]
fn q3_each_run_has_a_larger_fence_than_those_before_it_also_over_restarts() {
    let since_epoch = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let mut last = Fence(0);
    for _ in 0..3 {
        let before = since_epoch().as_nanos();
        let q = WorkQueue::new();
        for key in ["a", "b", "a"] {
            q.add(key).expect("open");
            let item = q.try_get().expect("ready");
            assert!(item.fence() > last, "{} after {last}", item.fence());
            assert!(u128::from(item.fence().0) >= before, "as the numbers of the next process will be");
            last = item.fence();
            let owned = item.into_owned();
            assert_eq!(owned.fence(), last, "one run has one number");
            owned.put_back();
            let again = q.try_get().expect("it was put back");
            assert!(again.fence() > last);
            last = again.fence();
        }
        // a queue hands out far fewer runs than nanoseconds pass
        assert!(u128::from(last.0) <= since_epoch().as_nanos());
    }
}

#[test]
fn q3_a_worker_tells_the_fence_of_its_run() {
    let q = WorkQueue::new();
    q.add("a").expect("open");
    let first = q.try_get().expect("ready").fence();
    let (tell, told) = mpsc::channel();
    let worker =
        Worker::of(&q).workers(1).start_threads(move |run| Ok(tell.send(run.fence())?)).expect("a thread");
    q.add("a").expect("open");
    let second = told.recv().expect("a run");
    q.add("b").expect("open");
    assert!(first < second && second < told.recv().expect("a run"));
    drop(worker);
}

#[derive(Default)]
struct Counts {
    added: AtomicUsize,
    ended: AtomicUsize,
}

impl Metrics for Counts {
    fn added(&self, keys: u64) {
        self.added.fetch_add(usize::try_from(keys).unwrap(), Relaxed);
    }
    fn run_ended(&self, _: Duration, _: RunEnd) {
        self.ended.fetch_add(1, Relaxed);
    }
}

#[test]
fn q12_a_run_that_its_holder_puts_back_counts_as_neither_done_nor_add() {
    let counts = Arc::new(Counts::default());
    let sink: Box<dyn Metrics> = Box::new(counts.clone());
    let q = WorkQueue::builder().name("q").metrics(sink).build().expect("a queue");
    q.add("a").expect("open");
    q.try_get().expect("ready").put_back();
    assert_eq!((counts.added.load(Relaxed), counts.ended.load(Relaxed)), (1, 0));
    q.try_get().expect("put back").done();
    assert_eq!((counts.added.load(Relaxed), counts.ended.load(Relaxed)), (1, 1));
}

#[test]
fn d10_a_boxed_clock_is_a_clock() {
    let time = FakeClock::new();
    let clock: Box<dyn Clock> = Box::new(time.clone());
    let q = WorkQueue::builder().clock(clock).build().expect("a queue");
    q.add_after("a", Duration::from_secs(1)).expect("open");
    time.set(Instant::from_nanos(1_000_000_000));
    assert_eq!(*q.try_get().expect("due").key(), "a");
}

#[test]
fn b9_a_trigger_and_rules_of_groups_can_be_cloned() {
    let q = WorkQueue::merging(|old: &mut u32, new| *old += new).build().expect("a queue");
    let add = Add::after(Duration::ZERO).value(2);
    q.add_with("a", add.clone()).expect("open");
    q.add_with("a", add).expect("open");
    assert_eq!(q.try_get().expect("ready").value(), Some(&4));

    let rules = GroupRules::new().cap(1);
    for rules in [rules.clone(), rules] {
        let q = WorkQueue::builder().group_by_with(|key: &u32| key / 10, rules).build().expect("a queue");
        q.add_many([1, 2, 11]).all().expect("open");
        let (one, eleven) = (q.try_get().expect("ready"), q.try_get().expect("ready"));
        assert_eq!((*one.key(), *eleven.key()), (1, 11));
    }
}

#[derive(Debug)]
struct Outer(std::num::ParseIntError);

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("outer")
    }
}

impl Error for Outer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn w_the_clone_of_an_outcome_keeps_the_texts_of_its_error_and_of_the_sources() {
    let error = || Box::new(Outer("x".parse::<u32>().unwrap_err()));
    let minute = Duration::from_secs(60);
    for outcome in [
        Outcome::Retry(error()),
        Outcome::RetryAfter(minute, error()),
        Outcome::GiveUp(error()),
        Outcome::Again(minute),
        Outcome::Done,
    ] {
        let clone = outcome.clone();
        assert_eq!(format!("{clone:?}"), format!("{outcome:?}"));
        if let Outcome::Retry(error) | Outcome::RetryAfter(_, error) | Outcome::GiveUp(error) = clone {
            let source = error.source().expect("the source comes along").to_string();
            assert_eq!(
                (error.to_string().as_str(), source.as_str()),
                ("outer", "invalid digit found in string")
            );
        }
    }
}
