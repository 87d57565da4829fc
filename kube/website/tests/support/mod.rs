//! The operator on the fake API server, with a log of its requests.
#![allow(dead_code, reason = "each test binary uses a part")]

use axum::Router;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{self as core, ConfigMap};
use kube::client::{Body, ClientBuilder};
use kube::runtime::reflector::ObjectRef;
use requeue_kube::lease::{Elector, client_layer};
use requeue_kube::prometheus_client::registry::Registry;
use requeue_kube::{Metrics, Running, fake};
use std::convert::Infallible;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt};
use website::crd::{Website, WebsiteSpec, WebsiteStatus};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A request: its method, its path with the query, and the type of its body.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: String,
}

/// A replica of the operator.
pub(crate) struct Replica {
    pub(crate) elector: Elector,
    pub(crate) sites: Running<Website>,
    pub(crate) http: Router,
}

pub(crate) struct World {
    pub(crate) server: fake::Server,
    /// Server for its leases only, so that the other one is at rest while a lease is renewed.
    leases: fake::Server,
    pub(crate) asked: Arc<Mutex<Vec<Asked>>>,
    leader: Replica,
}

impl Deref for World {
    type Target = Replica;

    fn deref(&self) -> &Replica {
        &self.leader
    }
}

type Answer = http::Response<UnsyncBoxBody<axum::body::Bytes, Infallible>>;

/// A client's service that logs its requests. The page of a site whose name begins with `poison` is refused,
/// as by an admission webhook.
fn logged(
    server: &fake::Server,
    log: Arc<Mutex<Vec<Asked>>>,
) -> impl Service<http::Request<Body>, Response = Answer, Error = BoxError, Future: Send> + Clone + Send + 'static
{
    let inner = server.service();
    tower::service_fn(move |request: http::Request<Body>| {
        let asked = Asked {
            method: request.method().to_string(),
            path: request.uri().to_string(),
            body: request
                .headers()
                .get(http::header::CONTENT_TYPE)
                .map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned())
                .unwrap_or_default(),
        };
        let is_refused = asked.method == "PATCH" && asked.path.contains("/configmaps/poison");
        log.lock().unwrap().push(asked);
        let inner = inner.clone();
        async move {
            match is_refused {
                true => Err("the page is poison".into()),
                false => inner.oneshot(request).await,
            }
        }
    })
}

/// A replica, as `main` starts one.
fn replica(server: &fake::Server, leases: &fake::Server, log: &Arc<Mutex<Vec<Asked>>>, pod: &str) -> Replica {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let client = |server| {
        ClientBuilder::new(logged(server, log.clone()), "default").with_layer(&metrics.client_layer())
    };
    let elector = website::elect(&client(leases).build(), &metrics, pod).unwrap();
    let fenced = client(server).with_layer(&client_layer(elector.fence())).build();
    let sites = website::start(fenced, &metrics, &elector).unwrap();
    let http = website::http::routes(registry, sites.clone());
    Replica { elector, sites, http }
}

impl Replica {
    /// The operator's answer to a `GET`.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        let answer = self.http.clone().oneshot(request).await.unwrap();
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    /// The value of a series, as it is written with its labels.
    pub(crate) async fn value(&self, series: &str) -> f64 {
        let (_, text) = self.get("/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series}")).parse().unwrap()
    }
}

impl World {
    /// A server, and an operator that leads and has its lists.
    pub(crate) async fn start() -> Self {
        let server = fake::Server::new().with::<Website>().with::<ConfigMap>().with::<core::Service>();
        let (leases, asked) = (fake::Server::new().with::<Lease>(), Arc::default());
        let leader = replica(&server, &leases, &asked, "pod-a");
        let world = Self { server, leases, asked, leader };
        world.until(|world| world.sites.health().synced && world.sites.is_leader()).await;
        world
    }

    /// One more replica, which has its lists.
    pub(crate) async fn join(&self, pod: &str) -> Replica {
        let replica = replica(&self.server, &self.leases, &self.asked, pod);
        self.until(|_| replica.sites.health().synced).await;
        replica
    }

    /// Waits until `holds` is true, at most a minute, and returns how long that took.
    pub(crate) async fn until(&self, holds: impl Fn(&Self) -> bool) -> Duration {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it does not come");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        begin.elapsed()
    }

    pub(crate) fn apply(&self, name: &str, html: impl Into<String>) {
        let site = Website::new(name, WebsiteSpec { html: html.into(), port: 80 });
        self.server.apply(&site).unwrap();
    }

    pub(crate) fn page(&self, name: &str) -> Option<String> {
        self.server.get::<ConfigMap>("default", name).ok()?.data?.remove("index.html")
    }

    pub(crate) fn status(&self, name: &str) -> WebsiteStatus {
        self.server.get::<Website>("default", name).unwrap().status.unwrap_or_default()
    }

    /// The condition `Ready`: its status and its reason.
    pub(crate) fn ready(&self, name: &str) -> Option<(String, String)> {
        let ready = self.status(name).conditions.into_iter().find(|it| it.type_ == "Ready")?;
        Some((ready.status, ready.reason))
    }
}

pub(crate) fn site_ref(name: &str) -> ObjectRef<Website> {
    ObjectRef::new(name).within("default")
}

/// Takes each path of the operator once: new, changed, a child taken by another writer, deleted.
pub(crate) async fn all_ways() -> World {
    let world = World::start().await;
    world.apply("a", "one");
    world.server.settled(SECOND).await;
    world.apply("a", "two");
    world.server.settled(SECOND).await;
    world.server.delete::<core::Service>("default", "a").unwrap();
    world.server.settled(SECOND).await;
    // The first write of the next run is refused as a conflict.
    world.server.fail_next_writes(1, 409);
    world.apply("a", "three");
    world.server.settled(SECOND).await;
    assert_eq!(world.page("a").as_deref(), Some("three"));
    world.server.delete::<Website>("default", "a").unwrap();
    world.server.settled(SECOND).await;
    world
}
