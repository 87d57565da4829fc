//! The ready line: who stands in it, and who goes next (rule B10).
//!
//! `ring.rs` is the line itself, `order.rs` what users see of its orders, `custom.rs` an
//! order of their own.
//!
//! A key stands in the line from `enter` until it is popped or `leave`s, in one of
//! the rings, and its slot remembers where (see [`Places`]). That is less than to be ready: a
//! key can be ready and stand in no line for a while. So what may be handed out is
//! [`servable`](Line::servable), and not how many are ready.

mod custom;
mod order;
mod ring;

pub use self::order::{Order, ReadyOrder, Ticket};

use self::custom::{Custom, NONSENSE};
use self::ring::Ring;
use crate::arena::Arena;
use crate::slots::Places;
use alloc::boxed::Box;

/// The line.
///
/// A user's order may panic, and time that passes or a run that ends must not
/// fail for it. So keys that become ready by those only wait in `ring`, and the
/// order hears of them at the next `add` or `get`: at calls whose callers can
/// be told.
#[repr(C)]
pub(crate) struct Line<K> {
    /// The line, those that came first in front; or what a user's order was not told yet.
    ring: Ring,
    /// Who goes next, if that may be another than the one in front of `ring`.
    turns: Option<Box<Turns<K>>>,
}

struct Turns<K> {
    /// Keys that go before all others, in this order.
    raised: Ring,
    kind: Kind<K>,
}

enum Kind<K> {
    /// There only while some keys may be raised.
    Fifo,
    Lifo,
    Custom(Custom<K>),
}

impl<K> Turns<K> {
    fn new(kind: Kind<K>) -> Box<Self> {
        Box::new(Self { raised: Ring::default(), kind })
    }
}

impl<K> Line<K> {
    pub(crate) fn new(order: Order<K>) -> Self {
        let turns = match order {
            Order::Fifo => None,
            Order::Lifo => Some(Turns::new(Kind::Lifo)),
            Order::Custom(order) => Some(Turns::new(Kind::Custom(Custom::new(order)))),
        };
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

    /// The keys that a user's order was told of, if it is that.
    fn told(&self) -> Option<&Ring> {
        match self.turns.as_deref() {
            Some(Turns { kind: Kind::Custom(custom), .. }) => Some(&custom.told),
            _ => None,
        }
    }

    fn raised(&self) -> Option<&Ring> {
        self.turns.as_ref().map(|turns| &turns.raised)
    }

    /// Lets a key in without calling users' code.
    #[inline]
    pub(crate) fn enter(&mut self, arena: &mut Arena<K>, slot: u32) {
        self.ring.push_back(arena, slot);
    }

    /// The same for a key that is being entered into the arena: returns its place, which is
    /// written there with the key.
    #[inline(always)]
    pub(crate) fn enter_new(&mut self, arena: &mut Arena<K>, slot: u32) -> u32 {
        self.ring.push_unplaced(arena, slot)
    }

    /// Lets a key in that was announced.
    #[inline]
    pub(crate) fn enter_announced(&mut self, arena: &mut Arena<K>, slot: u32) {
        match self.custom() {
            Some((custom, _)) => custom.told.push_back(arena, slot),
            None => self.ring.push_back(arena, slot),
        }
    }

    /// Tells a user's order of a key that is about to enter. If it panics the
    /// key must not enter.
    #[inline]
    pub(crate) fn announce(&mut self, arena: &mut Arena<K>, slot: u32) {
        if let Some((custom, news)) = self.custom() {
            custom.tell(news, arena);
            custom.announce(arena, slot);
        }
    }

    /// Tells a user's order that a key in line was triggered again.
    #[inline]
    pub(crate) fn touch(&mut self, arena: &mut Arena<K>, slot: u32) {
        if let Some((custom, news)) = self.custom() {
            custom.tell(news, arena);
            custom.touch(arena, slot);
        }
    }

    /// Takes the key that goes next. Its slot keeps its place until
    /// [`lend`](Arena::lend) hands the key out.
    #[inline(always)]
    pub(crate) fn pop(&mut self, arena: &mut Arena<K>) -> Option<u32> {
        if self.turns.is_none() { self.ring.pop_front() } else { self.pop_in_turn(arena) }
    }

    #[inline(never)]
    fn pop_in_turn(&mut self, arena: &mut Arena<K>) -> Option<u32> {
        let Turns { raised, kind } = self.turns.as_deref_mut()?;
        let slot = raised.pop_front();
        let none_raised = raised.len() == 0;
        let slot = slot.or_else(|| match kind {
            Kind::Fifo => self.ring.pop_front(),
            Kind::Lifo => self.ring.pop_back(),
            Kind::Custom(custom) => {
                custom.tell(&mut self.ring, arena);
                custom.pop(arena, &mut { NONSENSE })
            }
        });
        if none_raised && matches!(kind, Kind::Fifo) {
            self.turns = None;
        }
        slot
    }

    /// Lets a user's order choose the next keys, `most` of them if there are so many, before
    /// any is taken: they go first, in the order in which it gave them. If it panics those that
    /// it gave before that do. Any other order has no need of it.
    pub(crate) fn choose(&mut self, arena: &mut Arena<K>, most: usize) {
        let Some(Turns { raised, kind: Kind::Custom(custom) }) = self.turns.as_deref_mut() else { return };
        let mut patience = NONSENSE;
        if raised.len() < most {
            custom.tell(&mut self.ring, arena);
        }
        while raised.len() < most {
            let Some(slot) = custom.pop(arena, &mut patience) else { break };
            arena.clear_place(slot);
            raised.push_back(arena, slot);
        }
    }

    /// Takes a key out of the line, wherever it stands; false if it does not stand in it.
    pub(crate) fn leave(&mut self, arena: &mut Arena<K>, slot: u32) -> bool {
        self.leave_unraised(arena, slot)
            || self.turns.as_mut().is_some_and(|turns| turns.raised.leave(arena, slot))
    }

    /// Moves a key before all that were not raised, in any order; false if it does not stand in
    /// line or was raised before, and then it stays where it is.
    pub(crate) fn raise(&mut self, arena: &mut Arena<K>, slot: u32) -> bool {
        let unraised = self.leave_unraised(arena, slot);
        if unraised {
            let turns = self.turns.get_or_insert_with(|| Turns::new(Kind::Fifo));
            turns.raised.push_back(arena, slot);
        }
        unraised
    }

    fn leave_unraised(&mut self, arena: &mut Arena<K>, slot: u32) -> bool {
        self.custom().is_some_and(|(custom, _)| custom.told.leave(arena, slot))
            || self.ring.leave(arena, slot)
    }

    /// The key that has stood in line longest, of those that were not raised; if there are no
    /// others, that which was raised first.
    pub(crate) fn oldest(&self) -> Option<u32> {
        let told = self.told().and_then(Ring::front);
        told.or_else(|| self.ring.front()).or_else(|| self.raised()?.front())
    }

    /// How many keys may be handed out now.
    #[inline]
    pub(crate) fn servable(&self) -> usize {
        self.ring.len() + self.told().map_or(0, Ring::len) + self.raised().map_or(0, Ring::len)
    }

    /// The slots that will be handed out next, as far as that is easily known, among numbers
    /// that no slot has. It is for those who ask for memory ahead, and only a guess.
    #[inline]
    pub(crate) fn ahead(&self) -> &[u32] {
        if self.turns.is_none() { self.ring.ahead() } else { &[] }
    }

    /// Whether the order is a user's own and must not be believed.
    #[inline]
    pub(crate) fn is_custom(&self) -> bool {
        self.told().is_some()
    }
}

#[cfg(test)]
#[path = "tests/line.rs"]
mod tests;
