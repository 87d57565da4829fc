//! Switches of the fake server for tests.

use crate::website::{Website, World, site, until};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt};
use requeue_kube::{Config, fake};
use serde_json::json;
use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}})).unwrap()
}

fn code<T: std::fmt::Debug>(result: kube::Result<T>) -> u16 {
    match result.unwrap_err() {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn so_many_requests_fail_and_the_next_one_does_not() {
    let server = fake::Server::new().with::<ConfigMap>();
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    server.fail_next(2, 503);
    server.fail_next_writes(1, 409);
    assert_eq!(code(maps.list(&ListParams::default()).await), 503);
    assert_eq!(code(maps.get("a").await), 503);
    // the read goes past the failure that is for a write
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert_eq!(code(maps.create(&PostParams::default(), &map("a")).await), 409);
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    assert_eq!((server.requests::<ConfigMap>("list"), server.requests::<ConfigMap>("create")), (2, 2));
    assert_eq!((server.writes(), server.version()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_say_when_to_come_again() {
    let server = fake::Server::new().with::<ConfigMap>();
    server.fail_next(1, 429);
    let request = http::Request::get("/api/v1/configmaps").body(kube::client::Body::empty()).unwrap();
    let answer = server.client().send(request).await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"1".parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_done() {
    let server = fake::Server::new().with::<ConfigMap>();
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    server.lose_answer_of_next_write();
    assert!(maps.list(&ListParams::default()).await.is_ok());
    let lost = maps.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert!(matches!(lost, kube::Error::Service(_)), "{lost:?}");
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_for_each_request() {
    let server = fake::Server::new().with::<ConfigMap>();
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    server.delay(3 * SECOND);
    let begin = Instant::now();
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    assert_eq!(begin.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn settled_waits_for_writes_that_have_no_answer_yet() {
    let server = fake::Server::new().with::<ConfigMap>();
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    server.delay(10 * SECOND);
    let write = tokio::spawn(async move { maps.create(&PostParams::default(), &map("a")).await });
    let begin = Instant::now();
    tokio::task::yield_now().await;
    server.settled(SECOND).await;
    assert!(begin.elapsed() >= 11 * SECOND, "{:?}", begin.elapsed());
    assert!(write.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_watch_hears_of_what_happened_while_it_was_paused() {
    let server = fake::Server::new().with::<ConfigMap>();
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let mut watch = pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
    server.pause_watch_events();
    server.apply(&map("a")).unwrap();
    assert!(tokio::time::timeout(10 * SECOND, watch.next()).await.is_err());
    server.resume_watch_events();
    assert!(matches!(watch.try_next().await, Ok(Some(WatchEvent::Added(map))) if map.name_any() == "a"));
    server.drop_watches_with_410();
    assert!(matches!(watch.try_next().await, Ok(Some(WatchEvent::Error(status))) if status.code == 410));
    assert!(watch.next().await.is_none());
    // so it is with one that comes late
    server.apply(&map("b")).unwrap();
    let mut late = pin!(maps.watch(&WatchParams::default(), "1").await.unwrap());
    assert!(late.next().await.is_some_and(|event| event.is_ok()));
    server.drop_watches_with_410();
    let mut late = pin!(maps.watch(&WatchParams::default(), "1").await.unwrap());
    assert!(matches!(late.try_next().await, Ok(Some(WatchEvent::Error(status))) if status.code == 410));
}

#[tokio::test(start_paused = true)]
async fn a_watch_has_bookmarks_and_ends_at_its_time() {
    let server = fake::Server::new().with::<ConfigMap>().with::<Website>();
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let mut watch = pin!(maps.watch(&WatchParams::default().timeout(290), "0").await.unwrap());
    server.apply(&site("other", "", 0)).unwrap(); // of which this watch hears nothing
    let begin = Instant::now();
    let mut bookmarks = 0;
    while let Some(event) = watch.try_next().await.unwrap() {
        assert!(matches!(event, WatchEvent::Bookmark(mark) if mark.metadata.resource_version == "1"));
        bookmarks += 1;
    }
    assert_eq!((bookmarks, begin.elapsed().as_secs()), (4, 290));
}

/// Each of kube's ways to begin a watch first reports all objects, and then changes.
#[tokio::test(start_paused = true)]
async fn kube_s_watcher_has_lists_in_pages_and_streams() {
    let server = fake::Server::new().with::<ConfigMap>();
    let names: BTreeSet<String> = (0..23).map(|n| format!("m{n}")).collect();
    for name in &names {
        server.apply(&map(name)).unwrap();
    }
    for config in [
        watcher::Config::default(),
        watcher::Config::default().page_size(5),
        watcher::Config::default().any_semantic(),
        watcher::Config::default().streaming_lists(),
    ] {
        let mut events = pin!(watcher(Api::<ConfigMap>::all(server.client()), config));
        assert!(matches!(events.try_next().await, Ok(Some(Event::Init))));
        let mut listed = BTreeSet::new();
        loop {
            match events.try_next().await.unwrap().unwrap() {
                Event::InitApply(map) => assert!(listed.insert(map.name_any())),
                Event::InitDone => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(listed, names);
        server.apply(&map("new")).unwrap();
        assert!(matches!(events.try_next().await, Ok(Some(Event::Apply(map))) if map.name_any() == "new"));
        server.delete::<ConfigMap>("default", "new").unwrap();
        assert!(matches!(events.try_next().await, Ok(Some(Event::Delete(map))) if map.name_any() == "new"));
    }
    assert_eq!(server.requests::<ConfigMap>("list"), 1 + 5 + 1);
}

#[tokio::test(start_paused = true)]
async fn orphans_are_collected_with_their_own_children() {
    let world = World::new();
    let owner = world.apply("s0", "", 0);
    let owned_by = |name: &str, owner| {
        let mut child = map(name);
        child.metadata.owner_references = Some(vec![owner]);
        world.server.apply(&child).unwrap()
    };
    let child = owned_by("child", owner.controller_owner_ref(&()).unwrap());
    owned_by("grandchild", child.controller_owner_ref(&()).unwrap());
    world.server.apply(&map("stranger")).unwrap();
    assert_eq!(world.server.collect_orphans(), 0);
    world.server.delete::<Website>("default", "s0").unwrap();
    assert_eq!(world.server.collect_orphans(), 2);
    let left: Vec<_> = world.server.all::<ConfigMap>().iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["stranger"]);
}

#[tokio::test(start_paused = true)]
async fn kinds_are_in_namespaces_or_not_and_those_without_a_type_are_as_good() {
    let kind = kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk("x.dev", "v1", "Thing"));
    let server = fake::Server::new().with::<Namespace>().with::<ConfigMap>().with_dyn(&kind, false, false);
    let things = Api::<DynamicObject>::all_with(server.client(), &kind);
    let thing = DynamicObject::new("a", &kind).data(json!({"spec": {"x": 1}, "status": {"y": 2}}));
    let made = things.create(&PostParams::default(), &thing).await.unwrap();
    // its status is no subresource
    assert_eq!(made.data["status"]["y"], 2);
    assert_eq!(code(things.get_status("a").await), 404);
    let namespaces = Api::<Namespace>::all(server.client());
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let status = json!({"apiVersion": "v1", "kind": "Namespace", "status": {"phase": "Active"}});
    namespaces.patch_status("n", &PatchParams::default(), &kube::api::Patch::Merge(status)).await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(server.client(), "n");
    let mut in_it = map("a");
    in_it.metadata.namespace = None;
    maps.create(&PostParams::default(), &in_it).await.unwrap();
    assert_eq!(server.get::<ConfigMap>("n", "a").unwrap().namespace().as_deref(), Some("n"));
    assert_eq!(server.get::<Namespace>("", "n").unwrap().status.unwrap().phase.as_deref(), Some("Active"));
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_was_not_registered_is_told_by_its_path() {
    let server = fake::Server::new();
    let told = server.apply(&map("a")).unwrap_err().to_string();
    assert!(told.contains("/api/v1/configmaps"), "{told}");
    assert_eq!(code(Api::<ConfigMap>::all(server.client()).list(&ListParams::default()).await), 404);
    assert!(server.all::<ConfigMap>().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_test_applies_keeps_the_status_and_is_no_request() {
    let world = World::new();
    let running = world.start(Config::default()).await;
    world.apply("s0", "", 4);
    until(|| world.server.get::<Website>("default", "s0").unwrap().status.is_some()).await;
    world.server.settled(SECOND).await;
    let writes = world.server.writes();
    // finalizer, child and status
    assert_eq!(writes, 3);
    running.pause();
    let applied = world.apply("s0", "", 5);
    assert_eq!((applied.status.unwrap().stamp, applied.metadata.generation), (4, Some(2)));
    assert_eq!(applied.metadata.finalizers.unwrap().len(), 1);
    assert_eq!(world.server.writes(), writes);
}
