//! Keys that are published to those who add without the lock: which may be, who is told that one
//! was handed out, and how long one stays that only a reader keeps.

use requeue_core::{
    Config, Core, Delay, Got, How, Limit, MayRead, Order, Policy, ReadyOrder, RetryDelay, RunRef, Ticket,
    Trigger,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Limit<'static> = Limit { delay: &|_, _| SECOND, counts: true, expire_after: None };

/// A state machine with keys that are numbers below 32, and a bit for each that is being read.
struct Q {
    core: Core<u32>,
    read: Arc<Mutex<u32>>,
}

impl Q {
    fn new() -> Self {
        Self { core: Core::new(Config::default()), read: Arc::default() }
    }

    fn add(&mut self, key: u32, delay: Delay<'_>) -> Ticket {
        self.core.add(&mut Trigger::new(key, None), key, delay).expect("open").ticket
    }

    fn get(&mut self) -> RunRef<u32> {
        match self.core.get() {
            Got::Item(item) => item.run,
            other => panic!("no key, but {other:?}"),
        }
    }

    /// Publishes a key by its address.
    fn publish(&mut self, ticket: Ticket) -> bool {
        let read = &self.read;
        let may_read = || -> MayRead<u32> {
            let read = Arc::clone(read);
            Box::new(move |key| *read.lock().expect("no panic") & (1 << key) != 0)
        };
        self.core.publish(ticket, Some(may_read)).is_some()
    }

    /// A key that was published, is being read, and is held.
    fn read_and_held(&mut self, key: u32) -> RunRef<u32> {
        let ticket = self.add(key, Delay::Now);
        // twice is as once
        assert!(self.publish(ticket) && self.publish(ticket));
        self.begin_to_read(key);
        self.get()
    }

    fn begin_to_read(&self, key: u32) {
        *self.read.lock().expect("no panic") |= 1 << key;
    }

    fn stop_reading(&self, key: u32) {
        *self.read.lock().expect("no panic") &= !(1 << key);
    }

    fn known(&self) -> usize {
        self.core.stats().known
    }

    /// The keys that come back when limbo is looked at.
    fn let_go(&mut self) -> Vec<u32> {
        self.core.retry_limbo();
        self.core.take_trash().into_iter().filter_map(|(key, _)| key).collect()
    }
}

const NOBODY: Option<fn() -> MayRead<u32>> = None;

/// First in, first out, by a user's order.
#[derive(Default)]
struct Own(std::collections::VecDeque<Ticket>);

impl ReadyOrder<u32> for Own {
    fn push(&mut self, _: &u32, ticket: Ticket) {
        self.0.push_back(ticket);
    }
    fn pop(&mut self) -> Option<Ticket> {
        self.0.pop_front()
    }
}

#[test]
fn a_key_may_be_published_while_it_is_ready_or_dirty_and_the_queue_is_open() {
    let mut q = Q::new();
    let ticket = q.add(1, Delay::Now);
    assert_eq!(q.core.publish(ticket, NOBODY), Some((&1, 1)));
    let run = q.get();
    assert_eq!(q.core.publish(ticket, NOBODY), None, "it is held, and nobody asked for a run");
    q.add(1, Delay::Now);
    assert_eq!(q.core.publish(ticket, NOBODY), Some((&1, 1)), "it is dirty");
    let _ = q.core.finish(run, true);
    q.core.close();
    assert_eq!(q.core.publish(ticket, NOBODY), None, "outsiders are refused");
    let run = q.get();
    assert_eq!(q.core.finish(run, true).key, Some(1));
    assert_eq!(q.core.publish(ticket, NOBODY), None, "it has gone");

    let mut q = Q::new();
    let ticket = q.add(1, Delay::After(SECOND, Policy::Earliest));
    assert_eq!(q.core.publish(ticket, NOBODY), None, "it waits");
}

#[test]
fn a_key_of_a_queue_with_an_order_of_the_users_is_not_published() {
    let mut q = Q::new();
    q.core = Core::new(Config { order: Order::Own(Box::new(Own::default())), ..Config::default() });
    let ticket = q.add(1, Delay::Now);
    assert_eq!(q.core.publish(ticket, NOBODY), None);
}

#[test]
fn a_key_that_was_published_is_withdrawn_once_when_it_is_handed_out() {
    let mut q = Q::new();
    let mut withdrawn = Vec::new();
    let published = q.add(1, Delay::Now);
    q.add(2, Delay::Now);
    for _ in 0..2 {
        assert!(q.core.publish(published, NOBODY).is_some());
    }
    let mut runs = Vec::new();
    for _ in 0..2 {
        let Got::Item(item) = q.core.get_and(|key, hash| withdrawn.push((*key, hash))) else {
            panic!("two are ready")
        };
        runs.push(item.run);
    }
    assert_eq!(withdrawn, [(1, 1)]);
    for run in runs {
        let _ = q.core.finish(run, true);
    }
    q.add(1, Delay::Now);
    let Got::Item(item) = q.core.get_and(|key, hash| withdrawn.push((*key, hash))) else {
        panic!("it is ready")
    };
    assert_eq!(withdrawn.len(), 1, "it was not published again");
    let _ = q.core.finish(item.run, true);
}

#[test]
fn a_key_that_only_a_reader_keeps_goes_when_the_reader_has_gone() {
    let mut q = Q::new();
    let runs = [q.read_and_held(1), q.read_and_held(2)];
    assert_eq!(q.known(), 2);
    for run in runs {
        assert!(!q.core.is_inert(&run));
        assert_eq!(q.core.finish(run, true).key, None);
    }
    assert!(q.core.has_limbo() && q.core.has_trash());
    assert_eq!((q.known(), q.core.state(&1, 1)), (0, None), "nobody asked for a run");
    assert!(q.core.retry_limbo(), "both are read");
    assert!(q.core.take_trash().is_empty());
    q.stop_reading(2);
    assert!(q.core.retry_limbo(), "one is read");
    assert_eq!(q.core.take_trash(), [(Some(2), None)]);
    q.stop_reading(1);
    assert!(!q.core.retry_limbo());
    assert_eq!(q.core.take_trash(), [(Some(1), None)]);
    assert!(!q.core.has_limbo() && !q.core.has_trash());
    assert_eq!(q.known(), 0);
}

#[test]
fn a_key_that_nobody_reads_goes_at_the_end_of_its_run() {
    let mut q = Q::new();
    let run = q.read_and_held(1);
    q.stop_reading(1);
    assert_eq!(q.core.finish(run, true).key, Some(1));
    assert!(!q.core.has_limbo());
    assert_eq!(q.known(), 0);
}

#[test]
fn a_key_that_is_triggered_while_only_a_reader_keeps_it_is_known_again() {
    let mut q = Q::new();
    let run = q.read_and_held(1);
    let _ = q.core.finish(run, true);
    q.add(1, Delay::Now);
    assert_eq!((q.known(), q.core.len()), (1, 1));
    assert!(!q.core.retry_limbo(), "it is ready");
    assert!(q.core.take_trash().is_empty());
    let run = q.get();
    assert_eq!(q.known(), 1);
    assert_eq!(q.core.finish(run, true).key, None, "it is still read");
    assert_eq!(q.known(), 0);
    q.stop_reading(1);
    assert_eq!(q.let_go(), [1]);

    // and without anybody having looked in between
    let run = q.read_and_held(2);
    let _ = q.core.finish(run, true);
    q.add(2, Delay::Now);
    let run = q.get();
    assert_eq!(q.core.finish(run, true).key, None);
    assert!(q.core.has_limbo());
    q.stop_reading(2);
    assert_eq!(q.let_go(), [2]);
    assert_eq!((q.known(), q.core.has_limbo()), (0, false));
}

#[test]
fn a_key_that_is_read_waits_for_its_timer_as_any_other() {
    let mut q = Q::new();
    let run = q.read_and_held(1);
    let ended = q.core.end(run, How::Again(SECOND), None).expect("open");
    assert_eq!((ended.key, q.core.has_limbo(), q.known()), (None, false, 1));
    q.stop_reading(1);
    assert!(q.let_go().is_empty());
    assert_eq!(q.core.stats().waiting, 1);
}

#[test]
fn a_key_that_is_read_is_kept_by_its_failures_and_goes_when_they_are_forgotten() {
    let mut q = Q::new();
    let run = q.read_and_held(1);
    let ended = q.core.end(run, How::Retry(RetryDelay::Instead(LIMIT, Duration::ZERO)), None).expect("open");
    assert_eq!((ended.key, q.known()), (None, 1));
    let run = q.get();
    assert_eq!(q.core.finish(run, false).key, None, "done keeps the failures");
    assert_eq!((q.core.has_limbo(), q.known(), q.core.num_requeues(&1, 1)), (false, 1, 1));
    assert_eq!(q.core.forget(&1, 1), None, "it is read");
    assert_eq!((q.core.has_limbo(), q.known()), (true, 0));
    q.stop_reading(1);
    assert_eq!(q.let_go(), [1]);
}

#[test]
fn a_key_that_is_read_is_kept_by_its_guard_when_its_run_was_ended_by_key() {
    let mut q = Q::new();
    let run = q.read_and_held(1);
    assert!(q.core.done(&1, 1).is_ok());
    assert_eq!((q.core.has_limbo(), q.known()), (false, 1), "its guard lends it");
    assert_eq!(q.core.give_back(run).key, None);
    assert_eq!((q.core.has_limbo(), q.known()), (true, 0));
    q.stop_reading(1);
    assert_eq!(q.let_go(), [1]);
}

#[test]
fn a_place_that_another_key_has_taken_is_left_alone() {
    let mut q = Q::new();
    let run = q.read_and_held(1);
    let _ = q.core.finish(run, true);
    // the key is triggered and goes, with its place still on the list of those to look at
    q.add(1, Delay::Now);
    q.stop_reading(1);
    let run = q.get();
    assert_eq!(q.core.finish(run, true).key, Some(1));
    assert_eq!(q.known(), 0);
    q.add(2, Delay::Now);
    assert_eq!(q.known(), 1);
    assert!(q.let_go().is_empty());
    let run = q.get();
    assert_eq!(q.core.finish(run, true).key, Some(2));
}
