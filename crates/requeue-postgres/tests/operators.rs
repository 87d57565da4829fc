//! Rule E44: the SQL interface for people. The examples of SQL.md are run here.

#![allow(clippy::unwrap_used)]

mod common;

use self::common::cluster::Cluster;
use self::common::{Database, LONG, block_on, open, until};
use requeue::{Outcome, Run, Worker};
use requeue_engine::EngineError;
use requeue_postgres::Postgres;

/// The examples of a page, in their order.
fn examples(page: &str) -> Vec<&str> {
    page.split("```sql\n").skip(1).map(|rest| rest.split_once("```").expect("its end").0).collect()
}

/// The message of PostgreSQL for a statement that it refuses.
fn refusal(db: &Database, sql: &str) -> String {
    block_on(async {
        let refused = db.client().await.batch_execute(sql).await.expect_err(sql);
        refused.as_db_error().expect("the server says why").message().to_owned()
    })
}

#[test]
fn e44_the_examples_of_the_sql_interface_run_as_they_stand() {
    // roles are the server's, so that it is one of its own
    let Some(cluster) = Cluster::start("") else { return };
    let url = cluster.database();
    Postgres::connect(&url).wait().expect("it is up").migrate().wait().expect("a schema");
    block_on(async {
        let db = common::client(&url).await;
        for example in examples(include_str!("../SQL.md")) {
            db.batch_execute(example).await.unwrap_or_else(|why| panic!("{example}: {why:?}"));
        }
        // each object that they name, and that is for people, is on the page
        let names = "select proname from pg_proc p join pg_description d on d.objoid = p.oid
            where pronamespace = 'requeue'::regnamespace and pg_get_function_identity_arguments(p.oid) like 'queue text%'
              and proname not in ('queue_id')
            union select viewname from pg_views where schemaname = 'requeue'";
        for row in db.query(names, &[]).await.expect("it is up") {
            let name: String = row.get(0);
            assert!(include_str!("../SQL.md").contains(&format!("requeue.{name}")), "{name}");
        }
        // and the roles may do what is said
        for (role, may) in [
            (
                "requeue_worker",
                "select requeue.add('orders', 'a'), requeue.pause('orders'), requeue.resume('orders')",
            ),
            (
                "requeue_reader",
                "select * from requeue.queues, requeue.keys, requeue.running, requeue.dead_keys, requeue.processes",
            ),
            ("requeue_adder", "select requeue.add_tx('orders', 'b')"),
        ] {
            db.batch_execute(&format!("set role {role}; {may}; reset role")).await.expect(may);
        }
    });
}

#[test]
fn e44_each_object_of_the_schema_has_a_comment() {
    let Some(db) = Database::new() else { return };
    let without = "
        select 'schema' where obj_description('requeue'::regnamespace) is null
        union all select oid::regclass::text from pg_class where relnamespace = 'requeue'::regnamespace and relkind in ('r', 'v', 'S')
          and obj_description(oid, 'pg_class') is null
        union all select attrelid::regclass || '.' || attname from pg_attribute a join pg_class c on c.oid = attrelid
          where relnamespace = 'requeue'::regnamespace and relkind in ('r', 'v') and attnum > 0 and not attisdropped
          and col_description(attrelid, attnum) is null
        union all select oid::regprocedure::text from pg_proc where pronamespace = 'requeue'::regnamespace
          and obj_description(oid, 'pg_proc') is null";
    assert_eq!(db.sql(without), "");
}

#[test]
fn e44_a_misspelt_name_makes_no_queue_and_the_most_similar_names_are_told() {
    let Some(db) = Database::new() else { return };
    db.sql("select requeue.make_queue('orders'), requeue.make_queue('reports')");
    for call in [
        "add('ordres', 'k')",
        "add_many('ordres', array['k'])",
        "add_tx('ordres', 'k')",
        "cancel_key('ordres', 'k')",
        "retry_key('ordres', 'k')",
        "pause('ordres')",
        "resume('ordres')",
        "purge('ordres')",
        "drop_queue('ordres')",
    ] {
        let told = refusal(&db, &format!("select requeue.{call}"));
        assert!(
            told.starts_with("there is no queue 'ordres'; the most similar names are 'orders', "),
            "{call}: {told}"
        );
    }
    // nor does the library make one
    let client = db.connect().client("ordres");
    let keys = ["k".to_owned()];
    for told in [
        client.add_many(&keys, None, 0).wait().expect_err("there is none"),
        client.stats().wait().map(drop).expect_err("there is none"),
        client.list().wait().map(drop).expect_err("there is none"),
    ] {
        assert!(
            matches!(told, EngineError::NotApplied(_)) && told.to_string().contains("'orders'"),
            "{told}"
        );
    }
    assert_eq!(db.sql("select string_agg(name, ' ' order by name) from requeue.queue"), "orders reports");
    assert_eq!(
        db.sql("select requeue.add_many('ordres', array['k'], make => true)"),
        "1",
        "unless it is asked for"
    );
    let pg = db.connect();
    assert!(pg.make_queue("new").wait().expect("it is up"));
    assert!(!pg.make_queue("new").wait().expect("it is there"));
    pg.client("new").add_many(&keys, None, 0).wait().expect("it is there");
}

#[test]
fn e44_the_name_of_a_queue_is_checked_once_it_is_to_be_made() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    for name in ["", "two\nlines", "red\u{1b}[31m", &"long".repeat(51)] {
        let told = [
            pg.make_queue(name).wait().map(drop).expect_err(name),
            pg.queue::<String>(name).open().wait().map(drop).expect_err(name),
        ];
        for told in told {
            let told = told.to_string();
            assert!(told.contains("1 to 200 bytes") && !told.contains(['\n', '\u{1b}']), "{told}");
        }
    }
    assert!(pg.make_queue(&"é".repeat(100)).wait().expect("it fits"));
    // one that a program of version 1 has made goes on
    db.sql("insert into requeue.queue(name) values (E'odd\\x1b'); insert into requeue.floor select id, 0, 0 from requeue.queue where name like 'odd%'");
    pg.queue::<String>("odd\u{1b}").open().wait().expect("it is there");
}

#[test]
fn e44_who_runs_a_key_and_for_how_long_is_told() {
    let Some(db) = Database::new() else { return };
    let pg = Postgres::connect(&format!("{} application_name='the shop'", db.url)).wait().expect("it is up");
    let q = open(&pg);
    let (begins, begun) = std::sync::mpsc::channel();
    let (ends, may_end) = std::sync::mpsc::channel::<()>();
    let may_end = std::sync::Mutex::new(may_end);
    let worker = Worker::of(&q).workers(1).start_threads(move |_: Run<String>| {
        begins.send(()).expect("the test goes on");
        may_end.lock().unwrap().recv().ok();
        Outcome::GiveUp("it is broken".into())
    });
    let worker = worker.expect("a thread");
    q.add("k".into()).wait().expect("it is up");
    begun.recv_timeout(LONG).expect("it runs");
    let machine =
        std::fs::read_to_string("/proc/sys/kernel/hostname").expect("it is Linux").trim().to_owned();
    let who = format!("{machine}|{}|the shop", std::process::id());
    let running = "select host, pid, application from requeue.running where queue = 'orders' and key = 'k' and running_for > '0' and lease_left > '0'";
    assert_eq!(db.sql(running), who);
    assert_eq!(db.sql("select host, pid, application from requeue.processes where running = 1"), who);
    assert_eq!(db.sql("select status, host from requeue.keys"), format!("running|{machine}"));
    let listed = q.state(&"k".into()).wait().expect("it is up").expect("it is known");
    let holder = listed.holder.expect("somebody has it");
    assert_eq!(
        (&*holder.host, holder.pid, &*holder.application),
        (&*machine, std::process::id(), "the shop")
    );
    assert_eq!(db.sql("select queue, running, dead, processes from requeue.queues"), "orders|1|0|1");
    ends.send(()).expect("it waits");
    until("it has given up", || db.sql("select count(*) from requeue.dead_keys") == "1");
    assert_eq!(db.sql("select key, error, added_again from requeue.dead_keys"), "k|it is broken|f");
    assert_eq!(db.sql("select status, error from requeue.keys"), "dead|it is broken");
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e44_a_queue_is_dropped_when_nobody_needs_it_or_by_force() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q = open(&pg);
    let worker = Worker::of(&q).workers(1).start_threads(|_: Run<String>| Outcome::Done).expect("a thread");
    until("it works", || db.sql("select processes from requeue.queues") == "1");
    assert!(
        refusal(&db, "select requeue.drop_queue('orders')").contains("1 process(es) work on queue 'orders'")
    );
    assert!(worker.stop(LONG).wait().complete);
    q.leave().wait().expect("it is up");
    db.sql("select requeue.add('orders', 'k', grp => 'g'), requeue.add_tx('orders', 'l')");
    assert!(refusal(&db, "select requeue.drop_queue('orders')").contains("queue 'orders' has 2 keys"));
    db.sql("select requeue.make_queue('other'), requeue.add('other', 'k'), requeue.drop_queue('orders', force => true)");
    assert_eq!(db.sql("select queue, key from requeue.keys"), "other|k");
    assert_eq!(db.sql("select queue from requeue.queues"), "other");
    db.sql("select requeue.cancel_key('other', 'k'), requeue.drop_queue('other')");
    assert_eq!(
        db.sql("select (select count(*) from requeue.queue) + (select count(*) from requeue.floor)"),
        "0"
    );
}

#[test]
fn e44_keys_that_are_no_text_are_shown_and_long_ones_refused() {
    let Some(db) = Database::new() else { return };
    db.sql("select requeue.make_queue('orders'); select requeue.add(1, array['\\xff00'::bytea, 'é'], array[0, 0], array[0, 0])");
    assert_eq!(db.sql("select string_agg(key, ' ' order by key) from requeue.keys"), "\\xff00 é");
    let told = refusal(&db, "select requeue.add('orders', repeat('l', 2601))");
    assert!(told.contains("has 2601 bytes; a server keeps 2600 at most"), "{told}");
    assert!(refusal(&db, "select requeue.add_many('orders', array['k', null])").contains("null"));
    assert!(
        refusal(&db, "select requeue.add_many('orders', array['k'], every => '0')").contains("longer than 0")
    );
    assert_eq!(db.sql("select requeue.add_many('orders', '{}')"), "0");
}
