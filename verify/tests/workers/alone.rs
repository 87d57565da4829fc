//! W: the future without an executor, polled by hand.

use requeue::{Outcome, Run, WorkQueue, Worker};
use requeue_verify::wake::{Count, block_on, poll_once};
use requeue_verify::watchdog::run;
use requeue_verify::workers::{puppets, queue};
use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn w_without_an_executor_only_the_workers_that_were_woken_are_polled() {
    run("w_without_an_executor_only_the_workers_that_were_woken_are_polled", || {
        let (q, _clock) = queue();
        let polls = Rc::new(Cell::new(0));
        let wakers = Rc::new(RefCell::new(Vec::<Waker>::new()));
        let (count, kept) = (Rc::clone(&polls), Rc::clone(&wakers));
        let mut workers = Worker::of(&q)
            .workers(1_000)
            .run(move |run: Run<u64, Vec<u32>>| {
                let (count, kept) = (Rc::clone(&count), Rc::clone(&kept));
                async move {
                    let mut first = true;
                    poll_fn(|cx| {
                        count.set(count.get() + 1);
                        if std::mem::take(&mut first) {
                            kept.borrow_mut().push(cx.waker().clone());
                            return Poll::Pending;
                        }
                        Poll::Ready(())
                    })
                    .await;
                    drop(run);
                }
            })
            .expect("not too many");
        for key in 0..1_000 {
            q.add(key).unwrap();
        }
        let outer = Count::new();
        assert!(outer.poll(&mut workers).is_pending());
        assert_eq!((polls.get(), q.stats().held, outer.wakes()), (1_000, 1_000, 0));
        assert!(outer.poll(&mut workers).is_pending());
        assert_eq!(polls.get(), 1_000, "nobody was woken");
        for place in [3, 700, 3] {
            wakers.borrow()[place].wake_by_ref();
        }
        assert_eq!(outer.wakes(), 1, "the poll that follows serves both");
        assert!(outer.poll(&mut workers).is_pending());
        assert_eq!((polls.get(), q.stats().held), (1_002, 998));
        // One key, one worker is woken.
        q.add(5_000).unwrap();
        assert_eq!(outer.wakes(), 2);
        assert!(outer.poll(&mut workers).is_pending());
        assert_eq!((polls.get(), q.stats().held), (1_003, 999));
    });
}

#[test]
fn w_without_an_executor_a_future_dropped_half_way_gives_its_keys_back() {
    run("w_without_an_executor_a_future_dropped_half_way_gives_its_keys_back", || {
        let (q, clock) = queue();
        let (puppets, handler) = puppets();
        let mut workers = Worker::of(&q).workers(3).run(handler).expect("not too many");
        let handle = workers.worker();
        for key in 1..=2 {
            q.add_value(key, vec![7]).unwrap();
        }
        assert!(poll_once(&mut workers).is_pending());
        puppets.skip(2);
        handle.resize(5).unwrap(); // two of them are never seated
        let stop = handle.stop(Duration::MAX);
        drop(workers);
        let report = stop.wait();
        assert_eq!((report.done, report.cancelled, report.still_running), (2, 0, 0));
        assert_eq!((handle.workers(), q.stats().held, q.stats().waiting), (0, 0, 2));
        handle.resize(1).unwrap();
        assert_eq!(handle.workers(), 0, "there is nothing to run them");
        clock.advance(ms(1));
        for key in 1..=2 {
            let mut item = q.try_get().unwrap();
            assert_eq!((*item.key(), item.attempt(), item.take_value()), (key, 2, Some(vec![7])));
        }
    });
}

#[test]
fn w_without_an_executor_a_future_that_is_never_polled_takes_no_key() {
    run("w_without_an_executor_a_future_that_is_never_polled_takes_no_key", || {
        let (q, _clock) = queue();
        let workers = Worker::of(&q)
            .workers(3)
            .run(|run: Run<u64, Vec<u32>>| async move { drop(run) })
            .expect("not too many");
        let handle = workers.worker();
        q.add(1).unwrap();
        drop(workers);
        assert_eq!((q.len(), handle.workers()), (1, 0));
        assert!(handle.stop(Duration::MAX).wait().complete);
    });
}

#[test]
fn w_without_an_executor_a_stop_that_is_awaited_reports_when_the_handlers_are_dropped() {
    run("w_without_an_executor_a_stop_that_is_awaited…", || {
        let (q, clock) = queue();
        let (puppets, handler) = puppets();
        let mut workers = Worker::of(&q).workers(2).run(handler).expect("not too many");
        let handle = workers.worker();
        q.add(1).unwrap();
        let (outer, watching) = (Count::new(), Count::new());
        assert!(outer.poll(&mut workers).is_pending());
        puppets.run(1, 1);
        let mut stop = handle.stop(ms(100));
        assert!(watching.poll(&mut stop).is_pending());
        clock.advance(ms(100));
        assert!(watching.poll(&mut stop).is_pending(), "they are dropped in the future's next poll");
        assert_eq!(q.stats().held, 1);
        let wakes = watching.wakes();
        let Poll::Ready(last) = outer.poll(&mut workers) else { panic!("it has ended") };
        assert!(watching.wakes() > wakes);
        let Poll::Ready(report) = watching.poll(&mut stop) else { panic!("it has ended") };
        assert_eq!(
            (report.complete, report.cancelled, report.still_running, report.waiting),
            (false, 1, 0, 1)
        );
        assert_eq!((last.cancelled, last.done), (1, 0));
    });
}

#[test]
fn w_without_an_executor_a_stop_that_blocks_does_not_wait_for_its_own_thread() {
    run("w_without_an_executor_a_stop_that_blocks_does_not_wait_for_its_own_thread", || {
        let (q, _clock) = queue();
        let mut workers = Worker::of(&q)
            .workers(1)
            .run(|run: Run<u64, Vec<u32>>| async move {
                pending::<()>().await;
                drop(run);
            })
            .expect("not too many");
        let handle = workers.worker();
        q.add(1).unwrap();
        assert!(poll_once(&mut workers).is_pending());
        let report = handle.stop(Duration::ZERO).wait();
        assert_eq!((report.complete, report.cancelled, report.still_running), (false, 1, 1));
        assert!(poll_once(&mut workers).is_ready());
        assert_eq!((q.stats().held, q.stats().waiting), (0, 1));
    });
}

#[test]
fn w_without_an_executor_resizes_wake_the_future_and_0_is_a_pause() {
    run("w_without_an_executor_resizes_wake_the_future_and_0_is_a_pause", || {
        let (q, _clock) = queue();
        let (puppets, handler) = puppets();
        let mut workers = Worker::of(&q).workers(0).run(handler).expect("not too many");
        let handle = workers.worker();
        let outer = Count::new();
        q.add(1).unwrap();
        assert!(outer.poll(&mut workers).is_pending());
        assert!(!puppets.has_more());
        handle.resize(2).unwrap();
        assert_eq!(outer.wakes(), 1);
        assert!(outer.poll(&mut workers).is_pending());
        puppets.run(1, 1);
        handle.resize(0).unwrap();
        puppets.end(Outcome::Done);
        assert!(outer.poll(&mut workers).is_pending(), "paused, not ended");
        assert_eq!(handle.workers(), 0);
        let stop = handle.stop(Duration::MAX);
        assert!(outer.wakes() >= 3, "a stop wakes a paused one too");
        let Poll::Ready(report) = outer.poll(&mut workers) else { panic!("it was stopped") };
        assert_eq!((report.complete, report.done), (true, 1));
        assert!(stop.wait().complete);
    });
}

#[test]
fn w_without_an_executor_a_drain_ends_a_paused_one_and_reports_what_is_left() {
    run("w_without_an_executor_a_drain_ends_a_paused_one_and_reports_what_is_left", || {
        let (q, _clock) = queue();
        let mut workers = Worker::of(&q)
            .workers(0)
            .run(|run: Run<u64, Vec<u32>>| async move { drop(run) })
            .expect("not too many");
        let handle = workers.worker();
        q.add(1).unwrap();
        let outer = Count::new();
        assert!(outer.poll(&mut workers).is_pending());
        let report = handle.drain(Duration::MAX).wait();
        assert_eq!((report.complete, report.done, report.ready), (false, 0, 1));
        assert_eq!(outer.wakes(), 1);
        assert!(outer.poll(&mut workers).is_ready());
    });
}

#[test]
fn w_without_an_executor_it_ends_with_the_queue() {
    run("w_without_an_executor_it_ends_with_the_queue", || {
        let q = WorkQueue::<u64>::new();
        let seen = Rc::new(Cell::new(0));
        let count = Rc::clone(&seen);
        let workers = Worker::of(&q)
            .workers(4)
            .run(move |run: Run<u64>| {
                let count = Rc::clone(&count);
                async move { count.set(count.get() + run.key()) }
            })
            .expect("not too many");
        for key in 1..=100 {
            q.add(key).unwrap();
        }
        drop(q); // the last handle: it is no handle itself
        let report = block_on(workers);
        assert_eq!((report.complete, report.done, seen.get()), (true, 100, 5_050));
    });
}
