//! [`AsKey`]: a key as an argument of calls that need all of it.

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// A key argument of [`forget`](crate::WorkQueue::forget) and
/// [`num_requeues`](crate::WorkQueue::num_requeues): `&key`, or a borrowed form as for
/// [`state`](crate::WorkQueue::state), such as `"a"` for `String` keys.
///
/// Calls that only look a key up accept any borrowed form ([`Borrow`](std::borrow::Borrow)). These two may
/// have to ask a user's limiter, which needs a whole key: a borrowed form is cloned into one. `&key` is never
/// cloned.
///
/// ```
/// use requeue::{Added, WorkQueue, limiter::Exponential};
/// use std::{sync::Arc, time::Duration};
/// // shared, so it keeps its own counts, by whole keys
/// let limiter = Arc::new(Exponential::new(Duration::from_millis(1), Duration::from_secs(1))?);
/// let q = WorkQueue::<String>::builder().limiter(limiter).build()?;
/// q.add_rate_limited("a".to_string())?;
/// assert_eq!(q.num_requeues("a"), 1);
/// q.forget("a");
/// assert_eq!(q.num_requeues(&"a".to_string()), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A type of your own that stands for a key:
///
/// ```
/// use requeue::{AsKey, WorkQueue};
/// #[derive(PartialEq, Eq, Hash)]
/// struct Name { namespace: String, name: String }
/// struct NameRef<'a>(&'a str, &'a str);
/// impl AsKey<Name> for NameRef<'_> {
///     fn with_key<R>(self, f: impl FnOnce(&Name) -> R) -> R {
///         f(&Name { namespace: self.0.to_string(), name: self.1.to_string() })
///     }
/// }
/// let q = WorkQueue::<Name>::new();
/// assert_eq!(q.num_requeues(NameRef("default", "web")), 0);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not stand for a key of the type `{K}`",
    label = "this is no key of the queue",
    note = "give the key by reference: `&key`",
    note = "for keys that are `String`, `Vec<T>`, `PathBuf`, `Arc<str>` and the like, \
            `&str`, `&[T]`, `&Path` will do as well"
)]
pub trait AsKey<K> {
    /// Calls `f` with the key.
    ///
    /// ```
    /// use requeue::AsKey;
    /// fn length(key: impl AsKey<String>) -> usize {
    ///     key.with_key(|key: &String| key.len())
    /// }
    /// assert_eq!((length("web"), length(&"web".to_string())), (3, 3));
    /// ```
    fn with_key<R>(self, f: impl FnOnce(&K) -> R) -> R;
}

impl<K> AsKey<K> for &K {
    #[inline]
    fn with_key<R>(self, f: impl FnOnce(&K) -> R) -> R {
        f(self)
    }
}

/// If keys are references, such as `&'static str`, one by itself is a key.
impl<'k, T: ?Sized> AsKey<&'k T> for &'k T {
    #[inline]
    fn with_key<R>(self, f: impl FnOnce(&&'k T) -> R) -> R {
        f(&self)
    }
}

macro_rules! borrowed_forms {
    (@ [$($generics:tt)*] $borrowed:ty, $owned:ty) => {
        impl<$($generics)*> AsKey<$owned> for &$borrowed {
            #[inline]
            fn with_key<R>(self, f: impl FnOnce(&$owned) -> R) -> R {
                f(&<$owned>::from(self))
            }
        }
    };
    ($generics:tt $borrowed:ty => $($owned:ty),+) => {
        $(borrowed_forms!(@ $generics $borrowed, $owned);)+
    };
}

borrowed_forms!([] str => String, Box<str>, Arc<str>, Rc<str>);
borrowed_forms!([T: Clone] [T] => Vec<T>, Box<[T]>, Arc<[T]>, Rc<[T]>);
borrowed_forms!([] Path => PathBuf, Box<Path>, Arc<Path>, Rc<Path>);
borrowed_forms!([] OsStr => OsString, Box<OsStr>, Arc<OsStr>, Rc<OsStr>);
borrowed_forms!([] CStr => CString, Box<CStr>, Arc<CStr>, Rc<CStr>);

impl<'k, B: ToOwned + ?Sized> AsKey<Cow<'k, B>> for &B {
    #[inline]
    fn with_key<R>(self, f: impl FnOnce(&Cow<'k, B>) -> R) -> R {
        f(&Cow::Owned(self.to_owned()))
    }
}
