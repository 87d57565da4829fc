//! The controller on requeue-kube.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::watcher;
use kube_bench::{Ctx, Error, FINALIZER, Website, Written, apply, cleanup, client, env, now_us, signalled};
use requeue_kube::finalizer::{Error as FinalizerError, Event, finalizer};
use requeue_kube::{Action, Config, Controller, Current};
use std::sync::Arc;

async fn reconcile(site: Arc<Website>, cx: Arc<Ctx>) -> Result<Action, FinalizerError<Error>> {
    let (began, name, stamp) = (now_us(), site.name_any(), site.spec.stamp);
    let api = Api::<Website>::namespaced(cx.client.0.clone(), &site.namespace().unwrap_or_default());
    let body = &cx;
    let result = finalizer(&api, FINALIZER, site, |event| async move {
        match event {
            Event::Apply(site) => {
                for written in apply(&site, body).await? {
                    match written {
                        Written::Child(child) => Current::saw_if_any(&*child),
                        Written::Site(site) => Current::wrote_if_any(&*site),
                    }
                }
            }
            Event::Cleanup(site) => cleanup(&site, body).await?,
        }
        Ok(Action::await_change())
    })
    .await;
    cx.note(began, &name, stamp, result.is_ok());
    result
}

#[tokio::main]
async fn main() {
    let (client, ns) = (client(), env("NS", String::new()));
    let cx = Ctx::new(client.clone());
    Controller::new(Api::<Website>::namespaced(client.clone(), &ns), watcher::Config::default())
        .owns(Api::<ConfigMap>::namespaced(client, &ns), watcher::Config::default())
        .with_config(Config::default().concurrency(env("CONC", 16)).managed_fields(env("TRIM", 0) == 0))
        .graceful_shutdown_on(signalled())
        .run(reconcile, |_, _, _| Action::backoff(), cx.clone())
        .for_each(|_| async {})
        .await;
    cx.dump();
}
