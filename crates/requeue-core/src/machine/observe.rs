//! What can be asked: counts, the state of a key, records, gauges.

use super::shutdown::Sweep;
use super::{Core, DIRTY, HELD, READY};
use crate::Instant;
use crate::column::Column;
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// Keys in line.
    pub depth: usize,
    /// How long all runs that are going on have taken together.
    pub unfinished_work: Duration,
    /// How long the longest of them has taken.
    pub longest_running: Duration,
}

impl<K, V> Core<K, V> {
    /// Keys in line.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.ready
    }

    /// Whether no key is in line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready == 0
    }

    pub(super) fn waiting(&self) -> usize {
        if self.sweep == Sweep::Drop { 0 } else { self.timers.len() }
    }

    /// How many keys are where.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            ready: self.ready,
            held: self.held,
            dirty: self.dirty,
            waiting: self.waiting(),
            known: self.arena.len() - self.in_limbo(),
        }
    }

    /// Keys that became ready or dirty since this was last asked.
    #[inline]
    pub fn take_adds(&mut self) -> u64 {
        core::mem::take(&mut self.adds)
    }

    /// How long the last key that was handed out had waited, and how long the last
    /// run that ended took, if that was since this was last asked and timestamps are
    /// kept. The plain calls answer with the key alone; whoever keeps timestamps asks
    /// before such a call and after it.
    #[inline]
    pub fn last_times(&mut self) -> (Option<Duration>, Option<Duration>) {
        self.times.as_mut().map_or((None, None), |times| core::mem::take(&mut times.last))
    }

    /// The gauges; all 0 but the depth if the queue keeps no timestamps.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let (unfinished_work, longest_running) =
            self.times.as_ref().map_or_else(Default::default, |t| t.running(self.now, self.held));
        Gauges { depth: self.ready, unfinished_work, longest_running }
    }

    /// What the queue knows of a key; `None` if it does not know it.
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
            held_since: self.times.as_ref().filter(|_| flags & HELD != 0).map(|t| t.of(slot).started),
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

/// No slot: the end of the list of held ones.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// The first trigger of the next run.
    triggered: Instant,
    /// When the run that is going on started.
    started: Instant,
    /// The held keys in the order of their starts, so that the longest running
    /// is at hand.
    before: u32,
    after: u32,
}

impl Default for Stamp {
    fn default() -> Self {
        Self { triggered: Instant::ORIGIN, started: Instant::ORIGIN, before: NONE, after: NONE }
    }
}

/// The timestamps that metrics need.
#[derive(Debug)]
pub(super) struct Times {
    stamps: Column<Stamp>,
    /// The held key that started first, and the one that started last.
    oldest: u32,
    newest: u32,
    /// The starts of all held keys added up, so that the unfinished work needs
    /// no walk.
    starts: u128,
    /// How long the last key that was handed out had waited, and how long the last
    /// run that ended took, until somebody asks.
    last: (Option<Duration>, Option<Duration>),
}

impl Times {
    pub(super) fn new() -> Self {
        Self { stamps: Column::new(), oldest: NONE, newest: NONE, starts: 0, last: (None, None) }
    }

    fn of(&self, slot: u32) -> Stamp {
        self.stamps.get(slot).copied().unwrap_or_default()
    }

    pub(super) fn triggered(&mut self, slot: u32, at: Instant) {
        self.stamps.entry(slot).triggered = at;
    }

    /// The key is handed out; returns how long it waited.
    pub(super) fn started(&mut self, slot: u32, now: Instant) -> Duration {
        let newest = core::mem::replace(&mut self.newest, slot);
        if newest == NONE {
            self.oldest = slot;
        } else {
            self.stamps.entry(newest).after = slot;
        }
        self.starts += u128::from(now.as_nanos());
        let stamp = self.stamps.entry(slot);
        stamp.started = now;
        stamp.before = newest;
        stamp.after = NONE;
        let waited = now.saturating_since(stamp.triggered);
        self.last.0 = Some(waited);
        waited
    }

    /// The key's run ended; returns how long it took.
    pub(super) fn ended(&mut self, slot: u32, now: Instant) -> Duration {
        let Stamp { started, before, after, .. } = self.of(slot);
        if before == NONE {
            self.oldest = after;
        } else {
            self.stamps.entry(before).after = after;
        }
        if after == NONE {
            self.newest = before;
        } else {
            self.stamps.entry(after).before = before;
        }
        self.starts -= u128::from(started.as_nanos());
        let took = now.saturating_since(started);
        self.last.1 = Some(took);
        took
    }

    /// How long all runs have taken together, and the longest of them.
    fn running(&self, now: Instant, held: usize) -> (Duration, Duration) {
        if self.oldest == NONE {
            return Default::default();
        }
        let all = u128::from(now.as_nanos()) * held as u128 - self.starts;
        let secs = u64::try_from(all / 1_000_000_000).unwrap_or(u64::MAX);
        let unfinished = Duration::new(secs, (all % 1_000_000_000) as u32);
        (unfinished, now.saturating_since(self.of(self.oldest).started))
    }

    pub(super) fn free_page(&mut self, chunk: u32) {
        self.stamps.free_page(chunk);
    }
}
