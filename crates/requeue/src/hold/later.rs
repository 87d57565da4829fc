//! Drops under the queue's own lock, which are made up for later (`late_drops.rs`).
//!
//! A value that users' code drops while the queue runs it under its lock may have a guard in it, a wait or a
//! handle of the same queue. Its drop needs the lock and can't have it: it panics with words, as every such
//! call does. Its work is noted here and done once the hold has ended, so that no key stays held and no
//! caller waits behind one that is gone.

use super::Shared;
use crate::wait::WaiterId;
use requeue_core::RunRef;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A drop that could not have the lock, to be made up for.
#[derive(Debug)]
pub(crate) enum Later<K, V> {
    /// End a run that was said done.
    Done(RunRef<K>),
    /// End a run, as its guard does that is dropped.
    End { run: RunRef<K>, value: Option<V> },
    /// Put a run back.
    PutBack { run: RunRef<K>, value: Option<V> },
    /// Leave a place among those who wait for keys.
    Waiter(WaiterId),
    /// Leave a place among those who wait for drains.
    Drain(usize),
    /// Leave a place among those who wait for room.
    Adder(u64),
    /// Shut the queue down: the last handle has gone.
    ShutDown,
}

/// The drops of a queue that are to be made up for. (A mutex of std's: the models are not about it, and nothing counts it.)
#[derive(Debug)]
pub(super) struct Laters<K, V>(Mutex<Vec<Later<K, V>>>);

impl<K, V> Laters<K, V> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Later<K, V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> Shared<K, V> {
    /// Whether this thread has the lock: then it runs users' code.
    #[inline]
    pub(crate) fn is_held_here(&self) -> bool {
        self.state.is_held_here()
    }

    /// Notes what a drop was to do.
    pub(crate) fn note_later(&self, what: Later<K, V>) {
        self.laters.lock().push(what);
    }

    /// Takes what was noted. Dropped where it was taken.
    pub(crate) fn take_laters(&self) -> Vec<Later<K, V>> {
        std::mem::take(&mut *self.laters.lock())
    }

    /// For a drop that needs the lock: if this thread has it, notes `what` for later, and panics with words unless a panic
    /// unwinds already. False if the lock may be taken.
    #[inline]
    pub(crate) fn defers(&self, what: impl FnOnce() -> Later<K, V>) -> bool {
        let defers = self.is_held_here();
        if defers {
            self.note_later(what());
            self.refuses_itself();
        }
        defers
    }

    /// For a drop on the thread that has the lock: panics with words unless a panic unwinds already.
    pub(crate) fn refuses_itself(&self) {
        if !std::thread::panicking() {
            drop(self.lock());
        }
    }
}
