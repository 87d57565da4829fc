//! s15 of the design against the real API server: a controller's requests per object. tests/memory.rs counts
//! the bytes that it keeps, and the table of `kube/bench` has the memory of its process.

use crate::website::{Ctx, Website, WebsiteSpec, reconcile, site};
use crate::{World, size, until};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::client::ClientBuilder;
use kube::runtime::watcher;
use kube::{Api, Client};
use requeue_kube::{Action, Controller, Running};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower::ServiceExt;

/// How often each kind of request was made.
type Asked = Arc<Mutex<BTreeMap<&'static str, usize>>>;

/// Name of a request, by its method and its path.
fn word(request: &http::Request<kube::client::Body>) -> &'static str {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let is_site = path.contains("/websites");
    let is_all = path.ends_with("/websites") || path.ends_with("/configmaps");
    match (request.method().as_str(), is_site) {
        ("GET", true) if query.contains("watch=true") => "watch sites",
        ("GET", false) if query.contains("watch=true") => "watch children",
        ("GET", true) if is_all => "list sites",
        ("GET", false) if is_all => "list children",
        ("PATCH", true) if path.ends_with("/status") => "write status",
        ("PATCH", true) => "write finalizer",
        ("PATCH", false) => "write child",
        _ => "other",
    }
}

fn counted(world: &World, asked: &Asked) -> Client {
    let asked = asked.clone();
    let count = move |request: http::Request<kube::client::Body>| {
        *asked.lock().unwrap().entry(word(&request)).or_default() += 1;
        request
    };
    let config = world.server.as_ref().unwrap().config();
    let layer = tower::layer::layer_fn(move |inner: _| ServiceExt::map_request(inner, count.clone()));
    ClientBuilder::try_from(config).unwrap().with_layer(&layer).build()
}

fn start(world: &World, client: &Client) -> (Running<Website>, Arc<Ctx>) {
    let cx = Ctx::new(client.clone(), true);
    let sites = Api::<Website>::namespaced(client.clone(), &world.namespace);
    let children = Api::<ConfigMap>::namespaced(client.clone(), &world.namespace);
    let running = Controller::new(sites, watcher::Config::default())
        .owns(children, watcher::Config::default())
        .start(reconcile, |_, _, _| Action::backoff(), cx.clone())
        .unwrap();
    (running, cx)
}

#[tokio::test(flavor = "multi_thread")]
async fn s15_requests_for_many_objects() {
    let Some(world) = World::new("s15").await else { return };
    let count = size(10_000, 1000);
    let sites = &world.sites;
    stream::iter(0..count)
        .map(|n| async move {
            let site = site(&format!("s{n}"), WebsiteSpec::default());
            sites.create(&PostParams::default(), &site).await.unwrap();
        })
        .buffer_unordered(16)
        .collect::<()>()
        .await;
    let pages = count.div_ceil(500);
    for (nth, (children, first)) in [(1, count), (pages, 0)].into_iter().enumerate() {
        let asked = Asked::default();
        let (running, cx) = start(&world, &counted(&world, &asked));
        for tenth in 1..=10 {
            until("a tenth of the runs", || cx.count() >= count * tenth / 10).await;
        }
        until("rest", || running.stats().ready + running.stats().held == 0).await;
        tokio::time::sleep(Duration::from_secs(2)).await; // late echoes
        let mut seen = asked.lock().unwrap().clone();
        eprintln!("s15: start {}, {} runs, {seen:?}", nth + 1, cx.count());
        // A watch ends after five minutes, and begins where it was.
        for watch in ["watch sites", "watch children"] {
            assert!((1..=3).contains(&seen.remove(watch).unwrap()), "{watch}");
        }
        // The finalizer and the status are written once. No object is read: those in the store are new enough.
        let due = [
            ("list sites", pages),
            ("list children", children),
            ("write child", count),
            ("write finalizer", first),
            ("write status", first),
        ];
        assert_eq!(seen, due.into_iter().filter(|(_, count)| *count > 0).collect());
        assert_eq!(cx.count(), count);
        running.drain(Duration::from_secs(10)).await;
    }
}
