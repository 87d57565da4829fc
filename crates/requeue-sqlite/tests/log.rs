//! The length of SQLite's log. Apart from other tests, because it keeps the disk busy.

use requeue_sqlite::{Queue, Sqlite};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[test]
fn e33_readers_of_whom_one_always_reads_do_not_let_the_log_grow() {
    const MEGABYTE: usize = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("q.db");
    let q: Queue<String> = Sqlite::open(&file).unwrap().queue("orders").open().unwrap();
    let log = dir.path().join("q.db-wal");
    let is_over = AtomicBool::new(false);
    let mut longest = 0;
    std::thread::scope(|s| {
        s.spawn(|| {
            let [mut next, mut last] = [(); 2].map(|()| rusqlite::Connection::open(&file).unwrap());
            while !is_over.load(Relaxed) {
                next.execute_batch("begin; select * from queue").unwrap();
                if !last.is_autocommit() {
                    last.execute_batch("commit").unwrap();
                }
                std::mem::swap(&mut next, &mut last);
            }
        });
        for n in 0..64 {
            let key = format!("{n}-{}", "x".repeat(MEGABYTE));
            q.add(key.clone()).wait().unwrap();
            q.cancel(&key).wait().unwrap();
            longest = longest.max(log.metadata().unwrap().len());
        }
        is_over.store(true, Relaxed);
    });
    assert!(longest < 48 * MEGABYTE as u64, "{} MB of some 64", longest >> 20);
}
