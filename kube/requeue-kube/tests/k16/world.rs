//! A controller of config maps. Each names a Secret in its data, and fails until that exists.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use requeue_kube::{Action, Config, Controller, Current, Running, fake};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A run: its object, its time since the start of the test, and its cause.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) name: String,
    pub(crate) at: Duration,
    pub(crate) causes: String,
}

pub(crate) struct Ctx {
    client: Client,
    begin: Instant,
    runs: Mutex<Vec<Ran>>,
}

pub(crate) struct World {
    pub(crate) server: fake::Server,
    pub(crate) cx: Arc<Ctx>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(fake::Server::new().with::<ConfigMap>().with::<Secret>())
    }

    pub(crate) fn of(server: fake::Server) -> Self {
        let cx = Ctx { client: server.client(), begin: Instant::now(), runs: Mutex::default() };
        Self { server, cx: Arc::new(cx) }
    }

    pub(crate) fn maps(&self) -> Controller<ConfigMap> {
        Controller::new(Api::all(self.server.client()), watcher::Config::default()).with_config(config())
    }

    /// The controller, which also watches Secrets and looks into its store for users of them.
    pub(crate) fn users(&self) -> Controller<ConfigMap> {
        let maps = self.maps();
        let all = maps.store();
        let secrets = Api::<Secret>::all(self.server.client());
        maps.watches(secrets, watcher::Config::default(), move |secret: Secret| {
            let name = secret.name_any();
            let uses = |map: &Arc<ConfigMap>| wanted(map) == Some(&*name);
            all.state()
                .iter()
                .filter(|map| uses(map))
                .map(|map| ObjectRef::from_obj(&**map))
                .collect::<Vec<_>>()
        })
    }

    pub(crate) fn start(&self, controller: Controller<ConfigMap>) -> Running<ConfigMap> {
        controller.start(reconcile, |_, _, _| Action::backoff(), self.cx.clone()).unwrap()
    }

    /// Writes a config map: its Secret, how long its run takes, and when it is to be looked at again.
    pub(crate) fn write(&self, name: &str, mut data: Value) {
        data["version"] = json!(self.server.version().to_string());
        let map = json!({"metadata": {"name": name, "namespace": "default"}, "data": data});
        self.server.apply(&serde_json::from_value::<ConfigMap>(map).unwrap()).unwrap();
    }

    pub(crate) fn secret(&self, name: &str) {
        let data = json!({"version": self.server.version().to_string()});
        let secret = json!({"metadata": {"name": name, "namespace": "default"}, "stringData": data});
        self.server.apply(&serde_json::from_value::<Secret>(secret).unwrap()).unwrap();
    }

    pub(crate) fn runs(&self) -> Vec<Ran> {
        self.cx.runs.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.cx.runs.lock().unwrap().len()
    }

    /// Names of the objects that ran after the first `count` runs.
    pub(crate) fn names_since(&self, count: usize) -> Vec<String> {
        self.runs()[count..].iter().map(|run| run.name.clone()).collect()
    }

    pub(crate) fn now(&self) -> Duration {
        self.cx.begin.elapsed()
    }

    /// Makes a watch miss events: it begins anew with a list afterwards.
    pub(crate) async fn unheard(&self, happens: impl FnOnce(&Self)) {
        self.server.pause_watch_events();
        happens(self);
        self.server.drop_watches_with_410();
        self.server.resume_watch_events();
        sleep(SECOND / 10).await;
    }
}

/// Exact times: no jitter.
pub(crate) fn config() -> Config {
    Config::default().jitter(0.0)
}

fn datum<'m>(map: &'m ConfigMap, name: &str) -> Option<&'m str> {
    map.data.as_ref()?.get(name).map(String::as_str)
}

fn wanted(map: &ConfigMap) -> Option<&str> {
    datum(map, "wants")
}

async fn reconcile(map: Arc<ConfigMap>, cx: Arc<Ctx>) -> Result<Action, kube::Error> {
    let causes = Current::get().unwrap().causes().to_string();
    cx.runs.lock().unwrap().push(Ran { name: map.name_any(), at: cx.begin.elapsed(), causes });
    // On paused time a controller that runs in a circle would do so for ever.
    assert!(cx.runs.lock().unwrap().len() < 20_000, "the controller runs in a circle");
    if let Some(takes) = datum(&map, "takes_ms") {
        sleep(Duration::from_millis(takes.parse().unwrap())).await;
    }
    if let Some(secret) = wanted(&map) {
        Api::<Secret>::default_namespaced(cx.client.clone()).get(secret).await?;
    }
    Ok(match datum(&map, "again_s") {
        Some(after) => Action::requeue(Duration::from_secs(after.parse().unwrap())),
        None => Action::await_change(),
    })
}

pub(crate) fn map_ref(name: &str) -> ObjectRef<ConfigMap> {
    ObjectRef::new(name).within("default")
}
