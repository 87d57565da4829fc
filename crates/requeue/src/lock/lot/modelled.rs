//! The models' queue of sleeping threads: a list, and loom's lock.

use super::{Parked, Unparked, Woken};
use loom::sync::{Condvar, Mutex};
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Default)]
struct Sleepers {
    line: VecDeque<usize>,
    woken: BTreeMap<usize, Woken>,
    tickets: usize,
}

#[derive(Debug)]
pub(in crate::lock) struct Lot {
    sleepers: Mutex<Sleepers>,
    changed: Condvar,
    /// Value of `Unparked::fair`.
    fair: bool,
}

impl Default for Lot {
    fn default() -> Self {
        Self::that_is(false)
    }
}

impl Lot {
    pub(in crate::lock) fn that_is(fair: bool) -> Self {
        Self { sleepers: Mutex::default(), changed: Condvar::new(), fair }
    }

    pub(in crate::lock) fn park(&self, is_to_sleep: impl FnOnce() -> bool) -> Parked {
        let mut sleepers = self.sleepers.lock().expect("not poisoned");
        if !is_to_sleep() {
            return Parked::Not;
        }
        let ticket = sleepers.tickets;
        sleepers.tickets += 1;
        sleepers.line.push_back(ticket);
        loop {
            sleepers = self.changed.wait(sleepers).expect("not poisoned");
            if let Some(woken) = sleepers.woken.remove(&ticket) {
                return Parked::Woken(woken);
            }
        }
    }

    pub(in crate::lock) fn unpark_one(&self, how: impl FnOnce(Unparked) -> Woken) {
        let mut sleepers = self.sleepers.lock().expect("not poisoned");
        let one = sleepers.line.pop_front();
        let woken = how(Unparked { any: one.is_some(), more: !sleepers.line.is_empty(), fair: self.fair });
        if let Some(ticket) = one {
            sleepers.woken.insert(ticket, woken);
            self.changed.notify_all();
        }
    }
}
