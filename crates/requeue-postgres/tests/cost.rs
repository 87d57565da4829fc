//! Rules E40 to E42: the server's costs of waiting processes, the number of processes that an add wakes, and
//! that queues and locked keys do not wait for one another. The tests assert counts (of calls, transactions,
//! sessions, processes), not times.

mod common;

use self::common::{Database, LONG, Looks, add, block_on, open, until};
use requeue::{Add, Added, Run, Worker};
use requeue_engine::{AddFailed, Op};
use requeue_postgres::{Postgres, Queue};
use std::sync::mpsc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn works(q: &Queue<String>) -> (Worker, mpsc::Receiver<String>) {
    let (tell, ran) = mpsc::channel();
    let worker = Worker::of(q).workers(1).start_threads(move |run: Run<String>| {
        let _ = tell.send(run.key().clone());
    });
    (worker.expect("threads"), ran)
}

/// JIT is off in all functions: a forced plan's estimated cost is so high that it would be compiled at each
/// call.
#[test]
fn e40_no_function_is_compiled() {
    let Some(db) = Database::new() else { return };
    let compiled = "select string_agg(p.oid::regprocedure::text, ', ') from pg_proc p join pg_language l on l.oid = p.prolang
                    where p.pronamespace = 'requeue'::regnamespace and (l.lanname = 'plpgsql' or p.proconfig is not null)
                    and not coalesce(p.proconfig, '{}') @> '{jit=off}'";
    assert_eq!(db.sql(compiled), "", "without jit = off");
}

#[test]
fn e40_a_process_that_waits_asks_once_a_second_for_all_of_its_queues() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let queues: Vec<Queue<String>> =
        (0..12).map(|n| pg.queue(&format!("q{n}")).open().wait().expect("it is up")).collect();
    let workers: Vec<_> = queues.iter().map(works).collect();
    until("all are notified", || db.sql("select count(*) from requeue.owner where idle") == "12");
    let looks = Looks::noted(|sql| db.sql(sql));
    looks.has_slept();
    db.sql("delete from look");
    until("five looks", || db.sql("select count(*) >= 5 from look") == "t");
    // the clocks of two programs are not quite the same
    let early = "select count(*) from (select at - lag(at) over (order by at) < interval '0.9 s' as early from look) x where early";
    assert_eq!(db.sql(early), "0", "twelve queues share a call");
    assert_eq!(db.sql("select count(*) from look where what = 'claim'"), "0");
    for (worker, _) in workers {
        assert!(worker.stop(LONG).wait().complete);
    }
}

/// A server starts a process for each connection, which costs it more than an add.
#[test]
fn e40_a_process_that_works_on_no_queue_has_one_connection_and_needs_no_direct_host() {
    let Some(db) = Database::new() else { return };
    let connect = |more: &str| Postgres::connect(&format!("{} {more}", db.url)).wait().expect("it is up");
    let pg = connect("application_name=looker");
    pg.make_queue("orders").wait().expect("it may");
    assert_eq!(pg.client("orders").stats().wait().expect("it is there").ready, 0);
    let sessions = "select count(*) from pg_stat_activity where application_name = 'looker'";
    assert_eq!(db.sql(sessions), "1");
    // a queue without its direct connection is refused at once: its leases could not be extended
    let pg = connect("pool_mode=session direct_host=/nowhere");
    assert!(pg.client("orders").list().wait().expect("it is there").is_empty());
    let refused = pg.queue::<String>("orders").open().wait().expect_err("it has no lease").to_string();
    assert!(refused.contains("direct_host, for notifications and leases: "), "{refused}");
}

#[test]
fn e40_one_process_a_second_does_what_is_to_be_done_and_another_when_it_is_gone() {
    let Some(db) = Database::new() else { return };
    db.sql(
        "create table turn(at timestamptz, who int default pg_backend_pid());
         create function turns() returns trigger language plpgsql as $$
           begin if new.at is distinct from old.at then insert into turn values (new.at); end if; return new; end $$;
         create trigger turns after update on requeue.round for each row execute function turns()",
    );
    let mut queues: Vec<_> = (0..5).map(|_| open(&db.connect())).collect();
    let workers: Vec<_> = queues.iter().map(works).collect();
    until("all wait", || db.sql("select count(*) from requeue.owner") == "5");
    until("ten turns", || db.sql("select count(*) >= 10 from turn") == "t");
    let early = "select count(*) from (select at - lag(at) over (order by at) < interval '0.9 s' as early from turn) x where early";
    assert_eq!(db.sql(early), "0", "five processes do it as often as one");
    for (worker, _) in workers {
        assert!(worker.stop(LONG).wait().complete);
    }
    // the process of the last turn goes without a word, and so do all others but one
    queues.truncate(1);
    let (worker, _ran) = works(&queues[0]);
    db.sql("delete from turn");
    until("turns of the one that is left", || db.sql("select count(*) >= 2 from turn") == "t");
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e40_what_a_process_has_in_its_turn_is_given_back_also_where_only_others_queues_wait() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    // a dead process of a queue that no process works on any more
    db.sql(
        "select requeue.open('left'); select requeue.add(1, array['k'::bytea], array[0], array[0]);
            select requeue.join_(1, 'dead', 0); update requeue.item set state = 2, fence = 1, owner = 1",
    );
    let q = open(&pg);
    let (worker, _ran) = works(&q);
    until("its key is in line", || db.sql("select state from requeue.item") == "1");
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e41_an_add_wakes_one_process_of_those_that_wait() {
    let Some(db) = Database::new() else { return };
    let queues: Vec<_> = (0..6).map(|_| open(&db.connect())).collect();
    let workers: Vec<_> = queues.iter().map(works).collect();
    until("all wait", || db.sql("select count(*) from requeue.owner") == "6");
    until("one listens", || db.sql("select count(*) from requeue.owner where idle") == "1");
    let looks = Looks::noted(|sql| db.sql(sql));
    let adder = db.connect();
    let mut n = 0;
    // processes that have just begun may listen for a moment
    until("an add with a claim that finds its key, one that ends its run, and no other", || {
        looks.has_slept();
        db.sql("delete from look");
        n += 1;
        adder.client("orders").add_many(&[format!("k{n}")], None, 0).wait().expect("it is up");
        until("its run", || workers.iter().any(|(_, ran)| ran.try_recv().is_ok()));
        until("its end, and a look of each", || {
            db.sql("select count(*) filter (where what = 'tick') >= 12 and not exists(select 1 from requeue.item) from look") == "t"
        });
        db.sql("select string_agg(found::text, ' ' order by at) from look where what = 'claim'") == "1 0"
    });
    for (worker, _) in workers {
        assert!(worker.stop(LONG).wait().complete);
    }
}

#[test]
fn e41_others_listen_when_the_one_that_did_is_busy_or_gone() {
    let Some(db) = Database::new() else { return };
    let (one, two) = (open(&db.connect()), open(&db.connect()));
    let (tell, begun) = mpsc::channel();
    let (go_on, may) = mpsc::channel::<()>();
    let (may, tell) = (std::sync::Mutex::new(may), std::sync::Mutex::new(tell));
    let worker = Worker::of(&one).workers(1).start_threads(move |_: Run<String>| {
        tell.lock().expect("no panic").send(()).expect("the test goes on");
        let _ = may.lock().expect("no panic").recv();
    });
    let worker = worker.expect("threads");
    let first = || db.sql("select id from requeue.owner where idle");
    until("one listens", || !first().is_empty());
    let busy = first();
    add(&one, "long");
    begun.recv_timeout(LONG).expect("it begins");
    let (other, ran) = works(&two);
    until("the other one listens", || {
        let now = first();
        !now.is_empty() && now != busy
    });
    add(&two, "next");
    assert_eq!(ran.recv_timeout(LONG), Ok("next".to_owned()));
    drop(go_on);
    for worker in [worker, other] {
        assert!(worker.stop(LONG).wait().complete);
    }
}

#[test]
fn e42_the_queues_of_a_process_share_a_few_connections() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let queues: Vec<Queue<String>> =
        (0..60).map(|n| pg.queue(&format!("q{n}")).open().wait().expect("it is up")).collect();
    let workers: Vec<_> = queues.iter().map(works).collect();
    for q in &queues {
        add(q, "k");
    }
    for (_, ran) in &workers {
        assert_eq!(ran.recv_timeout(LONG), Ok("k".to_owned()));
    }
    let sessions = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'requeue'";
    let sessions: u32 = db.sql(sessions).parse().expect("a number");
    assert!(sessions <= 6, "{sessions} sessions: four for claims, one for triggers, one for leases");
    for (worker, _) in workers {
        assert!(worker.stop(LONG).wait().complete);
    }
}

/// Waits for a statement of the process that waits for a lock, and records triggers for the next one.
fn behind_a_statement(db: &Database, q: &Queue<String>, notes: impl FnOnce()) {
    block_on(async {
        let mut other = db.client().await;
        let lock = other.transaction().await.expect("it is up");
        lock.batch_execute("lock table requeue.item in access exclusive mode").await.expect("it is up");
        let first = q.add("first".into());
        let waits = "select count(*) from pg_stat_activity where datname = current_database()
                     and application_name = 'requeue' and wait_event_type = 'Lock'";
        until("a statement that waits", || db.sql(waits) == "1");
        notes();
        lock.rollback().await.expect("it is up");
        // refused, where the machine stood still for long
        drop(first.await);
    });
}

#[test]
fn e42_triggers_of_several_queues_with_values_and_without_share_statements() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let plain = open(&pg);
    let collect = |old: &mut Vec<u32>, new: Vec<u32>| old.extend(new);
    let valued = pg.queue_with::<String, Vec<u32>>("valued", collect).open().wait().expect("it is up");
    add(&plain, "there");
    db.sql(
        "create table statement(n int);
         create function notes() returns trigger language plpgsql as $$ begin insert into statement values (1); return null; end $$;
         create trigger notes before insert on requeue.item for each statement execute function notes()",
    );
    let mut asked: Vec<Op<Added, AddFailed<String>>> = Vec::new();
    let mut with_values = Vec::new();
    behind_a_statement(&db, &plain, || {
        for n in 0..50 {
            asked.push(plain.add(format!("k{n}")));
            with_values.push(valued.add_with(format!("k{n}"), Add::now().value(vec![n])));
            asked.push(plain.add_every(format!("every {n}"), HOUR, Add::now()));
            with_values.push(valued.add(format!("k{n}")));
        }
    });
    asked.into_iter().for_each(|it| assert_eq!(it.wait().expect("it is up"), Added::Ready));
    for it in with_values {
        it.wait().expect("it is up");
    }
    let statements: u32 = db.sql("select count(*) from statement").parse().expect("a number");
    assert!(statements <= 4, "{statements} statements for 200 triggers");
    assert_eq!(db.sql("select count(*) from requeue.item where value is not null"), "50");
    assert_eq!(db.sql("select count(*) from requeue.item where every_us is not null"), "50");
}

#[test]
fn e42_a_queue_that_is_gone_fails_its_own_triggers_alone() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let (stays, gone) = (open(&pg), pg.queue::<String>("gone").open().wait().expect("it is up"));
    add(&stays, "there");
    db.sql("delete from requeue.queue where name = 'gone'");
    let (mut well, mut badly) = (Vec::new(), Vec::new());
    behind_a_statement(&db, &stays, || {
        for n in 0..20 {
            well.push(stays.add(format!("k{n}")));
            badly.push(gone.add(format!("k{n}")));
        }
    });
    well.into_iter().for_each(|it| assert_eq!(it.wait().expect("its queue is there"), Added::Ready));
    for refused in badly {
        let why = refused.wait().expect_err("its queue is gone").error.to_string();
        assert!(why.contains("open it again"), "{why}");
    }
    // in their order
    let line = db.sql("select string_agg(convert_from(key, 'UTF8'), ' ' order by pos) from requeue.item where key like 'k%'");
    assert_eq!(line, (0..20).map(|n| format!("k{n}")).collect::<Vec<_>>().join(" "));
}

#[test]
fn e42_a_key_that_somebody_has_locked_delays_no_other_and_its_own_triggers_are_accepted() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let collect = |old: &mut Vec<u32>, new: Vec<u32>| old.extend(new);
    let q = pg.queue_with::<String, Vec<u32>>("orders", collect).open().wait().expect("it is up");
    let value = |n: u32| Add::now().value(vec![n]);
    for key in ["k", "l"] {
        q.add_with(key.into(), value(0)).wait().expect("it is up");
    }
    block_on(async {
        let mut holder = db.client().await;
        let tx = holder.transaction().await.expect("it is up");
        // as a run that is guarded in a transaction of its handler's
        tx.batch_execute(
            "select requeue.join_(1, 'test', 3600000000);
                          update requeue.item set state = 2, fence = 1, owner = 1 where key = 'k'",
        )
        .await
        .expect("it is there");
        let asked = [q.add_with("k".into(), value(1)), q.add("other".into()), q.add_after("k".into(), HOUR)];
        for asked in asked {
            asked.await.expect("nobody waits for the transaction");
        }
        // one behind another, also on the connection of another process, and by the other way to add
        pg.client("orders")
            .add_many(&["k".to_owned(), "more".to_owned()], None, 0)
            .await
            .expect("nobody waits");
        q.add_every("k".into(), HOUR, Add::now()).await.expect("its period waits, too");
        q.add_every("k".into(), 2 * HOUR, Add::now()).await.expect("and the last one counts");
        let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
        assert_eq!(db.sql(waiting), "0");
        assert_eq!(
            db.sql("select string_agg(convert_from(key, 'UTF8'), ' ' order by key) from requeue.item"),
            "k l more other"
        );
        assert_eq!(db.sql("select count(*) from requeue.inbox"), "4", "they wait for the transaction");
        assert_eq!(db.sql("select every_us is null from requeue.item where key = 'k'"), "t");
        tx.rollback().await.expect("it is up");
    });
    // triggers that come when the key is free are applied after the earlier ones
    q.add_with("k".into(), value(2)).wait().expect("it is up");
    db.sql("select requeue.fold(1, 0, 1000)");
    assert_eq!(db.sql("select value from requeue.item where key = 'k'"), "[[0], [1], [2]]");
    assert_eq!(db.sql("select due_at is not null from requeue.item where key = 'k'"), "t");
    assert_eq!(db.sql("select every_us / 1000000 from requeue.item where key = 'k'"), "7200");
    assert_eq!(db.sql("select count(*) from requeue.schedule"), "0");
    assert_eq!(db.sql("select count(*) from requeue.inbox"), "0");
}

/// The server notes in which transactions keys were added and others woken.
fn notes_wakes(db: &Database) {
    db.sql(
        "create table noted(what text, tx bigint default txid_current());
         create function notes() returns trigger language plpgsql as $$ begin insert into noted values ('add'); return null; end $$;
         create trigger notes after insert on requeue.item for each statement execute function notes();
         alter function requeue.wake(int, text) rename to wakes;
         create function requeue.wake(q int, who text default null) returns void language plpgsql as $$
           begin insert into noted values ('wake'); perform requeue.wakes(q, who); end $$",
    );
}

/// One transaction less: the show of idle processes counts those of an add.
#[test]
fn e41_an_add_after_a_pause_wakes_others_in_its_own_transaction() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    notes_wakes(&db);
    add(&q, "first");
    // another process's
    db.connect().client("orders").add_many(&["other".to_owned()], None, 0).wait().expect("it is up");
    let noted = "select string_agg(what, ' ' order by what), count(distinct tx) from noted group by tx";
    until("both", || db.sql("select count(*) from noted") == "4");
    assert_eq!(db.sql(noted), "add wake|1\nadd wake|1");
}

/// PostgreSQL commits one transaction that notifies at a time: a process that adds all the time does so apart from its triggers.
#[test]
fn e22_an_add_right_after_another_wakes_others_when_it_is_committed() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let (q, client) = (open(&pg), pg.client("orders"));
    notes_wakes(&db);
    for by_client in [false, true] {
        let mut n = 0;
        let mut adds = |by_client: bool| {
            n += 1;
            let key = format!("{by_client}{n}");
            match by_client {
                true => client.add_many(&[key], None, 0).wait().expect("it is up"),
                false => drop(add(&q, &key)),
            }
        };
        // on a busy machine there may be a pause between any two
        until("two of which the second wakes apart", || {
            db.sql("delete from noted");
            adds(!by_client);
            adds(by_client);
            until("both", || db.sql("select count(*) from noted") == "4");
            let last = "select count(*) from (select 1 from noted where tx = (select max(tx) from noted)) x";
            db.sql(last) == "1"
        });
    }
}

/// A transaction that notifies holds others up that do: two never wait for the disk at the same time.
#[test]
fn e41_beside_another_add_that_wakes_others_an_add_does_so_when_it_is_committed() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q = open(&pg);
    notes_wakes(&db);
    block_on(async {
        let mut other = db.client().await;
        let tx = other.transaction().await.expect("it is up");
        tx.batch_execute("select pg_advisory_xact_lock(hashtext('requeue.wake'), 0)")
            .await
            .expect("it is up");
        q.add("first".into()).await.expect("nobody waits");
        pg.client("orders").add_many(&["other".to_owned()], None, 0).await.expect("nobody waits");
        tx.rollback().await.expect("it is up");
    });
    until("all", || db.sql("select count(*) from noted") == "4");
    assert_eq!(db.sql("select count(distinct tx) from noted"), "4");
}

#[test]
fn e40_a_process_that_only_adds_asks_seldom() {
    let Some(db) = Database::new() else { return };
    db.sql(
        "create table asked(at timestamptz default clock_timestamp());
         alter function requeue.tick(bigint[], bigint[], int[], bigint[], boolean, boolean, bigint[], bigint[]) rename to ticks;
         create function requeue.tick(os bigint[], ls bigint[], qs int[], mine bigint[], hears boolean, listens boolean, awake bigint[],
             tired bigint[]) returns table(kind int, n bigint) language plpgsql as $$
         begin
           insert into asked default values;
           return query select * from requeue.ticks(os, ls, qs, mine, hears, listens, awake, tired);
         end $$",
    );
    let q = open(&db.connect());
    add(&q, "k");
    until("three calls", || db.sql("select count(*) >= 3 from asked") == "t");
    // the clocks of two programs are not quite the same
    let early = "select count(*) from (select at - lag(at) over (order by at) < interval '4 s' as early from asked) x where early";
    assert_eq!(db.sql(early), "0");
    // and at once where it works, as it has a lease then
    let (worker, ran) = works(&q);
    assert_eq!(ran.recv_timeout(LONG), Ok("k".to_owned()));
    assert!(worker.stop(LONG).wait().complete);
}
