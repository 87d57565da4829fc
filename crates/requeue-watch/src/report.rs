//! What a watcher tells.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Why a key is told.
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
    /// It was there at the start, or is told again because a resync asks for it.
    Initial,
    /// It was created, moved here, or closed after it was open for writing; or it may
    /// have been, because the kernel's events were lost.
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

/// One key to look at. What it says of the file was true at some moment; the one who
/// acts on it looks at the file.
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
    /// The root as it was given, and what was found below it, as `find` prints it.
    pub path: PathBuf,
    /// The path below the root; for a root itself `.`, or its name if it is a file.
    pub relative: PathBuf,
    /// What happened, as far as is known.
    pub event: Event,
    /// When the file was last changed by the file system's clock, where it was looked
    /// at because of an event.
    pub changed: Option<SystemTime>,
}

/// What a watcher tells.
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
    /// Everything that was there at the start has been told, once.
    Ready {
        /// Files that were found.
        files: usize,
        /// Directories that are watched.
        dirs: usize,
    },
    /// More happened at once than the kernel keeps (`fs.inotify.max_queued_events`), so
    /// everything is looked at and told again. Nothing is missed.
    Overflow,
    /// A directory, or what a root leads to, cannot be read. Said once; what happens in it
    /// is not told before it can, which is tried again as often as the roots are looked
    /// at. What it had is not told as deleted.
    Unreadable {
        /// The directory, or the root.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A root is not there any more. What it had is told as deleted, and it is watched
    /// again when it comes back: [`ROOT_INTERVAL`] says how often that is looked for.
    RootGone {
        /// The root as it was given.
        path: PathBuf,
    },
    /// A root that was gone is back.
    RootBack {
        /// The root as it was given.
        path: PathBuf,
    },
}

/// How often the roots are looked at: whether they still lead where they led, and
/// whether one that was gone is back. The kernel does not tell when a directory above a
/// root is renamed.
///
/// ```
/// assert_eq!(requeue_watch::ROOT_INTERVAL.as_secs(), 1);
/// ```
pub const ROOT_INTERVAL: Duration = Duration::from_secs(1);

/// Why there is nothing to watch, or no more watching.
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
    /// A root cannot be watched: it is not there, for instance.
    Root {
        /// The root as it was given.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A glob is none.
    Glob {
        /// As it was given.
        glob: String,
        /// What is wrong with it.
        why: String,
    },
    /// The kernel gives no more watches, of which every directory needs one. Files below
    /// the others would change unseen, so this is an end.
    Limit {
        /// The directory that has none.
        path: PathBuf,
        /// `fs.inotify.max_user_watches`, if it could be read.
        limit: Option<u64>,
        /// What it should be at least, for the directories that are there now.
        wanted: u64,
    },
    /// The system refuses something else.
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
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
