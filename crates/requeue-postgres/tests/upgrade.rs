//! Rule E43: from each version of the schema to the newest one, with data in it and with processes of that
//! version on it.
//!
//! A process of an earlier version is simulated by its calls: the functions of its schema, by their names and
//! arguments. `verify/upgrade.sh` uses a real one.

#![allow(clippy::unwrap_used)]

mod common;

use self::common::{Database, LONG, block_on, nobody_waits, open, somebody_waits, until};
use requeue::{Outcome, Run, Worker};
use requeue_engine::EngineError;
use requeue_postgres::Postgres;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;

/// Each version of the schema as its program made it, the oldest first.
const VERSIONS: [&str; 1] = [include_str!("versions/1.sql")];

/// The statements of programs of the previous version.
const CALLS: &str = include_str!("versions/1.calls.sql");

/// Contents of a queue of version 1: keys of all kinds, `h` held by a process, triggers of transactions, a
/// paused group.
const FILLED: &str = "
    select requeue.open('orders'), requeue.open('paused');
    select requeue.add(1, array['h', 'i']::bytea[], array[0, 0], array[0, 0], array['1', '2']::jsonb[]);
    select requeue.join_(1, 'process 1', 3600000000);
    select requeue.claim(1, 1, 2, true);
    select requeue.finish(1, array['i']::bytea[], array[2], array[2::smallint], array[0], array[0], array[0], array[null::jsonb], array['broken']);
    select requeue.add(1, array['r', 's']::bytea[], array[0, 0], array[-5, 0], null, null, array['g', 'g']::bytea[]);
    select requeue.add(1, array['w']::bytea[], array[3600000000], array[0], null, 60000000);
    select requeue.pause_group(1, 'g', true);
    update requeue.queue set paused = true where name = 'paused';
    select requeue.add_tx('orders', 'letter', '0', 3, '{\"a\": 1}', 'g'), requeue.add_tx('paused', 'late', delay => '1 hour')";

/// A database with the schema as created by the program of this version; `None` if PostgreSQL is not
/// installed.
fn of_version(version: usize) -> Option<Database> {
    let db = Database::bare()?;
    db.sql(VERSIONS[version - 1]);
    Some(db)
}

/// All user data in the schema, one line per row.
fn rows(db: &Database) -> String {
    let of = |table: &str, columns: &str| {
        db.sql(&format!("select row({columns}) from requeue.{table} order by 1"))
    };
    [
        of("queue", "id, name, paused, base_us, max_us, rate, burst, grouped, cap"),
        of("item", "queue, key, state, rank, pos, dirty, due_at, every_us, failures, attempt, fence, owner, grp, value, run_value, since"),
        of("inbox", "id, queue, key, delay_us, rank, value, grp, at, apart"),
        of("dead", "queue, key, value, failures, attempt, error, grp, at"),
        of("groups", "queue, grp, weight, cap, paused"),
        of("owner", "id, queue, name, lease_until, since"),
    ]
    .join("\n--\n")
}

#[test]
fn e43_a_schema_of_each_version_becomes_the_newest_with_all_that_is_in_it() {
    for version in 1..=VERSIONS.len() {
        let Some(db) = of_version(version) else { return };
        db.sql(FILLED);
        let before = rows(&db);
        let pg = db.connect();
        let refused = pg.queue::<String>("orders").open().wait().expect_err("it is too old").to_string();
        assert!(
            refused.contains(&format!("version {version}")) && refused.contains("requeue migrate"),
            "{refused}"
        );
        let second = db.connect();
        let (one, two) = (pg.migrate(), second.migrate());
        one.wait().expect("it can be migrated");
        two.wait().expect("by two at once");
        pg.migrate().wait().expect("once more");
        assert_eq!(rows(&db), before, "of version {version}");
        // and a process of this version works it off
        let q = pg.queue_with::<String, Value>("orders", |old, new| *old = new).open().wait();
        let q = q.expect("the schema is the newest");
        db.sql(
            "update requeue.item set due_at = now() where key = 'w'; update requeue.item set every_us = null",
        );
        db.sql("select requeue.pause_group(1, 'g', false), requeue.retry(1, 'i'), requeue.wake(1); update requeue.owner set lease_until = '-infinity' where id = 1");
        let ran = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let notes = ran.clone();
        let worker = Worker::of(&q).workers(1).start_threads(move |run: Run<String, Value>| {
            notes.lock().unwrap().push(run.key().clone());
            Outcome::Done
        });
        let worker = worker.expect("a thread");
        until("all keys have run", || {
            db.sql("select count(*) from requeue.item where queue = 1") == "0"
                && db.sql("select count(*) from requeue.inbox where queue = 1") == "0"
        });
        assert!(worker.stop(LONG).wait().complete);
        let mut ran = std::mem::take(&mut *ran.lock().unwrap());
        ran.sort();
        assert_eq!(ran, ["h", "i", "letter", "r", "s", "w"]);
    }
}

/// The parts of the schema, one line each.
fn catalogue(db: &Database) -> String {
    db.sql(
        "select 'column', table_name, column_name, data_type, column_default, is_nullable from information_schema.columns
           where table_schema = 'requeue'
         union all select 'index', tablename, indexname, indexdef, '', '' from pg_indexes where schemaname = 'requeue'
         union all select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '' from pg_constraint
           where connamespace = 'requeue'::regnamespace
         union all select 'function', proname, pg_get_function_identity_arguments(oid), pg_get_functiondef(oid), '', '' from pg_proc
           where pronamespace = 'requeue'::regnamespace
         union all select 'view', viewname, definition, '', '', '' from pg_views where schemaname = 'requeue'
         union all select 'options', relname, reloptions::text, relkind::text, '', '' from pg_class where relnamespace = 'requeue'::regnamespace
         union all select 'comment', o.identity, d.description, '', '', '' from pg_description d
           cross join lateral pg_identify_object(d.classoid, d.objoid, d.objsubid) o where o.schema = 'requeue' or o.name = 'requeue'
         order by 1, 2, 3, 4",
    )
}

#[test]
fn e43_a_schema_that_was_migrated_is_the_one_that_is_made_anew() {
    for version in 1..=VERSIONS.len() {
        let (Some(old), Some(new)) = (of_version(version), Database::new()) else { return };
        old.connect().migrate().wait().expect("it can be migrated");
        let (old, new) = (catalogue(&old), catalogue(&new));
        let differs = old.lines().zip(new.lines()).find(|(old, new)| old != new);
        assert_eq!(differs, None, "from version {version}");
        assert_eq!(old.lines().count(), new.lines().count(), "from version {version}");
    }
}

#[test]
fn e43_what_programs_of_the_version_before_call_is_there_as_it_was() {
    let (Some(old), Some(new)) = (of_version(VERSIONS.len()), Database::new()) else { return };
    let oldest: usize = new.sql("select oldest from requeue.version()").parse().expect("a number");
    assert!(oldest <= VERSIONS.len(), "the version before is served");
    let functions = "select proname, pg_get_function_arguments(oid), pg_get_function_result(oid) from pg_proc
                     where pronamespace = 'requeue'::regnamespace";
    let there = new.sql(functions);
    let missing: Vec<_> = old
        .sql(functions)
        .lines()
        .filter(|it| !there.lines().any(|there| there == *it))
        .map(str::to_owned)
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn e43_the_statements_of_programs_of_the_version_before_mean_what_they_meant() {
    let (Some(old), Some(new)) = (of_version(VERSIONS.len()), Database::new()) else { return };
    block_on(async {
        let (old, new) = (old.client().await, new.client().await);
        for call in CALLS.lines().filter(|line| !line.starts_with("--")) {
            // without the types of their arguments, as programs do
            let types = |statement: tokio_postgres::Statement| {
                let columns = statement.columns().iter().map(|it| (it.name().to_owned(), it.type_().clone()));
                (statement.params().to_vec(), columns.collect::<Vec<_>>())
            };
            let meant = types(old.prepare(call).await.expect(call));
            let means = new.prepare(call).await.unwrap_or_else(|why| panic!("{call}: {why:?}"));
            assert_eq!(types(means), meant, "{call}");
        }
    });
}

/// The statements of a process of version 1: it adds, claims, ends, extends its lease, looks, and leaves.
const OLD_PROCESS: [&str; 9] = [
    "select version = 1 from requeue.meta",
    "select requeue.add(1, array[$1::text::bytea], array[0], array[0], array['1']::jsonb[])",
    "select requeue.add_tx('orders', 'letter ' || $1)",
    "select requeue.maintain(1, 1000)",
    "with c as materialized (select * from requeue.next(1, $2, 9, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}') where kind = 1)
     select requeue.next(1, $2, 0, array_agg(k), array_agg(f), array_agg(0::smallint), array_agg(0::bigint), array_agg(0), array_agg(0),
       array_agg(null::jsonb), array_agg(null::text)) from c having count(*) > 0",
    "select requeue.beat($2, 3600000000)",
    "select requeue.sleeps($2, true), requeue.wake(1)",
    "select count(*) from requeue.stats(1, 10)",
    "select requeue.open('orders')",
];

#[test]
fn e43_a_process_of_version_1_goes_on_before_during_and_after_a_migration() {
    let Some(db) = of_version(1) else { return };
    db.sql("select requeue.open('orders')");
    let (over, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
    let more = |n: u32| {
        let seen = rounds.load(Relaxed);
        until("the old processes go on", || rounds.load(Relaxed) >= seen + n);
    };
    thread::scope(|scope| {
        let (db, over, rounds) = (&db, &over, &rounds);
        let old = |name: &'static str| {
            move || {
                let owner = db.sql(&format!("select requeue.join_(1, '{name}', 3600000000)"));
                let mut n = 0;
                while !over.load(Relaxed) {
                    n += 1;
                    let key = format!("'{name} {n}'");
                    for call in OLD_PROCESS {
                        // it fails the test if the server refuses it
                        db.sql(&call.replace("$1", &key).replace("$2", &owner));
                    }
                    rounds.fetch_add(1, Relaxed);
                }
            }
        };
        scope.spawn(old("one"));
        scope.spawn(old("two"));
        more(3);
        db.connect().migrate().wait().expect("beside them");
        // one of this version works beside them, and takes what they leave
        let q = open(&db.connect());
        let worker =
            Worker::of(&q).workers(2).start_threads(|_: Run<String>| Outcome::Done).expect("threads");
        more(6);
        over.store(true, Relaxed);
        until("nothing is left", || {
            db.sql("select (select count(*) from requeue.item where state <> 2) + (select count(*) from requeue.inbox)") == "0"
        });
        assert!(worker.stop(LONG).wait().complete);
    });
}

#[test]
fn e43_a_migration_waits_for_no_run() {
    let Some(db) = of_version(1) else { return };
    db.sql(FILLED);
    block_on(async {
        let mut handler = db.client().await;
        let run = handler.transaction().await.expect("it is up");
        run.batch_execute("select requeue.guard(1, 'h', 1); select requeue.add_tx('orders', 'more')")
            .await
            .expect("the run is its own");
        let migrated = db.connect().migrate().await;
        migrated.expect("beside the run");
        run.batch_execute("select requeue.succeed(1, 'h', 1)").await.expect("the run goes on");
        run.commit().await.expect("and ends well");
    });
    assert_eq!(db.sql("select count(*) from requeue.item where key = 'h'"), "0");
}

#[test]
fn e43_a_migration_that_has_to_wait_tries_again_until_it_may() {
    let Some(db) = of_version(1) else { return };
    block_on(async {
        let other = db.client().await;
        other.batch_execute("select pg_advisory_lock(32195137446966629)").await.expect("it may");
        let pg = db.connect();
        let migrates = tokio::spawn(async move { pg.migrate().await });
        // each try ends, so that no session waits behind it for long
        for _ in 0..2 {
            somebody_waits(&db).await;
            nobody_waits(&db).await;
        }
        other.batch_execute("select pg_advisory_unlock_all()").await.expect("it is up");
        migrates.await.expect("no panic").expect("it is done then");
    });
    assert_eq!(db.sql("select newest > 1 from requeue.version()"), "t");
}

#[test]
fn e43_roles_have_on_new_tables_the_rights_that_they_had_on_others() {
    let Some(db) = of_version(1) else { return };
    db.sql(
        "create role worker43 login; grant usage on schema requeue to worker43;
            grant select, insert, update, delete, truncate on all tables in schema requeue to worker43;
            grant all on all sequences in schema requeue to worker43",
    );
    db.connect().migrate().wait().expect("it can be migrated");
    let lacking = "select relname, r from pg_class, unnest(array['select', 'insert', 'update', 'delete', 'truncate']) r
                   where relnamespace = 'requeue'::regnamespace and relkind = 'r' and not has_table_privilege('worker43', oid, r)";
    assert_eq!(db.sql(lacking), "");
    let views = "select relname from pg_class where relnamespace = 'requeue'::regnamespace and relkind = 'v'
                 and not has_table_privilege('worker43', oid, 'select')";
    assert_eq!(db.sql(views), "");
    let url = db.url.replace("user=postgres", "user=worker43");
    db.sql("create or replace function requeue.version(out newest int, out oldest int) language sql as 'select 1, 1'");
    let refused =
        Postgres::connect(&url).wait().expect("it is up").migrate().wait().expect_err("it owns nothing");
    assert!(refused.to_string().ends_with("the role postgres has made it: migrate as that one"), "{refused}");
    db.connect().migrate().wait().expect("once more");
    let q = open(&Postgres::connect(&url).wait().expect("it is up"));
    let worker = Worker::of(&q).workers(1).start_threads(|_: Run<String>| Outcome::Done).expect("a thread");
    q.add("k".into()).wait().expect("it may");
    until("it has run", || db.sql("select count(*) from requeue.item") == "0");
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e43_a_process_that_is_too_old_says_so_ends_its_runs_and_puts_its_keys_back() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q = pg.queue::<String>("orders").prefetch(10).open().wait().expect("the schema is there");
    let (begins, begun) = std::sync::mpsc::channel();
    let worker = Worker::of(&q).workers(1).start_threads(move |run: Run<String>| {
        begins.send(()).expect("the test goes on");
        until("it is told to end", || run.cancelled());
        Outcome::Done
    });
    let worker = worker.expect("a thread");
    for key in ["runs", "claimed", "too"] {
        q.add(key.into()).wait().expect("it is up");
    }
    begun.recv_timeout(LONG).expect("it runs");
    until("all are claimed", || db.sql("select count(*) from requeue.item where state = 2") == "3");
    // as a migration to a version that no longer serves programs of this one
    db.sql("update requeue.meta set version = 1000");
    until("it notices", || q.outdated().is_some());
    let why = q.outdated().expect("it is too old").to_string();
    assert!(why.contains("1000") && why.contains("newer release"), "{why}");
    let refused = q.add("more".into()).wait().expect_err("it is too old").error;
    assert!(matches!(refused, EngineError::Version { found: 1000, .. }), "{refused}");
    worker.join(); // its workers end
    until("its keys are back", || db.sql("select count(*) from requeue.item where state = 1") == "3");
    until("its lease is given up", || db.sql("select count(*) from requeue.owner") == "0");
    assert_eq!(q.trouble(), Some(why), "and why is told");
    // and one that looks on does nothing
    let client = pg.client("orders").add_many(&["k".to_owned()], None, 0).wait().expect_err("it is too old");
    assert!(matches!(client, EngineError::Version { found: 1000, .. }), "{client}");
}

#[test]
fn e43_a_process_that_only_adds_says_that_it_is_too_old() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    q.add("before".into()).wait().expect("it is up");
    db.sql("update requeue.meta set version = 1000");
    until("it notices", || q.outdated().is_some());
    let failed = q.add("k".into()).wait().expect_err("it is too old");
    assert_eq!(failed.key, "k", "the key comes back");
    assert!(matches!(failed.error, EngineError::Version { found: 1000, .. }), "{}", failed.error);
    assert_eq!(db.sql("select count(*) from requeue.item"), "1");
}
