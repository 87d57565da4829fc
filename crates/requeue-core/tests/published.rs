//! Keys that are published to those who add without the lock: which may be, and who is told that
//! one was handed out.

mod common;

use common::Calls;
use requeue_core::{Config, Core, Delay, Got, Order, Policy, ReadyOrder, RunRef, Ticket, Trigger};
use std::time::Duration;

/// A state machine whose keys are their own hashes.
struct Q {
    core: Core<u32>,
}

impl Q {
    fn new() -> Self {
        Self { core: Core::new(Config::default()) }
    }

    fn add(&mut self, key: u32, delay: Delay) -> Ticket {
        self.core.add(&mut Trigger::new(key, None), key, delay).expect("open").ticket
    }

    fn get(&mut self) -> RunRef<u32> {
        match self.core.get() {
            Got::Item(item) => item.run,
            other => panic!("no key, but {other:?}"),
        }
    }
}

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
    assert!(q.core.publish(ticket));
    let run = q.get();
    assert!(!q.core.publish(ticket), "it is held, and nobody asked for a run");
    q.add(1, Delay::Now);
    assert!(q.core.publish(ticket), "it is dirty");
    let _ = q.core.finished(run, true);
    q.core.close();
    assert!(!q.core.publish(ticket), "outsiders are refused");
    let run = q.get();
    assert_eq!(q.core.finished(run, true).key, Some(1));
    assert!(!q.core.publish(ticket), "it has gone");

    let mut q = Q::new();
    let ticket = q.add(1, Delay::After(Duration::from_secs(1), Policy::Earliest));
    assert!(!q.core.publish(ticket), "it waits");
}

#[test]
fn a_key_of_a_queue_with_an_order_of_the_users_is_not_published() {
    let mut q = Q::new();
    q.core = Core::new(Config { order: Order::Custom(Box::new(Own::default())), ..Config::default() });
    let ticket = q.add(1, Delay::Now);
    assert!(!q.core.publish(ticket));
}

#[test]
fn a_key_that_was_published_is_withdrawn_once_when_it_is_handed_out() {
    let mut q = Q::new();
    let mut withdrawn = Vec::new();
    let published = q.add(1, Delay::Now);
    q.add(2, Delay::Now);
    for _ in 0..2 {
        assert!(q.core.publish(published));
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
        let _ = q.core.finished(run, true);
    }
    q.add(1, Delay::Now);
    let Got::Item(item) = q.core.get_and(|key, hash| withdrawn.push((*key, hash))) else {
        panic!("it is ready")
    };
    assert_eq!(withdrawn.len(), 1, "it was not published again");
    let _ = q.core.finished(item.run, true);
}
