//! Pauses (rule B7), which keep ready keys from being handed out: of the whole queue, or of keys.
//!
//! A pause of the queue changes nothing in the line: no key is taken from it. A paused key is not in line,
//! ready or not, and its slot has [`PAUSED`]. All paused keys are in a list, so that the end of the queue can
//! lift the pauses one by one.

use crate::arena::{Arena, CHUNK};
use crate::chain::{Link, Linked, List};
use crate::column::Column;
use crate::time::Instant;
use alloc::vec::Vec;

/// A slot's flag: its key is paused, and not in line, ready or not.
pub(crate) const PAUSED: u32 = 1 << 10;

#[derive(Debug, Default)]
struct Paused {
    link: Link,
    /// The key is ready, and counted by [`Line::set_paused_ready`](super::Line::set_paused_ready).
    ready: bool,
}

impl Linked for Paused {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }
}

#[derive(Debug)]
pub(super) struct Pauses {
    /// The queue is paused.
    pub(super) queue: bool,
    keys: List,
    links: Column<Paused>,
    count: usize,
    /// Number of paused keys of each chunk. The page of links is freed with the last of them, so that no call
    /// has to free the pages of all keys.
    in_chunk: Vec<u16>,
}

impl Pauses {
    pub(super) const fn new() -> Self {
        Self { queue: false, keys: List::EMPTY, links: Column::new(), count: 0, in_chunk: Vec::new() }
    }

    /// Whether nothing is paused.
    pub(super) fn is_idle(&self) -> bool {
        !self.queue && self.count == 0
    }

    /// Number of paused keys.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether this key is paused.
    #[inline]
    pub(super) fn has<K>(&self, arena: &Arena<K>, slot: u32) -> bool {
        self.count > 0 && arena.flags(slot) & PAUSED != 0
    }

    /// Pauses a key, which must not be paused.
    pub(super) fn insert<K>(&mut self, arena: &mut Arena<K>, slot: u32, now: Instant) {
        arena.set_flags(slot, arena.flags(slot) | PAUSED);
        self.keys.enter(&mut self.links, slot, now);
        self.count += 1;
        let chunk = slot as usize / CHUNK;
        if chunk >= self.in_chunk.len() {
            self.in_chunk.resize(chunk + 1, 0);
        }
        self.in_chunk[chunk] += 1;
    }

    /// Lifts the pause of a paused key.
    pub(super) fn remove<K>(&mut self, arena: &mut Arena<K>, slot: u32) {
        arena.set_flags(slot, arena.flags(slot) & !PAUSED);
        if let Some(&Paused { link, .. }) = self.links.get(slot) {
            self.keys.leave(&mut self.links, link);
        }
        self.count -= 1;
        let chunk = slot as usize / CHUNK;
        self.in_chunk[chunk] -= 1;
        if self.in_chunk[chunk] == 0 {
            self.links.free_page(chunk as u32);
        }
    }

    /// Notes whether a paused key is ready. Returns `false` if nothing changed.
    pub(super) fn set_ready(&mut self, slot: u32, to: bool) -> bool {
        core::mem::replace(&mut self.links.entry(slot).ready, to) != to
    }

    /// Whether this key is paused and ready.
    pub(super) fn is_ready<K>(&self, arena: &Arena<K>, slot: u32) -> bool {
        self.has(arena, slot) && self.links.get(slot).is_some_and(|paused| paused.ready)
    }

    /// The key that was paused first.
    pub(super) fn first(&self) -> Option<u32> {
        self.keys.oldest()
    }

    pub(super) fn free_page(&mut self, chunk: u32) {
        self.links.free_page(chunk);
    }
}
