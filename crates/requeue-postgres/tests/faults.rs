//! A queue on PostgreSQL while things break: processes that are killed at each step or stopped for longer than their lease,
//! connections that are cut before a request, in the middle of it, between request and reply, or that lead nowhere, and
//! sessions that are ended, a server that crashes, one that fails over to its synchronous replica, and one whose disk is full.
//!
//! Each trigger is a number of its key that is one higher than the last. At rest the last thing that was written for each key
//! has its last number: nothing was lost. What is written in a run's transaction has fences that only grow: nothing was a
//! zombie's, and nobody had a key beside somebody else.
//!
//! `REQUEUE_FAULTS` says how many faults there are at least; a long run has 100,000.

#[allow(missing_docs, dead_code, unreachable_pub)]
#[path = "../../../verify/src/cluster.rs"]
mod cluster;

use self::cluster::{Cluster, With};
use requeue::{Add, BoxError, Outcome, Run, Tokio, Worker};
use requeue_postgres::{Postgres, Queue, RunExt};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
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
    async fn start(address: &str, socket: PathBuf) -> Self {
        let listener = TcpListener::bind((address, 0)).await.expect("a port");
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
    fn start(connect: &str, machine: Option<&Machine>, dies: bool) -> Self {
        let test = std::env::current_exe().expect("a test");
        let mut command = match machine {
            None => Command::new(test),
            Some((name, _)) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(test);
                command
            }
        };
        command
            .args(["--exact", "worker", "--ignored", "--nocapture", "--test-threads=1"])
            .env(CONNECT, connect);
        if dies {
            command.env(KILLED, "1");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let said = std::thread::spawn(move || {
            let lines = lines.lines().map_while(Result::ok);
            lines.filter_map(|line| Some(line[line.find("killed at step")?..].to_owned())).collect()
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

/// What goes on while things break: two processes that die now and then, two that do not, two tasks that add, and a proxy.
struct Trial<'a> {
    cluster: &'a Cluster,
    name: String,
    runtime: tokio::runtime::Runtime,
    proxy: Proxy,
    /// Each with where it is.
    processes: Vec<(Process, Option<Machine>)>,
    adders: Vec<tokio::task::JoinHandle<u64>>,
    ends: Arc<AtomicBool>,
    /// How often each thing broke.
    broken: BTreeMap<String, u64>,
}

/// Breaks something, mends it, and says what it was.
type Fault = fn(&mut Trial<'_>) -> &'static str;

/// A network namespace as a machine of its own: its name, and the address that this one has for it.
type Machine = (String, String);

impl<'a> Trial<'a> {
    fn begin(cluster: &'a Cluster) -> Self {
        let url = cluster.database();
        let name = url.rsplit('=').next().expect("it ends with the name").to_owned();
        Postgres::connect(&url).wait().expect("it is up").migrate().wait().expect("a schema");
        let sql = format!(
            "create table world(key text primary key, v bigint not null);
             insert into world select 'k' || n, 0 from generate_series(0, {KEYS} - 1) n;
             create table effect(id bigint generated always as identity, key text, v bigint, fence bigint)"
        );
        cluster.sql(&name, &sql);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let machines: Vec<Machine> = std::env::var("REQUEUE_MACHINES").map_or(Vec::new(), |all| {
            let each = all.split_whitespace().map(|one| one.split_once('=').expect("NAMESPACE=ADDRESS"));
            each.map(|(name, address)| (name.into(), address.into())).collect()
        });
        let address = if machines.is_empty() { "127.0.0.1" } else { "0.0.0.0" };
        let proxy = runtime.block_on(Proxy::start(address, cluster.folder().join(".s.PGSQL.5432")));
        let cuts = std::env::var("REQUEUE_CUTS").map_or(30, |cuts| cuts.parse().expect("a number"));
        proxy.cuts.store(cuts, Relaxed);
        let ends = Arc::new(AtomicBool::new(false));
        let mut trial = Self {
            cluster,
            name,
            runtime,
            proxy,
            processes: Vec::new(),
            adders: Vec::new(),
            ends,
            broken: BTreeMap::new(),
        };
        for n in 0..2 {
            let adds = adds(trial.connect(None), url.clone(), n, trial.ends.clone());
            trial.adders.push(trial.runtime.spawn(adds));
        }
        for n in 0..4 {
            let machine = machines.get(n % machines.len().max(1)).cloned();
            let connect = trial.connect(machine.as_ref());
            trial.processes.push((Process::start(&connect, machine.as_ref(), n < 2), machine));
        }
        trial
    }

    fn connect(&self, from: Option<&Machine>) -> String {
        let host = from.map_or("127.0.0.1", |(_, address)| address);
        let (port, name) = (self.proxy.port, &self.name);
        format!("host={host} port={port} user=postgres dbname={name} connect_timeout=5")
    }

    fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.name, sql)
    }

    fn faults(&self) -> u64 {
        self.broken.values().sum::<u64>() + self.proxy.faults.load(Relaxed)
    }

    /// Breaks one thing after another.
    fn suffer(&mut self, faults: &[Fault], least: u64, time: Duration) {
        let begun = Instant::now();
        for fault in faults.iter().cycle() {
            for _ in 0..4 {
                std::thread::sleep(Duration::from_millis(200));
                // as where a snapshot is held
                self.sql("update requeue.meta set renewed = '-infinity'");
                self.sql("select requeue.renew(-1000000000000000)");
                self.start_the_dead();
            }
            let broken = fault(self);
            self.count(broken);
            if self.faults() >= least && begun.elapsed() >= time {
                return;
            }
            assert!(begun.elapsed() < LONG * 2 + time + Duration::from_secs(least), "the faults do not come");
        }
    }

    fn count(&mut self, kind: &str) {
        *self.broken.entry(kind.into()).or_default() += 1;
    }

    fn start_the_dead(&mut self) {
        for n in 0..self.processes.len() {
            let (process, machine) = &mut self.processes[n];
            if process.child.try_wait().expect("a child").is_none() {
                continue;
            }
            let (dies, machine) = (process.dies, machine.clone());
            let next = Process::start(&self.connect(machine.as_ref()), machine.as_ref(), dies);
            let said = std::mem::replace(&mut self.processes[n].0, next).ends();
            said.iter().for_each(|step| self.count(step));
        }
    }

    /// Nothing breaks any more: at rest nothing is lost, and nothing was a zombie's.
    fn rest(mut self) {
        self.ends.store(true, Relaxed);
        self.proxy.cuts.store(0, Relaxed);
        let adders = std::mem::take(&mut self.adders);
        let added: u64 = self.runtime.block_on(async {
            let mut added = 0;
            for adder in adders {
                added += adder.await.expect("no panic");
            }
            added
        });
        let lost = "select count(*) from world w where v > 0 and v is distinct from
                    (select e.v from effect e where e.key = w.key order by id desc limit 1)";
        let rest = Instant::now();
        while self.sql(lost) != "0" {
            assert!(
                rest.elapsed() < LONG,
                "{} keys are lost: {}",
                self.sql(lost),
                self.sql("select * from requeue.item limit 5")
            );
            self.start_the_dead();
            std::thread::sleep(Duration::from_millis(50));
        }
        let zombies =
            "select count(*) from (select fence, lag(fence) over (partition by key order by id) f, v,
             lag(v) over (partition by key order by id) u from effect) x where fence <= f or v < u";
        assert_eq!(self.sql(zombies), "0");
        let ended: Vec<_> = self.processes.drain(..).flat_map(|(process, _)| process.ends()).collect();
        ended.iter().for_each(|step| self.count(step));
        let (cuts, runs) = (self.proxy.faults.load(Relaxed), self.sql("select count(*) from effect"));
        println!("{added} triggers, {runs} runs, {cuts} cuts, {:?}", self.broken);
    }
}

/// Two sessions, whose ever they are.
fn sessions_end(trial: &mut Trial<'_>) -> &'static str {
    trial.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity
         where application_name = 'requeue' and datname = current_database() order by random() limit 2",
    );
    "sessions ended"
}

/// A process stops for longer than its lease.
fn a_process_stops(trial: &mut Trial<'_>) -> &'static str {
    trial.processes[3].0.signal("-STOP");
    std::thread::sleep(LEASE * 2);
    trial.processes[3].0.signal("-CONT");
    "stopped and continued"
}

fn the_server_crashes(trial: &mut Trial<'_>) -> &'static str {
    trial.cluster.crash();
    "the server crashed"
}

fn the_server_fails_over(trial: &mut Trial<'_>) -> &'static str {
    trial.cluster.fail_over();
    "the server failed over"
}

/// The server's disk is full, for longer than a lease.
fn the_disk_is_full(trial: &mut Trial<'_>) -> &'static str {
    let fills = trial.cluster.folder().join("fills");
    let mut file = std::fs::File::create(&fills).expect("a file");
    let mut block = 1 << 20;
    while block > 0 {
        match std::io::Write::write(&mut file, &vec![0; block]) {
            Ok(1..) => {}
            _ => block /= 2,
        }
    }
    std::thread::sleep(LEASE * 2);
    std::fs::remove_file(fills).expect("it was there");
    trial.cluster.revive();
    "the disk was full"
}

/// Nothing comes from or to a machine, for longer than a lease.
fn a_machine_is_cut_off(trial: &mut Trial<'_>) -> &'static str {
    let (_, Some((name, _))) = &trial.processes[1] else { return "there are no machines" };
    link(name, &["link", "set", "out", "down"]);
    std::thread::sleep(LEASE * 2);
    link(name, &["link", "set", "out", "up"]);
    "a machine was cut off"
}

fn link(machine: &str, args: &[&str]) {
    let said = Command::new("ip").args(["-n", machine]).args(args).status();
    assert!(said.is_ok_and(|status| status.success()), "ip -n {machine} {args:?}");
}

fn least_faults(default: u64) -> u64 {
    std::env::var("REQUEUE_FAULTS").map_or(default, |faults| faults.parse().expect("a number"))
}

#[test]
fn nothing_is_lost_and_nothing_a_zombies_whatever_breaks() {
    let Some(cluster) = Cluster::start("fsync = off") else { return };
    let faults: [Fault; 4] = [sessions_end, a_process_stops, the_server_crashes, a_process_stops];
    let mut trial = Trial::begin(&cluster);
    trial.suffer(&faults, least_faults(100), Duration::ZERO);
    trial.rest();
}

#[test]
fn nothing_is_lost_and_nothing_a_zombies_where_the_server_fails_over_to_its_replica() {
    let Some(cluster) = Cluster::start_with("fsync = off", With::Replica) else { return };
    let mut trial = Trial::begin(&cluster);
    trial.suffer(&[the_server_fails_over, sessions_end], least_faults(40), Duration::ZERO);
    trial.rest();
}

#[test]
fn nothing_is_lost_and_nothing_a_zombies_where_the_disk_is_full() {
    let Some(cluster) = Cluster::start_with("max_wal_size = 32MB", With::Disk(160)) else { return };
    let mut trial = Trial::begin(&cluster);
    trial.suffer(&[the_disk_is_full, sessions_end], least_faults(40), Duration::ZERO);
    trial.rest();
}

/// `verify/soak.sh` runs it, with network namespaces as machines.
#[test]
#[ignore = "it takes as long as $REQUEUE_SOAK says, in seconds"]
fn soak() {
    let time = std::env::var("REQUEUE_SOAK").expect("so many seconds").parse().expect("a number");
    let Some(cluster) = Cluster::start_with("max_wal_size = 256MB", With::Replica) else { return };
    let faults: [Fault; 5] =
        [sessions_end, a_process_stops, a_machine_is_cut_off, the_server_crashes, the_server_fails_over];
    let mut trial = Trial::begin(&cluster);
    trial.suffer(&faults, 0, Duration::from_secs(time));
    trial.rest();
}
