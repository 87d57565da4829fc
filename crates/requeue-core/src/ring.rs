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
    /// Numbers stand in `front..` of the first block, in whole middle blocks
    /// and in `..back` of the last one, which is 0 only while the line is empty.
    blocks: VecDeque<Box<[u32]>>,
    front: usize,
    back: usize,
    /// A block that is kept, so that a short line never allocates.
    spare: Option<Box<[u32]>>,
}

impl Ring {
    #[inline]
    pub(crate) fn push_back(&mut self, slot: u32) {
        if self.blocks.is_empty() || self.back == BLOCK {
            let block = self.spare.take().unwrap_or_else(|| alloc::vec![0; BLOCK].into());
            self.blocks.push_back(block);
            self.back = 0;
        }
        if let Some(last) = self.blocks.back_mut() {
            last[self.back] = slot;
            self.back += 1;
        }
    }

    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let slot = self.blocks.front()?[self.front];
        self.front += 1;
        if self.blocks.len() == 1 && self.front == self.back {
            self.empty_out();
        } else if self.front == BLOCK {
            self.spare = self.blocks.pop_front();
            self.front = 0;
            self.shrink();
        }
        Some(slot)
    }

    #[inline]
    pub(crate) fn pop_back(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let slot = self.blocks.back()?[self.back - 1];
        self.back -= 1;
        if self.blocks.len() == 1 && self.front == self.back {
            self.empty_out();
        } else if self.back == 0 {
            self.spare = self.blocks.pop_back();
            self.back = BLOCK;
            self.shrink();
        }
        Some(slot)
    }

    /// The only block has become empty; it stays, so that a line that hovers
    /// around empty moves no blocks.
    #[inline]
    fn empty_out(&mut self) {
        self.front = 0;
        self.back = 0;
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.back == 0
    }

    /// Gives the index of the blocks back as the line becomes short.
    fn shrink(&mut self) {
        if let Some(to) = roomy::shrink_to(self.blocks.len(), self.blocks.capacity()) {
            self.blocks.shrink_to(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

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
        assert!(ring.blocks.len() == 1 && ring.spare.is_some());
        assert!(ring.blocks.capacity() <= 64);
    }
}
