//! Rules of engines that concern PostgreSQL: many processes, leases, users' transactions. Those of any engine
//! are in `verify/tests/conformance/engine_postgres.rs`, and tests under faults in `tests/faults`.

mod common;

use self::common::cluster::{Cluster, With};
use self::common::{
    Database, LONG, Looks, add, are_held, block_on, leases_end, next_of, open, somebody_waits, until,
};
use requeue::{Add, Added, BoxError, Metrics, Outcome, Run, Worker};
use requeue_engine::{EngineError, EngineGauges, Status};
use requeue_postgres::{Ended, LONGEST_KEY, Postgres, Queue, RunExt};
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_postgres::NoTls;

const HOUR: Duration = Duration::from_secs(3600);

/// Workers whose runs wait for permission to end.
struct Held {
    worker: Worker,
    begun: Receiver<(String, u64, u32)>,
    go_on: Sender<()>,
}

impl Held {
    fn on(q: &Queue<String>, outcome: fn() -> Outcome) -> Self {
        let (tell, begun) = mpsc::channel();
        let (go_on, may) = mpsc::channel();
        let may = Mutex::new(may);
        let worker = Worker::of(q).workers(1).start_threads(move |run: Run<String>| {
            let fence = run.fence().0;
            tell.send((run.key().clone(), fence, run.attempt())).expect("the test goes on");
            may.lock().expect("no panic").recv().expect("the test goes on");
            outcome()
        });
        Self { worker: worker.expect("threads"), begun, go_on }
    }

    fn begins(&self) -> (String, u64, u32) {
        self.begun.recv_timeout(LONG).expect("a run")
    }

    /// Ends the run, and the worker: the worker first, so that it asks for no further key.
    fn ends(self) {
        let stop = self.worker.stop(LONG);
        self.go_on.send(()).expect("a run waits");
        assert!(stop.wait().complete);
    }
}

/// The keys that workers got, in the order of their ends.
fn works(q: &Queue<String>) -> (Worker, Receiver<(String, u64)>) {
    let (tell, ran) = mpsc::channel();
    let worker = Worker::of(q).workers(2).start_threads(move |run: Run<String>| {
        drop(tell.send((run.key().clone(), run.fence().0)));
    });
    (worker.expect("threads"), ran)
}

#[test]
fn e4_and_e5_one_process_has_a_key_at_a_time_and_no_trigger_is_lost() {
    let Some(db) = Database::new() else { return };
    let (processes, keys, adds) = (3, 10, 60);
    let world: Arc<HashMap<String, (AtomicU32, AtomicU32, AtomicBool)>> =
        Arc::new((0..keys).map(|n| (format!("k{n}"), Default::default())).collect());
    let mut all = Vec::new();
    for _ in 0..processes {
        let q = open(&db.connect());
        let world = world.clone();
        let worker = Worker::of(&q).workers(4).start_threads(move |run: Run<String>| {
            let (added, seen, held) = &world[run.key()];
            assert!(!held.swap(true, SeqCst), "two have {}", run.key());
            seen.store(added.load(SeqCst), SeqCst);
            std::thread::yield_now();
            held.store(false, SeqCst);
        });
        all.push((q, worker.expect("threads")));
    }
    std::thread::scope(|threads| {
        for (q, _) in &all {
            let world = &world;
            threads.spawn(move || {
                for n in 0..adds {
                    let key = format!("k{}", n % keys);
                    world[&key].0.fetch_add(1, SeqCst);
                    add(q, &key);
                }
            });
        }
    });
    until("each key's last trigger", || {
        world.values().all(|(added, seen, _)| added.load(SeqCst) == seen.load(SeqCst))
    });
    // a run may have seen the last one before that was added, which asks for one more
    until("the end of the last run", || db.sql("select count(*) from requeue.item") == "0");
    for (q, worker) in all {
        assert!(worker.stop(LONG).wait().complete);
        assert_eq!(q.ends_refused(), 0);
    }
}

#[test]
fn e6_a_redundant_trigger_writes_nothing() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    assert_eq!(add(&q, "a"), Added::Ready);
    let row = "select xmin, ctid from requeue.item";
    let before = db.sql(row);
    assert_eq!(add(&q, "a"), Added::Coalesced);
    assert_eq!(db.sql(row), before);
}

#[test]
fn e7_keys_of_one_priority_run_in_the_order_in_which_they_became_ready() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    for name in ["c", "a", "d", "b"] {
        add(&q, name);
    }
    q.add_with("urgent".into(), Add::now().priority(7)).wait().expect("it is up");
    q.add_with("idle".into(), Add::now().priority(-7)).wait().expect("it is up");
    let held = Held::on(&q, || Outcome::Done);
    for name in ["urgent", "c", "a", "d", "b", "idle"] {
        assert_eq!(held.begins().0, name);
        held.go_on.send(()).expect("a run waits");
    }
    assert!(held.worker.stop(LONG).wait().complete);
}

#[test]
fn e10_the_end_of_a_run_whose_lease_is_lost_changes_nothing() {
    // the end alone is refused, and one that is sent with the claim of the next key
    for wants_more in [false, true] {
        let Some(db) = Database::new() else { return };
        let (a, b) = (db.connect(), db.connect());
        // it does not notice by itself that its lease is gone
        let zombie_queue = a.queue("orders").lease(HOUR).open().wait().expect("the schema is there");
        add(&zombie_queue, "k");
        let zombie = Held::on(&zombie_queue, || Outcome::Done);
        let (_, old, attempt) = zombie.begins();
        assert_eq!(attempt, 1);
        leases_end(&db);
        let q = open(&b);
        let held = Held::on(&q, || Outcome::Retry("not yet".into()));
        let (_, new, attempt) = held.begins();
        assert!(new > old, "{new} after {old}");
        // a run that did not end counts
        assert_eq!(attempt, 2);
        // a zombie by now
        let stop = (!wants_more).then(|| zombie.worker.stop(LONG));
        zombie.go_on.send(()).expect("a run waits");
        until("the answer to the zombie's end", || zombie_queue.ends_refused() == 1);
        assert!(stop.unwrap_or_else(|| zombie.worker.stop(LONG)).wait().complete);
        assert_eq!(db.sql("select state, fence from requeue.item"), format!("2|{new}"));
        held.ends();
        until("the failure", || db.sql("select failures from requeue.item") == "1");
        assert_eq!(zombie_queue.ends_refused(), 1);
    }
}

/// Runs `meanwhile` while the server accepts no connection, and has ended all sessions.
fn cut_off<T>(db: &Database, meanwhile: impl FnOnce() -> T) -> T {
    let other = Cluster::shared().expect("it is there");
    let lets_in =
        |yes: bool| other.sql("postgres", &format!("alter database {} allow_connections {yes}", db.name));
    lets_in(false);
    let all = "select pg_terminate_backend(pid) from pg_stat_activity where datname = ";
    other.sql("postgres", &format!("{all}'{}'", db.name));
    let done = meanwhile();
    lets_in(true);
    done
}

#[test]
fn e10_an_end_that_could_not_be_sent_before_the_lease_was_lost_is_counted() {
    let Some(db) = Database::new() else { return };
    // it is lost when two thirds are over; a shorter one could be lost again by a machine that stands still
    let q: Queue<String> =
        db.connect().queue("orders").lease(Duration::from_secs(15)).open().wait().expect("it is up");
    add(&q, "k0");
    add(&q, "k1");
    let (one, two) = (Held::on(&q, || Outcome::Done), Held::on(&q, || Outcome::Done));
    one.begins();
    two.begins();
    cut_off(&db, || {
        one.go_on.send(()).expect("a run waits");
        until("the loss of the lease", || q.ends_refused() == 1);
        two.go_on.send(()).expect("a run waits");
        until("the other end", || q.ends_refused() == 2);
    });
    let mut keys = [one.begins().0, two.begins().0];
    keys.sort();
    assert_eq!(keys, ["k0", "k1"]);
    for held in [one, two] {
        // first, so that it asks for no further key; it is not complete, for its first run was told to end
        let stop = held.worker.stop(LONG);
        held.go_on.send(()).expect("a run waits");
        stop.wait();
    }
    until("the ends", || db.sql("select count(*) from requeue.item") == "0");
    assert_eq!(q.ends_refused(), 2);
}

#[test]
fn e10_fences_grow_over_a_dump_that_is_restored() {
    let (Some(db), Some(copy)) = (Database::new(), Database::bare()) else { return };
    let q = open(&db.connect());
    let run = |q: &Queue<String>| {
        add(q, "k");
        let (worker, ran) = works(q);
        let (_, fence) = ran.recv_timeout(LONG).expect("a run");
        assert!(worker.stop(LONG).wait().complete);
        fence
    };
    run(&q);
    let dump = db.cluster.program("pg_dump", &db.name).output().expect("it is there, beside the server");
    assert!(dump.status.success());
    // these the dump knows nothing of
    let last = [(), (), ()].map(|()| run(&q))[2];
    copy.sql(std::str::from_utf8(&dump.stdout).expect("text"));
    let restored = open(&copy.connect());
    assert!(run(&restored) > last);
    assert!(run(&q) == last + 1, "the other one goes on as it was");
    // a second row in a table of one row is refused: each process reads the first
    copy.sql(
        "do $$ begin insert into requeue.meta select * from requeue.meta; raise 'two rows'; exception when unique_violation then end $$",
    );
}

#[test]
fn a_floor_of_another_server_moves_on() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    add(&q, "k");
    // as a dump of a server has it that has made more transactions
    db.sql("update requeue.floor set horizon = '1000000000', next_pos = 0, next_inbox = 0");
    until("a floor that has moved", || {
        db.sql("select requeue.advance(1)");
        db.sql("select pos > 0 from requeue.floor") == "t"
    });
}

#[test]
fn e11_an_end_that_is_sent_twice_has_its_effect_once() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    add(&q, "k");
    let claim = "select requeue.join_(1, 'test', 3600000000); select f from requeue.claim(1, 1, 9, true)";
    let fence = db.sql(claim);
    let fence = fence.lines().last().expect("a fence");
    let end = format!(
        "select count(*) from requeue.finish(1, array['k'::bytea], array[{fence}], array[0::smallint], array[0::bigint],
         array[0], array[0], array[null::jsonb], array[null::text])"
    );
    add(&q, "k");
    assert_eq!(db.sql(&end), "1");
    // the trigger that came during the run is there, and stays
    assert_eq!(db.sql("select state from requeue.item"), "1");
    assert_eq!(db.sql(&end), "0");
    assert_eq!(db.sql("select state from requeue.item"), "1");
}

async fn next<T>(of: &mut tokio::sync::mpsc::UnboundedReceiver<T>) -> T {
    tokio::time::timeout(LONG, of.recv()).await.expect("it comes").expect("somebody tells it")
}

#[test]
fn e12_effects_in_the_runs_transaction_happen_once_and_never_a_zombies() {
    let Some(db) = Database::new() else { return };
    db.sql("create table effect(key text, fence bigint)");
    block_on(async {
        let pg = Postgres::connect(&db.url).await.expect("it is up");
        let q = pg.queue::<String>("orders").open().await.expect("the schema is there");
        let url = Arc::new(db.url.clone());
        let (tell, mut begun) = tokio::sync::mpsc::unbounded_channel();
        // one for each attempt: a run whose lease is lost may be there for a moment when the next one waits
        let go_on = Arc::new([(); 3].map(|()| tokio::sync::Semaphore::new(0)));
        let may = go_on.clone();
        let handler = move |run: Run<String>| {
            let (url, tell, may) = (url.clone(), tell.clone(), may.clone());
            async move {
                let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
                tokio::spawn(connection);
                let tx = client.transaction().await?;
                let fence = i64::try_from(run.fence().0)?;
                tx.execute("insert into effect values ($1, $2)", &[run.key(), &fence]).await?;
                tell.send(run.attempt())?;
                may[run.attempt() as usize - 1].acquire().await?.forget();
                let ended = run.succeed_in(&tx).await?;
                if run.attempt() == 1 {
                    // the transaction is rolled back, and the run has failed
                    return Ok(ended);
                }
                tx.commit().await?;
                Ok::<Ended, BoxError>(ended)
            }
        };
        let worker =
            Worker::of(&q).workers(2).start_on(tokio::runtime::Handle::current(), handler).expect("tasks");
        q.add("k".into()).await.expect("it is up");
        assert_eq!(next(&mut begun).await, 1);
        go_on[0].add_permits(1);
        assert_eq!(next(&mut begun).await, 2);
        assert_eq!(db.sql("select count(*) from effect"), "0");
        assert_eq!(db.sql("select failures from requeue.item"), "1");
        // the lease is lost while it runs: its handler is dropped, and with it what it has written
        leases_end(&db);
        assert_eq!(next(&mut begun).await, 3);
        assert_eq!(db.sql("select count(*) from effect"), "0");
        go_on[2].add_permits(1);
        until("the end", || db.sql("select count(*) from requeue.item") == "0");
        assert_eq!(db.sql("select count(*) from effect"), "1");
        worker.stop(LONG).await;
        until("the answer to all ends", || q.is_settled());
        assert_eq!(q.ends_refused(), 0, "the transaction has ended the run, and nobody else had the key");
    });
}

#[test]
fn e12_a_guard_lets_no_zombie_commit() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    add(&q, "k");
    db.sql("create table effect(n int)");
    block_on(async {
        let mut client = db.client().await;
        let (tell, told) = mpsc::channel();
        let (answer, answered) = mpsc::channel::<bool>();
        let answered = Mutex::new(answered);
        let worker = Worker::of(&q).workers(1).start_threads(move |run: Run<String>| {
            drop(tell.send(run));
            // the run goes on until the test says so
            drop(answered.lock().map(|it| it.recv()));
        });
        let worker = worker.expect("threads");
        let run = told.recv_timeout(LONG).expect("a run");
        let tx = client.transaction().await.expect("it is up");
        run.guard(&tx).await.expect("it has the key");
        tx.commit().await.expect("it is no zombie");
        leases_end(&db);
        let tx = client.transaction().await.expect("it is up");
        tx.execute("insert into effect values (1)", &[]).await.expect("it is up");
        assert!(matches!(run.guard(&tx).await, Err(EngineError::LeaseLost)));
        // whatever it says, PostgreSQL rolls a failed transaction back
        drop(tx.commit().await);
        assert_eq!(db.sql("select count(*) from effect"), "0");
        // first, so that the key is not run again
        let stop = worker.stop(LONG);
        drop(run);
        drop(answer);
        stop.await;
    });
}

/// Tries it until it succeeds once, with longer and longer leases: a machine may stand still for the rest of
/// a lease, which says nothing about the process. If it is always too late it fails with all of them.
fn with_longer_leases<const N: usize>(leases: [u64; N], mut is_in_time: impl FnMut(Duration) -> bool) {
    let in_time = leases.into_iter().map(Duration::from_secs).any(&mut is_in_time);
    assert!(in_time, "others could have had the key already");
}

#[test]
fn e13_a_process_that_cannot_extend_its_lease_ends_its_runs_before_others_get_the_keys() {
    with_longer_leases([3, 10, 30, 90], |lease| {
        let Some(db) = Database::new() else { return true };
        let pg = db.connect();
        let q: Queue<String> = pg.queue("orders").lease(lease).open().wait().expect("the schema is there");
        let (tell, told) = mpsc::channel();
        let worker = Worker::of(&q).workers(1).start_threads(move |run: Run<String>| {
            let _ = tell.send("begun");
            until("the end of the lease", || run.cancelled());
            let _ = tell.send("cancelled");
        });
        let worker = worker.expect("threads");
        add(&q, "k");
        assert_eq!(told.recv_timeout(LONG), Ok("begun"));
        let in_time = block_on(async {
            // a lock on the row keeps the lease from being extended
            let mut client = db.client().await;
            let tx = client.transaction().await.expect("it is up");
            tx.execute("select 1 from requeue.owner for update", &[]).await.expect("it is up");
            assert_eq!(told.recv_timeout(LONG), Ok("cancelled"));
            let left = "select lease_until > clock_timestamp() from requeue.owner where id = (select min(owner) from requeue.item)";
            // no row, if the lease was over before the row was locked
            let left = tx.query_opt(left, &[]).await.expect("it is up");
            tx.rollback().await.expect("it is up");
            left.is_some_and(|row| row.get(0))
        });
        // the key is not lost: it runs again, here or elsewhere
        until("the next run", || told.recv_timeout(LONG) == Ok("begun"));
        worker.stop(Duration::ZERO).wait();
        in_time
    });
}

/// A proxy to the server, until it is told to stall: then connections stay open, new ones are accepted, and
/// nothing passes.
fn stalling_way(socket: std::path::PathBuf, stalls: Arc<AtomicBool>) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let pass = |mut from: Box<dyn Read + Send>, mut to: Box<dyn Write + Send>, stalls: Arc<AtomicBool>| {
        std::thread::spawn(move || {
            let mut some = vec![0; 65536];
            while let Ok(length @ 1..) = from.read(&mut some) {
                until("the way is open", || !stalls.load(SeqCst));
                if to.write_all(&some[..length]).is_err() {
                    break;
                }
            }
        });
    };
    std::thread::spawn(move || {
        while let Ok((here, _)) = listener.accept() {
            let there = std::os::unix::net::UnixStream::connect(&socket).expect("the server is up");
            let (here_too, there_too) = (here.try_clone().expect("it"), there.try_clone().expect("it"));
            pass(Box::new(here), Box::new(there), stalls.clone());
            pass(Box::new(there_too), Box::new(here_too), stalls.clone());
        }
    });
    port
}

#[test]
fn e13_runs_are_told_to_end_in_time_where_connections_stay_open_and_nothing_comes_back() {
    // shorter than a call is waited for, and longer
    with_longer_leases([3, 6, 9, 9, 9], |short| {
        let Some(db) = Database::new() else { return true };
        let stalls = Arc::new(AtomicBool::new(false));
        let port = stalling_way(db.cluster.folder().join(".s.PGSQL.5432"), stalls.clone());
        let pg = Postgres::connect(&format!("host=127.0.0.1 port={port} user=postgres dbname={}", db.name));
        let pg = pg.wait().expect("it is up");
        let leases = [("short", short), ("long", 6 * short)];
        let (tell, told) = mpsc::channel();
        let workers = leases.map(|(name, lease)| {
            let q: Queue<String> = pg.queue(name).lease(lease).open().wait().expect("the schema is there");
            let tell = tell.clone();
            let worker = Worker::of(&q).workers(1).start_threads(move |run: Run<String>| {
                let _ = tell.send((name, "begun"));
                until("the end of the lease", || run.cancelled());
                let _ = tell.send((name, "cancelled"));
            });
            add(&q, "k");
            (q, worker.expect("threads"))
        });
        let mut begun = [false; 2];
        while begun != [true; 2] {
            let (name, what) = told.recv_timeout(LONG).expect("both begin");
            begun[usize::from(name == "long")] = what == "begun";
        }
        let in_time = block_on(async {
            let client = db.client().await;
            let left = "select bool_and(lease_until > clock_timestamp()) from requeue.owner o join requeue.queue q on q.id = o.queue where q.name = $1";
            let left = client.prepare(left).await.expect("it is up");
            stalls.store(true, SeqCst);
            let since = Instant::now();
            for (name, lease) in leases {
                // a run that had lost its lease before is told of nothing any more
                let is_told = std::iter::from_fn(|| {
                    told.recv_timeout((2 * lease).saturating_sub(since.elapsed())).ok()
                })
                .any(|it| it == (name, "cancelled"));
                let left = client.query_one(&left, &[&name]).await.expect("it is up");
                if !is_told || left.get::<_, Option<bool>>(0) != Some(true) {
                    return false;
                }
            }
            true
        });
        stalls.store(false, SeqCst);
        for (_, worker) in workers {
            worker.stop(Duration::ZERO).wait();
        }
        in_time
    });
}

#[test]
fn e14_and_e16_keys_of_a_dead_process_go_to_others_and_those_of_one_that_leaves_at_once() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q: Queue<String> = pg.queue("orders").prefetch(5).open().wait().expect("the schema is there");
    for name in ["a", "b", "c"] {
        add(&q, name);
    }
    until("they are claimed", || db.sql("select count(*) from requeue.item where state = 2") == "3");
    drop(q);
    drop(pg);
    assert_eq!(db.sql("select count(*), min(state), max(state), max(attempt) from requeue.item"), "3|1|1|0");
    assert_eq!(db.sql("select count(*) from requeue.owner"), "0");
    // as kill -9 leaves it
    db.sql(
        "select requeue.join_(1, 'dead', 3600000000); select requeue.claim(1, (select max(id) from requeue.owner), 2, true);
         update requeue.owner set lease_until = '-infinity'",
    );
    let q = open(&db.connect());
    let (worker, ran) = works(&q);
    let mut keys: Vec<_> = (0..3).map(|_| ran.recv_timeout(LONG).expect("a run").0).collect();
    keys.sort();
    assert_eq!(keys, ["a", "b", "c"]);
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn processes_that_end_runs_fold_each_others_triggers_in_and_wait_for_nobody() {
    let Some(db) = Database::new() else { return };
    are_held(&db, &["x", "y"]);
    block_on(async {
        let (mut one, mut two) = (db.client().await, db.client().await);
        let first = one.transaction().await.expect("it is up");
        assert_eq!(next_of(&first, &[("x", 1)]).await, ["0"]);
        db.sql("select requeue.make_queue('default')");
        db.sql("select requeue.add_tx('default', 'other'); select requeue.add_tx('orders', 'x')");
        // the other process knows of the trigger of a key whose row the first has locked, and does not wait for it
        let second = two.transaction().await.expect("it is up");
        let said = tokio::time::timeout(LONG, next_of(&second, &[("y", 2)])).await;
        assert_eq!(said.expect("it waits for nobody"), ["0", "3"]);
        db.sql("select requeue.add_tx('orders', 'y')");
        first.commit().await.expect("it is up");
        second.commit().await.expect("it is up");
        assert_eq!(next_of(&one, &[]).await, ["1 x", "1 y"]);
        assert_eq!(db.sql("select count(*) from requeue.inbox where queue = 1"), "0");
    });
}

#[test]
fn the_end_of_a_run_whose_key_somebody_has_locked_is_told_again_and_keeps_no_others_back() {
    let Some(db) = Database::new() else { return };
    are_held(&db, &["z", "a", "b"]);
    block_on(async {
        let (mut user, ends) = (db.client().await, db.client().await);
        let lock = user.transaction().await.expect("it is up");
        lock.batch_execute("select requeue.guard(1, 'a', 2)").await.expect("it is up");
        let runs = [("z", 1), ("a", 2), ("b", 3)];
        assert_eq!(next_of(&ends, &runs).await, ["0", "0", "0 locked"]);
        // one that is others' by now is not told again
        assert_eq!(next_of(&ends, &[("a", 2), ("b", 3)]).await, ["0 locked"]);
        lock.rollback().await.expect("it is up");
        assert_eq!(next_of(&ends, &[("a", 2)]).await, ["0"]);
    });
}

#[test]
fn triggers_of_a_key_that_is_guarded_keep_no_other_triggers_from_being_taken_in_however_many_they_are() {
    let Some(db) = Database::new() else { return };
    are_held(&db, &["k"]);
    block_on(async {
        let (mut user, worker) = (db.client().await, db.client().await);
        let tx = user.transaction().await.expect("it is up");
        tx.batch_execute("select requeue.guard(1, 'k', 1)").await.expect("it is up");
        db.sql("select requeue.add_tx('orders', 'k') from generate_series(1, 2500); select requeue.add_tx('orders', 'other')");
        assert_eq!(next_of(&worker, &[]).await, ["1 other"]);
        assert_eq!(db.sql("select count(*) from requeue.inbox"), "2500");
        tx.rollback().await.expect("it is up");
        for _ in 0..3 {
            assert_eq!(next_of(&worker, &[]).await, [""; 0]);
        }
        assert_eq!(db.sql("select count(*) from requeue.inbox"), "0");
    });
}

#[test]
fn e13_a_transaction_that_a_handler_leaves_open_keeps_only_its_own_key_back() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    add(&q, "forgotten");
    let held = Held::on(&q, || Outcome::Done);
    let (_, fence, _) = held.begins();
    block_on(async {
        let mut user = db.client().await;
        let tx = user.transaction().await.expect("it is up");
        tx.execute("select requeue.guard(1, 'forgotten', $1)", &[&(fence as i64)]).await.expect("it is up");
        held.go_on.send(()).expect("a run waits");
        // its end is on the way, again and again; others' keys come and go, by users' transactions as well
        until("a call with its end", || !q.is_settled());
        db.sql("select requeue.add_tx('orders', 'forgotten'), requeue.add_tx('orders', 'other')");
        let other = held.begins();
        assert_eq!(other.0, "other");
        held.go_on.send(()).expect("a run waits");
        until("its end", || db.sql("select count(*) from requeue.item") == "1");
        assert_eq!(
            db.sql("select count(*) from requeue.inbox"),
            "1",
            "the trigger waits for the transaction"
        );
        tx.rollback().await.expect("it is up");
    });
    assert_eq!(held.begins().0, "forgotten");
    held.ends();
}

#[test]
fn hot_keys_that_many_trigger_and_end_at_once_make_nobody_wait_in_a_circle() {
    let Some(db) = Database::new() else { return };
    let queues: Vec<_> = (0..2).map(|_| open(&db.connect())).collect();
    let start = |q| Worker::of(q).workers(8).start_threads(|_: Run<String>| ()).expect("threads");
    let workers: Vec<_> = queues.iter().map(start).collect();
    // ten of forty keys, in another order each time
    let some = |nth: usize| {
        (0..10).map(move |n| format!("k{}", (nth * 7 + n * (nth % 19 + 1)) % 40)).collect::<Vec<_>>()
    };
    std::thread::scope(|threads| {
        for adder in 0..4 {
            let (db, some) = (&db, &some);
            threads.spawn(move || {
                let orders = db.connect().client("orders");
                for n in 0..150 {
                    // the server may be too slow for this; its log names the deadlocked processes
                    until("a trigger that is accepted", || {
                        orders.add_many(&some(n * 4 + adder), None, 0).wait().is_ok()
                    });
                }
            });
        }
        for adder in 0..2 {
            let (db, some) = (&db, &some);
            threads.spawn(move || {
                let adds = "select requeue.add_tx(1, $1, array_fill(0::bigint, array[10]))";
                block_on(async {
                    let user = db.client().await;
                    for n in 0..300 {
                        let keys: Vec<_> = some(n * 2 + adder).into_iter().map(String::into_bytes).collect();
                        user.query(adds, &[&keys]).await.expect("it is up");
                    }
                });
            });
        }
    });
    let left = "select (select count(*) from requeue.item) + (select count(*) from requeue.inbox)";
    until("the end of all runs", || db.sql(left) == "0");
    for (worker, q) in workers.into_iter().zip(&queues) {
        assert!(worker.stop(LONG).wait().complete);
        assert_eq!(q.ends_refused(), 0);
    }
    let log = std::fs::read_to_string(db.cluster.folder().with_extension("log")).expect("a log");
    assert!(!log.contains("deadlock detected"), "somebody waited for a second");
}

#[test]
fn operators_lock_what_gave_up_in_the_order_in_which_the_ends_of_runs_do() {
    let Some(db) = Database::new() else { return };
    are_held(&db, &["a"]);
    db.sql("insert into requeue.dead(queue, key, failures, attempt) values (1, 'a', 3, 3), (1, 'b', 3, 3)");
    block_on(async {
        let (mut run, operator) = (db.client().await, db.client().await);
        let retry = async || {
            let retried = operator.query_one("select requeue.retry(1, 'a')", &[]).await.expect("it is up");
            assert!(retried.get::<_, bool>(0));
        };
        // a run ends, which takes its key from those that gave up
        let end = run.transaction().await.expect("it is up");
        end.batch_execute("select 1 from requeue.item where key = 'a' for update").await.expect("it is up");
        futures_util::future::join(retry(), async {
            somebody_waits(&db).await;
            end.batch_execute("delete from requeue.dead where key = 'a'")
                .await
                .expect("the operator has not locked it");
            // nor does who removes them all wait for it
            assert_eq!(db.connect().client("orders").purge().await.expect("it is up"), 1);
            end.rollback().await.expect("it is up");
        })
        .await;
    });
    assert_eq!(db.sql("select (select count(*) from requeue.dead), dirty from requeue.item"), "0|t");
}

#[test]
fn e14_keys_that_somebody_has_locked_keep_no_others_from_coming_back() {
    let Some(db) = Database::new() else { return };
    are_held(&db, &["a", "b"]);
    db.sql(
        "insert into requeue.owner(id, queue, name, lease_until) values (1000, 1, 'another', '-infinity')",
    );
    db.sql("insert into requeue.item(queue, key, state, fence, owner) values (1, 'c', 2, 99, 1000)");
    db.sql("update requeue.owner set lease_until = '-infinity'");
    block_on(async {
        let mut user = db.client().await;
        let lock = user.transaction().await.expect("it is up");
        lock.batch_execute("select 1 from requeue.item where key = 'a' for no key update")
            .await
            .expect("it is up");
        assert_eq!(db.sql("set lock_timeout = '60s'; select requeue.reap(1000)"), "2");
        assert_eq!(db.sql("select key, state from requeue.item order by key"), "\\x61|2\n\\x62|1\n\\x63|1");
        assert_eq!(db.sql("select id from requeue.owner"), "1", "its key still points to it");
        lock.rollback().await.expect("it is up");
        assert_eq!(db.sql("select requeue.reap(1000)"), "1");
        assert_eq!(db.sql("select count(*) from requeue.owner"), "0");
    });
}

#[test]
fn e15_what_an_unanswered_claim_has_brought_goes_back_in_line() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    for name in ["known", "unknown"] {
        add(&q, name);
    }
    db.sql("select requeue.join_(1, 'old', 3600000000), requeue.join_(1, 'new', 3600000000)");
    db.sql("select requeue.claim(1, 1, 9, true)");
    let known = db.sql("select fence from requeue.item where key = 'known'");
    assert_eq!(
        db.sql(&format!("select requeue.settle(1, 1, 2, array[{known}::bigint])")),
        format!("{{{known}}}")
    );
    // told again, because the answer was lost
    assert_eq!(
        db.sql(&format!("select requeue.settle(1, 1, 2, array[{known}::bigint])")),
        format!("{{{known}}}")
    );
    assert_eq!(
        db.sql("select convert_from(key, 'UTF8'), state, owner from requeue.item order by key"),
        "known|2|2\nunknown|1|"
    );
    // a claim that was on its way is refused
    assert_eq!(
        db.sql(
            "do $$ begin perform requeue.claim(1, 1, 9, true); exception when sqlstate 'RQ001' then return; end $$"
        ),
        ""
    );
    assert_eq!(db.sql("select count(*) from requeue.item where state = 1"), "1");
}

#[test]
fn e17_a_step_of_the_servers_clock_ends_leases_early_and_lets_no_zombie_write() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    add(&q, "k");
    let held = Held::on(&q, || Outcome::Done);
    held.begins();
    // the clock is an hour further
    db.sql("update requeue.owner set lease_until = lease_until - interval '1 h'");
    // the process notices, and another one, or the same, gets the key
    until("the next run's claim", || {
        db.sql("select attempt from requeue.item") == "2" || db.sql("select state from requeue.item") == "1"
    });
    held.go_on.send(()).expect("a run waits");
    let (_, _, attempt) = held.begins();
    assert_eq!(attempt, 2);
    held.ends();
}

#[test]
fn e17_a_servers_clock_that_is_set_back_delays_neither_triggers_nor_the_rate() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q: Queue<String> = pg.queue("orders").dispatch_rate(1000.0, 5).open().wait().expect("up");
    add(&q, "trigger");
    db.sql("select requeue.add_tx('orders', 'in a transaction')");
    // the clock was an hour further then
    db.sql("update requeue.inbox set at = at + interval '1 h'");
    db.sql("update requeue.queue set tat = clock_timestamp() + interval '1 h'");
    let (worker, ran) = works(&q);
    let mut keys = [(), ()].map(|()| ran.recv_timeout(LONG).expect("a run").0);
    keys.sort();
    assert_eq!(keys, ["in a transaction", "trigger"]);
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e18_errors_say_whether_and_give_key_and_value_back() {
    let Some(db) = Database::bare() else { return };
    let pg = db.connect();
    let none = pg.queue::<String>("orders").open().wait().expect_err("there is no schema");
    assert!(matches!(&none, EngineError::NotApplied(why) if why.to_string().contains("migrate")), "{none}");
    pg.migrate().wait().expect("a schema");
    let q = pg.queue_with::<String, String>("orders", |old, new| old.push_str(&new)).open().wait();
    let q = q.expect("the schema is there");
    // JSON of PostgreSQL has no NUL; and others of the same statement do not suffer
    let bad = q.add_with("bad".into(), Add::now().value("\0".to_owned()));
    let good = q.add_with("good".into(), Add::now().value("x".to_owned()));
    let failed = bad.wait().expect_err("it can't be kept");
    assert_eq!((&*failed.key, failed.value.as_deref()), ("bad", Some("\0")));
    assert!(matches!(failed.error, EngineError::NotApplied(_)), "{}", failed.error);
    assert_eq!(good.wait().expect("it is up"), Added::Ready);
    // empty and large keys and values, and delays of all lengths
    for key in [String::new(), "k".repeat(2000)] {
        for delay in [Duration::ZERO, Duration::from_nanos(1), HOUR, Duration::MAX] {
            let add = Add::after(delay).value("v".repeat(100_000));
            q.add_with(key.clone(), add).wait().unwrap_or_else(|e| panic!("{delay:?}: {e}"));
        }
    }
    // a key too long for any index, even if it could be compressed
    let long = "k".repeat(LONGEST_KEY + 1);
    let refused = q.add(long.clone()).wait().expect_err("it is too long");
    assert_eq!(refused.key, long);
    let names_it = |error: EngineError| {
        let why = error.to_string();
        assert!(matches!(error, EngineError::NotApplied(_)), "{why}");
        assert!(why.contains("key that begins with \"kkkk") && why.contains("2601 bytes"), "{why}");
    };
    names_it(refused.error);
    names_it(
        q.client().add_many(&["short".to_owned(), long.clone()], None, 0).wait().expect_err("it is too long"),
    );
    assert!(q.state(&"short".to_owned()).wait().expect("it is up").is_none(), "none was written");
    let name = long.clone();
    let grouped = pg.client("orders").group_by(move |_| name.clone());
    let refused = grouped.add_many(&["short".to_owned()], None, 0).wait().expect_err("its group is too long");
    assert!(refused.to_string().contains("name of a group"), "{refused}");
    // the longest are kept; these look random, so that they can't be
    let bytes: Vec<u8> =
        (0..LONGEST_KEY as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    pg.make_queue("bytes").wait().expect("it is up");
    let longest = pg.client("bytes").group_by(<[u8]>::to_vec);
    longest.add_many(&[bytes], None, 0).wait().expect("it fits");
    let nobody = Postgres::connect("host=/nowhere user=postgres").wait().expect_err("nobody is there");
    assert!(matches!(nobody, EngineError::NotApplied(_)), "{nobody}");
    let wrong = Postgres::connect("hist=nowhere").wait().expect_err("it can't be read");
    assert!(wrong.to_string().contains("hist"), "{wrong}");
}

#[test]
fn e21_triggers_in_users_transactions_wait_for_nobody_and_come_with_the_commit() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    block_on(async {
        let (mut one, mut two) = (db.client().await, db.client().await);
        let (a, b) = (one.transaction().await.expect("up"), two.transaction().await.expect("up"));
        // in opposite order: neither waits
        for (tx, keys) in [(&a, ["x", "y"]), (&b, ["y", "x"])] {
            for key in keys {
                q.add_in(tx, key.into(), Add::now()).await.expect("it waits for nobody");
            }
        }
        q.add_in(&b, "rolled back".into(), Add::now()).await.expect("it waits for nobody");
        let (worker, ran) = works(&q);
        // a run of the same key ends although the transaction goes on
        add(&q, "x");
        assert_eq!(ran.recv_timeout(LONG).expect("a run").0, "x");
        until("its end", || db.sql("select count(*) from requeue.item") == "0");
        assert!(ran.try_recv().is_err());
        a.commit().await.expect("up");
        b.rollback().await.expect("up");
        let mut keys = [ran.recv_timeout(LONG).expect("a run").0, ran.recv_timeout(LONG).expect("a run").0];
        keys.sort();
        assert_eq!(keys, ["x", "y"]);
        // as a program in another language says it, later
        one.execute("select requeue.add_tx('orders', 'plain', interval '1 ms', 5)", &[]).await.expect("up");
        assert_eq!(ran.recv_timeout(LONG).expect("a run").0, "plain");
        assert!(worker.stop(LONG).wait().complete);
        assert!(ran.try_recv().is_err());
    });
}

#[test]
fn e21_a_trigger_that_no_index_can_keep_is_refused_and_stops_nobody() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    let random = "(select string_agg(md5(n::text), '') from generate_series(1, 300) n)";
    let (worker, ran) = works(&q);
    block_on(async {
        let client = db.client().await;
        for (key, group) in [(random, "null"), ("'k'", random)] {
            let add = format!("select requeue.add_tx('orders', {key}, grp => {group})");
            let refused = client.batch_execute(&add).await.expect_err("it is too long");
            assert!(format!("{refused:?}").contains("have_at_most_2600_bytes"), "{refused:?}");
        }
    });
    add(&q, "next");
    assert_eq!(ran.recv_timeout(LONG).map(|(key, _)| key), Ok("next".to_owned()));
    worker.stop(Duration::ZERO).wait();
}

#[test]
fn e22_who_sleeps_is_notified_and_nobody_is_where_nobody_sleeps() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    add(&q, "a");
    let (worker, ran) = works(&q);
    ran.recv_timeout(LONG).expect("a run");
    until("it sleeps", || db.sql("select idle from requeue.owner") == "t");
    let listen = |add: &str| db.sql(&format!("listen requeue; {add}; select requeue.wake(1)"));
    assert!(
        listen("select 1 from requeue.add(1, array['z'::bytea], array[3600000000], array[0])")
            .contains("\"requeue\"")
    );
    assert!(worker.stop(LONG).wait().complete);
    drop(q);
    until("it has left", || db.sql("select count(*) from requeue.owner") == "0");
    assert!(!listen("select 1").contains("\"requeue\""));
}

/// A transaction that notifies fails where they are too many, which takes 8 GB of them: the server's answer is feigned.
#[test]
fn e22_nobody_is_notified_where_a_session_keeps_the_servers_notifications_from_going() {
    let Some(db) = Database::new() else { return };
    db.sql(
        "create schema fake;
         create table fake.answer as select 0.95::float8 as x;
         create function fake.pg_notification_queue_usage() returns float8 language sql as 'select x from fake.answer'",
    );
    db.sql(&format!("alter database {} set search_path = fake, pg_catalog, public", db.name));
    let q = open(&db.connect());
    let (worker, ran) = works(&q);
    until("it sleeps", || db.sql("select bool_and(idle) from requeue.owner") == "t");
    let wakes = || db.sql("listen requeue; select requeue.wake(1)").contains("\"requeue\"");
    assert!(!wakes());
    // keys come and go
    db.connect().client("orders").add_many(&["k".to_owned()], None, 0).wait().expect("it is up");
    assert_eq!(ran.recv_timeout(LONG).expect("its look finds the key").0, "k");
    db.sql("update fake.answer set x = 0.5");
    until("it sleeps", || db.sql("select bool_and(idle) from requeue.owner") == "t");
    assert!(wakes());
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e22_an_idle_process_looks_once_a_second() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    let (worker, ran) = works(&q);
    add(&q, "k");
    ran.recv_timeout(LONG).expect("a run");
    until("it sleeps", || db.sql("select bool_and(idle) and count(*) = 1 from requeue.owner") == "t");
    let looks = Looks::noted(|sql| db.sql(sql));
    looks.has_slept();
    until("three more looks", || db.sql("select count(*) >= 5 from look") == "t");
    // the clocks of two programs are not quite the same
    let early = "select count(*) from (select at - lag(at) over (order by at) < interval '0.9 s' as early from look) x where early";
    assert_eq!(db.sql(early), "0");
    assert_eq!(db.sql("select count(*) from look where what = 'claim'"), "0", "a look is not a claim");
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e22_an_idle_process_looks_once_a_second_also_with_a_rate_and_while_the_queue_is_paused() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q: Queue<String> = pg.queue("orders").dispatch_rate(1000.0, 100).open().wait().expect("up");
    let (worker, ran) = works(&q);
    add(&q, "k");
    ran.recv_timeout(LONG).expect("a run");
    until("it sleeps", || db.sql("select bool_and(idle) and count(*) = 1 from requeue.owner") == "t");
    let looks = Looks::noted(|sql| db.sql(sql));
    // there are tokens, and no keys
    looks.has_slept();
    // there is a timer that is due, and no key may go
    q.client().pause().wait().expect("it is up");
    db.sql("select requeue.add(1, array['due'::bytea], array[1::bigint], array[0])");
    looks.has_slept();
    q.client().resume().wait().expect("it is up");
    assert_eq!(ran.recv_timeout(LONG).expect("a run").0, "due");
    assert!(worker.stop(LONG).wait().complete);
}

/// Checks that a process runs a key that is added while it sleeps, without waiting for its next look.
/// `meanwhile` runs before.
fn is_woken(db: &Database, q: &Queue<String>, ran: &Receiver<(String, u64)>, meanwhile: impl Fn()) {
    until("it sleeps", || db.sql("select count(*) from requeue.owner where idle") == "1");
    Looks::noted(|sql| db.sql(sql)).some_was_early(|n| {
        meanwhile();
        let key = format!("k{n}");
        add(q, &key);
        assert_eq!(ran.recv_timeout(LONG).expect("a run").0, key);
    });
}

#[test]
fn e22_a_process_that_has_added_itself_needs_no_notification() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    let wake =
        "create or replace function requeue.wake(q int, who text default null) returns void language sql as";
    db.sql(&format!("{wake} 'select'"));
    let (worker, ran) = works(&q);
    is_woken(&db, &q, &ran, || ());
    // the other way to add
    let client = q.client();
    client.add_many(&["many".to_owned()], None, 0).wait().expect("up");
    assert_eq!(ran.recv_timeout(LONG).expect("a run").0, "many");
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e22_others_are_notified_after_triggers_that_changed_nothing() {
    let Some(db) = Database::new() else { return };
    let (adds, other) = (open(&db.connect()), open(&db.connect()));
    add(&adds, "held");
    let held = Held::on(&other, || Outcome::Done);
    held.begins();
    assert_eq!(add(&adds, "held"), Added::Dirty);
    let (worker, ran) = works(&other);
    is_woken(&db, &adds, &ran, || assert_eq!(add(&adds, "held"), Added::Coalesced));
    assert!(worker.stop(LONG).wait().complete);
    // the run that was asked for meanwhile
    held.go_on.send(()).expect("a run waits");
    held.begins();
    held.ends();
}

#[test]
fn e23_values_of_a_run_and_of_triggers_during_it_stay_apart() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q = pg.queue_with::<String, Vec<u32>>("users", Extend::extend).open().wait();
    let q = q.expect("the schema is there");
    let add = |value: u32| q.add_with("k".into(), Add::now().value(vec![value])).wait().expect("it is up");
    let (tell, ran) = mpsc::channel();
    let (go_on, may) = mpsc::channel();
    let may = Mutex::new(may);
    add(1);
    add(2);
    let worker = Worker::of(&q).workers(1).start_threads(move |run: Run<String, Vec<u32>>| {
        drop(tell.send(run.value().cloned()));
        may.lock().expect("no panic").recv().expect("the test goes on")
    });
    let worker = worker.expect("threads");
    let next = || ran.recv_timeout(LONG).expect("a run");
    assert_eq!(next(), Some(vec![1, 2]));
    add(3);
    go_on.send(Outcome::Retry("not yet".into())).expect("a run waits");
    // the values of the failed run come back, in front
    assert_eq!(next(), Some(vec![1, 2, 3]));
    add(4);
    go_on.send(Outcome::Done).expect("a run waits");
    assert_eq!(next(), Some(vec![4]));
    // the process dies
    add(5);
    leases_end(&db);
    go_on.send(Outcome::Done).expect("a run waits");
    assert_eq!(next(), Some(vec![4, 5]));
    go_on.send(Outcome::Done).expect("a run waits");
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e24_a_rate_holds_for_all_processes_together() {
    let Some(db) = Database::new() else { return };
    let (a, b) = (db.connect(), db.connect());
    let (rate, burst, keys) = (40, 5, 45);
    let p: Queue<String> = a.queue("orders").dispatch_rate(f64::from(rate), burst).open().wait().expect("up");
    let q = open(&b);
    for n in 0..keys {
        add(&p, &format!("k{n}"));
    }
    let began = Instant::now();
    let ((one, ran), (two, also)) = (works(&p), works(&q));
    let mut done = 0;
    while done < keys {
        done += u32::from(ran.recv_timeout(Duration::from_millis(5)).is_ok());
        done += u32::from(also.recv_timeout(Duration::from_millis(5)).is_ok());
        assert!(began.elapsed() < LONG, "{done} of {keys}");
    }
    // never more than the bucket had: a loaded machine makes it slower, and not faster
    let least = Duration::from_secs(1) * (keys - burst - 1) / rate;
    assert!(began.elapsed() >= least, "{keys} keys after {:?}", began.elapsed());
    assert!(one.stop(LONG).wait().complete && two.stop(LONG).wait().complete);
}

#[test]
fn e7_triggers_keep_their_order_while_one_statement_is_on_its_way_behind_another() {
    let begun = Instant::now();
    while !triggers_keep_their_order() {
        assert!(begun.elapsed() < LONG, "the machine stands still again and again");
    }
}

/// False if they waited for so long that the server refused them.
fn triggers_keep_their_order() -> bool {
    let Some(db) = Database::new() else { return true };
    let collect = |old: &mut Vec<String>, new: Vec<String>| old.extend(new);
    let pg = db.connect();
    let q =
        pg.queue_with::<String, Vec<String>>("orders", collect).open().wait().expect("the schema is there");
    let there = || q.add("there".into());
    assert_eq!(there().wait().expect("it is up"), Added::Ready);
    // from now on the process expects that triggers change nothing
    assert_eq!(there().wait().expect("it is up"), Added::Coalesced);
    let value = |value: &str| Add::now().value(vec![value.to_owned()]);
    let mut asked = Vec::new();
    let held = block_on(async {
        let mut other = db.client().await;
        let lock = other.transaction().await.expect("it is up");
        lock.batch_execute("lock table requeue.item in access exclusive mode").await.expect("it is up");
        let locked = Instant::now();
        asked.push(there());
        let waits = "select count(*) from pg_stat_activity where datname = current_database()
                     and application_name = 'requeue' and wait_event_type = 'Lock' and query like '%requeue.adds%'";
        until("a statement that waits", || db.sql(waits) == "1");
        // behind it, and then those that can't be sent with it: of the first two one is refused, and both are written anew
        asked.push(there());
        let refused = q.add_with("bad".into(), value("\0"));
        asked.push(q.add_with("k".into(), value("first")));
        asked.push(q.add_every("k".into(), HOUR, value("second")));
        asked.extend((0..20).flat_map(|n| [q.add(format!("n{n}")), there()]));
        asked.push(q.add_with("k".into(), value("third")));
        lock.rollback().await.expect("it is up");
        let held = locked.elapsed();
        refused.await.expect_err("PostgreSQL keeps no NUL");
        held
    });
    // the first is refused after 8 s
    if held > Duration::from_secs(7) {
        return false;
    }
    for asked in asked {
        asked.wait().expect("it is up");
    }
    assert_eq!(
        db.sql("select value from requeue.item where key = 'k'"),
        r#"[["first"], ["second"], ["third"]]"#
    );
    let line = q.client().list().wait().expect("it is up");
    let line: Vec<_> = line.iter().map(|it| String::from_utf8_lossy(&it.key)).collect();
    let expected: Vec<_> =
        ["there", "k"].map(str::to_owned).into_iter().chain((0..20).map(|n| format!("n{n}"))).collect();
    assert_eq!(line, expected);
    true
}

#[test]
fn e9_backoff_is_stored_with_the_queue() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q: Queue<String> = pg.queue("orders").backoff(HOUR, 8 * HOUR).open().wait().expect("up");
    drop(q);
    // another process, that says nothing of it
    let q = open(&db.connect());
    add(&q, "k");
    let held = Held::on(&q, || Outcome::Retry("not yet".into()));
    held.begins();
    held.ends();
    until("the failure", || db.sql("select failures from requeue.item") == "1");
    let due = q.state(&"k".to_owned()).wait().expect("up").expect("known").due_in.expect("it waits");
    assert!(due > HOUR / 2 && due <= HOUR, "{due:?}");
}

#[test]
fn e9_half_of_a_backoff_leaves_the_other_and_one_that_contradicts_itself_is_not_stored() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let stored = || pg.client("orders").stats().wait().expect("it is up").backoff;
    let opens = |base, max| pg.queue::<String>("orders").backoff(base, max).open().wait().map(drop);
    opens(None, Some(HOUR)).expect("up");
    assert_eq!(stored(), (Duration::from_secs(1), HOUR));
    opens(Some(HOUR / 2), None).expect("up");
    assert_eq!(stored(), (HOUR / 2, HOUR));
    for (base, max) in [(Some(2 * HOUR), None), (None, Some(HOUR / 3)), (Some(2 * HOUR), Some(HOUR))] {
        let refused = opens(base, max).expect_err("it contradicts itself");
        assert!(refused.to_string().contains("is longer than the longest"), "{refused}");
        assert_eq!(stored(), (HOUR / 2, HOUR));
    }
    opens(None, None).expect("what is stored is sound");
}

#[test]
fn e9_a_rate_is_told_and_taken_back() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let stored = || pg.client("orders").stats().wait().expect("it is up").dispatch_rate;
    let q: Queue<String> = pg.queue("orders").dispatch_rate(1e-6, 1).open().wait().expect("up");
    assert_eq!(stored(), Some((1e-6, 1)));
    for key in ["a", "b"] {
        add(&q, key);
    }
    let (worker, ran) = works(&q);
    ran.recv_timeout(LONG).expect("one");
    // a process that does not set it does not change it
    drop(pg.queue::<String>("orders").open().wait().expect("up"));
    assert_eq!(stored(), Some((1e-6, 1)));
    assert_eq!(db.sql("select count(*) from requeue.item where state = 1"), "1");
    drop(pg.queue::<String>("orders").no_dispatch_rate().open().wait().expect("up"));
    assert_eq!(stored(), None);
    ran.recv_timeout(LONG).expect("the other one, though its turn was days away");
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e9_a_rate_that_the_server_cannot_keep_is_refused_and_those_at_the_ends_are_kept() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let name = |rate: f64| format!("at {rate}");
    let opens = |rate, burst| pg.queue::<String>(&name(rate)).dispatch_rate(rate, burst).open().wait();
    let wrong = [
        (f64::NAN, 1),
        (0.0, 1),
        (1e-7, 1),
        (2e6, 1),
        (f64::INFINITY, 1),
        (1.0, 0),
        (50.0, u32::MAX),
        (1e-6, 1001),
    ];
    for (rate, burst) in wrong {
        let refused = opens(rate, burst).map(drop).expect_err("it can't be kept");
        assert!(refused.to_string().contains("keys a second and"), "{refused}");
    }
    for (rate, burst) in [(1e6, i32::MAX.unsigned_abs()), (1e-6, 1000), (3e5, 1)] {
        let q = opens(rate, burst).expect("it can be kept");
        let (worker, ran) = works(&q);
        add(&q, "k");
        ran.recv_timeout(LONG).expect("a run");
        assert!(worker.stop(LONG).wait().complete);
    }
}

#[test]
fn b2_a_key_that_is_raised_to_the_usual_priority_is_handed_out() {
    let Some(db) = Database::new() else { return };
    db.sql("select requeue.make_queue('orders')");
    let orders = db.connect().client("orders");
    let add =
        |key: &str, priority| orders.add_many(&[key.to_owned()], None, priority).wait().expect("it is up");
    add("low", -5);
    add("other", 0);
    // rows before the first key of the usual priority are no longer searched
    until("the floor has moved", || {
        db.sql("select requeue.advance(1)");
        db.sql("select pos from requeue.floor") == "2"
    });
    add("low", 0);
    db.sql("select requeue.join_(1, 'test', 3600000000)");
    assert_eq!(
        db.sql("select convert_from(k, 'UTF8') from requeue.claim(1, 1, 9, true) order by place"),
        "other\nlow"
    );
}

#[test]
fn e2_a_standby_accepts_nothing_not_even_what_it_knows() {
    let Some(cluster) = Cluster::start_with("", With::Replica) else { return };
    let url = cluster.database();
    let pg = Postgres::connect(&url).wait().expect("it is up");
    pg.migrate().wait().expect("a schema");
    let key = ["k".to_owned()];
    pg.make_queue("orders").wait().expect("it is up");
    pg.client("orders").add_many(&key, None, 0).wait().expect("it is up");
    let host = cluster.folder().display().to_string();
    let mut standby = None;
    until("the database is there, too", || {
        standby = Postgres::connect(&url.replace(&host, &format!("{host}/s1"))).wait().ok();
        standby.is_some()
    });
    let standby = standby.expect("it is up");
    until("the key is there", || standby.client("orders").list().wait().is_ok_and(|keys| keys.len() == 1));
    let refused = standby.client("orders").add_many(&key, None, 0).wait().expect_err("it is a standby");
    assert!(
        matches!(&refused, EngineError::NotApplied(why) if why.to_string().contains("standby")),
        "{refused}"
    );
    // of several hosts it is the one that takes writes
    let both = format!("host={host}/s1,{host}/s0");
    let pg =
        Postgres::connect(&url.replace(&format!("host={host}"), &both)).wait().expect("one of them is it");
    pg.client("orders").add_many(&key, None, 0).wait().expect("it takes writes");
}

#[test]
fn e10_what_no_claim_could_take_in_is_refused_in_the_users_transaction() {
    let Some(db) = Database::new() else { return };
    drop(open(&db.connect()));
    block_on(async {
        let user = db.client().await;
        let adds = "select requeue.add_tx(1, array['k'::bytea], array[$1::bigint], array[$2::int])";
        for (delay, rank) in [(i64::MAX, 0), (0_i64, i32::MIN)] {
            let refused = user.execute(adds, &[&delay, &rank]).await.expect_err("it can't be kept");
            let why = refused.as_db_error().and_then(|e| e.constraint()).expect("a rule of the table");
            assert!(why.contains("of_transactions"), "{why}");
        }
        for (delay, rank) in [(6_000_000_000_000_000_000_i64, 0), (0, i32::MIN + 1), (0, i32::MAX)] {
            user.execute(adds, &[&delay, &rank]).await.expect("it is kept");
        }
    });
    db.sql("select requeue.join_(1, 'test', 3600000000)");
    assert_eq!(db.sql("select count(*) from requeue.claim(1, 1, 9, true)"), "1");
}

#[test]
fn what_ends_well_is_not_told_of_as_given_up_whatever_ends_beside_it() {
    let Some(db) = Database::new() else { return };
    are_held(&db, &["a", "b"]);
    db.sql("insert into requeue.dead(queue, key, failures, attempt) values (1, 'a', 3, 3), (1, 'b', 3, 3), (1, 'c', 3, 3)");
    db.sql("select requeue.add(1, array['b'::bytea], array[0::bigint], array[0])");
    block_on(async {
        // the end of c is a zombie's
        let ends = [("a", 1), ("b", 2), ("c", 3)];
        assert_eq!(next_of(&db.client().await, &ends).await, ["0", "0", "1 b"]);
    });
    assert_eq!(db.sql("select convert_from(key, 'UTF8') from requeue.dead"), "c");
}

#[test]
fn an_error_that_the_databases_encoding_lacks_letters_for_is_kept_without_them() {
    let Some(cluster) = Cluster::shared() else { return };
    cluster.sql(
        "postgres",
        "create database latin template template0 encoding 'LATIN1' lc_collate 'C' lc_ctype 'C'",
    );
    let pg = Postgres::connect(&cluster.url("latin")).wait().expect("it is up");
    pg.migrate().wait().expect("a schema");
    let q = open(&pg);
    let gives_up = |run: Run<String>| match run.key().as_str() {
        "well" => Outcome::Done,
        _ => Outcome::GiveUp("a → b: café".into()),
    };
    let worker = Worker::of(&q).workers(3).start_threads(gives_up).expect("threads");
    for key in ["odd", "well", "odd too"] {
        add(&q, key);
    }
    until("all have ended", || cluster.sql("latin", "select count(*) from requeue.item") == "0");
    let errors =
        cluster.sql("latin", "select convert_from(key, 'UTF8'), error from requeue.dead order by key");
    assert_eq!(errors, "odd|a ? b: caf?\nodd too|a ? b: caf?");
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e28_a_schema_is_made_once_and_a_newer_one_refused() {
    let Some(db) = Database::bare() else { return };
    let (a, b) = (db.connect(), db.connect());
    let (one, two) = (a.migrate(), b.migrate());
    one.wait().expect("a schema");
    two.wait().expect("the same");
    a.migrate().wait().expect("it is there");
    db.sql("update requeue.meta set version = 1000");
    let newer = a.queue::<String>("orders").open().wait().expect_err("it is newer");
    assert!(matches!(newer, EngineError::Version { found: 1000, .. }), "{newer}");
    assert!(matches!(a.migrate().wait(), Err(EngineError::Version { .. })));
}

#[test]
fn e29_a_role_that_owns_nothing_works_and_one_that_has_less_adds() {
    let Some(db) = Database::new() else { return };
    let roles = include_str!("../SQL.md").split("```sql\n").find(|it| it.starts_with("-- works on queues"));
    let (roles, _) = roles.and_then(|it| it.split_once("```")).expect("the rights are in the documentation");
    // roles are the whole server's
    let roles = roles.replace("requeue_worker", "worker").replace("requeue_reader", "reader");
    let roles = roles.replace("requeue_adder", "shop");
    let grants: String = roles.split_inclusive('\n').filter(|it| !it.starts_with("create role")).collect();
    db.sql("create role worker login; create role reader; create role shop login");
    let of = |role: &str| db.url.replace("user=postgres", &format!("user={role}"));
    let worker = Postgres::connect(&of("worker")).wait().expect("it is up");
    let refused = worker.queue::<String>("orders").open().wait().expect_err("it has no rights");
    assert!(refused.to_string().contains("permission denied"), "{refused}");
    drop(open(&db.connect()));
    db.sql(&grants);
    let q = open(&worker);
    let (workers, ran) = works(&q);
    add(&q, "a");
    assert_eq!(ran.recv_timeout(LONG).expect("a run").0, "a");
    until("nobody has anything to do", || db.sql("select count(*) from requeue.owner where idle") == "1");
    block_on(async {
        let shop = common::client(&of("shop")).await;
        shop.execute("select requeue.add_tx('orders', 'b')", &[]).await.expect("it may add");
        let more = shop.execute("delete from requeue.item", &[]).await.expect_err("it may do no more");
        assert!(more.as_db_error().is_some_and(|e| e.message().contains("permission denied")), "{more}");
    });
    assert_eq!(ran.recv_timeout(LONG).expect("a run").0, "b");
    assert!(workers.stop(LONG).wait().complete);
    let table = || db.sql("select pg_relation_filenode('requeue.item')");
    let before = table();
    until("the table's copy", || {
        // as if there had been many visits of dead versions since now
        let seen = "array[-1e12, 0, extract(epoch from clock_timestamp()) * 1e6]::bigint[]";
        db.sql(&format!("set role worker; select requeue.renew({seen})"));
        table() != before
    });
}

#[test]
fn e29_the_oldest_key_may_be_one_that_nobody_has_taken_in() {
    let Some(db) = Database::new() else { return };
    db.sql("select requeue.make_queue('orders')");
    let oldest = || db.connect().client("orders").stats().wait().expect("it is up").oldest_ready;
    db.sql("select requeue.add_tx('orders', 'later', delay => '1 h')");
    assert_eq!(oldest(), None);
    db.sql("delete from requeue.inbox; select requeue.add_tx('orders', 'now')");
    db.sql("update requeue.inbox set at = at - interval '1 h'");
    assert!(oldest().is_some_and(|age| age >= HOUR));
}

#[test]
fn e29_all_keys_that_gave_up_are_removed_however_many_they_are() {
    let Some(db) = Database::new() else { return };
    drop(open(&db.connect()));
    db.sql(
        "insert into requeue.dead(queue, key, failures, attempt)
         select 1, convert_to(n::text, 'UTF8'), 3, 3 from generate_series(1, 50001) n",
    );
    assert_eq!(db.connect().client("orders").purge().wait().expect("it is up"), 50_001);
    assert_eq!(db.sql("select count(*) from requeue.dead"), "0");
}

#[test]
fn e29_a_key_is_listed_once_with_what_its_triggers_that_nobody_has_taken_in_make_of_it() {
    let Some(db) = Database::new() else { return };
    db.sql("select requeue.make_queue('orders')");
    let pg = db.connect();
    let client = pg.client("orders");
    let keys = ["waits", "every", "held"].map(str::to_owned);
    client.add_many(&keys[..1], Some(Duration::from_secs(3600)), 0).wait().expect("it is up");
    let day = Duration::from_secs(86_400);
    client.add_every(&keys[1..2], day, Some(HOUR), 0).wait().expect("it is up");
    client.add_many(&keys[2..], None, 0).wait().expect("it is up");
    db.sql("select requeue.join_(1, 'busy', 3600000000)");
    db.sql("select requeue.claim(1, 1, 1, true)");
    let state = |key: &str| client.state(&key.to_owned()).wait().expect("it is up").expect("it is known");
    assert_eq!((state("waits").status, state("held").status), (Status::Waiting, Status::Held));
    for key in ["waits", "every", "every", "held", "new", "new"] {
        db.sql(&format!("select requeue.add_tx('orders', '{key}')"));
    }
    db.sql("select requeue.add_tx('orders', 'late', delay => '1 h'), requeue.add_tx('orders', 'late', delay => '30 m')");
    let every = state("every");
    assert_eq!((every.status, every.every), (Status::Ready, Some(day)), "and comes again");
    assert_eq!(state("waits").status, Status::Ready);
    assert_eq!((state("held").status, state("held").dirty), (Status::Held, true));
    assert_eq!(state("new").status, Status::Ready);
    let late = state("late");
    assert!(late.status == Status::Waiting && late.due_in <= Some(HOUR / 2), "{late:?}");
    let mut listed: Vec<_> = client.list().wait().expect("it is up").into_iter().map(|it| it.key).collect();
    listed.sort();
    assert_eq!(listed, [&b"every"[..], b"held", b"late", b"new", b"waits"]);
}

#[test]
fn e29_what_gave_up_is_listed_runs_again_and_is_purged() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q = open(&pg);
    let worker = Worker::of(&q).max_attempts(1).start_threads(|run: Run<String>| match &**run.key() {
        "bad" | "worse" => Outcome::Retry("no such order\0".into()),
        _ => Outcome::Done,
    });
    let worker = worker.expect("threads");
    for name in ["bad", "worse", "good"] {
        add(&q, name);
    }
    let client = pg.client("orders");
    let dead = || client.stats().wait().expect("up").dead;
    let list = || client.list().wait().expect("up");
    until("two give up, and one ends well", || dead() == 2 && list().len() == 2);
    let listed = list();
    assert!(listed.iter().all(|it| it.error.as_deref() == Some("no such order\u{fffd}")), "{listed:?}");
    assert!(client.retry(&"bad".to_owned()).wait().expect("up"));
    until("it has given up again", || dead() == 2);
    assert!(!client.retry(&"unknown".to_owned()).wait().expect("up"));
    // a trigger makes it another key again
    assert!(worker.stop(LONG).wait().complete);
    let (worker, ran) = works(&q);
    add(&q, "bad");
    assert_eq!(ran.recv_timeout(LONG).expect("a run").0, "bad");
    until("it is dead no more", || dead() == 1);
    assert_eq!(client.purge().wait().expect("up"), 1);
    assert_eq!((dead(), client.list().wait().expect("up")), (0, Vec::new()));
    assert!(worker.stop(LONG).wait().complete);
    assert_eq!(pg.queues().wait().expect("up"), ["orders"]);
}

#[test]
fn a_key_of_add_every_comes_again_after_each_run_until_it_is_cancelled() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    let (worker, ran) = works(&q);
    q.add_every("tick".into(), Duration::from_millis(5), Add::now()).wait().expect("up");
    for _ in 0..3 {
        assert_eq!(ran.recv_timeout(LONG).expect("a run").0, "tick");
    }
    until("it is cancelled", || {
        q.cancel(&"tick".to_owned()).wait().expect("up");
        db.sql("select count(*) from requeue.item") == "0"
    });
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn a_handle_goes_on_when_its_sessions_are_ended() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    let (worker, ran) = works(&q);
    for n in 0..5 {
        let key = format!("k{n}");
        db.sql("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'requeue' and datname = current_database()");
        until("it is accepted", || q.add(key.clone()).wait().is_ok());
        until("its run", || ran.recv_timeout(LONG).expect("a run").0 == key);
    }
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn e26_what_happens_while_nobody_works_is_caught_up() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q = open(&pg);
    add(&q, "died");
    q.add_with("timer".to_owned(), Add::after(Duration::from_millis(1))).wait().expect("it is up");
    // a process that died with a run
    db.sql(
        "begin; insert into requeue.owner(id, queue, name, lease_until) values (-1, 1, 'dead', '-infinity');
         update requeue.item set state = 2, owner = -1, fence = 0, attempt = 1 where key = 'died'; commit",
    );
    drop((q, pg));
    db.sql("select requeue.add_tx('orders', 'outbox')");
    // it is due, and no process is there to see that
    until("the timer", || {
        db.sql("select due_at < clock_timestamp() from requeue.item where key = 'timer'") == "t"
    });
    assert_eq!(db.sql("select count(*) from requeue.inbox"), "1");
    let q = open(&db.connect());
    let (worker, ran) = works(&q);
    let mut keys: Vec<_> = (0..3).map(|_| ran.recv_timeout(LONG).expect("a run").0).collect();
    keys.sort();
    assert_eq!(keys, ["died", "outbox", "timer"]);
    assert!(worker.stop(LONG).wait().complete);
    assert!(ran.try_recv().is_err());
}

#[test]
fn e27_a_server_that_takes_no_writes_refuses_triggers_and_gets_the_ends_later() {
    let Some(db) = Database::new() else { return };
    let q: Queue<String> = db.connect().queue("orders").lease(HOUR).open().wait().expect("it is up");
    add(&q, "held");
    let held = Held::on(&q, || Outcome::Done);
    assert_eq!(held.begins().0, "held");
    let read_only = |on: bool| {
        // also for the sessions that are there
        let how =
            if on { "set default_transaction_read_only = on" } else { "reset default_transaction_read_only" };
        db.cluster.sql("postgres", &format!("alter database {} {how}", db.name));
        let sessions = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'requeue' and datname";
        db.cluster.sql("postgres", &format!("{sessions} = '{}'", db.name));
    };
    read_only(true);
    // the first ones may find their session gone
    until("a refusal", || {
        let failed = q.add("refused".to_owned()).wait().expect_err("nothing can be written");
        matches!(&failed.error, EngineError::NotApplied(why) if why.to_string().contains("read-only"))
    });
    held.go_on.send(()).expect("a run waits");
    until("an end that the server did not take", || q.trouble().is_some());
    assert_eq!(db.sql("select state from requeue.item where key = 'held'"), "2");
    read_only(false);
    until("the end", || db.sql("select count(*) from requeue.item where key = 'held'") == "0");
    assert_eq!(q.ends_refused(), 0);
    until("the same handle", || q.add("later".to_owned()).wait().is_ok());
    assert_eq!(held.begins().0, "later");
    held.ends();
}

/// A sink that records where the engine's figures are read.
#[derive(Default)]
struct Figures(Mutex<Option<ReadGauges>>);

type ReadGauges = Arc<dyn Fn() -> Option<requeue::Gauges> + Send + Sync>;

impl Metrics for Figures {
    fn attach(&self, _: &str, _: &[(String, String)], gauges: ReadGauges) {
        *self.0.lock().expect("no panic") = Some(gauges);
    }
}

impl Figures {
    /// The current figures, if the queue exists.
    fn read(&self) -> Option<EngineGauges> {
        let gauges = self.0.lock().expect("no panic").clone()?;
        gauges()?.engine
    }

    fn until(&self, what: &str, holds: impl Fn(&EngineGauges) -> bool) {
        until(what, || holds(&self.read().expect("the queue is there")));
    }
}

#[test]
fn e29_a_long_queue_is_listed_in_pages() {
    let Some(db) = Database::new() else { return };
    db.sql("select requeue.make_queue('orders')");
    let client = db.connect().client("orders");
    client.add_many(&["first".to_owned()], None, -1).wait().expect("up");
    // the line is in another order than the keys
    db.sql(
        "insert into requeue.item(queue, key, state, pos) select 1, convert_to('k' || n, 'UTF8'), 1, 100000 - n from generate_series(1, 45000) n;
         insert into requeue.dead(queue, key, failures, attempt, error) select 1, convert_to('k' || n, 'UTF8'), 1, 1, 'why' from generate_series(44001, 46000) n;
         insert into requeue.inbox(queue, key, delay_us) select 1, convert_to('k' || n, 'UTF8'), 3600000000 from generate_series(30001, 80000) n",
    );
    let listed = client.list().wait().expect("up");
    let keys: Vec<_> = listed.iter().map(|it| String::from_utf8_lossy(&it.key).into_owned()).collect();
    assert_eq!(keys.len(), 80_001);
    let line: Vec<_> = (1..=45_000).rev().map(|n| format!("k{n}")).chain(["first".to_owned()]).collect();
    assert_eq!(keys[..45_001], line);
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 80_001);
    let dead = listed.iter().filter(|it| it.error.as_deref() == Some("why")).count();
    assert_eq!(dead, 2000, "also those that were added again");
}

#[test]
fn e29_a_key_that_gave_up_is_told_of_also_if_it_comes_again() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    q.add_every("p".to_owned(), HOUR, Add::now()).wait().expect("up");
    let worker = Worker::of(&q)
        .workers(1)
        .max_attempts(1)
        .start_threads(|_: Run<String>| Outcome::Retry("no such order".into()));
    let client = q.client();
    until("it gives up", || client.stats().wait().expect("up").dead == 1);
    assert!(worker.expect("a thread").stop(LONG).wait().complete);
    let state = client.state(&"p".to_owned()).wait().expect("up").expect("it is known");
    assert_eq!((state.status, state.error.as_deref()), (Status::Waiting, Some("no such order")));
}

#[test]
fn e29_a_trigger_of_a_transaction_is_known_while_nobody_has_taken_it_in() {
    let Some(db) = Database::new() else { return };
    let q = open(&db.connect());
    let client = q.client();
    db.sql("select requeue.add_tx('orders', 'k', interval '1 h')");
    db.sql("update requeue.inbox set at = at - interval '30 min'");
    let state = || client.state(&"k".to_owned()).wait().expect("up").expect("it is known");
    let (status, due) = (state().status, state().due_in.expect("it has a timer"));
    assert!(status == Status::Waiting && due <= HOUR / 2, "{status:?} {due:?}");
    assert!(client.retry(&"k".to_owned()).wait().expect("up"));
    assert_eq!(state().status, Status::Ready);
    let (worker, ran) = works(&q);
    assert_eq!(ran.recv_timeout(LONG).expect("a run").0, "k");
    assert!(worker.stop(LONG).wait().complete);
    until("nothing is left", || db.sql("select count(*) from requeue.item") == "0");
}

#[test]
fn e29_metrics_know_what_the_server_knows_and_that_it_is_away() {
    let Some(db) = Database::new() else { return };
    db.sql("select requeue.make_queue('orders')");
    let operator = db.connect();
    let client = operator.client("orders");
    client.add_many(&["a".to_owned(), "b".to_owned()], None, 0).wait().expect("up");
    client.add_many(&["late".to_owned()], Some(HOUR), 0).wait().expect("up");
    db.sql("select requeue.add_tx('orders', 'of a transaction')");
    db.sql("insert into requeue.dead(queue, key, failures, attempt) values (1, 'dead', 3, 3)");
    db.sql("update requeue.item set since = since - interval '90 s' where key = 'a'");
    db.sql("insert into requeue.owner(queue, name, lease_until) values (1, 'dead', now() - interval '1 h')");
    db.sql("insert into requeue.owner(queue, name, lease_until) values (1, 'alive', now() + interval '1 h')");
    db.sql(
        "insert into requeue.owner(queue, name, lease_until) values (2, 'not ours', now() + interval '1 min')",
    );
    client.pause().wait().expect("up");
    block_on(async {
        let mut forgotten = db.client().await;
        let snapshot = forgotten.build_transaction();
        let snapshot = snapshot.isolation_level(tokio_postgres::IsolationLevel::RepeatableRead).start().await;
        let snapshot = snapshot.expect("it is up");
        snapshot.query("select 1", &[]).await.expect("it is up");
        let figures = Arc::new(Figures::default());
        let sink = figures.clone();
        let front = move |front: requeue::Builder<String>| front.metrics(sink);
        // the other one's is longer; a shorter one could be lost by a machine that stands still
        let length = HOUR / 4;
        let q = db.connect().queue::<String>("orders").front(front).lease(length).open();
        let q = q.wait().expect("it opens");
        figures.until("the first look", |gauges| gauges.up);
        let gauges = figures.read().expect("the queue is there");
        let store = gauges.store.expect("it is up");
        let keys = (store.ready, store.held, store.waiting, store.inbox, store.dead);
        assert_eq!((keys, store.paused), ((2, 0, 1, 1, 1), true));
        assert_eq!((store.owners, store.expired_owners), (1, 1));
        let left = store.shortest_lease.expect("one is alive");
        assert!(left > HOUR / 2 && left <= HOUR, "{left:?}");
        assert!(store.oldest_ready >= Duration::from_secs(90) && store.oldest_ready < HOUR, "{store:?}");
        assert!(store.oldest_snapshot > Duration::ZERO && store.oldest_snapshot < HOUR, "{store:?}");
        let lease = gauges.lease;
        let expected = (false, length, Duration::ZERO);
        assert_eq!((lease.held, lease.length, lease.since_beat), expected);

        snapshot.rollback().await.expect("it is up");
        client.resume().wait().expect("up");
        let (worker, ran) = works(&q);
        // two workers may tell of two keys in either order
        let mut keys: Vec<_> = (0..3).map(|_| ran.recv_timeout(LONG).expect("a run").0).collect();
        keys.sort();
        assert_eq!(keys, ["a", "b", "of a transaction"]);
        figures.until("a lease", |gauges| gauges.lease.held);
        // its keys were given back, it is the one that is left beside the other, and the snapshot is gone
        figures.until("a look", |gauges| {
            gauges.store.as_ref().is_some_and(|store| {
                let left = store.shortest_lease.unwrap_or_default();
                (store.ready, store.inbox, store.expired_owners, store.owners) == (0, 0, 0, 2)
                    && left > Duration::ZERO
                    && left <= length
                    && store.oldest_snapshot < Duration::from_secs(1)
            })
        });
        figures.until("a beat", |gauges| gauges.lease.since_beat < length);
        assert_eq!(figures.read().expect("it is there").leases_lost, 0);
        leases_end(&db);
        figures.until("a lease that is lost", |gauges| gauges.leases_lost == 1);

        cut_off(&db, || {
            figures.until("a server that is away", |gauges| !gauges.up && gauges.store.is_none());
        });
        figures.until("a server that is back", |gauges| gauges.up && gauges.store.is_some());

        // reading the counts waits for no lock: they are returned while a look waits
        let mut other = db.client().await;
        let lock = other.transaction().await.expect("it is up");
        lock.batch_execute("lock table requeue.owner in access exclusive mode").await.expect("it is up");
        let waits = || {
            db.sql(
                "select pid, query_start from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
                 and query like '%requeue.stats(%' and pid <> pg_backend_pid()",
            )
        };
        until("figures that are read while a look waits", || {
            let look = waits();
            !look.is_empty() && figures.read().is_some() && waits() == look
        });
        lock.rollback().await.expect("it is up");

        drop(worker);
        q.shut_down();
        assert!(figures.read().is_some(), "it is there");
        drop(q);
        // a look may be on its way
        until("the end of its figures", || figures.read().is_none());
    });
}

/// A key that the engine's thread can decode only with permission.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Slow(String);

static SLOW: Mutex<Option<(Sender<()>, Receiver<()>)>> = Mutex::new(None);

impl requeue_engine::Key for Slow {
    fn to_bytes(&self) -> std::borrow::Cow<'_, [u8]> {
        self.0.as_bytes().into()
    }
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, BoxError> {
        let gate = SLOW.lock().expect("no panic").take();
        if let Some((begins, may)) = gate {
            begins.send(())?;
            may.recv()?;
        }
        Ok(Self(String::from_utf8(bytes)?))
    }
}

#[test]
fn e16_who_leaves_gives_the_lease_up_also_while_a_thread_has_a_handle() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q: Queue<String> = pg.queue("orders").prefetch(5).open().wait().expect("the schema is there");
    let (begins, begun) = mpsc::channel();
    let (go_on, may) = mpsc::channel::<()>();
    let may = Mutex::new(may);
    let handle = q.clone();
    let worker = Worker::of(&q).workers(1).start_threads(move |run: Run<String>| {
        begins.send(handle.ends_refused()).expect("the test goes on");
        may.lock().expect("no panic").recv().expect("it is told");
        drop(run);
        Outcome::Done
    });
    let worker = worker.expect("there are threads");
    add(&q, "runs");
    begun.recv_timeout(LONG).expect("a run");
    for name in ["b", "c"] {
        add(&q, name);
    }
    until("they are claimed", || db.sql("select count(*) from requeue.item where state = 2") == "3");
    let leaves = q.leave();
    until("those without a run are put back", || {
        db.sql("select count(*) from requeue.item where state = 1 and attempt = 0") == "2"
    });
    assert_eq!(db.sql("select count(*) from requeue.owner"), "1", "a run goes on");
    let late = q.add("late".into()).wait();
    assert!(matches!(late.expect_err("it has left").error, EngineError::ShutDown));
    go_on.send(()).expect("it waits");
    leaves.wait().expect("the server answers");
    assert_eq!(db.sql("select count(*) from requeue.owner"), "0");
    assert_eq!(db.sql("select count(*) from requeue.item where state = 1"), "2", "the run has ended");
    q.leave().wait().expect("a second time it has nothing to do");
    worker.join();
}

#[test]
fn e16_the_last_handle_gives_the_lease_up_also_while_the_engine_gives_a_key() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q = pg.queue::<Slow>("orders").prefetch(10).open().wait().expect("the schema is there");
    let (begins, begun) = mpsc::channel();
    let (go_on, may) = mpsc::channel();
    *SLOW.lock().expect("no panic") = Some((begins, may));
    q.add(Slow("k".into())).wait().expect("it is up");
    begun.recv_timeout(LONG).expect("the engine's thread has the key in its hands");
    let (tell, gone) = mpsc::channel();
    let drops = std::thread::spawn(move || {
        drop((pg, q));
        tell.send(()).expect("the test goes on");
    });
    let early = gone.recv_timeout(Duration::from_millis(500));
    assert!(early.is_err(), "the last handle went, and nobody has given up the lease");
    go_on.send(()).expect("it waits");
    drops.join().expect("no panic");
    assert_eq!(db.sql("select count(*) from requeue.owner"), "0", "the lease is given up");
    assert_eq!(db.sql("select state, attempt from requeue.item"), "1|0", "and the key is in line for others");
}

#[test]
fn a_host_that_takes_connections_and_is_silent_leaves_time_for_the_next() {
    let Some(db) = Database::new() else { return };
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("it is bound").port();
    let (server, name) = (db.cluster.folder().display(), &db.name);
    let hosts = format!("host=127.0.0.1,{server} port={port},5432 user=postgres dbname={name}");
    let pg = Postgres::connect(&hosts).wait().expect("the other one answers");
    assert_eq!(pg.queues().wait().expect("it is up"), Vec::<String>::new());
}

#[test]
fn a_database_whose_sessions_begin_at_a_higher_isolation_level_is_as_any_other() {
    let Some(db) = Database::new() else { return };
    db.sql(&format!("alter database {} set default_transaction_isolation = 'serializable'", db.name));
    db.sql(
        "create table level(name text);
         create function notes() returns trigger language plpgsql as $$
         begin
           if current_setting('application_name') = 'requeue' then
             insert into level values (current_setting('transaction_isolation'));
           end if;
           return null;
         end $$;
         create trigger notes after insert or update or delete on requeue.item for each statement execute function notes();
         create trigger notes after insert or update or delete on requeue.owner for each statement execute function notes()",
    );
    let (a, b) = (open(&db.connect()), open(&db.connect()));
    let ((one, ran), (two, ran_too)) = (works(&a), works(&b));
    for n in 0..50 {
        for q in [&a, &b] {
            add(q, &format!("k{}", n % 3));
        }
    }
    until("the end of the last run", || db.sql("select count(*) from requeue.item") == "0");
    assert!(ran.try_iter().chain(ran_too.try_iter()).count() > 0);
    assert_eq!(db.sql("select distinct name from level"), "read committed");
    for worker in [one, two] {
        assert!(worker.stop(LONG).wait().complete);
    }
}

#[test]
fn a_queue_with_much_to_clear_up_costs_no_other_queue_of_the_process_its_lease() {
    let Some(db) = Database::new() else { return };
    // there are always more keys of the dead
    db.sql(
        "select requeue.open('busy');
         -- a dead process whose runs have no end
         insert into requeue.owner(queue, name, lease_until) values (1, 'dead', '-infinity');
         create table call(n int);
         alter function requeue.maintain(int, int) rename to maintains;
         create function requeue.maintain(q int, most int) returns int language plpgsql as $$
         begin
           insert into call values (1);
           perform pg_sleep(0.01);
           return most;
         end $$",
    );
    let pg = db.connect();
    // one that has prefetch claims, and has a lease
    let opens = |name: &str, lease| {
        let q: Queue<String> = pg.queue(name).lease(lease).prefetch(1).open().wait().expect("it is up");
        q
    };
    let _busy = opens("busy", HOUR);
    until("what is to be cleared up", || db.sql("select count(*) > 1 from call") == "t");
    let _other = opens("other", Duration::from_secs(15));
    let owner = || db.sql("select id from requeue.owner where queue = 2 and name <> 'dead'");
    until("a lease", || !owner().is_empty());
    let owner = owner();
    let until_when = format!("select lease_until from requeue.owner where id = {owner}");
    let first = db.sql(&until_when);
    until("its extension", || {
        let now = db.sql(&until_when);
        assert!(!now.is_empty(), "it was lost");
        now != first
    });
}

/// A key, or a value, that a program does not expect.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Brittle(String);

impl Brittle {
    fn of(text: String) -> Self {
        assert!(!text.starts_with("bad"), "nobody writes that");
        Self(text)
    }
}

impl requeue_engine::Key for Brittle {
    fn to_bytes(&self) -> std::borrow::Cow<'_, [u8]> {
        self.0.as_bytes().into()
    }
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, BoxError> {
        Ok(Self::of(String::from_utf8(bytes)?))
    }
}

impl serde::Serialize for Brittle {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> serde::Deserialize<'de> for Brittle {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self::of)
    }
}

#[test]
fn a_key_gives_up_where_what_reads_it_or_its_value_panics_and_others_go_on() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    let q = pg.queue_with("orders", |_: &mut Brittle, _| ()).open().wait().expect("the schema is there");
    let (tell, ran) = mpsc::channel();
    let worker = Worker::of(&q).workers(1).start_threads(move |run: Run<Brittle, Brittle>| {
        drop(tell.send(run.key().0.clone()));
    });
    let worker = worker.expect("threads");
    let add = |key: &str, value: &str| {
        q.add_with(Brittle(key.into()), Add::now().value(Brittle(value.into()))).wait().expect("it is up");
    };
    add("bad", "fine");
    add("fine", "bad");
    until("two that give up", || db.sql("select count(*) from requeue.dead") == "2");
    assert_eq!(
        db.sql("select error from requeue.dead order by key"),
        "what reads the key panicked\nwhat reads the value panicked"
    );
    add("good", "fine");
    assert_eq!(ran.recv_timeout(LONG).expect("a run"), "good");
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn as_many_keys_can_be_claimed_as_there_are() {
    let Some(db) = Database::new() else { return };
    let q = db.connect().queue("orders").prefetch(usize::MAX).open().wait().expect("the schema is there");
    let (worker, ran) = works(&q);
    add(&q, "k");
    assert_eq!(ran.recv_timeout(LONG).expect("a run").0, "k");
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn a_priority_that_this_library_does_not_have_is_the_nearest() {
    let Some(db) = Database::new() else { return };
    db.sql("select requeue.make_queue('orders')");
    db.sql(
        "select requeue.add_tx('orders', 'high', priority => 100000);
         select requeue.add_tx('orders', 'low', priority => -100000)",
    );
    let pg = db.connect();
    let listed = || {
        let mut listed = pg.client("orders").list().wait().expect("it is up");
        listed.sort_by_key(|it| it.key.clone());
        listed.iter().map(|it| it.priority).collect::<Vec<_>>()
    };
    assert_eq!(listed(), [i16::MAX, i16::MIN], "triggers that nobody has taken in");
    let q: Queue<String> = pg.queue("orders").prefetch(3).open().wait().expect("the schema is there");
    q.add_with("urgent".into(), Add::now().priority(7)).wait().expect("it is up");
    until("three keys in memory", || q.in_memory().len() == 3);
    assert_eq!(listed(), [i16::MAX, i16::MIN, 7]);
    let held = Held::on(&q, || Outcome::Done);
    for name in ["high", "urgent", "low"] {
        assert_eq!(held.begins().0, name);
        held.go_on.send(()).expect("a run waits");
    }
    assert!(held.worker.stop(LONG).wait().complete);
}
