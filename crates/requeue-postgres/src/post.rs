//! [`Post`]: state shared by the heartbeat and the exchange of a queue.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// The number that stands for no owner.
pub(crate) const NOBODY: i64 = 0;

/// State shared by the heartbeat and the exchange of a queue.
pub(crate) struct Post {
    pub(crate) queue: i32,
    /// Wakes the exchange.
    pub(crate) signal: Arc<Notify>,
    /// The owner as which the exchange sleeps, waiting for keys, if it does.
    pub(crate) sleeper: AtomicI64,
    /// Keys may have come since the exchange last looked.
    news: AtomicBool,
    /// Number of times that the exchange went to sleep.
    pub(crate) naps: AtomicU64,
    /// Its value at the heartbeat's last tick.
    pub(crate) naps_seen: AtomicU64,
    /// The owner that the server notifies, if it does.
    pub(crate) listens: AtomicI64,
    /// When the exchange last got a key after it had slept.
    needed: Mutex<Instant>,
}

impl Post {
    pub(crate) fn new(queue: i32, signal: Arc<Notify>) -> Self {
        Self {
            queue,
            signal,
            sleeper: AtomicI64::new(NOBODY),
            news: AtomicBool::new(false),
            naps: AtomicU64::new(0),
            naps_seen: AtomicU64::new(0),
            listens: AtomicI64::new(NOBODY),
            needed: Mutex::new(Instant::now()),
        }
    }

    /// Wakes the exchange to look, because keys may have come.
    pub(crate) fn wake_to_look(&self) {
        self.news.store(true, Relaxed);
        self.signal.notify_one();
    }

    /// Whether keys may have come since the last call.
    pub(crate) fn has_news(&self) -> bool {
        self.news.swap(false, Relaxed)
    }

    /// Records that the exchange sleeps as this owner. True if nothing will notify it.
    pub(crate) fn fall_asleep(&self, owner: i64) -> bool {
        self.naps.fetch_add(1, Relaxed);
        self.sleeper.store(owner, Relaxed);
        self.listens.load(Relaxed) != owner
    }

    pub(crate) fn wake_up(&self) {
        self.sleeper.store(NOBODY, Relaxed);
    }

    /// Whether the exchange sleeps, or the server still notifies it.
    pub(crate) fn is_waiting(&self) -> bool {
        self.sleeper.load(Relaxed) != NOBODY || self.is_listening()
    }

    /// Whether the server notifies this process.
    pub(crate) fn is_listening(&self) -> bool {
        self.listens.load(Relaxed) != NOBODY
    }

    /// Records that the exchange got a key after it had slept.
    pub(crate) fn note_needed(&self) {
        *self.needed() = Instant::now();
    }

    pub(crate) fn needed(&self) -> MutexGuard<'_, Instant> {
        self.needed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
