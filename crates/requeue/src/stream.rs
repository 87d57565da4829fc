//! Keys as a stream.

use crate::get::Get;
use crate::item::Item;
use futures_core::Stream;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The keys of a queue as a stream, which ends once the queue is shut down and worked off:
/// [`WorkQueue::stream`](crate::WorkQueue::stream), [`Get::into_stream`].
///
/// While keys are ready the next item is ready at once: a loop over a busy queue does not yield to other
/// tasks by itself. See [`WorkQueue::get`](crate::WorkQueue::get).
///
/// An item is held until it is dropped or ended, wherever a combinator keeps it: a combinator that collects
/// items holds all their keys.
///
/// # Cancel safety
///
/// A key is taken only in the poll that returns it. Dropping the stream, or a future that waits for its next
/// item, loses no key and no wake-up.
///
/// ```
/// use requeue::WorkQueue;
/// use smol::stream::StreamExt;
/// smol::block_on(async {
///     let q = WorkQueue::new();
///     q.add_many(["a", "b"]).all()?;
///     let mut items = q.stream();
///     assert_eq!(items.next().await.map(|item| *item.key()), Some("a"));
///     q.shut_down();
///     assert_eq!(items.count().await, 1);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a stream does nothing unless it is polled"]
pub struct ItemStream<'q, K, V = ()> {
    get: Get<'q, K, V>,
}

impl<'q, K, V> Get<'q, K, V> {
    /// Converts this wait and those that follow it to a stream. With [`into_owned`](Self::into_owned) it can
    /// be moved into a task.
    ///
    /// ```
    /// # use requeue::WorkQueue;
    /// # use smol::stream::StreamExt;
    /// # smol::block_on(async {
    /// # let q = WorkQueue::new();
    /// let keys = q.get().into_owned().into_stream().map(|item| *item.key());
    /// let all = smol::spawn(keys.collect::<Vec<_>>());
    /// q.add_many(["a", "b"]).all()?;
    /// q.shut_down();
    /// assert_eq!(all.await, ["a", "b"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn into_stream(self) -> ItemStream<'q, K, V> {
        ItemStream { get: self }
    }
}

impl<'q, K: Send + Sync + 'static, V: Send + 'static> Stream for ItemStream<'q, K, V> {
    type Item = Item<'q, K, V>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.get).poll(cx)
    }
}

impl<K, V> fmt::Debug for ItemStream<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ItemStream").field(&self.get).finish()
    }
}
