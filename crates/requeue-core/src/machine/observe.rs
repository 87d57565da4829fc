//! What can be asked: counts, the state of a key, records, gauges.

use super::pause::Paused;
use super::shutdown::Sweep;
use super::{
    BACKOFF, Core, DIRTY, DIRTY_RESPECTS, HELD, InBackoff, PAUSED, READY, RESET, TIMER_RESPECTS, attention,
};
use crate::Instant;
use crate::chain::{Link, Linked, List};
use crate::column::Column;
use crate::line::{Ahead, GroupGauges};
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
    /// Keys that were paused by themselves, whatever else they are.
    pub paused: usize,
    /// Distinct keys that the queue keeps: those above, those of which only
    /// failures are on record (expired ones until they are come across), and those
    /// to which only a guard whose run was ended still refers.
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
    /// When the window of a debounce ends and makes it ready, if one is open that owes a run. It is
    /// among what `waiting_until` is the earliest of.
    pub window_until: Option<Instant>,
    /// When the window of a debounce ends, if one is open that owes no run: the run of its first
    /// trigger has come, and a trigger until then would wait for this instant. It is among what
    /// `waiting_until` is the earliest of.
    pub quiet_until: Option<Instant>,
    /// How often it was put back since it was last forgotten, where the queue
    /// counts (see [`num_requeues`](Core::num_requeues)).
    pub failures: u32,
    /// What its run is, or its next run will be: 1 unless it waits out a failure.
    pub attempt: u32,
    /// It waits out a failure: a trigger that respects a back-off joins the run at
    /// `waiting_until`.
    pub backing_off: bool,
    /// What becomes of the triggers that came during its run, if that run fails: the
    /// strongest of what they said. `Run` too where none came.
    pub if_it_fails: InBackoff,
    /// What keeps it from being handed out, should it be ready: of several, the one that
    /// concerns the fewest keys.
    pub paused: Option<Paused>,
    /// Its group has as many keys held as it may, or one that its group is in: a key of it that is
    /// ready waits for one of these runs to end.
    pub group_is_full: bool,
    /// When the rate of its group lets the next key go, if the group has no token now.
    pub group_token: Option<Instant>,
    /// The priority of its next run, while it is ready or dirty, else that of its run, else
    /// that which its timer brings: 0 where the queue has no priorities.
    pub priority: i16,
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

    /// How many keys a [`get`](Self::get) may have now. That is fewer than [`len`](Self::len)
    /// where ready keys do not stand in line, or stand in groups that are at their cap, where the
    /// queue is paused, or its rate lets no key go now. (One get may bring a group to its cap, and
    /// then fewer are left.)
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// assert_eq!(core.servable(), 1);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn servable(&self) -> usize {
        self.line.servable_at(self.now)
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
            paused: self.line.paused_keys(),
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

    /// How many keys of each priority are ready, from the rank `from` on; returns the rank with which
    /// the next page begins. Each lock hold is to have one page. None are told on a queue without
    /// priorities, and with groups on one that keeps no timestamps.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Order, Trigger};
    /// let order = Order::Priority { max_wait: None };
    /// let mut core = Core::<&str>::new(Config { order, ..Config::default() });
    /// core.add(&mut Trigger::new("a", None).priority(-100), 7, Delay::Now)?;
    /// let mut depths = Vec::new();
    /// assert_eq!(core.depths(0, &mut depths), None); // there are no more
    /// assert_eq!(depths, [(-100, 1)]);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[doc(hidden)]
    pub fn depths(&self, from: u32, into: &mut Vec<(i16, usize)>) -> Option<u32> {
        self.line.depths(from, into)
    }

    /// How many keys are where of each group that has a name, from the number `from` of a tier
    /// on; returns where the next page begins. Each lock hold is to have one page.
    ///
    /// ```
    /// # use requeue_core::{Config, Core};
    /// let core = Core::<&str>::new(Config::default());
    /// assert_eq!(core.told_groups((0, 0), &mut Vec::new()), None);
    /// ```
    #[doc(hidden)]
    pub fn told_groups(&self, from: (usize, u32), into: &mut Vec<GroupGauges>) -> Option<(usize, u32)> {
        self.line.fair()?.told_groups(from, into)
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
    pub fn state<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> Option<KeyState>
    where
        K: Borrow<Q>,
    {
        self.state_of(self.find(hash, key)?)
    }

    /// How many keys go before this one; `None` if it does not stand in line, if groups take turns,
    /// or if the line has an order of the user's own, who alone knows.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// for (key, hash) in [("a", 7), ("b", 8)] {
    ///     core.add(&mut Trigger::new(key, None), hash, Delay::Now)?;
    /// }
    /// let ahead = core.ahead_of("b", 8).expect("it is in line");
    /// assert!(ahead.keys == 1 && ahead.exact);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[must_use]
    pub fn ahead_of<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> Option<Ahead>
    where
        K: Borrow<Q>,
    {
        let slot = self.find(hash, key).filter(|slot| self.arena.flags(*slot) & READY != 0)?;
        self.line.ahead_of(&self.arena, slot)
    }

    /// When the rate lets the next key go, where one could go but for it.
    ///
    /// ```
    /// # use requeue_core::{Config, Core};
    /// let core = Core::<&str>::new(Config::default());
    /// assert_eq!(core.next_token(), None); // there is no limit
    /// ```
    #[inline]
    #[must_use]
    pub fn next_token(&self) -> Option<Instant> {
        self.line.next_token(self.now)
    }

    pub(super) fn state_of(&self, slot: u32) -> Option<KeyState> {
        let state = self.state_at(slot);
        // a key that only an inert guard still lends, or whose failures have
        // expired, is not known any more
        let known = self.arena.flags(slot) & (READY | HELD | PAUSED) != 0
            || state.waiting_until.is_some()
            || state.failures > 0;
        known.then_some(state)
    }

    /// The state of a key that may not be known any more.
    pub(super) fn state_at(&self, slot: u32) -> KeyState {
        let (flags, groups) = (self.arena.flags(slot), self.line.fair());
        KeyState {
            ready: flags & READY != 0,
            held: flags & HELD != 0,
            held_since: self.times.as_ref().filter(|_| flags & HELD != 0).map(|t| t.of(slot).link.since),
            dirty: flags & DIRTY != 0,
            waiting_until: self.timers.due(slot),
            window_until: self.window_until(slot, flags, true),
            quiet_until: self.window_until(slot, flags, false),
            failures: self.failures(slot),
            attempt: self.records.get(slot).map_or(0, |r| r.retries).saturating_add(1),
            backing_off: flags & (BACKOFF | READY | HELD) == BACKOFF,
            if_it_fails: if flags & RESET != 0 {
                InBackoff::Reset
            } else if flags & DIRTY_RESPECTS != 0 || flags & (DIRTY | TIMER_RESPECTS) == TIMER_RESPECTS {
                InBackoff::Respect
            } else {
                InBackoff::Run
            },
            paused: if flags & PAUSED != 0 {
                Some(Paused::Key)
            } else if groups.is_some_and(|fair| fair.is_in_paused_group(slot)) {
                Some(Paused::Group)
            } else {
                self.line.is_paused().then_some(Paused::Queue)
            },
            group_is_full: groups.is_some_and(|fair| fair.is_at_cap(slot)),
            group_token: groups.and_then(|fair| fair.group_token(slot, self.now)),
            priority: if flags & (READY | DIRTY) != 0 {
                self.line.pending_priority(slot)
            } else if flags & HELD != 0 {
                self.line.run_priority(slot)
            } else if self.timers.due(slot).is_some() {
                self.line.timer_priority(slot)
            } else {
                0
            },
        }
    }

    /// The number of this key's slot, which is nobody else's while it is known.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Got, Trigger};
    /// # let mut core = Core::<&str>::new(Config::default());
    /// core.add(&mut Trigger::new("a", None), 7, Delay::Now)?;
    /// let Got::Item(item) = core.get() else { panic!("a is ready") };
    /// assert_eq!(core.slot_of("a", 7), Some(item.run.slot()));
    /// # let _ = core.finish(item.run, true);
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[doc(hidden)]
    #[must_use]
    pub fn slot_of<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        self.find(hash, key)
    }

    /// The key of this slot, which is taken, and what is known of it: its state, `None` if a guard alone still lends it; and
    /// its payload.
    ///
    /// ```
    /// # use requeue_core::{Config, Core, Delay, Trigger};
    /// # let mut core = Core::<&str, u32>::new(Config::default());
    /// core.add(&mut Trigger::new("a", Some(3)), 7, Delay::Now)?;
    /// let slot = core.slot_of("a", 7).expect("it is ready");
    /// let (key, state, value) = core.known_of(slot);
    /// assert_eq!((*key, state.is_some_and(|state| state.ready), value), ("a", true, Some(&3)));
    /// # Ok::<(), requeue_core::Refused>(())
    /// ```
    #[doc(hidden)]
    #[must_use]
    pub fn known_of(&self, slot: u32) -> (&K, Option<KeyState>, Option<&V>) {
        (self.arena.key(slot), self.outlived_state(slot), self.values.get(slot).and_then(Option::as_ref))
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
    pub fn num_requeues<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> u32
    where
        K: Borrow<Q>,
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
    pub fn forget<Q: Eq + ?Sized>(&mut self, key: &Q, hash: u32) -> Option<K>
    where
        K: Borrow<Q>,
    {
        let slot = self.find(hash, key)?;
        self.forget_failures(slot);
        self.release(slot)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamp {
    /// The first trigger of the next run.
    triggered: Instant,
    /// The ready keys, and the held ones, each in a list. It counts since the key became
    /// ready, or since the run that is going on started.
    link: Link,
}

impl Linked for Stamp {
    #[inline]
    fn link(&mut self) -> &mut Link {
        &mut self.link
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
        self.ready.leave(&mut self.stamps, stamp.link);
        self.held.enter(&mut self.stamps, slot, now);
        self.starts += u128::from(now.as_nanos());
        now.saturating_since(stamp.triggered)
    }

    /// The ready key will not run.
    pub(super) fn left(&mut self, slot: u32) {
        let stamp = self.of(slot);
        self.ready.leave(&mut self.stamps, stamp.link);
    }

    /// The key is held no more; returns what was known of its run.
    #[inline]
    fn let_go(&mut self, slot: u32) -> Stamp {
        let stamp = self.of(slot);
        self.held.leave(&mut self.stamps, stamp.link);
        self.starts -= u128::from(stamp.link.since.as_nanos());
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
        now.saturating_since(stamp.link.since)
    }

    /// How long the oldest of a list has been in it.
    fn oldest(&self, list: &List, now: Instant) -> Duration {
        list.oldest().map_or(Duration::ZERO, |slot| now.saturating_since(self.of(slot).link.since))
    }

    /// How long all runs have taken together, and the longest of them.
    fn running(&self, now: Instant, held: usize) -> (Duration, Duration) {
        if self.held.oldest().is_none() {
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
