//! Streams instead of watches, as kube's `Controller` takes them.

use crate::world::{SECOND, World};
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use kube::runtime::reflector::{self, ObjectRef, store::Writer};
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt, reflector::ReflectHandle};
use kube::{Resource, ResourceExt};
use requeue_kube::Controller;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fmt::Debug;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

fn touched<K>(world: &World) -> impl Stream<Item = watcher::Result<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watcher(Api::all(world.server.client()), watcher::Config::default()).default_backoff().touched_objects()
}

/// A shared store of kube's, one of its subscribers, and the task that fills it.
fn subscribed<K>(world: &World) -> (reflector::Store<K>, ReflectHandle<K>, JoinHandle<()>)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + Unpin + 'static,
{
    let writer = Writer::<K>::new_shared(16, ());
    let (store, told) = (writer.as_reader(), writer.subscribe().unwrap());
    let events = watcher(Api::all(world.server.client()), watcher::Config::default());
    let fills = events.default_backoff().reflect_shared(writer).for_each(|_| std::future::ready(()));
    (store, told, tokio::spawn(fills))
}

fn whom(secret: &Secret) -> Vec<ObjectRef<ConfigMap>> {
    vec![ObjectRef::new(&format!("of-{}", secret.name_any())).within("default")]
}

/// An object, owned by a config map.
fn owned<K: Resource<DynamicType = ()> + Serialize + DeserializeOwned>(
    world: &World,
    name: &str,
    owner: &str,
) {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": "u"});
    let metadata = json!({"name": name, "namespace": "default", "ownerReferences": [owner],
        "annotations": {"version": world.server.version().to_string()}});
    world.server.apply(&serde_json::from_value::<K>(json!({"metadata": metadata})).unwrap()).unwrap();
}

/// Three objects that have run; then a related object's effect through this source.
async fn each_item_runs(world: &World, controller: Controller<ConfigMap>) {
    for name in ["of-a", "of-b", "of-c"] {
        world.write(name, json!({}));
    }
    let running = world.start(controller);
    sleep(SECOND).await;
    assert!(running.health().synced && running.health().unlisted.is_empty());
    assert_eq!(world.count(), 3);
    for (name, owner) in [("a", "of-a"), ("b", "of-b"), ("a", "of-a")] {
        let runs = world.count();
        owned::<Secret>(world, name, owner);
        sleep(2 * SECOND).await;
        assert_eq!(world.names_since(runs), [owner]);
        assert_eq!(world.runs()[runs].causes, format!("Secret default/{name}"));
    }
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_owns_stream_triggers_the_owners_of_each_item() {
    let world = World::new();
    each_item_runs(&world, world.maps().owns_stream(touched::<Secret>(&world))).await;
    // A stream of touched objects has what is deleted.
    let runs = world.count();
    world.server.delete::<Secret>("default", "b").unwrap();
    sleep(SECOND).await;
    assert_eq!(world.names_since(runs), ["of-b"]);
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_watches_stream_triggers_whom_the_function_names() {
    let world = World::new();
    let controller = world.maps().watches_stream(touched(&world), |secret: Secret| whom(&secret));
    each_item_runs(&world, controller).await;
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_owns_shared_stream_triggers_the_owners_of_each_item() {
    let world = World::new();
    let (_, told, fills) = subscribed::<Secret>(&world);
    each_item_runs(&world, world.maps().owns_shared_stream(told)).await;
    fills.abort();
}

#[tokio::test(start_paused = true)]
async fn kube_runtime_watches_shared_stream_triggers_whom_the_function_names() {
    let world = World::new();
    let (_, told, fills) = subscribed::<Secret>(&world);
    // Two controllers of one watch.
    let other = World::of(world.server.clone());
    let second = other.start(other.maps().watches_shared_stream(told.clone(), |secret| whom(&secret)));
    each_item_runs(&world, world.maps().watches_shared_stream(told, |secret| whom(&secret))).await;
    assert_eq!(
        (other.names_since(3), second.health().synced),
        (vec!["of-a".into(), "of-b".into(), "of-a".into()], true)
    );
    assert_eq!(world.server.requests::<Secret>("list"), 1);
    fills.abort();
}

/// A subscriber whose object went before it was reported has no wake-up for later ones.
#[tokio::test(start_paused = true)]
async fn kube_runtime_for_shared_stream_runs_each_item_also_after_one_that_has_gone() {
    let world = World::new();
    let (store, told, fills) = subscribed::<ConfigMap>(&world);
    for name in ["a", "b"] {
        world.write(name, json!({}));
    }
    let running = world.start(Controller::for_shared_stream(told, store));
    sleep(2 * SECOND).await;
    assert_eq!((world.count(), running.health().synced), (2, true));
    world.server.pause_watch_events();
    world.write("gone", json!({}));
    world.server.delete::<ConfigMap>("default", "gone").unwrap();
    world.server.resume_watch_events();
    sleep(2 * SECOND).await;
    world.write("a", json!({}));
    sleep(2 * SECOND).await;
    assert_eq!(world.names_since(2), ["a"]);
    fills.abort();
}

#[tokio::test(start_paused = true)]
async fn k16_a_stream_that_fails_ends_or_panics_in_its_mapper_triggers_by_the_rest() {
    let world = World::new();
    for name in ["of-a", "of-b"] {
        world.write(name, json!({}));
    }
    let secret = |name: &str| -> Secret {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}})).unwrap()
    };
    let items =
        [Ok(secret("a")), Err(watcher::Error::NoResourceVersion), Ok(secret("panics")), Ok(secret("b"))];
    let slowly = stream::iter(items).then(async |item| {
        sleep(10 * SECOND).await;
        item
    });
    let mapper = |secret: Secret| {
        assert!(secret.name_any() != "panics", "a mapper panics");
        whom(&secret)
    };
    let running = world.start(
        world
            .maps()
            .watches_stream(slowly, mapper)
            .watches_shared_stream(stream::empty::<Arc<Secret>>(), |_| Vec::new()),
    );
    sleep(SECOND).await;
    assert_eq!(world.count(), 2);
    sleep(20 * SECOND).await;
    let health = running.health();
    assert!(health.watch_error.is_some_and(|e| e.starts_with("Secret: ")));
    sleep(60 * SECOND).await;
    assert_eq!(world.names_since(2), ["of-a", "of-b"]);
    assert!(!running.health().ended);
}
