//! The scenarios of the design against a real API server. They run one after another, because each measures.
//!
//! `REQUEUE_KUBE_LONG=1` runs them at their full size.

mod figures;
mod k16;
mod s07;
mod s08;
mod s14;
mod s15;
mod scenarios;
mod server;
mod website;

use figures::{figure, percentile, size, until};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::{Api, Client};
use requeue_kube::{Action, Config, Controller, Running};
use server::Server;
use std::sync::{Arc, OnceLock};
use tokio::sync::{Mutex, MutexGuard};
use website::{Ctx, Website, install, reconcile};

/// The environment of a scenario: the server, and a namespace.
struct World {
    server: MutexGuard<'static, Option<Server>>,
    client: Client,
    namespace: String,
    sites: Api<Website>,
}

impl World {
    /// `None` if there is no API server here; a line has said so.
    async fn new(namespace: &str) -> Option<Self> {
        static SERVER: OnceLock<Mutex<Option<Server>>> = OnceLock::new();
        // RUST_LOG=requeue_kube=debug shows what the controllers say
        let log = tracing_subscriber::EnvFilter::from_default_env();
        drop(tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).try_init());
        let mut server = SERVER.get_or_init(Mutex::default).lock().await;
        if server.is_none() {
            *server = Server::start().await;
        }
        let client = server.as_ref()?.client();
        let sites = install(&client, namespace).await;
        Some(Self { server, client, namespace: namespace.into(), sites })
    }

    fn ctx(&self) -> Arc<Ctx> {
        Ctx::new(self.client.clone(), true)
    }

    /// A client for watches, which does not itself wait for `Retry-After`.
    fn watching(&self) -> Client {
        let mut config = self.server.as_ref().unwrap().config();
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    /// The controller of the websites of this namespace.
    fn controller(&self) -> Controller<Website> {
        let client = self.watching();
        Controller::new(Api::namespaced(client.clone(), &self.namespace), watcher::Config::default())
            .owns(Api::<ConfigMap>::namespaced(client, &self.namespace), watcher::Config::default())
    }

    fn start(&self, config: Config, cx: &Arc<Ctx>) -> Running<Website> {
        let controller = self.controller().with_config(config);
        controller.start(reconcile, |_, _, _| Action::backoff(), cx.clone()).unwrap()
    }
}
