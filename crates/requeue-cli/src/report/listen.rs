//! `--listen` and `--metrics-to`: the exported metrics, and their destinations.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use requeue_prometheus::prometheus_client::encoding::text::encode;
use requeue_prometheus::prometheus_client::registry::Registry;
use requeue_prometheus::{QueueMetrics, QueueSink};

use crate::http::{Page, Server};
use crate::run::queue::Queue;

/// The content type of prometheus-client's output.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The queue's metrics for export: at an address, or in a file at the end.
#[derive(Debug)]
pub(crate) struct Exports {
    registry: Registry,
    pub(crate) sink: Arc<QueueSink>,
}

impl Exports {
    /// # Errors
    ///
    /// The library's error.
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let mut registry = Registry::default();
        let sink = QueueMetrics::register(&mut registry).queue(name).map_err(|e| e.to_string())?;
        Ok(Self { registry, sink: Arc::new(sink) })
    }

    /// All metrics, as prometheus-client writes them.
    ///
    /// # Errors
    ///
    /// A number that cannot be written, which would be a fault of prometheus-client.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn page(&self) -> Page {
        match self.text() {
            Ok(body) => Page { status: "200 OK", content_type: OPEN_METRICS, body },
            Err(e) => Page::text("500 Internal Server Error", &e.to_string()),
        }
    }
}

/// A bound address, and the metrics to serve there.
#[derive(Debug)]
pub(crate) struct Listening {
    listener: TcpListener,
    exports: Arc<Exports>,
}

impl Listening {
    /// Binds the address.
    ///
    /// # Errors
    ///
    /// The problem, to be put after the option's name.
    pub(crate) fn at(address: SocketAddr, exports: Arc<Exports>) -> Result<Self, String> {
        Ok(Self { listener: crate::http::bind(address)?, exports })
    }

    /// The address, if the system chose the port.
    pub(crate) fn chosen(&self, wanted: Option<SocketAddr>) -> Option<SocketAddr> {
        wanted.filter(|wanted| wanted.port() == 0).and_then(|_| self.listener.local_addr().ok())
    }

    /// Starts serving.
    ///
    /// # Errors
    ///
    /// If the system has no thread left.
    pub(crate) fn serve(self, queue: &Queue) -> std::io::Result<Server> {
        let (queue, exports) = (queue.clone(), self.exports);
        Server::start(self.listener, move |path| match path {
            "/metrics" => exports.page(),
            // also at the end: whoever is worked off is well, and must not be killed
            "/healthz" if queue.shutting_down() => Page::text("200 OK", "draining"),
            "/healthz" => Page::text("200 OK", "ok"),
            _ => Page::text("404 Not Found", "there are /metrics and /healthz"),
        })
    }
}
