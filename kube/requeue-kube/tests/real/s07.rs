//! Scenario 7: one watch of two is cut.

use crate::figures::{figure, size, until};
use crate::scenarios::{create, named};
use crate::website::{WebsiteSpec, reconcile};
use crate::{World, server};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use kube::runtime::watcher;
use kube::{Api, Client};
use requeue_kube::{Action, Controller};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A proxy before the API server, which can be cut.
struct Proxy {
    url: String,
    open: watch::Sender<bool>,
    _connections: JoinSet<()>,
}

impl Proxy {
    async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (open, is_open) = watch::channel(true);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut from, _)) = listener.accept().await {
                let (to, mut is_open) = (to.clone(), is_open.clone());
                connections.spawn(async move {
                    if !*is_open.borrow_and_update() {
                        return;
                    }
                    let Ok(mut to) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => (),
                        _ = is_open.changed() => (),
                    }
                });
            }
        });
        Self { url, open, _connections: accepting }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s07_the_watch_of_children_is_cut_and_a_child_that_was_deleted_meanwhile_is_back() {
    let Some(world) = World::new("s07").await else { return };
    let server: &server::Server = world.server.as_ref().unwrap();
    let proxy = Proxy::start(server.url().trim_start_matches("https://").to_string()).await;
    let mut config = server.config();
    config.default_retry = false;
    config.cluster_url = proxy.url.parse().unwrap();
    let children = Api::<ConfigMap>::namespaced(Client::try_from(config).unwrap(), "s07");
    let cx = world.ctx();
    let running = Controller::new(Api::namespaced(world.watching(), "s07"), watcher::Config::default())
        .owns(children, watcher::Config::default())
        .start(reconcile, |_, _, _| Action::backoff(), cx.clone())
        .unwrap();
    let count = size(100, 20);
    create(&world, named("s", count, &WebsiteSpec::default())).await;
    until("each run", || (0..count).all(|n| !cx.runs_of(&format!("s{n}")).is_empty())).await;
    until("rest", || running.stats().ready + running.stats().held == 0).await;
    tokio::time::sleep(Duration::from_millis(300)).await; // late echoes
    let before = cx.count();

    proxy.open.send_replace(false);
    let children = Api::<ConfigMap>::namespaced(world.client.clone(), "s07");
    children.delete("s3-html", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await; // so long it is cut
    assert_eq!(cx.count(), before, "nobody could tell");
    proxy.open.send_replace(true);
    let open = Instant::now();
    until("the run of its owner", || cx.count() > before).await;
    figure("a child deleted while its watch was cut is back", open.elapsed(), Duration::from_secs(2));
    assert!(children.get_opt("s3-html").await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(1)).await; // runs of others would come by now
    assert_eq!(cx.count(), before + 1, "{:?}", cx.runs.lock().unwrap().split_off(before));
    assert_eq!(cx.runs_of("s3").len(), 2);
    running.drain(Duration::from_secs(10)).await;
}
