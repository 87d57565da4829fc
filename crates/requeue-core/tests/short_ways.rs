//! The calls that take a short way where nothing else is to be done: when they may, and
//! what they leave. Whoever may not is sent the long way, so that only these tests see it.

use requeue_core::{
    Added, Config, Core, Delay, Ended, Got, Handout, How, Instant, Limit, Order, Policy, ReadyOrder, RunEnd,
    Ticket, Trigger,
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
    Core::new(Config { order: Order::Own(Box::new(Own(Vec::new()))), ..Config::default() })
}

#[test]
fn a_key_is_had_the_short_way_where_one_is_ready_and_the_order_is_not_the_users() {
    let mut core = new();
    assert!(!core.has_plain());
    for key in 1..=2 {
        add(&mut core, key);
        assert!(core.has_plain());
    }
    let mut core = with_own_order();
    add(&mut core, 1);
    assert!(!core.has_plain());
}

#[test]
fn a_run_that_ended_the_short_way_is_counted() {
    let mut core = new();
    add(&mut core, 1);
    let base = core.begin_drain(requeue_core::WaitingKeys::Drop, Instant::NEVER);
    let run = get(&mut core).run;
    assert_eq!(core.stats().held, 1);
    assert_eq!(core.finish_plainly(run).ok(), Some(1));
    assert_eq!((core.stats().held, core.drain_counts(&base).done), (0, 1));
}

#[test]
fn the_short_way_is_open_again_when_the_guards_of_runs_that_were_ended_by_key_are_gone() {
    let mut core = new();
    add(&mut core, 1);
    let first = get(&mut core).run;
    assert!(core.done(&1, 1).is_ok());
    add(&mut core, 1);
    let second = get(&mut core).run;
    assert!(core.done(&1, 1).is_ok());
    let _ = core.give_back(first);
    add(&mut core, 2);
    let other = get(&mut core).run;
    let other = core.finish_plainly(other).expect_err("a guard is left of a run that has ended");
    let _ = core.give_back(second);
    assert_eq!(core.finish_plainly(other).ok(), Some(2));
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
            let _ = core.finish(run, true);
        }
    }
}

#[test]
fn each_end_of_a_run_has_its_name_and_a_queue_without_metrics_has_no_times() {
    let ends = [
        (How::Done, RunEnd::Done),
        (How::Succeed, RunEnd::Done),
        (How::Again(Duration::ZERO), RunEnd::Again),
        (How::GiveUp, RunEnd::GiveUp),
    ];
    assert_eq!(RunEnd::ALL.map(RunEnd::name), ["done", "again", "retry", "give_up"]);
    for (how, name) in ends {
        let mut core = new();
        add(&mut core, 1);
        let run = get(&mut core).run;
        let ended: Ended<u32, ()> = core.end(run, how, None).expect("open");
        assert_eq!(ended.end, name);
        assert_eq!((ended.worked, core.last_times()), (None, (None, None)));
    }
}

#[test]
fn a_key_is_added_the_short_way_where_the_queue_is_open_and_the_order_is_not_the_users() {
    let mut core = new();
    let mut heard = Vec::new();
    let mut key = Some(1);
    assert_eq!(core.add_plainly(&mut key, 1, |_, _| heard.push(1)), Some(Added::Ready));
    assert_eq!(key, None);
    key = Some(1);
    assert_eq!(core.add_plainly(&mut key, 1, |_, _| heard.push(2)), Some(Added::Coalesced));
    assert_eq!(key, Some(1), "the queue has one");
    let run = get(&mut core).run;
    assert_eq!(core.add_plainly(&mut key, 1, |_, _| heard.push(3)), Some(Added::Dirty));
    assert_eq!(core.add_plainly(&mut key, 1, |_, _| heard.push(4)), Some(Added::Coalesced));
    assert_eq!(heard, [2, 4], "of what was redundant");
    let counts = core.take_counts();
    assert_eq!((counts.adds, counts.coalesced), (2, 2));
    let _ = core.finish(run, true);
    core.close();
    assert_eq!(core.add_plainly(&mut key, 1, |_, _| ()), None);
    let mut core = with_own_order();
    assert_eq!(core.add_plainly(&mut key, 1, |_, _| ()), None);
    assert_eq!((key, core.stats().known), (Some(1), 0), "nothing has changed");
}

#[test]
fn an_immediate_trigger_fires_no_timer_even_of_its_own_key() {
    let mut core = new();
    let second = Duration::from_secs(1);
    let delay = Delay::After(second, Policy::Earliest);
    core.add(&mut Trigger::new(1, None), 1, delay).expect("open");
    assert!(!core.begin(Some(Instant::ORIGIN + second)));
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
        let delay = Delay::Limited(limit, Policy::Earliest);
        core.add(&mut Trigger::new(1, None), 1, delay).expect("open");
    }
    assert_eq!(asked.take(), [0, 1, 0, 2]);
    assert_eq!(core.num_requeues(&1, 1), 3);
}

#[test]
fn the_short_way_is_open_after_a_run_whose_guard_was_taken_and_that_was_ended_by_key() {
    let mut core = new();
    add(&mut core, 1);
    let run = get(&mut core).run;
    let _ = core.detach(run);
    assert!(core.done(&1, 1).is_ok());
    add(&mut core, 2);
    let run = get(&mut core).run;
    assert_eq!(core.finish_plainly(run).ok(), Some(2));
}
