//! The worker: the loop around `get` that users would otherwise write by hand.
//!
//! A handler gets a [`Run`] and returns an [`Outcome`]; the worker does the
//! rest: retries through the queue's limiter, attempts, panics, time limits,
//! values of failed runs, and an end with a report.

mod async_worker;
mod builder;
mod executor;
mod future;
mod handle;
mod limit;
mod next;
mod outcome;
mod pool_size;
mod rules;
mod run;
mod set;
mod shared;
mod status;
mod stop;
mod supply;
mod tasks;
mod threads;

pub use self::builder::WorkerBuilder;
pub use self::executor::Spawn;
pub use self::future::WorkerFuture;
pub use self::handle::Worker;
pub use self::outcome::{Fate, IntoOutcome, Outcome, RunReport};
pub use self::run::Run;
pub use self::stop::{Stop, StopReport};
