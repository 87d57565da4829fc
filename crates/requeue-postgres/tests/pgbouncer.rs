//! A queue behind PgBouncer in transaction mode: each transaction may use another session.

mod common;

use self::common::cluster::Cluster;
use self::common::{LONG, Looks, block_on, client, until};
use requeue::{Add, BoxError, Outcome, Run, Worker};
use requeue_postgres::{Ended, Postgres, Queue, RunExt};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio_postgres::NoTls;

const HOUR: Duration = Duration::from_secs(3600);

/// Starts PgBouncer: as `nobody` if this is root, which PgBouncer refuses, and for no longer than the thread
/// that starts it.
const START: &str = r#"
PATH=$PATH:/usr/sbin
command -v pgbouncer >/dev/null || exit 127
as="setpriv --pdeathsig KILL"
if [ "$(id -u)" = 0 ]; then
    as="$as --reuid=nobody --regid=nogroup --clear-groups"
    chown -R nobody:nogroup "$1"
fi
exec $as pgbouncer "$1/pgbouncer.ini" >>"$1/log" 2>&1
"#;

/// A PgBouncer before the server, with fewer sessions than a process has connections.
struct Bouncer {
    folder: PathBuf,
    child: Child,
}

impl Bouncer {
    /// Starts it. `None`, after a line on standard error, if PostgreSQL or PgBouncer is not installed.
    fn start(cluster: &Cluster) -> Option<Self> {
        let folder = cluster.folder().with_extension("bouncer");
        std::fs::create_dir_all(&folder).expect("a folder");
        let (sockets, server) = (folder.display(), cluster.folder().display());
        let configuration = format!(
            "[databases]\n* = host={server} port=5432 user=postgres\n[pgbouncer]\npool_mode = transaction\nauth_type = any\n\
             unix_socket_dir = {sockets}\nlisten_port = 6432\nlisten_addr =\ndefault_pool_size = 3\nmax_client_conn = 200\n"
        );
        std::fs::write(folder.join("pgbouncer.ini"), configuration).expect("a file");
        let mut child = Self::run(&folder);
        // the socket is there a moment before it listens
        while std::os::unix::net::UnixStream::connect(folder.join(".s.PGSQL.6432")).is_err() {
            if let Some(ended) = child.try_wait().expect("it is ours") {
                let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
                assert_eq!(ended.code(), Some(127), "PgBouncer does not start: {log}");
                assert!(std::env::var_os("REQUEUE_NEEDS_PGBOUNCER").is_none(), "PgBouncer is not installed");
                eprintln!("SKIPPED: PgBouncer is not installed (Debian: apt-get install pgbouncer)");
                std::fs::remove_dir_all(&folder).expect("it is ours");
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Self { folder, child })
    }

    fn run(folder: &Path) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", START, "sh"]).arg(folder).stdin(Stdio::null());
        command.spawn().expect("a shell")
    }

    /// Kills it, with the traffic inside, and starts it again.
    fn is_killed(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
        // the socket that a killed PgBouncer leaves
        drop(std::fs::remove_file(self.folder.join(".s.PGSQL.6432")));
        self.child = Self::run(&self.folder);
    }

    /// The URL of a database through it, as for any client.
    fn url(&self, database: &str) -> String {
        format!("host={} port=6432 user=postgres dbname={database}", self.folder.display())
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// A database of a server of its own, and its pooler.
struct Database {
    cluster: Cluster,
    bouncer: Bouncer,
}

impl Database {
    fn new() -> Option<Self> {
        let cluster = Cluster::start("")?;
        let bouncer = Bouncer::start(&cluster)?;
        Some(Self { cluster, bouncer })
    }

    fn url(&self) -> String {
        self.bouncer.url("postgres")
    }

    fn pooled(&self) -> String {
        format!("{} pool_mode=transaction", self.url())
    }

    fn sql(&self, sql: &str) -> String {
        self.cluster.sql("postgres", sql)
    }

    /// A process's handle.
    fn connect(&self) -> Postgres {
        Postgres::connect(&self.pooled()).wait().expect("it is up")
    }
}

fn open(pg: &Postgres) -> Queue<String> {
    pg.queue("orders").open().wait().expect("the schema is there")
}

#[test]
fn all_calls_work_through_a_pooler_in_transaction_mode() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    pg.migrate().wait().expect("it may");
    pg.migrate().wait().expect("once more");
    let collect = |old: &mut Vec<u32>, new| old.extend::<Vec<u32>>(new);
    let q = pg.queue_with::<String, Vec<u32>>("orders", collect).open().wait().expect("it opens");
    db.sql("create table effect(key text)");
    block_on(async {
        for n in 0..20 {
            q.add(format!("k{n}")).await.expect("up");
            q.add("k0".into()).await.expect("up");
        }
        q.add_with("valued".into(), Add::now().value(vec![1]).priority(5)).await.expect("up");
        q.add_with("valued".into(), Add::now().value(vec![2])).await.expect("up");
        q.add_after("late".into(), HOUR).await.expect("up");
        // a transaction of the user's, on a connection through the pooler
        let mut user = client(&db.url()).await;
        let tx = user.transaction().await.expect("up");
        q.add_in(&tx, "of a transaction".into(), Add::now().value(vec![7])).await.expect("up");
        tx.commit().await.expect("up");
        let tx = user.transaction().await.expect("up");
        q.add_in(&tx, "never".into(), Add::now()).await.expect("up");
        tx.rollback().await.expect("up");
        // operators
        let orders = pg.client("orders");
        orders.pause().await.expect("up");
        orders.resume().await.expect("up");
        orders.add_many(&["bad".to_owned(), "cancelled".to_owned()], None, 0).await.expect("up");
        assert!(orders.cancel(&"cancelled".to_owned()).await.expect("up"));
        assert!(orders.retry(&"late".to_owned()).await.expect("up"));
        assert!(q.state(&"k1".into()).await.expect("up").is_some());
        assert_eq!(orders.list().await.expect("up").len(), 24);
        let stats = orders.stats().await.expect("up");
        assert_eq!((stats.ready, stats.inbox, stats.waiting), (23, 1, 0));

        let (tell, mut ran) = tokio::sync::mpsc::unbounded_channel();
        let url = Arc::new(db.url());
        let handler = move |run: Run<String, Vec<u32>>| {
            let (tell, url) = (tell.clone(), url.clone());
            async move {
                tell.send((run.key().clone(), run.value().cloned(), run.attempt()))?;
                if run.key() == "bad" {
                    return Err("no such order".into());
                }
                let mut db = client(&url).await;
                let tx = db.transaction().await?;
                run.guard(&tx).await?;
                // a simple query needs no named statement
                tx.batch_execute(&format!("insert into effect values ('{}')", run.key())).await?;
                let ended = run.succeed_in(&tx).await?;
                tx.commit().await?;
                Ok::<Ended, BoxError>(ended)
            }
        };
        let worker = Worker::of(&q).workers(4).max_attempts(2);
        let worker = worker.start_on(tokio::runtime::Handle::current(), handler).expect("tasks");
        let mut seen = HashMap::new();
        let mut runs = 0;
        while seen.len() < 24 || runs < 25 {
            let (key, value, attempt) =
                tokio::time::timeout(LONG, ran.recv()).await.expect("a run").expect("it is told");
            runs += 1;
            assert!(attempt == 1 || key == "bad", "{key} {attempt}");
            seen.insert(key, value);
        }
        assert_eq!((seen["valued"].as_deref(), seen["k0"].as_deref()), (Some(&[1, 2][..]), None));
        assert_eq!(seen["of a transaction"].as_deref(), Some(&[7][..]));
        assert!(!seen.contains_key("never") && !seen.contains_key("cancelled"));
        until("all ends", || db.sql("select count(*) from requeue.item") == "0");
        assert_eq!(db.sql("select count(distinct key), count(*) from effect"), "23|23");
        let dead = orders.list().await.expect("up");
        assert_eq!((dead.len(), dead[0].error.as_deref()), (1, Some("no such order")));
        assert_eq!(orders.purge().await.expect("up"), 1);
        worker.stop(LONG).await;
        assert_eq!(q.ends_refused(), 0);
        assert_eq!(q.trouble(), None);
    });
    drop((q, pg));
    assert_eq!(db.sql("select count(*) from requeue.owner"), "0", "the lease is given up");
}

#[test]
fn several_processes_work_through_a_pooler_that_is_killed_again_and_again() {
    let Some(mut db) = Database::new() else { return };
    db.connect().migrate().wait().expect("it may");
    let (processes, keys, kills) = (3, 10, 6);
    let world: Arc<HashMap<String, (AtomicU32, AtomicU32, AtomicBool)>> =
        Arc::new((0..keys).map(|n| (format!("k{n}"), Default::default())).collect());
    let mut all = Vec::new();
    for _ in 0..processes {
        let q = open(&db.connect());
        let world = world.clone();
        let worker = Worker::of(&q).workers(4).start_threads(move |run: Run<String>| {
            let (added, seen, held) = &world[run.key()];
            assert!(!held.swap(true, SeqCst), "two have {}", run.key());
            seen.fetch_max(added.load(SeqCst), SeqCst);
            std::thread::sleep(Duration::from_millis(1));
            held.store(false, SeqCst);
            Outcome::Done
        });
        all.push((q, worker.expect("threads")));
    }
    let (over, refused) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|threads| {
        for (q, _) in &all {
            let (world, over, refused) = (&world, &over, &refused);
            threads.spawn(move || {
                for n in 0.. {
                    if over.load(SeqCst) {
                        return;
                    }
                    let key = format!("k{}", n % keys);
                    world[&key].0.fetch_add(1, SeqCst);
                    // one that is not known to be accepted is sent again
                    while q.add(key.clone()).wait().is_err() {
                        refused.fetch_add(1, SeqCst);
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
        let runs = || world.values().map(|(_, seen, _)| seen.load(SeqCst)).sum::<u32>();
        // until a caller has noticed it, too: a kill may come while no answer is awaited
        for _ in (0..).take_while(|n| *n < kills || refused.load(SeqCst) == 0) {
            let before = runs();
            until("work that goes on", || runs() > before + 50);
            db.bouncer.is_killed();
        }
        let before = runs();
        until("work that goes on", || runs() > before + 50);
        over.store(true, SeqCst);
    });
    until("each key's last trigger", || {
        world.values().all(|(added, seen, _)| added.load(SeqCst) == seen.load(SeqCst))
    });
    // a trigger that was sent again may have been accepted twice, and asks for one more run
    until("the end of the last run", || db.sql("select count(*) from requeue.item") == "0");
    for (q, worker) in all {
        assert!(worker.stop(LONG).wait().complete);
        drop(q);
    }
    // if the answer to a process that joined was lost, that lease belongs to none: it runs out, and another
    // process notices that
    db.sql("update requeue.owner set lease_until = '-infinity'");
    until("the end of the leases", || {
        db.sql("select requeue.reap(1000)");
        db.sql("select count(*) from requeue.owner") == "0"
    });
}

#[test]
fn notifications_come_in_by_the_direct_host_and_without_one_nobody_is_notified() {
    let Some(db) = Database::new() else { return };
    let pg = db.connect();
    pg.migrate().wait().expect("it may");
    let looks = Looks::noted(|sql| db.sql(sql));
    let idle = || db.sql("select count(*) from requeue.owner where idle");
    let works = |q: &Queue<String>| {
        let (tell, ran) = mpsc::channel();
        let worker = Worker::of(q).workers(1).start_threads(move |run: Run<String>| {
            tell.send(run.key().clone()).expect("the test goes on");
        });
        (worker.expect("threads"), ran)
    };
    // another process adds
    let adder = db.connect();
    let adds = |ran: &mpsc::Receiver<String>, n: u32| {
        let key = format!("k{n}");
        adder.client("orders").add_many(std::slice::from_ref(&key), None, 0).wait().expect("up");
        assert_eq!(ran.recv_timeout(LONG), Ok(key));
    };
    {
        let q = open(&pg);
        let (worker, ran) = works(&q);
        looks.has_slept();
        adds(&ran, 0);
        assert_eq!(
            db.sql("select count(*) > 0 from look where what = 'tick' and found > 0"),
            "t",
            "by its own look alone"
        );
        assert_eq!(idle(), "0", "it can't be notified, and does not ask for it");
        assert!(worker.stop(LONG).wait().complete);
    }
    drop(pg);
    until("the end of the lease", || db.sql("select count(*) from requeue.owner") == "0");
    let direct = db.cluster.folder().display();
    let both = format!("{} direct_host={direct} direct_port=5432", db.url());
    let pg = Postgres::connect(&both).wait().expect("both are up");
    let q = open(&pg);
    let (worker, ran) = works(&q);
    looks.some_was_early(|n| adds(&ran, n));
    assert_eq!(idle(), "1", "it asks to be notified");
    assert!(worker.stop(LONG).wait().complete);
}

#[test]
fn who_does_not_say_that_there_is_a_pooler_is_told_so() {
    let Some(db) = Database::new() else { return };
    db.connect().migrate().wait().expect("it may");
    let pg = Postgres::connect(&db.url()).wait().expect("it is up");
    assert_eq!(pg.queues().wait().expect("there is one session"), Vec::<String>::new());
    block_on(async {
        // that session is somebody else's for a while
        let mut user = client(&db.url()).await;
        let tx = user.transaction().await.expect("it is up");
        let refused = pg.queues().await.expect_err("its statement is in another session").to_string();
        assert!(refused.contains("pool_mode=transaction"), "{refused}");
        tx.rollback().await.expect("it is up");
    });
}

#[test]
fn what_a_connection_string_says_of_a_pooler_is_checked() {
    for (wrong, why) in [
        ("host=db pool_mode=transactions", "pool_mode is session or transaction"),
        ("postgres://db/shop?pool_mode=", "pool_mode is session or transaction"),
        ("host=db direct_port=5432", "direct_port without direct_host"),
        ("host=db direct_host=db direct_port=http", "invalid"),
    ] {
        let refused = Postgres::connect(wrong).wait().expect_err(wrong).to_string();
        assert!(refused.contains(why), "{wrong}: {refused}");
        let refused = Postgres::connect_with(wrong, NoTls).wait().expect_err(wrong).to_string();
        assert!(refused.contains(why), "{wrong}: {refused}");
    }
}
