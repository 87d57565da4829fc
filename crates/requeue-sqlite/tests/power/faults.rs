//! Each call of the disk fails, one after another, in a deterministic life.

use crate::common::LONG;
use crate::disk::{Call, Fault};
use crate::{Mounted, ledger, number, world};
use requeue::{Fence, Outcome, Run, Worker};
use requeue_engine::EngineError;
use requeue_sqlite::{Client, Queue};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// The fate of the test's triggers: accepted (`Some(true)`), refused (`Some(false)`), or unknown.
type Answers = BTreeMap<u64, Option<bool>>;

fn answer<T>(said: &Result<T, EngineError>) -> Option<bool> {
    match said {
        Ok(_) => Some(true),
        Err(EngineError::Unknown(_)) => None,
        Err(_) => Some(false),
    }
}

/// Starts a worker that succeeds and reports its runs.
fn work(q: &world::Q) -> (Worker, mpsc::Receiver<(u64, Fence)>) {
    let (tell, told) = mpsc::channel();
    let worker = Worker::of(q).workers(1).start_threads(move |run: Run<u64, ledger::Numbers>| {
        tell.send((*run.key(), run.fence())).unwrap_or_default();
        Outcome::Done
    });
    (worker.unwrap(), told)
}

fn until_idle(q: &Queue<u64, ledger::Numbers>, keys: std::ops::Range<u64>) {
    let began = Instant::now();
    for key in keys {
        while q.in_memory().state(&key).is_some() {
            assert!(
                began.elapsed() < LONG,
                "{key} does not come to its end: {:?}",
                q.in_memory().state(&key)
            );
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// Plays two processes, one after the other, with a power cut between them; a call of the first one fails.
/// False if it makes fewer calls.
fn play(fault: &Fault, while_it_opens: bool) -> bool {
    let mut mounted = Mounted::new(fault.after);
    let path = mounted.file();
    drop(world::open(&path).unwrap());
    let mut answers = Answers::new();
    if while_it_opens {
        mounted.disk.plant(fault.clone());
    }
    // an open that was not answered is tried again
    let q = world::open(&path).or_else(|_| world::open(&path)).or_else(|_| world::open(&path)).unwrap();
    let client = Client::open(&path);
    for key in 20..24 {
        let accepted = answer(&q.add(key).wait().map_err(|failed| failed.error));
        assert!(accepted == Some(true) || while_it_opens);
    }
    if !while_it_opens {
        mounted.disk.plant(fault.clone());
    }
    let (worker, runs) = work(&q);
    for key in 0..4 {
        answers.insert(key, answer(&q.add_after(key, HOUR).wait().map_err(|failed| failed.error)));
        if let Ok(client) = &client {
            answers.insert(10 + key, answer(&client.add("power", &(10 + key), Some(HOUR))));
        }
    }
    if let Ok(other) = Connection::open(&path) {
        drop(other.query_row("pragma wal_checkpoint(restart)", [], |_| Ok(())));
    }
    until_idle(&q, 20..24);
    let failed = mounted.disk.mend();
    // the same handles go on; and the ends of runs are on the disk with the next trigger
    q.add_after(4, HOUR).wait().expect("the disk is well");
    answers.insert(4, Some(true));
    if let Ok(client) = &client {
        client.add("power", &14, Some(HOUR)).expect("the disk is well");
        answers.insert(14, Some(true));
    }
    let last_fence = runs.try_iter().map(|(_, fence)| fence).max();
    mounted.disk.cut();
    assert!(worker.stop(LONG).wait().complete);
    drop(client);
    let gone = std::thread::spawn(move || drop((worker, q)));
    mounted.boot();
    let path = mounted.file();
    let rows = ledger::rows(&Connection::open(&path).unwrap());
    for (key, answer) in answers {
        let is_there = rows.get(&key).is_some_and(|row| row.runs);
        assert!(
            answer.is_none_or(|accepted| accepted == is_there),
            "E18: {key}: {answer:?}, there: {is_there}"
        );
    }
    for key in 20..24 {
        assert!(!rows.contains_key(&key), "E3: {key} is to run again: {rows:?}");
    }
    let q = world::open(&path).unwrap();
    let (worker, runs) = work(&q);
    q.add(20).wait().unwrap();
    let (key, fence) = runs.recv_timeout(LONG).unwrap();
    assert!(key == 20 && Some(fence) > last_fence, "E10: {fence:?} after {last_fence:?}");
    assert!(worker.stop(LONG).wait().complete);
    gone.join().unwrap();
    failed > 0
}

/// Prints the fault when the test fails.
struct Says<'a>(&'a Fault, bool);

impl Drop for Says<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(fault, while_it_opens) = self;
            eprintln!("{fault:?}, while it opens: {while_it_opens}");
        }
    }
}

fn of_each(calls: &[Call]) {
    let all = number("REQUEUE_POWER_CUTS").is_some();
    let mut played = 0;
    for (call, while_it_opens) in calls.iter().flat_map(|call| [(*call, false), (*call, true)]) {
        for code in call.errors().iter().copied() {
            let mut missed = 0;
            for after in (0..).filter(|after| all || [0, 1, 2, 4, 7, 12, 20].contains(after)) {
                let fault = Fault { call, after, times: 1, code };
                let _says = Says(&fault, while_it_opens);
                // how many calls there are differs a little
                missed += u32::from(!play(&fault, while_it_opens));
                if missed > u32::from(all) || after >= 20 && !all {
                    break;
                }
                played += 1;
            }
        }
    }
    eprintln!("{played} lives with a call that failed");
}

#[test]
fn e18_and_e27_hold_whichever_write_or_sync_fails() {
    of_each(&[Call::Write, Call::Sync, Call::Truncate]);
}

#[test]
fn e18_and_e27_hold_whichever_other_call_fails() {
    let is_other = |call: &Call| !matches!(call, Call::Write | Call::Sync | Call::Truncate);
    of_each(&Call::ALL.into_iter().filter(is_other).collect::<Vec<_>>());
}
