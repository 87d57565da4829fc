//! What can be asked: counts, the state of a key, records, gauges.

use super::shutdown::Sweep;
use super::{Core, DIRTY, HELD, READY, attention};
use crate::Instant;
use crate::column::Column;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::time::Duration;

/// How many keys are where, at one moment.
///
/// ```
/// # use requeue_core::{Config, Core, Delay, Trigger};
/// let mut core = Core::<&str>::new(Config::default());
/// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
/// let stats = core.stats();
/// assert_eq!((stats.ready, stats.held, stats.known), (1, 0, 1));
/// # Ok::<(), requeue_core::Refused>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stats {
    /// Keys in line.
    pub ready: usize,
    /// Keys that workers have.
    pub held: usize,
    /// Held keys that were triggered during their run.
    pub dirty: usize,
    /// Keys with a timer, whatever else they are.
    pub waiting: usize,
    /// Distinct keys that the queue keeps: those above, those of which only
    /// failures are on record (expired ones until they are come across), and those
    /// that only a guard whose run was ended still lends.
    pub known: usize,
}

/// What the queue knows of a key.
///
/// ```
/// # use requeue_core::{Config, Core, Delay, Trigger};
/// let mut core = Core::<&str>::new(Config::default());
/// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
/// let state = core.state(&"a", 7).expect("it is known");
/// assert!(state.ready && !state.held);
/// assert_eq!((state.failures, state.attempt), (0, 1));
/// # Ok::<(), requeue_core::Refused>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct KeyState {
    /// It is in line.
    pub ready: bool,
    /// A worker has it.
    pub held: bool,
    /// When it was handed out, if the queue keeps timestamps (it does with metrics).
    pub held_since: Option<Instant>,
    /// It was triggered while held, and becomes ready when its run ends.
    pub dirty: bool,
    /// When its timer is due.
    pub waiting_until: Option<Instant>,
    /// How often it was put back since it was last forgotten, where the queue
    /// counts (see [`num_requeues`](Core::num_requeues)).
    pub failures: u32,
    /// What its run is, or its next run will be: 1 unless it waits out a failure.
    pub attempt: u32,
}

/// What the gauges show at one moment.
///
/// ```
/// # use requeue_core::{Config, Core, Delay, Instant, Trigger};
/// # use std::time::Duration;
/// # let mut core = Core::<&str>::new(Config { timestamps: true, ..Config::default() });
/// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
/// core.advance(Instant::ORIGIN + Duration::from_secs(5));
/// let gauges = core.gauges();
/// assert_eq!((gauges.depth, gauges.oldest_ready), (1, Duration::from_secs(5)));
/// # Ok::<(), requeue_core::Refused>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// Keys in line.
    pub depth: usize,
    /// Keys with a timer, whatever else they are.
    pub waiting: usize,
    /// Keys that workers have.
    pub held: usize,
    /// Held keys that were triggered during their run.
    pub dirty: usize,
    /// How long the key that has been in line the longest has been there; zero if
    /// there is none.
    pub oldest_ready: Duration,
    /// How long all runs that are going on have taken together.
    pub unfinished_work: Duration,
    /// How long the longest of them has taken.
    pub longest_running: Duration,
}

/// What was counted since it was last asked.
///
/// ```
/// # use requeue_core::{Config, Core, Delay, Trigger};
/// # let mut core = Core::<&str>::new(Config::default());
/// for _ in 0..3 {
///     core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
/// }
/// let counts = core.take_counts();
/// assert_eq!((counts.adds, counts.coalesced), (1, 2));
/// # Ok::<(), requeue_core::Refused>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Keys that became ready or dirty.
    pub adds: u64,
    /// Accepted triggers that changed nothing: what was pending already covered them.
    pub coalesced: u64,
}

impl<K, V> Core<K, V> {
    /// Keys in line.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Policy, Trigger};
    /// # use std::time::Duration;
    /// # let mut core = Core::<&str>::new(Config::default());
    /// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// core.add(&mut Trigger::new("b", None), 8, Delay::After(Duration::from_secs(1), Policy::Earliest))?;
    /// assert_eq!(core.len(), 1); // "b" is not in line yet
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.ready
    }

    /// Whether no key is in line.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Got, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// assert!(!core.is_empty());
    /// let Got::Item(item) = core.get() else { panic!("a is ready") };
    /// assert!(core.is_empty());
    /// # let _ = core.finish(item.run, true);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready == 0
    }

    pub(super) fn waiting(&self) -> usize {
        if self.sweep == Sweep::Drop { 0 } else { self.timers.len() }
    }

    /// How many keys are where.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Got, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// let Got::Item(item) = core.get() else { panic!("a is ready") };
    /// let stats = core.stats();
    /// assert_eq!((stats.ready, stats.held, stats.dirty), (0, 1, 0));
    /// # let _ = core.finish(item.run, true);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            ready: self.ready,
            held: self.held,
            dirty: self.dirty,
            waiting: self.waiting(),
            known: self.arena.len(),
        }
    }

    /// What was counted since this was last asked.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Counts, Delay, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// assert_eq!(core.take_counts().adds, 1);
    /// assert_eq!(core.take_counts(), Counts::default());
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[inline]
    pub fn take_counts(&mut self) -> Counts {
        core::mem::take(&mut self.counts)
    }

    /// How long after its instant each timer fired that has fired since this was last
    /// called, if timestamps are kept. One that a drain fired before its time is not
    /// among them.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Instant, Policy, Trigger};
    /// # use std::time::Duration;
    /// # let mut core = Core::<&str>::new(Config { timestamps: true, ..Config::default() });
    /// core.add(&mut Trigger::new("a", None), 7, Delay::After(Duration::from_secs(1), Policy::Earliest))?;
    /// while core.advance(Instant::ORIGIN + Duration::from_secs(3)) {}
    /// assert_eq!(core.take_late(), [Duration::from_secs(2)]);
    /// assert!(core.take_late().is_empty());
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    pub fn take_late(&mut self) -> Vec<Duration> {
        self.attention &= !attention::LATE;
        self.times.as_mut().map(|times| core::mem::take(&mut times.late)).unwrap_or_default()
    }

    /// The gauges; all durations are 0 if the queue keeps no timestamps.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Got, Instant, Trigger};
    /// # use std::time::Duration;
    /// # let mut core = Core::<&str>::new(Config { timestamps: true, ..Config::default() });
    /// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// let Got::Item(item) = core.get() else { panic!("a is ready") };
    /// core.advance(Instant::ORIGIN + Duration::from_secs(4));
    /// assert_eq!(core.gauges().longest_running, Duration::from_secs(4));
    /// # let _ = core.finish(item.run, true);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let times = self.times.as_ref();
        let (unfinished_work, longest_running) =
            times.map_or_else(Default::default, |t| t.running(self.now, self.held));
        Gauges {
            depth: self.ready,
            waiting: self.waiting(),
            held: self.held,
            dirty: self.dirty,
            oldest_ready: times.map_or(Duration::ZERO, |t| t.oldest(&t.ready, self.now)),
            unfinished_work,
            longest_running,
        }
    }

    /// What the queue knows of a key; `None` if it does not know it.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Instant, Policy, Trigger};
    /// # use std::time::Duration;
    /// # let mut core = Core::<&str>::new(Config::default());
    /// assert_eq!(core.state("a", 7), None);
    /// core.add(&mut Trigger::new("a", None), 7, Delay::After(Duration::from_secs(1), Policy::Earliest))?;
    /// let state = core.state("a", 7).expect("it waits");
    /// assert_eq!(state.waiting_until, Some(Instant::ORIGIN + Duration::from_secs(1)));
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[must_use]
    pub fn state<Q>(&self, key: &Q, hash: u32) -> Option<KeyState>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let slot = self.find(hash, key)?;
        let flags = self.arena.flags(slot);
        let state = KeyState {
            ready: flags & READY != 0,
            held: flags & HELD != 0,
            held_since: self.times.as_ref().filter(|_| flags & HELD != 0).map(|t| t.of(slot).since),
            dirty: flags & DIRTY != 0,
            waiting_until: self.timers.due(slot),
            failures: self.failures(slot),
            attempt: self.records.get(slot).map_or(0, |r| r.retries).saturating_add(1),
        };
        // a key that only an inert guard still lends, or whose failures have
        // expired, is not known any more
        let known = state.ready || state.held || state.waiting_until.is_some() || state.failures > 0;
        known.then_some(state)
    }

    /// How often the key was put back since it was last forgotten.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Limit, Policy, Trigger};
    /// # use std::time::Duration;
    /// # let mut core = Core::<&str>::new(Config::default());
    /// let limit = Limit { delay: &|_, _| Duration::from_secs(1), counts: true, expire_after: None };
    /// for failures in 1..=3 {
    ///     core.add(&mut Trigger::new("a", None), 7, Delay::Limited(limit, Policy::Earliest))?;
    ///     assert_eq!(core.num_requeues("a", 7), failures);
    /// }
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[must_use]
    pub fn num_requeues<Q>(&self, key: &Q, hash: u32) -> u32
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.find(hash, key).map_or(0, |slot| self.failures(slot))
    }

    /// Forgets the key's failures; its timer stays. The key comes back, to be
    /// dropped, if there was no other reason to know it.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Limit, Policy, Trigger};
    /// # use std::time::Duration;
    /// # let mut core = Core::<&str>::new(Config::default());
    /// let limit = Limit { delay: &|_, _| Duration::from_secs(1), counts: true, expire_after: None };
    /// core.add(&mut Trigger::new("a", None), 7, Delay::Limited(limit, Policy::Earliest))?;
    /// assert_eq!(core.forget("a", 7), None); // its timer keeps it
    /// assert_eq!((core.num_requeues("a", 7), core.stats().waiting), (0, 1));
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    pub fn forget<Q>(&mut self, key: &Q, hash: u32) -> Option<K>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let slot = self.find(hash, key)?;
        self.forget_failures(slot);
        self.release(slot)
    }
}

/// No slot: the end of a list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// The first trigger of the next run.
    triggered: Instant,
    /// When the key became ready, or when the run that is going on started.
    since: Instant,
    /// The ready keys, and the held ones, in the order of `since`, so that the oldest
    /// of each is at hand. A key is in one of the lists at most.
    before: u32,
    after: u32,
}

impl Default for Stamp {
    fn default() -> Self {
        Self { triggered: Instant::ORIGIN, since: Instant::ORIGIN, before: NONE, after: NONE }
    }
}

/// Keys in the order in which they came.
#[derive(Debug)]
struct List {
    oldest: u32,
    newest: u32,
}

impl List {
    const EMPTY: Self = Self { oldest: NONE, newest: NONE };

    /// Enters a key that is in no list, at the end; what it was before is known. A timer
    /// that fires late may bring a key whose instant is before that of the last one; it
    /// counts from the same instant as that one, so that the first is always the oldest.
    #[inline]
    fn enter<'a>(&mut self, stamps: &'a mut Column<Stamp>, slot: u32, mut since: Instant) -> &'a mut Stamp {
        let newest = core::mem::replace(&mut self.newest, slot);
        if newest == NONE {
            self.oldest = slot;
        } else {
            let last = stamps.entry(newest);
            last.after = slot;
            since = since.max(last.since);
        }
        let stamp = stamps.entry(slot);
        stamp.since = since;
        stamp.before = newest;
        stamp.after = NONE;
        stamp
    }

    /// Takes out a key whose stamp this is.
    #[inline]
    fn leave(&mut self, stamps: &mut Column<Stamp>, Stamp { before, after, .. }: Stamp) {
        if before == NONE {
            self.oldest = after;
        } else {
            stamps.entry(before).after = after;
        }
        if after == NONE {
            self.newest = before;
        } else {
            stamps.entry(after).before = before;
        }
    }
}

/// The timestamps that metrics need.
#[derive(Debug)]
pub(super) struct Times {
    stamps: Column<Stamp>,
    ready: List,
    held: List,
    /// The starts of all held keys added up, so that the unfinished work needs
    /// no walk.
    starts: u128,
    /// How late timers fired, until somebody asks: a batch of [`advance`](Core::advance)
    /// at most, where that is after each hold.
    late: Vec<Duration>,
}

impl Times {
    pub(super) fn new() -> Self {
        Self { stamps: Column::new(), ready: List::EMPTY, held: List::EMPTY, starts: 0, late: Vec::new() }
    }

    #[inline]
    fn of(&self, slot: u32) -> Stamp {
        self.stamps.get(slot).copied().unwrap_or_default()
    }

    pub(super) fn triggered(&mut self, slot: u32, at: Instant) {
        self.stamps.entry(slot).triggered = at;
    }

    /// The key became ready; its trigger is known.
    #[inline]
    pub(super) fn readied(&mut self, slot: u32, at: Instant) {
        self.ready.enter(&mut self.stamps, slot, at);
    }

    /// The key became ready by a trigger.
    #[inline]
    pub(super) fn triggered_ready(&mut self, slot: u32, at: Instant) {
        self.ready.enter(&mut self.stamps, slot, at).triggered = at;
    }

    /// A timer fired that long after its instant.
    pub(super) fn fired(&mut self, late: Duration) {
        self.late.push(late);
    }

    /// The ready key is handed out; returns how long it waited.
    #[inline]
    pub(super) fn started(&mut self, slot: u32, now: Instant) -> Duration {
        let stamp = self.of(slot);
        self.ready.leave(&mut self.stamps, stamp);
        self.held.enter(&mut self.stamps, slot, now);
        self.starts += u128::from(now.as_nanos());
        now.saturating_since(stamp.triggered)
    }

    /// The ready key will not run.
    pub(super) fn left(&mut self, slot: u32) {
        let stamp = self.of(slot);
        self.ready.leave(&mut self.stamps, stamp);
    }

    /// The key is held no more; returns what was known of its run.
    #[inline]
    fn let_go(&mut self, slot: u32) -> Stamp {
        let stamp = self.of(slot);
        self.held.leave(&mut self.stamps, stamp);
        self.starts -= u128::from(stamp.since.as_nanos());
        stamp
    }

    /// The held key is ready again, and its run never was: the first trigger of its next
    /// run is the one that it had.
    pub(super) fn put_back(&mut self, slot: u32, now: Instant) {
        self.let_go(slot);
        self.readied(slot, now);
    }

    /// The key's run ended; returns how long it took.
    #[inline]
    pub(super) fn ended(&mut self, slot: u32, now: Instant) -> Duration {
        let stamp = self.let_go(slot);
        now.saturating_since(stamp.since)
    }

    /// How long the oldest of a list has been in it.
    fn oldest(&self, list: &List, now: Instant) -> Duration {
        if list.oldest == NONE {
            return Duration::ZERO;
        }
        now.saturating_since(self.of(list.oldest).since)
    }

    /// How long all runs have taken together, and the longest of them.
    fn running(&self, now: Instant, held: usize) -> (Duration, Duration) {
        if self.held.oldest == NONE {
            return Default::default();
        }
        let all = u128::from(now.as_nanos()) * held as u128 - self.starts;
        let secs = u64::try_from(all / 1_000_000_000).unwrap_or(u64::MAX);
        let unfinished = Duration::new(secs, (all % 1_000_000_000) as u32);
        (unfinished, self.oldest(&self.held, now))
    }

    pub(super) fn free_page(&mut self, chunk: u32) {
        self.stamps.free_page(chunk);
    }
}
