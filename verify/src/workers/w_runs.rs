//! W: runs, their outcomes and attempts.

use super::{Front, led, ms, puppets, queue, queue_that, until, until_waiting};
use requeue::{
    Add, Alarm, Clock, Failure, FakeClock, Fate, InBackoff, Instant, Order, Outcome, RateLimiter, ReadyOrder,
    Run, RunReport, Ticket, WorkQueue, Worker,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

pub fn w_workers_take_keys_and_call_the_handler<F: Front>() {
    let (q, _clock) = queue();
    let (tell, ran) = channel();
    let worker = F::start(Worker::of(&q).workers(3), move |run: Run<u64, Vec<u32>>| {
        tell.send(*run.key()).expect("the test listens");
        async {}
    });
    for key in 0..100 {
        q.add(key).unwrap();
    }
    let report = F::report(worker.drain(Duration::MAX));
    let mut keys: Vec<u64> = ran.try_iter().collect();
    keys.sort_unstable();
    assert_eq!(keys, (0..100).collect::<Vec<_>>());
    assert_eq!((report.complete, report.ready), (true, 0));
}

pub fn w_n_workers_run_n_keys_at_once_and_no_more<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, handler) = puppets();
    for key in 0..12 {
        q.add(key).unwrap();
    }
    let worker = F::start(Worker::of(&q).workers(3), handler);
    for _ in 0..3 {
        // Three are in at once, or this waits for ever.
        let _ = puppets.next();
    }
    for _ in 3..12 {
        assert!(!puppets.has_more(), "a fourth");
        assert_eq!(q.stats().held, 3);
        puppets.end(Outcome::Done);
        let _ = puppets.next();
    }
    for _ in 0..3 {
        puppets.end(Outcome::Done);
    }
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 12);
}

pub fn b2_a_run_tells_its_priority_and_every_outcome_keeps_it<F: Front>() {
    let (q, clock) = {
        let clock = FakeClock::new();
        let merge = |old: &mut Vec<u32>, new: Vec<u32>| old.extend(new);
        let builder = WorkQueue::<u64, Vec<u32>>::merging(merge).clock(clock.clone()).priorities();
        (builder.limiter(requeue::limiter::default_per_item()).build().expect("a queue"), clock)
    };
    let (tell, ran) = channel();
    let outcomes = Arc::new(Mutex::new(vec![
        Outcome::Done,
        Outcome::Again(Duration::ZERO),
        Outcome::Again(ms(5)),
        Outcome::RetryAfter(Duration::ZERO, "not yet".into()),
        Outcome::Retry("not yet".into()),
    ]));
    for key in [1, 2] {
        q.add_with(key, Add::now().priority(-100 * key as i16)).unwrap();
    }
    let worker = F::start(Worker::of(&q).workers(1), move |run: Run<u64, Vec<u32>>| {
        tell.send((*run.key(), run.priority())).expect("the test listens");
        let outcome = match *run.key() {
            1 => outcomes.lock().unwrap().pop().unwrap_or(Outcome::Done),
            _ => Outcome::Done,
        };
        async { outcome }
    });
    let mut seen = Vec::new();
    while seen.len() < 6 {
        match ran.try_recv() {
            Ok(run) => seen.push(run),
            Err(_) => {
                clock.advance(ms(5));
                std::thread::yield_now();
            }
        }
    }
    assert!(F::report(worker.drain(Duration::MAX)).complete);
    seen.retain(|(key, _)| *key == 1);
    assert_eq!(seen, [(1, -100); 5]);
}

pub fn w_a_handler_may_call_the_queue<F: Front>() {
    let (q, _clock) = queue();
    let (tell, ran) = channel();
    let inner = q.clone();
    let worker = F::start(Worker::of(&q).workers(1), move |run: Run<u64, Vec<u32>>| {
        let (inner, tell) = (inner.clone(), tell.clone());
        async move {
            assert!(inner.state(run.key()).is_some_and(|state| state.held));
            if *run.key() < 3 {
                inner.add(run.key() + 1).unwrap();
            } else {
                inner.shut_down();
            }
            tell.send(*run.key()).unwrap();
        }
    });
    q.add(1).unwrap();
    worker.join();
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
}

pub fn w_no_workers_are_a_pause<F: Front>() {
    let (q, _clock) = queue();
    let worker = F::start(Worker::of(&q).workers(0), |_| async {});
    q.add(1).unwrap();
    let report = F::report(worker.stop(Duration::MAX));
    assert_eq!((report.done, report.ready, q.len()), (0, 1, 1));
    assert!(!q.shutting_down());
}

pub fn w_done_forgets_the_failures<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    q.add(1).unwrap();
    puppets.run(1, 1);
    puppets.end(Outcome::Retry("not yet".into()));
    clock.wait_for_alarms(1);
    assert_eq!(q.num_requeues(&1), 1);
    clock.advance(ms(1));
    puppets.run(1, 2);
    puppets.end(Outcome::Done);
    F::report(worker.drain(Duration::MAX));
    assert_eq!(q.num_requeues(&1), 0);
    assert_eq!(q.state(&1), None);
}

pub fn w_again_is_not_a_failure_it_forgets_and_comes_back_after_its_delay<F: Front>() {
    let (q, clock) = queue();
    let (puppets, handler) = puppets();
    let failures = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&failures);
    let builder = Worker::of(&q).workers(1).on_failure(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let worker = F::start(builder, handler);
    puppets.fail_once(&q, &clock);
    puppets.end(Outcome::Again(ms(50)));
    clock.wait_for_alarms(1);
    assert_eq!(q.num_requeues(&1), 0);
    assert_eq!(clock.next_alarm(), q.state(&1).and_then(|state| state.waiting_until));
    clock.advance(ms(50) - Duration::from_nanos(1));
    assert_eq!(q.len(), 0);
    clock.advance(Duration::from_nanos(1));
    puppets.run(1, 1);
    puppets.end(Outcome::Done);
    F::report(worker.drain(Duration::MAX));
    assert_eq!(failures.load(Ordering::SeqCst), 1);
}

pub fn w_retry_comes_back_after_what_the_limiter_says<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    q.add(1).unwrap();
    for (attempt, delay) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
        puppets.run(1, attempt);
        puppets.end(Outcome::Retry("not yet".into()));
        clock.wait_for_alarms(1);
        let due = clock_at(&clock) + ms(delay);
        assert_eq!(q.state(&1).and_then(|state| state.waiting_until), Some(due));
        clock.advance(ms(delay));
    }
    puppets.run(1, 5);
    puppets.end(Outcome::Done);
    F::report(worker.drain(Duration::MAX));
}

fn clock_at(clock: &FakeClock) -> Instant {
    Clock::now(clock)
}

pub fn w_retry_with_its_own_delay_still_asks_the_limiter<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    q.add(1).unwrap();
    puppets.run(1, 1);
    puppets.end(Outcome::RetryAfter(ms(70), "busy".into()));
    clock.wait_for_alarms(1);
    assert_eq!(q.num_requeues(&1), 1);
    assert_eq!(q.state(&1).and_then(|state| state.waiting_until), Some(clock_at(&clock) + ms(70)));
    clock.advance(ms(70));
    puppets.run(1, 2);
    puppets.end(Outcome::Done);
    F::report(worker.drain(Duration::MAX));
}

pub fn w_give_up_is_reported_and_forgotten<F: Front>() {
    let (q, clock) = queue();
    let (puppets, handler) = puppets();
    let (tell, gave_up) = channel();
    let builder =
        Worker::of(&q).workers(1).on_give_up(move |key, why| tell.send((*key, why.to_string())).unwrap());
    let worker = F::start(builder, handler);
    puppets.fail_once(&q, &clock);
    puppets.end(Outcome::GiveUp("no such object".into()));
    assert_eq!(gave_up.recv().unwrap(), (1, "no such object".to_owned()));
    F::report(worker.drain(Duration::MAX));
    assert_eq!(q.num_requeues(&1), 0);
    assert_eq!(q.state(&1), None);
}

pub fn w_give_up_of_a_dirty_key_still_gets_its_next_run_at_attempt_1<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    puppets.fail_once(&q, &clock);
    q.add(1).unwrap();
    puppets.end(Outcome::GiveUp("hopeless".into()));
    puppets.run(1, 1);
    puppets.end(Outcome::Done);
    F::report(worker.drain(Duration::MAX));
}

pub fn w_the_last_attempt_that_fails_gives_the_key_up<F: Front>() {
    let (q, clock) = queue();
    let (tell, ran) = channel();
    let (told, gave_up) = channel();
    let builder = Worker::of(&q)
        .workers(1)
        .max_attempts(3)
        .on_give_up(move |key, why| told.send((*key, why.to_string())).unwrap());
    let worker = F::start(builder, move |run: Run<u64, Vec<u32>>| {
        tell.send(run.attempt()).unwrap();
        async { Outcome::Retry("always".into()) }
    });
    q.add(1).unwrap();
    for delay in [1, 2] {
        ran.recv().unwrap();
        clock.wait_for_alarms(1);
        clock.advance(ms(delay));
    }
    assert_eq!(ran.recv().unwrap(), 3);
    assert_eq!(gave_up.recv().unwrap(), (1, "always".to_owned()));
    F::report(worker.drain(Duration::MAX));
    assert_eq!(q.num_requeues(&1), 0, "reported, and forgotten");
    assert_eq!(ran.try_iter().count(), 0);
}

pub fn x27_attempts_are_not_exhausted_for_a_key_that_a_newer_trigger_made_dirty<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1).max_attempts(2));
    puppets.fail_once(&q, &clock);
    q.add(1).unwrap();
    puppets.end(Outcome::Retry("not yet".into()));
    puppets.run(1, 1);
    puppets.end(Outcome::Done);
    F::report(worker.stop(Duration::MAX));
}

pub fn w_a_trigger_for_a_key_that_waits_out_a_failure_runs_now_at_attempt_1<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    q.add(1).unwrap();
    puppets.run(1, 1);
    puppets.end(Outcome::Retry("not yet".into()));
    clock.wait_for_alarms(1);
    q.add(1).unwrap();
    puppets.run(1, 1);
    assert_eq!(q.num_requeues(&1), 1, "it does not count as a failure");
    puppets.end(Outcome::Done);
    F::report(worker.stop(Duration::MAX));
}

fn retry<F: Front>(in_backoff: InBackoff, trigger: bool) -> (u32, Option<Duration>) {
    let (q, clock) = queue_that(in_backoff);
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1).max_attempts(2));
    q.add(1).unwrap();
    puppets.run(1, 1);
    if trigger {
        q.add(1).unwrap();
    }
    puppets.end(Outcome::Retry("not yet".into()));
    until_waiting(&q, &clock, 1);
    let found = (q.num_requeues(&1), q.explain(&1).due_in);
    clock.advance(ms(1));
    puppets.run(1, 2);
    puppets.end(Outcome::Done);
    F::report(worker.stop(Duration::MAX));
    found
}

pub fn b5_a_workers_own_outcome_is_no_trigger_and_its_handlers_echo_joins_it<F: Front>() {
    for (in_backoff, trigger) in
        [(InBackoff::Respect, false), (InBackoff::Reset, false), (InBackoff::Respect, true)]
    {
        assert_eq!(retry::<F>(in_backoff, trigger), (1, Some(ms(1))), "{in_backoff:?}");
    }
}

pub fn b5_attempts_of_a_worker_run_out_although_its_key_echoes_itself<F: Front>() {
    let (q, clock) = queue_that(InBackoff::Respect);
    let (puppets, handler) = puppets();
    let (tell, given_up) = channel();
    let builder = Worker::of(&q).workers(1).max_attempts(3).on_give_up(move |key, _| {
        tell.send(*key).unwrap();
    });
    let worker = F::start(builder, handler);
    q.add(1).unwrap();
    for attempt in 1..=2 {
        puppets.run(1, attempt);
        q.add(1).unwrap();
        puppets.end(Outcome::Retry("not yet".into()));
        until_waiting(&q, &clock, 1);
        clock.advance(ms(1 << (attempt - 1)));
    }
    puppets.run(1, 3);
    puppets.end(Outcome::Retry("never".into()));
    assert_eq!(given_up.recv().unwrap(), 1);
    F::report(worker.stop(Duration::MAX));
}

pub fn b5_a_reset_during_a_workers_failed_run_is_a_fresh_start<F: Front>() {
    let (q, _clock) = queue_that(InBackoff::Reset);
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1).max_attempts(2));
    q.add(1).unwrap();
    for _ in 0..5 {
        puppets.run(1, 1);
        q.add(1).unwrap();
        puppets.end(Outcome::RetryAfter(ms(1_000), "not yet".into()));
    }
    puppets.run(1, 1);
    assert_eq!((q.num_requeues(&1), q.stats().waiting), (0, 0));
    puppets.end(Outcome::Done);
    F::report(worker.stop(Duration::MAX));
}

pub fn w_a_panic_is_a_failure_of_that_key_and_ends_nothing_else<F: Front>() {
    let (q, clock) = queue();
    let (tell, failed) = channel();
    let (told, ran) = channel();
    let builder = Worker::of(&q).workers(1).on_failure(move |key, why| {
        assert!(matches!(why, Failure::Panic(_)));
        tell.send((*key, why.to_string())).unwrap();
    });
    let worker = F::start(builder, move |run: Run<u64, Vec<u32>>| {
        let told = told.clone();
        async move {
            smol::future::yield_now().await;
            told.send((*run.key(), run.attempt())).unwrap();
            assert!(*run.key() != 1 || run.attempt() > 1, "key 1 is not well");
        }
    });
    q.add(1).unwrap();
    q.add(2).unwrap();
    let (key, why) = failed.recv().unwrap();
    assert_eq!(key, 1);
    assert!(why.contains("key 1 is not well"), "{why}");
    assert_eq!((ran.recv().unwrap(), ran.recv().unwrap()), ((1, 1), (2, 1)), "the same worker goes on");
    clock.wait_for_alarms(1);
    assert_eq!(q.num_requeues(&1), 1);
    clock.advance(ms(1));
    assert_eq!(ran.recv().unwrap(), (1, 2));
    assert!(F::report(worker.drain(Duration::MAX)).complete);
}

pub fn w_a_panic_of_the_handler_before_it_gives_its_future_is_a_failure_too<F: Front>() {
    let (q, _clock) = queue();
    let (tell, failed) = channel();
    let builder = Worker::of(&q)
        .workers(1)
        .max_attempts(1)
        .on_failure(move |key, why| tell.send((*key, why.to_string())).unwrap());
    let worker = F::start(builder, |run: Run<u64, Vec<u32>>| {
        assert!(*run.key() != 1, "at once");
        async {}
    });
    q.add(1).unwrap();
    q.add(2).unwrap();
    assert_eq!(failed.recv().unwrap(), (1, "the handler panicked: at once".to_owned()));
    let report = F::report(worker.drain(Duration::MAX));
    assert_eq!((report.complete, report.done), (true, 2));
}

pub fn w_an_order_that_panics_as_a_key_is_taken_ends_no_worker<F: Front>() {
    /// Panics in its first three pops.
    struct Moody(Vec<Ticket>, u32);
    impl ReadyOrder<u64> for Moody {
        fn push(&mut self, _: &u64, ticket: Ticket) {
            self.0.push(ticket);
        }
        fn pop(&mut self) -> Option<Ticket> {
            self.1 += 1;
            assert!(self.1 > 3, "an order");
            self.0.pop()
        }
    }
    let q = WorkQueue::builder().order(Order::Custom(Box::new(Moody(Vec::new(), 0)))).build().unwrap();
    q.add(1).unwrap();
    q.add(2).unwrap();
    let worker = F::start(Worker::of(&q).workers(1), |_| async {});
    let report = F::report(worker.drain(Duration::MAX));
    assert_eq!((report.complete, report.done), (true, 2));
}

pub fn w_a_panic_in_a_hook_ends_nothing<F: Front>() {
    let (q, _clock) = queue();
    let (tell, ran) = channel();
    let builder = Worker::of(&q)
        .workers(1)
        .on_failure(|_, _| panic!("a hook"))
        .on_give_up(|_, _| panic!("another hook"));
    let worker = F::start(builder, move |run: Run<u64, Vec<u32>>| {
        tell.send(*run.key()).unwrap();
        async { Outcome::GiveUp("hopeless".into()) }
    });
    q.add(1).unwrap();
    q.add(2).unwrap();
    assert!(F::report(worker.drain(Duration::MAX)).complete);
    assert_eq!(ran.try_iter().collect::<Vec<_>>(), [1, 2]);
}

/// A clock that panics at the next reading, each time it is armed.
struct Jolted(FakeClock, Arc<AtomicBool>);

impl Clock for Jolted {
    fn now(&self) -> Instant {
        assert!(!self.1.swap(false, Ordering::SeqCst), "a clock");
        self.0.now()
    }
    fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm {
        self.0.wake_at(at, waker)
    }
    fn watch_at(&self, at: Instant, waker: &Waker) -> Alarm {
        self.0.watch_at(at, waker)
    }
}

pub fn w_a_clock_that_panics_as_a_run_begins_or_ends_loses_neither_key_nor_outcome<F: Front>() {
    let panics = Arc::new(AtomicBool::new(false));
    let q = WorkQueue::builder().clock(Jolted(FakeClock::new(), panics.clone())).build().unwrap();
    let (tell, failed) = channel();
    let builder = Worker::of(&q)
        .workers(1)
        .time_limit(ms(100))
        .max_attempts(1)
        .on_failure(move |key, why| tell.send((*key, why.to_string())).unwrap());
    let (tell, ran) = channel();
    let as_it_ends = panics.clone();
    let worker = F::start(builder, move |run: Run<u64>| {
        let (tell, panics) = (tell.clone(), as_it_ends.clone());
        async move {
            tell.send(*run.key()).unwrap();
            if *run.key() <= 2 {
                return Outcome::Done;
            }
            panics.store(*run.key() == 3, Ordering::SeqCst);
            Outcome::Retry("what it said".into())
        }
    });
    // nothing but the beginning of the run looks at this queue's clock
    panics.store(true, Ordering::SeqCst);
    q.add(1).unwrap();
    until(|| !panics.load(Ordering::SeqCst));
    q.add(2).unwrap();
    assert_eq!(ran.recv(), Ok(1), "its handler was not called");
    assert_eq!(ran.recv(), Ok(2));
    q.add(3).unwrap();
    q.add(4).unwrap();
    assert_eq!(failed.recv(), Ok((3, "what it said".to_owned())), "what its handler said was lost");
    assert!(F::report(worker.drain(Duration::MAX)).complete);
}

pub fn w_the_end_of_a_run_is_told_with_its_attempt_and_the_keys_fate<F: Front>() {
    let (q, clock) = queue();
    let (tell, told) = channel();
    let inner = q.clone();
    let hook = move |key: &u64, run: &RunReport<'_>| {
        // The run has ended, and the key can be read all the same.
        let held = inner.state(key).is_some_and(|state| state.held);
        tell.send((*key, run.attempt, run.failure.map(ToString::to_string), run.fate, held)).unwrap();
    };
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1).max_attempts(2).on_end(hook));
    let ends = |attempt, outcome| {
        puppets.run(1, attempt);
        puppets.end(outcome);
        told.recv().unwrap()
    };
    let no = || Some("no".to_owned());
    q.add(1).unwrap();
    assert_eq!(ends(1, Outcome::Again(ms(5))), (1, 1, None, Fate::Again(ms(5)), false));
    clock.advance(ms(5));
    assert_eq!(ends(1, Outcome::Retry("no".into())), (1, 1, no(), Fate::Retry(ms(1)), false));
    clock.advance(ms(1));
    assert_eq!(ends(2, Outcome::Retry("no".into())), (1, 2, no(), Fate::GaveUp, false));
    q.add(1).unwrap();
    assert_eq!(ends(1, Outcome::Done), (1, 1, None, Fate::Done, false));
    q.add(1).unwrap();
    puppets.run(1, 1);
    q.shut_down();
    puppets.end(Outcome::Retry("no".into()));
    assert_eq!(told.recv().unwrap(), (1, 1, no(), Fate::Refused, false));
    F::report(worker.stop(Duration::MAX));
}

pub fn w_the_end_of_each_run_is_told_once_whatever_the_way_and_how_long_it_took<F: Front>() {
    let (q, clock) = queue();
    let (tell, told) = channel();
    let hook = move |key: &u64, run: &RunReport<'_>| {
        tell.send((*key, run.failure.map(ToString::to_string), run.fate, run.took)).unwrap();
        // The last end of all is told although the hook has panicked at each before it.
        panic!("told");
    };
    let (puppets, handler) = puppets();
    let handler = move |run: Run<u64, Vec<u32>>| {
        let (key, held) = (*run.key(), handler(run));
        async move {
            let outcome = held.await;
            assert_ne!(key, 5, "five");
            outcome
        }
    };
    let worker = F::start(Worker::of(&q).workers(1).on_end(hook), handler);
    let no = || Some("no".to_owned());
    let five = Some("the handler panicked: assertion `left != right` failed: five\n  left: 5\n right: 5");
    let ends = [
        (1, Outcome::Done, None, Fate::Done),
        (2, Outcome::Again(ms(100)), None, Fate::Again(ms(100))),
        (3, Outcome::RetryAfter(ms(100), "no".into()), no(), Fate::Retry(ms(100))),
        (4, Outcome::GiveUp("no".into()), no(), Fate::GaveUp),
        (5, Outcome::Done, five.map(ToOwned::to_owned), Fate::Retry(ms(1))),
    ];
    for (key, outcome, failure, fate) in ends {
        q.add(key).unwrap();
        // Nobody else reads the clock before the run began.
        puppets.run(key, 1);
        clock.advance(ms(key));
        puppets.end(outcome);
        assert_eq!(told.recv().unwrap(), (key, failure, fate, ms(key)));
    }
    F::report(worker.stop(Duration::MAX));
    assert!(told.try_recv().is_err(), "each end was told once");
}

pub fn w_the_end_of_a_run_past_its_time_limit_is_told_when_its_handler_is_gone<F: Front>() {
    let (q, clock) = queue();
    let (tell, told) = channel();
    let hook = move |key: &u64, run: &RunReport<'_>| {
        tell.send((*key, run.failure.map(ToString::to_string), run.fate, run.took)).unwrap();
    };
    let (fail, failed) = channel();
    let builder = Worker::of(&q)
        .workers(1)
        .time_limit(ms(100))
        .on_end(hook)
        .on_failure(move |_, _| fail.send(()).unwrap());
    let (puppets, worker) = led::<F>(builder);
    q.add(1).unwrap();
    puppets.run(1, 1);
    clock.wait_for_alarms(1);
    clock.advance(ms(100));
    failed.recv().unwrap();
    if !F::DROPS {
        assert!(told.try_recv().is_err(), "it still runs");
        puppets.end(Outcome::Done);
    }
    let why = Some("the handler took longer than 100ms".to_owned());
    assert_eq!(told.recv().unwrap(), (1, why, Fate::Retry(ms(1)), ms(100)));
    F::report(worker.stop(Duration::MAX));
    assert!(told.try_recv().is_err(), "its end was told once");
}

/// A limiter that counts. It panics at its third call, and, if it is armed, in `forget`.
struct Faulty(Mutex<u32>, bool);

impl RateLimiter<u64> for Faulty {
    fn when(&self, _: &u64, _: Instant) -> Duration {
        let asked = {
            let mut asked = self.0.lock().unwrap();
            *asked += 1;
            *asked
        };
        assert_ne!(asked, 3, "three");
        ms(1)
    }
    fn forget(&self, _: &u64) {
        *self.0.lock().unwrap() = 0;
        assert!(!self.1, "forgotten all the same");
    }
    fn num_requeues(&self, _: &u64) -> u32 {
        *self.0.lock().unwrap()
    }
}

pub fn w_a_key_that_is_given_up_because_the_limiter_panicked_is_forgotten<F: Front>() {
    // With the hook the key is read after the end of its run.
    for (hooked, forgets_with_a_panic) in [(false, false), (false, true), (true, false), (true, true)] {
        let clock = FakeClock::new();
        let limiter = Faulty(Mutex::new(0), forgets_with_a_panic);
        let q = WorkQueue::<u64>::builder().clock(clock.clone()).limiter(limiter).build().unwrap();
        let (tell, gave_up) = channel();
        let (tell_fate, fates) = channel();
        let mut builder =
            Worker::of(&q).workers(1).on_give_up(move |key, why| tell.send((*key, why.to_string())).unwrap());
        if hooked {
            builder = builder.on_end(move |_, run: &RunReport<'_>| tell_fate.send(run.fate).unwrap());
        }
        let worker = F::start(builder, |_| async { Outcome::Retry("no".into()) });
        q.add(1).unwrap();
        for _ in 0..2 {
            clock.wait_for_alarms(1);
            clock.advance(ms(1));
        }
        let (key, why) = gave_up.recv().unwrap();
        assert!(key == 1 && why.starts_with("the limiter panicked: ") && why.contains("three"), "{why}");
        until(|| q.state(&1).is_none());
        assert_eq!(q.num_requeues(&1), 0);
        let report = F::report(worker.stop(Duration::MAX));
        assert_eq!((report.complete, report.done), (true, 3));
        if hooked {
            let fates: Vec<Fate> = fates.try_iter().collect();
            assert_eq!(fates, [Fate::Retry(ms(1)), Fate::Retry(ms(1)), Fate::GaveUp]);
        }
        assert!(gave_up.try_recv().is_err(), "reported once");
    }
}

pub fn w_a_retry_in_which_merge_panics_is_a_retry_and_no_giving_up<F: Front>() {
    for hooked in [false, true] {
        let clock = FakeClock::new();
        let q = WorkQueue::merging(|_: &mut u32, new: u32| assert_ne!(new, 13, "merge"))
            .clock(clock.clone())
            .limiter(requeue::limiter::default_per_item())
            .build()
            .unwrap();
        let (tell, gave_up) = channel();
        let (tell_fate, fates) = channel();
        let mut builder = Worker::of(&q)
            .workers(1)
            .on_give_up(move |key: &u64, why| tell.send((*key, why.to_string())).unwrap());
        if hooked {
            builder = builder.on_end(move |_, run: &RunReport<'_>| tell_fate.send(run.fate).unwrap());
        }
        let (inner, (began, runs)) = (q.clone(), channel());
        let fails = AtomicBool::new(true);
        let worker = F::start(builder, move |run: Run<u64, u32>| {
            began.send(*run.key()).unwrap();
            let outcome = if fails.swap(false, Ordering::SeqCst) {
                // A value that comes meanwhile is merged with the one that the retry puts back.
                inner.add_value(1, 13).unwrap();
                Outcome::Retry("no".into())
            } else {
                Outcome::Done
            };
            async move { outcome }
        });
        q.add_value(1, 7).unwrap();
        assert_eq!((runs.recv().unwrap(), runs.recv().unwrap()), (1, 1), "the key comes back");
        let report = F::report(worker.drain(Duration::MAX));
        assert_eq!((report.unfinished, report.held), (1, 0), "it waits out its failure");
        let left = Failure::TimerDropped.to_string();
        assert!(gave_up.try_iter().eq([(1, left)]), "it was not given up before the drain dropped its timer");
        if hooked {
            assert_eq!(fates.try_iter().next(), Some(Fate::Retry(ms(1))));
        }
    }
}

pub fn w_payloads_of_failed_runs_go_back<F: Front>() {
    let (q, clock) = queue();
    let (tell, ran) = channel();
    let worker = F::start(Worker::of(&q).workers(1), move |mut run: Run<u64, Vec<u32>>| {
        let tell = tell.clone();
        async move {
            tell.send((run.attempt(), run.value().cloned())).unwrap();
            smol::future::yield_now().await;
            match run.attempt() {
                1 => Outcome::Retry("not yet".into()),
                2 => panic!("not yet"),
                3 => {
                    drop(run.take_value());
                    Outcome::Retry("with what it took".into())
                }
                _ => Outcome::Done,
            }
        }
    });
    q.add_value(1, vec![7]).unwrap();
    let mut values = Vec::new();
    for delay in [1, 2, 4] {
        values.push(ran.recv().unwrap());
        clock.wait_for_alarms(1);
        clock.advance(ms(delay));
    }
    values.push(ran.recv().unwrap());
    let seven = Some(vec![7]);
    assert_eq!(values, [(1, seven.clone()), (2, seven.clone()), (3, seven), (4, None)]);
    F::report(worker.drain(Duration::MAX));
}

pub fn w_a_postponed_run_is_no_failure_and_its_payload_goes_back_before_newer_ones<F: Front>() {
    for hooked in [false, true] {
        let (q, clock) = queue();
        let ((tell, ran), (tell_fate, fates)) = (channel(), channel());
        let mut builder = Worker::of(&q).workers(1).on_failure(|key, why| panic!("{key}: {why}"));
        if hooked {
            builder = builder.on_end(move |_, run: &RunReport<'_>| tell_fate.send(run.fate).unwrap());
        }
        let (inner, begun) = (q.clone(), Mutex::new(HashSet::new()));
        let worker = F::start(builder, move |run: Run<u64, Vec<u32>>| {
            tell.send((*run.key(), run.attempt(), run.value().cloned())).unwrap();
            let outcome = if begun.lock().unwrap().insert(*run.key()) {
                if *run.key() == 2 {
                    inner.add_value(2, vec![8]).unwrap();
                }
                Outcome::Postpone(ms(50))
            } else {
                Outcome::Done
            };
            async { outcome }
        });
        q.add_value(1, vec![7]).unwrap();
        assert_eq!(ran.recv().unwrap(), (1, 1, Some(vec![7])));
        until_waiting(&q, &clock, 1);
        assert_eq!(q.num_requeues(&1), 0);
        clock.advance(ms(50) - Duration::from_nanos(1));
        assert_eq!(q.len(), 0);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(ran.recv().unwrap(), (1, 1, Some(vec![7])));
        q.add_value(2, vec![7]).unwrap();
        assert_eq!(ran.recv().unwrap(), (2, 1, Some(vec![7])));
        assert_eq!(ran.recv().unwrap(), (2, 1, Some(vec![7, 8])), "the trigger's run");
        until_waiting(&q, &clock, 2);
        clock.advance(ms(50));
        assert_eq!(ran.recv().unwrap(), (2, 1, None), "the timer's run");
        assert!(F::report(worker.drain(Duration::MAX)).complete);
        let again = Fate::Again(ms(50));
        let told = if hooked { vec![again, Fate::Done, again, Fate::Done, Fate::Done] } else { Vec::new() };
        assert_eq!(fates.try_iter().collect::<Vec<_>>(), told);
    }
}

pub fn w_a_run_that_its_handler_keeps_reads_its_key_while_the_worker_runs_others<F: Front>() {
    let (q, _clock) = queue();
    let (keep, kept) = channel();
    let worker = F::start(Worker::of(&q).workers(1), move |run: Run<u64, Vec<u32>>| {
        keep.send(run).unwrap();
        async {}
    });
    for key in 1..=4 {
        q.add_value(key, vec![7]).unwrap();
    }
    let mut runs = Vec::new();
    for key in 1..=4 {
        let run = kept.recv().unwrap();
        assert_eq!((*run.key(), run.attempt(), run.value()), (key, 1, Some(&vec![7])));
        // the next ones find that nobody keeps this one
        if key % 2 == 0 {
            runs.push(run);
        }
    }
    let report = F::report(worker.drain(Duration::MAX));
    assert_eq!((report.complete, report.done), (true, 4));
    assert_eq!(runs.iter().map(|run| *run.key()).collect::<Vec<_>>(), [2, 4]);
    assert!(runs.iter().all(|run| !run.cancelled() && run.value().is_some()));
    drop(runs);
    assert_eq!((q.stats().known, q.stats().held), (0, 0), "nothing is left of the keys");
}

pub fn w_a_handler_may_return_nothing_or_a_result<F: Front>() {
    let (q, clock) = queue();
    let worker = F::start(Worker::of(&q).workers(1), |_| async {});
    q.add(1).unwrap();
    while q.state(&1).is_some() {
        std::thread::yield_now();
    }
    F::report(worker.stop(Duration::MAX));
    let worker = F::start(Worker::of(&q).workers(1), |_| async {
        "x".parse::<u32>()?;
        Ok(())
    });
    q.add(2).unwrap();
    clock.wait_for_alarms(1);
    assert_eq!(q.num_requeues(&2), 1, "an error is a retry");
    F::report(worker.stop(Duration::MAX));
}

/// Counts how often it is asked.
struct Counting(Arc<AtomicUsize>);

impl<K: ?Sized> RateLimiter<K> for Counting {
    fn when(&self, _: &K, _: Instant) -> Duration {
        self.0.fetch_add(1, Ordering::SeqCst);
        ms(1)
    }
    fn forget(&self, _: &K) {}
    fn num_requeues(&self, _: &K) -> u32 {
        0
    }
}

pub fn x07_ten_thousand_duplicate_triggers_take_one_token_a_run<F: Front>() {
    let clock = FakeClock::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let q = WorkQueue::merging(|_: &mut Vec<u32>, _: Vec<u32>| {})
        .clock(clock.clone())
        .limiter(Counting(Arc::clone(&asked)))
        .build()
        .unwrap();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    q.add(1).unwrap();
    puppets.run(1, 1);
    for _ in 0..10_000 {
        q.add(1).unwrap();
    }
    puppets.end(Outcome::Retry("not yet".into()));
    puppets.run(1, 1);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "the limiter is asked at most once a run");
    puppets.end(Outcome::Done);
    F::report(worker.stop(Duration::MAX));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

pub fn r_the_worker_lets_records_expire<F: Front>() {
    for (set, hours) in [(None, 1), (Some(2), 2)] {
        let (q, clock) = queue();
        let mut worker = Worker::of(&q).workers(1);
        if let Some(hours) = set {
            worker = worker.expire_failures_after(Some(Duration::from_secs(hours * 3_600)));
        }
        let (puppets, worker) = led::<F>(worker);
        q.add(1).unwrap();
        puppets.run(1, 1);
        puppets.end(Outcome::RetryAfter(Duration::MAX, "never again".into()));
        while q.num_requeues(&1) == 0 {
            std::thread::yield_now();
        }
        // The limiter's delay was 1 ms.
        clock.advance(Duration::from_secs(hours * 3_600));
        assert_eq!(q.num_requeues(&1), 1);
        clock.advance(ms(1));
        assert_eq!(q.num_requeues(&1), 0);
        F::report(worker.stop(Duration::MAX));
    }
}

pub fn b7_a_cancel_during_a_run_takes_what_was_to_follow_and_not_the_run<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    q.add(1).unwrap();
    puppets.run(1, 1);
    q.add(1).unwrap();
    q.add_after(1, ms(5)).unwrap();
    let took = q.cancel(&1).expect("it was dirty");
    assert!(took.dirty && took.waiting_until.is_some());
    puppets.end(Outcome::Done);
    let report = F::report(worker.drain(Duration::MAX));
    assert!(report.complete && report.done == 1, "one run, and no other: {report:?}");
}

pub fn w_each_hook_is_called_in_the_order_in_which_it_was_given<F: Front>() {
    let (q, clock) = queue();
    let (tell, told) = channel();
    let say = |what: &'static str| {
        let tell = tell.clone();
        move |key: u64| tell.send(format!("{what} {key}")).unwrap()
    };
    let mut builder = Worker::of(&q).workers(1).max_attempts(2);
    for say in [say("start a"), say("start b")] {
        builder =
            builder.on_start(move |run: &Run<u64, Vec<u32>>| say(*run.key() + u64::from(run.attempt())));
    }
    for say in [say("failure a"), say("failure b")] {
        builder = builder.on_failure(move |key, _| say(*key));
    }
    for say in [say("gives up a"), say("gives up b")] {
        builder = builder.on_give_up(move |key, _| say(*key));
    }
    for say in [say("end a"), say("end b")] {
        builder = builder.on_end(move |key, _| {
            say(*key);
            panic!("told");
        });
    }
    let inner = tell.clone();
    let worker = F::start(builder, move |run: Run<u64, Vec<u32>>| {
        inner.send(format!("handler {}", run.key())).unwrap();
        async { Outcome::Retry("no".into()) }
    });
    let begins = |attempt| ["start a", "start b"].map(|what| format!("{what} {}", 10 + attempt)).to_vec();
    let ends = |words: &[&str]| words.iter().map(|what| format!("{what} 10")).collect::<Vec<_>>();
    let mut expected = begins(1);
    expected.extend(ends(&["handler", "failure a", "failure b", "end a", "end b"]));
    q.add(10).unwrap();
    assert_eq!(told.iter().take(expected.len()).collect::<Vec<_>>(), expected);
    until_waiting(&q, &clock, 10);
    clock.advance(ms(1));
    expected = begins(2);
    expected.extend(ends(&[
        "handler",
        "failure a",
        "failure b",
        "gives up a",
        "gives up b",
        "end a",
        "end b",
    ]));
    assert_eq!(told.iter().take(expected.len()).collect::<Vec<_>>(), expected);
    F::report(worker.stop(Duration::MAX));
}

pub fn w_a_start_hook_that_panics_ends_nothing<F: Front>() {
    let (q, _) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1).on_start(|_| panic!("start")));
    for key in [1, 2] {
        q.add(key).unwrap();
        puppets.run(key, 1);
        puppets.end(Outcome::Done);
    }
    let report = F::report(worker.drain(Duration::MAX));
    assert_eq!((report.complete, report.done), (true, 2));
}
