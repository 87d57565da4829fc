//! Other processes add while the queue is being opened, and a reader looks for their keys all the time.

use crate::Mounted;
use crate::common::{LONG, once_free};
use crate::disk::{Call, Fault};
use requeue_engine::EngineError;
use requeue_sqlite::{Client, Sqlite};
use rusqlite::{Connection, Row};
use std::path::Path;
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
            while (q.in_memory().len() as u64) < round * EACH {
                if began.elapsed() > LONG {
                    let rows = client.list("opened").unwrap().len();
                    panic!("round {round}: {} keys are in line, and {rows} in the file", q.in_memory().len());
                }
                std::thread::yield_now();
            }
        }
    });
    drop((busy, client, file));
}

/// Ends the two writers even if the test fails: otherwise it would wait for them for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn client_add(path: &Path, key: u64) {
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

/// Runs `looks` with a limited number of SQLite's reads.
fn within<T>(mounted: &Mounted, reads: u64, looks: impl FnOnce() -> Result<T, EngineError>) -> T {
    let fault = Fault { call: Call::Read, after: reads, times: u64::MAX, code: Call::Read.errors()[0] };
    mounted.disk.plant(fault);
    let seen = looks();
    mounted.disk.mend();
    seen.unwrap_or_else(|e| panic!("more than {reads} pages were read: {e}"))
}

fn by_hand(path: &Path, statement: &str) {
    Connection::open(path).unwrap().execute_batch(statement).unwrap();
}

fn pages(path: &Path) -> u64 {
    let pages = |row: &Row<'_>| row.get::<_, u32>(0);
    Connection::open(path).unwrap().pragma_query_value(None, "page_count", pages).unwrap().into()
}

#[test]
fn e33_a_list_reads_the_file_a_few_times_and_its_first_keys_at_once_however_many_keys_there_are() {
    let mounted = Mounted::new(1);
    let path = mounted.file();
    let client = Client::open(&path).unwrap();
    client.add("opened", &"first".to_owned(), None).unwrap();
    // their places in line are not in the order of the file
    by_hand(
        &path,
        "with recursive n(n) as (select 1 union all select n + 1 from n where n < 30000)
         insert into item(queue, key, ord, ready, failures, attempt, priority, first)
         select 1, cast(printf('a key of some length %05d', n * 7919 % 30011) as blob), n, 1, 0, 1, 0, 1 from n;
         pragma wal_checkpoint(truncate)",
    );
    let pages = pages(&path);
    let listed = within(&mounted, 10 * pages, || client.list("opened"));
    assert_eq!((listed.len(), &*listed[30_000].key), (30_001, &b"first"[..]));
    let places: Vec<_> =
        (1..=30_000).map(|n| format!("a key of some length {:05}", n * 7919 % 30_011)).collect();
    assert!(
        listed
            .iter()
            .map(|it| it.key.as_slice())
            .eq(places.iter().map(String::as_bytes).chain([&b"first"[..]]))
    );
    let mut first = None;
    within(&mounted, 3 * pages, || {
        client.list_each("opened", |key| {
            first = Some(key.key);
            false
        })
    });
    assert_eq!(first.as_deref(), Some(places[0].as_bytes()));
    assert_eq!(within(&mounted, 2 * pages, || client.stats("opened")).ready, 30_001);
}

#[test]
fn e33_stats_do_not_read_what_keys_have_as_their_values() {
    let mounted = Mounted::new(1);
    let path = mounted.file();
    let client = Client::open(&path).unwrap();
    client.add("opened", &"first".to_owned(), None).unwrap();
    by_hand(
        &path,
        "with recursive n(n) as (select 1 union all select n + 1 from n where n < 300)
         insert into item(queue, key, ord, ready, due, failures, attempt, priority, first, value)
         select 1, cast(printf('%03d', n) as blob), n, n % 2, iif(n % 2, null, 1 << 60), 0, 1, 0, 1, zeroblob(100000) from n;
         insert into item(queue, key, ord, ready, failures, attempt, priority, first, dead, error)
         values(1, x'64', 0, 0, 0, 1, 0, 1, 1, 'gave up');
         pragma wal_checkpoint(truncate)",
    );
    // they take 7,500 pages; SQLite reads a few of them as it seeks the first key
    let stats = within(&mounted, 1000, || client.stats("opened"));
    assert_eq!((stats.ready, stats.waiting, stats.dead), (151, 150, 1));
    assert_eq!(client.list("opened").unwrap().len(), 302);
}
