//! `kill -9` at any moment: no accepted trigger is lost.
//!
//! A child process adds and works; it is killed, and another one continues with the file. Each successful
//! call of `add` is in a log with the instant before it began, and so is each successful run with the instant
//! at which it began. In the end every key has a run that began after its last accepted trigger.
//! `REQUEUE_KILLS` is the number of children killed.

mod common;

use self::common::{LONG, once_free};
use requeue::{Outcome, Run, Worker};
use requeue_sqlite::{Queue, Sqlite};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const KEYS: u64 = 60;
/// The folder in which the child works.
const DIR: &str = "REQUEUE_KILL_DIR";

fn nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_nanos().try_into().unwrap()
}

fn open(dir: &Path) -> Queue<u64> {
    once_free(|| Sqlite::open(dir.join("q.db"))?.queue("kills").open()).unwrap()
}

fn log(dir: &Path, name: &str) -> File {
    File::options().create(true).append(true).open(dir.join(name)).unwrap()
}

/// A line of a log. Its length divides that of a page: a process that is killed may leave half of a write that crosses one.
fn line(key: u64, at: u64) -> Vec<u8> {
    format!("{key:>4} {at:>26}\n").into_bytes()
}

/// Starts workers whose handlers fail in each fifth run.
fn work(q: &Queue<u64>, dir: &Path) -> Worker {
    let ran = Arc::new(log(dir, "ran"));
    let worker = Worker::of(q).workers(3).start_threads(move |run: Run<u64>| {
        let began = nanos();
        if (began / 1000 + *run.key()) % 5 == 0 {
            return Outcome::Retry("this one fails".into());
        }
        // one write, which the system keeps when the process is killed
        (&*ran).write_all(&line(*run.key(), began)).unwrap();
        Outcome::Done
    });
    worker.unwrap()
}

#[test]
#[ignore = "it is the child of the test below"]
fn child() {
    let dir = PathBuf::from(std::env::var_os(DIR).expect("the parent says where"));
    let q = open(&dir);
    let _worker = work(&q, &dir);
    println!("begun");
    std::thread::scope(|threads| {
        for thread in 0..3 {
            let (q, dir) = (&q, &dir);
            threads.spawn(move || {
                let mut acked = log(dir, "acked");
                for n in 0.. {
                    let key = (nanos() / 7 + n * 31 + thread) % KEYS;
                    let began = nanos();
                    let added = match n % 4 {
                        0 => q.add_after(key, Duration::from_millis(n % 30)),
                        _ => q.add(key),
                    };
                    added.wait().unwrap();
                    acked.write_all(&line(key, began)).unwrap();
                }
            });
        }
    });
}

/// Starts a child, and waits until it works.
fn start(dir: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("begun")), "the child did not begin");
    child
}

/// The last instant of each key in a log.
fn last(path: &Path) -> (HashMap<u64, u64>, usize) {
    let text = std::fs::read_to_string(path).unwrap();
    let (mut last, mut lines) = (HashMap::new(), 0);
    for line in text.lines() {
        let (key, at) = line.trim_start().split_once(' ').unwrap();
        let entry = last.entry(key.parse().unwrap()).or_insert(0);
        *entry = at.trim_start().parse::<u64>().unwrap().max(*entry);
        lines += 1;
    }
    (last, lines)
}

#[test]
fn e1_and_e2_hold_whenever_the_process_is_killed() {
    let kills = std::env::var("REQUEUE_KILLS").map_or(20, |kills| kills.parse().expect("a number"));
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for n in 0..kills {
        let mut child = start(dir);
        // the moment is what differs
        std::thread::sleep(Duration::from_micros(nanos() / 100 % 30_000));
        child.kill().unwrap();
        child.wait().unwrap();
        if n % 50 == 49 || n + 1 == kills {
            check(dir);
        }
    }
}

/// Works off the rest, and compares the logs.
fn check(dir: &Path) {
    let q = open(dir);
    let worker = work(&q, dir);
    let is_idle = || {
        (0..KEYS).all(|key| {
            q.in_memory()
                .state(&key)
                .is_none_or(|state| !state.ready && !state.held && state.waiting_until.is_none())
        })
    };
    let began = std::time::Instant::now();
    while !is_idle() {
        assert!(began.elapsed() < LONG, "it does not come to rest");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(worker.stop(LONG).wait().complete);
    let ((acked, triggers), (ran, runs)) = (last(&dir.join("acked")), last(&dir.join("ran")));
    for (key, at) in &acked {
        let seen = ran.get(key);
        assert!(seen > Some(at), "{key}: a trigger of {at} was accepted, and the last run began at {seen:?}");
    }
    eprintln!("{triggers} triggers were accepted, {runs} runs were well, {} keys", acked.len());
    // keys whose runs have ended do not run again
    drop((worker, q));
    assert_eq!(open(dir).in_memory().len(), 0);
    // all of that was compared
    for name in ["acked", "ran"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
}
