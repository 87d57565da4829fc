//! The work queue [`requeue`] on PostgreSQL: many processes on many machines work on one queue, each key in
//! one of them at a time.
//!
//! ```no_run
//! use requeue::{Outcome, Run, Worker};
//! use requeue_postgres::Postgres;
//! use std::time::Duration;
//!
//! # fn ship(order: &str) {}
//! let pg = Postgres::connect("host=db dbname=shop").wait()?; // in async code, await it
//! pg.migrate().wait()?; // once; it makes the schema `requeue`
//! let q = pg.queue::<String>("orders").lease(Duration::from_secs(30)).open().wait()?;
//! let worker = Worker::of(&q).workers(16).max_attempts(10).start_threads(|run: Run<String>| {
//!     ship(run.key());
//!     Outcome::Done
//! })?;
//! q.add("order-4711".into()).wait()?; // it is durable now, and some process runs it
//! # let the_program_is_to_end = || ();
//! the_program_is_to_end(); // waits for a signal, say
//! worker.stop(Duration::from_secs(10)).wait();
//! q.leave().wait()?; // its lease is given up: its keys need not wait until it runs out
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is promised
//!
//! - When `add` has succeeded the trigger survives the end of every process, and of the server if it keeps
//!   committed data. Many triggers of a key are one run; a trigger during a run leads to one more run after
//!   it, never beside it, in any process.
//! - A process that works on a queue has a lease, which it extends whatever its handlers do. If it is not
//!   heard of for that long, its keys go to others; its later calls are refused, because each run has a
//!   [fence](requeue::Run::fence), a number that no other run ever has. Before others get its keys, its own
//!   handlers are told ([`Run::cancelled`](requeue::Run::cancelled)), and async ones are dropped.
//! - A run without an accepted end runs again. [`RunExt::succeed_in`] ends a run in the handler's own
//!   transaction: its writes there happen once.
//! - [`PostgresStore::add_in`] adds a key in a user's transaction: the trigger exists if and when that commits. It
//!   locks nothing that others wait for. If a worker process is idle, your transaction sends a NOTIFY.
//!   PostgreSQL commits such transactions one at a time: they wait for each other's commits.
//! - Groups take turns, by weight and up to a cap, across all processes: [`QueueBuilder::group_by`].
//! - The server keeps failures, attempts, delays, values and priorities, and its clock alone counts.
//!
//! # In SQL
//!
//! Views (`requeue.queues`, `keys`, `running`, `dead_keys`, `processes`) and functions that take the names of queues and keys
//! (`requeue.add`, `pause`, `retry_key` and others) are for people and for programs in other languages:
//! [SQL.md](https://github.com/requeue-rs/requeue/blob/main/crates/requeue-postgres/SQL.md).
//! Roles, dumps, held snapshots, PgBouncer and metrics:
//! [OPERATIONS.md](https://github.com/requeue-rs/requeue/blob/main/crates/requeue-postgres/OPERATIONS.md).
//!
//! # What it needs
//!
//! It needs PostgreSQL 13 or newer, no extension, and a role that may create a schema (once). Each process
//! has up to six connections, for any number of queues: one for leases, one to four for claims and rare
//! calls, and one for triggers. Connections that are unused for ten seconds are closed, except the one for
//! leases. [`Postgres::connect`] configures TLS. Through PgBouncer in transaction mode use
//! `pool_mode=transaction` in the connection string; with `direct_host` added it is notified as well, and a
//! key does not wait for the look once a second.
//!
//! # How
//!
//! A process claims keys for its waiting workers, and gives them to a [queue in memory](requeue::WorkQueue),
//! through the [interface for engines](requeue_engine). At the end of a run that queue reports the key's
//! state, and forgets the key. Ends and the next claim are one statement. A thread of the engine's own does
//! all that, so a program needs no runtime for it.

mod add_batcher;
mod builder;
mod calendar;
mod client;
mod conn_string;
mod connect;
mod exchange;
mod groups;
mod heartbeat;
mod hub;
mod lanes;
mod lease_clock;
mod link;
mod list;
mod membership;
mod post;
mod processes;
mod queue;
mod run;
mod run_ledger;
mod schema;

#[cfg(feature = "rustls")]
mod tls;
mod typed;
mod wakeups;
mod watch;

pub use add_batcher::LONGEST_KEY;
pub use builder::QueueBuilder;
pub use client::{Client, GroupState, MOST_COUNTED, Pages, Stats};
pub use connect::Postgres;
pub use groups::GroupRules;
pub use processes::Process;
pub use queue::{PostgresStore, Queue};
pub use requeue_engine::{AddFailed, DurableQueue, EngineError, Holder, Key, Listed, Op, Schedule, Status};
pub use run::{Ended, RunExt};
