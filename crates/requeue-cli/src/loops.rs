//! Notices a program that writes its own key: each of its runs then triggers the next.
//!
//! By the file's own time of change, not by when its event is read, which can be long
//! after the run's end. So somebody else who writes the file within a tick of the clock
//! after each run is taken for the program; but that is a loop too.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::tally::Key;

/// So many runs in a row during each of which the file was changed are a loop.
const STREAK: u32 = 5;

/// A file's time is that of the last tick of the kernel's clock: up to 10 ms old.
const TICK: Duration = Duration::from_millis(10);

/// An event that is read so long after a run's end is not laid at its door.
const MEMORY: Duration = Duration::from_secs(60);

/// So many runs are remembered before old ones are forgotten.
const ROOM: usize = 1024;

#[derive(Debug)]
pub(crate) struct Loops {
    last: Mutex<Last>,
    /// How much older than its run's begin a change of the run's own may look. No more
    /// than a trigger is older than the run that it brings, or that would be taken for it.
    slack: Duration,
}

#[derive(Debug, Default)]
struct Last {
    runs: HashMap<Key, LastRun>,
    /// How many may be there before old ones are looked for.
    room: usize,
}

#[derive(Debug)]
struct LastRun {
    began: SystemTime,
    ended: Option<SystemTime>,
    /// The file was changed during it.
    changed: bool,
    /// The runs in a row before it during which the file was changed.
    streak: u32,
}

impl Loops {
    /// Of keys whose triggers wait so long for quiet.
    pub(crate) fn new(debounce: Duration) -> Self {
        Self { last: Mutex::default(), slack: debounce.min(TICK) }
    }

    pub(crate) fn begins(&self, key: &[u8], now: SystemTime) {
        let mut last = self.last();
        let streak = match last.runs.get(key) {
            Some(run) if run.changed => run.streak + 1,
            _ => 0,
        };
        last.runs.insert(key.to_vec(), LastRun { began: now, ended: None, changed: false, streak });
        if last.runs.len() > last.room {
            let recent = |run: &LastRun| {
                run.ended.is_none_or(|ended| now.duration_since(ended).is_ok_and(|ago| ago < MEMORY))
            };
            last.runs.retain(|_, run| recent(run));
            last.room = ROOM.max(2 * last.runs.len());
        }
    }

    pub(crate) fn ends(&self, key: &[u8], now: SystemTime) {
        if let Some(run) = self.last().runs.get_mut(key) {
            run.ended = Some(now);
        }
    }

    /// The file was changed at this time. True if that makes a loop; said once for each.
    pub(crate) fn changed(&self, key: &[u8], at: SystemTime) -> bool {
        let mut last = self.last();
        let Some(run) = last.runs.get_mut(key) else { return false };
        let during = at + self.slack > run.began && run.ended.is_none_or(|ended| at <= ended);
        if !during || run.changed {
            return false;
        }
        run.changed = true;
        run.streak + 1 == STREAK
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is said of it.
pub(crate) fn message(key: &str) -> String {
    format!(
        "{key}: changed during each of its last {STREAK} runs, and run again each time: if the program \
         writes the file itself this never ends (let it write elsewhere, or use --ignore)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + n)
    }

    /// Runs of a second each, every ten; the file is changed so long after each begins.
    fn said(changes: &[Option<u64>]) -> Vec<bool> {
        let loops = Loops::new(TICK);
        let mut said = Vec::new();
        for (n, change) in (0..).zip(changes) {
            loops.begins(b"a", second(10 * n));
            loops.ends(b"a", second(10 * n + 1));
            said.push(change.is_some_and(|after| loops.changed(b"a", second(10 * n + after))));
        }
        said
    }

    #[test]
    fn five_runs_in_a_row_are_a_loop_and_it_is_said_once() {
        assert_eq!(said(&[Some(1); 8]), [false, false, false, false, true, false, false, false]);
    }

    #[test]
    fn changes_between_the_runs_are_none() {
        assert!(!said(&[Some(2); 20]).contains(&true));
        let mut broken = [Some(1); 12];
        broken[4] = None;
        broken[8] = None;
        assert!(!said(&broken).contains(&true));
    }

    #[test]
    fn several_changes_in_a_run_count_once() {
        let loops = Loops::new(TICK);
        loops.begins(b"a", second(0));
        assert!((0..100).all(|_| !loops.changed(b"a", second(0))));
    }

    #[test]
    fn old_runs_are_forgotten() {
        let loops = Loops::new(TICK);
        for n in 0..100_000u64 {
            let key = n.to_string().into_bytes();
            loops.begins(&key, second(n));
            loops.ends(&key, second(n));
        }
        assert!(loops.last().runs.len() <= 2 * ROOM);
    }
}
