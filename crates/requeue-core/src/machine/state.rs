//! [`Core`]: the fields of the state machine with their invariants, and what its calls share.

use super::answers::{Counts, NoRun};
use super::awaiters::{Awaited, RunAnswer};
use super::flags::{COUNTED_WAITING, DIRTY, DIRTY_RESPECTS, GROUPED, HAS_SIDE_DATA, HELD, READY, WINDOW};
use super::ledger::{Ledger, Outlived, Refusal};
use super::options::{Bound, Config, Debounce, InBackoff, Merge};
use super::pending_work;
use super::times::Times;
use super::windows::Windows;
use crate::arena::{Arena, CHUNK, KeyRef, Removed};
use crate::column::Column;
use crate::line::{Fair, Line, PAUSED};
use crate::table::Table;
use crate::time::Instant;
use crate::timers::Timers;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// Number of keys up to which a line with turns does not prefetch: all is then in the second cache at least,
/// and prefetching would cost more than it saves.
pub(super) const NEAR: usize = 16_384;

/// Maximum number of keys that one lock hold makes ready, or drops.
pub(super) const BATCH: usize = 64;

/// The phase of a shutdown: which callers may still trigger a run. It only moves forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Any caller.
    Open,
    /// Holders, for the keys that they hold.
    Closed,
    /// No caller.
    ShutDown,
}

/// Work still to be done on all timers, one batch per lock hold. Each call that comes meanwhile first helps
/// to finish it, so no call sees it half done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sweep {
    None,
    /// Drop them. They were counted when that was decided.
    Drop,
    /// Fire them whatever their instant.
    Fire,
    /// Keep those of keys that wait out a failure, and drop the others.
    KeepRetries,
}

/// Additional state of a queue with a bound.
#[derive(Debug)]
pub(super) struct BoundState<K, V> {
    pub(super) bound: Bound,
    /// Keys with `COUNTED_WAITING` and neither `READY` nor `HELD`.
    pub(super) waiting: usize,
    /// Places reserved for triggers whose limiters are being asked.
    pub(super) asking: usize,
    /// Places reserved for callers that wait for room, while a later trigger is entered.
    pub(super) kept: usize,
    /// Keys that were dropped for room and not reported yet.
    pub(super) dropped: Vec<(KeyRef<K>, Option<V>)>,
    /// While a caller waits for room: hashes of keys that were triggered since this was taken. A waiting
    /// trigger of such a key needs no room any more.
    pub(super) entered: Option<Vec<u32>>,
}

impl<K, V> BoundState<K, V> {
    pub(super) fn new(bound: Bound) -> Self {
        Self { bound, waiting: 0, asking: 0, kept: 0, dropped: Vec::new(), entered: None }
    }

    /// For how many further keys there is room, while so many are ready or held.
    #[inline]
    pub(super) fn free(&self, busy: usize) -> usize {
        self.bound.keys.saturating_sub(busy + self.waiting + self.asking)
    }
}

/// An empty queue keeps two chunks of slots, with their side data, for the next keys, if they have at most this many
/// bytes each.
const KEPT: usize = 32 * 1024;

/// Record of a key that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Number of calls of the limiter since it last forgot the key.
    pub(super) failures: u32,
    /// Number of retries in a row that led to the next run.
    pub(super) attempts_before: u32,
    /// When `failures` expires.
    pub(super) expires: Instant,
}

impl Default for Record {
    fn default() -> Self {
        Self { failures: 0, attempts_before: 0, expires: Instant::NEVER }
    }
}

impl Record {
    pub(super) fn failures_at(&self, now: Instant) -> u32 {
        if self.expires <= now { 0 } else { self.failures }
    }
}

/// Guards that exist although their runs have ended.
#[derive(Debug)]
pub(super) struct EndedEarly {
    /// Runs of the key below this number have ended.
    pub(super) before: u64,
    pub(super) guards: u32,
}

/// A queue without a lock, a clock or waiters.
#[repr(C)] // fields that every add, get and end of a run uses come first, so that they share cache lines
pub struct Core<K, V = ()> {
    /// Bits of [`pending_work`].
    pub(super) pending_work: u32,
    pub(super) phase: Phase,
    pub(super) sweep: Sweep,
    pub(super) timers_absorbed: bool,
    /// A new key that is added for now goes to the back of the line: the queue is open, and has no priorities, no groups and
    /// no order of the user's own.
    pub(super) fast_add: bool,
    /// The queue is open, and has no order of the user's own: a new key of an immediate trigger enters its line at once.
    pub(super) enters_ready: bool,
    /// Triggers of this queue also need a back-off policy, a debounce or a check for room.
    pub(super) add_needs_checks: bool,

    // No two neighbours below change in the same add, get or end of a run (but in `next`): the compiler could change both with
    // one vector instruction, whose load waits for an earlier store of one of them.
    /// Keys with `READY`.
    pub(super) ready: usize,
    /// Timestamps, if metrics want them.
    pub(super) times: Option<Box<Times>>,
    /// Keys with `HELD`.
    pub(super) held: usize,
    /// Counts for metrics.
    pub(super) counts: Counts,
    /// Number of runs handed out so far: the next one's number.
    pub(super) runs: u64,
    /// Number of runs that ended.
    pub(super) runs_done: u64,
    pub(super) table: Table,
    pub(super) line: Line<K>,
    pub(super) arena: Arena<K>,

    /// The latest instant passed to any call.
    pub(super) now: Instant,
    pub(super) timers: Timers,
    /// Payloads of the keys' next runs.
    pub(super) values: Column<Option<V>>,
    pub(super) records: Column<Record>,
    /// When the timer of a key was first asked for, if it may be pushed back (`Policy::Latest`).
    pub(super) pushed_since: Column<Option<Instant>>,
    pub(super) merge: Option<Merge<V>>,
    /// Default effect of triggers in a back-off.
    pub(super) in_backoff: InBackoff,
    /// Keys whose failures a limiter that counts them itself must forget, if there is one.
    pub(super) forgotten: Option<Vec<K>>,
    /// Time from the end of its last delay until a record expires, if the limiter does not say.
    pub(super) expire_after: Option<Duration>,
    /// Deadline of a drain that waits for waiting keys (only in `Phase::Closed`).
    pub(super) waiting_drain: Option<Instant>,
    /// State of a queue with a bound.
    pub(super) bound: Option<Box<BoundState<K, V>>>,
    /// Default debounce of immediate triggers.
    pub(super) debounce: Option<Debounce>,
    /// The open windows of debounces.
    pub(super) windows: Windows,

    /// Keys with `DIRTY`.
    pub(super) dirty: usize,
    /// Number of triggers whose limiter is being asked outside the lock.
    pub(super) asking: usize,
    /// Epoch of askings: a shutdown that drops them changes it.
    pub(super) ask_epoch: u64,

    /// Number of waiting keys that were dropped.
    pub(super) dropped: u64,
    /// Number of triggers from outside that were refused.
    pub(super) refused: u64,
    /// Number of retries of holders that were refused.
    pub(super) refused_retries: u64,
    /// Number of calls of `shut_down`: each releases the drains begun before it.
    pub(super) releases: u64,
    /// The waiting drain works off only failed keys, and drops other timers.
    pub(super) only_retries: bool,
    /// The keys that are unfinished, once a drain has begun.
    pub(super) ledger: Option<Box<Ledger>>,
    /// By slot, refusals of current runs.
    pub(super) refusals: BTreeMap<u32, Refusal>,
    /// By slot, runs that a shutdown dropped and a store still owes. Only if a store outlives the queue.
    pub(super) outlived: Option<BTreeMap<u32, Outlived>>,

    pub(super) ended_early: BTreeMap<u32, EndedEarly>,
    /// The slot whose record is checked next for expiry.
    pub(super) expiry_cursor: u32,
    /// By slot, callers that await runs.
    pub(super) awaited: BTreeMap<u32, Awaited>,
    /// Answers for such callers, to be delivered once the lock is released.
    pub(super) answers: Vec<RunAnswer>,
    /// Keys and values to be dropped once the lock is released.
    pub(super) trash: Vec<(Option<K>, Option<V>)>,
    /// The slot that a call was changing when it called user code. If this is still set at the next call,
    /// that code panicked.
    pub(super) suspect: Option<u32>,
}

impl<K, V> Core<K, V> {
    /// An empty queue.
    #[must_use]
    pub fn new(config: Config<K, V>) -> Self {
        let drops_oldest = config.bound.is_some_and(|bound| bound.drop_oldest);
        let line = Line::new(config.order, config.rate, drops_oldest, config.timestamps);
        let debounce = config.debounce.filter(Debounce::is_on);
        let add_needs_checks =
            config.in_backoff != InBackoff::Run || config.bound.is_some() || debounce.is_some();
        let mut core = Self {
            // each chunk may have a page of values
            arena: Arena::new(KEPT.saturating_sub(CHUNK * size_of::<Option<V>>())),
            table: Table::new(),
            fast_add: !line.wants_more(),
            enters_ready: !line.is_custom(),
            add_needs_checks,
            debounce,
            bound: config.bound.map(|bound| Box::new(BoundState::new(bound))),
            in_backoff: config.in_backoff,
            forgotten: config.failures_elsewhere.then(Vec::new),
            line,
            timers: Timers::new(),
            values: Column::new(),
            records: Column::new(),
            pushed_since: Column::new(),
            windows: Windows::new(),
            times: config.timestamps.then(|| Box::new(Times::new())),
            merge: config.merge,
            timers_absorbed: config.timers_absorbed,
            expire_after: None,
            now: Instant::ORIGIN,
            phase: Phase::Open,
            sweep: Sweep::None,
            waiting_drain: None,
            ready: 0,
            held: 0,
            dirty: 0,
            asking: 0,
            ask_epoch: 0,
            runs: 0,
            runs_done: 0,
            dropped: 0,
            refused: 0,
            refused_retries: 0,
            releases: 0,
            only_retries: false,
            ledger: None,
            refusals: BTreeMap::new(),
            outlived: None,
            counts: Counts::default(),
            ended_early: BTreeMap::new(),
            expiry_cursor: 0,
            awaited: BTreeMap::new(),
            answers: Vec::new(),
            trash: Vec::new(),
            suspect: None,
            pending_work: 0,
        };
        if core.line.fair().is_some_and(Fair::is_rated) {
            core.pending_work |= pending_work::GROUPS;
        }
        core.watch_time();
        core.take_time_matters();
        core
    }

    /// Takes the keys and values to be dropped once the lock is released.
    #[inline]
    pub fn take_trash(&mut self) -> Vec<(Option<K>, Option<V>)> {
        self.pending_work &= !pending_work::TRASH;
        core::mem::take(&mut self.trash)
    }

    /// Takes the keys of triggers that reset, whose failures a limiter that keeps them itself must forget,
    /// once the lock is released.
    #[inline]
    pub fn take_forgotten(&mut self) -> Option<Vec<K>> {
        if self.pending_work & pending_work::FORGOTTEN == 0 {
            return None;
        }
        self.pending_work &= !pending_work::FORGOTTEN;
        self.forgotten.as_mut().map(core::mem::take)
    }

    /// Keeps a key and a value to be dropped once the lock is released.
    pub(super) fn discard(&mut self, key: Option<K>, value: Option<V>) {
        self.trash.push((key, value));
        self.pending_work |= pending_work::TRASH;
    }

    #[inline]
    pub(super) fn set_pending_work(&mut self, bit: u32, to: bool) {
        self.pending_work = self.pending_work & !bit | if to { bit } else { 0 };
    }

    /// Sets whether time matters to a look.
    #[inline]
    pub(super) fn set_time_matters(&mut self, to: bool) {
        if self.time_matters() != to {
            self.pending_work = (self.pending_work ^ pending_work::TIME) | pending_work::RETIMED;
        }
    }

    /// Sets bits for pending work of the owner of the state machine: while one is set the queue [is not
    /// quiescent](Self::is_quiescent).
    #[inline]
    pub fn note_beside(&mut self, bits: u8, to: bool) {
        self.set_pending_work(u32::from(bits) << pending_work::BESIDE, to);
    }

    /// Whether triggers may have priorities.
    #[must_use]
    pub fn has_priorities(&self) -> bool {
        self.line.has_priorities()
    }

    /// Whether every call is to read the time, adds and ends of runs too: timestamps are kept,
    /// or keys grow old, or groups have rates, or triggers open windows.
    #[must_use]
    pub fn needs_every_reading(&self) -> bool {
        self.times.is_some() || self.line.stamps_keys() || self.debounce.is_some()
    }

    /// Whether exactly these bits were set with [`note_beside`](Self::note_beside), and there is no other
    /// work before or after a call.
    #[inline]
    #[must_use]
    pub fn is_just_noted(&self, bits: u8) -> bool {
        self.pending_work & !pending_work::TIME == u32::from(bits) << pending_work::BESIDE
    }

    /// Records that this key has side data from now on.
    #[inline]
    pub(super) fn note(&mut self, slot: u32) {
        self.arena.set_flags(slot, self.arena.flags(slot) | HAS_SIDE_DATA);
    }

    /// Number of key lookups. For the test of what each call costs.
    #[cfg(requeue_counted)]
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.table.probes()
    }

    /// The slot of the key that `is_it` accepts among those with this hash.
    pub(super) fn find<Q: Eq + ?Sized>(&self, hash: u32, key: &Q) -> Option<u32>
    where
        K: core::borrow::Borrow<Q>,
    {
        self.table.find(hash, |slot| self.arena.matches(slot, hash, |known| known.borrow() == key))
    }

    /// Removes a key that there is no reason to know any more. Returns it, to be dropped outside the lock.
    #[inline]
    pub(super) fn release(&mut self, slot: u32) -> Option<K> {
        let flags = self.arena.flags(slot);
        if flags & (READY | HELD | PAUSED) != 0
            || self.arena.is_lent(slot)
            || self.timers.due(slot).is_some()
            || self.failures(slot) > 0
        {
            return None;
        }
        if flags & (HAS_SIDE_DATA | GROUPED) == 0 {
            return self.arena.remove(slot).map(|removed| self.forget_slot(removed));
        }
        if self.is_listed(slot) {
            return None;
        }
        if let Some(record) = self.records.get_mut(slot) {
            *record = Record::default();
        }
        let group = self.line.fair_mut().and_then(|(fair, _)| fair.take_group(slot));
        let key = self.arena.remove(slot).map(|removed| self.forget_slot(removed));
        if let (Some((fair, _)), Some(group)) = (self.line.fair_mut(), group) {
            fair.forget(group);
        }
        key
    }

    /// Enters a key that has just been stored in the arena into its group. If the function of its group
    /// panics, the next call removes the key again.
    #[inline]
    pub(super) fn know(&mut self, slot: u32) {
        if self.line.has_groups() {
            self.suspect(Some(slot));
            if let Some((fair, _)) = self.line.fair_mut() {
                fair.know(slot, self.arena.key(slot));
            }
            self.suspect(None);
            self.arena.set_flags(slot, GROUPED);
        }
    }

    /// Removes a key that has left its slot from the table and the columns.
    #[inline(always)]
    pub(super) fn forget_slot(&mut self, removed: Removed<K>) -> K {
        if let Some(chunk) = removed.freed_chunk {
            self.free_pages(chunk);
        }
        self.table.remove(removed.hash, removed.slot, &self.arena);
        removed.key
    }

    #[cold]
    pub(super) fn free_pages(&mut self, chunk: u32) {
        self.timers.free_page(chunk);
        self.values.free_page(chunk);
        self.records.free_page(chunk);
        self.pushed_since.free_page(chunk);
        self.windows.free_page(chunk);
        self.line.free_page(chunk);
        if let Some(times) = &mut self.times {
            times.free_page(chunk);
        }
    }

    /// Takes the value of a key that has no reason left to run.
    #[inline]
    pub(super) fn dead_value(&mut self, slot: u32) -> Option<V> {
        let flags = self.arena.flags(slot);
        if flags & (READY | DIRTY) != 0 || flags & HAS_SIDE_DATA == 0 || self.timers.due(slot).is_some() {
            return None;
        }
        self.awaited_run_is_gone(slot, NoRun::Dropped);
        if self.is_listed(slot) { None } else { self.values.take(slot) }
    }

    /// Makes a key that is neither held nor ready ready, triggered at `since` with this priority. It has yet
    /// to enter the line.
    #[inline]
    pub(super) fn make_ready(&mut self, slot: u32, since: Instant, priority: i16) {
        let (mut flags, mut priority) = (self.arena.flags(slot), priority);
        if flags & (COUNTED_WAITING | WINDOW) != 0 {
            priority = self.cover(slot, priority);
            flags = self.arena.flags(slot);
            if flags & COUNTED_WAITING != 0 {
                self.uncount_waiting(flags);
            }
        }
        self.line.pend(slot, priority);
        self.arena.set_flags(slot, flags | READY);
        self.ready += 1;
        self.counts.adds += 1;
        if let Some(times) = &mut self.times {
            times.triggered_ready(slot, since);
        }
    }

    /// Makes a held key dirty, triggered at `since` with this priority; false if it was dirty already. It
    /// runs again even if its run fails, whatever earlier triggers said.
    pub(super) fn make_dirty(&mut self, slot: u32, since: Instant, priority: i16) -> bool {
        let mut priority = priority;
        if self.arena.flags(slot) & WINDOW != 0 {
            priority = self.cover(slot, priority);
        }
        self.make_dirty_beside(slot, since, priority)
    }

    /// Like [`make_dirty`](Self::make_dirty), but an open window stays open.
    pub(super) fn make_dirty_beside(&mut self, slot: u32, since: Instant, priority: i16) -> bool {
        let flags = self.arena.flags(slot);
        debug_assert!(flags & HELD != 0);
        if flags & DIRTY != 0 {
            if flags & DIRTY_RESPECTS != 0 {
                self.arena.set_flags(slot, flags & !DIRTY_RESPECTS);
            }
            self.line.raise_to(&mut self.arena, slot, priority);
            return false;
        }
        self.line.pend(slot, priority);
        self.arena.set_flags(slot, flags | DIRTY);
        self.dirty += 1;
        self.counts.adds += 1;
        if let Some(times) = &mut self.times {
            times.triggered(slot, since);
        }
        true
    }

    /// Merges a value into the key's slot. If `merge` panics the slot keeps what it left.
    #[inline]
    pub(super) fn merge_in(&mut self, slot: u32, value: Option<V>) {
        if let Some(newer) = value {
            self.merge_newer(slot, newer);
        }
    }

    fn merge_newer(&mut self, slot: u32, newer: V) {
        self.note(slot);
        let place = self.values.entry(slot);
        match (place.as_mut(), &self.merge) {
            (Some(older), Some(merge)) => merge(older, newer),
            _ => {
                if let Some(replaced) = place.replace(newer) {
                    self.discard(None, Some(replaced));
                }
            }
        }
    }

    /// Puts the value of a run back: it is older than those that came meanwhile.
    pub(super) fn merge_back(&mut self, slot: u32, older: Option<V>) {
        if let Some(older) = older {
            let newer = self.values.take(slot);
            self.note(slot);
            *self.values.entry(slot) = Some(older);
            self.merge_in(slot, newer);
        }
    }

    /// Repairs the state after a panic of user code in an earlier call, if there was one.
    #[inline]
    pub(super) fn repair_suspect(&mut self) {
        if self.pending_work & pending_work::SUSPECT != 0 {
            self.repair();
        }
    }

    /// Sets the slot that is being changed while user code is called, or clears it.
    #[inline]
    pub(super) fn suspect(&mut self, slot: Option<u32>) {
        self.suspect = slot;
        self.set_pending_work(pending_work::SUSPECT, slot.is_some());
    }

    /// Repairs the state after a panic of user code: removes a key that was being entered and has no state.
    #[cold]
    pub(super) fn repair(&mut self) {
        let slot = self.suspect;
        self.suspect(None);
        if let Some(slot) = slot.filter(|slot| self.arena.flags_if_occupied(*slot).is_some()) {
            let value = self.dead_value(slot);
            let key = self.release(slot);
            self.discard(key, value);
        }
    }
}

impl<K, V> fmt::Debug for Core<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("phase", &self.phase)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
