//! Redundant adds that take no lock: what the run sees, what shutting down
//! refuses, and when a key that is being read is dropped.
//!
//! Each model first has the key published, by a redundant add through the lock.
//! What a handler reads it reads plainly and first: a read-modify-write, or a call
//! of the queue, would bring the barrier itself that is to be found missing.

use crate::support::{Hash, bounded, bounded_by, every, queue};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;
use requeue::{Added, DrainOptions, FakeClock, WaitingKeys, WorkQueue};
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::AtomicIsize;

/// A key that the filter holds by its address, whose memory loom watches: reading
/// it is a shared access, dropping it an exclusive one.
struct Watched {
    number: u32,
    memory: UnsafeCell<u32>,
    alive: Arc<AtomicIsize>,
}

// SAFETY: the cell is only read, until the key is dropped; loom checks that.
unsafe impl Sync for Watched {}

impl Watched {
    fn new(number: u32, alive: &Arc<AtomicIsize>) -> Self {
        alive.fetch_add(1, Relaxed);
        Self { number, memory: UnsafeCell::new(number), alive: alive.clone() }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: whoever drops the key is alone with it.
        self.memory.with_mut(|memory| unsafe { *memory = u32::MAX });
        self.alive.fetch_sub(1, Relaxed);
    }
}

impl PartialEq for Watched {
    fn eq(&self, other: &Self) -> bool {
        // SAFETY: nobody writes while there is a shared reference.
        self.memory.with(|a| other.memory.with(|b| unsafe { *a == *b }))
    }
}

impl Eq for Watched {}

impl std::hash::Hash for Watched {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

fn watched() -> (Arc<WorkQueue<Watched, (), Hash>>, Arc<AtomicIsize>) {
    let builder = WorkQueue::builder().clock(FakeClock::new()).hasher(Hash::default());
    (Arc::new(builder.build().expect("it has no metrics")), Arc::new(AtomicIsize::new(0)))
}

/// The last run sees what was written before an add that found its key in the filter.
#[test]
fn loom_q5_what_is_written_before_an_add_without_the_lock_is_seen() {
    every(|| {
        let (q, _) = queue();
        let data = Arc::new(AtomicUsize::new(0));
        q.add(1).expect("open");
        assert_eq!(q.add(1).expect("open"), Added::Coalesced, "published by this");
        let worker = {
            let (q, data) = (q.clone(), data.clone());
            thread::spawn(move || {
                let mut seen = 0;
                while let Some(item) = q.get_blocking() {
                    seen = data.load(Relaxed);
                    item.done();
                }
                seen
            })
        };
        data.store(1, Relaxed);
        q.add(1).expect("open");
        q.shut_down();
        assert_eq!(worker.join().expect("no panic"), 1, "the last run saw less than was written");
    });
}

/// The same where the key is held and dirty, and where it is read by its address.
#[test]
fn loom_q5_what_is_written_before_an_add_that_reads_the_key_is_seen() {
    bounded(|| {
        let (q, alive) = watched();
        let data = Arc::new(AtomicUsize::new(0));
        q.add(Watched::new(1, &alive)).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        assert!(q.add(Watched::new(1, &alive)).is_ok_and(|added| added == Added::Dirty));
        assert!(q.add(Watched::new(1, &alive)).is_ok_and(|added| added == Added::Coalesced));
        let worker = {
            let data = data.clone();
            thread::spawn(move || {
                let (mut seen, mut item) = (0, Some(item));
                while let Some(held) = item {
                    item = held.next().wait();
                    if item.is_some() {
                        seen = data.load(Relaxed);
                    }
                }
                seen
            })
        };
        data.store(1, Relaxed);
        assert!(q.add(Watched::new(1, &alive)).is_ok());
        q.shut_down();
        assert_eq!(worker.join().expect("no panic"), 1, "the last run saw less than was written");
        assert_eq!(q.stats().known, 0);
        assert_eq!(alive.load(Relaxed), 0);
    });
}

/// A third producer's key ousts the one that is being added.
#[test]
fn loom_q5_what_is_written_before_an_add_is_seen_whose_entry_goes_to_another_key() {
    bounded(|| {
        let (q, _) = queue();
        let data = Arc::new(AtomicUsize::new(0));
        for key in [1, 2, 3, 1, 2] {
            // the bucket is full then
            q.add(key).expect("open");
        }
        let ousts = {
            let q = q.clone();
            thread::spawn(move || q.add(3).expect("open"))
        };
        let worker = {
            let (q, data) = (q.clone(), data.clone());
            thread::spawn(move || {
                let item = q.try_get().expect("ready");
                let seen = (*item.key(), data.load(Relaxed));
                drop(item);
                seen
            })
        };
        data.store(1, Relaxed);
        q.add(1).expect("open");
        ousts.join().expect("no panic");
        let (key, seen) = worker.join().expect("no panic");
        let again = q.state(&1).is_some_and(|state| state.ready);
        assert_eq!(key, 1);
        assert!(seen == 1 || again, "the last run saw less than was written");
    });
}

/// Who learns that the queue was shut, by whatever way, is refused: here by a
/// relaxed load, which orders nothing else.
fn refuses(shut: fn(&WorkQueue<u32, (), Hash>)) {
    every(move || {
        let (q, _) = queue();
        let told = Arc::new(AtomicUsize::new(0));
        q.add(1).expect("open");
        q.add(1).expect("open");
        let shuts = {
            let (q, told) = (q.clone(), told.clone());
            thread::spawn(move || {
                shut(&q);
                told.store(1, Relaxed);
            })
        };
        let told = told.load(Relaxed) == 1;
        let added = q.add(1);
        assert!(!told || added.is_err(), "accepted after the end");
        shuts.join().expect("no panic");
        assert!(q.add(1).is_err(), "accepted after the end");
        assert_eq!(q.len(), 1, "it is still handed out");
    });
}

#[test]
fn loom_q10_after_shut_down_the_filter_accepts_nothing() {
    refuses(|q| {
        q.shut_down();
    });
}

#[test]
fn loom_q10_after_close_the_filter_accepts_nothing() {
    refuses(WorkQueue::close);
}

#[test]
fn loom_q10_after_a_drain_began_the_filter_accepts_nothing() {
    refuses(|q| drop(q.shut_down_with(DrainOptions::default().waiting_keys(WaitingKeys::Wait))));
}

/// The key is handed out and its run ends while an add reads it. It is dropped
/// once, after it was read, and not later than the next call.
#[test]
fn loom_q13_a_key_that_an_add_reads_is_dropped_after_that() {
    every(|| {
        let (q, alive) = watched();
        q.add(Watched::new(1, &alive)).expect("open");
        assert!(q.add(Watched::new(1, &alive)).is_ok_and(|added| added == Added::Coalesced));
        let worker = {
            let q = q.clone();
            thread::spawn(move || q.try_get().expect("ready").done())
        };
        let added = q.add(Watched::new(1, &alive)).unwrap_or_else(|_| panic!("open"));
        worker.join().expect("no panic");
        let stats = q.stats();
        assert_eq!(stats.known, stats.ready, "it is known while it is ready, {added:?}");
        assert_eq!(alive.load(Relaxed), stats.ready as isize);
    });
}

/// The same with two who read, and whose records stand in two places.
#[test]
fn loom_q13_a_key_that_two_adds_read_is_dropped_after_both() {
    bounded_by(2, || {
        let (q, alive) = watched();
        q.add(Watched::new(1, &alive)).expect("open");
        assert!(q.add(Watched::new(1, &alive)).is_ok());
        let reads = {
            let (q, alive) = (q.clone(), alive.clone());
            thread::spawn(move || {
                // through the lock: the thread gets its record
                let through = q.add(Watched::new(1, &alive)).is_ok();
                through && q.add(Watched::new(1, &alive)).is_ok()
            })
        };
        let worker = {
            let q = q.clone();
            thread::spawn(move || q.try_get().expect("ready").done())
        };
        assert!(q.add(Watched::new(1, &alive)).is_ok());
        worker.join().expect("no panic");
        assert!(reads.join().expect("no panic"));
        let stats = q.stats();
        assert_eq!(stats.known, stats.ready);
        assert_eq!(alive.load(Relaxed), stats.ready as isize);
    });
}
