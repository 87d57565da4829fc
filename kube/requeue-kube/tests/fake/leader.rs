//! Controllers of which one leads (s14 of the design, where the figures can be exact).

use crate::website::until;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use requeue_kube::lease::{Elector, ElectorBuilder, Fence};
use requeue_kube::prometheus_client::encoding::text::encode;
use requeue_kube::prometheus_client::registry::Registry;
use requeue_kube::{Action, Cause, Controller, Current, Metrics, Running, fake};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// Runs by place: process, object, causes and attempt.
type Runs = Arc<Mutex<Vec<(&'static str, String, String, u32)>>>;

struct Process {
    elector: Elector,
    running: Running<ConfigMap>,
    registry: Registry,
}

impl Process {
    /// The value of a series, as it is written with its labels.
    fn value(&self, series: &str) -> f64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
    }

    /// Number of runs by their end: as controller-runtime counts them, and as the queue does.
    fn ends(&self) -> ([f64; 2], [f64; 4]) {
        let total = |result| {
            self.value(&format!(
                "controller_runtime_reconcile_total{{controller=\"maps\",result=\"{result}\"}}"
            ))
        };
        let runs = |outcome| {
            self.value(&format!(
                "requeue_runs_total{{name=\"maps\",controller=\"maps\",outcome=\"{outcome}\"}}"
            ))
        };
        (["success", "error"].map(total), ["done", "again", "retry", "give_up"].map(runs))
    }
}

fn server() -> fake::Server {
    fake::Server::new().with::<Lease>().with::<ConfigMap>()
}

fn apply(server: &fake::Server, name: &str, takes: u64) {
    apply_failing(server, name, takes, 0);
}

/// Writes an object whose first attempts fail, and whose next one takes this many seconds.
fn apply_failing(server: &fake::Server, name: &str, takes: u64, fails: u32) {
    let data = json!({
        "takes": takes.to_string(),
        "fails": fails.to_string(),
        "version": server.version().to_string(),
    });
    let map = json!({"metadata": {"name": name, "namespace": "default"}, "data": data});
    server.apply(&serde_json::from_value::<ConfigMap>(map).unwrap()).unwrap();
}

fn process(server: &fake::Server, identity: &'static str, runs: &Runs) -> Process {
    process_of(server, Elector::builder(&server.client(), "maps"), identity, runs)
}

fn process_of(
    server: &fake::Server,
    elector: ElectorBuilder,
    identity: &'static str,
    runs: &Runs,
) -> Process {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let elector = elector.identity(identity).start().unwrap();
    let reconcile = move |map: Arc<ConfigMap>, runs: Arc<Runs>| async move {
        let current = Current::get().unwrap();
        current.fence().unwrap().check().unwrap();
        let name = map.metadata.name.clone().unwrap();
        runs.lock().unwrap().push((identity, name, current.causes().to_string(), current.attempt()));
        let data = map.data.clone().unwrap_or_default();
        if current.attempt() <= data["fails"].parse().unwrap() {
            return Err(kube::Error::LinesCodecMaxLineLengthExceeded);
        }
        sleep(Duration::from_secs(data["takes"].parse().unwrap())).await;
        // As a client with the layer says it.
        current.fence().unwrap().check().map_err(|e| kube::Error::Service(e.into()))?;
        Ok::<_, kube::Error>(Action::await_change())
    };
    let running = Controller::new(Api::<ConfigMap>::all(server.client()), watcher::Config::default())
        .name("maps")
        .metrics(&metrics)
        .leader(&elector)
        .start(reconcile, |_, _, _| Action::backoff(), Arc::new(runs.clone()))
        .unwrap();
    Process { elector, running, registry }
}

fn by(runs: &Runs, identity: &str) -> Vec<String> {
    runs.lock().unwrap().iter().filter(|run| run.0 == identity).map(|run| run.1.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn s14_one_of_two_runs_and_the_other_takes_over_with_a_full_store() {
    let (server, runs) = (server(), Runs::default());
    (0..100).for_each(|n| apply(&server, &format!("m{n}"), 0));
    let a = process(&server, "a", &runs);
    a.elector.leading().await;
    let b = process(&server, "b", &runs);
    sleep(30 * SECOND).await;
    assert_eq!((by(&runs, "a").len(), by(&runs, "b").len()), (100, 0));
    assert!(a.running.health().is_leader && !b.running.health().is_leader);
    assert!(b.running.health().synced, "one that stands by is well");
    assert_eq!(b.running.stats().ready, 100);

    let began = Instant::now();
    assert_eq!(a.running.drain(SECOND).await.left, 0);
    a.elector.release().await;
    b.elector.leading().await;
    assert!(began.elapsed() <= 2 * SECOND, "{:?}", began.elapsed());
    sleep(SECOND / 10).await;
    assert_eq!(by(&runs, "b").len(), 100, "all once");
    apply(&server, "m7", 0);
    sleep(SECOND / 5).await;
    assert_eq!(by(&runs, "b")[100..], ["m7"]);
    assert_eq!(by(&runs, "a").len(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_loses_its_lease_pauses_drops_what_runs_and_sweeps_when_it_leads_again() {
    let (server, runs) = (server(), Runs::default());
    apply(&server, "long", 20);
    apply(&server, "short", 0);
    let a = process(&server, "a", &runs);
    let fence = a.elector.leading().await;
    sleep(SECOND).await;
    assert_eq!(by(&runs, "a").len(), 2);
    server.fail_next(12, 500);
    fence.lost().await;
    apply(&server, "short", 0);
    let long = ObjectRef::<ConfigMap>::new("long").within("default");
    sleep(SECOND).await;
    assert_eq!(by(&runs, "a").len(), 2, "nothing begins");
    assert_eq!(a.running.stats().held, 1, "what runs has some time");
    a.elector.leading().await;
    sleep(SECOND).await;
    let ran = runs.lock().unwrap().clone();
    let again = |name| ran.iter().filter(|run| run.1 == name).nth(1).unwrap();
    assert!(again("short").2.contains("listed"), "{ran:?}");
    assert!(again("long").2.contains(&Cause::Listed.to_string()), "{ran:?}");
    assert_eq!(again("long").3, 1, "no failure");
    assert!(!a.running.explain(&long).contains("failed"));
    assert!(a.running.is_leader());
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_dropped_before_another_process_can_lead() {
    let (server, runs) = (server(), Runs::default());
    apply(&server, "long", 3600);
    let a = process(&server, "a", &runs);
    let fence = a.elector.leading().await;
    sleep(20 * SECOND).await;
    assert_eq!(a.running.stats().held, 1);
    server.delay(3600 * SECOND);
    fence.lost().await;
    assert_eq!(a.running.stats().held, 1);
    sleep(5 * SECOND - SECOND / 2).await;
    assert_eq!(a.running.stats().held, 0);
    assert_eq!(a.running.stats().ready, 1, "it waits for the next term");
}

#[tokio::test(start_paused = true)]
async fn a_release_drops_what_still_runs_and_then_gives_the_lease_away() {
    let (server, runs) = (server(), Runs::default());
    apply(&server, "long", 3600);
    let a = process(&server, "a", &runs);
    a.elector.leading().await;
    let b = process(&server, "b", &runs);
    sleep(10 * SECOND).await;
    let began = Instant::now();
    a.elector.release().await;
    assert_eq!(a.running.stats().held, 0);
    b.elector.leading().await;
    assert!(began.elapsed() <= 2 * SECOND, "{:?}", began.elapsed());
    sleep(SECOND).await;
    assert_eq!((by(&runs, "a").len(), by(&runs, "b").len()), (1, 1));
}

/// Blocks all renewals until current runs must be dropped.
async fn lose(server: &fake::Server, a: &Process, fence: &Fence) {
    server.delay(3600 * SECOND);
    fence.lost().await;
    assert_eq!(a.running.stats().held, 1, "what runs has some time");
    sleep(5 * SECOND - SECOND / 2).await;
    assert_eq!((a.running.stats().held, a.running.stats().ready), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_because_the_lease_is_lost_keeps_its_failures_and_has_neither_succeeded_nor_failed()
 {
    let (server, runs) = (server(), Runs::default());
    apply_failing(&server, "bad", 3600, 3);
    let a = process(&server, "a", &runs);
    let fence = a.elector.leading().await;
    sleep(20 * SECOND).await;
    assert_eq!((runs.lock().unwrap().len(), a.running.stats().held), (4, 1));
    assert_eq!(a.ends(), ([0.0, 3.0], [0.0, 0.0, 3.0, 0.0]));
    let added = a.value("workqueue_adds_total{name=\"maps\",controller=\"maps\"}");
    lose(&server, &a, &fence).await;
    let bad = ObjectRef::<ConfigMap>::new("bad").within("default");
    let told = a.running.explain(&bad);
    assert!(told.contains("3 failures") && told.contains("its last run failed"), "{told}");
    // The queue had handed it out, and has it again.
    assert_eq!(a.ends(), ([0.0, 3.0], [0.0, 1.0, 3.0, 0.0]));
    assert_eq!(a.value("workqueue_adds_total{name=\"maps\",controller=\"maps\"}"), added);

    server.delay(Duration::ZERO);
    a.elector.leading().await;
    sleep(SECOND).await;
    let ran = runs.lock().unwrap().clone();
    let (_, _, causes, attempt) = &ran[4];
    assert_eq!((ran.len(), *attempt), (5, 4), "{ran:?}");
    assert!(causes.starts_with("retry after 3 failures"), "{causes}");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_write_is_refused_because_the_lease_is_lost_has_not_failed() {
    let (server, runs) = (server(), Runs::default());
    // It ends after the fence does not hold any more, and before it would be dropped.
    apply(&server, "late", 31);
    let a = process(&server, "a", &runs);
    let fence = a.elector.leading().await;
    sleep(20 * SECOND).await;
    lose(&server, &a, &fence).await;
    assert_eq!(a.ends(), ([0.0, 0.0], [0.0, 1.0, 0.0, 0.0]));
    let late = ObjectRef::<ConfigMap>::new("late").within("default");
    assert!(!a.running.explain(&late).contains("fail"), "{}", a.running.explain(&late));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_a_stalled_process_hands_out_too_late_keeps_its_failures() {
    let (server, runs) = (server(), Runs::default());
    apply_failing(&server, "bad", 0, 3);
    let elector = Elector::builder(&server.client(), "maps")
        .lease_duration(2 * SECOND)
        .renew_deadline(SECOND)
        .retry_period(SECOND / 5)
        .skew(SECOND / 10);
    let a = process_of(&server, elector, "a", &runs);
    a.elector.leading().await;
    until(|| runs.lock().unwrap().len() == 3).await;
    // The process stands still, and its timers with it: only the clock of the fence notices.
    std::thread::sleep(SECOND + SECOND / 10);
    assert!(!a.elector.is_leader());
    sleep(SECOND).await;
    let attempts: Vec<_> = runs.lock().unwrap().iter().map(|run| run.3).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);
    let (reconciles, [done, again, retry, give_up]) = a.ends();
    assert_eq!((reconciles, done, retry, give_up), ([1.0, 3.0], 1.0, 3.0, 0.0));
    assert!(again >= 1.0, "it was handed out meanwhile");
}
