//! Metrics under the names of controller-runtime and client-go, so that kubebuilder's dashboards and alerts
//! work.
//!
//! | metric | labels | what it says |
//! |---|---|---|
//! | `workqueue_*`, `requeue_*` | `name`, `controller` | the queue: see [`requeue_prometheus`] |
//! | `controller_runtime_reconcile_total` | `controller`, `result` | runs that ended: `success`, `requeue_after` (the reconciler or the resync says when), `requeue` (a back-off without an error), `error` |
//! | `controller_runtime_reconcile_errors_total` | `controller` | those with an error, a panic or over their time limit |
//! | `controller_runtime_terminal_reconcile_errors_total` | `controller` | those of them after which the object waits for a change |
//! | `controller_runtime_reconcile_panics_total` | `controller` | panics |
//! | `controller_runtime_reconcile_timeouts_total` | `controller` | runs over their time limit |
//! | `controller_runtime_reconcile_time_seconds` | `controller` | a histogram of how long runs took, with controller-runtime's buckets |
//! | `controller_runtime_max_concurrent_reconciles` | `controller` | how many may run at once; 0 is no bound |
//! | `requeue_kube_watch_listed` | `controller`, `kind` | 1 while the watch of a kind has its list, 0 while it has none: a kind that can't be listed is 0 |
//! | `controller_runtime_active_workers` | `controller` | how many run |
//! | `rest_client_requests_total` | `code`, `method`, `host` | answers of the API server, if the client has the [layer](Metrics::client_layer); the code of a request without an answer is `<error>`, as client-go has it |
//! | `leader_election_master_status` | `name` | 1 while this process leads, by the name of the lease: of an elector that [has the metrics](crate::lease::ElectorBuilder::metrics) |
//!
//! Runs without a call of the reconciler are counted only by the queue: a key that leads to another object,
//! and a run that is dropped because its process no longer leads. The latter has the outcome `again` there.
//!
//! The names, labels and buckets are those of controller-runtime 0.24.1 and client-go.

use crate::put_back::Sink;
use futures::future::BoxFuture;
use requeue::{Failure, Fate, RunReport};
use requeue_prometheus::prometheus_client::metrics::counter::Counter;
use requeue_prometheus::prometheus_client::metrics::family::Family;
use requeue_prometheus::prometheus_client::metrics::gauge::Gauge;
use requeue_prometheus::prometheus_client::metrics::histogram::Histogram;
use requeue_prometheus::prometheus_client::registry::Registry;
use requeue_prometheus::{NameError, QueueMetrics};
use std::fmt;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

type Labels = Vec<(&'static str, String)>;

/// controller-runtime's buckets for the time of a run, in seconds.
const SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// The metrics of all controllers and clients of a process, for one registry.
///
/// ```
/// use kube::runtime::watcher;
/// use requeue_kube::{Controller, Metrics};
/// use requeue_kube::prometheus_client::registry::Registry;
/// # use k8s_openapi::api::core::v1::ConfigMap;
///
/// let mut registry = Registry::default();
/// let metrics = Metrics::register(&mut registry);
/// let controller = Controller::<ConfigMap>::for_events(futures::stream::pending()).metrics(&metrics);
/// ```
#[derive(Clone)]
pub struct Metrics {
    queues: QueueMetrics,
    reconciles: Family<Labels, Counter>,
    errors: Family<Labels, Counter>,
    terminal_errors: Family<Labels, Counter>,
    panics: Family<Labels, Counter>,
    timeouts: Family<Labels, Counter>,
    time: Family<Labels, Histogram>,
    most: Family<Labels, Gauge>,
    active: Family<Labels, Gauge>,
    requests: Family<Labels, Counter>,
    leads: Family<Labels, Gauge>,
    listed: Family<Labels, Gauge>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Registers the metrics. Call it once per registry.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            queues: QueueMetrics::register(registry),
            reconciles: Family::default(),
            errors: Family::default(),
            terminal_errors: Family::default(),
            panics: Family::default(),
            timeouts: Family::default(),
            time: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            most: Family::default(),
            active: Family::default(),
            requests: Family::default(),
            leads: Family::default(),
            listed: Family::default(),
        };
        // The client adds `_total` to the names of counters.
        let mut counter = |name: &str, help: &str, family: &Family<Labels, Counter>| {
            registry.register(name, help, family.clone());
        };
        counter("controller_runtime_reconcile", "Runs that ended, by their result", &metrics.reconciles);
        counter("controller_runtime_reconcile_errors", "Runs that failed", &metrics.errors);
        let help = "Runs that failed and are not tried again before the object changes";
        counter("controller_runtime_terminal_reconcile_errors", help, &metrics.terminal_errors);
        counter("controller_runtime_reconcile_panics", "Runs that panicked", &metrics.panics);
        counter("controller_runtime_reconcile_timeouts", "Runs over their time limit", &metrics.timeouts);
        counter(
            "rest_client_requests",
            "Requests to the API server, by the code of the answer",
            &metrics.requests,
        );
        let mut gauge = |name: &str, help: &str, family: &Family<Labels, Gauge>| {
            registry.register(name, help, family.clone());
        };
        let help = "How many objects may be reconciled at once; 0 is no bound";
        gauge("controller_runtime_max_concurrent_reconciles", help, &metrics.most);
        gauge("controller_runtime_active_workers", "How many objects are reconciled now", &metrics.active);
        gauge("leader_election_master_status", "1 while this process leads", &metrics.leads);
        gauge("requeue_kube_watch_listed", "1 while the watch of a kind has its list", &metrics.listed);
        let help = "How long runs took";
        registry.register("controller_runtime_reconcile_time_seconds", help, metrics.time.clone());
        metrics
    }

    /// Counts the requests of a client to the API server: for [`kube::client::ClientBuilder::with_layer`].
    #[must_use]
    pub fn client_layer(&self) -> CountRequests {
        CountRequests { requests: self.requests.clone() }
    }

    /// The series of one controller. They are 0 before its first run.
    pub(crate) fn controller(&self, name: &str, most: u16) -> ControllerMetrics {
        let labels = vec![("controller", name.to_owned())];
        let result = |result: &str| {
            let labels = vec![("controller", name.to_owned()), ("result", result.to_owned())];
            self.reconciles.get_or_create_owned(&labels)
        };
        self.most.get_or_create(&labels).set(most.into());
        ControllerMetrics {
            success: result("success"),
            requeue: result("requeue"),
            requeue_after: result("requeue_after"),
            error: result("error"),
            errors: self.errors.get_or_create_owned(&labels),
            terminal_errors: self.terminal_errors.get_or_create_owned(&labels),
            panics: self.panics.get_or_create_owned(&labels),
            timeouts: self.timeouts.get_or_create_owned(&labels),
            time: self.time.get_or_create_owned(&labels),
            most: self.most.get_or_create_owned(&labels),
            active: self.active.get_or_create_owned(&labels),
        }
    }

    /// The sink of a controller's queue.
    pub(crate) fn queue(&self, name: &str) -> Result<Sink, NameError> {
        self.queues.queue(name).map(Sink)
    }

    /// The gauges of the watches of a controller.
    pub(crate) fn listings(&self, name: &str) -> Listings {
        Listings { listed: self.listed.clone(), controller: name.to_owned() }
    }

    /// The gauge of an elector.
    pub(crate) fn leads(&self, name: &str) -> Gauge {
        self.leads.get_or_create_owned(&vec![("name", name.to_owned())])
    }
}

/// Gauges that show which watches of one controller have their list.
pub(crate) struct Listings {
    listed: Family<Labels, Gauge>,
    controller: String,
}

impl Listings {
    pub(crate) fn of(&self, kind: &str) -> Gauge {
        let labels = vec![("controller", self.controller.clone()), ("kind", kind.to_owned())];
        self.listed.get_or_create_owned(&labels)
    }
}

/// The metrics of one controller.
pub(crate) struct ControllerMetrics {
    success: Counter,
    requeue: Counter,
    requeue_after: Counter,
    error: Counter,
    errors: Counter,
    terminal_errors: Counter,
    panics: Counter,
    timeouts: Counter,
    time: Histogram,
    most: Gauge,
    active: Gauge,
}

impl ControllerMetrics {
    pub(crate) fn resized(&self, most: u16) {
        self.most.set(most.into());
    }

    /// Counts an active run until the guard is dropped.
    pub(crate) fn run(&self) -> Active {
        self.active.inc();
        Active(self.active.clone())
    }

    /// Counts a run that has ended.
    pub(crate) fn ended(&self, report: &RunReport<'_>, is: Special) {
        self.time.observe(report.took.as_secs_f64());
        match report.failure {
            Some(_) if is == Special::AskedFor => drop(self.requeue.inc()),
            Some(failure) => {
                self.error.inc();
                self.errors.inc();
                if matches!(failure, Failure::Panic(_)) {
                    self.panics.inc();
                }
                if is == Special::OverTimeLimit {
                    self.timeouts.inc();
                }
                if matches!(report.fate, Fate::GaveUp) {
                    self.terminal_errors.inc();
                }
            }
            None if matches!(report.fate, Fate::Again(_)) => drop(self.requeue_after.inc()),
            None => drop(self.success.inc()),
        }
    }
}

/// A failure that is not counted as an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    No,
    /// The run ended well and asked for a back-off.
    AskedFor,
    OverTimeLimit,
}

/// A run that goes on.
pub(crate) struct Active(Gauge);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts requests to the API server: see [`Metrics::client_layer`].
#[derive(Clone)]
pub struct CountRequests {
    requests: Family<Labels, Counter>,
}

impl fmt::Debug for CountRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountRequests").finish_non_exhaustive()
    }
}

impl<S> Layer<S> for CountRequests {
    type Service = CountedRequests<S>;

    fn layer(&self, inner: S) -> CountedRequests<S> {
        CountedRequests { inner, requests: self.requests.clone() }
    }
}

/// A client's service whose requests are counted.
#[derive(Clone)]
pub struct CountedRequests<S> {
    inner: S,
    requests: Family<Labels, Counter>,
}

impl<S: fmt::Debug> fmt::Debug for CountedRequests<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedRequests").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<http::Request<B>> for CountedRequests<S>
where
    S: Service<http::Request<B>, Response = http::Response<R>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let method = request.method().to_string();
        let host = request.uri().authority().map(ToString::to_string).unwrap_or_default();
        let requests = self.requests.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = match &answer {
                Ok(answer) => answer.status().as_u16().to_string(),
                Err(_) => "<error>".to_owned(),
            };
            requests.get_or_create(&vec![("code", code), ("method", method), ("host", host)]).inc();
            answer
        })
    }
}
