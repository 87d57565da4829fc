//! Redundant adds that take no lock: what the run sees, and what shutting down
//! refuses.
//!
//! Each model first publishes the key, by a redundant add through the lock. The handler's first read is a
//! plain one: a read-modify-write, or a call of the queue, would itself be the barrier whose absence the
//! model must find.

use crate::support::{Hash, bounded, every, last_seen, queue};
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;
use requeue::{Added, DrainOptions, WaitingKeys, WorkQueue};
use std::sync::Arc;

/// The last run sees what was written before an add that found its key in the filter.
#[test]
fn loom_q5_what_is_written_before_an_add_without_the_lock_is_seen() {
    every(|| {
        let (q, _) = queue();
        let data = Arc::new(AtomicUsize::new(0));
        q.add(1).expect("open");
        assert_eq!(q.add(1).expect("open"), Added::Coalesced, "published by this");
        let worker = last_seen(&q, &data);
        data.store(1, Relaxed);
        q.add(1).expect("open");
        q.shut_down();
        assert_eq!(worker.join().expect("no panic"), 1, "the last run saw less than was written");
    });
}

/// Q5 for a key that is held and dirty.
#[test]
fn loom_q5_what_is_written_before_an_add_of_a_held_key_without_the_lock_is_seen() {
    bounded(|| {
        let (q, _) = queue();
        let data = Arc::new(AtomicUsize::new(0));
        q.add(1).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        assert_eq!(q.add(1).expect("open"), Added::Dirty);
        assert_eq!(q.add(1).expect("open"), Added::Coalesced, "published by this");
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
        q.add(1).expect("open");
        q.shut_down();
        assert_eq!(worker.join().expect("no panic"), 1, "the last run saw less than was written");
        assert_eq!(q.stats().known, 0);
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

/// A cancel concurrent with an add that found its key in the filter: either the add came first and was
/// cancelled, or it gives a run.
#[test]
fn loom_b7_an_add_without_the_lock_beside_a_cancel_is_cancelled_or_gives_a_run() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        assert_eq!(q.add(1).expect("open"), Added::Coalesced, "published by this");
        let adds = {
            let q = q.clone();
            thread::spawn(move || q.add(1).expect("open"))
        };
        assert!(q.cancel(&1).is_some_and(|took| took.ready), "the key was ready");
        let added = adds.join().expect("no panic");
        let expected = usize::from(added == Added::Ready);
        assert!(added == Added::Ready || added == Added::Coalesced);
        assert_eq!(q.len(), expected, "a trigger was lost, or a cancelled key is still there");
    });
}

/// B7 for a key that is held and dirty.
#[test]
fn loom_b7_an_add_without_the_lock_of_a_held_key_beside_a_cancel_is_cancelled_or_gives_a_run() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready");
        assert_eq!(q.add(1).expect("open"), Added::Dirty);
        assert_eq!(q.add(1).expect("open"), Added::Coalesced, "published by this");
        let adds = {
            let q = q.clone();
            thread::spawn(move || q.add(1).expect("open"))
        };
        assert!(q.cancel(&1).is_some_and(|took| took.dirty), "the key was dirty");
        let added = adds.join().expect("no panic");
        drop(item);
        assert_eq!(q.len(), usize::from(added == Added::Dirty), "a trigger was lost, or is still there");
    });
}

/// A caller that knows by any means that a cancel has returned adds a run: here by a relaxed load, which
/// orders nothing else.
#[test]
fn loom_b7_an_add_after_a_cancel_gives_a_run() {
    every(|| {
        let (q, _) = queue();
        let told = Arc::new(AtomicUsize::new(0));
        q.add(1).expect("open");
        q.add(1).expect("open");
        let cancels = {
            let (q, told) = (q.clone(), told.clone());
            thread::spawn(move || {
                q.cancel(&1);
                told.store(1, Relaxed);
            })
        };
        let told = told.load(Relaxed) == 1;
        let added = q.add(1).expect("open");
        assert!(!told || added == Added::Ready, "an add after the cancel was taken for redundant");
        cancels.join().expect("no panic");
    });
}

/// A caller that knows by any means that the queue was shut is refused: here by a relaxed load, which orders
/// nothing else.
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
    refuses(|q| drop(q.drain(DrainOptions::default().waiting_keys(WaitingKeys::Wait))));
}
