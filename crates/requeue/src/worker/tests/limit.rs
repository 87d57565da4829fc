//! Which of several runs is past its time limit, and when the watching ends.

use super::super::status::WorkerStatus;
use super::super::{Run, Worker};
use super::*;
use crate::{FakeClock, WorkQueue};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::task::Wake;
use std::time::Instant as StdInstant;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Limits that no thread watches: the test looks itself.
fn by_hand() -> (WorkQueue<u32>, Arc<Limits<u32, ()>>, Arc<Count>) {
    let rules = Rules::default();
    let limits = Limits::new(Duration::from_millis(100), Arc::new(FakeClock::new()), &rules);
    let count = Arc::new(Count::default());
    {
        let mut state = limits.state.lock();
        (state.started, state.waker) = (true, Some(count.clone().into()));
    }
    (WorkQueue::new(), Arc::new(limits), count)
}

/// Begins a run at this time, to be watched.
fn begins(q: &WorkQueue<u32>, limits: &Arc<Limits<u32, ()>>, key: u32, began: u64) -> Arc<RunCell<u32, ()>> {
    q.add(key).unwrap();
    let mut cell = RunCell::new(q.shared.clone(), Arc::new(WorkerStatus::new(0)));
    cell.guard.run = q.try_get().unwrap().guard.run.take();
    let cell = Arc::new(cell);
    limits.watch(ms(began), &cell);
    cell
}

/// Looks as the watching thread does each time it is woken.
fn look(limits: &Limits<u32, ()>) -> bool {
    let parker = Parker::current();
    parker.waker().wake_by_ref(); // it does not sleep
    limits.look(&parker)
}

#[test]
fn who_watches_is_woken_for_a_run_whose_limit_ends_before_all_others() {
    let (q, limits, count) = by_hand();
    let mut runs = Vec::new();
    for (key, (began, wakes)) in
        [(1_000, 1), (1_050, 1), (950, 2), (950, 2), (1_020, 2)].into_iter().enumerate()
    {
        runs.push(begins(&q, &limits, key as u32, began));
        assert_eq!(count.0.load(SeqCst), wakes, "began at {began} ms");
    }
    let ends: Vec<_> = limits.state.lock().runs.iter().map(|run| run.until).collect();
    assert_eq!(ends, [1_050, 1_050, 1_100, 1_120, 1_150].map(ms));
    runs[2].return_now();
    runs[3].return_now();
    runs.push(begins(&q, &limits, 9, 1_200));
    assert_eq!(limits.state.lock().runs.len(), 4, "what has returned is watched no longer");
}

#[test]
fn nobody_watches_any_more_once_all_threads_have_ended_and_all_runs_have_returned() {
    let (q, limits, count) = by_hand();
    let runs = [begins(&q, &limits, 1, 0), begins(&q, &limits, 2, 0)];
    limits.end();
    assert_eq!(count.0.load(SeqCst), 2, "told of the first run and of the end");
    assert!(!look(&limits), "two runs go on");
    runs[0].return_now();
    assert!(!look(&limits), "a run goes on");
    assert!(limits.state.lock().started);
    runs[1].return_now();
    assert!(look(&limits));
    let state = limits.state.lock();
    assert!(!state.started && state.waker.is_none() && state.runs.is_empty());
}

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
    let clock = FakeClock::new();
    clock.set(ms(1_000));
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
