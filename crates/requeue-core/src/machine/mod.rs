//! The state machine: what a queue knows of its keys, and the effect of each call. Every method takes the
//! time that the caller read, or relies on the [`advance`](Core::advance) (of a look) or the
//! [`begin`](Core::begin) (of any other call) that came before it in this lock hold.
//!
//! A key is in the table while there is a reason to know it: it is ready,
//! waiting or held, its failures are on record, or a guard still refers to it.
//!
//! ```text
//!             add                     get                  done
//!   (idle) ─────────► ready ────────────────► held ─────────────────► (idle)
//!     │                 ▲  ▲                   │ ▲ add, timer fires
//!     │ add_after       │  │ done              ▼ │
//!     └──► waiting ─────┘  └─────────────── held + dirty
//!            timer fires
//! ```
//!
//! `waiting` is independent of the rest: a key may have a timer and be ready or held.

mod backoff;
mod bound;
mod leave;
mod observe;
mod pause;
mod publish;
mod restore;
mod run;
mod shutdown;
mod snapshot;
mod trigger;
mod unfinished;
mod window;

pub use self::backoff::InBackoff;
pub use self::bound::Bound;
pub use self::leave::Cancelled;
pub use self::observe::{Counts, Gauges, KeyState, Stats};
pub use self::pause::Paused;
pub use self::restore::Restored;
pub use self::run::{Ended, Got, Handout, How, NotHeld, RefusedEnd, RetryDelay, RunEnd, RunRef};
pub use self::shutdown::{DrainBase, Drained, ShutDown, WaitingKeys};
pub use self::snapshot::Only;
pub use self::trigger::{Accepted, Added, Asking, Delay, Limit, Policy, Refused, Trigger};
pub use self::unfinished::{UnfinishedKey, UnfinishedReason};
pub use self::window::Debounce;

use self::bound::BoundState;
use self::observe::Times;
use self::shutdown::{Phase, Sweep};
use self::unfinished::{Ledger, Outlived, Refusal};
use self::window::Windows;
use crate::Instant;
use crate::arena::{Arena, CHUNK, Removed};
use crate::column::Column;
use crate::line::{Fair, Line, Order, PAUSED, Rate};
use crate::table::Table;
use crate::timers::Timers;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

/// Flags of a slot, on the state of its key; the line has one more, [`PAUSED`].
mod flag {
    /// It is ready.
    pub(super) const READY: u32 = 1;
    /// A worker has it.
    pub(super) const HELD: u32 = 1 << 1;
    /// It was triggered while held. Only with `HELD`.
    pub(super) const DIRTY: u32 = 1 << 2;
    /// It waits out a failure: its timer was set by the retry that ended its last run, or through the
    /// limiter, and may have been moved since. Only with a timer.
    pub(super) const BACKOFF: u32 = 1 << 3;
    /// Its run was handed out without a guard. Only with `HELD`.
    pub(super) const GUARDLESS: u32 = 1 << 4;
    /// It was published since it became ready or dirty: an add may have found it pending without the lock.
    /// Only with `READY` or `DIRTY`.
    pub(super) const PUBLISHED: u32 = 1 << 6;
    /// There may be side data of it beside the slab: a timer, a payload, a record, or a guard whose run was
    /// ended under it. Without this flag there is none, and no call looks. Set by the code that writes side
    /// data, and cleared with the key. (Timestamps are excluded: an earlier key's do not matter to a later
    /// one.)
    pub(super) const HAS_SIDE_DATA: u32 = 1 << 7;

    /// All triggers that made it dirty respect a back-off. Only with `DIRTY`, and not with `PUBLISHED`.
    pub(super) const DIRTY_RESPECTS: u32 = 1 << 5;
    /// Its timer was set during the current run, only by triggers that respect a back-off. Only with `HELD`.
    pub(super) const TIMER_RESPECTS: u32 = 1 << 8;
    /// A trigger that resets came during the current run. Only with `HELD`.
    pub(super) const RESET: u32 = 1 << 9;
    /// It has a timer of its own, or a window that owes a run. Only on a queue with a bound.
    pub(super) const TIMED: u32 = 1 << 11;
    /// It has an open window: see `window.rs`.
    pub(super) const WINDOW: u32 = 1 << 13;

    /// It is in a group: the line must be told of the end of its run, and when it is forgotten. Set as long
    /// as it is known.
    pub(super) const GROUPED: u32 = 1 << 12;

    /// The flags that end with the key's pending state: see `end_pending`.
    pub(super) const PENDING: u32 = READY | DIRTY | PUBLISHED | DIRTY_RESPECTS;
    /// The flags that end with a run.
    pub(super) const OF_A_RUN: u32 = HELD | DIRTY | GUARDLESS | DIRTY_RESPECTS | TIMER_RESPECTS | RESET;
}
use flag::{
    BACKOFF, DIRTY, DIRTY_RESPECTS, GROUPED, GUARDLESS, HAS_SIDE_DATA, HELD, OF_A_RUN, PENDING, PUBLISHED,
    READY, RESET, TIMED, TIMER_RESPECTS, WINDOW,
};

/// Pending work of a lock hold besides the call itself, one bit each. A bit is set by the code that makes its
/// condition true, and cleared by the code that ends it, so that a call without such work needs one test.
mod pending_work {
    /// `suspect` names a slot: user code panicked, unless the call that set it is still running.
    pub(super) const SUSPECT: u32 = 1;
    /// A drain waits for waiting keys, or a shutdown has not gone through all timers.
    pub(super) const ENDING: u32 = 1 << 1;
    /// `trash` holds something.
    pub(super) const TRASH: u32 = 1 << 2;
    /// Time matters to a look: there are timers or timestamps, or a drain waits.
    pub(super) const TIME: u32 = 1 << 3;
    /// Timers fired whose lateness was not read yet.
    pub(super) const LATE: u32 = 1 << 4;
    /// `TIME` has changed since [`take_timed`](super::Core::take_timed) was last called.
    pub(super) const RETIMED: u32 = 1 << 5;
    /// `forgotten` holds something.
    pub(super) const FORGOTTEN: u32 = 1 << 6;
    /// Groups have rates: time that passes lets some be served again. Never cleared.
    pub(super) const GROUPS: u32 = 1 << 7;
    /// Keys were dropped for room, and not reported yet.
    pub(super) const DROPPED: u32 = 1 << 9;
    /// First bit that belongs to the owner of the state machine: see
    /// [`Core::note_beside`](super::Core::note_beside).
    pub(super) const BESIDE: u32 = 12;
}

/// Merges two payloads of one key: the older first.
pub type Merge<V> = Box<dyn Fn(&mut V, V) + Send + Sync>;

/// Settings of a queue; fixed when it is made.
pub struct Config<K, V = ()> {
    /// The order of the ready line.
    pub order: Order<K>,
    /// The dispatch rate, if there is one.
    pub rate: Option<Rate>,
    /// Merge function of payloads; without it the newer replaces the older.
    pub merge: Option<Merge<V>>,
    /// Whether a run that starts absorbs the timer that was set before it started.
    pub timers_absorbed: bool,
    /// Default effect of triggers in a back-off.
    pub in_backoff: InBackoff,
    /// The limiter keeps the failures itself, and is told outside the lock what to forget:
    /// [`Core::take_forgotten`].
    pub failures_elsewhere: bool,
    /// Whether to keep the timestamps that metrics need.
    pub timestamps: bool,
    /// The bound on known keys, if there is one.
    pub bound: Option<Bound>,
    /// Default debounce of immediate triggers.
    pub debounce: Option<Debounce>,
}

impl<K, V> Default for Config<K, V> {
    fn default() -> Self {
        Self {
            order: Order::Fifo,
            rate: None,
            merge: None,
            timers_absorbed: false,
            in_backoff: InBackoff::default(),
            failures_elsewhere: false,
            timestamps: false,
            bound: None,
            debounce: None,
        }
    }
}

impl<K, V> fmt::Debug for Config<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("order", &self.order)
            .field("rate", &self.rate)
            .field("merge", &self.merge.is_some())
            .field("timers_absorbed", &self.timers_absorbed)
            .field("in_backoff", &self.in_backoff)
            .field("timestamps", &self.timestamps)
            .field("bound", &self.bound)
            .field("debounce", &self.debounce)
            .finish()
    }
}

/// Maximum size of a chunk of slots and its side data that an empty queue keeps for the next keys; it keeps
/// two.
const KEPT: usize = 32 * 1024;

/// Record of a key that failed.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Number of calls of the limiter since it last forgot the key.
    failures: u32,
    /// Number of retries in a row that led to the next run.
    retries: u32,
    /// When `failures` expires.
    expires: Instant,
}

impl Default for Record {
    fn default() -> Self {
        Self { failures: 0, retries: 0, expires: Instant::NEVER }
    }
}

impl Record {
    fn failures_at(&self, now: Instant) -> u32 {
        if self.expires <= now { 0 } else { self.failures }
    }
}

/// Guards that exist although their runs have ended.
#[derive(Debug)]
struct EndedEarly {
    /// Runs of the key below this number have ended.
    before: u64,
    guards: u32,
}

/// A queue without a lock, a clock or waiters.
#[repr(C)] // fields that every add, get and end of a run uses come first, so that they share cache lines
pub struct Core<K, V = ()> {
    /// Bits of [`pending_work`].
    pending_work: u32,
    phase: Phase,
    sweep: Sweep,
    timers_absorbed: bool,
    /// A new key that is added for now goes to the back of the line, if it [enters at once](Self::enters_at_once): the queue
    /// is open, and has no priorities, no groups and no order of the user's own.
    fast_add: bool,
    /// Triggers of this queue also need a back-off policy, a debounce or a check for room.
    add_needs_checks: bool,

    // No two neighbours below change in the same add, get or end of a run (but in `next`): the compiler could change both with
    // one vector instruction, whose load waits for an earlier store of one of them.
    /// Keys with `READY`.
    ready: usize,
    /// Timestamps, if metrics want them.
    times: Option<Box<Times>>,
    /// Keys with `HELD`.
    held: usize,
    /// Counts for metrics.
    counts: Counts,
    /// Number of runs handed out so far: the next one's number.
    runs: u64,
    /// Number of runs that ended.
    runs_done: u64,
    table: Table,
    line: Line<K>,
    arena: Arena<K>,

    /// The latest instant passed to any call.
    now: Instant,
    timers: Timers,
    /// Payloads of the keys' next runs.
    values: Column<Option<V>>,
    records: Column<Record>,
    /// Start of the window of a key whose timer is pushed back.
    windows: Column<Option<Instant>>,
    merge: Option<Merge<V>>,
    /// Default effect of triggers in a back-off.
    in_backoff: InBackoff,
    /// Keys whose failures a limiter that counts them itself must forget, if there is one.
    forgotten: Option<Vec<K>>,
    /// Time from the end of its last delay until a record expires, if the limiter does not say.
    expire_after: Option<Duration>,
    /// Deadline of a drain that waits for waiting keys (only in `Phase::Closed`).
    waiting_drain: Option<Instant>,
    /// State of a queue with a bound.
    bound: Option<Box<BoundState<K, V>>>,
    /// Default debounce of immediate triggers.
    debounce: Option<Debounce>,
    open: Windows,

    /// Keys with `DIRTY`.
    dirty: usize,
    /// Number of triggers whose limiter is being asked outside the lock.
    asking: usize,
    /// Epoch of askings: a shutdown that drops them changes it.
    ask_epoch: u64,

    /// Number of waiting keys that were dropped.
    dropped: u64,
    /// Number of triggers from outside that were refused.
    refused: u64,
    /// Number of retries of holders that were refused.
    refused_retries: u64,
    /// Number of calls of `shut_down`: each releases the drains begun before it.
    releases: u64,
    /// The waiting drain works off only failed keys, and drops other timers.
    only_retries: bool,
    /// The keys that are unfinished, once a drain has begun.
    ledger: Option<Box<Ledger>>,
    /// By slot, refusals of current runs.
    refusals: BTreeMap<u32, Refusal>,
    /// By slot, runs that a shutdown dropped and a store still owes. Only if a store outlives the queue.
    outlived: Option<BTreeMap<u32, Outlived>>,

    ended_early: BTreeMap<u32, EndedEarly>,
    /// The slot whose record is checked next for expiry.
    expiry_cursor: u32,
    /// Keys and values to be dropped once the lock is released.
    trash: Vec<(Option<K>, Option<V>)>,
    /// The slot that a call was changing when it called user code. If this is still set at the next call,
    /// that code panicked.
    suspect: Option<u32>,
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
            // each chunk may have a page of payloads
            arena: Arena::new(KEPT.saturating_sub(CHUNK * size_of::<Option<V>>())),
            table: Table::new(),
            fast_add: !line.wants_more(),
            add_needs_checks,
            debounce,
            open: Windows::new(),
            bound: config.bound.map(|bound| Box::new(BoundState::new(bound))),
            in_backoff: config.in_backoff,
            forgotten: config.failures_elsewhere.then(Vec::new),
            line,
            timers: Timers::new(),
            values: Column::new(),
            records: Column::new(),
            windows: Column::new(),
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
            trash: Vec::new(),
            suspect: None,
            pending_work: 0,
        };
        if core.line.fair().is_some_and(Fair::is_rated) {
            core.pending_work |= pending_work::GROUPS;
        }
        core.watch_time();
        core.take_timed();
        core
    }

    /// Sets how long after the end of its last delay a failure count expires, unless the limiter says another
    /// time.
    pub fn expire_failures_after(&mut self, after: Option<Duration>) {
        self.expire_after = after;
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
    fn discard(&mut self, key: Option<K>, value: Option<V>) {
        self.trash.push((key, value));
        self.pending_work |= pending_work::TRASH;
    }

    #[inline]
    fn set_pending_work(&mut self, bit: u32, to: bool) {
        self.pending_work = self.pending_work & !bit | if to { bit } else { 0 };
    }

    /// Sets whether time matters to a look.
    #[inline]
    fn set_timed(&mut self, to: bool) {
        if self.is_timed() != to {
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
    fn note(&mut self, slot: u32) {
        self.arena.set_flags(slot, self.arena.flags(slot) | HAS_SIDE_DATA);
    }

    /// Number of key lookups. For the test of what each call costs.
    #[cfg(requeue_counted)]
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.table.probes()
    }

    /// The slot of the key that `is_it` accepts among those with this hash.
    #[inline]
    fn find<Q: Eq + ?Sized>(&self, hash: u32, key: &Q) -> Option<u32>
    where
        K: core::borrow::Borrow<Q>,
    {
        self.table.find(hash, |slot| self.arena.matches(slot, hash, |known| known.borrow() == key))
    }

    /// Removes a key that there is no reason to know any more. Returns it, to be dropped outside the lock.
    #[inline]
    fn release(&mut self, slot: u32) -> Option<K> {
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
    #[inline(always)]
    fn know(&mut self, slot: u32) {
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
    fn forget_slot(&mut self, removed: Removed<K>) -> K {
        if let Some(chunk) = removed.freed_chunk {
            self.free_pages(chunk);
        }
        self.table.remove(removed.hash, removed.slot, &self.arena);
        removed.key
    }

    #[cold]
    fn free_pages(&mut self, chunk: u32) {
        self.timers.free_page(chunk);
        self.values.free_page(chunk);
        self.records.free_page(chunk);
        self.windows.free_page(chunk);
        self.open.free_page(chunk);
        self.line.free_page(chunk);
        if let Some(times) = &mut self.times {
            times.free_page(chunk);
        }
    }

    /// Takes the payload of a key that has no reason left to run.
    #[inline]
    fn dead_value(&mut self, slot: u32) -> Option<V> {
        let flags = self.arena.flags(slot);
        if flags & (READY | DIRTY) != 0
            || flags & HAS_SIDE_DATA == 0
            || self.timers.due(slot).is_some()
            || self.is_listed(slot)
        {
            return None;
        }
        self.values.take(slot)
    }

    fn failures(&self, slot: u32) -> u32 {
        self.records.get(slot).map_or(0, |r| r.failures_at(self.now))
    }

    /// Makes the key's next run attempt 1.
    #[inline]
    fn restart_attempts(&mut self, slot: u32) {
        if let Some(record) = self.records.get_mut(slot) {
            record.retries = 0;
        }
    }

    /// The key's record, created if needed.
    #[inline]
    fn record_of(&mut self, slot: u32) -> &mut Record {
        self.note(slot);
        self.records.entry(slot)
    }

    fn forget_failures(&mut self, slot: u32) {
        if let Some(record) = self.records.get_mut(slot) {
            record.failures = 0;
            record.expires = Instant::NEVER;
        }
    }

    /// Makes a key that is neither held nor ready ready, triggered at `since` with this priority. It has yet
    /// to enter the line.
    #[inline]
    fn make_ready(&mut self, slot: u32, since: Instant, priority: i16) {
        let (mut flags, mut priority) = (self.arena.flags(slot), priority);
        if flags & (TIMED | WINDOW) != 0 {
            priority = self.cover(slot, priority);
            flags = self.arena.flags(slot);
            if flags & TIMED != 0 {
                self.only_waited(flags);
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
    fn make_dirty(&mut self, slot: u32, since: Instant, priority: i16) -> bool {
        let mut priority = priority;
        if self.arena.flags(slot) & WINDOW != 0 {
            priority = self.cover(slot, priority);
        }
        self.make_dirty_beside(slot, since, priority)
    }

    /// Like [`make_dirty`](Self::make_dirty), but an open window stays open.
    fn make_dirty_beside(&mut self, slot: u32, since: Instant, priority: i16) -> bool {
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

    /// Removes the key's timer; false if it has none.
    #[inline]
    fn clear_timer(&mut self, slot: u32) -> bool {
        if self.arena.flags(slot) & WINDOW != 0 {
            return self.clear_beside_window(slot);
        }
        let had = self.timers.remove(slot);
        if had {
            if let Some(window) = self.windows.get_mut(slot) {
                *window = None;
            }
            let flags = self.arena.flags(slot);
            if flags & TIMED != 0 {
                self.only_waited(flags);
            }
            self.arena.set_flags(slot, flags & !(BACKOFF | TIMER_RESPECTS | TIMED));
            self.watch_time();
        }
        had
    }

    /// Sets or moves the key's timer, and sets these flags.
    #[inline]
    fn time(&mut self, slot: u32, due: Instant, flags: u32) {
        if self.bound.is_some() {
            self.count_timer(slot);
        }
        let flags = self.arena.flags(slot) | HAS_SIDE_DATA | flags;
        self.arena.set_flags(slot, flags);
        if flags & WINDOW != 0 {
            return self.time_beside_window(slot, due);
        }
        self.timers.set(slot, due, self.now);
        self.set_timed(true);
    }

    /// Recomputes whether time matters to a look.
    #[inline]
    fn watch_time(&mut self) {
        let timed = self.timers.len() > 0
            || self.waiting_drain.is_some()
            || self.line.is_rated()
            || self.needs_every_reading();
        self.set_timed(timed);
    }

    /// Fires a timer that has come, or that a drain lets come early: the key runs, or runs again.
    fn fire(&mut self, slot: u32, due: Instant) {
        if self.arena.flags(slot) & WINDOW != 0 {
            return self.fire_beside_window(slot, true);
        }
        self.timer_fires(slot, due);
    }

    /// Records how late a timer fires, for metrics, unless it fires early.
    #[inline]
    fn tell_late(&mut self, due: Instant) {
        if let Some(times) = self.times.as_mut().filter(|_| due <= self.now) {
            times.fired(self.now.saturating_since(due));
            self.pending_work |= pending_work::LATE;
        }
    }

    /// Fires the key's own timer.
    #[inline]
    fn timer_fires(&mut self, slot: u32, due: Instant) {
        self.tell_late(due);
        let since = due.min(self.now);
        let flags = self.arena.flags(slot);
        let priority = self.line.timer_priority(slot);
        self.clear_timer(slot);
        if flags & TIMER_RESPECTS != 0 {
            self.make_dirty_respecting(slot, since, priority);
        } else if flags & HELD != 0 {
            self.make_dirty(slot, since, priority);
        } else if flags & READY != 0 {
            self.line.raise_to(&mut self.arena, slot, priority);
        } else {
            if flags & BACKOFF == 0 {
                self.restart_attempts(slot);
            }
            self.make_ready(slot, since, priority);
            self.line.enter(&mut self.arena, slot, since);
        }
    }

    /// Fires this key's timer if it is due: a call that sets another one for the key has read the clock.
    fn fire_if_due(&mut self, slot: u32) {
        while let Some(due) = self.timers.due(slot).filter(|due| *due <= self.now) {
            if self.arena.flags(slot) & WINDOW == 0 {
                return self.timer_fires(slot, due);
            }
            self.fire_beside_window(slot, false);
        }
    }

    /// Merges a payload into the key's slot. If `merge` panics the slot keeps what it left.
    fn merge_in(&mut self, slot: u32, value: Option<V>) {
        if let Some(newer) = value {
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
    }

    /// Puts the payload of a run back: it is older than those that came meanwhile.
    fn merge_back(&mut self, slot: u32, older: Option<V>) {
        if let Some(older) = older {
            let newer = self.values.take(slot);
            self.note(slot);
            *self.values.entry(slot) = Some(older);
            self.merge_in(slot, newer);
        }
    }

    /// Checks the next record, and removes it if it has expired.
    fn expire_one_record(&mut self) {
        if self.arena.slots() == 0 {
            return;
        }
        self.expiry_cursor = (self.expiry_cursor + 1) % self.arena.slots();
        let slot = self.expiry_cursor;
        let now = self.now;
        let Some(record) = self.records.get_mut(slot) else { return };
        // one without failures never expires
        if record.expires <= now {
            record.failures = 0;
            record.expires = Instant::NEVER;
            if let Some(key) = self.release(slot) {
                self.discard(Some(key), None);
            }
        }
    }

    /// Repairs the state after a panic of user code in an earlier call, if there was one.
    #[inline(always)]
    fn repair_suspect(&mut self) {
        if self.pending_work & pending_work::SUSPECT != 0 {
            self.repair();
        }
    }

    /// Sets the slot that is being changed while user code is called, or clears it.
    #[inline]
    fn suspect(&mut self, slot: Option<u32>) {
        self.suspect = slot;
        self.set_pending_work(pending_work::SUSPECT, slot.is_some());
    }

    /// Repairs the state after a panic of user code: removes a key that was being entered and has no state.
    #[cold]
    fn repair(&mut self) {
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
