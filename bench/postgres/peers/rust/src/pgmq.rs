use crate::{Res, Semantics, calls, key, latency, now, rate, worked};
use pgmq::{PGMQueueExt, PgmqError};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ME: &str = "pgmq";
/// Of a message that was read, in seconds: nobody else reads it meanwhile.
const LEASE: i32 = 60;

async fn open(connect: &str, connections: u32) -> Res<Arc<PGMQueueExt>> {
    let queue = PGMQueueExt::new(connect.into(), connections).await?;
    queue.install_sql_from_embedded().await?;
    queue.create("bench").await?;
    Ok(Arc::new(queue))
}

async fn fill(queue: &PGMQueueExt, keys: u64) -> Res {
    let all: Vec<u64> = (0..keys).collect();
    for some in all.chunks(200) {
        queue.send_batch("bench", &some.iter().copied().map(key).collect::<Vec<_>>()).await?;
    }
    Ok(())
}

/// Reads 200 and deletes them, until there are none: how many.
async fn read_and_delete(queue: &PGMQueueExt) -> Result<u64, PgmqError> {
    let read = queue.read_batch::<Value>("bench", LEASE, 200).await?;
    let ids: Vec<i64> = read.iter().map(|message| message.msg_id).collect();
    if !ids.is_empty() {
        queue.delete_batch("bench", &ids).await?;
    }
    Ok(ids.len() as u64)
}

pub(crate) async fn figure(connect: &str, what: &[&str]) -> Res {
    match what {
        ["one", callers, seconds] => {
            let callers = callers.parse()?;
            let queue = open(connect, callers as u32).await?;
            let send = move |n| {
                let queue = queue.clone();
                async move { Ok(queue.send("bench", &key(n)).await.map(drop)?) }
            };
            rate(ME, "one", calls(callers, Duration::from_secs_f64(seconds.parse()?), send).await?);
        }
        ["many", keys] => {
            let (queue, keys) = (open(connect, 1).await?, keys.parse()?);
            let begun = Instant::now();
            fill(&queue, keys).await?;
            rate(ME, "many", keys as f64 / begun.elapsed().as_secs_f64());
        }
        ["fill", keys] => fill(&*open(connect, 1).await?, keys.parse()?).await?,
        ["work"] => {
            let queue = open(connect, 4).await?;
            let begun = now();
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..4 {
                let queue = queue.clone();
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
            worked(ME, keys, begun, ended);
        }
        // its own call for that: it looks every 100 ms, within the server
        ["latency", keys] => {
            let queue = open(connect, 2).await?;
            let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
            let reader = queue.clone();
            let reads = tokio::spawn(async move {
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
            let mut took = Vec::new();
            for n in 0..keys.parse()? {
                tokio::time::sleep(Duration::from_millis(10)).await;
                let begun = Instant::now();
                queue.send("bench", &key(n)).await?;
                took.push(told.recv().await.ok_or("it reads")?.duration_since(begun));
            }
            reads.abort();
            latency(ME, took);
        }
        // at most some 4,000 messages are under way
        ["cycles", seconds] => {
            let queue = open(connect, 12).await?;
            let (sent, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let mut tasks = tokio::task::JoinSet::new();
            for n in 0..12 {
                let (queue, sent, done) = (queue.clone(), sent.clone(), done.clone());
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
            while begun.elapsed() < Duration::from_secs(seconds.parse()?) {
                tokio::time::sleep(Duration::from_secs(2)).await;
                let now = done.load(Relaxed);
                let (second, per_s) = (begun.elapsed().as_secs(), (now - before) / 2);
                println!(
                    "{{\"queue\":\"pgmq\",\"figure\":\"cycles\",\"second\":{second},\"per_s\":{per_s}}}"
                );
                before = now;
            }
        }
        ["semantics"] => {
            let queue = open(connect, 4).await?;
            let read = async |lease| queue.read::<Value>("bench", lease).await;
            for _ in 0..3 {
                queue.send("bench", &"a").await?;
            }
            let mut before = 0;
            while read(LEASE).await?.is_some() {
                before += 1;
            }
            queue.send("bench", &"b").await?;
            let _held = read(LEASE).await?.ok_or("it was sent")?;
            queue.send("bench", &"b").await?;
            queue.send("bench", &"b").await?;
            let mut during = 0;
            while read(LEASE).await?.is_some() {
                during += 1;
            }
            let id = queue.send("bench", &"c").await?;
            let first = read(1).await?.ok_or("it was sent")?;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let second = read(LEASE).await?.ok_or("its time was over")?;
            let zombie = if id == first.msg_id && id == second.msg_id && queue.delete("bench", id).await? {
                "accepted"
            } else {
                "refused"
            };
            let semantics = Semantics {
                queue: ME,
                before: before.to_string(),
                during: format!("{during} beside it"),
                at_once: (during + 1).to_string(),
                zombie: zombie.into(),
                transactions: "no keys".into(),
            };
            semantics.tell();
        }
        _ => return Err(crate::USAGE.into()),
    }
    Ok(())
}
