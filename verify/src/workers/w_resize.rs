//! W: the number of workers is changed while they run.

use super::{Front, Meanwhile, led, ms, queue, until};
use requeue::{Outcome, Run, WorkQueue, Worker};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

pub fn w_resized_up_more_keys_run_at_once<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    for key in 1..=4 {
        q.add(key).unwrap();
    }
    puppets.run(1, 1);
    worker.resize(3).unwrap();
    let mut keys = [puppets.next().0, puppets.next().0];
    keys.sort_unstable();
    assert_eq!(keys, [2, 3]);
    assert!(!puppets.has_more());
    assert_eq!((q.stats().held, worker.workers()), (3, 3));
    (0..4).for_each(|_| puppets.end(Outcome::Done));
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 4);
}

pub fn w_resized_down_surplus_workers_leave_after_their_run<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(3));
    for key in 1..=5 {
        q.add(key).unwrap();
    }
    puppets.skip(3);
    worker.resize(1).unwrap();
    assert_eq!(worker.workers(), 3, "those that run go on");
    assert_eq!(q.stats().held, 3);
    puppets.end(Outcome::Done);
    puppets.end(Outcome::Done);
    until(|| worker.workers() == 1);
    assert!(!puppets.has_more(), "those that left took no key");
    assert_eq!((q.stats().held, q.len()), (1, 2));
    puppets.end(Outcome::Done);
    for _ in 0..2 {
        let _ = puppets.next();
        assert_eq!(q.stats().held, 1);
        puppets.end(Outcome::Done);
    }
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 5);
}

pub fn w_resized_down_workers_that_wait_for_a_key_leave_at_once<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(8));
    for workers in [5, 2, 6, 1] {
        worker.resize(workers).unwrap();
        until(|| worker.workers() == workers);
    }
    for key in 1..=2 {
        q.add(key).unwrap();
    }
    puppets.run(1, 1);
    assert_eq!((q.stats().held, q.len()), (1, 1));
    puppets.end(Outcome::Done);
    puppets.run(2, 1);
    puppets.end(Outcome::Done);
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 2);
}

pub fn w_resized_to_0_is_a_pause_until_the_next_resize<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    q.add(1).unwrap();
    puppets.run(1, 1);
    // One that was just looking for a key would still take the next.
    worker.resize(0).unwrap();
    q.add(2).unwrap();
    q.add_after(3, ms(5)).unwrap();
    puppets.end(Outcome::Done);
    until(|| worker.workers() == 0);
    clock.advance(ms(5));
    assert_eq!((q.len(), puppets.has_more()), (2, false));
    assert!(!q.shutting_down());
    worker.resize(1).unwrap();
    puppets.run(2, 1);
    puppets.end(Outcome::Done);
    puppets.run(3, 1);
    puppets.end(Outcome::Done);
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 3);
}

pub fn w_a_worker_that_begins_with_none_can_be_resized<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(0));
    q.add(1).unwrap();
    assert_eq!(worker.workers(), 0);
    worker.resize(2).unwrap();
    puppets.run(1, 1);
    puppets.end(Outcome::Done);
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 1);
}

pub fn w_resizing_to_and_fro_loses_no_key_and_leaves_the_last_number<F: Front>() {
    let (q, _clock) = queue();
    let worker = F::start(Worker::of(&q).workers(4), |_| async { smol::future::yield_now().await });
    for round in 0..200_usize {
        for key in 0..5 {
            q.add(key).unwrap();
        }
        worker.resize(round % 5).unwrap();
    }
    worker.resize(3).unwrap();
    until(|| q.stats().ready + q.stats().held == 0);
    until(|| worker.workers() == 3);
    let report = F::report(worker.stop(Duration::MAX));
    assert!(report.complete && report.done >= 5);
}

pub fn w_a_worker_that_was_stopped_or_is_over_is_not_resized<F: Front>() {
    let (q, _clock) = queue();
    let worker = F::start(Worker::of(&q).workers(1), |_| async {});
    F::report(worker.stop(Duration::MAX));
    worker.join();
    worker.resize(3).unwrap();
    q.add(1).unwrap();
    assert_eq!((worker.workers(), q.len()), (0, 1));
    let worker = F::start(Worker::of(&q).workers(2), |_| async {});
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 1);
    worker.join();
    worker.resize(3).unwrap();
    assert_eq!(worker.workers(), 0);
}

pub fn w_time_limits_hold_for_workers_that_come_later<F: Front>() {
    let (q, clock) = queue();
    let (tell, failed) = std::sync::mpsc::channel();
    let builder = Worker::of(&q)
        .workers(1)
        .time_limit(ms(100))
        .max_attempts(1)
        .on_failure(move |key, _| tell.send(*key).unwrap());
    let (puppets, worker) = led::<F>(builder);
    for key in 1..=3 {
        q.add(key).unwrap();
        puppets.run(key, 1);
        clock.wait_for_alarms(1);
        clock.advance(ms(100));
        // Reported at once, while the handler waits; one on a thread goes on.
        assert_eq!(failed.recv().unwrap(), key);
        worker.resize(0).unwrap();
        if !F::DROPS {
            puppets.end(Outcome::Done);
        }
        until(|| worker.workers() == 0);
        until(|| clock.alarms() == 0);
        worker.resize(1).unwrap();
    }
    F::report(worker.stop(Duration::MAX));
}

pub fn w_a_worker_that_is_stopped_or_resized_while_it_looks_for_a_key_leaves<F: Front>() {
    for stops in [true, false] {
        let clock = Meanwhile::default();
        let q = WorkQueue::builder().clock(clock.clone()).build().unwrap();
        // With a timer set, each look for a key reads the clock.
        q.add_after(9, ms(1_000)).unwrap();
        let handler = |run: Run<u64>| async move { drop(run) };
        let worker = Arc::new(F::start(Worker::of(&q).workers(0), handler));
        let handle = Arc::clone(&worker);
        clock.at_the_next_reading(move || {
            if stops {
                drop(handle.stop(Duration::MAX));
            } else {
                handle.resize(0).unwrap();
            }
        });
        worker.resize(1).unwrap();
        until(|| clock.has_been_read());
        until(|| worker.workers() == 0);
        assert_eq!(q.stats().waiting, 1);
    }
}

pub fn w_more_workers_than_there_can_be_are_an_error_of_resize<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1));
    for too_many in [usize::MAX, (1 << 20) + 1] {
        let error = worker.resize(too_many).expect_err("too many");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&too_many.to_string()), "{error}");
    }
    assert_eq!(worker.workers(), 1, "nothing has changed");
    q.add(1).unwrap();
    puppets.run(1, 1);
    puppets.end(Outcome::Done);
    assert!(F::report(worker.drain(Duration::MAX)).complete);
}
