//! Workers whose handler does nothing. A program of its own: see `paths.rs`.

mod rig;

use requeue::{Run, Worker};
use requeue_guard::{count, row};
use rig::{Queue, Rig, number, rig};
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Waker};

type Workers = Pin<Box<dyn Future<Output = requeue::StopReport>>>;

/// A queue with all keys in line that is shut down, and one worker for it, which has run before.
fn ready() -> (Queue<u64>, Workers) {
    let Rig { q, keys } = rig(number);
    let run = |run: Run<u64>| async move { drop(black_box(run)) };
    let mut workers: Workers = Box::pin(Worker::of(&q).workers(1).run(run).expect("one"));
    q.add(1).expect("open");
    assert!(workers.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    for key in keys {
        q.add(key).expect("open");
    }
    q.shut_down();
    (q, workers)
}

fn worker_u64((q, mut workers): (Queue<u64>, Workers)) -> (Queue<u64>, Workers) {
    let mut context = Context::from_waker(Waker::noop());
    while workers.as_mut().poll(&mut context).is_pending() {}
    (q, workers)
}

/// A queue with all keys in line that is shut down.
fn by_hand() -> Queue<u64> {
    let Rig { q, keys } = rig(number);
    for key in keys {
        q.add(key).expect("open");
    }
    q.shut_down();
    q
}

// the loop by hand, for comparison
fn worker_by_hand_u64(q: Queue<u64>) -> Queue<u64> {
    while let Some(item) = q.get_blocking() {
        black_box(item).succeed();
    }
    q
}

fn main() -> ExitCode {
    count::main(&[
        row!("worker_u64 ready", ready(), worker_u64),
        row!("worker_by_hand_u64 ready", by_hand(), worker_by_hand_u64),
    ])
}
