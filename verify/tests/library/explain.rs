//! B7: explanations of a key's state, in words.

use requeue::{
    Add, Debounce, DrainOptions, FakeClock, GroupRules, InBackoff, Instant, Order, Paused, RateLimiter, Run,
    Scope, WaitingKeys, WorkQueue, Worker, limiter,
};
use requeue_verify::limits::Metered;
use requeue_verify::wake::poll_once;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn b7_explain_tells_why_a_key_runs_or_does_not_in_words() {
    let clock = FakeClock::new();
    let q = WorkQueue::<u64>::builder()
        .clock(clock.clone())
        .limiter(limiter::default_per_item())
        .build()
        .unwrap();
    let says = |words: &str| assert_eq!(q.explain(&1).to_string(), words);
    says("unknown: it has no pending work");
    q.add_after(1, ms(4_200)).unwrap();
    says("waiting: due in 4.2 s");
    q.add(1).unwrap();
    says("ready, next in line; due again in 4.2 s");
    let item = q.try_get().unwrap();
    says("held; due again in 4.2 s");
    q.add(1).unwrap();
    says("held; dirty; due again in 4.2 s");
    drop(item);
    clock.advance(ms(4_200));
    says("ready, next in line");
    for _ in 0..3 {
        clock.advance(ms(10));
        q.try_get().unwrap().retry().unwrap();
    }
    says("backing off: 3 failures, due in 4 ms");
    clock.advance(ms(4));
    says("ready, next in line: 3 failures");
    let item = q.try_get().unwrap();
    says("held: 3 failures");
    item.done();
    says("idle: 3 failures");
    q.forget(&1);
    says("unknown: it has no pending work");
    q.add_after(1, Duration::MAX).unwrap();
    says("waiting: due never");
}

#[test]
fn b7_state_and_explain_tell_what_becomes_of_triggers_in_a_back_off() {
    let q = WorkQueue::<u64>::builder().clock(FakeClock::new()).build().unwrap();
    let says = |words: &str| assert_eq!(q.explain(&1).to_string(), words);
    let state = || q.state(&1).map(|state| (state.backing_off, state.if_it_fails)).unwrap();
    let add = |in_backoff| q.add_with(1, Add::now().in_backoff(in_backoff)).unwrap();
    q.add(1).unwrap();
    assert_eq!(state(), (false, InBackoff::Run));
    let item = q.try_get().unwrap();
    add(InBackoff::Respect);
    assert_eq!(state(), (false, InBackoff::Respect));
    says("held; dirty, and backs off if its run fails");
    item.retry_after(ms(100)).unwrap();
    assert_eq!(state(), (true, InBackoff::Run));
    says("backing off: 1 failure, due in 100 ms");
    add(InBackoff::Run);
    assert_eq!(state(), (false, InBackoff::Run));
    let item = q.try_get().unwrap();
    add(InBackoff::Reset);
    assert_eq!(state(), (false, InBackoff::Reset));
    says("held; dirty, and starts afresh if its run fails; due again in 100 ms");
    item.done();
    assert_eq!(state(), (false, InBackoff::Run));
}

#[test]
fn b7_explain_tells_for_how_long_a_key_is_held_where_timestamps_are_kept() {
    let clock = FakeClock::new();
    let metrics = Metered::new();
    let q = WorkQueue::<u64>::builder()
        .clock(clock.clone())
        .name("q")
        .metrics(Arc::clone(&metrics))
        .build()
        .unwrap();
    q.add(1).unwrap();
    let _item = q.try_get().unwrap();
    clock.advance(ms(12_000));
    q.add(1).unwrap();
    let said = q.explain(&1);
    assert_eq!(said.to_string(), "held for 12 s; dirty");
    assert_eq!((said.held_for, said.due_in), (Some(ms(12_000)), None));
}

#[test]
fn b7_explain_counts_failures_in_a_row_where_the_users_limiter_counts() {
    struct Fixed;
    impl<K: ?Sized> RateLimiter<K> for Fixed {
        fn when(&self, _: &K, _: Instant) -> Duration {
            ms(5)
        }
        fn forget(&self, _: &K) {}
        fn num_requeues(&self, _: &K) -> u32 {
            0
        }
    }
    let q = WorkQueue::<u64>::builder().clock(FakeClock::new()).limiter(Fixed).build().unwrap();
    q.add(1).unwrap();
    q.try_get().unwrap().retry().unwrap();
    assert_eq!(q.explain(&1).to_string(), "backing off: 1 failure, due in 5 ms");
}

#[test]
fn b7_explain_says_that_the_queue_takes_no_more_triggers() {
    let q = WorkQueue::<u64>::builder().clock(FakeClock::new()).build().unwrap();
    q.add_after(1, ms(5)).unwrap();
    let _drain = q.drain(DrainOptions::default().waiting_keys(WaitingKeys::Wait));
    assert_eq!(q.explain(&1).to_string(), "waiting: due in 5 ms; the queue takes no more triggers");
    q.shut_down();
    let said = q.explain(&1);
    assert_eq!(said.to_string(), "unknown: it has no pending work; the queue takes no more triggers");
    assert!(said.state.is_none() && said.shutting_down);
}

#[test]
fn b7_explain_tells_the_place_in_line_and_the_priority() {
    let says = |q: &WorkQueue<u64>, key, words: &str| assert_eq!(q.explain(&key).to_string(), words);
    let builder = || WorkQueue::<u64>::builder().clock(FakeClock::new());
    let q = builder().build().unwrap();
    q.add_many([1, 2, 3]).all().unwrap();
    says(&q, 1, "ready, next in line");
    says(&q, 2, "ready, behind 1 key");
    says(&q, 3, "ready, behind 2 keys");
    let q = builder().order(Order::Lifo).build().unwrap();
    q.add_many([1, 2, 3]).all().unwrap();
    says(&q, 1, "ready, behind 2 keys");
    says(&q, 3, "ready, next in line");
    let q = builder().priorities().build().unwrap();
    for (key, priority) in [(1, -100), (2, 5), (3, 5), (4, 0)] {
        q.add_with(key, Add::now().priority(priority)).unwrap();
    }
    says(&q, 1, "ready with priority -100, behind 3 keys");
    says(&q, 3, "ready with priority 5, behind 1 key");
    says(&q, 4, "ready, behind 2 keys");
    q.add_with(1, Add::now().priority(5)).unwrap();
    says(&q, 1, "ready with priority 5, next in line");
    let item = q.try_get().unwrap();
    assert_eq!(*item.key(), 1);
    says(&q, 1, "held with priority 5");
    q.add_with(1, Add::now().priority(7)).unwrap();
    says(&q, 1, "held with priority 7; dirty");
    q.add_with(9, Add::after(ms(5)).priority(3)).unwrap();
    says(&q, 9, "waiting with priority 3: due in 5 ms");
}

#[test]
fn b7_explain_counts_no_further_than_it_may_under_the_lock() {
    let q = WorkQueue::<u64>::builder().clock(FakeClock::new()).build().unwrap();
    let keys = 500_000;
    q.add_many(0..keys).all().unwrap();
    for (key, ahead) in [(0, 0), (60_000, 60_000), (keys - 60_000, keys - 60_000), (keys - 1, keys - 1)] {
        let said = q.explain(&key);
        assert_eq!(
            (said.ahead, said.ahead_is_exact),
            (Some(ahead as usize), true),
            "near an end it is exact"
        );
    }
    let said = q.explain(&250_000);
    let keys = said.ahead.unwrap();
    assert!(!said.ahead_is_exact && (60_000..=250_000).contains(&keys), "{said:?}");
    assert_eq!(said.to_string(), format!("ready, behind {keys} keys or more"));
}

#[test]
fn b7_state_and_explain_tell_what_is_paused() {
    let q = WorkQueue::<u64>::builder().clock(FakeClock::new()).build().unwrap();
    let says = |key, words: &str| assert_eq!(q.explain(&key).to_string(), words);
    let paused = |key| q.state(&key).and_then(|state| state.paused);
    q.add_many([1, 2]).all().unwrap();
    q.pause(Scope::Key(2));
    q.pause(Scope::Key(3));
    says(1, "ready, next in line");
    says(2, "ready; paused");
    says(3, "idle; paused");
    assert_eq!((paused(1), paused(2), paused(3)), (None, Some(Paused::Key), Some(Paused::Key)));
    assert_eq!(q.stats().paused, 2);
    q.pause(Scope::Queue);
    says(1, "ready, next in line; the queue is paused");
    says(2, "ready; paused");
    says(4, "unknown: it has no pending work");
    assert_eq!((paused(1), paused(2)), (Some(Paused::Queue), Some(Paused::Key)));
    q.add_after(1, ms(5)).unwrap();
    says(1, "ready, next in line; due again in 5 ms; the queue is paused");
    q.resume(Scope::Queue);
    q.resume(Scope::Key(&2));
    q.resume(Scope::Key(&3));
    says(2, "ready, behind 1 key");
    says(3, "unknown: it has no pending work");
    assert_eq!(q.stats().paused, 0);
}

#[test]
fn b7_explain_tells_that_a_key_waits_for_the_cap_of_its_group() {
    let rules = GroupRules::new().cap(1);
    let tens = |key: &u64| key / 10;
    let q = WorkQueue::<u64>::builder().group_by_with(tens, rules).build().unwrap();
    q.add_many([11, 12, 21]).all().unwrap();
    let eleven = q.try_get().unwrap();
    let full = "; its group has as many keys held as it may";
    for (key, said) in [(11, "held"), (12, &*format!("ready{full}")), (21, "ready")] {
        assert_eq!(q.explain(&key).to_string(), said);
    }
    assert!(q.state(&12).is_some_and(|state| state.group_is_full));
    eleven.done();
    assert_eq!(q.explain(&12).to_string(), "ready");
}

#[test]
fn b6_explain_tells_when_the_rate_lets_the_next_key_go() {
    let clock = FakeClock::new();
    let q = WorkQueue::<u64>::builder().clock(clock.clone()).rate(10.0, 1).build().unwrap();
    q.add_many([1, 2]).all().unwrap();
    assert_eq!(q.explain(&1).to_string(), "ready, next in line");
    let item = q.try_get().unwrap();
    clock.advance(ms(40));
    assert_eq!(q.explain(&2).to_string(), "ready, next in line; the rate admits a key in 60 ms");
    assert_eq!(q.explain(&1).to_string(), "held", "it is none of its business");
    q.pause(Scope::Queue);
    assert_eq!(q.explain(&2).to_string(), "ready, next in line; the queue is paused");
    drop(item);
}

#[test]
fn b7_explain_tells_that_a_key_waits_for_the_end_of_its_debounce_window() {
    let clock = FakeClock::new();
    let q = WorkQueue::<u64>::builder().clock(clock.clone()).debounce(Debounce::new(ms(40))).build().unwrap();
    let says = |words: &str| assert_eq!(q.explain(&1).to_string(), words);
    q.add(1).unwrap();
    says("waiting: due in 40 ms, when its debounce window ends");
    q.add_after(1, ms(30)).unwrap();
    says("waiting: due in 30 ms; its debounce window ends in 40 ms");
    clock.advance(ms(30));
    says("ready, next in line");
    let item = q.try_get().unwrap();
    q.add(1).unwrap();
    says("held; due again in 40 ms, when its debounce window ends");
    item.done();
}

#[test]
fn b7_explain_tells_that_a_leading_run_has_left_its_debounce_window_open() {
    let clock = FakeClock::new();
    let debounce = Debounce::new(ms(40)).leading();
    let q = WorkQueue::<u64>::builder().clock(clock.clone()).debounce(debounce).build().unwrap();
    let says = |words: &str| assert_eq!(q.explain(&1).to_string(), words);
    q.add(1).unwrap();
    q.try_get().unwrap().done();
    clock.advance(ms(10));
    says("idle; a trigger would wait for its debounce window, which ends in 30 ms");
    assert!(q.state(&1).is_some_and(|state| state.quiet_until == state.waiting_until));
    q.add(1).unwrap();
    says("waiting: due in 40 ms, when its debounce window ends");
    assert!(q.state(&1).is_some_and(|state| state.quiet_until.is_none()));
}

#[test]
fn b7_explain_tells_that_triggers_wait_for_room_and_are_not_accepted_yet() {
    let q = WorkQueue::<u64>::builder().clock(FakeClock::new()).bound(1).build().unwrap();
    q.add(1).unwrap();
    let unknown = "unknown: it has no pending work";
    assert_eq!(q.explain(&2).to_string(), unknown);
    let mut adding = [2, 3].map(|key| Box::pin(q.add_when_room(key, Add::now())));
    assert!(poll_once(&mut adding[0]).is_pending());
    let said = format!("{unknown}; a trigger waits for room, and is not accepted yet");
    assert_eq!(q.explain(&2).to_string(), said);
    assert!(poll_once(&mut adding[1]).is_pending());
    let said = format!("{unknown}; 2 triggers wait for room, and are not accepted yet");
    assert_eq!(q.explain(&3).to_string(), said);
    assert_eq!(q.explain(&1).to_string(), "ready, next in line", "it has its place");
    drop(adding);
    assert_eq!(q.explain(&2).to_string(), unknown);
}

#[test]
fn b7_explain_tells_which_worker_holds_a_key() {
    let q = WorkQueue::<u64>::builder().clock(FakeClock::new()).build().unwrap();
    let (began, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let goes = Mutex::new(goes);
    let worker = Worker::of(&q).workers(2).start_threads(move |run: Run<u64>| {
        began.send((*run.key(), run.worker())).unwrap();
        let _ = goes.lock().unwrap().recv();
    });
    let worker = worker.unwrap();
    q.add_many([1, 2]).all().unwrap();
    let mut workers: Vec<_> = (0..2).map(|_| begins.recv().unwrap()).collect();
    workers.sort_unstable();
    for (key, number) in &workers {
        let said = q.explain(key);
        assert_eq!(said.worker, Some(*number));
        assert_eq!(said.to_string(), format!("held by worker {number}"));
    }
    assert_eq!(workers[0].1 + workers[1].1, 3, "they are 1 and 2");
    q.pause(Scope::Queue);
    q.add(3).unwrap();
    assert_eq!(q.explain(&3).worker, None);
    drop(go);
    assert!(worker.drain(Duration::MAX).wait().complete);
    assert_eq!(q.explain(&1).worker, None);
}

#[test]
fn b7_explain_tells_which_task_holds_a_key_and_none_where_there_are_no_workers() {
    let q = WorkQueue::<u64>::builder().clock(FakeClock::new()).build().unwrap();
    q.add_many([1, 2]).all().unwrap();
    let item = q.try_get().unwrap();
    let run = Worker::of(&q).workers(1).run(|_: Run<u64>| std::future::pending::<()>()).unwrap();
    let mut run = Box::pin(run);
    assert!(poll_once(&mut run).is_pending());
    assert_eq!(q.explain(&2).to_string(), "held by worker 1");
    assert_eq!(q.explain(&1).to_string(), "held");
    drop(item);
}

#[test]
fn b7_explain_tells_that_the_group_of_the_key_is_paused() {
    let builder = WorkQueue::<u64>::builder().clock(FakeClock::new());
    let q = builder.group_by(|key| key / 10).build().unwrap();
    let says = |key: u64, words: &str| assert_eq!(q.explain(&key).to_string(), words);
    q.add_many([111, 121]).all().unwrap();
    q.pause(Scope::GroupOf(119));
    says(111, "ready; its group is paused");
    says(121, "ready");
    q.pause(Scope::GroupOf(120));
    says(121, "ready; its group is paused");
    assert_eq!(q.state(&121).and_then(|state| state.paused), Some(Paused::Group));
    q.pause(Scope::Key(111));
    q.pause(Scope::Queue);
    says(111, "ready; paused");
    says(121, "ready; its group is paused");
    says(130, "unknown: it has no pending work");
}

#[test]
fn b6_explain_tells_when_the_rate_of_a_group_lets_a_key_go() {
    let clock = FakeClock::new();
    let rules = GroupRules::new().rate(10.0, 1);
    let builder = WorkQueue::<u64>::builder().clock(clock.clone());
    let q = builder.group_by_with(|key| key / 10, rules).build().unwrap();
    let says = |key: u64, words: &str| assert_eq!(q.explain(&key).to_string(), words);
    q.add_many([11, 12, 21]).all().unwrap();
    says(12, "ready");
    let item = q.try_get().unwrap();
    clock.advance(ms(40));
    says(12, "ready; the rate of its group admits a key in 60 ms");
    says(21, "ready");
    assert!(q.state(&12).is_some_and(|state| state.group_token.is_some() && !state.group_is_full));
    clock.advance(ms(60));
    says(12, "ready");
    drop(item);
}
