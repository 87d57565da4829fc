//! Keys as engines keep them.

use crate::BoxError;
use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// A key that an engine can store as bytes, so that every program that uses the store sees one form.
///
/// Text and bytes are written as they are, and integers in decimal: the text given to `requeue add` on the
/// command line is the key of a program with `String`s.
///
/// ```
/// use requeue::BoxError;
/// use requeue::engine::Key;
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
    /// # use requeue::engine::Key;
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
    /// # use requeue::engine::Key;
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

/// State of a key in an engine's store.
///
/// ```
/// # use requeue::engine::{Listed, Status};
/// assert_eq!(Listed::new(b"order-4711".to_vec(), Status::Ready).status, Status::Ready);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// It is in line.
    Ready,
    /// A worker has it.
    Held,
    /// It waits for its timer.
    Waiting,
    /// Its last run gave up. It waits for a trigger, or for a call that runs it again.
    Dead,
    /// Only its failures are stored.
    Idle,
}

/// A key of an engine's store, with its state.
///
/// ```
/// # use requeue::engine::{Listed, Status};
/// assert_eq!(Listed::new(b"order-4711".to_vec(), Status::Ready).attempt, 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The key, as [bytes](Key::to_bytes).
    pub key: Vec<u8>,
    /// Its state.
    pub status: Status,
    /// It runs again after its run.
    pub dirty: bool,
    /// Time until its timer is due.
    pub due_in: Option<Duration>,
    /// Number of failed runs since the last successful one.
    pub failures: u32,
    /// The attempt of its next run, counted from 1.
    pub attempt: u32,
    /// Its priority.
    pub priority: i16,
    /// Its value, as JSON.
    pub value: Option<String>,
    /// How long the key has had this status. In a file, for a key that no worker has: how long ago the first
    /// trigger came that has not led to a run yet.
    pub age: Duration,
    /// The error of its last run, if that gave up. On a server it stays until a run of the key succeeds, even
    /// if the key was added again or comes again by itself.
    pub error: Option<String>,
    /// Interval at which it comes again after each run, until it is cancelled.
    pub every: Option<Duration>,
    /// Schedule at which it comes again, until it is cancelled, as text.
    pub schedule: Option<String>,
    /// On a server, the process that holds the key; [`age`](Self::age) is for how long.
    pub holder: Option<Holder>,
}

/// A process that holds a key of a server's queue.
///
/// ```
/// # use requeue::engine::Holder;
/// assert_eq!(Holder::new("web-3".into(), 4711, "shop".into()).host, "web-3");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its host name.
    pub host: String,
    /// Its process number on that host.
    pub pid: u32,
    /// Its application name, as its connections report it.
    pub application: String,
}

impl Holder {
    /// A process of a host.
    ///
    /// ```
    /// # use requeue::engine::Holder;
    /// assert_eq!(Holder::new("web-3".into(), 4711, "shop".into()).pid, 4711);
    /// ```
    #[must_use]
    pub fn new(host: String, pid: u32, application: String) -> Self {
        Self { host, pid, application }
    }
}

impl Listed {
    /// A key of which only the status is known.
    ///
    /// ```
    /// # use requeue::engine::{Listed, Status};
    /// assert_eq!(Listed::new(b"order-4711".to_vec(), Status::Dead).error, None);
    /// ```
    #[must_use]
    pub fn new(key: Vec<u8>, status: Status) -> Self {
        let age = Duration::ZERO;
        Self {
            key,
            status,
            dirty: false,
            due_in: None,
            failures: 0,
            attempt: 1,
            priority: 0,
            value: None,
            age,
            error: None,
            every: None,
            schedule: None,
            holder: None,
        }
    }
}
