//! The example that was written from the documentation alone, on the fake API server.

#[allow(dead_code, unused_imports, reason = "its `main` wants a cluster")]
#[path = "../examples/fifty.rs"]
mod fifty;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::runtime::watcher;
use requeue_kube::{Action, Controller, fake};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_controller_of_less_than_fifty_lines_does_its_work() {
    assert!(include_str!("../examples/fifty.rs").lines().count() < 50);
    let server = fake::Server::new().with::<Namespace>().with::<NetworkPolicy>();
    let client = server.client();
    let _running = Controller::new(Api::<Namespace>::all(client.clone()), watcher::Config::default())
        .owns(Api::<NetworkPolicy>::all(client.clone()), watcher::Config::default())
        .start(fifty::reconcile, |_, _, _| Action::backoff(), Arc::new(client))
        .unwrap();
    let label = |name: &str, value: &str| {
        let namespace = json!({"metadata": {"name": name, "labels": {"isolate": value}}});
        server.apply(&serde_json::from_value::<Namespace>(namespace).unwrap()).unwrap();
    };
    let policies = async || {
        server.settled(Duration::from_secs(5)).await;
        let all = server.all::<NetworkPolicy>();
        all.into_iter().filter_map(|policy| policy.metadata.namespace).collect::<Vec<_>>()
    };
    for (name, value) in [("a", "yes"), ("b", "no"), ("c", "yes")] {
        label(name, value);
    }
    assert_eq!(policies().await, ["a", "c"]);
    // Somebody takes one: it comes back.
    server.delete::<NetworkPolicy>("c", "isolate").unwrap();
    assert_eq!(policies().await, ["a", "c"]);
    label("a", "no");
    assert_eq!(policies().await, ["c"]);
}
