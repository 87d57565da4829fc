//! Handlers of a worker that tell a test of each run and end as it says.

use requeue::{FakeClock, Outcome, Run, WorkQueue};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A queue of a fake clock whose values are lists; back-offs of 1, 2, 4 … ms.
#[must_use]
pub fn queue() -> (WorkQueue<u64, Vec<u32>>, FakeClock) {
    let clock = FakeClock::new();
    let q = WorkQueue::merging(|old: &mut Vec<u32>, new: Vec<u32>| old.extend(new))
        .clock(clock.clone())
        .limiter(requeue::limiter::default_per_item())
        .build()
        .expect("a queue");
    (q, clock)
}

/// Lets a test hold a handler until it says how the run is to end.
#[derive(Debug)]
pub struct Puppets {
    began: Receiver<(u64, u32)>,
    end: Sender<Outcome>,
}

/// A handler that tells of each run and ends as the test says; with one worker.
pub fn puppets() -> (Puppets, impl Fn(Run<u64, Vec<u32>>) -> Outcome + Send + Sync + 'static) {
    let (tell, began) = channel();
    let (end, ends) = channel();
    let ends = std::sync::Mutex::new(ends);
    let handler = move |run: Run<u64, Vec<u32>>| {
        let _ = tell.send((*run.key(), run.attempt()));
        ends.lock().unwrap().recv().unwrap_or(Outcome::Done)
    };
    (Puppets { began, end }, handler)
}

impl Puppets {
    /// Waits for the next run, which must be this one.
    pub fn run(&self, key: u64, attempt: u32) {
        assert_eq!(self.began.recv().expect("a run"), (key, attempt), "key and attempt of the next run");
    }
    /// Ends the run that goes on.
    pub fn end(&self, outcome: Outcome) {
        self.end.send(outcome).expect("the handler waits");
    }
}
