use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc;

fn woken(parker: &Parker) -> bool {
    parker.core.sleeper.state.load(Ordering::Relaxed) == WOKEN
}

#[test]
fn d4_a_wake_before_the_sleep_ends_it_at_once_and_is_used_up() {
    let parker = Parker::current();
    for _ in 0..2 {
        parker.waker().wake_by_ref();
    }
    assert!(woken(&parker));
    parker.park();
    assert!(!woken(&parker), "two wakes before one sleep are one");
    for at_most in [Duration::ZERO, Duration::MAX] {
        parker.waker().wake_by_ref();
        parker.park_timeout(at_most);
        assert!(!woken(&parker));
    }
}

#[test]
fn d4_a_wake_from_another_thread_ends_the_sleep_and_shows_what_was_done_before() {
    const ROUNDS: usize = if cfg!(miri) { 50 } else { 20_000 };
    let (to, from) = mpsc::channel();
    let done = &AtomicUsize::new(0);
    thread::scope(|s| {
        s.spawn(move || {
            for (round, waker) in (1..).zip(from) {
                let waker: Waker = waker;
                done.store(round, Ordering::Relaxed);
                waker.wake();
            }
        });
        for round in 1..=ROUNDS {
            let parker = Parker::current();
            to.send(parker.waker().clone()).expect("the waking thread lives");
            while done.load(Ordering::Relaxed) < round {
                parker.park();
            }
        }
        drop(to);
    });
}

#[test]
fn d4_a_wait_inside_a_wait_takes_no_wake_up_from_the_outer_one() {
    let outer = Parker::current();
    outer.waker().wake_by_ref();
    for _ in 0..2 {
        let inner = Parker::current();
        assert!(!woken(&inner));
        inner.waker().wake_by_ref();
        inner.park();
    }
    assert!(woken(&outer));
    outer.park();
}

#[test]
fn the_next_wait_of_a_thread_gets_the_same_parker_and_no_stale_wake_up() {
    let parker = Parker::current();
    let stale = parker.waker().clone();
    drop(parker);
    stale.wake_by_ref();
    let parker = Parker::current();
    assert!(parker.waker().will_wake(&stale));
    assert!(!woken(&parker));
}

#[test]
fn a_wait_in_the_end_of_its_thread_works() {
    static PARKED: AtomicBool = AtomicBool::new(false);
    struct WaitsLast;
    impl Drop for WaitsLast {
        fn drop(&mut self) {
            let parker = Parker::current();
            parker.waker().wake_by_ref();
            parker.park();
            PARKED.store(true, Ordering::Relaxed);
        }
    }
    thread_local! {
        static LAST: WaitsLast = const { WaitsLast };
    }
    let thread = thread::spawn(|| {
        // The destructors run in an order of the system's choice; this one is
        // registered before the cache's, so that some system runs it after.
        LAST.with(|_| ());
        drop(Parker::current());
    });
    thread.join().expect("no panic at the thread's end");
    assert!(PARKED.load(Ordering::Relaxed));
}

#[test]
fn a_waker_outlives_its_parker_and_its_thread() {
    let waker =
        thread::spawn(|| Parker::current().waker().clone()).join().expect("the thread only makes a waker");
    waker.wake();
}

#[test]
fn a_parker_stays_on_its_thread() {
    trait AmbiguousIfSend<A> {
        fn check() {}
    }
    impl<T> AmbiguousIfSend<()> for T {}
    impl<T: Send> AmbiguousIfSend<u8> for T {}
    trait AmbiguousIfSync<A> {
        fn check() {}
    }
    impl<T> AmbiguousIfSync<()> for T {}
    impl<T: Sync> AmbiguousIfSync<u8> for T {}
    // Does not compile where the type is Send or Sync.
    <Parker as AmbiguousIfSend<_>>::check();
    <Parker as AmbiguousIfSync<_>>::check();
}

#[test]
fn debug_says_whether_it_was_woken() {
    let parker = Parker::current();
    assert!(format!("{parker:?}").contains("woken: false"));
    parker.waker().wake_by_ref();
    assert!(format!("{parker:?}").contains("woken: true"));
}
