//! [`Owner`]: how guards and waiting callers refer to their queue.

use crate::hold::Shared;
use std::sync::Arc;

/// A reference to the queue of a guard or a waiting caller: borrowed from a handle, or its own. Neither is a
/// handle: it does not keep the queue open.
pub(crate) enum Owner<'q, K, V> {
    Borrowed(&'q Arc<Shared<K, V>>),
    Owned(Arc<Shared<K, V>>),
}

impl<K, V> Owner<'_, K, V> {
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared<K, V>> {
        match self {
            Self::Borrowed(shared) => shared,
            Self::Owned(shared) => shared,
        }
    }

    pub(crate) fn into_owned(self) -> Owner<'static, K, V> {
        Owner::Owned(match self {
            Self::Borrowed(shared) => shared.clone(),
            Self::Owned(shared) => shared,
        })
    }
}

impl<K, V> Clone for Owner<'_, K, V> {
    #[inline]
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(shared) => Self::Borrowed(shared),
            Self::Owned(shared) => Self::Owned(shared.clone()),
        }
    }
}
