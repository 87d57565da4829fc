#![doc = include_str!("docs/overview.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

#[macro_use]
mod macros;

mod add;
mod add_many;
mod adders;
mod adding;
mod asking;
mod awaited;
mod blocking;
mod builder;
mod cancel_run;
mod control;
mod drain;
mod ending;
mod engine_gauges;
mod error;
mod explain;
mod failure;
mod fairness;
mod filter;
mod get;
mod get_many;
mod getter;
mod groups;
mod hash;
mod hold;
mod item;
mod items;
mod journal;
mod key;
mod late_drops;
mod layers;
mod live;
mod metrics;
mod owner;
mod panics;
mod pause;
mod phase;
mod queue;
mod restore;
mod room;
mod snapshot;
mod source;
#[cfg(feature = "stream")]
mod stream;
mod sync;
mod timeout;
mod trying;
mod wait;
mod waiting;
mod worker;

pub mod clock;
#[doc(hidden)]
pub mod engine;
pub mod limiter;
mod lock;

pub use add::Add;
pub use add_many::AddedMany;
pub use awaited::AwaitedRun;
pub use builder::Builder;
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use clock::TokioClock;
pub use clock::{Alarm, Clock, FakeClock, Parker, SystemClock};
pub use drain::{Drain, DrainOptions, Drained, ShutDown, UnfinishedKey, WaitingKeys};
pub use error::{AddError, Added, BuildError, GetError, NotHeld, Refused};
pub use explain::Explanation;
pub use failure::{BoxError, Failure};
pub use get::Get;
pub use get_many::GetMany;
pub use getter::Getter;
pub use hash::RandomState;
pub use item::{Item, RefusedItem};
pub use items::Items;
pub use journal::Fence;
pub use key::AsKey;
pub use layers::{DelayingQueue, Queue, RateLimitingQueue};
pub use limiter::RateLimiter;
pub use metrics::{Gauges, GroupGauges, Metrics, RunEnd};
pub use pause::Scope;
pub use phase::Phase;
pub use queue::{WeakQueue, WorkQueue};
pub use requeue_core::{
    Cancelled, Debounce, GroupRules, InBackoff, Instant, KeyState, NoRun, Only, Order, Paused, Rate,
    ReadyOrder, Stats, Ticket,
};
pub use room::AddWhenRoom;
pub use snapshot::{Page, Snapshot};
pub use source::Source;
#[cfg(feature = "stream")]
#[cfg_attr(docsrs, doc(cfg(feature = "stream")))]
pub use stream::ItemStream;
pub use timeout::Timeout;
pub use worker::{
    Fate, IntoOutcome, Outcome, Run, RunReport, Spawn, Stop, StopReport, Worker, WorkerBuilder, WorkerFuture,
};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
compile_error!(
    "requeue does not work on wasm32-unknown-unknown, which has no clock and no thread for timers: use the state \
     machine alone, requeue-core, which takes the time as an argument"
);

/// Pages to read in addition to the items: the contract, the table of client-go's names, and details. It has
/// no items for programs.
#[cfg(any(doc, doctest))]
pub mod docs {
    #[allow(unused_imports)] // the pages name the crate's items
    use crate::*;

    #[doc = include_str!("docs/contract.md")]
    pub mod contract {}

    #[doc = include_str!("docs/client_go.md")]
    #[doc(alias("NewRateLimitingQueueWithDelayingInterface", "Logger"))]
    #[doc(alias(
        "SetProvider",
        "GaugeMetric",
        "SettableGaugeMetric",
        "CounterMetric",
        "SummaryMetric",
        "HistogramMetric"
    ))]
    #[doc(alias("Inc", "Dec", "Set", "Observe"))]
    #[doc(alias("ParallelizeUntil", "DoWorkPieceFunc", "Options", "WithChunkSize"))]
    #[doc(alias("Sometimes", "First", "Interval", "Do"))]
    #[doc(alias(
        "Tick",
        "NewTicker",
        "Ticker",
        "IntervalClock",
        "SimpleIntervalClock",
        "NewSimpleIntervalClock"
    ))]
    #[doc(alias("Stop", "Reset"))]
    pub mod client_go {}

    #[doc = include_str!("docs/details.md")]
    pub mod details {}
}

/// The examples of the repository's README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of the page that compares requeue with other queues.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/BEYOND.md")]
struct Beyond;
