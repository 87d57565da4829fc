//! [`Key`]: a key as engines store it.

use requeue::BoxError;
use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;

/// A key that an engine can store as bytes, so that every program that uses the store sees one form.
///
/// Text and bytes are written as they are, and integers in decimal: the text given to `requeue add` on the
/// command line is the key of a program with `String`s.
///
/// ```
/// use requeue::BoxError;
/// use requeue_engine::Key;
/// use std::borrow::Cow;
///
/// #[derive(Clone, PartialEq, Eq, Hash)]
/// struct Order(u64);
/// impl Key for Order {
///     fn to_bytes(&self) -> Cow<'_, [u8]> {
///         format!("order-{}", self.0).into_bytes().into()
///     }
///     fn from_bytes(bytes: Vec<u8>) -> Result<Self, BoxError> {
///         let text = String::from_utf8(bytes)?;
///         Ok(Self(text.strip_prefix("order-").ok_or("no order")?.parse()?))
///     }
/// }
/// assert!(Order::from_bytes(Order(7).to_bytes().into()).is_ok_and(|order| order == Order(7)));
/// ```
pub trait Key: Clone + Hash + Eq + Send + Sync + 'static {
    /// The bytes of the key. Unequal keys must have different bytes.
    ///
    /// ```
    /// # use requeue_engine::Key;
    /// assert_eq!(&*4711_u64.to_bytes(), b"4711");
    /// ```
    fn to_bytes(&self) -> Cow<'_, [u8]>;

    /// The key of these bytes.
    ///
    /// # Errors
    ///
    /// The reason why no key has these bytes.
    ///
    /// ```
    /// # use requeue_engine::Key;
    /// assert_eq!(u64::from_bytes(b"4711".to_vec())?, 4711);
    /// # Ok::<(), requeue::BoxError>(())
    /// ```
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, BoxError>
    where
        Self: Sized;
}

impl Key for Vec<u8> {
    fn to_bytes(&self) -> Cow<'_, [u8]> {
        self.into()
    }
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, BoxError> {
        Ok(bytes)
    }
}

impl Key for String {
    fn to_bytes(&self) -> Cow<'_, [u8]> {
        self.as_bytes().into()
    }
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, BoxError> {
        Ok(Self::from_utf8(bytes)?)
    }
}

macro_rules! of_string {
    ($($key:ty),*) => {$(
        impl Key for $key {
            fn to_bytes(&self) -> Cow<'_, [u8]> {
                self.as_bytes().into()
            }
            fn from_bytes(bytes: Vec<u8>) -> Result<Self, BoxError> {
                Ok(String::from_utf8(bytes)?.into())
            }
        }
    )*};
}

of_string!(Box<str>, Arc<str>);

macro_rules! of_integer {
    ($($key:ty),*) => {$(
        impl Key for $key {
            fn to_bytes(&self) -> Cow<'_, [u8]> {
                self.to_string().into_bytes().into()
            }
            fn from_bytes(bytes: Vec<u8>) -> Result<Self, BoxError> {
                Ok(std::str::from_utf8(&bytes)?.parse()?)
            }
        }
    )*};
}

of_integer!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);
