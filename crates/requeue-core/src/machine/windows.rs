//! [`Windows`]: the open windows of a queue's debounces. `window.rs` says what opens and closes them.

use super::flags::{DIRTY, HELD, READY};
use crate::column::Column;
use crate::time::Instant;
use crate::timers::Place;

/// How a shutdown, which closes the window, counts its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tally {
    #[default]
    Nothing,
    Ready,
    Dirty,
}

/// A window; a closed one is the default.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub(super) open: bool,
    /// When its first trigger came.
    pub(super) began: Instant,
    pub(super) ends: Place,
    /// It owes a run: its end makes the key ready.
    pub(super) owes: bool,
    /// It was opened during the current run, and all its triggers respect a back-off.
    pub(super) respects: bool,
    /// The highest priority of its triggers.
    pub(super) priority: i16,
    /// The key's own timer.
    pub(super) own: Option<Place>,
    pub(super) tally: Tally,
}

impl Window {
    /// Whether it is open and the key has no timer of its own; and whether it also owes no run.
    pub(super) fn stands_alone(&self) -> (bool, bool) {
        let alone = self.open && self.own.is_none();
        (alone, alone && !self.owes)
    }
}

/// The windows of a queue.
#[derive(Debug)]
pub(super) struct Windows {
    /// By slot; a closed window is the default.
    by_slot: Column<Window>,
    /// Number of open windows.
    pub(super) open: usize,
    /// Number of open windows of keys without a timer of their own.
    pub(super) alone: usize,
    /// Number of open windows that owe no run, of keys without a timer of their own: they hold nothing up.
    pub(super) idle: usize,
    /// Numbers of keys that become ready, and dirty, if all are closed.
    pub(super) ready: usize,
    pub(super) dirty: usize,
    /// When they were shut, by the deadline of a drain that has passed.
    pub(super) shut: Option<Instant>,
}

impl Windows {
    pub(super) const fn new() -> Self {
        Self { by_slot: Column::new(), open: 0, alone: 0, idle: 0, ready: 0, dirty: 0, shut: None }
    }

    pub(super) fn free_page(&mut self, chunk: u32) {
        self.by_slot.free_page(chunk);
    }

    /// A copy of a slot's open window.
    pub(super) fn of(&self, slot: u32) -> Window {
        self.by_slot.get(slot).copied().unwrap_or_default()
    }

    /// Changes a slot's open window. `flags` are its key's.
    pub(super) fn change<R>(&mut self, slot: u32, flags: u32, change: impl FnOnce(&mut Window) -> R) -> R {
        let window = self.by_slot.entry(slot);
        let (was_alone, was_idle) = window.stands_alone();
        let answer = change(window);
        let (is_alone, is_idle) = window.stands_alone();
        let tally = match flags & (HELD | READY | DIRTY) {
            0 if window.owes => Tally::Ready,
            HELD if window.owes => Tally::Dirty,
            _ => Tally::Nothing,
        };
        let before = core::mem::replace(&mut window.tally, tally);
        self.alone = self.alone + usize::from(is_alone) - usize::from(was_alone);
        self.idle = self.idle + usize::from(is_idle) - usize::from(was_idle);
        if let Some(counted) = self.counted(before) {
            *counted -= 1;
        }
        if let Some(counted) = self.counted(tally) {
            *counted += 1;
        }
        answer
    }

    fn counted(&mut self, tally: Tally) -> Option<&mut usize> {
        match tally {
            Tally::Nothing => None,
            Tally::Ready => Some(&mut self.ready),
            Tally::Dirty => Some(&mut self.dirty),
        }
    }
}
