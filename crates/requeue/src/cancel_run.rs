//! [`CancelRun`]: how a run ends that is stopped from outside.

/// How a cancelled run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelRun {
    /// It is a failure.
    Retry,
    /// The key is given up.
    GiveUp,
}
