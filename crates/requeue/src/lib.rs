//! The Kubernetes work queue for Rust.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod hash;
mod sync;

pub mod clock;
pub mod limiter;

pub use clock::{Alarm, Clock, FakeClock, Parker, SystemClock};
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use clock::{TokioClock, TokioClockError};
pub use hash::{KeyHasher, RandomState};
pub use limiter::RateLimiter;
pub use requeue_core::Instant;
