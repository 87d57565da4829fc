//! Measures requeue-postgres on a server: one JSON line per figure.
//!
//! `requeue-postgres-bench CONNECT FIGURE ...`: see [`main`].

mod semantics;

use requeue::{Run, Worker};
use requeue_postgres::{Postgres, Queue};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Res<T = ()> = Result<T, Box<dyn std::error::Error>>;

const USAGE: &str = "usage: requeue-postgres-bench CONNECT (one CALLERS SECONDS | turns CALLERS SECONDS | many KEYS | redundant CALLERS SECONDS \
                     | fill KEYS | work WORKERS PREFETCH | latency KEYS | wait SECONDS QUEUE WORKERS PREFETCH | drip KEYS SECONDS | cycles KEYS SECONDS [GROUPS] | semantics)";

fn main() -> Res {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((connect, what)) = args.split_first() else { return Err(USAGE.into()) };
    let pg = Postgres::connect(connect).wait()?;
    pg.migrate().wait()?;
    match what.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["one", callers, seconds] => {
            one(&pg, &["one"], callers.parse()?, Duration::from_secs_f64(seconds.parse()?), "one")
        }
        ["turns", callers, seconds] => {
            one(&pg, &["one", "other"], callers.parse()?, Duration::from_secs_f64(seconds.parse()?), "turns")
        }
        ["redundant", callers, seconds] => {
            one(&pg, &["one"], callers.parse()?, Duration::from_secs_f64(seconds.parse()?), "redundant")
        }
        ["many", keys] => many(&pg, keys.parse()?, "many"),
        ["fill", keys] => many(&pg, keys.parse()?, "work"),
        ["work", workers, prefetch] => work(&pg, workers.parse()?, prefetch.parse()?),
        ["cycles", keys, seconds] => cycles(&pg, connect, keys.parse()?, seconds.parse()?, None),
        ["cycles", keys, seconds, groups] => {
            cycles(&pg, connect, keys.parse()?, seconds.parse()?, Some(groups.parse()?))
        }
        ["latency", keys] => latency(&pg, keys.parse()?),
        ["wait", seconds, queue, workers, prefetch] => {
            let q = pg.queue::<String>(queue).prefetch(prefetch.parse()?).open().wait()?;
            wait(&q, Duration::from_secs_f64(seconds.parse()?), workers.parse()?)
        }
        ["drip", keys, seconds] => drip(&pg, keys.parse()?, Duration::from_secs_f64(seconds.parse()?)),
        ["semantics"] => semantics::semantics(&pg, connect),
        ["zombie"] => semantics::zombie(&pg),
        _ => Err(USAGE.into()),
    }
}

/// A key in the form of a cluster's object name.
fn key(n: u64) -> String {
    format!("namespace-{:03}/object-name-{n:08}", n % 317)
}

/// The group of a key, one of `groups`.
fn group(key: &[u8], groups: u64) -> u64 {
    key[key.len().saturating_sub(8)..].iter().fold(0, |n, digit| n * 10 + u64::from(digit & 15)) % groups
}

fn open(pg: &Postgres, name: &str) -> Res<Queue<String>> {
    Ok(pg.queue(name).open().wait()?)
}

/// Threads add keys, one call after another each, to these queues in turns: new ones, or for `redundant` the
/// same hundred.
fn one(pg: &Postgres, names: &[&str], callers: u64, time: Duration, figure: &str) -> Res {
    let queues = names.iter().map(|name| open(pg, name)).collect::<Res<Vec<_>>>()?;
    let (added, begun) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|threads| {
        for caller in 0..callers {
            let (queues, added) = (&queues, &added);
            threads.spawn(move || {
                for (n, q) in (0..).zip(queues.iter().cycle()) {
                    if begun.elapsed() >= time {
                        break;
                    }
                    let n = if figure == "redundant" { n % 100 } else { caller << 32 | n };
                    if q.add(key(n)).wait().is_err() {
                        break;
                    }
                    added.fetch_add(1, Relaxed);
                }
            });
        }
    });
    tell(
        figure,
        &format!("\"callers\":{callers}"),
        added.load(Relaxed) as f64 / begun.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// Distinct keys, in statements of 200.
fn many(pg: &Postgres, keys: u64, name: &str) -> Res {
    let _is_there = open(pg, name)?;
    let client = pg.client(name);
    let begun = Instant::now();
    let all: Vec<u64> = (0..keys).collect();
    for some in all.chunks(200) {
        client.add_many(&some.iter().copied().map(key).collect::<Vec<_>>(), None, 0).wait()?;
    }
    tell("many", &format!("\"keys\":{keys}"), keys as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}

/// Works off what [`many`] has added to the queue `work`, and prints its start and its end, so that two such
/// processes can be combined.
fn work(pg: &Postgres, workers: usize, prefetch: usize) -> Res {
    let q = pg.queue::<String>("work").prefetch(prefetch).open().wait()?;
    let (tell_it, told) = mpsc::channel();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let begun = now();
    let worker = Worker::of(&q).workers(workers).start_threads(move |_: Run<String>| {
        let _ = tell_it.send(());
    })?;
    let (mut done, mut ended) = (0_u64, begun);
    while told.recv_timeout(Duration::from_secs(2)).is_ok() {
        done += 1;
        ended = now();
    }
    worker.stop(Duration::from_secs(10)).wait();
    println!(
        "{{\"queue\":\"requeue-postgres\",\"figure\":\"work\",\"keys\":{done},\"begun\":{begun:.6},\"ended\":{ended:.6}}}"
    );
    Ok(())
}

/// Adds and works off keys without end, with at most 4,000 under way: `keys` different ones (10,000 or more,
/// so that none is in line when it comes again), one after another. Two handles work, like two processes. It
/// prints a figure for each two seconds. With groups, this many take turns.
fn cycles(pg: &Postgres, connect: &str, keys: u64, seconds: u64, groups: Option<u64>) -> Res {
    let name = if groups.is_some() { "cycles in groups" } else { "cycles" };
    let client = pg.client(name);
    let client = match groups {
        Some(groups) => client.group_by(move |key| group(key, groups)),
        None => client,
    };
    let (done, mut queues, mut workers) = (Arc::new(AtomicU64::new(0)), Vec::new(), Vec::new());
    for _ in 0..2 {
        let q = Postgres::connect(connect).wait()?.queue::<String>(name).prefetch(400).open().wait()?;
        let done = done.clone();
        workers.push(Worker::of(&q).workers(4).start_threads(move |_: Run<String>| {
            done.fetch_add(1, Relaxed);
        })?);
        queues.push(q);
    }
    let (begun, added) = (Instant::now(), AtomicU64::new(0));
    let over = || begun.elapsed() >= Duration::from_secs(seconds);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                while !over() {
                    if added.load(Relaxed) > done.load(Relaxed) + 4000 {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    let from = added.fetch_add(200, Relaxed);
                    let some: Vec<String> = (from..from + 200).map(|n| key(n % keys)).collect();
                    if let Err(e) = client.add_many(&some, None, 0).wait() {
                        return eprintln!("{e}");
                    }
                }
            });
        }
        let mut before = 0;
        while !over() {
            std::thread::sleep(Duration::from_secs(2));
            let now = done.load(Relaxed);
            let second = begun.elapsed().as_secs();
            let groups = groups.unwrap_or(0);
            let with = format!("\"keys\":{keys},\"groups\":{groups},\"second\":{second}");
            tell("cycles", &with, (now - before) as f64 / 2.0);
            before = now;
        }
    });
    for worker in workers {
        worker.stop(Duration::from_secs(10)).wait();
    }
    Ok(())
}

/// Measures the time from an add to the handler, in an idle queue: one key each 10 ms.
fn latency(pg: &Postgres, keys: u64) -> Res {
    let q = open(pg, "latency")?;
    let (tell_it, told) = mpsc::channel();
    let worker = Worker::of(&q).workers(4).start_threads(move |_: Run<String>| {
        let _ = tell_it.send(Instant::now());
    })?;
    let mut took = Vec::new();
    for n in 0..keys {
        std::thread::sleep(Duration::from_millis(10));
        let begun = Instant::now();
        q.add(key(n)).wait()?;
        took.push(told.recv_timeout(Duration::from_secs(30))?.duration_since(begun));
    }
    worker.stop(Duration::from_secs(10)).wait();
    took.sort();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    println!(
        "{{\"queue\":\"requeue-postgres\",\"figure\":\"latency\",\"p50_ms\":{:.2},\"p99_ms\":{:.2}}}",
        at(0.5),
        at(0.99)
    );
    Ok(())
}

fn micros() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros())
}

/// One of many processes that wait for keys. For those of [`drip`] it prints their age, since a key's name is
/// its time.
fn wait(q: &Queue<String>, time: Duration, workers: usize) -> Res {
    let worker = Worker::of(q).workers(workers).start_threads(|run: Run<String>| {
        if let Ok(made) = run.key().parse::<u128>() {
            let age = micros().saturating_sub(made);
            println!("{{\"figure\":\"run\",\"ms\":{:.2}}}", age as f64 / 1e3);
        }
    })?;
    std::thread::sleep(time);
    worker.stop(Duration::from_secs(10)).wait();
    Ok(q.leave().wait()?)
}

/// Adds this many keys, spread over this time.
fn drip(pg: &Postgres, keys: u32, time: Duration) -> Res {
    let q = open(pg, "drip")?;
    for _ in 0..keys {
        std::thread::sleep(time / keys.max(1));
        q.add(micros().to_string()).wait()?;
    }
    Ok(())
}

fn tell(figure: &str, with: &str, per_second: f64) {
    println!("{{\"queue\":\"requeue-postgres\",\"figure\":\"{figure}\",{with},\"per_s\":{per_second:.0}}}");
}
