//! The processes that work on a queue.

use crate::link::{Failed, Link};
use requeue_engine::Holder;
use std::time::Duration;
use tokio_postgres::Row;

/// A process that works on a queue: [`Client::processes`](crate::Client::processes).
///
/// ```no_run
/// # let pg = requeue_postgres::Postgres::connect("host=db dbname=shop").wait()?;
/// let processes = pg.client("orders").processes().wait()?;
/// println!("{} keys are being run", processes.iter().map(|it| it.held).sum::<u64>());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// Its host, process number and application; `None` for a process of version 1 of the schema, which does
    /// not report them.
    pub who: Option<Holder>,
    /// Number of keys that it holds.
    pub held: u64,
    /// How long it has held its oldest key.
    pub longest_held: Option<Duration>,
    /// Time left of its lease. `None`: it has ended, and a working process gives its keys back within a
    /// second.
    pub lease_left: Option<Duration>,
}

/// Reads a process from the server's columns.
pub(crate) fn holder(host: Option<String>, pid: Option<i32>, application: Option<String>) -> Option<Holder> {
    Some(Holder::new(host?, pid?.unsigned_abs(), application?))
}

fn micros(row: &Row, nth: usize) -> Option<Duration> {
    let micros = row.get::<_, Option<i64>>(nth)?;
    u64::try_from(micros).ok().map(Duration::from_micros)
}

pub(crate) async fn processes(link: &mut Link, queue: i32) -> Result<Vec<Process>, Failed> {
    let all = "select p.host, p.pid, p.application, p.running, (extract(epoch from p.longest_run) * 1000000)::bigint,
                 (extract(epoch from p.lease_left) * 1000000)::bigint
               from requeue.queue w join requeue.processes p on p.queue = w.name where w.id = $1 order by p.since";
    let rows = link.query(all, &[&queue]).await?;
    let read = |row: &Row| Process {
        who: holder(row.get(0), row.get(1), row.get(2)),
        held: row.get::<_, i64>(3).unsigned_abs(),
        longest_held: micros(row, 4),
        lease_left: micros(row, 5).filter(|left| !left.is_zero()),
    };
    Ok(rows.iter().map(read).collect())
}
