//! Times of schedules by the server's clock.

use requeue_engine::Schedule;
use std::time::{Duration, UNIX_EPOCH};

/// Microseconds since 1970.
pub(crate) type Micros = i64;

/// Returns the first time after `after`, if there is one.
pub(crate) fn next(schedule: &Schedule, after: Micros) -> Option<Micros> {
    let after = UNIX_EPOCH.checked_add(Duration::from_micros(u64::try_from(after).ok()?))?;
    let next = schedule.next(after)?.duration_since(UNIX_EPOCH).ok()?;
    Micros::try_from(next.as_micros()).ok()
}
