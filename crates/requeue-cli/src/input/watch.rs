//! `--watch`: files as keys.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use requeue_watch::{Change, Options, WatchError, Watcher};

use crate::config::Watch;
use crate::text::show;

/// A watcher for the options.
///
/// # Errors
///
/// If a path does not exist, a glob is invalid, or the system cannot watch.
pub(crate) fn watcher(watch: &Watch) -> Result<Watcher, WatchError> {
    let options = Options::new().dirs(watch.dirs).gitignore(watch.gitignore);
    let options = watch.globs.iter().fold(options, Options::glob);
    let options = watch.ignored.iter().fold(options, Options::ignore);
    let options = watch.resync.into_iter().fold(options, Options::resync);
    Watcher::new(&options, &watch.paths)
}

/// The error message.
pub(crate) fn complaint(e: &WatchError) -> String {
    match e {
        WatchError::Root { path, error } => format!("{}: cannot be watched: {error}", shown(path)),
        other => other.to_string(),
    }
}

pub(crate) fn shown(path: &Path) -> String {
    show::key(path.as_os_str().as_bytes())
}

/// The exit status of a command that cannot begin to watch: 2 if the command line is the cause.
pub(crate) fn refusal(e: &WatchError) -> u8 {
    match e {
        WatchError::Root { .. } | WatchError::Glob { .. } => 2,
        _ => 1,
    }
}

/// The file as a key.
pub(crate) fn key(change: &Change) -> &[u8] {
    change.path.as_os_str().as_bytes()
}
