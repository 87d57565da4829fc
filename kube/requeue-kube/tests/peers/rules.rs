//! The rules of `rules.tsv` that neither a peer's test nor a scenario shows in full.

use crate::world::{Do, SECOND, World, config, map_ref};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use requeue_kube::{Config, Controller, InBackoff};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn k3_the_jitter_is_within_its_fraction_and_not_the_same_for_all() {
    let world = World::new();
    let hundred = config().backoff(100 * SECOND, 1000 * SECOND).jitter(0.1);
    let _running = world.start(world.controller().with_config(hundred), |_, _| Do::fail());
    for n in 0..50 {
        world.write(&format!("m{n}"), "1");
    }
    sleep(150 * SECOND).await;
    let gaps: Vec<_> = (0..50)
        .map(|n| {
            let runs = world.runs_of(&format!("m{n}"));
            runs[1].began - runs[0].began
        })
        .collect();
    assert!(gaps.iter().all(|gap| (90_000..=110_002).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().max().unwrap() - gaps.iter().min().unwrap() > 5_000, "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn k3_the_rate_of_retries_is_for_all_objects_together_and_for_no_first_run() {
    let world = World::new();
    let one_a_second = config().backoff(SECOND / 10, SECOND / 10).retry_rate(1.0, 1);
    let controller = world.controller().with_config(one_a_second);
    let _running = world.start(controller, |_, nth| if nth == 1 { Do::fail() } else { Do::done() });
    for n in 0..20 {
        world.write(&format!("m{n}"), "1");
    }
    sleep(SECOND / 20).await;
    assert_eq!(world.runs().len(), 20);
    sleep(10 * SECOND).await;
    // one at once and one a second
    assert!((30..=32).contains(&world.runs().len()), "{}", world.runs().len());
    sleep(60 * SECOND).await;
    assert_eq!(world.runs().len(), 40);
}

fn deployment(metadata: &Value, replicas: u32) -> Deployment {
    let mut all = json!({"name": "a", "namespace": "default"});
    all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    let spec = json!({"replicas": replicas, "selector": {}, "template": {}});
    serde_json::from_value(json!({"metadata": all, "spec": spec})).unwrap()
}

/// An object that fails, with a back-off that does not end in the time of the test.
fn failing(world: &World, config: Config) -> Controller<Deployment> {
    world.server.apply(&deployment(&json!({}), 1)).unwrap();
    let api = Api::<Deployment>::all(world.server.client());
    let config = config.jitter(0.0).backoff(1000 * SECOND, 1000 * SECOND);
    Controller::new(api, watcher::Config::default()).with_config(config)
}

async fn write_status(world: &World, replicas: u32) {
    let api = Api::<Deployment>::default_namespaced(world.server.client());
    let status = Patch::Merge(json!({"status": {"replicas": replicas}}));
    api.patch_status("a", &PatchParams::default(), &status).await.unwrap();
    sleep(SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn k4_each_part_of_what_is_asked_for_ends_the_back_off() {
    let world = World::new();
    let _running = world.start(failing(&world, Config::default()), |_, _| Do::fail());
    sleep(SECOND).await;
    assert_eq!(world.attempts("a"), [1]);
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    // Each is added to those before it, so that nothing else changes with it.
    let changes = [
        ("generation", json!("the replicas")),
        ("labels", json!({"l": "1"})),
        ("annotations", json!({"a": "1"})),
        ("ownerReferences", json!([owner])),
        ("finalizers", json!(["example.dev/f"])),
    ];
    let mut metadata = json!({});
    for (n, (part, value)) in (2..).zip(changes) {
        if part != "generation" {
            metadata[part] = value;
        }
        world.server.apply(&deployment(&metadata, 2)).unwrap();
        sleep(SECOND).await;
        // Each is a first attempt: its failures were those of another object.
        assert_eq!(world.attempts("a"), vec![1; n], "{part}");
        write_status(&world, u32::try_from(n).unwrap()).await;
        assert_eq!(world.attempts("a").len(), n, "a status after {part}");
    }
    world.server.delete::<Deployment>("default", "a").unwrap(); // it has a finalizer
    sleep(SECOND).await;
    assert_eq!(world.attempts("a"), [1; 7]);
}

#[tokio::test(start_paused = true)]
async fn k5_each_source_can_be_told_to_end_the_back_off() {
    for (status, related, runs, failures) in [
        (InBackoff::Respect, InBackoff::Respect, 1, "1 failure,"),
        (InBackoff::Run, InBackoff::Respect, 2, "2 failures,"),
        (InBackoff::Respect, InBackoff::Run, 2, "2 failures,"),
        (InBackoff::Run, InBackoff::Run, 3, "3 failures,"),
        (InBackoff::Reset, InBackoff::Run, 3, "2 failures,"),
        (InBackoff::Respect, InBackoff::Reset, 2, "1 failure,"),
    ] {
        let world = World::new();
        let config = Config::default().on_status(status).on_watched(related);
        let secrets = Api::<Secret>::all(world.server.client());
        let of = |_: Secret| [ObjectRef::new("a").within("default")];
        let controller = failing(&world, config).watches(secrets, watcher::Config::default(), of);
        let running = world.start(controller, |_, _| Do::fail());
        sleep(SECOND).await;
        write_status(&world, 7).await;
        let secret = json!({"metadata": {"name": "s", "namespace": "default"}});
        world.server.apply(&serde_json::from_value::<Secret>(secret).unwrap()).unwrap();
        sleep(SECOND).await;
        let told = running.explain(&ObjectRef::new("a").within("default"));
        assert_eq!(world.runs().len(), runs, "{status:?} {related:?}");
        assert!(told.contains(failures), "{status:?} {related:?}: {told}");
    }
}

#[tokio::test(start_paused = true)]
async fn k7_what_was_passed_over_for_max_wait_has_one_turn_in_eight() {
    let world = World::new();
    for n in 0..5 {
        world.write(&format!("listed{n}"), "1");
    }
    let config = config().concurrency(1).max_wait(30 * SECOND);
    let _running = world.start(world.controller().with_config(config), |_, _| Do::done().after(SECOND));
    // There is always something that has changed.
    let begin = Instant::now();
    while begin.elapsed() < 80 * SECOND {
        for name in ["busy0", "busy1", "busy2"] {
            world.write(name, &begin.elapsed().as_millis().to_string());
        }
        sleep(SECOND / 2).await;
    }
    let first = |name: &str| world.runs_of(name)[0].began;
    assert!(first("busy0") < 3_000);
    let mut listed: Vec<_> = (1..5).map(|n| first(&format!("listed{n}"))).collect();
    listed.sort_unstable();
    // None before it is overdue, and each within eight runs of a second of the one before.
    assert!(listed[0] >= 29_000, "{listed:?}");
    for (nth, began) in (1..).zip(&listed) {
        assert!(*began <= 30_000 + nth * 8_000 + 1_000, "{listed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn k8_namespaces_take_turns() {
    let world = World::new();
    let controller = world.controller().group_by(requeue_kube::by_namespace);
    let running =
        world.start(controller.with_config(config().concurrency(1)), |_, _| Do::done().after(SECOND));
    sleep(SECOND / 10).await;
    running.pause();
    let write = |space: &str, name: &str| {
        let map = json!({"metadata": {"name": name, "namespace": space}});
        world.server.apply(&serde_json::from_value::<ConfigMap>(map).unwrap()).unwrap();
    };
    for n in 0..100 {
        write("large", &format!("large{n}"));
    }
    for n in 0..3 {
        write("small", &format!("small{n}"));
    }
    sleep(SECOND).await;
    running.resume();
    sleep(10 * SECOND).await;
    assert_eq!(world.names()[..7], ["large0", "small0", "large1", "small1", "large2", "small2", "large3"]);
}

#[tokio::test(start_paused = true)]
async fn k13_at_the_end_nothing_begins_what_runs_has_its_grace_and_a_report_says_what_became_of_it() {
    let world = World::new();
    let (stop, stopped) = futures::channel::oneshot::channel::<()>();
    let controller = world
        .controller()
        .with_config(config().concurrency(2).grace(20 * SECOND))
        .graceful_shutdown_on(async { _ = stopped.await });
    let running = world.start(controller, |name, _| match name {
        "hangs" => Do::done().after(3600 * SECOND),
        _ => Do::done().after(10 * SECOND),
    });
    for name in ["hangs", "runs", "waits"] {
        world.write(name, "1");
    }
    sleep(5 * SECOND).await;
    let begin = Instant::now();
    stop.send(()).unwrap();
    let report = running.ended().await;
    // The one that was dropped is to be reconciled as much as the one that waits.
    assert_eq!((report.done, report.cancelled, report.left), (1, 1, 2));
    let took = begin.elapsed();
    assert!((20 * SECOND..20 * SECOND + Duration::from_millis(100)).contains(&took), "{took:?}");
    assert_eq!(world.names(), ["hangs", "runs"]);
    assert!(running.health().ended);
    assert!(!running.reconcile_now(&map_ref("not-there")));
}
