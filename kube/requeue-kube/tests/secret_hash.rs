//! The example `secret_hash.rs`, on the fake API server.

#[allow(dead_code, reason = "its `main` wants a cluster")]
#[path = "../examples/secret_hash.rs"]
mod example;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use requeue_kube::fake::Server;
use serde_json::json;
use std::time::Duration;

/// A Deployment that names this Secret, or none.
fn app(secret: Option<&str>) -> Deployment {
    let annotations = secret.map(|name| json!({"example.dev/hash-of": name}));
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "template": template});
    let metadata = json!({"name": "web", "namespace": "shop", "annotations": annotations});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn secret(password: &str) -> Secret {
    let value = json!({"metadata": {"name": "db", "namespace": "shop"}, "data": {"password": password}});
    serde_json::from_value(value).unwrap()
}

/// The hash in the auditors' namespace, when the controller has finished.
async fn hash(server: &Server) -> Option<String> {
    server.settled(Duration::from_secs(60)).await;
    server.get::<ConfigMap>("audit", "shop.web").ok()?.data?.remove("sha256")
}

#[tokio::test(start_paused = true)]
async fn a_controller_of_less_than_fifty_lines_of_code_follows_secret_annotation_and_deployment() {
    let example = include_str!("../examples/secret_hash.rs");
    assert!(example.lines().filter(|line| !line.is_empty() && !line.starts_with("//")).count() < 50);
    let server = Server::new().with::<Deployment>().with::<Secret>().with::<ConfigMap>();
    server.apply(&app(None)).unwrap();
    let _running = example::start(server.client()).unwrap();
    assert_eq!(hash(&server).await, None);
    assert_eq!(server.writes(), 0, "a Deployment that asks for nothing gets no finalizer");

    server.apply(&app(Some("db"))).unwrap();
    assert_eq!(hash(&server).await, None, "there is no such Secret yet");
    server.apply(&secret("YQ==")).unwrap();
    let first = hash(&server).await.unwrap();
    server.apply(&secret("Yg==")).unwrap();
    let second = hash(&server).await.unwrap();
    assert_ne!(first, second);

    server.delete::<ConfigMap>("audit", "shop.web").unwrap();
    assert_eq!(hash(&server).await, Some(second.clone()), "somebody took it: it comes back");
    server.delete::<Secret>("shop", "db").unwrap();
    assert_eq!(hash(&server).await, None);
    server.apply(&secret("Yg==")).unwrap();
    assert_eq!(hash(&server).await, Some(second.clone()));
    server.apply(&app(Some("other"))).unwrap();
    assert_eq!(hash(&server).await, None);
    server.apply(&app(Some("db"))).unwrap();
    assert_eq!(hash(&server).await, Some(second));

    server.delete::<Deployment>("shop", "web").unwrap();
    assert_eq!(hash(&server).await, None);
    assert!(server.get::<Deployment>("shop", "web").is_err(), "the finalizer is gone");
}

/// When the Secret was listed it had no users. Its deletion concerns its present users.
#[tokio::test(start_paused = true)]
async fn a_secret_that_is_deleted_tells_who_uses_it_now() {
    let server = Server::new().with::<Deployment>().with::<Secret>().with::<ConfigMap>();
    server.apply(&secret("YQ==")).unwrap();
    let _running = example::start(server.client()).unwrap();
    assert_eq!(hash(&server).await, None);
    server.apply(&app(Some("db"))).unwrap();
    assert!(hash(&server).await.is_some());
    server.delete::<Secret>("shop", "db").unwrap();
    assert_eq!(hash(&server).await, None);
}
