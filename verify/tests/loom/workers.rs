//! Workers in tasks and in one future: their wake-ups, and the owner of a run that is ended from outside.

use crate::support::{Queue, bounded_by, every, poll, queue};
use loom::thread;
use requeue::{Parker, Run, Worker};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Polls a future with this many workers until one run has ended: no shutdown makes up for a lost wake-up.
fn one_run(q: &Queue, workers: usize, tell: impl FnOnce(Worker)) {
    let ran = Rc::new(Cell::new(false));
    let set = ran.clone();
    let mut workers = Worker::of(q)
        .workers(workers)
        .run(move |_: Run<u32>| {
            set.set(true);
            async {}
        })
        .expect("not too many");
    tell(workers.worker());
    let parker = Parker::current();
    while !ran.get() {
        assert!(poll(&mut workers, &parker).is_pending());
        if !ran.get() {
            parker.park();
        }
    }
}

/// The task of the worker that was spawned last.
type Spawned = Arc<Mutex<Option<WorkerTask>>>;
type WorkerTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A worker with one task, not polled yet, whose handler never returns.
fn one_task(q: &Queue) -> (Worker, WorkerTask, Spawned) {
    one_task_of(q, |run: Run<u32>| async move {
        std::future::pending::<()>().await;
        drop(run);
    })
}

/// One task with this handler.
fn one_task_of<Fut>(
    q: &Queue,
    handler: impl Fn(Run<u32>) -> Fut + Send + Sync + 'static,
) -> (Worker, WorkerTask, Spawned)
where
    Fut: Future<Output = ()> + Send + 'static,
{
    let spawned = Spawned::default();
    let slot = spawned.clone();
    let worker = Worker::of(q)
        .workers(1)
        .start_on(move |task: WorkerTask| *slot.lock().expect("no panic") = Some(task), handler)
        .expect("not too many");
    let task = spawned.lock().expect("no panic").take().expect("one task");
    (worker, task, spawned)
}

#[test]
fn loom_w_an_add_reaches_a_worker_in_a_future_whenever_it_is_polled() {
    every(|| {
        let (q, _) = queue();
        let works = {
            let q = q.clone();
            thread::spawn(move || one_run(&q, 1, drop))
        };
        q.add(1).expect("open");
        works.join().expect("no panic");
        assert_eq!(q.stats().held, 0);
    });
}

#[test]
fn loom_w_a_resize_reaches_a_future_whenever_it_is_polled() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let mut resizes = None;
        one_run(&q, 0, |worker| {
            resizes = Some(thread::spawn(move || worker.resize(1).expect("no thread is needed")));
        });
        resizes.expect("it was told").join().expect("no panic");
        assert_eq!(q.stats().held, 0);
    });
}

#[test]
fn loom_w_a_run_that_is_ended_while_its_task_is_polled_ends_once_and_the_task_leaves() {
    bounded_by(6, || {
        let (q, _) = queue();
        q.add(1).expect("open");
        let (worker, mut task, _) = one_task(&q);
        let works = thread::spawn(move || {
            let parker = Parker::current();
            while poll(&mut task, &parker).is_pending() {
                parker.park();
            }
        });
        let report = worker.stop(Duration::ZERO).wait();
        assert!(report.cancelled <= 1 && report.done == 0);
        works.join().expect("no panic");
        let left = q.stats();
        assert_eq!((left.held, left.ready + left.waiting, worker.workers()), (0, 1, 0));
    });
}

#[test]
fn loom_w_a_run_that_is_ended_while_its_task_is_dropped_ends_once() {
    bounded_by(6, || {
        let (q, _) = queue();
        q.add(1).expect("open");
        let (worker, mut task, spawned) = one_task(&q);
        assert!(poll(&mut task, &Parker::current()).is_pending());
        let stops = thread::spawn(move || {
            let report = worker.stop(Duration::ZERO).wait();
            (report, worker)
        });
        drop(task);
        let (report, worker) = stops.join().expect("no panic");
        // a task that was dropped first is a failed run, and perhaps had a successor
        assert_eq!(report.cancelled as u64 + report.done, 1);
        drop(spawned.lock().expect("no panic").take());
        let left = q.stats();
        assert_eq!((left.held, left.waiting, worker.workers()), (0, 1, 0));
    });
}

#[test]
fn loom_w_the_end_of_its_last_run_reaches_a_stop() {
    bounded_by(6, || {
        let (q, _) = queue();
        q.add(1).expect("open");
        let (worker, mut task, _) = one_task_of(&q, |run| async move { drop(run) });
        let works = thread::spawn(move || {
            // once: it runs the key and rests, or leaves
            let _ = poll(&mut task, &Parker::current());
            task
        });
        // without a deadline: a wake-up that is lost is a hang
        let report = worker.stop(Duration::MAX).wait();
        assert_eq!((report.complete, report.done + report.ready as u64), (true, 1));
        let mut task = works.join().expect("no panic");
        let _ = poll(&mut task, &Parker::current());
        assert_eq!((worker.workers(), q.stats().ready), (0, report.ready));
    });
}

#[test]
fn loom_w_a_stop_while_a_worker_goes_from_run_to_run_counts_each_run_once() {
    bounded_by(3, || {
        let (q, _) = queue();
        q.add(1).expect("open");
        q.add(2).expect("open");
        let (worker, mut task, _) = one_task_of(&q, |run| async move { drop(run) });
        let works = thread::spawn(move || {
            // once: it ends the first run and takes the second key in one hold, or is stopped in between
            let _ = poll(&mut task, &Parker::current());
            task
        });
        let report = worker.stop(Duration::ZERO).wait();
        assert!(report.done + report.cancelled as u64 <= 2 && report.still_running <= 1);
        let mut task = works.join().expect("no panic");
        let _ = poll(&mut task, &Parker::current());
        let last = worker.stop(Duration::ZERO).wait();
        // each key has had one run, or is in line still
        let left = q.stats();
        assert_eq!(last.done + last.cancelled as u64 + left.ready as u64, 2);
        assert_eq!((left.held, last.still_running, worker.workers()), (0, 0, 0));
    });
}

#[test]
fn loom_w_a_drain_waits_for_no_idle_task_that_is_not_polled() {
    every(|| {
        let (q, _) = queue();
        let (worker, mut task, _) = one_task(&q);
        assert!(poll(&mut task, &Parker::current()).is_pending());
        q.add(1).expect("open");
        let guard = q.try_get().expect("ready").into_owned();
        let ends = thread::spawn(move || drop(guard));
        let report = worker.drain(Duration::MAX).wait();
        assert_eq!((report.complete, report.held), (true, 0));
        ends.join().expect("no panic");
        assert!(poll(&mut task, &Parker::current()).is_ready());
    });
}

#[test]
fn loom_w_the_end_of_a_run_of_somebody_else_reaches_a_drain_of_workers() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let guard = q.try_get().expect("ready").into_owned();
        let workers = Worker::of(&q).workers(0).run(|_: Run<u32>| async {}).expect("not too many");
        let worker = workers.worker();
        let ends = thread::spawn(move || drop(guard));
        // without a deadline: a wake-up that is lost is a hang
        let report = worker.drain(Duration::MAX).wait();
        assert_eq!((report.complete, report.held), (true, 0));
        ends.join().expect("no panic");
        drop(workers);
    });
}

#[test]
fn loom_w_an_add_as_the_last_worker_leaves_brings_another() {
    bounded_by(5, || {
        let (q, _) = queue();
        let runs = Rc::new(Cell::new(0));
        let count = runs.clone();
        let builder = Worker::of(&q).workers(0..=1).idle_timeout(Duration::ZERO);
        let mut workers = builder
            .run(move |_: Run<u32>| {
                count.set(count.get() + 1);
                async {}
            })
            .expect("not too many");
        q.add(1).expect("open");
        let adds = {
            let q = q.clone();
            thread::spawn(move || q.add(2).expect("open"))
        };
        // it runs the first key, finds no other, and leaves, unless the second is there by then
        let parker = Parker::current();
        while runs.get() < 2 {
            assert!(poll(&mut workers, &parker).is_pending());
            if runs.get() < 2 {
                parker.park();
            }
        }
        adds.join().expect("no panic");
        assert_eq!((q.stats().held, q.len()), (0, 0));
    });
}
