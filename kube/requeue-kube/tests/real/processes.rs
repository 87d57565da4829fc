//! s14 of the design with real processes: several stand for one lease, the leader is stopped, killed and
//! ended, and the writes of all are watched at the API server.
//!
//! The processes are this program: with `S14_IDENTITY` it is a candidate. `REQUEUE_KUBE_LONG=1` uses the
//! lease's usual times, stops leaders for 30 s, and sees 20 takeovers.

#[allow(dead_code, reason = "the other scenarios use more of it")]
mod figures;
#[allow(dead_code, reason = "the other scenarios use more of it")]
mod server;

use figures::{figure, size, until};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::client::ClientBuilder;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use libtest_mimic::{Arguments, Trial};
use requeue_kube::lease::{Elector, client_layer};
use requeue_kube::{Action, Controller, Current};
use serde_json::json;
use server::Server;
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

const NAMESPACE: &str = "s14-processes";
/// Number of objects that are reconciled again and again, and so of writes in flight. All candidates write to
/// shared logs, one per object, without a resource version: only their fences keep them apart.
const WORKERS: usize = 8;
/// Time from the end of a run of an object to the next: about 200 writes a second.
const PERIOD: Duration = Duration::from_millis(20);

fn main() {
    if let Ok(identity) = std::env::var("S14_IDENTITY") {
        return candidate(&identity);
    }
    let name = "s14_a_leader_that_is_stopped_killed_or_ended_writes_nothing_after_the_next_one";
    let tests = vec![Trial::test(name, || {
        runtime().block_on(s14());
        Ok(())
    })];
    libtest_mimic::run(&Arguments::from_args(), tests).exit();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Lease duration, renew deadline, retry period and skew.
fn times() -> [Duration; 4] {
    [size(15_000, 4000), size(10_000, 3000), size(2000, 400), size(1000, 200)]
        .map(|ms| Duration::from_millis(ms as u64))
}

fn var(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// Microseconds since 1970: all processes have one clock here.
fn now() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros()
}

struct Ctx {
    maps: Api<ConfigMap>,
    identity: String,
    nth: AtomicU64,
}

/// Writes its name and its term into the log of the object.
async fn reconcile(object: Arc<ConfigMap>, cx: Arc<Ctx>) -> Result<Action, kube::Error> {
    let token = Current::get().unwrap().fence().unwrap().token();
    let nth = cx.nth.fetch_add(1, SeqCst);
    let began = now().to_string();
    let data = json!({"by": cx.identity, "token": token.to_string(), "nth": nth.to_string(), "began": began});
    let log = format!("log-of-{}", object.name_any());
    cx.maps.patch(&log, &PatchParams::default(), &Patch::Merge(json!({ "data": data }))).await?;
    Ok(Action::requeue(PERIOD))
}

/// A process that reconciles while it leads.
fn candidate(identity: &str) {
    // It ends when the test does, however that ends.
    std::thread::spawn(|| {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        std::process::exit(0);
    });
    let config = server::config(&var("S14_SERVER"));
    let [lease, deadline, period, skew] = times();
    runtime().block_on(async {
        let plain = Client::try_from(config.clone()).unwrap();
        let elector = Elector::builder(&plain, "s14")
            .namespace(NAMESPACE)
            .identity(identity)
            .lease_duration(lease)
            .renew_deadline(deadline)
            .retry_period(period)
            .skew(skew)
            .start()
            .unwrap();
        let fenced =
            ClientBuilder::try_from(config).unwrap().with_layer(&client_layer(elector.fence())).build();
        let maps = Api::<ConfigMap>::namespaced(fenced, NAMESPACE);
        let cx = Ctx { maps: maps.clone(), identity: identity.to_owned(), nth: AtomicU64::new(0) };
        let running = Controller::new(maps, watcher::Config::default().labels("is=work"))
            .leader(&elector)
            .shutdown_on_signal()
            .start(reconcile, |_, _, _| Action::requeue(PERIOD), Arc::new(cx))
            .unwrap();
        until("the list", || running.health().synced).await;
        // Written without the fence: the test is to know that this one can take over.
        let ready = map(&format!("ready-{identity}"), "note");
        Api::namespaced(plain, NAMESPACE).create(&PostParams::default(), &ready).await.unwrap();
        running.ended().await;
        elector.release().await;
    });
}

fn map(name: &str, is: &str) -> ConfigMap {
    let meta = json!({"name": name, "labels": {"is": is}});
    serde_json::from_value(json!({ "metadata": meta })).unwrap()
}

/// A candidate, as the test sees it.
struct Process {
    identity: String,
    child: Child,
}

impl Process {
    async fn start(server: &Server, maps: &Api<ConfigMap>, identity: String) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .env("S14_IDENTITY", &identity)
            .env("S14_SERVER", server.url())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let process = Self { identity, child };
        let (ready, end) = (format!("ready-{}", process.identity), Instant::now() + Duration::from_secs(60));
        while maps.get_opt(&ready).await.unwrap().is_none() {
            assert!(Instant::now() < end, "{} does not come", process.identity);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        process
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A write, as the API server did it.
#[derive(Clone, Debug, PartialEq)]
struct Wrote {
    by: String,
    token: u32,
    /// When its process began the write.
    began: u128,
}

/// All writes to the logs, in the order in which the API server executed them.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Wrote>>>);

impl Log {
    /// Watches until it is aborted. A watch that ends is restarted where it was, so that no write is missed.
    async fn follow(self, maps: Api<ConfigMap>, mut version: String) {
        loop {
            let params = WatchParams::default().labels("is=log");
            let mut events = std::pin::pin!(maps.watch(&params, &version).await.unwrap());
            while let Some(event) = events.try_next().await.unwrap() {
                match event {
                    WatchEvent::Modified(log) => {
                        let data = log.data.unwrap();
                        let wrote = Wrote {
                            by: data["by"].clone(),
                            token: data["token"].parse().unwrap(),
                            began: data["began"].parse().unwrap(),
                        };
                        self.0.lock().unwrap().push(wrote);
                        version = log.metadata.resource_version.unwrap();
                    }
                    WatchEvent::Bookmark(mark) => version = mark.metadata.resource_version,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The writer in the newest term.
    fn leader(&self) -> Option<Wrote> {
        self.0.lock().unwrap().iter().max_by_key(|wrote| wrote.token).cloned()
    }

    fn token(&self) -> Option<u32> {
        self.leader().map(|wrote| wrote.token)
    }

    /// The writes after the first one of a newer term.
    fn late(&self) -> Vec<Wrote> {
        let mut newest = 0;
        let mut is_late = |wrote: &&Wrote| {
            newest = newest.max(wrote.token);
            wrote.token < newest
        };
        self.0.lock().unwrap().iter().filter(|wrote| is_late(wrote)).cloned().collect()
    }
}

async fn s14() {
    let Some(server) = Server::start().await else { return };
    let client = server.client();
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    for n in 0..WORKERS {
        maps.create(&PostParams::default(), &map(&format!("log-of-w{n}"), "log")).await.unwrap();
        maps.create(&PostParams::default(), &map(&format!("w{n}"), "work")).await.unwrap();
    }
    let made = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version;
    let log = Log::default();
    let follows = tokio::spawn(log.clone().follow(maps.clone(), made.unwrap()));

    let lease = times()[0];
    let mut names = (0..).map(|n| format!("p{n}"));
    let mut next = async || Process::start(&server, &maps, names.next().unwrap()).await;
    let mut processes = vec![next().await, next().await];
    until("the first term", || log.len() > 100).await;
    let (began, mut late) = (Instant::now(), 0);
    for n in 0..size(20, 3) {
        let old = log.leader().unwrap();
        let place = processes.iter().position(|it| it.identity == old.by).unwrap();
        let leader = &mut processes[place];
        let at = Instant::now();
        let taken = || log.token() > Some(old.token);
        match n % 3 {
            0 => {
                leader.signal("-STOP");
                let stopped = now();
                until("the takeover", taken).await;
                figure(
                    "s14: takeover from a process that is stopped",
                    at.elapsed(),
                    lease + Duration::from_secs(2),
                );
                let stop = Duration::from_millis(size(30_000, 5500) as u64);
                tokio::time::sleep(stop.saturating_sub(at.elapsed())).await;
                let before = log.len();
                leader.signal("-CONT");
                // A second, and more than what was in flight.
                until("further writes", || log.len() >= before + 150).await;
                let new = log.late().split_off(late);
                eprintln!("s14: {} writes that were in flight at the stop came late", new.len());
                assert!(new.len() <= WORKERS, "{new:?}");
                // None of them began after it.
                assert!(new.iter().all(|wrote| wrote.began <= stopped), "{new:?}, stopped at {stopped}");
                late += new.len();
            }
            1 => {
                drop(processes.remove(place)); // kill -9
                until("the takeover", taken).await;
                figure("s14: takeover after kill -9", at.elapsed(), lease + Duration::from_secs(2));
                processes.push(next().await);
            }
            _ => {
                leader.signal("-TERM");
                until("the takeover", taken).await;
                figure("s14: takeover after a clean stop", at.elapsed(), Duration::from_secs(2));
                assert!(leader.child.wait().unwrap().success());
                processes.remove(place);
                processes.push(next().await);
            }
        }
        let before = log.len();
        until("writes in the new term", || log.len() >= before + 50).await;
        // Of one that was killed or has ended nothing comes late.
        assert_eq!(log.late().len(), late);
    }
    follows.abort();
    let wrote = log.0.lock().unwrap().clone();
    // The time in which somebody led.
    let gaps = wrote.windows(2).map(|two| two[1].began.saturating_sub(two[0].began));
    let led: u128 = gaps.filter(|gap| *gap < 1_000_000).sum();
    let rate = wrote.len() as f64 / (led as f64 / 1e6);
    eprintln!("s14: {} writes, {rate:.0} a second; {late} late; {:.0?} in all", wrote.len(), began.elapsed());
    let mut by = BTreeMap::new();
    for Wrote { by: writer, token, .. } in &wrote {
        assert_eq!(by.entry(*token).or_insert_with(|| writer.clone()), writer, "two wrote in term {token}");
    }
    assert!(by.len() > size(20, 3), "{by:?}");
}
