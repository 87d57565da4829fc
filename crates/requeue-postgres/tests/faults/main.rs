//! A queue on PostgreSQL under faults: processes that are killed at each step or stopped for longer than
//! their lease; connections that are cut before a request, in the middle of it, between request and reply, or
//! that lead nowhere; sessions that are ended; futures that are dropped at any poll; transactions that
//! trigger the same keys in opposite order, are held for longer than a lease or rolled back; a server that
//! crashes, one that fails over to its synchronous replica, one whose disk is full, and one whose clock is an
//! hour off.
//!
//! Each trigger is a number of its key that is one higher than the last. At rest the last write for each key
//! has its last number: nothing was lost. Writes in runs' transactions have fences that only grow: nothing
//! was a zombie's, and no two processes had a key at once.
//!
//! `verify/faults.sh` runs a hundred thousand faults, and `verify/soak.sh` an hour of them.

#[allow(missing_docs, dead_code, unreachable_pub)]
#[path = "../../../../verify/src/cluster.rs"]
mod cluster;
mod load;
mod proxy;
mod worker;

use self::cluster::{Cluster, With};
use self::load::Adder;
use self::proxy::Proxy;
use self::worker::{Machine, Process};
use requeue::BoxError;
use requeue_postgres::Postgres;
use std::collections::BTreeMap;
use std::future::Future;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio_postgres::{Client, NoTls};

const LEASE: Duration = Duration::from_secs(1);
/// A generous time limit: on the slowest machine only an event that never comes reaches it.
const LONG: Duration = Duration::from_secs(300);
const HOUR: i64 = 3600;
/// The key of transactions that are rolled back.
const NEVER: &str = "never";

/// Faults that happen in each trial.
const ALWAYS: [&str; 20] = [
    "process killed at step 1 of a run",
    "process killed at step 2 of a run",
    "process killed at step 3 of a run",
    "process killed at step 4 of a run",
    "process killed at step 5 of a run",
    "process killed at step 6 of a run",
    "process killed at any time",
    "process stopped for two leases",
    "session ended",
    "connection cut before a request",
    "connection cut in the middle of a request",
    "connection cut between request and reply",
    "connection that leads nowhere for three leases",
    "future of an add dropped",
    "future of an add in a transaction dropped",
    "future of a get dropped",
    "future of a run's end dropped",
    "item dropped without a word",
    "transaction in opposite order held for two leases",
    "transaction in opposite order rolled back",
];

/// Number of each fault.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

impl Counts {
    fn add(&self, kind: &str) {
        *self.all().entry(kind.to_owned()).or_default() += 1;
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().expect("no panic")
    }

    fn of(&self, kind: &str) -> u64 {
        self.all().get(kind).copied().unwrap_or(0)
    }

    fn sum(&self) -> u64 {
        self.all().values().sum()
    }
}

/// A pseudo-random generator.
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

/// Result of a future; `None` if it was dropped without one: before its first poll, after one or more, or
/// when it would have been polled again.
async fn dropped<T>(seed: &AtomicU64, future: impl Future<Output = T>) -> Option<T> {
    let (mut polls, at_once) = (random(seed) % 4, random(seed) % 2 == 0);
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if polls == 0 && at_once => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |it| it.parse().unwrap_or_else(|_| panic!("{name}={it}: not a number")))
}

/// The load while faults happen: processes, half of which die now and then, tasks that add, and a proxy.
struct Trial<'a> {
    cluster: &'a Cluster,
    name: String,
    runtime: tokio::runtime::Runtime,
    proxy: Proxy,
    processes: Vec<Process>,
    adders: Vec<tokio::task::JoinHandle<u64>>,
    ends: Arc<AtomicBool>,
    counts: Counts,
    seed: AtomicU64,
    /// Number of hours that the server's clock is ahead, and how often it was stepped.
    clock: (i64, usize),
}

/// A global fault: causes it, repairs it, and returns its name.
type Fault = fn(&mut Trial<'_>) -> &'static str;

impl<'a> Trial<'a> {
    /// Starts a trial. `$REQUEUE_FAULTS_LOAD` multiplies the numbers of processes and keys, and the faults
    /// per second.
    fn begin(cluster: &'a Cluster) -> Self {
        let load = number("REQUEUE_FAULTS_LOAD", 1);
        let url = cluster.database();
        let name = url.rsplit('=').next().expect("it ends with the name").to_owned();
        Postgres::connect(&url).wait().expect("it is up").migrate().wait().expect("a schema");
        let (keys, adders) = (40 * load, 4 * load);
        let sql = format!(
            "create table world(key text, who int, v bigint not null, primary key(key, who));
             insert into world select 'k' || n, who, 0 from generate_series(0, {keys} - 1) n, generate_series(0, {adders} - 1) who;
             create table effect(id bigint generated always as identity, key text, v bigint, fence bigint);
             create index on effect(key, id)"
        );
        cluster.sql(&name, &sql);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let machines: Vec<Machine> = std::env::var("REQUEUE_MACHINES").map_or(Vec::new(), |all| {
            let each = all.split_whitespace().map(|one| one.split_once('=').expect("NAMESPACE=ADDRESS"));
            each.map(|(name, address)| (name.into(), address.into())).collect()
        });
        let address = if machines.is_empty() { "127.0.0.1" } else { "0.0.0.0" };
        let counts = Counts::default();
        let (socket, cuts) = (cluster.folder().join(".s.PGSQL.5432"), number("REQUEUE_FAULTS_CUTS", 30));
        let proxy = runtime.block_on(Proxy::start(address, socket, cuts, counts.clone()));
        let mut trial = Self {
            cluster,
            name,
            runtime,
            proxy,
            processes: Vec::new(),
            adders: Vec::new(),
            ends: Arc::default(),
            counts,
            seed: AtomicU64::new(11),
            clock: (0, 0),
        };
        for n in 0..adders {
            let adder = Adder {
                who: i32::try_from(n).expect("few"),
                connect: trial.connect(None),
                direct: url.clone(),
                keys,
                ends: trial.ends.clone(),
                counts: trial.counts.clone(),
                seed: AtomicU64::new(n << 32),
            };
            trial.adders.push(match n % 4 {
                0 | 1 => trial.runtime.spawn(adder.adds()),
                n => trial.runtime.spawn(adder.transacts(n == 3)),
            });
        }
        for n in 0..4 * load {
            let machine = machines.get((n as usize) % machines.len().max(1)).cloned();
            let process = trial.process(machine, n % 2 == 0);
            trial.processes.push(process);
        }
        let (ends, counts) = (trial.ends.clone(), trial.counts.clone());
        trial.runtime.spawn(ends_sessions(url, load, ends, counts));
        trial
    }

    fn connect(&self, from: Option<&Machine>) -> String {
        let host = from.map_or("127.0.0.1", |(_, address)| address);
        let (port, name) = (self.proxy.port, &self.name);
        format!("host={host} port={port} user=postgres dbname={name} connect_timeout=5")
    }

    fn process(&self, machine: Option<Machine>, dies: bool) -> Process {
        Process::start(&self.connect(machine.as_ref()), machine, dies, self.counts.clone())
    }

    fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.name, sql)
    }

    /// Causes faults: global ones one after another, and meanwhile those of processes; until there were that
    /// many, each at least once, and the time is over.
    fn suffers(&mut self, faults: &[Fault], least: u64, time: Duration) {
        let (begun, pause) = (Instant::now(), Duration::from_secs(3));
        let mut broken = Vec::new();
        for fault in faults.iter().cycle() {
            let next = Instant::now() + pause;
            while Instant::now() < next {
                std::thread::sleep(Duration::from_millis(20));
                self.hurts_processes();
            }
            let kind = fault(self);
            self.counts.add(kind);
            broken.push(kind);
            let missing = ALWAYS.iter().find(|kind| self.counts.of(kind) == 0);
            let is_enough = self.counts.sum() >= least && begun.elapsed() >= time;
            if is_enough && broken.len() >= faults.len() && missing.is_none() {
                return;
            }
            let limit = LONG * 4 + time + Duration::from_secs(least / 5);
            assert!(
                begun.elapsed() < limit,
                "the faults do not come, {missing:?} for one: {:?}",
                self.counts.all()
            );
        }
    }

    /// Restarts dead processes, and continues those that were stopped for long enough.
    fn revives_processes(&mut self) {
        for n in 0..self.processes.len() {
            let process = &mut self.processes[n];
            process.goes_on();
            if process.is_gone() {
                let (machine, dies) = (process.machine.clone(), process.dies);
                let next = self.process(machine, dies);
                std::mem::replace(&mut self.processes[n], next).ends();
            }
        }
    }

    /// Causes faults of processes for about 20 ms.
    fn hurts_processes(&mut self) {
        self.revives_processes();
        let mut may_stop = self.processes.len() / 4;
        may_stop -= self.processes.iter().filter(|it| it.is_stopped()).count().min(may_stop);
        for process in self.processes.iter_mut().filter(|it| !it.is_stopped()) {
            if process.dies && random(&self.seed) % 250 == 0 {
                process.kill();
                self.counts.add("process killed at any time");
            } else if may_stop > 0 && random(&self.seed) % 250 == 0 {
                process.stops(LEASE * 2);
                may_stop -= 1;
                self.counts.add("process stopped for two leases");
            }
        }
    }

    /// Ends all faults, and checks at rest that nothing was lost or a zombie's.
    fn rests(mut self) {
        self.ends.store(true, Relaxed);
        self.proxy.cuts.store(0, Relaxed);
        if self.clock.1 > 0 {
            // leases that were extended while the clock was ahead are over
            self.clock.0 = 2;
            self.cluster.set_clock(2 * HOUR);
        }
        // one that is stopped may have locked, in a transaction of its handler's, what an adder waits for
        while self.processes.iter().any(Process::is_stopped) {
            self.revives_processes();
            std::thread::sleep(Duration::from_millis(20));
        }
        let adders = std::mem::take(&mut self.adders);
        let added: u64 = self.runtime.block_on(async {
            let mut added = 0;
            for adder in adders {
                added += adder.await.expect("no panic");
            }
            added
        });
        let lost = "select count(*) from (select key, sum(v) as v from world group by key) w where v > 0 and v is distinct from
                    (select e.v from effect e where e.key = w.key order by id desc limit 1)";
        let rest = Instant::now();
        while self.sql(lost) != "0" {
            assert!(
                rest.elapsed() < LONG,
                "{} keys are lost: {}",
                self.sql(lost),
                self.sql("select * from requeue.item limit 5")
            );
            self.revives_processes();
            std::thread::sleep(Duration::from_millis(50));
        }
        let zombies =
            "select count(*) from (select fence, lag(fence) over (partition by key order by id) f, v,
             lag(v) over (partition by key order by id) u from effect) x where fence <= f or v < u";
        assert_eq!(self.sql(zombies), "0");
        let never = format!("select count(*) from effect where key = '{NEVER}'");
        assert_eq!(self.sql(&never), "0", "a trigger of a transaction that was rolled back has run");
        self.processes.drain(..).for_each(Process::ends);
        println!(
            "{added} triggers, {} runs, {} faults:",
            self.sql("select count(*) from effect"),
            self.counts.sum()
        );
        for (kind, times) in &*self.counts.all() {
            println!("{times:8} {kind}");
        }
    }
}

/// Ends any sessions, and copies the tables, as if a snapshot were held.
async fn ends_sessions(connect: String, load: u64, ends: Arc<AtomicBool>, counts: Counts) {
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()
               and backend_type = 'client backend' and application_name <> 'psql' and pid <> pg_backend_pid()
               order by random() limit 1";
    let copy = "update requeue.meta set renewed = '-infinity';
                select requeue.renew(array[-1000000000000000, 0, extract(epoch from clock_timestamp()) * 1000000]::bigint[])";
    let mut db = None;
    while !ends.load(Relaxed) {
        tokio::time::sleep(Duration::from_millis(400 / load)).await;
        let ended: Result<(), BoxError> = async {
            if db.is_none() {
                db = Some(client(&connect).await?);
            }
            let Some(db) = &db else { return Ok(()) };
            if !db.query(end, &[]).await?.is_empty() {
                counts.add("session ended");
            }
            // in two transactions
            for sql in copy.split("; ") {
                db.batch_execute(sql).await?;
            }
            Ok(())
        }
        .await;
        if ended.is_err() {
            db = None;
        }
    }
}

fn the_server_crashes(trial: &mut Trial<'_>) -> &'static str {
    trial.cluster.crash();
    "server crashed"
}

fn the_server_fails_over(trial: &mut Trial<'_>) -> &'static str {
    trial.cluster.fail_over();
    "server failed over"
}

/// Fills the server's disk, for longer than a lease.
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
    // an open file has its room until it is closed
    drop(file);
    std::fs::remove_file(fills).expect("it was there");
    trial.cluster.revive();
    "disk full"
}

/// Steps the server's clock an hour ahead, or an hour back, for longer than a lease.
///
/// PostgreSQL's own limits of current waits (`lock_timeout`, `deadlock_timeout`) come an hour late if the
/// clock is set back: it checks the clock again before it believes its timer. So those sessions are ended, as
/// an administrator would have to.
fn the_clock_is_stepped(trial: &mut Trial<'_>) -> &'static str {
    let (before, steps) = trial.clock;
    let hours = [1, 0, -1, 0][steps % 4];
    trial.clock = (hours, steps + 1);
    trial.cluster.set_clock(hours * HOUR);
    if hours < before {
        trial.sql("select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock'");
    }
    let now: f64 = trial.sql("select extract(epoch from clock_timestamp())").parse().expect("seconds");
    let here = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs_f64();
    let ahead = now - here;
    assert!(
        (ahead - (hours * HOUR) as f64).abs() < 60.0,
        "the server's clock is {ahead} s ahead, not {hours} h"
    );
    std::thread::sleep(LEASE * 2);
    if hours > before { "clock an hour forward" } else { "clock an hour back" }
}

/// Blocks all traffic of a machine, for longer than a lease.
fn a_machine_is_cut_off(trial: &mut Trial<'_>) -> &'static str {
    let machine = trial.processes[1].machine.clone();
    let (name, _) = machine.expect("REQUEUE_MACHINES has the network namespaces that verify/soak.sh makes");
    link(&name, &["link", "set", "out", "down"]);
    std::thread::sleep(LEASE * 2);
    link(&name, &["link", "set", "out", "up"]);
    "machine cut off"
}

fn link(machine: &str, args: &[&str]) {
    let said = Command::new("ip").args(["-n", machine]).args(args).status();
    assert!(said.is_ok_and(|status| status.success()), "ip -n {machine} {args:?}");
}

/// A percentage of `$REQUEUE_FAULTS`.
fn share(hundredths: u64) -> u64 {
    number("REQUEUE_FAULTS", 500) * hundredths / 100
}

/// A server's configuration for the connections of many processes.
fn with_room(configuration: &str) -> String {
    format!("{configuration}\nmax_connections = 600")
}

/// Minimum time of a trial.
const SHORT: Duration = Duration::from_secs(15);

/// A process of the trials.
#[test]
#[ignore = "it is a process of the other tests"]
fn worker() {
    worker::works();
}

#[test]
fn nothing_is_lost_and_nothing_a_zombies_whatever_breaks() {
    let Some(cluster) = Cluster::start(&with_room("fsync = off")) else { return };
    let mut trial = Trial::begin(&cluster);
    trial.suffers(&[the_server_crashes], share(70), SHORT);
    trial.rests();
}

#[test]
fn nothing_is_lost_and_nothing_a_zombies_where_the_server_fails_over_to_its_replica() {
    let Some(cluster) = Cluster::start_with(&with_room("fsync = off"), With::Replica) else { return };
    let mut trial = Trial::begin(&cluster);
    trial.suffers(&[the_server_fails_over], share(10), SHORT);
    trial.rests();
}

#[test]
fn nothing_is_lost_and_nothing_a_zombies_where_the_disk_is_full() {
    let Some(cluster) = Cluster::start_with(&with_room("max_wal_size = 32MB"), With::Disk(160)) else {
        return;
    };
    let mut trial = Trial::begin(&cluster);
    trial.suffers(&[the_disk_is_full], share(10), SHORT);
    trial.rests();
}

#[test]
fn nothing_is_lost_and_nothing_a_zombies_where_the_clock_is_an_hour_off() {
    let Some(cluster) = Cluster::start_with(&with_room("fsync = off"), With::Clock) else { return };
    let mut trial = Trial::begin(&cluster);
    let steps: [Fault; 4] = [the_clock_is_stepped; 4];
    trial.suffers(&steps, share(10), SHORT);
    trial.rests();
}

/// Run by `verify/soak.sh`, with network namespaces as machines.
#[test]
#[ignore = "it takes as long as $REQUEUE_SOAK says, in seconds"]
fn soak() {
    let time = Duration::from_secs(number("REQUEUE_SOAK", 3600));
    let Some(cluster) = Cluster::start_with(&with_room("max_wal_size = 256MB"), With::Replica) else {
        return;
    };
    let mut trial = Trial::begin(&cluster);
    trial.suffers(&[a_machine_is_cut_off, the_server_crashes, the_server_fails_over], 0, time);
    trial.rests();
}
