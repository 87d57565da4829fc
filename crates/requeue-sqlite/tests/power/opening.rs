//! Others add while the queue is being opened, and somebody looks for what they add all the time.

use crate::Mounted;
use crate::common::{LONG, once_free};
use crate::disk::{Call, Fault};
use requeue_sqlite::{Client, Sqlite};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const ROUNDS: u64 = 100;
const EACH: u64 = 6;

#[test]
fn e2_what_others_add_as_the_queue_is_being_opened_is_in_its_line() {
    let mounted = Mounted::new(1);
    let path = mounted.file();
    let file = Sqlite::open(&path).unwrap();
    let client = Client::open(&path).unwrap();
    let busy = file.queue::<u64>("busy").open().unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _ends = Ends(&ends);
        threads.spawn(|| {
            (0..)
                .take_while(|_| !ends.load(SeqCst))
                .for_each(|n: u64| assert!(busy.add(n % 1000).wait().is_ok()));
        });
        threads.spawn(|| {
            // each commit looks for letters, and this one is never redundant
            while !ends.load(SeqCst) {
                busy.add_after(1000, Duration::from_secs(3600)).wait().unwrap();
            }
        });
        for round in 1..=ROUNDS {
            let first = (round - 1) * EACH;
            let path = &path;
            let adds = threads.spawn(move || (first..first + EACH).for_each(|key| client_add(path, key)));
            let q = once_free(|| file.queue::<u64>("opened").open()).unwrap();
            adds.join().unwrap();
            let began = Instant::now();
            while (q.len() as u64) < round * EACH {
                if began.elapsed() > LONG {
                    let rows = client.list("opened").unwrap().len();
                    panic!("round {round}: {} keys are in line, and {rows} in the file", q.len());
                }
                std::thread::yield_now();
            }
        }
    });
    drop((busy, client, file));
}

/// Ends the two writers however the test ends: without it a failed test would wait for them for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn client_add(path: &std::path::Path, key: u64) {
    Client::open(path).unwrap().add("opened", &key, None).unwrap();
}

#[test]
fn e34_an_add_of_its_own_waits_for_one_sync_of_the_log_and_makes_no_more_as_it_ends() {
    let mounted = Mounted::new(1);
    let path = mounted.file();
    client_add(&path, 1);
    mounted.disk.plant(Fault { call: Call::Sync, after: 1, times: u64::MAX, code: Call::Sync.errors()[0] });
    client_add(&path, 2);
    assert_eq!(mounted.disk.mend(), 0, "a second sync was asked for");
    assert_eq!(Client::open(&path).unwrap().list("opened").unwrap().len(), 2);
}
