//! Helpers of this crate's tests: a server's database with the schema, and waiting.

#![allow(dead_code)] // no test uses all of it

#[allow(missing_docs, unreachable_pub)]
#[path = "../../../../verify/src/cluster.rs"]
pub(crate) mod cluster;

use self::cluster::Cluster;
use requeue::Added;
use requeue_postgres::{Postgres, Queue};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, GenericClient, NoTls};

/// A generous time limit: on the slowest machine only an event that never comes reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// A database of the server that all tests of a process share.
pub(crate) struct Database {
    pub(crate) cluster: &'static Cluster,
    pub(crate) url: String,
    pub(crate) name: String,
}

impl Database {
    /// A database with the schema. `None`, after a line on standard error, if PostgreSQL is not installed.
    pub(crate) fn new() -> Option<Self> {
        let this = Self::bare()?;
        this.connect().migrate().wait().expect("a schema");
        Some(this)
    }

    /// A database without the schema.
    pub(crate) fn bare() -> Option<Self> {
        let cluster = Cluster::shared()?;
        let url = cluster.database();
        let name = url.rsplit('=').next().expect("it ends with the name").to_owned();
        Some(Self { cluster, url, name })
    }

    /// A process's handle.
    pub(crate) fn connect(&self) -> Postgres {
        Postgres::connect(&self.url).wait().expect("it is up")
    }

    /// Output of psql for this statement.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.name, sql)
    }

    /// A connection of the user's own.
    pub(crate) async fn client(&self) -> Client {
        client(&self.url).await
    }
}

/// A user's connection, which a task of the runtime drives.
pub(crate) async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("it is up");
    tokio::spawn(connection);
    client
}

pub(crate) fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime")
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

/// Waits until `holds` is true. Only an event that never comes reaches the limit.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "it does not come: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A record of the server's looks for keys: claims with their numbers of keys, and the ticks of sleeping
/// processes with their numbers of queues that had some.
///
/// A sleeping process claims when it is notified, or when its tick, once a second, has found keys. So it was
/// woken if it has claimed a key and no tick found one.
pub(crate) struct Looks<F>(F);

impl<F: Fn(&str) -> String> Looks<F> {
    /// Starts the record. No process may make its first look meanwhile: the server may make that session's
    /// plan with the earlier function, and keep it for ever.
    pub(crate) fn noted(sql: F) -> Self {
        sql("create table look(at timestamptz default clock_timestamp(), what text, found int);
             alter function requeue.claim(int, bigint, int, boolean) rename to claims;
             create function requeue.claim(q int, o_ bigint, n int, folds boolean) returns table(k bytea, f bigint, att int, fails int, prio int,
                 val jsonb, place bigint) language plpgsql as $$
             declare m int;
             begin
               return query select * from requeue.claims(q, o_, n, folds);
               get diagnostics m = row_count;
               insert into look(what, found) values ('claim', m);
             end $$;
             alter function requeue.tick(bigint[], bigint[], int[], bigint[], boolean, boolean, bigint[], bigint[]) rename to ticks;
             create function requeue.tick(os bigint[], ls bigint[], qs int[], mine bigint[], hears boolean, listens boolean, awake bigint[],
                 tired bigint[]) returns table(kind int, n bigint) language plpgsql as $$
             declare r record; m int := 0;
             begin
               for r in select * from requeue.ticks(os, ls, qs, mine, hears, listens, awake, tired) loop
                 kind := r.kind;
                 n := r.n;
                 if kind = 2 then m := m + 1; end if;
                 return next;
               end loop;
               if cardinality(qs) > 0 then insert into look(what, found) values ('tick', m); end if;
             end $$");
        Self(sql)
    }

    /// Waits until a sleeping process has looked in vain: earlier events no longer wake it.
    pub(crate) fn has_slept(&self) {
        (self.0)("delete from look");
        until("a look that nobody has asked for", || {
            (self.0)("select exists(select 1 from look where what = 'tick' and found = 0)") == "t"
        });
    }

    /// Waits until a requested look finds a key. `adds` is called repeatedly, each time while the process
    /// sleeps, with the number of the call; it adds a key and waits for its run.
    pub(crate) fn some_was_early(&self, mut adds: impl FnMut(u32)) {
        let mut n = 0;
        until("a look for a key that was just added", || {
            self.has_slept();
            (self.0)("delete from look");
            adds(n);
            n += 1;
            (self.0)(
                "select bool_or(what = 'claim' and found > 0) and not bool_or(what = 'tick' and found > 0) from look",
            ) == "t"
        });
    }
}

/// Ends all leases, and waits until that is noticed.
pub(crate) fn leases_end(db: &Database) {
    db.sql("update requeue.owner set lease_until = '-infinity'");
    // an owner whose row is locked by a call of its own is left out
    until("the end of the leases", || {
        db.sql("select requeue.reap(1000)");
        db.sql("select count(*) from requeue.owner where lease_until = '-infinity'") == "0"
    });
}

pub(crate) fn open(pg: &Postgres) -> Queue<String> {
    pg.queue("orders").open().wait().expect("the schema is there")
}

pub(crate) fn add(q: &Queue<String>, key: &str) -> Added {
    q.add(key.to_owned()).wait().expect("it is up")
}

/// Ends these runs as succeeded, and claims up to nine keys, as owner 1 of queue 1. Returns the server's
/// answer, line by line: `0` for an accepted end, `0 locked` for one to be sent again, `1 k` for a key, `3`
/// if triggers must be folded in.
pub(crate) async fn next_of(client: &impl GenericClient, ends: &[(&str, i64)]) -> Vec<String> {
    let (keys, fences): (Vec<&[u8]>, Vec<i64>) =
        ends.iter().map(|(key, fence)| (key.as_bytes(), *fence)).unzip();
    let next = "select kind || case when f < 0 then ' locked' else coalesce(' ' || convert_from(k, 'UTF8'), '') end from requeue.next(1, 1, 9, $1, $2,
                array_fill(0::smallint, array[$3::int]), array_fill(0::bigint, array[$3]), array_fill(0, array[$3]), array_fill(0, array[$3]),
                array_fill(null::jsonb, array[$3]), array_fill(null::text, array[$3])) order by 1";
    let count = i32::try_from(keys.len()).expect("few");
    let rows = client.query(next, &[&keys, &fences, &count]).await.expect("it is up");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Waits until a session waits for a lock, while other futures of the task go on.
pub(crate) async fn somebody_waits(db: &Database) {
    waiting(db, "1").await;
}

/// Waits until no session waits for a lock.
pub(crate) async fn nobody_waits(db: &Database) {
    waiting(db, "0").await;
}

async fn waiting(db: &Database, sessions: &str) {
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let waits = async {
        while db.sql(waits) != sessions {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, waits).await.expect("so many sessions that wait for a lock");
}

/// Makes owner 1 hold these keys with the fences 1, 2 and so on.
pub(crate) fn are_held(db: &Database, keys: &[&str]) {
    let q = open(&db.connect());
    for key in keys {
        add(&q, key);
    }
    db.sql("select requeue.join_(1, 'test', 3600000000); select requeue.claim(1, 1, 9, true)");
    let fences: Vec<String> = (1..=keys.len()).map(|fence| fence.to_string()).collect();
    assert_eq!(db.sql("select fence from requeue.item order by pos"), fences.join("\n"));
}
