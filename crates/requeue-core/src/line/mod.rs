//! The ready line: who stands in it, and who goes next (rule B10).
//!
//! `ring.rs` is the line itself, `order.rs` what users see of its orders, `levels.rs` the
//! line of a queue with priorities, `fair.rs` that of a queue with groups (`groups.rs` says which
//! key is in which), `overdue.rs` which keys have waited too long, `custom.rs` an order of users' own,
//! `pauses.rs` and `rate.rs` what keeps ready keys from being handed out, `tell.rs` what metrics are told.
//!
//! A key stands in the line from `enter` until it is popped or `leave`s, in one of
//! the rings, and its slot remembers where (see [`Places`]). That is less than to be ready: a
//! key can be ready and stand in no line for a while. So what may be handed out is
//! [`servable`](Line::servable), and not how many are ready.

mod ahead;
mod custom;
mod fair;
mod groups;
mod levels;
mod order;
mod overdue;
mod pauses;
mod rate;
mod ring;
mod tell;

pub use self::ahead::Ahead;
pub(crate) use self::fair::Fair;
pub use self::groups::{GroupRules, Groups};
pub use self::order::{Order, ReadyOrder, Ticket};
pub use self::overdue::MaxWait;
pub(crate) use self::pauses::PAUSED;
pub use self::rate::Rate;
pub use self::tell::GroupGauges;

use self::ahead::STEPS;
use self::custom::Custom;
use self::fair::Rules;
use self::levels::{Asked, Levels};
use self::overdue::{AgeClock, Overdue};
use self::pauses::Pauses;
use self::rate::Bucket;
use self::ring::Ring;
use crate::Instant;
use crate::arena::{Arena, Marked};
use crate::slots::Places;
use alloc::boxed::Box;

/// So many keys before a key is handed out its slot is prefetched, and its entry in the table.
pub(crate) const SLOT_AHEAD: usize = 8;
pub(crate) const ENTRY_AHEAD: usize = 4;

/// The line.
///
/// A user's order may panic, and a timer that fires or a run that ends must not
/// fail because of it. So keys that become ready by those first wait in `ring`, and the
/// order is told of them at the next `add` or `get`, whose caller may see the panic.
#[repr(C)]
pub(crate) struct Line<K> {
    /// The line, those that came first in front; or what a user's order was not told yet.
    ring: Ring,
    /// Who goes next, if that may be another than the one in front of `ring`.
    turns: Option<Box<Turns<K>>>,
}

struct Turns<K> {
    kind: Kind<K>,
    pauses: Pauses,
    /// How many keys a second may be handed out.
    rate: Option<Bucket>,
}

// without `repr(u8)` the compiler stores the tag inside a field, and each test costs more instructions
#[repr(u8)]
enum Kind<K> {
    /// There only while something is paused, or with a rate.
    Fifo,
    Lifo,
    Custom(Custom<K>),
    Levels(Box<Levels>),
    Fair(Box<Fair<K>>),
}

impl<K> Kind<K> {
    /// The clock by which all keys age, if they do.
    fn age_clock(&mut self) -> Option<&mut AgeClock> {
        match self {
            Self::Levels(levels) => Some(levels.age_clock()),
            Self::Fair(fair) => Some(fair.age_clock()),
            Self::Fifo | Self::Lifo | Self::Custom(_) => None,
        }
    }
}

impl<K> Turns<K> {
    fn new(kind: Kind<K>) -> Box<Self> {
        Box::new(Self { kind, pauses: Pauses::new(), rate: None })
    }

    /// Whether all goes as in a line that has none of this.
    fn is_idle(&self) -> bool {
        matches!(self.kind, Kind::Fifo) && self.pauses.is_idle() && self.rate.is_none()
    }
}

impl<K> Line<K> {
    /// An `aged` line knows its oldest key, whatever the order.
    pub(crate) fn new(order: Order<K>, rate: Option<Rate>, aged: bool) -> Self {
        let mut turns = match order {
            Order::Fifo => None,
            Order::Lifo => Some(Turns::new(Kind::Lifo)),
            Order::Custom(order) => Some(Turns::new(Kind::Custom(Custom::new(order)))),
            Order::Priority { max_wait } => {
                Some(Turns::new(Kind::Levels(Levels::new(max_wait.map(Overdue::from), aged))))
            }
            Order::Fair { groups, priorities, within, max_wait } => {
                let max_wait = max_wait.map(Overdue::from);
                Some(Turns::new(Kind::Fair(Fair::new(groups, Rules { priorities, within, max_wait, aged }))))
            }
        };
        if let Some(rate) = rate {
            turns.get_or_insert_with(|| Turns::new(Kind::Fifo)).rate = Some(Bucket::new(rate));
        }
        Self { ring: Ring::default(), turns }
    }

    /// A user's order, if it is that, and those that it was not told of.
    #[inline]
    fn custom(&mut self) -> Option<(&mut Custom<K>, &mut Ring)> {
        match self.turns.as_deref_mut() {
            Some(Turns { kind: Kind::Custom(custom), .. }) => Some((custom, &mut self.ring)),
            _ => None,
        }
    }

    /// The keys by priority, if the queue has priorities.
    #[inline]
    fn levels(&self) -> Option<&Levels> {
        match self.turns.as_deref() {
            Some(Turns { kind: Kind::Levels(levels), .. }) => Some(levels),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn levels_mut(&mut self) -> Option<&mut Levels> {
        match self.turns.as_deref_mut() {
            Some(Turns { kind: Kind::Levels(levels), .. }) => Some(levels),
            _ => None,
        }
    }

    /// The groups, if the queue has groups.
    #[inline]
    pub(crate) fn fair(&self) -> Option<&Fair<K>> {
        match self.turns.as_deref() {
            Some(Turns { kind: Kind::Fair(fair), .. }) => Some(fair),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn fair_mut(&mut self) -> Option<&mut Fair<K>> {
        match self.turns.as_deref_mut() {
            Some(Turns { kind: Kind::Fair(fair), .. }) => Some(fair),
            _ => None,
        }
    }

    /// Whether triggers may have priorities.
    #[inline]
    pub(crate) fn has_priorities(&self) -> bool {
        self.levels().is_some() || self.fair().is_some_and(|fair| fair.rules().priorities)
    }

    /// Whether a key that is new enters with its priority.
    #[inline]
    pub(crate) fn enters_at_a_level(&self) -> bool {
        self.levels().is_some() || self.fair().is_some()
    }

    fn rate(&self) -> Option<&Bucket> {
        self.turns.as_deref()?.rate.as_ref()
    }

    /// There is no rate from now on; false if there was none.
    pub(crate) fn lift_rate(&mut self) -> bool {
        let lifted = self.turns.as_deref_mut().and_then(|turns| turns.rate.take()).is_some();
        let of_groups = self.fair_mut().is_some_and(Fair::lift_rates);
        self.tidy();
        lifted || of_groups
    }

    /// When the rate lets the next key go, where one could go but for it.
    #[inline]
    pub(crate) fn next_token(&self, now: Instant) -> Option<Instant> {
        let next = self.rate()?.next(now)?;
        (self.servable() > 0).then_some(next)
    }

    /// Whether who goes next, or whether anybody may, depends on the time.
    pub(crate) fn is_timed(&self) -> bool {
        self.rate().is_some()
            || self.levels().is_some_and(|levels| levels.max_wait().is_some())
            || self.fair().is_some_and(|fair| fair.rules().max_wait.is_some() || fair.is_rated())
    }

    /// Time has passed: lets groups be served that have a token again, so many of them; true if some
    /// are left.
    pub(crate) fn refill(&mut self, now: Instant, most: usize) -> bool {
        self.fair_mut().is_some_and(|fair| fair.refill(now, most))
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

    /// The run of a key has ended.
    #[inline]
    pub(crate) fn ended(&mut self, slot: u32) {
        if let Some(fair) = self.fair_mut() {
            fair.ended(slot);
        }
    }

    /// The levels at which a key is asked for, in a line that knows of levels.
    #[inline]
    fn asked(&self, slot: u32) -> Asked {
        if self.turns.is_some() { self.known_asked(slot) } else { Asked::default() }
    }

    #[inline(never)]
    fn known_asked(&self, slot: u32) -> Asked {
        let asked = match self.turns.as_deref() {
            Some(Turns { kind: Kind::Levels(levels), .. }) => levels.asked(slot),
            Some(Turns { kind: Kind::Fair(fair), .. }) => fair.asked(slot),
            _ => None,
        };
        asked.copied().unwrap_or_default()
    }

    #[inline]
    fn asked_mut(&mut self, slot: u32) -> Option<&mut Asked> {
        if self.turns.is_some() { self.asked_in_turns(slot) } else { None }
    }

    #[inline(never)]
    fn asked_in_turns(&mut self, slot: u32) -> Option<&mut Asked> {
        match self.turns.as_deref_mut() {
            Some(Turns { kind: Kind::Levels(levels), .. }) => Some(levels.asked_mut(slot)),
            Some(Turns { kind: Kind::Fair(fair), .. }) => fair.asked_mut(slot),
            _ => None,
        }
    }

    /// The key becomes ready or dirty, with this priority.
    #[inline]
    pub(crate) fn pend(&mut self, slot: u32, priority: i16) {
        if let Some(asked) = self.asked_mut(slot) {
            asked.pending = priority;
        }
    }

    /// The key, which is ready or dirty, was asked for with this priority too.
    #[inline]
    pub(crate) fn raise_to(&mut self, arena: &mut Arena<K>, slot: u32, priority: i16) {
        if self.turns.is_some() {
            self.raise_in_turns(arena, slot, priority);
        }
    }

    #[inline(never)]
    fn raise_in_turns(&mut self, arena: &mut Arena<K>, slot: u32, priority: i16) {
        if self.is_aside(arena, slot) {
            // it is counted at its level
            self.set_aside(slot, false);
            if let Some(asked) = self.asked_in_turns(slot) {
                asked.pending = asked.pending.max(priority);
            }
            return self.set_aside(slot, true);
        }
        match self.turns.as_deref_mut() {
            Some(Turns { kind: Kind::Levels(levels), .. }) => levels.raise(arena, slot, priority),
            Some(Turns { kind: Kind::Fair(fair), .. }) => fair.raise(arena, slot, priority),
            _ => {}
        }
    }

    /// A timer of the key is set with this priority, or `joins` the one that it has.
    #[inline]
    pub(crate) fn time(&mut self, slot: u32, priority: i16, joins: bool) {
        if let Some(asked) = self.asked_mut(slot) {
            asked.timer = if joins { priority.max(asked.timer) } else { priority };
        }
    }

    /// The priority of the key's timer.
    #[inline]
    pub(crate) fn timer_priority(&self, slot: u32) -> i16 {
        self.asked(slot).timer
    }

    /// A retry of the key's run has this priority too.
    pub(crate) fn join_run(&mut self, slot: u32, priority: i16) {
        if let Some(asked) = self.asked_mut(slot) {
            asked.run = asked.run.max(priority);
        }
    }

    /// The key is dirty no more, and what made it so joins the timer that it has or the
    /// retry of its run, whichever comes.
    pub(crate) fn join_back_off(&mut self, slot: u32) {
        if let Some(asked) = self.asked_mut(slot) {
            asked.timer = asked.timer.max(asked.pending);
            asked.run = asked.run.max(asked.pending);
        }
    }

    /// The priority of the key's next run, while it is ready or dirty.
    pub(crate) fn pending_priority(&self, slot: u32) -> i16 {
        self.asked(slot).pending
    }

    /// The priority of the key's run.
    #[inline]
    pub(crate) fn run_priority(&self, slot: u32) -> i16 {
        self.asked(slot).run
    }

    /// Frees what is kept of the slots of a chunk that the arena freed.
    pub(crate) fn free_page(&mut self, chunk: u32) {
        let Some(turns) = self.turns.as_deref_mut() else { return };
        turns.pauses.free_page(chunk);
        match &mut turns.kind {
            Kind::Levels(levels) => levels.free_page(chunk),
            Kind::Fair(fair) => fair.free_page(chunk),
            Kind::Fifo | Kind::Lifo | Kind::Custom(_) => {}
        }
    }

    /// Pauses the whole line: nothing is taken from it, and no key in it grows older.
    pub(crate) fn pause(&mut self, now: Instant) {
        let turns = self.turns.get_or_insert_with(|| Turns::new(Kind::Fifo));
        turns.pauses.queue = true;
        if let Some(clock) = turns.kind.age_clock() {
            clock.stop(now);
        }
    }

    /// Lifts that again; false if there was nothing to lift.
    pub(crate) fn resume(&mut self, now: Instant) -> bool {
        let Some(turns) = self.turns.as_deref_mut() else { return false };
        let was = core::mem::replace(&mut turns.pauses.queue, false);
        if let Some(clock) = turns.kind.age_clock() {
            clock.go_on(now);
        }
        self.tidy();
        was
    }

    /// Whether the whole line is paused.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.turns.as_deref().is_some_and(|turns| turns.pauses.queue)
    }

    /// How many keys are paused.
    #[inline]
    pub(crate) fn paused_keys(&self) -> usize {
        self.turns.as_deref().map_or(0, |turns| turns.pauses.count())
    }

    /// The key that was paused first.
    pub(crate) fn first_paused(&self) -> Option<u32> {
        self.turns.as_deref()?.pauses.first()
    }

    /// Pauses a key that is not paused, and does not stand in line.
    pub(crate) fn pause_key(&mut self, arena: &mut Arena<K>, slot: u32, now: Instant, ready: bool) {
        self.turns.get_or_insert_with(|| Turns::new(Kind::Fifo)).pauses.insert(arena, slot, now);
        if ready {
            self.set_aside(slot, true);
        }
    }

    /// Lifts the pause of a key that is paused. If it is ready it has yet to enter.
    pub(crate) fn resume_key(&mut self, arena: &mut Arena<K>, slot: u32) {
        self.set_aside(slot, false);
        if let Some(turns) = self.turns.as_deref_mut() {
            turns.pauses.remove(arena, slot);
        }
        self.tidy();
    }

    /// Goes back to a plain line, where one has become enough.
    fn tidy(&mut self) {
        if self.turns.as_deref().is_some_and(Turns::is_idle) {
            self.turns = None;
        }
    }

    /// Lets a key in without calling users' code, unless it is paused. It is ready `since` then.
    #[inline]
    pub(crate) fn enter(&mut self, arena: &mut Arena<K>, slot: u32, since: Instant) {
        if self.turns.is_none() {
            self.ring.push_back(arena, slot);
        } else {
            self.enter_in_turns(arena, slot, since);
        }
    }

    #[inline(never)]
    fn enter_in_turns(&mut self, arena: &mut Arena<K>, slot: u32, since: Instant) {
        match self.turns.as_deref_mut() {
            Some(turns) if turns.pauses.has(arena, slot) => self.set_aside(slot, true),
            Some(Turns { kind: Kind::Levels(levels), .. }) => levels.enter(arena, slot, since),
            Some(Turns { kind: Kind::Fair(fair), .. }) => fair.enter(arena, slot, since),
            _ => self.ring.push_back(arena, slot),
        }
    }

    /// The same for a key that is being entered into the arena: returns its place, which is
    /// written there with the key.
    #[inline(always)]
    pub(crate) fn enter_new(&mut self, arena: &mut Arena<K>, slot: u32) -> u32 {
        self.ring.push_unplaced(arena, slot)
    }

    /// Enters a key that was announced.
    #[inline]
    pub(crate) fn enter_announced(&mut self, arena: &mut Arena<K>, slot: u32, since: Instant) {
        match self.turns.as_deref_mut() {
            Some(Turns { kind: Kind::Custom(custom), pauses, .. }) if !pauses.has(arena, slot) => {
                custom.enter(arena, slot);
            }
            _ => self.enter(arena, slot, since),
        }
    }

    /// Tells a user's order of a key that is about to enter, unless it is paused. If it panics the
    /// key must not enter.
    #[inline]
    pub(crate) fn announce(&mut self, arena: &mut Arena<K>, slot: u32) {
        let Some(Turns { kind: Kind::Custom(custom), pauses, .. }) = self.turns.as_deref_mut() else {
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
            // it does not know of one that is paused
            if arena.place(slot).is_some() {
                custom.touch(arena, slot);
            }
        }
    }

    /// Whether keys just go first in, first out now.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.turns.is_none()
    }

    /// [`pop`](Self::pop) of a line that [is plain](Self::is_plain).
    #[inline(always)]
    pub(crate) fn pop_plain(&mut self) -> Option<u32> {
        self.ring.pop_front()
    }

    /// Takes the key that goes next at this time, to start its run; returns it with the run's
    /// priority. Its slot keeps its place until [`lend`](Arena::lend) hands the key out.
    #[inline]
    pub(crate) fn pop(&mut self, arena: &mut Arena<K>, now: Instant) -> Option<Marked> {
        if self.is_plain() { self.pop_plain().map(Marked::from) } else { self.pop_in_turn(arena, now) }
    }

    #[inline(never)]
    pub(crate) fn pop_in_turn(&mut self, arena: &mut Arena<K>, now: Instant) -> Option<Marked> {
        let Turns { kind, pauses, rate } = self.turns.as_deref_mut()?;
        if !(pauses.queue | rate.is_some()) {
            match kind {
                Kind::Levels(levels) => return levels.pop(arena, now),
                Kind::Fair(fair) => return fair.pop(now),
                Kind::Fifo | Kind::Lifo | Kind::Custom(_) => {}
            }
        }
        self.pop_limited(arena, now)
    }

    #[inline(never)]
    fn pop_limited(&mut self, arena: &mut Arena<K>, now: Instant) -> Option<Marked> {
        let Turns { kind, pauses, rate } = self.turns.as_deref_mut()?;
        if pauses.queue || rate.as_ref().is_some_and(|rate| rate.tokens(now) == 0) {
            return None;
        }
        let at = match kind {
            Kind::Fifo => self.ring.pop_front()?.into(),
            Kind::Lifo => self.ring.pop_back()?.into(),
            Kind::Custom(custom) => custom.pop(&mut self.ring, arena)?.into(),
            Kind::Levels(levels) => levels.pop(arena, now)?,
            Kind::Fair(fair) => fair.pop(now)?,
        };
        if let Some(rate) = rate {
            rate.take(now);
        }
        Some(at)
    }

    /// The number of the group of a key that becomes known to a queue with groups. Users' code: if it panics
    /// nothing has changed.
    #[inline(never)]
    pub(crate) fn name_group(&mut self, key: &K) -> u32 {
        self.fair_mut().map_or(0, |fair| fair.name(key))
    }

    /// Lets a user's order choose the next keys, `most` of them if there are so many, before
    /// any is taken: they go first, in the order in which it gave them. If it panics those that
    /// it gave before that do. Any other order has no need of it.
    pub(crate) fn choose(&mut self, arena: &mut Arena<K>, most: usize) {
        if let Some((custom, news)) = self.custom() {
            custom.choose(news, arena, most);
        }
    }

    /// Takes a key out of the line, wherever it stands; false if it does not stand in it. A
    /// user's order that knows of it is told before; if it panics the key stays.
    pub(crate) fn leave(&mut self, arena: &mut Arena<K>, slot: u32) -> bool {
        if self.is_aside(arena, slot) {
            self.set_aside(slot, false);
            return false;
        }
        match self.turns.as_deref_mut().map(|turns| &mut turns.kind) {
            Some(Kind::Levels(levels)) => levels.leave(arena, slot),
            Some(Kind::Fair(fair)) => fair.leave(arena, slot),
            Some(Kind::Custom(custom)) => self.ring.leave(arena, slot) || custom.leave(arena, slot),
            Some(Kind::Fifo | Kind::Lifo) | None => self.ring.leave(arena, slot),
        }
    }

    /// The key that has stood in line longest, of a line that is [aged](Self::new), or has neither priorities
    /// nor groups. In a user's order nobody knows.
    pub(crate) fn oldest(&self) -> Option<u32> {
        match self.turns.as_deref().map(|turns| &turns.kind) {
            Some(Kind::Levels(levels)) => levels.oldest(),
            Some(Kind::Fair(fair)) => fair.oldest(),
            Some(Kind::Custom(_)) => None,
            Some(Kind::Fifo | Kind::Lifo) | None => self.ring.front(),
        }
    }

    /// How many keys go before this one; `None` if it does not stand in line, or that depends on
    /// the turns of groups or on a user's order.
    pub(crate) fn ahead_of(&self, arena: &Arena<K>, slot: u32) -> Option<Ahead> {
        let kind = self.turns.as_deref().map(|turns| &turns.kind);
        let in_ring = || {
            let (before, behind) = self.ring.around(arena, slot, STEPS)?;
            Some((before, behind, before + behind + 1 == self.ring.len()))
        };
        let (ahead, exact) = match kind {
            None | Some(Kind::Fifo) => in_ring().map(|(before, _, exact)| (before, exact))?,
            Some(Kind::Lifo) => in_ring().map(|(_, behind, exact)| (behind, exact))?,
            Some(Kind::Levels(levels)) => levels.ahead_of(arena, slot)?,
            Some(Kind::Custom(_) | Kind::Fair(_)) => return None,
        };
        Some(Ahead { keys: ahead, exact })
    }

    /// How many keys may be handed out at this time.
    #[inline]
    pub(crate) fn servable_at(&self, now: Instant) -> usize {
        match self.turns.as_deref() {
            Some(Turns { rate: Some(rate), .. }) => self.servable().min(rate.tokens(now)),
            _ => self.servable(),
        }
    }

    /// How many keys may be handed out, but for the rate.
    #[inline]
    pub(crate) fn servable(&self) -> usize {
        let Some(Turns { kind, pauses, .. }) = self.turns.as_deref() else { return self.ring.len() };
        if pauses.queue {
            return 0;
        }
        let elsewhere = match kind {
            Kind::Fifo | Kind::Lifo => 0,
            Kind::Custom(custom) => custom.len(),
            Kind::Levels(levels) => levels.len(),
            Kind::Fair(fair) => fair.servable(),
        };
        self.ring.len() + elsewhere
    }

    /// The slots that will be handed out next, as far as that is easily known, among numbers
    /// that no slot has. It is for those who ask for memory ahead, and only a guess. `None` where
    /// [`ahead_in_turns`](Self::ahead_in_turns) is to be asked.
    #[inline]
    pub(crate) fn ahead(&self) -> Option<&[u32]> {
        self.turns.is_none().then(|| self.ring.ahead())
    }

    /// Two slots that will be handed out soon, the later one first; or numbers that no slot has. What
    /// the line itself will want of them it asks for here.
    #[inline]
    pub(crate) fn ahead_in_turns(&mut self) -> (u32, u32) {
        match self.turns.as_deref_mut() {
            Some(Turns { kind: Kind::Levels(levels), .. }) => levels.ahead(),
            Some(Turns { kind: Kind::Fair(fair), .. }) => fair.ahead(),
            _ => (u32::MAX, u32::MAX),
        }
    }

    /// Whether a key that becomes ready does not just go to the back of `ring`: it also needs a priority or a
    /// group, or the user's order must be called.
    #[inline]
    pub(crate) fn wants_more(&self) -> bool {
        self.turns.as_deref().is_some_and(|turns| !matches!(turns.kind, Kind::Fifo | Kind::Lifo))
    }

    /// Whether the order was written by the user.
    #[inline]
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.turns.as_deref(), Some(Turns { kind: Kind::Custom(_), .. }))
    }
}

#[cfg(test)]
#[path = "tests/line.rs"]
mod tests;
