//! Polls with one waker and then another, as when a future moves to another task: the waker of the last poll
//! is woken.

use requeue::{DrainOptions, FakeClock, Run, WaitingKeys, WorkQueue, Worker};
use requeue_verify::wake::Count;
use requeue_verify::workers::{puppets, queue};
use smol::future::Boxed;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn empty() -> (WorkQueue<u64>, FakeClock) {
    let clock = FakeClock::new();
    (WorkQueue::builder().clock(clock.clone()).build().unwrap(), clock)
}

/// Polls twice, the second time with the counter that this returns; the first waker
/// must not be woken any more.
struct Moved {
    before: Arc<Count>,
    now: Arc<Count>,
}

impl Moved {
    fn poll<F: Future + Unpin>(future: &mut F) -> Self {
        let (before, now) = (Count::new(), Count::new());
        assert!(before.poll(future).is_pending());
        assert!(now.poll(future).is_pending());
        Self { before, now }
    }
    fn wakes(&self) -> (usize, usize) {
        (self.before.wakes(), self.now.wakes())
    }
}

#[test]
fn q8_a_get_that_is_polled_with_another_waker_wakes_that_one_for_a_key_and_at_its_deadline() {
    let (q, clock) = empty();
    let mut get = q.get().timeout(ms(10));
    let moved = Moved::poll(&mut get);
    assert_eq!(clock.alarms(), 1, "the alarm of the first poll has gone");
    clock.advance(ms(10));
    assert_eq!(moved.wakes(), (0, 1));
    assert!(moved.now.poll(&mut get).is_ready());

    let mut get = q.get();
    let moved = Moved::poll(&mut get);
    q.add(1).unwrap();
    assert_eq!(moved.wakes(), (0, 1));
    assert!(moved.now.poll(&mut get).is_ready());

    let mut get = q.get_many(3).timeout(ms(10));
    let moved = Moved::poll(&mut get);
    clock.advance(ms(10));
    assert_eq!(moved.wakes(), (0, 1));
    assert!(moved.now.poll(&mut get).is_ready());
}

#[test]
fn q11_a_drain_that_is_polled_with_another_waker_wakes_that_one_at_the_end_and_at_its_deadline() {
    for ends in [true, false] {
        let (q, clock) = empty();
        q.add(1).unwrap();
        let item = q.try_get().unwrap();
        let options = DrainOptions::default().timeout(ms(10));
        let mut drain = q.drain(options);
        let moved = Moved::poll(&mut drain);
        assert_eq!(clock.alarms(), 1);
        if ends {
            drop(item);
        } else {
            clock.advance(ms(10));
        }
        assert_eq!(moved.wakes(), (0, 1));
        let Poll::Ready(drained) = moved.now.poll(&mut drain) else { panic!("it has ended") };
        assert_eq!(drained.complete, ends);
    }
}

#[test]
fn w_a_stop_that_is_polled_with_another_waker_wakes_that_one_at_the_end_and_at_its_deadline() {
    for ends in [true, false] {
        let (q, clock) = queue();
        let (puppets, handler) = puppets();
        let mut workers = Worker::of(&q).workers(1).run(handler).expect("not too many");
        q.add(1).unwrap();
        let outer = Count::new();
        assert!(outer.poll(&mut workers).is_pending());
        let mut stop = workers.worker().stop(ms(10));
        let moved = Moved::poll(&mut stop);
        assert_eq!(clock.alarms(), 1);
        if ends {
            puppets.end(requeue::Outcome::Done);
            assert!(outer.poll(&mut workers).is_ready());
        } else {
            clock.advance(ms(10));
        }
        assert_eq!(moved.wakes(), (0, 1));
        assert_eq!(moved.now.poll(&mut stop).is_ready(), ends, "its handler is still to be dropped");
    }
}

/// Starts one worker whose task the test polls.
fn task(q: &WorkQueue<u64, Vec<u32>>, builder: requeue::WorkerBuilder<u64, Vec<u32>>) -> (Worker, Boxed<()>) {
    let tasks = Arc::new(Mutex::new(Vec::new()));
    let spawned = Arc::clone(&tasks);
    let handler = |run: Run<u64, Vec<u32>>| async move {
        std::future::pending::<()>().await;
        drop(run);
    };
    let worker = builder
        .workers(1)
        .start_on(move |task| spawned.lock().unwrap().push(task), handler)
        .expect("not too many");
    let task = tasks.lock().unwrap().pop().unwrap();
    assert_eq!(q.stats().held, 0);
    (worker, task)
}

#[test]
fn w_a_task_that_is_polled_with_another_waker_is_woken_by_that_one_whatever_wakes_it() {
    // for a key
    let (q, _clock) = queue();
    let (_worker, mut waits) = task(&q, Worker::of(&q));
    let moved = Moved::poll(&mut waits);
    q.add(1).unwrap();
    assert_eq!(moved.wakes(), (0, 1));

    // to leave, where it waits for a key
    let (q, _clock) = queue();
    let (worker, mut waits) = task(&q, Worker::of(&q));
    let moved = Moved::poll(&mut waits);
    worker.resize(0).unwrap();
    assert_eq!(moved.wakes(), (0, 1));
    assert!(moved.now.poll(&mut waits).is_ready());

    // to leave, after its run was ended at the deadline of a stop
    let (q, _clock) = queue();
    let (worker, mut runs) = task(&q, Worker::of(&q));
    q.add(1).unwrap();
    let moved = Moved::poll(&mut runs);
    assert_eq!(worker.stop(Duration::ZERO).wait().cancelled, 1);
    assert_eq!(moved.wakes(), (0, 1));
    assert!(moved.now.poll(&mut runs).is_ready());

    // at the end of its run's time limit
    let (q, clock) = queue();
    let (_worker, mut runs) = task(&q, Worker::of(&q).time_limit(ms(10)));
    q.add(1).unwrap();
    let moved = Moved::poll(&mut runs);
    assert_eq!(clock.alarms(), 1);
    clock.advance(ms(10));
    assert_eq!(moved.wakes(), (0, 1));
    assert!(moved.now.poll(&mut runs).is_pending());
    assert_eq!((q.stats().held, q.num_requeues(&1)), (0, 1));
}

#[test]
fn w_a_future_of_workers_that_is_polled_with_another_waker_is_woken_by_that_one() {
    let (q, _clock) = queue();
    let mut workers = Worker::of(&q)
        .workers(1)
        .run(|run: Run<u64, Vec<u32>>| async move { drop(run) })
        .expect("not too many");
    let moved = Moved::poll(&mut workers);
    q.add(1).unwrap();
    assert_eq!(moved.wakes(), (0, 1));
    let handle = workers.worker();
    let moved = Moved::poll(&mut workers);
    let drain = handle.drain(DrainOptions::default().waiting_keys(WaitingKeys::Drop));
    assert_eq!(moved.wakes(), (0, 1));
    assert!(moved.now.poll(&mut workers).is_ready());
    assert!(drain.wait().complete);
}
