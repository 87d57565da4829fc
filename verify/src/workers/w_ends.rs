//! W: time limits, and how workers end.

use super::{Front, led, ms, puppets, queue, until, until_waiting};
use crate::wake::Count;
use requeue::{Clock, DrainOptions, Failure, Outcome, Run, WaitingKeys, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::Poll;
use std::time::Duration;

pub fn w_a_run_that_returns_within_its_time_limit_is_no_failure<F: Front>() {
    let (q, clock) = queue();
    let (puppets, handler) = puppets();
    let failures = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&failures);
    let builder = Worker::of(&q).workers(1).time_limit(ms(100)).on_failure(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let worker = F::start(builder, handler);
    q.add(1).unwrap();
    puppets.run(1, 1);
    clock.wait_for_alarms(1);
    clock.advance(ms(99));
    puppets.end(Outcome::Done);
    q.add(2).unwrap();
    puppets.run(2, 1);
    clock.advance(ms(99));
    puppets.end(Outcome::Done);
    assert!(F::report(worker.drain(Duration::MAX)).complete);
    assert_eq!((q.num_requeues(&1), q.num_requeues(&2)), (0, 0));
    assert_eq!(failures.load(Ordering::SeqCst), 0);
}

pub fn w_a_run_that_returns_past_its_time_limit_is_a_failure_whatever_it_says<F: Front>() {
    let (q, clock) = queue();
    let (tell, failed) = channel();
    let builder = Worker::of(&q).workers(1).time_limit(ms(100)).on_failure(move |key, why| {
        assert!(matches!(why, Failure::TimeLimit(limit) if *limit == ms(100)), "{why}");
        tell.send(*key).unwrap();
    });
    let time = clock.clone();
    let worker = F::start(builder, move |run: Run<u64, Vec<u32>>| {
        let late = run.attempt() == 1;
        let time = time.clone();
        async move {
            if late {
                time.advance(ms(100));
            }
            Outcome::Done
        }
    });
    q.add(1).unwrap();
    assert_eq!(failed.recv().unwrap(), 1);
    until_waiting(&q, &clock, 1);
    assert_eq!(q.num_requeues(&1), 1);
    assert_eq!(q.state(&1).and_then(|state| state.waiting_until), Some(clock.now() + ms(1)));
    clock.advance(ms(1));
    assert!(F::report(worker.drain(Duration::MAX)).complete);
    assert!(failed.try_recv().is_err(), "reported once");
}

pub fn w_stop_takes_no_more_keys_leaves_the_ready_ones_and_reports_them<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    for key in 1..=4 {
        q.add(key).unwrap();
    }
    q.add_after(9, ms(1_000)).unwrap();
    puppets.run(1, 1);
    let stop = worker.stop(Duration::MAX);
    puppets.end(Outcome::Done);
    let report = F::report(stop);
    assert!(report.complete);
    assert_eq!((report.done, report.ready, report.waiting, report.still_running), (1, 3, 1, 0));
    assert_eq!(report.cancelled, 0);
    assert!(!q.shutting_down(), "stop leaves the queue open");
    q.add(5).unwrap();
    assert_eq!(q.len(), 4);
}

pub fn w_stop_ends_workers_that_wait_for_a_key<F: Front>() {
    let (q, _clock) = queue();
    for _ in 0..50 {
        let worker = F::start(Worker::of(&q).workers(3), |_| async {});
        assert!(F::report(worker.stop(Duration::MAX)).complete);
    }
    q.add(1).unwrap();
    assert_eq!(q.len(), 1);
}

pub fn w_drain_is_complete_when_the_last_run_has_ended_whoever_has_it<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, handler) = puppets();
    let worker = F::start(Worker::of(&q).workers(1), |run: Run<u64, Vec<u32>>| async move { drop(run) });
    // of two runs of others one is a guard's, one another worker's
    q.add(1).unwrap();
    until(|| q.stats().known == 0);
    F::report(worker.stop(Duration::MAX));
    q.add(2).unwrap();
    let guard = q.try_get().unwrap();
    let other = F::start(Worker::of(&q).workers(1), handler);
    q.add(3).unwrap();
    puppets.run(3, 1);
    let mut drain = Box::pin(worker.drain(Duration::MAX));
    let count = Count::new();
    assert!(count.poll(&mut drain).is_pending(), "two runs go on");
    puppets.end(Outcome::Done);
    assert!(F::report(other.stop(Duration::MAX)).complete);
    assert!(count.poll(&mut drain).is_pending(), "one run goes on");
    let wakes = count.wakes();
    drop(guard);
    assert!(count.wakes() > wakes, "the end of the last run was not told");
    let Poll::Ready(report) = count.poll(&mut drain) else { panic!("no run is left") };
    assert_eq!((report.complete, report.held, report.done), (true, 0, 1));
    // one that nobody waits for any more leaves nothing behind
    drop(drain);
}

pub fn w_past_its_deadline_a_drain_says_what_is_held_by_others<F: Front>() {
    let (q, clock) = queue();
    let worker = F::start(Worker::of(&q).workers(2), |run: Run<u64, Vec<u32>>| async move { drop(run) });
    q.add(1).unwrap();
    until(|| q.stats().known == 0);
    F::report(worker.stop(Duration::MAX));
    q.add(2).unwrap();
    let guard = q.try_get().unwrap();
    let mut drain = Box::pin(worker.drain(ms(10)));
    let count = Count::new();
    assert!(count.poll(&mut drain).is_pending());
    clock.advance(ms(10));
    assert!(count.wakes() > 0, "the clock woke nobody");
    let Poll::Ready(report) = count.poll(&mut drain) else { panic!("past its deadline") };
    assert_eq!((report.complete, report.held, report.still_running), (false, 1, 0));
    drop(guard);
    // released by shut_down, as any drain
    let (q, _clock) = queue();
    q.add(1).unwrap();
    let _guard = q.try_get().unwrap();
    let worker = F::start(Worker::of(&q).workers(0), |run: Run<u64, Vec<u32>>| async move { drop(run) });
    let mut drain = Box::pin(worker.drain(Duration::MAX));
    assert!(count.poll(&mut drain).is_pending());
    let wakes = count.wakes();
    q.shut_down();
    assert!(count.wakes() > wakes);
    let Poll::Ready(report) = count.poll(&mut drain) else { panic!("released") };
    assert_eq!((report.complete, report.held), (false, 1));
}

pub fn w_drain_works_the_ready_keys_off_and_shuts_the_queue_down<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    for key in 1..=3 {
        q.add(key).unwrap();
    }
    q.add_after(9, ms(1_000)).unwrap();
    puppets.run(1, 1);
    let drain = worker.drain(Duration::MAX);
    assert!(q.add(4).is_err());
    puppets.end(Outcome::Retry("refused now".into()));
    puppets.run(2, 1);
    puppets.end(Outcome::Done);
    puppets.run(3, 1);
    puppets.end(Outcome::Done);
    let report = F::report(drain);
    assert_eq!((report.complete, report.done, report.ready, report.waiting), (false, 3, 0, 0));
    assert_eq!(report.unfinished, 2, "the waiting key, and the one whose retry was refused");
    assert_eq!(
        (report.dropped, report.refused, report.refused_retries),
        (1, 1, 1),
        "waiting key, add, retry"
    );
    assert!(q.shutting_down());
    assert_eq!(q.num_requeues(&1), 0, "a refused retry is no failure");
}

pub fn w_drain_that_waits_works_retries_off_too<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    q.add(1).unwrap();
    puppets.run(1, 1);
    let drain = worker.drain(DrainOptions::default().waiting_keys(WaitingKeys::Wait));
    puppets.end(Outcome::Retry("not yet".into()));
    clock.wait_for_alarms(1);
    clock.advance(ms(1));
    puppets.run(1, 2);
    puppets.end(Outcome::Done);
    let report = F::report(drain);
    assert_eq!((report.complete, report.done), (true, 2));
}

pub fn w_a_stop_that_races_with_runs_loses_no_key<F: Front>() {
    const KEYS: usize = 20;
    for round in 0..100 {
        let (q, _clock) = queue();
        for key in 0..KEYS as u64 {
            q.add(key).unwrap();
        }
        let ended = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ended);
        let worker = F::start(Worker::of(&q).workers(4), move |run: Run<u64, Vec<u32>>| {
            let count = Arc::clone(&count);
            async move {
                for _ in 0..run.key() % 4 {
                    smol::future::yield_now().await;
                }
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        until(|| ended.load(Ordering::SeqCst) >= round % KEYS);
        let report = F::report(worker.stop(Duration::ZERO));
        worker.join();
        assert!(report.done as usize + report.cancelled <= KEYS);
        let left = q.stats();
        assert_eq!(left.held, 0);
        assert_eq!(left.ready + left.waiting + ended.load(Ordering::SeqCst), KEYS, "{report:?}, {left:?}");
    }
}

pub fn w_dropping_the_workers_handle_detaches_it_and_its_workers_end_with_the_queue<F: Front>() {
    let (q, _clock) = queue();
    let (tell, ran) = channel();
    drop(F::start(Worker::of(&q).workers(2), move |run: Run<u64, Vec<u32>>| {
        tell.send(*run.key()).unwrap();
        async {}
    }));
    q.add(1).unwrap();
    assert_eq!(ran.recv().unwrap(), 1, "detached, not ended");
    q.shut_down();
    // The handler is dropped with the last worker, and its sender with it.
    assert!(ran.recv().is_err());
}

pub fn w_a_worker_is_not_a_handle_of_the_queue<F: Front>() {
    let (q, _clock) = queue();
    let (tell, ran) = channel();
    let worker = F::start(Worker::of(&q).workers(2), move |run: Run<u64, Vec<u32>>| {
        tell.send(*run.key()).unwrap();
        async {}
    });
    q.add(1).unwrap();
    drop(q);
    worker.join();
    assert_eq!(ran.iter().collect::<Vec<_>>(), [1], "worked off, then ended");
}

pub fn w_past_its_time_limit_a_run_that_says_again_or_give_up_has_failed_all_the_same<F: Front>() {
    let (q, clock) = queue();
    let (tell, failed) = channel();
    let (told, gave_up) = channel();
    let builder = Worker::of(&q)
        .workers(1)
        .time_limit(ms(100))
        .on_failure(move |key, why| tell.send((*key, why.to_string())).unwrap())
        .on_give_up(move |key, _| told.send(*key).unwrap());
    let time = clock.clone();
    let worker = F::start(builder, move |run: Run<u64, Vec<u32>>| {
        let time = time.clone();
        async move {
            if run.attempt() > 1 {
                return Outcome::Done;
            }
            time.advance(ms(100));
            match run.key() {
                1 => Outcome::Again(ms(50)),
                2 => Outcome::GiveUp("hopeless".into()),
                _ => Outcome::RetryAfter(ms(50), "busy".into()),
            }
        }
    });
    for key in 1..=3 {
        q.add_value(key, vec![7]).unwrap();
        assert_eq!(failed.recv().unwrap(), (key, "the handler took longer than 100ms".to_owned()));
        until_waiting(&q, &clock, key);
        let state = q.state(&key).unwrap();
        assert_eq!(state.waiting_until, Some(clock.now() + ms(1)), "the back-off of a failure, for {key}");
        assert_eq!(q.num_requeues(&key), 1);
        clock.advance(ms(1));
        until(|| q.state(&key).is_none());
    }
    assert!(F::report(worker.drain(Duration::MAX)).complete);
    assert!(gave_up.try_recv().is_err() && failed.try_recv().is_err());
}
