//! The work watcher: an entry among the waiters that is woken when a key is ready but takes none. It starts
//! workers on demand.
//!
//! It waits and is woken like a task. Its look lets no time pass: it may be woken on the clock's own thread,
//! where no timer fires, no sink is called and no key is dropped.

use super::{Hold, Shared};
use crate::panics::quietly;
use crate::wait::{Sleeper, WaiterId};
use std::sync::Arc;
use std::task::Waker;

/// Result of a look.
pub(crate) enum Seen {
    /// No key. The watcher is woken when that changes.
    Nothing,
    /// A key is ready or due.
    Keys,
    /// The queue is shut down and worked off.
    Over,
}

impl<K: Send + Sync + 'static, V: Send + 'static> Shared<K, V> {
    /// Checks whether there is a key for a worker. If there is none, and only then, `place` is entered among
    /// the waiters.
    pub(crate) fn watch_for_work(self: &Arc<Self>, place: &mut Option<WaiterId>, waker: Waker) -> Seen {
        self.install_alarms();
        let now = quietly(|| self.now());
        let mut hold = self.lock();
        let old = place.take().and_then(|id| hold.waiters().leave(id));
        let next = hold.core.next_wake();
        // where the clock panics a worker is started, which meets the same panic and rests before it
        // tries again
        let is_due = next.is_some_and(|at| now.is_none_or(|now| at <= now));
        let seen = if hold.core.is_over() {
            Seen::Over
        } else if hold.core.servable() > 0 || is_due {
            Seen::Keys
        } else {
            *place = Some(hold.waiters().enter(waker, next, Sleeper::Task).0);
            Seen::Nothing
        };
        self.unlock_after_watch(hold, old);
        seen
    }

    /// Removes the watcher. A wake-up that it was given is passed on.
    pub(crate) fn stop_watching(&self, place: &mut Option<WaiterId>) {
        let Some(id) = place.take() else { return };
        let mut hold = self.lock();
        let old = hold.waiters().leave(id);
        self.unlock_after_watch(hold, old);
    }

    /// Ends a hold in which the watcher's place has changed; `old` is its waker, to be dropped.
    fn unlock_after_watch(&self, hold: Hold<'_, K, V>, old: Option<Waker>) {
        if hold.unlock_after_leaving() {
            quietly(|| self.update_alarms(None));
        }
        quietly(|| drop(old));
    }
}
