//! Edge cases: objects recreated under their name, watches that never last, streams without an end, settings
//! of nothing and of everything, and lost answers.

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use requeue_kube::finalizer::{self, Event, finalizer};
use requeue_kube::lease::Elector;
use requeue_kube::{Action, Config, Controller, Running, fake};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const OURS: &str = "example.dev/ours";

/// A server with this many objects: `m0`, `m1` and so on.
fn server(objects: usize) -> fake::Server {
    let server = fake::Server::new().with::<Lease>().with::<ConfigMap>().with::<Secret>();
    (0..objects).for_each(|n| apply(&server, &format!("m{n}"), &[]));
    server
}

/// Changes an object, or creates it.
fn apply(server: &fake::Server, name: &str, finalizers: &[&str]) {
    let data = json!({"version": server.version().to_string()});
    let mut map = json!({"metadata": {"name": name, "namespace": "default"}, "data": data});
    if !finalizers.is_empty() {
        map["metadata"]["finalizers"] = json!(finalizers);
    }
    server.apply(&serde_json::from_value::<ConfigMap>(map).unwrap()).unwrap();
}

fn secret(server: &fake::Server, name: &str) {
    let secret = json!({"metadata": {"name": name, "namespace": "default"}});
    server.apply(&serde_json::from_value::<Secret>(secret).unwrap()).unwrap();
}

/// Another object under the same name.
fn make_anew(server: &fake::Server, name: &str) {
    server.delete::<ConfigMap>("default", name).unwrap();
    apply(server, name, &[]);
}

fn of(name: &str) -> ObjectRef<ConfigMap> {
    ObjectRef::new(name).within("default")
}

fn maps(server: &fake::Server) -> Controller<ConfigMap> {
    Controller::new(Api::<ConfigMap>::all(server.client()), watcher::Config::default())
}

fn poison() -> kube::Error {
    kube::Error::LinesCodecMaxLineLengthExceeded
}

/// The uids of the objects in the order of their runs.
#[derive(Default)]
struct Seen(Mutex<Vec<String>>);

impl Seen {
    fn runs(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn last(&self) -> Option<String> {
        self.0.lock().unwrap().last().cloned()
    }
}

type Answer = Result<Action, kube::Error>;

/// A reconciler that takes this time and answers this.
fn answers(
    time: Duration,
    answer: fn() -> Answer,
) -> impl Fn(Arc<ConfigMap>, Arc<Seen>) -> BoxFuture<'static, Answer> {
    move |map, seen| {
        async move {
            seen.0.lock().unwrap().push(map.uid().unwrap());
            sleep(time).await;
            answer()
        }
        .boxed()
    }
}

/// Starts a controller whose runs take this time and answer this.
fn start(
    controller: Controller<ConfigMap>,
    time: Duration,
    answer: fn() -> Answer,
) -> (Running<ConfigMap>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let running = controller.start(answers(time, answer), |_, _, _| Action::backoff(), seen.clone());
    (running.unwrap(), seen)
}

fn well() -> Answer {
    Ok(Action::await_change())
}

fn fails() -> Answer {
    Err(poison())
}

/// Nothing is queued, waits or runs.
fn is_idle(running: &Running<ConfigMap>) -> bool {
    let stats = running.stats();
    (stats.ready, stats.waiting, stats.held) == (0, 0, 0)
}

fn uid(server: &fake::Server, name: &str) -> Option<String> {
    server.get::<ConfigMap>("default", name).unwrap().uid()
}

// Objects that are made anew under their name.

#[tokio::test(start_paused = true)]
async fn an_object_made_anew_runs_once_more_after_the_run_of_the_old_one() {
    for relisted in [false, true] {
        let server = server(1);
        let (running, seen) = start(maps(&server), 100 * SECOND, well);
        sleep(SECOND).await;
        if relisted {
            server.pause_watch_events();
        }
        make_anew(&server, "m0");
        if relisted {
            server.drop_watches_with_410();
            server.resume_watch_events();
        }
        sleep(1000 * SECOND).await;
        assert_eq!((seen.runs(), seen.last()), (2, uid(&server, "m0")));
        assert!(is_idle(&running));
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_made_anew_does_not_wait_for_the_back_off_of_the_old_one() {
    for relisted in [false, true] {
        let server = server(1);
        let config = Config::default().backoff(1_000_000 * SECOND, 1_000_000 * SECOND);
        let (_running, seen) = start(maps(&server).with_config(config), Duration::ZERO, fails);
        sleep(SECOND).await;
        assert_eq!(seen.runs(), 1);
        if relisted {
            server.pause_watch_events();
        }
        make_anew(&server, "m0");
        if relisted {
            server.drop_watches_with_410();
            server.resume_watch_events();
        }
        sleep(100 * SECOND).await;
        assert_eq!((seen.runs(), seen.last()), (2, uid(&server, "m0")));
    }
}

#[tokio::test(start_paused = true)]
async fn of_an_object_that_goes_during_its_run_nothing_is_known_after_it() {
    for answer in [
        fails,
        || Ok(Action::requeue(SECOND)),
        || Ok(Action::requeue(Duration::MAX)),
        || Ok(Action::backoff()),
    ] {
        let server = server(1);
        let (running, seen) = start(maps(&server), 100 * SECOND, answer);
        sleep(SECOND).await;
        let unknown = running.explain(&of("never"));
        server.delete::<ConfigMap>("default", "m0").unwrap();
        sleep(10_000 * SECOND).await;
        assert_eq!(seen.runs(), 1);
        assert!(is_idle(&running));
        assert_eq!(running.explain(&of("m0")), unknown);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_takes_no_finalizer_from_an_object_that_was_made_anew_meanwhile() {
    let server = server(0);
    let api = Api::<ConfigMap>::default_namespaced(server.client());
    apply(&server, "m", &[OURS]);
    server.delete::<ConfigMap>("default", "m").unwrap();
    let old = Arc::new(server.get::<ConfigMap>("default", "m").unwrap());
    let cleaned = finalizer(&api, OURS, old.clone(), |event| {
        let (api, server) = (api.clone(), server.clone());
        async move {
            assert!(matches!(event, Event::Cleanup(_)));
            let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            api.patch("m", &PatchParams::default(), &none).await?;
            apply(&server, "m", &[OURS]);
            Ok::<_, kube::Error>(Action::await_change())
        }
    });
    cleaned.await.unwrap();
    let new = server.get::<ConfigMap>("default", "m").unwrap();
    assert_ne!(new.uid(), old.uid());
    assert_eq!(new.finalizers(), [OURS]);
}

// The API server.

#[tokio::test(start_paused = true)]
async fn watches_that_are_too_old_again_and_again_lose_no_change_and_run_nothing_twice() {
    let server = server(50);
    let (running, seen) = start(maps(&server), Duration::ZERO, well);
    sleep(SECOND).await;
    for n in 0..100 {
        server.drop_watches_with_410();
        apply(&server, &format!("m{}", n % 50), &[]);
        sleep(100 * SECOND).await;
    }
    assert_eq!(seen.runs(), 150);
    assert!(is_idle(&running));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_empty_after_a_full_one_lets_all_go_and_the_next_one_brings_all() {
    let server = server(50);
    let config = Config::default().backoff(1_000_000 * SECOND, 1_000_000 * SECOND);
    let (running, seen) = start(maps(&server).with_config(config), Duration::ZERO, fails);
    sleep(SECOND).await;
    server.pause_watch_events();
    (0..50).for_each(|n| server.delete::<ConfigMap>("default", &format!("m{n}")).unwrap());
    server.drop_watches_with_410();
    server.resume_watch_events();
    sleep(100 * SECOND).await;
    assert!(is_idle(&running));
    (0..50).for_each(|n| apply(&server, &format!("m{n}"), &[]));
    sleep(100 * SECOND).await;
    assert_eq!((seen.runs(), running.stats().waiting), (100, 50));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_refuses_for_long_delays_the_start_and_loses_nothing() {
    for code in [410, 429, 500, 503] {
        let server = server(20);
        server.fail_next(30, code);
        let (running, seen) = start(maps(&server), Duration::ZERO, well);
        sleep(SECOND).await;
        assert!(!running.health().synced, "{code}");
        sleep(10_000 * SECOND).await;
        assert!(running.health().synced && running.health().watch_error.is_none(), "{code}");
        assert_eq!(seen.runs(), 20, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_each_second_lose_no_change() {
    let server = server(1);
    let (running, seen) = start(maps(&server), Duration::ZERO, well);
    sleep(SECOND).await;
    for _ in 0..500 {
        server.drop_watches();
        apply(&server, "m0", &[]);
        sleep(SECOND).await;
    }
    sleep(100 * SECOND).await;
    assert!((2..=501).contains(&seen.runs()), "{}", seen.runs());
    assert!(is_idle(&running) && running.health().synced);
}

// Mappers and streams.

#[tokio::test(start_paused = true)]
async fn a_mapper_may_panic_and_name_what_is_not_there() {
    let server = server(3);
    let mapper = |secret: Secret| match &*secret.name_any() {
        "panics" => panic!("a mapper"),
        "elsewhere" => vec![ObjectRef::new("m0").within("elsewhere"), ObjectRef::new("m0")],
        "many" => (0..10_000).map(|n| of(&format!("m{n}"))).collect(),
        _ => vec![of("m0")],
    };
    let secrets = Api::<Secret>::all(server.client());
    let controller = maps(&server).watches(secrets, watcher::Config::default(), mapper);
    let (running, seen) = start(controller, Duration::ZERO, well);
    sleep(SECOND).await;
    let mut runs = 3;
    for (name, more) in [("panics", 0), ("elsewhere", 0), ("many", 3), ("other", 1)] {
        secret(&server, name);
        sleep(100 * SECOND).await;
        runs += more;
        assert_eq!(seen.runs(), runs, "{name}");
        assert!(is_idle(&running), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_triggers_that_is_always_ready_lets_the_others_run() {
    let has_run = Arc::new(AtomicBool::new(false));
    let (sees, polls) = (has_run.clone(), AtomicUsize::new(0));
    let endless = stream::poll_fn(move |_| {
        if sees.load(Ordering::SeqCst) {
            return Poll::Ready(None);
        }
        assert!(polls.fetch_add(1, Ordering::SeqCst) < 1_000_000, "nothing but this stream has had a turn");
        Poll::Ready(Some(of("m0")))
    });
    let reconcile = |_, has_run: Arc<AtomicBool>| async move {
        has_run.store(true, Ordering::SeqCst);
        Ok::<_, kube::Error>(Action::await_change())
    };
    let controller = maps(&server(1)).reconcile_on(endless);
    let running = controller.start(reconcile, |_, _, _| Action::backoff(), has_run.clone()).unwrap();
    sleep(100 * SECOND).await;
    assert!(has_run.load(Ordering::SeqCst) && !running.health().ended);
}

#[tokio::test(start_paused = true)]
async fn streams_of_triggers_may_end_never_end_or_name_a_hundred_thousand_at_once() {
    let controller = maps(&server(3))
        .reconcile_on(stream::empty())
        .reconcile_on(stream::pending())
        .reconcile_all_on(stream::empty())
        .reconcile_on(stream::iter(0..100_000).map(|n| of(&format!("m{n}"))));
    let (running, seen) = start(controller, Duration::ZERO, well);
    sleep(100 * SECOND).await;
    assert!((3..=6).contains(&seen.runs()), "{}", seen.runs());
    assert!(is_idle(&running) && !running.health().ended);
}

// Settings.

#[tokio::test(start_paused = true)]
async fn a_grouping_that_panics_stops_nothing() {
    let server = server(10);
    let controller = maps(&server).group_by(|key| match key.name() {
        "m3" => panic!("a grouping"),
        _ => String::new(),
    });
    let (running, seen) = start(controller, Duration::ZERO, well);
    sleep(100 * SECOND).await;
    assert_eq!(seen.runs(), 10);
    apply(&server, "m3", &[]);
    apply(&server, "m4", &[]);
    sleep(100 * SECOND).await;
    assert_eq!(seen.runs(), 12);
    assert!(is_idle(&running) && !running.health().ended);
}

#[tokio::test(start_paused = true)]
async fn settings_of_nothing_and_of_everything_are_taken() {
    let config = Config::default;
    for config in [
        config().concurrency(0),
        config().concurrency(u16::MAX),
        config().debounce(Duration::ZERO, Duration::ZERO),
        config().debounce(SECOND, Duration::MAX),
        config().time_limit(Duration::MAX),
        config().max_wait(Duration::MAX),
        config().resync(Duration::MAX),
        config().grace(Duration::MAX),
        config().grace(Duration::ZERO),
        config().retry_rate(f64::MAX, u32::MAX),
        config().on_conflict(u32::MAX),
        config().list_timeout(Duration::ZERO),
        config().list_timeout(Duration::MAX),
    ] {
        let said = format!("{config:?}");
        let (running, seen) = start(maps(&server(5)).with_config(config), Duration::ZERO, well);
        sleep(1000 * SECOND).await;
        assert_eq!(seen.runs(), 5, "{said}");
        let ended = timeout(1000 * SECOND, running.drain(Duration::MAX)).await;
        assert_eq!(ended.unwrap().done, 5, "{said}");
    }
    // Of time that is none every run takes too much.
    let (running, seen) =
        start(maps(&server(1)).with_config(config().time_limit(Duration::ZERO)), SECOND, well);
    sleep(100 * SECOND).await;
    assert!(seen.runs() > 10);
    assert!(running.explain(&of("m0")).contains("longer than 0ns"), "{}", running.explain(&of("m0")));
}

// Users' code that panics.

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a run that panics when it is dropped");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_panics_when_it_is_dropped_is_a_failure_of_its_object_alone() {
    let server = server(10);
    let reconcile = |map: Arc<ConfigMap>, runs: Arc<AtomicUsize>| async move {
        let bomb = (map.name_any() == "m0").then_some(PanicsWhenDropped);
        runs.fetch_add(1, Ordering::SeqCst);
        if bomb.is_some() {
            std::future::pending::<()>().await;
        }
        Ok::<_, kube::Error>(Action::await_change())
    };
    let config = Config::default().time_limit(SECOND).concurrency(1);
    let runs = Arc::new(AtomicUsize::new(0));
    let controller = maps(&server).with_config(config);
    let running = controller.start(reconcile, |_, _, _| Action::backoff(), runs.clone()).unwrap();
    sleep(100 * SECOND).await;
    let before = runs.load(Ordering::SeqCst);
    assert!(before > 11, "{before}");
    // Also at the end.
    assert!(timeout(100 * SECOND, running.drain(Duration::ZERO)).await.is_ok());
    drop(running);
    assert_eq!(Arc::strong_count(&runs), 1);
}

#[tokio::test(start_paused = true)]
async fn an_error_policy_that_panics_is_a_failure_of_its_object_alone() {
    let server = server(10);
    let reconcile = |map: Arc<ConfigMap>, runs: Arc<AtomicUsize>| async move {
        runs.fetch_add(1, Ordering::SeqCst);
        if map.name_any() == "m0" { fails() } else { well() }
    };
    let runs = Arc::new(AtomicUsize::new(0));
    let config = Config::default().backoff(1_000_000 * SECOND, 1_000_000 * SECOND);
    let controller = maps(&server).with_config(config);
    let running = controller.start(reconcile, |_, _, _| panic!("a policy"), runs.clone()).unwrap();
    sleep(100 * SECOND).await;
    assert_eq!((runs.load(Ordering::SeqCst), running.stats().waiting), (10, 1));
    assert!(running.explain(&of("m0")).contains("a policy"), "{}", running.explain(&of("m0")));
}

// The finalizer, and answers that are lost.

/// A controller with a finalizer whose clean-up fails `failures` times. Counts applies and clean-ups.
fn with_finalizer(server: &fake::Server, failures: usize) -> (Running<ConfigMap>, Arc<[AtomicUsize; 2]>) {
    let api = Api::<ConfigMap>::default_namespaced(server.client());
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let reconcile = move |map, counts: Arc<[AtomicUsize; 2]>| {
        let api = api.clone();
        async move {
            finalizer(&api, OURS, map, |event| async move {
                match event {
                    Event::Apply(_) => drop(counts[0].fetch_add(1, Ordering::SeqCst)),
                    Event::Cleanup(_) if counts[1].fetch_add(1, Ordering::SeqCst) < failures => {
                        return fails();
                    }
                    Event::Cleanup(_) => (),
                }
                well()
            })
            .await
        }
    };
    let policy = |_: Arc<ConfigMap>, _: &finalizer::Error<kube::Error>, _| Action::backoff();
    (maps(server).start(reconcile, policy, counts.clone()).unwrap(), counts)
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_that_fails_fifty_times_is_done_and_leaves_other_finalizers() {
    let server = server(0);
    apply(&server, "m", &["example.dev/other"]);
    let (running, counts) = with_finalizer(&server, 50);
    sleep(SECOND).await;
    let map = || server.get::<ConfigMap>("default", "m").unwrap();
    assert_eq!(map().finalizers(), ["example.dev/other", OURS]);
    server.delete::<ConfigMap>("default", "m").unwrap();
    sleep(100_000 * SECOND).await;
    assert_eq!(counts[1].load(Ordering::SeqCst), 51);
    assert_eq!(map().finalizers(), ["example.dev/other"]);
    assert!(is_idle(&running));
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_whose_answers_are_lost_comes_and_goes_all_the_same() {
    let server = server(0);
    let (running, counts) = with_finalizer(&server, 0);
    sleep(SECOND).await;
    server.lose_answer_of_next_write();
    apply(&server, "m", &[]);
    sleep(100 * SECOND).await;
    assert_eq!(server.get::<ConfigMap>("default", "m").unwrap().finalizers(), [OURS]);
    assert!(counts[0].load(Ordering::SeqCst) > 0);
    server.lose_answer_of_next_write();
    server.delete::<ConfigMap>("default", "m").unwrap();
    sleep(10_000 * SECOND).await;
    assert!(server.all::<ConfigMap>().is_empty() && is_idle(&running));
    assert_eq!(counts[1].load(Ordering::SeqCst), 1);
}

// The election.

fn elector(server: &fake::Server, identity: &str) -> Elector {
    Elector::builder(&server.client(), "maps").identity(identity).start().unwrap()
}

fn lead(electors: &[Elector]) -> usize {
    electors.iter().filter(|elector| elector.is_leader()).count()
}

#[tokio::test(start_paused = true)]
async fn of_two_candidates_of_one_process_and_one_name_one_leads_whatever_becomes_of_lease_and_answers() {
    let server = server(0);
    server.lose_answer_of_next_write();
    let electors = [elector(&server, "a"), elector(&server, "a")];
    sleep(100 * SECOND).await;
    for round in 0..20 {
        assert_eq!(lead(&electors), 1, "{round}");
        match round % 4 {
            0 => server.lose_answer_of_next_write(),
            1 => server.delete::<Lease>("default", "maps").unwrap(),
            // Longer than the lease lasts.
            2 => server.delay(1000 * SECOND),
            _ => server.fail_next(60, 500),
        }
        sleep(100 * SECOND).await;
        if round % 4 == 2 {
            assert_eq!(lead(&electors), 0);
            server.delay(Duration::ZERO);
        }
        sleep(200 * SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_says_nonsense_is_taken_over_when_it_does_not_change() {
    for spec in [
        json!({"holderIdentity": "x", "renewTime": "9999-12-30T00:00:00.000000Z", "leaseDurationSeconds": -5}),
        json!({"holderIdentity": "x", "renewTime": "0001-01-01T00:00:00.000000Z", "leaseTransitions": i32::MAX}),
        json!({"holderIdentity": "x", "leaseTransitions": -1}),
        json!({"holderIdentity": ""}),
        json!({}),
    ] {
        let server = server(0);
        let lease = json!({"metadata": {"name": "maps", "namespace": "default"}, "spec": spec});
        server.apply(&serde_json::from_value::<Lease>(lease).unwrap()).unwrap();
        let elector = elector(&server, "a");
        assert!(timeout(60 * SECOND, elector.leading()).await.is_ok(), "{spec}");
        elector.release().await;
        let holder = server.get::<Lease>("default", "maps").unwrap().spec.unwrap().holder_identity;
        assert_eq!(holder, None, "{spec}");
    }
}
