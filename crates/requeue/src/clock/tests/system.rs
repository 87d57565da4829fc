use super::*;
use crate::clock::rings::{Rings, calls, panics};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

fn soon() -> Instant {
    SystemClock.now() + Duration::from_millis(2)
}

fn in_a_century() -> Instant {
    SystemClock.now() + CENTURY
}

/// Starts the thread as the process-wide timer does.
fn start(timer: &'static Timer) -> io::Result<()> {
    (TIMER.spawn)(timer)
}

/// Waits for an end that must come: without it the test hangs.
fn wait_for_the_end(timer: &Timer) {
    while timer.running() {
        std::thread::yield_now();
    }
}

#[test]
fn d10_all_system_clocks_count_from_one_origin_and_never_backwards() {
    let (a, b) = (SystemClock, SystemClock);
    let mut before = a.now();
    for _ in 0..1_000 {
        let now = b.now();
        assert!(now >= before);
        before = a.now();
        assert!(before >= now);
    }
    assert!(!before.is_never());
}

#[test]
fn d3_a_blocking_wait_lasts_until_its_instant() {
    let parker = Parker::current();
    let due = soon();
    while SystemClock.now() < due {
        SystemClock.park_until(due, &parker);
    }
    // An instant that has passed does not block.
    SystemClock.park_until(due, &parker);
    SystemClock.park_until(Instant::ORIGIN, &parker);
}

#[test]
fn d4_a_wake_up_ends_a_blocking_wait_however_far_its_instant() {
    let parker = Parker::current();
    let far = Instant::from_nanos(u64::MAX - 1);
    for at in [in_a_century(), far, Instant::NEVER] {
        parker.waker().wake_by_ref();
        SystemClock.park_until(at, &parker);
    }
}

#[test]
fn d3_an_alarm_never_rings_early() {
    static T: Timer = Timer::new(start);
    let (tell, told) = std::sync::mpsc::channel();
    let due = soon();
    let waker = calls(move || tell.send(SystemClock.now()).expect("the test listens"));
    let _alarm = T.wake_at(due, &waker);
    assert!(told.recv().expect("the alarm rings") >= due);
}

#[test]
fn d4_an_instant_that_has_passed_rings_at_once_and_needs_no_thread() {
    static T: Timer = Timer::new(start);
    let rings = Rings::new();
    let _now = T.wake_at(SystemClock.now(), &rings.waker("now"));
    let _past = T.wake_at(Instant::ORIGIN, &rings.waker("past"));
    assert_eq!(rings.so_far(), ["now", "past"]);
    assert!(!T.running());
}

#[test]
fn d4_a_sooner_alarm_set_while_the_thread_sleeps_rings_at_its_own_instant() {
    static T: Timer = Timer::new(start);
    let rings = Rings::new();
    let _far = T.wake_at(in_a_century(), &rings.waker("far"));
    while T.state.lock().asleep_until.is_none() {
        std::thread::yield_now();
    }
    let _near = T.wake_at(soon(), &rings.waker("near"));
    assert_eq!(rings.next(), "near");
    assert!(T.running());
}

#[test]
fn d9_the_timer_thread_ends_with_its_last_alarm_that_rings() {
    static T: Timer = Timer::new(start);
    let rings = Rings::new();
    let alarm = T.wake_at(soon(), &rings.waker("rings"));
    assert_eq!(rings.next(), "rings");
    wait_for_the_end(&T);
    drop(alarm);
}

#[test]
fn d9_the_timer_thread_ends_with_its_last_alarm_that_is_dropped() {
    static T: Timer = Timer::new(start);
    let first = T.wake_at(in_a_century(), Waker::noop());
    let last = T.wake_at(in_a_century(), Waker::noop());
    assert!(T.running());
    drop(first);
    assert_eq!(T.state.lock().alarms.len(), 1);
    assert!(T.running());
    drop(last);
    wait_for_the_end(&T);
}

#[test]
fn d9_the_timer_thread_comes_back_for_a_new_alarm_and_is_never_there_twice() {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    static T: Timer = Timer::new(|timer| {
        STARTED.fetch_add(1, Ordering::Relaxed);
        start(timer)
    });
    for round in 1..=3 {
        let one = T.wake_at(in_a_century(), Waker::noop());
        let other = T.wake_at(in_a_century(), Waker::noop());
        assert_eq!(STARTED.load(Ordering::Relaxed), round);
        drop((one, other));
        wait_for_the_end(&T);
    }
}

#[test]
fn d9_an_alarm_set_while_the_thread_ends_rings_all_the_same() {
    static T: Timer = Timer::new(start);
    const ROUNDS: usize = if cfg!(miri) { 5 } else { 300 };
    let start_line = Barrier::new(2);
    let setter = || {
        let rings = Rings::new();
        for _ in 0..ROUNDS {
            start_line.wait();
            // Dropping it may end the thread under the other setter's feet.
            drop(T.wake_at(in_a_century(), Waker::noop()));
            let near = SystemClock.now() + Duration::from_micros(20);
            let _near = T.wake_at(near, &rings.waker("near"));
            assert_eq!(rings.next(), "near");
        }
    };
    std::thread::scope(|s| {
        s.spawn(setter);
        s.spawn(setter);
    });
    wait_for_the_end(&T);
}

#[test]
fn d8_an_alarm_for_never_sets_nothing_and_the_farthest_one_does_not_overflow() {
    static T: Timer = Timer::new(start);
    let _never = T.wake_at(Instant::NEVER, Waker::noop());
    assert!(!T.running());
    let farthest = T.wake_at(Instant::from_nanos(u64::MAX - 1), Waker::noop());
    while T.state.lock().asleep_until.is_none() {
        std::thread::yield_now();
    }
    drop(farthest);
    wait_for_the_end(&T);
}

#[test]
fn d9_a_dropped_alarm_drops_its_waker_at_once_and_without_the_lock() {
    static T: Timer = Timer::new(start);
    struct LooksWhenDropped(Arc<AtomicUsize>);
    impl Drop for LooksWhenDropped {
        fn drop(&mut self) {
            // Hangs where this thread has the lock.
            let _ = T.running();
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let looks = LooksWhenDropped(Arc::clone(&drops));
    let waker = calls(move || {
        let _owned = &looks;
    });
    let alarm = T.wake_at(in_a_century(), &waker);
    drop(waker);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(alarm);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn d4_a_waker_that_panics_keeps_no_other_asleep() {
    static T: Timer = Timer::new(start);
    let rings = Rings::new();
    let due = soon();
    let _alarms = [
        T.wake_at(in_a_century(), Waker::noop()),
        T.set(due, panics()).map_or(Alarm::default(), |id| Alarm::on_drop(move || drop(T.take_back(id)))),
        T.wake_at(due + Duration::from_micros(100), &rings.waker("after")),
    ];
    assert_eq!(rings.next(), "after");
    assert!(T.running());
}

#[test]
fn d4_a_waker_may_set_the_next_alarm() {
    static T: Timer = Timer::new(start);
    let rings = Rings::new();
    let second = rings.waker("second");
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    let first = calls(move || *keep.lock() = Some(T.wake_at(soon(), &second)));
    let _alarm = T.wake_at(soon(), &first);
    assert_eq!(rings.next(), "second");
}

#[test]
fn d4_without_a_thread_to_ring_it_an_alarm_wakes_at_once_and_the_next_tries_again() {
    static TRIED: AtomicUsize = AtomicUsize::new(0);
    static T: Timer = Timer::new(|timer| match TRIED.fetch_add(1, Ordering::Relaxed) {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => start(timer),
    });
    let rings = Rings::new();
    let _early = T.wake_at(in_a_century(), &rings.waker("early"));
    assert_eq!(rings.so_far(), ["early"]);
    assert!(!T.running());
    let again = T.wake_at(in_a_century(), &rings.waker("again"));
    assert!(T.running());
    assert!(rings.so_far().is_empty());
    drop(again);
    wait_for_the_end(&T);
}

#[test]
fn d4_more_alarms_than_one_hold_of_the_lock_takes_ring_all() {
    static T: Timer = Timer::new(start);
    let rings = Rings::new();
    let due = soon();
    let alarms: Vec<_> = (0..3 * BATCH + 1).map(|_| T.wake_at(due, &rings.waker("one"))).collect();
    for _ in &alarms {
        rings.next();
    }
    wait_for_the_end(&T);
}

#[test]
fn d9_the_thread_is_named_requeue_timer() {
    static T: Timer = Timer::new(start);
    let (tell, told) = std::sync::mpsc::channel();
    let waker = calls(move || {
        let name = std::thread::current().name().map(str::to_owned);
        tell.send(name).expect("the test listens");
    });
    // Straight into the timer: an instant that passed meanwhile must fire there too.
    T.set(soon(), waker).expect("a thread can be had");
    let name = told.recv().expect("the alarm rings");
    assert_eq!(name.as_deref(), Some("requeue-timer"));
}
