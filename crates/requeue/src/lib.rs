//! The Kubernetes work queue for Rust.
mod hash;
mod sync;

pub mod clock;
pub mod limiter;

pub use clock::{Alarm, Clock, FakeClock, Parker, SystemClock};
pub use hash::{KeyHasher, RandomState};
pub use limiter::RateLimiter;
pub use requeue_core::Instant;
