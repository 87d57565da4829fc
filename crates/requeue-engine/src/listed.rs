//! [`Listed`]: a key of a store, with its state.

use std::time::Duration;

/// State of a key in an engine's store.
///
/// ```
/// # use requeue_engine::{Listed, Status};
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
/// # use requeue_engine::{Listed, Status};
/// assert_eq!(Listed::new(b"order-4711".to_vec(), Status::Ready).attempt, 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The key, as [bytes](crate::Key::to_bytes).
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
/// # use requeue_engine::Holder;
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
    /// # use requeue_engine::Holder;
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
    /// # use requeue_engine::{Listed, Status};
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
