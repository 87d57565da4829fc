//! Rare combinations: the handle's calls from inside a reconciler, several ends at once, results that are not
//! read, processes that lose the lease meanwhile, and runtimes that end or are missing.

use futures::future::{BoxFuture, join, join_all};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use requeue_kube::lease::Elector;
use requeue_kube::prometheus_client::encoding::text::encode;
use requeue_kube::prometheus_client::registry::Registry;
use requeue_kube::{Action, Config, Controller, Current, Metrics, Running, fake};
use serde_json::json;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

/// A server with this many objects: `m0`, `m1` and so on.
fn server(objects: usize) -> fake::Server {
    let server = fake::Server::new().with::<Lease>().with::<ConfigMap>();
    (0..objects).for_each(|n| apply(&server, &format!("m{n}")));
    server
}

/// Changes an object, or creates it.
fn apply(server: &fake::Server, name: &str) {
    let data = json!({"version": server.version().to_string()});
    let map = json!({"metadata": {"name": name, "namespace": "default"}, "data": data});
    server.apply(&serde_json::from_value::<ConfigMap>(map).unwrap()).unwrap();
}

fn of(name: &str) -> ObjectRef<ConfigMap> {
    ObjectRef::new(name).within("default")
}

fn maps(client: kube::Client) -> Controller<ConfigMap> {
    Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default())
}

fn elector(server: &fake::Server, identity: &str) -> Elector {
    Elector::builder(&server.client(), "maps").identity(identity).start().unwrap()
}

fn back_off<C>(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<C>) -> Action {
    Action::backoff()
}

/// Numbers of runs that have begun, and of those that have ended by themselves.
#[derive(Default)]
struct Count {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Count {
    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

/// A reconciler that takes this time.
fn takes(
    time: Duration,
) -> impl Fn(Arc<ConfigMap>, Arc<Count>) -> BoxFuture<'static, Result<Action, kube::Error>> {
    move |_, count| {
        async move {
            count.begun.fetch_add(1, Ordering::SeqCst);
            sleep(time).await;
            count.ended.fetch_add(1, Ordering::SeqCst);
            Ok(Action::await_change())
        }
        .boxed()
    }
}

/// Starts a controller whose runs take this time.
fn start(controller: Controller<ConfigMap>, time: Duration) -> (Running<ConfigMap>, Arc<Count>) {
    let count = Arc::new(Count::default());
    (controller.start(takes(time), back_off, count.clone()).unwrap(), count)
}

/// A trigger of the end, and the future that ends with it.
fn end() -> (Arc<Notify>, impl Future<Output = ()> + Send + 'static) {
    let end = Arc::new(Notify::new());
    (end.clone(), async move { end.notified().await })
}

// The end.

#[tokio::test(start_paused = true)]
async fn of_several_deadlines_the_earliest_holds() {
    let (running, _) = start(maps(server(1).client()), 1000 * SECOND);
    sleep(SECOND).await;
    let begin = Instant::now();
    let long = running.clone();
    let long = tokio::spawn(async move { long.drain(Duration::MAX).await });
    sleep(SECOND).await;
    let short = running.drain(5 * SECOND).await;
    assert_eq!((begin.elapsed().as_secs(), short.cancelled, short.left), (6, 1, 1));
    assert_eq!(long.await.unwrap(), short);

    // A later deadline takes none back.
    let (running, _) = start(maps(server(1).client()), 1000 * SECOND);
    sleep(SECOND).await;
    let begin = Instant::now();
    let (short, long) = join(running.drain(5 * SECOND), running.drain(500 * SECOND)).await;
    assert_eq!((begin.elapsed().as_secs(), short), (5, long));

    // And a trigger of the end shortens a drain to the grace.
    let (end, ended) = end();
    let config = Config::default().grace(10 * SECOND);
    let controller = maps(server(1).client()).with_config(config).graceful_shutdown_on(ended);
    let (running, _) = start(controller, 1000 * SECOND);
    sleep(SECOND).await;
    let begin = Instant::now();
    let long = running.clone();
    let long = tokio::spawn(async move { long.drain(Duration::MAX).await });
    sleep(SECOND).await;
    end.notify_one();
    assert_eq!((long.await.unwrap().cancelled, begin.elapsed().as_secs()), (1, 11));
}

#[tokio::test(start_paused = true)]
async fn each_of_many_drains_has_the_report() {
    let (running, _) = start(maps(server(1).client()), 10 * SECOND);
    sleep(SECOND).await;
    let drains = (0..100).map(|_| running.drain(Duration::MAX));
    assert!(join_all(drains).await.iter().all(|report| (report.done, report.left) == (1, 0)));
    assert_eq!(running.drain(SECOND).await.done, 1);
    assert!(running.resize(4).is_err() && !running.reconcile_now(&of("m0")));
}

#[tokio::test(start_paused = true)]
async fn a_drain_before_the_lists_ends_at_once() {
    let server = server(1);
    server.delay(100 * SECOND);
    let (running, count) = start(maps(server.client()), SECOND);
    running.pause();
    running.resume();
    sleep(SECOND).await;
    let begin = Instant::now();
    assert_eq!(running.drain(50 * SECOND).await, requeue_kube::Report::default());
    assert_eq!((begin.elapsed(), count.begun()), (Duration::ZERO, 0));
}

#[tokio::test(start_paused = true)]
async fn a_trigger_of_the_end_that_panics_ends_the_controller() {
    let controller = maps(server(1).client()).graceful_shutdown_on(async { panic!("no signal") });
    let (running, _) = start(controller, SECOND);
    assert!(timeout(100 * SECOND, running.ended()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn without_its_handle_a_controller_goes_on_and_after_its_end_nothing_stays() {
    let server = server(3);
    let (end, ended) = end();
    let (running, count) = start(maps(server.client()).graceful_shutdown_on(ended), 10 * SECOND);
    sleep(SECOND).await;
    drop(running);
    sleep(20 * SECOND).await;
    apply(&server, "later");
    sleep(SECOND).await;
    end.notify_one();
    sleep(20 * SECOND).await;
    assert_eq!((count.begun(), count.ended.load(Ordering::SeqCst)), (4, 4));
    assert_eq!(Arc::strong_count(&count), 1);
}

// From inside a reconciler.

type Handle = Arc<OnceLock<Running<ConfigMap>>>;

#[tokio::test(start_paused = true)]
async fn a_reconciler_that_drains_its_controller_is_dropped_at_the_deadline_and_nothing_stays() {
    let handle = Handle::default();
    let reconcile = |_, handle: Arc<Handle>| async move {
        let report = handle.get().unwrap().drain(5 * SECOND).await;
        panic!("the run has outlived its controller: {report:?}")
    };
    let controller = maps(server(5).client()).with_config(Config::default().concurrency(2));
    let running = controller.start(reconcile, back_off, Arc::new(handle.clone())).unwrap();
    handle.set(running.clone()).unwrap();
    let report = timeout(60 * SECOND, running.ended()).await.unwrap();
    assert_eq!((report.done, report.cancelled, report.left), (0, 2, 5));
    // The handle in the context keeps no context.
    let weak = Arc::downgrade(&handle);
    drop((running, handle));
    assert!(weak.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_may_ask_its_controller_for_everything_and_no_trigger_is_lost() {
    let server = server(50);
    let context = Arc::new((Handle::default(), AtomicUsize::new(0), Mutex::new(Vec::new())));
    let reconcile = |map: Arc<ConfigMap>, context: Arc<(Handle, AtomicUsize, Mutex<Vec<String>>)>| async move {
        let (handle, runs, owed) = &*context;
        let running = handle.get().unwrap();
        let me = ObjectRef::from_obj(&*map);
        owed.lock().unwrap().retain(|owed| *owed != me.name);
        running.pause();
        let n = runs.fetch_add(1, Ordering::SeqCst);
        running.resize(u16::try_from(n % 7).unwrap()).unwrap();
        assert!(!running.explain(&me).is_empty());
        assert!(running.stats().held > 0 && running.health().synced);
        if n < 500 {
            for other in [format!("m{}", n * 7 % 50), me.name.clone()] {
                assert!(running.reconcile_now(&of(&other)));
                owed.lock().unwrap().push(other);
            }
        }
        sleep(Duration::from_millis(n as u64 % 20)).await;
        running.resume();
        match n % 7 {
            0 => Err(kube::Error::LinesCodecMaxLineLengthExceeded),
            _ => Ok(Action::await_change()),
        }
    };
    let running = maps(server.client()).start(reconcile, back_off, context.clone()).unwrap();
    context.0.set(running.clone()).unwrap();
    sleep(5000 * SECOND).await;
    let stats = running.stats();
    assert_eq!((stats.ready, stats.waiting, stats.held), (0, 0, 0));
    assert_eq!(context.2.lock().unwrap().len(), 0, "a run began after each trigger");
    assert!(running.drain(SECOND).await.done >= 550);
}

// Results without a reader.

/// Runs 3,000 objects and reads one result, for five hours. Returns the number of runs, and the number of
/// waiting results.
async fn unread(config: Config, ends: fn() -> Result<Action, kube::Error>) -> (usize, usize) {
    let (end, ended) = end();
    let count = Arc::new(AtomicUsize::new(0));
    let reconcile = move |_, count: Arc<AtomicUsize>| async move {
        count.fetch_add(1, Ordering::SeqCst);
        ends()
    };
    let controller = maps(server(3000).client()).with_config(config).graceful_shutdown_on(ended);
    let mut results = pin!(controller.run(reconcile, back_off, count.clone()));
    assert!(results.next().await.is_some());
    sleep(18_000 * SECOND).await;
    let runs = count.load(Ordering::SeqCst);
    end.notify_one();
    sleep(100 * SECOND).await;
    (runs, timeout(100 * SECOND, results.count()).await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn of_results_that_nobody_reads_a_thousand_wait_and_then_the_runs_do() {
    assert_eq!(unread(Config::default(), || Ok(Action::await_change())).await, (1017, 1000));
    assert_eq!(unread(Config::default().concurrency(0), || Ok(Action::await_change())).await, (3000, 1000));
    let fail = || Err(kube::Error::LinesCodecMaxLineLengthExceeded);
    assert_eq!(unread(Config::default(), fail).await, (1017, 1000));
    // That wait is no part of a time limit.
    let limited = Config::default().time_limit(SECOND);
    assert_eq!(unread(limited, || Ok(Action::await_change())).await, (1017, 1000));
    // A panic can't wait.
    let seldom = Config::default().backoff(3600 * SECOND, 3600 * SECOND);
    let (runs, results) = unread(seldom, || panic!("a run that panics")).await;
    assert!(runs > 10_000 && results == 1000, "{runs} {results}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_late_reads_each_result_once_and_no_run_has_failed() {
    let (end, ended) = end();
    let count = Arc::new(Count::default());
    let config = Config::default().time_limit(SECOND);
    let controller = maps(server(3000).client()).with_config(config).graceful_shutdown_on(ended);
    let mut results = pin!(controller.run(takes(Duration::ZERO), back_off, count.clone()));
    assert!(results.next().await.is_some());
    sleep(1000 * SECOND).await;
    for _ in 1..3000 {
        assert!(results.next().await.unwrap().is_ok());
    }
    assert_eq!(count.begun(), 3000);
    end.notify_one();
    assert!(results.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_leaves_nothing() {
    let count = Arc::new(Count::default());
    {
        let mut results = pin!(maps(server(3000).client()).run(takes(SECOND), back_off, count.clone()));
        assert!(results.next().await.is_some());
        sleep(500 * SECOND).await;
    }
    sleep(SECOND).await;
    assert_eq!(Arc::strong_count(&count), 1);
}

// Metrics.

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn two_controllers_of_one_kind_share_a_registry_and_a_name_is_free_after_the_end() {
    let server = server(10);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let named = |name: &str| maps(server.client()).name(name).metrics(&metrics);
    let (a, _) = start(named("a"), SECOND);
    let (_b, _) = start(named("b"), 1000 * SECOND);
    let config = Config::default().concurrency(3);
    let twice = named("a").with_config(config).start(takes(SECOND), back_off, Arc::default());
    assert!(twice.unwrap_err().to_string().contains("\"a\""));
    sleep(10 * SECOND).await;
    let has =
        |line: &str| assert!(text(&registry).lines().any(|it| it == line), "{line}\n{}", text(&registry));
    has("controller_runtime_reconcile_total{controller=\"a\",result=\"success\"} 10");
    has("controller_runtime_reconcile_total{controller=\"b\",result=\"success\"} 0");
    has("controller_runtime_max_concurrent_reconciles{controller=\"a\"} 16");
    has("controller_runtime_active_workers{controller=\"b\"} 10");
    a.drain(SECOND).await;
    drop(a);
    let (_a, _) = start(named("a"), SECOND);
    sleep(10 * SECOND).await;
    has("controller_runtime_reconcile_total{controller=\"a\",result=\"success\"} 20");
    has("workqueue_adds_total{name=\"a\",controller=\"a\"} 10");
}

// An API server that does not answer.

#[tokio::test(start_paused = true)]
async fn with_a_client_that_never_answers_everything_ends_all_the_same() {
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let client = kube::Client::new(silent, "default");
    let elector = Elector::builder(&client, "maps").identity("a").start().unwrap();
    let (running, count) = start(maps(client).leader(&elector), SECOND);
    sleep(100 * SECOND).await;
    assert!(!running.health().synced && !running.is_leader());
    let begin = Instant::now();
    running.drain(50 * SECOND).await;
    join(elector.release(), elector.release()).await;
    // The renew deadline.
    assert_eq!(begin.elapsed().as_secs(), 10);
    drop(running);
    assert_eq!(Arc::strong_count(&count), 1);
}

// Runtimes.

/// In real time, because a runtime is to end.
#[test]
fn after_its_runtime_a_controller_answers_all_calls_and_drops_its_context() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let (running, count, elector, server) = first.block_on(async {
        let server = server(10);
        let elector = elector(&server, "a");
        let (running, count) = start(maps(server.client()).leader(&elector), 1000 * SECOND);
        while running.stats().held < 10 {
            tokio::task::yield_now().await;
        }
        // A trigger that comes during a run is passed to the queue when the run is dropped.
        running.reconcile_now(&of("m1"));
        (running, count, elector, server)
    });
    first.shutdown_timeout(60 * SECOND);
    assert!(running.health().ended && running.resize(3).is_err());
    assert!(!running.explain(&of("m1")).is_empty() && !running.reconcile_now(&of("m1")));
    running.pause();
    running.resume();
    apply(&server, "later");
    let ends = async { timeout(60 * SECOND, join(running.drain(SECOND), elector.release())).await };
    assert!(runtime().block_on(ends).is_ok());
    drop((running, elector));
    assert_eq!((count.begun(), Arc::strong_count(&count)), (10, 1));
}

#[test]
fn a_start_without_a_runtime_or_without_its_timer_is_an_error_that_says_so() {
    let builder = tokio::runtime::Builder::new_current_thread;
    let whole = builder().enable_all().build().unwrap();
    let client = whole.block_on(async { server(1).client() });
    let started =
        || maps(client.clone()).start(takes(SECOND), back_off, Arc::default()).unwrap_err().to_string();
    let stands = || Elector::builder(&client, "maps").identity("a").start().unwrap_err().to_string();
    let no_runtime =
        "the controller can't start: no Tokio runtime here: start it, or poll its stream, inside of one";
    assert_eq!(started(), no_runtime);
    assert!(stands().contains("must be called from the context of a Tokio"), "{}", stands());
    let all = maps(client.clone()).run(takes(SECOND), back_off, Arc::default()).collect::<Vec<_>>();
    let mut all = Box::pin(all);
    let results = loop {
        if let Some(results) = (&mut all).now_or_never() {
            break results;
        }
    };
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].as_ref().unwrap_err().to_string(), no_runtime);
    builder().build().unwrap().block_on(async {
        assert!(started().contains("has no timer"), "{}", started());
        assert!(stands().contains("has no timer"), "{}", stands());
    });
}

/// In real time, because a paused clock needs the timer that is there alone.
#[cfg(unix)]
#[test]
fn a_controller_whose_signals_cannot_be_heard_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (running, _) = start(maps(server(1).client()).shutdown_on_signal(), SECOND);
        assert!(timeout(60 * SECOND, running.ended()).await.is_ok());
    });
}

// The lease.

#[tokio::test(start_paused = true)]
async fn runs_that_are_dropped_with_the_lease_in_a_drain_are_not_done() {
    let server = server(5);
    let elector = elector(&server, "a");
    let config = Config::default().concurrency(3);
    let (running, count) = start(maps(server.client()).leader(&elector).with_config(config), 1000 * SECOND);
    sleep(10 * SECOND).await;
    let drain = running.drain(100 * SECOND);
    server.fail_next(1000, 500);
    let begin = Instant::now();
    let report = drain.await;
    assert!(begin.elapsed() <= 14 * SECOND, "{:?}", begin.elapsed());
    assert_eq!((report.done, report.cancelled, report.left, count.begun()), (0, 3, 5, 3));
}

#[tokio::test(start_paused = true)]
async fn nothing_begins_when_the_lease_comes_back_in_the_middle_of_a_drain() {
    let server = server(5);
    let elector = elector(&server, "a");
    let config = Config::default().concurrency(3);
    let (running, count) = start(maps(server.client()).leader(&elector).with_config(config), 12 * SECOND);
    sleep(SECOND).await;
    let drain = running.clone();
    let drain = tokio::spawn(async move { drain.drain(1000 * SECOND).await });
    tokio::task::yield_now().await;
    running.pause();
    running.resume();
    (0..5).for_each(|n| assert!(running.reconcile_now(&of(&format!("m{n}")))));
    // Somebody takes the lease, and then it is gone.
    let leases = Api::<Lease>::default_namespaced(server.client());
    let taken = Patch::Merge(json!({"spec": {"holderIdentity": "b", "leaseTransitions": 9}}));
    leases.patch("maps", &PatchParams::default(), &taken).await.unwrap();
    sleep(4 * SECOND).await;
    assert!(!running.is_leader());
    leases.delete("maps", &DeleteParams::default()).await.unwrap();
    sleep(4 * SECOND).await;
    assert!(running.is_leader());
    let report = drain.await.unwrap();
    // The runs belonged to a term after which another process led.
    assert_eq!((report.done, report.cancelled, report.left, count.begun()), (0, 3, 5, 3));
}

#[tokio::test(start_paused = true)]
async fn no_call_of_the_handle_lets_a_standby_run() {
    let server = server(5);
    let (first, second) = (elector(&server, "a"), elector(&server, "b"));
    first.leading().await;
    let (running, count) = start(maps(server.client()).leader(&second), SECOND);
    sleep(10 * SECOND).await;
    running.resume();
    running.pause();
    running.resume();
    assert!(running.reconcile_now(&of("m1")));
    running.resize(0).unwrap();
    sleep(10 * SECOND).await;
    assert_eq!(count.begun(), 0);
    // Nor does the lease end a pause.
    running.pause();
    first.release().await;
    second.leading().await;
    sleep(10 * SECOND).await;
    assert_eq!(count.begun(), 0);
    running.resume();
    sleep(10 * SECOND).await;
    assert_eq!(count.begun(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_drain_and_a_release_in_the_middle_of_an_election_leave_the_lease_to_others() {
    for delay in 0..8 {
        let server = server(5);
        server.delay(SECOND);
        let elector = elector(&server, "a");
        let (running, _) = start(maps(server.client()).leader(&elector), SECOND);
        sleep(delay * SECOND / 2).await;
        join(running.drain(10 * SECOND), elector.release()).await;
        assert!(!running.is_leader());
        // A request that was dropped may still have arrived, but not after the release.
        let lease = server.get::<Lease>("default", "maps").ok();
        let holder = lease.and_then(|lease| lease.spec?.holder_identity);
        assert_eq!(holder, None, "after {delay} halves of a second");
    }
}

// Echoes.

#[tokio::test(start_paused = true)]
async fn what_a_run_says_of_others_and_after_its_end_hides_nothing_of_them() {
    let server = server(3);
    let maps_of = Api::<ConfigMap>::default_namespaced(server.client());
    let runs: Arc<Mutex<Vec<Current>>> = Arc::default();
    let reconcile = |_, runs: Arc<Mutex<Vec<Current>>>| async move {
        runs.lock().unwrap().push(Current::get().unwrap());
        assert!(tokio::spawn(async { Current::get() }).await.unwrap().is_none());
        Ok::<_, kube::Error>(Action::await_change())
    };
    let running = maps(server.client()).start(reconcile, back_off, runs.clone()).unwrap();
    let count = || runs.lock().unwrap().len();
    sleep(SECOND).await;
    assert_eq!(count(), 3);
    let m0 = runs.lock().unwrap().iter().find(|run| run.key().name() == "m0").unwrap().clone();

    // Another object of this kind.
    server.pause_watch_events();
    let m1 = maps_of.get("m1").await.unwrap();
    let m1 = ConfigMap { data: Some([("by".into(), "m0".into())].into()), ..m1 };
    let m1 = maps_of.replace("m1", &PostParams::default(), &m1).await.unwrap();
    m0.saw(&m1);
    m0.wrote(&m1);
    server.resume_watch_events();
    sleep(SECOND).await;
    assert_eq!(count(), 4);

    // Its own object as it was, which is deleted meanwhile and made again.
    server.pause_watch_events();
    let old = maps_of.get("m0").await.unwrap();
    server.delete::<ConfigMap>("default", "m0").unwrap();
    apply(&server, "m0");
    m0.saw(&old);
    m0.wrote(&old);
    m0.wrote(&server.get::<ConfigMap>("default", "m0").unwrap());
    server.resume_watch_events();
    sleep(SECOND).await;
    assert_eq!(count(), 5);

    // After the end of all.
    running.drain(SECOND).await;
    m0.saw(&old);
    m0.wrote(&ConfigMap::default());
}

#[tokio::test(start_paused = true)]
async fn a_mapper_that_names_an_object_twice_makes_no_echo_a_trigger() {
    let server = server(1).with::<Secret>();
    let secrets = Api::<Secret>::default_namespaced(server.client());
    let runs = Arc::new(AtomicUsize::new(0));
    let reconcile = move |map: Arc<ConfigMap>, runs: Arc<AtomicUsize>| {
        let secrets = secrets.clone();
        async move {
            runs.fetch_add(1, Ordering::SeqCst);
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": map.data});
            let written =
                secrets.patch("s", &PatchParams::apply("us").force(), &Patch::Apply(secret)).await?;
            Current::saw_if_any(&written);
            Ok::<_, kube::Error>(Action::await_change())
        }
    };
    let mapper = |_: Secret| [of("m0"), of("m0")];
    let controller =
        maps(server.client()).watches(Api::all(server.client()), watcher::Config::default(), mapper);
    let _running = controller.start(reconcile, back_off, runs.clone()).unwrap();
    sleep(SECOND).await;
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    apply(&server, "m0");
    sleep(SECOND).await;
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_outlives_its_controller_holds_no_lease() {
    let server = server(1);
    let elector = elector(&server, "a");
    let (running, _) = start(maps(server.client()).leader(&elector), SECOND);
    elector.leading().await;
    drop(elector);
    sleep(60 * SECOND).await;
    assert!(running.is_leader(), "the controller leads by it");
    running.drain(SECOND).await;
    assert!(!running.is_leader());
    let renewed = server.get::<Lease>("default", "maps").unwrap();
    sleep(60 * SECOND).await;
    assert_eq!(server.get::<Lease>("default", "maps").unwrap(), renewed);
}
