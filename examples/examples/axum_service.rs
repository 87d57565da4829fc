//! A web service: requests name keys to refresh, workers call a backend for each, and on TERM accepted work
//! is finished before the process ends.
//!
//! Any number of requests for a key that has not run yet is one run, and one that comes during the key's run
//! is one more run after it. `POST /refresh/{key}` answers 202 with the result of the request, `GET
//! /state/{key}` shows the state of a key; `/metrics` is for Prometheus, `/healthz` for the system that
//! restarts services.
//!
//! ```text
//! cargo run -p requeue-examples --example axum_service -- 127.0.0.1:8080 127.0.0.1:9000    # a backend
//! cargo run -p requeue-examples --example axum_service                  # plays its clients and its backend
//! ```

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use requeue::limiter::Exponential;
use requeue::{DrainOptions, Run, StopReport, WaitingKeys, WorkQueue, Worker};
use requeue_prometheus::QueueMetrics;
use requeue_prometheus::prometheus_client::{encoding::text::encode, registry::Registry};
use std::error::Error;
use std::io::{self, ErrorKind::InvalidData};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Time for the work after TERM, and for the last answers after that: together less than the 30 s after which
/// Kubernetes kills.
const DRAIN: Duration = Duration::from_secs(20);
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// The content type of prometheus-client's output; Prometheus would misread it as plain text.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

struct App {
    queue: WorkQueue<String>,
    registry: Registry,
}

async fn refresh(State(app): State<Arc<App>>, Path(key): Path<String>) -> (StatusCode, String) {
    // Keys come from anybody, are kept, and become part of a request to the backend.
    let plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if !plain || key.len() > 100 {
        return (StatusCode::BAD_REQUEST, "a key is up to 100 letters, digits, - and _\n".to_owned());
    }
    match app.queue.add(key) {
        Ok(added) => (StatusCode::ACCEPTED, format!("{added:?}\n").to_lowercase()),
        // The queue decides, in the same step in which it would take the key: there is no
        // moment in which a key is accepted and then not run.
        Err(refused) => (StatusCode::SERVICE_UNAVAILABLE, format!("{refused}\n")),
    }
}

async fn state(State(app): State<Arc<App>>, Path(key): Path<String>) -> String {
    format!("{}\n", app.queue.explain(&key))
}

async fn metrics(State(app): State<Arc<App>>) -> Result<impl IntoResponse, StatusCode> {
    let mut text = String::new();
    encode(&mut text, &app.registry).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text))
}

/// Status 200 while it drains too: a process that works off its last keys must not be restarted.
async fn health(State(app): State<Arc<App>>) -> &'static str {
    if app.queue.shutting_down() { "draining\n" } else { "ok\n" }
}

/// Serves until `stop`, and then until all keys have run or the deadline has come.
pub(crate) async fn serve(
    listener: TcpListener,
    backend: SocketAddr,
    stop: impl Future<Output = ()>,
) -> Result<StopReport, Box<dyn Error>> {
    let mut registry = Registry::default();
    let queue = WorkQueue::<String>::builder()
        .name("refresh")
        .metrics(QueueMetrics::register(&mut registry).queue("refresh")?)
        .limiter(Exponential::new(Duration::from_millis(50), Duration::from_secs(5))?)
        .build()?;
    let worker = Worker::of(&queue)
        .workers(4)
        .time_limit(Duration::from_secs(10))
        .max_attempts(5) // so that a key that always fails does not use up the drain's time
        .on_give_up(|key, why| eprintln!("gave up on {key}: {why}"))
        .start_on(tokio::runtime::Handle::current(), move |run: Run<String>| async move {
            match ask(backend, "POST", &format!("/rebuild/{}", run.key())).await? {
                (200..300, _) => Ok(()),
                (status, _) => Err(format!("the backend said {status}").into()), // again, later
            }
        })?;
    let app = Router::new()
        .route("/refresh/{key}", post(refresh))
        .route("/state/{key}", get(state))
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .with_state(Arc::new(App { queue, registry }));
    let (drained, until_drained) = oneshot::channel::<()>();
    let server = axum::serve(listener, app).with_graceful_shutdown(async {
        let _ = until_drained.await;
    });
    let server = tokio::spawn(server.into_future());

    stop.await;
    // First the queue, then the server: while keys are worked off, requests for more get
    // an answer that says why not, and the metrics show how far it is.
    // What waits to be tried again was accepted too, so that is waited for.
    let report = worker.drain(DrainOptions::default().waiting_keys(WaitingKeys::Wait).timeout(DRAIN)).await;
    drop(drained);
    // Requests that have begun are answered; one that never ends is cut off.
    if let Ok(ended) = timeout(LAST_ANSWERS, server).await {
        ended??;
    }
    Ok(report)
}

/// The service as a process: until TERM or Ctrl-C.
pub(crate) async fn run(listen: &str, backend: &str) -> Result<(), Box<dyn Error>> {
    // Before anybody can know of us: a TERM that comes earlier than this kills.
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = TcpListener::bind(listen).await?;
    eprintln!("listening on {}", listener.local_addr()?);
    let stop = async {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
    };
    let report = serve(listener, backend.parse()?, stop).await?;
    eprintln!("{report:?}");
    if report.complete { Ok(()) } else { Err(format!("not worked off in {DRAIN:?}").into()) }
}

/// One HTTP request: the status, and the whole answer.
pub(crate) async fn ask(to: SocketAddr, method: &str, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(to).await?;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(|| io::Error::new(InvalidData, "no HTTP answer"))?, answer))
}

/// A request to a backend: the key, and the channel for its status.
pub(crate) type Asked = (String, oneshot::Sender<StatusCode>);

/// A backend whose answers the test gives: the arrival of a request shows that the run has begun, and the run
/// goes on until there is an answer.
pub(crate) async fn backend() -> io::Result<(SocketAddr, mpsc::UnboundedReceiver<Asked>)> {
    let (questions, asked) = mpsc::unbounded_channel();
    let rebuild = async move |Path(key): Path<String>| {
        let (answer, answered) = oneshot::channel();
        let _ = questions.send((key, answer));
        answered.await.unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = Router::new().route("/rebuild/{key}", post(rebuild));
    tokio::spawn(axum::serve(listener, app).into_future());
    Ok((address, asked))
}

/// Plays clients and backend, sends itself TERM in the middle of two runs.
async fn show() -> Result<(), Box<dyn Error>> {
    let (backend, mut asked) = backend().await?;
    let mut term = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let service = listener.local_addr()?;
    let client = async move {
        let say = async |method: &str, path: &str| {
            let (status, answer) = ask(service, method, path).await?;
            let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default().trim_end().to_owned();
            println!("{method} {path}: {status} {}", if path == "/metrics" { "" } else { &body });
            Ok::<_, io::Error>((status, body, answer))
        };
        assert_eq!(say("POST", "/refresh/prices").await?.1, "ready");
        let (_, prices) = asked.recv().await.ok_or("no backend")?; // its run has begun
        assert_eq!(say("POST", "/refresh/prices").await?.1, "dirty", "one more run");
        assert_eq!(say("POST", "/refresh/prices").await?.1, "coalesced", "not two");
        assert!(say("GET", "/state/prices").await?.1.ends_with("; dirty"));
        say("POST", "/refresh/stock").await?;
        let (_, stock) = asked.recv().await.ok_or("no backend")?;
        assert_eq!(say("POST", "/refresh/a%0d%0ab").await?.0, 400);
        let (_, text, answer) = say("GET", "/metrics").await?;
        assert!(answer.contains(OPEN_METRICS));
        for series in ["requeue_held_keys{name=\"refresh\"} 2\n", "requeue_dirty_keys{name=\"refresh\"} 1\n"]
        {
            assert!(text.contains(series), "{series} in {text}");
        }

        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)?;
        while say("GET", "/healthz").await?.1 != "draining" {}
        assert_eq!(say("POST", "/refresh/late").await?.0, 503);
        let _ = prices.send(StatusCode::OK);
        let _ = stock.send(StatusCode::INTERNAL_SERVER_ERROR); // so it is tried again
        let mut rest = Vec::new();
        for _ in 0..2 {
            let (key, answer) = asked.recv().await.ok_or("no backend")?;
            let _ = answer.send(StatusCode::OK);
            rest.push(key);
        }
        rest.sort();
        assert_eq!(rest, ["prices", "stock"]);
        Ok::<_, Box<dyn Error>>(())
    };
    let stop = async {
        term.recv().await;
    };
    let (report, ()) = tokio::try_join!(serve(listener, backend, stop), client)?;
    println!("{report:?}");
    assert!(report.complete);
    assert_eq!((report.done, report.cancelled, report.refused), (4, 0, 1), "two keys, two runs each");
    assert!(ask(service, "GET", "/healthz").await.is_err(), "nobody listens any more");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [] => show().await,
        [listen, backend] => run(listen, backend).await,
        _ => Err("give an address to listen on and that of the backend, or nothing".into()),
    }
}
