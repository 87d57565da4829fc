//! The reconciler: a website's children.

use crate::crd::{Website, WebsiteStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt};
use requeue_kube::finalizer::{self, Event, finalizer};
use requeue_kube::{Action, Current};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

const FINALIZER: &str = "example.dev/website";
/// The field manager under which the API server records this operator's writes.
const MANAGER: &str = "website";
/// Maximum size of a page: a ConfigMap takes 1 MiB, names included.
const MOST: usize = 1_000_000;

/// The context of every run.
#[expect(missing_debug_implementations, reason = "a client has none")]
#[derive(Clone)]
pub struct Ctx {
    /// The API server.
    pub client: Client,
}

/// Error of a website's run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused, or did not answer.
    #[error("the API server: {0}")]
    Kube(#[from] kube::Error),
    /// The page is too large for a ConfigMap.
    #[error("the page has {0} bytes; at most {MOST} can be served")]
    TooLarge(usize),
}

impl Error {
    /// The reason of the condition: one word for programs.
    fn reason(&self) -> &'static str {
        match self {
            Self::Kube(_) => "ApiServer",
            Self::TooLarge(_) => "TooLarge",
        }
    }
}

/// The error policy: a website that is too large needs another page, so it gives up; other errors are
/// retried.
#[must_use]
pub fn after_error(_: Arc<Website>, error: &finalizer::Error<Error>, _: Arc<Ctx>) -> Action {
    match error {
        finalizer::Error::ApplyFailed(Error::TooLarge(_)) => Action::give_up(),
        _ => Action::backoff(),
    }
}

/// One run.
///
/// # Errors
///
/// [`Error`]; [`after_error`] decides what happens next.
pub async fn reconcile(site: Arc<Website>, cx: Arc<Ctx>) -> Result<Action, finalizer::Error<Error>> {
    let sites: Api<Website> = api(&site, &cx);
    finalizer(&sites, FINALIZER, site, |event| async {
        match event {
            Event::Apply(site) => {
                let made = make(&site, &cx).await;
                // The status tells of a failure too.
                let told = tell(&site, &sites, made.as_ref().err()).await;
                made.and(told)?;
            }
            Event::Cleanup(site) => clean_up(&site, &cx).await?,
        }
        Ok(Action::await_change())
    })
    .await
}

/// The API of a kind in the website's namespace.
fn api<K>(site: &Website, cx: &Ctx) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(cx.client.clone(), &site.namespace().unwrap_or_default())
}

async fn make(site: &Website, cx: &Ctx) -> Result<(), Error> {
    let bytes = site.spec.html.len();
    if bytes > MOST {
        return Err(Error::TooLarge(bytes));
    }
    let page = ConfigMap {
        metadata: child(site),
        data: Some([("index.html".to_owned(), site.spec.html.clone())].into()),
        ..ConfigMap::default()
    };
    apply(&api(site, cx), &page).await?;
    let port = ServicePort {
        name: Some("http".to_owned()),
        port: site.spec.port,
        target_port: Some(IntOrString::String("http".to_owned())),
        ..ServicePort::default()
    };
    let service = Service {
        metadata: child(site),
        spec: Some(ServiceSpec {
            selector: Some(labels(site)),
            ports: Some(vec![port]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    };
    apply(&api(site, cx), &service).await
}

fn labels(site: &Website) -> BTreeMap<String, String> {
    [("app.kubernetes.io/name", "website".to_owned()), ("app.kubernetes.io/instance", site.name_any())]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// Metadata of a child: it has the website's name, and is deleted with it.
fn child(site: &Website) -> ObjectMeta {
    ObjectMeta {
        name: Some(site.name_any()),
        labels: Some(labels(site)),
        owner_references: Some(site.controller_owner_ref(&()).into_iter().collect()),
        ..ObjectMeta::default()
    }
}

/// Applies this operator's fields of a child. Fields that other managers set stay.
async fn apply<K>(api: &Api<K>, child: &K) -> Result<(), Error>
where
    K: Resource + Clone + Serialize + DeserializeOwned + Debug,
{
    let how = PatchParams::apply(MANAGER).force();
    let written = api.patch(&child.name_any(), &how, &Patch::Apply(child)).await?;
    // The child is as the website wants it, so its event is no reason to run again.
    Current::saw_if_any(&written);
    Ok(())
}

/// Writes the status, if it differs.
async fn tell(site: &Website, sites: &Api<Website>, error: Option<&Error>) -> Result<(), Error> {
    let status = status(site, error);
    if site.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let patch = json!({ "status": status });
    let written =
        sites.patch_status(&site.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Current::wrote_if_any(&written);
    Ok(())
}

fn status(site: &Website, error: Option<&Error>) -> WebsiteStatus {
    let (status, reason, message) = match error {
        None => ("True", "Applied", String::new()),
        Some(error) => ("False", error.reason(), error.to_string()),
    };
    let before = site.status.iter().flat_map(|status| &status.conditions).find(|it| it.type_ == "Ready");
    let since =
        before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
    let ready = Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: since.unwrap_or_else(|| Time(Timestamp::now())),
        observed_generation: site.metadata.generation,
    };
    WebsiteStatus { observed_generation: site.metadata.generation, conditions: vec![ready] }
}

/// Deletes the children before the website is removed, so that no request reaches the page of a deleted one.
/// (The garbage collector would also delete them, later. A real operator removes things outside of Kubernetes
/// here.)
async fn clean_up(site: &Website, cx: &Ctx) -> Result<(), Error> {
    delete(&api::<Service>(site, cx), site).await?;
    delete(&api::<ConfigMap>(site, cx), site).await
}

async fn delete<K>(api: &Api<K>, site: &Website) -> Result<(), Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    match api.delete(&site.name_any(), &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        // This run is the second try, or somebody was faster.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(e) => Err(e.into()),
    }
}
