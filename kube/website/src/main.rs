//! The operator. `website` runs it, in a cluster or by the kubeconfig; `website crd` prints the definition of its
//! kind.

use anyhow::{Context, bail};
use kube::client::ClientBuilder;
use requeue_kube::Metrics;
use requeue_kube::lease::client_layer;
use requeue_kube::prometheus_client::registry::Registry;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use website::{GRACE, http};

const USAGE: &str = "usage: website        runs the operator
       website crd    prints the definition of its kind

environment:
  LISTEN    where /metrics and the probes are: 0.0.0.0:8080 unless it is set
  POD_NAME  under which name it stands for the lease `website`: that of the process unless it is set
  RUST_LOG  what is logged: info unless it is set";

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => run(),
        ["crd"] => {
            print!("{}", website::crd_yaml()?);
            Ok(())
        }
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => bail!("`website` does not know {}\n{USAGE}", arguments.join(" ")),
    }
}

#[tokio::main]
async fn run() -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    let listen = std::env::var("LISTEN").unwrap_or_else(|_| "0.0.0.0:8080".to_owned());
    let listen: SocketAddr =
        listen.parse().with_context(|| format!("LISTEN is {listen}, no address with a port"))?;
    // Before anything begins, so that no signal is lost.
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);

    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let mut config = kube::Config::infer().await.context("no cluster and no kubeconfig")?;
    // The controller and the elector come back to what failed by themselves, and sooner.
    config.default_retry = false;
    let client = || anyhow::Ok(ClientBuilder::try_from(config.clone())?.with_layer(&metrics.client_layer()));
    let pod = std::env::var("POD_NAME").unwrap_or_else(|_| format!("process-{}", std::process::id()));
    let elector = website::elect(&client()?.build(), &metrics, &pod)?;
    // A process that is not the leader does not write.
    let fenced = client()?.with_layer(&client_layer(elector.fence())).build();
    let sites = website::start(fenced, &metrics, &elector)?;
    let listener = TcpListener::bind(listen).await.with_context(|| format!("can't listen on {listen}"))?;
    tracing::info!(%listen, "the operator runs");
    let server = axum::serve(listener, http::routes(registry, sites.clone()));

    tokio::select! {
        ended = server.into_future() => ended.context("the HTTP server ended")?,
        // The server goes on until all has ended.
        () = async {
            tokio::select! { _ = term.recv() => (), _ = int.recv() => () }
            let report = sites.drain(GRACE).await;
            tracing::info!(done = report.done, cancelled = report.cancelled, left = report.left, "drained");
            // Last, for now another replica begins.
            elector.release().await;
        } => (),
    }
    Ok(())
}
