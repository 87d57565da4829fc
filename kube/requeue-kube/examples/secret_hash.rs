//! Records in the namespace `audit`, for each Deployment that names a Secret in an annotation, the hash of
//! that Secret: who uses which version, without the Secret itself. Owners can't be of another namespace, so
//! the clean-up needs a finalizer. Written from the documentation alone, to see that it suffices.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap, core::v1::Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, Error, ResourceExt, runtime::reflector::ObjectRef, runtime::watcher};
use requeue_kube::{Action, Controller, Current, Running, StartError, finalizer, finalizer::Event};
use sha2::{Digest, Sha256};
use std::sync::Arc;

const NAME: &str = "example.dev/hash-of"; // the annotation that names the Secret, and the finalizer

async fn reconcile(app: Arc<Deployment>, client: Arc<Client>) -> Result<Action, finalizer::Error<Error>> {
    if !app.annotations().contains_key(NAME) && !app.finalizers().iter().any(|finalizer| finalizer == NAME) {
        return Ok(Action::await_change()); // it never asked
    }
    let (space, client) = (app.namespace().unwrap_or_default(), Client::clone(&client));
    finalizer(&Api::namespaced(client.clone(), &space), NAME, app, |event| async move {
        let (Event::Apply(app) | Event::Cleanup(app)) = &event;
        let (map, how) = (format!("{space}.{}", app.name_any()), PatchParams::apply(NAME).force());
        let maps = Api::<ConfigMap>::namespaced(client.clone(), "audit");
        let secret = match (&event, app.annotations().get(NAME)) {
            (Event::Apply(_), Some(name)) => Api::<Secret>::namespaced(client, &space).get_opt(name).await?,
            _ => None, // a Secret that is not there yet is no failure: its watch tells when it comes
        };
        if let Some(Secret { data, .. }) = secret {
            let hash = format!("{:x}", Sha256::digest(serde_json::to_vec(&data).map_err(Error::SerdeError)?));
            let new = ConfigMap { data: Some([("sha256".to_owned(), hash)].into()), ..ConfigMap::default() };
            Current::saw_if_any(&maps.patch(&map, &how, &Patch::Apply(new)).await?);
        } else if maps.get_opt(&map).await?.is_some() {
            maps.delete(&map, &DeleteParams::default()).await?;
        }
        Ok(Action::await_change())
    })
    .await
}

pub(crate) fn start(client: Client) -> Result<Running<Deployment>, StartError> {
    let apps = Controller::new(Api::<Deployment>::all(client.clone()), watcher::Config::default());
    let all = apps.store();
    let users = move |secret: Secret| {
        let apps = all.state().into_iter().map(|app| ObjectRef::from_obj(&*app));
        apps.filter(move |app| app.namespace == secret.namespace())
    };
    let user =
        |map: ConfigMap| map.name_any().split_once('.').map(|(ns, app)| ObjectRef::new(app).within(ns));
    apps.watches(Api::<Secret>::all(client.clone()), watcher::Config::default(), users)
        .watches(Api::<ConfigMap>::namespaced(client.clone(), "audit"), watcher::Config::default(), user)
        .shutdown_on_signal()
        .start(reconcile, |_, _, _| Action::backoff(), Arc::new(client))
}

#[tokio::main]
async fn main() {
    println!("{:?}", start(Client::try_default().await.expect("a cluster")).expect("a start").ended().await);
}
