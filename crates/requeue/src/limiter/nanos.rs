//! Conversion of nanoseconds to durations.

use std::time::Duration;

/// `nanos` nanoseconds, or [`Duration::MAX`] if that is less.
pub(super) fn duration(nanos: u128) -> Duration {
    const PER_SEC: u128 = 1_000_000_000;
    match u64::try_from(nanos) {
        // Much cheaper than a division of 128 bits.
        Ok(nanos) => Duration::from_nanos(nanos),
        Err(_) => match u64::try_from(nanos / PER_SEC) {
            Ok(secs) => Duration::new(secs, (nanos % PER_SEC) as u32),
            Err(_) => Duration::MAX,
        },
    }
}
