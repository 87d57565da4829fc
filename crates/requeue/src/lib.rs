#![doc = include_str!("docs/overview.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod add;
mod add_many;
mod adding;
mod builder;
mod drain;
mod ending;
mod error;
mod explain;
mod filter;
mod get;
mod get_many;
mod getter;
mod hash;
mod hold;
mod item;
mod items;
mod key;
mod layers;
mod metrics;
mod owner;
mod panics;
mod phase;
mod queue;
#[cfg(feature = "stream")]
mod stream;
mod sync;
mod unfinished;
mod wait;
mod waiting;
mod worker;

pub mod clock;
pub mod limiter;
mod lock;

pub use add::{Add, AddNow};
pub use add_many::{AddedMany, IntoAdded};
pub use builder::Builder;
pub use clock::{Alarm, Clock, FakeClock, Parker, SystemClock};
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use clock::{TokioClock, TokioClockError};
pub use drain::{Drain, DrainOptions, Drained, ShutDown, WaitingKeys};
pub use error::{AddError, AddResult, Added, BuildError, GetError, NotHeld, Refused, TryGetError};
pub use explain::Explanation;
pub use get::{Get, GetTimeout};
pub use get_many::{GetMany, GetManyTimeout};
pub use getter::Getter;
pub use hash::{KeyHasher, RandomState};
pub use item::{Item, RefusedItem};
pub use items::{IntoItems, Items};
pub use key::AsKey;
pub use layers::{DelayingQueue, Queue, RateLimitingQueue};
pub use limiter::RateLimiter;
pub use metrics::{Gauges, Metrics, ReadGauges, ReadWorkers, RunEnd, WorkerCounts};
pub use phase::Phase;
pub use queue::{WeakQueue, WorkQueue};
pub use requeue_core::{Instant, KeyState, Order, ReadyOrder, Stats, Ticket};
#[cfg(feature = "stream")]
#[cfg_attr(docsrs, doc(cfg(feature = "stream")))]
pub use stream::ItemStream;
pub use unfinished::Unfinished;
pub use worker::{
    BoxError, Failure, Fate, IntoOutcome, Outcome, Run, RunReport, Spawn, Stop, StopReport, Worker,
    WorkerBuilder, WorkerFuture, WorkerTask,
};
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use worker::{NoTokioRuntime, Tokio};

/// What is to be read beside the items: the contract, the table of names for those who
/// come from client-go, and the details. There is nothing in it for a program.
#[cfg(any(doc, doctest))]
pub mod docs {
    #[allow(unused_imports)] // the pages name the crate's items
    use crate::*;

    #[doc = include_str!("docs/contract.md")]
    pub mod contract {}

    #[doc = include_str!("docs/client_go.md")]
    #[doc(alias(
        "NewRateLimitingQueueWithDelayingInterface",
        "Logger",
        "SetProvider",
        "GaugeMetric",
        "SettableGaugeMetric",
        "CounterMetric",
        "SummaryMetric",
        "HistogramMetric",
        "Inc",
        "Dec",
        "Set",
        "Observe",
        "ParallelizeUntil",
        "DoWorkPieceFunc",
        "Options",
        "WithChunkSize",
        "Sometimes",
        "First",
        "Interval",
        "Do",
        "Tick",
        "NewTicker",
        "Ticker",
        "IntervalClock",
        "SimpleIntervalClock",
        "NewSimpleIntervalClock",
        "Stop",
        "Reset"
    ))]
    pub mod client_go {}

    #[doc = include_str!("docs/details.md")]
    pub mod details {}
}

/// The examples of the repository's README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
