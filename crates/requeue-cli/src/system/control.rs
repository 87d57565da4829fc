//! The stages of the end, and their notification.
//!
//! The levels only rise. Each waiter in `poll` is notified by a pipe whose write end is closed: a hang-up
//! stays visible, reaches any number of waiters, and needs no registry of runs. So each worker ends its own
//! child, and a signal can never reach a process that merely got its number.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

/// A message to all waiters, sent once.
#[derive(Debug)]
pub(crate) struct Broadcast {
    listen: OwnedFd,
    send: Mutex<Option<OwnedFd>>,
}

impl Broadcast {
    fn new() -> std::io::Result<Self> {
        let (listen, send) = crate::system::pipe::pipe()?;
        Ok(Self { listen, send: Mutex::new(Some(send)) })
    }

    fn fire(&self) {
        drop(self.send.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Polls as hung up from the message on.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.listen.as_fd()
    }
}

/// The stage of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// Running normally.
    Run = 0,
    /// No more reading and no retries; ready keys are worked off.
    WorkOff = 1,
    /// No further run begins; current runs may end.
    LastRuns = 2,
    /// Current runs are told to end.
    Stop = 3,
    /// Current runs are ended.
    Kill = 4,
}

/// The level, with its listeners.
pub(crate) struct Control {
    level: AtomicU8,
    /// Held while the level rises, see [`Control::before_the_end`].
    gate: Mutex<()>,
    /// From [`Level::WorkOff`] on.
    pub(crate) reading_ends: Broadcast,
    /// From [`Level::LastRuns`] on.
    pub(crate) runs_end: Broadcast,
    /// From [`Level::Stop`] on.
    pub(crate) children_stop: Broadcast,
    /// From [`Level::Kill`] on.
    pub(crate) children_die: Broadcast,
    /// Called with each level that is reached, see [`Control::new`].
    on_end: Box<dyn Fn(Level) + Send + Sync>,
}

impl Control {
    /// `on_end` is called with the level whenever it rises above [`Level::Run`].
    ///
    /// # Errors
    ///
    /// If the system has no pipe left.
    pub(crate) fn new(on_end: impl Fn(Level) + Send + Sync + 'static) -> std::io::Result<Self> {
        Ok(Self {
            level: AtomicU8::new(Level::Run as u8),
            gate: Mutex::new(()),
            reading_ends: Broadcast::new()?,
            runs_end: Broadcast::new()?,
            children_stop: Broadcast::new()?,
            children_die: Broadcast::new()?,
            on_end: Box::new(on_end),
        })
    }

    pub(crate) fn reached(&self, level: Level) -> bool {
        self.level.load(Ordering::SeqCst) >= level as u8
    }

    /// Runs `begin` while the level cannot rise, if it has not risen yet. A drain that waits for retries must
    /// not begin after a signal has shut the queue down: it would let retries in again.
    pub(crate) fn before_the_end<T>(&self, begin: impl FnOnce() -> T) -> Option<T> {
        let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        (!self.reached(Level::WorkOff)).then(begin)
    }

    /// Waits until the queue is shut down, if the level has risen or is rising.
    pub(crate) fn settle(&self) {
        drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Raises the level to at least `level`.
    pub(crate) fn raise(&self, level: Level) {
        {
            let _gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            let before = self.level.fetch_max(level as u8, Ordering::SeqCst);
            if before >= level as u8 {
                return;
            }
            // The queue first: threads that are woken then find it shut.
            (self.on_end)(level);
        }
        self.reading_ends.fire();
        if level >= Level::LastRuns {
            self.runs_end.fire();
        }
        if level >= Level::Stop {
            self.children_stop.fire();
        }
        if level >= Level::Kill {
            self.children_die.fire();
        }
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("level", &self.level).finish_non_exhaustive()
    }
}
