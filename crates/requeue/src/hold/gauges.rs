//! The gauges of a queue, computed when they are read.

use super::Shared;
use crate::metrics::{Gauges, GroupGauges};
use std::sync::Weak;

/// Number of priorities or groups that one lock hold reads.
const PAGE: usize = 256;

impl<K, V> Shared<K, V> {
    pub(crate) fn gauges(&self) -> Gauges {
        let now = self.now();
        let keys = self.look_at(now).with(|hold| hold.core.gauges());
        let depths = self
            .priorities
            .then(|| pages(|from, all| self.look_at(now).with(|hold| hold.core.depths(from, all))));
        let groups: Vec<GroupGauges> =
            pages(|from, all| self.look_at(now).with(|hold| hold.core.told_groups(from, all)));
        let workers = self.holders().iter().map(|workers| workers.alive_and_busy()).collect::<Vec<_>>();
        Gauges {
            depth: keys.depth,
            depth_by_priority: depths,
            waiting: keys.waiting,
            held: keys.held,
            dirty: keys.dirty,
            oldest_ready: keys.oldest_ready,
            unfinished_work: keys.unfinished_work,
            longest_running: keys.longest_running,
            groups,
            workers: workers.iter().map(|(all, _)| all).sum(),
            busy_workers: workers.iter().map(|(_, busy)| busy).sum(),
            engine: self.engine.get().and_then(Weak::upgrade).map(|engine| engine.engine()),
        }
    }
}

/// Everything that `read` finds, a page a call: it gets where the page begins, and returns where the next does.
fn pages<T>(mut read: impl FnMut(u32, &mut Vec<T>) -> Option<u32>) -> Vec<T> {
    let (mut from, mut all) = (Some(0), Vec::new());
    while let Some(at) = from {
        // there is room before the lock is taken
        all.reserve(PAGE);
        from = read(at, &mut all);
    }
    all
}
