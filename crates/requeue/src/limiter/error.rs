//! [`LimiterError`]: invalid arguments of limiters.

use std::time::Duration;

/// Error of a limiter's constructor, or of a change of its rate.
///
/// Every message names the given value and what is valid.
///
/// ```
/// use requeue::limiter::{Bucket, LimiterError};
/// let refused = Bucket::new(0.0, 100).unwrap_err();
/// assert_eq!(refused, LimiterError::NoRate { rate: 0.0 });
/// assert!(refused.to_string().contains("above 0"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum LimiterError {
    /// A rate at which no token would ever come: 0, negative, or NaN.
    NoRate {
        /// The rate that was given.
        rate: f64,
    },
    /// A negative or NaN rate of a [`TokenBucket`](super::TokenBucket), whose rate may be 0.
    NotARate {
        /// The rate that was given.
        rate: f64,
    },
    /// A burst of 0: no room for one token.
    NoBurst,
    /// A quota of 0: no room for one call.
    NoQuota,
    /// A maximum delay below the first delay.
    MaxBelowBase {
        /// The first delay.
        base: Duration,
        /// The maximum delay.
        max: Duration,
    },
    /// A jitter fraction that is negative, infinite, or NaN.
    NotAFraction {
        /// The fraction that was given.
        fraction: f64,
    },
    /// The longest of no limiters.
    NoLimiters,
}

messages!(LimiterError {
    NoRate { rate } => "invalid rate {rate}: use tokens per second above 0 (f64::INFINITY for no limit)",
    NotARate { rate } => "invalid rate {rate}: use 0 (no token after the burst), a positive number of tokens per second, \
        or f64::INFINITY (no limit)",
    NoBurst => "burst must be at least 1: with 0 the bucket could never grant a token",
    NoQuota => "quota must be at least 1: with 0 the window could never grant a call",
    MaxBelowBase { base, max } => "maximum delay {max:?} is below the first delay {base:?}: make it at least as long",
    NotAFraction { fraction } => "invalid fraction {fraction}: use a finite number of at least 0 (0.1 lengthens a delay by \
        up to a tenth)",
    NoLimiters => "no limiters were given: give at least one",
});
