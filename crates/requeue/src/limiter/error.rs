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
    NoRate { rate } => "at a rate of {rate} tokens a second no token ever comes: it must be above 0 \
        (f64::INFINITY for no limit)",
    NotARate { rate } =>
        "{rate} is no rate: it must be 0 (no token after the burst), a positive number of \
        tokens a second, or f64::INFINITY (no limit)",
    NoBurst =>
        "a bucket with a burst of 0 holds no token and could never grant one: the burst must be at least 1",
    NoQuota => "a window with a quota of 0 could never grant a call: the quota must be at least 1",
    MaxBelowBase { base, max } =>
        "the largest delay, {max:?}, is below the first, {base:?}: it must be at least as long",
    NotAFraction { fraction } =>
        "{fraction} is no fraction of a delay: it must be finite and at least 0 (0.1 lengthens a \
        delay by up to a tenth)",
    NoLimiters => "the longest delay of no limiters is not defined: give at least one",
});
