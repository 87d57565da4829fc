//! Rules that are changed on a live queue (rule B13). The next decision uses the new value.

use super::options::Bound;
use super::state::{BATCH, Core};
use crate::line::Rate;
use core::time::Duration;

impl<K, V> Core<K, V> {
    /// Changes the dispatch rate, or ends it. The tokens stay, as far as the new burst holds them.
    pub fn set_rate(&mut self, rate: Option<Rate>) {
        self.line.set_rate(rate, self.now);
        self.watch_time();
    }

    /// Changes the bound; false, and nothing changes, on a queue without one. Keys that it knows stay; 0 is 1.
    pub fn set_bound(&mut self, keys: usize) -> bool {
        let bound = self.bound.as_deref_mut();
        bound.map(|state| state.bound = Bound { keys: keys.max(1), ..state.bound }).is_some()
    }

    /// Changes after how long keys are overdue; false, and nothing changes, on a queue without such keys.
    pub fn set_max_wait(&mut self, after: Duration) -> bool {
        self.line.set_max_wait(after)
    }

    /// Asks for the rules of the groups anew, from the one with this number on, as far as one lock hold looks. Returns where the
    /// next page begins.
    ///
    /// # Panics
    ///
    /// If user code panics (the functions of the rules). Then the groups before have their new rules.
    pub fn reload_groups(&mut self, from: u32) -> Option<u32> {
        let now = self.now;
        let next = self.line.fair_mut().and_then(|(fair, _)| fair.reload(from, now));
        self.line.refill(now, BATCH);
        next
    }
}
