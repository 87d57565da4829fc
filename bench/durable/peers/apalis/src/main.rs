//! Measures how many durable adds per second apalis-sqlite takes.

use apalis::prelude::TaskSink;
use apalis_sqlite::SqliteStorage;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use std::time::{Duration, Instant};

type Res<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A key in the form of a cluster's object name.
fn key(n: u64) -> String {
    format!("namespace-{:03}/object-name-{n:08}", n % 317)
}

#[tokio::main]
async fn main() -> Res {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, callers, seconds] = &args[..] else {
        return Err("usage: requeue-durable-apalis FILE CALLERS SECONDS".into());
    };
    let (callers, time) = (callers.parse::<u64>()?, Duration::from_secs_f64(seconds.parse()?));
    // WAL and FULL: each commit is synced once, as in the others. One connection: SQLite has one writer, and with
    // more of them they wait for each other in its busy handler, which sleeps.
    let options = SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true)
        .pragma("journal_mode", "WAL")
        .pragma("synchronous", "FULL");
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
    SqliteStorage::setup(&pool).await?;
    let begun = Instant::now();
    let calls = |caller: u64| {
        let mut queue = SqliteStorage::new(&pool);
        async move {
            let mut took = Vec::new();
            while begun.elapsed() < time {
                let at = Instant::now();
                let n = took.len() as u64;
                if let Err(error) = queue.push(key((caller << 24) | n)).await {
                    return Err(error.to_string());
                }
                took.push(at.elapsed());
            }
            Ok(took)
        }
    };
    let callers: Vec<_> = (0..callers).map(|caller| tokio::spawn(calls(caller))).collect();
    let count = callers.len();
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await??);
    }
    let seconds = begun.elapsed().as_secs_f64();
    took.sort();
    let at = |part: usize| took.get(took.len() * part / 100).map_or(0, Duration::as_micros);
    println!(
        "{{\"queue\":\"apalis-sqlite\",\"callers\":{count},\"adds_per_s\":{:.0},\"p50_us\":{},\"p99_us\":{}}}",
        took.len() as f64 / seconds,
        at(50),
        at(99),
    );
    Ok(())
}
