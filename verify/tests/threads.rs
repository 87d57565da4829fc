//! X6 and D9: no thread before it is needed, and none left over. It is a separate binary with a single test,
//! because it counts the threads of the process.

#![cfg(target_os = "linux")]

use requeue::{DrainOptions, WorkQueue};
use requeue_verify::wake::{Count, poll_once};
use requeue_verify::watchdog::run;
use std::time::Duration;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("the threads of this process").count()
}

/// Waits until there are `n` threads again: a thread takes a moment to end, and the watchdog reports one that
/// does not.
fn until_there_are(n: usize) {
    while threads() != n {
        std::thread::yield_now();
    }
}

#[test]
fn x06_no_thread_is_started_before_it_is_needed_and_none_is_left() {
    run("x06_no_thread_is_started_before_it_is_needed_and_none_is_left", || {
        let before = threads();
        for end in 0..4 {
            let q = WorkQueue::<u32>::new();
            q.add(1).unwrap();
            q.add_after(2, Duration::from_secs(3_600)).unwrap();
            drop(q.try_get());
            q.add_after(3, Duration::from_micros(200)).unwrap();
            // A blocking getter watches the clock itself.
            assert_eq!(q.get_blocking().map(|item| *item.key()), Some(3));
            assert_eq!(threads(), before, "a thread although nobody needs one");
            // An async one that waits for a timer needs somebody to watch it.
            let count = Count::new();
            let mut get = q.get();
            assert!(count.poll(&mut get).is_pending());
            assert!(threads() <= before + 1, "one thread for all timers of the process");
            match end {
                0 => drop(get),
                1 => {
                    q.shut_down();
                    assert!(poll_once(&mut get).is_ready());
                    drop(get);
                }
                2 => {
                    drop(get);
                    assert_eq!(q.drain(DrainOptions::default()).wait().unfinished, 1, "key 2 in an hour");
                }
                _ => {
                    q.drain(DrainOptions::default()).wait();
                    drop(get);
                }
            }
            drop(q);
            until_there_are(before);
        }
        // A timer that fires through the thread, and the thread's end by itself.
        let q = WorkQueue::<u32>::new();
        q.add_after(1, Duration::from_micros(200)).unwrap();
        assert_eq!(requeue_verify::wake::block_on(q.get()).map(|item| *item.key()), Some(1));
        until_there_are(before);
    });
}
