#![doc = include_str!("docs/overview.md")]
#![doc = include_str!("docs/client_go.md")]
#![doc = include_str!("docs/details.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod add;
mod bell;
mod builder;
mod drain;
mod error;
mod get;
mod hash;
mod item;
mod layers;
mod metrics;
mod queue;
mod shared;
mod sync;
mod wait;
mod worker;

pub mod clock;
pub mod limiter;

pub use add::Add;
pub use builder::Builder;
pub use clock::{Alarm, Clock, FakeClock, Parker, SystemClock};
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use clock::{TokioClock, TokioClockError};
pub use drain::{Drain, DrainOptions, Drained, ShutDown, WaitingKeys};
pub use error::{
    AddError, AddResult, Added, BuildError, GetError, NotHeld, Refused, RefusedItem, TryGetError,
};
pub use get::{Get, GetTimeout};
pub use hash::{KeyHasher, RandomState};
pub use item::Item;
pub use layers::{DelayingQueue, Queue, RateLimitingQueue};
pub use limiter::RateLimiter;
pub use metrics::{Gauges, Metrics, ReadGauges};
pub use queue::WorkQueue;
pub use requeue_core::{Instant, KeyState, Order, ReadyOrder, Stats, Ticket};
pub use shared::Unfinished;
pub use worker::{BoxError, Failure, IntoOutcome, Outcome, Run, Stop, StopReport, Worker, WorkerBuilder};

/// The examples of the repository's README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
