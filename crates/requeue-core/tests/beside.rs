//! Tests of the state machine's other calls for the queue around it: what waits to be told, what a limiter
//! outside of it is asked, and what a store is told of a key.

mod common;

use common::Calls;
use requeue_core::{
    Bound, Config, Core, Delay, Got, How, InBackoff, Instant, KeyState, Limit, Only, Order, Policy, Refused,
    RetryDelay, RunEnd, RunRef, Trigger, TriggerOptions, WaitingKeys,
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn new() -> Core<u32, u32> {
    Core::new(Config::default())
}

fn bounded(drop_oldest: bool) -> Core<u32, u32> {
    Core::new(Config { bound: Some(Bound { keys: 1, drop_oldest }), ..Config::default() })
}

fn add(core: &mut Core<u32, u32>, key: u32) -> Result<(), Refused> {
    core.add(&mut Trigger::new(key, Some(key)), key, Delay::Now).map(drop)
}

fn add_after(core: &mut Core<u32, u32>, key: u32, delay: Duration) {
    let delay = Delay::After(delay, Policy::Earliest);
    core.add(&mut Trigger::new(key, None), key, delay).expect("it is open");
}

fn reset(core: &mut Core<u32, u32>, key: u32) {
    let resets = TriggerOptions { in_backoff: Some(InBackoff::Reset), ..TriggerOptions::NOW };
    core.trigger(&mut Trigger::new(key, None), key, &resets, &Limit::NONE).expect("it is open");
}

fn get(core: &mut Core<u32, u32>) -> RunRef<u32> {
    match core.get() {
        Got::Item(item) => item.run,
        other => panic!("no key, but {other:?}"),
    }
}

#[test]
fn a_run_that_a_reset_came_to_starts_afresh() {
    let mut core = new();
    assert!(!core.has_to_reset(&1, 1), "nobody knows it");
    add(&mut core, 1).unwrap();
    assert!(core.has_to_reset(&1, 1));
    let run = get(&mut core);
    assert!(!core.starts_afresh(&run));
    reset(&mut core, 1);
    assert!(core.starts_afresh(&run));
    let _ = core.finished(run, true);
    core.close();
    assert!(!core.has_to_reset(&1, 1), "it is ready, but the trigger would be refused");
}

#[test]
fn a_limiter_that_counts_itself_is_told_once_what_to_forget() {
    let mut core = Core::<u32, u32>::new(Config { failures_elsewhere: true, ..Config::default() });
    add(&mut core, 1).unwrap();
    assert_eq!(core.take_forgotten(), None);
    reset(&mut core, 1);
    assert_eq!(core.take_forgotten(), Some(vec![1]));
    assert_eq!(core.take_forgotten(), None);
}

#[test]
fn a_key_that_can_be_dropped_makes_room() {
    let mut core = bounded(true);
    assert_eq!(core.room_to_make(), Some(1));
    add(&mut core, 1).unwrap();
    assert_eq!((core.room(), core.room_to_make()), (Some(0), Some(1)));
    let run = get(&mut core);
    assert_eq!((core.room(), core.room_to_make()), (Some(0), Some(0)), "a held key is not dropped");
    let _ = core.finished(run, true);
    assert_eq!(new().room_to_make(), None);
}

#[test]
fn keys_are_noted_only_while_a_caller_waits_for_room() {
    let mut core = bounded(false);
    core.note_entered(true);
    add(&mut core, 1).unwrap();
    assert_eq!((core.take_entered(), core.take_entered()), (vec![1], vec![]));
    core.note_entered(false);
    add(&mut core, 1).unwrap();
    assert_eq!(core.take_entered(), vec![]);
}

#[test]
fn a_place_is_kept_for_those_before_and_for_one_whose_limiter_is_asked() {
    let mut core = bounded(false);
    assert_eq!(core.behind(1, |core| add(core, 1)), Err(Refused::Full));
    let asking = core.ask_for(&1, 1).unwrap();
    assert_eq!(core.ask_for(&2, 2).err(), Some(Refused::Full));
    assert!(core.unask(asking) && core.room() == Some(1));
    assert!(core.behind(0, |core| add(core, 1)).is_ok());
}

#[test]
fn what_the_owner_has_noted_is_work_until_it_is_done() {
    let mut core = new();
    core.note_beside(2, true);
    assert!(core.is_just_noted(2) && !core.is_just_noted(1) && !core.is_quiescent());
    core.note_beside(2, false);
    assert!(core.is_just_noted(0) && core.is_quiescent());
}

#[test]
fn whether_time_matters_is_told_as_it_changes() {
    let mut core = new();
    add(&mut core, 1).unwrap();
    assert!(!core.time_matters() && core.is_quiescent() && core.is_up_to_date());
    add_after(&mut core, 2, SECOND);
    assert!(core.time_matters() && !core.is_up_to_date() && !core.is_quiescent());
    assert!(core.take_time_matters() && core.is_quiescent());
    let mut core = new();
    core.begin_drain(WaitingKeys::Wait, Instant::ORIGIN + SECOND);
    assert_eq!(core.waiting_until(), Some(Instant::ORIGIN + SECOND));
    core.conclude();
    assert_eq!(core.waiting_until(), None, "there was nothing to wait for");
    assert!(!core.is_quiescent() && !core.take_time_matters() && core.is_quiescent());
}

#[test]
fn a_timer_is_absorbed_by_a_run_that_comes_anyway() {
    let mut core = new();
    add_after(&mut core, 1, SECOND * 5);
    let absorbs = TriggerOptions { absorbs: true, ..TriggerOptions::NOW };
    core.trigger(&mut Trigger::new(1, None), 1, &absorbs, &Limit::NONE).unwrap();
    assert_eq!((core.len(), core.next_wake()), (1, None));
}

#[test]
fn each_shut_down_releases_the_drains_before_it() {
    let mut core = new();
    assert_eq!(core.releases(), 0);
    core.shut_down();
    core.shut_down();
    assert_eq!(core.releases(), 2);
}

#[test]
fn a_store_is_told_the_state_of_a_key_and_takes_it_back() {
    let mut core = new();
    add(&mut core, 1).unwrap();
    let slot = core.slot_of(&1, 1).expect("it is ready");
    let (key, state, value) = core.known_of(slot);
    assert_eq!((*key, state.is_some_and(|state| state.ready), value), (1, true, Some(&1)));
    let run = get(&mut core);
    assert_eq!(run.slot(), slot);
    assert!(matches!(core.withdraw_ended(slot, |_, _| ()), (None, None)), "it is held");
    let limit = Limit { delay: &|_, _| SECOND, counts: true, expire_after: None };
    assert!(core.end(run, How::Retry(RetryDelay::Limited(limit, None)), None).is_ok());
    assert_eq!(core.withdraw_ended(slot, |_, _| ()).1, Some(1));
    assert_eq!(core.num_requeues(&1, 1), 0);
}

#[test]
fn what_a_shutdown_drops_is_told_to_a_store_that_outlives_it() {
    let hour = SECOND * 3600;
    for outlived in [false, true] {
        let mut core = new();
        if outlived {
            core.set_outlived();
        }
        add(&mut core, 1).unwrap();
        add_after(&mut core, 1, hour);
        core.shut_down();
        while core.advance(Instant::ORIGIN) {}
        let run = get(&mut core);
        let slot = run.slot();
        let ended = core.finished(run, true);
        assert_eq!(ended.key.is_none(), outlived, "it is known as long as the store is to be told");
        if outlived {
            let state = core.known_of(slot).1.expect("it is known");
            assert_eq!(state.waiting_until, Some(Instant::ORIGIN + hour));
        }
    }
}

#[test]
fn a_refused_run_is_remembered_until_it_ends() {
    let mut core = new();
    add(&mut core, 1).unwrap();
    let run = get(&mut core);
    core.shut_down();
    assert!(!core.has_refusals());
    let Err((run, refused)) = core.end(run, How::Again(Duration::ZERO), Some(7)) else { panic!("shut down") };
    assert_eq!((refused.value, refused.reason), (Some(7), Refused::ShutDown));
    assert!(core.was_refused(&run) && core.has_refusals());
    let _ = core.finished(run, true);
    assert!(!core.has_refusals());
}

#[test]
fn an_unfinished_key_is_lent_with_its_reason_and_taken_with_its_state() {
    let mut core = new();
    add_after(&mut core, 1, SECOND);
    core.begin_drain(WaitingKeys::Drop, Instant::NEVER);
    while core.advance(Instant::ORIGIN) {}
    let mut loans = Vec::new();
    assert_eq!(core.lend_unfinished(true, 10, |loan, reason| loans.push((loan, reason))), 0, "no answer yet");
    assert_eq!(core.lend_unfinished(false, 10, |loan, reason| loans.push((loan, reason))), 1);
    assert_eq!((core.unfinished(), *loans[0].0.get()), (1, 1));
    assert_eq!(core.take_unfinished(0, 10, |_| panic!("it is lent")), None);
    loans.into_iter().for_each(|(loan, _)| core.take_back(loan));
    let mut taken = Vec::new();
    core.take_unfinished(0, 10, |key| taken.push(key));
    assert_eq!((taken.len(), taken[0].key, taken[0].due), (1, 1, Some(Instant::ORIGIN + SECOND)));
    assert_eq!(core.unfinished(), 0);
}

#[test]
fn ready_keys_are_counted_by_priority() {
    let order = Order::Priority { max_wait: None };
    let mut core = Core::<u32, u32>::new(Config { order, timestamps: true, ..Config::default() });
    let low = TriggerOptions { priority: -100, ..TriggerOptions::NOW };
    core.trigger(&mut Trigger::new(1, None), 1, &low, &Limit::NONE).unwrap();
    let mut depths = Vec::new();
    assert_eq!(core.depths(0, &mut depths), None, "there are no more");
    assert_eq!(depths, [(-100, 1)]);
    assert_eq!(core.told_groups(0, &mut Vec::new()), None, "there are no groups");
}

#[test]
fn names_and_limits_of_small_types() {
    assert_eq!(RunEnd::ALL.map(RunEnd::name), ["done", "again", "retry", "give_up"]);
    assert_eq!((RunEnd::from(&How::Succeed), RunEnd::from(&How::GiveUp)), (RunEnd::Done, RunEnd::GiveUp));
    assert!(!Only::Waiting.is(&KeyState::default()));
    assert!((Instant::ORIGIN + Duration::MAX).is_never());
    assert_eq!(Refused::ShutDown.to_string(), "the queue is shut down and accepts no more keys");
}
