//! Triggers: add, add_after, add_rate_limited.

use super::backoff::{BackoffChange, InBackoff};
use super::run::{NEAR, RunRef};
use super::shutdown::Phase;
use super::window::Debounce;
use super::{BACKOFF, Core, DIRTY, GROUPED, HELD, READY, TIMER_RESPECTS, WINDOW};
use crate::Instant;
use crate::arena::{Arena, Vacant};
use crate::line::{Line, Ticket};
use crate::slots::{Insert, Slots};
use crate::table::Found;
use core::borrow::Borrow;
use core::fmt;
use core::time::Duration;

/// Effect of an accepted trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Added {
    /// The key became ready: it went to the back of the line.
    Ready,
    /// The key is held and became dirty: it goes to the back of the line when
    /// its run ends.
    Dirty,
    /// The key's timer was set, or moved.
    Waiting,
    /// A pending run already covers it: the key was ready or dirty, its timer stayed unchanged, or the
    /// trigger joined the window of a debounce. (A higher priority has still raised the key's.)
    Coalesced,
}

/// The reason why a trigger was refused. A refused trigger changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refused {
    /// The queue is shut down, drains, or was closed.
    ShutDown,
    /// The run to be ended with a retry has already ended, by `done(&key)`.
    NotHeld,
    /// The trigger has a priority other than 0, and the queue was built without priorities.
    NoPriorities,
    /// The key to be restored has failures, and the queue's limiter counts failures itself.
    CountedElsewhere,
    /// The queue is at its bound.
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ShutDown => "the queue is shut down and accepts no more keys",
            Self::NotHeld => "the run has already ended: done was called for its key",
            Self::NoPriorities => {
                "the queue was built without priorities: call .priorities() on its builder, \
                 or give the key no priority but 0"
            }
            Self::CountedElsewhere => {
                "the queue's limiter counts failures itself: restore them there, and the key without them"
            }
            Self::Full => {
                "the queue is full: add the key when others are done, wait for room, or give the queue \
                 a larger .bound(…)"
            }
        })
    }
}

impl core::error::Error for Refused {}

/// A trigger passed to [`Core::add`], which takes out of it what it keeps. The rest belongs to the caller, to
/// be dropped outside the lock, even if user code panicked.
#[derive(Debug)]
pub struct Trigger<K, V = ()> {
    pub(super) key: Option<K>,
    pub(super) value: Option<V>,
    pub(super) priority: i16,
}

impl<K, V> Trigger<K, V> {
    /// A trigger of a key, with or without a payload.
    #[inline]
    pub fn new(key: K, value: Option<V>) -> Self {
        Self { key: Some(key), value, priority: 0 }
    }

    /// Sets the priority: higher ones go first, and the default is 0.
    #[inline]
    #[must_use]
    pub fn priority(self, priority: i16) -> Self {
        Self { priority, ..self }
    }

    /// The key, until the queue has taken it.
    #[inline]
    pub fn key(&self) -> Option<&K> {
        self.key.as_ref()
    }

    /// The priority set by [`priority`](Self::priority).
    #[inline]
    pub fn said_priority(&self) -> i16 {
        self.priority
    }

    /// Takes out what the queue did not take: key and payload of a refused trigger, or a key that the queue
    /// already has.
    #[inline]
    pub fn take(&mut self) -> (Option<K>, Option<V>) {
        (self.key.take(), self.value.take())
    }

    /// Whether the queue has taken all of it.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.key.is_none() && self.value.is_none()
    }
}

/// An accepted trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its effect.
    pub added: Added,
    /// The delay, zero for an immediate trigger.
    pub delay: Duration,
    /// Identifies the key as long as the lock is held.
    pub ticket: Ticket,
}

impl Accepted {
    /// An accepted trigger that a shutdown dropped while its limiter was asked.
    pub(super) const DROPPED: Self =
        Self { added: Added::Waiting, delay: Duration::ZERO, ticket: Ticket::NONE };
}

/// Effect of a new timer on one that the key already has (rule D6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The earlier instant stays.
    #[default]
    Earliest,
    /// The later instant stays, but none later than `max` after the first such call: a debounce.
    Latest {
        /// Maximum time from the window's first trigger to the run.
        max: Duration,
    },
    /// The new instant replaces the old one.
    Replace,
    /// The old instant stays.
    Keep,
}

/// A built-in limiter as the state machine sees it: a function of the count.
#[derive(Clone, Copy)]
pub struct Limit<'a> {
    /// The delay of a key with this number of earlier failures. Must not panic.
    pub delay: &'a dyn Fn(u32, Instant) -> Duration,
    /// Whether the limiter counts at all.
    pub counts: bool,
    /// Time from the end of its last delay until a count expires.
    pub expire_after: Option<Duration>,
}

impl fmt::Debug for Limit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// The delay of a trigger.
#[derive(Clone, Copy, Debug)]
pub enum Delay<'a> {
    /// Now.
    Now,
    /// After this time; zero is now.
    After(Duration, Policy),
    /// At this instant; one that has passed is now.
    At(Instant, Policy),
    /// The delay of a limiter that uses the key's own count.
    Limited(Limit<'a>, Policy),
    /// The delay of a limiter that was asked outside the lock, see [`Core::ask`].
    Asked(Duration, Policy, Asking),
}

/// A limiter call in progress outside the lock: for a shutdown that comes meanwhile the trigger counts as a
/// waiting key.
#[derive(Clone, Copy, Debug)]
#[must_use = "to be handed back by the trigger it was taken for, or by `unask`"]
pub struct Asking {
    epoch: u64,
    /// A place is reserved for the trigger: see [`Core::ask_for`].
    pub(super) place: bool,
    /// The reading passed to the limiter: its delay counts from here, however long it takes.
    pub(super) at: Instant,
}

impl<K, V> Core<K, V> {
    /// Begins to ask a limiter outside the lock, for a trigger from outside or for the retry of the holder of
    /// `run`.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the trigger itself would be refused. Then nothing is asked.
    pub fn ask(&mut self, run: Option<&RunRef<K>>) -> Result<Asking, Refused> {
        match run {
            Some(run) if self.is_inert(run) => return Err(Refused::NotHeld),
            Some(run) if !self.accepts(true) => {
                self.refused_retries += 1;
                self.note_refusal(run.slot(), &super::How::Done);
                return Err(Refused::ShutDown);
            }
            Some(_) => {}
            None => self.admits_outside()?,
        }
        self.asking += 1;
        Ok(Asking { epoch: self.ask_epoch, place: false, at: self.now })
    }

    pub(super) fn admits_outside(&mut self) -> Result<(), Refused> {
        if !self.accepts(false) {
            self.refused += 1;
            return Err(Refused::ShutDown);
        }
        Ok(())
    }

    /// Ends the asking; false if a shutdown dropped the trigger meanwhile.
    pub fn unask(&mut self, asking: Asking) -> bool {
        let live = self.is_live(asking);
        if live {
            self.asking -= 1;
            self.leave_place(asking);
        } else {
            self.has_come_late();
        }
        live
    }

    /// Whether the trigger of this asking was not dropped by a shutdown.
    pub(super) fn is_live(&self, asking: Asking) -> bool {
        asking.epoch == self.ask_epoch
    }

    #[inline]
    pub(super) fn accepts(&self, holder: bool) -> bool {
        match self.phase {
            Phase::Open => true,
            Phase::Closed => holder,
            Phase::ShutDown => false,
        }
    }

    /// Plans the effect of a delay on the key's timer, without changing anything.
    pub(super) fn plan_timer(&self, slot: u32, from: Instant, delay: Duration, policy: Policy) -> TimerPlan {
        let new = from + delay;
        let old = self.own_due(slot);
        let mut window = None;
        let due = match (policy, old) {
            (Policy::Keep, Some(old)) => old,
            (Policy::Earliest, Some(old)) => old.min(new),
            (Policy::Latest { max }, _) => {
                let began = self.windows.get(slot).copied().flatten().unwrap_or(self.now);
                window = Some(began);
                latest(new, began, max, old)
            }
            (Policy::Replace | Policy::Earliest | Policy::Keep, _) => new,
        };
        TimerPlan { due, moved: old != Some(due), joins: old.is_some(), window }
    }

    /// Sets the key's timer as planned; false if it stays unchanged except for its priority.
    pub(super) fn set_timer(&mut self, slot: u32, plan: TimerPlan, priority: i16) -> bool {
        self.line.time(slot, priority, plan.joins);
        if plan.window.is_some() {
            *self.windows.entry(slot) = plan.window;
        } else if plan.moved {
            // the window was that of the timer which this one replaces
            if let Some(window) = self.windows.get_mut(slot) {
                *window = None;
            }
        }
        if plan.moved {
            self.time(slot, plan.due, 0);
        }
        plan.moved
    }

    /// Sets the timer of a key that was not known before.
    #[inline(always)]
    fn set_first_timer(&mut self, slot: u32, plan: TimerPlan, limited: bool, priority: i16) {
        self.line.time(slot, priority, false);
        if plan.window.is_some() {
            *self.windows.entry(slot) = plan.window;
        }
        self.time(slot, plan.due, if limited { BACKOFF } else { 0 });
    }

    /// The delay of a limiter whose count the queue keeps, for a key with these failures, and the record to
    /// make.
    #[inline]
    pub(super) fn ask_limit(&self, failures: u32, limit: Limit<'_>) -> (Duration, Option<Failed>) {
        let now = self.now;
        let delay = (limit.delay)(failures, now);
        let expire_after = limit.expire_after.or(self.expire_after);
        let expires = expire_after.map_or(Instant::NEVER, |after| now + delay + after);
        let failed = Failed { failures: failures.saturating_add(1), expires };
        (delay, limit.counts.then_some(failed))
    }

    /// Records that a limiter was asked.
    #[inline]
    pub(super) fn record(&mut self, slot: u32, failed: Option<Failed>) {
        if let Some(Failed { failures, expires }) = failed {
            let record = self.record_of(slot);
            record.failures = failures;
            record.expires = expires;
        }
    }

    /// Checks two other records before a record may be made, so that unused ones are freed faster than new
    /// ones are made. Must not be called while the current key is half changed.
    pub(super) fn expire_some(&mut self, limit: Limit<'_>) {
        if limit.counts && limit.expire_after.or(self.expire_after).is_some() {
            self.expire_one_record();
            self.expire_one_record();
        }
    }
}

/// The later of a timer's instants, but none later than `max` after the first such call.
pub(super) fn latest(new: Instant, began: Instant, max: Duration, old: Option<Instant>) -> Instant {
    new.min(began + max).max(old.unwrap_or(Instant::ORIGIN))
}

impl Delay<'_> {
    /// Whether it is immediate, and no limiter decides.
    fn is_now(&self, now: Instant) -> bool {
        match self {
            Self::Now => true,
            Self::After(delay, _) => delay.is_zero(),
            Self::At(at, _) => *at <= now,
            Self::Limited(..) | Self::Asked(..) => false,
        }
    }

    /// Whether a limiter decides the delay.
    fn is_limited(&self) -> bool {
        matches!(self, Self::Limited(..) | Self::Asked(..))
    }
}

/// The effect of a delay on a key's timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimerPlan {
    due: Instant,
    moved: bool,
    /// The key already has a timer.
    joins: bool,
    /// Start of the window of a timer that is pushed back.
    window: Option<Instant>,
}

impl TimerPlan {
    /// Like [`Core::plan_timer`], for a key that was not known before.
    #[inline]
    fn first(from: Instant, delay: Duration, policy: Policy, now: Instant) -> Self {
        let new = from + delay;
        match policy {
            Policy::Latest { max } => {
                Self { due: new.min(now + max), moved: true, joins: false, window: Some(now) }
            }
            Policy::Earliest | Policy::Replace | Policy::Keep => {
                Self { due: new, moved: true, joins: false, window: None }
            }
        }
    }

    /// Whether it makes the key due at once, without a timer.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.moved && self.due <= now
    }
}

/// The record to make after a limiter was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    failures: u32,
    expires: Instant,
}

/// A key to be looked up, and entered if it is not found.
struct Insertion<'a, K, E> {
    arena: &'a mut Arena<K>,
    line: &'a mut Line<K>,
    key: &'a mut Option<K>,
    hash: u32,
    enters: E,
}

/// How a key that is not found is entered.
trait InsertAs<K>: Copy {
    /// The number of its group, if that is asked for. User code: if it panics nothing has changed.
    #[inline(always)]
    fn group(self, _: &mut Line<K>, _: &Option<K>) -> u32 {
        0
    }

    /// The slot for it.
    #[inline(always)]
    fn vacant(self, _: &mut Line<K>, arena: &mut Arena<K>) -> Vacant<K> {
        arena.next_slot()
    }

    /// Its flags, and its place in line if it has one.
    fn enter(self, line: &mut Line<K>, arena: &mut Arena<K>, slot: u32, group: u32) -> (u32, Option<u32>);
}

/// Enters it without making it ready.
#[derive(Clone, Copy)]
struct Unready;

/// Enters it as ready, at the back of the line.
#[derive(Clone, Copy)]
struct Ready;

/// Enters it as ready at this time, with this priority, in a queue with priorities and without groups.
#[derive(Clone, Copy)]
struct ReadyAt(Instant, i16);

/// Enters it as ready at this time, with this priority, in a queue with groups. The group is given if it was
/// asked for already.
#[derive(Clone, Copy)]
struct ReadyInGroup(Instant, i16, Option<u32>);

impl<K> InsertAs<K> for Unready {
    #[inline(always)]
    fn enter(self, _: &mut Line<K>, _: &mut Arena<K>, _: u32, _: u32) -> (u32, Option<u32>) {
        (0, None)
    }
}

impl<K> InsertAs<K> for Ready {
    #[inline(always)]
    fn enter(self, line: &mut Line<K>, arena: &mut Arena<K>, slot: u32, _: u32) -> (u32, Option<u32>) {
        (READY, Some(line.enter_new(arena, slot)))
    }
}

impl<K> InsertAs<K> for ReadyAt {
    #[inline(always)]
    fn vacant(self, line: &mut Line<K>, arena: &mut Arena<K>) -> Vacant<K> {
        let home = if arena.len() > NEAR { line.levels_mut() } else { None };
        match home {
            Some((levels, _)) => arena.next_slot_in(levels.home_of(self.1)),
            None => arena.next_slot(),
        }
    }

    #[inline(always)]
    fn enter(self, line: &mut Line<K>, arena: &mut Arena<K>, slot: u32, _: u32) -> (u32, Option<u32>) {
        let Some((levels, known)) = line.levels_mut() else { return (READY, None) };
        (READY, Some(levels.enter(known, arena, slot, self.0, self.1)))
    }
}

impl<K> InsertAs<K> for ReadyInGroup {
    #[inline(always)]
    fn group(self, line: &mut Line<K>, key: &Option<K>) -> u32 {
        match (self.2, key) {
            (Some(group), _) => group,
            (None, Some(key)) => line.name_group(key),
            (None, None) => 0,
        }
    }

    #[inline(always)]
    fn enter(self, line: &mut Line<K>, _: &mut Arena<K>, slot: u32, group: u32) -> (u32, Option<u32>) {
        // not `and_then`, which would make a call of it
        let Some((fair, known)) = line.fair_mut() else { return (GROUPED | READY, None) };
        (GROUPED | READY, fair.enter_new(known, slot, group, self.0, self.1))
    }
}

impl<K: Eq, E: InsertAs<K>> Insert for Insertion<'_, K, E> {
    #[inline(always)]
    fn is_in(&self, slot: u32) -> bool {
        self.arena.matches(slot, self.hash, |known| self.key.as_ref() == Some(known))
    }

    #[inline(always)]
    fn enter(&mut self) -> u32 {
        let group = self.enters.group(self.line, self.key);
        let Some(key) = self.key.take() else { unreachable!("a trigger is handed in once") };
        let vacant = self.enters.vacant(self.line, self.arena);
        let slot = vacant.no();
        let (flags, place) = self.enters.enter(self.line, self.arena, slot, group);
        self.arena.fill(vacant, key, self.hash, flags, place);
        slot
    }
}

impl<K, E> Slots for Insertion<'_, K, E> {
    #[inline]
    fn hash(&self, slot: u32) -> u32 {
        self.arena.hash(slot)
    }
    #[inline]
    fn prefetch(&self, slot: u32) {
        self.arena.prefetch(slot);
    }
}

impl<K: Eq, V> Core<K, V> {
    /// Adds a trigger from outside.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the queue accepts no more triggers.
    ///
    /// # Panics
    ///
    /// If user code panics (`Eq`, merge, a user's order), and then the trigger is not accepted; or if
    /// `trigger` was passed in before.
    #[inline(always)]
    pub fn add(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        delay: Delay<'_>,
    ) -> Result<Accepted, Refused> {
        self.knows_priorities(trigger)?;
        match delay {
            Delay::Now => self.add_now(trigger, hash).map(|(added, ticket)| Accepted {
                added,
                delay: Duration::ZERO,
                ticket,
            }),
            _ => self.add_in_full(trigger, hash, delay),
        }
    }

    /// [`add`](Self::add) for an immediate trigger, with an answer that fits into registers. The caller must
    /// not pass a priority to a queue without priorities.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the queue accepts no more triggers.
    ///
    /// # Panics
    ///
    /// Like `add`.
    #[inline(always)]
    pub fn add_now(&mut self, trigger: &mut Trigger<K, V>, hash: u32) -> Result<(Added, Ticket), Refused> {
        // once the key is found or entered, no code of users' runs
        if !self.fast_add || !self.enters_at_once() {
            return self.add_now_in_full(trigger, hash);
        }
        let Trigger { key, value, .. } = trigger;
        let found = self.find_or_enter(key, hash, Ready);
        Ok(self.added_now(found, value))
    }

    /// Whether a new key that is added for now just becomes ready: its trigger opens no window, there is room for it, and nobody
    /// waits to hear of it. Of a known key [`trigger_known`](Self::trigger_known) says what else is to be done.
    #[inline(always)]
    fn enters_at_once(&self) -> bool {
        !self.add_needs_checks || self.enters_at_once_if_checked()
    }

    #[inline(never)]
    fn enters_at_once_if_checked(&self) -> bool {
        self.debounce.is_none() && self.in_backoff != InBackoff::Reset && self.has_room_at_once()
    }

    /// A trigger for now of a key that is known, on a queue where a new one [enters at once](Self::enters_at_once).
    #[inline]
    fn trigger_known(&mut self, slot: u32, value: &mut Option<V>, priority: i16) -> Added {
        match self.in_backoff {
            InBackoff::Run => self.trigger_now(slot, value, priority),
            in_backoff => {
                self.trigger_with_options(slot, value, Delay::Now, priority, false, in_backoff).added
            }
        }
    }

    /// A trigger that enters at once was looked for, and entered as ready where it was not found.
    #[inline(always)]
    fn added_now(&mut self, found: Found, value: &mut Option<V>) -> (Added, Ticket) {
        match found {
            Found::Known(slot) => (self.trigger_known(slot, value, 0), Ticket(slot)),
            Found::New(slot) => {
                self.entered_ready(slot);
                if value.is_some() {
                    self.merge_in(slot, value.take());
                }
                (Added::Ready, Ticket(slot))
            }
        }
    }

    /// Fast path of [`add_now`](Self::add_now) for a key without a payload, if the key's home bucket in the
    /// table decides whether it is known. Otherwise `None`, and nothing has changed. The trigger is passed to
    /// no call, so that it need not be in memory.
    ///
    /// # Panics
    ///
    /// Like `add`.
    #[inline(always)]
    pub fn try_add_fast(&mut self, trigger: &mut Trigger<K, V>, hash: u32) -> Option<(Added, Ticket)> {
        // once the key is found or entered, no code of users' runs
        if !self.fast_add || trigger.value.is_some() || !self.enters_at_once() {
            return None;
        }
        let (Self { table, arena, line, .. }, key) = (&mut *self, &mut trigger.key);
        let found = table.find_or_enter(&mut Insertion { arena, line, key, hash, enters: Ready }, hash)?;
        Some(self.added_now(found, &mut None))
    }

    #[inline]
    fn add_now_in_full(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
    ) -> Result<(Added, Ticket), Refused> {
        self.admits_outside()?;
        if self.line.enters_at_a_level() && self.enters_at_once() {
            return Ok(self.enter_by_priority(trigger, hash));
        }
        let Accepted { added, ticket, .. } = if self.add_needs_checks {
            self.enter_with_defaults(trigger, hash, Delay::Now, None, None)?
        } else {
            self.enter_in_full(trigger, hash, Delay::Now)
        };
        Ok((added, ticket))
    }

    /// [`add_now`](Self::add_now) on a queue with priorities or groups.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the queue accepts no more triggers.
    ///
    /// # Panics
    ///
    /// Like `add`.
    #[inline(always)]
    pub fn add_by_priority(&mut self, trigger: &mut Trigger<K, V>, hash: u32) -> Result<Added, Refused> {
        self.admits_outside()?;
        if !self.enters_at_once() {
            return Ok(self.add_now_in_full(trigger, hash)?.0);
        }
        Ok(self.enter_by_priority(trigger, hash).0)
    }

    /// Enters an admitted immediate trigger on a queue with priorities or groups. Once a new key has entered,
    /// no user code is called for it.
    #[inline(always)]
    fn enter_by_priority(&mut self, trigger: &mut Trigger<K, V>, hash: u32) -> (Added, Ticket) {
        let Trigger { key, value, priority } = trigger;
        let found = if let Some((fair, _)) = self.line.fair_mut() {
            let group = if self.arena.len() > NEAR {
                // its group is looked for while the table's line comes, and not after that
                self.table.prefetch(hash);
                if let Some(key) = key { fair.prefetch_group(key) } else { None }
            } else {
                None
            };
            self.find_or_enter(key, hash, ReadyInGroup(self.now, *priority, group))
        } else {
            self.find_or_enter(key, hash, ReadyAt(self.now, *priority))
        };
        // not `added_now` with a priority: that costs each add an instruction or two
        match found {
            Found::Known(slot) => {
                if let Some((fair, _)) = self.line.fair_mut() {
                    fair.was_known();
                }
                (self.trigger_known(slot, value, *priority), Ticket(slot))
            }
            Found::New(slot) => {
                self.entered_ready(slot);
                if self.times.is_some() {
                    self.line.count_new(*priority);
                }
                if value.is_some() {
                    self.merge_in(slot, value.take());
                }
                (Added::Ready, Ticket(slot))
            }
        }
    }

    /// Refuses a trigger with a priority on a queue without priorities.
    #[inline]
    pub(super) fn knows_priorities(&self, trigger: &Trigger<K, V>) -> Result<(), Refused> {
        if trigger.priority != 0 && !self.line.has_priorities() {
            return Err(Refused::NoPriorities);
        }
        Ok(())
    }

    #[inline(never)]
    fn add_in_full(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        delay: Delay<'_>,
    ) -> Result<Accepted, Refused> {
        if self.add_needs_checks {
            return self.add_with_defaults(trigger, hash, delay);
        }
        let Some(delay) = self.admit(delay)? else {
            return Ok(self.enter_dropped(trigger, hash, delay));
        };
        Ok(self.enter_in_full(trigger, hash, delay))
    }

    #[cold]
    #[inline(never)]
    fn add_with_defaults(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        delay: Delay<'_>,
    ) -> Result<Accepted, Refused> {
        let Some(delay) = self.admit(delay)? else {
            return Ok(self.enter_dropped(trigger, hash, delay));
        };
        self.enter_with_defaults(trigger, hash, delay, None, None)
    }

    /// Enters a trigger that the phase admits, with the queue's settings for options that the trigger leaves
    /// open.
    pub(super) fn enter_with_defaults(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        delay: Delay<'_>,
        in_backoff: Option<InBackoff>,
        debounce: Option<Debounce>,
    ) -> Result<Accepted, Refused> {
        let drops = self.room_for_trigger(trigger, hash)?;
        // a trigger through the limiter makes the back-off, and does not disturb it
        let the_queues = if delay.is_limited() { InBackoff::Run } else { self.in_backoff };
        let in_backoff = in_backoff.unwrap_or(the_queues);
        let debounce = debounce.or(self.debounce).filter(|on| on.is_on() && delay.is_now(self.now));
        let accepted = match debounce {
            Some(debounce) => self.enter_debounced(trigger, hash, in_backoff, debounce),
            None => self.enter_with_options(trigger, hash, delay, in_backoff),
        };
        self.has_entered(hash, drops);
        Ok(accepted)
    }

    /// Like [`room_for`](Self::room_for), for the key of a trigger.
    pub(super) fn room_for_trigger(
        &self,
        trigger: &Trigger<K, V>,
        hash: u32,
    ) -> Result<Option<u32>, Refused> {
        match (&self.bound, &trigger.key) {
            (Some(_), Some(key)) => self.room_for(key, hash),
            _ => Ok(None),
        }
    }

    /// Like [`add`](Self::add), with the trigger's own back-off policy.
    ///
    /// # Errors
    ///
    /// Like `add`.
    ///
    /// # Panics
    ///
    /// Like `add`.
    #[inline(never)]
    pub fn add_in_backoff(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        delay: Delay<'_>,
        in_backoff: InBackoff,
    ) -> Result<Accepted, Refused> {
        let Some(delay) = self.admit(delay)? else {
            return Ok(self.enter_dropped(trigger, hash, delay));
        };
        self.knows_priorities(trigger)?;
        self.enter_with_defaults(trigger, hash, delay, Some(in_backoff), None)
    }

    /// Fires the timer of the key whose trigger was accepted with this ticket, if the key is to run anyway: that run stands
    /// for the timer's (rule D6's `timers absorbed`, for one trigger).
    pub fn absorb_timer(&mut self, Ticket(slot): Ticket) {
        // a trigger that a shutdown dropped has no slot
        if Ticket(slot) == Ticket::NONE || self.arena.flags(slot) & (READY | DIRTY) == 0 {
            return;
        }
        match self.own_due(slot) {
            Some(due) if self.arena.flags(slot) & WINDOW == 0 => self.timer_fires(slot, due),
            Some(_) => _ = self.clear_timer(slot),
            None => {}
        }
    }

    /// Enters an admitted trigger without a back-off policy of its own.
    fn enter_in_full(&mut self, trigger: &mut Trigger<K, V>, hash: u32, delay: Delay<'_>) -> Accepted {
        self.enter(trigger, hash, delay, InBackoff::Run)
    }

    /// Enters an admitted trigger.
    #[inline(never)]
    fn enter_with_options(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        delay: Delay<'_>,
        in_backoff: InBackoff,
    ) -> Accepted {
        self.enter(trigger, hash, delay, in_backoff)
    }

    #[inline(always)]
    fn enter(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        delay: Delay<'_>,
        in_backoff: InBackoff,
    ) -> Accepted {
        if let Delay::Limited(limit, _) = delay {
            self.expire_some(limit);
        }
        let Trigger { key, value, priority } = trigger;
        match self.find_or_enter(key, hash, Unready) {
            Found::Known(slot) => {
                // for one that asked it, a limiter has forgotten before
                let resets = !delay.is_limited() && self.resets(slot, in_backoff);
                let accepted = self.trigger(slot, value, delay, *priority, false, in_backoff);
                if resets {
                    self.forget_elsewhere(key);
                }
                accepted
            }
            Found::New(slot) => {
                self.know(slot);
                self.suspect(Some(slot));
                self.trigger(slot, value, delay, *priority, true, in_backoff)
            }
        }
    }

    /// The slot of a key, which is entered if it is unknown.
    #[inline(always)]
    fn find_or_enter(&mut self, key: &mut Option<K>, hash: u32, enters: impl InsertAs<K>) -> Found {
        let Self { table, arena, line, .. } = self;
        match table.find_or_enter(&mut Insertion { arena, line, key, hash, enters }, hash) {
            Some(found) => found,
            None => self.find_or_enter_further(key, hash, enters),
        }
    }

    /// The slot of a key, which becomes known if it is unknown, and whether it was new.
    pub(super) fn find_or_know(&mut self, key: &mut Option<K>, hash: u32) -> (u32, bool) {
        match self.find_or_enter(key, hash, Unready) {
            Found::Known(slot) => (slot, false),
            Found::New(slot) => {
                self.know(slot);
                (slot, true)
            }
        }
    }

    #[inline(never)]
    fn find_or_enter_further(&mut self, key: &mut Option<K>, hash: u32, enters: impl InsertAs<K>) -> Found {
        let Self { table, arena, line, .. } = self;
        table.find_or_enter_further(&mut Insertion { arena, line, key, hash, enters }, hash)
    }

    /// Records that a key was entered as ready.
    #[inline(always)]
    fn entered_ready(&mut self, slot: u32) {
        self.ready += 1;
        self.counts.adds += 1;
        if let Some(times) = &mut self.times {
            times.triggered_ready(slot, self.now);
        }
    }

    /// Adds an immediate trigger from outside for a known key. `None` if it is unknown, or if the queue's
    /// triggers need more than this call can do; then nothing has changed.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the queue accepts no more triggers.
    #[inline]
    pub fn add_known<Q: Eq + ?Sized>(&mut self, key: &Q, hash: u32) -> Result<Option<Accepted>, Refused>
    where
        K: Borrow<Q>,
    {
        self.admits_outside()?;
        let Some(slot) = self.find(hash, key) else { return Ok(None) };
        if self.add_needs_checks
            && !(self.in_backoff == InBackoff::Run && self.debounce.is_none() && self.counts(slot))
        {
            return Ok(None);
        }
        let added = self.trigger_now(slot, &mut None, 0);
        Ok(Some(Accepted { added, delay: Duration::ZERO, ticket: Ticket(slot) }))
    }

    /// Whether the trigger is accepted, and the part of its delay still to decide; `None` if a shutdown
    /// dropped it while its limiter was asked.
    #[inline]
    fn admit<'a>(&mut self, delay: Delay<'a>) -> Result<Option<Delay<'a>>, Refused> {
        if let Delay::Asked(after, policy, asking) = delay {
            return Ok(self.unask(asking).then(|| self.answered(after, policy, asking)));
        }
        self.admits_outside().map(|()| Some(delay))
    }

    /// The delay of a trigger that was admitted before its limiter was asked. A drain that runs waiting keys
    /// now may have begun meanwhile.
    fn answered(&self, after: Duration, policy: Policy, asking: Asking) -> Delay<'static> {
        if self.phase == Phase::ShutDown { Delay::Now } else { Delay::Asked(after, policy, asking) }
    }

    /// Applies the trigger.
    #[inline(always)]
    pub(super) fn trigger(
        &mut self,
        slot: u32,
        value: &mut Option<V>,
        delay: Delay<'_>,
        priority: i16,
        new: bool,
        in_backoff: InBackoff,
    ) -> Accepted {
        match in_backoff {
            InBackoff::Run => self.trigger_running(slot, value, delay, priority, new),
            in_backoff => self.trigger_with_options(slot, value, delay, priority, new, in_backoff),
        }
    }

    #[inline]
    fn trigger_running(
        &mut self,
        slot: u32,
        value: &mut Option<V>,
        delay: Delay<'_>,
        priority: i16,
        new: bool,
    ) -> Accepted {
        self.trigger_as(slot, value, delay, priority, new, InBackoff::Run)
    }

    #[inline(never)]
    fn trigger_with_options(
        &mut self,
        slot: u32,
        value: &mut Option<V>,
        delay: Delay<'_>,
        priority: i16,
        new: bool,
        in_backoff: InBackoff,
    ) -> Accepted {
        self.trigger_as(slot, value, delay, priority, new, in_backoff)
    }

    /// Applies the trigger. Written once and compiled twice: most of it disappears if `in_backoff` is known
    /// to be [`Run`](InBackoff::Run). User code (merge, a user's order) runs before anything changes, so that
    /// its panic leaves the key unchanged.
    #[inline(always)]
    fn trigger_as(
        &mut self,
        slot: u32,
        value: &mut Option<V>,
        delay: Delay<'_>,
        priority: i16,
        new: bool,
        in_backoff: InBackoff,
    ) -> Accepted {
        let mut failed = None;
        let now = self.now;
        let limited = delay.is_limited();
        let immediate = match delay {
            Delay::Now => true,
            Delay::After(delay, _) => delay.is_zero(),
            Delay::At(..) | Delay::Asked(..) | Delay::Limited(..) => false,
        };
        let mut flags = 0;
        if !new {
            if !immediate {
                self.fire_if_due(slot);
            }
            flags = self.arena.flags(slot);
        }
        let resets = !new && self.resets(slot, in_backoff);
        let respects = in_backoff == InBackoff::Respect;
        // whatever its instant: the timer of a back-off is removed, and one that respects the beginning
        // back-off joins it
        let anew = new || resets && flags & BACKOFF != 0 || limited && flags & TIMER_RESPECTS != 0;
        let (from, delay, policy) = match delay {
            Delay::Now => (now, Duration::ZERO, Policy::Keep),
            Delay::After(delay, policy) => (now, delay, policy),
            Delay::At(at, policy) => (now, at.saturating_since(now), policy),
            Delay::Asked(delay, policy, asking) => (asking.at, delay, policy),
            Delay::Limited(limit, policy) => {
                // there are no failures of a key that was not known
                let failures = if limit.counts && !new && !resets { self.failures(slot) } else { 0 };
                let (delay, asked) = self.ask_limit(failures, limit);
                failed = asked;
                (now, delay, policy)
            }
        };
        let timer = if delay.is_zero() {
            None
        } else {
            let plan = if anew {
                // one that joins a back-off brings its priority
                let joins = limited && flags & TIMER_RESPECTS != 0;
                TimerPlan { joins, ..TimerPlan::first(from, delay, policy, now) }
            } else {
                self.plan_timer(slot, from, delay, policy)
            };
            (!plan.is_due(now)).then_some(plan)
        };
        let busy = flags & (READY | HELD) != 0;
        let added = match timer {
            timer if respects && flags & BACKOFF != 0 && (timer.is_some() || !busy) => {
                self.merge_in(slot, value.take());
                self.line.time(slot, priority, true);
                self.coalesced()
            }
            None if respects && flags & HELD != 0 => {
                self.merge_in(slot, value.take());
                if self.make_dirty_respecting(slot, now, priority) { Added::Dirty } else { self.coalesced() }
            }
            None => self.trigger_now(slot, value, priority),
            Some(plan) if new => {
                self.merge_in(slot, value.take());
                self.set_first_timer(slot, plan, limited, priority);
                Added::Waiting
            }
            Some(plan) => {
                self.merge_in(slot, value.take());
                let had = respects && !anew && self.own_due(slot).is_some();
                let moved = self.set_timer(slot, plan, priority);
                if limited || flags & (BACKOFF | TIMER_RESPECTS) != 0 || respects && busy {
                    self.timer_was_asked_for(
                        slot,
                        flags,
                        BackoffChange { moved, had, limited, respects: respects && !limited },
                    );
                }
                if moved { Added::Waiting } else { self.coalesced() }
            }
        };
        if resets {
            self.reset(slot, flags, timer.is_some());
            if limited && timer.is_some() {
                self.arena.set_flags(slot, self.arena.flags(slot) | BACKOFF);
            }
        }
        self.record(slot, failed);
        self.suspect(None);
        Accepted { added, delay, ticket: Ticket(slot) }
    }

    #[inline(never)]
    pub(super) fn trigger_now(&mut self, slot: u32, value: &mut Option<V>, priority: i16) -> Added {
        let flags = self.arena.flags(slot);
        if flags & HELD != 0 {
            self.merge_in(slot, value.take());
            if self.make_dirty(slot, self.now, priority) { Added::Dirty } else { self.coalesced() }
        } else if flags & READY != 0 {
            self.line.touch(&mut self.arena, slot);
            self.merge_in(slot, value.take());
            self.line.raise_to(&mut self.arena, slot, priority);
            self.coalesced()
        } else {
            self.line.announce(&mut self.arena, slot);
            self.merge_in(slot, value.take());
            self.restart_attempts(slot);
            self.make_ready(slot, self.now, priority);
            self.line.enter_announced(&mut self.arena, slot, self.now);
            Added::Ready
        }
    }

    /// Counts a trigger that changed nothing.
    #[inline]
    pub(super) fn coalesced(&mut self) -> Added {
        self.counts.coalesced += 1;
        Added::Coalesced
    }
}
