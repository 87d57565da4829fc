//! Tests of the state machine alone.

use requeue_core::{Config, Core, Delay, Got, How, Instant, Limit, Only, Policy, Trigger, TriggerOptions};
use std::time::Duration;

/// Maximum number of keys that one settle moves, as documented by the state machine.
const BATCH: usize = 64;

fn waiting(keys: u32) -> Core<u32> {
    let mut core = Core::new(Config::default());
    core.advance(Instant::ORIGIN);
    for key in 0..keys {
        let delay = Delay::After(Duration::from_nanos(5), Policy::Earliest);
        let added =
            core.trigger(&mut Trigger::new(key, None), key, &TriggerOptions::after(delay), &Limit::NONE);
        assert!(added.is_ok());
    }
    core
}

#[test]
fn x17_one_lock_hold_moves_a_bounded_number_of_due_keys() {
    let mut core = waiting(10_000);
    let due = Instant::from_nanos(5);
    let mut before = 0;
    let mut holds = 1;
    while core.advance(due) {
        assert!(core.len() - before <= BATCH, "{} keys in one lock hold", core.len() - before);
        before = core.len();
        holds += 1;
    }
    assert_eq!(core.len(), 10_000);
    assert!(holds >= 10_000 / BATCH);
}

#[test]
fn x17_one_lock_hold_drops_a_bounded_number_of_waiting_keys() {
    let mut core = waiting(10_000);
    assert_eq!(core.shut_down().dropped, 10_000, "counted at once");
    let mut holds = 0;
    loop {
        let more = core.advance(Instant::ORIGIN);
        assert!(core.take_trash().len() <= BATCH, "in one lock hold");
        holds += 1;
        if !more {
            break;
        }
    }
    assert!(holds >= 10_000 / BATCH);
    assert!(matches!(core.get(), Got::ShutDown));
}

#[test]
fn d8_the_last_instants_of_a_clock_are_instants_like_others() {
    let mut core = waiting(1);
    let last = Instant::from_nanos(u64::MAX - 1);
    while core.advance(last) {}
    let Got::Item(item) = core.get() else { panic!("due long ago") };
    assert!(core.end(item.run, How::Again(Duration::from_nanos(1)), None).is_ok());
    while core.advance(Instant::NEVER) {}
    assert!(matches!(core.get(), Got::Empty), "what is due at never is never due");
}

#[test]
fn b7_one_page_looks_at_a_bounded_number_of_keys() {
    let mut core = Core::<u32>::new(Config::default());
    for key in 0..20_000 {
        core.trigger(&mut Trigger::new(key, None), key, &TriggerOptions::NOW, &Limit::NONE).expect("open");
    }
    let mut lent = Vec::new();
    // nobody holds any: the walk looks at them all, a part a page
    let (mut from, mut pages) = (Some(0), 0);
    while let Some(at) = from {
        from = core.page(at, 1_000, Some(Only::Held), |loan, _| lent.push(loan));
        assert!(from.is_none_or(|next| next - at <= 4_096), "from {at} to {from:?}");
        pages += 1;
    }
    assert!(pages >= 5 && lent.is_empty());
    assert_eq!(core.stats().ready, 20_000);
}

#[test]
fn b7_one_lock_hold_lifts_a_bounded_number_of_pauses() {
    let mut core = Core::<u32>::new(Config::default());
    for key in 0..10_000 {
        core.trigger(&mut Trigger::new(key, None), key, &TriggerOptions::NOW, &Limit::NONE).expect("open");
        assert!(core.pause_key(&mut Some(key), key));
    }
    core.shut_down();
    let (mut holds, mut before) = (1, core.servable());
    assert_eq!(before, 0);
    while core.advance(Instant::ORIGIN) {
        assert!(core.servable() - before <= BATCH, "{} keys in one lock hold", core.servable() - before);
        before = core.servable();
        holds += 1;
    }
    assert!(holds >= 10_000 / BATCH);
    assert_eq!((core.servable(), core.stats().paused), (10_000, 0));
}
