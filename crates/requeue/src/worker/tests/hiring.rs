//! Workers on demand: where the system has no thread, and what is left of a crew.

use super::super::Worker;
use super::super::outcome::Outcome;
use super::super::roster::Rest;
use super::super::size::CrewSize;
use super::*;
use crate::{FakeClock, WorkQueue};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

/// Starts no thread: there is none for the first `short` attempts, and then nobody looks for a key.
struct Short {
    roster: Arc<Roster>,
    short: usize,
    asked: AtomicUsize,
}

impl Hire for Short {
    fn hire(self: Arc<Self>, place: usize, _: Arc<Hiring>) -> io::Result<bool> {
        if self.asked.fetch_add(1, SeqCst) < self.short {
            self.roster.leave(place);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(true)
    }
}

fn short_of_threads(q: &WorkQueue<u32>, short: usize) -> (Arc<Hiring>, Arc<Short>) {
    let hiring = Hiring::new(q.shared.clone(), Duration::ZERO);
    let staff = Arc::new(Short { roster: hiring.roster.clone(), short, asked: AtomicUsize::new(0) });
    hiring.open(staff.clone());
    hiring.roster.resize((0..=4).into(), &hiring).expect("nobody yet");
    (hiring, staff)
}

#[test]
fn a_shortage_of_threads_leaves_the_key_in_line_and_passes() {
    let q = WorkQueue::builder().clock(FakeClock::new()).build().unwrap();
    let (hiring, staff) = short_of_threads(&q, 2);
    assert!(q.add(1).is_ok(), "the shortage is not the caller's");
    // the system's clock rings for another attempt, and once more
    while staff.asked.load(SeqCst) < 3 {
        std::thread::yield_now();
    }
    while hiring.roster.workers() == 0 {
        std::thread::yield_now();
    }
    assert_eq!((q.len(), q.num_requeues(&1)), (1, 0));
    hiring.roster.leave(0);
}

#[test]
fn a_crew_that_is_short_of_threads_for_ever_is_stopped_and_forgotten() {
    let q = WorkQueue::builder().clock(FakeClock::new()).build().unwrap();
    let (hiring, staff) = short_of_threads(&q, usize::MAX);
    q.add(1).unwrap();
    assert!(staff.asked.load(SeqCst) > 0);
    hiring.roster.stop_taking();
    let left = Arc::downgrade(&hiring);
    drop(hiring);
    // the alarm for another attempt rings once more, and has nothing to do
    while left.strong_count() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(Arc::strong_count(&staff), 1);
    assert_eq!(q.len(), 1);
}

#[test]
fn a_paused_crew_whose_handle_goes_lets_go_of_its_handler() {
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
fn a_crew_that_has_a_worker_who_waits_keeps_no_lookout() {
    let q = WorkQueue::<u32>::new();
    let hiring = Hiring::new(q.shared.clone(), Duration::ZERO);
    let has_lookout = || hiring.lookout.lock().place.is_some();
    let staff = Arc::new(Short { roster: hiring.roster.clone(), short: 0, asked: AtomicUsize::new(0) });
    hiring.open(staff);
    hiring.roster.resize(CrewSize::from(1..=2), &hiring).unwrap();
    assert!(!has_lookout(), "one is on its way");
    assert_eq!(hiring.roster.looks(0), Some(false));
    hiring.roster.run_begins(0, &Arc::default(), None);
    assert!(has_lookout(), "it has a key");
    hiring.roster.run_ended(0);
    assert!(has_lookout(), "its next look shows whether it is free");
    assert_eq!(hiring.roster.looks(0), Some(false));
    assert!(matches!(hiring.roster.rests(0, Waker::noop().clone(), false, true), Rest::Rests));
    assert!(!has_lookout(), "it waits");
    hiring.roster.stop_taking();
    hiring.roster.leave(0);
}
