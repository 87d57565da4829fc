//! The key of an object in the queue of its controller.

use kube::api::ObjectMeta;
use kube::runtime::reflector::{Lookup, ObjectRef};
use std::fmt;
use std::sync::Arc;

/// Namespace and name of an object: its key in the controller's queue.
///
/// A controller watches objects of one kind, so the kind is not part of the key. A key is 24 bytes and one
/// allocation, which clones share.
///
/// ```
/// use requeue_kube::ObjectKey;
///
/// let key = ObjectKey::new(Some("prod"), "web");
/// assert_eq!((key.namespace(), key.name()), (Some("prod"), "web"));
/// assert_eq!(key.to_string(), "prod/web");
/// // an object of the whole cluster has no namespace
/// assert_eq!(ObjectKey::new(None, "web").to_string(), "web");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace, a slash and the name; or the name alone.
    text: Arc<str>,
    /// Where the name begins. 0 if there is no namespace.
    name: u32,
}

impl ObjectKey {
    /// The key of an object by its namespace, if it has one, and its name.
    #[must_use]
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            // Kubernetes' own limit for a namespace is 63 bytes.
            Some(namespace) if u32::try_from(namespace.len()).is_ok_and(|bytes| bytes < u32::MAX) => {
                Self { text: format!("{namespace}/{name}").into(), name: namespace.len() as u32 + 1 }
            }
            _ => Self { text: name.into(), name: 0 },
        }
    }

    /// The key of an object that a reference names.
    #[must_use]
    pub fn of<K: Lookup>(object: &ObjectRef<K>) -> Self {
        Self::new(object.namespace.as_deref(), &object.name)
    }

    /// The key of an object. An object without a name, which no API server sends, has an empty one.
    pub fn from_obj<K: Lookup>(object: &K) -> Self {
        Self::new(object.namespace().as_deref(), object.name().as_deref().unwrap_or_default())
    }

    pub(crate) fn of_meta(meta: &ObjectMeta) -> Self {
        Self::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
    }

    /// The object's namespace, if it has one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        (self.name > 0).then(|| &self.text[..self.name as usize - 1])
    }

    /// The object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.text[self.name as usize..]
    }

    /// The reference that kube's calls take.
    #[must_use]
    pub fn to_ref<K: Lookup>(&self, dyntype: K::DynamicType) -> ObjectRef<K> {
        let object = ObjectRef::new_with(self.name(), dyntype);
        match self.namespace() {
            Some(namespace) => object.within(namespace),
            None => object,
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}
