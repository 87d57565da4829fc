//! Twenty tasks are added at once through a token bucket of one a second with a
//! burst of five: five run at once, then one a second. On the real clock this
//! takes fifteen seconds; with `REQUEUE_EXAMPLE_FAST=1` the same code runs on a fake one.
//!
//! ```text
//! cargo run -p requeue-examples --example burst
//! REQUEUE_EXAMPLE_FAST=1 cargo run -p requeue-examples --example burst
//! ```

use requeue::limiter::Bucket;
use requeue::{Clock, FakeClock, SystemClock, WorkQueue};
use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const TASKS: u64 = 20;
const BURST: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let fake = std::env::var_os("REQUEUE_EXAMPLE_FAST").map(|_| FakeClock::new());
    let clock: Arc<dyn Clock> = match &fake {
        Some(fake) => Arc::new(fake.clone()),
        None => Arc::new(SystemClock),
    };

    let q = WorkQueue::builder().clock(clock.clone()).limiter(Bucket::new(1.0, BURST)?).build()?;
    let start = clock.now();
    for task in 1..=TASKS {
        q.add_rate_limited(task)?;
    }

    // Somebody must move the fake clock: whenever the worker below waits, to the
    // instant that it waits for.
    if let Some(fake) = fake.clone() {
        thread::spawn(move || {
            for _ in u64::from(BURST)..TASKS {
                fake.wait_for_alarms(1);
                if let Some(next) = fake.next_alarm() {
                    fake.set(next);
                }
            }
        });
    }

    for expected in 1..=TASKS {
        let item = q.get_blocking().ok_or("the queue is open")?;
        let at = clock.now().saturating_since(start);
        println!("{:>7.3} s  task {:>2}", at.as_secs_f64(), item.key());

        assert_eq!(*item.key(), expected, "in the order of their tokens");
        // The bucket counts from the first call, which came just after `start`.
        let due = Duration::from_secs(expected.saturating_sub(u64::from(BURST)));
        assert!(at >= due, "task {expected} came early");
        let late = at - due;
        if fake.is_some() {
            assert_eq!(late, Duration::ZERO, "a fake clock is exact");
        } else {
            assert!(late < Duration::from_secs(1), "task {expected} came {late:?} late");
        }
    }
    println!("five at once, then one a second");
    Ok(())
}
