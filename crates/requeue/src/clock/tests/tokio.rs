use super::*;
use crate::Parker;
use crate::clock::rings::Rings;
use ::tokio::runtime::{Builder, Runtime};
use ::tokio::task::yield_now;
use std::time::Duration;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime")
}

async fn until_alive_tasks(n: usize) {
    while Handle::current().metrics().num_alive_tasks() != n {
        yield_now().await;
    }
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn d10_a_clock_on_a_runtime_without_a_timer_is_refused() {
    let no_timer = Builder::new_current_thread().build().expect("a runtime");
    let refused = TokioClock::new(no_timer.handle().clone()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
    assert!(refused.to_string().contains("enable_time"));
}

#[tokio::test(start_paused = true)]
async fn d10_time_follows_pause_and_advance() {
    let clock = TokioClock::new(Handle::current()).unwrap();
    let before = clock.now();
    assert_eq!(clock.now(), before, "paused");
    ::tokio::time::advance(HOUR).await;
    assert_eq!(clock.clone().now(), before + HOUR);
}

#[tokio::test(start_paused = true)]
async fn d10_another_thread_reads_the_paused_time_too() {
    let clock = TokioClock::new(Handle::current()).unwrap();
    ::tokio::time::advance(HOUR).await;
    let there = clock.clone();
    let read = std::thread::spawn(move || there.now()).join().unwrap();
    assert_eq!(read, clock.now());
}

#[tokio::test(start_paused = true)]
async fn d3_an_alarm_rings_at_its_instant_and_not_before() {
    let clock = TokioClock::new(Handle::current()).unwrap();
    let rings = Rings::new();
    let _alarm = clock.wake_at(clock.now() + HOUR, &rings.waker("rings"));
    yield_now().await;
    ::tokio::time::advance(HOUR - Duration::from_millis(1)).await;
    assert!(rings.so_far().is_empty());
    ::tokio::time::advance(Duration::from_millis(1)).await;
    until_alive_tasks(0).await;
    assert_eq!(rings.so_far(), ["rings"]);
}

#[tokio::test(start_paused = true)]
async fn d4_an_instant_that_has_passed_rings_at_once_and_never_does_not() {
    let clock = TokioClock::new(Handle::current()).unwrap();
    let rings = Rings::new();
    let _now = clock.wake_at(clock.now(), &rings.waker("now"));
    let _never = clock.wake_at(Instant::NEVER, &rings.waker("never"));
    let _far = clock.wake_at(Instant::from_nanos(u64::MAX - 1), &rings.waker("far"));
    yield_now().await;
    assert_eq!(rings.so_far(), ["now"]);
}

#[tokio::test(start_paused = true)]
async fn d9_no_task_outlives_a_dropped_alarm() {
    let clock = TokioClock::new(Handle::current()).unwrap();
    let rings = Rings::new();
    let waiting = clock.wake_at(clock.now() + HOUR, &rings.waker("waiting"));
    until_alive_tasks(1).await;
    yield_now().await;
    let fresh = clock.wake_at(clock.now() + HOUR, &rings.waker("fresh"));
    drop((waiting, fresh));
    until_alive_tasks(0).await;
    assert!(rings.so_far().is_empty(), "an alarm taken back is silent");
}

#[tokio::test(start_paused = true)]
async fn d10_a_blocking_wait_of_another_thread_is_driven_as_well() {
    let clock = TokioClock::new(Handle::current()).unwrap();
    let due = clock.now() + HOUR;
    let there = clock.clone();
    let waiter = std::thread::spawn(move || {
        let parker = Parker::current();
        while there.now() < due {
            there.park_until(due, &parker);
        }
    });
    until_alive_tasks(1).await;
    ::tokio::time::advance(HOUR).await;
    until_alive_tasks(0).await;
    waiter.join().unwrap();
}

#[test]
fn d4_alarms_of_a_runtime_that_is_gone_ring_all_the_same() {
    let runtime = runtime();
    let clock = TokioClock::new(runtime.handle().clone()).unwrap();
    let rings = Rings::new();
    let due = clock.now() + Duration::from_millis(2);
    let _before = clock.wake_at(due, &rings.waker("set before"));
    drop(runtime);
    assert_eq!(rings.next(), "set before");
    let due = clock.now() + Duration::from_millis(2);
    let _after = clock.wake_at(due, &rings.waker("set after"));
    assert_eq!(rings.next(), "set after");
    assert!(clock.now() >= due);
}

#[test]
fn d9_an_alarm_that_moved_to_the_timer_thread_can_be_taken_back() {
    let runtime = runtime();
    let clock = TokioClock::new(runtime.handle().clone()).unwrap();
    let rings = Rings::new();
    let waker = rings.waker("rings");
    let alarm = clock.wake_at(clock.now() + HOUR, &waker);
    drop(runtime);
    assert!(crate::clock::timer_thread_running());
    drop(alarm);
    while crate::clock::timer_thread_running() {
        std::thread::yield_now();
    }
    assert!(rings.so_far().is_empty());
}
