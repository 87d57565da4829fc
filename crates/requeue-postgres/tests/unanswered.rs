//! Unanswered calls, lost leases, statements that meet in the middle, and values that are too large: nothing
//! is lost, and only those involved are delayed.

mod common;

use self::common::{
    Database, LONG, add, are_held, block_on, leases_end, next_of, open, somebody_waits, until,
};
use requeue::{Run, Worker};
use requeue_postgres::Queue;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

/// Runs that wait for permission to continue; each reports its key, and at its end whether it was told to
/// end.
struct Waiting {
    worker: Worker,
    begun: mpsc::Receiver<String>,
    go_on: mpsc::Sender<Until>,
    ended: mpsc::Receiver<bool>,
}

impl Waiting {
    fn on<V: Values>(q: &Queue<String, V>) -> Self {
        Self::with(1, q)
    }

    fn with<V: Values>(workers: usize, q: &Queue<String, V>) -> Self {
        let ((begins, begun), (go_on, may), (ends, ended)) =
            (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let may = Mutex::new(may);
        let worker = Worker::of(q).workers(workers).start_threads(move |run: Run<String, V>| {
            begins.send(run.key().clone()).expect("the test goes on");
            let may_end = may.lock().expect("no panic").recv().expect("the test goes on");
            if may_end == Until::Told {
                until("the word to end", || run.cancelled());
            }
            ends.send(run.cancelled()).expect("the test goes on");
        });
        Self { worker: worker.expect("threads"), begun, go_on, ended }
    }

    fn begins(&self) -> String {
        self.begun.recv_timeout(LONG).expect("a run")
    }

    /// Lets the run continue to its end. Returns whether it was told to end.
    fn was_told(&self) -> bool {
        self.ends(Until::Now)
    }

    /// Waits until the run is told to end, and ends.
    fn is_told(&self) {
        assert!(self.ends(Until::Told));
    }

    fn ends(&self, when: Until) -> bool {
        self.go_on.send(when).expect("a run waits");
        self.ended.recv_timeout(LONG).expect("its end")
    }
}

/// Types of values.
trait Values: Serialize + DeserializeOwned + Send + 'static {}
impl<V: Serialize + DeserializeOwned + Send + 'static> Values for V {}

/// When a run may end.
#[derive(PartialEq)]
enum Until {
    Now,
    /// When it is told to end.
    Told,
}

#[test]
fn e15_an_end_whose_call_was_not_answered_is_sent_again_and_accepted() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    add(&q, "k");
    let run = Waiting::on(&q);
    run.begins();
    let stop = run.worker.stop(LONG);
    block_on(async {
        let mut user = db.client().await;
        let lock = user.transaction().await.expect("it is up");
        lock.batch_execute("lock table requeue.item in exclusive mode").await.expect("it is up");
        assert!(!run.was_told());
        let end = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%requeue.next(%'";
        until("an end that waits", || db.sql(&format!("select count(*) {end}")) == "1");
        db.sql(&format!("select pg_terminate_backend(pid) {end}"));
        lock.rollback().await.expect("it is up");
    });
    until("its end", || q.is_settled() && db.sql("select count(*) from requeue.item") == "0");
    assert_eq!(q.ends_refused(), 0);
    assert!(stop.wait().complete);
}

#[test]
fn no_floor_moves_past_a_transaction_that_began_while_maintenance_waited() {
    let Some(db) = Database::new() else { return };
    let maintain = "select requeue.maintain(1, 1000)";
    db.sql("select requeue.open('orders'), requeue.join_(1, 'test', 3600000000); update requeue.meta set timeline = 0");
    block_on(async {
        let (mut other, maintenance, mut user) = (db.client().await, db.client().await, db.client().await);
        // another process's, whose commit waits for a replica
        let epoch = other.transaction().await.expect("it is up");
        epoch.batch_execute("select requeue.epoch()").await.expect("it is up");
        let tx = user.transaction().await.expect("it is up");
        futures_util::future::join(
            async { maintenance.batch_execute(maintain).await.expect("it is up") },
            async {
                somebody_waits(&db).await;
                let triggers = "select requeue.add_tx('orders', 'first'), requeue.add_tx('orders', 'second')";
                tx.batch_execute(triggers).await.expect("it is up");
                epoch.commit().await.expect("it is up");
            },
        )
        .await;
        for _ in 0..3 {
            db.sql(maintain);
        }
        tx.commit().await.expect("it is up");
        db.sql(maintain);
        assert_eq!(next_of(&maintenance, &[]).await, ["1 first", "1 second"]);
    });
}

#[test]
fn e13_keys_in_memory_whose_lease_is_lost_are_not_begun() {
    let Some(db) = Database::new() else { return };
    let q: Queue<String> = db.connect().queue("orders").prefetch(1).open().wait().expect("it is up");
    let run = Waiting::on(&q);
    add(&q, "a");
    assert_eq!(run.begins(), "a");
    add(&q, "b");
    let in_memory = |key: &str| q.in_memory().state(&key.to_owned());
    until("a key that waits in memory", || in_memory("b").is_some_and(|state| state.ready));
    // so that no process claims them, not even this one
    db.connect().client("orders").pause().wait().expect("it is there");
    leases_end(&db);
    until("the loss", || in_memory("b").is_none());
    run.is_told();
    assert_eq!(db.sql("select count(*) from requeue.item where state = 1"), "2");
    db.connect().client("orders").resume().wait().expect("it is there");
    for _ in 0..2 {
        run.begins();
        assert!(!run.was_told());
    }
    until("their ends", || db.sql("select count(*) from requeue.item") == "0");
    // it is not complete, for its first run was told to end
    run.worker.stop(LONG).wait();
}

/// The thread of the engine stands still, so that the loss goes unnoticed: as in a process that was stopped,
/// and whose workers wake before that thread does.
#[test]
fn e13_a_process_that_was_stopped_past_its_lease_begins_no_key_that_others_have() {
    let Some(db) = Database::new() else { return };
    let ((stands, stood), (go_on, may)) = (mpsc::channel(), mpsc::channel::<()>());
    let may = Mutex::new(may);
    let merge = move |old: &mut u32, new: u32| {
        let _ = stands.send(());
        let _ = may.lock().expect("no panic").recv();
        *old += new;
    };
    let pg = db.connect();
    let stopped = pg.queue_with("orders", merge).lease(Duration::from_secs(2)).prefetch(2);
    let stopped: Queue<String, u32> = stopped.open().wait().expect("it is up");
    let run = Waiting::on(&stopped);
    // dropped first where an assertion fails: the last handle waits for the thread
    let go_on = go_on;
    stopped.add("a".into()).wait().expect("it is up");
    assert_eq!(run.begins(), "a");
    stopped.add("b".into()).wait().expect("it is up");
    let in_memory = |key: &str| stopped.in_memory().state(&key.to_owned());
    until("a key that waits in memory", || in_memory("b").is_some_and(|state| state.ready));
    db.sql("select requeue.add_tx('orders', 'c', value => '1'), requeue.add_tx('orders', 'c', value => '2')");
    stood.recv_timeout(LONG).expect("it merges");
    // that what it has goes to others, and first of all, if it came back to itself before, "a"
    let other = open(&db.connect());
    let (tell, begun) = mpsc::channel();
    let (ends, may_end) = mpsc::channel::<()>();
    let may_end = Mutex::new(may_end);
    let others = Worker::of(&other).workers(1).start_threads(move |run: Run<String>| {
        tell.send(run.key().clone()).expect("the test goes on");
        if run.key() == "b" {
            let _ = may_end.lock().expect("no panic").recv();
        }
    });
    let others = others.expect("threads");
    while begun.recv_timeout(LONG).expect("the lease is over") != "b" {}
    run.go_on.send(Until::Now).expect("a run waits");
    let mut zombies = Vec::new();
    until("a look for the next key", || {
        zombies.extend(run.begun.try_iter());
        !zombies.is_empty() || in_memory("b").is_none()
    });
    assert!(zombies.is_empty(), "{zombies:?} begun beside their runs elsewhere");
    // it comes back to itself, and works again
    drop(go_on);
    run.ended.recv_timeout(LONG).expect("the end of a");
    assert_eq!(run.begins(), "c");
    assert!(!run.was_told());
    drop(ends);
    assert!(others.stop(LONG).wait().complete);
    until("all ends", || db.sql("select count(*) from requeue.item") == "0");
    run.worker.stop(LONG).wait();
}

#[test]
fn e16_a_run_that_goes_on_when_the_last_handle_goes_is_told_and_keeps_its_key_until_the_lease_is_over() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q = open(&pg);
    add(&q, "k");
    let run = Waiting::on(&q);
    run.begins();
    drop((q, pg));
    assert_eq!(db.sql("select state from requeue.item"), "2", "it goes on");
    run.is_told();
    leases_end(&db);
    let q = open(&db.connect());
    let next = Waiting::on(&q);
    assert_eq!(next.begins(), "k");
    assert!(!next.was_told());
    assert!(next.worker.stop(LONG).wait().complete);
}

#[test]
fn e10_no_number_comes_twice_over_a_dump_that_is_restored() {
    let (Some(db), Some(copy)) = (Database::new(), Database::bare()) else { return };
    let join = "select requeue.join_(1, 'test', 3600000000)";
    db.sql("select requeue.open('orders')");
    let dump = db.cluster.program("pg_dump", &db.name).output().expect("it is there, beside the server");
    assert!(dump.status.success());
    let (owner, queue) = (db.sql(join), db.sql("select requeue.open('reports')"));
    copy.sql(std::str::from_utf8(&dump.stdout).expect("text"));
    assert_ne!(copy.sql("select requeue.open('mails')"), queue);
    copy.sql("select requeue.epoch()"); // as each process does first
    assert_ne!(copy.sql(join), owner);
    // a process that knows a queue missing from the dump is refused
    block_on(async {
        let client = copy.client().await;
        for call in [
            format!("select requeue.add({queue}, array['k'::bytea], array[0::bigint], array[0])"),
            format!("select requeue.claim({queue}, {}, 9, true)", copy.sql(join)),
        ] {
            let refused = client.batch_execute(&call).await.expect_err("there is no such queue");
            assert_eq!(refused.code().expect("the server says so").code(), "RQ004");
        }
    });
}

#[test]
fn e29_a_key_that_is_being_claimed_is_cancelled_all_the_same() {
    let Some(db) = Database::new() else { return };
    db.sql(
        "select requeue.open('orders'), requeue.join_(1, 'test', 3600000000);
         select requeue.add(1, array['k'::bytea], array[0::bigint], array[0], null, 60000000)",
    );
    block_on(async {
        let (mut worker, operator) = (db.client().await, db.client().await);
        let claim = worker.transaction().await.expect("it is up");
        assert_eq!(next_of(&claim, &[]).await, ["1 k"]);
        let cancel =
            async { operator.query_one("select requeue.cancel(1, 'k')", &[]).await.expect("it is up") };
        let (cancelled, ()) = futures_util::future::join(cancel, async {
            somebody_waits(&db).await;
            claim.commit().await.expect("it is up");
        })
        .await;
        assert!(cancelled.get::<_, bool>(0));
    });
    assert_eq!(db.sql("select state, every_us is null from requeue.item"), "2|t", "it does not come again");
    block_on(async {
        let mut user = db.client().await;
        let guard = user.transaction().await.expect("it is up");
        guard.batch_execute("select requeue.guard(1, 'k', fence) from requeue.item").await.expect("it is up");
        assert_eq!(
            db.sql("select requeue.cancel(1, 'k')"),
            "f",
            "nothing is to be taken away, and nobody is waited for"
        );
        guard.rollback().await.expect("it is up");
    });
}

#[test]
fn e29_a_key_in_line_that_is_to_run_now_keeps_its_later_timer() {
    let Some(db) = Database::new() else { return };
    db.sql(
        "select requeue.open('orders'); select requeue.add(1, array['k'::bytea, 'k'], array[0::bigint, 3600000000], array[0, 0])",
    );
    assert_eq!(db.sql("select requeue.retry(1, 'k')"), "t");
    assert_eq!(db.sql("select state, due_at > now() from requeue.item"), "1|t");
}

#[test]
fn values_that_are_too_large_to_be_joined_keep_only_their_own_key_back() {
    let Some(db) = Database::new() else { return };
    // to compress them takes minutes
    db.sql(
        "select requeue.open('orders'), requeue.open('mails'); alter table requeue.inbox alter value set storage external;
         alter table requeue.item alter value set storage external, alter run_value set storage external",
    );
    // PostgreSQL joins arrays of up to 256 MB
    let values = |letter: &str, size: u32| format!("jsonb_build_array(repeat('{letter}', {size}000000))");
    let (old, new) = (values("o", 150), values("n", 130));
    let begins = |key: &str| {
        db.sql(&format!(
            "select coalesce(left(value ->> 0, 1), 'none') from requeue.item where key = '{key}'"
        ))
    };
    // triggers of transactions: the third waits until a run has taken the others, and the fourth does not overtake it
    let add =
        |letter: &str| format!("requeue.add_tx('orders', 'large', value => {} -> 0)", values(letter, 130));
    let fold = "select requeue.maintain(1, 1000); select requeue.fold(1, 0, 1000), requeue.fold(1, 0, 1000), requeue.fold(1, 0, 1000)";
    let adds = [add("a"), add("b"), add("c")].join(", ");
    db.sql(&format!("select {adds}, requeue.add_tx('orders', 'large', value => '1'), requeue.add_tx('orders', 'other'); {fold}; {fold}"));
    assert_eq!(db.sql("select apart from requeue.inbox"), "t\nt");
    assert_eq!((begins("large"), begins("other")), ("a".into(), "none".into()));
    // they ask for that run, whatever the key waits for
    db.sql(&format!("update requeue.item set state = 0, due_at = 'infinity' where key = 'large'; select requeue.add_tx('orders', 'large'); {fold}"));
    assert_eq!(db.sql("select state from requeue.item where key = 'large'"), "1");
    db.sql(&format!("update requeue.item set value = null; {fold}"));
    assert_eq!(db.sql("select count(*) from requeue.inbox"), "0");
    assert_eq!(
        db.sql("select left(value ->> 0, 1), value ->> 1 from requeue.item where key = 'large'"),
        "c|1"
    );
    // dead processes, and runs that fail: the values of the run come first, and the others after the next one
    let held = format!(
        "truncate requeue.item; insert into requeue.owner(id, queue, name, lease_until) values (98, 1, 'dead', '-infinity'), (99, 2, 'dead', '-infinity');
         insert into requeue.item(queue, key, state, fence, owner, run_value, value) values (1, 'large', 2, 1, 98, {old}, {new});
         insert into requeue.item(queue, key, state, fence, owner) values (1, 'other', 2, 2, 98), (2, 'another', 2, 3, 99);"
    );
    db.sql(&held);
    assert_eq!(db.sql("select requeue.reap(1000)"), "3");
    assert_eq!(db.sql("select count(*), min(state), max(state) from requeue.item"), "3|1|1");
    assert_eq!(begins("large"), "o");
    assert_eq!(db.sql("select left(value #>> '{}', 1), apart from requeue.inbox"), "n|t");
    db.sql(&format!("truncate requeue.inbox; {held} select requeue.spill(1, 'large', 1)"));
    let put_back =
        "array[3::smallint], array[0::bigint], array[0], array[0], array[null::jsonb], array[null])";
    assert_eq!(
        db.sql(&format!("select requeue.finish(1, array['large'::bytea], array[1::bigint], {put_back}")),
        "1"
    );
    assert_eq!(begins("large"), "o");
    assert_eq!(db.sql("select left(value #>> '{}', 1), apart from requeue.inbox"), "n|t");
}

#[test]
fn e27_a_connection_that_takes_no_writes_is_not_kept() {
    let Some(db) = Database::new() else { return };
    let (pg, name) = (db.connect(), &db.name);
    let q = open(&pg);
    let all = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'requeue'";
    // the name of the host leads to a server that has become a standby
    db.sql(&format!("alter database {name} set default_transaction_read_only = on"));
    until("an add that is refused", || {
        db.sql(all);
        q.add("k".into()).wait().is_err_and(|e| e.error.to_string().contains("25006"))
    });
    db.cluster.sql("postgres", &format!("alter database {name} reset default_transaction_read_only"));
    until("an add that is accepted", || q.add("k".into()).wait().is_ok());
    let run = Waiting::on(&q);
    run.begins();
    assert!(!run.was_told());
    assert!(run.worker.stop(LONG).wait().complete);
}

#[test]
fn e15_a_run_that_is_guarded_stays_with_its_old_owner_which_follows_the_new_one() {
    let Some(db) = Database::new() else { return };
    are_held(&db, &["guarded", "other", "unknown"]);
    let owners = "select convert_from(i.key, 'UTF8'), i.owner, w.follows from requeue.item i join requeue.owner w on w.id = i.owner order by i.fence";
    let lease =
        "select id from requeue.owner where lease_until > clock_timestamp() + interval '90 min' order by id";
    db.sql("update requeue.owner set lease_until = clock_timestamp() + interval '1 min'; select requeue.join_(1, 'test', 3600000000) from generate_series(1, 2)");
    block_on(async {
        let mut user = db.client().await;
        let tx = user.transaction().await.expect("it is up");
        tx.batch_execute("select 1 from requeue.item where key = 'unknown' for update")
            .await
            .expect("it is up");
        assert_eq!(user_refused(&db, "select requeue.settle(1, 1, 2, array[1, 2])").await, "55P03");
        tx.rollback().await.expect("it is up");
        let tx = user.transaction().await.expect("it is up");
        tx.batch_execute("select requeue.guard(1, 'guarded', 1)").await.expect("it is up");
        assert_eq!(db.sql("select unnest(requeue.settle(1, 1, 2, array[1, 2])) order by 1"), "1\n2");
        assert_eq!(db.sql(owners), "guarded|1|2\nother|2|");
        // no process has the run of the third one: it is ready again, and not left with the old owner
        assert_eq!(db.sql("select state from requeue.item where key = 'unknown'"), "1");
        assert_eq!(
            db.sql("select count(distinct lease_until) from requeue.owner where id < 3"),
            "1",
            "it is as long as the new one's"
        );
        assert_eq!(db.sql("select requeue.beat(2, 7200000000)"), "t");
        assert_eq!(db.sql(lease), "1\n2", "its lease is extended with the new one's");
        // a second call is not answered either
        assert_eq!(db.sql("select unnest(requeue.settle(1, 2, 3, array[1, 2])) order by 1"), "1\n2");
        assert_eq!(db.sql(owners), "guarded|1|3\nother|3|");
        let claim = user_refused(&db, "select requeue.claim(1, 1, 9, true)").await;
        assert_eq!(claim, "RQ001", "it gets no further keys");
        tx.rollback().await.expect("it is up");
    });
    assert_eq!(db.sql("select requeue.finish(1, array['guarded'::bytea], array[1::bigint], array[0::smallint], array[0::bigint], array[0], array[0], array[null::jsonb], array[null])"), "1");
    db.sql("select requeue.beat(3, 7200000000)");
    assert_eq!(db.sql("select id from requeue.owner"), "3", "it has nothing any more");
    // a process that leaves gives back the keys of both its memberships
    assert_eq!(db.sql("select requeue.settle(1, 3, null, '{}')"), "{}");
    assert_eq!(db.sql("select count(*), max(state) from requeue.item"), "2|1");
}

/// The server's error code for this call.
async fn user_refused(db: &Database, call: &str) -> String {
    let refused = db.client().await.batch_execute(call).await.expect_err("it is refused");
    refused.code().expect("the server says so").code().to_owned()
}

#[test]
fn e13_triggers_that_cannot_be_taken_in_keep_no_ends_from_the_server() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    add(&q, "mine");
    let run = Waiting::with(2, &q);
    run.begins();
    block_on(async {
        let mut user = db.client().await;
        let tx = user.transaction().await.expect("it is up");
        // a key that somebody makes by hand, and does not commit
        tx.batch_execute("insert into requeue.item(queue, key, state) values (1, 'locked', 0)")
            .await
            .expect("it is up");
        db.sql("select requeue.add_tx('orders', 'locked')");
        somebody_waits(&db).await;
        assert!(!run.was_told());
        until("the end of the run", || db.sql("select count(*) from requeue.item") == "0");
        tx.rollback().await.expect("it is up");
    });
    assert_eq!(run.begins(), "locked");
    assert!(!run.was_told());
    assert!(run.worker.stop(LONG).wait().complete);
}
