//! More threads than a queue has hazard records for (see `filter/threads.rs`): in
//! a process of its own, because they take the records from everybody else.

use requeue::{Added, WorkQueue};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;

const THREADS: usize = 300;

#[test]
fn threads_beyond_the_cap_add_as_others_do() {
    let q = WorkQueue::<Arc<str>>::new();
    let key: Arc<str> = "key".into();
    q.add(key.clone()).expect("open");
    // all of them are there at once, and the key is there until then
    let all = Barrier::new(THREADS + 1);
    let seen: Vec<AtomicBool> = (0..THREADS).map(|_| AtomicBool::new(false)).collect();
    thread::scope(|s| {
        for own in &seen {
            let (q, key, all) = (&q, &key, &all);
            s.spawn(move || {
                for _ in 0..3 {
                    assert_eq!(q.add(key.clone()).expect("open"), Added::Coalesced);
                }
                all.wait();
                own.store(true, Relaxed);
                q.add_ref(key).expect("open");
            });
        }
        s.spawn(|| {
            // somebody takes the key while they add it for the last time
            all.wait();
            while !seen.iter().all(|own| own.load(Relaxed)) {
                drop(q.try_get());
                thread::yield_now();
            }
        });
    });
    q.shut_down();
    while let Some(item) = q.get_blocking() {
        item.done();
    }
    assert_eq!((q.stats().known, Arc::strong_count(&key)), (0, 1), "the queue has none any more");
}
