//! An order written by the user. Its answers are checked.
//!
//! The order only chooses the next key; this file knows which keys are in line. A ticket that the order
//! returns counts only if its key is in `told`. The ticket of a key that has left the line, or that was
//! returned before, is skipped, and uses up one of `NONSENSE` tries. The order is told of keys that leave,
//! and may ignore that; a key that comes back is pushed again. Keys that it never returns are handed out when
//! it has no ticket, or when the tries are used up.
//!
//! The order may panic at any call. The key of that call is in `told` already, or has not entered the line.

use super::order::{ReadyOrder, Ticket};
use super::ring::Ring;
use crate::arena::Arena;
use crate::slots::Places;
use alloc::boxed::Box;

/// Number of wrong tickets in a call after which the queue chooses the key itself.
const NONSENSE: u32 = 1_000;

pub(super) struct Custom<K> {
    order: Box<dyn ReadyOrder<K>>,
    /// The keys that the order was told of and has not chosen.
    told: Ring,
    /// The keys that the order has chosen for a batch, in the order of choice. They are handed out before all
    /// others.
    chosen: Ring,
}

impl<K> Custom<K> {
    pub(super) fn new(order: Box<dyn ReadyOrder<K>>) -> Self {
        Self { order, told: Ring::default(), chosen: Ring::default() }
    }

    /// Number of keys in line, without those that the order was not told of.
    pub(super) fn len(&self) -> usize {
        self.told.len() + self.chosen.len()
    }

    /// Tells the order of keys that have entered since it was told last.
    pub(super) fn tell(&mut self, news: &mut Ring, arena: &mut Arena<K>) {
        while let Some(slot) = news.pop_front() {
            arena.clear_place(slot);
            self.told.push_back(arena, slot);
            self.order.push(arena.key(slot), Ticket(slot));
        }
    }

    /// Tells the order of a key that is about to enter.
    pub(super) fn announce(&mut self, arena: &Arena<K>, slot: u32) {
        self.order.push(arena.key(slot), Ticket(slot));
    }

    pub(super) fn touch(&mut self, arena: &Arena<K>, slot: u32) {
        self.order.touch(arena.key(slot), Ticket(slot));
    }

    /// Enters a key that was announced.
    pub(super) fn enter(&mut self, arena: &mut Arena<K>, slot: u32) {
        self.told.push_back(arena, slot);
    }

    /// Removes a key from the line. Returns `false` if it is not in line. The order is told first; if it
    /// panics, the key stays.
    pub(super) fn leave(&mut self, arena: &mut Arena<K>, slot: u32) -> bool {
        if arena.place(slot).is_some() {
            self.order.leave(arena.key(slot), Ticket(slot));
        }
        self.told.leave(arena, slot) || self.chosen.leave(arena, slot)
    }

    /// Has the order choose the next keys, at most `most`, before any of them is taken. If it panics, those
    /// that it returned before stay chosen.
    pub(super) fn choose(&mut self, news: &mut Ring, arena: &mut Arena<K>, most: usize) {
        let mut patience = NONSENSE;
        if self.chosen.len() < most {
            self.tell(news, arena);
        }
        while self.chosen.len() < most {
            let Some(slot) = self.ask(arena, &mut patience) else { break };
            arena.clear_place(slot);
            self.chosen.push_back(arena, slot);
        }
    }

    /// Takes the next key.
    pub(super) fn pop(&mut self, news: &mut Ring, arena: &mut Arena<K>) -> Option<u32> {
        if let Some(slot) = self.chosen.pop_front() {
            return Some(slot);
        }
        self.tell(news, arena);
        self.ask(arena, &mut { NONSENSE })
    }

    /// Takes the key of the next valid ticket of the order. If the order returns none, or too many invalid
    /// ones, takes the key that the order was told of first.
    fn ask(&mut self, arena: &mut Arena<K>, patience: &mut u32) -> Option<u32> {
        while *patience > 0 {
            let Some(Ticket(slot)) = self.order.pop() else { break };
            if self.told.leave(arena, slot) {
                return Some(slot);
            }
            *patience -= 1;
        }
        // keys that the order has lost are handed out all the same
        self.told.pop_front()
    }
}
