//! W: handlers that block are asked to end, and cannot be forced to. Tests for every worker are in
//! `src/workers`.

use requeue::{Alarm, Clock, Failure, FakeClock, Instant, WorkQueue, Worker};
use requeue_verify::watchdog::run;
use requeue_verify::workers::queue;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, OnceLock};
use std::task::Waker;
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn w_past_its_time_limit_a_run_is_told_and_reported_at_once_and_keeps_its_key_until_it_returns() {
    run("w_past_its_time_limit…", || {
        let (q, clock) = queue();
        let (tell, failed) = channel();
        let (told, began) = channel();
        let release = Arc::new(Barrier::new(2));
        let gate = Arc::clone(&release);
        let was_told = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&was_told);
        let worker = Worker::of(&q)
            .workers(1)
            .time_limit(ms(100))
            .on_failure(move |key, why| {
                assert!(matches!(why, Failure::TimeLimit(limit) if *limit == ms(100)));
                tell.send(*key).unwrap();
            })
            .start_threads(move |run| {
                assert!(!run.cancelled());
                told.send((*run.key(), run.attempt())).unwrap();
                if (*run.key(), run.attempt()) == (1, 1) {
                    gate.wait();
                    flag.store(run.cancelled(), Ordering::SeqCst);
                }
            })
            .unwrap();
        q.add(1).unwrap();
        assert_eq!(began.recv().unwrap(), (1, 1));
        clock.wait_for_alarms(1);
        clock.advance(ms(100) - Duration::from_nanos(1));
        assert!(failed.try_recv().is_err(), "reported early");
        clock.advance(Duration::from_nanos(1));
        assert_eq!(failed.recv().unwrap(), 1, "reported at once, while the handler goes on");
        assert!(q.state(&1).is_some_and(|state| state.held), "its key stays held");
        q.add(2).unwrap();
        release.wait();
        assert_eq!(began.recv().unwrap(), (2, 1));
        assert!(was_told.load(Ordering::SeqCst), "the handler was not told");
        // A thread that waits now, for the limit or for the back-off of 1 ms, has an alarm.
        while clock.next_alarm() != q.state(&1).and_then(|state| state.waiting_until) {
            std::thread::yield_now();
        }
        assert_eq!(q.num_requeues(&1), 1, "one failure, although it was reported and then returned");
        clock.advance(ms(1));
        assert_eq!(began.recv().unwrap(), (1, 2));
        worker.drain(Duration::MAX).wait();
        assert!(failed.try_recv().is_err(), "reported once");
    });
}

#[test]
fn w_a_clock_that_panics_does_not_end_the_watching_of_time_limits() {
    /// Panics when the watching thread reads it for the first time.
    struct Moody(FakeClock, AtomicBool);
    impl Clock for Moody {
        fn now(&self) -> Instant {
            let watches = std::thread::current().name() == Some("requeue-limits");
            assert!(!watches || self.1.swap(true, Ordering::SeqCst), "a clock");
            self.0.now()
        }
        fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm {
            self.0.wake_at(at, waker)
        }
        fn watch_at(&self, at: Instant, waker: &Waker) -> Alarm {
            self.0.watch_at(at, waker)
        }
    }
    run("w_a_clock_that_panics_does_not_end_the_watching_of_time_limits", || {
        let clock = FakeClock::new();
        let q = WorkQueue::builder().clock(Moody(clock.clone(), AtomicBool::new(false))).build().unwrap();
        let (tell, failed) = channel();
        let worker = Worker::of(&q)
            .workers(1)
            .max_attempts(1)
            .time_limit(ms(100))
            .on_failure(move |key, why| tell.send((*key, why.to_string())).unwrap())
            .start_threads(|run| {
                while !run.cancelled() {
                    std::thread::yield_now();
                }
            })
            .unwrap();
        q.add(1).unwrap();
        clock.wait_for_alarms(1);
        clock.advance(ms(100));
        assert_eq!(failed.recv().unwrap(), (1, "the handler took longer than 100ms".to_owned()));
        worker.drain(Duration::MAX).wait();
    });
}

#[test]
fn w_past_the_deadline_of_stop_running_handlers_are_told_and_counted() {
    run("w_past_the_deadline_of_stop_running_handlers_are_told_and_counted", || {
        let (q, clock) = queue();
        let (tell, began) = channel();
        let seen = Arc::new(AtomicUsize::new(0));
        let cancelled = Arc::clone(&seen);
        let worker = Worker::of(&q)
            .workers(2)
            .start_threads(move |run| {
                tell.send(()).unwrap();
                while !run.cancelled() {
                    std::thread::yield_now();
                }
                cancelled.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
        for key in 1..=3 {
            q.add(key).unwrap();
        }
        began.recv().unwrap();
        began.recv().unwrap();
        std::thread::scope(|s| {
            let stop = s.spawn(|| worker.stop(ms(100)).wait());
            clock.wait_for_alarms(1);
            clock.advance(ms(100));
            let report = stop.join().unwrap();
            assert!(!report.complete);
            assert_eq!((report.cancelled, report.ready), (2, 1));
        });
        worker.join();
        assert_eq!(seen.load(Ordering::SeqCst), 2);
        assert_eq!(q.len(), 1, "no further key was taken");
    });
}

#[test]
fn w_past_the_deadline_of_drain_running_handlers_are_told_and_counted() {
    run("w_past_the_deadline_of_drain_running_handlers_are_told_and_counted", || {
        let (q, clock) = queue();
        let (tell, began) = channel();
        let release = Arc::new(Barrier::new(2));
        let gate = Arc::clone(&release);
        let worker = Worker::of(&q)
            .workers(1)
            .start_threads(move |run| {
                tell.send(()).unwrap();
                gate.wait();
                assert!(run.cancelled());
            })
            .unwrap();
        q.add(1).unwrap();
        q.add(2).unwrap();
        began.recv().unwrap();
        std::thread::scope(|s| {
            let drain = s.spawn(|| worker.drain(ms(100)).wait());
            clock.wait_for_alarms(1);
            clock.advance(ms(100));
            let report = drain.join().unwrap();
            assert!(!report.complete);
            assert_eq!((report.cancelled, report.still_running, report.ready), (1, 1, 1));
        });
        release.wait();
        worker.join();
        assert_eq!(q.len(), 1, "past the deadline no key is taken");
    });
}

/// Waits for the worker in its drop, which an owner of one may do.
struct Owner {
    worker: OnceLock<Worker>,
    waits: fn(&Worker),
    dropped: std::sync::mpsc::Sender<()>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        (self.waits)(self.worker.get().unwrap());
        self.dropped.send(()).unwrap();
    }
}

#[test]
fn w_what_a_handler_has_captured_may_wait_for_the_worker_in_its_drop() {
    run("w_what_a_handler…", || {
        let waits: [fn(&Worker); 3] = [
            Worker::join,
            |worker| _ = worker.stop(Duration::MAX).wait(),
            |worker| _ = worker.drain(Duration::MAX).wait(),
        ];
        for waits in waits {
            let (q, _clock) = queue();
            let (dropped, is_dropped) = channel();
            let owner = Arc::new(Owner { worker: OnceLock::new(), waits, dropped });
            let captured = Arc::clone(&owner);
            let worker = Worker::of(&q).workers(2).start_threads(move |_| drop(captured.clone())).unwrap();
            assert!(owner.worker.set(worker).is_ok());
            // the last one that has it is a thread of the worker's
            drop(owner);
            q.shut_down();
            is_dropped.recv().unwrap();
        }
    });
}

#[test]
fn w_the_hook_for_failures_may_stop_the_worker_whose_run_is_past_its_time_limit() {
    run("w_the_hook_for_failures…", || {
        let (q, clock) = queue();
        let worker = Arc::new(OnceLock::<Worker>::new());
        let (stopped, is_stopped) = channel();
        let (tell, began) = channel();
        let release = Arc::new(Barrier::new(2));
        let (stops, gate) = (Arc::clone(&worker), Arc::clone(&release));
        let started = Worker::of(&q)
            .workers(1)
            .time_limit(ms(50))
            .on_failure(move |_, _| {
                let stop = stops.get().unwrap().stop(Duration::MAX);
                gate.wait();
                stopped.send(stop.wait().complete).unwrap();
            })
            .start_threads(move |_| {
                tell.send(()).unwrap();
                release.wait();
            })
            .unwrap();
        assert!(worker.set(started).is_ok());
        q.add(1).unwrap();
        began.recv().unwrap();
        clock.advance(ms(50));
        assert!(is_stopped.recv().unwrap());
    });
}
