//! The part that the controllers share: the kind, the body of the reconciliation, and a record of the runs.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::{Client, CustomResource, Resource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// The desired state: a page, and the behaviour of the reconciliation.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "trial.dev", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
#[serde(rename_all = "camelCase", default)]
pub struct WebsiteSpec {
    /// The page.
    pub html: String,
    /// Time when the driver wrote this, in microseconds since 1970.
    pub stamp: i64,
    /// "" is fine; "fail" fails; "fail-status" fails after it wrote its status.
    pub mode: String,
    /// Time that the reconciliation takes in addition to its requests.
    pub sleep_ms: u64,
}

/// The observed state, written by a reconciliation.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default)]
pub struct WebsiteStatus {
    /// The stamp that was seen.
    pub stamp: i64,
    /// Number of failures.
    pub failures: i64,
}

/// Why a reconciliation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server returned an error.
    #[error("kube: {0}")]
    Kube(#[from] kube::Error),
    /// The object is made to fail.
    #[error("this site is poison")]
    Poison,
}

/// The finalizer of all controllers.
pub const FINALIZER: &str = "trial.dev/cleanup";

/// Microseconds since 1970.
#[must_use]
pub fn now_us() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// A variable of the environment.
#[must_use]
pub fn env<T: std::str::FromStr>(name: &str, otherwise: T) -> T {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// A client of the API server at `KAPI`.
///
/// # Panics
///
/// If `KAPI` is no address.
#[must_use]
pub fn client() -> Client {
    let mut config = kube::Config::new(env("KAPI", String::new()).parse().expect("KAPI"));
    config.accept_invalid_certs = true;
    config.auth_info.token = Some(env("TOKEN", String::new()).into());
    // Both controllers in Rust come back to what failed by themselves.
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

/// The context of a reconciliation.
#[derive(Debug)]
pub struct Ctx {
    /// The API server.
    pub client: Shown,
    runs: Mutex<Vec<String>>,
}

/// A client that has a `Debug`.
#[derive(Clone)]
pub struct Shown(pub Client);

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Ctx {
    /// A context with an empty record.
    #[must_use]
    pub fn new(client: Client) -> Arc<Self> {
        Arc::new(Self { client: Shown(client), runs: Mutex::default() })
    }

    /// Records a run that has ended.
    ///
    /// # Panics
    ///
    /// If another thread panicked meanwhile.
    pub fn note(&self, began: i64, name: &str, stamp: i64, well: bool) {
        let end = if well { "ok" } else { "err" };
        self.runs.lock().unwrap().push(format!("{began},{name},{stamp},{end},{}", now_us()));
    }

    /// Writes the record to the file `REC`.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn dump(&self) {
        let mut text = String::from("began,name,stamp,end,ended\n");
        self.runs.lock().unwrap().iter().for_each(|run| writeln!(text, "{run}").unwrap());
        std::fs::write(env("REC", String::from("/dev/null")), text).unwrap();
    }
}

/// The body: the child by server-side apply, then the status if it differs.
///
/// # Errors
///
/// Errors of the API server, and [`Error::Poison`].
pub async fn apply(site: &Website, cx: &Ctx) -> Result<Vec<Written>, Error> {
    let ns = site.namespace().unwrap_or_default();
    let sites = Api::<Website>::namespaced(cx.client.0.clone(), &ns);
    match site.spec.mode.as_str() {
        "fail" => return Err(Error::Poison),
        "fail-status" => {
            let failures = site.status.as_ref().map_or(0, |status| status.failures) + 1;
            let patch = json!({"status": {"failures": failures}});
            sites.patch_status(&site.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
            return Err(Error::Poison);
        }
        _ => {}
    }
    if site.spec.sleep_ms > 0 {
        tokio::time::sleep(Duration::from_millis(site.spec.sleep_ms)).await;
    }
    let name = format!("{}-html", site.name_any());
    let child = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(ns.clone()),
            owner_references: site.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some([("index.html".to_string(), site.spec.html.clone())].into()),
        ..ConfigMap::default()
    };
    let children = Api::<ConfigMap>::namespaced(cx.client.0.clone(), &ns);
    let child = children.patch(&name, &PatchParams::apply("website").force(), &Patch::Apply(&child)).await?;
    let mut written = vec![Written::Child(Box::new(child))];
    let status = WebsiteStatus { stamp: site.spec.stamp, failures: 0 };
    if site.status.as_ref() != Some(&status) {
        let patch = json!({ "status": status });
        let site =
            sites.patch_status(&site.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        written.push(Written::Site(Box::new(site)));
    }
    Ok(written)
}

/// An object that a reconciliation wrote.
#[derive(Debug)]
pub enum Written {
    /// The child.
    Child(Box<ConfigMap>),
    /// The status.
    Site(Box<Website>),
}

/// Simulates a clean-up outside of the cluster.
///
/// # Errors
///
/// The API server's error.
pub async fn cleanup(site: &Website, cx: &Ctx) -> Result<(), Error> {
    let children = Api::<ConfigMap>::namespaced(cx.client.0.clone(), &site.namespace().unwrap_or_default());
    match children.delete(&format!("{}-html", site.name_any()), &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Waits for SIGTERM or Ctrl-C.
///
/// # Panics
///
/// If no signal handler can be installed.
pub async fn signalled() {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).expect("a handler");
    tokio::select! {
        _ = term.recv() => (),
        _ = tokio::signal::ctrl_c() => (),
    }
}
