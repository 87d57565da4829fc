//! The schema on the server: creating it, migrating it to this program's version, and detecting another one.
//!
//! Tables are created by the file of version 1, and changed by one file for each later version. Functions,
//! views and comments are in files of only the newest version, and are all recreated at each migration.
//! Processes of the previous version can work on: the functions that they call are kept (see
//! `functions.sql`).

use crate::link::{Failed, Link};
use requeue::BoxError;
use requeue_engine::EngineError;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

/// Migrations of the tables to each version from the previous one; the first creates them.
const STEPS: [&str; 2] = [include_str!("schema/1.sql"), include_str!("schema/2.sql")];
/// Scripts that run at each migration.
const CODE: [&str; 7] = [
    include_str!("schema/functions.sql"),
    include_str!("schema/adds.sql"),
    include_str!("schema/tick.sql"),
    include_str!("schema/operators.sql"),
    include_str!("schema/comments.sql"),
    include_str!("schema/jit.sql"),
    include_str!("schema/rights.sql"),
];
/// The version that this program creates.
pub(crate) const VERSION: i32 = STEPS.len() as i32;

/// Limit of a wait for a table, which blocks all others meanwhile; then they have [`LOCK_PAUSE`].
const LOCK_TIMEOUT: &str = "500ms";
const LOCK_PAUSE: Duration = Duration::from_millis(500);
/// Time after which the migration is given up, with an error that names the table's holder.
const GIVES_UP_AFTER: Duration = Duration::from_secs(30);

/// The version of a schema, and the oldest program version that it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    newest: i32,
    oldest: i32,
}

/// The version of the schema, if there is one.
async fn version(link: &mut Link) -> Result<Option<Version>, Failed> {
    let read = |rows: Vec<Row>| rows.first().map(|row| Version { newest: row.get(0), oldest: row.get(1) });
    let newer = link.query("select newest, oldest from requeue.version()", &[]).await;
    let is_missing = |failed: &Failed| {
        failed.is(&SqlState::UNDEFINED_FUNCTION) || failed.is(&SqlState::INVALID_SCHEMA_NAME)
    };
    match newer {
        Err(failed) if is_missing(&failed) => {}
        said => return said.map(read),
    }
    // version 1 has no such function
    let is_there = link.query("select to_regclass('requeue.meta') is not null", &[]).await?;
    if !is_there.first().is_some_and(|row| row.get(0)) {
        return Ok(None);
    }
    link.query("select 1, version from requeue.meta", &[]).await.map(read)
}

/// Whether the schema still serves this program: it may be migrated while the program runs.
#[derive(Default)]
pub(crate) struct Serving(AtomicU32);

impl Serving {
    /// The reason why it does not. Then nothing is called any more that a newer version may have changed.
    pub(crate) fn refusal(&self) -> Option<EngineError> {
        match self.0.load(Relaxed) {
            0 => None,
            found => Some(EngineError::Version { found, known: VERSION.unsigned_abs() }),
        }
    }

    /// Records the oldest version that the schema serves.
    pub(crate) fn note_oldest(&self, oldest: i64) {
        if oldest > i64::from(VERSION) {
            self.0.store(u32::try_from(oldest).unwrap_or(u32::MAX), Relaxed);
        }
    }

    /// Asks the server, after a call that found a function missing.
    pub(crate) async fn ask(&self, link: &mut Link) {
        if let Ok(Some(version)) = version(link).await {
            self.note_oldest(version.oldest.into());
        }
    }
}

/// Creates the schema, or migrates it to this program's version.
pub(crate) async fn make(link: &mut Link) -> Result<(), EngineError> {
    let begun = Instant::now();
    loop {
        let found = match version(link).await {
            Ok(found) => found,
            Err(failed) => return Err(with_grant(link, failed).await.into()),
        };
        let from = found.map_or(0, |found| found.newest);
        if from >= VERSION {
            return serves(found);
        }
        match step(link, from).await {
            Ok(()) => return Ok(()),
            // another process may have done it meanwhile
            Err(failed) => match version(link).await?.map_or(0, |found| found.newest) {
                now if now > from => {}
                _ if failed.is(&SqlState::LOCK_NOT_AVAILABLE)
                    || failed.is(&SqlState::T_R_DEADLOCK_DETECTED) =>
                {
                    if begun.elapsed() >= GIVES_UP_AFTER {
                        return Err(with_holder(link, failed).await.into());
                    }
                    tokio::time::sleep(LOCK_PAUSE).await;
                }
                _ => return Err(with_grant(link, failed).await.into()),
            },
        }
    }
}

/// Executes one migration, completely or not at all.
async fn step(link: &mut Link, from: i32) -> Result<(), Failed> {
    let steps = STEPS.iter().skip(usize::try_from(from).unwrap_or(0)).chain(&CODE);
    let steps = steps.copied().collect::<Vec<_>>().concat();
    // One after another: the lock ends with the transaction ("requeue" in ASCII). A second process finds
    // another version than it saw.
    let batch = format!(
        "begin; set local client_min_messages = warning; set local lock_timeout = '{LOCK_TIMEOUT}';
         select pg_advisory_xact_lock(32195137446966629);
         do $do$ declare now_ int := 0; begin
           if to_regprocedure('requeue.version()') is not null then
             select v.newest into now_ from requeue.version() v;
           elsif to_regclass('requeue.meta') is not null then
             now_ := 1;
           end if;
           if now_ <> {from} then raise lock_not_available using message = 'somebody else migrates'; end if;
         end $do$;
         {steps}; commit"
    );
    let made = link.batch(&batch).await;
    if made.is_err() {
        drop(link.batch("rollback").await);
    }
    made
}

/// Adds the transaction that blocks the tables to an error.
async fn with_holder(link: &mut Link, failed: Failed) -> Failed {
    let Failed::Not(why) = failed else { return failed };
    let holder = "select a.pid, coalesce(nullif(a.application_name, ''), a.backend_type), l.relation::regclass::text
                  from pg_locks l join pg_stat_activity a using (pid) join pg_class c on c.oid = l.relation
                  where l.granted and l.pid <> pg_backend_pid() and c.relnamespace = to_regnamespace('requeue') and c.relkind = 'r'
                  order by a.xact_start limit 1";
    match link.query(holder, &[]).await.ok().and_then(|rows| rows.into_iter().next()) {
        None => Failed::Not(why),
        Some(row) => {
            let (pid, name, table): (i32, String, String) = (row.get(0), row.get(1), row.get(2));
            let hint = "end that, or migrate again later";
            Failed::Not(
                format!("{why}; a transaction of process {pid} ({name}) keeps {table} locked: {hint}").into(),
            )
        }
    }
}

/// Adds the missing grants to an error, if the role may not create the schema.
async fn with_grant(link: &mut Link, failed: Failed) -> Failed {
    let is_refused = failed.is(&SqlState::INSUFFICIENT_PRIVILEGE);
    let Failed::Not(why) = failed else { return failed };
    if !is_refused {
        return Failed::Not(why);
    }
    let asks = "select to_regnamespace('requeue') is not null, quote_ident(current_database()), quote_ident(current_user),
                (select relowner::regrole::text from pg_class where relnamespace = to_regnamespace('requeue') and relname = 'meta')";
    let Some(row) = link.query(asks, &[]).await.ok().and_then(|rows| rows.into_iter().next()) else {
        return Failed::Not(why);
    };
    let (is_there, database, role): (bool, String, String) = (row.get(0), row.get(1), row.get(2));
    let owner: Option<String> = row.get(3);
    let needed = if let Some(owner) = owner {
        format!("the role {owner} has made it: migrate as that one")
    } else if is_there {
        format!("an administrator runs `alter schema requeue owner to {role}`")
    } else {
        format!(
            "it needs `grant create on database {database} to {role}`, or an administrator runs `create schema requeue authorization {role}`"
        )
    };
    Failed::Not(format!("{why}; {needed}").into())
}

/// Checks that this program works with the schema.
pub(crate) async fn known(link: &mut Link) -> Result<(), EngineError> {
    serves(version(link).await?)
}

fn serves(found: Option<Version>) -> Result<(), EngineError> {
    let refused = |why: String| EngineError::NotApplied(BoxError::from(why));
    match found {
        None => {
            Err(refused("the schema `requeue` is not there: call migrate(), or `requeue migrate`".into()))
        }
        Some(Version { oldest, .. }) if oldest > VERSION => {
            Err(EngineError::Version { found: oldest.unsigned_abs(), known: VERSION.unsigned_abs() })
        }
        Some(Version { newest, .. }) if newest < VERSION => Err(refused(format!(
            "the schema `requeue` has version {newest}, and this program needs version {VERSION}: call migrate(), or \
             `requeue migrate`; processes of version {newest} go on meanwhile"
        ))),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e43_a_program_works_with_the_versions_that_serve_it_and_says_what_is_to_be_done_with_others() {
        let told = |newest, oldest| serves(Some(Version { newest, oldest })).map_err(|why| why.to_string());
        assert_eq!(told(VERSION, 1), Ok(()));
        assert_eq!(told(VERSION + 1, VERSION), Ok(()), "a newer one that serves this program");
        let older = told(VERSION - 1, 1).expect_err("it lacks what this program calls");
        assert!(older.contains("requeue migrate"), "{older}");
        let newer = told(VERSION + 1, VERSION + 1).expect_err("it serves newer programs only");
        for version in [VERSION, VERSION + 1] {
            assert!(newer.contains(&version.to_string()), "{newer}");
        }
    }
}
