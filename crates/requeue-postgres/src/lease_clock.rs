//! [`LeaseClock`]: how long a process still has its lease, by a clock that goes on while the process is stopped and,
//! on Linux, while the machine is suspended.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A moment on that clock. The standard library's stands still while Linux is suspended.
#[derive(Clone, Copy)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(reading())
    }

    pub(crate) fn elapsed(self) -> Duration {
        reading().saturating_sub(self.0)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn reading() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::Boottime).try_into().unwrap_or_default()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn reading() -> Duration {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed()
}

/// This process as an owner of keys.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) owner: i64,
    /// When the last answered heartbeat was sent, or, before the first, the call that made the process this
    /// owner. The lease counts from then.
    pub(crate) beat: Moment,
}

/// The lease of a process for a queue.
pub(crate) struct LeaseClock {
    pub(crate) length: Duration,
    /// This process as an owner, if it is one.
    held: Mutex<Option<Held>>,
}

impl LeaseClock {
    pub(crate) fn new(length: Duration) -> Self {
        Self { length, held: Mutex::new(None) }
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time after its last beat when a process takes its lease for lost: others get its keys a third later.
    pub(crate) fn safe(&self) -> Duration {
        self.length / 3 * 2
    }

    /// Time until the lease is to be taken for lost; `None` if there is none.
    pub(crate) fn left(&self) -> Option<Duration> {
        let held = *self.held();
        Some(self.safe().saturating_sub(held?.beat.elapsed()))
    }

    /// Whether there is no lease, or it is to be taken for lost.
    pub(crate) fn is_over(&self) -> bool {
        self.left().is_none_or(|left| left.is_zero())
    }

    /// Records that a call sent at `sent` has extended the lease of this owner.
    pub(crate) fn extended(&self, owner: i64, sent: Moment) {
        if let Some(held) = self.held().as_mut().filter(|held| held.owner == owner) {
            held.beat = sent;
        }
    }
}
