//! Rule E37 on a server: keys that come at times of the calendar, whichever process runs them, and whatever
//! the outcome.

mod common;

use self::common::{Database, LONG, are_held, block_on, open, until};
use requeue::{Add, BoxError, Outcome, Run, Worker};
use requeue_postgres::{Ended, Queue, RunExt, Schedule};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Four years apart, and about midnight.
const LEAP_DAYS: &str = "cron 0 0 29 2 * UTC";

fn adds(q: &Queue<String>, schedule: &str) {
    let schedule: Schedule = schedule.parse().expect("it is one");
    q.client().add_scheduled(&["k".to_owned()], &schedule, 0).wait().expect("it is up");
}

/// When the key is to run next, once its run has ended: the hour. (A first time is as much late as its trigger took to be written.)
fn next(db: &Database) -> String {
    until("the end of the run", || db.sql("select state from requeue.item where key = 'k'") == "0");
    db.sql("set time zone 'UTC'; select date_trunc('hour', due_at) from requeue.item where key = 'k'")
}

/// A leap day to come, by the server's clock.
fn leap_day(db: &Database) -> String {
    db.sql(
        "set time zone 'UTC'; select min(make_timestamptz(y, 2, 28, 0, 0, 0) + interval '1 day')
         from generate_series(extract(year from now())::int, extract(year from now())::int + 8) y
         where extract(day from make_timestamptz(y, 2, 28, 0, 0, 0) + interval '1 day') = 29
           and make_timestamptz(y, 2, 28, 0, 0, 0) + interval '1 day' > now()",
    )
}

/// Lets the key run: it is its time.
fn is_time(db: &Database) {
    db.sql("update requeue.item set due_at = clock_timestamp() where key = 'k' and state = 0; select requeue.wake(1)");
}

#[test]
fn e37_on_a_server_a_key_comes_at_its_times_whatever_its_runs_take_and_whoever_asked_for_them() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    adds(&q, LEAP_DAYS);
    let first = next(&db);
    assert_eq!(first, leap_day(&db));
    let (tell, ran) = mpsc::channel();
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let worker = Worker::of(&q).workers(1).start_threads(move |_: Run<String>| {
        tell.send(()).expect("the test goes on");
        if failing.swap(false, Relaxed) { Outcome::Retry("not yet".into()) } else { Outcome::Done }
    });
    let worker = worker.expect("a thread");
    let ran = || ran.recv_timeout(LONG).expect("a run");
    // by hand
    q.client().retry(&"k".to_owned()).wait().expect("it is up");
    ran();
    assert_eq!(next(&db), first, "after a run that was asked for by hand");
    q.add("k".into()).wait().expect("it is up");
    ran();
    assert_eq!(next(&db), first, "after an add");
    is_time(&db);
    ran();
    assert_eq!(next(&db), first, "the first time after the beginning of the run");
    fails.store(true, Relaxed);
    is_time(&db);
    ran();
    until("it fails", || db.sql("select failures from requeue.item") == "1");
    is_time(&db);
    ran();
    assert_eq!(next(&db), first, "after a failure and a success");
    let listed = q.state(&"k".into()).wait().expect("it is up").expect("it is there");
    assert_eq!((listed.schedule.as_deref(), listed.every), (Some(LEAP_DAYS), None));
    assert_eq!(
        db.sql("select schedule, status from requeue.find_key('orders', 'k')"),
        format!("{LEAP_DAYS}|waiting")
    );
    // a period takes its place, and the other way round
    q.add_every("k".into(), Duration::from_secs(3600), Add::now()).wait().expect("it is up");
    ran();
    next(&db);
    assert_eq!(db.sql("select count(*) from requeue.schedule"), "0");
    assert_eq!(db.sql("select due_at < now() + interval '2 h' from requeue.item"), "t");
    adds(&q, LEAP_DAYS);
    assert!(q.cancel(&"k".into()).wait().expect("it is up").is_some());
    assert_eq!(
        db.sql("select (select count(*) from requeue.schedule), (select count(*) from requeue.item)"),
        "0|0"
    );
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e37_on_a_server_a_run_that_ends_in_its_handlers_transaction_knows_the_next_time() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    adds(&q, LEAP_DAYS);
    let first = next(&db);
    db.sql("update requeue.item set due_at = clock_timestamp()");
    block_on(async {
        let url = db.url.clone();
        let (tell, mut ran) = tokio::sync::mpsc::unbounded_channel();
        let worker =
            Worker::of(&q).workers(1).start_on(tokio::runtime::Handle::current(), move |run: Run<String>| {
                let (url, tell) = (url.clone(), tell.clone());
                async move {
                    let mut client = common::client(&url).await;
                    let tx = client.transaction().await?;
                    let ended = run.succeed_in(&tx).await?;
                    tx.commit().await?;
                    tell.send(())?;
                    Ok::<Ended, BoxError>(ended)
                }
            });
        let worker = worker.expect("tasks");
        tokio::time::timeout(LONG, ran.recv()).await.expect("in time").expect("a run");
        assert_eq!(next(&db), first);
        assert!(worker.stop(LONG).await.complete);
    });
}

/// The test plays a program of version 1 by the statements that it sends.
#[test]
fn e37_e43_a_process_that_knows_no_times_goes_on_and_a_newer_one_finds_the_time_again() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    adds(&q, "at 2030-01-01T18:00:00+00:00[UTC] every 86400s");
    let first = next(&db);
    db.sql("update requeue.item set due_at = clock_timestamp(); select requeue.join_(1, 'process 1', 3600000000)");
    let next_ = "from requeue.next(1, 1, 1, $1, $2, array_fill(0::smallint, array[$3::int]), array_fill(0::bigint, array[$3]),
                 array_fill(0, array[$3]), array_fill(0, array[$3]), array_fill(null::jsonb, array[$3]), array_fill(null::text, array[$3]))";
    block_on(async {
        let client = db.client().await;
        let claim = format!("select kind, f {next_} where kind = 1");
        let (keys, fences): (Vec<&[u8]>, Vec<i64>) = (Vec::new(), Vec::new());
        let claimed = client.query(&claim, &[&keys, &fences, &0_i32]).await.expect("it is up");
        let fence: i64 = claimed.first().expect("a key").get(1);
        let (keys, fences): (Vec<&[u8]>, Vec<i64>) = (vec![b"k"], vec![fence]);
        let end = format!("select kind {next_} where kind = 0");
        assert_eq!(client.query(&end, &[&keys, &fences, &1_i32]).await.expect("it is up").len(), 1);
    });
    let about = "select due_at between now() + interval '23 h' and now() + interval '25 h' from requeue.item";
    assert_eq!(db.sql(about), "t", "a period later");
    let (tell, ran) = mpsc::channel();
    let worker = Worker::of(&q)
        .workers(1)
        .start_threads(move |_: Run<String>| tell.send(()).expect("the test goes on"));
    let worker = worker.expect("a thread");
    is_time(&db);
    ran.recv_timeout(LONG).expect("a run");
    assert_eq!(next(&db), first);
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e37_e42_times_of_a_key_that_somebody_has_locked_are_kept_until_it_is_free() {
    let Some(db) = Database::new() else { return };
    are_held(&db, &["k"]);
    let q = open(&db.connect());
    block_on(async {
        let mut holder = db.client().await;
        let tx = holder.transaction().await.expect("it is up");
        tx.batch_execute("select requeue.guard(1, 'k', 1)").await.expect("it is held");
        let schedule: Schedule = LEAP_DAYS.parse().expect("it is one");
        q.client().add_scheduled(&["k".to_owned()], &schedule, 0).await.expect("nobody waits");
        assert_eq!(db.sql("select waits, rule from requeue.schedule"), format!("t|{LEAP_DAYS}"));
        assert_eq!(db.sql("select every_us is null from requeue.item"), "t");
        tx.rollback().await.expect("it is up");
    });
    db.sql("select requeue.fold(1, 0, 1000)");
    assert_eq!(db.sql("select waits, rule from requeue.schedule"), format!("f|{LEAP_DAYS}"));
    assert_eq!(db.sql("select every_us > 0, state from requeue.item"), "t|2");
    db.sql(
        "select requeue.finish(1, array['k'::bytea], array[1::bigint], array[0::smallint], array[0::bigint], array[0], array[0],
           array[null::jsonb], array[null::text])",
    );
    assert_eq!(next(&db), leap_day(&db));
}

#[test]
fn e37_on_a_server_a_schedule_replaces_the_one_before_and_its_time() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    let (client, keys) = (q.client(), ["k".to_owned()]);
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let due = || {
        let left = "round(extract(epoch from due_at - clock_timestamp()) / 3600)";
        db.sql(&format!("select state, {left} from requeue.item where key = 'k'"))
    };
    client.add_every(&keys, hours(30), Some(hours(1)), 0).wait().expect("it is up");
    assert_eq!(due(), "0|1");
    for days in [2, 4] {
        let first = format!(
            "select to_char(now() at time zone 'UTC' + interval '{days} days', 'YYYY-MM-DD\"T\"HH24:MI:SS')"
        );
        adds(&q, &format!("at {}+00:00[UTC] every 86400s", db.sql(&first)));
        assert_eq!(due(), format!("0|{}", days * 24));
    }
    // a retry is no time of a schedule
    let retry = "set due_at = clock_timestamp() + interval '3 hours', failures = 1 where key = 'k'";
    db.sql(&format!("update requeue.item {retry}"));
    client.add_every(&keys, hours(30), Some(hours(12)), 0).wait().expect("it is up");
    assert_eq!(due(), "0|3");
    db.sql("update requeue.item set failures = 0 where key = 'k'");
    client.add_every(&keys, hours(30), None, 0).wait().expect("it is up");
    assert_eq!(due(), "1|", "now, and at no other time");
}
