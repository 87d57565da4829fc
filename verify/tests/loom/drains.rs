//! Shutdowns: every caller that waits for the end is woken by it.

use crate::support::{Hash, Queue, block_on, bounded, every, nanos, queue, taker, work};
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;
use requeue::{DrainOptions, FakeClock, Instant, RateLimiter, WaitingKeys, WorkQueue, limiter};
use std::sync::Arc;
use std::time::Duration;

fn waits() -> DrainOptions {
    DrainOptions::default().waiting_keys(WaitingKeys::Wait)
}

/// A queue whose failed keys come back after five nanoseconds.
fn retrying() -> (Queue, FakeClock) {
    let clock = FakeClock::new();
    let five = limiter::Exponential::new(nanos(5), nanos(5)).expect("a delay");
    let builder = WorkQueue::builder().clock(clock.clone()).limiter(five).hasher(Hash::default());
    (Arc::new(builder.build().expect("it has no metrics")), clock)
}

#[test]
fn loom_q11_a_drain_against_the_last_done() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        let worker = thread::spawn(move || item.done());
        let drained = q.drain(DrainOptions::default()).wait();
        assert!(drained.complete && drained.held == 0);
        worker.join().expect("no panic");
    });
}

#[test]
fn loom_q11_a_drain_that_is_awaited_against_the_last_done() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        let worker = thread::spawn(move || item.done());
        assert!(block_on(q.drain(DrainOptions::default())).complete);
        worker.join().expect("no panic");
    });
}

#[test]
fn loom_q11_a_drain_waits_for_ready_keys_and_ends_with_the_getter() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let worker = {
            let q = q.clone();
            thread::spawn(move || work(&q))
        };
        let drained = q.drain(DrainOptions::default()).wait();
        assert!(drained.complete && drained.ready == 0);
        assert_eq!(worker.join().expect("no panic"), 1);
    });
}

/// Both wait for the same end, and both are woken.
#[test]
fn loom_q11_two_drains_return_together() {
    bounded(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        let second = {
            let q = q.clone();
            thread::spawn(move || block_on(q.drain(DrainOptions::default())).complete)
        };
        let worker = thread::spawn(move || item.done());
        assert!(q.drain(DrainOptions::default()).wait().complete);
        assert!(second.join().expect("no panic"));
        worker.join().expect("no panic");
    });
}

/// The key stays held: nothing but `shut_down` can end the wait.
#[test]
fn loom_q11_shut_down_releases_a_drain() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready");
        let drain = q.drain(DrainOptions::default());
        let shuts = {
            let q = q.clone();
            thread::spawn(move || q.shut_down().held)
        };
        let drained = drain.wait();
        assert!(!drained.complete && drained.held == 1);
        assert_eq!(shuts.join().expect("no panic"), 1);
        drop(item);
    });
}

/// Two drains wait, and the key is held until both have returned.
#[test]
fn loom_x02_shut_down_releases_both_of_two_drains() {
    bounded(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready");
        let first = q.drain(DrainOptions::default());
        let second = {
            let q = q.clone();
            thread::spawn(move || {
                let second = q.drain(DrainOptions::default());
                let shuts = {
                    // only now: both drains have begun
                    let q = q.clone();
                    thread::spawn(move || q.shut_down().held)
                };
                let drained = block_on(second);
                assert_eq!(shuts.join().expect("no panic"), 1);
                drained.complete
            })
        };
        assert!(!first.wait().complete);
        assert!(!second.join().expect("no panic"));
        drop(item);
    });
}

/// Two drains and a `shut_down` at the same time: whichever comes first, both
/// drains return.
#[test]
fn loom_x02_shut_down_racing_two_drains() {
    bounded(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        let drain = q.drain(DrainOptions::default());
        let shuts = {
            let q = q.clone();
            thread::spawn(move || q.shut_down())
        };
        let second = {
            let q = q.clone();
            thread::spawn(move || {
                let drain = q.drain(DrainOptions::default());
                item.done();
                drain.wait().complete
            })
        };
        let first = drain.wait();
        assert!(first.done <= 1);
        assert!(second.join().expect("no panic"));
        shuts.join().expect("no panic");
    });
}

/// A getter and a drain wait at the same queue: each is woken by what concerns it.
#[test]
fn loom_x02_a_getter_and_a_drain_wait_at_once() {
    bounded(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        // dirty: the run that is due to it keeps getter and drain waiting
        q.add(1).expect("open");
        let getter = {
            let q = q.clone();
            thread::spawn(move || work(&q))
        };
        let worker = thread::spawn(move || item.done());
        let drained = q.drain(DrainOptions::default()).wait();
        assert!(drained.complete && drained.held == 0);
        assert_eq!(getter.join().expect("no panic"), 1);
        worker.join().expect("no panic");
    });
}

/// The last retry completes while a getter waits: getter and drain are released
/// by the end that this brings about.
#[test]
fn loom_q14_the_last_retry_under_a_waiting_drain_releases_getter_and_drain() {
    bounded(|| {
        let (q, clock) = retrying();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        q.close();
        let drain = q.drain(waits());
        let getter = {
            let q = q.clone();
            thread::spawn(move || work(&q))
        };
        let worker = thread::spawn(move || {
            assert_eq!(item.retry().ok(), Some(nanos(5)));
            clock.advance(nanos(5));
        });
        let drained = drain.wait();
        assert!(drained.complete && drained.done == 2 && drained.waiting == 0);
        assert_eq!(getter.join().expect("no panic"), 1);
        worker.join().expect("no panic");
    });
}

/// The deadline of a waiting drain comes while only a getter sleeps: the queue shuts down, and the getter
/// returns.
#[test]
fn loom_q14_the_deadline_of_a_waiting_drain_releases_a_getter() {
    every(|| {
        let (q, clock) = queue();
        q.add_after(1, nanos(50)).expect("open");
        let getter = taker(&q);
        drop(q.drain(waits().timeout(nanos(5))));
        clock.advance(nanos(5));
        assert_eq!(getter.join().expect("no panic"), None);
    });
}

/// The latest drain decides how long waiting keys are waited for: its deadline ends the wait of an earlier
/// one, even if no other caller is there to notice.
#[test]
fn loom_q11_the_deadline_of_the_latest_drain_releases_an_earlier_one() {
    every(|| {
        let (q, clock) = queue();
        q.add_after(1, nanos(50)).expect("open");
        let first = q.drain(waits());
        let second = {
            let q = q.clone();
            thread::spawn(move || {
                drop(q.drain(waits().timeout(nanos(5))));
                clock.advance(nanos(5));
            })
        };
        let drained = first.wait();
        assert!(!drained.complete && drained.unfinished == 1 && drained.dropped == 1);
        second.join().expect("no panic");
    });
}

/// A limiter of the user's own, which is called without the queue's lock: loom lets all other threads run in
/// the middle of it.
struct Slow(AtomicUsize);

impl RateLimiter<u32> for Slow {
    fn when(&self, _: &u32, _: Instant) -> Duration {
        self.0.fetch_add(1, Relaxed);
        nanos(5)
    }
    fn forget(&self, _: &u32) {}
    fn num_requeues(&self, _: &u32) -> u32 {
        self.0.load(Relaxed) as u32
    }
}

/// A trigger whose limiter is being called counts as a waiting key: a drain that runs such keys is not over,
/// nor are its getters, before the limiter has answered.
#[test]
fn loom_q11_a_drain_waits_for_the_answer_of_a_limiter() {
    bounded(|| {
        let builder = WorkQueue::builder().limiter(Slow(AtomicUsize::new(0))).clock(FakeClock::new());
        let q: Queue = Arc::new(builder.hasher(Hash::default()).build().expect("it has no metrics"));
        let adder = {
            let q = q.clone();
            thread::spawn(move || q.add_rate_limited(1).is_ok())
        };
        let worker = {
            let q = q.clone();
            thread::spawn(move || work(&q))
        };
        let drained = q.drain(DrainOptions::default().waiting_keys(WaitingKeys::RunNow)).wait();
        assert!(drained.complete);
        let accepted = adder.join().expect("no panic");
        assert_eq!(worker.join().expect("no panic"), usize::from(accepted));
    });
}
