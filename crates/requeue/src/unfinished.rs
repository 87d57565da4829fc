//! [`Unfinished`]: how a run ends whose guard is dropped.

/// The end of a run whose guard is dropped before a call has ended it. (Items still in a batch when a panic
/// unwinds through it are always put back: see [`Items`](crate::Items).)
///
/// ```
/// # use requeue::{FakeClock, Unfinished, WorkQueue};
/// # let clock = FakeClock::new();
/// let q = WorkQueue::builder().unfinished(Unfinished::Retry).clock(clock).build()?;
/// q.add("a")?;
/// drop(q.try_get()?);
/// assert_eq!(q.stats().waiting, 1, "it comes back");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unfinished {
    /// The run is [`done`](crate::Item::done).
    #[default]
    Done,
    /// The run is a [`retry`](crate::Item::retry): the limiter is asked, and the value goes back. If the
    /// queue accepts no retries any more it is done, and counted as a refused retry. Use this for guards that
    /// are held across an `.await` in tasks that can be cancelled: otherwise their drop marks unfinished work
    /// done.
    Retry,
}

/// How a cancelled run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelRun {
    /// It is a failure.
    Retry,
    /// The key is given up.
    GiveUp,
}
