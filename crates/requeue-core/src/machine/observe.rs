//! Queries: counts, the state of a key, records, gauges.

use super::pause::Paused;
use super::shutdown::Sweep;
use super::{
    BACKOFF, Core, DIRTY, DIRTY_RESPECTS, HELD, InBackoff, PAUSED, READY, RESET, TIMER_RESPECTS, pending_work,
};
use crate::Instant;
use crate::chain::{Link, Linked, List};
use crate::column::Column;
use crate::line::{Ahead, GroupGauges};
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::time::Duration;

/// Numbers of keys by state, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Stats {
    /// Keys in line.
    pub ready: usize,
    /// Keys that workers have.
    pub held: usize,
    /// Held keys that were triggered during their run.
    pub dirty: usize,
    /// Keys with a timer, even if they are also in line or held.
    pub waiting: usize,
    /// Keys that are themselves paused, in any state.
    pub paused: usize,
    /// Distinct keys that the queue keeps: those above, those known only by their failures (until expired
    /// ones are found), and those known only by a guard whose run was ended.
    pub known: usize,
}

/// State of a key, as the queue knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct KeyState {
    /// It is in line.
    pub ready: bool,
    /// A worker has it.
    pub held: bool,
    /// When it was handed out, if the queue keeps timestamps (a queue with metrics does).
    pub held_since: Option<Instant>,
    /// It was triggered while held, and becomes ready when its run ends.
    pub dirty: bool,
    /// When its timer is due.
    pub waiting_until: Option<Instant>,
    /// When the window of a debounce ends and makes it ready, if an open window owes a run. `waiting_until`
    /// is no later.
    pub window_until: Option<Instant>,
    /// When the window of a debounce ends, if an open window owes no run: the run of its first trigger has
    /// come, and a trigger until then would wait for this instant. `waiting_until` is no later.
    pub quiet_until: Option<Instant>,
    /// Number of requeues since it was last forgotten, if the queue counts (see
    /// [`num_requeues`](Core::num_requeues)).
    pub failures: u32,
    /// The attempt of its current or next run: 1 unless it waits out a failure.
    pub attempt: u32,
    /// It waits out a failure: a trigger that respects a back-off joins the run at `waiting_until`.
    pub backing_off: bool,
    /// Effect of the triggers during its run, if that run fails: the strongest of them, or `Run` if there
    /// were none.
    pub if_it_fails: InBackoff,
    /// The pause that keeps it from being handed out, should it be ready: of several, the narrowest.
    pub paused: Option<Paused>,
    /// Its group, or a group that contains it, has as many keys held as its cap allows: a ready key of it
    /// waits for one of these runs to end.
    pub group_is_full: bool,
    /// When the rate of its group has the next token, if the group has none now.
    pub group_token: Option<Instant>,
    /// The priority of its next run, if it is ready or dirty; otherwise that of its current run, or of its
    /// timer. 0 if the queue has no priorities.
    pub priority: i16,
}

/// Values of the gauges at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// Keys in line.
    pub depth: usize,
    /// Keys with a timer, even if they are also in line or held.
    pub waiting: usize,
    /// Keys that workers have.
    pub held: usize,
    /// Held keys that were triggered during their run.
    pub dirty: usize,
    /// Time in line of the key that has been there longest; zero if there is none.
    pub oldest_ready: Duration,
    /// Sum of the times of all current runs.
    pub unfinished_work: Duration,
    /// Time of the longest current run.
    pub longest_running: Duration,
}

/// Counts since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Keys that became ready or dirty.
    pub adds: u64,
    /// Accepted triggers that changed nothing, because a pending run already covered them.
    pub coalesced: u64,
}

impl<K, V> Core<K, V> {
    /// Keys in line.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.ready
    }

    /// Number of keys that a [`get`](Self::get) may have now. It is smaller than [`len`](Self::len) if ready
    /// keys are paused or in groups at their cap, if the queue is paused, or if its rate has no token. (One
    /// get may bring a group to its cap, and then fewer are left.)
    #[inline]
    #[must_use]
    pub fn servable(&self) -> usize {
        self.line.servable_at(self.now)
    }

    /// Whether no key is in line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready == 0
    }

    pub(super) fn waiting(&self) -> usize {
        if self.sweep == Sweep::Drop { 0 } else { self.timers.len() }
    }

    /// Numbers of keys by state.
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

    /// Takes the counts since the last call.
    #[inline]
    pub fn take_counts(&mut self) -> Counts {
        core::mem::take(&mut self.counts)
    }

    /// Lateness of each timer that has fired since the last call, if timestamps are kept. Timers that a drain
    /// fired early are not included.
    pub fn take_late(&mut self) -> Vec<Duration> {
        self.pending_work &= !pending_work::LATE;
        self.times.as_mut().map(|times| core::mem::take(&mut times.late)).unwrap_or_default()
    }

    /// The gauges; all durations are 0 if the queue keeps no timestamps.
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

    /// Number of ready keys per priority, from the rank `from` on. Returns the rank of the next page; read
    /// one page per lock hold. Empty on a queue without priorities or without timestamps.
    pub fn depths(&self, from: u32, into: &mut Vec<(i16, usize)>) -> Option<u32> {
        self.line.depths(from, into)
    }

    /// Number of keys per named group, from the number `from` on. Returns where the next page begins; read one page per lock hold.
    pub fn told_groups(&self, from: u32, into: &mut Vec<GroupGauges>) -> Option<u32> {
        self.line.fair()?.told_groups(from, into)
    }

    /// State of a key; `None` if the queue does not know it.
    #[must_use]
    pub fn state<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> Option<KeyState>
    where
        K: Borrow<Q>,
    {
        self.state_of(self.find(hash, key)?)
    }

    /// Number of keys before this one; `None` if it is not in line, if groups take turns, or if the line has
    /// a user's order, which alone knows.
    #[must_use]
    pub fn ahead_of<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> Option<Ahead>
    where
        K: Borrow<Q>,
    {
        let slot = self.find(hash, key).filter(|slot| self.arena.flags(*slot) & READY != 0)?;
        self.line.ahead_of(&self.arena, slot)
    }

    /// Instant of the rate's next token, if keys wait for it.
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

    /// The state of a slot whose key may have been forgotten.
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

    /// The number of this key's slot, which is unique while the key is known.
    #[must_use]
    pub fn slot_of<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        self.find(hash, key)
    }

    /// The key of this occupied slot with its state (`None` if only a guard still lends it) and its payload.
    #[must_use]
    pub fn known_of(&self, slot: u32) -> (&K, Option<KeyState>, Option<&V>) {
        (self.arena.key(slot), self.outlived_state(slot), self.values.get(slot).and_then(Option::as_ref))
    }

    /// Number of requeues of the key since it was last forgotten.
    #[must_use]
    pub fn num_requeues<Q: Eq + ?Sized>(&self, key: &Q, hash: u32) -> u32
    where
        K: Borrow<Q>,
    {
        self.find(hash, key).map_or(0, |slot| self.failures(slot))
    }

    /// Forgets the key's failures; its timer stays. Returns the key, to be dropped, if there is no other
    /// reason to know it.
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
    /// Link in the list of ready keys, or of held ones: since the key became ready, or since its current run
    /// started.
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
    /// Sum of the starts of all held keys, so that the unfinished work needs no walk.
    starts: u128,
    /// Lateness of fired timers not yet read: at most a batch of [`advance`](Core::advance), if they are read
    /// after each hold.
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

    /// Records that the key became ready; its trigger is known.
    #[inline]
    pub(super) fn readied(&mut self, slot: u32, at: Instant) {
        self.ready.enter(&mut self.stamps, slot, at);
    }

    /// Records that the key became ready by a trigger.
    #[inline]
    pub(super) fn triggered_ready(&mut self, slot: u32, at: Instant) {
        self.ready.enter(&mut self.stamps, slot, at).triggered = at;
    }

    /// Records how late a timer fired.
    pub(super) fn fired(&mut self, late: Duration) {
        self.late.push(late);
    }

    /// Records that the ready key is handed out. Returns how long it waited.
    #[inline]
    pub(super) fn started(&mut self, slot: u32, now: Instant) -> Duration {
        let stamp = self.of(slot);
        self.ready.leave(&mut self.stamps, stamp.link);
        self.held.enter(&mut self.stamps, slot, now);
        self.starts += u128::from(now.as_nanos());
        now.saturating_since(stamp.triggered)
    }

    /// Records that the ready key will not run.
    pub(super) fn left(&mut self, slot: u32) {
        let stamp = self.of(slot);
        self.ready.leave(&mut self.stamps, stamp.link);
    }

    /// Records that the key is no longer held. Returns the stamp of its run.
    #[inline]
    fn let_go(&mut self, slot: u32) -> Stamp {
        let stamp = self.of(slot);
        self.held.leave(&mut self.stamps, stamp.link);
        self.starts -= u128::from(stamp.link.since.as_nanos());
        stamp
    }

    /// Records that the held key is ready again, as if its run had not been: the first trigger of its next
    /// run is the one that it had.
    pub(super) fn put_back(&mut self, slot: u32, now: Instant) {
        self.let_go(slot);
        self.readied(slot, now);
    }

    /// Records that the key's run ended. Returns how long it took.
    #[inline]
    pub(super) fn ended(&mut self, slot: u32, now: Instant) -> Duration {
        let stamp = self.let_go(slot);
        now.saturating_since(stamp.link.since)
    }

    /// How long the first key of a list has been in it.
    fn oldest(&self, list: &List, now: Instant) -> Duration {
        list.oldest().map_or(Duration::ZERO, |slot| now.saturating_since(self.of(slot).link.since))
    }

    /// The sum of the times of all runs, and the longest.
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
