//! The work queue [`requeue`] in a file: accepted triggers survive `kill -9` and power cuts, with their
//! failures and due times.
//!
//! The file is a SQLite database, and SQLite is compiled in: there is nothing to install. The queue itself is
//! in memory, as fast as ever; the file is written before it. A trigger is on the disk when its call has
//! ended, and concurrent callers share one transaction; a trigger that changes nothing writes nothing. When
//! the file is opened again each key is ready or waiting as before.
//!
//! ```
//! use requeue::{Outcome, Run, Worker};
//! use requeue_sqlite::Sqlite;
//! use std::time::Duration;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("orders.db");
//! # fn ship(order: &str) {}
//! let file = Sqlite::open(path)?;
//! let q = file.queue::<String>("orders").open()?; // what was left is ready or waiting again
//! let worker = Worker::of(&q).workers(2).max_attempts(10).start_threads(|run: Run<String>| {
//!     ship(run.key());
//!     Outcome::Done
//! })?;
//! q.add("order-4711".into()).wait()?; // it is on the disk now; in async code, await it
//! q.add_after("order-4712".into(), Duration::from_secs(1800)).wait()?; // also after a restart due at the same time
//! worker.stop(Duration::from_secs(10)).wait(); // what is ready or waiting stays in the file
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

//!
//! # What is promised
//!
//! - A call that has succeeded is on the disk (SQLite's write-ahead log, `synchronous=FULL`): it survives any
//!   end of the process, and a power cut if the disk keeps what it reported as written.
//! - A run whose end is not on the disk runs again: ends wait for the next transaction, 10 ms at most.
//!   Handlers must tolerate that, and [`Run::fence`](requeue::Run::fence) helps: it grows from run to run of
//!   a key, even over restarts.
//! - A run without an end, because the process dies, leaves its key as it was before: with its failures, its
//!   attempt and its value. A retry that comes too late for a queue that is shut down stays in the file too.
//! - A waiting key is due at its time of day even after a restart. If the clock was set back meanwhile it
//!   waits at most its whole delay once more.
//! - A full disk, or another disk error, refuses triggers ([`EngineError`] says whether
//!   anything may have been written). Runs go on, their ends are kept and written later, and the handles stay
//!   usable.
//! - One process works on a queue, whatever name it uses for the file; a second one gets an error that names
//!   the first. A process that has lost its queue or its file stops ([`Sqlite::lost`]).
//! - Other processes add in turns, and wait for theirs for 30 seconds. Readers take no lock, write nothing,
//!   and need no write permission.
//! - SQLite's log, the file that ends in `-wal`, belongs to the data: copy or move it together with the file.
//! - On a network file system locks and SQLite's log are not reliable: keep the file on a local disk.
//!
//! # How
//!
//! The [queue in memory](requeue::WorkQueue) is the front, through the [interface for
//! engines](requeue_engine). A trigger is recorded, written in the next transaction, and given to the front
//! when it is on the disk. A lone caller commits itself; for many at once a thread of the file's commits for
//! all of them. At the end of a run the front reports the key's state, under its lock; that replaces the
//! file's state. So a row is always the state in memory at some instant, plus the triggers since then.

mod answer;
mod client;
mod file;
mod inbox;
mod intake;
mod key;
mod list;
mod lock;
mod look;
mod open;
mod queue;
mod restore;
mod rows;
mod run_ledger;
mod runner_conn;
mod schedule;
mod schema;
mod write_signal;
mod writer;

pub use client::{AddOptions, Client, FileStats};
pub use file::{QueueBuilder, Sqlite};
pub use queue::{Queue, SqliteStore};
pub use requeue_engine::{AddFailed, DurableQueue, EngineError, Key, Listed, Op, Schedule, Status};
