//! K16 cases that need a real API server: a kind that does not exist yet, goes, and comes back.

use crate::scenarios::{by_name, create, named};
use crate::website::{Website, WebsiteSpec, reconcile};
use crate::{World, until};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, CustomResource, CustomResourceExt, ResourceExt};
use requeue_kube::{Action, Config};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "trial.dev", version = "v1", kind = "Theme", namespaced)]
struct ThemeSpec {}

const CRD: &str = "themes.trial.dev";

#[tokio::test(flavor = "multi_thread")]
async fn k16_a_kind_that_is_installed_late_taken_away_and_installed_again_is_seen() {
    let Some(world) = World::new("k16").await else { return };
    let count = 20;
    create(&world, named("s", count, &WebsiteSpec::default())).await;
    let crds = Api::<CustomResourceDefinition>::all(world.client.clone());
    let themes = ApiResource::from_gvk(&GroupVersionKind::gvk("trial.dev", "v1", "Theme"));
    let cx = world.ctx();
    let of = |theme: DynamicObject| vec![ObjectRef::<Website>::new(&theme.name_any()).within("k16")];
    let api = Api::<DynamicObject>::namespaced_with(world.watching(), "k16", &themes);
    let config = Config::default().list_timeout(Duration::from_secs(1));
    let running = world
        .controller()
        .watches_with(api.clone(), themes, watcher::Config::default(), of)
        .with_config(config)
        .start(reconcile, |_, _, _| Action::backoff(), cx.clone())
        .unwrap();
    // All runs of all sites, at least so many each.
    let each_has = |runs: usize| {
        let all = by_name(&cx);
        all.len() == count && all.values().all(|of_one| of_one.len() >= runs)
    };
    until("runs without the kind", || each_has(1)).await;
    assert_eq!(running.health().unlisted, ["Theme"]);
    for nth in 1..=2 {
        let installed = Patch::Apply(Theme::crd());
        crds.patch(CRD, &PatchParams::apply("tests").force(), &installed).await.unwrap();
        until("its list", || running.health().unlisted.is_empty()).await;
        until("the sweep", || each_has(1 + nth)).await;
        assert!(cx.runs.lock().unwrap().iter().any(|run| run.causes.contains("list of Theme")));
        // Its watch tells of it.
        let name = format!("s{nth}");
        let theme =
            json!({"apiVersion": "trial.dev/v1", "kind": "Theme", "metadata": {"name": name}, "spec": {}});
        api.patch(&name, &PatchParams::apply("tests").force(), &Patch::Apply(theme)).await.unwrap();
        let told = |run: &crate::website::Ran| run.causes.contains(&format!("Theme k16/s{nth}"));
        until("the theme's run", || cx.runs.lock().unwrap().iter().any(told)).await;
        crds.delete(CRD, &DeleteParams::default()).await.unwrap();
        until("that it is missed", || running.health().unlisted == ["Theme"]).await;
    }
    running.drain(Duration::from_secs(10)).await;
}
