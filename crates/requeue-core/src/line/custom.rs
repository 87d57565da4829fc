//! An order written by the user. Its answers are checked.
//!
//! It decides which key goes next, and nothing else: which keys are in line is known here. A
//! ticket that it gives counts only if its key stands in `told`; one of a key that left the
//! line, or that it gives a second time, is ignored, and uses up one of `NONSENSE` tries. It is told of keys that
//! leave, and may ignore that; a key that comes back is pushed again. Keys that it never gives back go when it says
//! that it has none, or when the tries are used up.
//!
//! It may panic at any call: a key that it panics over stands in `told` already, or has not
//! entered the line.

use super::order::{ReadyOrder, Ticket};
use super::ring::Ring;
use crate::arena::Arena;
use crate::slots::Places;
use alloc::boxed::Box;

/// How many wrong tickets a user's order may give in a call, before the queue chooses itself.
const NONSENSE: u32 = 1_000;

pub(super) struct Custom<K> {
    order: Box<dyn ReadyOrder<K>>,
    /// The keys that it was told of, and that it has not chosen.
    told: Ring,
    /// The keys that it has chosen for a batch, in this order: they go before all others.
    chosen: Ring,
}

impl<K> Custom<K> {
    pub(super) fn new(order: Box<dyn ReadyOrder<K>>) -> Self {
        Self { order, told: Ring::default(), chosen: Ring::default() }
    }

    /// How many keys it was told of.
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

    /// Tells it of a key that is about to enter.
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

    /// Takes a key out, wherever it stands; false if it does not stand in line. The order is told before: if it
    /// panics the key stays.
    pub(super) fn leave(&mut self, arena: &mut Arena<K>, slot: u32) -> bool {
        if arena.place(slot).is_some() {
            self.order.leave(arena.key(slot), Ticket(slot));
        }
        self.told.leave(arena, slot) || self.chosen.leave(arena, slot)
    }

    /// Has the order choose the next keys, `most` of them if there are so many, before any is taken. If it panics
    /// those that it gave before that are chosen.
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

    /// Takes the key that goes next.
    pub(super) fn pop(&mut self, news: &mut Ring, arena: &mut Arena<K>) -> Option<u32> {
        if let Some(slot) = self.chosen.pop_front() {
            return Some(slot);
        }
        self.tell(news, arena);
        self.ask(arena, &mut { NONSENSE })
    }

    /// Takes the key that the order gives, else the one that it was told of first.
    fn ask(&mut self, arena: &mut Arena<K>, patience: &mut u32) -> Option<u32> {
        while *patience > 0 {
            let Some(Ticket(slot)) = self.order.pop() else { break };
            if self.told.leave(arena, slot) {
                return Some(slot);
            }
            *patience -= 1;
        }
        // keys that the order has lost go all the same
        self.told.pop_front()
    }
}
