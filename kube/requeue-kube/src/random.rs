//! Random numbers for spreading delays. They need no quality.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A number from 0 to 1.
fn unit() -> f64 {
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Multiplies the time by a random factor between these two.
pub(crate) fn between(least: f64, most: f64, time: Duration) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * (least + (most - least) * unit())).unwrap_or(time)
}
