//! Runs each controller through the same scenarios on one API server, and prints a table.
//!
//! `kube/bench/run` builds the programs and calls this. `BENCH_OBJECTS` is the number of objects (500);
//! memory is measured with 1,000, and with `REQUEUE_KUBE_LONG=1` with 10,000. `BENCH_ONLY` names one
//! scenario: see `main`.

#[path = "../../../requeue-kube/tests/real/server.rs"]
mod server;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, CustomResourceExt, ResourceExt};
use kube_bench::{Website, WebsiteSpec, env, now_us};
use serde_json::json;
use server::Server;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

/// A run of a controller, from its record.
#[derive(Clone, Debug)]
struct Ran {
    began: i64,
    name: String,
    stamp: i64,
    well: bool,
}

/// A running controller.
struct Subject {
    child: Child,
    record: PathBuf,
}

struct Bench {
    server: Server,
    client: Client,
    dir: tempfile::TempDir,
}

impl Bench {
    async fn namespace(&self, name: &str) -> Api<Website> {
        let apply = PatchParams::apply("bench").force();
        let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        Api::<Namespace>::all(self.client.clone()).patch(name, &apply, &Patch::Apply(made)).await.unwrap();
        Api::namespaced(self.client.clone(), name)
    }

    fn start(&self, program: &Path, ns: &str, workers: usize) -> Subject {
        self.start_with(Command::new(program), ns, workers)
    }

    fn start_with(&self, mut program: Command, ns: &str, workers: usize) -> Subject {
        let record = self.dir.path().join(format!("{ns}.csv"));
        let child = program
            .env("KAPI", self.server.url())
            .env("TOKEN", server::TOKEN)
            .env("NS", ns)
            .env("CONC", workers.to_string())
            .env("REC", &record)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Subject { child, record }
    }

    /// Number of requests that write websites and config maps, by the API server's own count.
    async fn requests(&self, write: bool) -> u64 {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        let text = self.client.request_text(request).await.unwrap();
        let writes = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];
        let ours = |line: &&str| {
            line.starts_with("apiserver_request_total{")
                && ["websites", "configmaps"].iter().any(|it| line.contains(&format!("resource=\"{it}\"")))
                && writes.iter().any(|verb| line.contains(&format!("verb=\"{verb}\""))) == write
        };
        text.lines().filter(ours).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
            as u64
    }

    async fn create(
        &self,
        sites: &Api<Website>,
        prefix: &str,
        count: usize,
        spec: &WebsiteSpec,
    ) -> HashMap<String, i64> {
        let make = |n: usize| {
            let site = Website::new(&format!("{prefix}{n}"), WebsiteSpec { stamp: now_us(), ..spec.clone() });
            async move {
                let made = sites.create(&PostParams::default(), &site).await.unwrap();
                (made.name_any(), now_us())
            }
        };
        stream::iter(0..count).map(make).buffer_unordered(16).collect().await
    }

    /// Waits until there have been this many writes, or for ten minutes.
    async fn written(&self, writes: u64) -> bool {
        let end = Instant::now() + Duration::from_secs(600);
        while Instant::now() < end {
            if self.requests(true).await >= writes {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        false
    }

    /// Waits until this many objects have a status and a child, or the time is over.
    async fn settled(&self, sites: &Api<Website>, ns: &str, count: usize) -> bool {
        let children = Api::<ConfigMap>::namespaced(self.client.clone(), ns);
        let end = Instant::now() + Duration::from_secs(120);
        while Instant::now() < end {
            let there = children.list_metadata(&ListParams::default()).await.unwrap().items;
            let there = there.iter().filter(|child| child.name_any().ends_with("-html")).count();
            let told = sites.list(&ListParams::default()).await.unwrap();
            let told = told.iter().filter(|site| site.status.as_ref().is_some_and(|it| it.stamp > 0)).count();
            if there >= count && told >= count {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        false
    }
}

impl Subject {
    fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Resident memory in MB, and processor time in seconds.
    fn usage(&self) -> (f64, f64) {
        let of = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", self.pid())).unwrap();
        let pages: f64 = of("statm").split(' ').nth(1).unwrap().parse().unwrap();
        let stat = of("stat");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        (pages * 4096.0 / 1e6, ticks / 100.0)
    }

    /// Peak resident memory in MB.
    fn peak(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim_end_matches("kB").trim().parse::<f64>().unwrap() * 1024.0 / 1e6
    }

    /// Sends SIGTERM. Returns how long the end took, and the record.
    async fn stop(mut self) -> (Duration, Vec<Ran>) {
        let at = Instant::now();
        drop(Command::new("kill").arg(self.pid().to_string()).status().await);
        let ended = tokio::time::timeout(Duration::from_secs(40), self.child.wait()).await;
        let took = at.elapsed();
        if ended.is_err() {
            drop(self.child.kill().await);
        }
        let text = std::fs::read_to_string(&self.record).unwrap_or_default();
        let run = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            let [began, name, stamp, end, _] = fields[..] else { return None };
            let (began, stamp) = (began.parse().ok()?, stamp.parse().ok()?);
            Some(Ran { began, name: name.into(), stamp, well: end == "ok" })
        };
        (took, text.lines().skip(1).filter_map(run).collect())
    }
}

/// "p50 / p99" of microseconds, in milliseconds.
fn percentiles(mut micros: Vec<i64>) -> String {
    if micros.is_empty() {
        return "none".into();
    }
    micros.sort_unstable();
    let of = |hundredths: usize| micros[(micros.len() * hundredths).div_ceil(100).max(1) - 1] as f64 / 1e3;
    format!("{:.0} / {:.0} ms", of(50), of(99))
}

type Rows = Vec<(&'static str, String)>;

/// Measures many objects that are added at once.
async fn at_once(bench: &Bench, program: &Path, ns: &str) -> Rows {
    let count = env("BENCH_OBJECTS", 500);
    let sites = bench.namespace(ns).await;
    let subject = bench.start(program, ns, 16);
    tokio::time::sleep(Duration::from_secs(3)).await; // its watches
    let (empty, _) = subject.usage();
    let (writes, reads) = (bench.requests(true).await, bench.requests(false).await);
    let at = Instant::now();
    let made = bench.create(&sites, "s", count, &WebsiteSpec::default()).await;
    let settled = bench.settled(&sites, ns, count).await;
    let took = at.elapsed();
    tokio::time::sleep(Duration::from_secs(3)).await; // its echoes
    let (full, seconds) = subject.usage();
    let writes = (bench.requests(true).await - writes) as f64 / count as f64 - 1.0;
    let reads = bench.requests(false).await - reads;
    let (_, runs) = subject.stop().await;
    let mut first = HashMap::<&str, i64>::new();
    for run in &runs {
        first.entry(&run.name).and_modify(|began| *began = run.began.min(*began)).or_insert(run.began);
    }
    let delays =
        made.iter().filter_map(|(name, made)| Some((first.get(name.as_str())? - made).max(0))).collect();
    vec![
        (
            "objects at once: all done after",
            if settled { format!("{:.1} s", took.as_secs_f64()) } else { "not in 120 s".into() },
        ),
        ("- from write to first run, p50 / p99", percentiles(delays)),
        ("- runs an object", format!("{:.2}", runs.len() as f64 / count as f64)),
        ("- writes an object, the creation aside", format!("{writes:.2}")),
        ("- other requests of driver and controller", reads.to_string()),
        ("- processor time", format!("{seconds:.2} s")),
        ("- memory, before and after", format!("{empty:.0} / {full:.0} MB")),
    ]
}

/// Healthy changes next to objects that fail, with four workers.
async fn poison(bench: &Bench, program: &Path, ns: &str) -> Rows {
    let sites = bench.namespace(ns).await;
    let mode = |mode: &str| WebsiteSpec { mode: mode.into(), ..WebsiteSpec::default() };
    bench.create(&sites, "fine", 40, &WebsiteSpec::default()).await;
    let subject = bench.start(program, ns, 4);
    bench.settled(&sites, ns, 40).await;
    let writes = bench.requests(true).await;
    bench.create(&sites, "fail", 50, &mode("fail")).await;
    bench.create(&sites, "echo", 50, &mode("fail-status")).await;
    let begin = Instant::now();
    let mut changes = Vec::new();
    for round in 0..6_u64 {
        for n in 0..40_u64 {
            let (name, stamp) = (format!("fine{n}"), now_us());
            let patch = Patch::Merge(json!({"spec": {"stamp": stamp}}));
            sites.patch(&name, &PatchParams::default(), &patch).await.unwrap();
            changes.push((name, stamp));
            let due = Duration::from_secs(2) * round as u32 + Duration::from_millis(50) * n as u32;
            tokio::time::sleep(due.saturating_sub(begin.elapsed())).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(12).saturating_sub(begin.elapsed())).await;
    let writes = bench.requests(true).await - writes - 100 - 240;
    let (_, runs) = subject.stop().await;
    let seen = |(name, stamp): &(String, i64)| {
        let sees =
            runs.iter().filter(|run| run.name == *name && run.stamp >= *stamp).map(|run| run.began).min();
        Some((sees? - stamp).max(0))
    };
    let seen: Vec<_> = changes.iter().filter_map(seen).collect();
    let each = |prefix: &str| runs.iter().filter(|run| run.name.starts_with(prefix)).count() as f64 / 50.0;
    vec![
        (
            "50 fail, 50 fail and write their status, 12 s: runs of one that fails",
            format!("{:.1}", each("fail")),
        ),
        ("- runs of one that fails and writes its status", format!("{:.1}", each("echo"))),
        ("- healthy changes seen, of 240", seen.len().to_string()),
        ("- from change to run, p50 / p99", percentiles(seen)),
        ("- writes meanwhile", writes.to_string()),
    ]
}

/// Measures a kill and restart of the API server, with objects that need no change.
async fn restart(bench: &mut Bench, program: &Path, ns: &str) -> Rows {
    let count = env("BENCH_OBJECTS", 500);
    let sites = bench.namespace(ns).await;
    bench.create(&sites, "s", count, &WebsiteSpec::default()).await;
    let subject = bench.start(program, ns, 16);
    bench.settled(&sites, ns, count).await;
    tokio::time::sleep(Duration::from_secs(3)).await; // its echoes
    let quiet = now_us();
    bench.server.kill();
    tokio::time::sleep(Duration::from_secs(3)).await; // the time that it is away
    bench.server.restart().await;
    bench.client = bench.server.client();
    let sites: Api<Website> = Api::namespaced(bench.client.clone(), ns);
    let stamp = now_us();
    let patch = Patch::Merge(json!({"spec": {"stamp": stamp}}));
    sites.patch("s0", &PatchParams::default(), &patch).await.unwrap();
    tokio::time::sleep(Duration::from_secs(15)).await; // for each of them, as long as the slowest needs
    let (_, runs) = subject.stop().await;
    let after: Vec<_> = runs.iter().filter(|run| run.began > quiet).collect();
    let seen = after.iter().filter(|run| run.name == "s0" && run.stamp == stamp).map(|run| run.began).min();
    let needless = after.iter().filter(|run| run.name != "s0").count();
    vec![
        ("API server killed and back: runs of objects that have not changed", needless.to_string()),
        (
            "- a change when it is ready is seen after",
            seen.map_or("not in 15 s".into(), |at| percentiles(vec![at - stamp])),
        ),
    ]
}

/// SIGTERM with fifty runs in flight.
async fn term(bench: &Bench, program: &Path, ns: &str) -> Rows {
    let sites = bench.namespace(ns).await;
    let subject = bench.start(program, ns, 50);
    tokio::time::sleep(Duration::from_secs(3)).await; // its watches
    bench.create(&sites, "s", 50, &WebsiteSpec { sleep_ms: 3000, ..WebsiteSpec::default() }).await;
    tokio::time::sleep(Duration::from_millis(1500)).await; // all of them are in flight
    let (took, runs) = subject.stop().await;
    let failed = runs.iter().filter(|run| !run.well).count();
    vec![
        ("SIGTERM with 50 in flight of 3 s: exit after", format!("{:.1} s", took.as_secs_f64())),
        ("- runs that failed by it", failed.to_string()),
    ]
}

/// Number of objects for measuring memory.
fn many() -> usize {
    if std::env::var_os("REQUEUE_KUBE_LONG").is_some() { 10_000 } else { 1000 }
}

/// Makes the objects of [`start_with_many`] and lets this controller reconcile them: it would change objects
/// that another controller has reconciled.
async fn make_many(bench: &Bench, program: &Path, ns: &str) {
    let sites = bench.namespace(ns).await;
    let subject = bench.start(program, ns, 16);
    let writes = bench.requests(true).await;
    bench.create(&sites, "s", many(), &WebsiteSpec::default()).await;
    // Creation, finalizer, child and status.
    bench.written(writes + 4 * many() as u64).await;
    assert!(bench.settled(&sites, ns, many()).await);
    tokio::time::sleep(Duration::from_secs(5)).await; // its echoes, which may write once more
    subject.stop().await;
}

/// A start with many objects that need no change: each has a run, which applies its child unchanged.
async fn start_with_many(bench: &Bench, program: &Path, nth: usize) -> Rows {
    let (none, ns) = (&*format!("none-{nth}"), &*format!("many-{nth}"));
    make_many(bench, program, ns).await;
    bench.namespace(none).await;
    let subject = bench.start(program, none, 16);
    tokio::time::sleep(Duration::from_secs(3)).await; // its watches
    let (empty, _) = subject.usage();
    subject.stop().await;
    let (writes, reads) = (bench.requests(true).await, bench.requests(false).await);
    let at = Instant::now();
    let subject = bench.start(program, ns, 16);
    let all = bench.written(writes + many() as u64).await;
    let took = at.elapsed();
    tokio::time::sleep(Duration::from_secs(5)).await; // what it has allocated for its lists goes back, or does not
    let (full, seconds) = subject.usage();
    let peak = subject.peak();
    subject.stop().await;
    tokio::time::sleep(Duration::from_secs(1)).await; // a watch is counted when it ends
    let (writes, reads) = (bench.requests(true).await - writes, bench.requests(false).await - reads);
    // kube-runtime leaves them out of a stream only, which takes a feature that it calls unstable.
    let trimmed = if program.ends_with("ctl-kube") {
        "-".to_owned()
    } else {
        let before = bench.requests(true).await;
        let mut trims = Command::new(program);
        trims.env("TRIM", "1");
        let subject = bench.start_with(trims, ns, 16);
        bench.written(before + many() as u64).await;
        tokio::time::sleep(Duration::from_secs(5)).await; // as above
        let (trimmed, _) = subject.usage();
        subject.stop().await;
        format!("{trimmed:.0} MB")
    };
    vec![
        (
            "a start with many objects that are as they should be: each has run after",
            if all { format!("{:.1} s", took.as_secs_f64()) } else { "not in 10 min".into() },
        ),
        ("- memory without objects / with them / at most", format!("{empty:.0} / {full:.0} / {peak:.0} MB")),
        ("- bytes of memory an object", format!("{:.0}", (full - empty) * 1e6 / many() as f64)),
        ("- memory with them, without their managed fields", trimmed),
        ("- requests: lists, reads and watches / writes", format!("{reads} / {writes}")),
        ("- processor time", format!("{seconds:.2} s")),
    ]
}

#[tokio::main]
async fn main() {
    let programs: Vec<(String, PathBuf)> = std::env::args()
        .skip(1)
        .map(|arg| {
            arg.split_once('=').map(|(name, path)| (name.to_owned(), path.into())).expect("NAME=PROGRAM")
        })
        .collect();
    let Some(server) = Server::start().await else { std::process::exit(3) };
    let mut bench = Bench { client: server.client(), server, dir: tempfile::tempdir().unwrap() };
    let crds = Api::<CustomResourceDefinition>::all(bench.client.clone());
    let apply = PatchParams::apply("bench").force();
    crds.patch("websites.trial.dev", &apply, &Patch::Apply(Website::crd())).await.unwrap();
    let established = kube::runtime::conditions::is_crd_established();
    kube::runtime::wait::await_condition(crds, "websites.trial.dev", established).await.unwrap();
    let mut table = BTreeMap::<usize, (&str, Vec<String>)>::new();
    let mut add = |base: usize, rows: Rows| {
        for (n, (what, value)) in rows.into_iter().enumerate() {
            table.entry(base + n).or_insert((what, Vec::new())).1.push(value);
        }
    };
    let only: String = env("BENCH_ONLY", String::new());
    let is_due = |scenario: &str| only.is_empty() || only == scenario;
    for (nth, (name, program)) in programs.iter().enumerate() {
        if is_due("once") {
            eprintln!("{name}: objects at once");
            add(0, at_once(&bench, program, &format!("once-{nth}")).await);
        }
        if is_due("poison") {
            eprintln!("{name}: objects that fail");
            add(100, poison(&bench, program, &format!("poison-{nth}")).await);
        }
        if is_due("term") {
            eprintln!("{name}: SIGTERM");
            add(200, term(&bench, program, &format!("term-{nth}")).await);
        }
        if is_due("restart") {
            eprintln!("{name}: a restart of the API server");
            add(300, restart(&mut bench, program, &format!("restart-{nth}")).await);
        }
        if is_due("many") {
            eprintln!("{name}: a start with many objects");
            add(400, start_with_many(&bench, program, nth).await);
        }
    }
    let names: Vec<_> = programs.iter().map(|(name, _)| name.as_str()).collect();
    println!("| {} objects; many are {} | {} |", env("BENCH_OBJECTS", 500), many(), names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    for (what, values) in table.values() {
        println!("| {what} | {} |", values.join(" | "));
    }
}
