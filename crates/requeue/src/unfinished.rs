//! What becomes of a run whose guard is dropped.

/// What a guard does that is dropped before its run was ended by a call. (Items that are still in a batch when
/// a panic unwinds through it are put back whatever this says: see [`Items`](crate::Items).)
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
    /// It is [`done`](crate::Item::done).
    #[default]
    Done,
    /// It is [`retry`](crate::Item::retry): the limiter is asked, and the value goes back.
    /// Where the queue takes no retries any more it is done, and counted as a refused retry.
    /// This is for guards that are held across an `.await` in tasks that may be cancelled:
    /// without it their drop says done of work that was not finished.
    Retry,
}
