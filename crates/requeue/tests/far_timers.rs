//! A far timer costs a busy queue no readings of the clock, and fires as promptly as ever.

use requeue::{Alarm, Clock, FakeClock, Instant, WorkQueue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A fake clock that counts its readings and calls itself real. Its alarms fire as it is moved.
#[derive(Clone)]
struct Counted {
    fake: FakeClock,
    readings: Arc<AtomicU64>,
    is_real: bool,
    /// Its alarms do not come.
    is_deaf: Arc<AtomicBool>,
}

impl Counted {
    fn new(is_real: bool) -> Self {
        let (readings, is_deaf) = (Arc::default(), Arc::default());
        Self { fake: FakeClock::new(), readings, is_real, is_deaf }
    }
}

impl Clock for Counted {
    fn now(&self) -> Instant {
        self.readings.fetch_add(1, Relaxed);
        self.fake.now()
    }
    fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm {
        if self.is_deaf.load(Relaxed) { Alarm::default() } else { self.fake.wake_at(at, waker) }
    }
    fn is_real(&self) -> bool {
        self.is_real
    }
}

/// A queue beside whose keys one waits for an hour.
fn beside_a_timer(is_real: bool) -> (WorkQueue<u32>, Counted) {
    let clock = Counted::new(is_real);
    let q = WorkQueue::builder().clock(clock.clone()).build().expect("valid");
    q.add_after(0, HOUR).expect("open");
    (q, clock)
}

/// Adds a key, takes one and ends its run, so many times. Returns how often the clock was read.
fn cycles(q: &WorkQueue<u32>, clock: &Counted, n: u32) -> u64 {
    let before = clock.readings.load(Relaxed);
    for key in 1..=n {
        q.add(key).expect("open");
        let item = q.try_get().expect("it is ready");
        assert_eq!(*item.key(), key);
    }
    clock.readings.load(Relaxed) - before
}

#[test]
fn d4_looks_with_keys_in_line_read_hardly_a_clock_while_timers_are_far() {
    let (q, clock) = beside_a_timer(true);
    cycles(&q, &clock, 100);
    let readings = cycles(&q, &clock, 10_000);
    assert!(readings <= 50, "{readings} readings in 10,000 looks");
    // all ways of getting a key
    for key in 1..=4 {
        q.add(key).expect("open");
    }
    let before = clock.readings.load(Relaxed);
    let item = q.get_blocking().expect("ready").next().wait().expect("ready");
    drop(item);
    drop(q.get().wait());
    drop(q.try_get_many(1));
    assert!(clock.readings.load(Relaxed) - before <= 1, "at most the one of many looks");
}

#[test]
fn d3_a_clock_for_tests_is_read_by_each_look() {
    let (q, clock) = beside_a_timer(false);
    assert_eq!(cycles(&q, &clock, 1_000), 1_000);
}

#[test]
fn d4_a_look_with_keys_in_line_sees_a_timer_of_which_the_alarm_has_told() {
    let (q, clock) = beside_a_timer(true);
    for due in [1, 2] {
        cycles(&q, &clock, 1_000);
        clock.fake.set(Instant::ORIGIN + (HOUR * due - MS));
        cycles(&q, &clock, 1);
        clock.fake.advance(MS);
        q.add(7).expect("open");
        assert_eq!(*q.try_get().expect("ready").key(), 7, "it was in line before");
        assert_eq!(*q.try_get().expect("due").key(), 0);
        q.add_after(0, HOUR).expect("open");
    }
}

#[test]
fn d4_a_sooner_timer_is_seen_although_an_alarm_is_set_for_a_later_one() {
    let (q, clock) = beside_a_timer(true);
    cycles(&q, &clock, 1_000);
    q.add_after(9, MS).expect("open");
    clock.fake.advance(MS);
    q.add(7).expect("open");
    assert_eq!(*q.try_get().expect("ready").key(), 7);
    assert_eq!(*q.try_get().expect("due").key(), 9);
}

#[test]
fn d4_a_busy_queue_sees_its_timers_although_an_alarm_does_not_come() {
    let (q, clock) = beside_a_timer(true);
    clock.is_deaf.store(true, Relaxed);
    cycles(&q, &clock, 1_000);
    clock.fake.advance(HOUR);
    for key in 1..=600 {
        q.add(key).expect("open");
    }
    let mut got = std::iter::from_fn(|| q.try_get().ok().map(|item| *item.key()));
    assert!(got.by_ref().take(600).eq(1..=600), "in line before it");
    assert_eq!(got.next(), Some(0), "fired by one of those looks, or by this one");
    // found by a look among many, and not only by one that finds no key
    q.add_after(0, HOUR).expect("open");
    cycles(&q, &clock, 1_000);
    clock.fake.advance(HOUR);
    for key in 1..=600 {
        q.add(key).expect("open");
        drop(q.try_get());
    }
    assert_eq!(*q.try_get().expect("one more than was added").key(), 600);
}

#[test]
fn d4_a_look_without_keys_in_line_reads_the_clock() {
    let (q, clock) = beside_a_timer(true);
    cycles(&q, &clock, 1_000);
    clock.is_deaf.store(true, Relaxed);
    clock.fake.set(Instant::ORIGIN + HOUR);
    assert_eq!(*q.try_get().expect("due").key(), 0);
}

#[test]
fn d9_the_alarm_goes_with_the_last_timer_and_with_the_queue() {
    let (q, clock) = beside_a_timer(true);
    cycles(&q, &clock, 1_000);
    assert_eq!(clock.fake.alarms(), 1);
    assert!(q.cancel(&0).is_some());
    cycles(&q, &clock, 1);
    assert_eq!(clock.fake.alarms(), 0, "no timer is left");
    q.add_after(0, HOUR).expect("open");
    cycles(&q, &clock, 1_000);
    assert_eq!(clock.fake.alarms(), 1);
    q.shut_down();
    assert_eq!(clock.fake.alarms(), 0);
    let (q, clock) = beside_a_timer(true);
    cycles(&q, &clock, 1_000);
    drop(q);
    assert_eq!(clock.fake.alarms(), 0);
}
