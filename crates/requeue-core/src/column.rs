//! Side data that only some queues keep per key: a value per slot, in pages that exist only if a value was
//! written.

use crate::arena::CHUNK;
use crate::shrink;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// One page covers the slots of one chunk of the arena.
type Page<T> = Box<[T; CHUNK]>;

/// A page for each chunk of the arena. A slot that was never written reads `T::default()`.
#[derive(Debug)]
pub(crate) struct Column<T> {
    pages: Vec<Option<Page<T>>>,
}

impl<T: Default> Column<T> {
    pub(crate) const fn new() -> Self {
        Self { pages: Vec::new() }
    }

    /// The value of `slot`, if its page exists.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        let page = self.pages.get(slot as usize / CHUNK)?.as_deref()?;
        Some(&page[slot as usize % CHUNK])
    }

    /// The value of `slot` for changing, if its page exists.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        let page = self.pages.get_mut(slot as usize / CHUNK)?.as_deref_mut()?;
        Some(&mut page[slot as usize % CHUNK])
    }

    /// The value of `slot`; its page is created if needed.
    #[inline]
    pub(crate) fn entry(&mut self, slot: u32) -> &mut T {
        let page_no = slot as usize / CHUNK;
        if !matches!(self.pages.get(page_no), Some(Some(_))) {
            self.make_page(page_no);
        }
        match &mut self.pages[page_no] {
            Some(page) => &mut page[slot as usize % CHUNK],
            None => unreachable!("it was made"),
        }
    }

    #[cold]
    fn make_page(&mut self, page_no: usize) {
        if page_no >= self.pages.len() {
            self.pages.resize_with(page_no + 1, || None);
        }
        let page: Box<[T]> = core::iter::repeat_with(T::default).take(CHUNK).collect();
        self.pages[page_no] = page.try_into().ok();
    }

    /// Takes the value of `slot` out.
    #[inline]
    pub(crate) fn take(&mut self, slot: u32) -> T {
        self.get_mut(slot).map(core::mem::take).unwrap_or_default()
    }

    /// Frees the page of a chunk that the arena freed.
    pub(crate) fn free_page(&mut self, chunk: u32) {
        if let Some(page) = self.pages.get_mut(chunk as usize) {
            *page = None;
        }
        while matches!(self.pages.last(), Some(None)) {
            self.pages.pop();
        }
        shrink::shrink(&mut self.pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_wrote_reads_default_and_costs_no_page() {
        let mut c = Column::<u64>::new();
        assert_eq!(c.get(70_000), None);
        assert_eq!(c.take(70_000), 0);
        *c.entry(70_000) = 5;
        assert_eq!(c.get(70_000), Some(&5));
        assert_eq!(c.get(70_001), Some(&0));
        assert_eq!(c.get(3), None);
        assert_eq!(c.pages.iter().filter(|p| p.is_some()).count(), 1);
        *c.get_mut(70_000).expect("its page is there") += 1;
        assert_eq!(c.take(70_000), 6);
        assert_eq!(c.take(70_000), 0);
    }

    #[test]
    fn freed_pages_give_their_memory_back() {
        let mut c = Column::<u64>::new();
        for chunk in 0..500u32 {
            *c.entry(chunk * CHUNK as u32) = 1;
        }
        for chunk in (0..500).rev() {
            c.free_page(chunk);
        }
        c.free_page(77);
        assert_eq!(c.pages.len(), 0);
        assert!(c.pages.capacity() <= 64);
    }
}
