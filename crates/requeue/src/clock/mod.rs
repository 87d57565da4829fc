//! Where time comes from, and how a waiting caller is woken at an instant.

use crate::Instant;
use std::task::Waker;

mod fake;
mod park;
mod system;
#[cfg(feature = "tokio")]
mod tokio;

pub use self::fake::FakeClock;
pub use self::park::Parker;
pub use self::system::SystemClock;
#[cfg(feature = "tokio")]
pub use self::tokio::TokioClock;

/// A source of time: what the queue reads, and what wakes those who wait.
pub trait Clock: Send + Sync + 'static {
    /// The time now. It should not go backwards; where it does, the queue goes
    /// on counting from the latest instant that it has seen.
    fn now(&self) -> Instant;

    /// Wakes `waker` once this clock shows `at` or later (at once where it
    /// already does), unless the [`Alarm`] is dropped before.
    ///
    /// The queue calls this, and drops the alarm, without holding its lock.
    fn wake_at(&self, at: Instant, waker: &Waker) -> Alarm;

    /// Blocks the calling thread until this clock shows `at`, or `parker` is
    /// woken, or spuriously. By default an alarm that wakes the parker; a clock
    /// that runs at the system's pace saves the alarm by sleeping itself.
    fn park_until(&self, at: Instant, parker: &Parker) {
        let _alarm = self.wake_at(at, parker.waker());
        parker.park();
    }
}

/// A wake-up that was asked of a [`Clock`]; dropping it takes it back.
#[must_use = "dropping an alarm takes it back"]
pub struct Alarm(Option<Box<dyn FnOnce() + Send>>);

impl Alarm {
    /// An alarm that runs `take_back` when it is dropped.
    pub fn on_drop(take_back: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(take_back)))
    }

    /// An alarm that has nothing to take back: it has rung already, or never will.
    pub fn none() -> Self {
        Self(None)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Some(take_back) = self.0.take() {
            take_back();
        }
    }
}

impl std::fmt::Debug for Alarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Alarm").field("set", &self.0.is_some()).finish()
    }
}
