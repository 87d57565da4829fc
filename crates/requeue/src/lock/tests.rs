use super::raw::{PAUSES, TURNS};
use super::*;
use std::sync::Barrier;

#[test]
fn callers_that_backed_off_until_they_slept_get_the_lock() {
    let (lock, tried) = (Lock::new(0), Barrier::new(2));
    std::thread::scope(|s| {
        let held = lock.lock();
        s.spawn(|| {
            tried.wait();
            *lock.lock() += 1;
        });
        tried.wait();
        // all turns that it has, and more
        for _ in 0..100 * TURNS * PAUSES.1 {
            std::hint::spin_loop();
        }
        drop(held);
    });
    assert_eq!(*lock.lock(), 1);
}
