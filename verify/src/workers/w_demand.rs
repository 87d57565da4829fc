//! W: workers on demand, whose number follows the work.

use super::{Front, led, ms, puppets, queue, until};
use requeue::{DrainOptions, Outcome, Run, WorkQueue, Worker};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const IDLE: Duration = Duration::from_secs(60);

pub fn w_on_demand_a_key_that_waits_brings_a_worker_and_nothing_else_does<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(0..=3));
    assert_eq!(worker.workers(), 0);
    q.add(1).unwrap();
    puppets.run(1, 1);
    assert_eq!(worker.workers(), 1);
    q.add(1).unwrap(); // dirty: no key waits
    assert_eq!(worker.workers(), 1);
    puppets.end(Outcome::Done);
    puppets.run(1, 1);
    puppets.end(Outcome::Done);
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 2);
    until(|| worker.workers() == 0);
}

pub fn w_on_demand_there_are_as_many_as_keys_wait_for_and_at_most_the_upper_end<F: Front>() {
    let (q, _clock) = queue();
    q.add(1).unwrap();
    q.add(2).unwrap();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(1..=3));
    puppets.skip(2); // those that were there before it was started
    assert_eq!((worker.workers(), q.stats().held), (2, 2));
    for key in 3..=6 {
        q.add(key).unwrap();
    }
    puppets.skip(1);
    assert_eq!((worker.workers(), q.stats().held, q.len()), (3, 3, 3));
    assert!(!puppets.has_more());
    (0..6).for_each(|_| puppets.end(Outcome::Done));
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 6);
}

pub fn w_on_demand_a_worker_that_waits_takes_the_key_and_no_other_comes<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(0..=8).idle_timeout(IDLE));
    for key in 1..=20 {
        q.add(key).unwrap();
        puppets.run(key, 1);
        assert_eq!(worker.workers(), 1, "key {key}");
        puppets.end(Outcome::Done);
        // It waits for the next key, or for the end of its time.
        clock.wait_for_alarms(1);
    }
    F::report(worker.stop(Duration::MAX));
    worker.join();
    assert_eq!(worker.workers(), 0);
    until(|| clock.alarms() == 0);
}

pub fn w_on_demand_idle_workers_leave_down_to_the_lower_end<F: Front>() {
    for least in 0..=2 {
        let (q, clock) = queue();
        let (puppets, handler) = puppets();
        let builder = Worker::of(&q).workers(least..=3).idle_timeout(IDLE).time_limit(1_000 * IDLE);
        let worker = F::start(builder, handler);
        for key in 1..=3 {
            q.add(key).unwrap();
        }
        puppets.skip(3);
        assert_eq!(worker.workers(), 3);
        clock.advance(2 * IDLE);
        assert_eq!(worker.workers(), 3, "they work");
        (0..3).for_each(|_| puppets.end(Outcome::Done));
        until(|| q.stats().held == 0);
        // Idle workers watch the time: it goes on until they have seen it.
        until(|| {
            clock.advance(IDLE);
            worker.workers() <= least
        });
        assert_eq!(worker.workers(), least);
        clock.advance(10 * IDLE);
        q.add(4).unwrap();
        puppets.run(4, 1);
        assert_eq!(worker.workers(), least.max(1), "those that stayed are enough, or one comes back");
        puppets.end(Outcome::Done);
        assert_eq!(F::report(worker.drain(Duration::MAX)).done, 4);
        worker.join();
        // Nor does the thread stay that watches the limits.
        until(|| clock.alarms() == 0);
    }
}

pub fn w_on_demand_a_timer_that_comes_due_brings_a_worker<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(0..=2).idle_timeout(Duration::ZERO));
    for key in 1..=3 {
        q.add_after(key, ms(5)).unwrap();
        clock.advance(ms(4));
        assert_eq!(worker.workers(), 0);
        clock.advance(ms(1));
        puppets.run(key, 1);
        q.add_after(key + 10, ms(5)).unwrap();
        clock.advance(ms(5));
        puppets.run(key + 10, 1); // beside the one that has a key
        puppets.end(Outcome::Done);
        puppets.end(Outcome::Done);
        until(|| worker.workers() == 0);
    }
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 6);
}

pub fn w_on_demand_a_retry_comes_back_although_all_have_left<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(0..=2).idle_timeout(Duration::ZERO));
    q.add_value(1, vec![7]).unwrap();
    for attempt in 1..=4 {
        puppets.run(1, attempt);
        puppets.end(Outcome::Retry("no".into()));
        until(|| worker.workers() == 0);
        clock.advance(ms(1 << (attempt - 1)));
    }
    puppets.run(1, 5);
    puppets.end(Outcome::Done);
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 5);
}

pub fn w_on_demand_no_key_is_lost_however_workers_come_and_leave<F: Front>() {
    let (q, _clock) = queue();
    let handler = |_: Run<u64, Vec<u32>>| async { smol::future::yield_now().await };
    let worker = F::start(Worker::of(&q).workers(0..=3).idle_timeout(Duration::ZERO), handler);
    for round in 0..300_u64 {
        for key in 0..=round % 5 {
            q.add(key).unwrap();
        }
        match round % 11 {
            3 => worker.resize(0..=1).unwrap(),
            5 => worker.resize(1..=2).unwrap(),
            7 => worker.resize(2).unwrap(),
            9 => worker.resize(0..=3).unwrap(),
            _ => {}
        }
        if round % 3 == 0 {
            until(|| q.stats().ready + q.stats().held == 0);
        }
    }
    worker.resize(0..=3).unwrap();
    until(|| q.stats().ready + q.stats().held == 0);
    until(|| worker.workers() == 0);
    assert!(F::report(worker.stop(Duration::MAX)).complete);
}

pub fn w_on_demand_a_resize_takes_a_number_and_a_range<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(2).idle_timeout(IDLE));
    for key in 1..=5 {
        q.add(key).unwrap();
    }
    puppets.skip(2);
    assert!(!puppets.has_more());
    worker.resize(0..=4).unwrap();
    puppets.skip(2);
    assert_eq!((worker.workers(), q.len()), (4, 1));
    worker.resize(1).unwrap();
    (0..3).for_each(|_| puppets.end(Outcome::Done));
    until(|| worker.workers() == 1);
    assert_eq!((q.len(), puppets.has_more()), (1, false));
    puppets.end(Outcome::Done);
    puppets.run(5, 1);
    puppets.end(Outcome::Done);
    until(|| q.stats().held == 0);
    // One that waits for a key, with no end to it, learns that there is one.
    worker.resize(0..).unwrap();
    until(|| {
        clock.advance(IDLE);
        worker.workers() == 0
    });
    worker.resize(0).unwrap();
    q.add(6).unwrap();
    assert_eq!((worker.workers(), q.len()), (0, 1), "a pause");
    worker.resize(..=1).unwrap();
    puppets.run(6, 1);
    puppets.end(Outcome::Done);
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 6);
}

pub fn w_on_demand_stop_leaves_the_keys_and_nobody_comes_any_more<F: Front>() {
    let (q, clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(0..=2).idle_timeout(Duration::ZERO));
    q.add(1).unwrap();
    puppets.run(1, 1);
    puppets.end(Outcome::Done);
    until(|| worker.workers() == 0);
    q.add_after(2, ms(5)).unwrap();
    let report = F::report(worker.stop(Duration::MAX));
    assert_eq!((report.complete, report.done, report.waiting), (true, 1, 1));
    worker.join();
    q.add(3).unwrap();
    clock.advance(ms(5));
    assert_eq!((worker.workers(), q.len()), (0, 2));
    until(|| clock.alarms() == 0);
    assert!(!q.shutting_down() && !puppets.has_more());
}

pub fn w_on_demand_a_drain_is_worked_off_by_those_who_come_for_it<F: Front>() {
    for keys in [0, 5] {
        let (q, _clock) = queue();
        let handler = |_: Run<u64, Vec<u32>>| async {};
        let worker = F::start(Worker::of(&q).workers(0..=2).idle_timeout(Duration::ZERO), handler);
        for key in 0..keys {
            q.add_after(key, ms(5)).unwrap();
        }
        assert_eq!(worker.workers(), 0);
        let report =
            F::report(worker.drain(DrainOptions::default().waiting_keys(requeue::WaitingKeys::RunNow)));
        assert_eq!((report.complete, report.done), (true, keys));
        worker.join();
        assert_eq!(worker.workers(), 0);
    }
}

pub fn w_on_demand_join_waits_for_those_who_may_still_come<F: Front>() {
    let (q, _clock) = queue();
    let (puppets, worker) = led::<F>(Worker::of(&q).workers(0..=2).idle_timeout(Duration::ZERO));
    let worker = Arc::new(worker);
    let joins = [0; 2].map(|_| {
        let worker = Arc::clone(&worker);
        thread::spawn(move || worker.join())
    });
    q.add(1).unwrap();
    puppets.run(1, 1);
    for join in &joins {
        assert!(!join.is_finished());
    }
    puppets.end(Outcome::Done);
    until(|| worker.workers() == 0);
    q.shut_down();
    for join in joins {
        join.join().unwrap();
    }
}

pub fn w_on_demand_a_detached_worker_ends_with_the_queue_and_leaves_nothing_behind<F: Front>() {
    for worked in [false, true] {
        let (q, clock) = queue();
        let handlers = Arc::new(());
        let (puppets, handler) = puppets();
        let alive = Arc::clone(&handlers);
        let handler = move |run| {
            let _ = &alive;
            handler(run)
        };
        let worker = F::start(Worker::of(&q).workers(0..=2).idle_timeout(Duration::ZERO), handler);
        drop(worker);
        if worked {
            for key in 1..=3 {
                q.add(key).unwrap();
                puppets.run(key, 1);
                puppets.end(Outcome::Done);
                until(|| q.stats().held == 0);
            }
        }
        assert_eq!(Arc::strong_count(&handlers), 2, "it goes on");
        drop(q);
        until(|| Arc::strong_count(&handlers) == 1 && clock.alarms() == 0);
    }
}

pub fn w_on_demand_a_stopped_worker_leaves_nothing_behind<F: Front>() {
    let (q, _clock) = queue();
    let handlers = Arc::new(());
    let alive = Arc::clone(&handlers);
    let handler = move |_: Run<u64, Vec<u32>>| {
        let _ = &alive;
        async {}
    };
    let worker = F::start(Worker::of(&q).workers(0..=2).idle_timeout(Duration::ZERO), handler);
    q.add(1).unwrap();
    until(|| q.stats().ready + q.stats().held == 0);
    until(|| worker.workers() == 0);
    F::report(worker.stop(Duration::MAX));
    drop(worker);
    until(|| Arc::strong_count(&handlers) == 1);
    drop(q);
}

pub fn w_on_demand_a_range_that_cannot_be_is_an_error<F: Front>() {
    let q = WorkQueue::<u64>::new();
    let worker = F::start(Worker::of(&q).workers(0..=1), |_| async {});
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let error = worker.resize(3..=1).expect_err("empty");
    assert_eq!(error.to_string(), "3..=1 is no number of workers: give the smaller number first");
    for error in [worker.resize(0..=usize::MAX), worker.resize(usize::MAX..)] {
        let error = error.expect_err("too many").to_string();
        assert!(error.starts_with("18446744073709551615 workers are too many"), "{error}");
    }
    q.add(1).unwrap();
    assert_eq!(F::report(worker.drain(Duration::MAX)).done, 1);
}
