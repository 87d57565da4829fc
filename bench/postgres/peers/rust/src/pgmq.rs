use crate::{Peer, Res, Semantics, key, now};
use pgmq::{PGMQueueExt, PgmqError};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Seconds for which a message that was read is hidden from other readers.
const LEASE: i32 = 60;

/// pgmq's SQL, by its own client.
#[derive(Clone)]
pub(crate) struct Pgmq(Arc<PGMQueueExt>);

/// Reads 200 and deletes them, until there are none: how many.
async fn read_and_delete(queue: &PGMQueueExt) -> Result<u64, PgmqError> {
    let read = queue.read_batch::<Value>("bench", LEASE, 200).await?;
    let ids: Vec<i64> = read.iter().map(|message| message.msg_id).collect();
    if !ids.is_empty() {
        queue.delete_batch("bench", &ids).await?;
    }
    Ok(ids.len() as u64)
}

impl Peer for Pgmq {
    const NAME: &'static str = "pgmq";
    const CONNECTIONS: u32 = 4;

    async fn open(connect: &str, connections: u32) -> Res<Self> {
        let queue = PGMQueueExt::new(connect.into(), connections).await?;
        queue.install_sql_from_embedded().await?;
        queue.create("bench").await?;
        Ok(Self(Arc::new(queue)))
    }

    async fn send(&self, key: String) -> Res {
        Ok(self.0.send("bench", &key).await.map(drop)?)
    }

    async fn send_many(&self, keys: Vec<String>) -> Res {
        Ok(self.0.send_batch("bench", &keys).await.map(drop)?)
    }

    async fn work(&self, begun: f64) -> Res<(u64, f64)> {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let queue = self.0.clone();
            tasks.spawn(async move {
                let (mut all, mut ended) = (0, begun);
                loop {
                    match read_and_delete(&queue).await? {
                        0 => return Ok::<_, PgmqError>((all, ended)),
                        some => (all, ended) = (all + some, now()),
                    }
                }
            });
        }
        let (mut keys, mut ended) = (0, begun);
        while let Some(done) = tasks.join_next().await {
            let (some, at) = done??;
            (keys, ended) = (keys + some, f64::max(ended, at));
        }
        Ok((keys, ended))
    }

    /// Its own call for that: it looks every 100 ms, within the server.
    async fn tells(&self, tell: UnboundedSender<Instant>) {
        let reader = self.0.clone();
        tokio::spawn(async move {
            loop {
                let wait = Duration::from_secs(5);
                let look = Duration::from_millis(100);
                let read =
                    reader.read_batch_with_poll::<Value>("bench", LEASE, 1, Some(wait), Some(look)).await;
                for message in read.ok().flatten().unwrap_or_default() {
                    if tell.send(Instant::now()).is_err() {
                        return;
                    }
                    drop(reader.delete("bench", message.msg_id).await);
                }
            }
        });
    }

    async fn semantics(&self) -> Res<Semantics> {
        let read = async |lease| self.0.read::<Value>("bench", lease).await;
        for _ in 0..3 {
            self.0.send("bench", &"a").await?;
        }
        let mut before = 0;
        while read(LEASE).await?.is_some() {
            before += 1;
        }
        self.0.send("bench", &"b").await?;
        let _held = read(LEASE).await?.ok_or("it was sent")?;
        self.0.send("bench", &"b").await?;
        self.0.send("bench", &"b").await?;
        let mut during = 0;
        while read(LEASE).await?.is_some() {
            during += 1;
        }
        let id = self.0.send("bench", &"c").await?;
        let first = read(1).await?.ok_or("it was sent")?;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let second = read(LEASE).await?.ok_or("its time was over")?;
        let zombie = if id == first.msg_id && id == second.msg_id && self.0.delete("bench", id).await? {
            "accepted"
        } else {
            "refused"
        };
        Ok(Semantics {
            queue: Self::NAME,
            before: before.to_string(),
            during: format!("{during} beside it"),
            at_once: (during + 1).to_string(),
            zombie: zombie.into(),
            transactions: "no keys".into(),
        })
    }

    /// At most about 4,000 messages are under way.
    async fn cycles(&self, time: Duration) -> Res {
        let (sent, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..12 {
            let (queue, sent, done) = (self.0.clone(), sent.clone(), done.clone());
            tasks.spawn(async move {
                loop {
                    if n < 4 {
                        if sent.load(Relaxed) > done.load(Relaxed) + 4000 {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            continue;
                        }
                        let from = sent.fetch_add(200, Relaxed);
                        let keys: Vec<String> = (from..from + 200).map(|n| key(n % 10_000)).collect();
                        queue.send_batch("bench", &keys).await?;
                    } else {
                        match read_and_delete(&queue).await? {
                            0 => tokio::time::sleep(Duration::from_millis(1)).await,
                            some => drop(done.fetch_add(some, Relaxed)),
                        }
                    }
                }
                #[allow(unreachable_code)]
                Ok::<(), PgmqError>(())
            });
        }
        let (begun, mut before) = (Instant::now(), 0);
        while begun.elapsed() < time {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let now = done.load(Relaxed);
            let (second, per_s) = (begun.elapsed().as_secs(), (now - before) / 2);
            println!("{{\"queue\":\"pgmq\",\"figure\":\"cycles\",\"second\":{second},\"per_s\":{per_s}}}");
            before = now;
        }
        Ok(())
    }
}
