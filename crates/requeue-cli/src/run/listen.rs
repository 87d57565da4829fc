//! `--listen`: the pages /metrics and /healthz.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use http::StatusCode;

use super::queue::Queue;
use crate::http::{Routes, Server, bind, page, text};
use crate::report::metrics::{Exports, OPEN_METRICS};
use crate::system::limits;

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
        Ok(Self { listener: bind(address)?, exports })
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
        let metrics = move || match exports.text() {
            Ok(body) => page(StatusCode::OK, OPEN_METRICS, body),
            Err(e) => text(StatusCode::INTERNAL_SERVER_ERROR, &e.to_string()),
        };
        // Also at the end: a command that works off its keys is well, and must not be killed.
        let health = move || text(StatusCode::OK, if queue.shutting_down() { "draining" } else { "ok" });
        let routes = Routes::default().route("/metrics", metrics).route("/healthz", health);
        Server::start(self.listener, routes).map_err(|e| limits::no_thread(&e))
    }
}
