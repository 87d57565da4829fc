//! The clock of a fence.

use std::time::Duration;
use tokio::time::Instant;

/// A moment, on Tokio's clock and, on Linux, on the clock that continues while the machine is suspended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    at: Instant,
    boot: Duration,
}

impl Moment {
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), boot: since_boot() }
    }

    /// Time since then, by the clock that shows more.
    pub(super) fn elapsed(self) -> Duration {
        self.at.elapsed().max(since_boot().saturating_sub(self.boot))
    }
}

#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.try_into().unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    Duration::ZERO
}
