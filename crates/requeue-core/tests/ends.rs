//! Tests of the end of a run: the key's state, its payload, its attempts, and what each kind of end counts.

mod common;

use common::Calls;
use requeue_core::{
    Config, Core, Delay, Got, Handout, How, Instant, Limit, Merge, Policy, RetryDelay, Trigger, WaitingKeys,
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// A limiter that counts failures itself, and one whose failures the queue counts.
const UNCOUNTED: Limit<'static> = Limit { delay: &|_, _| SECOND, counts: false, expire_after: None };
const COUNTED: Limit<'static> = Limit { delay: &|_, _| SECOND, counts: true, expire_after: None };
const RETRY_NOW: How<'static> = How::Retry(RetryDelay::Limited(UNCOUNTED, Some(Duration::ZERO)));

type Queue = Core<u32, Vec<u32>>;

fn queue() -> Queue {
    let merge: Merge<Vec<u32>> = Box::new(|older: &mut Vec<u32>, newer| older.extend(newer));
    Core::new(Config { merge: Some(merge), ..Config::default() })
}

fn at(n: u32) -> Instant {
    Instant::ORIGIN + SECOND * n
}

/// Adds a key with a payload, or without one where it is empty.
fn add(core: &mut Queue, key: u32, value: &[u32]) {
    let value = (!value.is_empty()).then(|| value.to_vec());
    core.add(&mut Trigger::new(key, value), key, Delay::Now).expect("open");
}

fn get(core: &mut Queue) -> Handout<u32, Vec<u32>> {
    match core.get() {
        Got::Item(item) => item,
        other => panic!("no key, but {other:?}"),
    }
}

/// Key 1, handed out again after a retry that no limiter counts.
fn second_attempt(core: &mut Queue) -> Handout<u32, Vec<u32>> {
    add(core, 1, &[]);
    let item = get(core);
    let _ = core.end(item.run, RETRY_NOW, None).expect("open");
    let item = get(core);
    assert_eq!(item.attempt, 2);
    item
}

/// ready, held, dirty, known
fn counts(core: &Queue) -> [usize; 4] {
    let stats = core.stats();
    [stats.ready, stats.held, stats.dirty, stats.known]
}

/// ready, held, dirty
fn state(core: &Queue, key: u32) -> Option<[bool; 3]> {
    core.state(&key, key).map(|state| [state.ready, state.held, state.dirty])
}

#[test]
fn a_key_that_is_put_back_is_ready_and_nothing_else() {
    let mut core = queue();
    add(&mut core, 1, &[]);
    let item = get(&mut core);
    let ended = core.put_back(item.run, item.value, false);
    assert_eq!((ended.key, ended.value, ended.worked), (None, None, None));
    assert_eq!((counts(&core), state(&core, 1)), ([1, 0, 0, 1], Some([true, false, false])));
    let item = get(&mut core);
    assert_eq!((item.attempt, item.value), (1, None));
    assert_eq!(state(&core, 1), Some([false, true, false]));
    assert_eq!(core.finished(item.run, false).key, Some(1), "there is nothing else to be known of it");
    assert_eq!(counts(&core), [0; 4]);
}

#[test]
fn a_key_that_is_put_back_keeps_its_attempt_unless_it_was_triggered_during_the_run() {
    let mut core = queue();
    let item = second_attempt(&mut core);
    let _ = core.put_back(item.run, item.value, false);
    let item = get(&mut core);
    assert_eq!(item.attempt, 2);
    add(&mut core, 1, &[2]);
    assert_eq!((counts(&core), state(&core, 1)), ([0, 1, 1, 1], Some([false, true, true])));
    let _ = core.put_back(item.run, Some(vec![1]), false);
    assert_eq!((counts(&core), state(&core, 1)), ([1, 0, 0, 1], Some([true, false, false])));
    let item = get(&mut core);
    assert_eq!((item.attempt, item.value), (1, Some(vec![1, 2])));
    assert!(matches!(core.get(), Got::Empty), "one run, not two");
    let _ = core.finished(item.run, true);
}

#[test]
fn a_run_that_is_put_back_when_all_is_over_is_in_line_and_the_queue_is_not_over() {
    let mut core = queue();
    add(&mut core, 1, &[]);
    let base = core.begin_drain(WaitingKeys::Drop, Instant::NEVER);
    let item = get(&mut core);
    assert!(core.is_over());
    let ended = core.put_back(item.run, Some(vec![1]), false);
    assert_eq!((ended.key, ended.value), (None, None));
    assert!(!core.is_over() && !core.drain_is_over(&base));
    let item = get(&mut core);
    assert_eq!((item.value, item.attempt), (Some(vec![1]), 1));
    let _ = core.finished(item.run, true);
    let counted = core.drain_counts(&base);
    assert_eq!((counted.complete, counted.done, counted.refused_retries), (true, 1, 0));
}

#[test]
fn the_payload_of_a_run_goes_back_exactly_where_another_run_is_to_come() {
    let retry_later = How::Retry(RetryDelay::Limited(UNCOUNTED, None));
    for (how, triggered) in [
        (RETRY_NOW, false),
        (retry_later, false),
        (How::Again(Duration::ZERO), false),
        (How::Again(SECOND), false),
        (RETRY_NOW, true),
        (How::Done, true),
        (How::GiveUp, true),
    ] {
        let mut core = queue();
        add(&mut core, 1, &[1]);
        let item = get(&mut core);
        if triggered {
            add(&mut core, 1, &[2]);
        }
        let ended = core.end(item.run, how, item.value).expect("open");
        assert_eq!((ended.key, ended.value), (None, None), "{how:?}");
        while core.advance(at(1)) {}
        let item = get(&mut core);
        let expected = if triggered { vec![1, 2] } else { vec![1] };
        assert_eq!(item.value, Some(expected), "{how:?}");
        let ended = core.end(item.run, How::Done, item.value).expect("open");
        assert!(ended.value.is_some() && ended.key.is_some(), "no run is left for it");
    }
}

#[test]
fn failures_keep_a_key_whose_run_is_done_until_they_are_forgotten() {
    let mut core = queue();
    add(&mut core, 1, &[]);
    let item = get(&mut core);
    let retry = How::Retry(RetryDelay::Limited(COUNTED, Some(Duration::ZERO)));
    let _ = core.end(item.run, retry, None).expect("open");
    let item = get(&mut core);
    let ended = core.finished(item.run, false);
    assert_eq!((ended.key, core.num_requeues(&1, 1)), (None, 1), "done keeps failures");
    add(&mut core, 1, &[]);
    let item = get(&mut core);
    assert_eq!(item.attempt, 1);
    assert_eq!(core.finished(item.run, false).key, None, "its failures are known");
    assert_eq!(core.num_requeues(&1, 1), 1);
    assert_eq!(core.forget(&1, 1), Some(1));
    add(&mut core, 1, &[]);
    let item = get(&mut core);
    assert_eq!(core.finished(item.run, false).key, Some(1));
}

#[test]
fn retries_that_no_limiter_counts_are_not_the_next_key_s() {
    let mut core = queue();
    let item = second_attempt(&mut core);
    assert_eq!(core.finished(item.run, true).key, Some(1));
    add(&mut core, 2, &[]);
    let item = get(&mut core);
    assert_eq!(item.attempt, 1);
    assert_eq!(core.finished(item.run, false).key, Some(2));
}

#[test]
fn a_retry_whose_limiter_was_asked_counts_its_delay_from_the_asking() {
    let mut core = queue();
    add(&mut core, 1, &[]);
    core.advance(at(1));
    let item = get(&mut core);
    let asking = core.ask(Some(&item.run)).expect("open");
    core.advance(at(3));
    let _ = core.end(item.run, How::Retry(RetryDelay::Asked(SECOND * 5, asking)), None).expect("open");
    assert_eq!(core.state(&1, 1).and_then(|state| state.waiting_until), Some(at(6)));
    // and a trigger as well
    let asking = core.ask(None).expect("open");
    core.advance(at(4));
    let delay = Delay::Asked(SECOND * 7, Policy::Earliest, asking);
    core.add(&mut Trigger::new(2, None), 2, delay).expect("open");
    assert_eq!(core.state(&2, 2).and_then(|state| state.waiting_until), Some(at(10)));
}

#[test]
fn a_call_that_is_no_look_is_told_when_a_drain_s_deadline_has_passed() {
    let mut core = queue();
    add(&mut core, 1, &[]);
    core.begin_drain(WaitingKeys::Wait, at(5));
    assert!(!core.begin(at(4)));
    assert!(core.begin(at(5)));
    assert!(!core.is_shut_down(), "advance does it");
    while core.advance(at(5)) {}
    assert!(core.is_shut_down() && !core.begin(at(6)));
}
