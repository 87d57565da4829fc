//! Pending work of a lock hold besides the call itself, one bit each. A bit is set by the code that makes its
//! condition true, and cleared by the code that ends it, so that a call without such work needs one test.

/// `suspect` names a slot: user code panicked, unless the call that set it is still running.
pub(super) const SUSPECT: u32 = 1;
/// A drain waits for waiting keys, or a shutdown has not gone through all timers.
pub(super) const ENDING: u32 = 1 << 1;
/// `trash` holds something.
pub(super) const TRASH: u32 = 1 << 2;
/// Time matters to a look: there are timers or timestamps, or a drain waits.
pub(super) const TIME: u32 = 1 << 3;
/// Timers fired whose lateness was not read yet.
pub(super) const LATE: u32 = 1 << 4;
/// `TIME` has changed since [`take_time_matters`](super::Core::take_time_matters) was last called.
pub(super) const RETIMED: u32 = 1 << 5;
/// `forgotten` holds something.
pub(super) const FORGOTTEN: u32 = 1 << 6;
/// Groups have rates: time that passes lets some be served again. Never cleared.
pub(super) const GROUPS: u32 = 1 << 7;
/// `answers` holds something.
pub(super) const ANSWERS: u32 = 1 << 8;
/// Keys were dropped for room, and not reported yet.
pub(super) const DROPPED: u32 = 1 << 9;
/// First bit that belongs to the owner of the state machine: see
/// [`Core::note_beside`](super::Core::note_beside).
pub(super) const BESIDE: u32 = 12;
