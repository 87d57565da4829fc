//! Tests of the metrics, on paused time and without an API server.

use futures::stream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use kube::runtime::watcher::Event;
use requeue_kube::prometheus_client::encoding::text::encode;
use requeue_kube::prometheus_client::registry::Registry;
use requeue_kube::{Action, Config, Controller, Metrics};
use std::sync::Arc;
use std::time::Duration;

async fn reconcile(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, std::io::Error> {
    match map.name_any().as_str() {
        "error" | "final" => Err(std::io::Error::other("an error")),
        "panic" => panic!("a panic"),
        "slow" => std::future::pending().await,
        "again" => Ok(Action::requeue(Duration::from_secs(3600))),
        "back-off" => Ok(Action::backoff()),
        _ => Ok(Action::await_change()),
    }
}

fn map(name: &str) -> ConfigMap {
    let metadata =
        ObjectMeta { name: Some(name.into()), namespace: Some("n".into()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

#[tokio::test(start_paused = true)]
async fn each_end_of_a_run_is_counted_under_controller_runtimes_name() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let names = ["fine", "error", "final", "panic", "slow", "again", "back-off"];
    let events = names.map(|name| Event::InitApply(map(name)));
    let events = [Event::Init].into_iter().chain(events).chain([Event::InitDone]).map(Ok);
    let hour = Duration::from_secs(3600);
    let running = Controller::<ConfigMap>::for_events(stream::iter(events))
        .name("maps")
        .metrics(&metrics)
        .with_config(Config::default().time_limit(Duration::from_secs(10)).backoff(hour, hour).concurrency(7))
        .start(
            reconcile,
            |map, _, _| if map.name_any() == "final" { Action::give_up() } else { Action::backoff() },
            Arc::new(()),
        )
        .unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let text = || {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    };
    let has = |line: &str| assert!(text().lines().any(|it| it == line), "no {line} in\n{}", text());
    has("controller_runtime_active_workers{controller=\"maps\"} 1");
    tokio::time::sleep(Duration::from_secs(60)).await;
    has("controller_runtime_active_workers{controller=\"maps\"} 0");
    has("controller_runtime_max_concurrent_reconciles{controller=\"maps\"} 7");
    has("controller_runtime_reconcile_total{controller=\"maps\",result=\"success\"} 1");
    has("controller_runtime_reconcile_total{controller=\"maps\",result=\"requeue_after\"} 1");
    has("controller_runtime_reconcile_total{controller=\"maps\",result=\"requeue\"} 1");
    has("controller_runtime_reconcile_total{controller=\"maps\",result=\"error\"} 4");
    has("controller_runtime_reconcile_errors_total{controller=\"maps\"} 4");
    has("controller_runtime_terminal_reconcile_errors_total{controller=\"maps\"} 1");
    has("controller_runtime_reconcile_panics_total{controller=\"maps\"} 1");
    has("controller_runtime_reconcile_timeouts_total{controller=\"maps\"} 1");
    has("controller_runtime_reconcile_time_seconds_count{controller=\"maps\"} 7");
    has("workqueue_depth{name=\"maps\",controller=\"maps\",priority=\"0\"} 0");
    has("workqueue_retries_total{name=\"maps\",controller=\"maps\"} 5");
    has("requeue_waiting_keys{name=\"maps\",controller=\"maps\"} 5");
    running.resize(3).unwrap();
    has("controller_runtime_max_concurrent_reconciles{controller=\"maps\"} 3");
    running.drain(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn two_controllers_of_one_name_are_told_so() {
    let metrics = Metrics::register(&mut Registry::default());
    let start = || {
        Controller::<ConfigMap>::for_events(stream::pending()).metrics(&metrics).start(
            reconcile,
            |_, _, _| Action::backoff(),
            Arc::new(()),
        )
    };
    let _first = start().unwrap();
    let error = start().unwrap_err().to_string();
    assert!(error.contains("configmap"), "{error}");
}
