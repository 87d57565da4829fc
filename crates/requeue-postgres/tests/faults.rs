//! A queue on PostgreSQL while things break: processes that are killed at each step or stopped for longer than their lease,
//! connections that are cut before a request, in the middle of it, between request and reply, or that lead nowhere, and
//! sessions that are ended.
//!
//! Each trigger is a number of its key that is one higher than the last. At rest the last thing that was written for each key
//! has its last number: nothing was lost. What is written in a run's transaction has fences that only grow: nothing was a
//! zombie's, and nobody had a key beside somebody else.
//!
//! `REQUEUE_FAULTS` says how many faults there are at least; a long run has 100,000.

#[allow(missing_docs, dead_code, unreachable_pub)]
#[path = "../../../verify/src/cluster.rs"]
mod cluster;

use self::cluster::Cluster;
use requeue::{Add, BoxError, Outcome, Run, Tokio, Worker};
use requeue_postgres::{Postgres, Queue, RunExt};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_postgres::{Client, NoTls};

const CONNECT: &str = "REQUEUE_FAULTS_CONNECT";
const KILLED: &str = "REQUEUE_FAULTS_KILLED";
const LEASE: Duration = Duration::from_millis(1500);
const KEYS: u64 = 40;
const LONG: Duration = Duration::from_secs(60);

/// The next of numbers that look random.
fn random(state: &AtomicU64) -> u64 {
    let mut z = state.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

async fn client(connect: &str) -> Result<Client, BoxError> {
    let dialed =
        tokio::time::timeout(Duration::from_secs(5), tokio_postgres::connect(connect, NoTls)).await?;
    let (client, connection) = dialed?;
    tokio::spawn(connection);
    Ok(client)
}

/// What a process that works does, as long as it lives.
#[test]
#[ignore = "it is a process of the other test"]
fn worker() {
    let Ok(connect) = std::env::var(CONNECT) else { return };
    let dies = std::env::var_os(KILLED).is_some();
    let seed = Arc::new(AtomicU64::new(u64::from(std::process::id())));
    let die = move |step: u32| {
        if dies && random(&seed) % 150 == 0 {
            println!("killed at step {step}");
            drop(Command::new("kill").args(["-9", &std::process::id().to_string()]).status());
            std::thread::sleep(LONG);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async move {
        let pg = loop {
            match Postgres::connect(&connect).await {
                Ok(pg) => break pg,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let q: Queue<String> = loop {
            match pg.queue("faults").lease(LEASE).prefetch(2).open().await {
                Ok(q) => break q,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let handler = move |run: Run<String>| {
            let (connect, die) = (connect.clone(), die.clone());
            async move {
                die(1);
                let mut db = client(&connect).await?;
                let fence = i64::try_from(run.fence().ok_or("it has one")?.0)?;
                let v: i64 = db.query_one("select v from world where key = $1", &[run.key()]).await?.get(0);
                die(2);
                let tx = db.transaction().await?;
                run.guard(&tx).await?;
                let write = "insert into effect(key, v, fence) values ($1, $2, $3)";
                tx.execute(write, &[run.key(), &v, &fence]).await?;
                die(3);
                if v % 2 == 0 {
                    let ended = run.succeed_in(&tx).await?;
                    die(4);
                    tx.commit().await?;
                    die(5);
                    let _ = ended;
                    return Ok(Outcome::Done);
                }
                tx.commit().await?;
                die(6);
                Ok::<_, BoxError>(Outcome::Done)
            }
        };
        let worker = Worker::of(&q).workers(4).start_on(Tokio::new().expect("a runtime"), handler);
        let worker = worker.expect("tasks");
        // until the parent is gone
        let mut line = String::new();
        tokio::task::spawn_blocking(move || std::io::stdin().read_line(&mut line))
            .await
            .expect("no panic")
            .ok();
        worker.stop(Duration::from_secs(2)).await;
    });
}

/// Passes everything on to the server, but for what it cuts.
struct Proxy {
    port: u16,
    /// So many of ten thousand messages of clients are cut.
    cuts: Arc<AtomicU64>,
    faults: Arc<AtomicU64>,
}

impl Proxy {
    async fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let (cuts, faults, seed) =
            (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), AtomicU64::new(7));
        let (share, seed) = ((cuts.clone(), faults.clone()), Arc::new(seed));
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let ((cuts, faults), seed, socket) = (share.clone(), seed.clone(), socket.clone());
                tokio::spawn(async move {
                    if let Ok(to) = UnixStream::connect(&socket).await {
                        pass(from, to, &cuts, &faults, &seed).await;
                    }
                });
            }
        });
        Self { port, cuts, faults }
    }
}

async fn pass(from: TcpStream, to: UnixStream, cuts: &AtomicU64, faults: &AtomicU64, seed: &AtomicU64) {
    let (mut from, mut answers) = from.into_split();
    let (mut server, mut to) = to.into_split();
    let back = tokio::spawn(async move { tokio::io::copy(&mut server, &mut answers).await });
    let mut message = vec![0; 65536];
    while let Ok(length @ 1..) = from.read(&mut message).await {
        if random(seed) % 10_000 >= cuts.load(Relaxed) {
            if to.write_all(&message[..length]).await.is_err() {
                break;
            }
            continue;
        }
        faults.fetch_add(1, Relaxed);
        match random(seed) % 8 {
            // before the request
            0 | 1 => {}
            // in the middle of it
            2 => drop(to.write_all(&message[..length / 2]).await),
            // it leads nowhere, for longer than a lease
            3 => tokio::time::sleep(LEASE * 3).await,
            // between request and reply
            _ => {
                back.abort();
                drop(to.write_all(&message[..length]).await);
                drop(to.flush().await);
                // the server must have got it: what is not read yet is lost with the socket
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        break;
    }
    back.abort();
}

/// A process that works.
struct Process {
    child: Child,
    dies: bool,
    said: std::thread::JoinHandle<Vec<String>>,
}

impl Process {
    fn start(connect: &str, dies: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a test"));
        command
            .args(["--exact", "worker", "--ignored", "--nocapture", "--test-threads=1"])
            .env(CONNECT, connect);
        if dies {
            command.env(KILLED, "1");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let said = std::thread::spawn(move || {
            lines.lines().map_while(Result::ok).filter(|line| line.contains("killed at step")).collect()
        });
        Self { child, dies, said }
    }

    fn signal(&self, signal: &str) {
        drop(Command::new("kill").args([signal, &self.child.id().to_string()]).status());
    }

    fn ends(mut self) -> Vec<String> {
        drop(self.child.kill());
        drop(self.child.wait());
        self.said.join().expect("no panic")
    }
}

/// Triggers keys, a third of them in transactions of the user's, until it is told to end.
async fn adds(connect: String, direct: String, n: u64, ends: Arc<AtomicBool>) -> u64 {
    let (seed, mut added) = (AtomicU64::new(n), 0);
    let pause = || tokio::time::sleep(Duration::from_millis(20));
    while !ends.load(Relaxed) {
        let all = async {
            let pg = Postgres::connect(&connect).await?;
            let q: Queue<String> = pg.queue("faults").lease(LEASE).open().await?;
            let (mut db, world) = (client(&connect).await?, client(&direct).await?);
            while !ends.load(Relaxed) {
                let key = format!("k{}", random(&seed) % KEYS);
                let bump = "update world set v = v + 1 where key = $1";
                if random(&seed) % 3 == 0 {
                    let tx = db.transaction().await?;
                    tx.execute(bump, &[&key]).await?;
                    q.add_in(&tx, key, Add::now()).await?;
                    tx.commit().await?;
                } else {
                    let bumped = world.execute(bump, &[&key]).await;
                    // whatever became of that, if the server was lost: until the trigger is accepted
                    while q.add(key.clone()).await.is_err() {
                        pause().await;
                    }
                    bumped?;
                }
                added += 1;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok::<(), BoxError>(())
        };
        if all.await.is_err() {
            pause().await;
        }
    }
    added
}

#[test]
fn nothing_is_lost_and_nothing_a_zombies_whatever_breaks() {
    let Some(cluster) = Cluster::start("fsync = off") else { return };
    let least = std::env::var("REQUEUE_FAULTS").map_or(100, |faults| faults.parse().expect("a number"));
    let url = cluster.database();
    let name = url.rsplit('=').next().expect("it ends with the name").to_owned();
    Postgres::connect(&url).wait().expect("it is up").migrate().wait().expect("a schema");
    let sql = |sql: &str| cluster.sql(&name, sql);
    sql(&format!(
        "create table world(key text primary key, v bigint not null);
         insert into world select 'k' || n, 0 from generate_series(0, {KEYS} - 1) n;
         create table effect(id bigint generated always as identity, key text, v bigint, fence bigint)"
    ));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let proxy = runtime.block_on(Proxy::start(cluster.folder().join(".s.PGSQL.5432")));
    proxy.cuts.store(30, Relaxed);
    let connect = format!("host=127.0.0.1 port={} user=postgres dbname={name} connect_timeout=5", proxy.port);
    let ends = Arc::new(AtomicBool::new(false));
    let adders: Vec<_> =
        (0..2).map(|n| runtime.spawn(adds(connect.clone(), url.clone(), n, ends.clone()))).collect();

    let kinds = Mutex::new(std::collections::BTreeMap::<String, u64>::new());
    let count = |kind: String| *kinds.lock().expect("no panic").entry(kind).or_default() += 1;
    let mut processes: Vec<_> = (0..4).map(|n| Process::start(&connect, n < 2)).collect();
    let (begun, mut broken, mut turn) = (Instant::now(), 0_u64, 0_u64);
    while broken + proxy.faults.load(Relaxed) < least {
        assert!(begun.elapsed() < LONG * 2 + Duration::from_secs(least), "the faults do not come");
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(200));
            // as where a snapshot is held
            sql("update requeue.meta set renewed = '-infinity'");
            sql("select requeue.renew(-1000000000000000)");
            for process in &mut processes {
                if process.child.try_wait().expect("a child").is_some() {
                    let next = Process::start(&connect, process.dies);
                    let said = std::mem::replace(process, next).ends();
                    broken += said.len() as u64;
                    said.into_iter().for_each(&count);
                }
            }
        }
        // one is stopped for longer than its lease, a session is ended, or the server crashes
        turn += 1;
        if turn % 4 == 3 {
            cluster.crash();
            count("the server crashed".into());
        } else if turn % 2 == 0 {
            processes[3].signal("-STOP");
            std::thread::sleep(LEASE * 2);
            processes[3].signal("-CONT");
            count("stopped and continued".into());
        } else {
            sql("select pg_terminate_backend(pid) from pg_stat_activity
                 where application_name = 'requeue' and datname = current_database() order by random() limit 2");
            count("sessions ended".into());
        }
        broken += 1;
    }
    ends.store(true, Relaxed);
    proxy.cuts.store(0, Relaxed);
    let added: u64 = runtime.block_on(async {
        let mut added = 0;
        for adder in adders {
            added += adder.await.expect("no panic");
        }
        added
    });
    let lost = "select count(*) from world w where v > 0 and v is distinct from
                (select e.v from effect e where e.key = w.key order by id desc limit 1)";
    let rest = Instant::now();
    while sql(lost) != "0" {
        assert!(
            rest.elapsed() < LONG,
            "{} keys are lost: {}",
            sql(lost),
            sql("select * from requeue.item limit 5")
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let zombies = "select count(*) from (select fence, lag(fence) over (partition by key order by id) f, v,
                   lag(v) over (partition by key order by id) u from effect) x where fence <= f or v < u";
    assert_eq!(sql(zombies), "0");
    let steps: Vec<_> = processes.into_iter().flat_map(Process::ends).collect();
    steps.into_iter().for_each(&count);
    let (cuts, runs) = (proxy.faults.load(Relaxed), sql("select count(*) from effect"));
    println!("{added} triggers, {runs} runs, {cuts} cuts, {:?}", kinds.lock().expect("no panic"));
}
