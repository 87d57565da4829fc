//! A user's own order, which is not believed.
//!
//! It decides which key goes next, and nothing else: who stands in line is known here. A
//! ticket that it gives is passed over unless its key stands in `told`, so a key that left the
//! line, or that comes twice, is nonsense that costs a try. It hears of keys that
//! leave, and may not listen; one that comes back is pushed again. Keys that it does not give back go when it says that
//! it has none, or has given too much nonsense.
//!
//! It may panic at any call: a key that it panics over stands in `told` already, or has not
//! entered the line.

use super::order::{ReadyOrder, Ticket};
use super::ring::Ring;
use crate::arena::Arena;
use crate::slots::Places;
use alloc::boxed::Box;

/// How often a user's order may answer nonsense in a call before the queue looks itself.
pub(super) const NONSENSE: u32 = 1_000;

pub(super) struct Custom<K> {
    order: Box<dyn ReadyOrder<K>>,
    /// The keys that it was told of.
    pub(super) told: Ring,
}

impl<K> Custom<K> {
    pub(super) fn new(order: Box<dyn ReadyOrder<K>>) -> Self {
        Self { order, told: Ring::default() }
    }

    /// Tells the order of keys that entered without its knowing.
    pub(super) fn tell(&mut self, news: &mut Ring, arena: &mut Arena<K>) {
        while let Some(slot) = news.pop_front() {
            arena.clear_place(slot);
            self.told.push_back(arena, slot);
            self.order.push(arena.key(slot), Ticket(slot));
        }
    }

    /// Tells it of a key that is about to enter.
    pub(super) fn announce(&mut self, arena: &Arena<K>, slot: u32) {
        self.order.push(arena.key(slot), Ticket(slot));
    }

    pub(super) fn touch(&mut self, arena: &Arena<K>, slot: u32) {
        self.order.touch(arena.key(slot), Ticket(slot));
    }

    /// Tells it of a key that is about to leave.
    pub(super) fn leaves(&mut self, arena: &Arena<K>, slot: u32) {
        self.order.leave(arena.key(slot), Ticket(slot));
    }

    /// Takes the key that the order gives, else the one that it was told of first.
    pub(super) fn pop(&mut self, arena: &mut Arena<K>, patience: &mut u32) -> Option<u32> {
        while *patience > 0 {
            let Some(Ticket(slot)) = self.order.pop() else { break };
            if self.told.leave(arena, slot) {
                return Some(slot);
            }
            *patience -= 1;
        }
        // the order has lost keys: they are not lost for that
        self.told.pop_front()
    }
}
