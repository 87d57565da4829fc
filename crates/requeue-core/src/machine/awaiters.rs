//! Callers that await runs, as the state machine keeps them.

use super::answers::{NoRun, RunEnd};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A caller that awaits a run.
pub trait Awaiter: Send {
    /// Tells the caller how the run ended, or why there was none. Called outside the lock.
    fn ended(self: Box<Self>, how: Result<RunEnd, NoRun>);

    /// Whether the caller still waits.
    fn is_awaited(&self) -> bool;
}

/// The answer for a caller that awaited a run, to be delivered outside the lock.
pub type RunAnswer = (Box<dyn Awaiter>, Result<RunEnd, NoRun>);

/// The callers that await runs of one key.
#[derive(Default)]
pub(super) struct Awaited {
    /// Those that the current run answers.
    pub(super) running: Vec<Box<dyn Awaiter>>,
    /// Those that a later run answers: one that begins at this instant or later, or that leaves the key without a timer.
    pub(super) next: Vec<(Instant, Box<dyn Awaiter>)>,
}
