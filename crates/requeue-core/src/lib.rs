//! The state machine of the `requeue` work queue.
#![no_std]
extern crate alloc;
mod time;
pub use time::Instant;
