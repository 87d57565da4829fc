//! Bytes that a controller keeps per object, counted by the allocator, and requests per object, counted by
//! the fake API server: the exact part of s15 of the design. `kube/bench/run` measures the memory of
//! processes beside others, and tests/real/s15.rs counts the requests at a real API server.
//!
//! `REQUEUE_KUBE_LONG=1` counts with 10,000 objects instead of 1,000.

use allocation_counter::measure;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use requeue_kube::{Action, Config, Controller, Running, fake};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

const MINUTE: Duration = Duration::from_secs(60);

fn count() -> usize {
    if std::env::var_os("REQUEUE_KUBE_LONG").is_some() { 10_000 } else { 1000 }
}

/// An object as an API server would send it: its data is 100 bytes.
fn object(n: usize) -> ConfigMap {
    let data = json!({"index.html": "x".repeat(100)});
    let map = json!({"metadata": {"name": format!("m{n:05}"), "namespace": "default"}, "data": data});
    serde_json::from_value(map).unwrap()
}

/// An object with three entries of `managedFields`, as an API server records writes of a few fields.
fn noted(n: usize) -> ConfigMap {
    let fields =
        json!({"f:data": {".": {}, "f:index.html": {}}, "f:metadata": {"f:labels": {".": {}, "f:a": {}}}});
    let entry = json!({
        "manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2026-11-23T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    });
    let mut object = object(n);
    object.metadata.managed_fields = serde_json::from_value(json!([entry, entry, entry])).unwrap();
    object
}

/// A child of an object.
fn child(n: usize, owner_uid: &str) -> Secret {
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": format!("m{n:05}"), "uid": owner_uid, "controller": true,
    });
    let data = json!({"page": "x".repeat(1000)});
    let meta = json!({"name": format!("m{n:05}"), "namespace": "default", "ownerReferences": [owner]});
    serde_json::from_value(json!({"metadata": meta, "stringData": data})).unwrap()
}

/// A controller on an API server with this many objects, on the thread of the test, whose allocations are
/// counted.
struct World {
    runtime: Runtime,
    server: fake::Server,
    client: Client,
    runs: Arc<AtomicUsize>,
}

impl World {
    fn new(objects: usize, children: usize) -> Self {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let server = fake::Server::new().with::<ConfigMap>().with::<Secret>();
        let client = runtime.block_on(async {
            for n in 0..objects {
                let owner = server.apply(&object(n)).unwrap();
                if n < children {
                    server.apply(&child(n, &owner.metadata.uid.unwrap())).unwrap();
                }
            }
            server.client()
        });
        Self { runtime, server, client, runs: Arc::default() }
    }

    fn controller(&self) -> Controller<ConfigMap> {
        Controller::new(Api::all(self.client.clone()), watcher::Config::default())
    }

    /// Runs it until nothing more is due for a minute. Each run fails, or none.
    fn start(&self, controller: Controller<ConfigMap>, fails: bool) -> Running<ConfigMap> {
        let reconcile = move |_: Arc<ConfigMap>, runs: Arc<AtomicUsize>| {
            runs.fetch_add(1, SeqCst);
            std::future::ready(match fails {
                true => Err(std::fmt::Error),
                false => Ok(Action::await_change()),
            })
        };
        self.runtime.block_on(async {
            let week = Duration::from_secs(7 * 24 * 3600);
            let policy = move |_: Arc<_>, _: &_, _: Arc<_>| Action::requeue(week);
            let running = controller.start(reconcile, policy, self.runs.clone()).unwrap();
            tokio::time::sleep(MINUTE).await;
            running
        })
    }
}

/// Bytes per object, from a thousand more objects. From one power of two to the next, so that doubling
/// allocations grow alike.
fn each(kept: impl Fn(usize) -> i64) -> i64 {
    let count = count() as i64;
    (kept(2 * count as usize) - kept(count as usize)) / count
}

/// The bytes that a controller keeps of this many objects, and of the children of some.
fn kept(objects: usize, children: Option<usize>, fails: bool) -> i64 {
    let world = World::new(objects, children.unwrap_or_default());
    let mut running = None;
    let bytes = measure(|| {
        let controller = world.controller();
        let controller = match children {
            Some(_) => controller.owns(Api::<Secret>::all(world.client.clone()), watcher::Config::default()),
            None => controller,
        };
        running = Some(world.start(controller, fails));
    });
    assert_eq!(world.runs.load(SeqCst), objects);
    assert_eq!(running.unwrap().stats().waiting, if fails { objects } else { 0 });
    bytes.bytes_current
}

#[test]
fn s15_of_an_object_the_store_is_kept_and_nothing_else() {
    let alone = each(|objects| {
        let mut all = Vec::new();
        let bytes = measure(|| {
            all = (0..objects).map(|n| Arc::new(object(n))).collect();
        });
        bytes.bytes_current
    });
    let kept = each(|objects| kept(objects, None, false));
    eprintln!("s15: an object takes {alone} bytes, and {kept} in the store of a controller");
    // The store's own key, with its uid and version, and its place in a table.
    assert!(kept <= alone + 500, "{kept}");
}

#[test]
fn s15_managed_fields_are_kept_unless_the_configuration_says_no() {
    let kept = |objects: usize, keep: bool| {
        let world = World::new(0, 0);
        let mut running = None;
        let bytes = measure(|| {
            let events = [Event::Init].into_iter();
            let events =
                events.chain((0..objects).map(|n| Event::InitApply(noted(n)))).chain([Event::InitDone]);
            let watch = stream::iter(events.map(Ok)).chain(stream::pending());
            let config = Config::default().managed_fields(keep);
            running = Some(world.start(Controller::for_events(watch).with_config(config), false));
        });
        assert_eq!(world.runs.load(SeqCst), objects);
        bytes.bytes_current
    };
    // Only what the fields take counts, so one size of all else will do.
    let count = 100;
    let fields = (kept(count, true) - kept(count, false)) / count as i64;
    eprintln!("s15: three entries of managedFields take {fields} bytes");
    assert!(fields > 3000, "{fields}");
}

#[test]
fn s15_of_a_child_its_version_and_its_owners_are_kept() {
    let with = each(|children| kept(children, Some(children), false));
    let without = each(|objects| kept(objects, Some(0), false));
    let child = with - without;
    eprintln!("s15: a child with 1,000 bytes of data takes {child} bytes");
    // 10,000 of them take less than 5 MB.
    assert!((1..=500).contains(&child), "{child}");
}

#[test]
fn s15_of_an_object_that_fails_its_place_in_the_queue_and_its_message_are_kept() {
    let failing = each(|objects| kept(objects, None, true)) - each(|objects| kept(objects, None, false));
    eprintln!("s15: that an object fails and waits takes {failing} bytes");
    assert!((1..=500).contains(&failing), "{failing}");
}

#[test]
fn s09_of_what_was_deleted_nothing_is_kept() {
    let (world, objects) = (World::new(0, 0), count());
    let (events, watch) = futures::channel::mpsc::unbounded();
    let tell = |event| events.unbounded_send(Ok(event)).unwrap();
    tell(Event::Init);
    tell(Event::InitDone);
    let running = world.start(Controller::for_events(watch), true);
    let round = || {
        world.runtime.block_on(async {
            (0..objects).for_each(|n| tell(Event::Apply(object(n))));
            tokio::time::sleep(MINUTE).await;
            assert_eq!(running.stats().waiting, objects);
            (0..objects).for_each(|n| tell(Event::Delete(object(n))));
            tokio::time::sleep(MINUTE).await;
            assert_eq!(running.stats().waiting, 0);
        });
    };
    let first = measure(round);
    eprintln!("s09: {} bytes at most, and then {}", first.bytes_max, first.bytes_current);
    // Tables that are empty now, and a few of the places for keys.
    assert!(first.bytes_current < first.bytes_max as i64 / 4, "{first:?}");
    let further = measure(|| (0..5).for_each(|_| round()));
    assert!(further.bytes_current < 8 * objects as i64, "{further:?}");
}

#[test]
fn s15_requests_are_a_list_a_page_a_watch_a_source_and_no_read_of_an_object() {
    let objects = count();
    let world = World::new(objects, objects);
    let controller =
        world.controller().owns(Api::<Secret>::all(world.client.clone()), watcher::Config::default());
    let _running = world.start(controller, false);
    assert_eq!(world.runs.load(SeqCst), objects);
    let asked =
        |verb: &str| (world.server.requests::<ConfigMap>(verb), world.server.requests::<Secret>(verb));
    let pages = objects.div_ceil(500) as u64;
    assert_eq!(asked("list"), (pages, pages));
    assert_eq!(asked("watch"), (1, 1));
    assert_eq!(asked("get"), (0, 0));
    assert_eq!(world.server.writes(), 0);
}
