//! [`Report`] and [`Change`]: what a watcher reports.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The reason why a key is reported.
///
/// ```
/// use requeue_watch::Event;
/// // Whatever it was, the one who acts on it looks at the file.
/// let went = |event: Event, path: &std::path::Path| event == Event::Delete && !path.exists();
/// assert!(went(Event::Delete, "no/such/file".as_ref()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// It was there at the start, or a resync reports it again.
    Initial,
    /// It was created, moved here, or closed after being open for writing. Or it may have been, because
    /// events were lost.
    Write,
    /// It was deleted or moved away.
    Delete,
}

impl Event {
    /// The event in one word: `initial`, `write` or `delete`.
    ///
    /// ```
    /// assert_eq!(requeue_watch::Event::Write.name(), "write");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }
}

/// One key to look at. Its description of the file was true at some moment; look at the file before acting on
/// it.
///
/// ```
/// use requeue_watch::Change;
/// fn mirrored(change: &Change) -> std::path::PathBuf {
///     std::path::Path::new("copy").join(&change.relative)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The root as given, joined with the path found below it, as `find` prints it.
    pub path: PathBuf,
    /// The path below the root; for a root itself `.`, or its name if it is a file.
    pub relative: PathBuf,
    /// The event, as far as it is known.
    pub event: Event,
    /// When the file was last changed by the file system's clock, if it was looked at because of an event.
    pub changed: Option<SystemTime>,
}

/// A message of a watcher.
///
/// ```
/// use requeue_watch::Report;
/// fn line(report: &Report) -> String {
///     match report {
///         Report::Change(change) => format!("{} {}", change.event.name(), change.path.display()),
///         Report::Ready { files, .. } => format!("watching {files} files"),
///         other => format!("{other:?}"),
///     }
/// }
/// assert_eq!(line(&Report::Overflow), "Overflow");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Report {
    /// A key to look at.
    Change(Change),
    /// Everything that was there at the start has been reported, once.
    Ready {
        /// Number of files found.
        files: usize,
        /// Number of directories watched.
        dirs: usize,
    },
    /// The kernel's event queue overflowed (`fs.inotify.max_queued_events`), so everything is looked at and
    /// reported again. Nothing is missed.
    Overflow,
    /// A directory, or the target of a root, cannot be read. Reported once. Changes in it are reported once
    /// it can be read, which is tried again whenever the roots are looked at. Its files are not reported as
    /// deleted.
    Unreadable {
        /// The directory, or the root.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// A root no longer exists. Its files are reported as deleted, and it is watched again when it comes
    /// back: [`ROOT_INTERVAL`] is the interval of the checks.
    RootGone {
        /// The root as given.
        path: PathBuf,
    },
    /// A root that was gone is back.
    RootBack {
        /// The root as given.
        path: PathBuf,
    },
}

/// Interval at which the roots are checked: whether they still lead to the same place, and whether one that
/// was gone is back. The kernel does not report that a directory above a root is renamed.
///
/// ```
/// assert_eq!(requeue_watch::ROOT_INTERVAL.as_secs(), 1);
/// ```
pub const ROOT_INTERVAL: Duration = Duration::from_secs(1);

/// Error that prevents or ends the watching.
///
/// ```
/// use requeue_watch::{Options, WatchError, Watcher};
/// let e = Watcher::new(&Options::new().glob("["), ["."]).unwrap_err();
/// assert!(matches!(e, WatchError::Glob { .. }));
/// assert!(e.to_string().starts_with("\"[\" is not a glob: "));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum WatchError {
    /// A root cannot be watched, for example because it does not exist.
    Root {
        /// The root as given.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// Invalid glob.
    Glob {
        /// The glob as given.
        glob: String,
        /// The reason.
        why: String,
    },
    /// The kernel has no watches left; every directory needs one. Files below the others would change unseen,
    /// so the watching ends.
    Limit {
        /// The directory without a watch.
        path: PathBuf,
        /// `fs.inotify.max_user_watches`, if it could be read.
        limit: Option<u64>,
        /// The lowest sufficient value for the present directories.
        wanted: u64,
    },
    /// Another error of the system.
    System {
        /// The operation that failed.
        what: &'static str,
        /// The error.
        error: io::Error,
    },
}

impl std::fmt::Display for WatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Root { path, error } => write!(f, "{path:?}: cannot be watched: {error}"),
            Self::Glob { glob, why } => write!(f, "{glob:?} is not a glob: {why}"),
            Self::Limit { path, limit, wanted } => {
                write!(f, "{path:?}: no inotify watch is left for it")?;
                if let Some(limit) = limit {
                    write!(f, " (fs.inotify.max_user_watches is {limit})")?;
                }
                write!(
                    f,
                    ": every directory needs one. Raise the limit with \
                     \"sysctl fs.inotify.max_user_watches={wanted}\", or watch fewer directories"
                )
            }
            Self::System { what, error } => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for WatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Root { error, .. } | Self::System { error, .. } => Some(error),
            Self::Glob { .. } | Self::Limit { .. } => None,
        }
    }
}

impl Change {
    pub(crate) fn new(path: PathBuf, relative: PathBuf, event: Event) -> Self {
        let relative = if relative.as_os_str().is_empty() { Path::new(".").to_owned() } else { relative };
        Self { path, relative, event, changed: None }
    }
}
