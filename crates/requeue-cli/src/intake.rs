//! The way into the queue for what comes from outside: counted, with its cause, and
//! after a while of quiet where that is asked for.
//!
//! A key that waits for quiet is owed a run, unlike one that waits for a retry: the
//! first signal drops retries, and these must not be dropped with them. The queue's
//! timers are the same for both, so what waits for quiet is noted here.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use requeue::{Add, Added};
use requeue_watch::Event;

use crate::args::Run;
use crate::gate::Gate;
use crate::queue::Queue;
use crate::tally::{Distinct, Key, Tally};
use crate::watched::Watched;

/// Why a key is to be run: what its triggers since the last run have left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cause {
    /// The number of the latest trigger.
    number: u64,
    /// What a watcher saw last.
    pub(crate) seen: Option<Seen>,
    /// The key was read as well, under a watcher.
    typed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) event: Event,
    pub(crate) relative: PathBuf,
}

impl Cause {
    /// Two causes of one run become one.
    pub(crate) fn merge(&mut self, other: Self) {
        let later = other.number > self.number;
        self.number = self.number.max(other.number);
        self.typed |= other.typed;
        // That a file is there says less than that it was written.
        let says = |seen: &Option<Seen>| match seen {
            None => 0,
            Some(Seen { event: Event::Initial, .. }) => 1,
            Some(_) => 2,
        };
        let (ours, theirs) = (says(&self.seen), says(&other.seen));
        if theirs > ours || (theirs == ours && later) {
            self.seen = other.seen;
        }
    }
}

/// What a key that was handed out is to be run for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// This is what the program is told of a watched file.
    Run(Option<Seen>),
    /// Its file came and went, and nobody knows of it: there is nothing to do.
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Intake {
    queue: Queue,
    /// Only where keys are files that are watched.
    pub(crate) watched: Option<Watched>,
    /// The key that stands for all.
    one: Option<Key>,
    /// How long it must be quiet around a key, and for how long that may put its run off.
    quiet: Option<(Duration, Duration)>,
    numbers: AtomicU64,
    /// Keys that wait for quiet, with the number of their latest trigger. While it is
    /// locked none is added and the queue is not shut down.
    waiting: Mutex<HashMap<Key, u64>>,
    distinct: Mutex<Distinct>,
    /// Where a key that was handed out waits until its run may start, under `--rate`.
    pub(crate) gate: Option<Gate>,
}

impl Intake {
    pub(crate) fn new(queue: Queue, args: &Run) -> Self {
        Self {
            queue,
            watched: Watched::new(args),
            one: args.one_key().map(<[u8]>::to_vec),
            quiet: (!args.debounce.is_zero()).then_some((args.debounce, args.debounce_max)),
            numbers: AtomicU64::new(1),
            waiting: Mutex::default(),
            distinct: Mutex::default(),
            gate: None,
        }
    }

    /// The same with a gate that keys pass before they run.
    pub(crate) fn gated(self, gate: Option<Gate>) -> Self {
        Self { gate, ..self }
    }

    /// The key as which this one is run.
    pub(crate) fn key<'a>(&'a self, key: &'a [u8]) -> &'a [u8] {
        self.one.as_deref().unwrap_or(key)
    }

    /// Adds a key, and counts it; false once the queue takes none any more.
    pub(crate) fn add(&self, tally: &Tally, key: &[u8], seen: Option<Seen>) -> bool {
        let key = self.key(key);
        if let (None, Some(watched)) = (&seen, &self.watched) {
            watched.know(key);
        }
        let gate = self.gate.as_ref();
        if gate.is_some_and(|gate| gate.takes(key, || self.cause(seen.clone()))) {
            Tally::add(&tally.triggers);
            Tally::add(&tally.coalesced);
            return true;
        }
        // What was there before is not in the middle of being written.
        let at_once = matches!(seen, Some(Seen { event: Event::Initial, .. }));
        let added = match self.quiet.filter(|_| !at_once) {
            Some((quiet, max)) => self.add_after(key, seen, quiet, max),
            None if seen.is_none() && self.watched.is_none() => self.queue.add_ref(key).ok(),
            None => self.queue.add_value(key.to_vec(), self.cause(seen)).ok(),
        };
        let Some(added) = added else { return false };
        Tally::add(&tally.triggers);
        if matches!(added, Added::Coalesced) {
            Tally::add(&tally.coalesced);
        } else if lock(&self.distinct).is_new(key) {
            Tally::add(&tally.keys);
        }
        true
    }

    /// Counts a key that the queue took no more: it is left.
    pub(crate) fn came_too_late(&self, tally: &Tally, key: &[u8]) {
        let key = self.key(key);
        Tally::add(&tally.triggers);
        if lock(&self.distinct).is_new(key) {
            Tally::add(&tally.keys);
        }
        tally.owe(key);
    }

    fn cause(&self, seen: Option<Seen>) -> Cause {
        Cause { number: self.numbers.fetch_add(1, Ordering::Relaxed), typed: seen.is_none(), seen }
    }

    fn add_after(&self, key: &[u8], seen: Option<Seen>, quiet: Duration, max: Duration) -> Option<Added> {
        let mut waiting = lock(&self.waiting);
        let cause = self.cause(seen);
        let number = cause.number;
        let state = self.queue.state(key);
        // A run is coming, which nothing puts off any more.
        if state.as_ref().is_some_and(|state| state.ready || state.dirty) {
            let added = self.queue.add_value(key.to_vec(), cause).ok()?;
            if let Some(last) = waiting.get_mut(key) {
                *last = number;
            }
            return Some(added);
        }
        // The timer that the key has is that of a retry, whose later instant must not
        // stay: what failed may be well now.
        if !waiting.contains_key(key) && state.is_some_and(|state| state.waiting_until.is_some()) {
            self.queue.add_with(key.to_vec(), Add::after(quiet).replace()).ok()?;
        }
        let added = self.queue.add_with(key.to_vec(), Add::after(quiet).latest(max).value(cause)).ok()?;
        // One that waited already has its run coming, whether or not that was put off.
        let waited = waiting.insert(key.to_vec(), number).is_some();
        Some(if waited { Added::Coalesced } else { added })
    }

    /// A key is handed out, with all causes up to `cause`.
    pub(crate) fn begins(&self, key: &[u8], cause: Option<&Cause>) {
        let Some(cause) = cause else { return };
        let mut waiting = lock(&self.waiting);
        if waiting.get(key).is_some_and(|number| *number <= cause.number) {
            waiting.remove(key);
        }
    }

    /// What a key that was handed out is run for, after so many failures in a row.
    pub(crate) fn sees(&self, tally: &Tally, key: &[u8], cause: &Cause, failures: u32) -> Begin {
        match (&self.watched, &cause.seen) {
            (Some(watched), Some(seen)) if !cause.typed => match watched.begins(key, seen, failures) {
                Some(seen) => Begin::Run(Some(seen)),
                None => {
                    // Its trigger and the deletion come to nothing together.
                    Tally::add(&tally.coalesced);
                    if !watched.knows(key) && lock(&self.distinct).remove(key) {
                        tally.keys.fetch_sub(1, Ordering::Relaxed);
                    }
                    Begin::Nothing
                }
            },
            (_, seen) => Begin::Run(seen.clone()),
        }
    }

    /// Puts a key that was handed out back for so long, but no longer than to the end.
    /// False if the queue takes none any more.
    pub(crate) fn put_off(&self, key: &[u8], cause: &Cause, delay: Duration) -> bool {
        let mut waiting = lock(&self.waiting);
        let add = Add::after(delay).latest(delay).value(cause.clone());
        let taken = self.queue.add_with(key.to_vec(), add).is_ok();
        if taken {
            let number = waiting.entry(key.to_vec()).or_default();
            *number = cause.number.max(*number);
        }
        taken
    }

    /// Shuts the queue down; what waits for quiet is ready instead.
    pub(crate) fn shut_down(&self) {
        let waiting = lock(&self.waiting);
        for key in waiting.keys() {
            // Refused by a queue that was shut down before: then they are left.
            let _ = self.queue.add_ref(key);
        }
        self.queue.shut_down();
    }

    /// Keys that waited for quiet and were never run.
    pub(crate) fn left(&self) -> Vec<Key> {
        lock(&self.waiting).keys().cloned().collect()
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
        tally: Tally,
    }

    fn setting() -> Setting {
        let clock = FakeClock::new();
        let builder = WorkQueue::merging(Cause::merge).clock(clock.clone()).timers_absorbed(true);
        let queue: Queue = builder.build().unwrap();
        let intake = Intake {
            queue: queue.clone(),
            watched: None,
            one: None,
            quiet: Some((QUIET, 2 * QUIET)),
            numbers: AtomicU64::new(1),
            waiting: Mutex::default(),
            distinct: Mutex::default(),
            gate: None,
        };
        Setting { clock, queue, intake, tally: Tally::default() }
    }

    impl Setting {
        fn add(&self, event: Event) {
            assert!(self.intake.add(&self.tally, b"a", seen(event)));
        }

        /// The event of the run that can begin now.
        fn run(&self) -> Option<Event> {
            let item = self.queue.try_get().ok()?;
            self.intake.begins(item.key(), item.value());
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
        s.intake.shut_down();
        assert_eq!(s.intake.left(), [b"a".to_vec()]);
        assert_eq!(s.run(), Some(Event::Write));
        assert!(s.intake.left().is_empty());
        assert_eq!(s.run(), None);
        assert!(!s.intake.add(&s.tally, b"b", None));
    }

    #[test]
    fn a_trigger_during_a_run_is_not_taken_for_the_runs_own() {
        let s = setting();
        s.add(Event::Write);
        s.clock.advance(QUIET);
        let item = s.queue.try_get().unwrap();
        s.add(Event::Delete);
        s.intake.begins(item.key(), item.value());
        assert_eq!(s.intake.left().len(), 1);
        item.succeed();
        s.intake.shut_down();
        assert_eq!(s.run(), Some(Event::Delete));
    }

    #[test]
    fn what_merges_into_a_run_that_is_coming_counts_as_coalesced() {
        let s = setting();
        let count = || [&s.tally.triggers, &s.tally.coalesced].map(|n| n.load(Ordering::Relaxed));
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
        s.intake.begins(item.key(), item.value());
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
        s.intake.begins(item.key(), item.value());
        assert!(s.intake.put_off(item.key(), item.value().unwrap(), 10 * QUIET));
        item.succeed();
        s.clock.advance(9 * QUIET);
        assert_eq!(s.run(), None);
        s.intake.shut_down();
        assert_eq!(s.run(), Some(Event::Write));
        assert!(s.intake.left().is_empty());
    }

    #[test]
    fn the_latest_event_counts_but_being_there_never_hides_another() {
        let cause = |number, event| Cause { number, seen: seen(event), typed: false };
        let none = Cause { number: 9, seen: None, typed: false };
        for (mut a, b, event) in [
            (cause(1, Event::Write), cause(2, Event::Delete), Event::Delete),
            (cause(2, Event::Write), cause(1, Event::Delete), Event::Write),
            (cause(1, Event::Write), cause(2, Event::Initial), Event::Write),
            (cause(1, Event::Initial), cause(2, Event::Write), Event::Write),
            (cause(1, Event::Write), none, Event::Write),
        ] {
            let number = a.number.max(b.number);
            a.merge(b);
            assert_eq!(a, cause(number, event));
        }
    }
}
