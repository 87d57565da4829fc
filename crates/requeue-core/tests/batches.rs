//! Runs that end, alone and in batches: what they leave, and what is told of them.

mod common;

use common::Calls;
use requeue_core::{
    Config, Core, Delay, Ended, Got, Handout, How, Instant, Limit, Order, Policy, ReadyOrder, RunEnd, Ticket,
    Trigger,
};
use std::cell::Cell;
use std::time::Duration;

fn new() -> Core<u32> {
    Core::new(Config::default())
}

fn add(core: &mut Core<u32>, key: u32) -> Ticket {
    core.add(&mut Trigger::new(key, None), key, Delay::Now).expect("open").ticket
}

fn get(core: &mut Core<u32>) -> Handout<u32, ()> {
    match core.get() {
        Got::Item(item) => item,
        other => panic!("no key, but {other:?}"),
    }
}

/// Last in, first out; a user's order all the same.
struct Own(Vec<Ticket>);

impl ReadyOrder<u32> for Own {
    fn push(&mut self, _: &u32, ticket: Ticket) {
        self.0.push(ticket);
    }
    fn pop(&mut self) -> Option<Ticket> {
        self.0.pop()
    }
}

fn with_own_order() -> Core<u32> {
    Core::new(Config { order: Order::Custom(Box::new(Own(Vec::new()))), ..Config::default() })
}

#[test]
fn a_run_that_leaves_nothing_of_its_key_is_counted() {
    let mut core = new();
    add(&mut core, 1);
    let base = core.begin_drain(requeue_core::WaitingKeys::Drop, Instant::NEVER);
    let run = get(&mut core).run;
    assert_eq!(core.stats().held, 1);
    assert_eq!(core.finished(run, false).key, Some(1));
    assert_eq!((core.stats().held, core.drain_counts(&base).done), (0, 1));
}

#[test]
fn a_key_whose_run_was_ended_under_its_guard_goes_when_the_last_guard_does() {
    let mut core = new();
    add(&mut core, 1);
    let first = get(&mut core).run;
    assert!(core.done(&1, 1).is_ok());
    add(&mut core, 1);
    let second = get(&mut core).run;
    assert_eq!(core.finished(second, false).key, None, "the first guard still lends the key");
    assert_eq!(core.stats().held, 0);
    assert_eq!(core.finished(first, false).key, Some(1));
    assert_eq!(core.stats().known, 0);
}

#[test]
fn a_batch_says_how_many_keys_it_took_whatever_the_order() {
    for mut core in [new(), with_own_order()] {
        for key in 0..5 {
            add(&mut core, key);
        }
        let mut runs = Vec::new();
        assert_eq!(core.get_up_to(3, |_, _| (), |item| runs.push(item.run)), 3);
        assert_eq!(core.get_up_to(3, |_, _| (), |item| runs.push(item.run)), 2);
        assert_eq!((runs.len(), core.stats().held, core.len()), (5, 5, 0));
        for run in runs {
            let _ = core.finished(run, true);
        }
    }
}

#[test]
fn each_end_of_a_run_has_its_name_and_a_queue_without_metrics_has_no_times() {
    assert_eq!(RunEnd::ALL.map(RunEnd::name), ["done", "again", "retry", "give_up"]);
    let ends = [
        (How::Done, RunEnd::Done),
        (How::Succeed, RunEnd::Done),
        (How::Again(Duration::ZERO), RunEnd::Again),
        (How::GiveUp, RunEnd::GiveUp),
    ];
    for (how, name) in ends {
        let mut core = new();
        add(&mut core, 1);
        let run = get(&mut core).run;
        let ended: Ended<u32, ()> = core.end(run, how, None).expect("open");
        assert_eq!(ended.end, name);
        assert_eq!(ended.worked, None);
    }
}

#[test]
fn an_immediate_trigger_fires_no_timer_even_of_its_own_key() {
    let mut core = new();
    let second = Duration::from_secs(1);
    let delay = Delay::After(second, Policy::Earliest);
    core.add(&mut Trigger::new(1, None), 1, delay).expect("open");
    assert!(!core.begin(Instant::ORIGIN + second));
    add(&mut core, 1);
    assert_eq!((core.len(), core.stats().waiting), (1, 1));
}

#[test]
fn a_limiter_that_counts_by_itself_is_not_told_what_others_counted() {
    let mut core = new();
    let asked = Cell::new(Vec::new());
    let delay = |failures: u32, _: Instant| {
        let mut all = asked.take();
        all.push(failures);
        asked.set(all);
        Duration::from_secs(1)
    };
    for counts in [true, true, false, true] {
        let limit = Limit { delay: &delay, counts, expire_after: None };
        let delay = Delay::Limited(Policy::Earliest);
        core.add_limited(&mut Trigger::new(1, None), 1, delay, limit).expect("open");
    }
    assert_eq!(asked.take(), [0, 1, 0, 2]);
    assert_eq!(core.num_requeues(&1, 1), 3);
}

#[test]
fn nothing_is_left_of_a_run_whose_guard_was_taken_and_that_was_ended_by_key() {
    let mut core = new();
    add(&mut core, 1);
    let run = get(&mut core).run;
    let _ = core.detach(run);
    assert!(core.done(&1, 1).is_ok());
    add(&mut core, 2);
    let run = get(&mut core).run;
    assert_eq!(core.finished(run, false).key, Some(2));
    assert_eq!(core.stats().known, 0);
}
