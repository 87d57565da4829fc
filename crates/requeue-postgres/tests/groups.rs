//! Rule B3 on a server: groups take turns across all processes. Most of these tests have several sessions
//! that call `requeue.next` concurrently, like processes; their keys are then put in the order in which they
//! were handed out.

mod common;

use self::common::{Database, LONG, block_on, until};
use requeue::{Add, Outcome, Run, Worker};
use requeue_engine::Status;
use requeue_postgres::{GroupRules, Queue};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls};

/// Adds this number of keys of a group to the queue.
fn fills(db: &Database, group: &str, keys: u32) {
    db.sql(&fill(group, 1, keys));
}

fn set_rules(db: &Database, rules: GroupRules<String>) {
    let pg = db.connect();
    pg.make_queue("orders").wait().expect("it is up");
    pg.client("orders").set_group_rules(rules).wait().expect("it is up");
}

/// SQL that adds this number of keys of a group, named `group/n`.
fn fill(group: &str, from: u32, keys: u32) -> String {
    format!(
        "select count(*) from requeue.add(requeue.open('orders'),
           array(select convert_to('{group}/' || n, 'UTF8') from generate_series({from}, {from} + {keys} - 1) n),
           array_fill(0::bigint, array[{keys}]), array_fill(0, array[{keys}]),
           gs => array_fill(convert_to('{group}', 'UTF8'), array[{keys}]))"
    )
}

fn tenant(key: &str) -> String {
    key.split('/').next().unwrap_or_default().to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A session that works on the queue like a process.
struct Session {
    client: Client,
    queue: i32,
    owner: i64,
}

/// A key that was handed out, and the fence of its run.
type Given = (Vec<u8>, i64);

impl Session {
    async fn new(db: &Database) -> Self {
        let client = db.client().await;
        let queue = client.query_one("select requeue.open('orders')", &[]).await.expect("a queue").get(0);
        let join = "select requeue.join_($1, 'test', 3600000000)";
        let owner = client.query_one(join, &[&queue]).await.expect("an owner").get(0);
        Self { client, queue, owner }
    }

    /// Ends runs as succeeded, and claims keys.
    async fn next(&self, most: i32, ends: &[Given]) -> Vec<Given> {
        let keys: Vec<&[u8]> = ends.iter().map(|it| &*it.0).collect();
        let fences: Vec<i64> = ends.iter().map(|it| it.1).collect();
        let (how, zeros, nones) = (vec![0_i16; keys.len()], vec![0_i64; keys.len()], vec![0; keys.len()]);
        let none: Vec<Option<String>> = vec![None; keys.len()];
        let next = "select kind, k, f from requeue.next($1, $2, $3, $4, $5, $6, $7, $8, $8,
                    array_fill(null::jsonb, array[cardinality($4::bytea[])]), $9)";
        let rows = self
            .client
            .query(next, &[&self.queue, &self.owner, &most, &keys, &fences, &how, &zeros, &nones, &none])
            .await
            .expect("it is up");
        let accepted =
            rows.iter().filter(|row| row.get::<_, i32>(0) == 0 && row.get::<_, i64>(2) > 0).count();
        assert_eq!(accepted, ends.len(), "an end was refused");
        rows.iter().filter(|row| row.get::<_, i32>(0) == 1).map(|row| (row.get(1), row.get(2))).collect()
    }
}

/// Runs many concurrent sessions, which claim a few keys each time and end the runs with the next claim,
/// until there are none or `over` returns true for a session's latest keys. Returns the groups of the keys in
/// hand-out order: claims do not overlap, so the fences of one are all before those of the next.
fn work(db: &Database, sessions: u64, over: impl Fn(&[Given]) -> bool + Sync) -> Vec<String> {
    let claims = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for nth in 0..sessions {
            let (claims, over) = (&claims, &over);
            threads.spawn(move || {
                block_on(async {
                    let session = Session::new(db).await;
                    let (mut ends, mut random) = (Vec::new(), 0x9e37_79b9_7f4a_7c15_u64 ^ nth);
                    loop {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        // one of them wants several rounds at once
                        let most =
                            i32::try_from(random >> 33).unwrap_or(0) % if nth == 0 { 90 } else { 9 } + 1;
                        let given = session.next(if over(&ends) { 0 } else { most }, &ends).await;
                        if given.is_empty() {
                            return;
                        }
                        claims.lock().expect("no panic").push(given.clone());
                        ends = given;
                    }
                });
            });
        }
    });
    let mut claims = claims.into_inner().expect("no panic");
    let fences = |claim: &Vec<Given>| {
        let fences = claim.iter().map(|it| it.1);
        (fences.clone().min(), fences.max())
    };
    claims.sort_by_key(|claim| fences(claim).0);
    for both in claims.windows(2) {
        assert!(fences(&both[0]).1 < fences(&both[1]).0, "two claims overlap");
    }
    claims.into_iter().flatten().map(|(key, _)| tenant(&text(&key))).collect()
}

/// Checks rule B3 for groups that always wait: between two turns of a group each other has its weight, and of
/// two groups the numbers of keys divided by weights differ by at most 2, since any moment.
fn is_fair(order: &[String], weights: &BTreeMap<&str, i64>) {
    for (a, &wa) in weights {
        for (b, &wb) in weights.iter().filter(|(b, _)| *b != a) {
            let (mut since, mut sum, mut least, mut most) = (0, 0, 0, 0);
            for group in order {
                if group == a {
                    since = 0;
                    sum += wb;
                } else if group == b {
                    since += 1;
                    sum -= wa;
                    assert!(since <= wb, "{b} got {since} keys while {a} waited");
                }
                (least, most) = (least.min(sum), most.max(sum));
            }
            // (served a / wa) - (served b / wb), times wa * wb
            assert!(
                most - least <= 2 * wa * wb,
                "{a} and {b} are {} turns apart",
                (most - least) / (wa * wb)
            );
        }
    }
}

#[test]
fn b3_groups_take_turns_by_weight_whoever_asks() {
    let Some(db) = Database::new() else { return };
    let weights: BTreeMap<&str, i64> = [("a", 1), ("b", 3), ("c", 2), ("d", 1), ("e", 7)].into();
    let named = |rules: GroupRules<String>, (group, weight): (&&str, &i64)| {
        rules.weight(&(*group).to_owned(), u32::try_from(*weight).expect("small"))
    };
    set_rules(&db, weights.iter().fold(GroupRules::new(), named));
    for (group, weight) in &weights {
        fills(&db, group, 150 * u32::try_from(*weight).expect("small"));
    }
    let order = work(&db, 4, |_| false);
    assert_eq!(order.len(), 150 * 14);
    is_fair(&order, &weights);
}

#[test]
fn b3_groups_that_come_and_go_wait_for_one_turn_of_each_other() {
    let Some(db) = Database::new() else { return };
    let weights: BTreeMap<&str, i64> = [("busy", 4), ("also", 1)].into();
    set_rules(&db, GroupRules::new().weight(&"busy".to_owned(), 4));
    fills(&db, "busy", 80_000);
    fills(&db, "also", 30_000);
    let gone = AtomicBool::new(false);
    let [added, served, all_served] = [(); 3].map(|()| AtomicUsize::new(0));
    let of_some = |key: &[u8]| key.starts_with(b"g");
    let order = std::thread::scope(|threads| {
        threads.spawn(|| {
            // one key of each of forty groups, again and again
            block_on(async {
                let adds = Session::new(&db).await.client;
                for nth in 0..20 {
                    for group in 0..40 {
                        // it waits for who works, which may be slower
                        until("a turn of each", || added.load(SeqCst) <= served.load(SeqCst) + 40);
                        adds.batch_execute(&fill(&format!("g{group}"), nth, 1)).await.expect("it is up");
                        added.fetch_add(1, SeqCst);
                    }
                }
            });
            gone.store(true, SeqCst);
        });
        work(&db, 3, |given| {
            served.fetch_add(given.iter().filter(|it| of_some(&it.0)).count(), SeqCst);
            all_served.fetch_add(given.len(), SeqCst);
            // the processes wait for it as well, so that the groups that always wait do not run dry
            until("more keys", || {
                let keys = added.load(SeqCst);
                gone.load(SeqCst) || keys > served.load(SeqCst) || all_served.load(SeqCst) <= 75 * (keys + 1)
            });
            gone.load(SeqCst)
        })
    });
    let all = order.iter().filter(|group| of_some(group.as_bytes())).count();
    assert!(all >= 750, "{all} of 800 have run beside {} keys of groups that always wait", order.len() - all);
    let busy = order.iter().filter(|group| *group == "busy").count();
    assert!(busy < 80_000, "the groups that always wait have run dry");
    is_fair(&order, &weights);
    // and a group gets no more than a turn while another waits
    let mut since: HashMap<&str, u32> = HashMap::new();
    for group in &order {
        match group.as_str() {
            "also" => since.clear(),
            "busy" => {}
            group => {
                let keys = since.entry(group).or_default();
                *keys += 1;
                assert_eq!(*keys, 1, "{group} had two turns while another waited");
            }
        }
    }
}

#[test]
fn b3_caps_hold_for_all_processes_together_whatever_becomes_of_them() {
    let Some(db) = Database::new() else { return };
    set_rules(
        &db,
        GroupRules::new().cap(3).cap_of(&"wide".to_owned(), 5).cap_of(&"free".to_owned(), usize::MAX),
    );
    for group in ["a", "b", "wide", "free"] {
        fills(&db, group, 150);
    }
    let most = Mutex::new(BTreeMap::new());
    std::thread::scope(|threads| {
        for nth in 0..3 {
            let (db, most) = (&db, &most);
            threads.spawn(move || block_on(claims_and_dies(db, nth, most)));
        }
    });
    let most = most.into_inner().expect("no panic");
    // looks after each claim, which need not have met the peak
    for (group, cap) in [("a", 3), ("b", 3), ("wide", 5)] {
        assert!(most.get(group).is_some_and(|held| *held <= cap), "held at once: {most:?}");
    }
    assert_eq!(db.sql("select count(*) from requeue.item"), "0");
}

/// A process that ends some of its runs and, now and then, dies: its keys go to others, or back in line.
/// After each claim it records the maximum number of held keys of each group.
async fn claims_and_dies(db: &Database, nth: usize, most: &Mutex<BTreeMap<String, i64>>) {
    let looks =
        "select convert_from(substr(grp, 5), 'UTF8'), count(*) from requeue.item where state = 2 group by 1";
    let mut session = Session::new(db).await;
    let mut held: Vec<Given> = Vec::new();
    for step in nth.. {
        let ends = held.split_off(held.len() / 2);
        let given = session.next(9, &ends).await;
        let none = given.is_empty() && held.is_empty();
        held.extend(given);
        for row in session.client.query(looks, &[]).await.expect("it is up") {
            let mut most = most.lock().expect("no panic");
            let most = most.entry(row.get(0)).or_default();
            *most = (*most).max(row.get(1));
        }
        if step % 7 == 0 {
            let other = Session::new(db).await;
            let fences: Vec<i64> = held.iter().take(2).map(|it| it.1).collect();
            held.truncate(2);
            if step % 2 == 0 {
                let settle = "select requeue.settle($1, $2, $3, $4)";
                let owners = (session.owner, other.owner);
                let params: [&(dyn ToSql + Sync); 4] = [&session.queue, &owners.0, &owners.1, &fences];
                session.client.query(settle, &params).await.expect("it is up");
            } else {
                held.clear();
                let dies = "update requeue.owner set lease_until = '-infinity' where id = $1";
                session.client.query(dies, &[&session.owner]).await.expect("it is up");
                session.client.query("select requeue.reap(1000)", &[]).await.expect("it is up");
            }
            session = other;
        }
        let left = "select exists(select 1 from requeue.item)";
        if none && !session.client.query_one(left, &[]).await.expect("it is up").get::<_, bool>(0) {
            return;
        }
    }
}

#[test]
fn b3_whoever_sleeps_is_woken_when_a_group_is_below_its_cap_again() {
    let Some(db) = Database::new() else { return };
    set_rules(&db, GroupRules::new().cap(1));
    fills(&db, "a", 2);
    let asleep = db.connect().queue::<String>("orders").open().wait().expect("it opens");
    block_on(async {
        let session = Session::new(&db).await;
        let held = session.next(9, &[]).await;
        assert_eq!(held.len(), 1);
        let (tell, ran) = mpsc::channel();
        let worker = Worker::of(&asleep).workers(1).start_threads(move |run: Run<String>| {
            drop(tell.send(run.key().clone()));
        });
        until("a worker that sleeps", || db.sql("select count(*) from requeue.owner where idle") == "1");
        let listens = tokio_postgres::connect(&db.url, NoTls).await.expect("it is up");
        let (client, mut connection) = listens;
        let (notified, mut notices) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                let is_notice = matches!(message, tokio_postgres::AsyncMessage::Notification(_));
                if notified.send(is_notice).is_err() {
                    return;
                }
            }
        });
        client.batch_execute("listen requeue").await.expect("it is up");
        // it ends its run and does not want the next key
        session.next(0, &held).await;
        let notice = tokio::time::timeout(LONG, notices.recv()).await;
        assert_eq!(notice.ok().flatten(), Some(true), "nobody was notified");
        assert_eq!(tenant(&ran.recv_timeout(LONG).expect("a run")), "a");
        assert!(worker.expect("threads").stop(LONG).wait().complete);
    });
}

#[test]
fn b3_a_paused_group_is_passed_over_in_all_processes_until_it_is_resumed() {
    let Some(db) = Database::new() else { return };
    let q =
        db.connect().queue::<String>("orders").group_by(|key| tenant(key)).open().wait().expect("it opens");
    let client = db.connect().client("orders");
    let group = "a".to_owned();
    assert!(client.pause_group(&group).wait().expect("it is up"));
    assert!(!client.pause_group(&group).wait().expect("it is up"));
    for key in ["a/1", "b/1", "a/2"] {
        q.add(key.to_owned()).wait().expect("it is up");
    }
    let (worker, ran) = works(&q);
    assert_eq!(ran.recv_timeout(LONG).expect("a run"), "b/1");
    until("a worker that sleeps", || db.sql("select count(*) from requeue.owner where idle") == "1");
    assert_eq!(db.sql("select count(*) from requeue.item where state = 1"), "2");
    assert_eq!(client.stats().wait().expect("it is up").ready, 2);
    assert!(client.resume_group(&group).wait().expect("it is up"));
    assert!(!client.resume_group(&group).wait().expect("it is up"));
    assert_eq!(ran.recv_timeout(LONG).expect("a run"), "a/1");
    assert_eq!(ran.recv_timeout(LONG).expect("a run"), "a/2");
    assert_eq!(db.sql("select count(*) from requeue.groups"), "0", "a group without rules keeps no row");
    assert!(worker.stop(LONG).wait().complete);
}

fn works(q: &Queue<String>) -> (Worker, mpsc::Receiver<String>) {
    let (tell, ran) = mpsc::channel();
    let worker = Worker::of(q).workers(1).start_threads(move |run: Run<String>| {
        drop(tell.send(run.key().clone()));
    });
    (worker.expect("threads"), ran)
}

#[test]
fn b3_groups_take_turns_within_a_priority() {
    let Some(db) = Database::new() else { return };
    let q =
        db.connect().queue::<String>("orders").group_by(|key| tenant(key)).open().wait().expect("it opens");
    for key in ["a/1", "a/2", "b/1", "a/3"] {
        q.add(key.to_owned()).wait().expect("it is up");
    }
    for key in ["a/urgent1", "a/urgent2", "c/urgent"] {
        q.add_with(key.to_owned(), Add::now().priority(7)).wait().expect("it is up");
    }
    q.add_with("b/idle".to_owned(), Add::now().priority(-7)).wait().expect("it is up");
    let order = block_on(async {
        let session = Session::new(&db).await;
        let mut order = Vec::new();
        for most in [2, 3, 9] {
            order.extend(session.next(most, &[]).await.into_iter().map(|(key, _)| text(&key)));
        }
        order
    });
    // which group comes first in a round is the ring's affair
    let at = |key: &str| order.iter().position(|it| it == key).expect("it ran");
    assert_eq!(at("a/urgent1").max(at("a/urgent2")).max(at("c/urgent")), 2, "{order:?}");
    assert_eq!(at("c/urgent").min(1), at("c/urgent"), "{order:?}");
    assert!(at("a/1") < at("a/2") && at("a/2") < at("a/3") && at("b/1") < at("a/2"), "{order:?}");
    assert_eq!(at("b/idle"), 7, "{order:?}");
}

#[test]
fn b3_a_key_keeps_its_group_whatever_becomes_of_it() {
    let Some(db) = Database::new() else { return };
    let groups = |table: &str| {
        db.sql(&format!("select string_agg(distinct coalesce(convert_from(substr(grp, 5), 'UTF8'), '-'), ' ') from requeue.{table}"))
    };
    // by the smallest of clients, and by one that says no group later
    db.sql("select requeue.make_queue('orders'); select requeue.add_tx('orders', 'x', grp => 'a')");
    let plain = db.connect().queue::<String>("orders").open().wait().expect("it opens");
    let worker = Worker::of(&plain)
        .workers(1)
        .max_attempts(2)
        .start_threads(|_: Run<String>| Outcome::Retry("no".into()));
    let worker = worker.expect("threads");
    let client = plain.client();
    until(
        "the end of the second try",
        || matches!(client.state(&"x".to_owned()).wait(), Ok(Some(known)) if known.status == Status::Dead),
    );
    assert_eq!(groups("dead"), "a");
    assert!(worker.stop(LONG).wait().complete);
    assert!(client.retry(&"x".to_owned()).wait().expect("it is up"));
    assert_eq!(groups("item"), "a");
    plain.add("x".to_owned()).wait().expect("it is up");
    assert_eq!(groups("item"), "a");
    // of a client without a type for its keys, and of the queue's own
    let by_client = db.connect().client("orders").group_by(|key| text(key)[..1].to_owned());
    by_client.add_many(&["b1".to_owned(), "c1".to_owned()], Some(LONG), 0).wait().expect("it is up");
    let typed = db.connect().queue::<u64>("orders").group_by(|key| key % 10).open().wait().expect("it opens");
    typed.client().add_many(&[4711_u64, 4712], None, 0).wait().expect("it is up");
    assert_eq!(groups("item"), "1 2 a b c");
    block_on(async {
        let mut client = Session::new(&db).await.client;
        let tx = client.transaction().await.expect("it is up");
        typed.add_in(&tx, 4713, Add::now()).await.expect("it is up");
        tx.commit().await.expect("it is up");
    });
    let folded = "select requeue.fold(1, 0, 10)";
    db.sql(folded);
    assert_eq!(groups("item"), "1 2 3 a b c");
}

#[test]
fn b3_a_key_that_somebody_changes_is_left_out_and_nobody_waits_for_it() {
    let Some(db) = Database::new() else { return };
    fills(&db, "a", 2);
    fills(&db, "b", 5);
    block_on(async {
        let (session, mut other) = (Session::new(&db).await, Session::new(&db).await.client);
        let tx = other.transaction().await.expect("it is up");
        let changes = "update requeue.item set value = '[1]' where key like 'a/%'";
        tx.execute(changes, &[]).await.expect("it is up");
        let names =
            |given: Vec<Given>| given.into_iter().map(|(key, _)| tenant(&text(&key))).collect::<String>();
        let claim = tokio::time::timeout(LONG, session.next(2, &[]));
        assert_eq!(names(claim.await.expect("it waits for somebody's transaction")), "bb");
        tx.commit().await.expect("it is up");
        let next = names(session.next(4, &[]).await);
        assert!(next == "abab" || next == "baba", "{next}");
    });
}

#[test]
fn b3_a_queue_without_groups_hands_out_to_several_at_once() {
    let Some(db) = Database::new() else { return };
    block_on(async {
        let (session, mut other) = (Session::new(&db).await, Session::new(&db).await.client);
        let add = "select count(*) from requeue.add($1, array['k'::bytea], array[0::bigint], array[0])";
        session.client.query(add, &[&session.queue]).await.expect("it is up");
        let tx = other.transaction().await.expect("it is up");
        tx.execute("select from requeue.queue for no key update", &[]).await.expect("it is up");
        let claim = tokio::time::timeout(LONG, session.next(1, &[])).await;
        assert_eq!(claim.expect("it waits for another claim").len(), 1);
        tx.rollback().await.expect("it is up");
    });
    assert_eq!(db.sql("select grouped from requeue.queue"), "f");
    assert_eq!(db.sql("select count(*) from requeue.turn"), "0");
}

#[test]
fn b3_ten_thousand_groups_are_worked_off_and_leave_nothing() {
    let Some(db) = Database::new() else { return };
    set_rules(&db, GroupRules::new().cap(1));
    db.sql(
        "select count(*) from requeue.add(1, array(select convert_to(n % 10000 || '/' || n, 'UTF8') from generate_series(1, 20000) n),
           array_fill(0::bigint, array[20000]), array_fill(0, array[20000]),
           gs => array(select convert_to((n % 10000)::text, 'UTF8') from generate_series(1, 20000) n))",
    );
    let (first, second) = block_on(async {
        let (one, two) = (Session::new(&db).await, Session::new(&db).await);
        let first = one.next(6000, &[]).await;
        let second = two.next(6000, &[]).await;
        // the others' caps are reached
        assert_eq!((first.len(), second.len()), (6000, 4000));
        assert_eq!(two.next(1, &[]).await.len(), 0);
        let third = one.next(6000, &first).await;
        assert_eq!(third.len(), 6000);
        let fourth = two.next(6000, &second).await;
        assert_eq!((one.next(0, &third).await.len(), two.next(0, &fourth).await.len()), (0, 0));
        ((first, third), (second, fourth))
    });
    let groups = |given: &[&Vec<Given>]| {
        let mut groups: Vec<_> =
            given.iter().flat_map(|it| it.iter()).map(|(key, _)| tenant(&text(key))).collect();
        groups.sort();
        groups.dedup();
        groups.len()
    };
    assert_eq!(groups(&[&first.0, &second.0]), 10_000);
    assert_eq!(groups(&[&first.1, &second.1]), 10_000);
    assert_eq!(
        db.sql("select (select count(*) from requeue.item) || ' ' || (select count(*) from requeue.groups)"),
        "0 0"
    );
}

#[test]
fn b3_rules_that_make_no_sense_are_refused_and_others_hold_for_all() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let refused =
        pg.queue::<String>("orders").group_by_with(|key| tenant(key), GroupRules::new().cap(0)).open().wait();
    assert!(refused.is_err_and(|e| e.to_string().contains("a cap of 0")));
    let rules = GroupRules::new()
        .cap(7)
        .weight(&"a".to_owned(), 0)
        .cap_of(&"a".to_owned(), 0)
        .weight(&"a".to_owned(), 3);
    let q = pg.queue::<String>("orders").group_by_with(|key| tenant(key), rules).open().wait();
    drop(q.expect("it opens"));
    // a process that sets nothing changes nothing
    drop(pg.queue::<String>("orders").group_by(|key| tenant(key)).open().wait().expect("it opens"));
    let stored = "select w.cap || ' ' || g.weight || ' ' || g.cap from requeue.queue w join requeue.groups g on g.queue = w.id";
    assert_eq!(db.sql(stored), "7 3 1");
    set_rules(&db, GroupRules::new().cap(usize::MAX).cap_of(&"a".to_owned(), 9));
    assert_eq!(db.sql(stored), "2147483647 3 9");
}
