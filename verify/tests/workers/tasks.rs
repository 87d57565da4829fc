//! W: what becomes of tasks that an executor drops, turns away or polls late, on an
//! executor that the test drives by hand.

use requeue::{Failure, FakeClock, Outcome, Run, Worker};
use requeue_verify::wake::Count;
use requeue_verify::watchdog::run;
use requeue_verify::workers::{Lists, Puppets, puppets, queue};
use smol::future::Boxed;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// An executor whose tasks the test polls and drops.
#[derive(Clone, Default)]
struct ByHand(Arc<Mutex<Vec<Boxed<()>>>>);

impl ByHand {
    fn spawn(&self) -> impl Fn(Boxed<()>) + Send + Sync + 'static {
        let tasks = Arc::clone(&self.0);
        move |task| tasks.lock().unwrap().push(task)
    }
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
    /// Takes the task that has been here longest.
    fn take(&self) -> Boxed<()> {
        self.0.lock().unwrap().remove(0)
    }
}

/// A worker with this many tasks, whose runs end as the test decides.
fn by_hand(workers: usize) -> (Lists, FakeClock, ByHand, Worker, Puppets) {
    let ((q, clock), hand, (puppets, handler)) = (queue(), ByHand::default(), puppets());
    let worker = Worker::of(&q).workers(workers).start_on(hand.spawn(), handler).expect("not too many");
    (q, clock, hand, worker, puppets)
}

#[test]
fn w_a_cancelled_task_is_a_failure_of_its_key_which_comes_back_with_its_payload() {
    run("w_a_cancelled_task…", || {
        let (q, clock) = queue();
        let hand = ByHand::default();
        let failures = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&failures);
        let (puppets, handler) = puppets();
        let worker = Worker::of(&q)
            .workers(1)
            .on_failure(move |key, why| {
                assert!(*key == 1 && matches!(why, Failure::Cancelled), "{why}");
                count.fetch_add(1, Ordering::SeqCst);
            })
            .start_on(hand.spawn(), handler)
            .expect("not too many");
        q.add_value(1, vec![7]).unwrap();
        let mut task = hand.take();
        assert!(Count::new().poll(&mut task).is_pending());
        puppets.run(1, 1);
        drop(task);
        assert_eq!(failures.load(Ordering::SeqCst), 1);
        assert_eq!((q.num_requeues(&1), q.stats().held, q.stats().waiting), (1, 0, 1));
        // The worker keeps its number: another task has come.
        assert_eq!((worker.workers(), hand.len()), (1, 1));
        clock.advance(ms(1));
        let mut task = hand.take();
        assert!(Count::new().poll(&mut task).is_pending());
        puppets.run(1, 2);
        assert_eq!(q.stats().held, 1);
        let report = worker.stop(Duration::ZERO).wait();
        assert_eq!((report.cancelled, report.still_running, report.done), (1, 0, 1));
        assert_eq!(failures.load(Ordering::SeqCst), 2);
        clock.advance(ms(2));
        let mut item = q.try_get().unwrap();
        assert_eq!((item.attempt(), item.take_value()), (3, Some(vec![7])));
        drop(item);
        // The executor comes round at last.
        assert!(Count::new().poll(&mut task).is_ready());
        assert_eq!(worker.workers(), 0);
    });
}

#[test]
fn w_a_task_that_is_dropped_while_it_waits_for_a_key_is_replaced_and_loses_no_key() {
    run("w_a_task_that_is_dropped_while_it_waits…", || {
        let (q, _clock, hand, worker, puppets) = by_hand(2);
        let (mut one, mut two) = (hand.take(), hand.take());
        let (first, second) = (Count::new(), Count::new());
        assert!(first.poll(&mut one).is_pending() && second.poll(&mut two).is_pending());
        q.add(1).unwrap();
        assert_eq!(first.wakes() + second.wakes(), 1);
        let (woken, mut other, count) =
            if first.wakes() == 1 { (one, two, second) } else { (two, one, first) };
        // It had been woken for the key: the wake-up is passed on.
        drop(woken);
        assert_eq!(count.wakes(), 1);
        assert!(count.poll(&mut other).is_pending());
        puppets.run(1, 1);
        assert_eq!((worker.workers(), hand.len()), (2, 1));
    });
}

#[test]
fn w_past_the_deadline_handlers_are_dropped_although_nobody_polls_them() {
    run("w_past_the_deadline_handlers_are_dropped_although_nobody_polls_them", || {
        let (q, clock, hand, worker, puppets) = by_hand(3);
        q.add(1).unwrap();
        q.add(2).unwrap();
        let mut tasks: Vec<Boxed<()>> = (0..3).map(|_| hand.take()).collect();
        let counts = [Count::new(), Count::new(), Count::new()];
        assert!(tasks.iter_mut().zip(&counts).all(|(task, count)| count.poll(task).is_pending()));
        puppets.skip(2);
        let mut stop = worker.stop(ms(100));
        assert!(Count::new().poll(&mut stop).is_pending());
        let woken = || counts.iter().map(|count| count.wakes()).collect::<Vec<_>>();
        assert_eq!(woken(), [0, 0, 1], "the one that waits for a key is woken");
        clock.advance(ms(100));
        let Poll::Ready(report) = Count::new().poll(&mut stop) else { panic!("past the deadline") };
        assert_eq!((report.complete, report.cancelled, report.still_running), (false, 2, 0));
        assert_eq!((q.stats().held, q.stats().waiting), (0, 2));
        assert!(woken().iter().all(|wakes| *wakes > 0), "the tasks are woken to leave");
        assert!(tasks.iter_mut().all(|task| Count::new().poll(task).is_ready()));
        assert_eq!(worker.workers(), 0);
    });
}

/// Tasks that were polled and wait for a key, and the wakers that they were polled with.
fn idle<const N: usize>(hand: &ByHand) -> ([Boxed<()>; N], [Arc<Count>; N]) {
    let (mut tasks, counts) = ([(); N].map(|()| hand.take()), [(); N].map(|()| Count::new()));
    assert!(tasks.iter_mut().zip(&counts).all(|(task, count)| count.poll(task).is_pending()));
    (tasks, counts)
}

#[test]
fn w_a_drain_waits_for_runs_and_for_no_idle_task_that_is_not_polled() {
    run("w_a_drain_waits_for_runs_and_for_no_idle_task_that_is_not_polled", || {
        let (q, _clock, hand, worker, puppets) = by_hand(2);
        let ([mut works, mut late], woken) = idle(&hand);
        q.add(1).unwrap();
        q.add(2).unwrap();
        let guard = q.try_get().unwrap();
        let count = Count::new();
        let mut drain = worker.drain(Duration::MAX);
        assert!(count.poll(&mut drain).is_pending(), "a key is ready");
        assert!(Count::new().poll(&mut works).is_pending());
        puppets.run(2, 1);
        drop(guard);
        assert!(count.poll(&mut drain).is_pending(), "a run goes on");
        puppets.end(Outcome::Done);
        let wakes = count.wakes();
        assert!(Count::new().poll(&mut works).is_ready());
        assert!(count.wakes() > wakes, "the end of the last run was not told");
        assert!(woken[1].wakes() > 0, "the other is to leave too");
        let Poll::Ready(report) = count.poll(&mut drain) else { panic!("it waits for an idle task") };
        assert_eq!((report.complete, report.done, report.held), (true, 1, 0));
        // Whenever the executor comes round, the task finds nothing and leaves.
        assert_eq!(worker.workers(), 1);
        assert!(Count::new().poll(&mut late).is_ready());
        worker.join();
    });
}

#[test]
fn w_a_drain_of_idle_tasks_that_are_not_polled_ends_with_the_run_of_somebody_else() {
    run("w_a_drain_of_idle_tasks_that_are_not_polled_ends…", || {
        let (q, _clock, hand, worker, _puppets) = by_hand(2);
        let (tasks, _woken) = idle::<2>(&hand);
        q.add(1).unwrap();
        let count = Count::new();
        let mut drain = worker.drain(Duration::MAX);
        assert!(count.poll(&mut drain).is_pending(), "a key is ready");
        let guard = q.try_get().unwrap();
        assert!(count.poll(&mut drain).is_pending(), "its run goes on");
        let wakes = count.wakes();
        drop(guard);
        assert!(count.wakes() > wakes, "the end of the last run was not told");
        let Poll::Ready(report) = count.poll(&mut drain) else { panic!("it waits for idle tasks") };
        assert_eq!((report.complete, report.done, report.held), (true, 0, 0));
        assert_eq!(worker.workers(), 2);
        drop(tasks);
        assert_eq!((worker.workers(), hand.len()), (0, 0), "they are not replaced");
    });
}

#[test]
fn w_a_stop_waits_for_runs_and_for_no_idle_task_that_is_not_polled() {
    run("w_a_stop_waits_for_runs_and_for_no_idle_task_that_is_not_polled", || {
        let (q, _clock, hand, worker, puppets) = by_hand(2);
        let ([mut works, mut late], _woken) = idle(&hand);
        q.add(1).unwrap();
        assert!(Count::new().poll(&mut works).is_pending());
        puppets.run(1, 1);
        let count = Count::new();
        let mut stop = worker.stop(Duration::MAX);
        assert!(count.poll(&mut stop).is_pending(), "a run goes on");
        puppets.end(Outcome::Done);
        assert!(Count::new().poll(&mut works).is_ready());
        assert_eq!(count.wakes(), 1, "the end of the last run was not told");
        let Poll::Ready(report) = count.poll(&mut stop) else { panic!("it waits for an idle task") };
        assert_eq!((report.complete, report.done, worker.workers()), (true, 1, 1));
        // A task that is polled after the report takes no key.
        q.add(2).unwrap();
        assert!(Count::new().poll(&mut late).is_ready());
        assert_eq!((worker.workers(), q.len(), puppets.has_more()), (0, 1, false));
    });
}

#[test]
fn w_a_task_that_is_dropped_by_a_stopped_worker_is_not_replaced() {
    run("w_a_task_that_is_dropped_by_a_stopped_worker_is_not_replaced", || {
        let (q, _clock, hand, worker, puppets) = by_hand(2);
        q.add(1).unwrap();
        let mut tasks = [hand.take(), hand.take()];
        assert!(tasks.iter_mut().all(|task| Count::new().poll(task).is_pending()));
        puppets.run(1, 1);
        let stop = worker.stop(Duration::MAX);
        drop(tasks);
        assert_eq!((worker.workers(), hand.len()), (0, 0));
        let report = stop.wait();
        assert_eq!((report.done, report.waiting), (1, 1), "a cancelled task is a run that failed");
    });
}

#[test]
fn w_a_task_that_is_turned_away_is_not_replaced() {
    run("w_a_task_that_is_turned_away_is_not_replaced", || {
        let (q, _clock) = queue();
        let open = Arc::new(AtomicBool::new(false));
        let hand = ByHand::default();
        let (spawn, is_open) = (hand.spawn(), Arc::clone(&open));
        let worker = Worker::of(&q)
            .workers(4)
            .start_on(
                move |task| {
                    if is_open.load(Ordering::SeqCst) {
                        spawn(task);
                    }
                },
                |run: Run<u64, Vec<u32>>| async move { drop(run) },
            )
            .expect("not too many");
        assert_eq!(worker.workers(), 0);
        assert!(worker.stop(Duration::MAX).wait().complete);
        // One that is accepted and dropped before its first poll is turned away too.
        open.store(true, Ordering::SeqCst);
        let (spawn, is_open) = (hand.spawn(), Arc::clone(&open));
        let worker = Worker::of(&q)
            .workers(1)
            .start_on(
                move |task| {
                    if is_open.load(Ordering::SeqCst) {
                        spawn(task);
                    }
                },
                |run: Run<u64, Vec<u32>>| async move { drop(run) },
            )
            .expect("not too many");
        drop(hand.take());
        assert_eq!((worker.workers(), hand.len()), (0, 0));
        // And it may be asked again.
        worker.resize(1).unwrap();
        assert_eq!((worker.workers(), hand.len()), (1, 1));
        // A replacement that is turned away leaves the worker with fewer.
        let mut task = hand.take();
        assert!(Count::new().poll(&mut task).is_pending());
        open.store(false, Ordering::SeqCst);
        drop(task);
        assert_eq!((worker.workers(), hand.len()), (0, 0));
    });
}

#[test]
fn w_an_executor_that_drops_each_task_after_its_first_poll_is_not_asked_for_ever() {
    run("w_an_executor_that_drops_each_task…", || {
        let (q, _clock) = queue();
        q.add_value(1, vec![7]).unwrap();
        let worker = Worker::of(&q)
            .workers(3)
            .start_on(
                |mut task: Boxed<()>| assert!(Count::new().poll(&mut task).is_pending()),
                |run: Run<u64, Vec<u32>>| async move {
                    pending::<()>().await;
                    drop(run);
                },
            )
            .expect("not too many");
        assert_eq!(worker.workers(), 0);
        assert_eq!((q.num_requeues(&1), q.stats().held), (1, 0), "its key came back");
    });
}

#[test]
fn w_handlers_that_never_wait_let_other_tasks_have_a_turn() {
    run("w_handlers_that_never_wait_let_other_tasks_have_a_turn", || {
        let (q, _clock) = queue();
        let hand = ByHand::default();
        let (again, runs) = (q.clone(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&runs);
        let _worker = Worker::of(&q)
            .workers(1)
            .start_on(hand.spawn(), move |run: Run<u64, Vec<u32>>| {
                count.fetch_add(1, Ordering::SeqCst);
                let _ = again.add(*run.key());
                async {}
            })
            .expect("not too many");
        q.add(1).unwrap();
        let mut task = hand.take();
        for poll in 1..=3 {
            let count = Count::new();
            assert!(count.poll(&mut task).is_pending());
            assert!((poll..=poll * 100).contains(&runs.load(Ordering::SeqCst)));
            assert_eq!(count.wakes(), 1, "it asks for its next turn");
        }
    });
}

#[test]
fn w_a_runtime_that_is_shut_down_while_its_tasks_work_loses_no_key() {
    run("w_a_runtime_that_is_shut_down_while_its_tasks_work_loses_no_key", || {
        const KEYS: usize = 50;
        for round in 0..50 {
            let (q, _clock) = queue();
            for key in 0..KEYS as u64 {
                q.add(key).unwrap();
            }
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
            let ended = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&ended);
            let executor = runtime.handle().clone();
            let worker = Worker::of(&q)
                .workers(8)
                .start_on(executor, move |run: Run<u64, Vec<u32>>| {
                    let count = Arc::clone(&count);
                    async move {
                        for _ in 0..run.key() % 4 {
                            tokio::task::yield_now().await;
                        }
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                })
                .expect("not too many");
            while ended.load(Ordering::SeqCst) < round {
                std::thread::yield_now();
            }
            drop(runtime);
            worker.join();
            let left = q.stats();
            assert_eq!(left.held, 0);
            assert_eq!(left.ready + left.waiting + ended.load(Ordering::SeqCst), KEYS, "{left:?}");
        }
    });
}

#[test]
fn w_a_runtime_that_is_shut_down_gives_its_keys_back() {
    run("w_a_runtime_that_is_shut_down_gives_its_keys_back", || {
        let (q, _clock) = queue();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let (puppets, handler) = puppets();
        let executor = runtime.handle().clone();
        let worker = Worker::of(&q).workers(3).start_on(executor, handler).expect("not too many");
        q.add_value(1, vec![7]).unwrap();
        q.add(2).unwrap();
        puppets.skip(2);
        drop(runtime);
        worker.join();
        assert_eq!((worker.workers(), q.stats().held, q.stats().waiting), (0, 0, 2));
        worker.resize(3).unwrap();
        assert_eq!(worker.workers(), 0, "nobody takes them");
        assert!(worker.stop(Duration::MAX).wait().complete);
    });
}

#[test]
fn w_more_workers_than_there_can_be_are_an_error_of_start() {
    run("w_more_workers_than_there_can_be_are_an_error_of_start", || {
        let (q, _clock) = queue();
        let hand = ByHand::default();
        let handler = |run: Run<u64, Vec<u32>>| async move { drop(run) };
        let builder = || Worker::of(&q).workers(usize::MAX);
        let errors = [
            builder().start_on(hand.spawn(), handler).map(drop).expect_err("an executor"),
            builder().run(handler).map(drop).expect_err("one future"),
            builder().start_threads(drop).map(drop).expect_err("threads"),
        ];
        for error in errors {
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
            let said = error.to_string();
            assert!(said.contains("18446744073709551615") && said.contains("at most 1048576"), "{said}");
        }
        assert_eq!(hand.len(), 0, "nothing was started");
    });
}

#[test]
fn w_on_demand_the_next_task_is_spawned_when_the_one_before_has_a_key() {
    run("w_on_demand_the_next_task_is_spawned_when_the_one_before_has_a_key", || {
        let ((q, clock), hand, (puppets, handler)) = (queue(), ByHand::default(), puppets());
        let builder = Worker::of(&q).workers(0..).idle_timeout(ms(5));
        let worker = builder.start_on(hand.spawn(), handler).expect("not too many");
        for key in 0..100 {
            q.add(key).unwrap();
        }
        let mut tasks = Vec::new();
        for there in 1..=50 {
            assert_eq!((hand.len(), worker.workers()), (1, there), "one at a time");
            let mut task = hand.take();
            assert!(Count::new().poll(&mut task).is_pending());
            puppets.skip(1);
            tasks.push(task);
        }
        // The one that is on its way finds enough to do, and so do those that work: nobody else
        // comes until one who was spawned has a key.
        for _ in 0..100 {
            puppets.end(Outcome::Done);
        }
        // Twice: in one poll a task ends so many runs and begins one more.
        for task in &mut tasks {
            assert!(Count::new().poll(task).is_pending());
            assert!(Count::new().poll(task).is_pending());
        }
        assert_eq!((q.len() + q.stats().held, hand.len(), worker.workers()), (0, 1, 51));
        let mut last = hand.take();
        assert!(Count::new().poll(&mut last).is_pending(), "it waits, for nothing is left");
        clock.advance(ms(5));
        for task in tasks.iter_mut().chain([&mut last]) {
            assert!(Count::new().poll(task).is_ready(), "its time is over");
        }
        assert_eq!(worker.workers(), 0);
        assert_eq!(worker.stop(Duration::MAX).wait().done, 100);
    });
}

#[test]
fn w_on_demand_a_task_that_is_turned_away_leaves_its_key_in_line_until_a_resize() {
    run("w_on_demand_a_task_that_is_turned_away…", || {
        let (q, _clock) = queue();
        let hand = ByHand::default();
        let (asked, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (spawn, count, is_open) = (hand.spawn(), Arc::clone(&asked), Arc::clone(&open));
        let executor = move |task| {
            count.fetch_add(1, Ordering::SeqCst);
            if is_open.load(Ordering::SeqCst) {
                spawn(task);
            }
        };
        let (puppets, handler) = puppets();
        let worker = Worker::of(&q).workers(0..=4).start_on(executor, handler).expect("not too many");
        for key in 1..=3 {
            q.add(key).unwrap();
        }
        assert_eq!((asked.load(Ordering::SeqCst), worker.workers(), q.len()), (1, 0, 3));
        worker.join(); // nobody comes any more
        open.store(true, Ordering::SeqCst);
        worker.resize(0..=4).unwrap();
        // One that is dropped before it was polled was turned away too.
        drop(hand.take());
        assert_eq!((asked.load(Ordering::SeqCst), worker.workers(), q.len()), (2, 0, 3));
        worker.resize(0..=4).unwrap();
        let mut task = hand.take();
        assert!(Count::new().poll(&mut task).is_pending());
        puppets.run(1, 1);
        assert_eq!((hand.len(), worker.workers()), (1, 2));
        // One that is dropped with a run in it is replaced.
        drop(task);
        assert_eq!((hand.len(), worker.workers(), q.stats().waiting), (2, 2, 1));
    });
}

#[test]
fn w_on_demand_an_executor_that_panics_reaches_no_caller() {
    run("w_on_demand_an_executor_that_panics_reaches_no_caller", || {
        let (q, _clock) = queue();
        let (_puppets, handler) = puppets();
        let executor = |task: Boxed<()>| {
            drop(task);
            panic!("an executor");
        };
        let worker = Worker::of(&q).workers(0..=4).start_on(executor, handler).expect("not too many");
        q.add(1).unwrap();
        q.add(2).unwrap();
        assert_eq!((q.len(), worker.workers()), (2, 0));
        assert!(worker.stop(Duration::MAX).wait().complete);
    });
}
