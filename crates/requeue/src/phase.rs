//! [`Phase`]: the progress of a queue's shutdown.

use crate::hold::Shared;
/// Progress of a queue's shutdown: returned by [`WorkQueue::phase`](crate::WorkQueue::phase). Phases only
/// move forward, and compare in that order.
///
/// | | [`add`] and its kin | [`retry`], [`again`] | ready keys |
/// |---|---|---|---|
/// | `Open` | taken | taken | are handed out |
/// | `Closed` | refused | taken | are handed out |
/// | `ShutDown` | refused | refused | are handed out |
/// | `Over` | refused | there are no runs | there are none |
///
/// ```
/// use requeue::{Phase, WorkQueue};
/// let q = WorkQueue::new();
/// q.add("a")?;
/// let item = q.try_get()?;
/// q.close();
/// if q.phase() <= Phase::Closed {
///     assert!(item.retry().is_ok());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`add`]: crate::WorkQueue::add
/// [`retry`]: crate::Item::retry
/// [`again`]: crate::Item::again
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Any caller may add.
    Open,
    /// After [`close`](crate::WorkQueue::close), and in a drain that waits for waiting keys: only holders may
    /// trigger runs, of the keys that they hold.
    Closed,
    /// After [`shut_down`](crate::WorkQueue::shut_down) or a drain: no caller may add. Keys are still ready,
    /// dirty or held.
    ShutDown,
    /// Nothing is ready, dirty or held, or will be: no run goes on and none will come.
    Over,
}

impl<K, V> Shared<K, V> {
    pub(crate) fn phase(&self) -> Phase {
        let ends = self
            .hold_to_look(&mut None)
            .with(|hold| (hold.core.shutting_down(), hold.core.is_shut_down(), hold.core.is_drained()));
        match ends {
            (false, ..) => Phase::Open,
            (true, false, _) => Phase::Closed,
            (true, true, false) => Phase::ShutDown,
            (true, true, true) => Phase::Over,
        }
    }
}
