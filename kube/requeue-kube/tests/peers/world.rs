//! A controller of config maps whose reconciler follows the test's instructions, and a record of its runs.

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use requeue_kube::{Action, Cause, Config, Controller, Current, Running, fake};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Instruction for one run: how long it takes, and how it ends.
#[derive(Clone, Debug)]
pub(crate) struct Do(Duration, Then);

#[derive(Clone, Debug)]
enum Then {
    End(Action),
    Fail,
    Panic,
}

impl Do {
    pub(crate) fn end(action: Action) -> Self {
        Self(Duration::ZERO, Then::End(action))
    }

    pub(crate) fn done() -> Self {
        Self::end(Action::await_change())
    }

    pub(crate) fn fail() -> Self {
        Self(Duration::ZERO, Then::Fail)
    }

    pub(crate) fn panic() -> Self {
        Self(Duration::ZERO, Then::Panic)
    }

    pub(crate) fn after(self, takes: Duration) -> Self {
        Self(takes, self.1)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("this run fails")]
pub(crate) struct Failed;

/// A run, in milliseconds since the start of the test.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) name: String,
    pub(crate) began: u128,
    pub(crate) ended: Option<u128>,
    pub(crate) attempt: u32,
    pub(crate) causes: Vec<Cause>,
}

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) server: fake::Server,
    begin: Instant,
    runs: Arc<Mutex<Vec<Ran>>>,
}

impl World {
    pub(crate) fn new() -> Self {
        use k8s_openapi::api::apps::v1::Deployment;
        use k8s_openapi::api::core::v1::Secret;
        let server = fake::Server::new().with::<ConfigMap>().with::<Secret>().with::<Deployment>();
        Self { server, begin: Instant::now(), runs: Arc::default() }
    }

    /// Writes a config map as a user does.
    pub(crate) fn write(&self, name: &str, value: &str) {
        self.server.apply(&map(name, value)).unwrap();
    }

    pub(crate) fn controller(&self) -> Controller<ConfigMap> {
        Controller::new(Api::all(self.server.client()), watcher::Config::default()).with_config(config())
    }

    /// A reconciler that does what `says` returns for an object and its n-th run.
    pub(crate) fn reconciler<K: Resource, S: Fn(&str, usize) -> Do + Send + Sync + 'static>(
        &self,
        says: S,
    ) -> impl Fn(Arc<K>, Arc<()>) -> BoxFuture<'static, Result<Action, Failed>> + use<K, S> {
        let world = self.clone();
        move |object, _| {
            let (name, current) = (object.name_any(), Current::get().unwrap());
            let (nth, all) = {
                let mut runs = world.runs.lock().unwrap();
                let (began, attempt) = (world.now(), current.attempt());
                let causes = current.causes().iter().cloned().collect();
                runs.push(Ran { name: name.clone(), began, ended: None, attempt, causes });
                (runs.iter().filter(|run| run.name == name).count(), runs.len())
            };
            // On paused time a controller that runs in a circle would do so for ever.
            assert!(all < 100_000, "the controller runs in a circle");
            let (Do(takes, then), world) = (says(&name, nth), world.clone());
            Box::pin(async move {
                if !takes.is_zero() {
                    sleep(takes).await;
                }
                world.runs.lock().unwrap()[all - 1].ended = Some(world.now());
                match then {
                    Then::End(action) => Ok(action),
                    Then::Fail => Err(Failed),
                    Then::Panic => panic!("this run panics"),
                }
            })
        }
    }

    /// Starts the controller; an error is a failure with its back-off.
    pub(crate) fn start<K>(
        &self,
        controller: Controller<K>,
        says: impl Fn(&str, usize) -> Do + Send + Sync + 'static,
    ) -> Running<K>
    where
        K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned,
        K: std::fmt::Debug + Send + Sync + 'static,
    {
        controller.start(self.reconciler(says), |_, _, _| Action::backoff(), Arc::new(())).unwrap()
    }

    fn now(&self) -> u128 {
        self.begin.elapsed().as_millis()
    }

    pub(crate) fn runs(&self) -> Vec<Ran> {
        self.runs.lock().unwrap().clone()
    }

    pub(crate) fn runs_of(&self, name: &str) -> Vec<Ran> {
        self.runs().into_iter().filter(|run| run.name == name).collect()
    }

    /// When the runs of an object began, in tenths of a second.
    pub(crate) fn tenths(&self, name: &str) -> Vec<u128> {
        self.runs_of(name).iter().map(|run| run.began / 100).collect()
    }

    pub(crate) fn attempts(&self, name: &str) -> Vec<u32> {
        self.runs_of(name).iter().map(|run| run.attempt).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.runs().into_iter().map(|run| run.name).collect()
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        self.names().into_iter().fold(BTreeMap::new(), |mut counts, name| {
            *counts.entry(name).or_default() += 1;
            counts
        })
    }

    /// Maximum number of concurrent runs.
    pub(crate) fn at_once(&self) -> usize {
        let runs = self.runs();
        let goes_on = |at: u128, run: &&Ran| run.began <= at && run.ended.is_none_or(|ended| ended > at);
        runs.iter()
            .map(|run| runs.iter().filter(|other| goes_on(run.began, other)).count())
            .max()
            .unwrap_or(0)
    }
}

/// Exact times: no jitter, and a back-off that can be told from others.
pub(crate) fn config() -> Config {
    Config::default().jitter(0.0).backoff(SECOND, 1000 * SECOND)
}

pub(crate) fn map(name: &str, value: &str) -> ConfigMap {
    let metadata =
        ObjectMeta { name: Some(name.into()), namespace: Some("default".into()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some([("value".into(), value.into())].into()), ..ConfigMap::default() }
}

pub(crate) fn map_ref(name: &str) -> ObjectRef<ConfigMap> {
    ObjectRef::new(name).within("default")
}
