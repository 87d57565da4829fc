//! Keys that leave the line without a run.

mod common;

use common::Calls;
use requeue_core::{
    Added, Config, Core, Delay, Got, How, InBackoff, Instant, Limit, Order, ReadyOrder, RetryDelay, Ticket,
    Trigger, TriggerOptions,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const SEC: Duration = Duration::from_secs(1);

type Q = Core<u32, u32>;

fn new(config: Config<u32, u32>) -> Q {
    Core::new(config)
}

fn add(q: &mut Q, key: u32) -> Added {
    q.add(&mut Trigger::new(key, Some(key)), key, Delay::Now).expect("open").added
}

/// Cancels a key that need not be withdrawn, because it is not published. Returns the key and the payload,
/// where they go.
fn leave(q: &mut Q, key: u32) -> Option<(Option<u32>, Option<u32>)> {
    let (cancelled, gone) = q.cancel(&key, key, |_, _| panic!("it was not published"));
    cancelled.map(|cancelled| (gone, cancelled.value))
}

fn work_off(q: &mut Q) -> Vec<u32> {
    let mut keys = Vec::new();
    while let Got::Item(item) = q.get() {
        keys.push(*item.run.key());
        let _ = q.finished(item.run, true);
    }
    keys
}

#[test]
fn a_ready_key_leaves_with_its_payload_and_comes_back_at_the_end_of_the_line() {
    let mut q = new(Config::default());
    for key in 1..=3 {
        add(&mut q, key);
    }
    assert_eq!(leave(&mut q, 1), Some((Some(1), Some(1))));
    assert_eq!((q.len(), leave(&mut q, 1)), (2, None));
    assert_eq!(add(&mut q, 4), Added::Ready, "it has the slot that 1 had");
    assert_eq!(add(&mut q, 1), Added::Ready);
    assert_eq!(work_off(&mut q), [2, 3, 4, 1]);
    assert_eq!(q.stats().known, 0);
}

#[test]
fn a_dirty_key_that_leaves_keeps_its_run() {
    let mut q = new(Config::default());
    add(&mut q, 1);
    let Got::Item(item) = q.get() else { panic!("1 is ready") };
    add(&mut q, 1);
    assert_eq!((q.stats().dirty, leave(&mut q, 1)), (1, Some((None, Some(1)))));
    assert_eq!((q.stats().dirty, q.stats().held, leave(&mut q, 1)), (0, 1, None));
    let Ok(ended) = q.end(item.run, How::Done, None) else { panic!("only retries are refused") };
    assert_eq!((ended.key, q.len(), q.stats().known), (Some(1), 0, 0));
}

#[test]
fn whoever_ends_that_a_key_is_pending_withdraws_it_once() {
    let mut q = new(Config::default());
    let mut withdrawn = Vec::new();
    // ready
    let ticket = q.add(&mut Trigger::new(1, None), 7, Delay::Now).expect("open").ticket;
    assert!(q.publish(ticket));
    assert!(q.cancel(&1, 7, |key, hash| withdrawn.push((*key, hash))).0.is_some());
    assert_eq!(withdrawn, [(1, 7)]);
    // and in line again: it is no longer published
    q.add(&mut Trigger::new(1, None), 7, Delay::Now).expect("open");
    let Got::Item(item) = q.get_and(|_, _| panic!("it is not published")) else { panic!("it is ready") };
    // dirty
    let ticket = q.add(&mut Trigger::new(1, None), 7, Delay::Now).expect("open").ticket;
    assert!(q.publish(ticket));
    assert!(q.cancel(&1, 7, |key, hash| withdrawn.push((*key, hash))).0.is_some());
    assert_eq!(withdrawn, [(1, 7), (1, 7)]);
    let _ = q.finished(item.run, true);
    assert_eq!((q.len(), q.stats().known), (0, 0));
}

#[test]
fn the_oldest_ready_key_of_the_gauges_goes_with_the_key_that_leaves() {
    let mut q = new(Config { timestamps: true, ..Config::default() });
    for key in 1..=2 {
        q.advance(Instant::ORIGIN + SEC * key);
        add(&mut q, key);
    }
    q.advance(Instant::ORIGIN + SEC * 4);
    assert_eq!(q.gauges().oldest_ready, SEC * 3);
    let _ = leave(&mut q, 1);
    assert_eq!((q.gauges().oldest_ready, q.gauges().depth), (SEC * 2, 1));
    let _ = leave(&mut q, 2);
    assert_eq!((q.gauges().oldest_ready, q.gauges().depth), (Duration::ZERO, 0));
}

#[test]
fn a_batch_takes_what_is_left_in_line() {
    for (order, expected) in [(Order::Fifo, [1, 2, 4]), (Order::Lifo, [5, 4, 2])] {
        let mut q = new(Config { order, ..Config::default() });
        for key in 1..=5 {
            add(&mut q, key);
        }
        let _ = leave(&mut q, 3);
        let mut items = Vec::new();
        assert_eq!(q.get_up_to(3, |_, _| (), |item| items.push(item)), 3);
        let keys: Vec<u32> = items.iter().map(|item| *item.run.key()).collect();
        assert_eq!((keys, q.len()), (expected.to_vec(), 1));
        assert_eq!(q.get_up_to(3, |_, _| (), |item| items.push(item)), 1);
        for item in items {
            let _ = q.finished(item.run, true);
        }
        assert_eq!(q.stats().known, 0);
    }
}

/// Last in, first out, and a panic at one of its answers.
struct Panics {
    tickets: Vec<Ticket>,
    /// Number of tickets that it returns before it panics.
    answers: Arc<Mutex<u32>>,
}

impl ReadyOrder<u32> for Panics {
    fn push(&mut self, _: &u32, ticket: Ticket) {
        self.tickets.push(ticket);
    }
    fn pop(&mut self) -> Option<Ticket> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(*answers > 0, "as told");
        *answers -= 1;
        self.tickets.pop()
    }
}

#[test]
fn an_order_that_panics_in_the_middle_of_a_batch_loses_no_key_that_it_gave_before() {
    let answers = Arc::new(Mutex::new(2));
    let order = Panics { tickets: Vec::new(), answers: Arc::clone(&answers) };
    let mut q = new(Config { order: Order::Custom(Box::new(order)), ..Config::default() });
    for key in 1..=5 {
        add(&mut q, key);
    }
    let mut handed_out = 0;
    let batch = catch_unwind(AssertUnwindSafe(|| q.get_up_to(4, |_, _| (), |_| handed_out += 1)));
    assert!(batch.is_err() && handed_out == 0, "it is asked for all of them first");
    assert_eq!(q.len(), 5);
    *answers.lock().unwrap_or_else(PoisonError::into_inner) = 100;
    // one of those that it gave leaves, and the others go first
    let _ = leave(&mut q, 5);
    assert_eq!(work_off(&mut q), [4, 3, 2, 1]);
}

#[test]
fn the_machine_agrees_with_a_list_whoever_comes_goes_and_leaves() {
    for seed in 0..8u64 {
        let mut q = new(Config { timestamps: seed % 2 == 0, ..Config::default() });
        let (mut line, mut held, mut dirty) = (Vec::new(), Vec::new(), Vec::new());
        let mut random = seed;
        for step in 0..if cfg!(miri) { 400 } else { 10_000 } {
            q.advance(Instant::ORIGIN + Duration::from_millis(step));
            random =
                random.wrapping_mul(6_364_136_223_846_793_005u64).wrapping_add(1_442_695_040_888_963_407);
            let key = (random >> 40) as u32 % 50;
            let is_held = held.iter().any(|run: &requeue_core::RunRef<u32>| *run.key() == key);
            let is_ready = line.contains(&key);
            match (random >> 33) % 7 {
                0..=2 => {
                    let added = add(&mut q, key);
                    if is_held {
                        let was = dirty.contains(&key);
                        assert_eq!(added, if was { Added::Coalesced } else { Added::Dirty });
                        dirty.extend((!was).then_some(key));
                    } else {
                        assert_eq!(added, if is_ready { Added::Coalesced } else { Added::Ready });
                        line.extend((!is_ready).then_some(key));
                    }
                }
                3..=4 => {
                    let expected = line.first().copied();
                    match q.get() {
                        Got::Item(item) => {
                            assert_eq!(Some(*item.run.key()), expected);
                            held.push(item.run);
                        }
                        _ => assert_eq!(expected, None),
                    }
                    line.retain(|other| Some(*other) != expected);
                }
                5 if !held.is_empty() => {
                    let run = held.swap_remove(key as usize % held.len());
                    let ended = *run.key();
                    let _ = q.finished(run, true);
                    if dirty.contains(&ended) {
                        dirty.retain(|other| *other != ended);
                        line.push(ended);
                    }
                }
                _ => {
                    let pending = is_ready || dirty.contains(&key);
                    assert_eq!(leave(&mut q, key).is_some(), pending);
                    for list in [&mut line, &mut dirty] {
                        list.retain(|other| *other != key);
                    }
                }
            }
            let stats = q.stats();
            assert_eq!((stats.ready, stats.held), (line.len(), held.len()));
            assert_eq!((stats.dirty, stats.known), (dirty.len(), stats.ready + stats.held));
        }
        assert_eq!(work_off(&mut q), line);
    }
}

#[test]
fn b5_only_a_key_that_runs_again_whatever_becomes_of_its_run_is_published() {
    for (in_backoff, may_be) in [(InBackoff::Respect, false), (InBackoff::Run, true)] {
        let mut core = Core::<&str>::new(Config { in_backoff, ..Config::default() });
        core.add(&mut Trigger::new("a", None), 7, Delay::Now).unwrap();
        let Got::Item(item) = core.get() else { panic!("a is ready") };
        let accepted = core.add(&mut Trigger::new("a", None), 7, Delay::Now).unwrap();
        assert_eq!(core.publish(accepted.ticket), may_be, "{in_backoff:?}");
        let runs = TriggerOptions { in_backoff: Some(InBackoff::Run), ..TriggerOptions::NOW };
        let said = core.trigger(&mut Trigger::new("a", None), 7, &runs, &Limit::NONE).unwrap();
        assert!(core.publish(said.ticket), "a stronger trigger came");
        let _ = core.finished(item.run, true);
    }
}

#[test]
fn b5_a_key_of_a_queue_whose_triggers_reset_is_not_published() {
    let mut core = Core::<&str>::new(Config { in_backoff: InBackoff::Reset, ..Config::default() });
    let accepted = core.add(&mut Trigger::new("a", None), 7, Delay::Now).unwrap();
    assert!(!core.publish(accepted.ticket));
}

#[test]
fn the_next_run_of_a_cancelled_key_is_its_first_attempt_whatever_its_failures() {
    let mut q = new(Config::default());
    add(&mut q, 1);
    let Got::Item(item) = q.get() else { panic!("1 is ready") };
    let limit = Limit { delay: &|_, _| SEC, counts: true, expire_after: None };
    assert!(q.end(item.run, How::Retry(RetryDelay::Limited(limit, None)), None).is_ok());
    assert_eq!(q.state(&1, 1).map(|state| (state.failures, state.attempt)), Some((1, 2)));
    let (cancelled, gone) = q.cancel(&1, 1, |_, _| panic!("it was not published"));
    assert!(cancelled.is_some_and(|cancelled| cancelled.waiting_until.is_some()) && gone.is_none());
    assert_eq!(q.state(&1, 1).map(|state| (state.failures, state.attempt)), Some((1, 1)));
}
