//! The load of triggers while faults happen.

use crate::{Counts, LEASE, NEVER, client, dropped, random};
use requeue::{Add, BoxError};
use requeue_postgres::{Postgres, Queue};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio_postgres::{Client, Transaction};

/// An adder. Each has rows of its own in the world, so that adders do not wait for each other there.
pub(crate) struct Adder {
    pub(crate) who: i32,
    /// Connection string through the proxy.
    pub(crate) connect: String,
    /// Connection string without the proxy.
    pub(crate) direct: String,
    pub(crate) keys: u64,
    pub(crate) ends: Arc<AtomicBool>,
    pub(crate) counts: Counts,
    pub(crate) seed: AtomicU64,
}

/// PostgreSQL's code for two transactions that wait for each other.
const DEADLOCK: &str = "40P01";
const BUMP: &str = "update world set v = v + 1 where key = $1 and who = $2";

async fn pause() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

impl Adder {
    fn ends(&self) -> bool {
        self.ends.load(Relaxed)
    }

    /// Opens one handle, for use whatever happens to its connections.
    async fn queue(&self) -> Queue<String> {
        loop {
            if let Ok(pg) = Postgres::connect(&self.connect).await {
                if let Ok(q) = pg.queue("faults").lease(LEASE).open().await {
                    return q;
                }
            }
            pause().await;
        }
    }

    /// Triggers keys, a third of them in users' transactions, until it is told to end.
    pub(crate) async fn adds(self) -> u64 {
        let (q, mut added) = (self.queue().await, 0);
        while !self.ends() {
            drop(self.adds_until_it_breaks(&q, &mut added).await);
            pause().await;
        }
        added
    }

    async fn adds_until_it_breaks(&self, q: &Queue<String>, added: &mut u64) -> Result<(), BoxError> {
        let (mut db, world) = (client(&self.connect).await?, client(&self.direct).await?);
        let (bump, bump_directly) = (db.prepare(BUMP).await?, world.prepare(BUMP).await?);
        while !self.ends() {
            let key = format!("k{}", random(&self.seed) % self.keys);
            if random(&self.seed) % 3 == 0 {
                let tx = db.transaction().await?;
                tx.execute(&bump, &[&key, &self.who]).await?;
                self.add_in(q, &tx, &key).await?;
                tx.commit().await?;
            } else {
                let bumped = world.execute(&bump_directly, &[&key, &self.who]).await;
                if random(&self.seed) % 50 == 0 && dropped(&self.seed, q.add(key.clone())).await.is_none() {
                    self.counts.add("future of an add dropped");
                }
                // whatever became of that, if the server was lost: until the trigger is accepted
                while q.add(key.clone()).await.is_err() {
                    pause().await;
                }
                bumped?;
            }
            *added += 1;
            tokio::time::sleep(Duration::from_millis(random(&self.seed) % 20)).await;
        }
        Ok(())
    }

    async fn add_in(&self, q: &Queue<String>, tx: &Transaction<'_>, key: &str) -> Result<(), BoxError> {
        if random(&self.seed) % 50 == 0 {
            if let Some(added) = dropped(&self.seed, q.add_in(tx, key.to_owned(), Add::now())).await {
                return Ok(added?);
            }
            self.counts.add("future of an add in a transaction dropped");
        }
        Ok(q.add_in(tx, key.to_owned(), Add::now()).await?)
    }

    /// Triggers a few keys that others trigger too, in long transactions. Some are longer than a lease, and a
    /// third is rolled back: those trigger one more key, which never runs.
    pub(crate) async fn transacts(self, is_reverse: bool) -> u64 {
        let (q, mut added) = (self.queue().await, 0);
        let mut db = None;
        while !self.ends() {
            match self.transaction(&q, db.take(), is_reverse).await {
                Ok((client, committed)) => {
                    db = Some(client);
                    added += committed;
                }
                Err(e) => {
                    let said = e.downcast_ref::<tokio_postgres::Error>().and_then(|e| e.code());
                    let is_deadlock =
                        said.is_some_and(|it| it.code() == DEADLOCK) || e.to_string().contains(DEADLOCK);
                    assert!(!is_deadlock, "two transactions that add wait for each other: {e}");
                    pause().await;
                }
            }
        }
        added
    }

    async fn transaction(
        &self,
        q: &Queue<String>,
        db: Option<Client>,
        is_reverse: bool,
    ) -> Result<(Client, u64), BoxError> {
        let mut db = match db {
            Some(db) => db,
            None => client(&self.connect).await?,
        };
        let rolls_back = random(&self.seed) % 3 == 0;
        let is_long = random(&self.seed) % 8 == 0;
        let hold = if is_long { LEASE * 2 } else { Duration::from_millis(random(&self.seed) % 300) };
        let mut keys = ["k0", "k1", "k2"];
        if is_reverse {
            keys.reverse();
        }
        let tx = db.transaction().await?;
        for key in keys {
            tx.execute(BUMP, &[&key, &self.who]).await?;
            self.add_in(q, &tx, key).await?;
            tokio::time::sleep(hold / 3).await;
        }
        if rolls_back {
            self.add_in(q, &tx, NEVER).await?;
            tx.rollback().await?;
        } else {
            tx.commit().await?;
        }
        if rolls_back {
            self.counts.add("transaction in opposite order rolled back");
        } else if is_long {
            self.counts.add("transaction in opposite order held for two leases");
        }
        Ok((db, if rolls_back { 0 } else { 3 }))
    }
}
