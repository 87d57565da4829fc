//! The trait of objects that a controller can reconcile.

use kube::Resource;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::hash::Hash;

/// A kind of objects that a [`Controller`](crate::Controller) can reconcile.
///
/// Every type with these traits is one; no `impl` is needed. A function that is generic over the kind of its
/// controller asks for this alone:
///
/// ```
/// use requeue_kube::{Controller, Reconcilable};
///
/// fn named<K: Reconcilable>(controller: Controller<K>, name: &str) -> Controller<K> {
///     controller.name(name)
/// }
/// ```
pub trait Reconcilable:
    Resource<DynamicType: Eq + Hash + Clone + Debug + Send + Sync + Unpin>
    + Clone
    + DeserializeOwned
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Reconcilable for K where
    K: Resource<DynamicType: Eq + Hash + Clone + Debug + Send + Sync + Unpin>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + Sync
        + 'static
{
}
