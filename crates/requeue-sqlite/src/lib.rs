//! The work queue [`requeue`] in a file: what was accepted survives `kill -9` and power cuts, with its failures and due
//! times.
//!
//! The file is a SQLite database, and SQLite is compiled in: there is nothing to install. The queue itself is in memory,
//! as fast as ever; the file is written ahead of it. A trigger is on the disk when its call has ended, and many callers
//! share one transaction; a trigger that changes nothing writes nothing. When the file is opened again each key is ready
//! or waiting as it was.
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
//! - A call that has ended well is on the disk (SQLite's write-ahead log, `synchronous=FULL`): it survives the end of the
//!   process however that comes, and a power cut as far as the disk keeps what it said it had written.
//! - A run whose end is not on the disk runs again: ends wait for the next transaction, 10 ms at most. Handlers must bear
//!   that, and [`Run::fence`](requeue::Run::fence) helps: it grows from run to run of a key, over restarts too.
//! - A run that gets no end, because the process dies, is as it was before it: with its failures, its attempt and its
//!   value. A retry that comes too late for a queue that is shut down stays in the file as well.
//! - A key that waits is due at the same time of day after a restart. If the clock was set back meanwhile it waits once
//!   more for its whole delay at most.
//! - A full disk, or another error of the disk, refuses triggers ([`EngineError`](requeue::EngineError) says whether
//!   anything may have been written); runs go on, their ends are kept and written later, and the same handles go on.
//! - One process works on a queue, whatever the file is called; a second one is told which that is. A process that has lost its
//!   queue or its file stops ([`Sqlite::lost`]).
//! - Others add in turns, and wait for theirs for 30 seconds. Who looks takes no lock, writes nothing, and needs no right to.
//! - SQLite's log, the file that ends in `-wal`, belongs to the data: who copies or moves the file takes it along.
//! - On a network file system locks and SQLite's log are not to be relied upon: keep the file on a local disk.
//!
//! # How
//!
//! The [queue in memory](requeue::WorkQueue) is the front, through the [seam for engines](requeue::engine). A trigger is
//! noted, written in the next transaction, and given to the front when it is on the disk. A caller that is alone commits
//! by itself; where many come at once a thread of the file's commits for all of them. At the end of a run the front tells
//! what is known of the key then, under its lock; that replaces what the file has of it. So a row is always what memory
//! knew at some instant, and the triggers since then.

mod answer;
mod bell;
mod client;
mod key;
mod letters;
mod list;
mod lock;
mod look;
mod queue;
mod rows;
mod schedule;
mod schema;
mod store;
mod writer;

pub use client::{Client, FileStats};
pub use queue::{Queue, QueueBuilder, Sqlite};
pub use requeue::engine::{Key, Listed, Status};
pub use schedule::Schedule;
