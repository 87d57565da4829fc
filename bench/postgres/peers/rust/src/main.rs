//! Measures the SQL of pgmq and apalis-postgres on a server: one JSON line per figure.

mod apalis_postgres;
mod pgmq;

use std::future::Future;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

type Res<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const USAGE: &str = "usage: requeue-postgres-peers (pgmq | apalis) CONNECT (one CALLERS SECONDS | many KEYS | fill KEYS | work \
                     | latency KEYS | semantics), and for pgmq: cycles SECONDS";

#[tokio::main]
async fn main() -> Res {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pgmq", connect, ref what @ ..] => figure::<pgmq::Pgmq>(connect, what).await,
        ["apalis", connect, ref what @ ..] => figure::<apalis_postgres::Apalis>(connect, what).await,
        _ => Err(USAGE.into()),
    }
}

/// A queue that is measured.
trait Peer: Sized + Clone + Send + Sync + 'static {
    const NAME: &'static str;
    /// Number of its connections while it works.
    const CONNECTIONS: u32;

    async fn open(connect: &str, connections: u32) -> Res<Self>;
    fn send(&self, key: String) -> impl Future<Output = Res> + Send;
    /// Some 200.
    async fn send_many(&self, keys: Vec<String>) -> Res;
    /// Works off what is there: how many keys, and when the last one was handed out or `begun`.
    async fn work(&self, begun: f64) -> Res<(u64, f64)>;
    /// Works in the background, and reports each hand-out. The worker is running when this returns.
    async fn tells(&self, tell: UnboundedSender<Instant>);
    async fn semantics(&self) -> Res<Semantics>;
    /// Adds and works off for this time, and prints the rate every two seconds.
    async fn cycles(&self, _: Duration) -> Res {
        Err(USAGE.into())
    }
}

async fn figure<P: Peer>(connect: &str, what: &[&str]) -> Res {
    match what {
        ["one", callers, seconds] => {
            let callers: u32 = callers.parse()?;
            let queue = P::open(connect, callers).await?;
            let send = move |n| {
                let queue = queue.clone();
                async move { queue.send(key(n)).await }
            };
            let time = Duration::from_secs_f64(seconds.parse()?);
            rate(P::NAME, "one", calls(callers.into(), time, send).await?);
        }
        ["many", keys] => {
            let (queue, keys) = (P::open(connect, 2).await?, keys.parse()?);
            let begun = Instant::now();
            fill(&queue, keys).await?;
            rate(P::NAME, "many", keys as f64 / begun.elapsed().as_secs_f64());
        }
        ["fill", keys] => fill(&P::open(connect, 2).await?, keys.parse()?).await?,
        ["work"] => {
            let queue = P::open(connect, P::CONNECTIONS).await?;
            let begun = now();
            let (keys, ended) = queue.work(begun).await?;
            worked(P::NAME, keys, begun, ended);
        }
        ["latency", keys] => {
            let queue = P::open(connect, P::CONNECTIONS).await?;
            let (tell, mut told) = unbounded_channel();
            queue.tells(tell).await;
            let mut took = Vec::new();
            for n in 0..keys.parse()? {
                tokio::time::sleep(Duration::from_millis(10)).await;
                let begun = Instant::now();
                queue.send(key(n)).await?;
                let told = tokio::time::timeout(Duration::from_secs(60), told.recv()).await?;
                took.push(told.ok_or("it works")?.duration_since(begun));
            }
            latency(P::NAME, took);
        }
        ["cycles", seconds] => {
            let time = Duration::from_secs(seconds.parse()?);
            P::open(connect, 12).await?.cycles(time).await?;
        }
        ["semantics"] => P::open(connect, 12).await?.semantics().await?.tell(),
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

async fn fill(queue: &impl Peer, keys: u64) -> Res {
    let all: Vec<u64> = (0..keys).collect();
    for some in all.chunks(200) {
        queue.send_many(some.iter().copied().map(key).collect()).await?;
    }
    Ok(())
}

/// A key in the form of a cluster's object name.
fn key(n: u64) -> String {
    format!("namespace-{:03}/object-name-{n:08}", n % 317)
}

/// Calls per second of this many callers. Each caller makes them one after another.
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

/// Prints the keys that a process has worked off; two such lines are added up.
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

/// A queue's behaviour with three adds of a key, two during its run, the end of a run whose time is over, and
/// two transactions.
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
