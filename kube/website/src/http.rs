//! The operator's HTTP routes.
//!
//! | | |
//! |---|---|
//! | `/metrics` | for Prometheus |
//! | `/healthz` | 200 until the controller has ended: also while it drains |
//! | `/readyz` | 200 when runs may begin, and until the end: also while another replica leads. It names what can't be listed |
//! | `/explain/NAMESPACE/NAME` | why this website does not run, or since when it does, in words |

use crate::Website;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use kube::runtime::reflector::ObjectRef;
use requeue_kube::Running;
use requeue_kube::prometheus_client::encoding::text::encode;
use requeue_kube::prometheus_client::registry::Registry;
use std::sync::Arc;

/// The content type of prometheus-client's output; Prometheus would misread it as plain text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

struct App {
    registry: Registry,
    sites: Running<Website>,
}

/// The routes of the table above.
pub fn routes(registry: Registry, sites: Running<Website>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/explain/{namespace}/{name}", get(explain))
        .with_state(Arc::new(App { registry, sites }))
}

async fn metrics(State(app): State<Arc<App>>) -> Result<impl IntoResponse, StatusCode> {
    let mut text = String::new();
    encode(&mut text, &app.registry).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text))
}

async fn healthz(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    if app.sites.health().ended {
        (StatusCode::SERVICE_UNAVAILABLE, "ended\n")
    } else {
        (StatusCode::OK, "ok\n")
    }
}

async fn readyz(State(app): State<Arc<App>>) -> (StatusCode, String) {
    let health = app.sites.health();
    let mut error = health.watch_error.map(|error| format!("; a watch failed: {error}")).unwrap_or_default();
    if !health.unlisted.is_empty() {
        error = format!("; not listed: {}{error}", health.unlisted.join(", "));
    }
    match (health.synced, health.ended) {
        (_, true) => (StatusCode::SERVICE_UNAVAILABLE, "ended\n".to_owned()),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, format!("waits for the first lists{error}\n")),
        // A watch that failed begins again by itself, and the rest goes on.
        (true, false) => {
            let role = if health.is_leader { "leads" } else { "stands by" };
            (StatusCode::OK, format!("ok, {role}{error}\n"))
        }
    }
}

async fn explain(State(app): State<Arc<App>>, Path((namespace, name)): Path<(String, String)>) -> String {
    let told = app.sites.explain(&ObjectRef::new(&name).within(&namespace));
    // The Service leads to any of the replicas.
    let who = if app.sites.is_leader() { "" } else { "this replica stands by; ask the one that leads: " };
    format!("{who}{told}\n")
}
