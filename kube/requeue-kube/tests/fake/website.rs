//! The kind that the tests reconcile, its controller, and its records.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Client, CustomResource, Resource, ResourceExt};
use requeue_kube::finalizer::{self, Event, finalizer};
use requeue_kube::{Action, Config, Controller, Current, Running, fake};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "trial.dev", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WebsiteSpec {
    pub(crate) stamp: i64,
    /// "" is fine; "fail" fails; "fail-status" fails after it wrote its status; "panic"; "hang".
    pub(crate) mode: String,
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

const FINALIZER: &str = "trial.dev/cleanup";

/// One run of a reconciler.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) name: String,
    pub(crate) stamp: i64,
    pub(crate) began: Instant,
    pub(crate) attempt: u32,
    pub(crate) well: bool,
}

pub(crate) struct Ctx {
    client: Client,
    runs: Mutex<Vec<Ran>>,
}

impl Ctx {
    pub(crate) fn runs_of(&self, name: &str) -> Vec<Ran> {
        self.runs.lock().unwrap().iter().filter(|run| run.name == name).cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.runs.lock().unwrap().len()
    }

    /// Names of the objects that ran after the first `count` runs.
    pub(crate) fn names_since(&self, count: usize) -> Vec<String> {
        self.runs.lock().unwrap()[count..].iter().map(|run| run.name.clone()).collect()
    }
}

/// A server with its controller.
pub(crate) struct World {
    pub(crate) server: fake::Server,
    pub(crate) cx: Arc<Ctx>,
}

impl World {
    pub(crate) fn new() -> Self {
        let server = fake::Server::new().with::<Website>().with::<ConfigMap>();
        let cx = Arc::new(Ctx { client: server.client(), runs: Mutex::default() });
        Self { server, cx }
    }

    pub(crate) fn controller(&self) -> Controller<Website> {
        let client = self.server.client();
        Controller::new(Api::all(client.clone()), watcher::Config::default())
            .owns(Api::<ConfigMap>::all(client), watcher::Config::default())
    }

    /// Starts the controller, and waits until it has its lists.
    pub(crate) async fn start(&self, config: Config) -> Running<Website> {
        let controller = self.controller().with_config(config.jitter(0.0));
        let running = controller.start(reconcile, |_, _, _| Action::backoff(), self.cx.clone()).unwrap();
        until(|| running.health().synced).await;
        running
    }

    pub(crate) fn apply(&self, name: &str, mode: &str, stamp: i64) -> Website {
        self.server.apply(&site(name, mode, stamp)).unwrap()
    }

    pub(crate) fn sites(&self) -> Api<Website> {
        Api::default_namespaced(self.cx.client.clone())
    }
}

pub(crate) fn site(name: &str, mode: &str, stamp: i64) -> Website {
    Website::new(name, WebsiteSpec { stamp, mode: mode.into() })
}

pub(crate) fn site_ref(name: &str) -> ObjectRef<Website> {
    ObjectRef::new(name).within("default")
}

/// Waits until `holds` is true, at most a minute, and returns how long that took.
pub(crate) async fn until(holds: impl Fn() -> bool) -> Duration {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not come");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    begin.elapsed()
}

pub(crate) async fn reconcile(site: Arc<Website>, cx: Arc<Ctx>) -> Result<Action, finalizer::Error<Error>> {
    let current = Current::get().unwrap();
    let nth = {
        let mut runs = cx.runs.lock().unwrap();
        let (name, stamp) = (site.name_any(), site.spec.stamp);
        runs.push(Ran { name, stamp, began: Instant::now(), attempt: current.attempt(), well: false });
        runs.len() - 1
    };
    // On paused time a controller that runs in a circle would do so for ever.
    assert!(nth < 5_000, "the controller runs in a circle");
    let api = Api::<Website>::namespaced(cx.client.clone(), &site.namespace().unwrap());
    let answer = finalizer(&api, FINALIZER, site, |event| async {
        match event {
            Event::Apply(site) => apply(&site, &cx).await?,
            Event::Cleanup(site) => cleanup(&site, &cx).await?,
        }
        Ok(Action::await_change())
    })
    .await;
    cx.runs.lock().unwrap()[nth].well = answer.is_ok();
    answer
}

async fn apply(site: &Website, cx: &Ctx) -> Result<(), Error> {
    let namespace = site.namespace().unwrap();
    let sites = Api::<Website>::namespaced(cx.client.clone(), &namespace);
    match site.spec.mode.as_str() {
        "fail" => return Err(Error::Poison),
        "fail-status" => {
            let failures = site.status.as_ref().map_or(0, |status| status.failures) + 1;
            let patch = json!({"status": {"failures": failures}});
            // It does not say that it wrote this: the echo comes.
            sites.patch_status(&site.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
            return Err(Error::Poison);
        }
        "panic" => panic!("a reconciler panics"),
        "hang" => std::future::pending::<()>().await,
        _ => {}
    }
    let child = ConfigMap {
        metadata: ObjectMeta {
            name: Some(format!("{}-html", site.name_any())),
            owner_references: Some(vec![site.controller_owner_ref(&()).unwrap()]),
            ..ObjectMeta::default()
        },
        data: Some([("stamp".to_string(), site.spec.stamp.to_string())].into()),
        ..ConfigMap::default()
    };
    let children = Api::<ConfigMap>::namespaced(cx.client.clone(), &namespace);
    let name = child.metadata.name.as_deref().unwrap();
    let written = children.patch(name, &PatchParams::apply("website").force(), &Patch::Apply(&child)).await?;
    Current::saw_if_any(&written);
    let status = WebsiteStatus { stamp: site.spec.stamp, failures: 0 };
    if site.status.as_ref() != Some(&status) {
        let patch = json!({ "status": status });
        let written =
            sites.patch_status(&site.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Current::wrote_if_any(&written);
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
