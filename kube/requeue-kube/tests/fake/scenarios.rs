//! Section 10 of the design, where the figures can be exact because the time is paused.

use crate::website::{Ctx, Website, World, reconcile, site_ref, until};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Resource, ResourceExt};
use requeue_kube::{Action, Config, Controller, Current};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);
/// Tokio's timers are for whole milliseconds.
const TICK: Duration = Duration::from_millis(2);

#[tokio::test(start_paused = true)]
async fn a_poison_site_slows_nobody() {
    let world = World::new();
    world.apply("bad", "fail", 0);
    for n in 0..100 {
        world.apply(&format!("s{n}"), "", 0);
    }
    let running = world.start(Config::default()).await;
    world.server.settled(60 * SECOND).await;
    assert_eq!(world.server.all::<ConfigMap>().len(), 100);
    let told = running.explain(&site_ref("bad"));
    assert!(told.contains("14 failures") && told.contains("this site is poison"), "{told}");
    let runs = world.cx.count();
    world.server.drop_watches_with_410(); // nothing changed, so nothing runs
    world.server.settled(5 * SECOND).await;
    assert_eq!(world.cx.count(), runs, "{:?}", world.cx.names_since(runs));
}

#[tokio::test(start_paused = true)]
async fn s03_an_object_that_fails_runs_after_twice_the_time_each_time() {
    let world = World::new();
    let running = world.start(Config::default().concurrency(4)).await;
    for n in 0..50 {
        world.apply(&format!("s{n}"), "fail", 0);
    }
    sleep(12 * SECOND).await;
    for n in 0..50 {
        let runs = world.cx.runs_of(&format!("s{n}"));
        assert_eq!(runs.len(), 12);
        for (n, two) in (0..).zip(runs.windows(2)) {
            let (gap, due) = (two[1].began - two[0].began, Duration::from_millis(5) * 2_u32.pow(n));
            assert!(due <= gap && gap <= due + TICK, "{gap:?} after {} failures", n + 1);
        }
    }
    assert_eq!(running.stats().waiting, 50);
}

#[tokio::test(start_paused = true)]
async fn s04_the_status_that_a_failing_run_writes_neither_runs_it_nor_counts() {
    let world = World::new();
    let running = world.start(Config::default().concurrency(4)).await;
    for n in 0..50 {
        world.apply(&format!("s{n}"), "fail-status", 0);
    }
    sleep(12 * SECOND).await;
    for n in 0..50 {
        let name = format!("s{n}");
        let attempts: Vec<_> = world.cx.runs_of(&name).iter().map(|run| run.attempt).collect();
        assert_eq!(attempts, (1..=12).collect::<Vec<_>>());
        let site = world.server.get::<Website>("default", &name).unwrap();
        assert_eq!(site.status.unwrap().failures, 12);
    }
    // A change of what is asked for runs it at once, and the back-off begins anew.
    world.apply("s7", "fail-status", 1);
    let took = until(|| world.cx.runs_of("s7").len() > 12).await;
    assert!(took <= Duration::from_millis(100), "{took:?}");
    sleep(SECOND).await;
    let runs = world.cx.runs_of("s7").split_off(12);
    assert_eq!((runs[0].attempt, runs[0].stamp), (1, 1));
    for (n, two) in (0..).zip(runs.windows(2)) {
        let (gap, due) = (two[1].began - two[0].began, Duration::from_millis(5) * 2_u32.pow(n));
        assert!(due <= gap && gap <= due + TICK, "{gap:?} after {} failures", n + 1);
    }
    assert_eq!(runs.len(), 8);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn s06_a_list_runs_what_has_changed_and_the_owners_of_what_is_gone_and_nothing_else() {
    let world = World::new();
    let running = world.start(Config::default()).await;
    for n in 0..30 {
        world.apply(&format!("s{n}"), "", 0);
    }
    world.server.settled(5 * SECOND).await;
    let (runs, writes) = (world.cx.count(), world.server.writes());
    assert_eq!(runs, 30);
    // All of this happens while no watch hears of it.
    world.server.pause_watch_events();
    world.apply("s1", "", 1);
    world.server.delete::<ConfigMap>("default", "s2-html").unwrap();
    let mut child = world.server.get::<ConfigMap>("default", "s4-html").unwrap();
    child.labels_mut().insert("by".into(), "somebody".into());
    world.server.apply(&child).unwrap();
    world.server.drop_watches_with_410();
    world.server.resume_watch_events();
    world.server.settled(5 * SECOND).await;
    let mut ran = world.cx.names_since(runs);
    ran.sort();
    assert_eq!(ran, ["s1", "s2", "s4"]);
    assert!(world.server.get::<ConfigMap>("default", "s2-html").is_ok());
    // s1: child and status; s2: child; s4: child, as it was
    assert_eq!(world.server.writes() - writes, 4);
    assert_eq!(world.server.requests::<Website>("list"), 2);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn s06_an_object_that_went_while_no_watch_heard_does_not_run() {
    let world = World::new();
    let running = world.start(Config::default().backoff(1000 * SECOND, 1000 * SECOND)).await;
    world.apply("s0", "fail", 0);
    world.server.settled(SECOND).await;
    assert_eq!(running.stats().waiting, 1);
    world.server.pause_watch_events();
    world.server.delete::<Website>("default", "s0").unwrap();
    let gone = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.sites().patch("s0", &PatchParams::default(), &gone).await.unwrap();
    world.server.drop_watches_with_410();
    world.server.resume_watch_events();
    world.server.settled(2000 * SECOND).await;
    assert_eq!(world.cx.count(), 1);
    assert_eq!(running.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn s06_a_watch_whose_connection_breaks_goes_on_where_it_was() {
    let world = World::new();
    let running = world.start(Config::default()).await;
    for n in 0..30 {
        world.apply(&format!("s{n}"), "", 0);
    }
    world.server.settled(5 * SECOND).await;
    world.server.pause_watch_events();
    world.apply("s1", "", 1);
    world.server.drop_watches();
    world.server.resume_watch_events();
    world.server.settled(5 * SECOND).await;
    assert_eq!(world.cx.names_since(30), ["s1"]);
    assert_eq!(world.server.requests::<Website>("list"), 1);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn s07_only_the_watch_of_children_is_too_old_and_a_child_deleted_meanwhile_is_back() {
    let world = World::new();
    let running = world.start(Config::default()).await;
    for n in 0..20 {
        world.apply(&format!("s{n}"), "", 0);
    }
    world.server.settled(5 * SECOND).await;
    let runs = world.cx.count();
    assert_eq!(runs, 20);
    world.server.pause_watch_events_of::<ConfigMap>();
    world.server.delete::<ConfigMap>("default", "s3-html").unwrap();
    world.server.drop_watches_of_with_410::<ConfigMap>();
    world.server.resume_watch_events();
    let took = until(|| world.server.get::<ConfigMap>("default", "s3-html").is_ok()).await;
    assert!(took <= 2 * SECOND, "{took:?}");
    world.server.settled(60 * SECOND).await;
    assert_eq!(world.cx.names_since(runs), ["s3"]);
    assert_eq!(
        (world.server.requests::<Website>("list"), world.server.requests::<ConfigMap>("list")),
        (1, 2)
    );
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn s09_an_object_that_is_deleted_while_it_waits_is_cleaned_up_at_once_and_forgotten() {
    let world = World::new();
    let running = world.start(Config::default().backoff(1000 * SECOND, 1000 * SECOND)).await;
    world.apply("s0", "fail", 0);
    world.server.settled(SECOND).await;
    assert!(running.explain(&site_ref("s0")).contains("poison"));
    world.server.delete::<Website>("default", "s0").unwrap();
    let took = until(|| world.server.get::<Website>("default", "s0").is_err()).await;
    assert!(took <= Duration::from_millis(200), "{took:?}");
    assert!(world.cx.runs_of("s0")[1].well);
    sleep(SECOND).await;
    let stats = running.stats();
    assert_eq!((stats.ready, stats.waiting, stats.held), (0, 0, 0));
    assert!(!running.explain(&site_ref("s0")).contains("failed"));
    world.server.settled(3000 * SECOND).await;
    assert_eq!(world.cx.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn s10_a_conflict_is_read_again_and_counts_as_no_failure() {
    let world = World::new();
    let (server, sites, tries) = (world.server.clone(), world.sites(), Arc::new(AtomicUsize::new(0)));
    let counted = tries.clone();
    // Each first try writes what it has read, after somebody else has written.
    let reconcile = move |object: Arc<Website>, _: Arc<Ctx>| {
        let (server, sites, tries) = (server.clone(), sites.clone(), counted.clone());
        async move {
            if tries.fetch_add(1, SeqCst) == 0 {
                let mut other = (*object).clone();
                other.labels_mut().insert("other".into(), "1".into());
                server.apply(&other)?;
            }
            let mut changed = (*object).clone();
            changed.spec.stamp = 7;
            let written = sites.replace(&object.name_any(), &PostParams::default(), &changed).await?;
            Current::saw_if_any(&written);
            assert_eq!(Current::get().unwrap().attempt(), 1);
            Ok::<_, kube::Error>(Action::await_change())
        }
    };
    let failures = Arc::new(AtomicUsize::new(0));
    let failed = failures.clone();
    let policy = move |_: Arc<Website>, _: &kube::Error, _: Arc<Ctx>| {
        failed.fetch_add(1, SeqCst);
        Action::backoff()
    };
    let running = world.controller().start(reconcile, policy, world.cx.clone()).unwrap();
    world.apply("s0", "", 0);
    let took =
        until(|| world.server.get::<Website>("default", "s0").is_ok_and(|site| site.spec.stamp == 7)).await;
    assert!(took <= Duration::from_millis(200), "{took:?}");
    world.server.settled(SECOND).await;
    assert_eq!((failures.load(SeqCst), running.stats().waiting), (0, 0));
    let site = world.server.get::<Website>("default", "s0").unwrap();
    assert_eq!(site.labels()["other"], "1");
    // Two runs, one of them for what somebody else wrote, and each of them tries at most twice: the second may begin
    // before the watch has told what the first one wrote.
    let tries = tries.load(SeqCst);
    assert!((3..=4).contains(&tries), "{tries} tries");
}

#[tokio::test(start_paused = true)]
async fn s10_a_conflict_that_does_not_end_is_a_failure_in_the_end() {
    let world = World::new();
    let running = world.start(Config::default().backoff(1000 * SECOND, 1000 * SECOND)).await;
    world.server.fail_next_writes(4, 409);
    world.apply("s0", "", 0);
    world.server.settled(SECOND).await;
    // one try and three more
    assert_eq!((world.cx.count(), running.stats().waiting), (4, 1));
    assert!(running.explain(&site_ref("s0")).contains("1 failure"), "{}", running.explain(&site_ref("s0")));
}

#[tokio::test(start_paused = true)]
async fn s12_panics_and_runs_that_hang_delay_nobody_for_longer_than_the_time_limit() {
    let world = World::new();
    let limit = 2 * SECOND;
    let running = world.start(Config::default().concurrency(4).time_limit(limit)).await;
    for n in 0..4 {
        world.apply(&format!("hang{n}"), "hang", 0);
    }
    world.apply("panic", "panic", 0);
    let at = Instant::now();
    for n in 0..20 {
        world.apply(&format!("fine{n}"), "", 0);
    }
    until(|| (0..20).all(|n| world.cx.runs_of(&format!("fine{n}")).iter().any(|run| run.well))).await;
    for n in 0..20 {
        let took = world.cx.runs_of(&format!("fine{n}"))[0].began - at;
        assert!(took <= limit + Duration::from_millis(100), "{took:?}");
    }
    assert!(running.explain(&site_ref("panic")).contains("a reconciler panics"));
    assert!(
        running.explain(&site_ref("hang0")).contains("failed"),
        "{}",
        running.explain(&site_ref("hang0"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_done_again_and_leaves_one_child() {
    let world = World::new();
    let running = world.start(Config::default()).await;
    world.apply("s0", "", 0);
    world.server.settled(SECOND).await;
    world.server.lose_answer_of_next_write();
    world.apply("s0", "", 1);
    world.server.settled(SECOND).await;
    let attempts: Vec<_> = world.cx.runs_of("s0").iter().map(|run| (run.attempt, run.well)).collect();
    // The second run fails although its child is written. The third finds nothing to do there.
    assert_eq!(attempts, [(1, true), (1, false), (2, true)]);
    assert_eq!(world.server.all::<ConfigMap>().len(), 1);
    assert_eq!(world.server.get::<Website>("default", "s0").unwrap().status.unwrap().stamp, 1);
    assert_eq!(running.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_overloaded_is_tried_again() {
    let world = World::new();
    let running = world.start(Config::default()).await;
    world.server.fail_next(3, 429);
    world.apply("s0", "", 0);
    world.server.settled(5 * SECOND).await;
    assert_eq!(world.server.all::<ConfigMap>().len(), 1);
    assert_eq!(world.cx.runs_of("s0").len(), 4);
    assert_eq!(running.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_controller_whose_first_lists_are_refused_begins_when_they_are_not() {
    let world = World::new();
    world.apply("s0", "", 0);
    world.server.fail_next(6, 500);
    let running = world.controller().start(reconcile, |_, _, _| Action::backoff(), world.cx.clone()).unwrap();
    until(|| running.health().synced).await;
    world.server.settled(5 * SECOND).await;
    assert_eq!(world.cx.count(), 1);
    assert!(running.health().watch_error.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_mapper_that_panics_for_one_object_triggers_by_the_others() {
    let world = World::new();
    world.apply("s", "", 0);
    let maps = Api::<ConfigMap>::all(world.server.client());
    let controller = world.controller().watches(maps, watcher::Config::default(), |map| {
        assert!(map.name_any() != "bad", "a mapper panics");
        [site_ref("s")]
    });
    let _running = controller.start(reconcile, |_, _, _| Action::backoff(), world.cx.clone()).unwrap();
    world.server.settled(SECOND).await;
    let runs = world.cx.count();
    let map = |name: &str| {
        let metadata = kube::api::ObjectMeta {
            name: Some(name.into()),
            namespace: Some("default".into()),
            ..kube::api::ObjectMeta::default()
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    };
    world.server.apply(&map("bad")).unwrap();
    world.server.settled(SECOND).await;
    assert_eq!(world.cx.count(), runs);
    world.server.apply(&map("good")).unwrap();
    world.server.settled(SECOND).await;
    assert_eq!(world.cx.count(), runs + 1);
}

#[tokio::test(start_paused = true)]
async fn k5_an_object_that_gave_up_and_wrote_its_status_does_not_run_by_its_echo() {
    let world = World::new();
    world.apply("s0", "fail-status", 0);
    let runs = || world.cx.runs_of("s0").len();
    let controller = world.controller();
    let _running = controller.start(reconcile, |_, _, _| Action::give_up(), world.cx.clone()).unwrap();
    sleep(SECOND).await;
    assert_eq!(runs(), 1);
    // Somebody else writes the status, and a watch that breaks lists it: neither runs it.
    let patch = json!({"status": {"failures": 77}});
    world.sites().patch_status("s0", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    world.server.drop_watches_with_410();
    sleep(SECOND).await;
    assert_eq!(runs(), 1);
    // The spec changes.
    world.apply("s0", "fail-status", 1);
    sleep(SECOND).await;
    assert_eq!(runs(), 2);
    // A related object changes.
    let owner = world.server.get::<Website>("default", "s0").unwrap().controller_owner_ref(&()).unwrap();
    let child = json!({"metadata": {"name": "of-s0", "ownerReferences": [owner]}});
    world.server.apply(&serde_json::from_value::<ConfigMap>(child).unwrap()).unwrap();
    sleep(SECOND).await;
    assert_eq!(runs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_controller_of_a_stream_and_a_store_runs_what_differs_and_nothing_that_is_gone() {
    let world = World::new();
    world.apply("s0", "", 0);
    world.apply("s1", "fail", 0);
    let (store, writer) = reflector::store::<Website>();
    let objects = watcher(Api::all(world.server.client()), watcher::Config::default());
    let objects = reflector(writer, objects).default_backoff().applied_objects();
    let config = Config::default().jitter(0.0).backoff(1000 * SECOND, 1000 * SECOND);
    let running = Controller::for_stream(objects, store)
        .with_config(config)
        .start(reconcile, |_, _, _| Action::backoff(), world.cx.clone())
        .unwrap();
    world.server.settled(SECOND).await;
    assert_eq!((running.health().synced, world.cx.count()), (true, 2));
    world.apply("s0", "", 1);
    world.apply("s2", "", 0);
    world.server.settled(SECOND).await;
    assert_eq!(world.cx.names_since(2), ["s0", "s2"]);

    // A list repeats the watch: what is as it was does not run.
    world.server.pause_watch_events();
    world.apply("s2", "", 1);
    world.server.drop_watches_with_410();
    world.server.resume_watch_events();
    world.server.settled(5 * SECOND).await;
    assert_eq!(world.cx.names_since(4), ["s2"]);

    // The stream is not told of a deletion: its run is due after its back-off, and does not begin.
    assert_eq!(running.stats().waiting, 1);
    let gone = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.sites().patch("s1", &PatchParams::default(), &gone).await.unwrap();
    world.server.delete::<Website>("default", "s1").unwrap();
    world.server.settled(2000 * SECOND).await;
    assert_eq!((running.stats().waiting, world.cx.count()), (0, 5));
}

/// Runs a site whose second run reports its status and its child needlessly, after another writer's change
/// that the watch has not reported yet. Returns the number of runs, and the site as the last of them saw it.
async fn runs_beside(others: impl Fn(&World) + Send + Sync + Clone + 'static) -> (usize, Arc<Website>) {
    let world = Arc::new(World::new());
    let site = json!({
        "apiVersion": "trial.dev/v1", "kind": "Website", "metadata": {"name": "s0", "finalizers": ["trial.dev/x"]},
        "spec": {"stamp": 0, "mode": ""},
    });
    world.server.apply(&serde_json::from_value::<Website>(site).unwrap()).unwrap();
    let runs = Arc::new(Mutex::new(Vec::new()));
    let (in_run, seen) = (world.clone(), runs.clone());
    let reconcile = move |site: Arc<Website>, _: Arc<Ctx>| {
        let (world, runs, others) = (in_run.clone(), seen.clone(), others.clone());
        async move {
            runs.lock().unwrap().push(site.clone());
            if runs.lock().unwrap().len() == 2 {
                world.server.pause_watch_events();
                others(&world);
            }
            let child = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "child", "ownerReferences": [site.controller_owner_ref(&()).unwrap()]},
                "data": {"by": "us"},
            });
            let maps = Api::<ConfigMap>::default_namespaced(world.server.client());
            Current::wrote_if_any(
                &maps.patch("child", &PatchParams::apply("us").force(), &Patch::Apply(child)).await?,
            );
            let status = Patch::Merge(json!({"status": {"stamp": 0, "failures": 0}}));
            let written = world.sites().patch_status("s0", &PatchParams::default(), &status).await?;
            Current::wrote_if_any(&written);
            world.server.resume_watch_events();
            Ok::<_, kube::Error>(Action::await_change())
        }
    };
    let running = world.controller().start(reconcile, |_, _, _| Action::backoff(), world.cx.clone()).unwrap();
    world.server.settled(SECOND).await;
    assert_eq!(runs.lock().unwrap().len(), 1, "the echoes of the first run are no reason to run");
    running.reconcile_now(&site_ref("s0"));
    world.server.settled(SECOND).await;
    let runs = runs.lock().unwrap();
    (runs.len(), runs.last().unwrap().clone())
}

#[tokio::test(start_paused = true)]
async fn k11_a_write_that_changes_nothing_hides_nothing_that_others_wrote() {
    let (runs, _) = runs_beside(|_| ()).await;
    assert_eq!(runs, 2);
    let (runs, site) = runs_beside(|world| drop(world.apply("s0", "", 7))).await;
    assert_eq!((runs, site.spec.stamp), (3, 7));
    let (runs, site) = runs_beside(|world| world.server.delete::<Website>("default", "s0").unwrap()).await;
    assert!(runs == 3 && site.meta().deletion_timestamp.is_some());
    let label = |world: &World| {
        let mut child = world.server.get::<ConfigMap>("default", "child").unwrap();
        child.labels_mut().insert("others".into(), "1".into());
        world.server.apply(&child).unwrap();
    };
    let (runs, _) = runs_beside(label).await;
    assert_eq!(runs, 3);
}
