//! Q13: the memory of a burst is given back. It is a separate binary, because it counts every byte that the
//! process allocates.
//!
//! In debug builds the bursts are a tenth of the contract's million keys.

use requeue::{Add, FakeClock, Order, WorkQueue};
use requeue_verify::wake::Count;
use requeue_verify::watchdog::run_for;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it is; the
// counter beside it touches no memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const KEYS: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

/// The tests of this binary run one after the other.
fn alone(name: &'static str, test: fn()) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    run_for(name, Duration::from_secs(600), test);
}

fn allocated() -> usize {
    ALLOCATED.load(Ordering::Relaxed)
}

/// Runs `burst` and asserts that its bytes have gone back: "to within the larger
/// of 10 % and 1 MiB of what they were".
fn goes_back(what: &str, burst: impl FnOnce()) {
    let before = allocated();
    burst();
    let after = allocated();
    let slack = (before / 10).max(1 << 20);
    assert!(after <= before + slack, "{what}: {before} bytes before, {after} after");
}

fn queue() -> (WorkQueue<u64>, FakeClock) {
    let clock = FakeClock::new();
    let q = WorkQueue::builder().clock(clock.clone()).limiter(requeue::limiter::default_per_item()).build();
    (q.expect("a queue"), clock)
}

fn work_off(q: &WorkQueue<u64>) -> u64 {
    let mut runs = 0;
    while let Ok(item) = q.try_get() {
        item.done();
        runs += 1;
    }
    runs
}

#[test]
fn q13_a_burst_of_ready_keys_goes_back() {
    alone("q13_a_burst_of_ready_keys_goes_back", || {
        let (q, _clock) = queue();
        for round in 0..3 {
            goes_back("ready keys", || {
                let most = allocated();
                for key in 0..KEYS {
                    q.add(key.wrapping_mul(0x9E37_79B9_7F4A_7C15)).unwrap();
                }
                assert!(
                    allocated() > most + (KEYS as usize) * 8,
                    "round {round}: the burst allocated nothing"
                );
                assert_eq!(work_off(&q), KEYS);
            });
        }
    });
}

#[test]
fn q13_a_burst_worked_off_newest_first_goes_back() {
    alone("q13_a_burst_worked_off_newest_first_goes_back", || {
        let q = WorkQueue::builder().order(Order::Lifo).build().unwrap();
        goes_back("ready keys, newest first", || {
            for key in 0..KEYS {
                q.add(key).unwrap();
            }
            assert_eq!(work_off(&q), KEYS);
        });
    });
}

#[test]
fn q13_a_burst_of_waiting_keys_goes_back() {
    alone("q13_a_burst_of_waiting_keys_goes_back", || {
        let (q, clock) = queue();
        goes_back("waiting keys", || {
            for key in 0..KEYS {
                q.add_after(key, Duration::from_nanos(1 + key.wrapping_mul(0x9E37_79B9) % 1_000)).unwrap();
            }
            clock.advance(Duration::from_nanos(1_000));
            assert_eq!(work_off(&q), KEYS);
        });
    });
}

#[test]
fn q13_a_burst_of_waiting_keys_that_a_shutdown_drops_goes_back() {
    alone("q13_a_burst_of_waiting_keys_that_a_shutdown_drops_goes_back", || {
        let (q, _clock) = queue();
        goes_back("dropped waiting keys", || {
            for key in 0..KEYS {
                q.add_with(key, Add::after(Duration::from_secs(1)).latest(Duration::MAX)).unwrap();
            }
            assert_eq!(q.shut_down().dropped as u64, KEYS);
        });
    });
}

#[test]
fn q13_a_burst_with_values_goes_back() {
    alone("q13_a_burst_with_values_goes_back", || {
        let q = WorkQueue::merging(|old: &mut Vec<u64>, new: Vec<u64>| old.extend(new)).build().unwrap();
        goes_back("values", || {
            for key in 0..KEYS {
                q.add_value(key, vec![key]).unwrap();
            }
            while let Ok(item) = q.try_get() {
                item.done();
            }
        });
    });
}

#[test]
fn q13_a_burst_that_is_held_at_once_goes_back() {
    alone("q13_a_burst_that_is_held_at_once_goes_back", || {
        let (q, _clock) = queue();
        goes_back("held keys", || {
            for key in 0..KEYS {
                q.add(key).unwrap();
            }
            let held: Vec<_> = std::iter::from_fn(|| q.try_get().ok()).collect();
            assert_eq!(held.len() as u64, KEYS);
            for item in &held {
                q.add(*item.key()).unwrap();
            }
            drop(held);
            assert_eq!(work_off(&q), KEYS);
        });
    });
}

#[test]
fn q13_a_burst_of_failures_that_are_forgotten_goes_back() {
    alone("q13_a_burst_of_failures_that_are_forgotten_goes_back", || {
        let (q, clock) = queue();
        goes_back("forgotten failures", || {
            for key in 0..KEYS {
                q.add_rate_limited(key).unwrap();
            }
            clock.advance(Duration::from_secs(1));
            assert_eq!(work_off(&q), KEYS);
            for key in 0..KEYS {
                q.forget(&key);
            }
        });
        goes_back("failures that succeed", || {
            for key in 0..KEYS {
                q.add(key).unwrap();
            }
            while let Ok(item) = q.try_get() {
                item.retry().expect("open");
            }
            clock.advance(Duration::from_secs(1));
            while let Ok(item) = q.try_get() {
                item.succeed();
            }
        });
    });
}

#[test]
fn q13_a_burst_with_metrics_goes_back() {
    struct Deaf;
    impl requeue::Metrics for Deaf {}
    alone("q13_a_burst_with_metrics_goes_back", || {
        let q = WorkQueue::<u64>::builder().name("deaf").metrics(Deaf).build().unwrap();
        goes_back("timestamps", || {
            for key in 0..KEYS {
                q.add(key).unwrap();
            }
            assert_eq!(work_off(&q), KEYS);
        });
    });
}

#[test]
fn q13_a_burst_of_runs_ended_by_key_goes_back() {
    alone("q13_a_burst_of_runs_ended_by_key_goes_back", || {
        let (q, _clock) = queue();
        for inert in [false, true] {
            goes_back("runs ended by key", || {
                for key in 0..KEYS {
                    q.add(key).unwrap();
                    let item = q.try_get().unwrap();
                    if inert {
                        q.done(&key).unwrap();
                    } else {
                        q.done(&item.detach().0).unwrap();
                    }
                }
                assert_eq!(q.stats().known, 0);
            });
        }
    });
}

#[test]
fn q13_a_crowd_of_getters_that_has_left_goes_back() {
    alone("q13_a_crowd_of_getters_that_has_left_goes_back", || {
        let (q, _clock) = queue();
        goes_back("getters", || {
            let mut gets: Vec<_> = (0..KEYS / 10).map(|_| q.get()).collect();
            for get in &mut gets {
                assert!(Count::new().poll(get).is_pending());
            }
        });
    });
}

#[test]
fn q13_a_queue_that_is_dropped_leaves_nothing() {
    alone("q13_a_queue_that_is_dropped_leaves_nothing", || {
        let life = || {
            let (q, clock) = queue();
            for key in 0..10_000 {
                q.add(key).unwrap();
                q.add_after(key + 5_000, Duration::from_secs(1)).unwrap();
                q.add_rate_limited(key).unwrap();
            }
            let mut get = q.get();
            let _ = Count::new().poll(&mut get);
            drop(get);
            clock.advance(Duration::from_millis(1));
            let held: Vec<_> =
                (0..100).filter_map(|_| q.try_get().ok()).map(requeue::Item::into_owned).collect();
            let keys: Vec<u64> = held.iter().map(|item| *item.key()).collect();
            for key in &keys[..50] {
                q.done(key).unwrap();
            }
            drop(q);
            drop(held);
        };
        // Once, for whatever a thread keeps for the next time.
        life();
        let before = allocated();
        for _ in 0..5 {
            life();
        }
        let after = allocated();
        assert!(after <= before + 4_096, "{} bytes leaked by five queues", after - before);
    });
}

#[test]
fn r_records_that_nobody_forgot_do_not_grow_for_ever_once_they_may_expire() {
    alone("r_records_that_nobody_forgot_do_not_grow_for_ever_once_they_may_expire", || {
        let clock = FakeClock::new();
        let limiter = requeue::limiter::Exponential::new(Duration::from_millis(1), Duration::from_secs(1));
        let limiter = limiter.unwrap().expire_after(Duration::from_secs(1));
        let q = WorkQueue::<u64>::builder().clock(clock.clone()).limiter(limiter).build().unwrap();
        let mut most = 0;
        for round in 0..20 {
            for key in 0..5_000 {
                q.add_rate_limited(round * 5_000 + key).unwrap();
            }
            clock.advance(Duration::from_secs(2));
            work_off(&q);
            most = most.max(q.stats().known);
        }
        assert!(
            most <= 15_000,
            "{most} keys are known, although each round's 5,000 have expired with the next"
        );
    });
}
