//! Watches directories and reports which files changed, without losing any: the basis of `requeue run
//! --watch`.
//!
//! The kernel's events (inotify) have gaps: files created in a new directory before it is watched, an event
//! queue that overflows, directories that are renamed. Here each event is only a reason to look, every new
//! directory is listed after its watch is set, and after lost events everything is reported again. So a
//! report is a key to look at, perhaps once too often, never once too few. A keyed work queue merges what is
//! too often.
//!
//! ```
//! use requeue_watch::{Event, Options, Report, Watcher};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! std::fs::write(dir.path().join("old"), "")?;
//! let (stop, _writer) = std::os::unix::net::UnixStream::pair()?;
//! let mut seen = Vec::new();
//! Watcher::new(&Options::new(), [dir.path()])?.run(&stop, |report| {
//!     match report {
//!         Report::Ready { .. } => std::fs::write(dir.path().join("new"), "").is_ok(),
//!         Report::Change(change) => {
//!             seen.push((change.relative, change.event));
//!             seen.last().is_some_and(|(name, _)| name.as_os_str() != "new") // false: enough
//!         }
//!         _ => true,
//!     }
//! })?;
//! assert_eq!(seen, [("old".into(), Event::Initial), ("new".into(), Event::Write)]);
//! # Ok(())
//! # }
//! ```
//!
//! The kernel does not report changes by other machines on a network file system, writes through memory maps,
//! or writes through another hard link of a file: a resync ([`Options::resync`]) finds them. Two writes to a
//! file that stays open in between are reported when it is closed.
//!
//! Only Linux is supported so far; on other systems [`Watcher::new`] returns an error.
#![forbid(unsafe_code)]

#[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
mod disk;
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
mod gitignore;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod inotify;
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
mod options;
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
mod pattern;
mod report;
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
mod rules;
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
mod tree;
mod watcher;

pub use self::options::Options;
pub use self::report::{Change, Event, ROOT_INTERVAL, Report, WatchError};
pub use self::watcher::Watcher;
