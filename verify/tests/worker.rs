//! W: workers on threads, their outcomes and attempts. The worker stands on the
//! library's queue, so these tests do too; its attempts, as guards count them,
//! are in the suite.

use requeue::{Failure, FakeClock, Instant, Outcome, RateLimiter, Run, WorkQueue, Worker};
use requeue_verify::puppets::{puppets, queue};
use requeue_verify::watchdog::run;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn w_workers_take_keys_and_call_the_handler() {
    run("w_workers_take_keys_and_call_the_handler", || {
        let (q, _clock) = queue();
        let (tell, ran) = channel();
        let worker = Worker::of(&q)
            .workers(3)
            .start_threads(move |run| tell.send(*run.key()).expect("the test listens"))
            .unwrap();
        for key in 0..100 {
            q.add(key).unwrap();
        }
        let report = worker.drain(Duration::MAX).wait();
        let mut keys: Vec<u64> = ran.try_iter().collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..100).collect::<Vec<_>>());
        assert_eq!((report.complete, report.ready), (true, 0));
    });
}

#[test]
fn w_n_workers_run_n_keys_at_once_and_no_more() {
    run("w_n_workers_run_n_keys_at_once_and_no_more", || {
        let (q, _clock) = queue();
        let all_in = Arc::new(Barrier::new(4));
        let at_once = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let (barrier, now, max) = (Arc::clone(&all_in), Arc::clone(&at_once), Arc::clone(&most));
        for key in 0..12 {
            q.add(key).unwrap();
        }
        let worker = Worker::of(&q)
            .workers(3)
            .start_threads(move |run| {
                max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                if *run.key() < 3 {
                    // The first three are all in at once, or this waits for ever.
                    barrier.wait();
                }
                now.fetch_sub(1, Ordering::SeqCst);
            })
            .unwrap();
        all_in.wait();
        worker.drain(Duration::MAX).wait();
        assert_eq!(most.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn w_a_handler_may_call_the_queue() {
    run("w_a_handler_may_call_the_queue", || {
        let (q, _clock) = queue();
        let (tell, ran) = channel();
        let inner = q.clone();
        let worker = Worker::of(&q)
            .workers(1)
            .start_threads(move |run| {
                assert!(inner.state(run.key()).is_some_and(|state| state.held));
                if *run.key() < 3 {
                    inner.add(run.key() + 1).unwrap();
                } else {
                    inner.shut_down();
                }
                tell.send(*run.key()).unwrap();
            })
            .unwrap();
        q.add(1).unwrap();
        worker.join();
        assert_eq!(ran.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
    });
}

#[test]
fn w_no_workers_are_a_pause() {
    run("w_no_workers_are_a_pause", || {
        let (q, _clock) = queue();
        let worker = Worker::of(&q).workers(0).start_threads(|_| ()).unwrap();
        q.add(1).unwrap();
        let report = worker.stop(Duration::MAX).wait();
        assert_eq!((report.done, report.ready, q.len()), (0, 1, 1));
        assert!(!q.shutting_down());
    });
}

#[test]
fn w_done_forgets_the_failures() {
    run("w_done_forgets_the_failures", || {
        let (q, clock) = queue();
        let (puppets, handler) = puppets();
        let worker = Worker::of(&q).workers(1).start_threads(handler).unwrap();
        q.add(1).unwrap();
        puppets.run(1, 1);
        puppets.end(Outcome::Retry("not yet".into()));
        clock.wait_for_alarms(1);
        assert_eq!(q.num_requeues(&1), 1);
        clock.advance(ms(1));
        puppets.run(1, 2);
        puppets.end(Outcome::Done);
        worker.drain(Duration::MAX).wait();
        assert_eq!(q.num_requeues(&1), 0);
        assert_eq!(q.state(&1), None);
    });
}

#[test]
fn w_again_is_not_a_failure_it_forgets_and_comes_back_after_its_delay() {
    run("w_again_is_not_a_failure_it_forgets_and_comes_back_after_its_delay", || {
        let (q, clock) = queue();
        let (puppets, handler) = puppets();
        let failures = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&failures);
        let worker = Worker::of(&q)
            .workers(1)
            .on_failure(move |_, _| {
                count.fetch_add(1, Ordering::SeqCst);
            })
            .start_threads(handler)
            .unwrap();
        q.add(1).unwrap();
        puppets.run(1, 1);
        puppets.end(Outcome::Retry("not yet".into()));
        clock.wait_for_alarms(1);
        clock.advance(ms(1));
        puppets.run(1, 2);
        puppets.end(Outcome::Again(ms(50)));
        clock.wait_for_alarms(1);
        assert_eq!(q.num_requeues(&1), 0);
        assert_eq!(clock.next_alarm(), q.state(&1).and_then(|state| state.waiting_until));
        clock.advance(ms(50) - Duration::from_nanos(1));
        assert_eq!(q.len(), 0);
        clock.advance(Duration::from_nanos(1));
        puppets.run(1, 1);
        puppets.end(Outcome::Done);
        worker.drain(Duration::MAX).wait();
        assert_eq!(failures.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn w_retry_comes_back_after_what_the_limiter_says() {
    run("w_retry_comes_back_after_what_the_limiter_says", || {
        let (q, clock) = queue();
        let (puppets, handler) = puppets();
        let worker = Worker::of(&q).workers(1).start_threads(handler).unwrap();
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
        worker.drain(Duration::MAX).wait();
    });
}

fn clock_at(clock: &FakeClock) -> Instant {
    requeue::Clock::now(clock)
}

#[test]
fn w_retry_with_its_own_delay_still_asks_the_limiter() {
    run("w_retry_with_its_own_delay_still_asks_the_limiter", || {
        let (q, clock) = queue();
        let (puppets, handler) = puppets();
        let worker = Worker::of(&q).workers(1).start_threads(handler).unwrap();
        q.add(1).unwrap();
        puppets.run(1, 1);
        puppets.end(Outcome::RetryAfter(ms(70), "busy".into()));
        clock.wait_for_alarms(1);
        assert_eq!(q.num_requeues(&1), 1);
        assert_eq!(q.state(&1).and_then(|state| state.waiting_until), Some(clock_at(&clock) + ms(70)));
        clock.advance(ms(70));
        puppets.run(1, 2);
        puppets.end(Outcome::Done);
        worker.drain(Duration::MAX).wait();
    });
}

#[test]
fn w_give_up_is_reported_and_forgotten() {
    run("w_give_up_is_reported_and_forgotten", || {
        let (q, clock) = queue();
        let (puppets, handler) = puppets();
        let (tell, gave_up) = channel();
        let worker = Worker::of(&q)
            .workers(1)
            .on_give_up(move |key, why| tell.send((*key, why.to_string())).unwrap())
            .start_threads(handler)
            .unwrap();
        q.add(1).unwrap();
        puppets.run(1, 1);
        puppets.end(Outcome::Retry("not yet".into()));
        clock.wait_for_alarms(1);
        clock.advance(ms(1));
        puppets.run(1, 2);
        puppets.end(Outcome::GiveUp("no such object".into()));
        assert_eq!(gave_up.recv().unwrap(), (1, "no such object".to_owned()));
        worker.drain(Duration::MAX).wait();
        assert_eq!(q.num_requeues(&1), 0);
        assert_eq!(q.state(&1), None);
    });
}

#[test]
fn w_give_up_of_a_dirty_key_still_gets_its_next_run_at_attempt_1() {
    run("w_give_up_of_a_dirty_key_still_gets_its_next_run_at_attempt_1", || {
        let (q, clock) = queue();
        let (puppets, handler) = puppets();
        let worker = Worker::of(&q).workers(1).start_threads(handler).unwrap();
        q.add(1).unwrap();
        puppets.run(1, 1);
        puppets.end(Outcome::Retry("not yet".into()));
        clock.wait_for_alarms(1);
        clock.advance(ms(1));
        puppets.run(1, 2);
        q.add(1).unwrap();
        puppets.end(Outcome::GiveUp("hopeless".into()));
        puppets.run(1, 1);
        puppets.end(Outcome::Done);
        worker.drain(Duration::MAX).wait();
    });
}

#[test]
fn w_the_last_attempt_that_fails_gives_the_key_up() {
    run("w_the_last_attempt_that_fails_gives_the_key_up", || {
        let (q, clock) = queue();
        let (tell, ran) = channel();
        let (told, gave_up) = channel();
        let worker = Worker::of(&q)
            .workers(1)
            .max_attempts(3)
            .on_give_up(move |key, why| told.send((*key, why.to_string())).unwrap())
            .start_threads(move |run| {
                tell.send(run.attempt()).unwrap();
                Err::<(), _>("always")
            })
            .unwrap();
        q.add(1).unwrap();
        for delay in [1, 2] {
            ran.recv().unwrap();
            clock.wait_for_alarms(1);
            clock.advance(ms(delay));
        }
        assert_eq!(ran.recv().unwrap(), 3);
        assert_eq!(gave_up.recv().unwrap(), (1, "always".to_owned()));
        worker.drain(Duration::MAX).wait();
        assert_eq!(q.num_requeues(&1), 0, "reported, and forgotten");
        assert_eq!(ran.try_iter().count(), 0);
    });
}

#[test]
fn x27_attempts_are_not_exhausted_for_a_key_that_a_newer_trigger_made_dirty() {
    run("x27_attempts_are_not_exhausted_for_a_key_that_a_newer_trigger_made_dirty", || {
        let (q, clock) = queue();
        let (puppets, handler) = puppets();
        let worker = Worker::of(&q).workers(1).max_attempts(2).start_threads(handler).unwrap();
        q.add(1).unwrap();
        puppets.run(1, 1);
        puppets.end(Outcome::Retry("not yet".into()));
        clock.wait_for_alarms(1);
        clock.advance(ms(1));
        puppets.run(1, 2);
        q.add(1).unwrap();
        puppets.end(Outcome::Retry("not yet".into()));
        puppets.run(1, 1);
        puppets.end(Outcome::Done);
        worker.stop(Duration::MAX).wait();
    });
}

#[test]
fn w_a_trigger_for_a_key_that_waits_out_a_failure_runs_now_at_attempt_1() {
    run("w_a_trigger_for_a_key_that_waits_out_a_failure_runs_now_at_attempt_1", || {
        let (q, clock) = queue();
        let (puppets, handler) = puppets();
        let worker = Worker::of(&q).workers(1).start_threads(handler).unwrap();
        q.add(1).unwrap();
        puppets.run(1, 1);
        puppets.end(Outcome::Retry("not yet".into()));
        clock.wait_for_alarms(1);
        q.add(1).unwrap();
        puppets.run(1, 1);
        assert_eq!(q.num_requeues(&1), 1, "it does not count as a failure");
        puppets.end(Outcome::Done);
        worker.stop(Duration::MAX).wait();
    });
}

#[test]
fn w_a_panic_is_a_failure_of_that_key_and_ends_nothing_else() {
    run("w_a_panic_is_a_failure_of_that_key_and_ends_nothing_else", || {
        let (q, clock) = queue();
        let (tell, failed) = channel();
        let (told, ran) = channel();
        let worker = Worker::of(&q)
            .workers(1)
            .on_failure(move |key, why| {
                assert!(matches!(why, Failure::Panic(_)));
                tell.send((*key, why.to_string())).unwrap();
            })
            .start_threads(move |run| {
                told.send((*run.key(), run.attempt())).unwrap();
                assert!(*run.key() != 1 || run.attempt() > 1, "key 1 is not well");
            })
            .unwrap();
        q.add(1).unwrap();
        q.add(2).unwrap();
        let (key, why) = failed.recv().unwrap();
        assert_eq!(key, 1);
        assert!(why.contains("key 1 is not well"), "{why}");
        assert_eq!((ran.recv().unwrap(), ran.recv().unwrap()), ((1, 1), (2, 1)), "the same thread goes on");
        clock.wait_for_alarms(1);
        assert_eq!(q.num_requeues(&1), 1);
        clock.advance(ms(1));
        assert_eq!(ran.recv().unwrap(), (1, 2));
        assert!(worker.drain(Duration::MAX).wait().complete);
    });
}

#[test]
fn w_a_panic_in_a_hook_ends_nothing() {
    run("w_a_panic_in_a_hook_ends_nothing", || {
        let (q, _clock) = queue();
        let (tell, ran) = channel();
        let worker = Worker::of(&q)
            .workers(1)
            .on_failure(|_, _| panic!("a hook"))
            .on_give_up(|_, _| panic!("another hook"))
            .start_threads(move |run| {
                tell.send(*run.key()).unwrap();
                Outcome::GiveUp("hopeless".into())
            })
            .unwrap();
        q.add(1).unwrap();
        q.add(2).unwrap();
        assert!(worker.drain(Duration::MAX).wait().complete);
        assert_eq!(ran.try_iter().collect::<Vec<_>>(), [1, 2]);
    });
}

#[test]
fn w_payloads_of_failed_runs_go_back() {
    run("w_payloads_of_failed_runs_go_back", || {
        let (q, clock) = queue();
        let (tell, ran) = channel();
        let worker = Worker::of(&q)
            .workers(1)
            .start_threads(move |mut run: Run<u64, Vec<u32>>| {
                tell.send((run.attempt(), run.value().cloned())).unwrap();
                match run.attempt() {
                    1 => Outcome::Retry("not yet".into()),
                    2 => panic!("not yet"),
                    3 => {
                        drop(run.take_value());
                        Outcome::Retry("with what it took".into())
                    }
                    _ => Outcome::Done,
                }
            })
            .unwrap();
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
        worker.drain(Duration::MAX).wait();
    });
}

#[test]
fn w_a_handler_may_return_nothing_or_a_result() {
    run("w_a_handler_may_return_nothing_or_a_result", || {
        let (q, clock) = queue();
        let worker = Worker::of(&q).workers(1).start_threads(|_| ()).unwrap();
        q.add(1).unwrap();
        while q.state(&1).is_some() {
            std::thread::yield_now();
        }
        worker.stop(Duration::MAX).wait();
        let worker =
            Worker::of(&q).workers(1).start_threads(|run| "x".parse::<u32>().map(|_| drop(run))).unwrap();
        q.add(2).unwrap();
        clock.wait_for_alarms(1);
        assert_eq!(q.num_requeues(&2), 1, "an error is a retry");
        worker.stop(Duration::MAX).wait();
    });
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

#[test]
fn x07_ten_thousand_duplicate_triggers_take_one_token_a_run() {
    run("x07_ten_thousand_duplicate_triggers_take_one_token_a_run", || {
        let clock = FakeClock::new();
        let asked = Arc::new(AtomicUsize::new(0));
        let q = WorkQueue::merging(|_: &mut Vec<u32>, _: Vec<u32>| {})
            .clock(clock.clone())
            .limiter(Counting(Arc::clone(&asked)))
            .build()
            .unwrap();
        let (puppets, handler) = puppets();
        let worker = Worker::of(&q).workers(1).start_threads(handler).unwrap();
        q.add(1).unwrap();
        puppets.run(1, 1);
        for _ in 0..10_000 {
            q.add(1).unwrap();
        }
        puppets.end(Outcome::Retry("not yet".into()));
        puppets.run(1, 1);
        assert_eq!(asked.load(Ordering::SeqCst), 1, "the limiter is asked at most once a run");
        puppets.end(Outcome::Done);
        worker.stop(Duration::MAX).wait();
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn r_the_worker_lets_records_expire() {
    run("r_the_worker_lets_records_expire", || {
        for (set, hours) in [(None, 1), (Some(2), 2)] {
            let (q, clock) = queue();
            let mut worker = Worker::of(&q).workers(1);
            if let Some(hours) = set {
                worker = worker.expire_failures_after(Some(Duration::from_secs(hours * 3_600)));
            }
            let (puppets, handler) = puppets();
            let worker = worker.start_threads(handler).unwrap();
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
            worker.stop(Duration::MAX).wait();
        }
    });
}
