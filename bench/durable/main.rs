//! Measures how many triggers a durable queue takes per second, and how long a file takes to open.

use requeue::limiter::Exponential;
use requeue::{Run, WorkQueue, Worker};
use requeue_sqlite::{Queue, Sqlite};
use std::path::Path;
use std::time::{Duration, Instant};

type Res<T = ()> = Result<T, Box<dyn std::error::Error>>;

const USAGE: &str =
    "usage: requeue-durable adds FILE CALLERS SECONDS WORKERS | fill FILE KEYS | open FILE | memory KEYS";

fn main() -> Res {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["adds", file, callers, seconds, workers] => {
            let time = Duration::from_secs_f64(seconds.parse()?);
            adds(file.as_ref(), callers.parse()?, time, workers.parse()?)
        }
        ["fill", file, keys] => fill(file.as_ref(), keys.parse()?),
        ["open", file] => reopen(file.as_ref()),
        ["memory", keys] => memory(keys.parse()?),
        _ => Err(USAGE.into()),
    }
}

/// A key in the form of a cluster's object name.
fn key(n: u64) -> String {
    format!("namespace-{:03}/object-name-{n:08}", n % 317)
}

fn queue(file: &Sqlite) -> Res<Queue<String>> {
    Ok(file.queue("bench").open()?)
}

/// Threads add new keys, and wait for each; workers, if any, work them off.
fn adds(path: &Path, callers: u64, time: Duration, workers: usize) -> Res {
    let file = Sqlite::open(path)?;
    let q = queue(&file)?;
    let worker = match workers {
        0 => None,
        workers => Some(Worker::of(&q).workers(workers).start_threads(|_: Run<String>| ())?),
    };
    let begun = Instant::now();
    let mut took: Vec<Duration> = std::thread::scope(|threads| {
        let calls = |caller: u64| {
            let mut took = Vec::new();
            while begun.elapsed() < time {
                let at = Instant::now();
                let n = took.len() as u64;
                if q.add(key((caller << 24) | n)).wait().is_err() {
                    break;
                }
                took.push(at.elapsed());
            }
            took
        };
        let callers: Vec<_> = (0..callers).map(|caller| threads.spawn(move || calls(caller))).collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap_or_default()).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    if let Some(worker) = worker {
        worker.drain(Duration::MAX).wait();
    }
    took.sort();
    let at = |part: usize| took.get(took.len() * part / 100).map_or(0, Duration::as_micros);
    println!(
        "{{\"queue\":\"requeue-sqlite{}\",\"callers\":{callers},\"adds_per_s\":{:.0},\"commits_per_s\":{:.0},\"p50_us\":{},\"p99_us\":{}}}",
        if workers > 0 { ", worked off" } else { "" },
        took.len() as f64 / seconds,
        file.commits() as f64 / seconds,
        at(50),
        at(99),
    );
    Ok(())
}

/// Fills a file, half of it with timers, and is killed.
fn fill(path: &Path, keys: u64) -> Res {
    let file = Sqlite::open(path)?;
    let q = queue(&file)?;
    for n in 0..keys {
        // in no order, as keys come
        let name = key(n.wrapping_mul(2_654_435_761) % 1_000_000_007);
        let op = if n % 2 == 0 { q.add(name) } else { q.add_after(name, Duration::from_secs(3600)) };
        if n % 4096 == 0 || n + 1 == keys {
            op.wait()?;
        }
    }
    std::process::Command::new("kill").args(["-9", &std::process::id().to_string()]).status()?;
    Ok(())
}

fn reopen(path: &Path) -> Res {
    let before = resident()?;
    let begun = Instant::now();
    let file = Sqlite::open(path)?;
    let q = queue(&file)?;
    let took = begun.elapsed();
    let bytes = resident()? - before;
    println!(
        "{{\"open_s\":{:.3},\"ready\":{},\"memory_mb\":{:.0}}}",
        took.as_secs_f64(),
        q.in_memory().len(),
        bytes as f64 / 1e6
    );
    Ok(())
}

/// Measures the memory of [`fill`]'s keys only.
fn memory(keys: u64) -> Res {
    let before = resident()?;
    let backoff = Exponential::new(Duration::from_millis(5), Duration::from_secs(1000))?;
    let q = WorkQueue::<String>::builder().limiter(backoff).build()?;
    for n in 0..keys {
        let name = key(n.wrapping_mul(2_654_435_761) % 1_000_000_007);
        if n % 2 == 0 {
            q.add(name)?
        } else {
            q.add_after(name, Duration::from_secs(3600))?
        };
    }
    let bytes = resident()? - before;
    println!("{{\"in_memory\":true,\"ready\":{},\"memory_mb\":{:.0}}}", q.len(), bytes as f64 / 1e6);
    Ok(())
}

/// The memory of this process, in bytes.
fn resident() -> Res<i64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let resident: i64 = pages.split(' ').nth(1).ok_or("no figure")?.parse()?;
    Ok(resident * 4096)
}
