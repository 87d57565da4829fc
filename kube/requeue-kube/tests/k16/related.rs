//! Related objects: their effects, and how they are identified.

use crate::world::{SECOND, World, config};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher;
use requeue_kube::{Action, Controller, Current, fake};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn k16_a_secret_that_appears_ends_the_wait_of_what_failed_for_want_of_it() {
    let world = World::new();
    world.write("a", json!({"wants": "s"}));
    let running = world.start(world.users());
    // The next retry is minutes away.
    sleep(400 * SECOND).await;
    let runs = world.count();
    assert_eq!((runs, running.stats().waiting), (17, 1));
    let at = world.now();
    world.secret("s");
    sleep(SECOND / 10).await;
    assert_eq!(world.count(), runs + 1);
    let run = &world.runs()[runs];
    assert!(run.at - at < SECOND / 50, "{:?} after the secret", run.at - at);
    assert_eq!(run.causes, "Secret default/s");
    sleep(2000 * SECOND).await;
    assert_eq!((world.count(), running.stats().waiting), (runs + 1, 0));
}

#[tokio::test(start_paused = true)]
async fn k16_what_a_list_finds_gone_of_what_is_watched_runs_all_objects_behind_what_changes() {
    let world = World::new();
    world.secret("s");
    world.secret("other");
    let running = world.start(world.users().with_config(config().concurrency(1)));
    sleep(SECOND).await;
    // When the secret was seen last, no object named it yet.
    for n in 0..12 {
        world.write(&format!("m{n}"), json!({"wants": "s"}));
    }
    world.write("else", json!({"takes_ms": "1000"}));
    sleep(10 * SECOND).await;
    assert_eq!((world.count(), running.stats().waiting), (13, 0));
    world.unheard(|world| world.server.delete::<Secret>("default", "s").unwrap()).await;
    // One run takes a second, so this change comes while others of the sweep wait.
    world.write("m7", json!({"wants": "other"}));
    sleep(SECOND / 10 * 15).await;
    let ran = world.runs().split_off(13);
    let first = ran.iter().map(|run| run.name.clone()).collect::<BTreeSet<_>>();
    assert_eq!(first.len(), 13, "{ran:?}");
    let causes = |name: &str| &ran.iter().find(|run| run.name == name).unwrap().causes;
    assert_eq!(causes("m3"), "list of Secret");
    assert_eq!(causes("else"), "list of Secret");
    // A list that finds nothing gone runs nothing.
    sleep(60 * SECOND).await;
    world.secret("s");
    sleep(2000 * SECOND).await;
    let runs = world.count();
    world.unheard(|_| ()).await;
    sleep(60 * SECOND).await;
    assert_eq!(world.count(), runs);
}

#[tokio::test(start_paused = true)]
async fn k16_a_sweep_stands_behind_a_change_that_comes_later() {
    let world = World::new();
    world.secret("s");
    for n in 0..20 {
        world.write(&format!("m{n}"), json!({"takes_ms": "100"}));
    }
    let _running = world.start(world.users().with_config(config().concurrency(1)));
    sleep(10 * SECOND).await;
    assert_eq!(world.count(), 20);
    world.unheard(|world| world.server.delete::<Secret>("default", "s").unwrap()).await;
    sleep(SECOND / 20 * 9).await;
    let runs = world.count();
    assert!((21..40).contains(&runs), "{runs}");
    world.write("new", json!({"takes_ms": "100"}));
    sleep(SECOND / 10 * 2).await;
    // One run went on.
    assert_eq!(world.names_since(runs).iter().position(|name| name == "new"), Some(0));
    sleep(10 * SECOND).await;
    assert_eq!(world.count(), 41);
}

/// Deployments that own config maps, and the names of those that run.
fn owners(server: &fake::Server) -> (requeue_kube::Running<Deployment>, Arc<Mutex<Vec<String>>>) {
    let ran = Arc::new(Mutex::new(Vec::new()));
    for name in ["a", "b"] {
        let spec = json!({"selector": {}, "template": {}});
        let owner = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        server.apply(&serde_json::from_value::<Deployment>(owner).unwrap()).unwrap();
    }
    let reconcile = |object: Arc<Deployment>, ran: Arc<Mutex<Vec<String>>>| async move {
        ran.lock().unwrap().push(object.name_any());
        Ok::<_, kube::Error>(Action::await_change())
    };
    let client = server.client();
    let running = Controller::new(Api::<Deployment>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client), watcher::Config::default())
        .start(reconcile, |_, _, _| Action::backoff(), ran.clone())
        .unwrap();
    (running, ran)
}

fn child(server: &fake::Server, name: &str, api_version: &str, kind: &str, owner: &str) {
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": owner, "uid": "u"});
    let child = json!({"metadata": {"name": name, "namespace": "default", "ownerReferences": [owner]}});
    server.apply(&serde_json::from_value::<ConfigMap>(child).unwrap()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn k16_owners_are_known_by_group_and_kind_whatever_the_version() {
    let server = fake::Server::new().with::<Deployment>().with::<ConfigMap>();
    let (_running, ran) = owners(&server);
    sleep(SECOND).await;
    ran.lock().unwrap().clear();
    for (nth, (api_version, kind, runs)) in [
        ("apps/v1", "Deployment", true),
        ("apps/v1beta2", "Deployment", true),
        ("apps/v7", "Deployment", true),
        ("v1", "Deployment", false),
        ("apps.example.dev/v1", "Deployment", false),
        ("apps", "Deployment", false),
        ("apps/v1", "StatefulSet", false),
    ]
    .into_iter()
    .enumerate()
    {
        child(&server, &format!("c{nth}"), api_version, kind, "a");
        sleep(SECOND).await;
        let ran = std::mem::take(&mut *ran.lock().unwrap());
        assert_eq!(ran, if runs { vec!["a"] } else { vec![] }, "{api_version} {kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn k16_an_owned_object_that_a_list_finds_gone_runs_its_owner_and_nobody_else() {
    let server = fake::Server::new().with::<Deployment>().with::<ConfigMap>();
    let (_running, ran) = owners(&server);
    child(&server, "c", "apps/v1", "Deployment", "a");
    sleep(SECOND).await;
    ran.lock().unwrap().clear();
    server.pause_watch_events();
    server.delete::<ConfigMap>("default", "c").unwrap();
    server.drop_watches_with_410();
    server.resume_watch_events();
    sleep(60 * SECOND).await;
    assert_eq!(*ran.lock().unwrap(), ["a"]);
}

/// Errors as programs wrap them.
#[derive(Debug, thiserror::Error)]
enum Wrapped {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error(transparent)]
    Boxed(Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Shared(Arc<kube::Error>),
    #[error(transparent)]
    Twice(Box<Wrapped>),
    #[error("while it wrote")]
    Source(#[source] Box<Wrapped>),
}

#[tokio::test(start_paused = true)]
async fn k16_a_conflict_is_known_in_wrappers_that_are_transparent() {
    let wrap: [fn(kube::Error) -> Wrapped; 5] = [
        Wrapped::Kube,
        |e| Wrapped::Boxed(e.into()),
        |e| Wrapped::Shared(e.into()),
        |e| Wrapped::Twice(Box::new(e.into())),
        |e| Wrapped::Source(Box::new(Wrapped::Boxed(Box::new(Wrapped::Kube(e))))),
    ];
    for (nth, wrap) in wrap.into_iter().enumerate() {
        let world = World::new();
        world.write("a", json!({}));
        let maps = Api::<ConfigMap>::default_namespaced(world.server.client());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let reconcile = move |_: Arc<ConfigMap>, calls: Arc<Mutex<Vec<u32>>>| {
            let maps = maps.clone();
            async move {
                calls.lock().unwrap().push(Current::get().unwrap().attempt());
                let patch = Patch::Merge(json!({"data": {"by": "us"}}));
                let written = maps.patch("a", &PatchParams::default(), &patch).await.map_err(wrap)?;
                Current::saw_if_any(&written);
                Ok::<_, Wrapped>(Action::await_change())
            }
        };
        world.server.fail_next_writes(2, 409);
        let start = world.maps().start(reconcile, |_, _, _| Action::backoff(), calls.clone());
        let _running = start.unwrap();
        sleep(60 * SECOND).await;
        // Called again twice, and no failure.
        assert_eq!(*calls.lock().unwrap(), [1, 1, 1], "{nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn k16_the_report_counts_what_was_left_and_not_what_waits_for_its_next_look() {
    let world = World::new();
    for n in 0..5 {
        world.write(&format!("looks-{n}"), json!({"again_s": "300"}));
    }
    for n in 0..3 {
        world.write(&format!("well-{n}"), json!({}));
    }
    world.write("fails", json!({"wants": "nothing"}));
    world.write("hangs", json!({"takes_ms": "1000000"}));
    let running = world.start(world.users().with_config(config().resync(3600 * SECOND)));
    sleep(100 * SECOND).await;
    assert_eq!((running.stats().waiting, running.stats().held), (9, 1));
    let report = running.drain(SECOND).await;
    assert_eq!((report.left, report.cancelled), (2, 1), "{report:?}");

    // A ready key that never ran is left, as is one that waits for quiet.
    let world = World::new();
    world.write("a", json!({}));
    let quiet = config().debounce(Duration::from_secs(60), Duration::from_secs(600));
    let running = world.start(world.maps().with_config(quiet));
    sleep(SECOND).await;
    assert_eq!((world.count(), running.drain(SECOND).await.left), (0, 1));
    let world = World::new();
    (0..4).for_each(|n| world.write(&format!("m{n}"), json!({})));
    let running = world.start(world.maps());
    running.pause();
    sleep(SECOND).await;
    assert_eq!((world.count(), running.drain(SECOND).await.left), (0, 4));
}
