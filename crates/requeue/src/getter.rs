//! [`Getter`]: a handle that only gets.

use crate::error::GetError;
use crate::get::{Get, get_blocking, try_get};
use crate::get_many::{GetMany, try_get_many};
use crate::hold::Shared;
use crate::item::Item;
use crate::items::Items;
use crate::owner::Owner;
use crate::phase::Phase;
#[cfg(feature = "stream")]
use crate::stream::ItemStream;
use std::sync::Arc;

/// A handle that only gets: [`WorkQueue::getter`](crate::WorkQueue::getter).
///
/// It does not keep the queue open. A worker that has a getter instead of a [`WorkQueue`](crate::WorkQueue)
/// ends when the producers have dropped theirs and all is worked off. Its calls are those of the queue.
///
/// ```
/// use requeue::{Getter, WorkQueue};
/// async fn worker(keys: Getter<String>) {
///     while let Some(item) = keys.get().await {
///         println!("look at {}", item.key());
///     }
/// }
/// # let q = WorkQueue::<String>::new();
/// q.add_ref("a")?;
/// let getter = q.getter();
/// drop(q); // nobody can add any more
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(
/// worker(getter)
/// # );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Getter<K, V = ()> {
    shared: Arc<Shared<K, V>>,
}

impl<K, V> Getter<K, V> {
    pub(crate) fn new(shared: Arc<Shared<K, V>>) -> Self {
        Self { shared }
    }

    /// [`WorkQueue::get`](crate::WorkQueue::get). While keys are ready it is ready at once, and does not
    /// yield to other tasks: see there.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key and no wake-up.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// assert_eq!(q.getter().get().wait().map(|item| *item.key()), Some("a"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self) -> Get<'_, K, V> {
        Get::new(Owner::Borrowed(&self.shared), None)
    }

    /// [`WorkQueue::get_blocking`](crate::WorkQueue::get_blocking)
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add("a")?;
    /// assert_eq!(q.getter().get_blocking().map(|item| *item.key()), Some("a"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "dropping the item ends its run as done; `None` means that the queue is shut down and worked off"]
    pub fn get_blocking(&self) -> Option<Item<'_, K, V>> {
        get_blocking(&self.shared)
    }

    /// [`WorkQueue::try_get`](crate::WorkQueue::try_get)
    ///
    /// # Errors
    ///
    /// See [`WorkQueue::try_get`](crate::WorkQueue::try_get).
    ///
    /// ```
    /// # use requeue::{GetError, WorkQueue};
    /// let q = WorkQueue::<u32>::new();
    /// let getter = q.getter();
    /// assert_eq!(getter.try_get().err(), Some(GetError::Empty));
    /// drop(q);
    /// assert_eq!(getter.try_get().err(), Some(GetError::ShutDown));
    /// ```
    pub fn try_get(&self) -> Result<Item<'_, K, V>, GetError> {
        try_get(&self.shared)
    }

    /// [`WorkQueue::get_many`](crate::WorkQueue::get_many)
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no key and no wake-up.
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_many(["a", "b"]).all()?;
    /// assert_eq!(q.getter().get_many(8).wait().map(|items| items.len()), Some(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many(&self, most: usize) -> GetMany<'_, K, V> {
        GetMany::new(Owner::Borrowed(&self.shared), most, Vec::new())
    }

    /// [`WorkQueue::try_get_many`](crate::WorkQueue::try_get_many)
    ///
    /// # Errors
    ///
    /// See [`WorkQueue::try_get_many`](crate::WorkQueue::try_get_many).
    ///
    /// # Panics
    ///
    /// See [`WorkQueue::try_get_many`](crate::WorkQueue::try_get_many).
    ///
    /// ```
    /// # let q = requeue::WorkQueue::new();
    /// q.add_many(["a", "b"]).all()?;
    /// assert_eq!(q.getter().try_get_many(8)?.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_get_many(&self, most: usize) -> Result<Items<'_, K, V>, GetError> {
        try_get_many(&self.shared, most)
    }

    /// [`WorkQueue::stream`](crate::WorkQueue::stream)
    ///
    /// ```
    /// # use smol::stream::StreamExt;
    /// # let q = requeue::WorkQueue::new();
    /// q.add_many(["a", "b"]).all()?;
    /// let getter = q.getter();
    /// drop(q);
    /// assert_eq!(smol::block_on(getter.stream().count()), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "stream")]
    #[cfg_attr(docsrs, doc(cfg(feature = "stream")))]
    pub fn stream(&self) -> ItemStream<'_, K, V> {
        self.get().into_stream()
    }

    /// [`WorkQueue::phase`](crate::WorkQueue::phase)
    ///
    /// ```
    /// # use requeue::{Phase, WorkQueue};
    /// let q = WorkQueue::<u32>::new();
    /// let getter = q.getter();
    /// drop(q);
    /// assert_eq!(getter.phase(), Phase::Over);
    /// ```
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.shared.phase()
    }
}

impl<K, V> Clone for Getter<K, V> {
    fn clone(&self) -> Self {
        Self::new(self.shared.clone())
    }
}

debug!([K, V] Getter<K, V>, |getter| { name: getter.shared.name, .. });
