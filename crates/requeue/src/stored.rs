//! Keys as engines keep them.

use crate::BoxError;
use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// A key that an engine can keep: as bytes, so that every program that uses the store sees the same.
///
/// Text and bytes are written as they are, and integers in decimal: what `requeue add` says on the command line is the
/// key of a program with `String`s.
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
    /// The bytes of the key. Keys that are not equal have other bytes.
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
    /// Why no key has them.
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

/// What a key does in an engine's store.
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
    /// Its last run gave up. It waits for a trigger, or to be told to run again.
    Dead,
    /// Only its failures are known.
    Idle,
}

/// A key of an engine's store, and what is known of it.
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
    /// What it does.
    pub status: Status,
    /// It runs again after its run.
    pub dirty: bool,
    /// In how long its timer is due.
    pub due_in: Option<Duration>,
    /// How often its runs have failed since the last successful run.
    pub failures: u32,
    /// What its next run is, counted from 1.
    pub attempt: u32,
    /// Its priority.
    pub priority: i16,
    /// Its value, as JSON.
    pub value: Option<String>,
    /// How long the key has had this status: in a file, of a key that no worker has, how long ago the first of its triggers
    /// came that have not led to a run yet.
    pub age: Duration,
    /// Why its last run gave up. On a server also of a key that was added again since, or that comes again by itself, until a run of
    /// it succeeds.
    pub error: Option<String>,
    /// So long after each run it comes again, until it is cancelled.
    pub every: Option<Duration>,
    /// At these times it comes again, until it is cancelled: as text.
    pub schedule: Option<String>,
    /// On a server, the process that has the key while it is held; [`age`](Self::age) is for how long.
    pub holder: Option<Holder>,
}

/// A process that has a key of a server's queue.
///
/// ```
/// # use requeue::engine::Holder;
/// assert_eq!(Holder::new("web-3".into(), 4711, "shop".into()).host, "web-3");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The name of its machine.
    pub host: String,
    /// Its number there.
    pub pid: u32,
    /// The name of its application, as its connections say it.
    pub application: String,
}

impl Holder {
    /// This process of this machine.
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
    /// One of which nothing more is known.
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
