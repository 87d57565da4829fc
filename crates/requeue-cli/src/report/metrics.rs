//! The exported metrics, for `--listen` and `--metrics-to`.

use std::sync::Arc;

use requeue_prometheus::prometheus_client::encoding::text::encode;
use requeue_prometheus::prometheus_client::registry::Registry;
use requeue_prometheus::{QueueMetrics, QueueSink};

/// The content type of prometheus-client's output.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

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
}
