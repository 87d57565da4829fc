//! The controllers among kube's examples: configmapgen_controller.rs, secret_syncer.rs, shared_stream_controllers.rs.

use crate::world::{Do, SECOND, World, config, map};
use futures::channel::{mpsc, oneshot};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, CustomResource, Resource, ResourceExt};
use requeue_kube::finalizer::{self, Event, finalizer};
use requeue_kube::{Action, Controller};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::time::sleep;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "peers.dev", version = "v1", kind = "Generator", namespaced)]
struct GeneratorSpec {
    content: String,
}

async fn generate(generator: Arc<Generator>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let made = ConfigMap {
        metadata: ObjectMeta {
            name: Some(generator.name_any()),
            owner_references: Some(generator.controller_owner_ref(&()).into_iter().collect()),
            ..ObjectMeta::default()
        },
        data: Some([("content".to_owned(), generator.spec.content.clone())].into()),
        ..ConfigMap::default()
    };
    let maps = Api::<ConfigMap>::namespaced((*client).clone(), &generator.namespace().unwrap_or_default());
    maps.patch(&generator.name_any(), &PatchParams::apply("generator").force(), &Patch::Apply(made)).await?;
    Ok(Action::requeue(300 * SECOND))
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_example_configmapgen_keeps_what_it_makes_and_runs_all_on_demand() {
    let server = requeue_kube::fake::Server::new().with::<Generator>().with::<ConfigMap>();
    let client = server.client();
    let (reload, reloads) = mpsc::unbounded();
    let (stop, stopped) = oneshot::channel::<()>();
    let results = Controller::new(Api::<Generator>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .reconcile_all_on(reloads)
        .graceful_shutdown_on(stopped.map(drop))
        .run(generate, |_, _, _| Action::requeue(SECOND), Arc::new(client))
        .map(|result| result.unwrap().0.name)
        .collect::<Vec<_>>();
    let results = tokio::spawn(results);
    sleep(SECOND).await;
    for name in ["a", "b"] {
        let generator = Generator::new(name, GeneratorSpec { content: format!("of {name}") });
        server.apply(&generator).unwrap();
    }
    let content = |name: &str| server.get::<ConfigMap>("default", name).ok()?.data?.remove("content");
    sleep(SECOND).await;
    assert_eq!((content("a"), content("b")), (Some("of a".into()), Some("of b".into())));
    // Somebody changes one child and takes the other.
    let mut changed = server.get::<ConfigMap>("default", "a").unwrap();
    changed.data = Some([("content".to_owned(), "of somebody".to_owned())].into());
    server.apply(&changed).unwrap();
    server.delete::<ConfigMap>("default", "b").unwrap();
    sleep(SECOND).await;
    assert_eq!((content("a"), content("b")), (Some("of a".into()), Some("of b".into())));
    // All run when somebody asks for it, and every 300 s.
    let patches = server.requests::<ConfigMap>("patch");
    reload.unbounded_send(()).unwrap();
    sleep(SECOND).await;
    assert_eq!(server.requests::<ConfigMap>("patch"), patches + 2);
    sleep(300 * SECOND).await;
    assert_eq!(server.requests::<ConfigMap>("patch"), patches + 4);
    // The stream ends with the controller, and had one item for each run.
    stop.send(()).unwrap();
    let ran = results.await.unwrap();
    assert_eq!(ran.len() as u64, server.requests::<ConfigMap>("patch"));
    // A child goes with its owner.
    server.delete::<Generator>("default", "a").unwrap();
    assert_eq!(server.collect_orphans(), 1);
}

const CLEANUP: &str = "peers.dev/cleanup";

async fn sync(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, finalizer::Error<kube::Error>> {
    let space = map.namespace().unwrap_or_default();
    let secrets = Api::<Secret>::namespaced((*client).clone(), &space);
    finalizer(&Api::namespaced((*client).clone(), &space), CLEANUP, map, |event| async move {
        match event {
            Event::Apply(map) => {
                let copy = Secret { string_data: map.data.clone(), ..Secret::default() };
                let how = PatchParams::apply("sync").force();
                secrets.patch(&format!("cm-{}", map.name_any()), &how, &Patch::Apply(copy)).await?;
            }
            Event::Cleanup(map) => {
                match secrets.delete(&format!("cm-{}", map.name_any()), &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => (),
                    other => drop(other?),
                }
            }
        }
        Ok(Action::await_change())
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_example_secret_syncer_syncs_what_is_labelled_and_cleans_up() {
    let world = World::new();
    let client = world.server.client();
    let labelled = watcher::Config::default().labels("peers.dev/sync=true");
    let _running = Controller::new(Api::<ConfigMap>::all(client.clone()), labelled)
        .start(sync, |_, _, _| Action::requeue(2 * SECOND), Arc::new(client))
        .unwrap();
    world.write("other", "1");
    for (name, value) in [("a", "1"), ("b", "1"), ("a", "2")] {
        let mut map = map(name, value);
        map.labels_mut().insert("peers.dev/sync".into(), "true".into());
        world.server.apply(&map).unwrap();
        sleep(SECOND).await;
    }
    let secrets = || {
        let all = world.server.all::<Secret>().into_iter();
        all.map(|it| (it.name_any(), it.string_data.unwrap()["value"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(secrets(), [("cm-a".into(), "2".into()), ("cm-b".into(), "1".into())]);
    assert!(world.server.get::<ConfigMap>("default", "other").unwrap().finalizers().is_empty());
    // The clean-up bears that the work is done already.
    world.server.delete::<Secret>("default", "cm-b").unwrap();
    for name in ["a", "b"] {
        world.server.delete::<ConfigMap>("default", name).unwrap();
    }
    sleep(SECOND).await;
    assert_eq!(secrets(), []);
    assert_eq!(world.server.all::<ConfigMap>().len(), 1);
}

/// kube shares a watch by streams of objects; this test by events, because both controllers must see
/// deletions.
#[tokio::test(start_paused = true)]
async fn kube_runtime_example_two_controllers_share_one_watch() {
    let (first, second) = (World::new(), World::new());
    first.write("a", "1");
    let (to_first, of_first) = mpsc::unbounded();
    let (to_second, of_second) = mpsc::unbounded();
    let api = Api::<ConfigMap>::all(first.server.client());
    let watch = tokio::spawn(watcher(api, watcher::Config::default()).for_each(move |event| {
        if let Ok(event) = event {
            to_first.unbounded_send(Ok(event.clone())).unwrap();
            to_second.unbounded_send(Ok(event)).unwrap();
        }
        std::future::ready(())
    }));
    let one = Controller::for_events(of_first).with_config(config());
    let two = Controller::for_events(of_second).with_config(config());
    let one = first.start(one, |_, _| Do::end(Action::requeue(60 * SECOND)));
    let two = second.start(two, |_, _| Do::fail());
    sleep(SECOND / 2).await;
    assert_eq!((first.runs().len(), second.runs().len()), (1, 1));
    first.server.delete::<ConfigMap>("default", "a").unwrap();
    sleep(600 * SECOND).await;
    // For both it is gone: neither the timer of the one nor the back-off of the other runs it.
    assert_eq!((first.runs().len(), second.runs().len()), (1, 1));
    assert_eq!((one.stats().waiting, two.stats().waiting), (0, 0));
    assert_eq!(first.server.requests::<ConfigMap>("list"), 1);
    watch.abort();
}
