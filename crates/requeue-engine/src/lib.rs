//! The common part of the engines of the work queue [`requeue`]. An engine keeps a queue outside of the process's
//! memory, in a file ([requeue-sqlite](https://docs.rs/requeue-sqlite)) or on a server
//! ([requeue-postgres](https://docs.rs/requeue-postgres)).
//!
//! Users of an engine find here the handle to its queues, [`DurableQueue`], and what its calls return: [`Op`],
//! [`EngineError`], [`AddFailed`]. The rest is for those who write an engine.
//!
//! # How an engine works
//!
//! An engine is a [`Store`] behind a [`DurableQueue`]. It has a [queue in memory](requeue::WorkQueue), which hands the
//! keys out, runs timers and back-off, and serves the [workers](requeue::Worker). The engine writes down what
//! that queue knows, so that another process can continue from there:
//!
//! - It first writes a trigger ([`Store::add`]), and then gives it to the queue in memory: [`LocalQueue::apply`].
//! - It is told the state of a key at each end of a run: [`Journal::changed`]. With the triggers applied by
//!   then ([`Journal::applied`]) that is complete: a key's stored state is the journal's latest, plus the
//!   triggers after it.
//! - When it opens, it gives the queue in memory all that it has read:
//!   [`WorkQueue::restore`](requeue::WorkQueue::restore).
//!
//! A queue without an engine has none of this, and pays nothing for it.

mod answer;
mod async_queue;
mod durable;
mod error;
mod key;
mod listed;
mod op;
mod schedule;
mod store;

pub use answer::Answer;
pub use async_queue::AsyncQueue;
pub use durable::DurableQueue;
pub use error::{AddFailed, EngineError};
pub use key::Key;
pub use listed::{Holder, Listed, Status};
pub use op::{Call, Op};
#[doc(inline)]
pub use requeue::engine::{
    EngineGauges, Journal, Known, LeaseGauges, LocalQueue, ReadEngine, RunTeller, StoreGauges, StoredTrigger,
    engine_of, with_journal,
};
pub use schedule::Schedule;
pub use store::{Adding, AwaitsRuns, Store, Trigger};

/// The example of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
