use super::*;
use crate::clock::rings::{Rings, calls, panics};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll};

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn clock_at(now: Instant) -> FakeClock {
    let clock = FakeClock::new();
    clock.set(now);
    clock
}

fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

#[test]
fn d10_time_moves_only_when_it_is_moved_and_clones_share_it() {
    let clock = clock_at(at(3));
    let clone = clock.clone();
    assert_eq!((clock.now(), clone.now()), (at(3), at(3)));
    clone.advance(ns(4));
    assert_eq!(clock.now(), at(7));
    clock.set(at(9));
    assert_eq!(clone.now(), at(9));
}

#[test]
fn d10_one_step_over_several_alarms_rings_all_of_them_by_instant_then_by_call() {
    let clock = FakeClock::new();
    let rings = Rings::new();
    let _alarms = [(7, "a"), (5, "b"), (7, "c"), (8, "late"), (5, "d")]
        .map(|(nanos, name)| clock.wake_at(at(nanos), &rings.waker(name)));
    clock.advance(ns(4));
    assert!(rings.so_far().is_empty());
    clock.advance(ns(3));
    assert_eq!(rings.so_far(), ["b", "d", "a", "c"]);
    assert_eq!(clock.alarms(), 1);
}

#[test]
fn d10_wakers_run_after_the_time_has_moved_and_without_the_lock() {
    let clock = FakeClock::new();
    let (tell, told) = mpsc::channel();
    let inner = clock.clone();
    let waker = calls(move || {
        let next = inner.wake_at(inner.now() + ns(1), Waker::noop());
        tell.send((inner.now(), inner.alarms(), next)).expect("the test listens");
    });
    let _alarm = clock.wake_at(at(5), &waker);
    clock.advance(ns(9));
    let (now, alarms, _next) = told.try_recv().expect("rung by this very step");
    assert_eq!((now, alarms), (at(9), 1));
}

#[test]
fn d4_an_instant_that_has_come_rings_at_once() {
    let clock = clock_at(at(5));
    let rings = Rings::new();
    let _now = clock.wake_at(at(5), &rings.waker("now"));
    let _past = clock.wake_at(at(4), &rings.waker("past"));
    assert_eq!(rings.so_far(), ["now", "past"]);
    assert_eq!(clock.alarms(), 0);
}

#[test]
fn d9_a_dropped_alarm_does_not_ring_and_its_waker_is_dropped_without_the_lock() {
    struct LooksWhenDropped(FakeClock, mpsc::Sender<usize>);
    impl Drop for LooksWhenDropped {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.alarms());
        }
    }
    let clock = FakeClock::new();
    let (tell, told) = mpsc::channel();
    let looks = LooksWhenDropped(clock.clone(), tell);
    let alarm = clock.wake_at(
        at(5),
        &calls(move || {
            let _owned = &looks;
            unreachable!("the alarm was taken back");
        }),
    );
    assert!(told.try_recv().is_err());
    drop(alarm);
    assert_eq!(told.try_recv(), Ok(0));
    clock.advance(ns(9));
}

#[test]
fn d9_an_alarm_that_an_earlier_waker_of_the_same_step_takes_back_does_not_ring() {
    let clock = FakeClock::new();
    let rings = Rings::new();
    let second = Arc::new(Mutex::new(Some(clock.wake_at(at(6), &rings.waker("second")))));
    let taken = Arc::clone(&second);
    let _first = clock.wake_at(at(5), &calls(move || drop(taken.lock().take())));
    clock.advance(ns(9));
    assert!(rings.so_far().is_empty());
}

#[test]
fn d10_a_waker_that_panics_keeps_no_other_asleep_and_the_mover_hears_of_it() {
    let clock = FakeClock::new();
    let rings = Rings::new();
    let _panics = clock.wake_at(at(5), &panics());
    let _after = clock.wake_at(at(6), &rings.waker("after"));
    let moved = catch_unwind(AssertUnwindSafe(|| clock.advance(ns(9))));
    assert!(moved.is_err());
    assert_eq!(rings.so_far(), ["after"]);
    assert_eq!(clock.now(), at(9));
}

#[test]
fn d10_a_clock_that_jumps_back_rings_nothing_twice_and_keeps_its_alarms() {
    let clock = clock_at(at(10));
    let rings = Rings::new();
    let _soon = clock.wake_at(at(11), &rings.waker("soon"));
    let _late = clock.wake_at(at(15), &rings.waker("late"));
    clock.advance(ns(2));
    clock.set(at(1));
    clock.set(at(12));
    assert_eq!(rings.so_far(), ["soon"]);
    clock.set(at(15));
    assert_eq!(rings.so_far(), ["late"]);
}

#[test]
fn d8_never_does_not_come_however_far_the_clock_moves() {
    let clock = clock_at(Instant::NEVER);
    assert!(!clock.now().is_never());
    let rings = Rings::new();
    let _never = clock.wake_at(Instant::NEVER, &rings.waker("never"));
    clock.advance(Duration::MAX);
    clock.set(Instant::NEVER);
    assert!(clock.now() < Instant::NEVER);
    assert!(rings.so_far().is_empty());
    assert_eq!((clock.alarms(), clock.next_alarm()), (1, None));
}

#[test]
fn d10_stepping_from_alarm_to_alarm_visits_every_instant_once() {
    let clock = FakeClock::new();
    let _alarms = [5, 9, 5].map(|nanos| clock.wake_at(at(nanos), Waker::noop()));
    for (next, left) in [(5, 1), (9, 0)] {
        assert_eq!(clock.next_alarm(), Some(at(next)));
        clock.set(at(next));
        assert_eq!(clock.alarms(), left);
    }
    assert_eq!(clock.next_alarm(), None);
}

#[test]
fn d10_waiting_for_alarms_returns_when_so_many_callers_wait() {
    let clock = FakeClock::new();
    clock.wait_for_alarms(0);
    // Outlive the scope: a late look must still find as many as it waits for.
    let mut later = Vec::new();
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                let parker = Parker::current();
                while clock.now() < at(5) {
                    clock.park_until(at(5), &parker);
                }
            });
        }
        // Several may wait for callers, each for another number of them.
        s.spawn(|| clock.wait_for_alarms(1));
        s.spawn(|| clock.wait_for_alarms(2));
        clock.wait_for_alarms(3);
        assert_eq!(clock.alarms(), 3);
        clock.wait_for_alarms(1);
        later.extend([9, 9].map(|nanos| clock.wake_at(at(nanos), Waker::noop())));
        clock.advance(ns(5));
    });
    assert_eq!(clock.alarms(), 2);
    assert!(clock.state.lock().watchers.is_empty());
}

#[test]
fn d10_an_async_wait_is_driven_like_a_blocking_one() {
    let clock = FakeClock::new();
    let rings = Rings::new();
    let mut alarm = None;
    let due = at(5);
    let mut wait = pin!(std::future::poll_fn(|cx| {
        if clock.now() >= due {
            return Poll::Ready(());
        }
        alarm = Some(clock.wake_at(due, cx.waker()));
        Poll::Pending
    }));
    let waker = rings.waker("polled");
    let mut cx = Context::from_waker(&waker);
    assert!(wait.as_mut().poll(&mut cx).is_pending());
    assert_eq!(clock.next_alarm(), Some(due));
    clock.advance(ns(5));
    assert_eq!(rings.so_far(), ["polled"]);
    assert!(wait.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn an_alarm_may_outlive_its_clock() {
    let clock = FakeClock::new();
    let alarm = clock.wake_at(at(5), Waker::noop());
    drop(clock);
    drop(alarm);
}

#[test]
fn debug_tells_the_time_and_who_waits() {
    let clock = clock_at(at(5));
    let _alarm = clock.wake_at(at(6), Waker::noop());
    assert_eq!(format!("{clock:?}"), "FakeClock { now: Instant(5ns), alarms: 1 }");
}
