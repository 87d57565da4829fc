//! What is left of a future of workers once it was dropped.

use super::super::{Run, Worker};
use super::*;
use crate::WorkQueue;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Wake};
use std::time::Duration;

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A place as a resize has it that has not come to hiring yet.
fn wanted(handle: &Worker) -> usize {
    handle.roster.state.lock().wanted += 1;
    handle.roster.vacancy().expect("one more is wanted")
}

#[test]
fn a_future_that_is_dropped_while_a_resize_hires_turns_the_worker_away() {
    let q = WorkQueue::<u32>::new();
    let workers = Worker::of(&q).workers(1).run(|_: Run<u32>| async {}).expect("not too many");
    let handle = workers.worker();
    let (staff, place) = (handle.hiring.staff().expect("it hires"), wanted(&handle));
    assert_eq!(handle.workers(), 2);
    drop(workers);
    assert!(!staff.hire(place).expect("no thread is needed"));
    assert_eq!(handle.workers(), 0);
    assert!(handle.hiring.staff().is_none(), "nobody will come any more");
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
