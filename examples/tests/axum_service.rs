//! The example `axum_service`, ended by TERM while requests come from all sides.
#![cfg(target_os = "linux")]

#[path = "../examples/axum_service.rs"]
#[expect(dead_code, reason = "its main is not run here")]
mod axum_service;

use axum::http::StatusCode;
use axum_service::{Asked, ask, backend};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

/// Set for the process that serves: this very test, started once more. Says where its
/// backend is.
const CHILD: &str = "REQUEUE_SERVICE_BACKEND";
const NAME: &str = "after_term_every_accepted_key_has_run_and_the_exit_status_is_0";
const ROUNDS: u64 = 20;
const CLIENTS: u64 = 4;
const KEYS: u64 = 20;

/// Puts what clients and the backend see in one order.
static NOW: AtomicU64 = AtomicU64::new(0);

struct Service {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    address: SocketAddr,
}

/// Starts the service; it listens when this returns.
fn start(backend: SocketAddr) -> Service {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(CHILD, backend.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = log.next().expect("it says where it listens").unwrap();
    let address = first.strip_prefix("listening on ").unwrap_or_else(|| panic!("{first}"));
    Service { address: address.parse().unwrap(), child, log }
}

/// Its last words, when it has ended well.
fn ended(mut service: Service) -> String {
    let log: Vec<_> = service.log.by_ref().map(Result::unwrap).collect();
    let status = service.child.wait().unwrap();
    assert!(status.success(), "{status}: {log:#?}");
    log.last().expect("a report").clone()
}

/// Results of one client's requests.
#[derive(Default)]
struct Seen {
    /// Time of the last accepted request for each key.
    accepted: BTreeMap<String, u64>,
    refused: u64,
}

/// Requests keys until the service no longer listens.
async fn client(service: SocketAddr, number: u64, first_refused: Arc<Notify>) -> Seen {
    let mut seen = Seen::default();
    for n in 0.. {
        let key = format!("key-{}", (n * 7 + number * 13) % KEYS);
        let sent = NOW.fetch_add(1, SeqCst);
        match ask(service, "POST", &format!("/refresh/{key}")).await {
            Ok((202, _)) => drop(seen.accepted.insert(key, sent)),
            Ok((503, answer)) => {
                assert!(answer.contains("shut down"), "{answer}");
                seen.refused += 1;
                first_refused.notify_one();
            }
            Ok((_, answer)) => panic!("{answer}"),
            Err(_) => break,
        }
    }
    seen
}

/// Answers the backend's questions until the service has ended; each key fails once. In
/// the middle of the run with this number it sends TERM. Says when the last good run of
/// each key began.
async fn work(
    asked: &mut UnboundedReceiver<Asked>,
    service: Service,
    number: u64,
    first_refused: Arc<Notify>,
) -> BTreeMap<String, u64> {
    let (mut failed, mut ran) = (BTreeSet::new(), BTreeMap::new());
    let pid = Pid::from_child(&service.child);
    let mut end = tokio::task::spawn_blocking(move || ended(service));
    let mut begun = 0;
    loop {
        tokio::select! {
            question = asked.recv() => {
                let (key, to) = question.expect("the backend goes on");
                let now = NOW.fetch_add(1, SeqCst);
                begun += 1;
                let status = match failed.insert(key.clone()) {
                    true => StatusCode::INTERNAL_SERVER_ERROR,
                    false => StatusCode::OK,
                };
                if status == StatusCode::OK {
                    ran.insert(key, now);
                }
                let its_end = (begun == number).then(|| {
                    kill_process(pid, Signal::TERM).unwrap();
                    first_refused.clone()
                });
                tokio::spawn(async move {
                    match its_end {
                        Some(refused) => refused.notified().await,
                        // Work takes a while, in which more requests for the key come.
                        None => tokio::time::sleep(Duration::from_millis(now % 4)).await,
                    }
                    let _ = to.send(status);
                });
            }
            report = &mut end => {
                let report = report.unwrap();
                assert!(report.contains("complete: true") && report.contains("cancelled: 0"), "{report}");
                assert!(begun >= number, "it ended by itself");
                return ran;
            }
        }
    }
}

#[test]
fn after_term_every_accepted_key_has_run_and_the_exit_status_is_0() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Ok(backend) = std::env::var(CHILD) {
        runtime.block_on(axum_service::run("127.0.0.1:0", &backend)).unwrap();
        return;
    }
    runtime.block_on(async {
        let (address, mut asked) = backend().await.unwrap();
        for round in 0..ROUNDS {
            let service = start(address);
            let first_refused = Arc::new(Notify::new());
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| tokio::spawn(client(service.address, number, first_refused.clone())))
                .collect();
            let (_, metrics) = ask(service.address, "GET", "/metrics").await.unwrap();
            assert!(metrics.contains("workqueue_adds_total{name=\"refresh\"} "), "{metrics}");
            let ran = work(&mut asked, service, 1 + round * 7, first_refused).await;
            let (mut accepted, mut refused) = (0, 0);
            for client in clients {
                let seen = client.await.unwrap();
                for (key, sent) in seen.accepted {
                    assert!(ran.get(&key) > Some(&sent), "round {round}: {key} was accepted and not run");
                    accepted += 1;
                }
                refused += seen.refused;
            }
            assert!(accepted > 0 && refused > 0, "round {round}: {accepted} accepted, {refused} refused");
        }
    });
}
