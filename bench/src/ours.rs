//! requeue itself.

use crate::{Fifo, Key};
use requeue::{Item, WorkQueue};

/// requeue's name in what is printed.
pub const NAME: &str = "requeue";

impl<K: Key> Fifo for WorkQueue<K> {
    const NAME: &'static str = NAME;
    type Key = K;
    type Item<'q> = Item<'q, K>;

    fn new() -> Self {
        Self::new()
    }
    #[inline]
    fn add(&self, key: K) {
        let _ = WorkQueue::add(self, key);
    }
    #[inline]
    fn add_ref(&self, key: &K) {
        let _ = WorkQueue::add_ref(self, key);
    }
    #[inline]
    fn get(&self) -> Option<Item<'_, K>> {
        self.get_blocking()
    }
    #[inline]
    fn key<'i>(item: &'i Item<'_, K>) -> &'i K {
        item.key()
    }
    #[inline]
    fn done(&self, item: Item<'_, K>) {
        item.done();
    }
    #[inline]
    fn next<'q>(&'q self, item: Item<'q, K>) -> Option<Item<'q, K>> {
        item.next().wait()
    }
    fn shut_down(&self, _: usize) {
        let _ = WorkQueue::shut_down(self);
    }
}
