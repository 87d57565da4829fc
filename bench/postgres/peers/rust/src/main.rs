//! What pgmq's SQL and apalis-postgres do on a server: a JSON line for each figure.

mod apalis_postgres;
mod pgmq;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Res<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const USAGE: &str = "usage: requeue-postgres-peers (pgmq | apalis) CONNECT (one CALLERS SECONDS | many KEYS | fill KEYS | work \
                     | latency KEYS | semantics), and for pgmq: cycles SECONDS";

#[tokio::main]
async fn main() -> Res {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pgmq", connect, ref what @ ..] => pgmq::figure(connect, what).await,
        ["apalis", connect, ref what @ ..] => apalis_postgres::figure(connect, what).await,
        _ => Err(USAGE.into()),
    }
}

/// As objects of a cluster are called.
fn key(n: u64) -> String {
    format!("namespace-{:03}/object-name-{n:08}", n % 317)
}

/// Calls of so many callers for so long: how many a second. Each caller makes them one after another.
async fn calls<F: Future<Output = Res> + Send>(
    callers: u64,
    time: Duration,
    call: impl Fn(u64) -> F + Clone + Send + Sync + 'static,
) -> Res<f64> {
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for caller in 0..callers {
        let call = call.clone();
        tasks.spawn(async move {
            let mut n = 0;
            while begun.elapsed() < time {
                call((caller << 32) | n).await?;
                n += 1;
            }
            Res::Ok(n)
        });
    }
    let mut all = 0;
    while let Some(made) = tasks.join_next().await {
        all += made??;
    }
    Ok(all as f64 / begun.elapsed().as_secs_f64())
}

fn rate(queue: &str, figure: &str, per_s: f64) {
    println!("{{\"queue\":\"{queue}\",\"figure\":\"{figure}\",\"per_s\":{per_s:.0}}}");
}

/// What a process has worked off; two of them are put together.
fn worked(queue: &str, keys: u64, begun: f64, ended: f64) {
    println!(
        "{{\"queue\":\"{queue}\",\"figure\":\"work\",\"keys\":{keys},\"begun\":{begun:.6},\"ended\":{ended:.6}}}"
    );
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn latency(queue: &str, mut took: Vec<Duration>) {
    took.sort();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    println!(
        "{{\"queue\":\"{queue}\",\"figure\":\"latency\",\"p50_ms\":{:.2},\"p99_ms\":{:.2}}}",
        at(0.5),
        at(0.99)
    );
}

/// What a queue does with three adds of a key, two during its run, the end of a run whose time is over, and two transactions.
struct Semantics {
    queue: &'static str,
    before: String,
    during: String,
    at_once: String,
    zombie: String,
    transactions: String,
}

impl Semantics {
    fn tell(&self) {
        println!(
            "{}",
            serde_json::json!({
                "queue": self.queue, "figure": "semantics", "before": self.before, "during": self.during,
                "at_once": self.at_once, "zombie": self.zombie, "transactions": self.transactions,
            })
        );
    }
}
