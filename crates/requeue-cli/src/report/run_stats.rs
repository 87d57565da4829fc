//! Counts of events, and the keys with problems.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::input::keys::Key;
use crate::input::line::Beside;
use crate::input::payload::Payload;
use crate::report::outcome::Failure;

/// A key that gave up, and the reason.
#[derive(Clone, Debug)]
pub(crate) struct GaveUp {
    pub(crate) key: Key,
    /// `None` if `key` is a whole line of the input.
    pub(crate) beside: Option<Beside>,
    pub(crate) why: Failure,
    /// Number of times that its program was started, or was tried to be.
    pub(crate) attempts: u32,
}

impl GaveUp {
    /// Adds the values of a run that gave up before, in front.
    fn has_also(&mut self, before: Self) {
        if let (Some(beside), Some(mut older)) = (&mut self.beside, before.beside) {
            Payload::join(&mut older.payload, beside.payload.take());
            beside.payload = older.payload;
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct RunStats {
    pub(crate) keys: AtomicU64,
    pub(crate) triggers: AtomicU64,
    pub(crate) coalesced: AtomicU64,
    /// Triggers that `--resume` skipped.
    pub(crate) skipped: AtomicU64,
    pub(crate) runs: AtomicU64,
    pub(crate) retries: AtomicU64,
    /// Successful runs.
    pub(crate) well: AtomicU64,
    pub(crate) running: AtomicUsize,
    fates: Mutex<Fates>,
}

/// Maximum number of keys that gave up, if only the first ones are needed: `work` may run for months.
const KEPT: usize = 10_000;

#[derive(Debug, Default)]
struct Fates {
    /// Keys whose next run is still owed. A key is in it from the failure (or the "again", or the end that
    /// came before its run) to the next run; so at the end, these are left. Kept here and not read from the
    /// queue's counts, because a key can be ready and waiting at once.
    owed: HashMap<Key, Owed>,
    /// By the last result of each key: a later successful run removes it.
    gave_up: HashMap<Key, (u64, GaveUp)>,
    /// Whether an engine keeps and counts what is owed, and nothing of it is kept here: another process may
    /// run a key that failed in this one, which does not see that.
    kept_elsewhere: bool,
    /// Maximum number of keys that gave up, if there is a limit, and how often a key gave up beyond it.
    most: Option<usize>,
    beyond: usize,
    /// The next number in either order.
    order: u64,
}

/// The parts of an owed run, the older first.
#[derive(Debug, Default)]
struct Owed {
    /// Number in the order in which keys came to be owed a run.
    order: u64,
    /// The parts of runs that the queue has dropped.
    gone: Option<Beside>,
    /// The parts that the queue has for the next run.
    next: Option<Beside>,
    /// The parts that came after the queue was shut down.
    late: Option<Beside>,
}

fn has_values(beside: Option<&Beside>) -> bool {
    beside.is_some_and(|beside| beside.payload.is_some())
}

/// The values without their priority: that of the other parts counts.
fn values_alone(parts: Beside) -> Beside {
    Beside { priority: i16::MIN, ..parts }
}

/// Joins the parts of a later trigger to the existing ones.
fn join(parts: &mut Option<Beside>, later: Beside) {
    match parts {
        Some(parts) => parts.join(later),
        None => *parts = Some(later),
    }
}

impl Owed {
    /// Handles the start of a run. It does not get parts that the queue has dropped; without values that
    /// makes no difference. Returns whether something is still owed.
    fn is_paid_in_part(&mut self) -> bool {
        self.next = None;
        has_values(self.gone.as_ref()) || has_values(self.late.as_ref())
    }

    fn all(self) -> Beside {
        let mut all = None;
        [self.gone, self.next, self.late].into_iter().flatten().for_each(|parts| join(&mut all, parts));
        all.unwrap_or_default()
    }
}

impl RunStats {
    /// Counts for keys from an engine, which may run for months: it keeps all keys that give up, or the
    /// first ones.
    pub(crate) fn of_an_engine(keeps_all: bool) -> Self {
        let run_stats = Self::default();
        let mut fates = run_stats.fates();
        fates.most = (!keeps_all).then_some(KEPT);
        fates.kept_elsewhere = true;
        drop(fates);
        run_stats
    }

    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Handles the start of a run of this key: its debt is being paid.
    pub(crate) fn begins(&self, key: &[u8]) {
        Self::add(&self.runs);
        self.running.fetch_add(1, Ordering::Relaxed);
        self.fates().pay(key);
    }

    pub(crate) fn ended(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Undoes the start of a run.
    pub(crate) fn not_begun(&self) {
        self.runs.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records that the key succeeded.
    pub(crate) fn done(&self, key: &[u8]) {
        Self::add(&self.well);
        let mut fates = self.fates();
        if !fates.gave_up.is_empty() {
            fates.gave_up.remove(key);
        }
    }

    /// Records that the key must run, or run again. Called before the queue is told, which may hand it out at
    /// once.
    pub(crate) fn owe(&self, key: &[u8], beside: Beside) {
        let mut fates = self.fates();
        if !fates.kept_elsewhere {
            fates.owe(key).next = Some(beside);
        }
    }

    /// Records that the key must run, and that the queue has dropped this run's parts.
    pub(crate) fn let_go(&self, key: &[u8], beside: Beside) {
        let mut fates = self.fates();
        if fates.kept_elsewhere {
            return;
        }
        let owed = fates.owe(key);
        join(&mut owed.gone, beside);
        owed.next = None;
    }

    /// Adds values to an owed run of the key, if there is one.
    pub(crate) fn owe_values(&self, key: &[u8], payload: Option<Payload>) {
        if let Some(owed) = self.fates().owed.get_mut(key) {
            let next = owed.next.get_or_insert_with(|| values_alone(Beside::default()));
            next.payload = payload;
        }
    }

    /// Records a key that came after the queue was shut down: it is left.
    pub(crate) fn came_too_late(&self, key: &[u8], beside: Beside) {
        join(&mut self.fates().owe(key).late, beside);
    }

    /// Records that the key has nothing left to run for.
    pub(crate) fn forget(&self, key: &[u8]) {
        self.fates().pay(key);
    }

    /// Records that a run of the key gave up. Lines that came during that run, after the queue was shut down,
    /// are still owed one, and so are values that it did not get.
    pub(crate) fn give_up(&self, mut gave_up: GaveUp) {
        let mut fates = self.fates();
        fates.order += 1;
        let order = fates.order;
        let is_over = |owed: &mut Owed| owed.late.is_none() && !owed.is_paid_in_part();
        if fates.owed.get_mut(&gave_up.key).is_some_and(is_over) {
            fates.owed.remove(&gave_up.key);
        }
        let is_full = fates.most.is_some_and(|most| fates.gave_up.len() >= most);
        if is_full && !fates.gave_up.contains_key(&gave_up.key) {
            fates.beyond += 1;
            return;
        }
        // a key of an engine may give up for months: only its last values are kept
        if !fates.kept_elsewhere {
            if let Some((_, before)) = fates.gave_up.remove(&gave_up.key) {
                gave_up.has_also(before);
            }
        }
        fates.gave_up.insert(gave_up.key.clone(), (order, gave_up));
    }

    pub(crate) fn gave_up_count(&self) -> usize {
        let fates = self.fates();
        fates.gave_up.len() + fates.beyond
    }

    /// Number of keys that gave up and are not kept, because there were too many. A later successful run does
    /// not reduce it.
    pub(crate) fn gave_up_beyond(&self) -> usize {
        self.fates().beyond
    }

    /// The keys that gave up, in that order, and those whose run is still owed, in that order. A key that
    /// gave up, came again and is owed a run is only in the latter, with the values of both.
    pub(crate) fn take_fates(&self) -> (Vec<GaveUp>, Vec<(Key, Beside)>) {
        let mut fates = self.fates();
        let (mut owed, gave_up) = (std::mem::take(&mut fates.owed), std::mem::take(&mut fates.gave_up));
        drop(fates);
        let (came_again, mut gave_up): (Vec<_>, Vec<_>) =
            gave_up.into_values().partition(|(_, gave_up)| owed.contains_key(&gave_up.key));
        for (_, GaveUp { key, beside, .. }) in came_again {
            let Some(owed) = owed.get_mut(&key) else { continue };
            let mut all = beside.filter(|it| it.payload.is_some()).map(values_alone);
            owed.gone.take().into_iter().for_each(|gone| join(&mut all, gone));
            owed.gone = all;
        }
        gave_up.sort_unstable_by_key(|(order, _)| *order);
        let mut left: Vec<_> = owed.into_iter().collect();
        left.sort_unstable_by_key(|(_, owed)| owed.order);
        (
            gave_up.into_iter().map(|(_, gave_up)| gave_up).collect(),
            left.into_iter().map(|(key, owed)| (key, owed.all())).collect(),
        )
    }

    fn fates(&self) -> std::sync::MutexGuard<'_, Fates> {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fates {
    fn owe(&mut self, key: &[u8]) -> &mut Owed {
        let order = &mut self.order;
        self.owed.entry(key.to_vec()).or_insert_with(|| {
            *order += 1;
            Owed { order: *order, ..Owed::default() }
        })
    }

    fn pay(&mut self, key: &[u8]) {
        if self.owed.get_mut(key).is_some_and(|owed| !owed.is_paid_in_part()) {
            self.owed.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gave_up(key: &[u8]) -> GaveUp {
        GaveUp { key: key.to_vec(), beside: None, why: Failure::Exit(1), attempts: 1 }
    }

    fn keys(left: &[(Key, Beside)]) -> Vec<&Key> {
        left.iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn a_later_success_takes_back_a_giving_up() {
        let run_stats = RunStats::default();
        for key in [b"c", b"a", b"b"] {
            run_stats.give_up(gave_up(key));
        }
        run_stats.done(b"a");
        run_stats.done(b"x");
        assert_eq!(run_stats.gave_up_count(), 2);
        let keys: Vec<_> = run_stats.take_fates().0.into_iter().map(|g| g.key).collect();
        assert_eq!(keys, [b"c", b"b"]);
    }

    #[test]
    fn beyond_a_bound_keys_that_give_up_are_only_counted() {
        let names = |run_stats: &RunStats| -> Vec<Key> {
            for n in 0..KEPT + 7 {
                run_stats.give_up(gave_up(n.to_string().as_bytes()));
            }
            // it is known by now
            run_stats.give_up(gave_up(b"3"));
            assert_eq!(run_stats.gave_up_count(), KEPT + 7);
            run_stats.take_fates().0.into_iter().map(|g| g.key).collect()
        };
        let (few, all) = (RunStats::of_an_engine(false), RunStats::of_an_engine(true));
        assert_eq!((names(&few).len(), few.gave_up_beyond()), (KEPT, 7));
        assert_eq!((names(&all).len(), all.gave_up_beyond()), (KEPT + 7, 0));
    }

    #[test]
    fn what_is_owed_to_keys_of_an_engine_is_not_kept() {
        let run_stats = RunStats::of_an_engine(true);
        run_stats.owe(b"a", Beside::default());
        run_stats.let_go(b"b", Beside::default());
        assert_eq!(run_stats.take_fates().1.len(), 0);
    }

    #[test]
    fn a_key_is_left_once_and_in_the_order_of_debts() {
        let run_stats = RunStats::default();
        for key in [b"c", b"a", b"c", b"b", b"d"] {
            run_stats.owe(key, Beside::default());
        }
        run_stats.begins(b"a");
        run_stats.give_up(gave_up(b"d"));
        assert_eq!(keys(&run_stats.take_fates().1), [b"c", b"b"]);
    }

    #[test]
    fn a_key_that_gave_up_and_is_owed_a_run_again_is_left_only() {
        let run_stats = RunStats::default();
        for key in [b"a", b"b"] {
            run_stats.give_up(gave_up(key));
        }
        run_stats.owe(b"a", Beside::default());
        let (gave_up, left) = run_stats.take_fates();
        assert_eq!(gave_up.into_iter().map(|g| g.key).collect::<Vec<_>>(), [b"b"]);
        assert_eq!(keys(&left), [b"a"]);
    }

    fn beside(priority: i16, value: &str) -> Beside {
        let payload = (!value.is_empty()).then(|| Payload::concat(value.as_bytes(), 100));
        Beside { priority, payload }
    }

    #[test]
    fn lines_that_come_too_late_during_a_run_that_gives_up_are_left() {
        let stats = RunStats::default();
        for (key, first, late) in [(b"a", "1", "2"), (b"b", "", "")] {
            stats.begins(key);
            stats.came_too_late(key, beside(4, late));
            stats.give_up(GaveUp { beside: Some(beside(7, first)), ..gave_up(key) });
        }
        let (gave_up, left) = stats.take_fates();
        assert_eq!(gave_up.len(), 0);
        let mut both = beside(4, "1");
        both.join(beside(4, "2"));
        assert_eq!(left, [(b"a".to_vec(), both), (b"b".to_vec(), beside(4, ""))]);
    }

    #[test]
    fn a_key_that_gives_up_twice_has_the_values_of_both_runs() {
        for (stats, kept) in
            [(RunStats::default(), ["1", "2"].as_slice()), (RunStats::of_an_engine(true), &["2"])]
        {
            for value in ["1", "2"] {
                stats.give_up(GaveUp { beside: Some(beside(3, value)), ..gave_up(b"a") });
            }
            let parts = stats.take_fates().0.pop().and_then(|gave_up| gave_up.beside);
            let values = parts.and_then(|parts| parts.payload);
            let values = values.iter().flat_map(|values| values.values().map(<[u8]>::to_vec));
            assert_eq!(values.collect::<Vec<_>>(), kept.iter().map(|it| it.as_bytes()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_left_keeps_a_priority_below_zero() {
        let stats = RunStats::default();
        stats.owe(b"a", beside(-1, ""));
        stats.let_go(b"b", beside(-2, ""));
        stats.came_too_late(b"c", beside(-3, ""));
        stats.came_too_late(b"c", beside(-5, ""));
        let priorities: Vec<_> = stats.take_fates().1.iter().map(|(_, parts)| parts.priority).collect();
        assert_eq!(priorities, [-1, -2, -3]);
    }
}
