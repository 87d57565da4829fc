//! W: reports made at the deadline of a stop or a drain, while workers are in the middle of something.

use requeue::{DrainOptions, Run, StopReport, WaitingKeys, WorkQueue, Worker};
use requeue_verify::wake::Count;
use requeue_verify::watchdog::run;
use requeue_verify::workers::{Meanwhile, puppets, queue};
use smol::future::Boxed;
use std::future::pending;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A queue whose workers read this clock each time they look for a key, because a timer is set.
fn timed() -> (WorkQueue<u64>, Meanwhile) {
    let clock = Meanwhile::default();
    let limiter = requeue::limiter::default_per_item();
    let q = WorkQueue::builder().clock(clock.clone()).limiter(limiter).build().unwrap();
    q.add_after(9, ms(1_000)).unwrap();
    (q, clock)
}

/// Starts one worker whose task the test polls, and whose handler never ends.
fn task(q: &WorkQueue<u64>) -> (Arc<Worker>, Boxed<()>) {
    let tasks = Arc::new(Mutex::new(Vec::new()));
    let spawned = Arc::clone(&tasks);
    let handler = |run: Run<u64>| async move {
        pending::<()>().await;
        drop(run);
    };
    let worker = Worker::of(q)
        .workers(1)
        .start_on(move |task| spawned.lock().unwrap().push(task), handler)
        .expect("not too many");
    let task = tasks.lock().unwrap().pop().unwrap();
    (Arc::new(worker), task)
}

/// Has the worker stopped, with no time left, in the middle of its next look for a key;
/// `then` ends that reading of the clock. Polls the task, and gives what the stop reported
/// once it was polled again.
fn stopped_in_its_look(
    worker: &Arc<Worker>,
    mut task: Boxed<()>,
    clock: &Meanwhile,
    then: fn(),
) -> (Boxed<()>, Poll<StopReport>) {
    let (tell, stopped) = channel();
    let count = Count::new();
    let (handle, waker) = (Arc::clone(worker), Arc::clone(&count));
    clock.at_the_next_reading(move || {
        let mut stop = handle.stop(Duration::ZERO);
        assert!(waker.poll(&mut stop).is_pending(), "nobody knows yet whether a run begins");
        tell.send(stop).unwrap();
        then();
    });
    let _ = Count::new().poll(&mut task);
    let mut stop = stopped.recv().unwrap();
    assert_eq!(count.wakes(), 1, "the look has ended");
    (task, count.poll(&mut stop))
}

#[test]
fn w_a_report_at_the_deadline_waits_for_a_worker_that_is_taking_a_key_and_counts_its_run() {
    let (q, clock) = timed();
    let (worker, task) = task(&q);
    q.add(1).unwrap();
    let (mut task, report) = stopped_in_its_look(&worker, task, &clock, || ());
    let Poll::Ready(report) = report else { panic!("the run was told at once, and dropped") };
    assert_eq!((report.complete, report.done, report.cancelled), (false, 0, 1));
    assert_eq!((report.still_running, report.ready, report.waiting), (0, 0, 2));
    assert_eq!(q.num_requeues(&1), 1, "a run that is cancelled has failed");
    // Where the task is polled only once it leaves with that poll or the next.
    let _ = Count::new().poll(&mut task);
    assert_eq!(worker.workers(), 0);
}

#[test]
fn w_a_report_at_the_deadline_waits_for_a_worker_whose_look_finds_nothing() {
    let (q, clock) = timed();
    let (worker, task) = task(&q);
    let (_task, report) = stopped_in_its_look(&worker, task, &clock, || ());
    let Poll::Ready(report) = report else { panic!("nothing runs") };
    assert_eq!((report.complete, report.cancelled, report.still_running), (true, 0, 0));
    assert_eq!((report.waiting, worker.workers()), (1, 0));
}

#[test]
fn w_a_report_at_the_deadline_does_not_wait_for_a_worker_whose_look_ended_in_a_panic() {
    let (q, clock) = timed();
    let (worker, task) = task(&q);
    let (mut task, report) = stopped_in_its_look(&worker, task, &clock, || panic!("a clock"));
    let Poll::Ready(report) = report else { panic!("nothing runs") };
    assert_eq!((report.complete, report.cancelled, report.still_running), (true, 0, 0));
    assert_eq!(worker.workers(), 1, "it has not been polled since");
    assert!(Count::new().poll(&mut task).is_ready());
}

#[test]
fn w_a_blocking_run_that_begins_past_the_deadline_is_told_at_once_and_counted_as_running() {
    run("w_a_blocking_run_that_begins_past_the_deadline…", || {
        let (q, clock) = timed();
        q.add(1).unwrap();
        let (tell, began) = channel();
        let (release, released) = channel();
        let released = Mutex::new(released);
        let handler = move |run: Run<u64>| {
            tell.send(run.cancelled()).unwrap();
            released.lock().unwrap().recv().unwrap();
        };
        let worker = Arc::new(Worker::of(&q).workers(0).start_threads(handler).unwrap());
        let (give, given) = channel();
        let count = Count::new();
        let (handle, waker) = (Arc::clone(&worker), Arc::clone(&count));
        clock.at_the_next_reading(move || {
            let mut stop = handle.stop(Duration::ZERO);
            assert!(waker.poll(&mut stop).is_pending());
            give.send(stop).unwrap();
        });
        worker.resize(1).unwrap();
        let mut stop = given.recv().unwrap();
        assert!(began.recv().unwrap(), "told before its handler began");
        assert_eq!(count.wakes(), 1);
        let Poll::Ready(report) = count.poll(&mut stop) else { panic!("its look has ended") };
        assert_eq!((report.complete, report.done, report.cancelled), (false, 0, 1));
        assert_eq!((report.still_running, report.ready, report.waiting), (1, 0, 1));
        release.send(()).unwrap();
        worker.join();
        let report = worker.stop(Duration::ZERO).wait();
        assert_eq!((report.done, report.cancelled, report.still_running), (0, 1, 0), "{report:?}");
    });
}

#[test]
fn w_runs_are_counted_as_cancelled_once_however_often_the_report_is_asked_for() {
    let (q, clock) = queue();
    let (puppets, handler) = puppets();
    let mut workers = Worker::of(&q).workers(2).run(handler).expect("not too many");
    for key in 1..=3 {
        q.add(key).unwrap();
    }
    assert!(Count::new().poll(&mut workers).is_pending());
    puppets.skip(2);
    let handle = workers.worker();
    let (mut stop, mut other) = (handle.stop(ms(10)), handle.stop(ms(10)));
    let count = Count::new();
    assert!(count.poll(&mut stop).is_pending() && count.poll(&mut other).is_pending());
    clock.advance(ms(10));
    for _ in 0..3 {
        assert!(count.poll(&mut stop).is_pending() && count.poll(&mut other).is_pending());
    }
    assert_eq!(clock.alarms(), 0, "past the deadline there is no other to wake up at");
    let Poll::Ready(last) = Count::new().poll(&mut workers) else { panic!("all have left") };
    for report in [Some(last), ready(count.poll(&mut stop)), ready(count.poll(&mut other))] {
        let report = report.unwrap();
        assert_eq!((report.complete, report.done, report.cancelled), (false, 0, 2));
        assert_eq!((report.still_running, report.ready, report.waiting), (0, 1, 2));
    }
}

#[test]
fn w_a_report_at_the_deadline_is_woken_for_by_a_worker_that_finds_the_queue_over() {
    let (q, clock) = timed();
    let tasks = Arc::new(Mutex::new(Vec::new()));
    let spawned = Arc::clone(&tasks);
    let handler = |run: Run<u64>| async move { drop(run) };
    let worker = Worker::of(&q)
        .workers(2)
        .start_on(move |task| spawned.lock().unwrap().push(task), handler)
        .expect("not too many");
    let worker = Arc::new(worker);
    // The first is never polled, and stays.
    let mut looks: Boxed<()> = tasks.lock().unwrap().pop().unwrap();
    let (tell, stopped) = channel();
    let count = Count::new();
    let (handle, waker) = (Arc::clone(&worker), Arc::clone(&count));
    clock.at_the_next_reading(move || {
        let mut drain = handle.drain(Duration::ZERO);
        assert!(waker.poll(&mut drain).is_pending());
        tell.send(drain).unwrap();
    });
    assert!(Count::new().poll(&mut looks).is_ready());
    let mut drain = stopped.recv().unwrap();
    assert_eq!((count.wakes(), worker.workers()), (1, 1));
    let Poll::Ready(report) = count.poll(&mut drain) else { panic!("nobody looks for a key") };
    assert_eq!((report.unfinished, report.done, report.dropped), (1, 0, 1));
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[test]
fn w_a_drain_is_complete_only_if_no_key_is_left() {
    // Nobody works: at the deadline what was ready still is.
    let (q, _clock) = queue();
    let worker = Worker::of(&q).workers(0).start_threads(|_| ()).unwrap();
    q.add(1).unwrap();
    let report = worker
        .drain(DrainOptions::default().waiting_keys(WaitingKeys::RunNow).timeout(Duration::ZERO))
        .wait();
    assert_eq!((report.complete, report.ready, report.waiting, report.dropped), (false, 1, 0, 0));
    // The same of a stop is complete: it leaves them on purpose.
    let (q, _clock) = queue();
    let worker = Worker::of(&q).workers(0).start_threads(|_| ()).unwrap();
    q.add(1).unwrap();
    q.add_after(2, ms(5)).unwrap();
    let report = worker.stop(Duration::ZERO).wait();
    assert_eq!((report.complete, report.ready, report.waiting, report.dropped), (true, 1, 1, 0));
}
