//! Which of several runs is past its time limit, and when nobody watches any more.

use crate::{FakeClock, Instant, Run, WorkQueue, Worker};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant as StdInstant};

fn ms(n: u64) -> Instant {
    Instant::from_nanos(n * 1_000_000)
}

/// Waits until another thread has brought something about.
fn until(holds: impl Fn() -> bool) {
    let begin = StdInstant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::yield_now();
    }
}

#[test]
fn runs_are_told_in_the_order_in_which_their_limits_end_wherever_the_clock_goes() {
    let clock = FakeClock::at(ms(1_000));
    let q = WorkQueue::builder().clock(clock.clone()).build().unwrap();
    let ((tell, told), (begin, began)) = (channel(), channel());
    let worker = Worker::of(&q)
        .workers(3)
        .max_attempts(1)
        .time_limit(Duration::from_millis(100))
        .on_failure(move |key, _| tell.send(*key).unwrap())
        .start_threads(move |run: Run<u32>| {
            begin.send(*run.key()).unwrap();
            while !run.cancelled() {
                std::thread::yield_now();
            }
        })
        .unwrap();
    // the second begins before the first, by the clock, and the third between them
    for (key, now, next_end) in [(1, 1_000, 1_100), (2, 950, 1_050), (3, 975, 1_050)] {
        clock.set(ms(now));
        q.add(key).unwrap();
        assert_eq!(began.recv().unwrap(), key);
        until(|| clock.next_alarm() == Some(ms(next_end)));
    }
    for (key, end, next_end) in [(2, 1_050, Some(1_075)), (3, 1_075, Some(1_100)), (1, 1_100, None)] {
        clock.set(ms(end - 1));
        assert!(told.try_recv().is_err(), "before the end of any limit");
        clock.set(ms(end));
        assert_eq!(told.recv().unwrap(), key);
        until(|| clock.next_alarm() == next_end.map(ms));
    }
    assert_eq!(worker.stop(Duration::MAX).wait().done, 3);
}

#[test]
fn nobody_watches_a_limit_that_never_comes() {
    let q = WorkQueue::builder().clock(FakeClock::new()).build().unwrap();
    let (tell, told) = channel();
    let worker = Worker::of(&q)
        .workers(1)
        .time_limit(Duration::MAX)
        .start_threads(move |run: Run<u32>| tell.send(run.cancelled()).unwrap())
        .unwrap();
    q.add(1).unwrap();
    assert!(!told.recv().unwrap());
    assert!(worker.stop(Duration::MAX).wait().complete);
}
