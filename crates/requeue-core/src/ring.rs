//! A line of slot numbers in linked blocks: it grows and shrinks a block at a
//! time, so that no push ever copies a long line.

use crate::roomy;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// Numbers a block: 4 KiB.
const BLOCK: usize = 1024;

/// First in, first out from the front, last in, first out from the back.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// The block that is read from; empty until the first push.
    first: Box<[u32]>,
    /// The blocks behind it. The last of all blocks is written to.
    rest: VecDeque<Box<[u32]>>,
    /// Where in the first block the front is, and where in the last one the next
    /// number goes.
    front: usize,
    back: usize,
    spare: Option<Box<[u32]>>,
}

impl Ring {
    #[inline]
    pub(crate) fn push_back(&mut self, slot: u32) {
        let last = self.rest.back_mut().unwrap_or(&mut self.first);
        if let Some(place) = last.get_mut(self.back) {
            *place = slot;
            self.back += 1;
        } else {
            self.push_in_a_new_block(slot);
        }
    }

    #[cold]
    fn push_in_a_new_block(&mut self, slot: u32) {
        let mut block = self.spare.take().unwrap_or_else(|| alloc::vec![0; BLOCK].into());
        block[0] = slot;
        self.back = 1;
        if self.first.is_empty() {
            self.first = block;
        } else {
            self.rest.push_back(block);
        }
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let slot = *self.first.get(self.front)?;
        self.front += 1;
        if self.rest.is_empty() {
            if self.front == self.back {
                self.front = 0;
                self.back = 0;
            }
        } else if self.front == BLOCK {
            self.leave_first_block();
        }
        Some(slot)
    }

    #[cold]
    fn leave_first_block(&mut self) {
        if let Some(next) = self.rest.pop_front() {
            self.spare = Some(core::mem::replace(&mut self.first, next));
        }
        self.front = 0;
        self.shrink();
    }

    /// The number that stands so many places behind the front, as long as it is
    /// in the front's block.
    #[inline]
    pub(crate) fn ahead(&self, places: usize) -> Option<u32> {
        let at = self.front + places;
        let end = if self.rest.is_empty() { self.back } else { BLOCK };
        if at < end { self.first.get(at).copied() } else { None }
    }

    #[inline]
    pub(crate) fn pop_back(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let last = self.rest.back().unwrap_or(&self.first);
        let slot = *last.get(self.back - 1)?;
        self.back -= 1;
        if self.rest.is_empty() {
            if self.front == self.back {
                self.front = 0;
                self.back = 0;
            }
        } else if self.back == 0 {
            self.spare = self.rest.pop_back();
            self.back = BLOCK;
            self.shrink();
        }
        Some(slot)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.back == 0
    }

    fn shrink(&mut self) {
        if let Some(to) = roomy::shrink_to(self.rest.len(), self.rest.capacity()) {
            self.rest.shrink_to(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn what_stands_ahead_is_known_within_a_block() {
        let mut ring = Ring::default();
        assert_eq!(ring.ahead(0), None);
        let n = BLOCK + 3;
        for slot in 0..n {
            ring.push_back(slot as u32);
        }
        for front in 0..n {
            let end = if front < BLOCK { BLOCK } else { n };
            for places in [0, 1, 2, 3, 8] {
                let at = front + places;
                assert_eq!(ring.ahead(places), (at < end).then_some(at as u32));
            }
            assert_eq!(ring.pop_front(), Some(front as u32));
        }
        assert_eq!(ring.ahead(0), None);
    }

    #[test]
    fn front_and_back_agree_with_a_deque_over_block_edges() {
        let (mut ring, mut deque) = (Ring::default(), VecDeque::new());
        let mut seed = 7u32;
        for round in 0..40_000u32 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // long stretches of growing, then of shrinking
            let grow = (round / 5000) % 2 == 0;
            match (seed >> 24) % 4 {
                0 => assert_eq!(ring.pop_front(), deque.pop_front()),
                1 if !grow => assert_eq!(ring.pop_back(), deque.pop_back()),
                2 if !grow => assert_eq!(ring.pop_front(), deque.pop_front()),
                _ => {
                    ring.push_back(round);
                    deque.push_back(round);
                }
            }
        }
        while let Some(x) = deque.pop_back() {
            assert_eq!(ring.pop_back(), Some(x));
        }
        assert_eq!((ring.pop_back(), ring.pop_front()), (None, None));
    }

    #[test]
    fn an_emptied_line_keeps_a_block_and_a_spare() {
        let mut ring = Ring::default();
        let n = if cfg!(miri) { 3 * BLOCK as u32 } else { 1_000_000 };
        for i in 0..n {
            ring.push_back(i);
        }
        let out: Vec<u32> = core::iter::from_fn(|| ring.pop_front()).collect();
        assert!(out.iter().copied().eq(0..n));
        assert!(ring.rest.is_empty() && ring.spare.is_some());
        assert!(ring.rest.capacity() <= 64);
    }
}
