//! Tables are copied while a snapshot keeps vacuum from cleaning them, and nothing is lost.

mod common;

use self::common::{Database, LONG, runtime, until};
use requeue::{Run, Worker};
use requeue_postgres::{Postgres, Queue};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Instant;

const KEYS: usize = 50;
/// Copies the tables, as if there had been endless visits of dead rows in a window that began after the last
/// copy.
const RENEW: &str = "select requeue.renew(array[-1000000000000000, 0, extract(epoch from clock_timestamp()) * 1000000]::bigint[])";
/// Begins a window.
const BEGIN: &str = "select requeue.renew(null)";

/// The file of the keys: a different one after each copy.
fn file(db: &Database) -> String {
    db.sql("select pg_relation_filenode('requeue.item')")
}

/// Whether the table was copied, although it had just been.
fn renews(db: &Database) -> bool {
    let before = file(db);
    db.sql("update requeue.meta set renewed = '-infinity'");
    db.sql(RENEW);
    file(db) != before
}

#[test]
fn e25_nothing_is_lost_while_tables_are_copied_beside_a_held_snapshot() {
    let Some(db) = Database::new() else { return };
    let runtime = runtime();
    let report = runtime.block_on(db.client());
    let snapshot = report.batch_execute("begin isolation level repeatable read; select 1");
    runtime.block_on(snapshot).expect("it is up");

    let pg = Postgres::connect(&db.url).wait().expect("it is up");
    let queues: Vec<Queue<u64>> = (0..2).map(|_| pg.queue("q").open().wait().expect("it is up")).collect();
    let counters = || Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
    let (asked, ran, running) = (counters(), counters(), counters());
    let start = |q: &Queue<u64>| {
        let (asked, ran, running) = (asked.clone(), ran.clone(), running.clone());
        let works = Worker::of(q).workers(3).start_threads(move |run: Run<u64>| {
            let key = *run.key() as usize;
            assert_eq!(running[key].fetch_add(1, SeqCst), 0, "{key} runs twice at once");
            ran[key].fetch_max(asked[key].load(SeqCst), SeqCst);
            running[key].fetch_sub(1, SeqCst);
        });
        works.expect("it starts")
    };
    let workers: Vec<Worker> = queues.iter().map(start).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for q in &queues {
            let (asked, over) = (&asked, &over);
            threads.spawn(move || {
                for key in (0..KEYS).cycle() {
                    if over.load(SeqCst) {
                        break;
                    }
                    asked[key].fetch_add(1, SeqCst);
                    q.add(key as u64).wait().expect("it is up");
                }
            });
        }
        let began = Instant::now();
        let mut copies = 0;
        while copies < 20 {
            copies += u32::from(renews(&db));
            // each waits for those who work, on a machine that may have much else to do
            if copies < 20 && began.elapsed() > LONG {
                over.store(true, SeqCst);
                panic!("{copies} copies");
            }
        }
        over.store(true, SeqCst);
    });
    until("each key's last trigger", || {
        (0..KEYS).all(|key| ran[key].load(SeqCst) >= asked[key].load(SeqCst))
    });
    // the last one may have come during its run, and asks for one more
    until("the end of the last run", || db.sql("select count(*) from requeue.item") == "0");
    for (worker, q) in workers.into_iter().zip(&queues) {
        let report = worker.stop(LONG).wait();
        assert!(report.complete, "{report:?}");
        assert_eq!(q.ends_refused(), 0);
    }
    // somebody else may look at the table just then (autovacuum does): it is not waited for
    until("a copy", || renews(&db));
    assert_eq!(db.sql("select pg_relation_size('requeue.item')"), "0", "dead rows are left behind");
    // which vacuum can't do
    db.sql("insert into requeue.item(queue, key, state) select 1, int4send(n), 0 from generate_series(1, 1000) n");
    db.sql("delete from requeue.item");
    db.sql("vacuum requeue.item");
    assert_ne!(db.sql("select pg_relation_size('requeue.item')"), "0");
    runtime.block_on(report.batch_execute("rollback")).expect("it is up");
}

#[test]
fn a_transaction_that_has_read_the_table_is_waited_for_only_every_ten_seconds() {
    let Some(db) = Database::new() else { return };
    let runtime = runtime();
    let report = runtime.block_on(db.client());
    let reads = report.batch_execute("begin; select count(*) from requeue.item");
    runtime.block_on(reads).expect("it is up");
    let begun = db.sql("select clock_timestamp()");
    assert!(!renews(&db));
    let later = format!("select renewed >= timestamptz '{begun}' + interval '10 s' from requeue.meta");
    assert_eq!(db.sql(&later), "t");
    runtime.block_on(report.batch_execute("rollback")).expect("it is up");
    let before = file(&db);
    // however slow this machine is
    db.sql("update requeue.meta set renewed = clock_timestamp() + interval '1 h'");
    db.sql(RENEW);
    assert_eq!(file(&db), before, "it is not tried again yet");
    until("a copy", || renews(&db));
}

/// A dump whose snapshot is older than its locks, like pg_dump's: another session's lock delays it in
/// between.
#[test]
fn a_dump_that_waits_for_another_table_is_whole() {
    let Some(db) = Database::new() else { return };
    let keys = "insert into requeue.item(queue, key, state) select 1, int4send(n), 0 from generate_series(1, 1000) n";
    db.sql(&format!("create table public.app(x int); {keys}"));
    let runtime = runtime();
    let app = runtime.block_on(db.client());
    let locks = app.batch_execute("begin; lock table app in access exclusive mode");
    runtime.block_on(locks).expect("it is up");
    let mut dump = db.cluster.program("pg_dump", &db.name);
    let dump = dump.stdout(Stdio::piped()).spawn().expect("it is there, beside the server");
    until("a dump that waits", || {
        db.sql("select count(*) from pg_stat_activity where application_name = 'pg_dump' and wait_event_type = 'Lock'") == "1"
    });
    assert!(!renews(&db), "its snapshot would see an empty table");
    runtime.block_on(app.batch_execute("rollback")).expect("it is up");
    let dump = dump.wait_with_output().expect("it ends");
    assert!(dump.status.success());
    let text = String::from_utf8(dump.stdout).expect("text");
    let (_, copied) = text.split_once("COPY requeue.item (").expect("its keys");
    let rows = copied.lines().skip(1).take_while(|line| *line != "\\.").count();
    assert_eq!(rows, 1000);
    until("no dump any more", || db.sql("select requeue.is_dumped()") == "f");
    until("a copy", || renews(&db));
}

#[test]
fn tables_are_not_copied_without_need_nor_within_a_snapshot_nor_where_it_takes_long() {
    let Some(db) = Database::new() else { return };
    let before = file(&db);
    db.sql("select requeue.renew(requeue.renew(null))");
    assert_eq!(file(&db), before, "without need");
    // millions of visits, and not so many by each look-up
    db.sql("select requeue.renew(array[-1000000, -1000000, extract(epoch from clock_timestamp()) * 1000000]::bigint[])");
    assert_eq!(file(&db), before, "look-ups cost little");
    let runtime = runtime();
    let client = runtime.block_on(db.client());
    let within = format!("begin isolation level repeatable read; {RENEW}; commit");
    runtime.block_on(client.batch_execute(&within)).expect("it is up");
    assert_eq!(file(&db), before, "within a snapshot");
    db.sql("insert into requeue.item(queue, key, state) select 1, int4send(n), 0 from generate_series(1, 200001) n");
    assert!(!renews(&db), "it takes long");
    // and the keys are there
    assert_eq!(db.sql("select count(*) from requeue.item"), "200001");
    db.sql("delete from requeue.item where key < int4send(100001)");
    // with values, failures and all else
    db.sql(
        "update requeue.item set failures = 3, value = '[1]', due_at = now() where key = int4send(100001)",
    );
    let all = "select md5(string_agg(i::text, ',' order by key)) from requeue.item i";
    let was = db.sql(all);
    let begun = Instant::now();
    while !renews(&db) {
        assert!(begun.elapsed() < LONG, "the server's statistics do not say that keys went");
    }
    assert_eq!(db.sql(all), was);
}

#[test]
fn a_row_that_is_changed_at_each_call_is_copied_too() {
    let Some(db) = Database::new() else { return };
    let pg = Postgres::connect(&db.url).wait().expect("it is up");
    let q: Queue<u64> = pg.queue("q").dispatch_rate(1e6, 10).open().wait().expect("it is up");
    let file = || db.sql("select pg_relation_filenode('requeue.queue')");
    let before = file();
    db.sql("do $$ begin for n in 1..10001 loop update requeue.queue set burst = n; end loop; end $$");
    let begun = Instant::now();
    while file() == before {
        assert!(begun.elapsed() < LONG, "the server's statistics do not say that rows died");
        db.sql("update requeue.meta set renewed = '-infinity'");
        db.sql(BEGIN);
    }
    assert_eq!(db.sql("select id, name, rate, burst from requeue.queue"), "1|q|1000000|10001");
    // the numbers of queues go on
    let other: Queue<u64> = pg.queue("other").open().wait().expect("it is up");
    assert_eq!(db.sql("select count(distinct id) from requeue.queue"), "2");
    drop((q, other));
}
