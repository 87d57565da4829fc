//! How keys and values are written into the file.

use requeue::{BoxError, EngineError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;

/// A key that a file can keep: as bytes, so that every program that uses the file sees the same.
///
/// Text and bytes are written as they are, and integers in decimal: what `requeue add` says on the command line is the
/// key of a program with `String`s.
///
/// ```
/// use requeue::BoxError;
/// use requeue_sqlite::Key;
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
    /// The bytes of the key. Keys that are not equal have other bytes.
    ///
    /// ```
    /// # use requeue_sqlite::Key;
    /// assert_eq!(&*4711_u64.to_bytes(), b"4711");
    /// ```
    fn to_bytes(&self) -> Cow<'_, [u8]>;

    /// The key of these bytes.
    ///
    /// # Errors
    ///
    /// Why no key has them.
    ///
    /// ```
    /// # use requeue_sqlite::Key;
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

/// A value as the file has it: JSON.
pub(crate) fn encode<V: Serialize>(value: &V) -> Result<Vec<u8>, EngineError> {
    serde_json::to_vec(value).map_err(|e| EngineError::Codec(e.into()))
}

pub(crate) fn decode<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, EngineError> {
    serde_json::from_slice(bytes).map_err(|e| EngineError::Codec(e.into()))
}
