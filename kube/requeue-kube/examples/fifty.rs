//! Gives each namespace with the label `isolate=yes` a network policy that blocks all incoming traffic, and
//! removes it with the label. Written from the documentation alone, to see that it suffices.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use requeue_kube::{Action, Config, Controller, Current};
use std::{sync::Arc, time::Duration};

const NAME: &str = "isolate";

pub(crate) async fn reconcile(namespace: Arc<Namespace>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let policies = Api::<NetworkPolicy>::namespaced(Client::clone(&client), &namespace.name_any());
    if namespace.labels().get(NAME).is_some_and(|value| value == "yes") {
        let policy = NetworkPolicy {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                owner_references: namespace.controller_owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(NetworkPolicySpec {
                policy_types: Some(vec!["Ingress".into()]),
                ..Default::default()
            }),
        };
        let how = PatchParams::apply(NAME).force();
        Current::saw_if_any(&policies.patch(NAME, &how, &Patch::Apply(&policy)).await?);
    } else if policies.get_opt(NAME).await?.is_some() {
        policies.delete(NAME, &DeleteParams::default()).await?;
    }
    Ok(Action::await_change())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::try_default().await?;
    let controller = Controller::new(Api::<Namespace>::all(client.clone()), watcher::Config::default())
        .owns(Api::<NetworkPolicy>::all(client.clone()), watcher::Config::default())
        .with_config(Config::default().time_limit(Duration::from_secs(30)))
        .shutdown_on_signal()
        .start(reconcile, |_, _, _| Action::backoff(), Arc::new(client))?;
    println!("{:?}", controller.ended().await);
    Ok(())
}
