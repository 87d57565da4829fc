//! Time between two calls of a producer.

use crate::Rng;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Time between two calls of a producer: fixed, or drawn from a range, both ends included. At least a
/// nanosecond, so that time passes.
///
/// ```
/// use requeue_sim::Gap;
/// use std::time::Duration;
/// let second = Duration::from_secs(1);
/// let _each_second: Gap = second.into();
/// let _at_random: Gap = (Duration::ZERO..=2 * second).into();
/// ```
#[derive(Clone, Debug)]
pub struct Gap(RangeInclusive<Duration>);

impl Gap {
    pub(crate) fn draw(&self, rng: &mut Rng) -> Duration {
        rng.between(self.0.clone()).max(Duration::from_nanos(1))
    }
}

impl From<Duration> for Gap {
    fn from(always: Duration) -> Self {
        Self(always..=always)
    }
}

impl From<RangeInclusive<Duration>> for Gap {
    fn from(range: RangeInclusive<Duration>) -> Self {
        Self(range)
    }
}
