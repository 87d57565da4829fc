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
pub(crate) struct Line<K> {
    /// The line, those that came first in front; or what a user's order was not told yet.
    ring: Ring,
    /// Keys that go before all others, in this order. There only while there may be some.
    raised: Option<Box<Ring>>,
    kind: Kind<K>,
}

enum Kind<K> {
    Fifo,
    Lifo,
    Custom(Box<Custom<K>>),
}

impl<K> Line<K> {
    pub(crate) fn new(order: Order<K>) -> Self {
        let kind = match order {
            Order::Fifo => Kind::Fifo,
            Order::Lifo => Kind::Lifo,
            Order::Own(order) => Kind::Custom(Box::new(Custom::new(order))),
        };
        Self { ring: Ring::default(), raised: None, kind }
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
        match &mut self.kind {
            Kind::Custom(custom) => custom.told.push_back(arena, slot),
            Kind::Fifo | Kind::Lifo => self.ring.push_back(arena, slot),
        }
    }

    /// Tells a user's order of a key that is about to enter. If it panics the
    /// key must not enter.
    #[inline]
    pub(crate) fn announce(&mut self, arena: &mut Arena<K>, slot: u32) {
        if let Kind::Custom(custom) = &mut self.kind {
            custom.tell(&mut self.ring, arena);
            custom.announce(arena, slot);
        }
    }

    /// Tells a user's order that a key in line was triggered again.
    #[inline]
    pub(crate) fn touch(&mut self, arena: &mut Arena<K>, slot: u32) {
        if let Kind::Custom(custom) = &mut self.kind {
            custom.tell(&mut self.ring, arena);
            custom.touch(arena, slot);
        }
    }

    /// Takes the key that goes next. Its slot keeps its place until
    /// [`lend`](Arena::lend) hands the key out.
    #[inline(always)]
    pub(crate) fn pop(&mut self, arena: &mut Arena<K>) -> Option<u32> {
        if matches!(self.kind, Kind::Fifo) && self.raised.is_none() {
            return self.ring.pop_front();
        }
        self.pop_by_order(arena)
    }

    #[inline(never)]
    fn pop_by_order(&mut self, arena: &mut Arena<K>) -> Option<u32> {
        if let Some(raised) = &mut self.raised {
            let slot = raised.pop_front();
            if raised.len() == 0 {
                self.raised = None;
            }
            if slot.is_some() {
                return slot;
            }
        }
        match &mut self.kind {
            Kind::Fifo => self.ring.pop_front(),
            Kind::Lifo => self.ring.pop_back(),
            Kind::Custom(custom) => {
                custom.tell(&mut self.ring, arena);
                custom.pop(arena, &mut { NONSENSE })
            }
        }
    }

    /// Lets a user's order choose the next keys, `most` of them if there are so many, before
    /// any is taken: they go first, in the order in which it gave them. If it panics those that
    /// it gave before that do. Any other order has no need of it.
    pub(crate) fn choose(&mut self, arena: &mut Arena<K>, most: usize) {
        let Kind::Custom(custom) = &mut self.kind else { return };
        let raised = self.raised.get_or_insert_default();
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
            || self.raised.as_mut().is_some_and(|raised| raised.leave(arena, slot))
    }

    /// Moves a key before all that were not raised, in any order; false if it does not stand in
    /// line or was raised before, and then it stays where it is.
    pub(crate) fn raise(&mut self, arena: &mut Arena<K>, slot: u32) -> bool {
        let unraised = self.leave_unraised(arena, slot);
        if unraised {
            self.raised.get_or_insert_default().push_back(arena, slot);
        }
        unraised
    }

    fn leave_unraised(&mut self, arena: &mut Arena<K>, slot: u32) -> bool {
        if let Kind::Custom(custom) = &mut self.kind {
            if custom.told.leave(arena, slot) {
                return true;
            }
        }
        self.ring.leave(arena, slot)
    }

    /// The key that has stood in line longest, of those that were not raised; if there are no
    /// others, that which was raised first.
    pub(crate) fn oldest(&self) -> Option<u32> {
        let told = if let Kind::Custom(custom) = &self.kind { custom.told.front() } else { None };
        told.or_else(|| self.ring.front()).or_else(|| self.raised.as_ref()?.front())
    }

    /// How many keys may be handed out now.
    #[inline]
    pub(crate) fn servable(&self) -> usize {
        let told = if let Kind::Custom(custom) = &self.kind { custom.told.len() } else { 0 };
        self.ring.len() + told + self.raised.as_ref().map_or(0, |raised| raised.len())
    }

    /// The slots that will be handed out next, as far as that is easily known, among numbers
    /// that no slot has. It is for those who ask for memory ahead, and only a guess.
    #[inline]
    pub(crate) fn ahead(&self) -> &[u32] {
        if matches!(self.kind, Kind::Fifo) { self.ring.ahead() } else { &[] }
    }

    /// Whether the order is a user's own and must not be believed.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.kind, Kind::Custom(_))
    }
}

#[cfg(test)]
#[path = "tests/line.rs"]
mod tests;
