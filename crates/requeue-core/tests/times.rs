//! The timestamps that metrics need: how long keys wait and runs take, which is the oldest, and
//! how late timers fire.

mod common;

use common::Calls;
use requeue_core::{Config, Core, Delay, Got, How, Instant, Order, Policy, RunRef, Trigger, WaitingKeys};
use std::time::Duration;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn at(n: u64) -> Instant {
    Instant::ORIGIN + secs(n)
}

fn queue(order: Order<u32>) -> Core<u32> {
    Core::new(Config { order, timestamps: true, ..Config::default() })
}

fn advance(core: &mut Core<u32>, second: u64) {
    while core.advance(at(second)) {}
}

/// Adds a key at this second.
fn add(core: &mut Core<u32>, second: u64, key: u32, delay: u64) {
    advance(core, second);
    let delay = Delay::After(secs(delay), Policy::Earliest);
    core.add(&mut Trigger::new(key, None), key, delay).expect("open");
}

fn get(core: &mut Core<u32>, second: u64) -> RunRef<u32> {
    advance(core, second);
    match core.get() {
        Got::Item(item) => item.run,
        other => panic!("no key, but {other:?}"),
    }
}

fn oldest(core: &Core<u32>) -> Duration {
    core.gauges().oldest_ready
}

#[test]
fn the_oldest_ready_key_is_known_whichever_goes_first() {
    let mut core = queue(Order::Lifo);
    for second in 1..=4 {
        add(&mut core, second, second as u32, 0);
    }
    assert_eq!(oldest(&core), secs(3));
    let newest = get(&mut core, 5);
    assert_eq!((*newest.key(), oldest(&core)), (4, secs(4)));
    add(&mut core, 6, 5, 0);
    let runs = [get(&mut core, 6), get(&mut core, 6), get(&mut core, 6)];
    assert_eq!(oldest(&core), secs(5), "the first is left");
    let last = get(&mut core, 6);
    assert_eq!(oldest(&core), Duration::ZERO);
    for run in [newest, last].into_iter().chain(runs) {
        let _ = core.finished(run, true);
    }
    add(&mut core, 7, 6, 0);
    advance(&mut core, 9);
    assert_eq!(oldest(&core), secs(2));
}

#[test]
fn the_longest_run_is_known_whichever_ends_first() {
    for ends in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut core = queue(Order::Fifo);
        let mut runs = Vec::new();
        for key in 0..3 {
            add(&mut core, u64::from(key), key, 0);
            runs.push(Some(get(&mut core, u64::from(key))));
        }
        advance(&mut core, 10);
        for (nth, end) in ends.into_iter().enumerate() {
            let run = runs[end].take().expect("each ends once");
            assert_eq!(core.finished(run, true).worked, Some(secs(10 - end as u64)));
            let left = || ends[nth + 1..].iter().map(|key| secs(10 - *key as u64));
            let gauges = core.gauges();
            assert_eq!(gauges.longest_running, left().max().unwrap_or_default(), "{ends:?}");
            assert_eq!(gauges.unfinished_work, left().sum::<Duration>(), "{ends:?}");
        }
    }
}

#[test]
fn a_key_that_was_dirty_is_ready_from_the_end_of_its_run_on() {
    let mut core = queue(Order::Fifo);
    add(&mut core, 0, 1, 0);
    let run = get(&mut core, 1);
    add(&mut core, 2, 1, 0);
    advance(&mut core, 5);
    let _ = core.finished(run, true);
    advance(&mut core, 8);
    assert_eq!(oldest(&core), secs(3));
    let Got::Item(item) = core.get() else { panic!("it is ready") };
    assert_eq!(item.waited, Some(secs(6)), "since it was triggered");
    let _ = core.finished(item.run, true);
}

#[test]
fn a_key_that_is_put_back_is_ready_from_then_on_and_has_waited_since_its_trigger() {
    let mut core = queue(Order::Fifo);
    add(&mut core, 0, 1, 0);
    let run = get(&mut core, 1);
    advance(&mut core, 3);
    let _ = core.put_back(run, None, false);
    advance(&mut core, 7);
    let gauges = core.gauges();
    assert_eq!((gauges.oldest_ready, gauges.longest_running), (secs(4), Duration::ZERO));
    let Got::Item(item) = core.get() else { panic!("it is ready") };
    assert_eq!(item.waited, Some(secs(7)));
    assert_eq!(core.finished(item.run, true).worked, Some(Duration::ZERO));
}

#[test]
fn timers_that_fired_tell_how_late_they_were_once() {
    let mut core = queue(Order::Fifo);
    add(&mut core, 0, 1, 1);
    add(&mut core, 0, 2, 3);
    assert!(core.take_late().is_empty());
    advance(&mut core, 4);
    assert!(!core.is_quiescent(), "somebody is to ask");
    assert_eq!(core.take_late(), [secs(3), secs(1)]);
    assert!(core.is_quiescent());
    assert!(core.take_late().is_empty());
    // a drain that runs waiting keys now is not late for them, and fires nothing too soon
    add(&mut core, 4, 3, 5);
    core.begin_drain(WaitingKeys::RunNow, Instant::NEVER);
    advance(&mut core, 4);
    assert_eq!(core.len(), 3);
    assert!(core.take_late().is_empty());
}

#[test]
fn a_queue_without_timestamps_has_nothing_late() {
    let mut core = Core::<u32>::new(Config::default());
    add(&mut core, 0, 1, 1);
    advance(&mut core, 4);
    assert_eq!(core.len(), 1);
    assert!(core.take_late().is_empty());
}

#[test]
fn a_call_that_sets_a_timer_takes_the_one_that_is_due_as_fired() {
    let waiting_until = |core: &Core<u32>| core.state(&1, 1).and_then(|state| state.waiting_until);
    let mut core = queue(Order::Fifo);
    add(&mut core, 0, 1, 1);
    assert!(!core.begin(at(2)));
    let later = Delay::After(secs(5), Policy::Earliest);
    core.add(&mut Trigger::new(1, None), 1, later).expect("open");
    assert_eq!((core.len(), waiting_until(&core)), (1, Some(at(7))));
    // and so does the end of a run
    let run = get(&mut core, 2);
    add(&mut core, 2, 1, 1);
    assert!(!core.begin(at(4)));
    let ended = core.end(run, How::Again(secs(9)), None);
    assert!(ended.is_ok());
    assert_eq!((core.len(), waiting_until(&core)), (1, Some(at(13))), "the timer made it dirty");
}
