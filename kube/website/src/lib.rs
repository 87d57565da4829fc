//! An example operator ready to deploy: each `Website` has a ConfigMap with its page and a Service that leads
//! to its server.
//!
//! [`crd`] is the kind, [`reconcile`] brings the world to the state that an object asks for, and [`http`]
//! answers the probes, the scrape and the question why an object does not run. The manifests are in the
//! folder `deploy`.

pub mod crd;
pub mod http;
pub mod reconcile;

pub use self::crd::Website;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::Api;
use kube::runtime::watcher;
use kube::{Client, CustomResourceExt};
use requeue_kube::lease::{Elector, ElectorError};
use requeue_kube::{Config, Controller, Metrics, Running, StartError, by_namespace};
use std::sync::Arc;
use std::time::Duration;

/// Time that current runs have to end after SIGTERM.
pub const GRACE: Duration = Duration::from_secs(25);
/// Maximum time to give the lease away after that. The pod's `terminationGracePeriodSeconds` is longer than
/// both.
pub const RELEASE: Duration = Duration::from_secs(10);

/// Starts a candidate for the lease `website` in the client's namespace, with the pod's name.
///
/// The client must not be [fenced](requeue_kube::lease::client_layer): a process that does not lead yet
/// writes the lease.
///
/// # Errors
///
/// If the name of the pod is empty.
pub fn elect(client: &Client, metrics: &Metrics, pod: &str) -> Result<Elector, ElectorError> {
    Elector::builder(client, "website").identity(pod).renew_deadline(RELEASE).metrics(metrics).start()
}

/// Starts the controller. It reconciles while this process leads.
///
/// # Errors
///
/// If another controller of these metrics has its name.
pub fn start(client: Client, metrics: &Metrics, elector: &Elector) -> Result<Running<Website>, StartError> {
    let config = Config::default().concurrency(16).time_limit(Duration::from_secs(30)).grace(GRACE);
    Controller::new(Api::<Website>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Service>::all(client.clone()), watcher::Config::default())
        .name("website")
        .metrics(metrics)
        .leader(elector)
        .group_by(by_namespace)
        .with_config(config)
        .start(reconcile::reconcile, reconcile::after_error, Arc::new(reconcile::Ctx { client }))
}

/// The definition of the kind, for `kubectl apply`.
///
/// # Errors
///
/// If it can't be written as YAML.
pub fn crd_yaml() -> Result<String, serde_saphyr::ser::Error> {
    Ok(format!("# Made by `website crd`.\n{}", serde_saphyr::to_string(&Website::crd())?))
}
