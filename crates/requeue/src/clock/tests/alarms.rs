use super::*;
use crate::clock::rings::Rings;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn ring_all(alarms: &mut Alarms, now: Instant) {
    while let Some(waker) = alarms.pop_due(now) {
        waker.wake();
    }
}

#[test]
fn d5_alarms_ring_by_instant_and_then_in_the_order_in_which_they_were_set() {
    let rings = Rings::new();
    let mut alarms = Alarms::new();
    for (nanos, name) in [(7, "a"), (5, "b"), (7, "c"), (5, "d"), (9, "e")] {
        alarms.set(at(nanos), rings.waker(name));
    }
    ring_all(&mut alarms, at(4));
    assert!(rings.so_far().is_empty());
    ring_all(&mut alarms, at(7));
    assert_eq!(rings.so_far(), ["b", "d", "a", "c"]);
    assert_eq!(alarms.soonest(), Some(at(9)));
}

#[test]
fn taking_back_an_alarm_that_has_rung_hits_no_later_one_of_the_same_instant() {
    let rings = Rings::new();
    let mut alarms = Alarms::new();
    let first = alarms.set(at(5), rings.waker("first"));
    ring_all(&mut alarms, at(5));
    alarms.set(at(5), rings.waker("second"));
    assert!(alarms.take_back(first).is_none());
    ring_all(&mut alarms, at(5));
    assert_eq!(rings.so_far(), ["first", "second"]);
}

#[test]
fn d8_an_alarm_for_never_is_kept_and_never_due() {
    let mut alarms = Alarms::new();
    let never = alarms.set(Instant::NEVER, Waker::noop().clone());
    assert_eq!(alarms.len(), 1);
    assert_eq!(alarms.soonest(), None);
    assert!(alarms.pop_due(Instant::NEVER).is_none());
    assert!(alarms.take_back(never).is_some());
    assert!(alarms.is_empty());
}
