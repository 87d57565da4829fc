use super::*;
use std::thread;

#[test]
fn callers_that_sleep_are_woken_one_after_another() {
    let lock = Lock::new(0);
    thread::scope(|s| {
        let held = lock.lock();
        for _ in 0..3 {
            s.spawn(|| *lock.lock() += 1);
        }
        // at least one of them; all others sleep, are on the way, or come to a free lock
        while !lock.raw.has_sleepers() {
            thread::yield_now();
        }
        drop(held);
    });
    assert_eq!(*lock.lock(), 3);
    assert!(!lock.raw.has_sleepers());
}
