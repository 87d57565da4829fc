//! Triggers from outside: the fast add, and everything else.
//!
//! ```text
//!   trigger ─► add_now         immediate, a plain line, no options: nothing else to be done
//!      ├─────► ready_or_find   immediate, any line but a user's order: a new key is ready as it is entered
//!      └─────► take_in         admitted? ─► room? ─► the key's slot, entered if it is new ─► apply, by debounce or by delay
//! ```
//!
//! The key is looked up once, and entered where it was looked for: the table calls back.
//!
//! ```text
//!   find_or_enter ─► Table::find_or_enter ─► Insertion::is_in    is it this slot's key?
//!                                       └──► Insertion::enter    no slot has it: takes a slot of the arena, and
//!                                                                puts that in line, as `InsertAs` says
//! ```

use super::answers::{Accepted, Added, Refused};
use super::backoff::BackoffChange;
use super::flags::{BACKOFF, GROUPED, HELD, READY, TIMER_RESPECTS};
use super::options::{Asking, Debounce, Delay, InBackoff, Limit, Policy, Trigger, TriggerOptions};
use super::state::{Core, NEAR, Phase};
use crate::arena::Arena;
use crate::line::{Line, Ticket};
use crate::slots::{Insert, Slots};
use crate::table::Found;
use core::borrow::Borrow;
use core::time::Duration;

/// A key to be looked up, and entered if it is not found.
struct Insertion<'a, K> {
    arena: &'a mut Arena<K>,
    line: &'a mut Line<K>,
    key: &'a mut Option<K>,
    hash: u32,
    how: InsertAs,
    /// The group of a key that was entered [`InGroup`](InsertAs::InGroup).
    group: u32,
}

/// How a key that is not found is entered.
#[derive(Clone, Copy)]
enum InsertAs {
    /// Without making it ready.
    Unready,
    /// Ready, at the back of a line without priorities and groups.
    Plain,
    /// Ready, with this priority. The caller puts it in line.
    AtLevel(i16),
    /// Ready, in its group, which is given if it was asked for already. The caller puts it in line.
    InGroup(Option<u32>),
}

impl<K: Eq> Insert for Insertion<'_, K> {
    #[inline(always)]
    fn is_in(&self, slot: u32) -> bool {
        self.arena.matches(slot, self.hash, |known| self.key.as_ref() == Some(known))
    }

    #[inline(always)]
    fn enter(&mut self) -> u32 {
        let (flags, home) = match self.how {
            InsertAs::Unready => (0, None),
            InsertAs::AtLevel(priority) if self.arena.len() > NEAR => (READY, self.line.home_of(priority)),
            InsertAs::Plain | InsertAs::AtLevel(_) => (READY, None),
            InsertAs::InGroup(named) => {
                // users' code: if it panics nothing has changed
                self.group = match (named, &self.key) {
                    (None, Some(key)) => self.line.name_group(key),
                    (named, _) => named.unwrap_or(0),
                };
                (READY | GROUPED, None)
            }
        };
        let Some(key) = self.key.take() else { unreachable!("a trigger is handed in once") };
        let vacant = match home {
            Some(chunk) => self.arena.next_slot_in(chunk),
            None => self.arena.next_slot(),
        };
        let slot = vacant.no();
        let place = match self.how {
            InsertAs::Plain => Some(self.line.insert_new(self.arena, slot)),
            InsertAs::Unready | InsertAs::AtLevel(_) | InsertAs::InGroup(_) => None,
        };
        self.arena.fill(vacant, key, self.hash, flags, place);
        slot
    }
}

impl<K> Slots for Insertion<'_, K> {
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
    /// The fast add: an immediate trigger without options, on a queue whose line is plain. On any other queue `None`: nothing
    /// has changed, and the caller calls [`trigger`](Self::trigger). The answer fits into registers.
    ///
    /// # Panics
    ///
    /// Like `trigger`.
    #[inline(always)]
    pub fn add_now(&mut self, trigger: &mut Trigger<K, V>, hash: u32) -> Option<(Added, Ticket)> {
        if !self.fast_add || self.add_needs_checks && !self.makes_ready(self.in_backoff) {
            return None;
        }
        debug_assert!(trigger.value.is_none(), "it is for `trigger`");
        // once the key is found or entered, no code of users' runs
        match self.find_or_enter(&mut trigger.key, hash, InsertAs::Plain).0 {
            Found::New(slot) => {
                self.count_ready(slot, 0);
                Some((Added::Ready, Ticket(slot)))
            }
            Found::Known(slot) if self.in_backoff == InBackoff::Run => {
                Some((self.make_pending(slot, &mut None, 0), Ticket(slot)))
            }
            Found::Known(slot) => {
                let options = &TriggerOptions::NOW;
                let accepted = self.apply(slot, trigger, options, &Limit::NONE, self.in_backoff, false);
                Some((accepted.added, Ticket(slot)))
            }
        }
    }

    /// Adds a trigger from outside, with its options. `limit` is the queue's limiter, for a trigger whose delay it decides.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the queue accepts no more triggers or is full, or if it has no priorities and the trigger has one.
    ///
    /// # Panics
    ///
    /// If user code panics (`Eq`, merge, a group's function, a user's order), and then the trigger is not accepted; or if
    /// `trigger` was passed in before.
    #[inline(always)] // a call of it costs a trigger with a priority or a group 40 instructions of 350
    pub fn trigger(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        options: &TriggerOptions,
        limit: &Limit<'_>,
    ) -> Result<Accepted, Refused> {
        if self.fast_add && options.is_plain() && trigger.value.is_none() {
            if let Some((added, ticket)) = self.add_now(trigger, hash) {
                return Ok(Accepted { added, delay: Duration::ZERO, ticket });
            }
        }
        let in_backoff = options.in_backoff.unwrap_or(self.in_backoff);
        if self.enters_ready && options.is_immediate() && self.makes_ready(in_backoff) {
            self.knows_priorities(options)?;
            return Ok(self.ready_or_find(trigger, hash, options, in_backoff));
        }
        self.take_in(trigger, hash, options, limit)
    }

    /// [`trigger`](Self::trigger), for one that mostly has a delay.
    ///
    /// # Errors
    ///
    /// Like `trigger`.
    ///
    /// # Panics
    ///
    /// Like `trigger`.
    #[inline(never)]
    pub fn take_in(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        options: &TriggerOptions,
        limit: &Limit<'_>,
    ) -> Result<Accepted, Refused> {
        self.knows_priorities(options)?;
        let at_once;
        let mut options = options;
        if let Delay::Asked(.., asking) = options.delay {
            // it was admitted before its limiter was asked
            if !self.unask(asking) {
                return Ok(self.list_late(trigger, hash, options));
            }
            if self.phase == Phase::ShutDown {
                // a drain that runs waiting keys now has begun meanwhile
                at_once = TriggerOptions { delay: Delay::Now, ..*options };
                options = &at_once;
            }
        } else {
            self.admits_outside()?;
        }
        let is_limited = options.delay.is_limited();
        // a trigger through the limiter makes the back-off, and does not disturb it
        let by_default = if is_limited { InBackoff::Run } else { self.in_backoff };
        let in_backoff = options.in_backoff.unwrap_or(by_default);
        let debounces = options.debounce.is_some() || self.debounce.is_some();
        let debounce = if debounces { self.debounce_of(options) } else { None };
        let drops = self.room_for_trigger(trigger, hash)?;
        if is_limited {
            self.expire_some(limit);
        }
        let (slot, new) = self.find_or_know(&mut trigger.key, hash);
        if new {
            self.suspect(Some(slot));
        }
        // a limiter that was asked has forgotten before
        let resets = !new && !is_limited && self.resets(slot, in_backoff);
        let accepted = match debounce {
            Some(debounce) => {
                self.debounce(slot, &mut trigger.value, options.priority, in_backoff, debounce, new)
            }
            None => self.apply(slot, trigger, options, limit, in_backoff, new),
        };
        if resets {
            self.forget_elsewhere(&mut trigger.key);
        }
        if options.absorbs {
            self.absorb_timer(slot);
        }
        self.note_trigger_entered(hash, drops);
        Ok(accepted)
    }

    /// The debounce of a trigger, its own or the queue's, if that is on and the trigger is immediate.
    fn debounce_of(&self, options: &TriggerOptions) -> Option<Debounce> {
        let debounce = options.debounce.or(self.debounce);
        debounce.filter(|on| on.is_on() && options.delay.is_now(self.now))
    }

    /// Adds an immediate trigger. If its key is new it becomes ready as it is entered, and no user code but merge is called
    /// for it after that.
    #[inline(always)] // as `trigger`
    fn ready_or_find(
        &mut self,
        trigger: &mut Trigger<K, V>,
        hash: u32,
        options: &TriggerOptions,
        in_backoff: InBackoff,
    ) -> Accepted {
        let (Trigger { key, .. }, priority) = (&mut *trigger, options.priority);
        let how = match (self.line.fair_mut(), &key) {
            (Some((fair, _)), Some(key)) if self.arena.len() > NEAR => {
                // its group is looked for while the table's line comes, and not after that
                self.table.prefetch(hash);
                InsertAs::InGroup(fair.prefetch_group(key))
            }
            (Some(_), _) => InsertAs::InGroup(None),
            (None, _) => InsertAs::AtLevel(priority),
        };
        let (found, group) = self.find_or_enter(key, hash, how);
        match found {
            Found::New(slot) => {
                self.line.insert_in_turn(&mut self.arena, slot, group, self.now, priority);
                self.count_ready(slot, priority);
                self.merge_in(slot, trigger.value.take());
                Accepted { added: Added::Ready, delay: Duration::ZERO, ticket: Ticket(slot) }
            }
            Found::Known(slot) => {
                if let Some((fair, _)) = self.line.fair_mut() {
                    fair.was_known();
                }
                let accepted = match in_backoff {
                    InBackoff::Run => {
                        let added = self.make_pending(slot, &mut trigger.value, priority);
                        Accepted { added, delay: Duration::ZERO, ticket: Ticket(slot) }
                    }
                    in_backoff => self.apply(slot, trigger, options, &Limit::NONE, in_backoff, false),
                };
                if options.absorbs {
                    self.absorb_timer(slot);
                }
                accepted
            }
        }
    }

    /// Adds an immediate trigger from outside for a known key, by reference. `None` if the key is unknown, or if the
    /// queue's triggers need more than this call can do; then nothing has changed.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the queue accepts no more triggers.
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
        let added = self.make_pending(slot, &mut None, 0);
        Ok(Some(Accepted { added, delay: Duration::ZERO, ticket: Ticket(slot) }))
    }

    /// Whether a new key of an immediate trigger just becomes ready: there is room for it, and no window or reset is to be
    /// looked at.
    fn makes_ready(&self, in_backoff: InBackoff) -> bool {
        self.debounce.is_none() && in_backoff != InBackoff::Reset && self.has_room_at_once()
    }

    /// Refuses a trigger with a priority on a queue without priorities.
    pub(super) fn knows_priorities(&mut self, options: &TriggerOptions) -> Result<(), Refused> {
        if options.priority == 0 || self.line.has_priorities() {
            return Ok(());
        }
        if let Delay::Asked(.., asking) = options.delay {
            self.unask(asking);
        }
        Err(Refused::NoPriorities)
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

    /// The slot of a key, which becomes known if it is unknown, and whether it was new.
    pub(super) fn find_or_know(&mut self, key: &mut Option<K>, hash: u32) -> (u32, bool) {
        match self.find_or_enter(key, hash, InsertAs::Unready).0 {
            Found::Known(slot) => (slot, false),
            Found::New(slot) => {
                self.know(slot);
                (slot, true)
            }
        }
    }

    /// The slot of a key, which is entered if it is unknown, and then its group, if it has one.
    #[inline(always)]
    fn find_or_enter(&mut self, key: &mut Option<K>, hash: u32, how: InsertAs) -> (Found, u32) {
        let Self { table, arena, line, .. } = self;
        let mut insertion = Insertion { arena, line, key, hash, how, group: 0 };
        match table.find_or_enter(&mut insertion, hash) {
            Some(found) => (found, insertion.group),
            None => self.find_or_enter_slowly(key, hash, how),
        }
    }

    /// Slow path of [`find_or_enter`](Self::find_or_enter), whose insertion stays in registers that way.
    fn find_or_enter_slowly(&mut self, key: &mut Option<K>, hash: u32, how: InsertAs) -> (Found, u32) {
        let Self { table, arena, line, .. } = self;
        let mut insertion = Insertion { arena, line, key, hash, how, group: 0 };
        let found = table.find_or_enter_slowly(&mut insertion, hash);
        (found, insertion.group)
    }

    /// Applies a trigger to the key in this slot, which it has made known if it is `new`. User code (merge, a user's
    /// order) runs before anything changes, so that its panic leaves the key unchanged.
    pub(super) fn apply(
        &mut self,
        slot: u32,
        trigger: &mut Trigger<K, V>,
        options: &TriggerOptions,
        limit: &Limit<'_>,
        in_backoff: InBackoff,
        new: bool,
    ) -> Accepted {
        let (value, TriggerOptions { delay, priority, .. }) = (&mut trigger.value, options);
        let (now, priority, limited) = (self.now, *priority, delay.is_limited());
        if !new && !delay.is_none() {
            self.fire_if_due(slot);
        }
        let flags = if new { 0 } else { self.arena.flags(slot) };
        let resets = !new && self.resets(slot, in_backoff);
        let respects = in_backoff == InBackoff::Respect;
        let mut failed = None;
        let (from, delay, policy) = match *delay {
            Delay::Now => (now, Duration::ZERO, Policy::Keep),
            Delay::After(delay, policy) => (now, delay, policy),
            Delay::At(at, policy) => (now, at.saturating_since(now), policy),
            Delay::Asked(delay, policy, Asking { at, .. }) => (at, delay, policy),
            Delay::Limited(policy) => {
                // there are no failures of a key that was not known
                let failures = if limit.counts && !new && !resets { self.failures(slot) } else { 0 };
                let (delay, asked) = self.ask_limit(failures, limit);
                failed = asked;
                (now, delay, policy)
            }
        };
        // whatever its instant: the timer of a back-off is removed, and one that respects the beginning
        // back-off joins it
        let joins = limited && flags & TIMER_RESPECTS != 0;
        let anew = new || joins || resets && flags & BACKOFF != 0;
        let timer = if delay.is_zero() {
            None
        } else {
            let old = if anew { None } else { self.own_due(slot) };
            let mut plan = self.plan_timer(slot, old, from, delay, policy);
            plan.joins |= joins;
            (!plan.is_due(now)).then_some(plan)
        };
        let busy = flags & (READY | HELD) != 0;
        let added = match timer {
            timer if respects && flags & BACKOFF != 0 && (timer.is_some() || !busy) => {
                self.merge_in(slot, value.take());
                self.line.set_timer_priority(slot, priority, true);
                self.coalesced()
            }
            None if respects && flags & HELD != 0 => {
                self.merge_in(slot, value.take());
                if self.make_dirty_respecting(slot, now, priority) { Added::Dirty } else { self.coalesced() }
            }
            None => self.make_pending(slot, value, priority),
            Some(plan) => {
                self.merge_in(slot, value.take());
                let had = respects && !anew && self.own_due(slot).is_some();
                let moved = self.set_timer(slot, plan, priority);
                if limited || flags & (BACKOFF | TIMER_RESPECTS) != 0 || respects && busy {
                    let respects = respects && !limited;
                    self.timer_was_asked_for(slot, flags, BackoffChange { moved, had, limited, respects });
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
        self.store_failures(slot, failed);
        self.suspect(None);
        Accepted { added, delay, ticket: Ticket(slot) }
    }

    /// Makes a known key ready, or dirty if it is held. User code runs before anything changes.
    pub(super) fn make_pending(&mut self, slot: u32, value: &mut Option<V>, priority: i16) -> Added {
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
            self.line.insert_announced(&mut self.arena, slot, self.now);
            Added::Ready
        }
    }

    /// Counts a key that was entered as ready, with this priority.
    #[inline]
    fn count_ready(&mut self, slot: u32, priority: i16) {
        self.ready += 1;
        self.counts.adds += 1;
        if let Some(times) = &mut self.times {
            times.triggered_ready(slot, self.now);
            self.line.count_new(priority);
        }
    }

    /// Counts a trigger that changed nothing.
    #[inline]
    pub(super) fn coalesced(&mut self) -> Added {
        self.counts.coalesced += 1;
        Added::Coalesced
    }
}
