//! One key: its runs, its triggers, and what a run sees.

use crate::support::{bounded, every, last_seen, nanos, one_has_it, poll, queue, take, task};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;
use requeue::{Added, Parker};
use std::sync::Arc;
use std::task::Poll;

/// Memory that is shared without a lock: loom reports accesses that nothing orders.
struct Bare(UnsafeCell<u32>);

// SAFETY: the writer is alone; that is what the models check.
unsafe impl Sync for Bare {}
// SAFETY: as above.
unsafe impl Send for Bare {}

impl Bare {
    fn new() -> Arc<Self> {
        Arc::new(Self(UnsafeCell::new(0)))
    }
    fn get(&self) -> u32 {
        // SAFETY: nobody writes meanwhile, or loom says so.
        self.0.with(|value| unsafe { *value })
    }
    fn add(&self, n: u32) {
        // SAFETY: nobody else is here, or loom says so.
        self.0.with_mut(|value| unsafe { *value += n });
    }
}

/// The trigger finds the key held, or idle again: in either case there is one
/// more run, and not two.
#[test]
fn loom_q4_done_and_next_against_an_add_of_the_same_key() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        let worker = thread::spawn(move || {
            let again = item.next().wait().expect("not shut down");
            (*again.key(), again.next())
        });
        let added = q.add(1).expect("open");
        assert!(matches!(added, Added::Dirty | Added::Ready));
        let (key, next) = worker.join().expect("no panic");
        assert_eq!(key, 1);
        q.shut_down();
        assert!(next.wait().is_none(), "one trigger, one more run");
    });
}

#[test]
fn loom_q4_done_by_key_against_an_add_of_the_same_key() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let (key, _) = q.try_get().expect("ready").detach();
        let worker = {
            let q = q.clone();
            thread::spawn(move || {
                q.done(&key).expect("it is held");
                take(&q)
            })
        };
        q.add(1).expect("open");
        assert_eq!(worker.join().expect("no panic"), Some(1));
    });
}

/// The future that ends a run and waits for the next key is dropped: the run has ended, and a waiting getter
/// gets the key that was triggered meanwhile.
#[test]
fn loom_q12_a_dropped_done_and_next_loses_no_key() {
    bounded(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        // a task too: a thread would be woken first
        let stays = task(&q);
        let leaves = thread::spawn(move || {
            let parker = Parker::current();
            let mut next = item.next();
            match poll(&mut next, &parker) {
                Poll::Ready(item) => item.map(|item| *item.key()),
                Poll::Pending => None,
            }
        });
        q.add(1).expect("open");
        one_has_it(&q, leaves, stays);
    });
}

/// The future need not be polled: dropping it ends the run, and the key goes to a waiting caller.
#[test]
fn loom_q12_a_done_and_next_that_is_dropped_unpolled_ends_the_run() {
    every(|| {
        let (q, _) = queue();
        q.add(1).expect("open");
        let item = q.try_get().expect("ready").into_owned();
        q.add(1).expect("open");
        let drops = thread::spawn(move || drop(item.next()));
        assert_eq!(take(&q), Some(1));
        drops.join().expect("no panic");
    });
}

/// A write before a trigger is seen by a run that starts after it, even if the trigger found the key ready or
/// dirty and changed nothing.
#[test]
fn loom_q5_what_is_written_before_a_redundant_add_is_seen() {
    every(|| {
        let (q, _) = queue();
        let data = Arc::new(AtomicUsize::new(0));
        q.add(1).expect("open");
        let worker = last_seen(&q, &data);
        data.store(1, Relaxed);
        q.add(1).expect("open");
        q.shut_down();
        assert_eq!(worker.join().expect("no panic"), 1, "the last run saw less than was written");
    });
}

/// Two producers, whose triggers are redundant to each other.
#[test]
fn loom_q5_the_last_run_sees_what_both_of_two_producers_wrote() {
    bounded(|| {
        let (q, _) = queue();
        let data = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let producers = [0, 1].map(|i| {
            let (q, data) = (q.clone(), data.clone());
            thread::spawn(move || {
                data[i].store(1, Relaxed);
                q.add(1).expect("open");
            })
        });
        let mut seen = 0;
        while seen < 2 {
            // a run that sees less was triggered too early, so there is another
            let item = q.get_blocking().expect("not shut down");
            seen = data.iter().map(|d| d.load(Relaxed)).sum();
            item.done();
        }
        for producer in producers {
            producer.join().expect("no panic");
        }
    });
}

/// No other order than the queue's between the producer's write and the run's
/// read: loom reports the race if there is none.
#[test]
fn loom_q5_a_run_happens_after_what_came_before_its_trigger() {
    every(|| {
        let (q, clock) = queue();
        let cells = [Bare::new(), Bare::new()];
        let worker = {
            let (q, cells) = (q.clone(), cells.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let item = q.get_blocking().expect("not shut down");
                    assert_eq!(cells[*item.key() as usize].get(), 7);
                }
            })
        };
        cells[0].add(7);
        q.add(0).expect("open");
        cells[1].add(7);
        q.add_after(1, nanos(5)).expect("open");
        clock.advance(nanos(5));
        worker.join().expect("no panic");
    });
}

/// Two runs of one key never overlap, and each sees what the one before it did.
#[test]
fn loom_q3_runs_of_one_key_exclude_each_other() {
    bounded(|| {
        let (q, _) = queue();
        let runs = Bare::new();
        let workers = [(); 2].map(|()| {
            let (q, runs) = (q.clone(), runs.clone());
            thread::spawn(move || {
                while let Some(item) = q.get_blocking() {
                    runs.add(1);
                    item.done();
                }
            })
        });
        q.add(1).expect("open");
        q.add(1).expect("open");
        q.shut_down();
        for worker in workers {
            worker.join().expect("no panic");
        }
        let runs = runs.get();
        assert!(runs == 1 || runs == 2, "{runs} runs");
    });
}
