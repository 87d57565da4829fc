//! A fast producer in front of a slow store. The store takes fifty writes a second; the worker waits for a
//! token before each write, and meanwhile the producer's changes of a key merge into one write.
//!
//! ```text
//! cargo run -p requeue-examples --example write_limit
//! ```

use requeue::limiter::TokenBucket;
use requeue::{Clock, SystemClock, WorkQueue};
use std::collections::BTreeMap;
use std::error::Error;
use std::thread;
use std::time::Duration;

const SENSORS: [&str; 4] = ["boiler", "pump", "roof", "yard"];
const READINGS: u64 = 20_000;
/// Writes a second that the store can bear, and how many at once.
const RATE: u32 = 50;
const BURST: u32 = 5;

/// A value to be written for a sensor.
struct Reading {
    latest: u64,
    /// Number of readings merged into it.
    merged: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let clock = SystemClock;
    let q = WorkQueue::<&str, Reading>::merging(|old, new| {
        old.latest = new.latest;
        old.merged += new.merged;
    })
    .build()?;
    let tokens = TokenBucket::new(f64::from(RATE), BURST)?;
    let start = clock.now();

    let (mut store, mut writes, mut covered) = (BTreeMap::new(), 0u32, 0u64);
    thread::scope(|s| {
        s.spawn(|| {
            for n in 0..READINGS {
                let sensor = SENSORS[n as usize % SENSORS.len()];
                q.add_value(sensor, Reading { latest: n, merged: 1 }).expect("the queue is open");
                thread::sleep(Duration::from_micros(20));
            }
            q.shut_down(); // what is ready or dirty is still handed out
        });

        while let Some(item) = q.get_blocking() {
            // While this waits, what comes for the key waits for its next run, and
            // what comes for the others merges in line.
            tokens.acquire(1, &clock).wait()?;
            if let Some(reading) = item.value() {
                store.insert(*item.key(), reading.latest);
                writes += 1;
                covered += reading.merged;
                if writes % 25 == 0 {
                    println!("write {writes:>3}: {:<6} covers {:>4} readings", item.key(), reading.merged);
                }
            }
            let allowed = f64::from(BURST) + f64::from(RATE) * elapsed(start).as_secs_f64();
            assert!(f64::from(writes) <= allowed, "{writes} writes, {allowed} allowed");
        }
        Ok::<_, requeue::limiter::AcquireError>(())
    })?;

    println!("{READINGS} readings became {writes} writes in {:.1?}; the store: {store:?}", elapsed(start));
    assert_eq!(covered, READINGS, "every reading is in exactly one write");
    assert!(u64::from(writes) < READINGS, "they merged");
    let sensors = SENSORS.len() as u64;
    for (i, sensor) in (0..).zip(SENSORS) {
        assert_eq!(store[sensor], READINGS - sensors + i, "the last reading of {sensor}");
    }
    Ok(())
}

fn elapsed(since: requeue::Instant) -> Duration {
    SystemClock.now().saturating_since(since)
}
