//! The listener: bounded connections, and bounded time.
//!
//! One thread serves all connections, so a slow client blocks neither other clients nor a worker. A
//! connection is one request and its answer; it is closed after [`PATIENCE`], and with more than [`CLIENTS`]
//! the oldest is closed. So a client that opens many, or sends a byte per second, takes a bounded number of
//! descriptors and little memory, and a scrape in between is served.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle as Task;

use super::routes::Routes;

/// Maximum number of connections.
pub(crate) const CLIENTS: usize = 64;

/// Time limit of a connection, from its first byte to its last: that of a scrape of Prometheus.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum size of a request's line and headers. Those of a Prometheus are a few hundred bytes.
const LONGEST: usize = 8 * 1024;

/// Maximum number of headers of a request.
const HEADERS: usize = 64;

/// Pause of accepting after the system had no room for a further connection.
const PAUSE: Duration = Duration::from_secs(1);

/// A running server; dropping it ends it and closes its connections.
#[derive(Debug)]
pub(crate) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Binds the address.
///
/// # Errors
///
/// The address and the problem with it.
pub(crate) fn bind(address: SocketAddr) -> Result<std::net::TcpListener, String> {
    let listener = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => {
            format!("{address} is in use: give another port, or 0 for one that is free")
        }
        _ => format!("{address}: {e}"),
    })
}

impl Server {
    /// Serves these pages.
    ///
    /// # Errors
    ///
    /// If the system has no descriptor or no thread left.
    pub(crate) fn start(listener: std::net::TcpListener, routes: Routes) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, Arc::new(routes)) => {}
                }
            });
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Accepts connections, for ever.
async fn accept(listener: TcpListener, routes: Arc<Routes>) {
    // In the order in which they came.
    let mut clients: VecDeque<Task<()>> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                clients.retain(|client| !client.is_finished());
                if clients.len() >= CLIENTS {
                    if let Some(oldest) = clients.pop_front() {
                        oldest.abort();
                    }
                }
                let routes = Arc::clone(&routes);
                clients.push_back(tokio::spawn(async move {
                    // Its end is the client's business.
                    let _ = tokio::time::timeout(PATIENCE, serve(stream, &routes)).await;
                }));
                // So that an accepted client is heard before others oust it.
                tokio::task::yield_now().await;
            }
            // An error of one client, which has gone again.
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Answers one request. Further input of the client is discarded: closing before it was read would destroy the
/// answer.
async fn serve(mut stream: TcpStream, routes: &Routes) {
    let service = service_fn(|request: Request<Incoming>| ready(Ok::<_, Infallible>(routes.call(&request))));
    let answered = http1::Builder::new()
        .keep_alive(false)
        .auto_date_header(false)
        .title_case_headers(true)
        .max_headers(HEADERS)
        .max_buf_size(LONGEST)
        .serve_connection(TokioIo::new(&mut stream), service)
        .await;
    // A malformed request has its answer by now.
    drop(answered);
    if stream.shutdown().await.is_ok() {
        let mut chunk = [0; 1024];
        while matches!(stream.read(&mut chunk).await, Ok(1..)) {}
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use http::StatusCode;

    use super::*;
    use crate::http::text;

    fn server() -> (Server, SocketAddr) {
        let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Routes::default()
            .route("/metrics", || text(StatusCode::OK, "1"))
            .route("/healthz", || text(StatusCode::OK, "ok"));
        (Server::start(listener, routes).unwrap(), address)
    }

    fn asked(address: SocketAddr, parts: &[&str]) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        for part in parts {
            stream.write_all(part.as_bytes()).unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_request_is_answered_when_it_is_there_in_full() {
        let (_server, address) = server();
        let whole = "GET /metrics?x=1 HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n";
        for end in 0..whole.len() {
            let answer = asked(address, &[&whole[..end], &whole[end..]]);
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let mut lines: Vec<&str> = head.split("\r\n").collect();
            lines[1..].sort_unstable();
            let expected = [
                "HTTP/1.1 200 OK",
                "Connection: close",
                "Content-Length: 2",
                "Content-Type: text/plain; charset=utf-8",
            ];
            assert_eq!((&lines[..], body), (&expected[..], "1\n"), "{end} bytes");
        }
        assert!(asked(address, &["GET /healthz HTTP/1.0\r\n\r\n"]).ends_with("\r\n\r\nok\n"));
    }

    #[test]
    fn half_a_request_is_not_answered() {
        let (_server, address) = server();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"");
    }

    #[test]
    fn a_head_has_no_body_and_the_length_of_it() {
        let (_server, address) = server();
        let head = asked(address, &["HEAD /healthz HTTP/1.1\r\n\r\n"]);
        assert!(head.contains("Content-Length: 3\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn what_is_no_request_is_told_so() {
        let (_server, address) = server();
        for (request, status) in [
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("\u{16}\u{3}\u{1}TLS\r\n\r\n", "400 Bad Request"),
            ("GET / HTTP/2.0\r\n\r\n", "400 Bad Request"),
            ("GET\r\n\r\n", "400 Bad Request"),
            ("GET /nowhere HTTP/1.1\r\n\r\n", "404 Not Found"),
            (&format!("GET /{} HTTP/1.1\r\n", "x".repeat(LONGEST)), "431 "),
            (&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1)), "431 "),
        ] {
            let answer = asked(address, &[request]);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request:.40}: {answer}");
        }
    }
}
