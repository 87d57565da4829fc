//! Workers on demand: where the system has no thread, and what is left of them.

use super::super::Worker;
use super::super::outcome::Outcome;
use super::super::pool_size::PoolSize;
use super::super::set::Rest;
use super::*;
use crate::{FakeClock, WorkQueue};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

/// Starts no thread: the first `short` attempts fail, and then no thread looks for a key.
struct Short {
    set: Arc<WorkerSet>,
    short: usize,
    asked: AtomicUsize,
}

impl Spawner for Short {
    fn spawn(self: Arc<Self>, at: usize, _: Arc<WorkerSupply>) -> io::Result<bool> {
        if self.asked.fetch_add(1, SeqCst) < self.short {
            self.set.leave(at);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(true)
    }
}

fn short_of_threads(q: &WorkQueue<u32>, short: usize) -> (Arc<WorkerSupply>, Arc<Short>) {
    let supply = WorkerSupply::new(q.shared.clone(), Duration::ZERO);
    let spawner = Arc::new(Short { set: supply.set.clone(), short, asked: AtomicUsize::new(0) });
    supply.open(spawner.clone());
    supply.set.resize((0..=4).into(), &supply).expect("nobody yet");
    (supply, spawner)
}

#[test]
fn a_shortage_of_threads_leaves_the_key_in_line_and_passes() {
    let q = WorkQueue::builder().clock(FakeClock::new()).build().unwrap();
    let (supply, spawner) = short_of_threads(&q, 2);
    assert!(q.add(1).is_ok(), "the shortage is not the caller's");
    // the system's clock rings for another attempt, and once more
    while spawner.asked.load(SeqCst) < 3 {
        std::thread::yield_now();
    }
    while supply.set.workers() == 0 {
        std::thread::yield_now();
    }
    assert_eq!((q.len(), q.num_requeues(&1)), (1, 0));
    supply.set.leave(0);
}

#[test]
fn workers_that_are_short_of_threads_for_ever_are_stopped_and_forgotten() {
    let q = WorkQueue::builder().clock(FakeClock::new()).build().unwrap();
    let (supply, spawner) = short_of_threads(&q, usize::MAX);
    q.add(1).unwrap();
    assert!(spawner.asked.load(SeqCst) > 0);
    supply.set.stop_taking();
    let left = Arc::downgrade(&supply);
    drop(supply);
    // the alarm for another attempt rings once more, and has nothing to do
    while left.strong_count() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(Arc::strong_count(&spawner), 1);
    assert_eq!(q.len(), 1);
}

#[test]
fn paused_workers_whose_handle_goes_let_go_of_their_handler() {
    let q = WorkQueue::<u32>::new();
    let handler = Arc::new(());
    let kept = handler.clone();
    let worker = Worker::of(&q)
        .workers(0..=2)
        .idle_timeout(Duration::ZERO)
        .start_threads(move |_| {
            let _ = &kept;
            Outcome::Done
        })
        .unwrap();
    q.add(1).unwrap();
    while worker.workers() > 0 || !q.is_empty() {
        std::thread::yield_now();
    }
    worker.resize(0).unwrap();
    drop(worker);
    while Arc::strong_count(&handler) > 1 {
        std::thread::yield_now();
    }
    q.add(2).unwrap();
    assert_eq!(q.len(), 1, "nobody comes");
}

#[test]
fn a_set_with_a_worker_that_waits_keeps_no_watcher() {
    let q = WorkQueue::<u32>::new();
    let supply = WorkerSupply::new(q.shared.clone(), Duration::ZERO);
    let has_watcher = || supply.watcher.lock().place.is_some();
    let spawner = Arc::new(Short { set: supply.set.clone(), short: 0, asked: AtomicUsize::new(0) });
    supply.open(spawner);
    supply.set.resize(PoolSize::from(1..=2), &supply).unwrap();
    assert!(!has_watcher(), "one is on its way");
    let status = supply.set.status(0);
    assert_eq!(supply.set.looks(&status), Some(false));
    status.begin_run(0);
    supply.set.look_ended(&status);
    assert!(has_watcher(), "it has a key");
    supply.set.run_ended(&status);
    assert!(has_watcher(), "its next look shows whether it is free");
    assert_eq!(supply.set.looks(&status), Some(false));
    assert!(matches!(supply.set.rests(&status, Waker::noop(), false, true), Rest::Rests));
    assert!(!has_watcher(), "it waits");
    supply.set.stop_taking();
    supply.set.leave(0);
}

#[test]
fn a_number_of_workers_can_be_written_in_four_ways() {
    assert_eq!(PoolSize::from(4), PoolSize::from(4..=4));
    assert_eq!(PoolSize::from(..=256), PoolSize::from(0..=256));
    assert_eq!(PoolSize::from(1..), PoolSize::from(1..=1_048_576), "without an upper end: all there can be");
}
