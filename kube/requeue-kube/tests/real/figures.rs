//! Sizes and figures of the scenarios.

use std::time::{Duration, Instant};

/// Waits until `holds` is true. The limit is generous, for a busy machine.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < end, "{what} does not come");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The full size of a scenario, or the one that CI has time for.
pub(crate) fn size(full: usize, short: usize) -> usize {
    if std::env::var_os("REQUEUE_KUBE_LONG").is_some() { full } else { short }
}

/// Checks a figure that depends on the machine's speed and load. It is always printed, and asserted only with
/// `REQUEUE_KUBE_STRICT=1`, on an idle machine.
pub(crate) fn figure(what: &str, seen: Duration, most: Duration) {
    eprintln!("{what}: {seen:.3?} (at most {most:?})");
    if std::env::var_os("REQUEUE_KUBE_STRICT").is_some() {
        assert!(seen <= most, "{what}: {seen:?}, and {most:?} is the most");
    }
}

/// The percentile of these values.
pub(crate) fn percentile(mut values: Vec<Duration>, hundredths: usize) -> Duration {
    values.sort_unstable();
    values[(values.len() * hundredths).div_ceil(100).max(1) - 1]
}
