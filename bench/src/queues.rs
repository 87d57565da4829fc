//! What a queue must be able to do to take part in a workload.

use crate::Key;

/// Add, get and done, for threads.
pub trait Fifo: Send + Sync + 'static {
    /// The name under which it is measured.
    const NAME: &'static str;
    /// Its keys.
    type Key: Key;
    /// A key that was handed out.
    type Item<'q>: Send
    where
        Self: 'q;

    /// An empty queue, in the best configuration for its users.
    fn new() -> Self;
    /// Asks for a run of the key.
    fn add(&self, key: Self::Key);
    /// The same by reference; a queue that must own its key clones.
    fn add_ref(&self, key: &Self::Key) {
        self.add(key.clone());
    }
    /// Waits for a key; `None` once the queue is shut down and worked off.
    fn get(&self) -> Option<Self::Item<'_>>;
    /// The key that was handed out.
    fn key<'i>(item: &'i Self::Item<'_>) -> &'i Self::Key;
    /// Ends the run.
    fn done(&self, item: Self::Item<'_>);
    /// Ends the run and waits for the next key, in one call where there is one.
    fn next<'q>(&'q self, item: Self::Item<'q>) -> Option<Self::Item<'q>> {
        self.done(item);
        self.get()
    }
    /// Says that no key comes any more: what is ready is still handed out, then
    /// `get` gives `None` to that many consumers.
    fn shut_down(&self, consumers: usize);
}
