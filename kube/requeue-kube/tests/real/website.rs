//! The kind that the tests reconcile, and its controller.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::{Client, CustomResource, CustomResourceExt, Resource, ResourceExt};
use requeue_kube::finalizer::{self, Event, finalizer};
use requeue_kube::{Action, Current};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "trial.dev", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WebsiteSpec {
    pub(crate) html: String,
    pub(crate) stamp: i64,
    /// "" is fine; "fail" fails; "fail-status" fails after it wrote its status; "panic"; "hang".
    pub(crate) mode: String,
    pub(crate) sleep_ms: u64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default)]
pub(crate) struct WebsiteStatus {
    pub(crate) stamp: i64,
    pub(crate) failures: i64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("kube: {0}")]
    Kube(#[from] kube::Error),
    #[error("this site is poison")]
    Poison,
}

pub(crate) const FINALIZER: &str = "trial.dev/cleanup";

/// One run of a reconciler.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) name: String,
    pub(crate) stamp: i64,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) well: bool,
    pub(crate) causes: String,
    pub(crate) attempt: u32,
}

pub(crate) struct Ctx {
    pub(crate) client: Client,
    pub(crate) runs: Mutex<Vec<Ran>>,
    pub(crate) with_finalizer: bool,
    /// Children and statuses written, and finalizers added.
    pub(crate) writes: AtomicUsize,
}

impl Ctx {
    pub(crate) fn new(client: Client, with_finalizer: bool) -> Arc<Self> {
        Arc::new(Self { client, runs: Mutex::default(), with_finalizer, writes: AtomicUsize::new(0) })
    }

    pub(crate) fn runs_of(&self, name: &str) -> Vec<Ran> {
        self.runs.lock().unwrap().iter().filter(|run| run.name == name).cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.runs.lock().unwrap().len()
    }
}

pub(crate) async fn reconcile(site: Arc<Website>, cx: Arc<Ctx>) -> Result<Action, finalizer::Error<Error>> {
    let (began, name, stamp) = (Instant::now(), site.name_any(), site.spec.stamp);
    let api = Api::<Website>::namespaced(cx.client.clone(), &site.namespace().unwrap());
    let result = if cx.with_finalizer {
        if site.finalizers().is_empty() {
            cx.writes.fetch_add(1, SeqCst);
        }
        let cx = &cx;
        finalizer(&api, FINALIZER, site, |event| async move {
            match event {
                Event::Apply(site) => apply(&site, cx).await?,
                Event::Cleanup(site) => cleanup(&site, cx).await?,
            }
            Ok(Action::await_change())
        })
        .await
    } else {
        let applied = apply(&site, &cx).await;
        applied.map(|()| Action::await_change()).map_err(finalizer::Error::ApplyFailed)
    };
    let current = Current::get().unwrap();
    cx.runs.lock().unwrap().push(Ran {
        name,
        stamp,
        began,
        ended: Instant::now(),
        well: result.is_ok(),
        causes: current.causes().to_string(),
        attempt: current.attempt(),
    });
    result
}

async fn apply(site: &Website, cx: &Ctx) -> Result<(), Error> {
    let ns = site.namespace().unwrap();
    let sites = Api::<Website>::namespaced(cx.client.clone(), &ns);
    match site.spec.mode.as_str() {
        "fail" => return Err(Error::Poison),
        "fail-status" => {
            let failures = site.status.as_ref().map_or(0, |status| status.failures) + 1;
            let patch = json!({"status": {"failures": failures}});
            sites.patch_status(&site.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
            return Err(Error::Poison);
        }
        "panic" => panic!("a reconciler panics"),
        "hang" => std::future::pending::<()>().await,
        _ => {}
    }
    tokio::time::sleep(Duration::from_millis(site.spec.sleep_ms)).await;
    let child = ConfigMap {
        metadata: ObjectMeta {
            name: Some(format!("{}-html", site.name_any())),
            namespace: Some(ns.clone()),
            owner_references: Some(vec![site.controller_owner_ref(&()).unwrap()]),
            ..ObjectMeta::default()
        },
        data: Some([("index.html".to_string(), site.spec.html.clone())].into()),
        ..ConfigMap::default()
    };
    let children = Api::<ConfigMap>::namespaced(cx.client.clone(), &ns);
    let name = child.metadata.name.as_deref().unwrap();
    let written = children.patch(name, &PatchParams::apply("website").force(), &Patch::Apply(&child)).await?;
    Current::saw_if_any(&written);
    cx.writes.fetch_add(1, SeqCst);
    let status = WebsiteStatus { stamp: site.spec.stamp, failures: 0 };
    if site.status.as_ref() != Some(&status) {
        let patch = json!({ "status": status });
        let written =
            sites.patch_status(&site.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Current::wrote_if_any(&written);
        cx.writes.fetch_add(1, SeqCst);
    }
    Ok(())
}

async fn cleanup(site: &Website, cx: &Ctx) -> Result<(), Error> {
    let children = Api::<ConfigMap>::namespaced(cx.client.clone(), &site.namespace().unwrap());
    match children.delete(&format!("{}-html", site.name_any()), &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Makes the kind known to the API server, and a namespace.
pub(crate) async fn install(client: &Client, namespace: &str) -> Api<Website> {
    use k8s_openapi::api::core::v1::Namespace;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let apply = PatchParams::apply("tests").force();
    let crds = Api::<CustomResourceDefinition>::all(client.clone());
    crds.patch("websites.trial.dev", &apply, &Patch::Apply(Website::crd())).await.unwrap();
    let established = kube::runtime::conditions::is_crd_established();
    kube::runtime::wait::await_condition(crds, "websites.trial.dev", established).await.unwrap();
    let namespaces = Api::<Namespace>::all(client.clone());
    let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    namespaces.patch(namespace, &apply, &Patch::Apply(made)).await.unwrap();
    Api::namespaced(client.clone(), namespace)
}

pub(crate) fn site(name: &str, spec: WebsiteSpec) -> Website {
    Website::new(name, spec)
}
