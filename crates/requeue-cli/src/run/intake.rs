//! The intake: the way of triggers into the queue, counted, with their cause, and debounced if requested.
//!
//! A key in a debounce is owed a run, unlike one that waits for a retry: the first signal drops retries, and
//! closes the windows of a debounce, whose keys then run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use requeue::{Add, Added, Debounce, Only};
use requeue_watch::Event;

use crate::config::{Output, Run, Watch};
use crate::input::cause::{Cause, Seen};
use crate::input::distinct::Distinct;
use crate::input::keys::Key;
use crate::input::line::Beside;
use crate::input::payload::Payload;
use crate::output::order::Order;
use crate::report::log::Log;
use crate::report::run_stats::RunStats;
use crate::run::queue::Queue;
use crate::run::state::State;
use crate::run::watched::Watched;
use crate::system::control::Control;

/// Decision on a key that was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Run it; the observation is passed to the program.
    Run(Option<Seen>),
    /// Nothing: its file came and went unseen.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Intake {
    queue: Queue,
    /// Where triggers are written before the queue gets them.
    state: Option<Arc<State>>,
    /// Only if keys are watched files.
    pub(crate) watched: Option<Watched>,
    /// The key that stands for all.
    one: Option<Key>,
    /// The debounce of keys.
    debounce: Option<Debounce>,
    /// Whether triggers wait for room in the queue.
    is_bounded: bool,
    numbers: AtomicU64,
    set_aside: Mutex<Vec<(Key, Option<Payload>)>>,
    has_payloads: bool,
    distinct: Mutex<Distinct>,
    /// The places of keys, with `--keep-order`.
    pub(crate) order: Option<Arc<Order>>,
}

impl Intake {
    pub(crate) fn new(queue: Queue, state: Option<Arc<State>>, config: &Run) -> Self {
        let watch = config.watch.as_ref();
        Self {
            order: (config.output == Output::InOrder).then(|| Arc::new(Order::new())),
            queue,
            watched: watch.map(Watched::new),
            one: watch.and_then(Watch::one_key).map(<[u8]>::to_vec),
            debounce: config.queue.debounce.map(|(quiet, max)| Debounce::new(quiet).max(max)),
            is_bounded: config.queue.bound.is_some(),
            numbers: AtomicU64::new(1),
            set_aside: Mutex::default(),
            // payloads kept by --state stay in its file
            has_payloads: config.lines.merge.is_some() && state.is_none(),
            state,
            distinct: Mutex::default(),
        }
    }

    /// The key under which this one is run.
    pub(crate) fn key<'a>(&'a self, key: &'a [u8]) -> &'a [u8] {
        self.one.as_deref().unwrap_or(key)
    }

    /// Adds a key, and counts it; false once the queue is shut down. With `--state` this only begins, and
    /// [`settle`](Self::settle) counts it.
    pub(crate) fn add(&self, run_stats: &RunStats, key: &[u8], seen: Option<Seen>, beside: Beside) -> bool {
        let key = self.key(key);
        if let Some(order) = &self.order {
            // Before a worker can have it. Where the queue refuses it the end is near, which passes all on.
            order.comes(key);
        }
        if let Some(state) = &self.state {
            let cause = beside.payload.map(|payload| self.cause(None, Some(payload)));
            state.begin(key, cause, beside.priority);
            return true;
        }
        if let (None, Some(watched)) = (&seen, &self.watched) {
            watched.know(key);
        }
        // A file that existed before is not in the middle of being written.
        let at_once = matches!(seen, Some(Seen { event: Event::Initial, .. }));
        let debounce = self.debounce.filter(|_| !at_once);
        let added = match debounce {
            None if seen.is_none() && beside.payload.is_none() && self.watched.is_none() => {
                self.add_now(key, beside.priority)
            }
            _ => self.add_cause(key, self.cause(seen, beside.payload), beside.priority, debounce),
        };
        let Some(added) = added else { return false };
        self.count(run_stats, key, added);
        true
    }

    fn count(&self, run_stats: &RunStats, key: &[u8], added: Added) {
        RunStats::add(&run_stats.triggers);
        if matches!(added, Added::Coalesced) {
            RunStats::add(&run_stats.coalesced);
        } else if lock(&self.distinct).is_new(key) {
            RunStats::add(&run_stats.keys);
        }
    }

    /// Repeats the last key that was added: one run serves both.
    pub(crate) fn repeat(&self, run_stats: &RunStats) {
        if !self.state.as_ref().is_some_and(|state| state.repeat()) {
            RunStats::add(&run_stats.triggers);
            RunStats::add(&run_stats.coalesced);
        }
    }

    /// Waits until the added keys are as safe as they will be. Returns the number of lines that were not
    /// accepted.
    pub(crate) fn settle(&self, run_stats: &RunStats, control: &Control, log: &Log) -> u64 {
        let Some(state) = &self.state else { return 0 };
        state.settle(control, log, |key, added, lines| {
            self.count(run_stats, key, added);
            (1..lines).for_each(|_| self.count(run_stats, key, Added::Coalesced));
        })
    }

    /// Counts a key that came after the queue was shut down: it is left.
    pub(crate) fn came_too_late(&self, run_stats: &RunStats, key: &[u8], beside: Beside) {
        let key = self.key(key);
        RunStats::add(&run_stats.triggers);
        if lock(&self.distinct).is_new(key) {
            RunStats::add(&run_stats.keys);
        }
        run_stats.came_too_late(key, beside);
    }

    fn cause(&self, seen: Option<Seen>, payload: Option<Payload>) -> Cause {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        Cause { number, typed: seen.is_none(), seen, payload }
    }

    /// Adds a key without a cause, and so without allocating if the key is already in the queue.
    fn add_now(&self, key: &[u8], priority: i16) -> Option<Added> {
        if priority == 0 && !self.is_bounded {
            return self.queue.add_ref(key).ok();
        }
        self.enter(key, Add::now().priority(priority))
    }

    fn add_cause(
        &self,
        key: &[u8],
        cause: Cause,
        priority: i16,
        debounce: Option<Debounce>,
    ) -> Option<Added> {
        let add = debounce.map_or_else(Add::now, Add::debounced);
        self.enter(key, add.value(cause).priority(priority))
    }

    /// Adds a key as soon as there is room; `None` if the queue is shut down.
    fn enter(&self, key: &[u8], add: Add<Cause>) -> Option<Added> {
        if self.is_bounded {
            return self.queue.add_when_room(key.to_vec(), add).wait().ok();
        }
        self.queue.add_with(key.to_vec(), add).ok()
    }

    /// Decides what a key that was handed out is run for, after this number of failures in a row.
    pub(crate) fn sees(&self, run_stats: &RunStats, key: &[u8], cause: &Cause, failures: u32) -> Begin {
        match (&self.watched, &cause.seen) {
            (Some(watched), Some(seen)) if !cause.typed => match watched.begins(key, seen, failures) {
                Some(seen) => Begin::Run(Some(seen)),
                None => {
                    // Its trigger and the deletion come to nothing together.
                    RunStats::add(&run_stats.coalesced);
                    if !watched.knows(key) && lock(&self.distinct).remove(key) {
                        run_stats.keys.fetch_sub(1, Ordering::Relaxed);
                    }
                    Begin::Nothing
                }
            },
            (_, seen) => Begin::Run(seen.clone()),
        }
    }

    /// Puts a key that was handed out back for this time, at most until the end. False if the queue is shut
    /// down.
    pub(crate) fn put_off(&self, key: &[u8], cause: &Cause, delay: Duration, priority: i16) -> bool {
        let add = Add::debounced(Debounce::new(delay).max(delay)).value(cause.clone()).priority(priority);
        self.queue.add_with(key.to_vec(), add).is_ok()
    }

    /// Closes the queue: no more keys from outside. Running keys may come back.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Shuts the queue down; debounced keys become ready. If no further run begins, the rate is lifted too:
    /// ready keys are only released.
    pub(crate) fn shut_down(&self, runs_end: bool) {
        if runs_end {
            self.queue.lift_rate();
        }
        self.queue.close();
        self.set_aside_retries();
        self.queue.shut_down();
    }

    /// Keeps the values of keys that wait for a retry, which the queue would drop with them.
    fn set_aside_retries(&self) {
        if !self.has_payloads {
            return;
        }
        for (key, state) in self.queue.snapshot().only(Only::Waiting).flat_map(|page| page.keys) {
            if state.ready || state.held || state.window_until.is_some() {
                continue;
            }
            let payload = self.queue.cancel(&key).and_then(|cancelled| cancelled.value?.payload);
            lock(&self.set_aside).push((key, payload));
        }
    }

    /// Keys that waited for a retry when the queue was shut down, with all their values.
    pub(crate) fn set_aside(&self) -> Vec<(Key, Option<Payload>)> {
        std::mem::take(&mut *lock(&self.set_aside))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue::{FakeClock, WorkQueue};

    const QUIET: Duration = Duration::from_millis(50);

    fn seen(event: Event) -> Option<Seen> {
        Some(Seen { event, relative: "a".into() })
    }

    struct Setting {
        clock: FakeClock,
        queue: Queue,
        intake: Intake,
        run_stats: RunStats,
    }

    fn setting() -> Setting {
        let clock = FakeClock::new();
        let builder = WorkQueue::merging(Cause::merge).clock(clock.clone()).timers_absorbed(true);
        let queue: Queue = builder.build().unwrap();
        let intake = Intake {
            queue: queue.clone(),
            state: None,
            watched: None,
            one: None,
            debounce: Some(Debounce::new(QUIET).max(2 * QUIET)),
            is_bounded: false,
            numbers: AtomicU64::new(1),
            set_aside: Mutex::default(),
            has_payloads: false,
            distinct: Mutex::default(),
            order: None,
        };
        Setting { clock, queue, intake, run_stats: RunStats::default() }
    }

    impl Setting {
        fn add(&self, event: Event) {
            assert!(self.intake.add(&self.run_stats, b"a", seen(event), Beside::default()));
        }

        /// The event of the run that can begin now.
        fn run(&self) -> Option<Event> {
            let item = self.queue.try_get().ok()?;
            let seen = item.value().and_then(|cause| cause.seen.clone());
            item.succeed();
            seen.map(|seen| seen.event)
        }
    }

    #[test]
    fn what_was_there_runs_at_once_and_what_changes_after_a_while_of_quiet() {
        let s = setting();
        s.add(Event::Initial);
        assert_eq!(s.run(), Some(Event::Initial));
        s.add(Event::Write);
        s.clock.advance(QUIET - Duration::from_nanos(1));
        assert_eq!(s.run(), None);
        s.add(Event::Delete);
        s.clock.advance(QUIET - Duration::from_nanos(1));
        assert_eq!(s.run(), None, "pushed back");
        s.clock.advance(Duration::from_nanos(1));
        assert_eq!(s.run(), Some(Event::Delete));
    }

    #[test]
    fn without_quiet_the_run_comes_all_the_same() {
        let s = setting();
        let step = QUIET / 2;
        for n in 0.. {
            s.add(Event::Write);
            if s.run().is_some() {
                assert_eq!(n, 4, "twice the quiet after the first");
                break;
            }
            s.clock.advance(step);
        }
    }

    #[test]
    fn a_retry_that_is_far_away_is_brought_forward() {
        let s = setting();
        s.queue.add_after(b"a".to_vec(), Duration::from_secs(300)).unwrap();
        s.add(Event::Write);
        s.clock.advance(QUIET);
        assert_eq!(s.run(), Some(Event::Write));
    }

    #[test]
    fn the_end_makes_ready_what_waits_for_quiet_and_drops_what_waits_for_a_retry() {
        let s = setting();
        s.queue.add_after(b"retry".to_vec(), QUIET).unwrap();
        s.add(Event::Write);
        s.intake.shut_down(false);
        assert_eq!(s.run(), Some(Event::Write));
        assert_eq!(s.run(), None);
        assert!(!s.intake.add(&s.run_stats, b"b", None, Beside::default()));
    }

    #[test]
    fn a_trigger_during_a_run_is_not_taken_for_the_runs_own() {
        let s = setting();
        s.add(Event::Write);
        s.clock.advance(QUIET);
        let item = s.queue.try_get().unwrap();
        s.add(Event::Delete);
        item.succeed();
        s.intake.shut_down(false);
        assert_eq!(s.run(), Some(Event::Delete));
    }

    #[test]
    fn what_merges_into_a_run_that_is_coming_counts_as_coalesced() {
        let s = setting();
        let count = || [&s.run_stats.triggers, &s.run_stats.coalesced].map(|n| n.load(Ordering::Relaxed));
        // Ready at once, and not yet handed out.
        s.add(Event::Initial);
        s.add(Event::Write);
        assert_eq!(count(), [2, 1]);
        assert_eq!(s.queue.state(&b"a"[..]).unwrap().waiting_until, None, "and no timer is set for it");
        assert_eq!(s.run(), Some(Event::Write));
        // Ready after a while of quiet.
        s.add(Event::Write);
        s.clock.advance(QUIET);
        assert_eq!(s.queue.len(), 1);
        s.add(Event::Write);
        assert_eq!(count(), [4, 2]);
        // Held, and triggered at once.
        let item = s.queue.try_get().unwrap();
        s.add(Event::Initial);
        s.add(Event::Write);
        assert_eq!(count(), [6, 3]);
        item.succeed();
        assert_eq!(s.run(), Some(Event::Write));
        s.clock.advance(2 * QUIET);
        assert_eq!(s.run(), None);
    }

    #[test]
    fn a_key_that_is_put_off_is_run_at_the_end_and_not_dropped() {
        let s = setting();
        s.add(Event::Write);
        s.clock.advance(QUIET);
        let item = s.queue.try_get().unwrap();
        assert!(s.intake.put_off(item.key(), item.value().unwrap(), 10 * QUIET, 0));
        item.succeed();
        s.clock.advance(9 * QUIET);
        assert_eq!(s.run(), None);
        s.intake.shut_down(false);
        assert_eq!(s.run(), Some(Event::Write));
    }
}
