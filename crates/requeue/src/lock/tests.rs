use super::*;
use std::thread;

#[test]
fn callers_that_sleep_are_woken_one_after_another() {
    let lock = Lock::new(0);
    thread::scope(|s| {
        let held = Held::new(&lock, Caller::Adds);
        for by in [Caller::Other, Caller::Adds, Caller::Other] {
            let lock = &lock;
            s.spawn(move || *Held::new(lock, by) += 1);
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
