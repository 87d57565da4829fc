//! Owners without a namespace, of children that have one.

use crate::website::until;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use requeue_kube::prometheus_client::encoding::text::encode;
use requeue_kube::prometheus_client::registry::Registry;
use requeue_kube::{Action, Controller, Current, Metrics, fake};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The runs: the key, and whether it has ended.
struct Ctx {
    client: Client,
    runs: Mutex<Vec<(String, bool)>>,
}

async fn reconcile(namespace: Arc<Namespace>, cx: Arc<Ctx>) -> Result<Action, kube::Error> {
    let nth = {
        let mut runs = cx.runs.lock().unwrap();
        runs.push((Current::get().unwrap().key().to_string(), false));
        runs.len() - 1
    };
    let child = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "child", "ownerReferences": [namespace.controller_owner_ref(&()).unwrap()]},
    });
    let maps = Api::<ConfigMap>::namespaced(cx.client.clone(), &namespace.name_any());
    let written = maps.patch("child", &PatchParams::apply("test").force(), &Patch::Apply(child)).await?;
    Current::saw_if_any(&written);
    tokio::time::sleep(Duration::from_secs(1)).await;
    cx.runs.lock().unwrap()[nth].1 = true;
    Ok(Action::await_change())
}

#[tokio::test(start_paused = true)]
async fn k1_an_owner_without_a_namespace_has_one_key_and_one_run_at_a_time() {
    let server = fake::Server::new().with::<Namespace>().with::<ConfigMap>();
    let cx = Arc::new(Ctx { client: server.client(), runs: Mutex::default() });
    let controller = Controller::new(Api::<Namespace>::all(server.client()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(server.client()), watcher::Config::default());
    let running = controller.start(reconcile, |_, _, _| Action::backoff(), cx.clone()).unwrap();
    until(|| running.health().synced).await;
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    server.apply(&namespace).unwrap();
    server.settled(Duration::from_secs(5)).await;
    // The echo of the child is no reason to run.
    assert_eq!(*cx.runs.lock().unwrap(), [("n".to_owned(), true)]);
    server.delete::<ConfigMap>("n", "child").unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.delete::<ConfigMap>("n", "child").unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    // A run goes on, and the next one waits for its end.
    let ended = |(_, ended): &&(String, bool)| *ended;
    assert_eq!(cx.runs.lock().unwrap().iter().filter(ended).count(), 1);
    assert_eq!(cx.runs.lock().unwrap().len(), 2);
    server.settled(Duration::from_secs(5)).await;
    assert_eq!(*cx.runs.lock().unwrap(), vec![("n".to_owned(), true); 3]);
    assert!(server.get::<ConfigMap>("n", "child").is_ok());
}

#[tokio::test(start_paused = true)]
async fn k1_a_reference_that_says_a_namespace_finds_the_object_that_has_none() {
    let server = fake::Server::new().with::<Namespace>().with::<ConfigMap>();
    let cx = Arc::new(Ctx { client: server.client(), runs: Mutex::default() });
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    server.apply(&namespace).unwrap();
    let (ask, asked) = futures::channel::mpsc::unbounded();
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let _running = Controller::new(Api::<Namespace>::all(server.client()), watcher::Config::default())
        .reconcile_on(asked)
        .metrics(&metrics)
        .start(reconcile, |_, _, _| Action::backoff(), cx.clone())
        .unwrap();
    let begun = || cx.runs.lock().unwrap().len();
    until(|| begun() == 1).await;
    ask.unbounded_send(ObjectRef::new("n").within("n")).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(begun(), 1); // it waits for the run that goes on
    until(|| begun() == 2).await;
    server.settled(Duration::from_secs(5)).await;
    assert_eq!(*cx.runs.lock().unwrap(), vec![("n".to_owned(), true); 2]);
    // The key that led to it was one of the queue, and no run of the reconciler.
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for series in [
        "controller_runtime_reconcile_total{controller=\"namespace\",result=\"success\"} 2",
        "controller_runtime_reconcile_time_seconds_count{controller=\"namespace\"} 2",
        "requeue_runs_total{name=\"namespace\",controller=\"namespace\",outcome=\"done\"} 3",
    ] {
        assert!(text.lines().any(|line| line == series), "no {series} in\n{text}");
    }
}
