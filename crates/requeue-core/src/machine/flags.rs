//! Flags of a slot, on the state of its key; the line has one more, [`PAUSED`](crate::line::PAUSED).

/// It is ready.
pub(super) const READY: u32 = 1;
/// A worker has it.
pub(super) const HELD: u32 = 1 << 1;
/// It was triggered while held. Only with `HELD`.
pub(super) const DIRTY: u32 = 1 << 2;
/// It waits out a failure: its timer was set by the retry that ended its last run, or through the
/// limiter, and may have been moved since. Only with a timer.
pub(super) const BACKOFF: u32 = 1 << 3;
/// Its run was handed out without a guard. Only with `HELD`.
pub(super) const GUARDLESS: u32 = 1 << 4;
/// It was published since it became ready or dirty: an add may have found it pending without the lock.
/// Only with `READY` or `DIRTY`.
pub(super) const PUBLISHED: u32 = 1 << 6;
/// There may be side data of it outside the slab: a timer, a value, a record, or a guard whose run was
/// ended under it. Without this flag there is none, and no call looks. Set by the code that writes side
/// data, and cleared with the key. (Timestamps are excluded: an earlier key's do not matter to a later
/// one.)
pub(super) const HAS_SIDE_DATA: u32 = 1 << 7;

/// All triggers that made it dirty respect a back-off. Only with `DIRTY`, and not with `PUBLISHED`.
pub(super) const DIRTY_RESPECTS: u32 = 1 << 5;
/// Its timer was set during the current run, only by triggers that respect a back-off. Only with `HELD`.
pub(super) const TIMER_RESPECTS: u32 = 1 << 8;
/// A trigger that resets came during the current run. Only with `HELD`.
pub(super) const RESET: u32 = 1 << 9;
/// It has a timer of its own, or a window that owes a run. Only on a queue with a bound.
pub(super) const COUNTED_WAITING: u32 = 1 << 11;
/// It has an open window: see `window.rs`.
pub(super) const WINDOW: u32 = 1 << 13;

/// It is in a group: the line must be told of the end of its run, and when it is forgotten. Set as long
/// as it is known.
pub(super) const GROUPED: u32 = 1 << 12;

/// The flags that end with the key's pending state: see `leave_pending`.
pub(super) const PENDING: u32 = READY | DIRTY | PUBLISHED | DIRTY_RESPECTS;
/// The flags that end with a run.
pub(super) const OF_A_RUN: u32 = HELD | DIRTY | GUARDLESS | DIRTY_RESPECTS | TIMER_RESPECTS | RESET;
