//! The inbox: requests of other processes to the one that works on a queue, or executed by themselves if
//! there is none.
//!
//! An add of another process takes the turn and writes. If a process works on the queue, or the add has a value, it
//! leaves a *request* in the table `inbox`, which the runner reads in its next transaction. Otherwise it writes the key's
//! row, as the runner would. No runner can come in between: it takes its lock in a transaction too, and reads rows and
//! requests in the same one. An add closes the file without a checkpoint, so SQLite's log stays until a runner ends.

use crate::rows::{
    MergeBytes, NotWritten, TriggerRow, Wall, duration, micros, unschedule, wall, write_trigger, written,
};
use requeue_engine::EngineError;
use rusqlite::{Connection, params};
use std::sync::Arc;
use std::time::Duration;

/// How long answers are kept, read or not: the next answer after that removes them.
const KEPT: Duration = Duration::from_secs(60);

/// An add whose run stands for the delayed runs that the key has.
pub(crate) const ABSORB: &str = "absorb";

/// A request of another process to a queue.
#[derive(Clone)]
pub(crate) struct InboxRow {
    pub(crate) id: i64,
    pub(crate) queue: i64,
    pub(crate) what: String,
    pub(crate) at: Wall,
    pub(crate) key: Vec<u8>,
    pub(crate) delay: Option<Duration>,
    pub(crate) priority: i16,
    pub(crate) every: Option<Duration>,
    /// The schedule behind `every`, if it is one. Not written.
    pub(crate) rule: Option<String>,
    pub(crate) value: Option<Vec<u8>>,
}

impl InboxRow {
    pub(crate) fn new(queue: i64, what: &str, key: &[u8]) -> Self {
        let (what, key) = (what.to_owned(), key.to_owned());
        let at = wall();
        Self { id: 0, queue, what, at, key, delay: None, priority: 0, every: None, rule: None, value: None }
    }

    /// The trigger that it requests.
    pub(crate) fn trigger(&self, ticket: u64, merge: Option<&Arc<MergeBytes>>) -> TriggerRow {
        TriggerRow {
            queue: self.queue,
            key: self.key.as_slice().into(),
            ticket,
            at: self.at,
            delay: self.delay,
            priority: self.priority,
            value: self.value.clone().zip(merge.cloned()),
            every: self.every,
            absorbs: self.absorbs(),
        }
    }

    /// Whether it adds a key, so that no caller waits for its answer.
    pub(crate) fn is_add(&self) -> bool {
        matches!(&*self.what, "add" | ABSORB)
    }

    /// Whether the key's timer goes, as its run comes now.
    pub(crate) fn absorbs(&self) -> bool {
        matches!(&*self.what, "retry" | ABSORB)
    }

    /// Puts it into the inbox. Returns its number.
    pub(crate) fn put(&self, connection: &Connection) -> rusqlite::Result<i64> {
        let Self { queue, what, at, key, delay, priority, every, value, .. } = self;
        let request = "insert into inbox(queue, what, at, key, delay, priority, every, value)
                      values(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) returning id";
        let (delay, every) = (delay.map(micros), every.map(micros));
        let number =
            written(connection, request, params![queue, what, at, key, delay, priority, every, value])?;
        number.ok_or(rusqlite::Error::QueryReturnedNoRows)
    }
}

/// Maximum number of requests read at once.
pub(crate) const MOST_REQUESTS: usize = 1000;

/// The oldest unanswered requests to these queues; triggers only for queues that are not `closed`.
pub(crate) fn unread(
    connection: &Connection,
    queues: &[i64],
    closed: &[i64],
    most: usize,
) -> rusqlite::Result<Vec<InboxRow>> {
    let mut all = Vec::new();
    for queue in queues {
        // all of them to one queue stand together in the index
        let mut requests = connection.prepare_cached(
            "select id, queue, what, at, key, delay, priority, every, value,
                 (select text from rule where rule.id = every - (1 << 62)) from inbox
             where answer is null and queue = ?1 and (?2 or what not in ('add', 'absorb')) order by id limit ?3",
        )?;
        let requests = requests.query_map(params![queue, !closed.contains(queue), most as i64], |row| {
            Ok(InboxRow {
                id: row.get(0)?,
                queue: row.get(1)?,
                what: row.get(2)?,
                at: row.get(3)?,
                key: row.get::<_, Option<_>>(4)?.unwrap_or_default(),
                delay: row.get::<_, Option<i64>>(5)?.map(duration),
                priority: row.get(6)?,
                every: row.get::<_, Option<i64>>(7)?.map(duration),
                value: row.get(8)?,
                rule: row.get(9)?,
            })
        })?;
        for request in requests {
            all.push(request?);
        }
    }
    all.sort_unstable_by_key(|request| request.id);
    all.truncate(most);
    Ok(all)
}

/// Records the answer to a request. A request without an answer is removed.
pub(crate) fn answer(connection: &Connection, request: i64, answer: Option<&str>) -> rusqlite::Result<()> {
    match answer {
        None => connection.prepare_cached("delete from inbox where id = ?1")?.execute([request])?,
        Some(answer) => {
            let forgotten = "delete from inbox where answer is not null and at < ?1";
            connection.prepare_cached(forgotten)?.execute([wall().saturating_sub(micros(KEPT))])?;
            let answered = "update inbox set answer = ?2 where id = ?1";
            connection.prepare_cached(answered)?.execute(params![request, answer])?
        }
    };
    Ok(())
}

/// Executes all requests to a queue without a runner. Without a merge function, requests with a value are
/// left.
pub(crate) fn fold(
    connection: &Connection,
    queue: i64,
    merge: Option<&Arc<MergeBytes>>,
) -> rusqlite::Result<()> {
    let mut left = 0;
    loop {
        // those that are left stand in front of the others
        let requests = unread(connection, &[queue], &[], left + MOST_REQUESTS)?;
        let is_last = requests.len() < left + MOST_REQUESTS;
        for request in requests.into_iter().skip(left) {
            if request.value.is_some() && merge.is_none() {
                left += 1;
                continue;
            }
            let done = obey(connection, &request, merge)?;
            answer(connection, request.id, done.as_deref())?;
        }
        if is_last {
            return Ok(());
        }
    }
}

/// Executes a request to a queue that is not open, directly in the file. Returns the answer.
pub(crate) fn obey(
    connection: &Connection,
    request: &InboxRow,
    merge: Option<&Arc<MergeBytes>>,
) -> rusqlite::Result<Option<String>> {
    let InboxRow { queue, what, at, key, .. } = request;
    Ok(match &**what {
        "add" | ABSORB => {
            // the instant is larger than any ticket yet, so it is the end of the line
            write_or_bury(connection, &request.trigger(at.unsigned_abs(), merge))?;
            None
        }
        "cancel" => {
            let mut gone =
                connection.prepare_cached("delete from item where queue = ?1 and key = ?2 and not dead")?;
            let known = gone.execute(params![queue, key])? > 0;
            let was_scheduled = unschedule(connection, *queue, key)?;
            Some(if was_scheduled || known { "cancelled" } else { "nothing" }.to_owned())
        }
        "retry" => {
            let mut ready = connection.prepare_cached(
                "update item set ready = 1, due = null, delay = null, dead = 0, error = null, ord = ?3
                 where queue = ?1 and key = ?2",
            )?;
            Some(if ready.execute(params![queue, key, at])? > 0 { "ready" } else { "nothing" }.to_owned())
        }
        "pause" | "resume" => {
            pause(connection, *queue, what == "pause")?;
            Some("done".to_owned())
        }
        "purge" => Some(purge(connection, *queue)?.to_string()),
        other => Some(format!("nobody knows what {other:?} is")),
    })
}

/// The reason why a trigger can't be run, for listings.
pub(crate) fn why(e: &EngineError) -> String {
    match e {
        EngineError::Codec(why) | EngineError::NotApplied(why) => why.to_string(),
        e => e.to_string(),
    }
}

/// Writes a trigger that was accepted. If users' code refuses it, the key is made dead.
pub(crate) fn write_or_bury(connection: &Connection, trigger: &TriggerRow) -> rusqlite::Result<()> {
    match write_trigger(connection, trigger) {
        Ok(()) => Ok(()),
        Err(NotWritten::Store(e)) => Err(e),
        Err(NotWritten::Trigger(e)) => bury(connection, trigger.queue, &trigger.key, &why(&e)),
    }
}

/// Makes a key that can't be run dead, with the reason.
pub(crate) fn bury(connection: &Connection, queue: i64, key: &[u8], why: &str) -> rusqlite::Result<()> {
    let mut dead = connection.prepare_cached(
        "insert into item(queue, key, ord, ready, failures, attempt, priority, first, dead, error)
         values(?1, ?2, 0, 0, 0, 1, 0, ?3, 1, ?4)
         on conflict(queue, key) do update set ready = 0, due = null, delay = null, dead = 1, error = excluded.error",
    )?;
    dead.execute(params![queue, key, wall(), why])?;
    Ok(())
}

pub(crate) fn pause(connection: &Connection, queue: i64, paused: bool) -> rusqlite::Result<()> {
    connection.execute("update queue set paused = ?2 where id = ?1", params![queue, paused])?;
    Ok(())
}

/// Removes the dead keys of a queue. Returns their number.
pub(crate) fn purge(connection: &Connection, queue: i64) -> rusqlite::Result<usize> {
    connection.execute("delete from item where queue = ?1 and dead", [queue])
}
