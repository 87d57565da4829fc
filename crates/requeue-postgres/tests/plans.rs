//! Rule E25: PostgreSQL's plan for a statement does not depend on its planner's statistics of the tables.
//!
//! Each call is made on tables that were never analysed, that were analysed while they were full, while they
//! were empty, and while there was one row among thousands of dead ones. The server logs the plan of each
//! statement, including those inside its functions (`auto_explain`): none may scan a whole table, and each
//! look-up of a key has the key in the condition of an index.

mod common;

use self::common::LONG;
use self::common::cluster::Cluster;
use requeue::{Add, Outcome, Run, Worker};
use requeue_postgres::{GroupRules, Postgres};
use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

/// `requeue.triggers`, `requeue.cancel` and `requeue.retry`.
const OPERATORS: [&str; 3] = [
    "select x.key, greatest(0, x.delay_us",
    "delete from requeue.inbox b where b.queue = q and b.key = k_",
    "update requeue.inbox b set delay_us = 0 where b.queue = q and b.key = k_",
];

/// All calls of a worker, an adder and an operator on one key, in a queue with this name: with groups, or
/// without.
fn calls(url: &str, round: &str, name: &str, groups: bool) {
    let pg = Postgres::connect(url).wait().expect("it is up");
    let q = pg.queue_with::<String, Vec<u32>>(name, Extend::extend).lease(Duration::from_secs(5));
    let first = |key: &String| key.chars().take(1).collect::<String>();
    let rules = GroupRules::new().cap(2).weight(&"b".to_owned(), 3);
    let q = if groups { q.group_by_with(first, rules) } else { q };
    let q = q.open().wait().expect("it opens");
    let (tell, ran) = mpsc::channel();
    let worker =
        Worker::of(&q).workers(4).max_attempts(2).start_threads(move |run: Run<String, Vec<u32>>| {
            tell.send((run.key().clone(), run.attempt())).expect("the test goes on");
            match run.key() {
                key if key.starts_with("bad") => Outcome::Retry("not yet".into()),
                key if key.starts_with("again") && run.attempt() == 1 => Outcome::Retry("not yet".into()),
                _ => Outcome::Done,
            }
        });
    let worker = worker.expect("threads");
    let client = q.client();
    if groups {
        client.pause_group(&"b".to_owned()).wait().expect("up");
    }
    let keys: Vec<String> = ["a", "b", "again", "bad"].iter().map(|it| format!("{it}-{round}")).collect();
    client.add_many(&keys, None, 0).wait().expect("up");
    q.add_with(keys[0].clone(), Add::now().value(vec![1]).priority(5)).wait().expect("up");
    q.add_after(keys[1].clone(), Duration::from_millis(1)).wait().expect("up");
    // the line may be long: what is known of one key is asked for meanwhile
    for key in &keys {
        client.state(key).wait().expect("up");
    }
    client.cancel(&"unknown".to_owned()).wait().expect("up");
    client.retry(&"unknown".to_owned()).wait().expect("up");
    client.stats().wait().expect("up");
    client.list().wait().expect("up");
    if groups {
        client.resume_group(&"b".to_owned()).wait().expect("up");
    }
    let mut left: BTreeSet<&String> = keys.iter().collect();
    while !left.is_empty() {
        let (key, _) = ran.recv_timeout(LONG).expect("a run");
        left.remove(&key);
    }
    assert!(worker.stop(LONG).wait().complete);
    client.retry(&keys[3]).wait().expect("up");
    client.cancel(&keys[3]).wait().expect("up");
}

/// The faulty plans in a log: lines with the plan step and its statement.
fn faults(log: &str) -> BTreeSet<String> {
    let mut faults = BTreeSet::new();
    let (mut statement, mut scan) = (String::new(), String::new());
    for line in log.lines() {
        let said = line.trim();
        if let Some(text) = said.strip_prefix("Query Text: ") {
            statement = text.to_owned();
        }
        let on_ours = ["item", "inbox", "dead", "groups", "turn"]
            .iter()
            .any(|table| said.contains(&format!(" on {table} ")));
        // an operator's question about one key reads what is still in the inbox, which has no index for that:
        // every add in a transaction would pay for it, and the processes that work empty it
        if said.contains(" on inbox ") && OPERATORS.iter().any(|call| statement.starts_with(call)) {
            scan.clear();
            continue;
        }
        if said.contains(" Scan") {
            scan = said.split("  (cost").next().unwrap_or(said).to_owned();
        }
        // there are few queues and few owners: how those are found does not matter
        if on_ours && (said.contains("Seq Scan") || said.contains("Bitmap")) {
            faults.insert(format!("{scan}: {statement}"));
        }
        // a key, a place or a timer that is compared row by row
        let is_filter = said.starts_with("Filter:")
            || said.starts_with("Rows Removed")
            || said.starts_with("Join Filter:");
        let is_ours = scan.contains(" on item ") || scan.contains(" on inbox ") || scan.contains(" on dead ");
        let compared = ["key", "pos >=", "id >=", "due_at <=", "clock_timestamp", "grp = ", "grp > "];
        if is_filter && is_ours && compared.iter().any(|what| said.contains(what)) {
            faults.insert(format!("{scan}, {said}: {statement}"));
        }
        if said.contains("hashed SubPlan") {
            faults.insert(format!("{said}: {statement}"));
        }
    }
    faults
}

#[test]
fn e25_no_plan_depends_on_statistics() {
    let settings = "session_preload_libraries = 'auto_explain'\nauto_explain.log_min_duration = 0\n\
                    auto_explain.log_nested_statements = on\nautovacuum = off\nfsync = off\n";
    let Some(cluster) = Cluster::start(settings) else { return };
    let url = cluster.database();
    let name = url.rsplit('=').next().expect("a name").to_owned();
    let sql = |text: &str| cluster.sql(&name, text);
    Postgres::connect(&url).wait().expect("it is up").migrate().wait().expect("it may");
    let log = || std::fs::read_to_string(cluster.folder().with_extension("log")).expect("a log");
    // in other queues of the same tables
    let fill = |queue: &str, groups: &str| {
        sql(&format!(
            "select count(*) from requeue.add(requeue.open('{queue}'), array(select convert_to('k' || n, 'UTF8') from generate_series(1, 30000) n),
             array_fill(0::bigint, array[30000]), array_fill(0, array[30000]), gs => {groups})"
        ))
    };
    let thousands = "array(select convert_to((n % 3000)::text, 'UTF8') from generate_series(1, 30000) n)";
    let check = |round: &str| {
        let begin = log().len(); // what the test itself has done is not looked at
        std::thread::scope(|threads| {
            threads.spawn(|| calls(&url, round, "orders", false));
            threads.spawn(|| calls(&url, round, "tenants", true));
        });
        let refused = "exception when others then null; end $$";
        sql(&format!("do $$ begin perform requeue.guard(1, 'unknown', 1); {refused}"));
        sql(&format!("do $$ begin perform requeue.succeed(1, 'unknown', 1); {refused}"));
        let log = log();
        let faults = faults(&log[begin..]);
        for index in ["item_pkey on item", "item_ready on item", "item_turn on item", "item_held on item"] {
            assert!(log[begin..].contains(&format!("using {index}")), "no plan has {index}");
        }
        assert!(faults.is_empty(), "{round}:\n{}", faults.into_iter().collect::<Vec<_>>().join("\n"));
    };
    check("never analysed");
    sql("analyze requeue.item, requeue.inbox, requeue.dead, requeue.groups, requeue.turn");
    check("empty when it was analysed");
    fill("other", "null");
    fill("others", thousands);
    check("thirty thousand of which the statistics say nothing");
    sql("analyze requeue.item");
    check("thirty thousand");
    sql("delete from requeue.item");
    check("thirty thousand dead ones, analysed when they were not");
    sql("analyze requeue.item");
    check("thirty thousand dead ones");
    // As vacuum leaves it while a snapshot is held: it counts few rows, and the index of the line is larger than that of the
    // keys, which packs versions of one key together.
    sql("truncate requeue.item; delete from pg_statistic where starelid = 'requeue.item'::regclass");
    sql("select count(*) from requeue.add(1, array(select convert_to('k' || n, 'UTF8') from generate_series(1, 100) n),
         array_fill(0::bigint, array[100]), array_fill(0, array[100]))");
    sql(
        "do $$ begin for n in 1..300 loop update requeue.item set pos = nextval('requeue.pos_seq'); end loop; end $$",
    );
    sql(
        "update pg_class set reltuples = 100, relpages = pg_relation_size(oid) / 8192 where oid = 'requeue.item'::regclass",
    );
    check("a hundred, each with three hundred dead versions");
    sql(
        "insert into requeue.groups select 99, requeue.ring(convert_to(n::text, 'UTF8')) from generate_series(1, 30000) n",
    );
    sql("analyze requeue.groups, requeue.turn");
    check("thirty thousand groups with rules");
}
