//! The ready line: the keys in it, and their order (rule B10).
//!
//! `ring.rs` is the line itself, `order.rs` the orders that users see, `levels.rs` the line of a queue with
//! priorities, `fair.rs` that of a queue with groups (`groups.rs` says which key is in which group). Both are
//! made of levels (`ranked.rs`) and of lists of keys (`ring.rs`, `keys.rs`), and `known.rs` is their state of
//! each key. `overdue.rs` says which keys have waited too long, `custom.rs` is a user's own order,
//! `pauses.rs` and `rate.rs` keep ready keys from being handed out.
//!
//! A key is in line from `enter` until `pop` or `leave`, in one of the lists, and its slot remembers where
//! (see [`Places`]). A ready key may be out of the line for a while. So [`servable`](Line::servable), not the
//! number of ready keys, says how many may be handed out.

mod ahead;
mod custom;
mod fair;
mod groups;
mod keys;
mod known;
mod levels;
mod order;
mod overdue;
mod pauses;
mod ranked;
mod rate;
mod ring;

pub use self::ahead::Ahead;
pub(crate) use self::fair::Fair;
use self::groups::PAGE;
pub use self::groups::{GroupGauges, GroupRules, Groups};
use self::known::Known;
use self::levels::Levels;
pub use self::order::{Order, ReadyOrder, Ticket};
pub use self::overdue::MaxWait;
pub(crate) use self::pauses::PAUSED;
pub use self::rate::Rate;

use self::ahead::STEPS;
pub(crate) use self::ahead::{ENTRY_AHEAD, SLOT_AHEAD};
use self::custom::Custom;
use self::known::LevelsOf;
use self::overdue::Overdue;
use self::pauses::Pauses;
use self::rate::Bucket;
use self::ring::Ring;
use crate::arena::{Arena, Marked};
use crate::slots::Places;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

/// The line.
///
/// A user's order may panic, and a timer that fires or a run that ends must not
/// fail because of it. So keys that become ready by those first wait in `ring`, and the
/// order is told of them at the next `add` or `get`, whose caller may see the panic.
#[repr(C)]
pub(crate) struct Line<K> {
    /// The line, first in, first out; or the keys that a user's order was not told of yet.
    ring: Ring,
    /// Chooses the next key, if that may be another than the one in front of `ring`.
    scheduler: Option<Box<Scheduler<K>>>,
}

struct Scheduler<K> {
    discipline: Discipline<K>,
    /// State of keys in addition to their places.
    known: Known,
    pauses: Pauses,
    /// The rate at which keys may be handed out.
    rate: Option<Bucket>,
}

// without `repr(u8)` the compiler stores the tag inside a field, and each test costs more instructions
#[repr(u8)]
enum Discipline<K> {
    /// Only while something is paused, or with a rate.
    Fifo,
    Lifo,
    Custom(Custom<K>),
    Levels(Box<Levels>),
    Fair(Box<Fair<K>>),
}

impl<K> Scheduler<K> {
    fn new(discipline: Discipline<K>, known: Known) -> Box<Self> {
        Box::new(Self { discipline, known, pauses: Pauses::new(), rate: None })
    }

    /// A scheduler that knows only the places of keys.
    fn plain(discipline: Discipline<K>) -> Box<Self> {
        Self::new(discipline, Known::new(false, None, false))
    }

    /// Whether the line would be the same without a scheduler.
    fn is_idle(&self) -> bool {
        matches!(self.discipline, Discipline::Fifo) && self.pauses.is_idle() && self.rate.is_none()
    }
}

impl<K> Line<K> {
    /// An `aged` line knows its oldest key, whatever the order. With `metrics`, the ready keys of each level
    /// are counted.
    pub(crate) fn new(order: Order<K>, rate: Option<Rate>, aged: bool, metrics: bool) -> Self {
        let mut scheduler = match order {
            Order::Fifo => None,
            Order::Lifo => Some(Scheduler::plain(Discipline::Lifo)),
            Order::Custom(order) => Some(Scheduler::plain(Discipline::Custom(Custom::new(order)))),
            Order::Priority { max_wait } => {
                let known = Known::new(true, max_wait.map(Overdue::from), aged);
                Some(Scheduler::new(Discipline::Levels(Levels::new()), known))
            }
            Order::Fair { groups, priorities, within, max_wait } => {
                // without priorities no key passes another one of its group
                let max_wait = max_wait.filter(|_| priorities).map(Overdue::from);
                let known = Known::new(priorities, max_wait, aged);
                let fair = Fair::new(groups.naming, &known, within && priorities);
                Some(Scheduler::new(Discipline::Fair(fair), known))
            }
        };
        if let Some(scheduler) = scheduler.as_deref_mut().filter(|_| metrics) {
            scheduler.known.counts_depths();
        }
        if let Some(rate) = rate {
            scheduler.get_or_insert_with(|| Scheduler::plain(Discipline::Fifo)).rate =
                Some(Bucket::new(rate));
        }
        Self { ring: Ring::default(), scheduler }
    }

    /// A user's order, if the line has one, and the keys that it was not told of.
    #[inline]
    fn custom(&mut self) -> Option<(&mut Custom<K>, &mut Ring)> {
        match self.scheduler.as_deref_mut() {
            Some(Scheduler { discipline: Discipline::Custom(custom), .. }) => Some((custom, &mut self.ring)),
            _ => None,
        }
    }

    /// State of keys in addition to their places, if any is kept.
    #[inline]
    fn known(&self) -> Option<&Known> {
        self.scheduler.as_deref().map(|scheduler| &scheduler.known)
    }

    /// The groups, if the queue has groups.
    #[inline]
    pub(crate) fn fair(&self) -> Option<&Fair<K>> {
        match self.scheduler.as_deref() {
            Some(Scheduler { discipline: Discipline::Fair(fair), .. }) => Some(fair),
            _ => None,
        }
    }

    /// [`fair`](Self::fair) and the state of keys, to be changed.
    #[inline]
    pub(crate) fn fair_mut(&mut self) -> Option<(&mut Fair<K>, &mut Known)> {
        match self.scheduler.as_deref_mut() {
            Some(Scheduler { discipline: Discipline::Fair(fair), known, .. }) => Some((fair, known)),
            _ => None,
        }
    }

    /// Whether triggers may have priorities.
    #[inline]
    pub(crate) fn has_priorities(&self) -> bool {
        self.known().is_some_and(Known::has_priorities)
    }

    /// Whether a new key enters with its priority or its group.
    #[inline]
    pub(crate) fn enters_at_a_level(&self) -> bool {
        matches!(
            self.scheduler.as_deref(),
            Some(Scheduler { discipline: Discipline::Levels(_) | Discipline::Fair(_), .. })
        )
    }

    fn rate(&self) -> Option<&Bucket> {
        self.scheduler.as_deref()?.rate.as_ref()
    }

    /// Lifts the rates of the line and of its groups. Returns `false` if there were none.
    pub(crate) fn lift_rate(&mut self) -> bool {
        let lifted = self.scheduler.as_deref_mut().and_then(|scheduler| scheduler.rate.take()).is_some();
        let of_groups = self.fair_mut().is_some_and(|(fair, _)| fair.lift_rates());
        self.tidy();
        lifted || of_groups
    }

    /// Changes the rate of the whole line, or ends it. The tokens stay, up to the new burst.
    pub(crate) fn set_rate(&mut self, rate: Option<Rate>, now: Instant) {
        let scheduler = self.scheduler.get_or_insert_with(|| Scheduler::plain(Discipline::Fifo));
        match (&mut scheduler.rate, rate) {
            (Some(bucket), Some(rate)) => bucket.set(rate, now),
            (bucket, rate) => *bucket = rate.map(Bucket::new),
        }
        self.tidy();
    }

    /// Changes after how long keys are overdue. Returns `false` if the line has no overdue keys.
    pub(crate) fn set_max_wait(&mut self, after: Duration) -> bool {
        let max_wait = self.scheduler.as_deref_mut().and_then(|all| all.known.max_wait.as_mut());
        max_wait.map(|max_wait| max_wait.set(after)).is_some()
    }

    /// The instant of the rate's next token, if keys are in line and no token is available now.
    #[inline]
    pub(crate) fn next_token(&self, now: Instant) -> Option<Instant> {
        let next = self.rate()?.next(now)?;
        (self.servable() > 0).then_some(next)
    }

    /// Whether the time at which a key enters the line matters: keys age, or groups wait for tokens.
    pub(crate) fn stamps_keys(&self) -> bool {
        self.known().is_some_and(|known| known.max_wait.is_some()) || self.fair().is_some_and(Fair::is_rated)
    }

    /// Whether the whole line has a rate.
    pub(crate) fn is_rated(&self) -> bool {
        self.rate().is_some()
    }

    /// Opens at most `most` groups that have a token again. Returns `true` if some are left.
    pub(crate) fn refill(&mut self, now: Instant, most: usize) -> bool {
        self.fair_mut().is_some_and(|(fair, _)| fair.refill(now, most))
    }

    /// Whether each key is in a group.
    #[inline]
    pub(crate) fn has_groups(&self) -> bool {
        self.fair().is_some()
    }

    /// Whether a group is paused.
    pub(crate) fn has_paused_groups(&self) -> bool {
        self.fair().is_some_and(Fair::has_paused_groups)
    }

    /// Pauses the key's group. Returns `false` if there are no groups. Calls user code. If it panics, nothing
    /// has changed, except what the next call repairs.
    pub(crate) fn pause_group(&mut self, key: &K, now: Instant) -> bool {
        self.fair_mut().map(|(fair, known)| fair.pause_group(key, known.clock.at(now))).is_some()
    }

    /// Lifts the pause of the key's group. Returns `false` if it was not paused. Calls user code. If it
    /// panics, nothing has changed.
    pub(crate) fn resume_group(&mut self, key: &K, now: Instant) -> bool {
        self.fair_mut().is_some_and(|(fair, known)| fair.resume_group(key, known.clock.at(now)))
    }

    /// Lifts the pause of the group that was paused first. Returns `false` if none is paused.
    pub(crate) fn lift_first_group(&mut self, now: Instant) -> bool {
        self.fair_mut().is_some_and(|(fair, known)| fair.lift_first_group(known.clock.at(now)))
    }

    /// Counts the end of a key's run in its group.
    #[inline]
    pub(crate) fn ended(&mut self, slot: u32) {
        if let Some((fair, _)) = self.fair_mut() {
            fair.ended(slot);
        }
    }

    /// The levels of a key's triggers; the default in a line without levels.
    #[inline]
    fn levels_of(&self, slot: u32) -> LevelsOf {
        if self.scheduler.is_some() { self.known_levels_of(slot) } else { LevelsOf::default() }
    }

    fn known_levels_of(&self, slot: u32) -> LevelsOf {
        self.known().and_then(|known| known.levels(slot)).copied().unwrap_or_default()
    }

    #[inline]
    fn levels_of_mut(&mut self, slot: u32) -> Option<&mut LevelsOf> {
        self.scheduler.as_deref_mut()?.known.levels_mut(slot)
    }

    /// Notes the priority of a key that becomes ready or dirty.
    #[inline]
    pub(crate) fn pend(&mut self, slot: u32, priority: i16) {
        if let Some(levels) = self.levels_of_mut(slot) {
            levels.pending = priority;
        }
    }

    /// Raises the key, which is ready or dirty, to this priority if it is higher.
    #[inline]
    pub(crate) fn raise_to(&mut self, arena: &mut Arena<K>, slot: u32, priority: i16) {
        if self.scheduler.is_some() {
            self.raise(arena, slot, priority);
        }
    }

    fn raise(&mut self, arena: &mut Arena<K>, slot: u32, priority: i16) {
        let is_paused_ready = self.is_paused_ready(arena, slot);
        let Some(Scheduler { discipline, known, .. }) = self.scheduler.as_deref_mut() else { return };
        let before = known.pending(slot);
        if priority <= before {
            return;
        }
        let stood = match discipline {
            Discipline::Levels(levels) => levels.raise(known, arena, slot, priority),
            Discipline::Fair(fair) => fair.raise(known, arena, slot, priority),
            Discipline::Fifo | Discipline::Lifo | Discipline::Custom(_) => false,
        };
        if let Some(levels) = known.levels_mut(slot).filter(|_| !stood) {
            levels.pending = priority;
        }
        if stood || is_paused_ready {
            known.count_depth(before, -1);
            known.count_depth(priority, 1);
        }
    }

    /// Notes the priority of the key's new timer, or of a trigger that `joins` its timer.
    #[inline]
    pub(crate) fn set_timer_priority(&mut self, slot: u32, priority: i16, joins: bool) {
        if let Some(levels) = self.levels_of_mut(slot) {
            levels.timer = if joins { priority.max(levels.timer) } else { priority };
        }
    }

    /// The priority of the key's timer.
    #[inline]
    pub(crate) fn timer_priority(&self, slot: u32) -> i16 {
        self.levels_of(slot).timer
    }

    /// Raises the priority of a retry of the key's run to this one, if it is higher.
    pub(crate) fn join_run(&mut self, slot: u32, priority: i16) {
        if let Some(levels) = self.levels_of_mut(slot) {
            levels.run = levels.run.max(priority);
        }
    }

    /// Adds the priority of the trigger that made the key dirty to its timer and to the retry of its run: the
    /// key is no longer dirty, and one of them follows.
    pub(crate) fn join_back_off(&mut self, slot: u32) {
        if let Some(levels) = self.levels_of_mut(slot) {
            levels.timer = levels.timer.max(levels.pending);
            levels.run = levels.run.max(levels.pending);
        }
    }

    /// The priority of the key's next run, while it is ready or dirty.
    pub(crate) fn pending_priority(&self, slot: u32) -> i16 {
        self.levels_of(slot).pending
    }

    /// The priority of the key's run.
    #[inline]
    pub(crate) fn run_priority(&self, slot: u32) -> i16 {
        self.levels_of(slot).run
    }

    /// Frees the state of the slots of a chunk that the arena freed.
    pub(crate) fn free_page(&mut self, chunk: u32) {
        let Some(scheduler) = self.scheduler.as_deref_mut() else { return };
        scheduler.pauses.free_page(chunk);
        scheduler.known.free_page(chunk);
        if let Discipline::Fair(fair) = &mut scheduler.discipline {
            fair.free_page(chunk);
        }
    }

    /// Pauses the whole line: no key is taken from it, and none in it ages.
    pub(crate) fn pause(&mut self, now: Instant) {
        let scheduler = self.scheduler.get_or_insert_with(|| Scheduler::plain(Discipline::Fifo));
        scheduler.pauses.queue = true;
        scheduler.known.clock.stop(now);
    }

    /// Lifts the pause of the whole line. Returns `false` if it was not paused.
    pub(crate) fn resume(&mut self, now: Instant) -> bool {
        let Some(scheduler) = self.scheduler.as_deref_mut() else { return false };
        let was = core::mem::replace(&mut scheduler.pauses.queue, false);
        scheduler.known.clock.go_on(now);
        self.tidy();
        was
    }

    /// Whether the whole line is paused.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.scheduler.as_deref().is_some_and(|scheduler| scheduler.pauses.queue)
    }

    /// Number of paused keys.
    #[inline]
    pub(crate) fn paused_keys(&self) -> usize {
        self.scheduler.as_deref().map_or(0, |scheduler| scheduler.pauses.count())
    }

    /// The key that was paused first.
    pub(crate) fn first_paused(&self) -> Option<u32> {
        self.scheduler.as_deref()?.pauses.first()
    }

    /// Pauses a key, which must be neither paused nor in line.
    pub(crate) fn pause_key(&mut self, arena: &mut Arena<K>, slot: u32, now: Instant, ready: bool) {
        let scheduler = self.scheduler.get_or_insert_with(|| Scheduler::plain(Discipline::Fifo));
        scheduler.pauses.insert(arena, slot, now);
        if ready {
            self.set_paused_ready(slot, true);
        }
    }

    /// Lifts the pause of a paused key. If the key is ready, the caller must enter it.
    pub(crate) fn resume_key(&mut self, arena: &mut Arena<K>, slot: u32) {
        self.set_paused_ready(slot, false);
        if let Some(scheduler) = self.scheduler.as_deref_mut() {
            scheduler.pauses.remove(arena, slot);
        }
        self.tidy();
    }

    /// Goes back to a plain line, if one is enough now.
    fn tidy(&mut self) {
        if self.scheduler.as_deref().is_some_and(Scheduler::is_idle) {
            self.scheduler = None;
        }
    }

    /// Enters a key that is ready `since` then, unless it is paused. Does not call user code.
    #[inline]
    pub(crate) fn enter(&mut self, arena: &mut Arena<K>, slot: u32, since: Instant) {
        if self.scheduler.is_none() {
            self.ring.push_back(arena, slot);
        } else {
            self.insert_scheduled(arena, slot, since);
        }
    }

    fn insert_scheduled(&mut self, arena: &mut Arena<K>, slot: u32, since: Instant) {
        let Some(Scheduler { discipline, known, pauses, .. }) = self.scheduler.as_deref_mut() else { return };
        if pauses.has(arena, slot) {
            return self.set_paused_ready(slot, true);
        }
        let level = known.pending(slot);
        known.count_depth(level, 1);
        match discipline {
            Discipline::Levels(levels) => {
                let place = levels.enter(known, arena, slot, since, level);
                arena.set_place(slot, place);
            }
            Discipline::Fair(fair) => fair.enter(known, arena, slot, since),
            Discipline::Fifo | Discipline::Lifo | Discipline::Custom(_) => self.ring.push_back(arena, slot),
        }
    }

    /// Enters a key that is being entered into the arena into a plain line. Returns its place, which is
    /// written into the arena with the key.
    #[inline(always)]
    pub(crate) fn insert_new(&mut self, arena: &mut Arena<K>, slot: u32) -> u32 {
        self.ring.push_unplaced(arena, slot)
    }

    /// Enters a key that has just become known and is ready now, in this group and with this priority. Must
    /// not be called with a user's order.
    #[inline(always)] // as `Core::trigger`
    pub(crate) fn insert_in_turn(
        &mut self,
        arena: &mut Arena<K>,
        slot: u32,
        group: u32,
        now: Instant,
        priority: i16,
    ) {
        let place = match self.scheduler.as_deref_mut() {
            Some(Scheduler { discipline: Discipline::Levels(levels), known, .. }) => {
                levels.enter(known, arena, slot, now, priority)
            }
            Some(Scheduler { discipline: Discipline::Fair(fair), known, .. }) => {
                let Some(place) = fair.insert_new(known, slot, group, now, priority) else { return };
                place
            }
            _ => self.ring.push_unplaced(arena, slot),
        };
        arena.set_place(slot, place);
    }

    /// The chunk in which a new key of this priority gets its slot, in a line with priorities and without groups.
    pub(crate) fn home_of(&mut self, priority: i16) -> Option<&mut u32> {
        match self.scheduler.as_deref_mut() {
            Some(Scheduler { discipline: Discipline::Levels(levels), .. }) => Some(levels.home_of(priority)),
            _ => None,
        }
    }

    /// Counts a new key of this priority that has entered the line, for metrics.
    pub(crate) fn count_new(&mut self, priority: i16) {
        if let Some(scheduler) = self.scheduler.as_deref_mut() {
            scheduler.known.count_depth(priority, 1);
        }
    }

    /// Enters a key that was announced.
    #[inline]
    pub(crate) fn insert_announced(&mut self, arena: &mut Arena<K>, slot: u32, since: Instant) {
        match self.scheduler.as_deref_mut() {
            Some(Scheduler { discipline: Discipline::Custom(custom), pauses, .. })
                if !pauses.has(arena, slot) =>
            {
                custom.enter(arena, slot);
            }
            _ => self.enter(arena, slot, since),
        }
    }

    /// Tells a user's order of a key that is about to enter, unless it is paused. If the order panics, the
    /// key must not enter.
    #[inline]
    pub(crate) fn announce(&mut self, arena: &mut Arena<K>, slot: u32) {
        let Some(Scheduler { discipline: Discipline::Custom(custom), pauses, .. }) =
            self.scheduler.as_deref_mut()
        else {
            return;
        };
        custom.tell(&mut self.ring, arena);
        if !pauses.has(arena, slot) {
            custom.announce(arena, slot);
        }
    }

    /// Tells a user's order that a key in line was triggered again.
    #[inline]
    pub(crate) fn touch(&mut self, arena: &mut Arena<K>, slot: u32) {
        if let Some((custom, news)) = self.custom() {
            custom.tell(news, arena);
            // the order does not know of a paused key
            if arena.place(slot).is_some() {
                custom.touch(arena, slot);
            }
        }
    }

    /// Whether the line is just first in, first out now.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.scheduler.is_none()
    }

    /// [`pop`](Self::pop) of a line that [is plain](Self::is_plain).
    #[inline(always)]
    pub(crate) fn pop_plain(&mut self) -> Option<u32> {
        self.ring.pop_front()
    }

    /// Takes the next key at this time, to start its run. Returns it with the run's priority. Its slot keeps
    /// its place until [`lend`](Arena::lend) hands the key out.
    #[inline]
    pub(crate) fn pop(&mut self, arena: &mut Arena<K>, now: Instant) -> Option<Marked> {
        if self.is_plain() { self.pop_plain().map(Marked::from) } else { self.pop_in_turn(arena, now) }
    }

    #[inline(never)]
    pub(crate) fn pop_in_turn(&mut self, arena: &mut Arena<K>, now: Instant) -> Option<Marked> {
        let Scheduler { discipline, known, pauses, rate } = self.scheduler.as_deref_mut()?;
        if pauses.queue {
            return None;
        }
        if let Some(rate) = rate {
            if rate.tokens(now) == 0 {
                return None;
            }
        }
        let at = match discipline {
            Discipline::Levels(levels) => levels.pop(known, arena, now)?,
            Discipline::Fair(fair) => fair.pop(known, now)?,
            Discipline::Fifo => self.ring.pop_front()?.into(),
            Discipline::Lifo => self.ring.pop_back()?.into(),
            Discipline::Custom(custom) => custom.pop(&mut self.ring, arena)?.into(),
        };
        if let Some(rate) = rate {
            rate.take(now);
        }
        known.count_depth(at.mark(), -1);
        Some(at)
    }

    /// The number of the group of a key that becomes known to a queue with groups. Calls user code. If it
    /// panics, nothing has changed.
    pub(crate) fn name_group(&mut self, key: &K) -> u32 {
        self.fair_mut().map_or(0, |(fair, _)| fair.name(key))
    }

    /// Has a user's order choose the next keys, at most `most`, before any of them is taken. They are handed
    /// out first, in the order of choice. If the order panics, those that it returned before stay chosen.
    /// Does nothing with any other order.
    pub(crate) fn choose(&mut self, arena: &mut Arena<K>, most: usize) {
        if let Some((custom, news)) = self.custom() {
            custom.choose(news, arena, most);
        }
    }

    /// Removes a key from the line. Returns `false` if it is not in line. A user's order that knows of the
    /// key is told first; if it panics, the key stays.
    pub(crate) fn leave(&mut self, arena: &mut Arena<K>, slot: u32) -> bool {
        if self.is_paused_ready(arena, slot) {
            self.set_paused_ready(slot, false);
            return false;
        }
        let Some(Scheduler { discipline, known, .. }) = self.scheduler.as_deref_mut() else {
            return self.ring.leave(arena, slot);
        };
        let stood = match discipline {
            Discipline::Levels(levels) => levels.leave(known, arena, slot),
            Discipline::Fair(fair) => fair.leave(known, arena, slot),
            Discipline::Custom(custom) => self.ring.leave(arena, slot) || custom.leave(arena, slot),
            Discipline::Fifo | Discipline::Lifo => self.ring.leave(arena, slot),
        };
        if stood {
            known.count_depth(known.pending(slot), -1);
        }
        stood
    }

    /// The key that has been in line longest. `None` if there is none, or with a user's order. A line with
    /// priorities or groups must be [aged](Self::new).
    pub(crate) fn oldest(&self) -> Option<u32> {
        match self.scheduler.as_deref() {
            Some(Scheduler { discipline: Discipline::Levels(_) | Discipline::Fair(_), known, .. }) => {
                known.oldest()
            }
            Some(Scheduler { discipline: Discipline::Custom(_), .. }) => None,
            Some(Scheduler { discipline: Discipline::Fifo | Discipline::Lifo, .. }) | None => {
                self.ring.front()
            }
        }
    }

    /// Number of keys before this one. `None` if it is not in line, or with groups or a user's order.
    pub(crate) fn ahead_of(&self, arena: &Arena<K>, slot: u32) -> Option<Ahead> {
        let in_ring = || {
            let (before, behind) = self.ring.around(arena, slot, STEPS)?;
            Some((before, behind, before + behind + 1 == self.ring.len()))
        };
        let fifo = || in_ring().map(|(before, _, exact)| (before, exact));
        let (ahead, exact) = match self.scheduler.as_deref() {
            None => fifo()?,
            Some(Scheduler { discipline, known, .. }) => match discipline {
                Discipline::Fifo => fifo()?,
                Discipline::Lifo => in_ring().map(|(_, behind, exact)| (behind, exact))?,
                Discipline::Levels(levels) => levels.ahead_of(known, arena, slot)?,
                Discipline::Custom(_) | Discipline::Fair(_) => return None,
            },
        };
        Some(Ahead { keys: ahead, exact })
    }

    /// Number of keys that may be handed out at this time.
    #[inline]
    pub(crate) fn servable_at(&self, now: Instant) -> usize {
        match self.scheduler.as_deref() {
            Some(Scheduler { rate: Some(rate), .. }) => self.servable().min(rate.tokens(now)),
            _ => self.servable(),
        }
    }

    /// Number of keys that may be handed out, without regard to the rate.
    #[inline]
    pub(crate) fn servable(&self) -> usize {
        let Some(Scheduler { discipline, pauses, .. }) = self.scheduler.as_deref() else {
            return self.ring.len();
        };
        if pauses.queue {
            return 0;
        }
        let elsewhere = match discipline {
            Discipline::Fifo | Discipline::Lifo => 0,
            Discipline::Custom(custom) => custom.len(),
            Discipline::Levels(levels) => levels.len(),
            Discipline::Fair(fair) => fair.servable(),
        };
        self.ring.len() + elsewhere
    }

    /// Prefetch hints: slots that are likely to be popped next. May contain invalid slot numbers. `None` if
    /// [`ahead_in_turns`](Self::ahead_in_turns) must be called instead.
    #[inline]
    pub(crate) fn ahead(&self) -> Option<&[u32]> {
        self.scheduler.is_none().then(|| self.ring.ahead())
    }

    /// Prefetch hints: two slots that will be handed out soon, the later one first; or invalid slot numbers.
    /// Prefetches the line's own state of them.
    #[inline]
    pub(crate) fn ahead_in_turns(&mut self) -> (u32, u32) {
        match self.scheduler.as_deref_mut() {
            Some(Scheduler { discipline: Discipline::Levels(levels), .. }) => levels.ahead(),
            Some(Scheduler { discipline: Discipline::Fair(fair), .. }) => fair.ahead(),
            _ => (u32::MAX, u32::MAX),
        }
    }

    /// Appends the levels from this rank on that have ready keys, and how many, as far as one lock hold
    /// looks. Returns the rank at which the next page begins.
    pub(crate) fn depths(&self, from: u32, into: &mut Vec<(i16, usize)>) -> Option<u32> {
        self.scheduler.as_deref()?.known.depths(from, PAGE as usize, into)
    }

    /// Notes whether a paused key is ready, and counts it in its level and group.
    fn set_paused_ready(&mut self, slot: u32, to: bool) {
        let Some(Scheduler { discipline, known, pauses, .. }) = self.scheduler.as_deref_mut() else { return };
        if pauses.set_ready(slot, to) {
            let by = if to { 1 } else { -1 };
            known.count_depth(known.pending(slot), by);
            if let Discipline::Fair(fair) = discipline {
                fair.count_paused_ready(slot, by);
            }
        }
    }

    /// Whether a key is paused and ready, and so not in line.
    fn is_paused_ready(&self, arena: &Arena<K>, slot: u32) -> bool {
        self.scheduler.as_deref().is_some_and(|scheduler| scheduler.pauses.is_ready(arena, slot))
    }

    /// Whether more than a push to the back of `ring` is needed for a key that becomes ready: a priority, a
    /// group, or a call of the user's order.
    #[inline]
    pub(crate) fn wants_more(&self) -> bool {
        self.enters_at_a_level() || self.is_custom()
    }

    /// Whether the order was written by the user.
    #[inline]
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.scheduler.as_deref(), Some(Scheduler { discipline: Discipline::Custom(_), .. }))
    }
}

#[cfg(test)]
#[path = "tests/line.rs"]
mod tests;
