//! [`Action`]: what happens to an object after its reconciliation.

use std::time::Duration;

/// The answer of a reconciler and of an error policy: what happens to the object next.
///
/// The constructors [`requeue`](Self::requeue) and [`await_change`](Self::await_change) are those of
/// [`kube::runtime::controller::Action`], whose fields no other crate can read; the others are this crate's.
///
/// | | from a reconciler | from an error policy |
/// |---|---|---|
/// | `await_change()` | runs when something changes | as `give_up()` |
/// | `requeue(after)` | runs again after that time, without a failure | that time takes the place of the back-off; the failure counts |
/// | `backoff()` | as `requeue` with the delay of the back-off: a failure without an error | the back-off says when |
/// | `requeue_with_failures(after)` | runs again after that time, and counts a failure | as `requeue` |
/// | `give_up()` | as `await_change()` | not before somebody changes the object or a related one; its failures are forgotten |
///
/// ```
/// use requeue_kube::Action;
/// use std::time::Duration;
///
/// assert_eq!(Action::requeue(Duration::from_secs(5)).requeue_after(), Some(Duration::from_secs(5)));
/// assert_eq!(Action::await_change().requeue_after(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Action(pub(crate) What);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    AwaitChange,
    Requeue(Duration),
    RequeueWithFailures(Duration),
    Backoff,
    GiveUp,
}

impl Action {
    /// Runs the object again only when something changes.
    #[must_use]
    pub const fn await_change() -> Self {
        Self(What::AwaitChange)
    }

    /// Runs the object again after this time, or earlier if something changes.
    #[must_use]
    pub const fn requeue(after: Duration) -> Self {
        Self(What::Requeue(after))
    }

    /// Runs the object again after this time, and keeps its failures.
    #[must_use]
    pub const fn requeue_with_failures(after: Duration) -> Self {
        Self(What::RequeueWithFailures(after))
    }

    /// Runs the object again when its back-off is over.
    #[must_use]
    pub const fn backoff() -> Self {
        Self(What::Backoff)
    }

    /// Runs the object again only when it or a related object changes: controller-runtime's `TerminalError`.
    /// A change of its status does not count, so that a run may write there why it gave up;
    /// [`Config::on_status`](crate::Config::on_status) changes that.
    #[must_use]
    pub const fn give_up() -> Self {
        Self(What::GiveUp)
    }

    /// The time given to [`requeue`](Self::requeue) or
    /// [`requeue_with_failures`](Self::requeue_with_failures).
    #[must_use]
    pub const fn requeue_after(&self) -> Option<Duration> {
        match self.0 {
            What::Requeue(after) | What::RequeueWithFailures(after) => Some(after),
            What::AwaitChange | What::Backoff | What::GiveUp => None,
        }
    }
}
