//! A lookout: an entry among the waiters that is woken when a key is ready and takes no key; through
//! it workers are started on demand.
//!
//! It waits as a task does, and is woken as a task is. What it sees is
//! looked at without letting time pass: it may be woken on the clock's own thread, where no timer
//! fires, no sink is told and no key is dropped.

use super::{Hold, Shared};
use crate::panics::quietly;
use crate::wait::{Sleeper, WaiterId};
use std::sync::Arc;
use std::task::Waker;

/// What a lookout sees.
pub(crate) enum Seen {
    /// It is woken when that changes.
    Nothing,
    /// A key is ready or due.
    Keys,
    /// The queue is shut down and worked off.
    Over,
}

impl<K: Send + Sync + 'static, V: Send + 'static> Shared<K, V> {
    /// Looks whether a key is there for a worker; `place` is entered among those who wait
    /// if there is none, and in no other case.
    pub(crate) fn keep_lookout(self: &Arc<Self>, place: &mut Option<WaiterId>, waker: Waker) -> Seen {
        self.hang_bell();
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
        self.close_lookout(hold, old);
        seen
    }

    /// Takes the lookout away. A wake-up that it was given is passed on.
    pub(crate) fn end_lookout(&self, place: &mut Option<WaiterId>) {
        let Some(id) = place.take() else { return };
        let mut hold = self.lock();
        let old = hold.waiters().leave(id);
        self.close_lookout(hold, old);
    }
    /// Ends a hold in which the lookout's place has changed; `old` is its waker, to be dropped.
    fn close_lookout(&self, hold: Hold<'_, K, V>, old: Option<Waker>) {
        if hold.close_after_leaving() {
            quietly(|| self.tend(None));
        }
        quietly(|| drop(old));
    }
}
