//! Tests of the phases: answers while the queue is open, closed, drained and shut down, and whether it has
//! anything to do.

mod common;

use common::Calls;
use requeue_core::{Config, Core, Delay, Got, How, Instant, Policy, RunRef, Trigger, WaitingKeys};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn new() -> Core<u32, u32> {
    Core::new(Config::default())
}

fn at(n: u32) -> Instant {
    Instant::ORIGIN + SECOND * n
}

fn add(core: &mut Core<u32, u32>, key: u32, delay: Duration) -> bool {
    core.add(&mut Trigger::new(key, None), key, Delay::After(delay, Policy::Earliest)).is_ok()
}

fn get(core: &mut Core<u32, u32>) -> RunRef<u32> {
    match core.get() {
        Got::Item(item) => item.run,
        other => panic!("no key, but {other:?}"),
    }
}

#[test]
fn a_drain_that_waits_ends_only_when_no_key_is_ready_held_waiting_or_asked_for() {
    let mut core = new();
    core.conclude();
    assert!(!core.shutting_down(), "there was no drain");
    add(&mut core, 1, SECOND);
    add(&mut core, 2, Duration::ZERO);
    let asking = core.ask(None).expect("open");
    let base = core.begin_drain(WaitingKeys::Wait, Instant::NEVER);
    let goes_on = |core: &mut Core<u32, u32>| {
        core.conclude();
        core.shutting_down() && !core.is_shut_down()
    };
    assert!(goes_on(&mut core), "2 is ready");
    let run = get(&mut core);
    assert!(goes_on(&mut core), "2 is held");
    let _ = core.finished(run, true);
    assert!(goes_on(&mut core), "1 waits, and a limiter is being asked");
    while core.advance(at(1)) {}
    let run = get(&mut core);
    let _ = core.finished(run, true);
    assert!(goes_on(&mut core), "a limiter is being asked");
    let delay = Delay::Asked(SECOND, Policy::Earliest, asking);
    core.add(&mut Trigger::new(3, None), 3, delay).expect("it was admitted before");
    assert!(goes_on(&mut core), "3 waits");
    while core.advance(at(2)) {}
    let run = get(&mut core);
    let _ = core.finished(run, true);
    assert!(!goes_on(&mut core) && core.is_shut_down() && core.drain_is_over(&base));
}

#[test]
fn phases_go_forward_and_can_be_asked() {
    let mut core = new();
    assert!(!core.shutting_down() && !core.is_shut_down() && !core.is_over());
    core.close();
    assert!(core.shutting_down() && !core.is_shut_down() && !core.is_over());
    core.shut_down();
    assert!(core.shutting_down() && core.is_shut_down() && core.is_over() && core.is_drained());
    core.close();
    core.begin_drain(WaitingKeys::Wait, Instant::NEVER);
    assert!(core.is_shut_down() && core.is_drained());
}

#[test]
fn a_drain_counts_what_came_since_it_began() {
    let mut core = new();
    add(&mut core, 1, Duration::ZERO);
    let run = get(&mut core);
    let _ = core.finished(run, true);
    for key in 0..4 {
        add(&mut core, key, Duration::ZERO);
    }
    let [one, two, three, four] = [(); 4].map(|()| get(&mut core));
    add(&mut core, 7, SECOND);
    core.shut_down();
    while core.advance(at(0)) {}
    assert!(!add(&mut core, 8, Duration::ZERO));
    let refuse = |core: &mut Core<u32, u32>, run| match core.end(run, How::Again(SECOND), None) {
        Ok(_) => panic!("it is shut down"),
        Err((run, _)) => {
            let _ = core.finished(run, true);
        }
    };
    refuse(&mut core, one);

    let base = core.begin_drain(WaitingKeys::Drop, Instant::NEVER);
    let counts = core.drain_counts(&base);
    assert_eq!((counts.done, counts.dropped, counts.refused, counts.refused_retries), (0, 0, 0, 0));
    assert_eq!((counts.held, counts.ready, counts.waiting, counts.complete), (3, 0, 0, false));
    for _ in 0..4 {
        assert!(!add(&mut core, 9, Duration::ZERO));
    }
    refuse(&mut core, two);
    refuse(&mut core, three);
    let _ = core.finished(four, true);
    let counts = core.drain_counts(&base);
    assert_eq!((counts.done, counts.refused, counts.refused_retries), (3, 4, 2));
    assert_eq!((counts.held, counts.complete), (0, true));
    let found = core.shut_down();
    assert_eq!((found.dropped, found.refused, found.refused_retries), (0, 5, 3));
}

#[test]
fn waiting_keys_that_a_later_shutdown_drops_are_counted_by_both() {
    let mut core = new();
    for key in 0..3 {
        add(&mut core, key, SECOND);
    }
    let base = core.begin_drain(WaitingKeys::Wait, Instant::NEVER);
    assert_eq!(core.drain_counts(&base).waiting, 3);
    assert_eq!(core.shut_down().dropped, 3);
    let counts = core.drain_counts(&base);
    assert_eq!((counts.dropped, counts.waiting), (3, 0), "none waits any more, though some are there yet");
    assert_eq!((core.stats().waiting, core.gauges().waiting), (0, 0));
    assert!(core.drain_is_over(&base));
}

#[test]
fn time_matters_to_a_look_while_a_timer_is_set() {
    let mut core = new();
    assert!(core.is_up_to_date() && !core.time_matters());
    add(&mut core, 1, SECOND);
    assert!(!core.is_up_to_date() && core.time_matters());
    assert!(!core.advance(at(1)));
    assert_eq!(core.len(), 1);
    assert!(core.is_up_to_date() && !core.time_matters());
}

#[test]
fn a_queue_is_quiescent_while_nothing_is_shut_down_and_nothing_is_to_be_dropped() {
    let mut core = new();
    assert!(core.is_quiescent());
    add(&mut core, 1, Duration::ZERO);
    add(&mut core, 2, SECOND);
    assert!(!core.is_quiescent() && core.take_time_matters(), "time matters from now on");
    add(&mut core, 3, SECOND);
    assert!(core.is_quiescent(), "it did before");
    for value in [1, 2] {
        core.add(&mut Trigger::new(1, Some(value)), 1, Delay::Now).expect("open");
    }
    assert!(!core.is_quiescent(), "a payload was replaced");
    assert_eq!(core.take_trash(), [(None, Some(1))]);
    assert!(core.take_trash().is_empty() && core.is_quiescent());
    core.begin_drain(WaitingKeys::Wait, Instant::NEVER);
    assert!(!core.is_quiescent());
    core.shut_down();
    assert!(!core.is_quiescent(), "there are timers to be dropped");
    while core.advance(at(0)) {}
    core.take_trash();
    assert!(!core.is_quiescent() && !core.take_time_matters(), "time does not matter any more");
    assert!(core.is_quiescent());
}

#[test]
fn the_next_thing_that_no_call_brings_about_is_a_timer_or_a_drain_s_deadline() {
    let mut core = new();
    core.begin_drain(WaitingKeys::Wait, at(5));
    assert_eq!(
        (core.next_wake(), core.waiting_until(), core.time_matters()),
        (Some(at(5)), Some(at(5)), true)
    );
    for (timer, next) in [(7, 5), (3, 3)] {
        let mut core = new();
        add(&mut core, 1, SECOND * timer);
        core.begin_drain(WaitingKeys::Wait, at(5));
        assert_eq!(core.next_wake(), Some(at(next)));
    }
    let mut core = new();
    core.begin_drain(WaitingKeys::Wait, Instant::NEVER);
    assert_eq!((core.next_wake(), core.waiting_until()), (None, None));
}

#[test]
fn a_trigger_tells_what_the_queue_has_not_taken() {
    let mut core = new();
    let mut trigger = Trigger::<u32, u32>::new(1, None);
    assert_eq!(trigger.key(), Some(&1));
    assert!(!trigger.is_empty());
    core.add(&mut trigger, 1, Delay::Now).expect("open");
    assert_eq!(trigger.key(), None);
    assert!(trigger.is_empty());
    // all of a trigger that is refused stays the caller's
    let mut trigger = Trigger::new(2, Some(7));
    core.close();
    assert!(core.add(&mut trigger, 2, Delay::Now).is_err());
    assert_eq!(trigger.take(), (Some(2), Some(7)));
    assert!(trigger.is_empty());
}

/// A drain goes through its timers in several lock holds, and its deadline may pass between two of them.
#[test]
fn q11_what_a_drain_dropped_as_it_began_does_not_run_however_late_the_next_look_is() {
    const KEYS: u32 = 500;
    let mut core = new();
    for key in 0..KEYS {
        add(&mut core, key, SECOND * 2);
    }
    let base = core.begin_drain(WaitingKeys::WaitForRetries, at(3));
    assert!(core.advance(Instant::ORIGIN), "there is more to do");
    while core.advance(at(4)) {}
    let drained = core.drain_counts(&base);
    assert_eq!((drained.ready, drained.dropped, drained.unfinished), (0, u64::from(KEYS), KEYS as usize));
}
