//! What the tests of this crate share: a server's database with the schema, and how they wait.

#![allow(dead_code)] // no test uses all of it

#[allow(missing_docs, unreachable_pub)]
#[path = "../../../../verify/src/cluster.rs"]
pub(crate) mod cluster;

use self::cluster::Cluster;
use requeue_postgres::Postgres;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

/// Whatever is waited for comes within this time, however slow the machine is, unless it never comes.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// A database of the server that all tests of a process share.
pub(crate) struct Database {
    pub(crate) cluster: &'static Cluster,
    pub(crate) url: String,
    pub(crate) name: String,
}

impl Database {
    /// A database with the schema. `None`, said on standard error, where PostgreSQL is not installed.
    pub(crate) fn new() -> Option<Self> {
        let this = Self::bare()?;
        this.connect().migrate().wait().expect("a schema");
        Some(this)
    }

    /// One without the schema.
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

    /// What psql prints for this.
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

/// Waits until it holds. Only what never comes reaches the limit.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "it does not come: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The server's looks for keys, which it notes: when one came, how many keys were wanted, and how many there were.
///
/// A process whose look finds nothing sleeps for a second by its own clock, unless it is woken. So somebody has woken it for a look
/// that comes sooner; on a slow machine looks only come later.
pub(crate) struct Looks<F>(F);

impl<F: Fn(&str) -> String> Looks<F> {
    /// They are noted from now on. No process may make its first look meanwhile: the server may make that session's plan with
    /// the function as it was, and keep it for ever.
    pub(crate) fn noted(sql: F) -> Self {
        sql("alter function requeue.claim(int, bigint, int, boolean) rename to claims;
             create table look(at timestamptz, o bigint, found int);
             create function requeue.claim(q int, o_ bigint, n int, folds boolean) returns table(k bytea, f bigint, att int, fails int, prio int,
                 val jsonb, place bigint) language plpgsql as $$
             declare t timestamptz := clock_timestamp(); m int;
             begin
               return query select * from requeue.claims(q, o_, n, folds);
               get diagnostics m = row_count;
               insert into look values (t, o_, m);
             end $$;
             -- the clocks of two programs are not quite the same
             create view looks as select *, at - lag(at) over (partition by o order by at) < interval '0.9 s' as early from look");
        Self(sql)
    }

    /// Waits until a process has slept for its second and looked in vain: what happened before does not wake it any more.
    pub(crate) fn has_slept(&self) {
        (self.0)("delete from look");
        let last = "(select * from looks order by at desc limit 1) x";
        let slept = format!("select exists(select 1 from {last} where not early and found = 0)");
        until("a look that nobody has asked for", || (self.0)(&slept) == "t");
    }

    /// Waits until a look that somebody has asked for finds a key. `adds` is called again and again, each time while the process
    /// sleeps, with the number of the call; it adds a key and waits for its run.
    pub(crate) fn some_was_early(&self, mut adds: impl FnMut(u32)) {
        let mut n = 0;
        until("a look for a key that was just added", || {
            self.has_slept();
            adds(n);
            n += 1;
            (self.0)("select exists(select 1 from looks where early and found > 0)") == "t"
        });
    }
}
