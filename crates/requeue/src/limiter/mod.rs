//! Limiters: how long a key waits before it comes back.
//!
//! | | delay | remembers |
//! |---|---|---|
//! | [`Exponential`] | doubles at each failure of the key | a count a key |
//! | [`FastSlow`] | a short one at first, then a long one | a count a key |
//! | [`Bucket`] | spreads all keys at a rate, after a burst | |
//! | [`PerKeyBucket`] | spreads each key's calls at a rate | a bucket a key, until it is full |
//! | [`Window`] | so many keys in each window of time | |
//! | `(A, B)`, [`MaxOf`] | the longest of several | what those remember |
//! | [`WithMaxWait`] | another's, cut at a maximum | what that remembers |
//! | [`Jitter`] | another's, lengthened at random | what that remembers |
//! | [`default_controller`], [`default_controller_without_bucket`], [`default_per_item`] | what controllers start with | a count a key |
//!
//! All are deterministic functions of their calls and of the seed. None owns a clock, so tests pass any
//! instants. Delays are rounded up to a nanosecond and never overflow; [`Duration::MAX`](std::time::Duration::MAX) means never. A rate,
//! burst or quota of 0, which could never grant anything, is refused at construction.
//!
//! [`TokenBucket`] is the bucket by itself, for uses other than queues, such as calls to a server.
//!
//! # Why a limiter may leave its counts to the queue
//!
//! A limiter of failures is a pure function of a count, and the queue has an entry for the key anyway:
//! counting there saves a second map, a second lock, and a copy of the key. So a built-in limiter that a
//! queue owns keeps no records; one that is shared (an [`Arc`](std::sync::Arc)) or asked directly does. The
//! answers do not differ.

#[macro_use]
mod rate_limiter;

mod acquire;
mod bucket;
mod combine;
mod counts;
mod defaults;
mod error;
mod exponential;
mod fast_slow;
mod jitter;
mod ledger;
mod max_wait;
mod nanos;
mod pace;
mod per_key_bucket;
mod records;
#[cfg(all(test, not(requeue_loom)))]
mod tests;
mod window;

pub use self::acquire::{Acquire, AcquireError};
pub use self::bucket::{Bucket, Reservation, TokenBucket};
pub use self::combine::MaxOf;
pub(crate) use self::defaults::counted_controller;
pub use self::defaults::{default_controller, default_controller_without_bucket, default_per_item};
pub use self::error::LimiterError;
pub use self::exponential::Exponential;
pub use self::fast_slow::FastSlow;
pub use self::jitter::Jitter;
pub use self::max_wait::WithMaxWait;
pub use self::per_key_bucket::PerKeyBucket;
pub use self::rate_limiter::RateLimiter;
pub(crate) use self::rate_limiter::{Keeps, sealed};
pub use self::window::Window;
