//! The set of workers: its numbers, and what is left of workers that have gone.

use super::super::pool_size::MOST_WORKERS;
use super::super::{Run, Worker};
use super::*;
use crate::{BoxError, FakeClock, Outcome, RateLimiter, WorkQueue};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake};
use std::time::Duration;

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// The number of a worker that a resize wants and has not started yet.
fn wanted(handle: &Worker) -> usize {
    let mut state = handle.set.state.lock();
    (state.least, state.most) = (state.least + 1, state.most + 1);
    drop(state);
    handle.set.vacancy(|_| true).expect("one more is wanted")
}

#[test]
fn a_future_that_is_dropped_while_a_resize_starts_workers_turns_the_worker_away() {
    let q = WorkQueue::<u32>::new();
    let workers = Worker::of(&q).workers(1).run(|_: Run<u32>| async {}).expect("not too many");
    let handle = workers.worker();
    let (spawner, at) = (handle.supply.spawner().expect("it starts workers"), wanted(&handle));
    assert_eq!(handle.workers(), 2);
    drop(workers);
    assert!(!spawner.spawn(at, handle.supply.clone()).expect("no thread is needed"));
    assert_eq!(handle.workers(), 0);
    assert!(handle.supply.spawner().is_none(), "nobody will come any more");
    assert!(handle.stop(Duration::MAX).wait().complete);
}

#[test]
fn a_dropped_future_lets_go_of_who_polled_it_and_wakes_it_no_more() {
    let q = WorkQueue::<u32>::new();
    let kept = Arc::new(Mutex::new(None));
    let keeps = kept.clone();
    let mut workers = Worker::of(&q)
        .workers(1)
        .run(move |_: Run<u32>| {
            let keeps = keeps.clone();
            std::future::poll_fn(move |cx| {
                *keeps.lock() = Some(cx.waker().clone());
                Poll::<()>::Pending
            })
        })
        .expect("not too many");
    let handle = workers.worker();
    q.add(1).unwrap();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(count.clone());
    assert!(Pin::new(&mut workers).poll(&mut Context::from_waker(&waker)).is_pending());
    drop((workers, waker));
    assert_eq!(Arc::strong_count(&count), 1);
    let waker: Option<Waker> = kept.lock().take();
    waker.expect("the handler was polled").wake();
    assert_eq!((count.0.load(SeqCst), handle.workers()), (0, 0));
}

/// A key may get the number of one whose run has just ended, before the worker of that run looks again.
#[test]
fn b11_a_run_that_has_ended_is_not_cancelled_in_place_of_another_keys() {
    struct Ended(WorkQueue<u32>, mpsc::Sender<[bool; 3]>);
    impl fmt::Debug for Ended {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("ended")
        }
    }
    impl fmt::Display for Ended {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("ended")
        }
    }
    impl std::error::Error for Ended {}
    // an error is dropped when its run has ended
    impl Drop for Ended {
        fn drop(&mut self) {
            let Self(q, tell) = self;
            q.add(2).unwrap();
            let ready = q.give_up_run(&2);
            let item = q.try_get().unwrap();
            let held = q.give_up_run(&2);
            tell.send([ready, held, q.explain(&2).worker.is_some()]).unwrap();
            item.done();
        }
    }
    let (tell, told) = mpsc::channel();
    let q = WorkQueue::<u32>::new();
    let queue = q.clone();
    let worker = Worker::of(&q)
        .workers(1)
        .start_threads(move |_: Run<u32>| Outcome::GiveUp(Box::new(Ended(queue.clone(), tell.clone()))))
        .unwrap();
    q.add(1).unwrap();
    assert_eq!(told.recv().unwrap(), [false; 3]);
    assert!(worker.stop(Duration::MAX).wait().complete);
}

/// Has the worker with this number look for a key and take one.
fn begins(handle: &Worker, at: usize) {
    let status = handle.set.status(at);
    assert!(handle.set.looks(&status).is_some());
    status.begin_run(at as u32);
    handle.set.look_ended(&status);
}

/// Ends the run of the worker with this number.
fn ends(handle: &Worker, at: usize) {
    handle.set.run_ended(&handle.set.status(at));
}

/// Polls with a waker that counts.
fn poll<F: Future + Unpin>(future: &mut F, count: &Arc<Count>) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(&count.clone().into()))
}

/// An unpolled future of workers, and its handle.
fn idle(q: &WorkQueue<u32>) -> (impl Sized, Worker) {
    let workers = Worker::of(q).workers(0).run(|_: Run<u32>| async {}).expect("not too many");
    let handle = workers.worker();
    (workers, handle)
}

#[test]
fn a_stop_that_waits_is_woken_once_as_the_last_run_ends() {
    let q = WorkQueue::<u32>::new();
    let (_workers, handle) = idle(&q);
    let places = [wanted(&handle), wanted(&handle), wanted(&handle)];
    for place in &places[..2] {
        begins(&handle, *place);
    }
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let mut stop = handle.stop(Duration::MAX);
    assert!(poll(&mut stop, &count).is_pending());
    handle.set.leave(places[2]);
    ends(&handle, places[0]);
    assert_eq!(count.0.load(SeqCst), 0, "a run goes on");
    ends(&handle, places[1]);
    assert_eq!(count.0.load(SeqCst), 1);
    let Poll::Ready(report) = poll(&mut stop, &count) else { panic!("nothing runs") };
    assert_eq!((report.complete, report.done, report.still_running), (true, 2, 0));
    assert_eq!(handle.set.state.lock().busy, 0);
}

#[test]
fn a_stop_of_threads_waits_until_they_have_left() {
    let q = WorkQueue::<u32>::new();
    let (_workers, handle) = idle(&q);
    let is_awaited = |late| handle.set.state.lock().is_awaited(late, true);
    let place = wanted(&handle);
    assert!(!is_awaited(false), "a task leaves when it is polled");
    handle.set.note_threads();
    assert!(is_awaited(false) && !is_awaited(true));
    handle.set.leave(place);
    assert!(!is_awaited(false));
}

#[test]
fn a_stop_and_a_drain_that_are_dropped_or_over_keep_no_waker() {
    let q = WorkQueue::<u32>::new();
    let (_workers, handle) = idle(&q);
    let place = wanted(&handle);
    begins(&handle, place);
    q.add(1).unwrap();
    let item = q.try_get().unwrap();
    let count = Arc::new(Count(AtomicUsize::new(0)));
    for mut ends in [handle.drain(Duration::MAX), handle.stop(Duration::MAX)] {
        assert!(poll(&mut ends, &count).is_pending());
        assert!(Arc::strong_count(&count) > 1);
        drop(ends);
        assert_eq!(Arc::strong_count(&count), 1);
    }
    let mut drain = handle.drain(Duration::MAX);
    assert!(poll(&mut drain, &count).is_pending());
    drop(item);
    ends(&handle, place);
    assert!(poll(&mut drain, &count).is_ready());
    assert_eq!(Arc::strong_count(&count), 1, "the drain is still there");
}

#[test]
fn a_drain_is_complete_if_nothing_is_left_of_any_kind_and_a_stop_whatever_is_left() {
    let q = WorkQueue::<u32>::new();
    let (_workers, handle) = idle(&q);
    let stats = |ready, held, waiting| {
        let mut stats = Stats::default();
        (stats.ready, stats.held, stats.waiting) = (ready, held, waiting);
        stats
    };
    let complete = |stats, drained| handle.set.report((stats, drained)).complete;
    let mut all = Drained::default();
    all.complete = true;
    assert!(complete(stats(0, 0, 0), Some(all)));
    for left in [stats(1, 0, 0), stats(0, 1, 0), stats(0, 0, 1)] {
        assert!(!complete(left, Some(Drained::default())) && complete(left, None), "{left:?}");
    }
    let place = wanted(&handle);
    begins(&handle, place);
    assert!(!complete(stats(0, 0, 0), None), "a run goes on");
}

#[test]
fn as_many_workers_as_there_may_be_are_not_too_many() {
    let q = WorkQueue::<u32>::new();
    let (_workers, handle) = idle(&q);
    // no worker comes any more, so this costs nothing
    assert!(handle.stop(Duration::MAX).wait().complete);
    assert!(handle.resize(MOST_WORKERS).is_ok());
    let error = handle.resize(MOST_WORKERS + 1).expect_err("one more is");
    assert!(error.to_string().contains("1048577 workers are too many"), "{error}");
}

#[test]
fn metrics_read_how_many_workers_there_are_and_how_many_are_busy() {
    let q = WorkQueue::<u32>::new();
    let (_workers, handle) = idle(&q);
    let (place, _idle) = (wanted(&handle), wanted(&handle));
    begins(&handle, place);
    assert_eq!(handle.set.alive_and_busy(), (2, 1));
}

/// Panics when it is asked for the first time, and when it is to forget for the first time.
struct Moody(AtomicBool, AtomicBool);

impl RateLimiter<u32> for Moody {
    fn when(&self, _: &u32, _: Instant) -> Duration {
        assert!(self.0.swap(true, SeqCst), "a limiter");
        Duration::from_secs(1)
    }
    fn forget(&self, _: &u32) {
        assert!(self.1.swap(true, SeqCst), "a limiter that is to forget");
    }
    fn num_requeues(&self, _: &u32) -> u32 {
        0
    }
}

/// The numbers after a run of a key whose handler said this, on a queue whose limiter panics.
fn after_a_run<O: super::super::IntoOutcome>(says: fn() -> O) -> Stats {
    let limiter = Moody(AtomicBool::new(false), AtomicBool::new(false));
    let q =
        WorkQueue::builder().clock(FakeClock::new()).limiter(limiter).retry_dropped(true).build().unwrap();
    let mut workers = Worker::of(&q).workers(1).run(move |_: Run<u32>| std::future::ready(says())).unwrap();
    q.add(1).unwrap();
    let _ = poll(&mut workers, &Arc::new(Count(AtomicUsize::new(0))));
    q.stats()
}

#[test]
fn a_run_that_succeeds_ends_although_its_limiter_panics_as_it_forgets() {
    assert_eq!(after_a_run(|| ()).held, 0);
}

#[test]
fn a_key_that_is_given_up_stays_so_although_its_limiter_panics_as_it_forgets() {
    let stats = after_a_run(|| Err::<(), BoxError>("no".into()));
    assert_eq!((stats.held, stats.ready, stats.waiting), (0, 0, 0), "it does not come back");
}
