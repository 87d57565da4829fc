//! A controller on Tokio: workers look at twelve servers. One fails twice and comes back
//! with back-off, one does not answer and is cut off by the time limit, and while the
//! line is long there are more workers. It takes about four seconds; with
//! `REQUEUE_EXAMPLE_FAST=1` the same code runs on Tokio's paused time, at once.
//!
//! ```text
//! cargo run -p requeue-examples --example tokio_workers
//! REQUEUE_EXAMPLE_FAST=1 cargo run -p requeue-examples --example tokio_workers
//! ```

use requeue::limiter::Exponential;
use requeue::{DrainOptions, Run, TokioClock, WaitingKeys, WorkQueue, Worker};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Stands for what a controller does: asks a server how it is.
async fn look_at(server: &str, attempt: u32) -> Result<(), &'static str> {
    sleep(ms(200)).await;
    match (server, attempt) {
        ("web-03", 1 | 2) => Err("connection refused"),
        ("web-07", 1) => std::future::pending().await, // it does not answer
        _ => Ok(()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let fast = std::env::var_os("REQUEUE_EXAMPLE_FAST").is_some();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(fast).build()?;
    runtime.block_on(watch())
}

async fn watch() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let q = WorkQueue::<String>::builder()
        .clock(TokioClock::new(tokio::runtime::Handle::current())?)
        .limiter(Exponential::new(ms(400), Duration::from_secs(60))?)
        .build()?;
    for n in 1..=12 {
        q.add(format!("web-{n:02}"))?;
    }

    let fine = Arc::new(Mutex::new(BTreeMap::new()));
    let failed = Arc::new(Mutex::new(Vec::new()));
    let (seen, told) = (fine.clone(), failed.clone());
    let worker = Worker::of(&q)
        .workers(2)
        .time_limit(Duration::from_secs(2))
        .max_attempts(5)
        .on_failure(move |server, why| {
            println!("{:>5} ms  {server}: {why}", start.elapsed().as_millis());
            told.lock().unwrap().push(format!("{server}: {why}"));
        })
        .start_on(tokio::runtime::Handle::current(), move |run: Run<String>| {
            let seen = seen.clone();
            async move {
                look_at(run.key(), run.attempt()).await?; // an Err is a retry
                println!("{:>5} ms  {} is fine", start.elapsed().as_millis(), run.key());
                seen.lock().unwrap().insert(run.key().clone(), run.attempt());
                Ok(())
            }
        })?;

    sleep(ms(500)).await;
    println!("{:>5} ms  {} in line, so six workers", start.elapsed().as_millis(), q.len());
    assert_eq!((worker.workers(), q.stats().held), (2, 2));
    worker.resize(6)?;
    assert_eq!(worker.workers(), 6);

    sleep(ms(200)).await;
    let why = q.explain("web-03").to_string();
    println!("{:>5} ms  web-03 is not running because it is {why}", start.elapsed().as_millis());
    assert!(why.starts_with("backing off: 1 failure, due in "), "{why}");

    // No new triggers, but retries are worked off too.
    let report = worker
        .drain(DrainOptions::default().waiting_keys(WaitingKeys::Wait).timeout(Duration::from_secs(30)))
        .await;
    println!("{:>5} ms  {report:?}", start.elapsed().as_millis());

    assert!(report.complete && q.is_empty());
    assert_eq!((report.done, report.cancelled), (15, 0), "twelve, and three that failed");
    let fine = fine.lock().unwrap();
    assert_eq!((fine.len(), fine["web-03"], fine["web-07"]), (12, 3, 2), "in which attempt");
    assert_eq!(
        *failed.lock().unwrap(),
        [
            "web-03: connection refused",
            "web-03: connection refused",
            "web-07: the handler took longer than 2s",
        ]
    );
    Ok(())
}
