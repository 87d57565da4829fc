//! W: async handlers that are dropped before they have returned.

use super::{Front, Lists, led, ms, queue, until, until_waiting};
use requeue::{DrainOptions, Failure, Outcome, Run, WaitingKeys, Worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Counts its drops.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A worker whose handlers never end; the start of each run, and the number of dropped handlers.
#[allow(clippy::type_complexity, reason = "three things that a test wants")]
fn never_ending<F: Front>(
    q: &Lists,
    set: impl FnOnce(requeue::WorkerBuilder<u64, Vec<u32>>) -> requeue::WorkerBuilder<u64, Vec<u32>>,
) -> (Worker, Receiver<(u64, u32, Option<Vec<u32>>)>, Arc<AtomicUsize>) {
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dropped);
    let (tell, began) = channel();
    let worker = F::start(set(Worker::of(q)), move |run: Run<u64, Vec<u32>>| {
        let (tell, dropped) = (tell.clone(), Dropped(Arc::clone(&count)));
        async move {
            let _dropped = dropped;
            tell.send((*run.key(), run.attempt(), run.value().cloned())).unwrap();
            std::future::pending::<()>().await;
            drop(run);
        }
    });
    (worker, began, dropped)
}

pub fn w_past_its_time_limit_an_async_handler_is_dropped_and_its_key_comes_back<F: Front>() {
    let (q, clock) = queue();
    let (tell, failed) = channel();
    let (worker, began, dropped) = never_ending::<F>(&q, |builder| {
        builder.workers(1).time_limit(ms(100)).on_failure(move |key, why| {
            assert!(matches!(why, Failure::TimeLimit(limit) if *limit == ms(100)), "{why}");
            tell.send(*key).unwrap();
        })
    });
    q.add_value(1, vec![7]).unwrap();
    assert_eq!(began.recv().unwrap(), (1, 1, Some(vec![7])));
    clock.wait_for_alarms(1);
    clock.advance(ms(100) - Duration::from_nanos(1));
    assert!(failed.try_recv().is_err(), "reported early");
    assert_eq!(dropped.load(Ordering::SeqCst), 0, "dropped early");
    clock.advance(Duration::from_nanos(1));
    assert_eq!(failed.recv().unwrap(), 1);
    until_waiting(&q, &clock, 1);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert_eq!(q.num_requeues(&1), 1);
    // The same worker goes on, with another key and with this one.
    q.add(2).unwrap();
    assert_eq!(began.recv().unwrap(), (2, 1, None));
    clock.advance(ms(100));
    assert_eq!(failed.recv().unwrap(), 2);
    assert_eq!(began.recv().unwrap(), (1, 2, Some(vec![7])), "with its payload");
    worker.stop(Duration::ZERO).wait();
}

pub fn w_past_the_deadline_of_stop_async_handlers_are_dropped_and_their_keys_go_back<F: Front>() {
    let (q, clock) = queue();
    let (tell, failed) = channel();
    let (worker, began, dropped) = never_ending::<F>(&q, |builder| {
        builder.workers(2).on_failure(move |key, why| {
            assert!(matches!(why, Failure::Cancelled), "{why}");
            tell.send(*key).unwrap();
        })
    });
    for key in 1..=3 {
        q.add_value(key, vec![7]).unwrap();
    }
    let mut keys = [began.recv().unwrap().0, began.recv().unwrap().0];
    keys.sort_unstable();
    assert_eq!(keys, [1, 2]);
    std::thread::scope(|s| {
        let stop = s.spawn(|| F::report(worker.stop(ms(100))));
        clock.wait_for_alarms(1);
        clock.advance(ms(100) - Duration::from_nanos(1));
        assert_eq!(dropped.load(Ordering::SeqCst), 0, "dropped early");
        clock.advance(Duration::from_nanos(1));
        let report = stop.join().unwrap();
        assert!(!report.complete);
        assert_eq!((report.cancelled, report.done, report.ready), (2, 0, 1));
    });
    worker.join();
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
    let mut keys = [failed.recv().unwrap(), failed.recv().unwrap()];
    keys.sort_unstable();
    assert_eq!(keys, [1, 2]);
    assert_eq!((q.stats().held, q.stats().waiting, q.len()), (0, 2, 1));
    assert!(!q.shutting_down());
    clock.advance(ms(1));
    for _ in 0..3 {
        let mut item = q.try_get().unwrap();
        assert_eq!(item.attempt(), if *item.key() == 3 { 1 } else { 2 });
        assert_eq!(item.take_value(), Some(vec![7]), "with its payload");
    }
}

pub fn w_past_the_deadline_of_drain_async_handlers_are_dropped_and_counted<F: Front>() {
    let (q, clock) = queue();
    let (worker, began, dropped) = never_ending::<F>(&q, |builder| builder.workers(1));
    q.add(1).unwrap();
    q.add(2).unwrap();
    assert_eq!(began.recv().unwrap().0, 1);
    std::thread::scope(|s| {
        let drain = s.spawn(|| F::report(worker.drain(ms(100))));
        clock.wait_for_alarms(1);
        clock.advance(ms(100));
        let report = drain.join().unwrap();
        assert!(!report.complete);
        assert_eq!((report.cancelled, report.done, report.ready), (1, 0, 1));
    });
    worker.join();
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert_eq!((q.stats().held, q.stats().waiting, q.len()), (0, 0, 1), "the retry was refused");
}

pub fn w_past_the_deadline_of_a_drain_that_waits_async_handlers_are_dropped<F: Front>() {
    let (q, clock) = queue();
    let (worker, began, dropped) = never_ending::<F>(&q, |builder| builder.workers(1));
    q.add(1).unwrap();
    assert_eq!(began.recv().unwrap().0, 1);
    std::thread::scope(|s| {
        let drain = s.spawn(|| {
            F::report(worker.drain(DrainOptions::default().waiting_keys(WaitingKeys::Wait).timeout(ms(100))))
        });
        clock.wait_for_alarms(1);
        clock.advance(ms(100));
        assert_eq!(drain.join().unwrap().cancelled, 1);
    });
    worker.join();
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert!(q.shutting_down() && q.state(&1).is_none());
}

pub fn w_the_end_of_a_run_that_is_cancelled_is_told_once<F: Front>() {
    let (q, clock) = queue();
    let (tell, told) = channel();
    let hook = move |key: &u64, run: &requeue::RunReport<'_>| {
        tell.send((*key, run.failure.map(ToString::to_string), run.fate, run.took)).unwrap();
    };
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1).on_end(hook));
    q.add(1).unwrap();
    puppets.run(1, 1);
    clock.advance(ms(7));
    F::report(worker.stop(Duration::ZERO));
    let why = Some("the handler was cancelled before it had returned".to_owned());
    assert_eq!(told.recv().unwrap(), (1, why, requeue::Fate::Retry(ms(1)), ms(7)));
    worker.join();
    assert!(told.try_recv().is_err(), "its end was told once");
}

pub fn w_the_last_attempt_that_is_dropped_gives_the_key_up<F: Front>() {
    let (q, clock) = queue();
    let (tell, gave_up) = channel();
    let (worker, began, _dropped) = never_ending::<F>(&q, |builder| {
        builder
            .workers(1)
            .time_limit(ms(100))
            .max_attempts(2)
            .on_give_up(move |key, why| tell.send((*key, why.to_string())).unwrap())
    });
    q.add(1).unwrap();
    for attempt in 1..=2 {
        assert_eq!(began.recv().unwrap().1, attempt);
        clock.wait_for_alarms(1);
        clock.advance(ms(100));
        if attempt == 1 {
            until_waiting(&q, &clock, 1);
            clock.advance(ms(1));
        }
    }
    assert_eq!(gave_up.recv().unwrap(), (1, "the handler took longer than 100ms".to_owned()));
    until(|| q.state(&1).is_none());
    worker.stop(Duration::ZERO).wait();
}

pub fn w_a_handler_that_panics_as_it_is_dropped_ends_nothing<F: Front>() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("as it is dropped");
        }
    }
    let (q, clock) = queue();
    let (tell, began) = channel();
    let worker = F::start(Worker::of(&q).workers(1).time_limit(ms(100)), move |run: Run<u64, Vec<u32>>| {
        let tell = tell.clone();
        async move {
            let first = run.attempt() == 1;
            tell.send(()).unwrap();
            if first {
                let _bomb = Bomb;
                std::future::pending::<()>().await;
            }
        }
    });
    q.add(1).unwrap();
    began.recv().unwrap();
    clock.wait_for_alarms(1);
    clock.advance(ms(100));
    until_waiting(&q, &clock, 1);
    clock.advance(ms(1));
    began.recv().unwrap();
    assert!(F::report(worker.drain(Duration::MAX)).complete);
}

pub fn w_a_thousand_async_workers_run_a_thousand_keys_at_once_and_are_resized<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1_000));
    for key in 0..3_000 {
        q.add(key).unwrap();
    }
    puppets.skip(1_000);
    assert_eq!((q.stats().held, q.len()), (1_000, 2_000));
    worker.resize(10).unwrap();
    (0..990).for_each(|_| puppets.end(Outcome::Done));
    until(|| worker.workers() == 10);
    assert_eq!((q.stats().held, puppets.has_more()), (10, false));
    worker.resize(1_000).unwrap();
    (0..2_010).for_each(|_| puppets.end(Outcome::Done));
    puppets.skip(2_000);
    let report = F::report(worker.drain(Duration::MAX));
    assert_eq!((report.complete, report.done), (true, 3_000));
}

pub fn w_handlers_that_never_end_hold_up_nobody_else<F: Front>() {
    let (q, _clock) = queue();
    let (tell, ran) = channel();
    let worker = F::start(Worker::of(&q).workers(4), move |run: Run<u64, Vec<u32>>| {
        let tell = tell.clone();
        async move {
            if *run.key() < 3 {
                std::future::pending::<()>().await;
            }
            tell.send(*run.key()).unwrap();
        }
    });
    for key in 0..1_000 {
        q.add(key).unwrap();
    }
    let mut keys: Vec<u64> = (3..1_000).map(|_| ran.recv().unwrap()).collect();
    keys.sort_unstable();
    assert_eq!(keys, (3..1_000).collect::<Vec<_>>());
    until(|| q.stats().held == 3);
    // The fourth leaves when it has ended its last run.
    worker.resize(3).unwrap();
    until(|| worker.workers() == 3);
    let report = F::report(worker.stop(Duration::ZERO));
    assert_eq!((report.cancelled, report.done), (3, 997));
    worker.join();
    assert_eq!((q.stats().held, q.stats().waiting), (0, 3));
}

pub fn w_a_handler_may_stop_its_own_worker<F: Front>() {
    let (q, _clock) = queue();
    let (hand, handle) = smol::channel::unbounded::<Arc<Worker>>();
    let (tell, report) = channel();
    let worker = F::start(Worker::of(&q).workers(1), move |_: Run<u64, Vec<u32>>| {
        let (handle, tell) = (handle.clone(), tell.clone());
        async move {
            let worker = handle.recv().await.unwrap();
            tell.send(worker.stop(Duration::ZERO).await).unwrap();
        }
    });
    let worker = Arc::new(worker);
    hand.try_send(Arc::clone(&worker)).unwrap();
    q.add(1).unwrap();
    let report = report.recv().unwrap();
    assert_eq!((report.complete, report.cancelled, report.still_running), (false, 1, 1));
    worker.join();
    assert_eq!(worker.workers(), 0);
}
