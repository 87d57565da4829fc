//! B6, where it concerns how a queue is built, threads and workers.

use requeue::{BuildError, FakeClock, WorkQueue, Worker};
use std::sync::mpsc;
use std::time::Duration;

/// Generous: it ends a test that would hang.
const GUARD: Duration = Duration::from_secs(60);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn b6_a_rate_that_hands_nothing_out_or_is_no_limit_is_refused_when_the_queue_is_built() {
    for (keys, burst) in [
        (0.0, 5),
        (-0.0, 5),
        (-1.0, 5),
        (f64::NAN, 5),
        (f64::INFINITY, 5),
        (f64::NEG_INFINITY, 5),
        (1e-12, 5),
        (f64::MIN_POSITIVE, 5),
        (10.0, 0),
    ] {
        let error = WorkQueue::<u64>::builder().rate(keys, burst).build().unwrap_err();
        assert!(matches!(error, BuildError::Rate { .. }), "{keys}: {error:?}");
        let said = error.to_string();
        assert!(said.contains(&format!("{keys:?} keys a second, {burst} at once")), "{said}");
        assert!(said.contains("a finite, positive rate") && said.contains("remove .rate(…)"), "{said}");
    }
    for (keys, burst) in [(1e-10, 1), (1e-3, u32::MAX), (f64::MAX, 1)] {
        assert!(WorkQueue::<u64>::builder().rate(keys, burst).build().is_ok(), "{keys}");
    }
}

#[test]
fn b6_a_thread_that_waits_sleeps_until_the_token() {
    let clock = FakeClock::new();
    let q = WorkQueue::<u64>::builder().clock(clock.clone()).rate(10.0, 1).build().unwrap();
    q.add_many(0..5).all().unwrap();
    let (send, keys) = mpsc::channel();
    let getter = q.getter();
    let gets = std::thread::spawn(move || {
        while let Some(item) = getter.get_blocking() {
            send.send(*item.key()).unwrap();
        }
    });
    for key in 0..5 {
        assert_eq!(keys.recv_timeout(GUARD), Ok(key));
        assert_eq!(q.len() as u64, 4 - key, "and no other");
        clock.advance(ms(99));
        assert_eq!(q.len() as u64, 4 - key, "nor before its token");
        clock.advance(ms(1));
    }
    q.shut_down();
    gets.join().unwrap();
}

#[test]
fn b6_workers_run_no_more_keys_than_the_rate_lets_go() {
    let clock = FakeClock::new();
    let q = WorkQueue::<u64>::builder().clock(clock.clone()).rate(10.0, 2).build().unwrap();
    let (send, keys) = mpsc::channel();
    let worker = Worker::of(&q).workers(4).start_threads(move |run| send.send(*run.key()).unwrap()).unwrap();
    q.add_many(0..6).all().unwrap();
    let mut seen = vec![keys.recv_timeout(GUARD).unwrap(), keys.recv_timeout(GUARD).unwrap()];
    for left in (0..4).rev() {
        assert_eq!(q.len(), left + 1);
        clock.advance(ms(100));
        seen.push(keys.recv_timeout(GUARD).unwrap());
        assert_eq!(q.len(), left);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    drop(worker);
}
