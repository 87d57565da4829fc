//! Files that were recently reported as deleted and are not known to be back.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a deletion is remembered. It matters only if a program looks at the file late, when it is back
/// and about to go again: a moment as short as events stay unread.
const MEMORY: Duration = Duration::from_secs(10);

/// Maximum number of remembered deletions, which bounds the memory after a large deletion.
const ROOM: usize = 100_000;

#[derive(Debug)]
pub(super) struct Vanished {
    now: Instant,
    /// By path: the path below the root, and when it was last reported.
    told: BTreeMap<PathBuf, (PathBuf, Instant)>,
    /// In the order of reports; paths that were reported again appear twice.
    order: VecDeque<(Instant, PathBuf)>,
}

impl Vanished {
    pub(super) fn new(now: Instant) -> Self {
        Self { now, told: BTreeMap::new(), order: VecDeque::new() }
    }

    pub(super) fn time(&mut self, now: Instant) {
        self.now = now;
        while self.order.front().is_some_and(|(told, _)| now.saturating_duration_since(*told) > MEMORY) {
            self.drop_oldest();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    pub(super) fn insert(&mut self, path: PathBuf, relative: PathBuf) {
        self.order.push_back((self.now, path.clone()));
        self.told.insert(path, (relative, self.now));
        if self.order.len() > ROOM {
            self.drop_oldest();
        }
    }

    pub(super) fn remove(&mut self, path: &Path) {
        self.told.remove(path);
    }

    /// This path and all below it, with their paths below the roots.
    pub(super) fn below(&self, path: &Path) -> Vec<(PathBuf, PathBuf)> {
        let from = self.told.range(path.to_owned()..);
        let inside = from.take_while(|(vanished, _)| vanished.starts_with(path));
        inside.map(|(vanished, (relative, _))| (vanished.clone(), relative.clone())).collect()
    }

    fn drop_oldest(&mut self) {
        let Some((told, path)) = self.order.pop_front() else { return };
        if self.told.get(&path).is_some_and(|(_, last)| *last == told) {
            self.told.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_are_forgotten_after_a_while_and_a_directory_has_all_below_it() {
        let start = Instant::now();
        let mut vanished = Vanished::new(start);
        for path in ["r/d/x", "r/d", "r/d/e/y", "r/dd", "r/c"] {
            vanished.insert(path.into(), path.trim_start_matches("r/").into());
        }
        let below = |vanished: &Vanished| {
            vanished.below(Path::new("r/d")).into_iter().map(|(path, _)| path).collect::<Vec<_>>()
        };
        assert_eq!(below(&vanished), ["r/d", "r/d/e/y", "r/d/x"].map(PathBuf::from));
        vanished.remove(Path::new("r/d"));
        vanished.time(start + MEMORY);
        vanished.insert("r/d/x".into(), "d/x".into());
        vanished.time(start + MEMORY + Duration::from_nanos(1));
        assert_eq!(below(&vanished), [PathBuf::from("r/d/x")]);
        vanished.time(start + 3 * MEMORY);
        assert!(vanished.is_empty() && vanished.order.is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut vanished = Vanished::new(Instant::now());
        for n in 0..2 * ROOM {
            vanished.insert(n.to_string().into(), n.to_string().into());
        }
        assert!(vanished.told.len() <= ROOM && vanished.order.len() <= ROOM);
    }
}
