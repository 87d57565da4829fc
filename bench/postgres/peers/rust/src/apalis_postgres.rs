use crate::{Peer, Res, Semantics, now};
use apalis::prelude::*;
use apalis_postgres::{Config, PgPool, PostgresStorage};
use sqlx::postgres::PgPoolOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

fn config() -> Config {
    Config::default().queue("bench").batch_size(200)
}

/// apalis-postgres.
#[derive(Clone)]
pub(crate) struct Apalis(PgPool);

impl Peer for Apalis {
    const NAME: &'static str = "apalis-postgres";
    const CONNECTIONS: u32 = 8;

    async fn open(connect: &str, connections: u32) -> Res<Self> {
        let pool = PgPoolOptions::new().max_connections(connections).connect(connect).await?;
        PostgresStorage::setup(&pool).await?;
        Ok(Self(pool))
    }

    async fn send(&self, key: String) -> Res {
        let mut queue = PostgresStorage::new(&self.0).with_config(config());
        Ok(queue.push(key).await.map_err(|e| e.to_string())?)
    }

    async fn send_many(&self, keys: Vec<String>) -> Res {
        let mut queue = PostgresStorage::new(&self.0).with_config(config());
        Ok(queue.push_bulk(keys).await.map_err(|e| e.to_string())?)
    }

    async fn work(&self, begun: f64) -> Res<(u64, f64)> {
        let (tell, mut told) = mpsc::unbounded_channel();
        work(&self.0, "work", config(), false, move |_| {
            let _ = tell.send(now());
            async {}
        });
        let (mut keys, mut ended) = (0, begun);
        // its poll has a back-off of up to a minute
        while let Ok(Some(at)) = tokio::time::timeout(Duration::from_secs(5), told.recv()).await {
            (keys, ended) = (keys + 1, at);
        }
        Ok((keys, ended))
    }

    async fn tells(&self, tell: mpsc::UnboundedSender<Instant>) {
        work(&self.0, "latency", config(), true, move |_| {
            let _ = tell.send(Instant::now());
            async {}
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    async fn semantics(&self) -> Res<Semantics> {
        let pool = &self.0;
        let refused = |adds: Vec<Result<(), String>>| match adds.iter().filter(|add| add.is_err()).count() {
            0 => String::new(),
            n => format!(", {n} adds failed"),
        };
        let wait = || tokio::time::sleep(Duration::from_secs(3));
        // "b" waits to be let go in its first run, and so does "c"
        let (runs, go, zombie_goes) =
            (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()), Arc::new(Notify::new()));
        let before = vec![add(pool, "a").await, add(pool, "a").await, add(pool, "a").await];
        let (counts, gate, zombie_gate) = (runs.clone(), go.clone(), zombie_goes.clone());
        // it does not say that it lives
        let silent = config().heartbeat_interval(Duration::from_secs(3600));
        work(pool, "first", silent, true, move |key| {
            let (counts, gate, zombie_gate) = (counts.clone(), gate.clone(), zombie_gate.clone());
            async move {
                counts.fetch_add(1, Relaxed);
                match &key[..] {
                    "b" => gate.notified().await,
                    "c" => zombie_gate.notified().await,
                    _ => {}
                }
            }
        });
        wait().await;
        let before = format!("{}{}", runs.swap(0, Relaxed), refused(before));
        add(pool, "b").await?;
        wait().await;
        let during = vec![add(pool, "b").await, add(pool, "b").await];
        wait().await;
        let beside = runs.load(Relaxed);
        go.notify_waiters();
        wait().await;
        let during = format!("{}{}", runs.load(Relaxed) - 1, refused(during));

        add(pool, "c").await?;
        wait().await;
        let (second, goes) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let (counts, gate) = (second.clone(), goes.clone());
        let lively = config().heartbeat_interval(Duration::from_secs(1)).missed_heartbeats(2);
        work(pool, "second", lively, true, move |_| {
            let (counts, gate) = (counts.clone(), gate.clone());
            async move {
                counts.fetch_add(1, Relaxed);
                gate.notified().await;
            }
        });
        let begun = Instant::now();
        while second.load(Relaxed) == 0 {
            if begun.elapsed() > Duration::from_secs(60) {
                return Err("nobody took the run of a worker that is silent".into());
            }
            wait().await;
        }
        zombie_goes.notify_waiters();
        wait().await;
        let done: (String,) = sqlx::query_as("select status from apalis.jobs where idempotency_key = 'c'")
            .fetch_one(pool)
            .await?;
        goes.notify_waiters();
        let zombie = if done.0 == "Done" { "accepted" } else { "refused" };

        let mut one = pool.begin().await?;
        let mut two = pool.begin().await?;
        let push = async |tx: &mut sqlx::postgres::PgConnection, key: &str| {
            let task =
                TaskBuilder::new(serde_json::to_vec(key).unwrap_or_default()).idempotency_key(key).build();
            apalis_postgres::queries::push_tasks(tx, "bench", vec![task]).await
        };
        push(&mut *one, "x").await?;
        push(&mut *two, "y").await?;
        let both = async { tokio::join!(push(&mut *one, "y"), push(&mut *two, "x")) };
        let transactions = match tokio::time::timeout(Duration::from_secs(5), both).await {
            Err(_) => "they wait for each other".into(),
            Ok((Ok(()), Ok(()))) => "both go on".into(),
            Ok((Err(e), _) | (_, Err(e))) => {
                if format!("{e:?}").contains("deadlock") {
                    "deadlock".into()
                } else {
                    e.to_string()
                }
            }
        };
        Ok(Semantics {
            queue: Self::NAME,
            before,
            during,
            at_once: beside.to_string(),
            zombie: zombie.into(),
            transactions,
        })
    }
}

/// A worker of this name, in the background.
fn work<F: Future<Output = ()> + Send + 'static>(
    pool: &PgPool,
    name: &str,
    config: Config,
    notified: bool,
    handler: impl Fn(String) -> F + Clone + Send + Sync + 'static,
) {
    let backend = PostgresStorage::<String>::new(pool).with_config(config);
    let run = move |key: String| {
        let ran = handler(key);
        async move {
            ran.await;
            Ok::<(), BoxDynError>(())
        }
    };
    let name = format!("{name}-{}", std::process::id());
    if notified {
        let worker = WorkerBuilder::new(name).backend(backend.with_pubsub()).build(run);
        tokio::spawn(worker.run());
    } else {
        let worker = WorkerBuilder::new(name).backend(backend).build(run);
        tokio::spawn(worker.run());
    }
}

/// Adds with the key as idempotency key, which is its one way to have a key.
async fn add(pool: &PgPool, key: &str) -> Result<(), String> {
    let mut queue = PostgresStorage::new(pool).with_config(config());
    let task = TaskBuilder::new(key.to_owned()).idempotency_key(key).build();
    queue.push_task(task).await.map_err(|e| e.to_string())
}
